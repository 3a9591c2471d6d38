//! For tests: a file system that records its calls, and every state of the disk that a power cut
//! could leave after them.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use trommel_sim::MemoryVfs;
use trommel_vfs::{Layer, Vfs, WriteFile};

/// One call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Op {
    Create(PathBuf),
    Append(PathBuf, Vec<u8>),
    Sync(PathBuf),
    Zeros(PathBuf, u64),
    Rename(PathBuf, PathBuf),
    Remove(PathBuf),
    SyncDir,
}

/// An in-memory file system that records all changes, and fails one of them on request.
#[derive(Debug, Clone, Default)]
pub(crate) struct OpRecorder {
    inner: MemoryVfs,
    ops: Arc<Mutex<Vec<Op>>>,
    /// Bytes for which space was preallocated; none once it was released.
    pub(crate) aside: Arc<Mutex<Vec<Range<u64>>>>,
    /// The change, counted from 0, that fails.
    pub(crate) fail_at: Arc<Mutex<Option<usize>>>,
}

impl OpRecorder {
    pub(crate) fn ops(&self) -> Vec<Op> {
        self.ops.lock().unwrap().clone()
    }

    fn note(&self, op: Op) -> io::Result<()> {
        let mut ops = self.ops.lock().unwrap();
        ops.push(op);
        match *self.fail_at.lock().unwrap() {
            Some(at) if at + 1 == ops.len() => Err(io::Error::other("injected failure")),
            _ => Ok(()),
        }
    }
}

impl Layer for OpRecorder {
    fn below(&self) -> &dyn Vfs {
        &self.inner
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        self.note(Op::Create(path.to_path_buf()))?;
        let file = self.inner.create(path)?;
        Ok(Box::new(RecordedFile { file, path: path.to_path_buf(), vfs: self.clone() }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.note(Op::Rename(from.to_path_buf(), to.to_path_buf()))?;
        self.inner.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.inner.remove(path)?;
        self.note(Op::Remove(path.to_path_buf()))
    }

    fn hard_link(&self, _: &Path, _: &Path) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.note(Op::SyncDir)?;
        self.inner.sync_dir(dir)
    }
}

#[derive(Debug)]
struct RecordedFile {
    file: Box<dyn WriteFile>,
    path: PathBuf,
    vfs: OpRecorder,
}

impl WriteFile for RecordedFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.vfs.note(Op::Append(self.path.clone(), bytes.to_vec()))?;
        self.file.append(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.vfs.note(Op::Sync(self.path.clone()))?;
        self.file.sync()
    }

    fn set_space_aside(&mut self, bytes: u64) -> io::Result<()> {
        self.vfs.aside.lock().unwrap().push(self.bytes()..self.bytes() + bytes);
        Ok(())
    }

    fn write_zeros_ahead(&mut self, bytes: u64) -> io::Result<()> {
        self.vfs.ops.lock().unwrap().push(Op::Zeros(self.path.clone(), bytes));
        Ok(())
    }

    fn give_space_back(&mut self) {
        self.vfs.aside.lock().unwrap().push(self.bytes()..self.bytes());
        let mut ops = self.vfs.ops.lock().unwrap();
        if ops.iter().any(|op| matches!(op, Op::Zeros(path, _) if *path == self.path)) {
            ops.push(Op::Zeros(self.path.clone(), 0));
        }
    }

    fn bytes(&self) -> u64 {
        self.file.bytes()
    }
}

/// One file at a power cut: its appends, and the length of its synced part.
#[derive(Debug, Clone, Default)]
pub(crate) struct FileAtCrash {
    pub(crate) bytes: Vec<u8>,
    pub(crate) synced: usize,
    /// Lengths after each unsynced append, with the synced length first.
    pub(crate) versions: Vec<usize>,
    /// The end of the preallocated zeros after that: at the last sync, and now.
    pub(crate) zeros: [usize; 2],
}

impl FileAtCrash {
    fn append(&mut self, bytes: &[u8]) {
        if self.versions.is_empty() {
            self.versions.push(0);
        }
        self.bytes.extend_from_slice(bytes);
        self.versions.push(self.bytes.len());
    }

    fn sync(&mut self) {
        self.synced = self.bytes.len();
        self.versions = vec![self.synced];
        self.zeros[0] = self.zeros[1];
    }

    /// Like [`image`](Self::image), with preallocated zeros as of the last sync, or as of now. A
    /// longer file is not truncated.
    pub(crate) fn with_zeros(&self, choice: &[usize], length: usize, as_now: bool) -> Vec<u8> {
        let zeros = self.zeros[usize::from(as_now)];
        let is_cut = zeros <= length;
        let mut image = self.image(choice, if is_cut { length } else { self.bytes.len() });
        image.resize(image.len().max(zeros), 0);
        image
    }

    /// The sectors with unsynced bytes: start (after the synced bytes) and end.
    pub(crate) fn sectors(&self) -> Vec<(usize, usize)> {
        let mut sectors = Vec::new();
        let mut from = self.synced;
        while from < self.bytes.len() {
            let end = ((from / 512 + 1) * 512).min(self.bytes.len());
            sectors.push((from, end));
            from = end;
        }
        sectors
    }

    /// The number of states in which each sector may be found: as of each append, or as of the
    /// sync.
    pub(crate) fn states(&self) -> Vec<usize> {
        self.sectors().iter().map(|sector| self.lengths_of(*sector).len()).collect()
    }

    fn lengths_of(&self, (from, to): (usize, usize)) -> Vec<usize> {
        let mut lengths: Vec<usize> =
            self.versions.iter().map(|length| (*length).clamp(from, to)).collect();
        lengths.dedup();
        lengths
    }

    /// The file with each unsynced sector in the chosen state, truncated to `length` bytes.
    pub(crate) fn image(&self, choice: &[usize], length: usize) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        for (sector, state) in self.sectors().into_iter().zip(choice) {
            let kept = self.lengths_of(sector)[*state];
            bytes[kept..sector.1].fill(0);
        }
        bytes.truncate(length);
        bytes
    }

    /// Lengths at which the file may be found: in full, the synced part, and around the ends of all
    /// sectors and appends between them.
    pub(crate) fn lengths(&self) -> Vec<usize> {
        let ends = self.sectors().into_iter().map(|(_, end)| end);
        let marks = ends.chain(self.versions.iter().copied()).chain([self.synced]);
        let mut lengths: Vec<usize> =
            marks.flat_map(|at| [at.saturating_sub(1), at, at + 1]).collect();
        lengths.retain(|length| (self.synced..=self.bytes.len()).contains(length));
        lengths.sort_unstable();
        lengths.dedup();
        lengths
    }
}

/// The files of a disk at a power cut, and the possible states of its directory.
#[derive(Debug, Default)]
pub(crate) struct Crash {
    /// All files ever created.
    pub(crate) files: Vec<FileAtCrash>,
    /// The possible mappings of names to files: one for each set of directory changes since the
    /// last directory sync that reached the disk. The last one has all changes.
    pub(crate) directories: Vec<Names>,
}

/// Names and indices into [`Crash::files`].
pub(crate) type Names = BTreeMap<PathBuf, usize>;

impl Crash {
    /// The state after the first `count` of `ops`.
    pub(crate) fn after(ops: &[Op], count: usize) -> Self {
        let mut crash = Self::default();
        let (mut durable, mut live) = (Names::new(), Names::new());
        let mut pending: Vec<(Op, usize)> = Vec::new();
        for op in &ops[..count] {
            match op {
                Op::Create(path) => {
                    pending.push((op.clone(), crash.files.len()));
                    live.insert(path.clone(), crash.files.len());
                    crash.files.push(FileAtCrash::default());
                }
                Op::Rename(from, _) => {
                    let file = live[from];
                    pending.push((op.clone(), file));
                    change(&mut live, op, file);
                }
                Op::Remove(path) => {
                    pending.push((op.clone(), live[path]));
                    live.remove(path);
                }
                Op::SyncDir => {
                    durable = live.clone();
                    pending.clear();
                }
                Op::Append(path, bytes) => crash.files[live[path]].append(bytes),
                Op::Sync(path) => crash.files[live[path]].sync(),
                Op::Zeros(path, to) => crash.files[live[path]].zeros[1] = *to as usize,
            }
        }
        for set in 0u32..1 << pending.len() {
            let mut names = durable.clone();
            for (index, (op, file)) in pending.iter().enumerate() {
                if set & (1 << index) != 0 {
                    change(&mut names, op, *file);
                }
            }
            crash.directories.push(names);
        }
        crash
    }

    /// The files by name, if all directory changes reached the disk.
    pub(crate) fn by_name(&self) -> BTreeMap<PathBuf, FileAtCrash> {
        let names = self.directories.last().unwrap().iter();
        names.map(|(path, file)| (path.clone(), self.files[*file].clone())).collect()
    }

    /// The possible disks: every directory, up to `limit` states of the unsynced sectors (or all,
    /// if they are fewer), with files in full and cut in a few ways.
    pub(crate) fn images(&self, limit: usize) -> Vec<BTreeMap<PathBuf, Vec<u8>>> {
        let states: Vec<usize> = self.files.iter().flat_map(FileAtCrash::states).collect();
        let mut random = Random(states.iter().sum::<usize>() as u64);
        let mut all = Vec::new();
        for choice in choices(&states, limit) {
            for cut in [false, true, true, true] {
                let mut rest = &choice[..];
                let mut image = |file: &FileAtCrash| {
                    let (own, others) = rest.split_at(file.states().len());
                    rest = others;
                    let lengths = file.lengths();
                    let last = lengths.len() - 1;
                    let length = lengths[if cut { random.below(last + 1) } else { last }];
                    file.with_zeros(own, length, !cut || random.below(2) == 0)
                };
                let contents: Vec<Vec<u8>> = self.files.iter().map(&mut image).collect();
                all.extend(self.directories.iter().map(|names| {
                    names
                        .iter()
                        .map(|(path, file)| (path.clone(), contents[*file].clone()))
                        .collect()
                }));
            }
        }
        all
    }
}

/// Applies a change of the directory that concerns `file`.
fn change(names: &mut Names, op: &Op, file: usize) {
    match op {
        Op::Create(path) => drop(names.insert(path.clone(), file)),
        Op::Rename(from, to) => {
            names.remove(from);
            names.insert(to.clone(), file);
        }
        Op::Remove(path) => drop(names.remove(path)),
        Op::Append(..) | Op::Sync(_) | Op::Zeros(..) | Op::SyncDir => {}
    }
}

/// All ways to choose one of `states[i]` states for each i, or (if there are more than `limit`)
/// `limit` of them from a fixed sequence, including the two extremes.
pub(crate) fn choices(states: &[usize], limit: usize) -> Vec<Vec<usize>> {
    let total = states.iter().try_fold(1usize, |product, n| product.checked_mul(*n));
    if let Some(total) = total.filter(|total| *total <= limit) {
        let nth = |mut index: usize| {
            states
                .iter()
                .map(|n| {
                    let state = index % n;
                    index /= n;
                    state
                })
                .collect()
        };
        return (0..total).map(nth).collect();
    }
    let mut random = Random(states.len() as u64 + limit as u64);
    let mut all = vec![vec![0; states.len()], states.iter().map(|n| n - 1).collect()];
    all.extend((2..limit).map(|_| states.iter().map(|n| random.below(*n)).collect()));
    all
}

/// A fixed sequence of numbers (Marsaglia's xorshift).
#[derive(Debug)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        (x >> 11) as usize % bound
    }
}

/// A file system with these files.
pub(crate) fn disk<'a>(files: impl IntoIterator<Item = (&'a Path, &'a [u8])>) -> MemoryVfs {
    let vfs = MemoryVfs::new();
    for (path, bytes) in files {
        vfs.create(path).unwrap().append(bytes).unwrap();
    }
    vfs
}
