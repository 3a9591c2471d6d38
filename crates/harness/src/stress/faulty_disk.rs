//! A disk with injected faults: its calls fail at random, and at one of them the process dies.
//!
//! 1. Every modifying call, and every open of a file, is counted. At the chosen call the process
//!    kills itself: before the call, or, in an append, after a part of it.
//! 2. While faults are on, each call fails with a given probability: because the disk is full
//!    (after a part of an append), the device fails, or file handles run out. Reads of files fail
//!    too, except those through a map.
//!
//! Only failures that occur on real file systems are injected: a failed call had no effect, or, for
//! an append, a partial one.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use rustix::io::Errno;
use rustix::process::{Signal, getpid, kill_process};
use trommel::vfs::{Access, DirEntry, DiskVfs, FileLock, ReadFile, SharedMap, Vfs, WriteFile};

use super::counts::Counts;

/// The disk. Clones share their state.
#[derive(Debug, Clone)]
pub(super) struct FaultyDisk(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    disk: DiskVfs,
    /// Number of failures per 2^32 calls.
    rate: u64,
    are_faults_on: AtomicBool,
    calls_left: AtomicU64,
    counts: Arc<Counts>,
}

/// The errors of one kind of call, with their names.
type Errors = &'static [(Errno, &'static str)];

const EIO: (Errno, &str) = (Errno::IO, "EIO");
const ENOSPC: (Errno, &str) = (Errno::NOSPC, "ENOSPC");
const OPENING: Errors = &[(Errno::MFILE, "EMFILE"), EIO];
const MAKING: Errors = &[ENOSPC, EIO];
const CREATING: Errors = &[(Errno::MFILE, "EMFILE"), ENOSPC, EIO];
const ANY: Errors = &[EIO];

impl FaultyDisk {
    /// Calls fail with probability `rate` (0 to 1); the process dies at call `die_at`, counted from
    /// 1, or never if 0.
    pub(super) fn new(rate: f64, die_at: u64, counts: Arc<Counts>) -> Self {
        let rate = (rate.clamp(0.0, 1.0) * (1_u64 << 32) as f64) as u64;
        let calls_left = AtomicU64::new(die_at.checked_sub(1).unwrap_or(u64::MAX));
        let are_faults_on = AtomicBool::new(false);
        Self(Arc::new(Inner { disk: DiskVfs, rate, are_faults_on, calls_left, counts }))
    }

    /// Turns faults on or off; initially they are off.
    pub(super) fn set_faults(&self, on: bool) {
        self.0.are_faults_on.store(on, Relaxed);
    }
}

impl Inner {
    /// Whether the process is to die at this call.
    fn is_last(&self) -> bool {
        let left = self.calls_left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1));
        left.is_err()
    }

    fn fault(&self, site: &'static str, errors: Errors) -> io::Result<()> {
        if self.rate == 0 || !self.are_faults_on.load(Relaxed) {
            return Ok(());
        }
        if u64::from(fastrand::u32(..)) >= self.rate {
            return Ok(());
        }
        let (errno, name) = errors[fastrand::usize(..errors.len())];
        self.counts.add(format!("faults.{site}.{name}"), 1);
        Err(errno.into())
    }

    /// A counted call.
    fn call(&self, site: &'static str, errors: Errors) -> io::Result<()> {
        if self.is_last() {
            die();
        }
        self.fault(site, errors)
    }
}

/// Kills the process with SIGKILL.
fn die() -> ! {
    // A signal to the own process is delivered before the call returns, or soon after.
    let _ = kill_process(getpid(), Signal::KILL);
    loop {
        std::thread::park();
    }
}

#[derive(Debug)]
struct UpsetWriter {
    disk: FaultyDisk,
    file: Box<dyn WriteFile>,
}

impl WriteFile for UpsetWriter {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let faulty_disk = &self.disk.0;
        let is_last = faulty_disk.is_last();
        let fault = faulty_disk.fault("append", MAKING);
        if is_last || fault.is_err() {
            self.file.append(&bytes[..fastrand::usize(..=bytes.len())])?;
        }
        if is_last {
            die();
        }
        fault?;
        self.file.append(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.disk.0.call("sync", MAKING)?;
        self.file.sync()
    }

    fn start_write_back(&mut self) {
        self.file.start_write_back();
    }

    fn set_space_aside(&mut self, bytes: u64) -> io::Result<()> {
        self.file.set_space_aside(bytes)
    }

    fn write_zeros_ahead(&mut self, bytes: u64) -> io::Result<()> {
        self.disk.0.call("zeros", MAKING)?;
        self.file.write_zeros_ahead(bytes)
    }

    fn give_space_back(&mut self) {
        self.file.give_space_back();
    }

    fn bytes(&self) -> u64 {
        self.file.bytes()
    }
}

#[derive(Debug)]
struct UpsetReader {
    disk: FaultyDisk,
    file: Arc<dyn ReadFile>,
}

impl ReadFile for UpsetReader {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.disk.0.fault("read", ANY)?;
        self.file.read_at(offset, buffer)
    }

    fn will_need(&self, offset: u64, bytes: usize) {
        self.file.will_need(offset, bytes);
    }

    fn is_direct(&self) -> bool {
        self.file.is_direct()
    }

    fn bytes(&self) -> u64 {
        self.file.bytes()
    }

    fn mapped(&self) -> Option<&[u8]> {
        self.file.mapped()
    }

    fn shared_map(&self) -> Option<SharedMap> {
        self.file.shared_map()
    }
}

impl Vfs for FaultyDisk {
    fn unix_millis(&self) -> u64 {
        self.0.disk.unix_millis()
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        self.0.call("create", CREATING)?;
        let file = self.0.disk.create(path)?;
        Ok(Box::new(UpsetWriter { disk: self.clone(), file }))
    }

    fn writes_over(&self) -> bool {
        self.0.disk.writes_over()
    }

    fn create_over(&self, old: &Path, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        self.0.call("create_over", CREATING)?;
        let file = self.0.disk.create_over(old, path)?;
        Ok(Box::new(UpsetWriter { disk: self.clone(), file }))
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn ReadFile>> {
        self.0.call("open", OPENING)?;
        let file = self.0.disk.open(path, access)?;
        Ok(Arc::new(UpsetReader { disk: self.clone(), file }))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        self.0.call("list", OPENING)?;
        self.0.disk.list(dir)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.call("rename", MAKING)?;
        self.0.disk.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.0.call("remove", ANY)?;
        self.0.disk.remove(path)
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.call("hard_link", MAKING)?;
        self.0.disk.hard_link(from, to)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.0.call("create_dir", MAKING)?;
        self.0.disk.create_dir(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.0.call("remove_dir", ANY)?;
        self.0.disk.remove_dir(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.0.call("sync_dir", ANY)?;
        self.0.disk.sync_dir(dir)
    }

    fn sync_file(&self, path: &Path) -> io::Result<()> {
        self.0.call("sync_file", ANY)?;
        self.0.disk.sync_file(path)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        self.0.call("lock", OPENING)?;
        self.0.disk.lock(path)
    }

    fn lock_shared(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        self.0.call("lock", OPENING)?;
        self.0.disk.lock_shared(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ScratchDir;

    #[test]
    fn calls_fail_while_faults_are_on_and_are_counted() {
        let scratch = ScratchDir::new(&std::env::temp_dir()).unwrap();
        let counts = Arc::new(Counts::default());
        let disk = FaultyDisk::new(1.0, 0, Arc::clone(&counts));
        let mut file = disk.create(&scratch.path().join("a")).unwrap();
        file.append(b"whole").unwrap();
        disk.set_faults(true);
        file.append(b"in part").unwrap_err();
        file.sync().unwrap_err();
        assert!(disk.create(&scratch.path().join("b")).is_err());
        disk.set_faults(false);
        file.append(b"!").unwrap();
        let text = disk.read(&scratch.path().join("a"), 100).unwrap();
        assert!(text.starts_with(b"whole") && text.ends_with(b"!") && text.len() < 14, "{text:?}");
        let faults: u64 = counts.all().iter().map(|(_, count)| *count).sum();
        assert_eq!(faults, 3);
    }
}
