//! Range tombstones: each deletes all keys of a range that were written before it.
//!
//! 1. They are kept apart from the entries, in the memtable that was active when they were written
//!    ([`live`]), and from its flush on in the version, which the manifest records. So a table is
//!    never searched for one, no filter can hide one, and a compaction cuts none at the borders of
//!    its tables.
//! 2. A read finds the newest tombstone that applies to a key with binary searches in memory, and
//!    compares its sequence number with that of the entry it has found. Where it was written, and
//!    in which level the entry is, makes no difference.
//! 3. Scans keep what they learn of long runs of point tombstones in the same form, in memory
//!    ([`gaps`]).
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
