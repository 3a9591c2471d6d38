//! What becomes of jobs that failed and are tried again: pauses that double, and who is told.

use std::time::{Duration, Instant};

use trommel_base::planted::{Bug, planted};

use crate::error::{Error, Result};

/// Pause after a failed attempt, doubled up to the longest.
const FIRST_RETRY: Duration = Duration::from_millis(50);
pub(super) const LONGEST_RETRY: Duration = Duration::from_secs(5);

/// Failures of one kind of job that are tried again: a full disk, no more file handles.
#[derive(Debug, Default)]
pub(super) struct Trouble {
    /// Failures since the store was opened. Waiters report one that came while they waited, and
    /// leave older ones to those who waited then.
    pub(super) failures: u64,
    pub(super) last: Option<Error>,
    /// When the next attempt is due, and how long the pause before it is.
    pub(super) retry: Option<(Instant, Duration)>,
}

impl Trouble {
    pub(super) fn succeeded(&mut self) {
        self.retry = None;
    }

    pub(super) fn failed(&mut self, error: Error, now: Instant) -> Duration {
        self.failures += 1;
        self.postponed(error, now)
    }

    /// Notes a failure that waiters are not told of, as it may pass while they wait.
    pub(super) fn postponed(&mut self, error: Error, now: Instant) -> Duration {
        let pause = self.retry.map_or(FIRST_RETRY, |(_, last)| last * 2).min(LONGEST_RETRY);
        self.retry = Some((now + pause, pause));
        self.last = Some(error);
        pause
    }

    pub(super) fn note(&mut self, error: Error) {
        self.failures += 1;
        self.last = Some(error);
    }

    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.retry.is_none_or(|(at, _)| at <= now && !planted(Bug::RetryNeverDue))
    }

    /// The last failure, if it came after the first `seen` of them.
    pub(super) fn since(&self, seen: u64) -> Result<()> {
        match &self.last {
            Some(error) if self.failures > seen => Err(error.clone()),
            _ => Ok(()),
        }
    }
}
