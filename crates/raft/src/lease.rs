//! One open of a node at a time.
//!
//! openraft's shutdown does not wait for all of its tasks: afterwards, one may still apply entries,
//! install a snapshot, or drop one that was not received completely. Beside a node that was opened
//! again, they would change its state and remove its files. So each part of a node shares a lock on
//! a file in the directory of its snapshots, and the last part that is dropped releases it.

use std::io;
use std::path::Path;
use std::sync::Arc;

use trommel::vfs::{FileLock, Vfs};

use crate::error::{Error, Result};

/// Keeps others from opening the node.
pub(crate) type Lease = Arc<dyn FileLock>;

/// Takes the lease of the node whose snapshots are in `dir`, which is created if there is none.
pub(crate) fn take(vfs: &dyn Vfs, dir: &Path) -> Result<Lease> {
    create(vfs, dir).map_err(Error::Snapshot)?;
    match vfs.lock(&dir.join("LOCK")) {
        Ok(lock) => Ok(lock.into()),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            Err(Error::InUse { snapshots: dir.to_path_buf() })
        }
        Err(error) => Err(Error::Snapshot(error)),
    }
}

fn create(vfs: &dyn Vfs, dir: &Path) -> io::Result<()> {
    match vfs.create_dir(dir) {
        Ok(()) => match dir.parent().filter(|above| !above.as_os_str().is_empty()) {
            Some(above) => vfs.sync_dir(above),
            None => Ok(()),
        },
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}
