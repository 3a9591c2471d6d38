//! Range tombstones: each deletes all keys of a range that were written before it.
//!
//! 1. They are kept apart from the entries, in the memtable that was active when they were written
//!    ([`live`]), and from its flush on in the version, which the manifest records. So no table is
//!    ever searched for a range tombstone, no filter can hide one, and compactions do not cut them
//!    at the bounds of tables.
//! 2. A read finds the newest tombstone that applies to a key with binary searches in memory, and
//!    compares its sequence number with that of the entry it has found. It does not matter where
//!    the tombstone was written, nor in which level the entry is.
//! 3. Scans remember long sequences of point tombstones in the same form, in memory ([`gaps`]).
//! 4. A compaction drops the entries that are deleted for every reader. Tables that hold no others
//!    are removed without being read. A tombstone is no longer needed once no table overlaps its
//!    range that has older entries; those no longer needed are removed once they are half of all.

mod cursor;
mod gaps;
mod live;
mod map;
mod set;
#[cfg(test)]
mod tests;

pub(crate) use cursor::RangeCursor;
pub(crate) use gaps::Gaps;
pub(crate) use live::{LiveRanges, LoadedRanges};
pub use map::RangeTombstone;
pub(crate) use map::{RangeMap, Readers};
pub(crate) use set::RangeSet;
