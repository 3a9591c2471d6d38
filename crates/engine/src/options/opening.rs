//! How a directory is opened: what it may hold, and whether anything is written.

use crate::options::choices::Degraded;
use crate::options::table::settings;

settings! {
    /// How a directory is opened: what it may hold, and whether anything is written. See
    /// [`Options::opening`](crate::Options::opening).
    OpenSettings {
        /// Whether a missing (or empty) directory becomes a new store.
        create_if_missing: bool = true;
        /// Whether an existing store is an error.
        error_if_exists: bool = false;
        /// Whether to open without writing anything at all: nothing is created, repaired or
        /// removed, and what the log holds is read into memory.
        read_only: bool = false;
        /// Whether to open in spite of corruption in the log, keeping the records before it and
        /// reporting what is dropped ([`Db::recovery_report`](crate::Db::recovery_report)).
        /// Otherwise such corruption is an error.
        salvage: bool = false;
        /// Whether to open in spite of corruption, to read what is healthy: read-only, and with an
        /// error for each read that needs a part that is corrupt or missing.
        /// [`RecoveryReport::damage`](crate::RecoveryReport::damage) lists these parts. Where
        /// writes of unknown keys are lost, as after corruption in a log, nothing is certain any
        /// more: see [`Degraded`]. With `None`, corruption is an error.
        degraded(impl Into<Option<Degraded>> => Into::into): Option<Degraded> = None;
    }
}
