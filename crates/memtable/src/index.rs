//! The parts of each kind of memtable: an index, which finds the records and orders them, and its
//! scans. One suite of tests (`conformance.rs`) runs against every implementation.
//!
//! # Invariants
//! * The records of an index are in the arena of the memtable that owns the index. A scan is used
//!   only while its memtable lives.
//! * An entry whose insert has returned is found by every later read, in any thread that has
//!   synchronized with the inserting one.
//! * Nothing is replaced or removed.

use trommel_base::SeqNo;
use trommel_base::sync::linked::AtomicUsize;

use crate::arena::Arena;
use crate::record::Stored;
use crate::slot::{Probe, Slot};

/// Finds and orders the records of a memtable; written and read by many threads at once.
pub(crate) trait Index {
    /// A position among the records.
    type Scan: IndexScan;

    /// Adds a record, whose slot is `slot`, and counts it in `len` before it can be found. Returns
    /// false, and counts nothing, if there is one of the same key and sequence number.
    fn insert(&self, record: Stored<'_>, slot: Slot, len: &AtomicUsize) -> bool;

    /// Prefetches the memory that an insert or a lookup of `key` will read first.
    fn prefetch(&self, key: &[u8]);

    /// The newest version of `key` that is not newer than `seqno`. The slots of this memtable are
    /// those relative to `common_prefix`.
    fn find<'a>(
        &'a self,
        arena: &'a Arena,
        common_prefix: &[u8],
        key: &[u8],
        seqno: SeqNo,
    ) -> Option<Stored<'a>>;

    /// The first slot and the last, if there are any. Sorts nothing.
    fn ends(&self) -> Option<[Slot; 2]>;

    /// Bytes of memory held outside of this value.
    fn bytes(&self) -> usize;

    /// A scan over the entries whose inserts have returned, and over no later ones. With a moment
    /// it may leave out versions of a key other than the newest one that is not later, or than the
    /// oldest one if all are. It is not positioned.
    fn scan(&self, moment: Option<SeqNo>) -> Self::Scan;
}

/// A position among the entries that an index held when the scan was created, or none.
pub(crate) trait IndexScan {
    /// Moves to the first entry.
    fn first(&mut self);

    /// Moves to the last entry.
    fn last(&mut self);

    /// Moves to the first entry at or after `probe`.
    fn seek(&mut self, probe: &Probe<'_>);

    /// Moves to the last entry before `probe`.
    fn before(&mut self, probe: &Probe<'_>);

    /// Moves one entry forward. Does nothing if not positioned.
    fn next(&mut self);

    /// Moves one entry backward. Does nothing if not positioned.
    fn prev(&mut self);

    /// Moves forward to the first entry from the current one on that was written at `since` or
    /// later, or that is at or after `end`. With a moment it may be an entry after that, the next
    /// one that is shown.
    fn skip_older(&mut self, since: SeqNo, end: Option<&Probe<'_>>);

    /// Moves backward to the last entry before the position that was written at `since` or later,
    /// or that is before `begin`; with a moment as `skip_older`.
    fn skip_older_back(&mut self, since: SeqNo, begin: &Probe<'_>);

    /// The current slot.
    fn slot(&self) -> Option<&Slot>;
}
