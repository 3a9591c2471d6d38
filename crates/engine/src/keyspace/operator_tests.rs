//! Merge operators of keyspaces.

use std::sync::Arc;

use trommel_sim::{Policy, SimDisk};

use crate::{
    Db, Error, Keyspace, KeyspaceOptions, Merge, MergeCause, MergeFailure, MergeOperator, Options,
    RepairOptions, Slice, WriteBatch,
};

fn options(disk: &Arc<SimDisk>) -> Options {
    Options::default().vfs(Arc::<SimDisk>::clone(disk)).background_threads(0)
}

fn new_store() -> (Arc<SimDisk>, Db) {
    let disk = Arc::new(SimDisk::new());
    let db = Db::open("db", options(&disk)).unwrap();
    (disk, db)
}

/// Appends operands; fails for keys that still have a header.
fn append() -> Arc<dyn MergeOperator> {
    Merge::associative("append", |key, so_far, next| match key.first_chunk() {
        Some([0xff, 0xff, 0xff, 0xff]) => Err("a header".to_owned()),
        _ => Ok([so_far, next].concat()),
    })
}

fn appending() -> KeyspaceOptions {
    KeyspaceOptions::new().merge_operator(append())
}

fn largest() -> KeyspaceOptions {
    KeyspaceOptions::new().merge_operator(Merge::max())
}

fn merge(keyspace: &Keyspace, operands: &[&str]) {
    operands.iter().for_each(|operand| _ = keyspace.merge("k", operand).unwrap());
}

fn failure(outcome: crate::Result<Option<Slice>>) -> MergeFailure {
    match outcome {
        Err(Error::Merge(failure)) => *failure,
        other => panic!("{other:?}"),
    }
}

fn entries(db: &Db) -> u64 {
    db.engine().version().tables().map(|(_, table)| table.entries).sum()
}

fn value(keyspace: &Keyspace) -> Vec<u8> {
    let got = keyspace.get("k").unwrap().unwrap().to_vec();
    let values: Vec<_> = keyspace.iter().map(|entry| entry.unwrap().1.to_vec()).collect();
    let back: Vec<_> = keyspace.iter().rev().map(|entry| entry.unwrap().1.to_vec()).collect();
    assert_eq!((&values, &back), (&vec![got.clone()], &vec![got.clone()]));
    assert_eq!(keyspace.multi_get(&["k"]).unwrap()[0].as_deref(), Some(&*got));
    got
}

#[test]
fn each_keyspace_merges_by_its_own_operator() {
    let disk = Arc::new(SimDisk::new());
    let counting = options(&disk).writes(|w| w.merge_operator(Merge::counter()));
    let db = Db::open("db", counting).unwrap();
    let words = db.keyspace("words", appending()).unwrap();
    let highs = db.keyspace("highs", largest()).unwrap();
    let counts = db.keyspace("counts", KeyspaceOptions::new()).unwrap();
    for round in 0..3 {
        merge(&words, &["b", "a"]);
        merge(&highs, &["b", "a"]);
        counts.merge("k", 1_u64.to_le_bytes()).unwrap();
        db.merge("k", 2_u64.to_le_bytes()).unwrap();
        let transaction = db.begin();
        transaction.keyspace(&words).unwrap().merge("k", "t").unwrap();
        let inside = transaction.keyspace(&words).unwrap().get("k").unwrap().unwrap();
        assert!(inside.ends_with(b"bat"));
        transaction.commit().unwrap();
        let mut batch = WriteBatch::new();
        batch.keyspace(&words).expect_value("k", "bat".repeat(round + 1)).merge("k", "");
        batch.keyspace(&highs).merge("k", "");
        db.write(&batch).unwrap();
        assert_eq!(value(&words), "bat".repeat(round + 1).into_bytes());
        assert_eq!(value(&highs), b"b");
        assert_eq!(value(&counts), (round as u64 + 1).to_le_bytes());
        assert_eq!(db.get("k").unwrap().unwrap(), (2 * (round as u64 + 1)).to_le_bytes());
        db.flush().unwrap();
        assert!(round > 0 || entries(&db) == 8, "4 keys, and 4 entries of the catalog");
    }
    db.compact_all().unwrap();
    assert_eq!((value(&words), value(&highs)), (b"batbatbat".to_vec(), b"b".to_vec()));
}

/// Operands of keyspaces that are not opened with their operators are not folded by that of the
/// store, or lost.
#[test]
fn operands_stay_until_their_keyspace_is_opened_with_its_operator() {
    let (disk, db) = new_store();
    let words = db.keyspace("words", appending()).unwrap();
    merge(&words, &["a", "b"]);
    db.keyspace("highs", largest()).unwrap().merge("k", "x").unwrap();
    drop(words);
    db.close().unwrap();
    let counting = options(&disk).writes(|w| w.merge_operator(Merge::max()));
    for _ in 0..2 {
        let db = Db::open("db", counting.clone()).unwrap();
        let words = db.open_keyspace("words").unwrap().unwrap();
        let failed = failure(words.get("k"));
        assert_eq!((&*failed.operator, failed.keyspace.as_deref()), ("append", Some("words")));
        assert_eq!((&*failed.key, &failed.cause), (&b"k"[..], &MergeCause::NoOperator));
        assert!(failed.to_string().contains("KeyspaceOptions::merge_operator"), "{failed}");
        assert!(matches!(words.iter().next(), Some(Err(Error::Merge(_)))));
        assert!(matches!(words.merge("k", "c"), Err(Error::Merge(_))));
        let mut batch = WriteBatch::new();
        batch.put("p", "q").keyspace(&words).merge("k", "c");
        assert!(matches!(db.write(batch), Err(Error::Merge(_))));
        assert!(!db.contains_key("p").unwrap());
        // A built-in one is found by its name.
        assert_eq!(value(&db.open_keyspace("highs").unwrap().unwrap()), b"x");
        db.put("p", "q").unwrap();
        db.flush().unwrap();
        db.compact_all().unwrap();
        db.delete("p").unwrap();
        drop(words);
        db.close().unwrap();
    }
    let db = Db::open("db", counting).unwrap();
    let words = db.keyspace("words", appending()).unwrap();
    assert_eq!(value(&words), b"ab");
    merge(&words, &["c"]);
    assert_eq!(value(&db.open_keyspace("words").unwrap().unwrap()), b"abc");
    let before = entries(&db);
    db.flush().unwrap();
    db.compact_all().unwrap();
    assert!(entries(&db) < before, "folded");
    assert_eq!(value(&words), b"abc");
}

#[test]
fn another_operator_of_a_keyspace_is_refused() {
    let (disk, db) = new_store();
    db.keyspace("words", appending()).unwrap();
    db.keyspace("highs", largest()).unwrap();
    let late = db.keyspace("late", KeyspaceOptions::new()).unwrap();
    assert!(matches!(late.merge("k", "1"), Err(Error::Merge(_))));
    // This keyspace cannot have operands.
    db.keyspace("late", appending()).unwrap();
    merge(&late, &["1", "2"]);
    assert_eq!(value(&late), b"12");
    drop(late);
    db.close().unwrap();
    let counting = options(&disk).writes(|w| w.merge_operator(Merge::counter()));
    let db = Db::open("db", counting).unwrap();
    let refused = |name: &str, options: KeyspaceOptions| match db.keyspace(name, options) {
        Err(Error::OtherMergeOperator { keyspace, recorded, given, .. }) => {
            assert_eq!(keyspace.as_deref(), Some(name));
            (recorded, given)
        }
        other => panic!("{other:?}"),
    };
    let pair = |recorded: &str, given: &str| (recorded.to_owned(), given.to_owned());
    assert_eq!(refused("words", largest()), pair("append", "trommel.max"));
    assert_eq!(refused("words", KeyspaceOptions::new()), pair("append", ""));
    assert_eq!(refused("highs", appending()), pair("trommel.max", "append"));
    let highs = db.keyspace("highs", KeyspaceOptions::new()).unwrap();
    assert_eq!(highs.options().settings(), [("merge_operator", "trommel.max".to_owned())]);
    db.keyspace("words", appending()).unwrap();
    // Once the operator was given, options may lack it.
    let words = db.keyspace("words", KeyspaceOptions::new()).unwrap();
    merge(&words, &["1"]);
    let shared = db.keyspace("shared", KeyspaceOptions::new()).unwrap();
    shared.merge("k", 1_u64.to_le_bytes()).unwrap();
    assert_eq!(refused("shared", appending()), pair("trommel.counter", "append"));
    let counter = KeyspaceOptions::new().merge_operator(Merge::counter());
    db.keyspace("shared", counter).unwrap();
    assert_eq!(value(&shared), 1_u64.to_le_bytes());
    let long = Merge::associative("n".repeat(201), |_, _, next| Ok(next.to_vec()));
    let refused = db.keyspace("long", KeyspaceOptions::new().merge_operator(long));
    assert!(matches!(refused, Err(Error::InvalidOption { .. })), "{refused:?}");
}

/// A snapshot of a dropped keyspace still needs the operator, and a compaction for it too.
#[test]
fn a_dropped_keyspace_keeps_its_operator_for_snapshots() {
    let disk = Arc::new(SimDisk::new());
    let counting = options(&disk).writes(|w| w.merge_operator(Merge::max()));
    let db = Db::open("db", counting).unwrap();
    let words = db.keyspace("words", appending()).unwrap();
    merge(&words, &["a"]);
    db.flush().unwrap();
    merge(&words, &["b"]);
    let snapshot = db.snapshot().keyspace(&words).unwrap();
    db.drop_keyspace("words").unwrap();
    for _ in 0..2 {
        assert_eq!(snapshot.get("k").unwrap().unwrap(), b"ab");
        db.flush().unwrap();
        db.compact_all().unwrap();
    }
    let other = db.keyspace("words", largest()).unwrap();
    merge(&other, &["a", "b"]);
    assert_eq!(value(&other), b"b");
}

#[test]
fn programs_without_such_operators_refuse_the_store_first() {
    let (disk, db) = new_store();
    db.keyspace("plain", KeyspaceOptions::new()).unwrap();
    assert!(!db.engine().version().has_keyspace_operators);
    db.keyspace("words", appending()).unwrap();
    assert!(db.engine().version().has_keyspace_operators);
    // The manifest is durable, but the entry of the catalog is not.
    let disk = Arc::new(disk.crash(Policy::SYNCED, 0).disk());
    let db = Db::open("db", options(&disk)).unwrap();
    assert!(db.engine().version().has_keyspace_operators);
    assert_eq!(db.open_keyspace("words").unwrap().map(drop), None);
}

#[test]
fn others_read_by_the_operators_of_keyspaces() {
    let (disk, db) = new_store();
    let highs = db.keyspace("highs", largest()).unwrap();
    let follower = Db::open_follower("db", options(&disk)).unwrap();
    let followed = follower.db().open_keyspace("highs").unwrap().unwrap();
    merge(&highs, &["a", "c", "b"]);
    let late = db.keyspace("late", KeyspaceOptions::new()).unwrap();
    follower.catch_up().unwrap();
    assert_eq!(value(&followed), b"c");
    let followed = follower.db().open_keyspace("late").unwrap().unwrap();
    db.keyspace("late", largest()).unwrap();
    merge(&late, &["a", "c", "b"]);
    follower.catch_up().unwrap();
    assert_eq!(value(&followed), b"c");
    let words = db.keyspace("words", appending()).unwrap();
    merge(&words, &["a", "b"]);
    drop((words, late, highs, followed, follower));
    db.close().unwrap();
    let read_only = options(&disk).opening(|o| o.read_only(true));
    let db = Db::open("db", read_only).unwrap();
    let words = db.open_keyspace("words").unwrap().unwrap();
    assert_eq!(failure(words.get("k")).operator, "append");
    db.keyspace("words", appending()).unwrap();
    assert_eq!(value(&words), b"ab");
    drop(words);
    db.close().unwrap();
    Db::repair("db", "new", options(&disk), RepairOptions::default()).unwrap();
    let db = Db::open("new", options(&disk)).unwrap();
    assert_eq!(value(&db.keyspace("words", appending()).unwrap()), b"ab");
    assert_eq!(value(&db.open_keyspace("highs").unwrap().unwrap()), b"c");
    assert!(db.engine().version().has_keyspace_operators);
}

/// Regression: a transaction used the operator of the store for keys of the first keyspace, which
/// was created after the transaction's snapshot.
#[test]
fn a_transaction_merges_by_the_operator_of_a_younger_keyspace() {
    let disk = Arc::new(SimDisk::new());
    let summing = options(&disk).writes(|w| w.merge_operator(Merge::counter()));
    let db = Db::open("db", summing).unwrap();
    let transaction = db.begin();
    let keyspace = db.keyspace("appended", appending()).unwrap();
    let inside = transaction.keyspace(&keyspace).unwrap();
    inside.merge("k", "a").unwrap();
    inside.merge("k", "b").unwrap();
    assert_eq!(inside.get("k").unwrap().unwrap(), b"ab".as_slice());
}
