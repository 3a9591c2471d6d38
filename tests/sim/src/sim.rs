//! A simulated disk: the system calls of a store, the result of a power cut, and injected errors.
//!
//! 1. Calls change the *live* tree, which readers see: unsynced bytes included.
//! 2. Every call that changed something is appended to an operation log, under the lock that also
//!    guards the tree, so the log has the order of the calls. [`SimDisk::mark`] adds a test's own
//!    marks ("batch 7 is acknowledged").
//! 3. [`SimDisk::replay`] replays that log from its start and knows at each boundary between two
//!    operations what is durable. There it makes [`Image`]s: the possible content of the disk after
//!    a power failure at that moment. Module [`replay`](Replay) defines which are legal.
//! 4. An image is a new disk on which everything is durable, with an empty log of its own: a store
//!    is opened on it, and crashed again while it recovers.
//! 5. Before a call does anything, the planned [`Fault`]s decide whether it fails.
//!
//! It has no threads, no clock and no randomness except its seeds.

mod fault;
mod file;
mod folders;
mod image;
mod loss;
mod op;
mod policy;
mod replay;

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use trommel_vfs::{Access, DirEntry, FileLock, ReadFile, SharedMap, Vfs, WriteFile, wrap, wrap_to};

pub use fault::{Failure, Fault};
pub use image::Image;
pub use loss::Loss;
pub use op::{Op, OpKind};
pub use policy::{Data, Entries, Policy};
pub use replay::Replay;

use crate::RANDOM_WORD;
use crate::memory::{Locks, MemoryFile};
use crate::tree::{Inode, Tree};
use fault::{Effect, Outcome};
use op::{Change, Synced};

/// Bytes that reach a disk together or not at all.
pub const SECTOR_BYTES: u64 = 512;

/// A disk that records all operations. Clones are handles to the same disk.
///
/// Paths are those of [`MemoryVfs`](crate::MemoryVfs): `/a` and `a` are one file.
#[derive(Clone, Default)]
pub struct SimDisk {
    state: Arc<Mutex<State>>,
    locks: Locks,
}

#[derive(Default)]
struct State {
    /// The durable state when the log began.
    base: Tree,
    live: Tree,
    log: Vec<Op>,
    faults: Vec<Fault>,
    fired: BTreeMap<(OpKind, PathBuf, Failure), u64>,
    calls: [u64; OpKind::COUNT],
    /// Calls by kind and path, if they are counted.
    calls_by_path: Option<BTreeMap<(OpKind, PathBuf), u64>>,
    capacity: Option<u64>,
}

impl SimDisk {
    /// An empty disk.
    pub fn new() -> Self {
        Self::default()
    }

    /// A disk on which `tree` is durable.
    fn from_tree(tree: &Tree) -> Self {
        let state = State { base: tree.clone(), live: tree.clone(), ..State::default() };
        Self { state: Arc::new(Mutex::new(state)), locks: Locks::default() }
    }

    /// Adds a mark to the operation log; [`Replay::marks`] returns it.
    pub fn mark(&self, number: u64) {
        self.state().log.push(Op::mark(number));
    }

    /// The operation log so far, to be replayed from its start.
    pub fn replay(&self) -> Replay {
        let state = self.state();
        Replay::new(&state.base, state.log.clone())
    }

    /// The content of the disk if the power fails now.
    pub fn crash(&self, policy: Policy, seed: u64) -> Image {
        let mut replay = self.replay();
        replay.seek(usize::MAX);
        replay.image(policy, seed)
    }

    /// Plans a failure. If several match a call, the first one planned decides; all count it.
    pub fn inject(&self, fault: Fault) {
        self.state().faults.push(fault);
    }

    /// Removes all planned failures.
    pub fn clear_faults(&self) {
        self.state().faults.clear();
    }

    /// The number of calls that have failed, or lied, because of a planned failure.
    pub fn faults_fired(&self) -> u64 {
        self.state().fired.values().sum()
    }

    /// The calls that have failed, or lied, because of a planned failure: the number for each kind,
    /// path and failure.
    pub fn faults_by_path(&self) -> BTreeMap<(OpKind, PathBuf, Failure), u64> {
        self.state().fired.clone()
    }

    /// Counts calls by path from now on, which takes time and memory.
    pub fn count_by_path(&self) {
        self.state().calls_by_path.get_or_insert_default();
    }

    /// Calls of each kind on each path, including failed ones, since
    /// [`count_by_path`](Self::count_by_path).
    pub fn calls_by_path(&self) -> BTreeMap<(OpKind, PathBuf), u64> {
        self.state().calls_by_path.clone().unwrap_or_default()
    }

    /// Calls of this kind so far, including failed ones.
    pub fn calls(&self, kind: OpKind) -> u64 {
        self.state().calls[kind as usize]
    }

    /// Calls of all kinds so far, including failed ones.
    pub fn all_calls(&self) -> u64 {
        self.state().calls.iter().sum()
    }

    /// Limits the total bytes of all files; appends beyond it are partial and fail with `ENOSPC`.
    /// As on real disks, files can still be created, renamed and removed.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.state().capacity = bytes;
    }

    /// The total bytes of all files.
    pub fn used_bytes(&self) -> u64 {
        self.state().live.bytes()
    }

    /// A hash of all names and contents as readers see them now.
    pub fn hash(&self) -> u64 {
        self.state().live.hash()
    }

    /// A panicking test must not hide its cause behind a poisoned lock: no change is left half
    /// done.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A call that reads.
    fn look<T>(
        &self,
        kind: OpKind,
        path: &Path,
        look: impl FnOnce(&State) -> io::Result<T>,
    ) -> io::Result<T> {
        let mut state = self.state();
        match state.outcome(kind, path, None) {
            Some(outcome) => Err(outcome.error()),
            None => look(&state),
        }
    }

    /// A call that changes names.
    fn change<T>(
        &self,
        kind: OpKind,
        path: &Path,
        to: Option<&Path>,
        change: impl FnOnce(&mut Tree) -> io::Result<(T, Option<Change>)>,
    ) -> io::Result<T> {
        let mut state = self.state();
        let outcome = state.outcome(kind, path, to);
        if let Some(outcome) = &outcome
            && outcome.effect != Effect::Whole
        {
            return Err(outcome.error());
        }
        let (value, change) = change(&mut state.live)?;
        state.log.extend(change.map(|change| Op::new(kind, path, to, change)));
        match outcome {
            Some(outcome) => Err(outcome.error()),
            None => Ok(value),
        }
    }

    /// A call that makes something durable; `change` builds its operation.
    fn sync(
        &self,
        kind: OpKind,
        path: &Path,
        change: impl FnOnce(&Tree, Synced) -> io::Result<Change>,
    ) -> io::Result<()> {
        let mut state = self.state();
        let outcome = state.outcome(kind, path, None);
        let is_out_of_handles = outcome.as_ref().is_some_and(Outcome::is_out_of_handles);
        let synced = match outcome.as_ref().map(|outcome| outcome.effect) {
            None | Some(Effect::Whole) => Synced::Durable,
            Some(Effect::Lie) => Synced::Not,
            // A directory is opened to be synced: without a handle for it nothing was tried.
            Some(_) if kind == OpKind::SyncDir && is_out_of_handles => Synced::Not,
            Some(Effect::Nothing | Effect::Part(_) | Effect::AllBut(_)) => Synced::Failed,
        };
        let change = change(&state.live, synced)?;
        state.log.push(Op::new(kind, path, None, change));
        match outcome {
            Some(outcome) if outcome.effect != Effect::Lie => Err(outcome.error()),
            _ => Ok(()),
        }
    }
}

impl State {
    /// Counts a call and returns the outcome of the planned failures.
    fn outcome(&mut self, kind: OpKind, path: &Path, to: Option<&Path>) -> Option<Outcome> {
        self.calls[kind as usize] += 1;
        if let Some(calls) = &mut self.calls_by_path {
            *calls.entry((kind, path.to_path_buf())).or_default() += 1;
        }
        let mut decided = None;
        for fault in &mut self.faults {
            let answer = fault.check(kind, path, to);
            decided = decided.or(answer);
        }
        self.faults.retain(|fault| !fault.is_spent());
        if let Some(outcome) = &decided {
            let site = (kind, path.to_path_buf(), outcome.failure);
            *self.fired.entry(site).or_default() += 1;
        }
        decided
    }

    fn room(&self) -> u64 {
        self.capacity.map_or(u64::MAX, |capacity| capacity.saturating_sub(self.live.bytes()))
    }
}

impl fmt::Debug for SimDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        f.debug_struct("SimDisk")
            .field("operations", &state.log.len())
            .field("faults", &state.faults)
            .finish_non_exhaustive()
    }
}

impl Vfs for SimDisk {
    fn random_u64(&self) -> u64 {
        RANDOM_WORD
    }

    fn free_bytes(&self, _dir: &Path) -> Option<u64> {
        let state = self.state();
        state.capacity.map(|_| state.room())
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        let created = self.change(OpKind::Create, path, None, |tree| {
            let (place, inode) = tree.create(path)?;
            Ok((inode, Some(Change::NewFile { place, inode })))
        });
        let inode = created.map_err(|error| wrap("create", path, error))?;
        let disk = self.clone();
        Ok(Box::new(SimWriter { disk, path: path.to_path_buf(), inode, bytes: 0, zeros_to: 0 }))
    }

    fn writes_over(&self) -> bool {
        true
    }

    fn create_over(&self, old: &Path, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        let created = self.change(OpKind::Rename, old, Some(path), |tree| {
            let Some((from, to, inode)) = tree.create_over(old, path)? else {
                return Ok((None, None));
            };
            Ok((Some(inode), Some(Change::Over { from, to, inode })))
        });
        let Some(inode) = created.map_err(|error| wrap("create", path, error))? else {
            self.remove(old)?;
            return self.create(path);
        };
        let disk = self.clone();
        Ok(Box::new(SimWriter { disk, path: path.to_path_buf(), inode, bytes: 0, zeros_to: 0 }))
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn ReadFile>> {
        let opened = self.look(OpKind::Open, path, |state| state.live.open(path));
        let (_, content) = opened.map_err(|error| wrap("open", path, error))?;
        let file = MemoryFile::new(path, content, access);
        Ok(Arc::new(SimFile { disk: self.clone(), path: path.to_path_buf(), file }))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        let listed = self.look(OpKind::List, dir, |state| state.live.list(dir));
        listed.map_err(|error| wrap("list", dir, error))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let renamed = self.change(OpKind::Rename, from, Some(to), |tree| {
            let change = tree.rename(from, to)?;
            Ok(((), change.map(|(from, to, inode)| Change::Rename { from, to, inode })))
        });
        renamed.map_err(|error| wrap_to("rename", from, to, error))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let removed = self.change(OpKind::Remove, path, None, |tree| {
            Ok(((), Some(Change::Remove { place: tree.remove(path)? })))
        });
        removed.map_err(|error| wrap("remove", path, error))
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        let linked = self.change(OpKind::HardLink, from, Some(to), |tree| {
            let (place, inode) = tree.hard_link(from, to)?;
            Ok(((), Some(Change::Link { place, inode })))
        });
        linked.map_err(|error| wrap_to("link", from, to, error))
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        let created = self.change(OpKind::CreateDir, path, None, |tree| {
            let (place, inode) = tree.create_dir(path)?;
            Ok(((), Some(Change::NewDir { place, inode })))
        });
        created.map_err(|error| wrap("create", path, error))
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        let removed = self.change(OpKind::Remove, path, None, |tree| {
            Ok(((), Some(Change::Remove { place: tree.remove_dir(path)? })))
        });
        removed.map_err(|error| wrap("remove", path, error))
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let synced = self.sync(OpKind::SyncDir, dir, |tree, synced| {
            Ok(Change::SyncDir { inode: tree.open_dir(dir)?, synced })
        });
        synced.map_err(|error| wrap("sync", dir, error))
    }

    fn sync_file(&self, path: &Path) -> io::Result<()> {
        let synced = self.sync(OpKind::Sync, path, |tree, synced| {
            Ok(Change::Sync { inode: tree.open(path)?.0, synced })
        });
        synced.map_err(|error| wrap("sync", path, error))
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        let opened = self.change(OpKind::Lock, path, None, |tree| match tree.open(path) {
            Ok((inode, _)) => Ok((inode, None)),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let (place, inode) = tree.create(path)?;
                Ok((inode, Some(Change::NewFile { place, inode })))
            }
            Err(error) => Err(error),
        });
        self.locks.take(opened.map_err(|error| wrap("lock", path, error))?, path)
    }

    fn lock_shared(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        let opened = self.change(OpKind::Lock, path, None, |tree| Ok((tree.open(path)?.0, None)));
        self.locks.share(opened.map_err(|error| wrap("lock", path, error))?, path)
    }
}

#[derive(Debug)]
struct SimWriter {
    disk: SimDisk,
    path: PathBuf,
    inode: Inode,
    bytes: u64,
    /// The end of the preallocated zeros. Only crashes show them.
    zeros_to: u64,
}

impl SimWriter {
    fn put_zeros(&mut self, to: u64) {
        self.zeros_to = to;
        let change = Change::Zeros { inode: self.inode, to };
        self.disk.state().log.push(Op::new(OpKind::Append, &self.path, None, change));
    }
}

impl WriteFile for SimWriter {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.disk.state();
        let outcome = state.outcome(OpKind::Append, &self.path, None);
        let wanted = match outcome.as_ref().map(|outcome| outcome.effect) {
            None | Some(Effect::Whole) => bytes,
            Some(Effect::Part(part)) => &bytes[..bytes.len().min(part)],
            Some(Effect::AllBut(rest)) => &bytes[..bytes.len().saturating_sub(rest)],
            Some(Effect::Nothing | Effect::Lie) => &[],
        };
        let room = usize::try_from(state.room()).unwrap_or(usize::MAX);
        let written = &wanted[..wanted.len().min(room)];
        if !written.is_empty() {
            state.live.append(self.inode, written);
            let change =
                Change::Append { inode: self.inode, start: self.bytes, bytes: Arc::from(written) };
            state.log.push(Op::new(OpKind::Append, &self.path, None, change));
            self.bytes += written.len() as u64;
        }
        let error = match outcome {
            Some(outcome) => outcome.error(),
            None if written.len() < wanted.len() => Failure::NoSpace.error(),
            None => return Ok(()),
        };
        Err(wrap("write to", &self.path, error))
    }

    fn sync(&mut self) -> io::Result<()> {
        let inode = self.inode;
        let synced = self
            .disk
            .sync(OpKind::Sync, &self.path, |_, synced| Ok(Change::Sync { inode, synced }));
        synced.map_err(|error| wrap("sync", &self.path, error))
    }

    fn write_zeros_ahead(&mut self, bytes: u64) -> io::Result<()> {
        if bytes.saturating_sub(self.bytes) > self.disk.state().room() {
            return Err(wrap("append zeros to", &self.path, Failure::NoSpace.error()));
        }
        self.put_zeros(bytes);
        Ok(())
    }

    fn give_space_back(&mut self) {
        if self.zeros_to > 0 {
            self.put_zeros(0);
        }
    }

    fn set_space_aside(&mut self, bytes: u64) -> io::Result<()> {
        // No space is preallocated, but a lack of it is reported.
        if bytes <= self.disk.state().room() {
            return Ok(());
        }
        Err(wrap("preallocate space for", &self.path, Failure::NoSpace.error()))
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }
}

#[derive(Debug)]
struct SimFile {
    disk: SimDisk,
    path: PathBuf,
    file: MemoryFile,
}

impl ReadFile for SimFile {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let outcome = self.disk.state().outcome(OpKind::Read, &self.path, None);
        let Some(outcome) = outcome else { return self.file.read_at(offset, buffer) };
        if let Effect::Part(part) = outcome.effect {
            let part = part.min(buffer.len());
            self.file.read_at(offset, &mut buffer[..part])?;
        }
        Err(wrap("read", &self.path, outcome.error()))
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

#[cfg(test)]
mod tests;
