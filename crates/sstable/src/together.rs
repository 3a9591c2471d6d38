//! Reads that overlap because several threads make them: a device that is asked for many blocks at
//! once brings each in a fraction of the time that it takes for one alone.
//!
//! 1. Who wants several things read has threads called for them, takes part, and waits for the last
//!    one.
//! 2. The threads are those of the process, shared by all stores in it. They are begun when they
//!    are first needed, at most 31, and end when they had nothing to read for a second or two: a
//!    store that reads nothing past the system's memory has none. To begin one takes as long as a
//!    read.
//! 3. Who wants things read does all that no thread has taken, and waits only for what one has.
//!
//! This is for systems that cannot be handed many reads in one call
//! ([`trommel_vfs::read_at_once`]), and for what was not read so: these threads are woken for each
//! of their reads.
//!
//! Files in memory and simulated ones are not read so, and no scenario of schedules comes here.
//! Called by lookups of many keys.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, LazyLock, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use trommel_base::sync::{AtomicUsize, Condvar, Mutex, lock, wait, wait_at_most};

/// Most reads that are under way at once for one caller. Each waits for the device nearly all the
/// time, so that they may be more than the processor's cores.
const READERS: usize = 32;

/// A thread that had nothing to read for so long ends.
const IDLE: Duration = Duration::from_secs(1);

/// What `read` makes of each of `wanted`, in their order; `None` where it panicked.
pub(crate) fn read_together<W, R>(wanted: Vec<W>, read: fn(&W) -> R) -> Vec<Option<R>>
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

/// Things to read, by as many threads as come.
struct Order<W, R> {
    wanted: Vec<W>,
    read: fn(&W) -> R,
    results: Vec<OnceLock<R>>,
    /// The first that nobody has taken. Each number is handed out once; what was read is handed on
    /// by its cell.
    next: AtomicUsize,
    /// Those that are not read yet.
    left: Mutex<usize>,
    done: Condvar,
}

impl<W, R> Order<W, R> {
    /// Waits until all is read.
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

/// Says that one more is read when it is dropped, also by a panic: nobody waits for ever.
struct Counted<'a, W, R>(&'a Order<W, R>);

impl<W, R> Drop for Counted<'_, W, R> {
    fn drop(&mut self) {
        self.0.count_one();
    }
}

trait Work: Send + Sync {
    /// Reads until there is nothing that nobody has taken.
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

/// The threads that read.
struct Pool {
    calls: Mutex<Calls>,
    called: Condvar,
}

struct Calls {
    /// Orders for which one more thread is wanted.
    waiting: VecDeque<Arc<dyn Work>>,
    threads: usize,
    /// Those of them that wait to be called.
    idle: usize,
}

static POOL: LazyLock<Pool> = LazyLock::new(|| Pool {
    calls: Mutex::new(Calls { waiting: VecDeque::new(), threads: 0, idle: 0 }),
    called: Condvar::new(),
});

impl Pool {
    /// Calls so many threads to an order. Where one cannot be begun the others do its part.
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

    /// Calls nobody to an order any more.
    fn recall(&self, order: &Arc<dyn Work>) {
        lock(&self.calls).waiting.retain(|waiting| !Arc::ptr_eq(waiting, order));
    }

    /// What a thread does.
    fn serve(&self) {
        let mut idle_since = Instant::now();
        let mut calls = lock(&self.calls);
        loop {
            if let Some(order) = calls.waiting.pop_front() {
                drop(calls);
                // A panic was counted, and told by its hook; its caller has no result.
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
    fn each_is_read_once_and_in_its_place() {
        for count in [0, 1, 2, READERS - 1, READERS, READERS + 1, 200] {
            let calls = Arc::new(AtomicUsize::new(0));
            let wanted: Vec<_> = (0..count).map(|at| (at, Arc::clone(&calls))).collect();
            let read = read_together(wanted, |(at, calls)| {
                calls.fetch_add(1, Ordering::Relaxed);
                at * 3
            });
            assert_eq!(read, (0..count).map(|at| Some(at * 3)).collect::<Vec<_>>());
            assert_eq!(calls.load(Ordering::Relaxed), count);
        }
    }

    /// Would wait for ever if one were read after the other.
    #[test]
    fn they_are_read_at_the_same_time() {
        let _alone = lock(&ALL_THREADS);
        for _ in 0..50 {
            let all = Arc::new(Barrier::new(READERS));
            let read = read_together(vec![all; READERS], |all| all.wait().is_leader());
            assert_eq!(read.into_iter().filter(|is_leader| *is_leader == Some(true)).count(), 1);
        }
    }

    /// What was read, and the files it was read from, were held by entries that nobody took back,
    /// for as long as another caller's device kept all threads waiting.
    #[test]
    fn nothing_is_held_for_threads_that_did_not_come() {
        let _alone = lock(&ALL_THREADS);
        // How many wait, and whether they may go.
        let gate = Arc::new((Mutex::new((0, false)), Condvar::new()));
        let kept = Arc::new(());
        thread::scope(|scope| {
            let at_gate = vec![Arc::clone(&gate); READERS];
            scope.spawn(|| {
                read_together(at_gate, |gate| {
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
            read_together(vec![Arc::clone(&kept); READERS], |_| ());
            let held = Arc::strong_count(&kept) - 1;
            lock(&gate.0).1 = true;
            gate.1.notify_all();
            assert_eq!(held, 0);
        });
    }

    #[test]
    fn callers_beside_each_other_have_each_their_own() {
        thread::scope(|scope| {
            for of in 0..8_usize {
                scope.spawn(move || {
                    for round in 0..200 {
                        let wanted = (0..64).map(|at| of * 1000 + at + round).collect();
                        let read = read_together(wanted, |at| at + 1);
                        let expected = (0..64).map(|at| Some(of * 1000 + at + round + 1));
                        assert_eq!(read, expected.collect::<Vec<_>>());
                    }
                });
            }
        });
    }

    #[test]
    fn who_panics_in_a_thread_keeps_nobody_waiting() {
        let caller = thread::current().id();
        for _ in 0..5 {
            let read = read_together((0..64).map(|at| (at, caller)).collect(), |(at, caller)| {
                assert!(thread::current().id() == *caller || at % 7 != 0, "seven times {}", at / 7);
                *at
            });
            assert!(read.iter().enumerate().all(|(at, read)| read.is_none_or(|read| read == at)));
        }
    }
}
