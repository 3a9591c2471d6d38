//! The range tombstones of a memtable that is still written to.
//!
//! A reader without a snapshot reads at the newest visible sequence number. It must load the
//! tombstones after that number, or it could miss one that it must see. But the loaded set may have
//! been merged for later readers only: [`LiveRanges::load`] returns the sequence number from which
//! on the set is exact, and a reader at an earlier one starts again with a newer number.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use trommel_base::SeqNo;

use super::map::{RangeTombstone, Readers};
use super::set::RangeSet;
use crate::snapshots::Snapshots;
use crate::sync::{AtomicUsize, Mutex, SwapOption, lock};

/// Tombstones as of one moment.
#[derive(Debug, Default)]
pub(crate) struct LoadedRanges {
    pub(crate) set: RangeSet,
    /// Exact for readers from this sequence number on, and at registered snapshots.
    pub(crate) exact_from: SeqNo,
}

/// Range tombstones that are read without a lock while others are added.
#[derive(Debug, Default)]
pub(crate) struct LiveRanges {
    /// Approximate bytes of memory, 0 if there are no tombstones: the only check in most reads and
    /// writes.
    bytes: AtomicUsize,
    current: SwapOption<LoadedRanges>,
    /// Held while a tombstone is added.
    adding: Mutex<()>,
}

impl LiveRanges {
    /// Whether there is no tombstone.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.memory_bytes() == 0
    }

    /// The tombstones added so far. They include all tombstones up to any sequence number that was
    /// visible before the call.
    #[inline]
    pub(crate) fn load(&self) -> Option<Arc<LoadedRanges>> {
        if self.is_empty() { None } else { self.current.load_full() }
    }

    /// Adds a tombstone that is not visible yet. Returns whether it is the first.
    pub(crate) fn add(&self, tombstone: RangeTombstone, snapshots: &Snapshots) -> bool {
        let _one_at_a_time = lock(&self.adding);
        let (mut readers, visible) = snapshots.live_and_visible();
        readers.push(visible);
        let before = self.current.load_full();
        let before = before.as_ref().map(|before| before.set.clone()).unwrap_or_default();
        let set = before.with(vec![tombstone], &Readers::at(readers));
        let bytes = set.memory_bytes();
        self.current.store(Some(Arc::new(LoadedRanges { set, exact_from: visible })));
        self.bytes.store(bytes, Ordering::Release);
        before.is_empty()
    }

    /// The same tombstones, to which others can be added.
    pub(crate) fn copy(&self) -> Self {
        let current = self.load();
        let bytes = current.as_ref().map_or(0, |loaded| loaded.set.memory_bytes());
        Self {
            bytes: AtomicUsize::new(bytes),
            current: SwapOption::new(current),
            adding: Mutex::default(),
        }
    }

    /// Approximate bytes of memory.
    #[inline]
    pub(crate) fn memory_bytes(&self) -> usize {
        self.bytes.load(Ordering::Acquire)
    }
}
