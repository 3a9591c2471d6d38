//! What an open store asks of its file system: that a directory that failed to sync once is never
//! synced again, and that a relative path means what it meant when the store was opened.
//!
//! After a failed sync the system has forgotten which entries were to become durable, and a second
//! sync reports success without having written them. Flushes, compactions and the write path create
//! files in one directory at the same time, so the failure that one of them is told of may cost the
//! entries of all. Every later sync of that directory therefore fails as the first one did, until
//! the store is opened again. Whoever needs it durable stops there, before anything refers to what
//! may not be. (Where there was no handle to sync it with nothing was tried, so that is not
//! remembered.)
//!
//! A process may change its working directory while a store is open that was given by a relative
//! path. So the directory at which that began is kept, and put before every relative path.
//!
//! On a full disk files are removed first that are only kept to be written over (module
//! [`room`](crate::files::room)).
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

/// A file system that remembers failed syncs of directories, and where relative paths began.
#[derive(Debug)]
pub(crate) struct DirSync {
    vfs: Arc<dyn Vfs>,
    /// What the sync of a directory failed with. Held during a sync, so that none succeeds between
    /// another's failure and the note of it.
    failed: Mutex<BTreeMap<PathBuf, (io::ErrorKind, String)>>,
    /// Where relative paths begin, if the store's is one.
    anchor: Option<PathBuf>,
    /// Where room is made on a full disk.
    room: Arc<Room>,
}

impl DirSync {
    /// For a store in `dir`, which makes room for its files in `room`.
    pub(crate) fn new(vfs: Arc<dyn Vfs>, dir: &Path, room: Arc<Room>) -> Self {
        let anchor = if dir.is_relative() { vfs.working_dir() } else { None };
        Self { vfs, failed: Mutex::default(), anchor, room }
    }

    /// Where `path` was when the store was opened.
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
        // Only where files are kept at all.
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
            // Without a handle for the directory nothing was synced, and nothing is forgotten.
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

/// The directory that `dir` lies in; none for a root.
pub(crate) fn parent(dir: &Path) -> Option<&Path> {
    match dir.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Some(Path::new(".")),
        parent => parent,
    }
}

#[cfg(test)]
mod tests {
    use trommel_vfs::{Failure, Fault, OpKind, SimDisk};

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
