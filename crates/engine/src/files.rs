//! The files of a store: their names.

pub(crate) mod graveyard;
pub(crate) mod held;
pub(crate) mod room;
pub(crate) mod unfinished;

use std::path::{Path, PathBuf};

use crate::names;

/// Name of the lock file.
pub(crate) const LOCK: &str = "LOCK";

/// Name of the file that says that a repair into the directory is not finished.
pub(crate) const UNFINISHED: &str = "UNFINISHED";

/// Path of log `number` in `dir`.
pub(crate) fn log_path(dir: &Path, number: u64) -> PathBuf {
    dir.join(names::log(number))
}

/// Path of table `number` in `dir`.
pub(crate) fn table_path(dir: &Path, number: u64) -> PathBuf {
    dir.join(names::table(number))
}

/// Path of filter sidecar `number` in `dir`.
pub(crate) fn sidecar_path(dir: &Path, number: u64) -> PathBuf {
    dir.join(names::filter_sidecar(number))
}
