//! When a view is worth its cost, and where it is held.
//!
//! Building a view costs a merge of all tables, and every flush and compaction makes another
//! necessary. Nobody knows how many seeks will come until the next one. So a view is built once the
//! seeks that lacked it have cost as much more as it will cost: at worst, all of that is paid
//! twice.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::{FEWEST_RUNS, MOST_RUNS, SortedView};
use crate::sync::{AtomicBool, AtomicU64, SwapOption};

/// Building a view costs about as much for each entry as a view saves in this part of a seek, for
/// each run. Measured by instructions: see the page on performance.
const ENTRIES_FOR_SEEK_OF_RUN: u64 = 4;

/// The sorted view of one version, once it is built.
#[derive(Debug, Default)]
pub(crate) struct SortedSlot {
    /// Runs of the version.
    runs: usize,
    /// Entries of its tables.
    entries: u64,
    view: SwapOption<SortedView>,
    /// Seeks that searched all tables for lack of a view.
    missed: AtomicU64,
    /// Whether it is being built.
    is_begun: AtomicBool,
    /// Whether no view is built, or built again.
    is_refused: AtomicBool,
}

impl SortedSlot {
    /// Of a version with so many runs, and so many entries in them.
    pub(crate) fn new(runs: usize, entries: u64) -> Self {
        Self { runs, entries, ..Self::default() }
    }

    /// The view, if there is one.
    #[inline]
    pub(crate) fn load(&self) -> Option<Arc<SortedView>> {
        let view = self.view.load_full()?;
        if view.is_wrong.load(Relaxed) {
            self.refuse();
            return None;
        }
        Some(view)
    }

    /// Whether there is a view.
    pub(crate) fn is_built(&self) -> bool {
        self.view.load().is_some()
    }

    /// Begins to build the view; false if it is being built.
    pub(crate) fn begin(&self) -> bool {
        !self.is_begun.swap(true, Relaxed)
    }

    /// Ends building it, with a view unless that was stopped.
    pub(crate) fn end(&self, view: Option<SortedView>) {
        self.view.store(view.map(Arc::new));
        self.is_begun.store(false, Relaxed);
    }

    /// Drops the view. It is built again once scans have lacked it as long.
    pub(crate) fn clear(&self) {
        self.missed.store(0, Relaxed);
        self.view.store(None);
    }

    /// Drops the view, and builds none for this version.
    #[cold]
    pub(crate) fn refuse(&self) {
        self.is_refused.store(true, Relaxed);
        self.view.store(None);
    }

    /// Whether a view may be built, whether or not it is worth it.
    fn may_be_built(&self) -> bool {
        let is_possible = (FEWEST_RUNS..=MOST_RUNS).contains(&self.runs);
        is_possible
            && !self.is_refused.load(Relaxed)
            && !self.is_begun.load(Relaxed)
            && !self.is_built()
    }

    /// Whether a view is worth its cost, and may be built.
    pub(crate) fn is_due(&self) -> bool {
        self.is_worth_it(self.missed.load(Relaxed)) && self.may_be_built()
    }

    fn is_worth_it(&self, missed: u64) -> bool {
        let saved = missed.saturating_mul(self.runs as u64 * ENTRIES_FOR_SEEK_OF_RUN);
        missed > 0 && saved >= self.entries
    }

    /// Counts seeks that lacked a view. Returns whether it has become worth its cost by them.
    pub(crate) fn miss(&self, seeks: u64) -> bool {
        if !self.may_be_built() {
            return false;
        }
        let before = self.missed.fetch_add(seeks, Relaxed);
        !self.is_worth_it(before) && self.is_worth_it(before.saturating_add(seeks))
    }
}
