//! Callers that wait for what runs in the background, ask for it, or hold it back.
//!
//! Where the store has no threads, who waits does the work. Called by the store's own calls, and by writers that are
//! stopped.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use trommel_base::planted::{Bug, planted};

use super::trouble::LONGEST_RETRY;
use super::{Background, Concern, State};
use crate::compaction::range::RangeCompaction;
use crate::engine::Engine;
use crate::env;
use crate::error::{Error, Result};
use crate::options::Options;
use crate::rebuild::queue::Rebuild;
use crate::sync::{lock, wait, wait_at_most};
use crate::view::View;

impl Engine {
    /// Waits until something has changed that a stopped writer may be waiting for, unless it has
    /// already: the view is another than `seen`. An error where a flush failed meanwhile.
    pub(crate) fn wait_for_progress(&self, seen: &Arc<View>) -> Result<()> {
        let ran_some = self.work_inline()?;
        let state = lock(&self.background.state);
        let failures = state.flushes.failures;
        // What ends the wait is done, or signalled, under this lock: it has come, or will.
        self.check_stopped(&state, failures)?;
        if ran_some || !Arc::ptr_eq(&self.view.load(), seen) || !self.stops(seen) {
            return Ok(());
        }
        // One wake-up is enough: the writer judges the pressure anew.
        let state = wait_at_most(&self.background.changed, state, LONGEST_RETRY);
        self.check_stopped(&state, failures)
    }

    /// An error if a stopped writer has nothing to wait for.
    fn check_stopped(&self, state: &State, failures: u64) -> Result<()> {
        self.check_background(state, Concern::Flushes, failures)?;
        if state.turns_writers_away { Err(Error::Closed) } else { Ok(()) }
    }

    fn check_background(&self, state: &State, concern: Concern, seen: u64) -> Result<()> {
        self.check_unpoisoned()?;
        if state.shutting_down {
            return Err(Error::Closed);
        }
        match concern {
            Concern::Poison => Ok(()),
            concern => state.failures_since(concern, seen),
        }
    }

    /// Waits until `done` holds for the view, which a flush changes.
    pub(crate) fn wait_until(&self, done: impl Fn(&View) -> bool) -> Result<()> {
        self.wait_for_state(Concern::Flushes, |engine, _| done(&engine.view.load()))
    }

    /// Waits until `done` holds. An error where a job of concern has failed meanwhile, even if
    /// another has succeeded since.
    pub(crate) fn wait_for_state(
        &self,
        concern: Concern,
        done: impl Fn(&Self, &State) -> bool,
    ) -> Result<()> {
        let inline = self.options.load().background_threads == 0;
        let mut state = lock(&self.background.state);
        let seen = state.failures(concern);
        let is_of_all = matches!(concern, Concern::Compactions | Concern::All);
        loop {
            let is_done = done(self, &state);
            if is_of_all || !is_done {
                self.check_background(&state, concern, seen)?;
            }
            if is_done {
                return Ok(());
            }
            // Work may become possible while waiting for it: a pause is over, or what another
            // caller ran is out of the way.
            if inline {
                // Who waits here is the retry.
                (state.flushes.retry, state.compactions.retry) = (None, None);
                if concern == Concern::All {
                    state.fits.retry = None;
                }
            }
            let job = if inline { self.next_job(&mut state, env::now()) } else { None };
            state = match job {
                Some(job) => {
                    drop(state);
                    self.run_job(job)?;
                    lock(&self.background.state)
                }
                // Looking for work ends range compactions that have nothing left to do.
                None if done(self, &state) => state,
                None => wait(&self.background.changed, state),
            };
        }
    }

    /// Waits until no work is running or needed.
    pub(crate) fn wait_idle(&self) -> Result<()> {
        self.check_open()?;
        if self.options.load().read_only {
            return Ok(());
        }
        let _waiting = WaitingForRest::new(&self.background);
        self.settle_losses();
        loop {
            self.work_inline()?;
            self.wait_for_state(Concern::All, |engine, state| {
                let view = engine.view.load();
                state.running == 0
                    && view.frozen.is_empty()
                    && state.rebuilds.iter().all(Rebuild::is_over)
                    && (state.fit_budget.is_over() || planted(Bug::IdleBeforeFit))
                    && (state.pauses > 0
                        || state.ranges.is_empty() && engine.automatic_plan(state, &view).is_none())
            })?;
            // Jobs may have met sidecars that are lost.
            if !self.settle_losses() {
                break;
            }
        }
        self.wait_for_limit();
        self.rest();
        Ok(())
    }

    /// Compacts everything between `from` and `to` (the end, if none), as it was written so far.
    pub(crate) fn compact(&self, from: &[u8], to: Option<&[u8]>) -> Result<()> {
        self.flush()?;
        let through = self.snapshots.visible();
        let before = self.new_file_number();
        let ticket = {
            let mut state = lock(&self.background.state);
            let ticket = state.ticket();
            state.ranges.push((ticket, RangeCompaction::new(from, to, through, before)));
            self.background.changed.notify_all();
            ticket
        };
        let is_open = |state: &State| state.ranges.iter().any(|(other, _)| *other == ticket);
        let outcome = self.wait_for_state(Concern::Compactions, |_, state| !is_open(state));
        lock(&self.background.state).ranges.retain(|(other, _)| *other != ticket);
        outcome
    }

    /// Whether compactions are kept from starting, by these options, which are the current ones.
    pub(crate) fn compaction_rests(&self, options: &Options) -> bool {
        self.background.paused.load(Ordering::Relaxed) || !options.auto_compaction
    }

    /// Lets no compaction start until as many resumes follow, nor filters be made to fit their budget
    /// unless someone waits for that; waits for those that run.
    pub(crate) fn pause_compaction(&self) -> Result<()> {
        self.check_open()?;
        {
            let mut state = lock(&self.background.state);
            state.pauses += 1;
            self.background.paused.store(true, Ordering::Relaxed);
            // Writers that wait for a compaction need not any more.
            self.background.changed.notify_all();
        }
        let rests = self.wait_for_state(Concern::Flushes, |_, state| state.busy.is_empty());
        if rests.is_err() {
            self.resume_compaction();
        }
        rests
    }

    /// Takes one pause back.
    pub(crate) fn resume_compaction(&self) {
        let mut state = lock(&self.background.state);
        state.pauses = state.pauses.saturating_sub(1);
        self.background.paused.store(state.pauses > 0, Ordering::Relaxed);
        drop(state);
        self.background.wake();
    }
}

/// A caller who waits until the store rests.
struct WaitingForRest<'a>(&'a Background);

impl<'a> WaitingForRest<'a> {
    fn new(background: &'a Background) -> Self {
        let mut state = lock(&background.state);
        state.waiting_for_rest += 1;
        // What rested may go on, pieces of merges may be taken, and no more runs are waited for.
        background.changed.notify_all();
        Self(background)
    }
}

impl Drop for WaitingForRest<'_> {
    fn drop(&mut self) {
        lock(&self.0.state).waiting_for_rest -= 1;
    }
}
