//! The filters of a store with deletions: large where they save reads of live keys, and small where
//! no keys are left; and the counts of what was deleted.

use std::sync::Arc;

use trommel::{Compression, Db, FilterKind, FilterShape, Options, RebuildOptions};
use trommel_sim::MemoryVfs;

const KEYS: u64 = 32_000;
const BITS: f64 = 12.0;

fn key(number: u64) -> String {
    format!("{:016x}", number.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

fn open(filters: &str) -> Db {
    let options = Options::default()
        .vfs(Arc::new(MemoryVfs::new()))
        .compression(Compression::None)
        .filters(filters.parse().unwrap())
        .compaction(|c| c.auto_compaction(false))
        .background_threads(0);
    Db::open("db", options).unwrap()
}

/// A store with all keys in the last level.
fn filled(filters: &str) -> Db {
    let db = open(filters);
    for number in 0..KEYS {
        db.put(key(number), "value").unwrap();
    }
    db.flush().unwrap();
    db.compact_all().unwrap();
    db
}

/// Deletes the keys that `wants` chooses, and flushes the tombstones.
fn delete(db: &Db, wants: impl Fn(u64) -> bool) {
    for number in (0..KEYS).filter(|number| wants(*number)) {
        db.delete(key(number)).unwrap();
    }
    db.flush().unwrap();
}

/// Bits per key of level 0.
fn bits(db: &Db) -> f64 {
    db.filter_report().levels.iter().find(|row| row.level == 0).unwrap().bits_requested.unwrap()
}

/// With one live key for `n` keys of the filter, it has `log2(n) / ln 2` bits less, in whole
/// halvings, and five of these at most.
#[test]
fn a_table_of_tombstones_has_fewer_bits_the_fewer_keys_are_left() {
    for (kept_of, halvings) in [(2, 0.0), (4, 1.0), (16, 3.0), (KEYS, 5.0)] {
        let db = filled("paired:12");
        delete(&db, |number| number % kept_of != 0);
        let level = db.stats().levels[0];
        assert_eq!((level.level, level.deletions), (0, level.entries), "{level:?}");
        let wanted = BITS - halvings / std::f64::consts::LN_2;
        assert!((bits(&db) - wanted).abs() < 1e-3, "1 of {kept_of}: {} bits", bits(&db));
        let (stored, most) = (level.filter_bytes as f64 * 8.0, (wanted + 0.3) * level.keys as f64);
        assert!(stored < most, "1 of {kept_of}: {stored} of {most}");
        for number in 0..KEYS {
            let is_found = db.get(key(number)).unwrap().is_some();
            assert_eq!(is_found, number % kept_of == 0, "key {number} of {kept_of}");
        }
        assert_eq!(
            db.filter_rebuild_plan(&RebuildOptions::default()).unwrap().tables,
            [],
            "as it would be"
        );
    }
}

#[test]
fn tombstones_amid_live_keys_have_all_bits() {
    let db = filled("paired:12");
    // All others are alive, and looked up through this filter.
    delete(&db, |number| number % 10 == 0);
    assert!((bits(&db) - BITS).abs() < 1e-9, "{}", bits(&db));
    // As many tombstones, and their table has live keys of its own.
    let db = filled("paired:12");
    for number in KEYS..2 * KEYS {
        db.put(key(number), "value").unwrap();
    }
    delete(&db, |_| true);
    assert!((bits(&db) - BITS).abs() < 1e-9, "{}", bits(&db));
}

#[test]
fn rebuilt_filters_are_sized_alike() {
    let db = filled("paired:12");
    delete(&db, |number| number % 16 != 0);
    db.set_filters("ribbon:8".parse().unwrap()).unwrap();
    db.rebuild_filters(&RebuildOptions::default()).unwrap();
    let row = db.filter_report().levels[0].clone();
    assert_eq!((row.level, row.kind), (0, FilterKind::Ribbon.into()));
    assert_eq!(row.bits_requested, Some(8.0 - 3.0), "a bit for each halving");
    assert_eq!(db.filter_rebuild_plan(&RebuildOptions::default()).unwrap().tables, []);
}

#[test]
fn partitions_keep_their_bits() {
    let options = Options::default()
        .vfs(Arc::new(MemoryVfs::new()))
        .filters("paired:12".parse().unwrap())
        .filtering(|f| f.filter_shape(FilterShape::Partitioned))
        .compaction(|c| c.auto_compaction(false))
        .background_threads(0);
    let db = Db::open("db", options).unwrap();
    delete(&db, |_| true);
    assert!((bits(&db) - BITS).abs() < 1e-9, "{}", bits(&db));
    assert_eq!(db.filter_rebuild_plan(&RebuildOptions::default()).unwrap().tables, []);
}

/// A budget is for values: tombstones do not raise it, and their tables have what the solver finds
/// them worth, so that the others keep their bits.
#[test]
fn a_budget_spends_the_bits_of_tombstones_elsewhere() {
    let db = filled("budget=10/key,kinds=paired,misses=0.9");
    let limit = db.filter_report().budget.unwrap().space.budget_bytes;
    assert_eq!(limit, KEYS * 10 / 8);
    delete(&db, |number| number % 32 != 0);
    db.rebuild_filters(&RebuildOptions::default()).unwrap();
    let report = db.filter_report();
    let budget = report.budget.unwrap();
    assert_eq!(budget.space.budget_bytes, limit);
    assert!(budget.space.built_bytes <= limit, "{budget:?}");
    let [deleted, values] = &budget.levels[..] else { panic!("{budget:?}") };
    // Both are reached by all lookups. Without tombstones, the upper one would have no fewer bits.
    assert_eq!((deleted.keys, values.keys), (KEYS - KEYS / 32, KEYS));
    assert!(deleted.planned_bits() <= values.planned_bits() + 1.0, "{budget:?}");
}

/// Half of the key range is deleted: lookups are of the other half.
#[test]
fn a_budget_plans_for_lookups_of_live_keys() {
    let db = open("budget=10/key,kinds=paired,misses=0.9");
    let key = |number: u64| format!("{number:016x}");
    for half in [0..KEYS, KEYS..2 * KEYS] {
        for number in half {
            db.put(key(number), "value").unwrap();
        }
        db.flush().unwrap();
        db.compact_all().unwrap();
    }
    // The same keys twice: as tombstones, and with new values.
    for number in 0..KEYS {
        db.delete(key(number)).unwrap();
    }
    db.flush().unwrap();
    for number in KEYS..2 * KEYS {
        db.put(key(number), "new").unwrap();
    }
    db.flush().unwrap();
    let budget = db.filter_report().budget.unwrap();
    let mut bits = budget.tables.iter().filter(|table| table.level == 0);
    let bits = [(); 2].map(|()| bits.next().unwrap().planned.bits_per_key());
    assert!(bits[0] > bits[1] + 4.0, "values {} bits, tombstones {}", bits[0], bits[1]);
}

/// Regression: a lookup that ended at a tombstone counted as one that searches all tables.
#[test]
fn a_lookup_that_ends_at_a_tombstone_is_no_miss_for_a_budget() {
    let db = filled("budget=10/key");
    delete(&db, |number| number % 2 == 0);
    for number in 0..KEYS {
        db.get(key(number)).unwrap();
    }
    let value = db.filter_report().budget.unwrap().value;
    assert_eq!(value.misses_seen_in, Some(KEYS));
    assert!(value.misses <= 0.01, "{value:?}");
}

#[test]
fn what_range_tombstones_delete_is_reported() {
    let db = open("paired:12");
    let key = |number: u64| format!("{number:016x}");
    for number in 0..KEYS {
        db.put(key(number), "value").unwrap();
    }
    db.flush().unwrap();
    db.delete_range(key(KEYS / 4)..).unwrap();
    assert_eq!(db.stats().memory.deleted_ranges, 0, "it is in a memtable");
    db.flush().unwrap();
    let stats = db.stats();
    let [level] = &stats.levels[..] else { panic!("{stats}") };
    let off = level.deleted_keys.abs_diff(KEYS * 3 / 4);
    assert!(level.keys == KEYS && off < KEYS / 20, "{level:?}");
    assert!(stats.memory.deleted_ranges > 0, "{stats:?}");
}
