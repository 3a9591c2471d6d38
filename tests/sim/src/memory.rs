//! Files in memory, for tests that need no disk.
//!
//! Behaves like [`DiskVfs`](trommel_vfs::DiskVfs) in everything that the conformance suite tests.
//! Nothing is ever lost: syncing does nothing. The simulated disk models power cuts.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use trommel_vfs::{Access, DirEntry, FileLock, ReadFile, SharedMap, Vfs, WriteFile, wrap, wrap_to};

use crate::RANDOM_WORD;
use crate::content::Content;
use crate::tree::{Inode, Tree};

/// A file system in memory. Clones are handles to the same one.
///
/// The root directory exists; absolute and relative paths both start there, and `..` is rejected.
#[derive(Debug, Clone, Default)]
pub struct MemoryVfs {
    tree: Arc<RwLock<Tree>>,
    locks: Locks,
}

impl MemoryVfs {
    /// An empty file system.
    pub fn new() -> Self {
        Self::default()
    }

    /// A file system that holds `tree`.
    pub(crate) fn from_tree(tree: Tree) -> Self {
        Self { tree: Arc::new(RwLock::new(tree)), locks: Locks::default() }
    }

    // A panicking test must not hide its cause behind a poisoned lock: no change to the tree can be
    // left half done.
    fn read(&self) -> RwLockReadGuard<'_, Tree> {
        self.tree.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Tree> {
        self.tree.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Vfs for MemoryVfs {
    fn random_u64(&self) -> u64 {
        RANDOM_WORD
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        let created = self.write().create(path);
        let (_, inode) = created.map_err(|error| wrap("create", path, error))?;
        Ok(Box::new(MemoryWriter { vfs: self.clone(), inode, bytes: 0 }))
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn ReadFile>> {
        let (_, content) = self.read().open(path).map_err(|error| wrap("open", path, error))?;
        Ok(Arc::new(MemoryFile::new(path, content, access)))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        self.read().list(dir).map_err(|error| wrap("list", dir, error))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let renamed = self.write().rename(from, to);
        renamed.map(drop).map_err(|error| wrap_to("rename", from, to, error))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.write().remove(path).map(drop).map_err(|error| wrap("remove", path, error))
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.write().hard_link(from, to).map(drop).map_err(|error| wrap_to("link", from, to, error))
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.write().create_dir(path).map(drop).map_err(|error| wrap("create", path, error))
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.write().remove_dir(path).map(drop).map_err(|error| wrap("remove", path, error))
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.read().open_dir(dir).map(drop).map_err(|error| wrap("sync", dir, error))
    }

    fn sync_file(&self, path: &Path) -> io::Result<()> {
        self.read().open(path).map(drop).map_err(|error| wrap("sync", path, error))
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        let mut tree = self.write();
        let inode = match tree.open(path) {
            Ok((inode, _)) => Ok(inode),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                tree.create(path).map(|(_, inode)| inode)
            }
            Err(error) => Err(error),
        };
        self.locks.take(inode.map_err(|error| wrap("lock", path, error))?, path)
    }

    fn lock_shared(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        let (inode, _) = self.read().open(path).map_err(|error| wrap("lock", path, error))?;
        self.locks.share(inode, path)
    }
}

#[derive(Debug)]
struct MemoryWriter {
    vfs: MemoryVfs,
    inode: Inode,
    bytes: u64,
}

impl WriteFile for MemoryWriter {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.vfs.write().append(self.inode, bytes);
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// A file as it was when it was opened.
#[derive(Debug)]
pub(crate) struct MemoryFile {
    path: PathBuf,
    content: Arc<Content>,
    mapped: Option<SharedMap>,
}

impl MemoryFile {
    pub(crate) fn new(path: &Path, content: Arc<Content>, access: Access) -> Self {
        // As on a real disk, an empty file cannot be mapped.
        let mapped = (access == Access::Mapped && content.bytes() > 0)
            .then(|| SharedMap::of(content.to_vec()));
        Self { path: path.to_path_buf(), content, mapped }
    }
}

impl ReadFile for MemoryFile {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let end = offset.checked_add(buffer.len() as u64);
        if end.is_none_or(|end| end > self.content.bytes()) {
            return Err(wrap("read", &self.path, ErrorKind::UnexpectedEof));
        }
        self.content.read_at(offset, buffer);
        Ok(())
    }

    fn bytes(&self) -> u64 {
        self.content.bytes()
    }

    fn mapped(&self) -> Option<&[u8]> {
        self.mapped.as_deref()
    }

    fn shared_map(&self) -> Option<SharedMap> {
        self.mapped.clone()
    }
}

/// The locks held in a file system in memory.
#[derive(Debug, Clone, Default)]
pub(crate) struct Locks {
    held: Arc<Mutex<BTreeMap<Inode, Holders>>>,
}

/// The holders of a lock: one owner, or a number of sharers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Holders {
    One,
    Shared(usize),
}

impl Locks {
    /// Takes an exclusive lock on `inode`, which `path` names.
    pub(crate) fn take(&self, inode: Inode, path: &Path) -> io::Result<Box<dyn FileLock>> {
        self.hold(inode, path, |holders| holders.is_none().then_some(Holders::One))
    }

    /// Takes a shared lock on `inode`, which `path` names.
    pub(crate) fn share(&self, inode: Inode, path: &Path) -> io::Result<Box<dyn FileLock>> {
        self.hold(inode, path, |holders| match holders {
            None => Some(Holders::Shared(1)),
            Some(Holders::Shared(others)) => Some(Holders::Shared(others + 1)),
            Some(Holders::One) => None,
        })
    }

    /// Updates the holders of `inode` by `change`; refuses if that returns `None`.
    fn hold(
        &self,
        inode: Inode,
        path: &Path,
        change: impl FnOnce(Option<Holders>) -> Option<Holders>,
    ) -> io::Result<Box<dyn FileLock>> {
        let mut held = self.held();
        let Some(holders) = change(held.get(&inode).copied()) else {
            let why = "another owner holds the lock";
            return Err(wrap("lock", path, io::Error::new(ErrorKind::WouldBlock, why)));
        };
        held.insert(inode, holders);
        Ok(Box::new(MemoryLock { locks: self.clone(), inode }))
    }

    fn held(&self) -> MutexGuard<'_, BTreeMap<Inode, Holders>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
struct MemoryLock {
    locks: Locks,
    inode: Inode,
}

impl FileLock for MemoryLock {}

impl Drop for MemoryLock {
    fn drop(&mut self) {
        let mut held = self.locks.held();
        match held.get(&self.inode) {
            Some(Holders::Shared(others)) if *others > 1 => {
                let rest = Holders::Shared(others - 1);
                held.insert(self.inode, rest);
            }
            _ => {
                held.remove(&self.inode);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conforms() {
        crate::conformance::check(&MemoryVfs::new(), Path::new(""));
        let vfs = MemoryVfs::new();
        vfs.create_dir(Path::new("/below")).expect("the root exists");
        crate::conformance::check(&vfs, Path::new("/below"));
    }

    #[test]
    fn absolute_and_relative_paths_start_at_the_root() {
        let vfs = MemoryVfs::new();
        vfs.create(Path::new("/a")).expect("a new file");
        assert!(vfs.open(Path::new("./a"), Access::Buffered).is_ok());
        let error = vfs.open(Path::new("x/../a"), Access::Buffered).expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert_eq!(
            vfs.create_dir(Path::new("/")).expect_err("there").kind(),
            ErrorKind::AlreadyExists
        );
    }
}
