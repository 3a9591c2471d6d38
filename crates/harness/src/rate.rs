//! When an operation of an open loop is to begin.
//!
//! A closed loop begins an operation when the one before has ended: while the store stands still,
//! nothing is begun and nothing is measured. An open loop begins `rate` operations a second
//! whatever the store does, and counts each one's time from when it was *meant* to begin, so that
//! those which had to wait behind a slow one are seen ("coordinated omission" is the name of the
//! mistake that this avoids).

use std::time::Duration;

/// When each operation of one thread is meant to begin.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    first: f64,
    period: f64,
}

impl Pace {
    /// Thread `thread` of `threads`, which together begin `per_second` operations a second.
    pub(crate) fn new(per_second: f64, thread: usize, threads: usize) -> Self {
        Self { first: thread as f64 / per_second, period: threads as f64 / per_second }
    }

    /// When the thread's operation number `nth` (from 0) is meant to begin, since the start.
    #[inline]
    pub(crate) fn intended(&self, nth: u64) -> Duration {
        Duration::try_from_secs_f64(self.first + nth as f64 * self.period).unwrap_or(Duration::MAX)
    }

    /// How many of the thread's operations are meant to have begun after `elapsed`.
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
