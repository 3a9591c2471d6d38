//! Background work: flushes, compactions, filter rebuilds, removing obsolete files.
//!
//! 1. A worker takes the most urgent job: the oldest frozen memtable (one flush at a time), then
//!    the next plan of the planner or the next step of a requested range compaction, then the next
//!    table whose filters are to be rebuilt. If there is none of these and a caller waits for
//!    compactions, it helps with a running one.
//! 2. It runs the job without holding a lock, installs the outcome, and looks for the next. A
//!    compaction may take long: if all workers are compacting and a memtable is frozen, one of them
//!    flushes it in between, so that no more memtables wait than are filled during a flush. With
//!    few cores, compactions pause during a flush, and leave a core to writers
//!    ([`CoreUse`](crate::background::CoreUse)).
//! 3. A job that fails for lack of disk space, file handles or memory is retried later; nothing
//!    refers to its outputs yet, so they are removed and nothing is lost. While it keeps failing,
//!    the writers that it stalls wait at most
//!    [`WriteSettings::stall_timeout`](crate::settings::WriteSettings::stall_timeout). Any other
//!    failure poisons the store. The error of a requested filter rebuild goes to its caller, and
//!    the rebuild is not retried. A rebuild for the budget is retried after any failure, and only a
//!    failed write poisons the store. A table that cannot be read is reported to waiters only once
//!    it is given up.
//! 4. While compaction is paused, automatic work except flushes rests: compactions, and rebuilds
//!    for the budget unless a caller waits for the store to become idle.
//!
//! Without background threads, the call that makes work necessary runs it, in the same way and
//! order.

mod serve;
mod waiting;

use std::time::{Duration, Instant};

use trommel_base::SeqNo;

use crate::background::{BackgroundState, CoreUse, Job, JobFailures, Kind};
use crate::compaction::key_range::total_bytes;
use crate::compaction::plan::{Plan, plan};
use crate::compaction::range::RangeStep;
use crate::compaction_options::CompactionOptions;
use crate::engine::Engine;
use crate::env;
use crate::error::{Error, Result};
use crate::rebuild_queue::{RebuildJob, next_rebuild};
use crate::sync::{lock, wait};
use crate::view::View;

impl Engine {
    /// Runs all pending work in the calling thread, if the store has no threads of its own; returns
    /// whether there was any.
    pub(crate) fn work_inline(&self) -> Result<bool> {
        if !self.callers_work() {
            return Ok(false);
        }
        self.record_expired()?;
        let mut ran_some = false;
        loop {
            let job = {
                let mut state = lock(&self.background.state);
                (state.failures.flushes.retry, state.failures.compactions.retry) = (None, None);
                self.next_job(&mut state, env::now())
            };
            let Some(job) = job else { return Ok(ran_some) };
            self.run_job(job)?;
            ran_some = true;
        }
    }

    /// Takes the most urgent job, if there is any.
    fn next_job(&self, state: &mut BackgroundState, now: Instant) -> Option<Job> {
        state.writer_core.put_off_until = None;
        if let Some(flush) = self.next_flush(state, now) {
            return Some(flush);
        }
        if self.takes_no_jobs(state) {
            return None;
        }
        let view = self.view.load();
        let job = self.next_compaction(state, &view, now);
        let job = job.or_else(|| self.next_rebuild(state, &view, now).map(Job::Rebuild));
        let job = job.or_else(|| state.help())?;
        state.running += 1;
        Some(job)
    }

    fn takes_no_jobs(&self, state: &BackgroundState) -> bool {
        state.shutting_down || self.access.is_poisoned() || self.options.load().opening.read_only
    }

    /// The oldest frozen memtable, if it is its turn.
    fn next_flush(&self, state: &mut BackgroundState, now: Instant) -> Option<Job> {
        if self.takes_no_jobs(state) {
            return None;
        }
        state.next_flush(&self.view.load(), now)
    }

    /// Flushes a waiting memtable in the middle of the caller's compaction if all workers are
    /// compacting. If another worker is flushing one, waits for it, unless there are enough cores
    /// for every worker and a writer: the memory is held for that memtable. Returns whether there
    /// was one. The outcome is recorded as for any flush.
    pub(crate) fn flush_between(&self) -> bool {
        let threads = self.options.load().background_threads;
        // Without threads, callers run the work that they cause.
        if threads == 0 || self.view.load().frozen.is_empty() || self.access.is_poisoned() {
            return false;
        }
        let mut state = lock(&self.background.state);
        if state.flushing && threads >= state.writer_core.cores.0 {
            // If a flush panics, poisoning is the only sign that it has ended.
            while state.flushing && !self.access.is_poisoned() {
                state = wait(&self.background.changed, state);
            }
            return true;
        }
        // A free worker has been woken.
        if state.running < threads && !self.background.is_busy() || state.shutting_down {
            return false;
        }
        let flush = state.next_flush(&self.view.load(), env::now());
        drop(state);
        flush.map(|flush| self.run_job(flush)).is_some()
    }

    fn next_rebuild(
        &self,
        state: &mut BackgroundState,
        view: &View,
        now: Instant,
    ) -> Option<RebuildJob> {
        let over = |state: &BackgroundState| {
            let all = state.requests.rebuilds.iter().chain([&state.requests.fit_budget]);
            all.filter(|it| it.is_over()).count()
        };
        let before = over(state);
        let mut job = next_rebuild(&mut state.requests.rebuilds, &mut state.busy, &view.version);
        let is_paused = state.requests.pauses > 0 && state.requests.waiting_for_idle == 0;
        // Automatic rebuilds do not take the core that a deferred compaction leaves to writers.
        let is_paused = is_paused || state.writer_core.put_off_until.is_some();
        if job.is_none() && !is_paused && state.failures.fits.is_due(now) {
            job = state.requests.fit_budget.next(&mut state.busy, &view.version);
        }
        // Searching for a table ends a request that has none left.
        if over(state) > before {
            self.background.notify();
        }
        job
    }

    fn next_compaction(
        &self,
        state: &mut BackgroundState,
        view: &View,
        now: Instant,
    ) -> Option<Job> {
        if state.requests.pauses > 0 || !state.failures.compactions.is_due(now) {
            return None;
        }
        let plan = self.next_plan(state, view)?;
        if !plan.trivial_move {
            state.writer_core.put_off_until = self.put_off_until(state, view, now);
        }
        if state.writer_core.put_off_until.is_some() {
            return None;
        }
        // The planner and the registry see the same state under the same lock.
        let id = state.busy.start(&plan)?;
        Some(Job::Compact(plan, id))
    }

    /// Until when the next compaction is deferred, if it is.
    fn put_off_until(&self, state: &BackgroundState, view: &View, now: Instant) -> Option<Instant> {
        let options = self.options.load();
        if options.background_threads == 0 || state.is_waited_for() {
            return None;
        }
        let core_use = CoreUse {
            threads: options.background_threads,
            cores: state.writer_core.cores.0,
            running: state.busy.working(),
            l0_runs: view.version.levels[0].len(),
            debt: self.backlog.debt(),
            options: &options.planner(),
        };
        state
            .writer_core
            .filling
            .until(now)
            .filter(|_| core_use.takes_a_core() && !core_use.is_urgent())
    }

    fn next_plan(&self, state: &mut BackgroundState, view: &View) -> Option<Box<Plan>> {
        let options = self.options.load();
        let compaction = options.planner();
        let mut at = 0;
        while at < state.requests.ranges.len() {
            match state.requests.ranges[at].1.next_step(&view.version, &state.busy, &compaction) {
                RangeStep::Run(plan) => return Some(plan),
                RangeStep::Wait => at += 1,
                RangeStep::Done => {
                    state.requests.ranges.remove(at);
                    self.background.notify();
                }
            }
        }
        self.automatic_plan(state, view)
    }

    fn automatic_plan(&self, state: &BackgroundState, view: &View) -> Option<Box<Plan>> {
        let options = self.options.load();
        if !options.compaction.auto_compaction || options.opening.read_only {
            return None;
        }
        // While a caller waits for an idle store, no further runs are expected.
        let waits_for_runs = state.requests.waiting_for_idle == 0;
        let compaction = CompactionOptions { waits_for_runs, ..options.planner() };
        plan(&view.version, &state.busy, &compaction, self.snapshots.oldest()).map(Box::new)
    }

    /// Releases a snapshot. If it was the last to see entries of some table, workers are woken.
    pub(crate) fn release_snapshot(&self, seqno: SeqNo) {
        let Some(oldest) = self.snapshots.release(seqno) else { return };
        if self.backlog.becomes_dead(seqno, oldest) {
            self.background.wake();
        }
    }

    fn run_job(&self, job: Job) -> Result<()> {
        let kind = job.kind();
        let unless_done = PoisonOnPanic { engine: self, job: Some(kind) };
        // The job's references are dropped before files are removed, which takes long for large
        // files: the memtable's memory is needed for the next one, and tables may be among the
        // files.
        let outcome = self.do_job(job);
        // Removing files is part of the job: a panic there must be reported too.
        self.sweep();
        // While writers were stopped, a memtable may have become full without being frozen. Without
        // threads, the caller that runs the job checks. Callers that wait for the job's end wait
        // for this, too.
        if self.options.load().background_threads > 0 {
            self.freeze_full();
        }
        std::mem::forget(unless_done);
        let mut state = lock(&self.background.state);
        state.end(kind);
        let judged = match (&outcome, state.job_failures(kind)) {
            (Err(error), Some(job_failures)) => self.judge(job_failures, error),
            (Ok(()), Some(job_failures)) => match job_failures.succeeded() {
                0 => Judged::Noted,
                failures => Judged::Recovered { failures },
            },
            (_, None) => Judged::Noted,
        };
        self.background.notify();
        drop(state);
        // A listener may call the store.
        match (&outcome, judged, kind.reported()) {
            (Err(error), Judged::Retried { pause, failures }, Some(job)) => {
                crate::events::retrying(job, error, failures, pause);
            }
            (Err(error), Judged::Poisons, _) => crate::events::poisoned(error),
            (_, Judged::Recovered { failures }, Some(job)) => {
                crate::events::recovered(job, failures);
            }
            _ => {}
        }
        outcome
    }

    fn do_job(&self, job: Job) -> Result<()> {
        match job {
            Job::Flush(memtable) => self.run_flush(&memtable),
            Job::Compact(plan, id) => {
                let outcome = self.run_compaction(*plan, id);
                if outcome.is_err() {
                    lock(&self.background.state).busy.finish(id);
                }
                outcome
            }
            Job::Help(merge, subranges) => {
                self.help(&merge, subranges);
                Ok(())
            }
            Job::Rebuild(job) => {
                self.run_rebuild(&job);
                Ok(())
            }
        }
    }

    /// Decides whether a failed job is retried, was abandoned, or poisons the store, and does the
    /// latter.
    fn judge(&self, job_failures: &mut JobFailures, error: &Error) -> Judged {
        if matches!(error, Error::Closed) || self.access.is_poisoned() {
            job_failures.note(error.clone(), env::now());
            return Judged::Noted;
        }
        if error.is_shortage() {
            let pause = job_failures.failed(error.clone(), env::now());
            return Judged::Retried { pause, failures: job_failures.failed_in_a_row() };
        }
        job_failures.note(error.clone(), env::now());
        if self.refuse_writes(error) { Judged::Poisons } else { Judged::Noted }
    }

    /// Removes the obsolete files, except those kept for recycling.
    pub(crate) fn sweep(&self) {
        // The version is dropped first: it may be the last to hold some of them.
        let live = total_bytes(self.version().tables().map(|(_, table)| table));
        self.files.deletion_queue.sweep(live);
    }

    /// Frees the files and memory kept for future writes.
    pub(crate) fn rest(&self) {
        self.files.deletion_queue.clear();
        self.memory.arenas.release();
    }
}

/// The consequence of a job's outcome.
enum Judged {
    /// None.
    Noted,
    /// The job is retried after this pause; so far it has failed this many times in a row.
    Retried { pause: Duration, failures: u64 },
    /// The job has succeeded after this many failures in a row.
    Recovered { failures: u64 },
    /// The store takes no more writes.
    Poisons,
}

/// Poisons the store on drop, because waiters must not wait for a job, or a thread between two
/// jobs, that panicked.
struct PoisonOnPanic<'a> {
    engine: &'a Engine,
    /// The kind of job, if one was running.
    job: Option<Kind>,
}

impl Drop for PoisonOnPanic<'_> {
    fn drop(&mut self) {
        self.engine.poison(Error::internal("a background job panicked"));
        if let Some(kind) = self.job {
            lock(&self.engine.background.state).end(kind);
        }
        self.engine.background.wake();
    }
}
