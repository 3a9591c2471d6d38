//! Work that nobody waits for: writing out memtables, compacting, removing files.
//!
//! 1. A worker takes what is most urgent: the oldest frozen memtable (one flush at a time), then
//!    the next plan of the planner, or the next step of a requested range compaction, then the next
//!    table whose filters are to be rebuilt. Where there is none of these and somebody waits for merges, it
//!    takes part in one that runs.
//! 2. It runs it without any lock, installs the outcome, and looks again. A merge may take long: where all
//!    workers are at one and a memtable is frozen, one of them writes it out in between, so that no more
//!    memtables wait than are filled in the time of a flush. Where cores are few, merges rest while one is
//!    written out, and leave a core to who writes ([`beside`]).
//! 3. A job that fails because the disk is full, or because there are no file handles or no memory left, is
//!    tried again later; nothing refers to its outputs yet, so they are removed and nothing is
//!    lost. While it goes on failing, writers that it holds up wait no longer than
//!    [`Options::stall_timeout`](crate::Options::stall_timeout). Any other failure poisons the store. A rebuild of filters is told of to who asked for it,
//!    and never tried again by itself; one that the budget asked for is tried again later, whatever
//!    the failure, which poisons nothing that writing does not. A table that could not be read is told
//!    of to nobody who waits before it is given up.
//! 4. While compaction is paused, what the store would do by itself rests but for flushes: compactions,
//!    and rebuilds for the budget, which go on for whoever waits until all is done.
//!
//! With no threads, the call that makes work necessary runs it, in the same way and order.

mod beside;
mod serve;
mod trouble;
mod waiting;

use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use trommel_base::SeqNo;

use crate::compaction::in_progress::InProgress;
use crate::compaction::in_progress::JobId;
use crate::compaction::key_range::total_bytes;
use crate::compaction::plan::{Plan, plan};
use crate::compaction::range::{RangeCompaction, Step};
use crate::compaction_options::CompactionOptions;
use crate::engine::Engine;
use crate::env;
use crate::error::{BackgroundJob, Error, Result};
use crate::rebuild_queue::{FilterRebuildReport, Rebuild, RebuildJob, next_rebuild};
use crate::shared_merge::SharedMerge;
use crate::sync::{AtomicBool, Condvar, Mutex, lock, wait};
use crate::view::{LoggedMemtable, View};
use crate::workers::Served;
use beside::{Beside, Cores, Filling};
pub use trouble::BackgroundError;
use trouble::Trouble;

/// What is running, and what is asked for.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) busy: InProgress,
    pub(crate) flushing: bool,
    /// Jobs being run.
    pub(crate) running: usize,
    /// Callers that want no compaction to start.
    pub(crate) pauses: usize,
    /// Callers that wait until the store rests, for whom filters are made to fit their budget although
    /// there is a pause.
    waiting_for_rest: usize,
    /// Running merges that others may take part in.
    pub(crate) shared: Vec<Arc<SharedMerge>>,
    /// Range compactions being worked on, each with its ticket.
    ranges: Vec<(u64, RangeCompaction)>,
    next_ticket: u64,
    /// Rebuilds of filters that are asked for.
    pub(crate) rebuilds: Vec<Rebuild>,
    /// That of filters that are more than their budget.
    pub(crate) fit_budget: Rebuild,
    /// What the last one did, so far.
    pub(crate) last_rebuild: Option<FilterRebuildReport>,
    flushes: Trouble,
    compactions: Trouble,
    fits: Trouble,
    filling: Filling,
    cores: Cores,
    /// Until when a merge is put off that would take a writer's core, if who looked last found one.
    put_off_until: Option<Instant>,
    shutting_down: bool,
    /// Whether somebody is about to close the store, so that no writer is to wait for room.
    turns_writers_away: bool,
}

/// Which failures a waiter wants to hear of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Concern {
    /// Those that end all work.
    Poison,
    Flushes,
    /// Flushes and compactions.
    Compactions,
    All,
}

impl State {
    /// Where failures of such a job are noted; none where who asked for it is told.
    fn trouble(&mut self, kind: Kind) -> Option<&mut Trouble> {
        match kind {
            Kind::Flush => Some(&mut self.flushes),
            Kind::Compaction => Some(&mut self.compactions),
            Kind::Other => None,
        }
    }

    /// Failures of each kind of work.
    fn troubles(&self) -> [(BackgroundJob, &Trouble); 3] {
        [
            (BackgroundJob::Flush, &self.flushes),
            (BackgroundJob::Compaction, &self.compactions),
            (BackgroundJob::FilterRebuild, &self.fits),
        ]
    }

    /// A job has ended, however it did.
    fn end(&mut self, kind: Kind) {
        if kind == Kind::Flush {
            self.flushing = false;
        }
        self.running -= 1;
    }

    /// Whether somebody waits for the store to rest, or for a range to be compacted.
    pub(crate) fn is_waited_for(&self) -> bool {
        self.waiting_for_rest > 0 || !self.ranges.is_empty()
    }

    /// Pieces of a running merge to take part in, if somebody waits for merges.
    fn help(&self) -> Option<Job> {
        if !self.is_waited_for() {
            return None;
        }
        let taken = |merge: &Arc<SharedMerge>| Some(Job::Help(Arc::clone(merge), merge.take()?));
        self.shared.iter().find_map(taken)
    }

    /// The oldest frozen memtable, if it is its turn.
    fn next_flush(&mut self, view: &View, now: Instant) -> Option<Job> {
        let oldest = view.frozen.last().filter(|_| !self.flushing && self.flushes.is_due(now))?;
        self.flushing = true;
        self.running += 1;
        Some(Job::Flush(Arc::clone(oldest)))
    }

    /// A number for a request.
    pub(crate) fn ticket(&mut self) -> u64 {
        self.next_ticket += 1;
        self.next_ticket
    }

    /// Failures of concern since the store was opened.
    fn failures(&self, concern: Concern) -> u64 {
        let [flushes, compactions, fits] =
            [&self.flushes, &self.compactions, &self.fits].map(|trouble| trouble.failures);
        match concern {
            Concern::Poison => 0,
            Concern::Flushes => flushes,
            Concern::Compactions => flushes + compactions,
            Concern::All => flushes + compactions + fits,
        }
    }

    /// The last failure of concern, if one came after the first `seen` of them.
    fn failures_since(&self, concern: Concern, seen: u64) -> Result<()> {
        if self.failures(concern) <= seen {
            return Ok(());
        }
        let fits = if concern == Concern::All { self.fits.since(0) } else { Ok(()) };
        let compactions =
            if concern == Concern::Flushes { Ok(()) } else { self.compactions.since(0) };
        compactions.and(self.flushes.since(0)).and(fits)
    }

    /// Notes how a rebuild for the budget ended; the pause before the next where it is tried again, of
    /// which waiters are not told where it `may_pass`.
    pub(crate) fn fit_ended(
        &mut self,
        failure: Option<&Error>,
        may_pass: bool,
    ) -> Option<Duration> {
        match failure {
            None => {
                self.fits.succeeded();
                None
            }
            Some(error @ (Error::Closed | Error::Poisoned { .. })) => {
                self.fits.note(error.clone(), env::now());
                None
            }
            Some(error) if may_pass => Some(self.fits.postponed(error.clone(), env::now())),
            Some(error) => Some(self.fits.failed(error.clone(), env::now())),
        }
    }

    /// Why the last rebuild for the budget failed, if it waits to be tried again.
    pub(crate) fn fit_failure(&self) -> Option<&Error> {
        self.fits.last.as_ref().filter(|_| self.fits.retry.is_some() && !self.fit_budget.is_over())
    }
}

/// The workers' shared state.
#[derive(Debug, Default)]
pub(crate) struct Background {
    pub(crate) state: Mutex<State>,
    /// Whether someone paused compaction; a copy, for writers that look without the lock.
    paused: AtomicBool,
    /// Whether the store is being closed; a copy, for jobs that look without the lock.
    closing: AtomicBool,
    /// Signalled when something was done, for those who wait for it.
    changed: Condvar,
    /// The threads that do the work; none in a store without threads, or before it is open.
    workers: OnceLock<Served>,
}

/// One piece of work.
enum Job {
    Flush(Arc<LoggedMemtable>),
    Compact(Box<Plan>, JobId),
    /// Some pieces of another worker's merge.
    Help(Arc<SharedMerge>, Range<usize>),
    Rebuild(RebuildJob),
}

/// What kind of work a job is: by it failures are judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Flush,
    Compaction,
    /// Who asked for it is told how it ended.
    Other,
}

impl Kind {
    /// What statistics and events call it.
    fn reported(self) -> Option<BackgroundJob> {
        match self {
            Self::Flush => Some(BackgroundJob::Flush),
            Self::Compaction => Some(BackgroundJob::Compaction),
            Self::Other => None,
        }
    }
}

impl Job {
    fn kind(&self) -> Kind {
        match self {
            Self::Flush(_) => Kind::Flush,
            Self::Compact(..) => Kind::Compaction,
            Self::Help(..) | Self::Rebuild(_) => Kind::Other,
        }
    }
}

impl Background {
    /// Notes that a memtable has become full.
    pub(crate) fn note_full(&self) {
        lock(&self.state).filling.note(env::now());
    }

    /// From now on a writer that is stopped is told that the store is closed, rather than to wait for room
    /// that may never come while whoever closes waits behind it.
    pub(crate) fn begin_closing(&self) {
        lock(&self.state).turns_writers_away = true;
        self.notify();
    }

    /// Has everyone look again: workers for work, waiters for progress.
    pub(crate) fn wake(&self) {
        let _state = lock(&self.state);
        self.notify();
    }

    /// Lets no more work start, and waits for what runs, in workers or in callers' own threads:
    /// compactions give up, a flush is finished.
    pub(crate) fn shut_down(&self) {
        let mut state = lock(&self.state);
        state.shutting_down = true;
        self.closing.store(true, Ordering::Relaxed);
        self.notify();
        while state.running > 0 {
            state = wait(&self.changed, state);
        }
    }

    /// Whether the store is being closed, so that long work is not worth its time any more.
    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Relaxed)
    }
}

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
        state.shutting_down || self.poison.get().is_some() || self.options.load().read_only
    }

    /// The oldest frozen memtable, if it is its turn.
    fn next_flush(&self, state: &mut State, now: Instant) -> Option<Job> {
        if self.takes_no_jobs(state) {
            return None;
        }
        state.next_flush(&self.view.load(), now)
    }

    /// Sees to memtables before the merge that the caller is at: writes one out that waits while all workers
    /// are at merges, and waits for one that another worker writes out where not each has a core beside the
    /// writer's, as that one is what memory is held for. Whether there was one. How that ended is noted where
    /// others look for it.
    pub(crate) fn flush_between(&self) -> bool {
        let threads = self.options.load().background_threads;
        // Without threads, callers do the work that they make.
        if threads == 0 || self.view.load().frozen.is_empty() || self.poison.get().is_some() {
            return false;
        }
        let mut state = lock(&self.background.state);
        if state.flushing && threads >= state.cores.0 {
            // A flush that panics does not say that it has ended but by this.
            while state.flushing && self.poison.get().is_none() {
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
        // What nobody asked for does not take the core that a merge which is put off leaves to writers.
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
            debt: self.debt.load(Ordering::Relaxed),
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

    /// Gives the moment of a snapshot back. Where tables hold what it was the last to see, workers look for work.
    pub(crate) fn release_snapshot(&self, seqno: SeqNo) {
        let Some(oldest) = self.snapshots.release(seqno) else { return };
        let dead_from = self.dead_from.load(Ordering::Relaxed);
        if seqno < dead_from && dead_from <= oldest {
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
        // Writers may have been stopped, so that a memtable became full that could not be frozen. Without
        // threads whoever runs the job looks. Who waits for the job's end waits for this, too.
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

    /// Whether a failed job is tried again later, was given up, or poisons the store, which it then does.
    fn judge(&self, trouble: &mut Trouble, error: &Error) -> Judged {
        if matches!(error, Error::Closed) || self.poison.get().is_some() {
            trouble.note(error.clone(), env::now());
            return Judged::Noted;
        }
        if error.is_shortage() {
            let pause = trouble.failed(error.clone(), env::now());
            return Judged::Retried { pause, failures: trouble.failed_in_a_row() };
        }
        trouble.note(error.clone(), env::now());
        let is_first = self.poison.set(Arc::new(error.clone())).is_ok();
        // They look at the poison too.
        self.publication.tell();
        if is_first { Judged::Poisons } else { Judged::Noted }
    }

    /// Removes the files that nothing refers to any more, but for those that are kept to be written over.
    pub(crate) fn sweep(&self) {
        // The version is let go of first: it may be the last to hold some of them.
        let live = total_bytes(self.version().tables().map(|(_, table)| table));
        self.graveyard.sweep(live);
    }

    /// Gives back what is kept for writes to come.
    pub(crate) fn rest(&self) {
        self.graveyard.clear();
        self.arenas.release();
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

/// A job that panics, or a thread between two of them, must not leave everyone waiting for its outcome:
/// dropped, it says that one did.
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
