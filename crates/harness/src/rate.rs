//! The pace of an open loop.
//!
//! A closed loop starts an operation when the previous one has ended: while the store stalls,
//! nothing starts and nothing is measured. An open loop starts `rate` operations per second
//! whatever the store does, and measures each latency from the *intended* start, so that operations
//! delayed by a slow one show it. This avoids "coordinated omission".

use std::time::Duration;

/// The intended starts of one thread's operations.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    first: f64,
    period: f64,
}

impl Pace {
    /// The pace of thread `thread` of `threads`, which together start `per_second` operations per
    /// second.
    pub(crate) fn new(per_second: f64, thread: usize, threads: usize) -> Self {
        Self { first: thread as f64 / per_second, period: threads as f64 / per_second }
    }

    /// The intended start of the thread's operation number `nth` (from 0), relative to the loop's
    /// start.
    #[inline]
    pub(crate) fn intended(&self, nth: u64) -> Duration {
        Duration::try_from_secs_f64(self.first + nth as f64 * self.period).unwrap_or(Duration::MAX)
    }

    /// Number of the thread's operations that are due after `elapsed`.
    pub(crate) fn due(&self, elapsed: Duration) -> u64 {
        (((elapsed.as_secs_f64() - self.first) / self.period).floor() + 1.0) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_take_turns() {
        let paces = [Pace::new(1000.0, 0, 4), Pace::new(1000.0, 3, 4)];
        let millis = |pace: Pace, nth| pace.intended(nth).as_secs_f64() * 1000.0;
        assert_eq!(millis(paces[0], 0), 0.0);
        assert!((millis(paces[1], 0) - 3.0).abs() < 1e-6);
        assert!((millis(paces[0], 1) - 4.0).abs() < 1e-6);
        assert!((millis(paces[1], 250) - 1003.0).abs() < 1e-6);
    }

    #[test]
    fn a_rate_next_to_nothing_waits_for_ever() {
        assert_eq!(Pace::new(1e-300, 1, 2).intended(u64::MAX), Duration::MAX);
    }
}
