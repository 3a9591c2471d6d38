//! The engine's synchronization primitives: those of crate `base`, plus threads, a swapped pointer
//! and timed waits. In production all of it is the standard library's; see [`trommel_base::sync`]
//! for the test implementations.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

#[cfg(shuttle)]
pub(crate) use shuttle::thread;
#[cfg(not(shuttle))]
pub(crate) use std::thread;

pub(crate) use trommel_base::sync::{
    AtomicBool, AtomicU64, AtomicUsize, Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, fence,
    lock, point, quiet, read_lock, wait, wait_at_most, write_lock,
};

use crate::env;

/// A loaded value, while it is in use.
pub(crate) use arc_swap::Guard;
/// A value that is replaced as a whole, and read without a lock.
#[cfg(not(shuttle))]
pub(crate) use arc_swap::{ArcSwap as Swap, ArcSwapOption as SwapOption};
#[cfg(shuttle)]
pub(crate) use switching::{Swap, SwapOption};

/// Waits on `condition` until it is signalled or `due` is reached.
pub(crate) fn wait_until<'a, T>(
    condition: &Condvar,
    guard: MutexGuard<'a, T>,
    due: Instant,
) -> MutexGuard<'a, T> {
    if cfg!(shuttle) {
        // No other thread may be coming, so the timeout may come first: it always does.
        env::sleep_until(due);
        return guard;
    }
    wait_at_most(condition, guard, due.saturating_duration_since(env::now()))
}

/// Polls `is_over` for a short while, which costs less than sleeping and being woken: first
/// spinning, then yielding in between, unless yields have recently been slow. Does nothing under
/// tests that explore schedules, which would explore only polls.
#[inline]
pub(crate) fn look_out(is_over: impl Fn() -> bool) {
    /// Polls without a break: about a microsecond.
    const LOOKS: usize = 32;
    /// Polls with yields in between.
    const YIELDS: usize = 32;

    if cfg!(any(shuttle, trommel_loom)) {
        return;
    }
    for _ in 0..LOOKS {
        if is_over() {
            return;
        }
        std::hint::spin_loop();
    }
    static SLOW: SlowYields = SlowYields::none();
    for _ in 0..YIELDS {
        if is_over() || SLOW.are_near() {
            return;
        }
        if !yields_quickly() {
            SLOW.note();
            return;
        }
    }
}

/// Yields to other threads, and returns whether that was quick.
///
/// If a computing thread shares the core, the system's scheduler (EEVDF, since Linux 6.6) takes a
/// whole slice of some milliseconds from a thread that yields, but soon runs one that sleeps and is
/// woken.
pub(crate) fn yields_quickly() -> bool {
    /// Two context switches and the short work of some dozens of threads take less, a slice more.
    const QUICK: Duration = Duration::from_micros(500);

    if cfg!(any(shuttle, trommel_loom)) {
        thread::yield_now();
        return true;
    }
    let start = env::now();
    thread::yield_now();
    env::now() - start < QUICK
}

/// Whether yields at some place, of any thread, were slow recently, so that the next yields should
/// be skipped.
#[derive(Debug)]
pub(crate) struct SlowYields {
    left_out: quiet::StaticU64,
}

impl SlowYields {
    /// Yields that are skipped after a slow one, which amortizes its cost to a few microseconds
    /// each.
    const LEFT_OUT: u64 = 256;

    pub(crate) const fn none() -> Self {
        Self { left_out: quiet::StaticU64::new(0) }
    }

    /// Whether to skip the next yield, which is counted.
    pub(crate) fn are_near(&self) -> bool {
        let left = self.left_out.load(Ordering::Relaxed);
        if left > 0 {
            // If two threads count at once, one count is lost, which is harmless.
            self.left_out.store(left - 1, Ordering::Relaxed);
        }
        left > 0
    }

    /// Records a slow yield.
    pub(crate) fn note(&self) {
        self.left_out.store(Self::LEFT_OUT, Ordering::Relaxed);
    }
}

/// Whether the calling thread is unwinding.
pub(crate) fn panicking() -> bool {
    thread::panicking() && is_the_one_that_may_panic()
}

#[cfg(not(shuttle))]
fn is_the_one_that_may_panic() -> bool {
    true
}

/// Under shuttle all threads are one to the standard library, so while one unwinds all seem to. A
/// scenario with an unwinding thread gives it a particular name.
#[cfg(shuttle)]
fn is_the_one_that_may_panic() -> bool {
    thread::current().name() == Some("panics")
}

#[cfg(shuttle)]
mod switching {
    use std::sync::Arc;

    use arc_swap::{ArcSwapAny, Guard, RefCnt};
    use trommel_base::sync::point;

    /// As the production type, with a possible thread switch before each step.
    #[derive(Debug)]
    pub(crate) struct SwapAny<T: RefCnt>(ArcSwapAny<T>);

    pub(crate) type Swap<T> = SwapAny<Arc<T>>;
    pub(crate) type SwapOption<T> = SwapAny<Option<Arc<T>>>;

    impl<T: RefCnt> SwapAny<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(ArcSwapAny::new(value))
        }

        pub(crate) fn load(&self) -> Guard<T> {
            point();
            self.0.load()
        }

        pub(crate) fn load_full(&self) -> T {
            point();
            self.0.load_full()
        }

        pub(crate) fn store(&self, value: T) {
            point();
            self.0.store(value);
        }

        pub(crate) fn swap(&self, value: T) -> T {
            point();
            self.0.swap(value)
        }
    }

    impl<T> SwapOption<T> {
        pub(crate) fn empty() -> Self {
            Self(ArcSwapAny::empty())
        }
    }

    impl<T> Default for SwapOption<T> {
        fn default() -> Self {
            Self::empty()
        }
    }
}
