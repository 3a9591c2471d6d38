//! What happens in the background, told to `tracing` where that feature is on, and to nobody
//! otherwise.

use std::time::Duration;

use crate::compaction::plan::Plan;
use crate::error::Error;

macro_rules! tell {
    ($level:ident, $($field:tt)*) => {
        #[cfg(feature = "tracing")]
        tracing::$level!(target: "trommel", $($field)*);
    };
}

/// A memtable became a table.
pub(crate) fn flushed(bytes: u64, took: Duration) {
    tell!(info, bytes, ?took, "memtable flushed");
    let _ = (bytes, took);
}

/// A compaction was installed.
pub(crate) fn compacted(plan: &Plan, written: u64, took: Duration) {
    tell!(
        info,
        reason = ?plan.reason,
        from = plan.level,
        to = plan.output_level,
        read = plan.input_bytes(),
        written,
        ?took,
        "compacted"
    );
    let _ = (plan.reason, written, took);
}

/// The filters of a table were rebuilt.
pub(crate) fn filters_rebuilt(table: u64, keys: u64, written: u64, took: Duration) {
    tell!(info, table, keys, written, ?took, "filters rebuilt");
    let _ = (table, keys, written, took);
}

/// A job found the disk full and will be tried again.
pub(crate) fn retrying(error: &Error, pause: Duration) {
    tell!(warn, %error, ?pause, "disk full, trying again later");
    let _ = (error, pause);
}

/// The store refuses writes from now on.
pub(crate) fn poisoned(error: &Error) {
    tell!(error, %error, "a write failed, the store refuses writes until it is opened again");
    let _ = error;
}

/// The code of a user's filter policy failed, for the first time.
pub(crate) fn policy_failed(name: &str, what: &str) {
    tell!(warn, name, what, "a filter policy failed");
    let _ = (name, what);
}

/// A table's filter cannot be used, for a reason that no other table gave yet.
pub(crate) fn filter_unusable(table: u64, why: &str) {
    tell!(warn, table, why, "a filter cannot be used, its table answers maybe");
    let _ = (table, why);
}

/// A store was opened.
pub(crate) fn opened(records: u64, dropped: usize) {
    tell!(info, records, dropped, "opened");
    let _ = (records, dropped);
}

/// A closure that makes prefixes broke its contract, and is asked no more.
pub(crate) fn prefix_distrusted(name: &str, breach: &str) {
    tell!(warn, name, breach, "a prefix extractor broke its contract, it is asked no more");
    let _ = (name, breach);
}
