//! Gaps: ranges of keys in which scans have found nothing alive.
//!
//! A scan that has passed many tombstones between two keys knows that no entry there, as old as the
//! scan or older, will ever be visible to a reader as of its sequence number or a later one. A
//! range tombstone with this sequence number has the same meaning, so the gap is kept as one, in
//! memory only: later scans skip the gap, except for newer writes in it, and readers as of an
//! earlier moment do not see it. Neither writes nor compactions make a gap wrong; one in which
//! compactions have left no tombstones is forgotten, because nothing is saved by skipping it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::map::{RangeTombstone, Readers};
use super::set::RangeSet;
use crate::sync::{AtomicBool, Mutex, SwapOption, lock};

/// Most bytes of all gaps; beyond this, all are forgotten and learned again.
const MOST_BYTES: usize = 1 << 20;
/// Longest key at the end of a gap, in bytes.
const LONGEST_KEY: usize = 1 << 10;

/// The gaps that scans have found so far.
#[derive(Debug, Default)]
pub(crate) struct Gaps {
    any: AtomicBool,
    known: SwapOption<RangeSet>,
    /// Held while a gap is added.
    adding: Mutex<()>,
}

impl Gaps {
    /// Fewest keys in a gap for it to be kept for later scans.
    pub(crate) const FEWEST_KEYS: u32 = if cfg!(any(test, shuttle)) { 4 } else { 64 };

    /// Whether no gap has been found yet: the only check in most scans.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        !self.any.load(Ordering::Acquire)
    }

    /// The gaps found so far, if there are any.
    pub(crate) fn load(&self) -> Option<Arc<RangeSet>> {
        if self.is_empty() { None } else { self.known.load_full() }
    }

    /// Approximate bytes of memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.load().map_or(0, |known| known.memory_bytes())
    }

    /// Forgets the gaps for which `is_useful` returns false.
    pub(crate) fn retain(&self, is_useful: impl Fn(&RangeTombstone) -> bool) {
        if self.is_empty() {
            return;
        }
        let _none_is_added = lock(&self.adding);
        let Some(known) = self.known.load_full() else { return };
        let (useful, useless): (Vec<_>, Vec<_>) = known.tombstones().partition(is_useful);
        if useless.is_empty() {
            return;
        }
        self.any.store(!useful.is_empty(), Ordering::Release);
        let known = RangeSet::default().with(useful, &Readers::at(Vec::new()));
        self.known.store((!known.is_empty()).then(|| Arc::new(known)));
    }

    /// Adds a gap in which a scan as of `gap.seqno` has found nothing.
    pub(crate) fn add(&self, gap: RangeTombstone) {
        if gap.from.len().max(gap.to.as_ref().map_or(0, |to| to.len())) > LONGEST_KEY {
            return;
        }
        let _one_at_a_time = lock(&self.adding);
        let before = self.known.load_full().filter(|known| known.memory_bytes() < MOST_BYTES);
        let before = before.map(|known| (*known).clone()).unwrap_or_default();
        // Readers as of earlier moments do not use gaps.
        let known = before.with(vec![gap], &Readers::at(Vec::new()));
        self.known.store(Some(Arc::new(known)));
        self.any.store(true, Ordering::Release);
    }
}
