//! Callers that wait for background work, request it, or pause it.
//!
//! In a store without threads, the waiting caller runs the work. Called by public calls, and by
//! stopped writers.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::background::{
    Background, BackgroundError, BackgroundState, Concern, JobFailures, LONGEST_RETRY,
};
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

impl BackgroundState {
    /// The work that writers stopped for `cause` wait for, and its failures.
    fn holding_up(&self, cause: Cause) -> (BackgroundJob, &JobFailures) {
        match cause {
            Cause::Memtables => (BackgroundJob::Flush, &self.failures.flushes),
            Cause::Level0 | Cause::Debt => (BackgroundJob::Compaction, &self.failures.compactions),
        }
    }
}

impl Engine {
    /// Waits until something changes that a writer stopped for `cause` may be waiting for; returns
    /// at once if the view is no longer `seen`. An error if the work has kept failing for
    /// [`WriteSettings::stall_timeout`](crate::settings::WriteSettings::stall_timeout).
    pub(crate) fn wait_for_progress(
        &self,
        _awaited: &WaitingCaller<'_>,
        cause: Cause,
        seen: &Arc<View>,
    ) -> Result<()> {
        let ran_some = self.work_inline()?;
        let state = lock(&self.background.state);
        // Every event that ends the wait happens, or is signalled, under this lock, so none is
        // missed.
        let goes_on = || !Arc::ptr_eq(&self.view.load(), seen) || !self.stops(seen);
        if ran_some || goes_on() {
            return self.check_background(&state, Concern::Poison, 0);
        }
        let limit = self.options.load().writes.stall_timeout;
        self.check_stopped(&state, cause, limit)?;
        let ends = limit.and_then(|limit| state.holding_up(cause).1.held_up_until(limit));
        let most = ends.map_or(LONGEST_RETRY, |at| {
            at.saturating_duration_since(env::now()).min(LONGEST_RETRY)
        });
        // One wake-up is enough: the writer evaluates the pressure again.
        let state = wait_at_most(&self.background.changed, state, most);
        if goes_on() {
            return self.check_background(&state, Concern::Poison, 0);
        }
        self.check_stopped(&state, cause, limit)
    }

    /// An error if a writer stopped for `cause` has nothing to wait for, or has waited as long as
    /// it may.
    fn check_stopped(
        &self,
        state: &BackgroundState,
        cause: Cause,
        limit: Option<Duration>,
    ) -> Result<()> {
        self.check_background(state, Concern::Poison, 0)?;
        if state.refuses_writers {
            return Err(Error::Closed);
        }
        let (job, job_failures) = state.holding_up(cause);
        limit.map_or(Ok(()), |limit| job_failures.stalled(job, limit, env::now()))
    }

    /// The last failure of a background job, if one has failed since the store was opened.
    pub(crate) fn background_error(&self) -> Option<BackgroundError> {
        let (state, now) = (lock(&self.background.state), env::now());
        let reports = state.all_job_failures().into_iter();
        let reports = reports.filter_map(|(job, job_failures)| job_failures.report(job, now));
        let (_, mut last) = reports.max_by_key(|(at, _)| *at)?;
        if self.access.is_poisoned() {
            last.next_retry = None;
        }
        Some(last)
    }

    fn check_background(&self, state: &BackgroundState, concern: Concern, seen: u64) -> Result<()> {
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

    /// Waits until `done` holds. An error if a job of `concern` failed meanwhile, even if another
    /// has succeeded since.
    pub(crate) fn wait_for_state(
        &self,
        _awaited: &WaitingCaller<'_>,
        concern: Concern,
        done: impl Fn(&Self, &BackgroundState) -> bool,
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
            // Work may become possible during the wait: compactions are resumed, or another
            // caller's job ends.
            let inline = self.callers_work();
            if inline {
                // The waiting caller is the retry.
                (state.failures.flushes.retry, state.failures.compactions.retry) = (None, None);
                if concern == Concern::All {
                    state.failures.fits.retry = None;
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
        if self.options.load().opening.read_only {
            return Ok(());
        }
        let awaited = self.background.limiter.awaits(AwaitedWork::All);
        let _waiting = WaitingForIdle::new(&self.background);
        self.settle_losses();
        self.record_expired()?;
        loop {
            self.work_inline()?;
            self.wait_for_state(&awaited, Concern::All, |engine, state| {
                let view = engine.view.load();
                state.running == 0
                    && view.frozen.is_empty()
                    && state.requests.rebuilds.iter().all(Rebuild::is_over)
                    && state.requests.fit_budget.is_over()
                    && (state.requests.pauses > 0
                        || state.requests.ranges.is_empty()
                            && engine.automatic_plan(state, &view).is_none())
            })?;
            // A full memtable may not have been frozen yet. Jobs may have found sidecars lost.
            if !self.freeze_full() && !self.settle_losses() {
                break;
            }
        }
        self.wait_for_limit();
        self.rest();
        Ok(())
    }

    /// Compacts all keys between `from` and `to` (the end, if `None`), as written so far.
    pub(crate) fn compact(&self, from: &[u8], to: Option<&[u8]>) -> Result<()> {
        let awaited = self.background.limiter.awaits(AwaitedWork::All);
        self.flush()?;
        self.record_expired()?;
        let through = self.snapshots.visible();
        let before = self.files.new_file_number();
        let ticket = {
            let mut state = lock(&self.background.state);
            let ticket = state.ticket();
            state.requests.ranges.push((ticket, RangeCompaction::new(from, to, through, before)));
            self.background.notify();
            ticket
        };
        let is_open = |state: &BackgroundState| {
            state.requests.ranges.iter().any(|(other, _)| *other == ticket)
        };
        let outcome =
            self.wait_for_state(&awaited, Concern::Compactions, |_, state| !is_open(state));
        lock(&self.background.state).requests.ranges.retain(|(other, _)| *other != ticket);
        outcome
    }

    /// Whether compactions are paused, given the current options.
    pub(crate) fn compaction_is_paused(&self, options: &Options) -> bool {
        self.background.paused.load(Ordering::Relaxed) || !options.compaction.auto_compaction
    }

    /// Pauses compactions, and rebuilds for the budget unless a caller waits for an idle store;
    /// waits for running ones. Calls nest.
    pub(crate) fn pause_compaction(&self) -> Result<()> {
        self.access.check_open()?;
        let awaited = self.background.limiter.awaits(AwaitedWork::All);
        {
            let mut state = lock(&self.background.state);
            state.requests.pauses += 1;
            self.background.paused.store(true, Ordering::Relaxed);
            // Writers that wait for a compaction no longer need to.
            self.background.notify();
        }
        let rests =
            self.wait_for_state(&awaited, Concern::Flushes, |_, state| state.busy.is_empty());
        if rests.is_err() {
            self.resume_compaction();
        }
        rests
    }

    /// Undoes one pause.
    pub(crate) fn resume_compaction(&self) {
        if self.access.opener().is_forked() {
            return;
        }
        let mut state = lock(&self.background.state);
        state.requests.pauses = state.requests.pauses.saturating_sub(1);
        self.background.paused.store(state.requests.pauses > 0, Ordering::Relaxed);
        drop(state);
        self.background.wake();
    }
}

/// A caller waiting for the store to become idle.
struct WaitingForIdle<'a>(&'a Background);

impl<'a> WaitingForIdle<'a> {
    fn new(background: &'a Background) -> Self {
        let mut state = lock(&background.state);
        state.requests.waiting_for_idle += 1;
        // Paused work may resume, subranges of compactions may be taken, and no more runs are
        // waited for.
        background.notify();
        Self(background)
    }
}

impl Drop for WaitingForIdle<'_> {
    fn drop(&mut self) {
        lock(&self.0.state).requests.waiting_for_idle -= 1;
    }
}
