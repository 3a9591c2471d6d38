//! Work that nobody waits for: writing out memtables, compacting, removing files.
//!
//! 1. A worker takes what is most urgent: the oldest frozen memtable (one flush at a time), then
//!    the next plan of the planner, or the next step of a requested range compaction.
//! 2. It runs it without any lock, installs the outcome, and looks again.
//! 3. A job that fails because the disk is full is tried again later; nothing refers to its
//!    outputs yet, so they are removed and nothing is lost. Any other failure poisons the store.
//!
//! With no threads, the call that makes work necessary runs it, in the same way and order.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use crate::compaction::in_progress::InProgress;
use crate::compaction::in_progress::JobId;
use crate::compaction::plan::{Plan, plan};
use crate::compaction::range::{RangeCompaction, Step};
use crate::engine::Engine;
use crate::env;
use crate::error::{Error, Result};
use crate::sync::{lock, wait};
use crate::view::{LoggedMemtable, View};

/// Pause after a failed attempt, doubled up to the longest.
const FIRST_RETRY: Duration = Duration::from_millis(50);
const LONGEST_RETRY: Duration = Duration::from_secs(5);

/// What is running, and what is asked for.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) busy: InProgress,
    pub(crate) flushing: bool,
    /// Jobs being run.
    pub(crate) running: usize,
    /// Callers that want no compaction to start.
    pub(crate) pauses: usize,
    /// Range compactions being worked on, each with its ticket.
    ranges: Vec<(u64, RangeCompaction)>,
    next_ticket: u64,
    /// The last attempt's failure, until one succeeds.
    failure: Option<Error>,
    retry_after: Option<(Instant, Duration)>,
    shutting_down: bool,
}

/// The workers' shared state.
#[derive(Debug, Default)]
pub(crate) struct Background {
    pub(crate) state: Mutex<State>,
    /// Whether someone paused compaction; a copy, for writers that look without the lock.
    paused: AtomicBool,
    /// Signalled when there may be something to do, and when something was done.
    changed: Condvar,
}

/// One piece of work.
enum Job {
    Flush(Arc<LoggedMemtable>),
    Compact(Box<Plan>, JobId),
}

impl Background {
    /// Has everyone look again: workers for work, waiters for progress.
    pub(crate) fn wake(&self) {
        let _state = lock(&self.state);
        self.changed.notify_all();
    }

    /// Lets no more work start, and waits for what runs: in workers, or in callers' own threads
    /// where there are no workers.
    pub(crate) fn shut_down(&self) {
        let mut state = lock(&self.state);
        state.shutting_down = true;
        self.changed.notify_all();
        while state.running > 0 {
            state = wait(&self.changed, state);
        }
    }
}

impl Engine {
    /// What a background thread does until the store is closed.
    pub(crate) fn work(&self) {
        let mut state = lock(&self.background.state);
        while !state.shutting_down {
            let now = env::now();
            if let Some(job) = self.next_job(&mut state, now) {
                drop(state);
                let _ = self.run_job(&job);
                state = lock(&self.background.state);
                continue;
            }
            // Judged by the moment at which work was looked for: either a retry was not due then,
            // and is waited for, or it was, and there is nothing to do.
            let later = state.retry_after.map(|(at, _)| at).filter(|at| *at > now);
            state = match later.filter(|_| self.poison.get().is_none()) {
                Some(at) => {
                    let outcome = self.background.changed.wait_timeout(state, at - now);
                    outcome.unwrap_or_else(std::sync::PoisonError::into_inner).0
                }
                None => wait(&self.background.changed, state),
            };
        }
    }

    /// Does all pending work in the calling thread, where the store has no threads of its own.
    pub(crate) fn work_inline(&self) -> Result<()> {
        if self.options.load().background_threads > 0 {
            return Ok(());
        }
        loop {
            let job = {
                let mut state = lock(&self.background.state);
                state.retry_after = None;
                self.next_job(&mut state, env::now())
            };
            let Some(job) = job else { return Ok(()) };
            self.run_job(&job)?;
        }
    }

    /// Takes the most urgent piece of work, if there is one.
    fn next_job(&self, state: &mut State, now: Instant) -> Option<Job> {
        if state.shutting_down || self.poison.get().is_some() || self.options.load().read_only {
            return None;
        }
        if state.retry_after.is_some_and(|(at, _)| at > now) {
            return None;
        }
        let view = self.view.load();
        if !state.flushing
            && let Some(oldest) = view.frozen.last()
        {
            state.flushing = true;
            state.running += 1;
            return Some(Job::Flush(Arc::clone(oldest)));
        }
        if state.pauses > 0 {
            return None;
        }
        let plan = self.next_plan(state, &view)?;
        // Planner and registry look at the same state under the same lock.
        let id = state.busy.start(&plan)?;
        state.running += 1;
        Some(Job::Compact(plan, id))
    }

    fn next_plan(&self, state: &mut State, view: &View) -> Option<Box<Plan>> {
        let options = self.options.load();
        let compaction = options.compaction();
        let mut at = 0;
        while at < state.ranges.len() {
            match state.ranges[at].1.next_step(&view.version, &state.busy, &compaction) {
                Step::Run(plan) => return Some(plan),
                Step::Wait => at += 1,
                Step::Done => {
                    state.ranges.remove(at);
                    self.background.changed.notify_all();
                }
            }
        }
        self.automatic_plan(state, view)
    }

    fn automatic_plan(&self, state: &State, view: &View) -> Option<Box<Plan>> {
        let options = self.options.load();
        if !options.auto_compaction {
            return None;
        }
        plan(&view.version, &state.busy, &options.compaction()).map(Box::new)
    }

    fn run_job(&self, job: &Job) -> Result<()> {
        let unwinding = PoisonOnPanic(self);
        let outcome = match job {
            Job::Flush(memtable) => self.run_flush(memtable),
            Job::Compact(plan, id) => {
                let outcome = self.run_compaction(plan, *id);
                if outcome.is_err() {
                    lock(&self.background.state).busy.finish(*id);
                }
                outcome
            }
        };
        drop(unwinding);
        self.graveyard.sweep();
        let mut state = lock(&self.background.state);
        if matches!(job, Job::Flush(_)) {
            state.flushing = false;
        }
        state.running -= 1;
        let outcome = self.judge(&mut state, outcome);
        self.background.changed.notify_all();
        outcome
    }

    /// Whether a failed job is tried again later or poisons the store.
    fn judge(&self, state: &mut State, outcome: Result<()>) -> Result<()> {
        let Err(error) = outcome else {
            state.failure = None;
            state.retry_after = None;
            return Ok(());
        };
        if error.is_disk_full() && self.poison.get().is_none() {
            let pause = state.retry_after.map_or(FIRST_RETRY, |(_, last)| last * 2);
            let pause = pause.min(LONGEST_RETRY);
            state.retry_after = Some((env::now() + pause, pause));
            crate::events::retrying(&error, pause);
        } else {
            let first = self.poison.set(Arc::new(error.clone())).is_ok();
            if first {
                crate::events::poisoned(&error);
            }
            self.published.notify_all();
        }
        state.failure = Some(error.clone());
        Err(error)
    }

    /// Waits for a background job to end, or for the view to be another than `seen`. An error
    /// where the work cannot go on.
    pub(crate) fn wait_for_progress(&self, seen: &Arc<View>) -> Result<()> {
        if self.options.load().background_threads == 0 {
            return self.work_inline();
        }
        let mut state = lock(&self.background.state);
        while Arc::ptr_eq(&self.view.load(), seen) {
            self.check_background(&state)?;
            state = wait(&self.background.changed, state);
        }
        Ok(())
    }

    fn check_background(&self, state: &State) -> Result<()> {
        if let Some(first) = self.poisoned() {
            return Err(Error::Poisoned { first });
        }
        if state.shutting_down {
            return Err(Error::Closed);
        }
        match &state.failure {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        }
    }

    /// Waits until `done` holds for the view.
    pub(crate) fn wait_until(&self, done: impl Fn(&View) -> bool) -> Result<()> {
        self.work_inline()?;
        self.wait_for_state(|engine, _| done(&engine.view.load()))
    }

    fn wait_for_state(&self, done: impl Fn(&Self, &State) -> bool) -> Result<()> {
        let inline = self.options.load().background_threads == 0;
        let mut state = lock(&self.background.state);
        while !done(self, &state) {
            self.check_background(&state)?;
            // Work may become possible while waiting for it: a pause is over, or what another
            // caller ran is out of the way.
            let job = if inline { self.next_job(&mut state, env::now()) } else { None };
            state = match job {
                Some(job) => {
                    drop(state);
                    self.run_job(&job)?;
                    lock(&self.background.state)
                }
                // Looking for work ends range compactions that have nothing left to do.
                None if done(self, &state) => break,
                None => wait(&self.background.changed, state),
            };
        }
        Ok(())
    }

    /// Waits until no work is running or needed.
    pub(crate) fn wait_idle(&self) -> Result<()> {
        self.check_open()?;
        if self.options.load().read_only {
            return Ok(());
        }
        self.work_inline()?;
        self.wait_for_state(|engine, state| {
            let view = engine.view.load();
            state.running == 0
                && view.frozen.is_empty()
                && (state.pauses > 0
                    || (state.ranges.is_empty() && engine.automatic_plan(state, &view).is_none()))
        })?;
        self.graveyard.sweep();
        Ok(())
    }

    /// Compacts everything between `from` and `to` (the end, if none), as it was written so far.
    pub(crate) fn compact(&self, from: &[u8], to: Option<&[u8]>) -> Result<()> {
        self.flush()?;
        let through = self.snapshots.visible();
        let before = self.new_file_number();
        let ticket = {
            let mut state = lock(&self.background.state);
            state.next_ticket += 1;
            let ticket = state.next_ticket;
            state.ranges.push((ticket, RangeCompaction::new(from, to, through, before)));
            self.background.changed.notify_all();
            ticket
        };
        let is_open = |state: &State| state.ranges.iter().any(|(other, _)| *other == ticket);
        let outcome =
            self.work_inline().and_then(|()| self.wait_for_state(|_, state| !is_open(state)));
        lock(&self.background.state).ranges.retain(|(other, _)| *other != ticket);
        outcome
    }

    /// Whether compactions are kept from starting.
    pub(crate) fn compaction_rests(&self) -> bool {
        self.background.paused.load(Ordering::Relaxed) || !self.options.load().auto_compaction
    }

    /// Lets no compaction start until as many resumes follow; waits for those that run.
    pub(crate) fn pause_compaction(&self) -> Result<()> {
        self.check_open()?;
        {
            let mut state = lock(&self.background.state);
            state.pauses += 1;
            self.background.paused.store(true, Ordering::Relaxed);
        }
        let rests = self.wait_for_state(|_, state| state.busy.is_empty());
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

/// A job that panics must not leave everyone waiting for its outcome.
struct PoisonOnPanic<'a>(&'a Engine);

impl Drop for PoisonOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.poison(Error::internal("a background job panicked"));
            lock(&self.0.background.state).running -= 1;
            self.0.background.wake();
        }
    }
}
