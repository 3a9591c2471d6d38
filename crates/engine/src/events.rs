//! Background events, reported to `tracing` if that feature is on.

use std::fmt::Debug;
use std::time::Duration;

use crate::error::{BackgroundJob, Error};

macro_rules! event {
    ($level:ident, $($field:tt)*) => {
        #[cfg(feature = "tracing")]
        tracing::$level!(target: "trommel", $($field)*);
    };
}

/// A memtable was flushed.
pub(crate) fn flushed(bytes: u64, took: Duration) {
    event!(info, bytes, ?took, "memtable flushed");
    let _ = (bytes, took);
}

/// A compaction was completely installed.
pub(crate) fn compacted(
    reason: impl Debug,
    levels: (usize, usize),
    bytes: (u64, u64),
    took: Duration,
) {
    let ((from, to), (read, written)) = (levels, bytes);
    event!(info, ?reason, from, to, read, written, ?took, "compacted");
    let _ = (reason, from, to, read, written, took);
}

/// The filters of a table were rebuilt.
pub(crate) fn filters_rebuilt(table: u64, keys: u64, written: u64, took: Duration) {
    event!(info, table, keys, written, ?took, "filters rebuilt");
    let _ = (table, keys, written, took);
}

/// The built filters exceed the budget: those of this many tables will be rebuilt.
pub(crate) fn budget_exceeded(tables: usize) {
    event!(info, tables, "filters exceed their budget, rebuilding them smaller");
    let _ = tables;
}

/// A rebuild for the budget failed and will be retried.
pub(crate) fn retrying_rebuild(table: u64, error: &Error, pause: Duration) {
    event!(warn, table, %error, ?pause, "filters could not be rebuilt to fit their budget, trying again later");
    let _ = (table, error, pause);
}

/// A table has no filters any more, because its new ones would gain nothing.
pub(crate) fn filters_left_out(table: u64, why: &str) {
    event!(warn, table, why, "a table goes without filters, to fit the budget");
    let _ = (table, why);
}

/// A job failed for lack of disk space, file handles or memory, and will be retried; this many
/// attempts in a row have failed.
pub(crate) fn retrying(job: BackgroundJob, error: &Error, failures: u64, pause: Duration) {
    event!(warn, %job, %error, failures, ?pause, "a background job failed, trying again later");
    let _ = (job, error, failures, pause);
}

/// A job has succeeded after this many failed attempts.
pub(crate) fn recovered(job: BackgroundJob, failures: u64) {
    event!(info, %job, failures, "a background job has succeeded again");
    let _ = (job, failures);
}

/// Writers are stopped until flushes or compactions have caught up.
pub(crate) fn stopped(cause: impl Debug) {
    event!(warn, ?cause, "writers wait");
    let _ = cause;
}

/// A stopped writer continues after some progress; it may be stopped again.
pub(crate) fn resumed(cause: impl Debug, took: Duration) {
    event!(info, ?cause, ?took, "writers waited");
    let _ = (cause, took);
}

/// A stopped writer is refused.
pub(crate) fn refused(cause: impl Debug, error: &Error) {
    event!(warn, ?cause, %error, "a writer that waited is refused");
    let _ = (cause, error);
}

/// The store refuses writes from now on.
pub(crate) fn poisoned(error: &Error) {
    event!(error, %error, "a write or a job failed, the store refuses writes until it is opened again");
    let _ = error;
}

/// The code of a user's filter policy failed, for the first time.
pub(crate) fn policy_failed(name: &str, what: &str) {
    event!(warn, name, what, "a filter policy failed");
    let _ = (name, what);
}

/// A merge operator failed in a flush or compaction, for the first time.
pub(crate) fn merge_failed(name: &str, what: &str) {
    event!(warn, name, what, "a merge operator failed; its operands stay");
    let _ = (name, what);
}

/// A table's filter cannot be used, for a reason not reported before.
pub(crate) fn filter_unusable(table: u64, why: &str) {
    event!(warn, table, why, "a filter cannot be used, its table answers maybe");
    let _ = (table, why);
}

/// A store was opened.
pub(crate) fn opened(records: u64, dropped: usize) {
    event!(info, records, dropped, "opened");
    let _ = (records, dropped);
}

/// There was no space to write logs to tables at open, so they are kept.
pub(crate) fn logs_kept(bytes: u64, error: &Error) {
    event!(warn, bytes, %error, "there is no room to write the log to tables, it is kept");
    let _ = (bytes, error);
}

/// A log could not be archived: change feeds will find a gap.
pub(crate) fn log_not_archived(number: u64, error: &Error) {
    event!(warn, number, %error, "a log could not be archived for change feeds");
    let _ = (number, error);
}

/// The options file could not be written.
pub(crate) fn options_not_recorded(error: &Error) {
    event!(warn, %error, "the options of the store could not be recorded");
    let _ = error;
}

/// A custom prefix extractor broke its contract, and is not used any more.
pub(crate) fn prefix_distrusted(name: &str, breach: &str) {
    event!(warn, name, breach, "a prefix extractor broke its contract, it is called no more");
    let _ = (name, breach);
}
