//! Files that nothing refers to any more, waiting to be removed, or to be written over.
//!
//! 1. A table's last reader, which may be any thread, only queues it here; the removal itself is background
//!    work.
//! 2. Where the file system writes new files over old ones ([`Vfs::create_over`]), some are kept for new
//!    tables: tables and logs that this open store has written itself and given no second name. Of others
//!    nobody knows who looks at them by another name.
//! 3. They are removed when the store rests, is closed, or finds the disk full.
//!
//! After a crash they lie there under their old names, or under that of a table that was being written; the
//! manifest names neither, so both are removed when the store is opened.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use trommel_vfs::Vfs;

use crate::env;
use crate::sync::{Mutex, lock};

/// How long files are kept of which none was added and none taken: a store that writes nothing any more needs
/// none.
const KEPT_FOR: Duration = Duration::from_secs(10);

/// Files that nothing refers to any more.
#[derive(Debug)]
pub(crate) struct Graveyard {
    vfs: Arc<dyn Vfs>,
    /// Files from this number on are this open store's own.
    own_from: u64,
    files: Mutex<Files>,
}

#[derive(Debug, Default)]
struct Files {
    waiting: Vec<Remains>,
    /// Those that are kept to be written over, the last that came last.
    spare: Vec<Remains>,
    /// Bytes of them.
    spare_bytes: u64,
    /// The most that they may be.
    spare_limit: u64,
    /// When the last one was added or taken.
    used: Option<Instant>,
    /// Numbers of files that were given a second name.
    linked: BTreeSet<u64>,
}

impl Files {
    /// A file that was kept.
    fn pop(&mut self) -> Option<Remains> {
        let spare = self.spare.pop()?;
        self.spare_bytes -= spare.spare_bytes.unwrap_or(0);
        self.used = Some(env::now());
        Some(spare)
    }
}

/// A file that nothing refers to any more.
#[derive(Debug)]
struct Remains {
    path: PathBuf,
    /// Its length, if it may be written over.
    spare_bytes: Option<u64>,
}

impl Graveyard {
    /// For a store whose next file has the number `own_from`. It keeps nothing yet.
    pub(crate) fn new(vfs: Arc<dyn Vfs>, own_from: u64) -> Self {
        Self { vfs, own_from, files: Mutex::default() }
    }

    /// Changes how many bytes of files are kept to be written over, and removes those that are more.
    pub(crate) fn set_spare_limit(&self, bytes: u64) {
        let limit = if self.vfs.writes_over() { bytes } else { 0 };
        let mut files = lock(&self.files);
        files.spare_limit = limit;
        let mut unneeded = Vec::new();
        while files.spare_bytes > limit {
            unneeded.extend(files.pop());
        }
        drop(files);
        self.remove(unneeded);
    }

    /// Queues a file. The manifest that no longer names it must be durable.
    pub(crate) fn add(&self, path: PathBuf) {
        lock(&self.files).waiting.push(Remains { path, spare_bytes: None });
    }

    /// Queues the table or log `number` of so many bytes, as [`Graveyard::add`].
    pub(crate) fn add_spare(&self, path: PathBuf, number: u64, bytes: u64) {
        let mut files = lock(&self.files);
        let is_linked = files.linked.remove(&number);
        let spare_bytes = (number >= self.own_from && !is_linked).then_some(bytes);
        files.waiting.push(Remains { path, spare_bytes });
    }

    /// Says that file `number` is about to get a second name.
    pub(crate) fn will_link(&self, number: u64) {
        lock(&self.files).linked.insert(number);
    }

    /// A file to be written over.
    pub(crate) fn take_spare(&self) -> Option<PathBuf> {
        let mut files = lock(&self.files);
        if files.spare_limit == 0 {
            return None;
        }
        if let Some(spare) = files.pop() {
            return Some(spare.path);
        }
        let at = files.waiting.iter().position(|it| it.spare_bytes.is_some())?;
        Some(files.waiting.swap_remove(at).path)
    }

    /// When what is kept is to be removed, unless it is used before then.
    pub(crate) fn kept_until(&self) -> Option<Instant> {
        let files = lock(&self.files);
        if files.spare.is_empty() { None } else { files.used.map(|used| used + KEPT_FOR) }
    }

    /// Bytes of the files that are kept to be written over.
    pub(crate) fn spare_bytes(&self) -> u64 {
        lock(&self.files).spare_bytes
    }

    /// Removes what is queued, but for what is kept to be written over. A file that cannot be removed now is
    /// removed when the store is next opened, so failures need no report.
    pub(crate) fn sweep(&self) {
        let mut files = lock(&self.files);
        let mut unneeded = Vec::new();
        for it in std::mem::take(&mut files.waiting) {
            match it.spare_bytes {
                Some(bytes) if files.spare_bytes + bytes <= files.spare_limit => {
                    files.spare_bytes += bytes;
                    files.used = Some(env::now());
                    files.spare.push(it);
                }
                _ => unneeded.push(it),
            }
        }
        drop(files);
        self.remove(unneeded);
    }

    /// Removes all that is queued, and all that is kept; whether anything was.
    pub(crate) fn clear(&self) -> bool {
        let mut files = lock(&self.files);
        let mut unneeded = std::mem::take(&mut files.waiting);
        unneeded.append(&mut files.spare);
        files.spare_bytes = 0;
        drop(files);
        let removed = !unneeded.is_empty();
        self.remove(unneeded);
        removed
    }

    fn remove(&self, files: Vec<Remains>) {
        for it in files {
            let _ = self.vfs.remove(&it.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use trommel_vfs::{DiskVfs, OpKind, SimDisk};

    use super::*;
    use crate::{Db, Options, ReadMode};

    const SPARE: u64 = 64 << 10;

    /// Options of a store of small tables that does its work in the calls that make it necessary.
    fn small(vfs: impl Vfs + 'static) -> Options {
        Options::default()
            .vfs(Arc::new(vfs))
            .background_threads(0)
            .write_buffer_bytes(8 << 10)
            .table_bytes(8 << 10)
            .base_level_bytes(32 << 10)
            .spare_file_bytes(SPARE)
    }

    fn value(round: u32, number: u32) -> Vec<u8> {
        (0..60).map(|at| (round * 7 + number * 31 + at) as u8).collect()
    }

    fn fill(db: &Db, round: u32) {
        for number in 0..1_000_u32 {
            db.put(number.wrapping_mul(2_654_435_761).to_le_bytes(), value(round, number)).unwrap();
        }
    }

    fn check(db: &Db, round: u32) {
        for number in 0..1_000_u32 {
            let found = db.get(number.wrapping_mul(2_654_435_761).to_le_bytes()).unwrap().unwrap();
            assert_eq!(found[..], value(round, number));
        }
        db.verify().unwrap();
    }

    #[test]
    fn tables_are_written_over_old_ones_and_nothing_is_kept_at_rest() {
        let removed = [SPARE, 0].map(|limit| {
            let disk = SimDisk::new();
            let db = small(disk.clone()).spare_file_bytes(limit).open("db").unwrap();
            let mut most = 0;
            for round in 0..8 {
                fill(&db, round);
                let kept = db.stats().spare_file_bytes;
                assert!(kept <= limit, "{kept} bytes kept");
                most = most.max(kept);
            }
            assert_eq!(most > limit / 2, limit > 0, "{most} bytes kept");
            check(&db, 7);
            let removed = disk.calls(OpKind::Remove);
            db.wait_idle().unwrap();
            assert_eq!(db.stats().spare_file_bytes, 0);
            let files = disk.list(Path::new("db")).unwrap();
            let tables: u64 = db.stats().levels.iter().map(|level| level.tables).sum();
            // The log, the manifest, `CURRENT` and `LOCK`.
            assert_eq!(files.len() as u64, tables + 4, "{files:?}");
            removed
        });
        assert!(removed[0] * 3 < removed[1], "{removed:?} files removed");
    }

    #[test]
    fn fewer_are_kept_once_fewer_may_be() {
        let db = small(SimDisk::new()).open("db").unwrap();
        fill(&db, 0);
        assert!(db.stats().spare_file_bytes > 10 << 10);
        db.set_options(|options| options.spare_file_bytes(10 << 10)).unwrap();
        assert!(db.stats().spare_file_bytes <= 10 << 10);
        db.set_options(|options| options.spare_file_bytes(0)).unwrap();
        assert_eq!(db.stats().spare_file_bytes, 0);
        fill(&db, 1);
        check(&db, 1);
    }

    /// A full disk: what is only kept goes before a write is refused, whoever finds it full.
    #[test]
    fn a_full_disk_has_what_is_kept() {
        let disk = SimDisk::new();
        let db = small(disk.clone()).open("db").unwrap();
        let put = |number: u32| db.put(number.to_le_bytes(), [7; 60]);
        for limit in 0..40 {
            fill(&db, limit);
            // What is put next makes no memtable full.
            db.flush().unwrap();
            let kept = db.stats().spare_file_bytes;
            if kept == 0 {
                continue;
            }
            let room = u64::from(limit) * 20;
            disk.set_capacity(Some(disk.used_bytes() + room));
            // More than there is room for, less than is kept.
            (0..1 + (room / 60) as u32).for_each(|number| put(number).unwrap());
            assert_eq!(db.stats().spare_file_bytes, 0, "kept on a full disk");
            disk.set_capacity(None);
        }
        db.verify().unwrap();
    }

    #[test]
    fn what_a_checkpoint_has_or_a_reader_holds_is_not_written_over() {
        for mode in ReadMode::ALL {
            let dir = tempfile::tempdir().unwrap();
            let db = small(DiskVfs).read_mode(mode).open(dir.path().join("db")).unwrap();
            fill(&db, 0);
            db.flush().unwrap();
            let held: Vec<_> = db.iter().map(|entry| entry.unwrap()).collect();
            let copy = dir.path().join("copy");
            db.checkpoint(&copy).unwrap();
            let mut walk = db.iter();
            let first = walk.next().unwrap().unwrap();
            for round in 1..6 {
                fill(&db, round);
                db.compact_all().unwrap();
            }
            check(&db, 5);
            assert_eq!(first, held[0]);
            assert!(walk.map(|entry| entry.unwrap()).eq(held[1..].iter().cloned()), "{mode}");
            let held_still = held.iter().filter(|(key, found)| {
                let number = (0..1_000_u32)
                    .find(|number| number.wrapping_mul(2_654_435_761).to_le_bytes() == key[..]);
                found[..] == value(0, number.unwrap())
            });
            assert_eq!(held_still.count(), 1_000, "{mode}");
            check(&small(DiskVfs).read_mode(mode).open(&copy).unwrap(), 0);
        }
    }
}
