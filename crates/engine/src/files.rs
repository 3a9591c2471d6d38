//! The files of a store: names, paths, and special files.

pub(crate) mod deletion_queue;
pub(crate) mod held;
pub(crate) mod room;
pub(crate) mod unfinished;

use std::io;
use std::path::{Path, PathBuf};

use trommel_vfs::{DirEntry, Vfs};

use crate::error::{Error, Result};
use crate::names;

/// Name of the lock file.
pub(crate) const LOCK: &str = "LOCK";

/// Name of the file that marks an unfinished repair into the directory.
pub(crate) const UNFINISHED: &str = "UNFINISHED";

/// Path of log `number` in `dir`.
pub(crate) fn log_path(dir: &Path, number: u64) -> PathBuf {
    dir.join(names::log(number))
}

/// Path of the archived log `number` in `dir`.
pub(crate) fn archived_log_path(dir: &Path, number: u64) -> PathBuf {
    dir.join(names::archived_log(number))
}

/// Path of table `number` in `dir`.
pub(crate) fn table_path(dir: &Path, number: u64) -> PathBuf {
    dir.join(names::table(number))
}

/// Path of filter sidecar `number` in `dir`.
pub(crate) fn sidecar_path(dir: &Path, number: u64) -> PathBuf {
    dir.join(names::filter_sidecar(number))
}

/// The entries of `dir`.
pub(crate) fn list(vfs: &dyn Vfs, dir: &Path) -> Result<Vec<DirEntry>> {
    vfs.list(dir).map_err(|source| Error::io(dir, "listing", source))
}

/// Whether `to`, which need not exist yet, is the directory `real` or inside it.
pub(crate) fn lies_in(vfs: &dyn Vfs, real: &Path, to: &Path) -> Result<bool> {
    for above in to.ancestors() {
        let above = if above.as_os_str().is_empty() { Path::new(".") } else { above };
        match vfs.real_path(above) {
            Ok(found) => return Ok(found.starts_with(real)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(Error::io(above, "looking for", error)),
        }
    }
    Ok(false)
}
