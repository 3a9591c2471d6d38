//! A process that can be killed between two calls to its disk.
//!
//! The disk never hears of the calls that come after: they did not fail, nobody made them. What the
//! process had written and not synced is still with the system, and still not durable.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use trommel::vfs::{Access, DirEntry, FileLock, ReadFile, SimDisk, Vfs, WriteFile};

/// A file system as one process sees it. Clones are handles of the same process.
#[derive(Debug, Clone)]
pub(crate) struct Process {
    disk: SimDisk,
    /// Calls that it will still make.
    calls_left: Arc<AtomicU64>,
}

impl Process {
    pub(crate) fn new(disk: &SimDisk) -> Self {
        Self { disk: disk.clone(), calls_left: Arc::new(AtomicU64::new(u64::MAX)) }
    }

    /// Is killed after so many more calls.
    pub(crate) fn die_after(&self, calls: u64) {
        self.calls_left.store(calls, Ordering::SeqCst);
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.calls_left.load(Ordering::SeqCst) == 0
    }

    fn call<T>(&self, call: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let one_less = |left: u64| left.checked_sub(1);
        match self.calls_left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less) {
            Ok(_) => call(),
            Err(_) => Err(io::Error::other("the process is dead")),
        }
    }
}

#[derive(Debug)]
struct ProcessFile {
    process: Process,
    file: Box<dyn WriteFile>,
}

impl WriteFile for ProcessFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.process.call(|| self.file.append(bytes))
    }

    fn sync(&mut self) -> io::Result<()> {
        self.process.call(|| self.file.sync())
    }

    fn bytes(&self) -> u64 {
        self.file.bytes()
    }
}

impl Vfs for Process {
    fn create(&self, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        let file = self.call(|| self.disk.create(path))?;
        Ok(Box::new(ProcessFile { process: self.clone(), file }))
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn ReadFile>> {
        self.call(|| self.disk.open(path, access))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        self.call(|| self.disk.list(dir))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.call(|| self.disk.rename(from, to))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.call(|| self.disk.remove(path))
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.call(|| self.disk.hard_link(from, to))
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.call(|| self.disk.create_dir(path))
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.call(|| self.disk.remove_dir(path))
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.call(|| self.disk.sync_dir(dir))
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        self.call(|| self.disk.lock(path))
    }

    fn lock_shared(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        self.call(|| self.disk.lock_shared(path))
    }
}
