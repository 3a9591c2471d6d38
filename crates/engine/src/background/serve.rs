//! A store as its workers see it: what there is to do in it, and who is to be notified.

use std::sync::Arc;

use super::{Background, Engine, Job, Kind, PoisonOnPanic, Served, Trouble, WorkerPool};
use crate::env;
use crate::sync::lock;

/// What a worker finds in a store.
pub(super) enum Work {
    Run(Job),
    /// What is kept for writes to come is to be given back.
    Rest,
    /// Nothing, until the store is notified or a moment comes that the pool knows.
    None,
}

impl Job {
    pub(super) fn is_flush(&self) -> bool {
        self.kind() == Kind::Flush
    }
}

impl Background {
    /// Has everyone look again: workers for work, waiters for progress. For whoever holds the state, so that
    /// nobody is between a look and the wait for this.
    pub(crate) fn notify(&self) {
        self.changed.notify_all();
        if let Some(served) = self.workers.get() {
            served.wake();
        }
    }

    /// Has a worker write out the largest active memtables of all stores; false where there are no workers.
    pub(crate) fn relieve(&self) -> bool {
        self.workers.get().inspect(|served| served.relieve()).is_some()
    }

    /// Whether no worker would do a job now.
    pub(super) fn is_busy(&self) -> bool {
        self.workers.get().is_some_and(Served::is_busy)
    }
}

impl Engine {
    /// Has workers do the store's work from now on, if it is to have any.
    pub(crate) fn start_workers(&self) {
        let options = self.options.load_full();
        let threads = options.background_threads;
        if options.read_only || threads == 0 {
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
            && state.fit_budget.is_over()
            && self.graveyard.rests_at().is_none();
        // No thread is started for a store in which there is nothing to do.
        if !is_at_rest {
            self.background.notify();
        }
    }

    /// Has no worker look at the store any more, once no job runs.
    pub(crate) fn end_workers(&self) {
        self.background.shut_down();
        if let Some(served) = self.background.workers.get() {
            served.leave(self.options.load().environment.is_none());
        }
    }

    /// Whether whoever needs work done does it: in a store without threads, and where none can be started.
    pub(super) fn callers_work(&self) -> bool {
        let served = self.background.workers.get();
        self.options.load().background_threads == 0
            || served.is_some_and(Served::is_short_of_threads)
    }

    /// What there is to do for a worker; only a flush, unless it `may_merge`.
    pub(super) fn next_work(&self, may_merge: bool) -> Work {
        let unless_found = PoisonOnPanic { engine: self, job: None };
        let work = self.look_for_work(may_merge);
        std::mem::forget(unless_found);
        work
    }

    fn look_for_work(&self, may_merge: bool) -> Work {
        let mut state = lock(&self.background.state);
        if state.shutting_down {
            return Work::None;
        }
        let now = env::now();
        let job = if may_merge {
            self.next_job(&mut state, now)
        } else {
            self.next_flush(&mut state, now)
        };
        if let Some(job) = job {
            return Work::Run(job);
        }
        let rests_at = self.graveyard.rests_at();
        if rests_at.is_some_and(|at| at <= now) {
            return Work::Rest;
        }
        // Judged by the moment at which work was looked for: either a retry was not due then,
        // and is waited for, or it was, and there is nothing to do.
        let due =
            |(_, trouble): (_, &Trouble)| trouble.retry.map(|(at, _)| at).filter(|at| *at > now);
        let retry = state.troubles().into_iter().filter_map(due).min();
        let retry = retry.filter(|_| self.poison.get().is_none());
        let due = retry.into_iter().chain(rests_at).chain(state.put_off_until).min();
        if let Some(served) = self.background.workers.get() {
            served.look_again_at(due);
        }
        Work::None
    }

    /// Runs a job that a worker found. How it ends is noted where others look for it.
    pub(super) fn run_found(&self, job: Job) {
        let _ = self.run_job(job);
    }
}
