//! Small stores of every shape, their history, and ways to corrupt them.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use trommel::vfs::Vfs;
use trommel::{Db, Options};
use trommel_sim::{MemoryVfs, SimDisk};
use trommel_tests::settings::scale;

/// A key's values, oldest first; none for a deletion.
pub(crate) type History = BTreeMap<Vec<u8>, Vec<Option<Vec<u8>>>>;

/// Files by name, with their bytes.
pub(crate) type Files = Vec<(OsString, Vec<u8>)>;

/// The store's directory on its disk.
pub(crate) const DIR: &str = "db";

/// A store that nobody has open, and everything that was written to it.
pub(crate) struct Store {
    pub(crate) files: Files,
    pub(crate) history: History,
    /// Keys that ranges deleted.
    pub(crate) range_deleted: u64,
}

/// The final state of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Left {
    Closed,
    Killed,
}

/// Options of a store with small tables, on this disk.
pub(crate) fn small<V: Vfs + 'static>(vfs: &Arc<V>) -> Options {
    Options::default()
        .vfs(Arc::<V>::clone(vfs))
        .writes(|w| w.write_buffer_bytes(64 << 10))
        .reads(|r| r.block_bytes(256))
        .compaction(|c| {
            c.table_bytes(3 << 10).base_level_bytes(12 << 10).level_ratio(3).auto_compaction(false)
        })
        .background_threads(0)
}

impl Store {
    /// A store with tables in several levels, and writes that only the logs hold.
    pub(crate) fn filled(left: Left) -> Self {
        // As on a real disk, some files are kept for recycling.
        let vfs = Arc::new(SimDisk::new());
        let (mut history, mut range_deleted) = (History::new(), 0);
        let db = Db::open(DIR, small(&vfs)).expect("opening");
        for round in 0..4u32 {
            for number in (0..120u32).filter(|number| number % (round + 1) == 0) {
                let key = format!("key{number:04}").into_bytes();
                let value = (number % 7 != round)
                    .then(|| format!("{round}-{number}-").repeat(3).into_bytes());
                match &value {
                    Some(value) => db.put(&key, value).expect("writing"),
                    None => db.delete(&key).expect("deleting"),
                };
                history.entry(key).or_default().push(value);
                if (round, number) == (2, 99) {
                    // The log of the next flush takes less than a quarter of the tables, so it is
                    // kept.
                    db.flush().expect("flushing");
                }
            }
            // In tables and in the manifest, or only in the log.
            let deleted = 10 * round + 61..10 * round + 67;
            let bound = |number: u32| format!("key{number:04}").into_bytes();
            db.delete_range(bound(deleted.start)..bound(deleted.end)).expect("deleting");
            for (_, values) in history.range_mut(bound(deleted.start)..bound(deleted.end)) {
                values.push(None);
                range_deleted += 1;
            }
            if round == 1 {
                db.compact_all().expect("compacting");
            } else if round < 3 {
                db.flush().expect("flushing");
            }
        }
        let killed = contents(&*vfs, DIR);
        assert!(db.stats().background.spare_file_bytes > 0, "nothing is kept");
        db.close().expect("closing");
        let files = if left == Left::Killed { killed } else { contents(&*vfs, DIR) };
        Self { files, history, range_deleted }
    }

    /// The store on a disk of its own.
    pub(crate) fn disk(&self) -> Arc<MemoryVfs> {
        disk_of(&self.files)
    }

    /// The store on a disk of its own, with one file corrupted; none if that changed nothing.
    pub(crate) fn hurt(&self, name: &OsString, injury: Injury) -> Option<Arc<MemoryVfs>> {
        let mut files = self.files.clone();
        let at = files.iter().position(|(other, _)| other == name)?;
        let before = files[at].1.clone();
        match injury.inflict(&before) {
            Some(after) if after == before => return None,
            Some(after) => files[at].1 = after,
            None => drop(files.remove(at)),
        }
        let vfs = disk_of(&files);
        if matches!(injury, Injury::Directory) {
            vfs.create_dir(&Path::new(DIR).join(name)).expect("making a directory");
        }
        Some(vfs)
    }

    /// Every file except the lock, corrupted in every way, one after another. Changes at an offset
    /// are made at every `step`th byte of a table and three times as often elsewhere; with
    /// `TROMMEL_SCALE=n` n times as often.
    pub(crate) fn each_injury(
        &self,
        step: usize,
        mut each: impl FnMut(&OsString, Injury, Arc<MemoryVfs>),
    ) {
        let step = step.div_ceil(scale().max(1) as usize);
        for (name, bytes) in self.files.iter().filter(|(name, _)| name != "LOCK") {
            let is_table = name.to_string_lossy().ends_with(".sst");
            for injury in Injury::all(bytes.len(), if is_table { step } else { step.div_ceil(3) }) {
                if let Some(vfs) = self.hurt(name, injury) {
                    each(name, injury, vfs);
                }
            }
        }
    }

    /// Whether the loss is undetectable: if the log of a killed store ends between two records, the
    /// later ones look as if they had not been written yet. And a file kept for recycling is not
    /// needed.
    pub(crate) fn is_silent(left: Left, name: &OsString, injury: Injury) -> bool {
        let name = name.to_string_lossy();
        let is_cut_log = name.ends_with(".log") && matches!(injury, Injury::Cut(_));
        // A store of an older version has no record of its options.
        let is_old = name == "OPTIONS" && matches!(injury, Injury::Deleted);
        is_old || left == Left::Killed && (is_cut_log || name.ends_with(".spare"))
    }

    /// Whether a crash may have left a file of this store like this: it ends too early, or has
    /// zeros in place of unwritten data. A flipped bit, added bytes, and a missing file are
    /// corruption, in a killed store as in a closed one.
    pub(crate) fn may_be_torn(injury: Injury) -> bool {
        matches!(injury, Injury::Emptied | Injury::Cut(_) | Injury::Zeroed(_))
    }

    /// The value of `key`.
    pub(crate) fn truth(&self, key: &[u8]) -> Option<&Vec<u8>> {
        self.history.get(key)?.last()?.as_ref()
    }

    /// Whether `key` ever had this value, or none.
    pub(crate) fn was_ever(&self, key: &[u8], value: Option<&[u8]>) -> bool {
        let all = self.history.get(key);
        value.is_none() || all.is_some_and(|all| all.iter().any(|v| v.as_deref() == value))
    }

    /// Keys that were written, and keys between them that never were.
    pub(crate) fn keys(&self) -> Vec<Vec<u8>> {
        let between = self.history.keys().step_by(9).map(|key| [key, &b"x"[..]].concat());
        self.history.keys().cloned().chain(between).collect()
    }
}

pub(crate) fn path(name: impl AsRef<Path>) -> PathBuf {
    Path::new(DIR).join(name)
}

pub(crate) fn disk_of(files: &Files) -> Arc<MemoryVfs> {
    let vfs = Arc::new(MemoryVfs::new());
    vfs.create_dir(Path::new(DIR)).expect("making a directory");
    for (name, bytes) in files {
        write(&*vfs, name, bytes);
    }
    vfs
}

/// Writes a new file into the store's directory.
pub(crate) fn write(vfs: &dyn Vfs, name: impl AsRef<Path>, bytes: &[u8]) {
    vfs.create(&path(name)).expect("creating").append(bytes).expect("writing");
}

/// All files of `dir` with their bytes.
pub(crate) fn contents(vfs: &dyn Vfs, dir: &str) -> Files {
    let listing = vfs.list(Path::new(dir)).expect("listing");
    let read = |name: &OsString| vfs.read(&Path::new(dir).join(name), u64::MAX).expect("reading");
    let files = listing.into_iter().filter(|entry| entry.is_file);
    files.map(|entry| (entry.name.clone(), read(&entry.name))).collect()
}

/// A change to a file.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Injury {
    Deleted,
    Emptied,
    /// Truncated to this many bytes.
    Cut(usize),
    /// One bit of this byte flipped.
    Flipped(usize),
    /// The 512 bytes from this offset on zeroed.
    Zeroed(usize),
    Grown,
    /// Replaced by something else of its name.
    Directory,
}

impl Injury {
    /// Changes to a file of `bytes` bytes; those at an offset, every `step` bytes.
    pub(crate) fn all(bytes: usize, step: usize) -> Vec<Self> {
        let mut all = vec![Self::Deleted, Self::Emptied, Self::Grown, Self::Directory];
        all.extend((1..bytes).step_by(if bytes > 8192 { step * 5 } else { step }).map(Self::Cut));
        all.extend((0..bytes).step_by(step).map(Self::Flipped));
        all.extend((0..bytes).step_by(512).map(Self::Zeroed));
        all
    }

    /// The file's bytes after the change, if it is still a file.
    fn inflict(self, before: &[u8]) -> Option<Vec<u8>> {
        let mut bytes = before.to_vec();
        match self {
            Self::Deleted | Self::Directory => return None,
            Self::Emptied => bytes.clear(),
            Self::Cut(left) => bytes.truncate(left),
            Self::Flipped(at) => bytes[at] ^= 1 << (at % 8),
            Self::Zeroed(at) => {
                let end = bytes.len().min(at + 512);
                bytes[at..end].fill(0);
            }
            Self::Grown => bytes.extend_from_slice(b"garbage that nobody wrote there"),
        }
        Some(bytes)
    }
}
