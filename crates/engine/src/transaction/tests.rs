use std::collections::BTreeMap;
use std::sync::Arc;

use trommel_sim::MemoryVfs;

use super::{ATTEMPTS, Transaction};
use crate::bounds::Bounds;
use crate::{Db, Error, Expected, Options, Result, SeqNo, WriteOptions};

fn memory() -> Db {
    let options = Options::default().background_threads(0).vfs(Arc::new(MemoryVfs::new()));
    Db::open("db", options).unwrap()
}

/// The key of the conflict of a commit.
fn met(outcome: &Result<SeqNo>) -> Option<&[u8]> {
    match outcome {
        Ok(_) => None,
        Err(Error::Conflict(conflict)) if conflict.expected == Expected::Unchanged => {
            Some(&conflict.key)
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn what_reads_a_store_is_owned_and_moves_between_threads() {
    fn moves<T: Send + 'static>() {}
    fn is_shared<T: Send + Sync + 'static>() {}
    is_shared::<Db>();
    is_shared::<Transaction>();
    is_shared::<crate::Snapshot>();
    is_shared::<crate::WriteBatch>();
    moves::<crate::Range>();
    moves::<crate::DbCursor>();
    moves::<crate::Healthy>();
}

/// Whatever a transaction has read, in whichever way, a write to it is a conflict that names the
/// key; a write next to it is not.
#[test]
fn each_way_to_read_is_checked() {
    type Read = fn(&Transaction);
    let reads: [(Read, &[&str], &[&str]); 12] = [
        (|tx| _ = tx.get("d").unwrap(), &["d"], &["c", "d0"]),
        (|tx| _ = tx.get("e").unwrap(), &["e"], &["d", "f"]),
        (|tx| _ = tx.contains_key("d").unwrap(), &["d"], &["c"]),
        (|tx| _ = tx.multi_get(&["b", "e"]).unwrap(), &["b", "e"], &["c", "d"]),
        (|tx| _ = tx.iter().count(), &["", "a", "z"], &[]),
        (|tx| _ = tx.range("b".."f").count(), &["b", "c", "d", "e"], &["a", "f"]),
        (|tx| _ = tx.range("c".."f").next().unwrap(), &["c", "d"], &["b", "d0", "e"]),
        (|tx| _ = tx.range("a".."e").next_back().unwrap(), &["d", "d0"], &["c", "e"]),
        (|tx| _ = tx.range(.."a").next(), &["", "A"], &["a"]),
        (|tx| _ = tx.prefix("d").count(), &["d", "dz"], &["c", "e"]),
        (|tx| drop(tx.iter()), &[], &["a", "b"]),
        (
            |tx| {
                let mut ends = tx.iter();
                assert!(ends.next().is_some());
                assert_eq!(ends.by_ref().rev().take(2).count(), 2);
            },
            &["a", "b", "f", "h", "z"],
            &["c", "d", "e"],
        ),
    ];
    for (at, (read, hit, missed)) in reads.iter().enumerate() {
        for (key, is_hit) in
            hit.iter().map(|key| (key, true)).chain(missed.iter().map(|key| (key, false)))
        {
            for flushed in [false, true] {
                let db = memory();
                for key in ["b", "d", "f", "h"] {
                    db.put(key, "1").unwrap();
                }
                let tx = db.begin();
                read(&tx);
                tx.put("own", "1").unwrap();
                db.put(key, "2").unwrap();
                if flushed {
                    db.flush().unwrap();
                    db.compact_range(..).unwrap();
                }
                let outcome = tx.commit();
                let expected = is_hit.then_some(key.as_bytes());
                assert_eq!(met(&outcome), expected, "read {at}, flushed {flushed}");
                assert_eq!(db.contains_key("own").unwrap(), !is_hit);
            }
        }
    }
}

/// Two transactions, each of which reads what the other writes, do not both commit.
#[test]
fn there_is_no_write_skew() {
    let db = memory();
    db.put("on call: ada", "").unwrap();
    db.put("on call: grace", "").unwrap();
    let leave = |tx: &Transaction, key: &str| {
        assert_eq!(tx.prefix("on call: ").count(), 2);
        tx.delete(key).unwrap();
    };
    let (first, second) = (db.begin(), db.begin());
    leave(&first, "on call: ada");
    leave(&second, "on call: grace");
    first.commit().unwrap();
    assert_eq!(met(&second.commit()), Some(&b"on call: ada"[..]));
}

/// The deletion of a key that a transaction has read is a conflict, even after a compaction; a
/// write to a key that it has not read is not.
#[test]
fn deletions_are_changes() {
    for flushed in [false, true] {
        let db = memory();
        db.put("key", "1").unwrap();
        let (by_key, by_range) = (db.begin(), db.begin());
        by_key.get("key").unwrap();
        assert_eq!(by_range.range("a".."l").count(), 1);
        by_key.put("own", "1").unwrap();
        by_range.put("own", "1").unwrap();
        db.delete_range("k"..).unwrap();
        if flushed {
            db.flush().unwrap();
            db.compact_range(..).unwrap();
        }
        assert_eq!(met(&by_key.commit()), Some(&b"key"[..]));
        assert_eq!(met(&by_range.commit()), Some(&b"k"[..]));
        let unread = db.begin();
        unread.put("key", "2").unwrap();
        db.put("key", "3").unwrap();
        unread.commit().unwrap();
        assert_eq!(db.get("key").unwrap().unwrap(), b"2");
    }
}

#[test]
fn reads_alone_never_conflict_unless_they_are_for_an_update() {
    let db = memory();
    let (reader, updater, owner) = (db.begin(), db.begin(), db.begin());
    reader.get("key").unwrap();
    updater.get_for_update("key").unwrap();
    owner.put("key", "1").unwrap();
    assert_eq!(owner.get_for_update("key").unwrap().unwrap(), b"1");
    let unaffected = db.begin();
    unaffected.get_for_update("none").unwrap();
    db.put("key", "2").unwrap();
    let before = db.stats().writes;
    assert_eq!(reader.commit_with(WriteOptions::sync()).unwrap(), 0);
    assert_eq!(met(&updater.commit()), Some(&b"key"[..]));
    assert_eq!(met(&owner.commit()), Some(&b"key"[..]));
    assert_eq!(unaffected.commit().unwrap(), 1);
    let after = db.stats().writes;
    assert_eq!((before.commits, before.log_syncs), (after.commits, after.log_syncs));
}

/// A closure that always meets a conflict runs up to the documented number of times; then the
/// conflict is returned.
#[test]
fn the_closure_is_retried_up_to_its_bound() {
    let db = memory();
    let mut runs = 0;
    let outcome = db.transaction(|tx| {
        runs += 1;
        tx.get("key")?;
        db.put("key", format!("{runs}"))?;
        tx.put("own", "")
    });
    assert!(matches!(outcome, Err(Error::Conflict(_))), "{outcome:?}");
    assert_eq!(runs, ATTEMPTS);
    let stopped: Result<()> = db.transaction(|tx| {
        tx.put("own", "")?;
        Err(Error::ReadOnly)
    });
    assert!(matches!(stopped, Err(Error::ReadOnly)));
    assert!(!db.contains_key("own").unwrap());
}

#[test]
fn what_cannot_be_written_is_refused_at_once() {
    let tx = memory().begin();
    let long = vec![7; 70_000];
    assert!(matches!(tx.put(&long, ""), Err(Error::KeyTooLong { bytes: 70_000 })));
    assert!(matches!(tx.delete(&long), Err(Error::KeyTooLong { .. })));
    assert!(matches!(tx.delete_range(&long..), Err(Error::KeyTooLong { .. })));
    assert_eq!(tx.get(&long).unwrap(), None);
    assert!(matches!(tx.rollback_to_savepoint(), Err(Error::InvalidOption { .. })));
    tx.commit().unwrap();
    let db = memory();
    let tx = db.begin();
    tx.put("a", "1").unwrap();
    let empty = db.begin();
    db.close().unwrap();
    assert!(matches!(tx.get("b"), Err(Error::Closed)));
    assert!(matches!(tx.get("a"), Err(Error::Closed)));
    assert!(matches!(tx.put("a", "2"), Err(Error::Closed)));
    assert!(matches!(tx.delete("a"), Err(Error::Closed)));
    assert!(matches!(tx.delete_range("a".."b"), Err(Error::Closed)));
    assert!(matches!(empty.commit(), Err(Error::Closed)));
    assert!(matches!(tx.commit(), Err(Error::Closed)));
}

type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

fn collect(range: impl Iterator<Item = Result<(crate::Slice, crate::Slice)>>) -> Pairs {
    range.map(|entry| entry.map(|(key, value)| (key.to_vec(), value.to_vec())).unwrap()).collect()
}

/// Own writes, savepoints and iterators in both directions give what a map gives.
#[test]
fn a_transaction_sees_what_a_model_sees() {
    let mut rng = fastrand::Rng::with_seed(52);
    for round in 0..400 {
        let db = memory();
        let key = |rng: &mut fastrand::Rng| format!("{:02}", rng.u32(..24)).into_bytes();
        let mut model = BTreeMap::new();
        for _ in 0..rng.u32(..20) {
            let (key, value) = (key(&mut rng), vec![rng.u8(..)]);
            db.put(&key, &value).unwrap();
            model.insert(key, value);
        }
        let tx = db.begin();
        let mut savepoints = Vec::new();
        for step in 0..rng.u32(..40) {
            let (one, other) = (key(&mut rng), key(&mut rng));
            let value = format!("{round}/{step}").into_bytes();
            match rng.u32(..10) {
                0..3 => {
                    tx.put(&one, &value).unwrap();
                    model.insert(one, value);
                }
                3 => {
                    tx.delete(&one).unwrap();
                    model.remove(&one);
                }
                4 => {
                    tx.delete_range(&one..&other).unwrap();
                    model.retain(|key, _| *key < one || *key >= other);
                }
                5 => {
                    tx.set_savepoint();
                    savepoints.push(model.clone());
                }
                6 => {
                    let rolled_back = tx.rollback_to_savepoint();
                    assert_eq!(rolled_back.is_ok(), !savepoints.is_empty());
                    model = savepoints.pop().unwrap_or(model);
                }
                7 => {
                    let keys = [&one, &other];
                    let found = tx.multi_get(&keys).unwrap();
                    for (key, found) in keys.iter().zip(found) {
                        let expected = model.get(*key);
                        assert_eq!(found.as_deref(), expected.map(|value| &**value));
                        assert_eq!(tx.get(key).unwrap(), found);
                        assert_eq!(tx.contains_key(key).unwrap(), expected.is_some());
                    }
                }
                _ => check_range(&tx, &model, &Bounds { from: one, to: Some(other) }, &mut rng),
            }
        }
        assert_eq!(collect(tx.iter()), Vec::from_iter(model.clone()));
        assert_eq!(collect(tx.iter().rev()).len(), model.len());
        tx.commit().unwrap();
        assert_eq!(collect(db.iter()), Vec::from_iter(model));
    }
}

/// Takes entries from both ends in any order.
fn check_range(
    tx: &Transaction,
    model: &BTreeMap<Vec<u8>, Vec<u8>>,
    bounds: &Bounds,
    rng: &mut fastrand::Rng,
) {
    let within = model.iter().filter(|(key, _)| bounds.holds(key));
    let mut expected = within.map(|(key, value)| (key.clone(), value.clone()));
    let to = bounds.to.as_deref().unwrap();
    let mut range = tx.range(&*bounds.from..to);
    let mut left = expected.by_ref().collect::<std::collections::VecDeque<_>>();
    loop {
        let is_front = rng.bool();
        let (found, wanted) = match is_front {
            true => (range.next(), left.pop_front()),
            false => (range.next_back(), left.pop_back()),
        };
        let found = found.map(|entry| entry.map(|(k, v)| (k.to_vec(), v.to_vec())).unwrap());
        assert_eq!(found, wanted);
        if found.is_none() {
            return;
        }
    }
}

/// Writes made while an iterator is open are seen ahead of it, but not at keys that it has passed.
#[test]
fn an_iterator_sees_own_writes_ahead() {
    let db = memory();
    for key in ["b", "d", "f"] {
        db.put(key, "1").unwrap();
    }
    let tx = db.begin();
    let mut range = tx.iter();
    assert_eq!(range.next().unwrap().unwrap().0, b"b");
    tx.put("a", "behind").unwrap();
    tx.put("e", "ahead").unwrap();
    tx.delete("d").unwrap();
    tx.put("f", "2").unwrap();
    let rest = collect(range);
    let expected = [("e", "ahead"), ("f", "2")].map(|(k, v)| (k.into(), v.into()));
    assert_eq!(rest, expected);
}

/// An entry that an iterator has fetched and not yielded is seen again once a write to it is rolled
/// back.
#[test]
fn an_iterator_sees_what_a_rollback_brings_back() {
    let db = memory();
    db.put("b", "1").unwrap();
    let tx = db.begin();
    for deleted in [false, true] {
        let write = || {
            tx.set_savepoint();
            tx.put("a", "2").unwrap();
            tx.put("c", "2").unwrap();
            if deleted { tx.delete("b").unwrap() } else { tx.put("b", "2").unwrap() }
        };
        let stored = vec![(b"b".to_vec(), b"1".to_vec())];
        write();
        let mut forward = tx.iter();
        assert_eq!(forward.next().unwrap().unwrap().0, b"a");
        tx.rollback_to_savepoint().unwrap();
        assert_eq!(collect(forward), stored);
        write();
        let mut backward = tx.iter().rev();
        assert_eq!(backward.next().unwrap().unwrap().0, b"c");
        tx.rollback_to_savepoint().unwrap();
        assert_eq!(collect(backward), stored);
    }
}

/// A counter of one byte that has no value at zero.
#[derive(Debug)]
struct Countdown;

impl crate::MergeOperator for Countdown {
    fn name(&self) -> &str {
        "countdown"
    }

    fn full_merge(
        &self,
        _: &[u8],
        existing: Option<&[u8]>,
        operands: &[&[u8]],
    ) -> std::result::Result<Option<Vec<u8>>, String> {
        let all = existing.into_iter().chain(operands.iter().copied());
        let sum = all.fold(0_u8, |sum, operand| sum.wrapping_add(operand[0]));
        Ok((sum > 0).then(|| vec![sum]))
    }
}

/// Regression: the iterator found the key again, without the value in the store.
#[test]
fn an_iterator_passes_what_an_own_merge_has_removed() {
    let options = Options::default().background_threads(0).vfs(Arc::new(MemoryVfs::new()));
    let db = Db::open("db", options.writes(|w| w.merge_operator(Arc::new(Countdown)))).unwrap();
    db.write(crate::WriteBatch::new().put("a", [1]).put("b", [1]).put("c", [1])).unwrap();
    let transaction = db.begin();
    transaction.merge("b", [255]).unwrap();
    assert_eq!(transaction.get("b").unwrap(), None);
    let keys = |entry: Result<_>| -> trommel_base::Slice { entry.map(|(key, _)| key).unwrap() };
    let forward: Vec<_> = transaction.iter().map(keys).collect();
    assert_eq!(forward, [b"a", b"c"]);
    let backward: Vec<_> = transaction.iter().rev().map(keys).collect();
    assert_eq!(backward, [b"c", b"a"]);
}

#[test]
fn merges_after_a_savepoint_are_undone() {
    let options = Options::default().background_threads(0).vfs(Arc::new(MemoryVfs::new()));
    let db = Db::open("db", options.writes(|w| w.merge_operator(Arc::new(Countdown)))).unwrap();
    let transaction = db.begin();
    transaction.merge("a", [1]).unwrap();
    transaction.set_savepoint();
    transaction.merge("a", [2]).unwrap();
    transaction.merge("b", [3]).unwrap();
    transaction.merge("b", [4]).unwrap();
    assert_eq!(transaction.get("b").unwrap().unwrap(), [7]);
    transaction.rollback_to_savepoint().unwrap();
    assert_eq!(transaction.get("a").unwrap().unwrap(), [1]);
    assert_eq!(transaction.get("b").unwrap(), None);
}

/// Regression: a transaction or conditional write that began after a load had joined the view, but
/// before the load was published, assumed that the memtables held all later writes, and did not
/// detect a conflict with the loaded entries.
#[test]
fn a_moment_before_a_load_is_not_held_by_memtables() {
    let db = Db::open("db", Options::default().vfs(Arc::new(MemoryVfs::default()))).unwrap();
    db.put("a", "").unwrap();
    let engine = db.engine();
    let before = engine.snapshots.visible();
    db.load_sorted([Ok(("k", "loaded"))]).unwrap();
    let view = engine.view.load();
    let since = view.since(before, &engine.snapshots);
    assert!(!view.holds_all_since(&since));
    assert!(!view.differs_only_by_writes(&since, &engine.snapshots.horizons()));
    let since = view.since(engine.snapshots.visible(), &engine.snapshots);
    assert!(view.holds_all_since(&since));
}
