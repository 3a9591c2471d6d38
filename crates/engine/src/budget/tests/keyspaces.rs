//! Keyspaces with filters of their own, which a budget does not choose, but pays for.

use super::*;
use crate::KeyspaceOptions;
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

/// The other tables share what the keyspace leaves of the budget. Its filters used to be planned as
/// if the budget chose them, and were then rebuilt smaller to fit.
#[test]
fn filters_of_a_keyspace_count_and_stay() {
    let db = Db::open(DIR, options(&in_memory(), "budget=10/key")).unwrap();
    fill(&db);
    check_fits(&db);
    let [(own_keys, own_bits), (keys, bits)] = sums(&db);
    // The catalog has two entries.
    assert_eq!((own_keys, keys), (4_000, 4_002));
    assert!(own_bits >= 14 * own_keys, "{own_bits} bits of the keyspace");
    assert!((3 * keys..=6 * keys).contains(&bits), "{bits} bits of the others");
    let report = budget(&db);
    assert!(report.space.budget_bytes.abs_diff(10_002) <= 1, "{report}");
    assert!(report.space.built_bytes * 8 >= own_bits + bits, "{report}");
    assert!(report.tables.iter().map(|table| table.keys).sum::<u64>() == keys, "{report}");
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
