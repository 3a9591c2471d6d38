//! Failed jobs that are retried: the pauses between attempts, which double; which waiters get the
//! error; and what statistics report.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error::{BackgroundJob, Error, Result};

/// Pause after the first failed attempt; it doubles up to the longest.
const FIRST_RETRY: Duration = Duration::from_millis(50);
pub(crate) const LONGEST_RETRY: Duration = Duration::from_secs(5);

/// The last failure of a background job, and the attempts at jobs of its kind since the store was
/// opened: see [`BackgroundStats::error`](crate::BackgroundStats::error).
#[derive(Debug, Clone)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct BackgroundError {
    /// The kind of work that failed.
    pub job: BackgroundJob,
    /// Its error; serialized as text.
    #[cfg_attr(feature = "serde", serde(serialize_with = "as_text"))]
    pub error: Error,
    /// Time since the failure.
    pub age: Duration,
    /// Failed attempts since the last success; 0 once one has succeeded.
    pub failures_in_a_row: u64,
    /// Failed attempts since the store was opened.
    pub failures: u64,
    /// Attempts that followed a failed one.
    pub retries: u64,
    /// Time until the next attempt, zero if it is under way. `None` if none is pending: one has
    /// succeeded since, or the store refuses writes.
    pub next_retry: Option<Duration>,
}

#[cfg(feature = "serde")]
fn as_text<S: serde::Serializer>(
    error: &Error,
    serializer: S,
) -> std::result::Result<S::Ok, S::Error> {
    serializer.collect_str(error)
}

impl BackgroundError {
    /// Whether the work keeps failing.
    pub fn is_current(&self) -> bool {
        self.failures_in_a_row > 0
    }
}

/// One line, without the error: "compaction has failed 3 times in a row, ...".
impl fmt::Display for BackgroundError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { job, failures_in_a_row, failures, retries, .. } = self;
        let seconds = self.age.as_secs_f64();
        match failures_in_a_row {
            0 => write!(f, "{job} has succeeded since it failed")?,
            1 => write!(f, "{job} has failed")?,
            more => write!(f, "{job} has failed {more} times in a row")?,
        }
        write!(f, ", last {seconds:.1} s ago ({failures} failures in all, {retries} retries)")?;
        match self.next_retry {
            Some(pause) => write!(f, ", next retry in {:.1} s", pause.as_secs_f64())?,
            None if self.is_current() => f.write_str(", no retry")?,
            None => {}
        }
        write!(f, ": {}", self.error)
    }
}

/// Failures of one kind of job that is retried: a full disk, no more file handles.
#[derive(Debug, Default)]
pub(crate) struct JobFailures {
    /// Failures since the store was opened. A waiter reports one that occurred during its wait, and
    /// leaves older ones to earlier waiters.
    pub(crate) failures: u64,
    pub(crate) last: Option<Error>,
    /// When the next attempt is due, and the length of the pause before it.
    pub(crate) retry: Option<(Instant, Duration)>,
    attempts: Attempts,
}

/// Outcomes of attempts, for statistics and for stalled writers.
#[derive(Debug, Default)]
struct Attempts {
    failed_in_a_row: u64,
    failed: u64,
    retries: u64,
    /// When the first of the current failures in a row occurred.
    failing_since: Option<Instant>,
    last_failed: Option<Instant>,
}

impl Attempts {
    fn end_retry(&mut self) {
        self.retries += u64::from(self.failed_in_a_row > 0);
    }

    fn fail(&mut self, now: Instant) {
        self.end_retry();
        self.failed_in_a_row += 1;
        self.failed += 1;
        self.failing_since.get_or_insert(now);
        self.last_failed = Some(now);
    }
}

impl JobFailures {
    /// Records a successful attempt; returns how many had failed before it.
    pub(crate) fn succeeded(&mut self) -> u64 {
        self.retry = None;
        self.attempts.end_retry();
        self.attempts.failing_since = None;
        std::mem::take(&mut self.attempts.failed_in_a_row)
    }

    pub(crate) fn failed(&mut self, error: Error, now: Instant) -> Duration {
        self.failures += 1;
        self.postponed(error, now)
    }

    /// Records a failure that waiters do not get, because it may pass while they wait.
    pub(crate) fn postponed(&mut self, error: Error, now: Instant) -> Duration {
        let pause = self.retry.map_or(FIRST_RETRY, |(_, last)| last * 2).min(LONGEST_RETRY);
        self.retry = Some((now + pause, pause));
        self.last = Some(error);
        self.attempts.fail(now);
        pause
    }

    /// Records a failure that is not retried.
    pub(crate) fn note(&mut self, error: Error, now: Instant) {
        // Work abandoned because the store is closing has not failed.
        if !matches!(error, Error::Closed) {
            self.attempts.fail(now);
        }
        self.failures += 1;
        self.last = Some(error);
    }

    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.retry.is_none_or(|(at, _)| at <= now)
    }

    /// The last failure, if there were more than `seen`.
    pub(crate) fn since(&self, seen: u64) -> Result<()> {
        match &self.last {
            Some(error) if self.failures > seen => Err(error.clone()),
            _ => Ok(()),
        }
    }

    /// Failed attempts since the last success.
    pub(crate) fn failed_in_a_row(&self) -> u64 {
        self.attempts.failed_in_a_row
    }

    /// Until when a writer that waits at most `limit` waits for the failing job; `None` if it is
    /// not failing.
    pub(crate) fn held_up_until(&self, limit: Duration) -> Option<Instant> {
        self.attempts.failing_since?.checked_add(limit)
    }

    /// The error of a writer that was stalled until `now` by `job` and waits at most `limit`.
    pub(crate) fn stalled(&self, job: BackgroundJob, limit: Duration, now: Instant) -> Result<()> {
        match (self.held_up_until(limit), &self.last) {
            (Some(until), Some(error)) if until <= now => Err(Error::Stalled {
                job,
                failures: self.attempts.failed_in_a_row,
                source: Arc::new(error.clone()),
            }),
            _ => Ok(()),
        }
    }

    /// The statistics at `now` for `job`, and when it last failed, if it ever did.
    pub(crate) fn report(
        &self,
        job: BackgroundJob,
        now: Instant,
    ) -> Option<(Instant, BackgroundError)> {
        let Attempts { failed_in_a_row, failed, retries, .. } = self.attempts;
        let (at, error) = (self.attempts.last_failed?, self.last.clone()?);
        let next_retry = self.retry.filter(|_| failed_in_a_row > 0);
        let next_retry = next_retry.map(|(at, _)| at.saturating_duration_since(now));
        let report = BackgroundError {
            job,
            error,
            age: now.saturating_duration_since(at),
            failures_in_a_row: failed_in_a_row,
            failures: failed,
            retries,
            next_retry,
        };
        Some((at, report))
    }
}
