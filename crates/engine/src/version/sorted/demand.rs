//! When a view is worth its cost, and where it is held.
//!
//! Building a view costs a merge of all tables, and every flush and compaction makes another
//! necessary. Nobody knows how many scans will come until the next one. So a view is built once the
//! scans that lacked it have cost as much more as it will cost: at worst, all of that is paid
//! twice.
//!
//! A seek enters a block in each run. For each, it takes some 630 to 820 instructions more than in
//! a view, at ten to fifteen runs; building takes 870 to 940 for each entry. A long scan loses
//! several times as much for each block that it enters. So scans have lost about enough once they
//! have entered as many blocks as there are entries.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::{FEWEST_RUNS, MOST_RUNS, SortedView};
use crate::sync::{AtomicBool, AtomicU64, SwapOption};

/// The sorted view of one version, once it is built.
#[derive(Debug, Default)]
pub(crate) struct SortedSlot {
    /// Runs of the version.
    runs: usize,
    /// Entries of its tables.
    entries: u64,
    view: SwapOption<SortedView>,
    /// Blocks that scans have entered for lack of a view.
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

    /// Whether a view of so many runs is ever built.
    #[inline]
    pub(crate) fn is_possible(&self) -> bool {
        (FEWEST_RUNS..=MOST_RUNS).contains(&self.runs)
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
        let is_possible = self.is_possible();
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
        missed > 0 && missed >= self.entries
    }

    /// Counts blocks that scans have entered for lack of a view. Returns whether it has become
    /// worth its cost by them.
    pub(crate) fn miss(&self, blocks: u64) -> bool {
        if !self.may_be_built() {
            return false;
        }
        let before = self.missed.fetch_add(blocks, Relaxed);
        !self.is_worth_it(before) && self.is_worth_it(before.saturating_add(blocks))
    }
}
