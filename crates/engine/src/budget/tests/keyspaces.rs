//! Keyspaces with filters of their own, which a budget does not choose, but which count towards it.

use super::*;
use crate::KeyspaceOptions;
use crate::budget::held_bytes;
use crate::space::is_marked;

/// Keys, and bits of filters, in tables of named keyspaces, and in the others.
fn sums(db: &Db) -> [(u64, u64); 2] {
    let mut sums = [(0, 0); 2];
    for (_, table) in db.engine().version().tables() {
        let sum = &mut sums[usize::from(!is_marked(&table.smallest))];
        *sum = (sum.0 + table.keys, sum.1 + table.built_bytes() * 8);
    }
    sums
}

fn fill(db: &Db) {
    let own = KeyspaceOptions::new().filters("standard:14".parse().unwrap());
    let own = db.keyspace("own", own).unwrap();
    for i in 0..4_000 {
        db.put(key(i), format!("value of {i}")).unwrap();
        own.put(key(i), format!("value of {i}")).unwrap();
    }
    db.compact_all().unwrap();
    db.wait_idle().unwrap();
}

/// The other tables share what the keyspace leaves of the budget. Regression: the keyspace's
/// filters were planned as if the budget chose them, and then rebuilt smaller to fit. Every table
/// takes a little more memory than its filter, so small tables leave fewer bits to a key.
#[test]
fn filters_of_a_keyspace_count_and_stay() {
    for (table_bytes, least) in [(1 << 20, 4.5), (16 << 10, 0.5)] {
        let options = options(&in_memory(), "budget=10/key");
        let db = Db::open(DIR, options.compaction(|c| c.table_bytes(table_bytes))).unwrap();
        fill(&db);
        check_fits(&db);
        let [(own_keys, own_bits), (keys, bits)] = sums(&db);
        // The catalog has two entries.
        assert_eq!((own_keys, keys), (4_000, 4_002));
        assert!(own_bits >= 14 * own_keys, "{own_bits} bits of the keyspace");
        let of_a_key = bits as f64 / keys as f64;
        assert!((least..=6.0).contains(&of_a_key), "{of_a_key} bits of a key of the others");
        let report = budget(&db);
        assert!(report.space.budget_bytes.abs_diff(10_002) <= 1, "{report}");
        assert_eq!(report.space.built_bytes * 8, own_bits + bits, "{report}");
        assert_eq!(report.tables.iter().map(|table| table.keys).sum::<u64>(), keys, "{report}");
        let version = db.engine().version();
        let taken: u64 = version.tables().map(|(_, table)| held_bytes(table)).sum();
        assert!((9_000..=10_002).contains(&taken), "{taken} bytes");
    }
}

/// Regression: all keys of a flushed memtable counted as keys whose filters the budget chooses, and
/// got as many bits as if the keyspace had no filters of its own.
#[test]
fn a_flush_leaves_the_filters_of_a_keyspace_their_space() {
    let db = Db::open(DIR, options(&in_memory(), "budget=10/key")).unwrap();
    let own = KeyspaceOptions::new().filters("standard:14".parse().unwrap());
    let own = db.keyspace("own", own).unwrap();
    for i in 0..1_000 {
        db.put(key(i), "").unwrap();
        own.put(key(i), "").unwrap();
    }
    db.flush().unwrap();
    check_fits(&db);
    let [(own_keys, own_bits), (keys, bits)] = sums(&db);
    assert!(own_keys == 1_000 && own_bits >= 14 * own_keys, "{own_bits} bits of the keyspace");
    // Less than the 6 bits that are left, as a filter takes more than its bits.
    assert!((keys..=6 * keys).contains(&bits), "{bits} bits of the others");
    assert_eq!(budget(&db).queued_rebuilds, 0);
}

/// A budget that is lowered takes from the other tables first.
#[test]
fn a_lowered_budget_leaves_the_filters_of_a_keyspace() {
    let db = Db::open(DIR, options(&in_memory(), "budget=14/key")).unwrap();
    fill(&db);
    let [(_, before), _] = sums(&db);
    db.set_options(|options| options.filters("budget=9/key".parse().unwrap())).unwrap();
    db.wait_idle().unwrap();
    check_fits(&db);
    let [(_, own), (keys, bits)] = sums(&db);
    assert_eq!(own, before);
    assert!(bits < 5 * keys, "{bits} bits of the others");
    for i in 0..4_000 {
        assert!(db.contains_key(key(i)).unwrap());
    }
}
