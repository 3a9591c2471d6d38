//! How a directory is opened: what it may hold, and whether anything is written.

use crate::options::choices::Degraded;
use crate::options::table::settings;

settings! {
    /// How a directory is opened: what it may hold, and whether anything is written. See
    /// [`Options::opening`](crate::Options::opening).
    OpenSettings {
        /// Whether a missing or empty directory becomes a new store.
        create_if_missing: bool = true;
        /// Whether an existing store is an error.
        error_if_exists: bool = false;
        /// Whether to open without writing anything at all: nothing is created, repaired or
        /// removed, and the contents of the log are read into memory.
        read_only: bool = false;
        /// Whether to open in spite of corruption in the log or at the end of the manifest: the
        /// records before it are kept, and [`Db::recovery_report`](crate::Db::recovery_report)
        /// lists the dropped records, which had been acknowledged. If false, such corruption is an
        /// error.
        salvage: bool = false;
        /// Whether to open in spite of any corruption, read-only, to read the healthy data. A read
        /// that needs corrupt or missing data is an error, never a wrong answer.
        /// [`RecoveryReport::damage`](crate::RecoveryReport::damage) lists the corruption. If
        /// writes of unknown keys are lost, as after corruption in a log, no data is certain to be
        /// the newest, and [`Degraded`] chooses what is read. With `None`, corruption is an error.
        degraded(impl Into<Option<Degraded>> => Into::into): Option<Degraded> = None;
    }
    beside {
        /// Whether another owner may write to the store meanwhile: set by
        /// [`Db::open_follower`](crate::Db::open_follower).
        follows: bool = false;
    }
}
