//! The file system of an open store. It never again syncs a directory whose sync has failed, and
//! resolves relative paths as of the store's opening.
//!
//! After a failed sync the kernel has dropped the unsynced entries, and a second sync reports
//! success without having written them. Flushes, compactions and the write path create files in one
//! directory concurrently, so a failure reported to one of them may affect the entries of all.
//! Every later sync of that directory therefore fails like the first one, until the store is opened
//! again. A caller that needs the directory durable stops there, before anything refers to entries
//! that may be lost. (If there was no handle for the sync, nothing was attempted, and the failure
//! is not recorded.)
//!
//! A process may change its working directory while a store that was opened by a relative path is
//! open. Therefore the working directory at the time of opening is recorded and prepended to every
//! relative path.
//!
//! On a full disk, recyclable files are removed first (module [`room`](crate::files::room)).
//!
//! Used by [`Engine::open`](crate::engine::Engine::open), which wraps the file system of the
//! options; everything the engine does goes through here.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use trommel_vfs::{Access, DirEntry, FileLock, ReadFile, Vfs, WriteFile, is_out_of_handles};

use crate::files::room::{Room, RoomyFile};
use crate::sync::{Mutex, lock};

/// A file system that remembers failed directory syncs and the base of relative paths.
#[derive(Debug)]
pub(crate) struct DirSync {
    vfs: Arc<dyn Vfs>,
    /// The errors of failed directory syncs. Locked during a sync, so that none succeeds between
    /// another's failure and its record.
    failed: Mutex<BTreeMap<PathBuf, (io::ErrorKind, String)>>,
    /// The base of relative paths, if the store's path is relative.
    anchor: Option<PathBuf>,
    /// Frees space on a full disk.
    room: Arc<Room>,
}

impl DirSync {
    /// For a store in `dir`; `room` frees space for its files.
    pub(crate) fn new(vfs: Arc<dyn Vfs>, dir: &Path, room: Arc<Room>) -> Self {
        let anchor = if dir.is_relative() { vfs.working_dir() } else { None };
        Self { vfs, failed: Mutex::default(), anchor, room }
    }

    /// Resolves `path` as of the store's opening.
    fn at<'p>(&self, path: &'p Path) -> Cow<'p, Path> {
        match &self.anchor {
            Some(anchor) if path.is_relative() => Cow::Owned(anchor.join(path)),
            _ => Cow::Borrowed(path),
        }
    }
}

impl Vfs for DirSync {
    fn create(&self, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        let file = self.room.or_make(|| self.vfs.create(&self.at(path)))?;
        // Only if files are recycled at all.
        if !self.vfs.writes_over() {
            return Ok(file);
        }
        Ok(Box::new(RoomyFile { file, room: Arc::clone(&self.room) }))
    }

    fn writes_over(&self) -> bool {
        self.vfs.writes_over()
    }

    fn create_over(&self, old: &Path, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        let file = self.vfs.create_over(&self.at(old), &self.at(path))?;
        Ok(Box::new(RoomyFile { file, room: Arc::clone(&self.room) }))
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn ReadFile>> {
        self.vfs.open(&self.at(path), access)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        self.vfs.list(&self.at(dir))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.vfs.rename(&self.at(from), &self.at(to))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.vfs.remove(&self.at(path))
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.vfs.hard_link(&self.at(from), &self.at(to))
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.vfs.create_dir(&self.at(path))
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.vfs.remove_dir(&self.at(path))
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let mut failed = lock(&self.failed);
        if let Some((kind, text)) = failed.get(dir) {
            return Err(io::Error::new(*kind, text.clone()));
        }
        self.vfs.sync_dir(&self.at(dir)).inspect_err(|error| {
            // Without a handle for the directory nothing was synced, and no entry was lost.
            if !is_out_of_handles(error) {
                failed.insert(dir.to_path_buf(), (error.kind(), error.to_string()));
            }
        })
    }

    fn sync_file(&self, path: &Path) -> io::Result<()> {
        self.vfs.sync_file(&self.at(path))
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        self.vfs.lock(&self.at(path))
    }

    fn lock_shared(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        self.vfs.lock_shared(&self.at(path))
    }

    fn free_bytes(&self, dir: &Path) -> Option<u64> {
        self.vfs.free_bytes(&self.at(dir))
    }

    fn unix_millis(&self) -> u64 {
        self.vfs.unix_millis()
    }

    fn random_u64(&self) -> u64 {
        self.vfs.random_u64()
    }

    fn working_dir(&self) -> Option<PathBuf> {
        self.anchor.as_ref().and_then(|_| self.vfs.working_dir())
    }

    fn real_path(&self, path: &Path) -> io::Result<PathBuf> {
        self.vfs.real_path(&self.at(path))
    }

    fn read(&self, path: &Path, limit: u64) -> io::Result<Vec<u8>> {
        self.vfs.read(&self.at(path), limit)
    }
}

/// The parent directory of `dir`; none for a root.
pub(crate) fn parent(dir: &Path) -> Option<&Path> {
    match dir.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Some(Path::new(".")),
        parent => parent,
    }
}

#[cfg(test)]
mod tests {
    use trommel_sim::{Failure, Fault, OpKind, SimDisk};

    use super::*;

    #[test]
    fn what_failed_once_fails_for_ever() {
        let disk = SimDisk::new();
        let vfs = DirSync::new(Arc::new(disk.clone()), Path::new("a"), Arc::default());
        vfs.create_dir(Path::new("a")).unwrap();
        disk.inject(Fault::new(Failure::Io).on(OpKind::SyncDir));
        let first = vfs.sync_dir(Path::new("a")).unwrap_err();
        let second = vfs.sync_dir(Path::new("a")).unwrap_err();
        assert_eq!(first.to_string(), second.to_string());
        assert_eq!(disk.calls(OpKind::SyncDir), 1);
        vfs.sync_dir(Path::new(".")).unwrap();
    }
}
