//! Keys chosen by an adversary who knows the hash, but not the secret of the store.

use std::sync::Arc;

use trommel::{Db, FilterShape, Options, filter};
use trommel_sim::MemoryVfs;

const KEYS: u64 = 10_000;

fn store(filters: &str, shape: FilterShape) -> Db {
    let options = Options::default()
        .vfs(Arc::new(MemoryVfs::new()))
        .background_threads(0)
        .filtering(|f| f.filter_shape(shape).filter_partition_bytes(4 << 10))
        .filters(filters.parse().unwrap());
    Db::open("/store", options).unwrap()
}

/// Keys that have the same hash without a secret: the first word is that of XXH3's own secret, so
/// that a factor of its first product is zero.
fn colliding_key(n: u64) -> [u8; 32] {
    let mut key = [7; 32];
    key[..8].copy_from_slice(&0xbe4b_a423_396c_feb8_u64.to_le_bytes());
    key[8..16].copy_from_slice(&n.to_le_bytes());
    key
}

/// The fraction of lookups of absent keys that a filter passed.
fn passed(db: &Db) -> f64 {
    let report = db.filter_report();
    let counts = report.levels[0].counts;
    counts.false_positives as f64 / (counts.false_positives + counts.negatives) as f64
}

/// Each absent key with the hash of a present one used to pass, and anyone could name such keys.
#[test]
fn absent_keys_of_the_same_hash_pass_no_filter() {
    assert_eq!(filter::hash(&colliding_key(0)), filter::hash(&colliding_key(1)));
    for filters in ["standard:10", "blocked:10", "paired:10", "fuse:10", "ribbon:10"] {
        for shape in [FilterShape::Whole, FilterShape::Partitioned] {
            let db = store(filters, shape);
            (0..KEYS).for_each(|n| _ = db.put(n.to_le_bytes(), "").unwrap());
            // Both ends, so that the range of keys excludes none of the others.
            db.put(colliding_key(0), "").unwrap();
            db.put(colliding_key(u64::MAX), "").unwrap();
            db.flush().unwrap();
            for n in 1..=5_000 {
                assert_eq!(db.get(colliding_key(n)).unwrap(), None);
            }
            let passed = passed(&db);
            assert!(passed < 0.03, "{filters}, {shape:?}: {passed} of chosen absent keys passed");
        }
    }
}

/// Blocks used to be filled by keys of a few of all hashes, and then passed every absent key of
/// these hashes.
#[test]
fn keys_of_few_hashes_fill_no_blocks() {
    let in_few_blocks = |n: &u64| filter::hash(&n.to_le_bytes()) >> 56 == 0;
    let chosen: Vec<u64> = (0..).filter(in_few_blocks).take(4_000).collect();
    let (present, absent) = chosen.split_at(2_000);
    for filters in ["blocked:10", "paired:10"] {
        let db = store(filters, FilterShape::Whole);
        present.iter().for_each(|n| _ = db.put(n.to_le_bytes(), "").unwrap());
        db.flush().unwrap();
        absent.iter().for_each(|n| assert_eq!(db.get(n.to_le_bytes()).unwrap(), None));
        let passed = passed(&db);
        assert!(passed < 0.05, "{filters}: {passed} of chosen absent keys passed");
    }
}

/// Lookups of such keys in a memtable used to sort it and to search it under the writers' lock.
#[test]
fn keys_of_the_same_hash_are_found_in_a_memtable_without_sorting_it() {
    let db = store("none", FilterShape::Whole);
    (0..KEYS).for_each(|n| _ = db.put(colliding_key(n), "").unwrap());
    let before = db.stats().memory.memtables;
    for n in 0..KEYS {
        assert!(db.contains_key(colliding_key(n)).unwrap());
    }
    assert_eq!(db.stats().memory.memtables, before);
}
