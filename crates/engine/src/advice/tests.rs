use std::sync::Arc;

use trommel_filter::FilterSpec;
use trommel_sim::MemoryVfs;
use trommel_tuning::Budget;

use super::{AdviceOptions, AdviceVerdict, FilterAdvice, LOOKUPS_FOR_ADVICE};
use crate::RebuildOptions;
use crate::db::Db;
use crate::filter_policy::FilterPolicy;
use crate::options::{Compression, Options};

const KEYS: u64 = 30_000;
const LOOKUPS: u64 = LOOKUPS_FOR_ADVICE + 2000;

fn open(filters: &str) -> Db {
    let options = Options::default()
        .vfs(Arc::new(MemoryVfs::new()))
        .compression(Compression::None)
        .filters(filters.parse().unwrap())
        .writes(|w| w.write_buffer_bytes(64 << 10))
        .compaction(|c| c.table_bytes(128 << 10).base_level_bytes(128 << 10).level_ratio(4))
        .background_threads(0);
    Db::open("db", options).unwrap()
}

/// A key; even numbers are written.
fn key(number: u64) -> String {
    format!("{:016x}", number.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// A store of several levels that was idle before its last keys, which are in level 0.
fn grown(filters: &str) -> Db {
    let db = open(filters);
    let put = |numbers: std::ops::Range<u64>| {
        for number in numbers {
            db.put(key(2 * number), [7; 20]).unwrap();
        }
        db.flush().unwrap();
    };
    put(0..KEYS - 400);
    db.wait_idle().unwrap();
    // One more run; another wait for an idle store could compact it.
    put(KEYS - 400..KEYS);
    assert!(db.stats().levels.len() >= 3, "{}", db.stats());
    db
}

fn query(db: &Db, keys: impl Iterator<Item = u64>) {
    db.reset_stats();
    for number in keys {
        db.get(key(number)).unwrap();
    }
}

fn misses() -> impl Iterator<Item = u64> {
    (0..LOOKUPS).map(|number| 2 * number + 1)
}

fn hits() -> impl Iterator<Item = u64> {
    (0..LOOKUPS).map(|number| 2 * (number % KEYS))
}

/// Checks the properties of all advice.
fn check(db: &Db, advice: &FilterAdvice) {
    let text = advice.to_string();
    let changes = advice.verdict == AdviceVerdict::Change;
    assert_eq!(changes, advice.policy.is_some(), "{text}");
    assert!(advice.levels.iter().all(|level| text.contains(&level.reason)));
    let bytes: u64 = advice.levels.iter().map(|level| level.advised.bytes).sum();
    assert_eq!(bytes, advice.advised.bytes);
    assert!(bytes <= advice.budget_bytes, "{text}");
    let Some(policy) = &advice.policy else { return };
    let deepest = advice.levels.len() - 1;
    for (nth, level) in advice.levels.iter().enumerate() {
        let is_last = nth == deepest && level.level > 0;
        assert_eq!(policy.for_level(level.level, is_last), level.filter, "{policy}: {text}");
        assert!(!level.reason.is_empty());
    }
    db.set_filters(policy.clone()).unwrap();
}

#[test]
fn where_all_miss_upper_levels_get_more() {
    let db = grown("paired:10");
    query(&db, misses());
    let advice = db.filter_advice().unwrap();
    check(&db, &advice);
    assert_eq!(advice.verdict, AdviceVerdict::Change, "{advice}");
    assert_eq!((advice.lookups, advice.misses), (LOOKUPS, 1.0));
    let bits: Vec<f64> = advice.levels.iter().map(|level| level.filter.bits_per_key()).collect();
    let (last, upper) = bits.split_last().unwrap();
    assert!(*last < 10.0 && upper.iter().all(|bits| *bits > 10.0), "{advice}");
    assert!(bits[0] > 13.0 && bits.is_sorted_by(|a, b| a >= b), "{advice}");
    assert!(advice.levels.last().unwrap().reason.starts_with("fewer bits"), "{advice}");
    assert!(advice.levels[0].reason.starts_with("more bits"), "{advice}");
    assert!(advice.advised.wasted_reads < 0.8 * advice.now.wasted_reads, "{advice}");
    // The figures for the current filters match the counters.
    let report = db.filter_report();
    let counted: u64 = report.levels.iter().map(|level| level.counts.false_positives).sum();
    let reported = advice.now.wasted_reads * LOOKUPS as f64;
    assert!((counted as f64 - reported).abs() < 6.0 * reported.sqrt(), "{counted} of {reported}");
    assert!((advice.now.lines / advice.advised.lines - 1.0).abs() < 0.2, "{advice}");
}

#[test]
fn advice_saves_as_many_reads_as_it_promises() {
    let db = grown("paired:10");
    query(&db, misses());
    let advice = db.filter_advice().unwrap();
    // The same keys in the same order build the same tree.
    let other = grown(&advice.policy.clone().unwrap().to_string());
    // Tables that were moved down unread have the filters of the level above.
    other.rebuild_filters(&RebuildOptions::default()).unwrap();
    query(&other, misses());
    let report = other.filter_report();
    let counted: u64 = report.levels.iter().map(|level| level.counts.false_positives).sum();
    let reported = advice.advised.wasted_reads * LOOKUPS as f64;
    assert!(
        (counted as f64 - reported).abs() < 6.0 * reported.sqrt(),
        "{counted}, reported {reported}: {advice}"
    );
    let bytes = report.filter_bytes as f64 / advice.advised.bytes as f64;
    assert!((0.9..1.1).contains(&bytes), "{} bytes: {advice}", report.filter_bytes);
}

/// Filters set by level would lift the limit of the budget, however good they are.
#[test]
fn a_budget_stays_a_budget() {
    let db = grown("budget=10/key,kinds=paired|blocked");
    query(&db, misses());
    let advice = db.filter_advice().unwrap();
    let keys: u64 = advice.levels.iter().map(|level| level.keys).sum();
    assert_eq!(advice.budget_bytes, keys * 10 / 8);
    let policy = advice.policy.as_ref().map(ToString::to_string);
    assert!(policy.is_none_or(|policy| policy == "budget=10/key,kinds=paired|blocked"), "{advice}");
    let less = AdviceOptions::new().budget("5/key".parse().unwrap());
    let advice = db.filter_advice_with(&less).unwrap();
    assert_eq!(advice.verdict, AdviceVerdict::Change, "{advice}");
    let policy = advice.policy.as_ref().unwrap().to_string();
    assert_eq!(policy, "budget=5/key,kinds=paired|blocked");
    assert!(
        advice.summary().starts_with(&format!("rebuild the filters, by {policy}: ")),
        "{advice}"
    );
}

#[test]
fn where_all_hit_the_last_level_needs_none() {
    let db = grown("blocked:10");
    query(&db, hits());
    let advice = db.filter_advice().unwrap();
    check(&db, &advice);
    assert_eq!((advice.verdict, advice.misses), (AdviceVerdict::Change, 0.0), "{advice}");
    let last = advice.levels.last().unwrap();
    assert_eq!((last.filter, last.advised.bytes), (FilterSpec::NONE, 0));
    let reason = &last.reason;
    assert!(reason.contains("found its key") && reason.contains("about 1.00 reads"), "{reason}");
    assert!(reason.contains("wrong for lookups of missing keys"), "{reason}");
    assert!(advice.levels[0].filter.to_string().starts_with("blocked:"), "the kind stays");
    assert!(advice.advised.bytes < advice.now.bytes, "{advice}");
    // Lookups of missing keys get other advice.
    let missing = db.filter_advice_with(&AdviceOptions::new().misses(1.0)).unwrap();
    assert!(missing.levels.last().unwrap().filter.bits_per_key() > 8.0, "{missing}");
    assert!(missing.to_string().contains("as given"), "{missing}");
}

/// Regression: keys answered by a memtable, which probe no filter, counted as missing keys.
#[test]
fn keys_answered_by_a_memtable_are_no_misses() {
    let db = grown("paired:10");
    let (deleted, renewed) = (0..40, 40..50);
    deleted.clone().for_each(|number| {
        db.delete(key(2 * number)).unwrap();
    });
    renewed.clone().for_each(|number| {
        db.put(key(2 * number), [8; 20]).unwrap();
    });
    query(&db, (0..LOOKUPS).map(|number| 2 * (number % renewed.end)));
    let keys: Vec<_> = (0..60).map(|number| key(2 * number)).collect();
    assert_eq!(db.multi_get(&keys).unwrap().iter().flatten().count(), 20);
    let stats = db.stats();
    assert_eq!(
        (stats.lookups.gets, stats.lookups.memtable_hits),
        (LOOKUPS + 60, LOOKUPS + 50),
        "{stats}"
    );
    let advice = db.filter_advice().unwrap();
    assert_eq!((advice.lookups, advice.measured_misses), (10, Some(0.0)), "{advice}");
    assert_eq!(advice.verdict, AdviceVerdict::TooFewLookups, "{advice}");
}

/// Overwrites some keys, so that they are in the newest run of level 0.
fn renewed(db: &Db) -> u64 {
    let renewed = 50;
    loop {
        for number in 0..renewed {
            db.put(key(2 * number), [8; 40]).unwrap();
        }
        db.flush().unwrap();
        if db.stats().levels[0].level == 0 {
            return renewed;
        }
    }
}

/// Regression: filters of a few keys are a cache line or two, whatever their bits, and the advice
/// promised to save reads for "0.0 KiB more".
#[test]
fn advice_promises_no_saving_of_zero_bytes() {
    let db = grown("paired:10");
    db.compact_all().unwrap();
    (0..20).for_each(|number| {
        db.put(key(200 * number), [8; 40]).unwrap();
    });
    db.flush().unwrap();
    query(&db, misses());
    // Fewer bits, so that there is something to advise.
    let less = AdviceOptions::new().budget("8/key".parse().unwrap());
    let advice = db.filter_advice_with(&less).unwrap();
    check(&db, &advice);
    assert_eq!((advice.verdict, advice.levels[0].keys), (AdviceVerdict::Change, 20), "{advice}");
    let of_few = &advice.levels[0];
    assert_eq!(of_few.advised.bytes, of_few.now.bytes, "{advice}");
    assert!((of_few.filter.bits_per_key() - 10.0).abs() > 0.5, "{advice}");
    assert!(of_few.reason.starts_with("about as it is: it has"), "{advice}");
    let reasons = advice.levels.iter().map(|level| &*level.reason);
    assert!(
        reasons.chain([&*advice.summary()]).all(|words| !words.contains(" 0.0 KiB")),
        "{advice}"
    );
    let none = AdviceOptions::new().budget("0".parse().unwrap());
    let none = db.filter_advice_with(&none).unwrap().summary();
    assert!(none.contains(" now, 0 bytes as advised; querying"), "{none}");
}

#[test]
fn bytes_go_where_reads_are_dear() {
    let db = grown("paired:10");
    query(&db, misses());
    let alike = db.filter_advice().unwrap();
    assert_eq!(alike.now.wasted_cost, alike.now.wasted_reads);
    let last = alike.levels.len() - 1;
    let level = alike.levels[last].level;
    let dear = AdviceOptions::new().read_cost(level, 7.0).read_cost(level, 100.0).misses(1.0);
    let dear = db.filter_advice_with(&dear).unwrap();
    let bits = |advice: &FilterAdvice, nth: usize| advice.levels[nth].filter.bits_per_key();
    assert!(bits(&dear, last) > bits(&alike, last) + 0.2, "{dear}\n{alike}");
    assert!(bits(&dear, 0) < bits(&alike, 0) - 3.0, "{dear}\n{alike}");
    let priced = |advice: &FilterAdvice| {
        let costs = advice.levels.iter().map(|it| it.advised.wasted_reads * it.read_cost);
        costs.sum::<f64>()
    };
    assert!((dear.advised.wasted_cost / priced(&dear) - 1.0).abs() < 1e-9, "{dear}");
    let text = dear.to_string();
    assert!(
        text.contains("% of what wasted reads cost") && text.contains(", which cost "),
        "{text}"
    );
    let text = alike.to_string();
    assert!(!text.contains("wasted reads cost") && !text.contains("which cost"), "{text}");
    // Free reads need no filter.
    let free = AdviceOptions::new().read_cost(level, 0.0);
    let free = db.filter_advice_with(&free).unwrap();
    assert_eq!(free.levels[last].filter, FilterSpec::NONE, "{free}");
    for (level, cost) in [(0, -1.0), (0, f64::NAN), (1001, 1.0)] {
        let wrong = AdviceOptions::new().read_cost(level, cost);
        assert!(db.filter_advice_with(&wrong).is_err(), "{level} {cost}");
    }
}

#[test]
fn levels_without_lookups_need_no_filters() {
    let db = grown("paired:10");
    let newest = renewed(&db);
    query(&db, (0..LOOKUPS).map(|number| 2 * (number % newest)));
    let advice = db.filter_advice().unwrap();
    check(&db, &advice);
    assert_eq!(advice.verdict, AdviceVerdict::Change);
    assert!(advice.levels.iter().all(|level| level.filter == FilterSpec::NONE), "{advice}");
    assert!(advice.levels.last().unwrap().reason.contains("no lookup came here"), "{advice}");
}

/// Regression: lookups that all found their key in the oldest table of level 0 reached the newer
/// ones without finding it.
#[test]
fn hits_in_the_oldest_run_need_the_filters_of_the_newer_ones() {
    let db = open("paired:12");
    for run in 0..3 {
        for number in 0..200 {
            db.put(key(2 * (3 * number + run)), [7; 40]).unwrap();
        }
        db.flush().unwrap();
    }
    assert_eq!(db.stats().levels[0].tables, 3);
    query(&db, (0..LOOKUPS).map(|number| 2 * (3 * (number % 200))));
    let advice = db.filter_advice().unwrap();
    check(&db, &advice);
    assert_eq!((advice.misses, advice.levels.len()), (0.0, 1), "{advice}");
    assert!((advice.levels[0].in_vain - 2.0).abs() < 0.1, "{advice}");
    assert!(advice.levels[0].filter.bits_per_key() > 10.0, "{advice}");
}

#[test]
fn skewed_hits_count_where_they_are() {
    let db = grown("paired:10");
    let newest = renewed(&db);
    let one_in_five_misses =
        |keys: u64| (0..LOOKUPS).map(move |n| if n % 5 == 0 { 2 * n + 1 } else { 2 * (n % keys) });
    query(&db, one_in_five_misses(KEYS));
    let even = db.filter_advice().unwrap();
    check(&db, &even);
    assert!((even.misses - 0.2).abs() < 1e-3, "{even}");
    assert_eq!(even.measured_misses, Some(even.misses));
    query(&db, one_in_five_misses(newest));
    let skewed = db.filter_advice().unwrap();
    check(&db, &skewed);
    // Fewer lookups reach the levels between, because the hits are found above them.
    let between = |advice: &FilterAdvice| advice.levels[1].in_vain;
    assert!(between(&skewed) < 0.5 * between(&even), "{skewed}\n{even}");
    assert!(skewed.levels[0].hits > 0.7, "{skewed}");
}

#[test]
fn without_tables_or_lookups_there_is_none() {
    let db = open("paired:10");
    let advice = db.filter_advice().unwrap();
    check(&db, &advice);
    assert_eq!(advice.verdict, AdviceVerdict::NoTables);
    assert!(advice.to_string().contains("no tables"), "{advice}");
    let db = grown("paired:10");
    query(&db, misses().take(LOOKUPS_FOR_ADVICE as usize - 1));
    let advice = db.filter_advice().unwrap();
    check(&db, &advice);
    assert_eq!(advice.verdict, AdviceVerdict::TooFewLookups);
    assert!(advice.to_string().contains("9999 lookups") && advice.to_string().contains("10000"));
    db.get(key(1)).unwrap();
    assert_ne!(db.filter_advice().unwrap().verdict, AdviceVerdict::TooFewLookups);
}

#[test]
fn of_one_level_nothing_can_be_moved_elsewhere() {
    for deep in [false, true] {
        let db = open("paired:12");
        for number in 0..300 {
            db.put(key(2 * number), [7; 40]).unwrap();
        }
        db.flush().unwrap();
        if deep {
            db.compact_all().unwrap();
        }
        query(&db, misses());
        let advice = db.filter_advice().unwrap();
        check(&db, &advice);
        assert_eq!((advice.verdict, advice.levels.len()), (AdviceVerdict::Keep, 1), "{advice}");
        assert!(advice.levels[0].reason.starts_with("keep paired:12.0"), "{advice}");
        query(&db, (0..LOOKUPS).map(|number| 2 * (number % 300)));
        let advice = db.filter_advice().unwrap();
        check(&db, &advice);
        assert_eq!(advice.levels[0].filter, FilterSpec::NONE, "{advice}");
        if deep {
            let of_l0 = advice.policy.unwrap().for_level(0, false);
            assert_ne!(of_l0, FilterSpec::NONE, "level 0 is not what was seen");
        }
    }
}

/// Regression: with level 0 empty, the advised policy had no filters for what is written next.
#[test]
fn a_level_0_that_is_empty_is_advised_filters() {
    let db = open("paired:12");
    for number in 0..3000 {
        db.put(key(2 * number), [7; 40]).unwrap();
    }
    db.compact_all().unwrap();
    query(&db, misses());
    let options = AdviceOptions::new().budget("6/key".parse::<Budget>().unwrap());
    let advice = db.filter_advice_with(&options).unwrap();
    check(&db, &advice);
    assert_eq!((advice.verdict, advice.levels[0].level), (AdviceVerdict::Change, 1), "{advice}");
    let policy = advice.policy.unwrap();
    assert_eq!(policy.for_level(0, false), advice.levels[0].filter, "{policy}");
}

#[test]
fn a_budget_is_kept_and_nonsense_refused() {
    let db = grown("L0=paired:16,L1-=paired:12");
    query(&db, misses());
    let with = |budget: &str| {
        let options = AdviceOptions::new().budget(budget.parse::<Budget>().unwrap());
        db.filter_advice_with(&options).unwrap()
    };
    let (half, twice, none) = (with("6/key"), with("24/key"), with("0"));
    for advice in [&half, &twice, &none] {
        check(&db, advice);
        assert_eq!(advice.verdict, AdviceVerdict::Change, "{advice}");
    }
    assert!(half.advised.wasted_reads > half.now.wasted_reads);
    assert!(twice.advised.wasted_reads < twice.now.wasted_reads / 10.0, "{twice}");
    assert!(none.levels.iter().all(|level| level.filter == FilterSpec::NONE), "{none}");
    let error = db.filter_advice_with(&AdviceOptions::new().misses(1.5)).unwrap_err().to_string();
    assert!(error.contains("give 0 to 1"), "{error}");
    // A store without filters gets the first ones.
    let bare = grown("none");
    query(&bare, misses());
    let advice = bare.filter_advice().unwrap();
    assert_eq!(advice.budget_bytes, KEYS * 10 / 8, "{advice}");
    assert!(advice.now.wasted_reads > 1.0 && advice.advised.wasted_reads < 0.1, "{advice}");
    assert!(advice.levels.iter().all(|level| level.filter_now == "none"), "{advice}");
    let policy: FilterPolicy = advice.policy.unwrap();
    assert!(policy.to_string().contains("paired:"));
}
