//! Background work of an open store: running jobs, requests, and failures of jobs.
//!
//! The engine holds this state under one lock; every change notifies workers and waiting callers.
//! It does not know the engine: [`jobs`](crate::jobs) chooses and runs jobs.

mod core_use;
mod trouble;

use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use trommel_base::SeqNo;

use crate::compaction::in_progress::InProgress;
use crate::compaction::in_progress::JobId;
use crate::compaction::plan::Plan;
use crate::compaction::range::RangeCompaction;
use crate::env;
use crate::error::{BackgroundJob, Error, Result};
use crate::limiter::Limiter;
use crate::rebuild_queue::{FilterRebuildReport, Rebuild, RebuildJob};
use crate::shared_merge::SharedMerge;
use crate::sync::{AtomicBool, Condvar, Mutex, lock, wait};
use crate::view::{LoggedMemtable, View};
use crate::workers::Served;
pub(crate) use core_use::CoreUse;
use core_use::{Cores, Filling};
pub use trouble::BackgroundError;
pub(crate) use trouble::{JobFailures, LONGEST_RETRY};

/// Running and requested work.
#[derive(Debug, Default)]
pub(crate) struct BackgroundState {
    pub(crate) busy: InProgress,
    pub(crate) flushing: bool,
    /// Running jobs.
    pub(crate) running: usize,
    /// Running compactions that helpers may take part in.
    pub(crate) shared: Vec<Arc<SharedMerge>>,
    pub(crate) requests: Requests,
    pub(crate) failures: BackgroundFailures,
    pub(crate) writer_core: WriterCore,
    /// Since when nothing has been written, as far as workers have checked: the active memtable's
    /// log and the newest visible sequence number, and when they were first seen.
    pub(crate) unchanged: Option<((u64, SeqNo), Instant)>,
    pub(crate) shutting_down: bool,
    /// Whether a caller is about to close the store, so that no writer may wait for room.
    pub(crate) refuses_writers: bool,
}

/// The requests of callers, and the work that they wait for.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    /// Unmatched pauses of compactions.
    pub(crate) pauses: usize,
    /// Callers waiting for the store to become idle; for them, filters are made to fit their budget
    /// even during a pause.
    pub(crate) waiting_for_idle: usize,
    /// Requested range compactions, each with its ticket.
    pub(crate) ranges: Vec<(u64, RangeCompaction)>,
    next_ticket: u64,
    /// Requested filter rebuilds.
    pub(crate) rebuilds: Vec<Rebuild>,
    /// The rebuild of filters that exceed their budget.
    pub(crate) fit_budget: Rebuild,
    /// The report of the last rebuild, so far.
    pub(crate) last_rebuild: Option<FilterRebuildReport>,
}

/// Failures of each kind of work.
#[derive(Debug, Default)]
pub(crate) struct BackgroundFailures {
    pub(crate) flushes: JobFailures,
    pub(crate) compactions: JobFailures,
    /// Failures of rebuilds of filters to fit their budget.
    pub(crate) fits: JobFailures,
}

/// The state that decides whether a compaction would take a writer's core.
#[derive(Debug, Default)]
pub(crate) struct WriterCore {
    pub(crate) filling: Filling,
    pub(crate) cores: Cores,
    /// Until when a compaction that would take a writer's core is deferred, if the last search for
    /// work found one.
    pub(crate) put_off_until: Option<Instant>,
}

/// The failures that a waiter must report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Concern {
    /// Those that poison the store.
    Poison,
    Flushes,
    /// Flushes and compactions.
    Compactions,
    All,
}

impl BackgroundState {
    /// The failures of this kind of job; `None` if they are returned to the requester.
    pub(crate) fn job_failures(&mut self, kind: Kind) -> Option<&mut JobFailures> {
        match kind {
            Kind::Flush => Some(&mut self.failures.flushes),
            Kind::Compaction => Some(&mut self.failures.compactions),
            Kind::Other => None,
        }
    }

    /// Failures of each kind of work.
    pub(crate) fn all_job_failures(&self) -> [(BackgroundJob, &JobFailures); 3] {
        [
            (BackgroundJob::Flush, &self.failures.flushes),
            (BackgroundJob::Compaction, &self.failures.compactions),
            (BackgroundJob::FilterRebuild, &self.failures.fits),
        ]
    }

    /// Records the end of a job, successful or not.
    pub(crate) fn end(&mut self, kind: Kind) {
        if kind == Kind::Flush {
            self.flushing = false;
        }
        self.running -= 1;
    }

    /// Whether a caller waits for the store to become idle, or for a range to be compacted.
    pub(crate) fn is_waited_for(&self) -> bool {
        self.requests.waiting_for_idle > 0 || !self.requests.ranges.is_empty()
    }

    /// Subranges of a running compaction to help with, if a caller waits for compactions.
    pub(crate) fn help(&self) -> Option<Job> {
        if !self.is_waited_for() {
            return None;
        }
        let taken = |merge: &Arc<SharedMerge>| Some(Job::Help(Arc::clone(merge), merge.take()?));
        self.shared.iter().find_map(taken)
    }

    /// The oldest frozen memtable, if it is its turn.
    pub(crate) fn next_flush(&mut self, view: &View, now: Instant) -> Option<Job> {
        let oldest =
            view.frozen.last().filter(|_| !self.flushing && self.failures.flushes.is_due(now))?;
        self.flushing = true;
        self.running += 1;
        Some(Job::Flush(Arc::clone(oldest)))
    }

    /// A number for a request.
    pub(crate) fn ticket(&mut self) -> u64 {
        self.requests.next_ticket += 1;
        self.requests.next_ticket
    }

    /// Number of failures of `concern` since the store was opened.
    pub(crate) fn failures(&self, concern: Concern) -> u64 {
        let [flushes, compactions, fits] =
            [&self.failures.flushes, &self.failures.compactions, &self.failures.fits]
                .map(|job_failures| job_failures.failures);
        match concern {
            Concern::Poison => 0,
            Concern::Flushes => flushes,
            Concern::Compactions => flushes + compactions,
            Concern::All => flushes + compactions + fits,
        }
    }

    /// The last failure of `concern`, if there were more than `seen`.
    pub(crate) fn failures_since(&self, concern: Concern, seen: u64) -> Result<()> {
        if self.failures(concern) <= seen {
            return Ok(());
        }
        let fits = if concern == Concern::All { self.failures.fits.since(0) } else { Ok(()) };
        let compactions =
            if concern == Concern::Flushes { Ok(()) } else { self.failures.compactions.since(0) };
        compactions.and(self.failures.flushes.since(0)).and(fits)
    }

    /// Records the end of a rebuild for the budget; returns the pause before a retry. Waiters do
    /// not get a failure that `may_pass`.
    pub(crate) fn fit_ended(
        &mut self,
        failure: Option<&Error>,
        may_pass: bool,
    ) -> Option<Duration> {
        match failure {
            None => {
                self.failures.fits.succeeded();
                None
            }
            Some(error @ (Error::Closed | Error::Poisoned { .. })) => {
                self.failures.fits.note(error.clone(), env::now());
                None
            }
            Some(error) if may_pass => {
                Some(self.failures.fits.postponed(error.clone(), env::now()))
            }
            Some(error) => Some(self.failures.fits.failed(error.clone(), env::now())),
        }
    }

    /// Why the last rebuild for the budget failed, if a retry is pending.
    pub(crate) fn fit_failure(&self) -> Option<&Error> {
        self.failures
            .fits
            .last
            .as_ref()
            .filter(|_| self.failures.fits.retry.is_some() && !self.requests.fit_budget.is_over())
    }
}

/// The state shared with the workers.
#[derive(Debug, Default)]
pub(crate) struct Background {
    pub(crate) state: Mutex<BackgroundState>,
    /// Whether compaction is paused; a copy for lock-free checks by writers.
    pub(crate) paused: AtomicBool,
    /// Whether the store is closing; a copy for lock-free checks by jobs.
    closing: AtomicBool,
    /// Signalled when something was done, for waiters.
    pub(crate) changed: Condvar,
    /// The workers' pool; unset in a store without threads, or before it is open.
    pub(crate) workers: OnceLock<Served>,
    /// The rate limit of background writes.
    pub(crate) limiter: Arc<Limiter>,
}

/// One unit of work.
pub(crate) enum Job {
    Flush(Arc<LoggedMemtable>),
    Compact(Box<Plan>, JobId),
    /// Subranges of another worker's compaction.
    Help(Arc<SharedMerge>, Range<usize>),
    Rebuild(RebuildJob),
}

/// The kind of a job, which decides how failures are handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Flush,
    Compaction,
    /// Its outcome is returned to the requester.
    Other,
}

impl Kind {
    /// Its name in statistics and events.
    pub(crate) fn reported(self) -> Option<BackgroundJob> {
        match self {
            Self::Flush => Some(BackgroundJob::Flush),
            Self::Compaction => Some(BackgroundJob::Compaction),
            Self::Other => None,
        }
    }
}

impl Job {
    pub(crate) fn kind(&self) -> Kind {
        match self {
            Self::Flush(_) => Kind::Flush,
            Self::Compact(..) => Kind::Compaction,
            Self::Help(..) | Self::Rebuild(_) => Kind::Other,
        }
    }
}

impl Background {
    /// Records that a memtable has become full.
    pub(crate) fn note_full(&self) {
        lock(&self.state).writer_core.filling.note(env::now());
    }

    /// From now on a stopped writer fails with a closed store instead of waiting for room, which
    /// might never come while the closing caller is queued after it.
    pub(crate) fn begin_closing(&self) {
        lock(&self.state).refuses_writers = true;
        self.notify();
    }

    /// Wakes workers to look for work, and waiters to check for progress.
    pub(crate) fn wake(&self) {
        let _state = lock(&self.state);
        self.notify();
    }

    /// As [`wake`](Self::wake), for a holder of the state lock, so that no thread is between its
    /// check and its wait.
    pub(crate) fn notify(&self) {
        self.changed.notify_all();
        if let Some(served) = self.workers.get() {
            served.wake();
        }
    }

    /// Makes a worker freeze the largest active memtables of all stores; false if there are no
    /// workers.
    pub(crate) fn relieve(&self) -> bool {
        self.workers.get().inspect(|served| served.relieve()).is_some()
    }

    /// Whether a flush is running, and the number of running compactions.
    pub(crate) fn running_jobs(&self) -> (bool, usize) {
        let state = lock(&self.state);
        (state.flushing, state.busy.compactions())
    }

    /// Whether no worker would take a job now.
    pub(crate) fn is_busy(&self) -> bool {
        self.workers.get().is_some_and(Served::is_busy)
    }

    /// Starts no more work, and waits for running jobs, in workers or in callers' threads:
    /// compactions stop, a flush is finished.
    pub(crate) fn shut_down(&self) {
        let mut state = lock(&self.state);
        state.shutting_down = true;
        self.closing.store(true, Ordering::Relaxed);
        self.notify();
        while state.running > 0 {
            state = wait(&self.changed, state);
        }
    }

    /// Whether the store is closing, so that long work should stop.
    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Relaxed)
    }
}
