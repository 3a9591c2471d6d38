//! The merge operator of the sequences, and what it makes of the model. Merges beside failures,
//! expiry, transactions and compactions.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use trommel::vfs::Vfs;
use trommel::{
    CompactionContext, CompactionFilter, Compression, Db, Error, FilterDecision, Merge,
    MergeOperator, Options,
};
use trommel_sim::{MemoryVfs, WallClock};

use crate::iterators::Model;
use crate::keys::Bytes;
use crate::rng::Rng;
use crate::threads::in_time;

/// Most bytes of a merged value.
const KEPT: usize = 300;

/// Appends operands, and keeps the last bytes. An empty operand that follows nothing leaves no
/// value.
#[derive(Debug)]
struct Append {
    /// Whether operands can be merged without the value below them.
    has_partial: bool,
}

/// `so_far` and an operand.
fn appended(mut so_far: Vec<u8>, operand: &[u8]) -> Vec<u8> {
    so_far.extend_from_slice(operand);
    so_far.drain(..so_far.len().saturating_sub(KEPT));
    so_far
}

impl MergeOperator for Append {
    fn name(&self) -> &'static str {
        "model: append"
    }

    fn full_merge(
        &self,
        _: &[u8],
        existing: Option<&[u8]>,
        operands: &[&[u8]],
    ) -> Result<Option<Vec<u8>>, String> {
        let so_far = existing.unwrap_or_default().to_vec();
        let value = operands.iter().fold(so_far, |so_far, operand| appended(so_far, operand));
        Ok((existing.is_some() || !value.is_empty()).then_some(value))
    }

    fn partial_merge(&self, _: &[u8], operands: &[&[u8]]) -> Option<Vec<u8>> {
        let merged = || operands.iter().fold(Vec::new(), |so_far, one| appended(so_far, one));
        self.has_partial.then(merged)
    }
}

/// The options with the operator, in one of its forms.
pub(crate) fn with_operator(rng: &mut Rng, options: Options) -> Options {
    let operator = Arc::new(Append { has_partial: rng.once_in(2) });
    options.writes(|w| w.merge_operator(operator))
}

/// An operand.
pub(crate) fn operand(rng: &mut Rng) -> Vec<u8> {
    let len = *rng.pick(&[0, 1, 1, 2, 8, 40]);
    (0..len).map(|_| rng.below(256) as u8).collect()
}

/// Merges an operand into a key of the model.
pub(crate) fn apply(model: &mut Model, key: Bytes, operand: &[u8]) {
    let existing = model.get(&key).map(|value| value.to_vec());
    let value = appended(existing.clone().unwrap_or_default(), operand);
    if existing.is_some() || !value.is_empty() {
        model.insert(key, Rc::from(value));
    }
}

fn number(value: Option<trommel::Slice>) -> u64 {
    value.and_then(|value| (*value).try_into().ok()).map_or(0, u64::from_le_bytes)
}

fn one() -> [u8; 8] {
    1_u64.to_le_bytes()
}

fn small(vfs: &Arc<dyn Vfs>, operator: Arc<dyn MergeOperator>) -> Options {
    Options::default()
        .vfs(Arc::clone(vfs))
        .background_threads(0)
        .writes(|w| w.merge_operator(operator).write_buffer_bytes(16 << 10))
        .compaction(|c| c.table_bytes(4 << 10).base_level_bytes(16 << 10))
}

fn memory() -> Arc<dyn Vfs> {
    Arc::new(MemoryVfs::new())
}

/// A store is not opened with an operator that would read its operands differently.
#[test]
fn another_operator_is_refused() {
    let vfs = memory();
    let db = Db::open("db", small(&vfs, Merge::max())).unwrap();
    db.merge("a", one()).unwrap();
    db.close().unwrap();
    let refused = Db::open("db", small(&vfs, Merge::counter()));
    assert!(matches!(refused, Err(Error::OtherMergeOperator { .. })), "{refused:?}");
    assert_eq!(number(Db::open("db", small(&vfs, Merge::max())).unwrap().get("a").unwrap()), 1);
}

/// A counter with a `ttl` holds what was counted within it, whether or not it was compacted.
#[test]
fn operands_expire_one_by_one() {
    for folded in [false, true] {
        let clock = WallClock::default();
        let options = small(&clock.over(memory()), Merge::counter());
        let options = options.writes(|w| w.ttl(Duration::from_secs(100)));
        let db = Db::open("db", options).unwrap();
        for expected in [1, 2, 3, 3, 3] {
            db.merge("a", one()).unwrap();
            if folded {
                db.compact_all().unwrap();
            }
            assert_eq!(number(db.get("a").unwrap()), expected, "folded {folded}");
            clock.advance(Duration::from_secs(40));
        }
    }
}

/// An operator that fails in between, by an error or a panic, loses no operand.
#[test]
fn failing_operators_lose_nothing() {
    static ROUND: AtomicU64 = AtomicU64::new(0);
    let add = |_: &[u8], a: &[u8], b: &[u8]| match ROUND.load(Ordering::Relaxed) % 7 {
        0 | 1 => Err("not this time".to_owned()),
        2 => panic!("nor this time"),
        _ => Ok([a, b].concat()),
    };
    let db = Db::open("db", small(&memory(), Merge::associative("sometimes", add))).unwrap();
    let mut expected = b"0".to_vec();
    db.put("key", "0").unwrap();
    for round in 0..60_u8 {
        ROUND.store(round.into(), Ordering::Relaxed);
        db.merge("key", [round]).unwrap();
        db.merge("key", [round, round]).unwrap();
        expected.extend([round; 3]);
        match round % 4 {
            0 => db.flush().unwrap(),
            1 => db.compact_all().unwrap(),
            _ => {}
        }
        let value = db.get("key");
        assert_eq!(value.is_err(), round % 7 < 3, "{value:?}");
        if let Ok(value) = value {
            assert_eq!(value.unwrap(), expected);
        }
    }
}

/// Counts by merges, transactions and comparisons beside each other: each counts once.
#[test]
fn transactions_count_merges_once() {
    const EACH: u64 = 400;
    let options = small(&memory(), Merge::counter()).background_threads(1);
    let db = Db::open("db", options).unwrap();
    let count = |way: usize| match way {
        0 | 1 => drop(db.merge("n", one()).unwrap()),
        2 => loop {
            let before = db.get("n").unwrap();
            let next = number(before.clone()) + 1;
            let next = next.to_le_bytes();
            if db.compare_and_set("n", before.as_deref(), Some(&next)).unwrap() {
                return;
            }
        },
        3 => db
            .transaction(|tx| {
                let next = number(tx.get("n")?) + 1;
                tx.put("n", next.to_le_bytes())
            })
            .unwrap(),
        _ => db
            .transaction(|tx| {
                // Its own operand makes two of it; it is put back as one.
                tx.merge("n", one())?;
                let read = number(tx.get("n")?);
                tx.put("n", read.to_le_bytes())
            })
            .unwrap(),
    };
    thread::scope(|scope| {
        for way in 0..5 {
            scope.spawn(move || (0..EACH).for_each(|_| count(way)));
        }
    });
    assert_eq!(number(db.get("n").unwrap()), 5 * EACH);
    db.compact_all().unwrap();
    assert_eq!(number(db.get("n").unwrap()), 5 * EACH);
}

/// Readers beside large compactions: until one is installed its inputs count, and then only its
/// outputs.
#[test]
fn operands_count_once_beside_compactions() {
    const KEYS: u32 = 300;
    let options = small(&memory(), Merge::counter()).background_threads(2);
    let options = options.compression(Compression::None).filters("blocked:10".parse().unwrap());
    let db = Db::open("db", options).unwrap();
    let key = |number: u32| format!("{number:04}").repeat(40);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut least = vec![0; KEYS as usize];
                while !is_over.load(Ordering::Relaxed) {
                    for entry in db.iter() {
                        let (found, value) = entry.unwrap();
                        let at: u32 = std::str::from_utf8(&found[..4]).unwrap().parse().unwrap();
                        let value = number(Some(value));
                        assert!((least[at as usize]..=ROUNDS).contains(&value), "{at}: {value}");
                        least[at as usize] = value;
                    }
                }
            });
        }
        for round in 0..ROUNDS {
            (0..KEYS).for_each(|at| _ = db.merge(key(at), one()).unwrap());
            if round % 4 == 3 {
                db.compact_all().unwrap();
            }
        }
        is_over.store(true, Ordering::Relaxed);
    });
    for at in 0..KEYS {
        assert_eq!(number(db.get(key(at)).unwrap()), ROUNDS, "{at}");
    }
}

/// Merges into each key.
const ROUNDS: u64 = 40;

/// Entries, and keys, in tables.
fn in_tables(db: &Db) -> (u64, u64) {
    let levels = db.stats().levels;
    levels
        .iter()
        .fold((0, 0), |(entries, keys), level| (entries + level.entries, keys + level.keys))
}

/// Regression: from its first operand on, a store reclaimed what newer versions hide only when a
/// level was full, wherever it was.
#[test]
fn hidden_versions_are_reclaimed_in_a_store_with_an_operator() {
    let options = small(&memory(), Merge::counter()).background_threads(1);
    let db = Db::open("db", options).unwrap();
    db.merge("counter", one()).unwrap();
    let fill = |value: &str| {
        (0..100).for_each(|nth| _ = db.put(format!("{nth:03}"), value).unwrap());
    };
    fill("old");
    let snapshot = db.snapshot();
    fill("new");
    db.compact_all().unwrap();
    assert_eq!(in_tables(&db), (201, 101), "the snapshot needs both");
    drop(snapshot);
    db.wait_idle().unwrap();
    assert_eq!(in_tables(&db), (101, 101));
}

/// Operands that cannot be merged are no reason to rewrite their table again and again.
#[test]
fn tables_of_operands_are_not_rewritten_for_ever() {
    let never = Merge::associative("never", |_, _, _| Err("not today".to_owned()));
    let options = small(&memory(), never).background_threads(1);
    in_time(move || {
        let db = Db::open("db", options).unwrap();
        for round in [[1], [2]] {
            (0..100).for_each(|nth| _ = db.merge(format!("{nth:03}"), round).unwrap());
        }
        db.compact_all().unwrap();
        db.wait_idle().unwrap();
        assert_eq!(in_tables(&db), (200, 100));
        let before = db.stats().background.compactions;
        drop(db.snapshot());
        db.wait_idle().unwrap();
        assert_eq!(db.stats().background.compactions, before, "nothing is left to do");
    });
}

/// Removes the value "base".
#[derive(Debug)]
struct NoBase;

impl CompactionFilter for NoBase {
    fn name(&self) -> &'static str {
        "no base"
    }

    fn filter(&self, _: &CompactionContext, _: &[u8], value: &[u8]) -> FilterDecision {
        if value == b"base" { FilterDecision::Remove } else { FilterDecision::Keep }
    }
}

/// Regression: a compaction filter was asked about a value that no reader saw, as newer operands
/// applied to it, and what it removed was missing below these.
#[test]
fn a_compaction_filter_removes_no_value_below_operands() {
    let vfs = memory();
    let options = || {
        let options = small(&vfs, Arc::new(Append { has_partial: true }));
        options.compaction(|c| c.l0_trigger(1).auto_compaction(false))
    };
    let db = Db::open("db", options()).unwrap();
    for key in ["a", "k", "l", "z"] {
        db.put(key, "base").unwrap();
    }
    db.compact_all().unwrap();
    db.close().unwrap();
    let filtered = options().compaction(|c| c.compaction_filter(Arc::new(NoBase)));
    let db = Db::open("db", filtered).unwrap();
    db.put("a", "new").unwrap();
    db.put("z", "new").unwrap();
    db.flush().unwrap();
    // In memory, while the value is compacted.
    db.merge("k", "+1").unwrap();
    db.set_options(|options| options.compaction(|c| c.auto_compaction(true))).unwrap();
    db.wait_idle().unwrap();
    assert_eq!(db.get("l").unwrap(), None, "the filter was called");
    assert_eq!(db.get("k").unwrap().as_deref(), Some(&b"base+1"[..]));
    db.compact_all().unwrap();
    assert_eq!(db.get("k").unwrap().as_deref(), Some(&b"base+1"[..]));
}
