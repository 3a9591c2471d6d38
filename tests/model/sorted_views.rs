//! Scans of stores with so many runs that a sorted view of them is built.

use std::collections::BTreeMap;
use std::sync::Arc;

use trommel::{Db, DbCursor, Options, Snapshot};
use trommel_sim::MemoryVfs;

use crate::rng::Rng;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// Runs of level 0: more than it takes for a view.
const RUNS: usize = 12;

fn key(rng: &mut Rng) -> Vec<u8> {
    let number = rng.within(0, 400);
    let tail = if number % 5 == 0 { " and more than sixteen bytes" } else { "" };
    format!("key {number:04}{tail}").into_bytes()
}

/// Seeks and goes on in one direction, then in the other.
fn check(cursor: &mut DbCursor, model: &Model, rng: &mut Rng) {
    for _ in 0..20 {
        let sought = key(rng);
        cursor.seek(&sought).unwrap();
        let mut expected = model.range(sought.clone()..).take(30);
        for (key, value) in expected.by_ref() {
            assert_eq!(cursor.entry(), Some((&**key, &**value)));
            cursor.next().unwrap();
        }
        cursor.seek_for_prev(&sought).unwrap();
        for (key, value) in model.range(..=sought).rev().take(30) {
            assert_eq!(cursor.entry(), Some((&**key, &**value)));
            cursor.prev().unwrap();
        }
    }
}

/// Fills the runs, with everything that a scan must heed, and scans in between.
fn one_store(
    db: &Db,
    model: &mut Model,
    held: &mut Vec<(DbCursor, Snapshot, Model)>,
    rng: &mut Rng,
) {
    for run in 0..RUNS {
        for _ in 0..rng.within(50, 150) {
            let (key, value) = (key(rng), vec![run as u8; rng.within(0, 60)]);
            if rng.once_in(6) {
                db.delete(&key).unwrap();
                model.remove(&key);
            } else {
                db.put(&key, &value).unwrap();
                model.insert(key, value);
            }
        }
        if rng.once_in(8) {
            let (from, to) = (key(rng), key(rng));
            db.delete_range(from.clone()..to.clone()).unwrap();
            model.retain(|key, _| *key < from || *key >= to);
        }
        db.flush().unwrap();
        if rng.once_in(3) {
            held.push((db.cursor().unwrap(), db.snapshot(), model.clone()));
        }
        let mut cursor = db.cursor().unwrap();
        check(&mut cursor, model, rng);
        // As many seeks as make a view worth its cost.
        (0..500).for_each(|_| cursor.seek(key(rng)).unwrap());
        drop(cursor);
        db.wait_idle().unwrap();
        check(&mut db.cursor().unwrap(), model, rng);
        for (cursor, snapshot, model) in held.iter_mut() {
            check(cursor, model, rng);
            check(&mut snapshot.cursor().unwrap(), model, rng);
        }
    }
}

/// Views are built, replaced and dropped while cursors and snapshots stay open.
#[test]
fn scans_of_many_runs_match_a_model() {
    for (seed, threads) in [(1, 0), (2, 1), (3, 2)] {
        let mut rng = Rng::new(seed);
        let options = Options::default()
            .vfs(Arc::new(MemoryVfs::new()))
            .background_threads(threads)
            .reads(|r| r.block_bytes(256))
            .compaction(|c| c.auto_compaction(false).table_bytes(4 << 10));
        let db = Db::open("store", options).unwrap();
        let (mut model, mut held) = (Model::new(), Vec::new());
        for _ in 0..2 {
            one_store(&db, &mut model, &mut held, &mut rng);
            held.clear();
            db.compact_range(..).unwrap();
        }
        assert!(db.stats().scans.sorted_views > 0, "no view was built");
    }
}
