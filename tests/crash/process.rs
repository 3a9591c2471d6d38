//! A process that can be killed between two calls to its disk, and whose threads can be blocked
//! there.
//!
//! Later calls never reach the disk: they did not fail, they were never made. Writes that the
//! process had not synced are still in the page cache, and still not durable. A process of its own
//! ([`Process::that_kills_itself`]) really ends there.
//!
//! With a [`Gate`] the threads of a store do nothing to the disk until released: so a test decides
//! when a flush or a compaction happens, and the same seed makes the same run.

use std::fmt::Debug;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

use trommel::vfs::{Access, DirEntry, FileLock, ReadFile, Vfs, WriteFile};

/// While closed, blocks all threads except its creator when they create a table or a sidecar or
/// write to a manifest.
///
/// Before that a flush syncs logs under a lock that writers need, and is not blocked; the writer
/// waits for it instead ([`Gate::meet`]), so that even then everything happens in one order.
#[derive(Debug)]
pub(crate) struct Gate {
    foreground: ThreadId,
    state: Mutex<GateState>,
    changed: Condvar,
}

#[derive(Debug)]
struct GateState {
    open: bool,
    /// Number of threads that wait at the gate.
    waiting: usize,
    /// Whether the foreground has created work for another thread, which will arrive here with it.
    expects_one: bool,
    /// Whether the store is being opened, which creates no work for another thread.
    opening: bool,
}

impl Gate {
    /// An open gate.
    pub(crate) fn new() -> Arc<Self> {
        let foreground = thread::current().id();
        let state = GateState { open: true, waiting: 0, expects_one: false, opening: false };
        Arc::new(Self { foreground, state: Mutex::new(state), changed: Condvar::new() })
    }

    pub(crate) fn set_open(&self, open: bool) {
        let mut state = self.state();
        (state.open, state.expects_one) = (open, false);
        self.changed.notify_all();
    }

    /// Waits until a thread that was given work has arrived at the closed gate: so it chooses its
    /// job, and takes a number for its file, before anything else happens.
    pub(crate) fn meet(&self) {
        let mut state = self.state();
        while state.expects_one && !state.open && state.waiting == 0 {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.expects_one = false;
    }

    /// Sets whether the store is being opened.
    pub(crate) fn set_opening(&self, opening: bool) {
        self.state().opening = opening;
    }

    /// A new log means that a memtable was frozen, which another thread will flush; except for the
    /// log of an open, into which the contents of older logs are written at once.
    fn notice_creation(&self, path: &Path) {
        if is(path, "log") && self.is_foreground() {
            let mut state = self.state();
            state.expects_one = !state.opening;
        }
    }

    /// The process is dead: no thread will arrive any more.
    fn give_up(&self) {
        self.state().expects_one = false;
        self.changed.notify_all();
    }

    fn is_foreground(&self) -> bool {
        thread::current().id() == self.foreground
    }

    fn pass(&self) {
        if self.is_foreground() {
            return;
        }
        let mut state = self.state();
        state.waiting += 1;
        self.changed.notify_all();
        while !state.open {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.waiting -= 1;
    }

    fn state(&self) -> MutexGuard<'_, GateState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Observes a process from within.
pub(crate) trait Watcher: Debug + Send + Sync {
    /// Called when a log is about to be synced.
    fn before_log_sync(&self);
}

/// Length of a log without batches.
const LOG_HEAD_BYTES: u64 = 64;

/// The file system of one process. Clones are handles of the same process.
#[derive(Debug, Clone)]
pub(crate) struct Process {
    disk: Arc<dyn Vfs>,
    /// Number of calls until it dies.
    calls_left: Arc<AtomicU64>,
    gate: Option<Arc<Gate>>,
    watcher: Option<Arc<dyn Watcher>>,
    /// Whether this very process is to end at that point.
    is_this_one: bool,
}

impl Process {
    pub(crate) fn new(disk: impl Vfs + 'static) -> Self {
        let calls_left = Arc::new(AtomicU64::new(u64::MAX));
        Self { disk: Arc::new(disk), calls_left, gate: None, watcher: None, is_this_one: false }
    }

    /// The current process, which kills itself in place of the call after `calls` calls.
    pub(crate) fn that_kills_itself(disk: impl Vfs + 'static, calls: u64) -> Self {
        let process = Self { is_this_one: true, ..Self::new(disk) };
        process.die_after(calls);
        process
    }

    pub(crate) fn with_gate(self, gate: Option<Arc<Gate>>) -> Self {
        Self { gate, ..self }
    }

    pub(crate) fn watched_by(self, watcher: Arc<dyn Watcher>) -> Self {
        Self { watcher: Some(watcher), ..self }
    }

    /// Dies after this many more calls.
    pub(crate) fn die_after(&self, calls: u64) {
        self.calls_left.store(calls, Ordering::SeqCst);
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.calls_left.load(Ordering::SeqCst) == 0
    }

    /// Waits at the gate, if there is one and this call is blocked by it.
    fn pass_gate(&self, is_held_up: bool) {
        if let Some(gate) = self.gate.as_ref().filter(|_| is_held_up) {
            gate.pass();
        }
    }

    fn created(&self, path: &Path, file: Box<dyn WriteFile>) -> Box<dyn WriteFile> {
        self.gate.iter().for_each(|gate| gate.notice_creation(path));
        let is_manifest =
            path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"MANIFEST-"));
        Box::new(ProcessFile { process: self.clone(), file, is_log: is(path, "log"), is_manifest })
    }

    fn call<T>(&self, call: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let one_less = |left: u64| left.checked_sub(1);
        match self.calls_left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less) {
            Ok(_) => call(),
            Err(_) if self.is_this_one => {
                let own = rustix::process::getpid();
                rustix::process::kill_process(own, rustix::process::Signal::KILL)?;
                // The signal is pending, and no other thread may get further than this one.
                loop {
                    thread::park();
                }
            }
            Err(_) => {
                self.gate.iter().for_each(|gate| gate.give_up());
                Err(io::Error::other("the process is dead"))
            }
        }
    }
}

#[derive(Debug)]
struct ProcessFile {
    process: Process,
    file: Box<dyn WriteFile>,
    is_log: bool,
    is_manifest: bool,
}

fn is(path: &Path, kind: &str) -> bool {
    path.extension().is_some_and(|found| found == kind)
}

impl WriteFile for ProcessFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        // The log before it was handed to a flush before anything was written after its head.
        if let Some(gate) = &self.process.gate
            && self.is_log
            && self.file.bytes() == LOG_HEAD_BYTES
            && gate.is_foreground()
            && !self.process.is_dead()
        {
            gate.meet();
        }
        // Some compactions only move a table.
        self.process.pass_gate(self.is_manifest);
        self.process.call(|| self.file.append(bytes))
    }

    fn sync(&mut self) -> io::Result<()> {
        if let Some(watcher) = self.process.watcher.as_ref().filter(|_| self.is_log) {
            watcher.before_log_sync();
        }
        self.process.call(|| self.file.sync())
    }

    fn set_space_aside(&mut self, bytes: u64) -> io::Result<()> {
        self.file.set_space_aside(bytes)
    }

    fn write_zeros_ahead(&mut self, bytes: u64) -> io::Result<()> {
        self.process.call(|| self.file.write_zeros_ahead(bytes))
    }

    fn give_space_back(&mut self) {
        self.file.give_space_back();
    }

    fn bytes(&self) -> u64 {
        self.file.bytes()
    }
}

impl Vfs for Process {
    fn unix_millis(&self) -> u64 {
        self.disk.unix_millis()
    }

    fn random_u64(&self) -> u64 {
        self.disk.random_u64()
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        self.pass_gate(is(path, "sst") || is(path, "flt"));
        let file = self.call(|| self.disk.create(path))?;
        Ok(self.created(path, file))
    }

    fn writes_over(&self) -> bool {
        self.disk.writes_over()
    }

    fn create_over(&self, old: &Path, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        self.pass_gate(is(path, "sst") || is(path, "flt"));
        let file = self.call(|| self.disk.create_over(old, path))?;
        Ok(self.created(path, file))
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

    fn sync_file(&self, path: &Path) -> io::Result<()> {
        self.call(|| self.disk.sync_file(path))
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        self.call(|| self.disk.lock(path))
    }

    fn lock_shared(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        self.call(|| self.disk.lock_shared(path))
    }
}
