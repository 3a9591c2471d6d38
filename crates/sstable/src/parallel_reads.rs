//! Parallel reads on several threads: a device serves many concurrent reads in a fraction of the
//! time that it takes for the same reads one after the other.
//!
//! 1. The caller of [`read_in_parallel`] submits its reads to a pool of threads, takes part itself,
//!    and waits for the last read.
//! 2. The pool is shared by all stores of the process. Its threads, at most 31, are spawned on
//!    demand, which takes as long as a read, and exit after a second or two without work. A store
//!    whose reads all hit the page cache has none.
//! 3. The caller performs every read that no thread has taken, and waits only for the reads in
//!    progress.
//!
//! This is for systems without a call for batched reads ([`trommel_vfs::read_at_once`]), and for
//! the reads that such a call did not perform: a thread wake-up per read costs more.
//!
//! In-memory and simulated files never use it, so no schedule-exploring test reaches this code.
//! Called by lookups of many keys.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, LazyLock, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use trommel_base::sync::{AtomicUsize, Condvar, Mutex, lock, wait, wait_at_most};

/// Most concurrent reads per caller. A read waits for the device nearly all the time, so there may
/// be more of them than cores.
const READERS: usize = 32;

/// A thread without work for this long exits.
const IDLE: Duration = Duration::from_secs(1);

/// Applies `read` to each of `wanted`; returns the results in order, with `None` for a panic.
pub(crate) fn read_in_parallel<W, R>(wanted: Vec<W>, read: fn(&W) -> R) -> Vec<Option<R>>
where
    W: Send + Sync + 'static,
    R: Send + Sync + Clone + 'static,
{
    let (count, results) = (wanted.len(), wanted.iter().map(|_| OnceLock::new()).collect());
    let (next, left, done) = (AtomicUsize::new(0), Mutex::new(count), Condvar::new());
    let order = Arc::new(Order { wanted, read, results, next, left, done });
    if count > 1 {
        let work = Arc::clone(&order) as Arc<dyn Work>;
        POOL.call(&work, count.min(READERS) - 1);
        order.work();
        POOL.recall(&work);
    } else {
        order.work();
    }
    order.wait();
    order.results.iter().map(|result| result.get().cloned()).collect()
}

/// Reads to be performed by any number of threads.
struct Order<W, R> {
    wanted: Vec<W>,
    read: fn(&W) -> R,
    results: Vec<OnceLock<R>>,
    /// The first read not taken by a thread. Each number is handed out once; each result is
    /// published by its cell.
    next: AtomicUsize,
    /// Reads not completed yet.
    left: Mutex<usize>,
    done: Condvar,
}

impl<W, R> Order<W, R> {
    /// Waits until all reads are complete.
    fn wait(&self) {
        let mut left = lock(&self.left);
        while *left > 0 {
            left = wait(&self.done, left);
        }
    }

    fn count_one(&self) {
        let mut left = lock(&self.left);
        *left -= 1;
        if *left == 0 {
            self.done.notify_all();
        }
    }
}

/// Counts a read as complete when dropped, even by a panic, so that no waiter hangs.
struct Counted<'a, W, R>(&'a Order<W, R>);

impl<W, R> Drop for Counted<'_, W, R> {
    fn drop(&mut self) {
        self.0.count_one();
    }
}

trait Work: Send + Sync {
    /// Reads until every read is taken.
    fn work(&self);
}

impl<W: Send + Sync, R: Send + Sync> Work for Order<W, R> {
    fn work(&self) {
        let take = || {
            let at = self.next.fetch_add(1, Ordering::Relaxed);
            self.wanted.get(at).zip(self.results.get(at))
        };
        while let Some((wanted, result)) = take() {
            let _counted = Counted(self);
            let _ = result.set((self.read)(wanted));
        }
    }
}

/// The pool of reader threads.
struct Pool {
    calls: Mutex<Calls>,
    called: Condvar,
}

struct Calls {
    /// Orders that request another thread, once per thread requested.
    waiting: VecDeque<Arc<dyn Work>>,
    threads: usize,
    /// Threads that wait for an order.
    idle: usize,
}

static POOL: LazyLock<Pool> = LazyLock::new(|| Pool {
    calls: Mutex::new(Calls { waiting: VecDeque::new(), threads: 0, idle: 0 }),
    called: Condvar::new(),
});

impl Pool {
    /// Requests `threads` threads for an order. If a thread cannot be spawned, the others do its
    /// share.
    fn call(&'static self, order: &Arc<dyn Work>, threads: usize) {
        let mut calls = lock(&self.calls);
        let (idle, room) = (calls.idle, READERS - 1 - calls.threads);
        calls.waiting.extend((0..threads).map(|_| Arc::clone(order)));
        let begun = calls.waiting.len().saturating_sub(idle).min(threads).min(room);
        calls.threads += begun;
        drop(calls);
        (0..threads.min(idle)).for_each(|_| self.called.notify_one());
        for nth in 0..begun {
            let reader = thread::Builder::new().name("trommel-read".into());
            if reader.spawn(|| self.serve()).is_err() {
                lock(&self.calls).threads -= begun - nth;
                break;
            }
        }
    }

    /// Withdraws the remaining requests of an order.
    fn recall(&self, order: &Arc<dyn Work>) {
        lock(&self.calls).waiting.retain(|waiting| !Arc::ptr_eq(waiting, order));
    }

    /// The main loop of a pool thread.
    fn serve(&self) {
        let mut idle_since = Instant::now();
        let mut calls = lock(&self.calls);
        loop {
            if let Some(order) = calls.waiting.pop_front() {
                drop(calls);
                // The panic was counted and reported by the panic hook; its caller gets `None`.
                let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| order.work()));
                drop(order);
                idle_since = Instant::now();
                calls = lock(&self.calls);
                continue;
            }
            if idle_since.elapsed() >= IDLE {
                calls.threads -= 1;
                return;
            }
            calls.idle += 1;
            calls = wait_at_most(&self.called, calls, IDLE);
            calls.idle -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    /// Held by a test that needs all threads of the pool at once.
    static ALL_THREADS: LazyLock<Mutex<()>> = LazyLock::new(|| Mutex::new(()));

    #[test]
    fn each_is_read_once_and_returned_in_order() {
        for count in [0, 1, 2, READERS - 1, READERS, READERS + 1, 200] {
            let calls = Arc::new(AtomicUsize::new(0));
            let wanted: Vec<_> = (0..count).map(|at| (at, Arc::clone(&calls))).collect();
            let read = read_in_parallel(wanted, |(at, calls)| {
                calls.fetch_add(1, Ordering::Relaxed);
                at * 3
            });
            assert_eq!(read, (0..count).map(|at| Some(at * 3)).collect::<Vec<_>>());
            assert_eq!(calls.load(Ordering::Relaxed), count);
        }
    }

    /// Would hang if the reads were sequential.
    #[test]
    fn reads_run_at_the_same_time() {
        let _alone = lock(&ALL_THREADS);
        for _ in 0..50 {
            let all = Arc::new(Barrier::new(READERS));
            let read = read_in_parallel(vec![all; READERS], |all| all.wait().is_leader());
            assert_eq!(read.into_iter().filter(|is_leader| *is_leader == Some(true)).count(), 1);
        }
    }

    /// Regression: requests that were not withdrawn kept results and files alive for as long as
    /// another caller's reads kept all threads busy.
    #[test]
    fn nothing_is_held_for_withdrawn_requests() {
        let _alone = lock(&ALL_THREADS);
        // The number of readers at the gate, and whether it is open.
        let gate = Arc::new((Mutex::new((0, false)), Condvar::new()));
        let kept = Arc::new(());
        thread::scope(|scope| {
            let at_gate = vec![Arc::clone(&gate); READERS];
            scope.spawn(|| {
                read_in_parallel(at_gate, |gate| {
                    let mut state = lock(&gate.0);
                    state.0 += 1;
                    gate.1.notify_all();
                    while !state.1 {
                        state = wait(&gate.1, state);
                    }
                })
            });
            let mut state = lock(&gate.0);
            while state.0 < READERS {
                state = wait(&gate.1, state);
            }
            drop(state);
            read_in_parallel(vec![Arc::clone(&kept); READERS], |_| ());
            let held = Arc::strong_count(&kept) - 1;
            lock(&gate.0).1 = true;
            gate.1.notify_all();
            assert_eq!(held, 0);
        });
    }

    #[test]
    fn concurrent_callers_get_their_own_results() {
        thread::scope(|scope| {
            for of in 0..8_usize {
                scope.spawn(move || {
                    for round in 0..200 {
                        let wanted = (0..64).map(|at| of * 1000 + at + round).collect();
                        let read = read_in_parallel(wanted, |at| at + 1);
                        let expected = (0..64).map(|at| Some(of * 1000 + at + round + 1));
                        assert_eq!(read, expected.collect::<Vec<_>>());
                    }
                });
            }
        });
    }

    #[test]
    fn a_panic_in_a_thread_hangs_no_caller() {
        let caller = thread::current().id();
        for _ in 0..5 {
            let read =
                read_in_parallel((0..64).map(|at| (at, caller)).collect(), |(at, caller)| {
                    assert!(
                        thread::current().id() == *caller || at % 7 != 0,
                        "seven times {}",
                        at / 7
                    );
                    *at
                });
            assert!(read.iter().enumerate().all(|(at, read)| read.is_none_or(|read| read == at)));
        }
    }
}
