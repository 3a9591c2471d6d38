//! The deletion queue: obsolete files, waiting to be removed or recycled.
//!
//! 1. The last reader of a table, on any thread, only queues the file here; removing it is
//!    background work.
//! 2. If the file system can overwrite old files with new ones ([`Vfs::create_over`]), some are
//!    kept for new tables: tables and logs that this open store has written itself, and not linked
//!    under a second name. Other files may be in use under another name.
//! 3. A kept file is renamed (`n.spare`), so that a reader without a manifest does not mistake it
//!    for a log or a table.
//! 4. After each job and each slice, queued files are removed, except those kept
//!    ([`DeletionQueue::sweep`]). Kept files are removed when the store is at rest (a caller
//!    waits for it to become idle, or a background thread finds that nothing was done for a while),
//!    when it is closed, and when the disk is full; after that, nothing more is kept until the
//!    store is at rest.
//! 5. If the store's directory is no longer the one that was locked, the files in it belong to
//!    others: nothing is removed, renamed or overwritten, and the queue is forgotten.
//! 6. Files that no durable manifest has named are removed without the queue, by the job that made
//!    them. If it is unknown whether a manifest names them, they stay until the next open.
//!
//! After a crash, queued and kept files remain, perhaps under their old names, or under that of a
//! table that was being written. The manifest names none of them, so the next open for writing
//! removes them, unless it had to drop bytes.

use std::collections::{BTreeSet, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use trommel_vfs::Vfs;

use crate::env;
use crate::files::held::HeldLock;
use crate::names;
use crate::sync::{AtomicUsize, Mutex, lock};

/// Time after the last job, and after the last change of the queue, until the store is considered
/// at rest: a store that no longer writes needs no recyclable files.
const KEPT_FOR: Duration =
    if cfg!(test) { Duration::from_millis(100) } else { Duration::from_secs(10) };

/// Most files that are kept: small ones are not worth the time to find and remove them.
const MOST_KEPT: usize = 64;

/// Kept files take at most this fraction of the bytes of the store's tables: 1/4. In a small store
/// they would be most of the disk usage, and few compactions would reuse them.
const PART_KEPT: u64 = 4;

/// The deletion queue of a store.
#[derive(Debug)]
pub(crate) struct DeletionQueue {
    vfs: Arc<dyn Vfs>,
    /// Files from this number on were written by this open store.
    own_from: u64,
    /// Whether the directory is still ours.
    lock: Arc<HeldLock>,
    /// Files in use that will be queued when they are dropped.
    held: AtomicUsize,
    files: Mutex<Files>,
}

#[derive(Debug, Default)]
struct Files {
    waiting: Vec<QueuedFile>,
    spare: Spare,
    /// Most bytes that may be kept.
    spare_limit: u64,
    /// Whether the disk was found full since the store last rested.
    is_full: bool,
    /// Time of the last change, unless the store has rested since.
    used: Option<Instant>,
    /// Numbers of files that were given a second name.
    linked: BTreeSet<u64>,
}

/// An obsolete file.
#[derive(Debug)]
struct QueuedFile {
    path: PathBuf,
    /// Its number and its length, if it may be recycled.
    spare: Option<(u64, u64)>,
}

/// Files that are kept to be recycled.
#[derive(Debug, Default)]
struct Spare {
    /// Each with its length, the most recent one last.
    files: VecDeque<(PathBuf, u64)>,
    bytes: u64,
}

impl Spare {
    fn push(&mut self, path: PathBuf, bytes: u64) {
        self.bytes += bytes;
        self.files.push_back((path, bytes));
    }

    /// The most recent one, whose bytes are most likely still in the page cache.
    fn take(&mut self) -> Option<PathBuf> {
        let (path, bytes) = self.files.pop_back()?;
        self.bytes -= bytes;
        Some(path)
    }

    /// Removes and returns the oldest files until at most `limit` bytes, and at most the permitted
    /// number of files, are left.
    fn shrink(&mut self, limit: u64) -> Vec<PathBuf> {
        let mut gone = Vec::new();
        while (self.bytes > limit || self.files.len() > MOST_KEPT)
            && let Some((path, bytes)) = self.files.pop_front()
        {
            self.bytes -= bytes;
            gone.push(path);
        }
        gone
    }
}

impl Files {
    fn queue(&mut self, file: QueuedFile) {
        self.waiting.push(file);
        self.used = Some(env::now());
    }
}

impl DeletionQueue {
    /// A queue for a store whose next file has the number `own_from`. It keeps no files yet.
    pub(crate) fn new(vfs: Arc<dyn Vfs>, own_from: u64, lock: Arc<HeldLock>) -> Self {
        Self { vfs, own_from, lock, held: AtomicUsize::new(0), files: Mutex::default() }
    }

    /// Changes how many bytes of files are kept, and removes the excess.
    pub(crate) fn set_spare_limit(&self, bytes: u64) {
        let limit = if self.vfs.writes_over() { bytes } else { 0 };
        let mut files = lock(&self.files);
        files.spare_limit = limit;
        let gone = files.spare.shrink(limit);
        drop(files);
        self.remove(gone);
    }

    /// Announces a file that will be queued when its last owner is dropped.
    pub(crate) fn announce(&self) {
        self.held.fetch_add(1, Ordering::Relaxed);
    }

    /// Records that an announced file was queued.
    pub(crate) fn arrived(&self) {
        self.held.fetch_sub(1, Ordering::Relaxed);
    }

    /// Queues a file. The manifest that no longer names it must be durable.
    pub(crate) fn add(&self, path: PathBuf) {
        lock(&self.files).queue(QueuedFile { path, spare: None });
    }

    /// Queues the table or log `number` of `bytes` bytes, like [`DeletionQueue::add`].
    pub(crate) fn add_spare(&self, path: PathBuf, number: u64, bytes: u64) {
        let mut files = lock(&self.files);
        let is_linked = files.linked.remove(&number);
        let spare = (number >= self.own_from && !is_linked).then_some((number, bytes));
        files.queue(QueuedFile { path, spare });
    }

    /// Records that file `number` is about to get a second name.
    pub(crate) fn will_link(&self, number: u64) {
        lock(&self.files).linked.insert(number);
    }

    /// A file to be recycled.
    pub(crate) fn take_spare(&self) -> Option<PathBuf> {
        if lock(&self.files).spare_limit == 0 || !self.is_ours() {
            return None;
        }
        let mut files = lock(&self.files);
        files.used = Some(env::now());
        files.spare.take().or_else(|| {
            let at = files.waiting.iter().position(|it| it.spare.is_some())?;
            Some(files.waiting.swap_remove(at).path)
        })
    }

    /// The time at which the store is considered at rest, or has to check again, unless work is
    /// done before then. The thread that drops a file wakes no other, as it may be any thread, with
    /// any lock held. Therefore the queue is checked periodically while files are in use.
    pub(crate) fn rests_at(&self) -> Option<Instant> {
        let used = lock(&self.files).used;
        // With a replayed clock, all of its time would pass while a file is in use.
        let is_held = !cfg!(shuttle) && self.held.load(Ordering::Relaxed) > 0;
        let from = used.or_else(|| is_held.then(env::now))?;
        Some(from + KEPT_FOR)
    }

    /// Bytes of the files kept to be recycled.
    pub(crate) fn spare_bytes(&self) -> u64 {
        lock(&self.files).spare.bytes
    }

    /// Removes the queued files, except those kept to be recycled: at most a quarter of the `live`
    /// bytes of the store's tables. A file that cannot be removed now is removed when the store is
    /// next opened, so failures are not reported.
    pub(crate) fn sweep(&self, live: u64) {
        if !self.is_ours() {
            return;
        }
        let mut files = lock(&self.files);
        let keeps = files.spare_limit > 0 && !files.is_full;
        let waiting = std::mem::take(&mut files.waiting);
        files.used = Some(env::now());
        drop(files);
        let (mut kept, mut gone) = (Vec::new(), Vec::new());
        for QueuedFile { path, spare } in waiting {
            let renamed = spare.filter(|_| keeps).and_then(|(number, bytes)| {
                let to = path.with_file_name(names::spare(number));
                self.vfs.rename(&path, &to).ok()?;
                Some((to, bytes))
            });
            match renamed {
                Some(spare) => kept.push(spare),
                None => gone.push(path),
            }
        }
        let mut files = lock(&self.files);
        kept.into_iter().for_each(|(path, bytes)| files.spare.push(path, bytes));
        let limit = if files.is_full { 0 } else { files.spare_limit.min(live / PART_KEPT) };
        gone.append(&mut files.spare.shrink(limit));
        drop(files);
        self.remove(gone);
    }

    /// Removes all queued and all kept files: the store rests.
    pub(crate) fn clear(&self) {
        self.clear_as(false);
    }

    /// Like [`DeletionQueue::clear`], but keeps nothing more until the store rests, as the disk is
    /// full. Returns whether there was any file.
    pub(crate) fn clear_full_disk(&self) -> bool {
        self.clear_as(true)
    }

    fn clear_as(&self, is_full: bool) -> bool {
        let mut files = lock(&self.files);
        files.is_full = is_full;
        files.used = is_full.then(env::now);
        let mut gone = files.spare.shrink(0);
        gone.extend(std::mem::take(&mut files.waiting).into_iter().map(|it| it.path));
        drop(files);
        let was_any = !gone.is_empty();
        self.remove(gone);
        was_any
    }

    fn remove(&self, files: Vec<PathBuf>) {
        if files.is_empty() || !self.is_ours() {
            return;
        }
        for path in files {
            let _ = self.vfs.remove(&path);
        }
    }

    /// Whether the directory is still ours; forgets all files if it is not.
    fn is_ours(&self) -> bool {
        let is_ours = self.lock.is_held();
        if !is_ours {
            let mut files = lock(&self.files);
            files.waiting.clear();
            files.spare = Spare::default();
        }
        is_ours
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use trommel_sim::{OpKind, SimDisk};
    use trommel_vfs::DiskVfs;

    use super::*;
    use crate::{Db, Options, ReadMode};

    const SPARE: u64 = 64 << 10;
    const KEYS: u32 = 2_000;

    /// A store of small tables without background threads.
    fn small(vfs: impl Vfs + 'static) -> Options {
        Options::default()
            .vfs(Arc::new(vfs))
            .background_threads(0)
            .writes(|w| w.write_buffer_bytes(8 << 10).spare_file_bytes(SPARE))
            .compaction(|c| c.table_bytes(8 << 10).base_level_bytes(32 << 10))
    }

    fn key(number: u32) -> [u8; 4] {
        number.wrapping_mul(2_654_435_761).to_le_bytes()
    }

    fn value(round: u32, number: u32) -> Vec<u8> {
        (0..60).map(|at| (round * 7 + number * 31 + at) as u8).collect()
    }

    fn fill(db: &Db, round: u32) {
        for number in 0..KEYS {
            db.put(key(number), value(round, number)).unwrap();
        }
    }

    fn check(db: &Db, round: u32) {
        for number in 0..KEYS {
            let found = db.get(key(number)).unwrap().unwrap();
            assert_eq!(found[..], value(round, number));
        }
        db.verify().unwrap();
    }

    #[test]
    fn old_files_are_recycled_and_none_is_kept_at_rest() {
        let removed = [SPARE, 0].map(|limit| {
            let disk = SimDisk::new();
            let db =
                Db::open("db", small(disk.clone()).writes(|w| w.spare_file_bytes(limit))).unwrap();
            let mut most = 0;
            for round in 0..8 {
                fill(&db, round);
                let stats = db.stats();
                let kept = stats.background.spare_file_bytes;
                let live: u64 = stats.levels.iter().map(|level| level.bytes).sum();
                assert!(kept <= limit.min(live / PART_KEPT), "{kept} bytes kept beside {live}");
                most = most.max(kept);
            }
            assert_eq!(most > limit / 8, limit > 0, "{most} bytes kept");
            check(&db, 7);
            let removed = disk.calls(OpKind::Remove);
            db.wait_idle().unwrap();
            assert_eq!(db.stats().background.spare_file_bytes, 0);
            let files = disk.list(Path::new("db")).unwrap();
            let tables: u64 = db.stats().levels.iter().map(|level| level.tables).sum();
            // The log, the manifest, `CURRENT`, `OPTIONS` and `LOCK`.
            assert_eq!(files.len() as u64, tables + 5, "{files:?}");
            removed
        });
        assert!(removed[0] * 2 < removed[1], "{removed:?} files removed");
    }

    /// No caller waits for the store to rest, and it is not closed.
    #[test]
    fn a_store_without_writes_keeps_no_files() {
        let disk = SimDisk::new();
        let db = Db::open("db", small(disk.clone()).background_threads(2)).unwrap();
        let is_kept = |_| {
            fill(&db, 0);
            db.flush().unwrap();
            db.stats().background.spare_file_bytes > 0
        };
        assert!((0..100).any(is_kept), "nothing was ever kept");
        let is_gone = |_| {
            std::thread::sleep(Duration::from_millis(10));
            db.stats().background.spare_file_bytes == 0
        };
        assert!((0..1_000).any(is_gone), "kept for ten seconds");
    }

    /// An iterator holds tables that compactions have replaced; nothing is written after it is
    /// dropped.
    #[test]
    fn a_file_that_a_reader_drops_is_removed_without_a_write() {
        let disk = SimDisk::new();
        let db = Db::open("db", small(disk.clone()).background_threads(2)).unwrap();
        fill(&db, 0);
        let mut iter = db.iter();
        iter.next().unwrap().unwrap();
        fill(&db, 1);
        db.compact_all().unwrap();
        db.wait_idle().unwrap();
        let obsolete = || {
            let tables: u64 = db.stats().levels.iter().map(|level| level.tables).sum();
            disk.list(Path::new("db")).unwrap().len() as u64 - tables - 5
        };
        std::thread::sleep(3 * KEPT_FOR);
        assert!(obsolete() > 0, "nothing was held");
        drop(iter);
        let is_gone = |_| {
            std::thread::sleep(Duration::from_millis(10));
            obsolete() == 0
        };
        assert!((0..1_000).any(is_gone), "kept for ten seconds");
    }

    /// After a full disk nothing is kept until the store rests, which it does on its own.
    #[test]
    fn a_store_at_rest_forgets_that_the_disk_was_full() {
        let queue = DeletionQueue::new(Arc::new(SimDisk::new()), 1, HeldLock::of_nothing());
        queue.set_spare_limit(1 << 20);
        assert_eq!(queue.rests_at(), None);
        queue.clear_full_disk();
        assert!(queue.rests_at().is_some());
        queue.clear();
        assert_eq!(queue.rests_at(), None);
    }

    #[test]
    fn kept_files_are_limited_in_number() {
        let disk = SimDisk::new();
        let queue = DeletionQueue::new(Arc::new(disk.clone()), 1, HeldLock::of_nothing());
        queue.set_spare_limit(1 << 20);
        for number in 1..100 {
            let path = format!("{number:06}.sst");
            disk.create(Path::new(&path)).unwrap();
            queue.add_spare(path.into(), number, 1);
            queue.sweep(u64::MAX);
        }
        assert_eq!(queue.spare_bytes(), MOST_KEPT as u64);
        assert_eq!(disk.list(Path::new("")).unwrap().len(), MOST_KEPT);
        // The oldest ones were removed first.
        assert_eq!(queue.take_spare(), Some("000099.spare".into()));
    }

    #[test]
    fn fewer_are_kept_once_fewer_may_be() {
        let db = Db::open("db", small(SimDisk::new())).unwrap();
        fill(&db, 0);
        assert!(db.stats().background.spare_file_bytes > 10 << 10);
        db.set_options(|options| options.writes(|w| w.spare_file_bytes(10 << 10))).unwrap();
        assert!(db.stats().background.spare_file_bytes <= 10 << 10);
        db.set_options(|options| options.writes(|w| w.spare_file_bytes(0))).unwrap();
        assert_eq!(db.stats().background.spare_file_bytes, 0);
        fill(&db, 1);
        check(&db, 1);
    }

    /// On a full disk kept files are removed before a write fails, whichever operation finds it
    /// full.
    #[test]
    fn a_full_disk_gets_the_kept_files() {
        let disk = SimDisk::new();
        let db = Db::open("db", small(disk.clone())).unwrap();
        let put = |number: u32| db.put(number.to_le_bytes(), [7; 60]);
        for limit in 0..40 {
            fill(&db, limit);
            // The next puts do not fill a memtable.
            db.flush().unwrap();
            let kept = db.stats().background.spare_file_bytes;
            if kept == 0 {
                continue;
            }
            let room = u64::from(limit) * 20;
            disk.set_capacity(Some(disk.used_bytes() + room));
            // More than the free space, less than is kept.
            (0..1 + (room / 60) as u32).for_each(|number| {
                put(number).unwrap();
            });
            assert_eq!(db.stats().background.spare_file_bytes, 0, "kept on a full disk");
            disk.set_capacity(None);
        }
        db.verify().unwrap();
    }

    #[test]
    fn files_in_use_are_not_recycled() {
        for mode in ReadMode::ALL {
            let dir = tempfile::tempdir().unwrap();
            let options = small(DiskVfs).reads(|r| r.read_mode(mode));
            let db = Db::open(dir.path().join("db"), options).unwrap();
            fill(&db, 0);
            db.flush().unwrap();
            let held: Vec<_> = db.iter().map(|entry| entry.unwrap()).collect();
            let copy = dir.path().join("copy");
            db.checkpoint(&copy).unwrap();
            let mut iter = db.iter();
            let first = iter.next().unwrap().unwrap();
            for round in 1..6 {
                fill(&db, round);
                db.compact_all().unwrap();
            }
            check(&db, 5);
            assert_eq!(first, held[0]);
            assert!(iter.map(|entry| entry.unwrap()).eq(held[1..].iter().cloned()), "{mode}");
            let held_still = held.iter().filter(|(found_key, found)| {
                let number = (0..KEYS).find(|number| key(*number) == found_key[..]);
                found[..] == value(0, number.unwrap())
            });
            assert_eq!(held_still.count(), KEYS as usize, "{mode}");
            check(&Db::open(&copy, small(DiskVfs).reads(|r| r.read_mode(mode))).unwrap(), 0);
        }
    }
}
