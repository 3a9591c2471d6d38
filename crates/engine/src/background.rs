//! What runs in the background of an open store, what is requested of it, and how jobs have failed.
//!
//! The engine holds this state under one lock; those who change it notify workers and waiting
//! callers. It knows no engine: which job is next, and how it is run, is in [`jobs`](crate::jobs).

mod beside;
mod trouble;

use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

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
pub(crate) use beside::Beside;
use beside::{Cores, Filling};
pub use trouble::BackgroundError;
pub(crate) use trouble::{LONGEST_RETRY, Trouble};

/// What is running, and what is asked for.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) busy: InProgress,
    pub(crate) flushing: bool,
    /// Jobs being run.
    pub(crate) running: usize,
    /// Callers that want no compaction to start.
    pub(crate) pauses: usize,
    /// Callers that wait until the store rests, for whom filters are made to fit their budget
    /// although there is a pause.
    pub(crate) waiting_for_rest: usize,
    /// Running merges that others may take part in.
    pub(crate) shared: Vec<Arc<SharedMerge>>,
    /// Range compactions being worked on, each with its ticket.
    pub(crate) ranges: Vec<(u64, RangeCompaction)>,
    next_ticket: u64,
    /// Rebuilds of filters that are asked for.
    pub(crate) rebuilds: Vec<Rebuild>,
    /// That of filters that are more than their budget.
    pub(crate) fit_budget: Rebuild,
    /// What the last one did, so far.
    pub(crate) last_rebuild: Option<FilterRebuildReport>,
    pub(crate) flushes: Trouble,
    pub(crate) compactions: Trouble,
    pub(crate) fits: Trouble,
    pub(crate) filling: Filling,
    pub(crate) cores: Cores,
    /// Until when a merge is put off that would take a writer's core, if who looked last found one.
    pub(crate) put_off_until: Option<Instant>,
    pub(crate) shutting_down: bool,
    /// Whether somebody is about to close the store, so that no writer is to wait for room.
    pub(crate) turns_writers_away: bool,
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
    pub(crate) fn trouble(&mut self, kind: Kind) -> Option<&mut Trouble> {
        match kind {
            Kind::Flush => Some(&mut self.flushes),
            Kind::Compaction => Some(&mut self.compactions),
            Kind::Other => None,
        }
    }

    /// Failures of each kind of work.
    pub(crate) fn troubles(&self) -> [(BackgroundJob, &Trouble); 3] {
        [
            (BackgroundJob::Flush, &self.flushes),
            (BackgroundJob::Compaction, &self.compactions),
            (BackgroundJob::FilterRebuild, &self.fits),
        ]
    }

    /// A job has ended, however it did.
    pub(crate) fn end(&mut self, kind: Kind) {
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
    pub(crate) fn help(&self) -> Option<Job> {
        if !self.is_waited_for() {
            return None;
        }
        let taken = |merge: &Arc<SharedMerge>| Some(Job::Help(Arc::clone(merge), merge.take()?));
        self.shared.iter().find_map(taken)
    }

    /// The oldest frozen memtable, if it is its turn.
    pub(crate) fn next_flush(&mut self, view: &View, now: Instant) -> Option<Job> {
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
    pub(crate) fn failures(&self, concern: Concern) -> u64 {
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
    pub(crate) fn failures_since(&self, concern: Concern, seen: u64) -> Result<()> {
        if self.failures(concern) <= seen {
            return Ok(());
        }
        let fits = if concern == Concern::All { self.fits.since(0) } else { Ok(()) };
        let compactions =
            if concern == Concern::Flushes { Ok(()) } else { self.compactions.since(0) };
        compactions.and(self.flushes.since(0)).and(fits)
    }

    /// Notes how a rebuild for the budget ended; the pause before the next where it is tried again,
    /// of which waiters are not told where it `may_pass`.
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
    pub(crate) paused: AtomicBool,
    /// Whether the store is being closed; a copy, for jobs that look without the lock.
    closing: AtomicBool,
    /// Signalled when something was done, for those who wait for it.
    pub(crate) changed: Condvar,
    /// The threads that do the work; none in a store without threads, or before it is open.
    pub(crate) workers: OnceLock<Served>,
    /// How fast they may write.
    pub(crate) limiter: Arc<Limiter>,
}

/// One piece of work.
pub(crate) enum Job {
    Flush(Arc<LoggedMemtable>),
    Compact(Box<Plan>, JobId),
    /// Some pieces of another worker's merge.
    Help(Arc<SharedMerge>, Range<usize>),
    Rebuild(RebuildJob),
}

/// What kind of work a job is: by it failures are judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Flush,
    Compaction,
    /// Who asked for it is told how it ended.
    Other,
}

impl Kind {
    /// What statistics and events call it.
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
    /// Notes that a memtable has become full.
    pub(crate) fn note_full(&self) {
        lock(&self.state).filling.note(env::now());
    }

    /// From now on a writer that is stopped is told that the store is closed, rather than to wait
    /// for room that may never come while whoever closes waits behind it.
    pub(crate) fn begin_closing(&self) {
        lock(&self.state).turns_writers_away = true;
        self.notify();
    }

    /// Has everyone look again: workers for work, waiters for progress.
    pub(crate) fn wake(&self) {
        let _state = lock(&self.state);
        self.notify();
    }

    /// Has everyone look again: workers for work, waiters for progress. For whoever holds the
    /// state, so that nobody is between a look and the wait for this.
    pub(crate) fn notify(&self) {
        self.changed.notify_all();
        if let Some(served) = self.workers.get() {
            served.wake();
        }
    }

    /// Has a worker write out the largest active memtables of all stores; false where there are no
    /// workers.
    pub(crate) fn relieve(&self) -> bool {
        self.workers.get().inspect(|served| served.relieve()).is_some()
    }

    /// Whether no worker would do a job now.
    pub(crate) fn is_busy(&self) -> bool {
        self.workers.get().is_some_and(Served::is_busy)
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
