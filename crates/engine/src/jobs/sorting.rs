//! Making the sorted view of a version, and dropping it for lack of memory.

use std::sync::Arc;

use crate::background::{BackgroundState, Job};
use crate::engine::Engine;
use crate::iter::sorted::{NoView, build};
use crate::view::View;

impl Engine {
    /// Whether a sorted view is to be made: it is worth its cost, and nothing is running or waiting
    /// that would soon replace the version.
    pub(super) fn sorts_view(&self, state: &BackgroundState, view: &View) -> bool {
        let rests = view.frozen.is_empty() && !state.flushing && state.busy.working() == 0;
        let is_deferred = state.writer_core.put_off_until.is_some();
        let is_due = rests && !is_deferred && view.fences.sorted.is_due();
        is_due && self.options.load().reads.sorted_view
    }

    /// The sorted view to be made, if there is one.
    pub(super) fn next_sorted_view(
        &self,
        state: &BackgroundState,
        view: &Arc<View>,
    ) -> Option<Job> {
        let is_taken = self.sorts_view(state, view) && view.fences.sorted.begin();
        is_taken.then(|| Job::SortView(Arc::clone(view)))
    }

    /// Drops the sorted view if it takes too much memory by now, or is no longer wanted.
    pub(crate) fn drop_unwanted_view(&self) {
        let view = self.view.load();
        let is_wanted = self.options.load().reads.sorted_view;
        if !is_wanted || self.memory.shares.views_are_heavy() {
            view.fences.sorted.clear();
        }
    }

    /// Makes the sorted view of the tables of `view`, unless something comes up that replaces them.
    pub(super) fn sort_view(&self, view: &Arc<View>) {
        let slot = &view.fences.sorted;
        let goes_on = || {
            let now = self.view.load();
            !self.background.is_closing()
                && now.frozen.is_empty()
                && Arc::ptr_eq(&now.version, &view.version)
        };
        match build(&view.version, &self.files.tables, &self.memory.shares, goes_on) {
            Ok(sorted) => {
                slot.end(Some(sorted));
                // Options may have changed meanwhile.
                self.drop_unwanted_view();
                self.statistics.jobs.count_sorted_view();
            }
            Err(NoView::Stopped) => slot.end(None),
            Err(NoView::Refused) => slot.refuse(),
        }
    }
}
