//! A file system in memory whose disk can be full for tables, and for nothing else: memtables
//! stay in memory, and their logs pile up.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use trommel::vfs::{Access, DirEntry, FileLock, MemoryVfs, ReadFile, Vfs, WriteFile};

/// See the module.
#[derive(Debug, Clone, Default)]
pub(crate) struct GatedVfs {
    inner: MemoryVfs,
    shut: Arc<AtomicBool>,
}

impl GatedVfs {
    /// From now on no table can be created.
    pub(crate) fn shut(&self) {
        self.shut.store(true, Ordering::Relaxed);
    }
}

impl Vfs for GatedVfs {
    fn create(&self, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        let is_table = path.extension().is_some_and(|extension| extension == "sst");
        if is_table && self.shut.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.inner.create(path)
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn ReadFile>> {
        self.inner.open(path, access)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        self.inner.list(dir)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.inner.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.inner.remove(path)
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.inner.hard_link(from, to)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.inner.create_dir(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.inner.remove_dir(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.inner.sync_dir(dir)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        self.inner.lock(path)
    }

    fn lock_shared(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        self.inner.lock_shared(path)
    }
}
