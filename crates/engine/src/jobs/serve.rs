//! A store as its workers see it: the work to do, and the notifications.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::PoisonOnPanic;
use crate::background::{BackgroundState, JobFailures, Kind};
use crate::engine::Engine;
use crate::env;
use crate::sync::lock;
use crate::workers::{Served, Task, Tenant, WorkerPool};
use crate::write::Freezing;

/// After this long without a write, a memtable whose tombstones free space is flushed.
const REST: Duration = if cfg!(test) { Duration::from_millis(100) } else { Duration::from_secs(2) };
/// The wall clock, which may jump, is read this often while entries are to expire.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

impl Engine {
    /// Registers the store with its workers, unless it is to have none.
    pub(crate) fn start_workers(&self) {
        let options = self.options.load_full();
        let threads = options.background_threads;
        if options.opening.read_only || threads == 0 {
            return;
        }
        let pool = match &options.environment {
            Some(environment) => Arc::clone(environment.workers()),
            None => WorkerPool::of_one(threads),
        };
        let served = pool.serve(self.own.clone(), threads);
        let _ = self.background.workers.set(served);
        let state = lock(&self.background.state);
        let is_at_rest = self.automatic_plan(&state, &self.view.load()).is_none()
            && state.requests.fit_budget.is_over()
            && self.files.deletion_queue.rests_at().is_none()
            && self.frees_expired_at(&state, env::now()).is_none();
        // No thread is started for a store without work.
        if !is_at_rest {
            self.background.notify();
        }
    }

    /// Withdraws the store from its workers, once no job is running.
    pub(crate) fn end_workers(&self) {
        self.background.shut_down();
        if let Some(served) = self.background.workers.get() {
            served.leave(self.options.load().environment.is_none());
        }
    }

    /// Whether callers run the work that they need: in a store without threads, or if none can be
    /// started.
    pub(super) fn callers_work(&self) -> bool {
        let served = self.background.workers.get();
        self.options.load().background_threads == 0
            || served.is_some_and(Served::is_short_of_threads)
    }

    /// The next task; `None` until the store is notified or the time given to the pool comes.
    fn look_for_work(&self, may_merge: bool) -> Option<Task<'_>> {
        let mut state = lock(&self.background.state);
        if state.shutting_down {
            return None;
        }
        let now = env::now();
        let job = if may_merge {
            self.next_job(&mut state, now)
        } else {
            self.next_flush(&mut state, now)
        };
        if let Some(job) = job {
            let is_short = job.kind() == Kind::Flush;
            // The outcome is recorded where waiters look.
            let run = Box::new(move || drop(self.run_job(job)));
            return Some(Task { is_short, run });
        }
        let rests_at = self.files.deletion_queue.rests_at();
        if rests_at.is_some_and(|at| at <= now) {
            // Frees the files and memory kept for future writes.
            return Some(Task { is_short: true, run: Box::new(|| self.rest()) });
        }
        let flushes_at = self.flushes_at_rest(&mut state, now);
        if flushes_at.is_some_and(|at| at <= now) {
            state.unchanged = None;
            return Some(Task { is_short: true, run: Box::new(|| self.freeze_at_rest()) });
        }
        let expires_at = self.frees_expired_at(&state, now);
        if expires_at.is_some_and(|at| at <= now) {
            // If this fails, the store is poisoned.
            return Some(Task { is_short: true, run: Box::new(|| _ = self.record_expired()) });
        }
        // Compared with the time of the search for work: a retry that was not due then is waited
        // for; one that was due found nothing to do.
        let due = |(_, job_failures): (_, &JobFailures)| {
            job_failures.retry.map(|(at, _)| at).filter(|at| *at > now)
        };
        let retry = state.all_job_failures().into_iter().filter_map(due).min();
        let retry = retry.filter(|_| !self.access.is_poisoned());
        let due = retry
            .into_iter()
            .chain(rests_at)
            .chain(flushes_at)
            .chain(expires_at)
            .chain(state.writer_core.put_off_until);
        let due = due.min();
        if let Some(served) = self.background.workers.get() {
            served.look_again_at(due);
        }
        None
    }
}

impl Engine {
    /// When the active memtable is to be flushed for the space that its tombstones free, if they
    /// free any and nothing is written until then.
    fn flushes_at_rest(&self, state: &mut BackgroundState, now: Instant) -> Option<Instant> {
        let view = self.view.load();
        let frees = self.options.load().compaction.auto_compaction && state.requests.pauses == 0;
        if !view.active.frees_space() || !frees || self.takes_no_jobs(state) {
            state.unchanged = None;
            return None;
        }
        let seen = (view.active.log_number, self.snapshots.visible());
        let unchanged = state.unchanged.filter(|(before, _)| *before == seen);
        let (_, since) = *state.unchanged.insert(unchanged.unwrap_or((seen, now)));
        Some(since + REST)
    }
}

impl Engine {
    /// When to record the expiry of entries, so that compactions can free their space.
    fn frees_expired_at(&self, state: &BackgroundState, now: Instant) -> Option<Instant> {
        let compacts = self.options.load().compaction.auto_compaction && state.requests.pauses == 0;
        if !self.snapshots.expiry.is_on() || !compacts || self.takes_no_jobs(state) {
            return None;
        }
        let wait = self.snapshots.expiry.time_to(&self.version().half_expires_at())?;
        Some(now + wait.min(LONGEST_WAIT))
    }
}

impl Tenant for Engine {
    fn next_task(&self, may_merge: bool) -> Option<Task<'_>> {
        let unless_found = PoisonOnPanic { engine: self, job: None };
        let task = self.look_for_work(may_merge);
        std::mem::forget(unless_found);
        task
    }

    fn active_bytes(&self) -> u64 {
        Self::active_bytes(self)
    }

    fn excess_of_active(&self) -> u64 {
        self.memory.shares.excess_of_active()
    }

    fn freeze_for_others(&self) -> bool {
        Self::freeze_for_others(self) == Freezing::Soon
    }
}
