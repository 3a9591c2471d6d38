//! Range tombstones against simple models.

#![expect(clippy::big_endian_bytes, reason = "keys in the order of their numbers")]

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use trommel_base::{MAX_SEQNO, SeqNo};
use trommel_sim::MemoryVfs;

use super::{RangeCursor, RangeMap, RangeSet, RangeTombstone, Readers};
use crate::bounds::Bounds;
use crate::{Db, Options, Snapshot, WriteBatch};

fn tombstone(from: u8, to: Option<u8>, seqno: SeqNo) -> RangeTombstone {
    RangeTombstone::new(&[from], to.map(|to| [to]).as_ref().map(|to| &to[..]), seqno)
}

/// The newest of `all` up to `at` that applies to `key`.
fn expected(all: &[RangeTombstone], key: &[u8], at: SeqNo) -> SeqNo {
    let applies = |one: &&RangeTombstone| {
        one.seqno <= at && *one.from <= *key && one.to.as_ref().is_none_or(|to| *key < **to)
    };
    all.iter().filter(applies).map(|one| one.seqno).max().unwrap_or(0)
}

#[test]
fn sets_answer_as_a_list_does() {
    let mut rng = fastrand::Rng::with_seed(7);
    for _ in 0..200 {
        let count = rng.u64(0..40);
        let all: Vec<RangeTombstone> = (1..=count)
            .map(|nth| {
                let (from, to) = (rng.u8(..16), rng.u8(..17));
                tombstone(from, (to < 16).then_some(to), nth * 10)
            })
            .collect();
        let mut readers: Vec<SeqNo> = (0..rng.usize(0..4)).map(|_| rng.u64(0..450)).collect();
        let mut set = RangeSet::default();
        for one in &all {
            set = set.with(vec![one.clone()], &Readers::at(readers.clone()));
        }
        let whole = RangeMap::new(all.clone(), &Readers::Anywhere);
        let again: Vec<RangeTombstone> = whole.tombstones().collect();
        assert_eq!(RangeMap::new(again, &Readers::Anywhere), whole);
        readers.push(MAX_SEQNO);
        for (key, at) in (0..17_u8).flat_map(|key| readers.iter().map(move |at| (key, *at))) {
            let want = expected(&all, &[key], at);
            assert_eq!(set.covering(&[key], at), want, "{all:?} {key} {at}");
        }
        for (key, at) in (0..17_u8).flat_map(|key| (0..45).map(move |at| (key, at * 10 + 5))) {
            assert_eq!(whole.covering(&[key], at), expected(&all, &[key], at));
        }
        for at in readers {
            let mut cursor = RangeCursor::new(set.clone(), at);
            for _ in 0..40 {
                let (key, seqno) = ([rng.u8(..17)], rng.u64(0..450));
                let want = expected(&all, &key, at);
                assert_eq!(cursor.deletes(&key, seqno), want > seqno, "{all:?} {key:?}");
                assert!(cursor.from() <= &key[..] && cursor.to().is_none_or(|to| to > &key[..]));
            }
        }
    }
}

/// A queue whose head is deleted repeatedly: each tombstone covers all earlier ones.
#[test]
fn nested_ranges_take_little_memory() {
    let mut set = RangeSet::default();
    for nth in 1..=5_000_u64 {
        let one = RangeTombstone::new(b"", Some(&nth.to_be_bytes()), nth);
        set = set.with(vec![one], &Readers::at(vec![nth - 1]));
    }
    assert!(set.memory_bytes() < 1 << 20, "{} bytes", set.memory_bytes());
    assert_eq!(set.covering(&4_999_u64.to_be_bytes(), MAX_SEQNO), 5_000);
    assert_eq!(set.covering(&5_000_u64.to_be_bytes(), MAX_SEQNO), 0);
}

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// A store, and its expected contents now and at each snapshot.
struct Pair {
    options: Options,
    db: Db,
    now: Model,
    snapshots: Vec<(Snapshot, Model)>,
    /// Of 40 writes, those that delete a key.
    deletes: u8,
    rng: fastrand::Rng,
}

impl Pair {
    fn new(seed: u64) -> Self {
        let options = Options::default()
            .vfs(Arc::new(MemoryVfs::new()))
            .background_threads(0)
            .writes(|w| w.write_buffer_bytes(64 << 10))
            .compaction(|c| c.l0_trigger(2).table_bytes(16 << 10).base_level_bytes(64 << 10));
        let db = Db::open("db", options.clone()).unwrap();
        let rng = fastrand::Rng::with_seed(seed);
        let deletes = [7, 30][seed as usize % 2];
        Self { options, db, now: Model::new(), snapshots: Vec::new(), deletes, rng }
    }

    fn key(&mut self) -> Vec<u8> {
        let key = self.rng.u16(..300);
        let tail = if self.rng.u8(..4) == 0 { "x".repeat(20) } else { String::new() };
        format!("k{key:03}{tail}").into_bytes()
    }

    fn range(&mut self) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
        let (from, to) = (self.key(), self.key());
        let bound = |kind, key| match kind {
            0 => Bound::Unbounded,
            1..=4 => Bound::Excluded(key),
            _ => Bound::Included(key),
        };
        (bound(self.rng.u8(..12), from), bound(self.rng.u8(..12), to))
    }

    fn delete_from_model(&mut self, range: &(Bound<Vec<u8>>, Bound<Vec<u8>>)) {
        use std::ops::RangeBounds as _;
        self.now.retain(|key, _| !range.contains(key));
    }

    fn write(&mut self) {
        let mut batch = WriteBatch::new();
        for _ in 0..self.rng.usize(1..60) {
            let key = self.key();
            match self.rng.u8(..40) {
                0..=1 => {
                    let range = self.range();
                    batch.delete_range(range.clone());
                    self.delete_from_model(&range);
                }
                op if op < 2 + self.deletes => {
                    batch.delete(&key);
                    self.now.remove(&key);
                }
                _ => {
                    let value = vec![self.rng.u8(..); self.rng.usize(0..100)];
                    batch.put(&key, &value);
                    self.now.insert(key, value);
                }
            }
        }
        self.db.write(batch).unwrap();
    }

    fn step(&mut self) {
        match self.rng.u8(..30) {
            0 => self.db.flush().unwrap(),
            1 => self.db.compact_range(..).unwrap(),
            2..=4 => self.snapshots.push((self.db.snapshot(), self.now.clone())),
            5..=6 if !self.snapshots.is_empty() => {
                let nth = self.rng.usize(..self.snapshots.len());
                drop(self.snapshots.swap_remove(nth));
            }
            7 => {
                self.snapshots.clear();
                self.db.clone().close().unwrap();
                self.db = Db::open("db", self.options.clone()).unwrap();
            }
            _ => self.write(),
        }
    }

    fn check(&mut self) {
        let now = (self.db.snapshot(), self.now.clone());
        for (snapshot, model) in self.snapshots.iter().chain([&now]) {
            check_one(snapshot, model, &mut self.rng);
        }
        let keys: Vec<Vec<u8>> = (0..20).map(|_| self.key()).collect();
        let got = self.db.multi_get(&keys).unwrap();
        for (key, value) in keys.iter().zip(got) {
            assert_eq!(value.as_deref(), self.now.get(key).map(|value| &value[..]));
            assert_eq!(self.db.get(key).unwrap().as_deref(), value.as_deref());
        }
    }
}

fn check_one(snapshot: &Snapshot, model: &Model, rng: &mut fastrand::Rng) {
    let all = |entries: Vec<crate::Result<(crate::Slice, crate::Slice)>>| -> Vec<_> {
        let owned = |entry: crate::Result<(crate::Slice, crate::Slice)>| {
            let (key, value) = entry.unwrap();
            (key.to_vec(), value.to_vec())
        };
        entries.into_iter().map(owned).collect()
    };
    let mut expected: Vec<(Vec<u8>, Vec<u8>)> =
        model.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
    assert_eq!(all(snapshot.iter().collect()), expected);
    let mut visited = Vec::new();
    let mut cursor = snapshot.cursor().unwrap();
    cursor.seek_to_first().unwrap();
    cursor
        .visit(|key, value| {
            visited.push((key.to_vec(), value.to_vec()));
            true
        })
        .unwrap();
    assert_eq!(visited, expected);
    // Back and forth, from anywhere.
    let mut cursor = snapshot.cursor().unwrap();
    for _ in 0..10 {
        let start = format!("k{:03}", rng.u16(..300)).into_bytes();
        cursor.seek(&start).unwrap();
        let mut at = expected.partition_point(|(key, _)| *key < start);
        for _ in 0..20 {
            let want = expected.get(at).map(|(key, value)| (&key[..], &value[..]));
            assert_eq!(cursor.key().zip(cursor.value().as_deref()), want);
            if want.is_none() {
                break;
            }
            if rng.bool() {
                cursor.next().unwrap();
                at += 1;
            } else if at > 0 {
                cursor.prev().unwrap();
                at -= 1;
            }
        }
    }
    expected.reverse();
    assert_eq!(all(snapshot.iter().rev().collect()), expected);
}

#[test]
fn range_deletes_match_a_model() {
    for seed in 0..16 {
        let mut pair = Pair::new(seed);
        for nth in 0..120 {
            pair.step();
            if nth % 4 == 0 {
                pair.check();
            }
        }
        pair.check();
    }
}

/// An empty range, or one whose end is before its start, deletes nothing.
#[test]
fn ranges_without_keys_delete_nothing() {
    let db = Db::open("db", Options::default().vfs(Arc::new(MemoryVfs::new()))).unwrap();
    let put = db.put("b", "1").unwrap();
    assert_eq!(db.delete_range("b".."b").unwrap(), put);
    assert_eq!(db.delete_range("c".."a").unwrap(), put);
    let ends = (Bound::Excluded("b"), Bound::Excluded("b\0"));
    assert_eq!(db.delete_range(ends).unwrap(), put);
    assert_eq!(db.get("b").unwrap().unwrap(), b"1"[..]);
    assert_eq!(db.delete_range("b"..="b").unwrap(), put + 1);
    assert_eq!(db.get("b").unwrap(), None);
    let longest = vec![0xff; crate::MAX_KEY_BYTES];
    db.put(&longest, "2").unwrap();
    db.delete_range(&longest..=&longest).unwrap();
    assert_eq!(db.get(&longest).unwrap(), None);
    let too_long = vec![0xff; crate::MAX_KEY_BYTES + 2];
    let refused = db.delete_range(&too_long..).unwrap_err();
    assert!(matches!(refused, crate::Error::KeyTooLong { .. }), "{refused:?}");
}

fn filled(disk: &Arc<MemoryVfs>, keys: u32) -> Db {
    let options = Options::default()
        .vfs(Arc::<MemoryVfs>::clone(disk))
        .background_threads(0)
        .writes(|w| w.write_buffer_bytes(256 << 10))
        .compaction(|c| c.table_bytes(64 << 10).base_level_bytes(128 << 10));
    let db = Db::open("db", options).unwrap();
    for key in 0..keys {
        db.put(key.to_be_bytes(), [7; 100]).unwrap();
    }
    db.flush().unwrap();
    db.wait_idle().unwrap();
    db
}

fn tables(db: &Db) -> usize {
    db.engine().version().tables().count()
}

/// Tables inside a deleted range are removed without being read, and the tombstone with the last of
/// them.
#[test]
fn deleted_tables_are_removed_unread() {
    let db = filled(&Arc::default(), 10_000);
    let before = (tables(&db), db.stats().background.compactions.bytes_read);
    assert!(before.0 > 10);
    let snapshot = db.snapshot();
    db.delete_range(100_u32.to_be_bytes()..).unwrap();
    db.flush().unwrap();
    db.wait_idle().unwrap();
    assert_eq!(snapshot.iter().count(), 10_000);
    assert_eq!(db.iter().count(), 100);
    assert_eq!(tables(&db), before.0, "the snapshot needs them");
    drop(snapshot);
    db.wait_idle().unwrap();
    assert_eq!(db.iter().count(), 100);
    let left = tables(&db);
    assert!(left <= 2, "{left} tables are left");
    db.compact_range(..).unwrap();
    assert_eq!((db.iter().count(), db.iter().rev().count()), (100, 100));
    assert!(db.engine().version().ranges.is_empty(), "spent, and still there");
    db.delete_range(..).unwrap();
    db.flush().unwrap();
    db.wait_idle().unwrap();
    assert_eq!((tables(&db), db.engine().version().ranges.len()), (0, 0));
}

/// A scan passes tables in a deleted range without opening them.
#[test]
fn scans_do_not_read_what_is_deleted() {
    let db = filled(&Arc::default(), 20_000);
    let held = db.snapshot();
    db.delete_range(10_u32.to_be_bytes()..19_990_u32.to_be_bytes()).unwrap();
    db.put(5_000_u32.to_be_bytes(), "new").unwrap();
    let reads = || db.stats().scans.block_reads + db.stats().scans.cache_hits;
    let before = reads();
    assert_eq!(db.iter().count(), 21);
    assert_eq!(db.iter().rev().count(), 21);
    let both = reads() - before;
    assert!(both < 40, "{both} blocks for 21 entries, twice");
    drop(held);
}

/// The space of a deleted range is freed without another write.
#[test]
fn a_store_at_rest_flushes_its_range_tombstones() {
    let vfs = Arc::new(MemoryVfs::new());
    filled(&vfs, 5_000).close().unwrap();
    let db = Db::open("db", Options::default().vfs(vfs)).unwrap();
    db.delete_range(..).unwrap();
    let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while tables(&db) > 0 {
        assert!(std::time::Instant::now() < end, "{} tables are still there", tables(&db));
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

/// A queue: entries deleted at its head are passed once, not by each later read of the head.
#[test]
fn the_head_of_a_queue_stays_near() {
    let db = filled(&Arc::default(), 10_000);
    let old = db.snapshot();
    let passed = || db.stats().scans.entries_skipped;
    for step in 0..5_000_u32 {
        db.put((10_000 + step).to_be_bytes(), "new").unwrap();
        let (head, _) = db.iter().next().unwrap().unwrap();
        assert_eq!(*head, step.to_be_bytes());
        db.delete(&head).unwrap();
    }
    let per_step = passed() as f64 / 5_000.0;
    assert!(per_step < 10.0, "{per_step} entries are passed for each look");
    // The same in the other direction.
    for step in (5_000..15_000_u32).rev().take(5_000) {
        let (tail, _) = db.iter().next_back().unwrap().unwrap();
        assert_eq!(*tail, step.to_be_bytes());
        db.delete(&tail).unwrap();
    }
    let per_step = passed() as f64 / 10_000.0;
    assert!(per_step < 10.0, "{per_step} entries are passed for each look, backward");
    assert_eq!(old.iter().count(), 10_000, "an older reader sees what it saw");
    assert_eq!(db.iter().count(), 5_000);
}

/// A seek that begins anywhere in a gap makes the whole gap known, not just the part that it
/// passed.
#[test]
fn a_gap_is_known_whole_after_a_seek_into_it() {
    for (forward, has_keyspace) in [(true, false), (false, false), (true, true), (false, true)] {
        let db = filled(&Arc::default(), 400);
        if has_keyspace {
            db.keyspace("other", Default::default()).unwrap();
        }
        for key in 10..390_u32 {
            db.delete(key.to_be_bytes()).unwrap();
        }
        let passed_by_seek = |key: u32| {
            let before = db.stats().scans.entries_skipped;
            let (found, expected) = match forward {
                true => (db.range(key.to_be_bytes()..).next(), 390_u32),
                false => (db.range(..=key.to_be_bytes()).next_back(), 9),
            };
            assert_eq!(*found.unwrap().unwrap().0, expected.to_be_bytes());
            db.stats().scans.entries_skipped - before
        };
        assert!(passed_by_seek(200) > 350, "it has passed the gap on both sides");
        for key in (10..390).step_by(19) {
            let passed = passed_by_seek(key);
            assert!(passed < 20, "a later seek to {key} has passed {passed} entries");
        }
        // The keys at either end are not part of the gap.
        assert_eq!((db.iter().count(), db.iter().rev().count()), (20, 20));
    }
}

/// Regression: every compaction forgot all gaps. It must only forget those that it has left without
/// tombstones.
#[test]
fn a_compaction_keeps_gaps_in_which_there_are_tombstones() {
    let db = filled(&Arc::default(), 30_000);
    (10..1_000_u32).for_each(|key| _ = db.delete(key.to_be_bytes()).unwrap());
    let snapshot = db.snapshot();
    (20_000..20_990_u32).for_each(|key| _ = db.delete(key.to_be_bytes()).unwrap());
    db.flush().unwrap();
    assert_eq!(db.iter().count(), 28_020);
    let store = db.handle();
    let is_known = |key: u32| {
        let gaps = store.engine.memory.gaps.load();
        gaps.is_some_and(|gaps| gaps.covering(&key.to_be_bytes(), MAX_SEQNO) > 0)
    };
    assert!(is_known(500) && is_known(20_500));
    // The tombstones that the snapshot does not see stay.
    db.compact_all().unwrap();
    assert_eq!((is_known(500), is_known(20_500)), (false, true));
    drop(snapshot);
    db.compact_all().unwrap();
    assert!(store.engine.memory.gaps.is_empty());
    assert_eq!((db.iter().count(), db.iter().rev().count()), (28_020, 28_020));
}

/// A write into a known gap is found by every later reader and no earlier one.
#[test]
fn a_gap_is_no_gap_for_what_is_written_in_it() {
    let db = filled(&Arc::default(), 3_000);
    for key in 10..2_990_u32 {
        db.delete(key.to_be_bytes()).unwrap();
    }
    let first = |db: &Db| db.range(10_u32.to_be_bytes()..).next().unwrap().unwrap().0.to_vec();
    for flushed in [false, true] {
        assert_eq!(first(&db), 2_990_u32.to_be_bytes());
        let before = db.snapshot();
        db.put(1_500_u32.to_be_bytes(), "new").unwrap();
        if flushed {
            db.flush().unwrap();
        }
        assert_eq!(first(&db), 1_500_u32.to_be_bytes());
        assert_eq!(db.iter().count(), 21);
        assert_eq!(db.iter().rev().count(), 21);
        assert_eq!(before.iter().count(), 20);
        db.delete(1_500_u32.to_be_bytes()).unwrap();
    }
}

/// Regression: a scan that had pinned its view before a memtable was frozen read its sequence
/// number later, and a gap found meanwhile hid from it the entries that a batch deleted, but not
/// those that the batch put.
#[test]
fn a_gap_does_not_tear_a_batch_for_a_reader_of_an_older_view() {
    let db = filled(&Arc::default(), 100);
    db.put(0_u32.to_be_bytes(), "in the memtable").unwrap();
    let store = db.handle();
    let pinned = store.engine.view.load_full();
    db.flush().unwrap();
    assert!(!Arc::ptr_eq(&pinned.active, &store.engine.view.load().active));
    let mut batch = WriteBatch::new();
    for key in 10..90_u32 {
        batch.delete(key.to_be_bytes());
    }
    batch.put("new", "");
    db.write(batch).unwrap();
    assert_eq!(db.iter().count(), 21, "and its gap is learned");
    assert!(!store.engine.memory.gaps.is_empty());
    let seqno = store.engine.snapshots.visible();
    let cursor = || store.cursor_over(Arc::clone(&pinned), seqno, None, Bounds::all()).unwrap();
    let mut forward = cursor();
    forward.seek(b"").unwrap();
    let mut seen = 0;
    while forward.key().is_some() {
        seen += 1;
        forward.next().unwrap();
    }
    let mut backward = cursor();
    backward.seek_to_last().unwrap();
    let mut seen_back = 0;
    while backward.key().is_some() {
        seen_back += 1;
        backward.prev().unwrap();
    }
    assert_eq!((seen, seen_back), (100, 100));
}

/// Regression: loaded entries have one sequence number, and two entries of long keys with a common
/// start were taken for one, so that a scan skipped the first key after a deleted range.
#[test]
fn a_deleted_range_of_loaded_keys_ends_at_the_next_key() {
    let vfs = Arc::new(MemoryVfs::default());
    let db = Db::open("db", Options::default().vfs(vfs)).unwrap();
    let key = |nth: u32| format!("tenant-00000001/key-{nth:03}");
    db.load_sorted((0..200).map(|nth| Ok((key(nth), "loaded")))).unwrap();
    db.delete_range(key(20)..key(50)).unwrap();
    db.delete_range(key(60)..key(160)).unwrap();
    let left: Vec<String> = (0..20).chain(50..60).chain(160..200).map(key).collect();
    for round in 0..3 {
        let text = |entry: crate::Result<(trommel_base::Slice, trommel_base::Slice)>| {
            String::from_utf8(entry.unwrap().0.to_vec()).unwrap()
        };
        assert_eq!(db.iter().map(text).collect::<Vec<_>>(), left, "round {round}");
        let back: Vec<String> = db.iter().rev().map(text).collect();
        assert!(back.iter().eq(left.iter().rev()), "round {round}, backward: {back:?}");
    }
}

/// A table of which more than half is deleted is rewritten, in the deepest level too; one that has
/// lost less stays, and its tombstone with it.
#[test]
fn half_deleted_tables_are_rewritten() {
    let db = filled(&Arc::default(), 10_000);
    let bytes = || db.engine().version().tables().map(|(_, table)| table.file_bytes).sum::<u64>();
    let before = bytes();
    for start in (0..10_000_u32).step_by(100) {
        db.delete_range(start.to_be_bytes()..(start + 20).to_be_bytes()).unwrap();
    }
    db.flush().unwrap();
    db.wait_idle().unwrap();
    let stats = db.stats().background;
    assert!(bytes() > before * 9 / 10, "rewritten for a fifth");
    assert!(stats.range_tombstones == 100 && stats.deleted_bytes > before / 10, "{stats:?}");
    for start in (0..10_000_u32).step_by(100) {
        db.delete_range((start + 20).to_be_bytes()..(start + 70).to_be_bytes()).unwrap();
    }
    db.flush().unwrap();
    db.wait_idle().unwrap();
    let stats = db.stats().background;
    assert!(bytes() < before / 2, "{} of {before} bytes are left", bytes());
    assert!(stats.range_tombstones <= 2 && stats.deleted_bytes < before / 50, "{stats:?}");
    assert_eq!((db.iter().count(), db.iter().rev().count()), (3_000, 3_000));
}

/// Parts of one tombstone may overlap, such as the rest of a spent one and the one in the log.
#[test]
fn parts_of_one_tombstone_cover_together() {
    let all = vec![tombstone(1, Some(9), 5), tombstone(1, Some(3), 5), tombstone(2, None, 5)];
    let map = RangeMap::new(all.clone(), &Readers::Anywhere);
    for key in 0..12 {
        assert_eq!(map.covering(&[key], MAX_SEQNO), expected(&all, &[key], MAX_SEQNO), "{key}");
    }
}

/// A store that is emptied repeatedly keeps no tombstone that a newer one covers.
#[test]
fn covered_tombstones_go_with_each_flush() {
    let db = filled(&Arc::default(), 100);
    let held = db.snapshot();
    for nth in 0..200_u32 {
        db.delete_range(..(50 + nth).to_be_bytes()).unwrap();
        db.flush().unwrap();
        let count = db.engine().version().ranges.tombstone_count();
        assert!(count < 10, "{count} tombstones after {nth} flushes");
    }
    assert_eq!((held.iter().count(), db.iter().count()), (100, 0));
}
