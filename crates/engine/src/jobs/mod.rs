//! Work that nobody waits for: writing out memtables, compacting, removing files.
//!
//! 1. A worker takes what is most urgent: the oldest frozen memtable (one flush at a time), then
//!    the next plan of the planner, or the next step of a requested range compaction, then the next
//!    table whose filters are to be rebuilt. Where there is none of these and somebody waits for
//!    merges, it takes part in one that runs.
//! 2. It runs it without any lock, installs the outcome, and looks again. A merge may take long:
//!    where all workers are at one and a memtable is frozen, one of them writes it out in between,
//!    so that no more memtables wait than are filled in the time of a flush. Where cores are few,
//!    merges rest while one is written out, and leave a core to writers
//!    ([`Beside`](crate::background::Beside)).
//! 3. A job that fails because the disk is full, or because there are no file handles or no memory
//!    left, is tried again later; nothing refers to its outputs yet, so they are removed and
//!    nothing is lost. While it goes on failing, writers that it holds up wait no longer than
//!    [`Options::stall_timeout`](crate::Options::stall_timeout). Any other failure poisons the
//!    store. A rebuild of filters is told of to who asked for it, and never tried again by itself;
//!    one that the budget asked for is tried again later, whatever the failure, which poisons
//!    nothing that writing does not. A table that could not be read is told of to nobody who waits
//!    before it is given up.
//! 4. While compaction is paused, what the store would do by itself rests but for flushes:
//!    compactions, and rebuilds for the budget, which go on for whoever waits until all is done.
//!
//! With no threads, the call that makes work necessary runs it, in the same way and order.

mod serve;
mod waiting;

use std::time::{Duration, Instant};

use trommel_base::SeqNo;

use crate::background::{Beside, Job, Kind, State, Trouble};
use crate::compaction::key_range::total_bytes;
use crate::compaction::plan::{Plan, plan};
use crate::compaction::range::Step;
use crate::compaction_options::CompactionOptions;
use crate::engine::Engine;
use crate::env;
use crate::error::{Error, Result};
use crate::rebuild_queue::{RebuildJob, next_rebuild};
use crate::sync::{lock, wait};
use crate::view::View;

impl Engine {
    /// Does all pending work in the calling thread, where the store has no threads of its own;
    /// true if there was some.
    pub(crate) fn work_inline(&self) -> Result<bool> {
        if !self.callers_work() {
            return Ok(false);
        }
        let mut ran_some = false;
        loop {
            let job = {
                let mut state = lock(&self.background.state);
                (state.flushes.retry, state.compactions.retry) = (None, None);
                self.next_job(&mut state, env::now())
            };
            let Some(job) = job else { return Ok(ran_some) };
            self.run_job(job)?;
            ran_some = true;
        }
    }

    /// Takes the most urgent piece of work, if there is one.
    fn next_job(&self, state: &mut State, now: Instant) -> Option<Job> {
        state.put_off_until = None;
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

    fn takes_no_jobs(&self, state: &State) -> bool {
        state.shutting_down || self.access.is_poisoned() || self.options.load().read_only
    }

    /// The oldest frozen memtable, if it is its turn.
    fn next_flush(&self, state: &mut State, now: Instant) -> Option<Job> {
        if self.takes_no_jobs(state) {
            return None;
        }
        state.next_flush(&self.view.load(), now)
    }

    /// Sees to memtables before the merge that the caller is at: writes one out that waits while
    /// all workers are at merges, and waits for one that another worker writes out where not each
    /// has a core beside the writer's, as that one is what memory is held for. Whether there was
    /// one. How that ended is noted where others look for it.
    pub(crate) fn flush_between(&self) -> bool {
        let threads = self.options.load().background_threads;
        // Without threads, callers do the work that they make.
        if threads == 0 || self.view.load().frozen.is_empty() || self.access.is_poisoned() {
            return false;
        }
        let mut state = lock(&self.background.state);
        if state.flushing && threads >= state.cores.0 {
            // A flush that panics does not say that it has ended but by this.
            while state.flushing && !self.access.is_poisoned() {
                state = wait(&self.background.changed, state);
            }
            return true;
        }
        // Who is free has been woken.
        if state.running < threads && !self.background.is_busy() || state.shutting_down {
            return false;
        }
        let flush = state.next_flush(&self.view.load(), env::now());
        drop(state);
        flush.map(|flush| self.run_job(flush)).is_some()
    }

    fn next_rebuild(&self, state: &mut State, view: &View, now: Instant) -> Option<RebuildJob> {
        let over = |state: &State| {
            let all = state.rebuilds.iter().chain([&state.fit_budget]);
            all.filter(|it| it.is_over()).count()
        };
        let before = over(state);
        let mut job = next_rebuild(&mut state.rebuilds, &mut state.busy, &view.version);
        let is_paused = state.pauses > 0 && state.waiting_for_rest == 0;
        // What nobody asked for does not take the core that a merge which is put off leaves to
        // writers.
        let is_paused = is_paused || state.put_off_until.is_some();
        if job.is_none() && !is_paused && state.fits.is_due(now) {
            job = state.fit_budget.next(&mut state.busy, &view.version);
        }
        // Looking for a table ends a request of which none is left.
        if over(state) > before {
            self.background.notify();
        }
        job
    }

    fn next_compaction(&self, state: &mut State, view: &View, now: Instant) -> Option<Job> {
        if state.pauses > 0 || !state.compactions.is_due(now) {
            return None;
        }
        let plan = self.next_plan(state, view)?;
        if !plan.trivial_move {
            state.put_off_until = self.put_off_until(state, view, now);
        }
        if state.put_off_until.is_some() {
            return None;
        }
        // Planner and registry look at the same state under the same lock.
        let id = state.busy.start(&plan)?;
        Some(Job::Compact(plan, id))
    }

    /// Until when one merge more is put off, if it is.
    fn put_off_until(&self, state: &State, view: &View, now: Instant) -> Option<Instant> {
        let options = self.options.load();
        if options.background_threads == 0 || state.is_waited_for() {
            return None;
        }
        let beside = Beside {
            threads: options.background_threads,
            cores: state.cores.0,
            running: state.busy.working(),
            l0_runs: view.version.levels[0].len(),
            debt: self.backlog.debt(),
            options: &options.compaction(),
        };
        state.filling.until(now).filter(|_| beside.takes_a_core() && !beside.is_behind())
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
                    self.background.notify();
                }
            }
        }
        self.automatic_plan(state, view)
    }

    fn automatic_plan(&self, state: &State, view: &View) -> Option<Box<Plan>> {
        let options = self.options.load();
        if !options.auto_compaction || options.read_only {
            return None;
        }
        // More runs need not come any more.
        let waits_for_runs = state.waiting_for_rest == 0;
        let compaction = CompactionOptions { waits_for_runs, ..options.compaction() };
        plan(&view.version, &state.busy, &compaction, self.snapshots.oldest()).map(Box::new)
    }

    /// Gives the moment of a snapshot back. Where tables hold what it was the last to see, workers
    /// look for work.
    pub(crate) fn release_snapshot(&self, seqno: SeqNo) {
        let Some(oldest) = self.snapshots.release(seqno) else { return };
        if self.backlog.becomes_dead(seqno, oldest) {
            self.background.wake();
        }
    }

    fn run_job(&self, job: Job) -> Result<()> {
        let kind = job.kind();
        let unless_done = PoisonOnPanic { engine: self, job: Some(kind) };
        // What the job held is let go of before files are removed, which takes long where they are
        // large: a memtable's memory is that of the next one, and tables may be among the files.
        let outcome = self.do_job(job);
        // Removing files is part of the job: a panic in it must be told too.
        self.sweep();
        // Writers may have been stopped, so that a memtable became full that could not be frozen.
        // Without threads whoever runs the job looks. Who waits for the job's end waits for this,
        // too.
        if self.options.load().background_threads > 0 {
            self.freeze_full();
        }
        std::mem::forget(unless_done);
        let mut state = lock(&self.background.state);
        state.end(kind);
        let judged = match (&outcome, state.trouble(kind)) {
            (Err(error), Some(trouble)) => self.judge(trouble, error),
            (Ok(()), Some(trouble)) => match trouble.succeeded() {
                0 => Judged::Noted,
                failures => Judged::Recovered { failures },
            },
            (_, None) => Judged::Noted,
        };
        self.background.notify();
        drop(state);
        // Who listens may call the store.
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
            Job::Help(merge, pieces) => {
                self.help(&merge, pieces);
                Ok(())
            }
            Job::Rebuild(job) => {
                self.run_rebuild(&job);
                Ok(())
            }
        }
    }

    /// Whether a failed job is tried again later, was given up, or poisons the store, which it then
    /// does.
    fn judge(&self, trouble: &mut Trouble, error: &Error) -> Judged {
        if matches!(error, Error::Closed) || self.access.is_poisoned() {
            trouble.note(error.clone(), env::now());
            return Judged::Noted;
        }
        if error.is_shortage() {
            let pause = trouble.failed(error.clone(), env::now());
            return Judged::Retried { pause, failures: trouble.failed_in_a_row() };
        }
        trouble.note(error.clone(), env::now());
        let is_first = self.access.refuse_writes(error);
        // They look at the poison too.
        self.writes.publication.tell();
        if is_first { Judged::Poisons } else { Judged::Noted }
    }

    /// Removes the files that nothing refers to any more, but for those that are kept to be written
    /// over.
    pub(crate) fn sweep(&self) {
        // The version is let go of first: it may be the last to hold some of them.
        let live = total_bytes(self.version().tables().map(|(_, table)| table));
        self.files.graveyard.sweep(live);
    }

    /// Gives back what is kept for writes to come.
    pub(crate) fn rest(&self) {
        self.files.graveyard.clear();
        self.memory.arenas.release();
    }
}

/// What becomes of a store of which a job has failed.
enum Judged {
    /// Nothing more.
    Noted,
    /// The job is tried again, after this pause; so many attempts in a row have failed.
    Retried { pause: Duration, failures: u64 },
    /// It has succeeded after so many failures in a row.
    Recovered { failures: u64 },
    /// It takes no more writes.
    Poisons,
}

/// A job that panics, or a thread between two of them, must not leave everyone waiting for its
/// outcome: dropped, it says that one did.
struct PoisonOnPanic<'a> {
    engine: &'a Engine,
    /// The job, if the thread was at one.
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
