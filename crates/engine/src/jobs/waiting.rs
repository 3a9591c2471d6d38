//! Callers that wait for what runs in the background, ask for it, or hold it back.
//!
//! Where the store has no threads, who waits does the work. Called by the store's own calls, and by
//! writers that are stopped.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use trommel_base::planted::{Bug, planted};

use crate::background::{Background, BackgroundError, Concern, LONGEST_RETRY, State, Trouble};
use crate::compaction::pressure::Cause;
use crate::compaction::range::RangeCompaction;
use crate::engine::Engine;
use crate::env;
use crate::error::{BackgroundJob, Error, Result};
use crate::limiter::{AwaitedWork, WaitingCaller};
use crate::options::Options;
use crate::rebuild_queue::Rebuild;
use crate::sync::{lock, wait, wait_at_most};
use crate::view::View;

impl State {
    /// The work that writers wait for which are stopped for `cause`, and how it has failed.
    fn holding_up(&self, cause: Cause) -> (BackgroundJob, &Trouble) {
        match cause {
            Cause::Memtables => (BackgroundJob::Flush, &self.flushes),
            Cause::Level0 | Cause::Debt => (BackgroundJob::Compaction, &self.compactions),
        }
    }
}

impl Engine {
    /// Waits until something has changed that a writer which is stopped for `cause` may be waiting
    /// for, unless it has already: the view is another than `seen`. An error where the work that it
    /// waits for has failed for as long as [`Options::stall_timeout`].
    pub(crate) fn wait_for_progress(
        &self,
        _awaited: &WaitingCaller<'_>,
        cause: Cause,
        seen: &Arc<View>,
    ) -> Result<()> {
        let ran_some = self.work_inline()?;
        let state = lock(&self.background.state);
        // What ends the wait is done, or signalled, under this lock: it has come, or will.
        let goes_on = || !Arc::ptr_eq(&self.view.load(), seen) || !self.stops(seen);
        if ran_some || goes_on() {
            return self.check_background(&state, Concern::Poison, 0);
        }
        let limit = self.options.load().stall_timeout;
        self.check_stopped(&state, cause, limit)?;
        let ends = limit.and_then(|limit| state.holding_up(cause).1.held_up_until(limit));
        let most = ends.map_or(LONGEST_RETRY, |at| {
            at.saturating_duration_since(env::now()).min(LONGEST_RETRY)
        });
        // One wake-up is enough: the writer judges the pressure anew.
        let state = wait_at_most(&self.background.changed, state, most);
        if goes_on() {
            return self.check_background(&state, Concern::Poison, 0);
        }
        self.check_stopped(&state, cause, limit)
    }

    /// An error if a writer that is stopped for `cause` has nothing to wait for, or has waited as
    /// long as it may.
    fn check_stopped(&self, state: &State, cause: Cause, limit: Option<Duration>) -> Result<()> {
        self.check_background(state, Concern::Poison, 0)?;
        if state.turns_writers_away {
            return Err(Error::Closed);
        }
        let (job, trouble) = state.holding_up(cause);
        limit.map_or(Ok(()), |limit| trouble.stalled(job, limit, env::now()))
    }

    /// The last failure of a background job, if one has failed since the store was opened.
    pub(crate) fn background_error(&self) -> Option<BackgroundError> {
        let (state, now) = (lock(&self.background.state), env::now());
        let reports = state.troubles().into_iter();
        let reports = reports.filter_map(|(job, trouble)| trouble.report(job, now));
        let (_, mut last) = reports.max_by_key(|(at, _)| *at)?;
        if self.access.is_poisoned() {
            last.next_retry = None;
        }
        Some(last)
    }

    fn check_background(&self, state: &State, concern: Concern, seen: u64) -> Result<()> {
        self.access.check_unpoisoned()?;
        if state.shutting_down {
            return Err(Error::Closed);
        }
        match concern {
            Concern::Poison => Ok(()),
            concern => state.failures_since(concern, seen),
        }
    }

    /// Waits until `done` holds for the view, which a flush changes.
    pub(crate) fn wait_until(
        &self,
        awaited: &WaitingCaller<'_>,
        done: impl Fn(&View) -> bool,
    ) -> Result<()> {
        self.wait_for_state(awaited, Concern::Flushes, |engine, _| done(&engine.view.load()))
    }

    /// Waits until `done` holds. An error where a job of concern has failed meanwhile, even if
    /// another has succeeded since.
    pub(crate) fn wait_for_state(
        &self,
        _awaited: &WaitingCaller<'_>,
        concern: Concern,
        done: impl Fn(&Self, &State) -> bool,
    ) -> Result<()> {
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
            let inline = self.callers_work();
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
        self.access.check_open()?;
        if self.options.load().read_only {
            return Ok(());
        }
        let awaited = self.background.limiter.awaits(AwaitedWork::All);
        let _waiting = WaitingForRest::new(&self.background);
        self.settle_losses();
        loop {
            self.work_inline()?;
            self.wait_for_state(&awaited, Concern::All, |engine, state| {
                let view = engine.view.load();
                state.running == 0
                    && view.frozen.is_empty()
                    && state.rebuilds.iter().all(Rebuild::is_over)
                    && (state.fit_budget.is_over() || planted(Bug::IdleBeforeFit))
                    && (state.pauses > 0
                        || state.ranges.is_empty() && engine.automatic_plan(state, &view).is_none())
            })?;
            // A memtable may be full that nobody froze. Jobs may have met sidecars that are lost.
            if !self.freeze_full() && !self.settle_losses() {
                break;
            }
        }
        self.wait_for_limit();
        self.rest();
        Ok(())
    }

    /// Compacts everything between `from` and `to` (the end, if none), as it was written so far.
    pub(crate) fn compact(&self, from: &[u8], to: Option<&[u8]>) -> Result<()> {
        let awaited = self.background.limiter.awaits(AwaitedWork::All);
        self.flush()?;
        let through = self.snapshots.visible();
        let before = self.files.new_file_number();
        let ticket = {
            let mut state = lock(&self.background.state);
            let ticket = state.ticket();
            state.ranges.push((ticket, RangeCompaction::new(from, to, through, before)));
            self.background.notify();
            ticket
        };
        let is_open = |state: &State| state.ranges.iter().any(|(other, _)| *other == ticket);
        let outcome =
            self.wait_for_state(&awaited, Concern::Compactions, |_, state| !is_open(state));
        lock(&self.background.state).ranges.retain(|(other, _)| *other != ticket);
        outcome
    }

    /// Whether compactions are kept from starting, by these options, which are the current ones.
    pub(crate) fn compaction_rests(&self, options: &Options) -> bool {
        self.background.paused.load(Ordering::Relaxed) || !options.auto_compaction
    }

    /// Lets no compaction start until as many resumes follow, nor filters be made to fit their
    /// budget unless someone waits for that; waits for those that run.
    pub(crate) fn pause_compaction(&self) -> Result<()> {
        self.access.check_open()?;
        let awaited = self.background.limiter.awaits(AwaitedWork::All);
        {
            let mut state = lock(&self.background.state);
            state.pauses += 1;
            self.background.paused.store(true, Ordering::Relaxed);
            // Writers that wait for a compaction need not any more.
            self.background.notify();
        }
        let rests =
            self.wait_for_state(&awaited, Concern::Flushes, |_, state| state.busy.is_empty());
        if rests.is_err() {
            self.resume_compaction();
        }
        rests
    }

    /// Takes one pause back.
    pub(crate) fn resume_compaction(&self) {
        if self.access.opener().is_forked() {
            return;
        }
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
        background.notify();
        Self(background)
    }
}

impl Drop for WaitingForRest<'_> {
    fn drop(&mut self) {
        lock(&self.0.state).waiting_for_rest -= 1;
    }
}
