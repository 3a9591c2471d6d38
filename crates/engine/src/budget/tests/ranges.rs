//! Range filters beside a budget: their actual bytes are what it pays for.

use super::*;
use crate::DriftReason;
use crate::budget::held;
use crate::version::logical_level;

/// Options for tables of some ten thousand keys, whose filters are not rounded noticeably.
fn large(filters: &str) -> Options {
    options(&in_memory(), filters)
        .writes(|w| w.write_buffer_bytes(16 << 20))
        .compaction(|c| c.table_bytes(1 << 20))
        .reads(|r| r.block_bytes(4 << 10))
}

/// Four keys in each of many directories: in a block of forty keys, whole directories share a cell.
fn crowded(number: u64) -> String {
    let place = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 44;
    format!("{:06}/a-directory-with-a-long-name/{place:07}", number / 4)
}

/// Regression: the bytes that range filters of keys that spread evenly would take were subtracted
/// from those that were built, so that filters of keys seemed to take less than planned.
#[test]
fn range_filters_of_crowded_keys_do_not_change_the_ratio_of_others() {
    let db = Db::open(DIR, large("budget=16/key,misses=1,ranges=infix:10")).unwrap();
    for round in 0..2 {
        for number in 0..30_000 {
            db.put(crowded(number), [round; 20]).unwrap();
        }
        db.compact_all().unwrap();
    }
    let history = &db.engine().statistics.budget_history;
    let (keys, ranges) = (history.built_for_planned(), history.ranges_built_for_planned());
    assert!((0.97..1.03).contains(&keys), "{keys} bytes built for each that was planned");
    assert!(ranges < 0.7, "{ranges} bytes of range filters built for each that was planned");
    // What the range filters do not take goes to the filters of keys.
    let report = db.filter_report();
    let space = report.budget.as_ref().unwrap().space;
    assert!(space.built_bytes <= space.budget_bytes, "{report}");
    assert!(space.built_bytes * 20 > space.budget_bytes * 19, "{report}");
}

/// The rates of the tables' filters of keys: as the budget estimates them from their bytes, and as
/// they are.
fn rates(db: &Db) -> Vec<[f64; 2]> {
    let engine = db.engine();
    let (version, options) = (engine.version(), engine.options.load());
    let (budget, ranges) = (options.filters.budget().unwrap(), engine.planned_ranges());
    let rates = |(level, table): (usize, &Arc<crate::version::TableFile>)| {
        let is_last = logical_level(&version, level).1;
        let facts = engine.files.tables.reader(table).unwrap().filters().facts();
        [held(budget, &ranges, is_last, table, 1.0).rate, facts.expected]
    };
    version.tables().map(rates).collect()
}

/// Regression: the bytes of range filters were taken for those that the policy of today sets, also
/// in tables built before it.
#[test]
fn range_filters_of_another_policy_are_known_by_their_bytes() {
    let policies = [
        ["budget=12/key,misses=1", "budget=18/key,misses=1,ranges=infix:6"],
        ["budget=18/key,misses=1,ranges=infix:6", "budget=18/key,misses=1"],
    ];
    for [before, after] in policies {
        let db = Db::open(DIR, large(before)).unwrap();
        for number in 0..30_000_u64 {
            let number = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            db.put(number.swap_bytes().to_le_bytes(), [7; 20]).unwrap();
        }
        db.compact_all().unwrap();
        let report = budget(&db);
        assert!(report.tables.iter().all(|it| it.reason == DriftReason::AsPlanned), "{report}");
        db.set_filters(after.parse().unwrap()).unwrap();
        let report = budget(&db);
        assert_eq!((report.queued_rebuilds, report.space.dropped_tables), (0, 0), "{report}");
        for [estimated, actual] in rates(&db) {
            assert!((0.8..1.25).contains(&(estimated / actual)), "{estimated}, {actual}: {after}");
        }
        let reason = |it: &crate::TableDrift| match after.contains("ranges") {
            true => it.reason == DriftReason::OtherRanges,
            // The filter of keys may have all bytes now.
            false => it.reason == DriftReason::WasDearer,
        };
        assert!(report.tables.iter().all(reason), "{report:?}");
        db.rebuild_filters(&RebuildOptions::default()).unwrap();
        let report = budget(&db);
        assert!(report.tables.iter().all(|it| it.reason == DriftReason::AsPlanned), "{report:?}");
    }
}
