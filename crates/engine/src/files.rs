//! The files of a store: their names, and the removal of those that nothing refers to any more.

pub(crate) mod unfinished;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::manifest::names;
use crate::sync::{Mutex, lock};

use trommel_vfs::Vfs;

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

/// Files that nothing refers to any more, waiting to be removed.
///
/// A table's last reader, which may be any thread, only queues it here; the removal itself is
/// background work.
#[derive(Debug)]
pub(crate) struct Graveyard {
    vfs: Arc<dyn Vfs>,
    waiting: Mutex<Vec<PathBuf>>,
}

impl Graveyard {
    pub(crate) fn new(vfs: Arc<dyn Vfs>) -> Self {
        Self { vfs, waiting: Mutex::default() }
    }

    /// Queues a file. The manifest that no longer names it must be durable.
    pub(crate) fn add(&self, path: PathBuf) {
        lock(&self.waiting).push(path);
    }

    /// Removes what is queued. A file that cannot be removed now is removed when the store is
    /// next opened, so failures need no report.
    pub(crate) fn sweep(&self) {
        let waiting = std::mem::take(&mut *lock(&self.waiting));
        for path in waiting {
            let _ = self.vfs.remove(&path);
        }
    }
}
