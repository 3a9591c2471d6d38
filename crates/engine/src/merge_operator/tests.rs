//! Merges in whole stores: reads, folding, failures, and what is recorded.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use trommel_sim::{MemoryVfs, Policy, SimDisk, WallClock};
use trommel_vfs::Vfs;

use super::{Merge, MergeOperator};
use crate::batch::WriteBatch;
use crate::{
    CompactionContext, CompactionFilter, Db, Error, FilterDecision, MergeCause, MergeFailure,
    Options, RepairOptions, Result, Snapshot,
};

/// Appends operands, and keeps the last bytes of a value. Operands that begin with `!` delete
/// everything before them.
#[derive(Debug, Default)]
struct Append {
    has_partial: bool,
    fails: AtomicBool,
    panics: AtomicBool,
}

const KEPT: usize = 40;

impl Append {
    fn new(has_partial: bool) -> Arc<Self> {
        Arc::new(Self { has_partial, ..Self::default() })
    }

    fn joined(parts: &[&[u8]]) -> Vec<u8> {
        let mut all = parts.concat();
        if let Some(at) = all.iter().rposition(|byte| *byte == b'!') {
            all.drain(..at);
        }
        all.drain(..all.len().saturating_sub(KEPT));
        all
    }

    /// The value with an operand, as `full_merge` gives it.
    fn value(existing: Option<&[u8]>, operand: &[u8]) -> Option<Vec<u8>> {
        let all = Self::joined(&[existing.unwrap_or_default(), operand]);
        (all != b"!").then_some(all)
    }
}

impl MergeOperator for Append {
    fn name(&self) -> &'static str {
        "append"
    }

    fn full_merge(
        &self,
        _: &[u8],
        existing: Option<&[u8]>,
        operands: &[&[u8]],
    ) -> std::result::Result<Option<Vec<u8>>, String> {
        assert!(!operands.is_empty(), "it is called for operands");
        assert!(!self.panics.load(Ordering::Relaxed), "no more");
        if self.fails.load(Ordering::Relaxed) {
            return Err("not now".to_owned());
        }
        let mut value = existing.map(<[u8]>::to_vec);
        for operand in operands {
            value = Self::value(value.as_deref(), operand);
        }
        Ok(value)
    }

    fn partial_merge(&self, _: &[u8], operands: &[&[u8]]) -> Option<Vec<u8>> {
        assert!(operands.len() > 1, "one needs no merge");
        assert!(!self.panics.load(Ordering::Relaxed), "no more");
        let is_able = self.has_partial && !self.fails.load(Ordering::Relaxed);
        // Operands that delete are not joined: a single `!` leaves no value.
        let is_plain = operands.iter().all(|operand| !operand.contains(&b'!'));
        (is_able && is_plain).then(|| Self::joined(operands))
    }
}

fn options(vfs: &Arc<dyn Vfs>) -> Options {
    Options::default()
        .vfs(Arc::clone(vfs))
        .background_threads(0)
        .writes(|w| w.write_buffer_bytes(64 << 10))
        .compaction(|c| c.table_bytes(8 << 10).base_level_bytes(16 << 10))
}

fn with(vfs: &Arc<dyn Vfs>, operator: Arc<dyn MergeOperator>) -> Options {
    options(vfs).writes(|w| w.merge_operator(operator))
}

fn memory() -> Arc<dyn Vfs> {
    Arc::new(MemoryVfs::new())
}

fn open(operator: Arc<dyn MergeOperator>) -> Db {
    Db::open("db", with(&memory(), operator)).unwrap()
}

fn number(value: Option<crate::Slice>) -> Option<u64> {
    value.map(|value| u64::from_le_bytes((*value).try_into().unwrap()))
}

fn one() -> [u8; 8] {
    1_u64.to_le_bytes()
}

fn failure(outcome: Result<Option<crate::Slice>>) -> MergeFailure {
    match outcome {
        Err(Error::Merge(failure)) => *failure,
        other => panic!("{other:?}"),
    }
}

type Model = BTreeMap<Vec<u8>, Vec<u8>>;
type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

/// The reads of a store or a snapshot.
trait Reads {
    fn get(&self, key: &[u8]) -> Option<crate::Slice>;
    fn multi_get(&self, keys: &[Vec<u8>]) -> Vec<Option<crate::Slice>>;
    fn contains(&self, key: &[u8]) -> bool;
    fn range(&self, bounds: (Bound<&[u8]>, Bound<&[u8]>)) -> crate::Range;
    fn cursor(&self) -> crate::DbCursor;
}

macro_rules! reads {
    ($($reader:ty),*) => {
        $(impl Reads for $reader {
            fn get(&self, key: &[u8]) -> Option<crate::Slice> {
                self.get(key).unwrap()
            }

            fn multi_get(&self, keys: &[Vec<u8>]) -> Vec<Option<crate::Slice>> {
                self.multi_get(keys).unwrap()
            }

            fn contains(&self, key: &[u8]) -> bool {
                self.contains_key(key).unwrap()
            }

            fn range(&self, bounds: (Bound<&[u8]>, Bound<&[u8]>)) -> crate::Range {
                self.range(bounds)
            }

            fn cursor(&self) -> crate::DbCursor {
                self.cursor().unwrap()
            }
        })*
    };
}
reads!(Db, Snapshot);

fn pairs(range: impl Iterator<Item = Result<(crate::Slice, crate::Slice)>>) -> Pairs {
    range.map(|entry| entry.map(|(key, value)| (key.to_vec(), value.to_vec())).unwrap()).collect()
}

/// Compares every way to read with the model.
fn compare(reader: &impl Reads, model: &Model, rng: &mut fastrand::Rng) {
    let keys: Vec<Vec<u8>> = (0..KEYS).map(key).collect();
    let values = reader.multi_get(&keys);
    for (key, found) in keys.iter().zip(values) {
        let expected = model.get(key).map(Vec::as_slice);
        assert_eq!(found.as_deref(), expected, "multi-get of {}", key.escape_ascii());
        assert_eq!(reader.get(key).as_deref(), expected, "get of {}", key.escape_ascii());
        assert_eq!(reader.contains(key), expected.is_some());
    }
    let (from, to) = (key(rng.u32(..KEYS)), key(rng.u32(..KEYS)));
    let bounds = (Bound::Included(&*from), Bound::Excluded(&*to));
    let within = |(key, _): &(&Vec<u8>, &Vec<u8>)| **key >= from && **key < to;
    let expected: Pairs =
        model.iter().filter(within).map(|(key, value)| (key.clone(), value.clone())).collect();
    assert_eq!(pairs(reader.range(bounds)), expected);
    let mut backward = pairs(reader.range(bounds).rev());
    backward.reverse();
    assert_eq!(backward, expected);
    let all: Pairs = model.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
    let mut visited = Pairs::new();
    let mut cursor = reader.cursor();
    cursor.seek_to_first().unwrap();
    cursor
        .visit(|key, value| {
            visited.push((key.to_vec(), value.to_vec()));
            true
        })
        .unwrap();
    assert_eq!(visited, all);
    visited.clear();
    cursor.seek_to_last().unwrap();
    cursor
        .visit_back(|key, value| {
            visited.push((key.to_vec(), value.to_vec()));
            true
        })
        .unwrap();
    visited.reverse();
    assert_eq!(visited, all);
    wander(&mut cursor, model, rng);
}

/// Moves a cursor back and forth.
fn wander(cursor: &mut crate::DbCursor, model: &Model, rng: &mut fastrand::Rng) {
    let all: Vec<_> = model.iter().collect();
    let start = key(rng.u32(..KEYS));
    cursor.seek(&start).unwrap();
    let mut at = all.iter().position(|(key, _)| **key >= start);
    for _ in 0..20 {
        let expected = at.map(|at| all[at]);
        let found = cursor.key().map(<[u8]>::to_vec).zip(cursor.value());
        let found = found.as_ref().map(|(key, value)| (&**key, &**value));
        assert_eq!(found, expected.map(|(key, value)| (&**key, &**value)));
        let Some(here) = at else { return };
        at = match rng.bool() {
            true => {
                cursor.next().unwrap();
                (here + 1 < all.len()).then_some(here + 1)
            }
            false => {
                cursor.prev().unwrap();
                here.checked_sub(1)
            }
        };
    }
}

const KEYS: u32 = 12;

fn key(number: u32) -> Vec<u8> {
    // Some keys are longer than what cursors compare first.
    match number % 3 {
        0 => format!("key {number:02}").into_bytes(),
        _ => format!("a long key with the number {number:02}").into_bytes(),
    }
}

/// A store, its model, and snapshots of both.
struct Pair {
    vfs: Arc<dyn Vfs>,
    db: Db,
    model: Model,
    snapshots: Vec<(Snapshot, Model)>,
}

impl Pair {
    fn write(&mut self, rng: &mut fastrand::Rng, round: u32) {
        let mut batch = WriteBatch::new();
        for _ in 0..*rng.choice(&[1, 1, 5, 40]).unwrap() {
            let (key, other) = (key(rng.u32(..KEYS)), key(rng.u32(..KEYS)));
            match rng.u32(..20) {
                0..13 => {
                    let sign = if rng.u32(..12) == 0 { "!" } else { "" };
                    let rest = if rng.u32(..3) == 0 { String::new() } else { round.to_string() };
                    let operand = format!("{sign}{rest}").into_bytes();
                    batch.merge(&key, &operand);
                    let value = Append::value(self.model.get(&key).map(Vec::as_slice), &operand);
                    match value {
                        Some(value) => _ = self.model.insert(key, value),
                        None => _ = self.model.remove(&key),
                    }
                }
                13..17 => {
                    let value = format!("{round}v").into_bytes();
                    batch.put(&key, &value);
                    self.model.insert(key, value);
                }
                17..19 => {
                    batch.delete(&key);
                    self.model.remove(&key);
                }
                _ => {
                    batch.delete_range(&*key..&*other);
                    self.model.retain(|here, _| *here < key || *here >= other);
                }
            }
        }
        self.db.write(batch).unwrap();
    }

    fn step(&mut self, rng: &mut fastrand::Rng, round: u32) {
        match rng.u32(..24) {
            0..12 => self.write(rng, round),
            12 | 13 if self.snapshots.len() < 4 => {
                self.snapshots.push((self.db.snapshot(), self.model.clone()));
            }
            14 | 15 if !self.snapshots.is_empty() => {
                let (snapshot, model) =
                    self.snapshots.swap_remove(rng.usize(..self.snapshots.len()));
                compare(&snapshot, &model, rng);
            }
            16..19 => self.db.flush().unwrap(),
            19 => self.db.compact_range(&*key(3)..&*key(9)).unwrap(),
            20 => self.db.compact_all().unwrap(),
            21 => {
                self.snapshots.clear();
                self.db.clone().close().unwrap();
                let operator = Append::new(rng.bool());
                self.db = Db::open("db", with(&self.vfs, operator)).unwrap();
            }
            22 => drop(self.db.verify().unwrap()),
            _ => {
                for (snapshot, model) in &self.snapshots {
                    compare(snapshot, model, rng);
                }
                compare(&self.db, &self.model, rng);
            }
        }
    }
}

/// Merges among puts, deletes of keys and ranges, snapshots, flushes, compactions and reopening.
#[test]
fn merges_match_a_model() {
    for seed in 0..60 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let vfs = memory();
        let db = Db::open("db", with(&vfs, Append::new(rng.bool()))).unwrap();
        let mut pair = Pair { vfs, db, model: Model::new(), snapshots: Vec::new() };
        for round in 0..120 {
            pair.step(&mut rng, round);
        }
        compare(&pair.db, &pair.model, &mut rng);
        pair.db.compact_all().unwrap();
        pair.db.verify().unwrap();
        compare(&pair.db, &pair.model, &mut rng);
    }
}

/// The number of entries in tables, and how many of them are operands.
fn entries(db: &Db) -> (u64, u64) {
    let tables = db.engine().version();
    let (mut all, mut operands) = (0, 0);
    for (_, table) in tables.tables() {
        let path = crate::files::table_path(db.dir(), table.number);
        let opened = crate::inspect::Table::open(&**db.vfs(), &path).unwrap();
        for entry in opened.scan(Bound::Unbounded, Bound::Unbounded).unwrap() {
            all += 1;
            operands += u64::from(entry.unwrap().kind == trommel_base::EntryKind::Merge);
        }
    }
    (all, operands)
}

/// A flush folds the operands that it has of a key, and a compaction to the last level leaves only
/// values.
#[test]
fn operands_are_folded() {
    let db = open(Merge::counter());
    for _ in 0..300 {
        db.merge("a", one()).unwrap();
    }
    db.put("b", one()).unwrap();
    db.merge("b", one()).unwrap();
    db.flush().unwrap();
    assert_eq!(entries(&db), (2, 1), "what is below the first is unknown");
    let snapshot = db.snapshot();
    db.merge("a", one()).unwrap();
    db.merge("b", one()).unwrap();
    db.compact_all().unwrap();
    assert_eq!(entries(&db), (4, 2), "the snapshot sees the older ones");
    assert_eq!(number(snapshot.get("a").unwrap()), Some(300));
    assert_eq!(number(snapshot.get("b").unwrap()), Some(2));
    drop(snapshot);
    db.compact_all().unwrap();
    assert_eq!(entries(&db), (2, 0));
    assert_eq!(number(db.get("a").unwrap()), Some(301));
    assert_eq!(number(db.get("b").unwrap()), Some(3));
    db.delete("a").unwrap();
    db.flush().unwrap();
    db.merge("a", one()).unwrap();
    assert_eq!(number(db.get("a").unwrap()), Some(1));
    db.compact_all().unwrap();
    assert_eq!(number(db.get("a").unwrap()), Some(1));
}

/// An operator may return no value; the key is then deleted, including its older versions.
#[test]
fn an_operator_may_leave_no_value() {
    let db = open(Append::new(true));
    db.put("a", "below").unwrap();
    db.compact_all().unwrap();
    db.put("a", "1").unwrap();
    db.merge("a", "!").unwrap();
    for flushed in [false, true] {
        assert_eq!(db.get("a").unwrap(), None, "flushed {flushed}");
        assert!(!db.contains_key("a").unwrap());
        assert_eq!(db.iter().count() + db.iter().rev().count(), 0);
        assert!(
            db.insert_if_absent("a", "").unwrap()
                && db.compare_and_set("a", Some(b""), None).unwrap()
        );
        db.merge("a", "!").unwrap();
        db.flush().unwrap();
    }
    db.compact_all().unwrap();
    assert_eq!(entries(&db), (0, 0));
}

/// More operands than are looked up one by one, or merged at once, and larger than are collected
/// without a partial merge.
#[test]
fn long_chains_are_read_and_kept() {
    for has_partial in [false, true] {
        let db = open(Append::new(has_partial));
        db.put("a", "base").unwrap();
        let mut expected = Some(b"base".to_vec());
        for round in 0..3000_u32 {
            let operand = [round as u8 | 0x80; 1];
            db.merge("a", operand).unwrap();
            expected = Append::value(expected.as_deref(), &operand);
            if round % 700 == 17 {
                db.engine().exclusively(|leader| db.engine().rotate(leader)).unwrap();
            }
        }
        assert_eq!(db.get("a").unwrap().as_deref(), expected.as_deref());
        let entry = db.iter().next_back().unwrap().unwrap();
        assert_eq!(Some(&*entry.1), expected.as_deref());
        db.compact_all().unwrap();
        assert_eq!(db.get("a").unwrap().as_deref(), expected.as_deref());
        assert_eq!(entries(&db), (1, 0));
    }
}

/// Neither an error nor a panic of the operator loses anything, or fails more than the reads of the
/// key.
#[test]
fn failures_of_the_operator_are_contained() {
    for panics in [false, true] {
        let operator = Append::new(true);
        let failing = if panics { &operator.panics } else { &operator.fails };
        let db = open(Arc::<Append>::clone(&operator));
        db.put("a", "1").unwrap();
        db.put("b", "2").unwrap();
        db.flush().unwrap();
        db.merge("a", "x").unwrap();
        db.merge("a", "y").unwrap();
        db.put("c", "3").unwrap();
        db.merge("c", "z").unwrap();
        failing.store(true, Ordering::Relaxed);
        for step in 0..4 {
            let MergeFailure { operator, key, cause, .. } = failure(db.get("a"));
            assert_eq!((&*operator, &*key), ("append", &b"a"[..]));
            let MergeCause::Failed(why) = cause else { panic!("{cause:?}") };
            assert!(why.contains(if panics { "no more" } else { "not now" }), "{why}");
            assert!(matches!(db.multi_get(&["b", "a"]), Err(Error::Merge(_))));
            assert!(matches!(db.contains_key("a"), Err(Error::Merge(_))));
            assert!(matches!(db.iter().next(), Some(Err(Error::Merge(_)))));
            assert!(matches!(db.iter().next_back(), Some(Err(Error::Merge(_)))));
            let mut cursor = db.cursor_in("b".."c").unwrap();
            cursor.seek_to_first().unwrap();
            assert_eq!(cursor.key(), Some(&b"b"[..]), "the keys around are not asked for");
            cursor.visit(|_, _| true).unwrap();
            cursor.seek_to_last().unwrap();
            cursor.visit_back(|_, _| true).unwrap();
            assert_eq!(db.get("b").unwrap().unwrap(), b"2");
            match step {
                0 => db.flush().unwrap(),
                1 => db.compact_all().unwrap(),
                2 => db.merge("a", "!").map(drop).unwrap(),
                _ => db.verify().map(drop).unwrap(),
            }
        }
        db.merge("a", "n").unwrap();
        failing.store(false, Ordering::Relaxed);
        assert_eq!(db.get("a").unwrap().unwrap(), b"n");
        assert_eq!(db.get("c").unwrap().unwrap(), b"3z");
        db.compact_all().unwrap();
        assert_eq!(entries(&db), (3, 0));
        assert_eq!(db.get("c").unwrap().unwrap(), b"3z");
    }
}

/// A store that is opened without its operator keeps the operands, which only that operator can
/// apply.
#[test]
fn a_store_without_its_operator_keeps_the_operands() {
    let vfs = memory();
    let db = Db::open("db", with(&vfs, Append::new(false))).unwrap();
    db.put("a", "1").unwrap();
    db.merge("a", "2").unwrap();
    db.merge("b", "3").unwrap();
    db.merge("b", "4").unwrap();
    db.put("c", "5").unwrap();
    db.close().unwrap();
    let refused = Db::open("db", with(&vfs, Merge::counter())).unwrap_err();
    let Error::OtherMergeOperator { recorded, given, .. } = &refused else { panic!("{refused}") };
    assert_eq!((&**recorded, &**given), ("append", "trommel.counter"));
    assert!(refused.to_string().contains("open it with the former"), "{refused}");
    let db = Db::open("db", options(&vfs)).unwrap();
    for step in 0..3 {
        let MergeFailure { operator, key, cause, .. } = failure(db.get("b"));
        assert_eq!((&*operator, &*key, cause), ("append", &b"b"[..], MergeCause::NoOperator));
        assert_eq!(db.get("c").unwrap().unwrap(), b"5");
        assert!(matches!(db.merge("b", "6"), Err(Error::Merge(_))));
        let mut batch = WriteBatch::new();
        batch.put("c", "6").merge("b", "6");
        assert!(matches!(db.write(&batch), Err(Error::Merge(_))));
        assert!(matches!(db.begin().merge("b", "6"), Err(Error::Merge(_))));
        if step == 0 { db.flush().unwrap() } else { db.compact_all().unwrap() }
    }
    assert_eq!(entries(&db), (5, 3), "none is merged, nor what is below it");
    db.close().unwrap();
    let db = Db::open("db", with(&vfs, Append::new(false))).unwrap();
    assert_eq!(db.get("a").unwrap().unwrap(), b"12");
    assert_eq!(db.get("b").unwrap().unwrap(), b"34");
}

/// A store with a built-in operator uses it again without being given it.
#[test]
fn a_built_in_operator_is_found_by_its_name() {
    let vfs = memory();
    let db = Db::open("db", options(&vfs)).unwrap();
    let none = failure(db.merge("a", one()).map(|_| None));
    assert_eq!((&*none.operator, none.cause), ("", MergeCause::NoOperator));
    db.close().unwrap();
    let db = Db::open("db", with(&vfs, Merge::counter())).unwrap();
    assert_eq!(db.engine().version().merge_operator, None, "nothing was merged yet");
    db.merge("a", one()).unwrap();
    db.merge("a", one()).unwrap();
    db.checkpoint("copy").unwrap();
    db.close().unwrap();
    for dir in ["db", "copy"] {
        let db = Db::open(dir, options(&vfs)).unwrap();
        assert_eq!(number(db.get("a").unwrap()), Some(2), "{dir}");
        db.merge("a", one()).unwrap();
        assert_eq!(number(db.get("a").unwrap()), Some(3), "{dir}");
        let shown = db.options().settings();
        assert!(shown.contains(&("merge_operator", "\"trommel.counter\"".to_owned())));
        let other = |o: Options| o.writes(|w| w.merge_operator(Merge::counter()));
        assert!(matches!(db.set_options(other), Err(Error::InvalidOption { .. })));
        db.set_options(|o| o.compaction(|c| c.l0_trigger(3))).unwrap();
        db.close().unwrap();
    }
    let named = Options::default().set("merge_operator", "trommel.max").unwrap();
    assert!(named.settings().contains(&("merge_operator", "\"trommel.max\"".to_owned())));
    assert!(Options::default().set("merge_operator", "mine").is_err());
    for bad in ["", "a\nb", &"n".repeat(201)] {
        let operator = Merge::associative(bad, |_, a, _| Ok(a.to_vec()));
        let refused = Db::open("other", with(&vfs, operator));
        assert!(matches!(refused, Err(Error::InvalidOption { .. })), "{bad:?}");
    }
}

/// The name is durable before the first operand is: after a crash at any point, a store with
/// operands has it.
#[test]
fn the_operator_is_recorded_before_the_first_operand() {
    let disk = Arc::new(SimDisk::new());
    let vfs: Arc<dyn Vfs> = Arc::<SimDisk>::clone(&disk);
    let db = Db::open("db", with(&vfs, Merge::counter())).unwrap();
    db.put("a", one()).unwrap();
    let mut batch = WriteBatch::new();
    db.write(batch.merge("a", one())).unwrap();
    for policy in [Policy::EVERYTHING, Policy::SYNCED] {
        let vfs: Arc<dyn Vfs> = Arc::new(disk.crash(policy, 0).disk());
        let again = Db::open("db", options(&vfs)).unwrap();
        let value = number(again.get("a").unwrap());
        assert_eq!(again.engine().version().merge_operator.as_deref(), Some("trommel.counter"));
        assert!(value == Some(2) || policy == Policy::SYNCED, "{value:?}");
    }
}

/// Reads of a transaction apply its own operands; only a read of the store's value counts as a
/// read.
#[test]
fn transactions_merge() {
    let db = open(Merge::counter());
    db.put("a", one()).unwrap();
    let (unread, read) = (db.begin(), db.begin());
    for tx in [&unread, &read] {
        tx.merge("a", one()).unwrap();
        tx.merge("new", one()).unwrap();
    }
    assert_eq!(number(read.get("a").unwrap()), Some(2));
    db.merge("a", one()).unwrap();
    unread.commit().unwrap();
    assert!(matches!(read.commit(), Err(Error::Conflict(_))));
    assert_eq!(number(db.get("a").unwrap()), Some(3));
    assert_eq!(number(db.get("new").unwrap()), Some(1));
    let tx = db.begin();
    tx.put("a", 7_u64.to_le_bytes()).unwrap();
    tx.set_savepoint();
    tx.merge("a", one()).unwrap();
    tx.delete_range("b"..).unwrap();
    tx.merge("new", one()).unwrap();
    tx.merge("z", one()).unwrap();
    assert_eq!(number(tx.get("new").unwrap()), Some(1), "it was deleted before");
    assert!(tx.contains_key("z").unwrap());
    let found = pairs(tx.iter());
    let expected = [("a", 8_u64), ("new", 1), ("z", 1)];
    let expected = expected.map(|(key, n)| (key.as_bytes().to_vec(), n.to_le_bytes().to_vec()));
    assert_eq!(found, expected);
    let mut backward = pairs(tx.iter().rev());
    backward.reverse();
    assert_eq!(backward, expected);
    let values = tx.multi_get(&["z", "a", "new", "none"]).unwrap();
    let values: Vec<_> = values.into_iter().map(number).collect();
    assert_eq!(values, [Some(1), Some(8), Some(1), None]);
    tx.rollback_to_savepoint().unwrap();
    assert_eq!(number(tx.get("a").unwrap()), Some(7));
    tx.merge("a", one()).unwrap();
    tx.merge("new", one()).unwrap();
    tx.commit().unwrap();
    assert_eq!(number(db.get("a").unwrap()), Some(8));
    assert_eq!(number(db.get("new").unwrap()), Some(2));
    let long = db.begin();
    assert!(matches!(long.merge(vec![0; 70_000], ""), Err(Error::KeyTooLong { .. })));
}

/// A transaction that merges, deletes and iterates gives what a model gives.
#[test]
fn a_transaction_with_merges_matches_a_model() {
    for seed in 0..80 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let db = open(Append::new(rng.bool()));
        let mut model = Model::new();
        for _ in 0..rng.u32(..12) {
            let key = key(rng.u32(..KEYS));
            db.merge(&key, "s").unwrap();
            let value = Append::value(model.get(&key).map(Vec::as_slice), b"s");
            model.insert(key, value.unwrap());
        }
        let tx = db.begin();
        for _ in 0..rng.u32(..40) {
            let (one, other) = (key(rng.u32(..KEYS)), key(rng.u32(..KEYS)));
            match rng.u32(..8) {
                0..4 => {
                    let operand = *rng.choice(&[&b"x"[..], b"!", b"!y", b""]).unwrap();
                    tx.merge(&one, operand).unwrap();
                    match Append::value(model.get(&one).map(Vec::as_slice), operand) {
                        Some(value) => _ = model.insert(one, value),
                        None => _ = model.remove(&one),
                    }
                }
                4 => {
                    tx.put(&one, "p").unwrap();
                    model.insert(one, b"p".to_vec());
                }
                5 => {
                    tx.delete(&one).unwrap();
                    model.remove(&one);
                }
                6 => {
                    tx.delete_range(&*one..&*other).unwrap();
                    model.retain(|key, _| *key < one || *key >= other);
                }
                _ => {
                    let found = tx.get(&one).unwrap();
                    assert_eq!(found.as_deref(), model.get(&one).map(Vec::as_slice));
                    assert_eq!(pairs(tx.iter()), Vec::from_iter(model.clone()));
                    assert_eq!(pairs(tx.iter().rev()).len(), model.len());
                }
            }
        }
        tx.commit().unwrap();
        assert_eq!(pairs(db.iter()), Vec::from_iter(model));
    }
}

/// A filter that records the values that it is called for, and removes one.
#[derive(Debug, Default)]
struct Noted(std::sync::Mutex<Vec<Vec<u8>>>);

impl CompactionFilter for Noted {
    fn name(&self) -> &'static str {
        "noted"
    }

    fn filter(&self, _: &CompactionContext, _: &[u8], value: &[u8]) -> FilterDecision {
        self.0.lock().unwrap().push(value.to_vec());
        if value.ends_with(b"-") { FilterDecision::Remove } else { FilterDecision::Keep }
    }
}

/// A compaction filter gets folded values, and neither operands nor the values below them.
#[test]
fn a_compaction_filter_sees_no_operands() {
    let (noted, vfs) = (Arc::new(Noted::default()), memory());
    let operator = Append::new(false);
    let filter = Arc::<Noted>::clone(&noted);
    let options = with(&vfs, Arc::<Append>::clone(&operator));
    let db = Db::open("db", options.compaction(|c| c.compaction_filter(filter))).unwrap();
    let write = |key: &str, operand: &str| {
        db.put(key, "1").unwrap();
        db.merge(key, operand).unwrap();
        db.merge(key, operand).unwrap();
    };
    write("a", "x");
    write("b", "-");
    operator.fails.store(true, Ordering::Relaxed);
    write("c", "y");
    db.compact_all().unwrap();
    assert_eq!(*noted.0.lock().unwrap(), Vec::<Vec<u8>>::new());
    operator.fails.store(false, Ordering::Relaxed);
    db.compact_all().unwrap();
    assert_eq!(*noted.0.lock().unwrap(), [b"1xx".to_vec(), b"1--".to_vec(), b"1yy".to_vec()]);
    assert_eq!(db.get("b").unwrap(), None);
    assert_eq!(entries(&db), (2, 0));
}

/// Each operand expires by its own time, folded or not.
#[test]
fn operands_expire_one_by_one() {
    for folded in [false, true] {
        let (clock, vfs) = (WallClock::default(), memory());
        let options = with(&clock.over(vfs), Merge::counter());
        let options = options.writes(|w| w.ttl(Duration::from_secs(100)));
        let db = Db::open("db", options).unwrap();
        let fold = || {
            if folded {
                db.compact_all().unwrap();
            }
        };
        for _ in 0..3 {
            db.merge("a", one()).unwrap();
            db.merge("a", one()).unwrap();
            fold();
            clock.advance(Duration::from_secs(40));
        }
        assert_eq!(number(db.get("a").unwrap()), Some(4), "folded {folded}: two are 120 s old");
        fold();
        clock.advance(Duration::from_secs(40));
        assert_eq!(number(db.get("a").unwrap()), Some(2));
        fold();
        assert_eq!(number(db.iter().next().unwrap().map(|entry| Some(entry.1)).unwrap()), Some(2));
        clock.advance(Duration::from_secs(80));
        assert_eq!(db.get("a").unwrap(), None);
        assert_eq!(db.iter().count(), 0);
    }
}

/// A repair copies operands, with or without their operator.
#[test]
fn a_repair_keeps_operands() {
    let vfs = memory();
    let db = Db::open("db", with(&vfs, Append::new(false))).unwrap();
    db.put("a", "1").unwrap();
    db.merge("a", "2").unwrap();
    db.flush().unwrap();
    db.merge("a", "3").unwrap();
    db.merge("b", "4").unwrap();
    db.merge("gone", "5").unwrap();
    db.flush().unwrap();
    db.delete_range("gone"..).unwrap();
    db.merge("b", "6").unwrap();
    db.close().unwrap();
    let how = RepairOptions::default();
    let report = Db::repair("db", "new", options(&vfs), how).unwrap();
    assert!(report.is_complete() && report.saved.entries == 2, "{report:?}");
    let other = Db::repair("db", "other", with(&vfs, Merge::max()), how);
    assert!(matches!(other, Err(Error::OtherMergeOperator { .. })));
    let new = Db::open("new", with(&vfs, Append::new(false))).unwrap();
    let expected = [("a", "123"), ("b", "46")];
    let expected =
        expected.map(|(key, value)| (key.as_bytes().to_vec(), value.as_bytes().to_vec()));
    assert_eq!(pairs(new.iter()), expected);
}

/// A large compaction: if its inputs from above stayed while its first outputs are installed, each
/// operand would be applied twice.
#[test]
fn compactions_of_operands_are_installed_at_once() {
    let db = open(Append::new(true));
    let filler = [7; 400];
    let mut expected = BTreeMap::new();
    for round in 0..6 {
        for number in 0..200_u32 {
            let key = format!("{number:04}");
            if round == 0 {
                db.put(&key, filler).unwrap();
                expected.insert(key.clone(), filler.to_vec());
            }
            db.merge(&key, [round]).unwrap();
            let value = expected.get_mut(&key).unwrap();
            *value = Append::value(Some(value), &[round]).unwrap();
        }
        db.flush().unwrap();
        let engine = db.engine();
        let version = engine.version();
        let upper: Vec<_> = version.levels[0].clone();
        if !upper.is_empty() {
            let plan = crate::compaction::plan::Plan {
                level: 0,
                range: crate::compaction::key_range::KeyBounds::hull(&upper).unwrap(),
                lower: version.levels[6].clone(),
                upper,
                through: Vec::new(),
                output_level: 6,
                trivial_move: false,
                reason: crate::compaction::plan::Reason::Runs,
                grandparents: Vec::new(),
            };
            assert_eq!(engine.slices(plan).unwrap().len(), 1);
        }
        db.compact_all().unwrap();
    }
    let found: Vec<_> = db.iter().map(|entry| entry.unwrap().1.to_vec()).collect();
    assert_eq!(found, expected.into_values().collect::<Vec<_>>());
}
