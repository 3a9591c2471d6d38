//! The background threads of one store, or of all stores of an environment.
//!
//! 1. A store that may have work is queued, once. A worker takes the first store of the queue and
//!    one of its jobs, and puts the store at the end of the queue, where another worker may find
//!    more jobs. Then it runs the job. So stores take turns, a job at a time.
//! 2. A store without work now reports when to look again (for a retry, or for files kept for a
//!    while), if ever. The idle workers wait for the earliest of these times.
//! 3. A thread is started when a store is queued and no thread is idle, up to the maximum. A thread
//!    that found no work for [`IDLE_FOR`] ends, unless it is the last one and some store has a time
//!    to be waited for.
//! 4. If several threads serve several stores, one runs only flushes: writers wait for these, and
//!    the compactions of other stores take long.
//! 5. If the active memtables of stores that share a memory limit exceed their share, a worker has
//!    the largest flushed.
//! 6. If no thread can be started, callers do the work, as in a store without threads.
//!
//! # Invariants
//! * The lock here is taken after all others, and nothing of a store is called or dropped while it
//!   is held.
//! * A worker holds a store only for its turn. Closing a store waits for those turns and no others.
//! * A panic ends its thread; another is started for queued stores.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::fmt::Debug;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use crate::env;
use crate::sync::thread::Builder;
use crate::sync::{Condvar, Mutex, MutexGuard, lock, wait, wait_until};

/// How long an idle thread waits for work before it ends: less than starting it costs a store that
/// flushes often, and too short to be noticed in one that does not.
const IDLE_FOR: Duration =
    if cfg!(test) { Duration::from_millis(20) } else { Duration::from_secs(1) };

/// A store whose background work a pool does.
pub(crate) trait Tenant: Debug + Send + Sync {
    /// The next task; only a flush, or a task that is as short, unless `may_merge`.
    fn next_task(&self, may_merge: bool) -> Option<Task<'_>>;

    /// Bytes of the active memtable.
    fn active_bytes(&self) -> u64;

    /// Bytes by which the active memtables of all stores under the same memory limit exceed their
    /// share.
    fn excess_of_active(&self) -> u64;

    /// Freezes the active memtable for the sake of other stores. True if the store's own writers
    /// will do it.
    fn freeze_for_others(&self) -> bool;
}

/// A task for a worker in a store.
pub(crate) struct Task<'a> {
    /// Whether it is a flush or as short as one.
    pub(crate) is_short: bool,
    pub(crate) run: Box<dyn FnOnce() + 'a>,
}

/// Threads for background work.
#[derive(Debug)]
pub(crate) struct WorkerPool {
    /// Most threads.
    most: usize,
    /// Most threads at other jobs than flushes.
    most_merging: usize,
    state: Mutex<PoolState>,
    /// Signalled when a store was queued, or a new time is to be waited for.
    ready: Condvar,
    /// Signalled when a turn or a thread has ended.
    ended: Condvar,
}

#[derive(Debug, Default)]
struct PoolState {
    stores: HashMap<u64, Store>,
    next_store: u64,
    /// Stores that may have work.
    queue: VecDeque<u64>,
    /// Stores in which workers have searched only for flushes.
    want_to_merge: Vec<u64>,
    /// When to search which store for work again.
    due: BTreeSet<(Instant, u64)>,
    threads: usize,
    idle: usize,
    /// Turns that may run other jobs than flushes.
    merging: usize,
    /// Whether active memtables exceed their share.
    is_heavy: bool,
    /// Whether no thread could be started when there was none.
    is_short: bool,
    /// Whether all threads must end.
    is_over: bool,
}

/// A store that is served.
#[derive(Debug)]
struct Store {
    tenant: Weak<dyn Tenant>,
    /// Most workers at it at once.
    most: usize,
    workers: usize,
    is_queued: bool,
    /// Whether it was queued while it had the most workers.
    is_crowded: bool,
    due: Option<Instant>,
}

impl PoolState {
    fn enqueue(&mut self, id: u64) {
        let Some(store) = self.stores.get_mut(&id).filter(|store| !store.is_queued) else { return };
        store.is_queued = true;
        self.queue.push_back(id);
    }

    /// Sets when to search a store for work again.
    fn set_due(&mut self, id: u64, due: Option<Instant>) {
        let Some(store) = self.stores.get_mut(&id) else { return };
        if let Some(before) = std::mem::replace(&mut store.due, due) {
            self.due.remove(&(before, id));
        }
        self.due.extend(due.map(|at| (at, id)));
    }

    /// Queues the stores whose time has come.
    fn enqueue_due(&mut self, now: Instant) {
        while let Some((at, id)) = self.due.first().copied().filter(|(at, _)| *at <= now) {
            self.due.remove(&(at, id));
            if let Some(store) = self.stores.get_mut(&id) {
                store.due = None;
            }
            self.enqueue(id);
        }
    }

    /// The first store of the queue that another worker may serve.
    fn next(&mut self) -> Option<(u64, Weak<dyn Tenant>)> {
        while let Some(id) = self.queue.pop_front() {
            let Some(store) = self.stores.get_mut(&id) else { continue };
            store.is_queued = false;
            if store.workers < store.most {
                store.workers += 1;
                return Some((id, Weak::clone(&store.tenant)));
            }
            store.is_crowded = true;
        }
        None
    }

    fn end_merging(&mut self) {
        self.merging -= 1;
        for id in std::mem::take(&mut self.want_to_merge) {
            self.enqueue(id);
        }
    }
}

impl WorkerPool {
    /// A pool for one store, which divides its threads among its jobs as it likes.
    pub(crate) fn of_one(threads: usize) -> Arc<Self> {
        Self::new(threads, threads)
    }

    /// A pool for the stores of an environment.
    pub(crate) fn of_many(threads: usize) -> Arc<Self> {
        Self::new(threads, threads.saturating_sub(1).max(1))
    }

    fn new(most: usize, most_merging: usize) -> Arc<Self> {
        let (ready, ended) = (Condvar::default(), Condvar::default());
        Arc::new(Self { most, most_merging, state: Mutex::default(), ready, ended })
    }

    /// Most threads.
    pub(crate) fn most(&self) -> usize {
        self.most
    }

    /// Serves `tenant` from now on, with at most `most` threads at once.
    pub(crate) fn serve(self: Arc<Self>, tenant: Weak<dyn Tenant>, most: usize) -> Served {
        let mut state = lock(&self.state);
        let store = state.next_store;
        state.next_store += 1;
        let slot =
            Store { tenant, most, workers: 0, is_queued: false, is_crowded: false, due: None };
        state.stores.insert(store, slot);
        drop(state);
        Served { pool: self, store }
    }

    /// The number of stores that are served, and of running threads.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let state = lock(&self.state);
        (state.stores.len(), state.threads)
    }

    /// Makes the threads end as soon as they are idle.
    pub(crate) fn end(&self) {
        lock(&self.state).is_over = true;
        self.ready.notify_all();
    }

    /// Wakes or starts a worker for the queue.
    fn call_worker(self: &Arc<Self>, state: &mut PoolState) {
        if state.idle > 0 {
            self.ready.notify_one();
        } else if state.threads < self.most && !state.is_over {
            state.threads += 1;
            let pool = Arc::clone(self);
            let name = format!("trommel-{}", state.threads);
            if Builder::new().name(name).spawn(move || pool.work()).is_err() {
                state.threads -= 1;
            }
            state.is_short = state.threads == 0;
        }
    }

    /// The body of a thread.
    fn work(self: Arc<Self>) {
        let _thread = Thread(&self);
        while let Some(next) = self.next() {
            match next {
                Next::Turn(turn) => turn.take(),
                Next::Relieve => self.relieve(),
            }
        }
    }

    /// Waits for something to do; `None` if the thread must end.
    fn next(self: &Arc<Self>) -> Option<Next<'_>> {
        let mut state = lock(&self.state);
        let mut idle_until = None;
        loop {
            let now = env::now();
            state.enqueue_due(now);
            if std::mem::take(&mut state.is_heavy) {
                return Some(Next::Relieve);
            }
            if let Some((store, tenant)) = state.next() {
                let may_merge = state.merging < self.most_merging;
                state.merging += usize::from(may_merge);
                if !state.queue.is_empty() {
                    self.call_worker(&mut state);
                }
                return Some(Next::Turn(WorkerTurn { pool: self, store, tenant, may_merge }));
            }
            let until = *idle_until.get_or_insert(now + IDLE_FOR);
            let is_last = state.idle == 0;
            if state.is_over || until <= now && (!is_last || state.due.is_empty()) {
                return None;
            }
            state = self.wait_idle(state, until.max(now), is_last);
        }
    }

    /// Freezes the largest active memtables of all stores, until the rest are within their share.
    fn relieve(&self) {
        let stores: Vec<_> =
            lock(&self.state).stores.values().map(|store| Weak::clone(&store.tenant)).collect();
        let mut active: Vec<_> = stores
            .iter()
            .filter_map(|store| Some((store.upgrade()?.active_bytes(), store)))
            .collect();
        active.sort_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
        let mut freed = 0;
        for (bytes, store) in active {
            let Some(tenant) = store.upgrade() else { continue };
            if tenant.excess_of_active() <= freed {
                return;
            }
            // A memtable that its own writers will freeze counts until they have.
            if tenant.freeze_for_others() {
                freed += bytes;
            }
        }
    }

    /// Waits for possible work, at most until `until`; the last idle thread as long as there is a
    /// time to wait for.
    fn wait_idle<'a>(
        &'a self,
        mut state: MutexGuard<'a, PoolState>,
        until: Instant,
        is_last: bool,
    ) -> MutexGuard<'a, PoolState> {
        let first = state.due.first().map(|(at, _)| *at);
        let until = match first {
            Some(first) if is_last => first,
            Some(first) => first.min(until),
            None => until,
        };
        state.idle += 1;
        state = wait_until(&self.ready, state, until);
        state.idle -= 1;
        state
    }
}

/// The next step of a thread.
enum Next<'a> {
    Turn(WorkerTurn<'a>),
    /// Frees memory of memtables.
    Relieve,
}

/// A running thread of a pool.
struct Thread<'a>(&'a Arc<WorkerPool>);

impl Drop for Thread<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.0.state);
        state.threads -= 1;
        // After a panic a store may be queued; and another thread may now be the last one, which
        // has to wait for the times of all stores.
        if !state.queue.is_empty() || state.is_heavy {
            self.0.call_worker(&mut state);
        }
        self.0.ready.notify_one();
        self.0.ended.notify_all();
    }
}

/// A worker's turn at a store: its search for work, and the job that it found.
struct WorkerTurn<'a> {
    pool: &'a Arc<WorkerPool>,
    store: u64,
    tenant: Weak<dyn Tenant>,
    /// Whether it counts among the turns that may run other jobs than flushes.
    may_merge: bool,
}

impl WorkerTurn<'_> {
    fn take(mut self) {
        let Some(tenant) = self.tenant.upgrade() else { return };
        match tenant.next_task(self.may_merge) {
            Some(task) => {
                self.found(task.is_short);
                (task.run)();
            }
            None if !self.may_merge => {
                let mut state = lock(&self.pool.state);
                // A turn may have ended meanwhile.
                if state.merging < self.pool.most_merging {
                    state.enqueue(self.store);
                } else {
                    state.want_to_merge.push(self.store);
                }
            }
            None => {}
        }
        // Dropped before the turn ends, because closing the store waits for that.
        drop(tenant);
    }

    /// A task was found: another worker may look for more.
    fn found(&mut self, is_short: bool) {
        let mut state = lock(&self.pool.state);
        if is_short && std::mem::take(&mut self.may_merge) {
            state.end_merging();
        }
        state.enqueue(self.store);
        self.pool.call_worker(&mut state);
    }
}

impl Drop for WorkerTurn<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.pool.state);
        if self.may_merge {
            state.end_merging();
        }
        if let Some(store) = state.stores.get_mut(&self.store) {
            store.workers -= 1;
            if std::mem::take(&mut store.is_crowded) {
                state.enqueue(self.store);
            }
        }
        if !state.queue.is_empty() {
            self.pool.call_worker(&mut state);
        }
        self.pool.ended.notify_all();
    }
}

/// A store's registration in a pool.
#[derive(Debug)]
pub(crate) struct Served {
    pool: Arc<WorkerPool>,
    store: u64,
}

impl Served {
    /// Makes a worker search the store for work.
    pub(crate) fn wake(&self) {
        let mut state = lock(&self.pool.state);
        state.enqueue(self.store);
        self.pool.call_worker(&mut state);
    }

    /// Makes a worker free memory of active memtables.
    pub(crate) fn relieve(&self) {
        let mut state = lock(&self.pool.state);
        if !std::mem::replace(&mut state.is_heavy, true) {
            self.pool.call_worker(&mut state);
        }
    }

    /// Sets when to search the store for work again, replacing the time set before. Called with the
    /// store's state locked, so that the later of two searches wins.
    pub(crate) fn look_again_at(&self, due: Option<Instant>) {
        lock(&self.pool.state).set_due(self.store, due);
    }

    /// Whether no thread of the pool would take a job now: all are busy, and no more may be
    /// started.
    pub(crate) fn is_busy(&self) -> bool {
        let state = lock(&self.pool.state);
        state.idle == 0 && state.threads == self.pool.most
    }

    /// Whether there are no threads because none could be started.
    pub(crate) fn is_short_of_threads(&self) -> bool {
        lock(&self.pool.state).is_short
    }

    /// Withdraws the store, and waits for the workers at it. Ends the threads of a store's own
    /// pool, and waits for that.
    pub(crate) fn leave(&self, is_own: bool) {
        let mut state = lock(&self.pool.state);
        state.set_due(self.store, None);
        while state.stores.get(&self.store).is_some_and(|store| store.workers > 0) {
            state = wait(&self.pool.ended, state);
        }
        state.stores.remove(&self.store);
        state.set_due(self.store, None);
        state.queue.retain(|id| *id != self.store);
        state.want_to_merge.retain(|id| *id != self.store);
        if !is_own {
            return;
        }
        state.is_over = true;
        self.pool.ready.notify_all();
        while state.threads > 0 {
            state = wait(&self.pool.ended, state);
        }
    }
}
