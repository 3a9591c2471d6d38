//! A multi-get returns the same as single gets, whatever the tree: more runs in level 0 than are
//! queried together, small tables in deep levels, tables without filters, few open tables, old
//! snapshots; and the counters are equal.

use std::collections::BTreeMap;
use std::sync::Arc;

use trommel::{Db, LookupStats, Options, ReadMode, Slice, Snapshot};
use trommel_sim::MemoryVfs;

use crate::rng::Rng;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// Number of keys written; as many are between them.
const KEYS: usize = 3_000;
/// More than two windows of tables.
const RUNS: usize = 15;

fn key(number: usize) -> Vec<u8> {
    format!("key/{number:06}").into_bytes()
}

/// Writes some keys and deletes others.
fn change(db: &Db, model: &mut Model, rng: &mut Rng, count: usize) {
    for _ in 0..count {
        let key = key(rng.below(KEYS) * 2);
        if rng.once_in(5) {
            db.delete(&key).unwrap();
            model.remove(&key);
        } else {
            let value = rng.u64().to_le_bytes().to_vec();
            db.put(&key, &value).unwrap();
            model.insert(key, value);
        }
    }
}

/// A deep tree of small tables, then runs in level 0, then a memtable; with a snapshot taken in
/// between.
fn grown(filters: &str, options: Options, rng: &mut Rng) -> (Db, Model, Snapshot, Model) {
    let options = options
        .vfs(Arc::new(MemoryVfs::new()))
        .background_threads(0)
        .compaction(|c| c.table_bytes(4 << 10).base_level_bytes(16 << 10).level_ratio(4))
        .reads(|r| r.block_bytes(512))
        .filters(filters.parse().unwrap());
    let db = Db::open("/store", options).unwrap();
    let mut model = Model::new();
    for _ in 0..4 {
        change(&db, &mut model, rng, KEYS / 2);
        db.flush().unwrap();
    }
    db.compact_all().unwrap();
    db.set_options(|options| options.compaction(|c| c.auto_compaction(false))).unwrap();
    let mut old = None;
    for run in 0..RUNS {
        if run == RUNS / 2 {
            old = Some((db.snapshot(), model.clone()));
        }
        change(&db, &mut model, rng, 60);
        db.flush().unwrap();
    }
    change(&db, &mut model, rng, 60);
    let (snapshot, at_snapshot) = old.unwrap();
    (db, model, snapshot, at_snapshot)
}

/// Keys in random order, some twice, about half of them missing, two beyond all tables.
fn drawn(rng: &mut Rng, count: usize) -> Vec<Vec<u8>> {
    let mut keys: Vec<Vec<u8>> = (0..count).map(|_| key(rng.below(KEYS * 2))).collect();
    keys.extend([Vec::new(), vec![0xff; 9]]);
    keys.extend(keys.first().cloned());
    keys
}

fn counts(db: &Db) -> (Vec<[u64; 5]>, [u64; 2]) {
    let row = |row: &trommel::FilterLevel| {
        let kind = u64::from(row.kind.name().as_bytes()[0]);
        [
            row.level as u64,
            kind,
            row.counts.negatives,
            row.counts.false_positives,
            row.counts.true_positives,
        ]
    };
    let LookupStats { gets, found, .. } = db.stats().lookups;
    (db.filter_report().levels.iter().map(row).collect(), [gets, found])
}

fn check(filters: &str, options: Options, seed: u64) {
    let mut rng = Rng::new(seed);
    let (db, now, snapshot, then) = grown(filters, options, &mut rng);
    let levels = db.stats().levels;
    assert!(levels[0].tables == RUNS as u64 && levels.last().unwrap().tables > 8, "{levels:?}");
    let batches: Vec<_> = [0, 1, 2, 7, 64, 64, 500].map(|count| drawn(&mut rng, count)).into();
    let agree = |model: &Model, keys: &[Vec<u8>], found: &[Option<Slice>]| {
        assert_eq!(found.len(), keys.len());
        for (key, found) in keys.iter().zip(found) {
            assert_eq!(found.as_deref(), model.get(key).map(Vec::as_slice), "{filters} {key:?}");
        }
    };
    db.reset_stats();
    for keys in &batches {
        let alone = |get: &dyn Fn(&[u8]) -> Option<Slice>| -> Vec<_> {
            keys.iter().map(|key| get(key)).collect()
        };
        agree(&now, keys, &alone(&|key| db.get(key).unwrap()));
        agree(&then, keys, &alone(&|key| snapshot.get(key).unwrap()));
    }
    let one_by_one = counts(&db);
    db.reset_stats();
    for keys in &batches {
        agree(&now, keys, &db.multi_get(keys).unwrap());
        agree(&then, keys, &snapshot.multi_get(keys).unwrap());
    }
    assert_eq!(counts(&db), one_by_one, "{filters}: both ways count alike");
}

#[test]
fn many_keys_at_once_are_answered_and_counted_as_one_by_one() {
    let modes = ReadMode::ALL;
    let policies = ["paired:10", "none", "L0=standard:6,L1-=blocked:5", "L0=none,L1-=ribbon:8"];
    for (seed, mode) in modes.into_iter().enumerate() {
        let filters = policies[seed % policies.len()];
        check(filters, Options::default().reads(|r| r.read_mode(mode)), seed as u64);
    }
}

#[test]
fn tables_that_are_opened_and_closed_on_the_way_answer_as_ever() {
    check("paired:10", Options::default().reads(|r| r.max_open_files(16)), 77);
}
