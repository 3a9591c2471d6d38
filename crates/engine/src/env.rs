//! The only module that reads a clock, draws a random number or queries the number of cores.

use std::time::{Duration, Instant};

#[cfg(shuttle)]
pub(crate) use replayed::{cores, now, random_u64, sleep};
#[cfg(not(shuttle))]
pub(crate) use system::{cores, now, random_u64, sleep};

/// Sleeps until `moment`.
pub(crate) fn sleep_until(moment: Instant) {
    sleep(moment.saturating_duration_since(now()));
}

#[cfg(not(shuttle))]
mod system {
    use std::hash::{BuildHasher, Hasher, RandomState};
    use std::num::NonZero;
    use std::sync::OnceLock;
    use std::thread::available_parallelism;

    use super::{Duration, Instant};

    /// Threads that the process may run at once, as the system reported on the first call; 1 if
    /// unknown.
    pub(crate) fn cores() -> usize {
        static CORES: OnceLock<usize> = OnceLock::new();
        *CORES.get_or_init(|| available_parallelism().map_or(1, NonZero::get))
    }

    /// The current time of a monotonic clock.
    pub(crate) fn now() -> Instant {
        Instant::now()
    }

    /// Sleeps for `duration`.
    pub(crate) fn sleep(duration: Duration) {
        std::thread::sleep(duration);
    }

    /// A random word for ids and salts: the standard library's per-process random keys, mixed with
    /// a counter that differs at every call. Not for secrets.
    pub(crate) fn random_u64() -> u64 {
        RandomState::new().build_hasher().finish()
    }
}

/// A clock that advances only on calls, and random words that a replayed schedule draws again.
#[cfg(shuttle)]
mod replayed {
    use std::cell::Cell;

    use shuttle::rand::{RngCore, thread_rng};
    use trommel_base::sync::point;

    use super::{Duration, Instant};

    thread_local! {
        /// All threads of a schedule run on one OS thread.
        static NOW: Cell<Instant> = Cell::new(Instant::now());
    }

    /// The same on every machine, so that schedules are the same, too.
    pub(crate) fn cores() -> usize {
        2
    }

    fn advance(duration: Duration) -> Instant {
        let later = NOW.get() + duration;
        NOW.set(later);
        later
    }

    pub(crate) fn now() -> Instant {
        advance(Duration::from_micros(1))
    }

    pub(crate) fn sleep(duration: Duration) {
        advance(duration);
        point();
    }

    pub(crate) fn random_u64() -> u64 {
        thread_rng().next_u64()
    }
}
