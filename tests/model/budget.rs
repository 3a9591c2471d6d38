//! Filter budgets: their benefit, and that they are never exceeded, whatever is kept open.

use std::collections::BTreeMap;
use std::sync::Arc;

use trommel::{BudgetReport, Db, DriftReason, FilterReport, Options, Stats};
use trommel_sim::MemoryVfs;
use trommel_tests::counters::Counters;
use trommel_tests::settings::{first_seed, rounds};

use crate::iterators::{Check, ok};
use crate::report::key;
use crate::rng::Rng;

/// Keys from this number on are never written.
const MISSING: u64 = 1 << 36;

/// A store in memory that does its background work in the calls that make it necessary.
fn options(filters: &str) -> Options {
    Options::default()
        .vfs(Arc::new(MemoryVfs::new()))
        .background_threads(0)
        .reads(|r| r.block_bytes(512).cache_bytes(0))
        .filters(filters.parse().unwrap())
}

/// Options of a store of several levels, each ten times larger than the one above: tables of about
/// 5,000 keys, a base level of two.
fn leveled(filters: &str) -> Options {
    options(filters)
        .writes(|w| w.write_buffer_bytes(512 << 10))
        .compaction(|c| c.table_bytes(192 << 10).base_level_bytes(256 << 10).level_ratio(10))
}

fn open(options: Options) -> Db {
    Db::open("/store", options).unwrap()
}

fn fill(db: &Db, seed: u64, numbers: std::ops::Range<u64>) {
    for number in numbers {
        db.put(key(seed, number), [number as u8; 16]).unwrap();
    }
}

fn budget(db: &Db) -> BudgetReport {
    db.filter_report().budget.expect("the policy is a budget")
}

/// Lookups of missing keys, and the tables that were searched for them unnecessarily.
fn wasted(db: &Db, seed: u64, lookups: u64) -> u64 {
    db.reset_stats();
    for number in 0..lookups {
        assert_eq!(db.get(key(seed, MISSING + number)).unwrap(), None);
    }
    db.filter_report().levels.iter().map(|row| row.counts.false_positives).sum()
}

fn built(report: &FilterReport) -> u64 {
    report.levels.iter().map(|row| row.filter_bytes).sum()
}

/// Bytes of filters that are built and count, and tables queued for smaller ones.
fn built_and_queued(db: &Db, stats: &Stats) -> (u64, u64) {
    let last_has_some = db.options().settings().contains(&("filters_on_last_level", "true".into()));
    let last = stats.levels.iter().map(|level| level.level).max().unwrap_or(0);
    let counts = |level: usize| last_has_some || level == 0 || level < last;
    let counted = stats.levels.iter().filter(|level| counts(level.level));
    let built = counted.map(|level| level.filter_bytes).sum();
    (built, stats.background.filter_rebuilds.queued)
}

/// Whether the store's filters have a budget; then no more than that is in memory, including
/// filters of tables that only iterators hold, and no more is built unless rebuilds are queued.
///
/// # Errors
/// If more is in memory at any moment, whatever other threads do; or more is built.
pub(crate) fn holds(db: &Db) -> Check<bool> {
    let stats = db.stats();
    is_within(&stats)?;
    let Some(most) = stats.memory.filter_budget else { return Ok(false) };
    let (built, queued) = built_and_queued(db, &stats);
    if built <= most || queued > 0 {
        return Ok(true);
    }
    if db.options().settings().contains(&("background_threads", "0".into())) {
        let what = format!("{built} bytes are built, {queued} tables queued, {:?}", stats.memory);
        return Err(format!("more filters are built than their budget: {what}"));
    }
    // The two numbers were read one after another, and compactions may have changed both.
    ok("wait_idle", db.wait_idle())?;
    fits(db)
}

/// Checks that the memory of filters is within the budget.
fn is_within(stats: &Stats) -> Check {
    let memory = stats.memory;
    let is_sum = memory.filters + memory.cached_filters <= memory.held_filters;
    if is_sum && memory.filter_budget.is_none_or(|most| memory.held_filters <= most) {
        return Ok(());
    }
    Err(format!("filters are beyond their budget, or not counted: {memory:?}"))
}

/// As [`holds`], for an idle store: nothing is queued, and the current budget is the one that was
/// set.
///
/// # Errors
/// If more is in memory, or built.
pub(crate) fn fits(db: &Db) -> Check<bool> {
    let stats = db.stats();
    is_within(&stats)?;
    let Some(most) = stats.memory.filter_budget else {
        let settings = db.options().settings();
        let is_set = settings.iter().any(|(name, is)| *name == "filters" && is.contains("budget="));
        return if is_set { Err("the budget has not come into force".into()) } else { Ok(false) };
    };
    let (built, queued) = built_and_queued(db, &stats);
    if built <= most && queued == 0 {
        return Ok(true);
    }
    let what = format!("{built} bytes are built, {queued} tables queued, {:?}", stats.memory);
    Err(format!("filters of a store that rests are beyond their budget: {what}"))
}

fn check(db: &Db) {
    assert_eq!(holds(db), Ok(true));
}

#[test]
fn a_budget_wastes_fewer_reads_than_as_many_bits_everywhere() {
    let mut counters = Counters::new("model/budget/uniform");
    for seed in 0..rounds(2) {
        let (uniform, solved) =
            (open(leveled("paired:10")), open(leveled("budget=10/key,misses=1")));
        for db in [&uniform, &solved] {
            fill(db, seed, 0..180_000);
            db.flush().unwrap();
            db.wait_idle().unwrap();
            // Runs of level 0, which stay there.
            db.set_options(|options| options.compaction(|c| c.auto_compaction(false))).unwrap();
            for run in 0..3 {
                fill(db, seed, 180_000 + run * 1_000..181_000 + run * 1_000);
                db.flush().unwrap();
            }
        }
        let lookups = 100_000;
        let reads = [&uniform, &solved].map(|db| wasted(db, seed, lookups));
        let reports = [&uniform, &solved].map(Db::filter_report);
        println!("{}\n{}\n{reads:?} wasted reads", reports[0], reports[1]);
        let levels = reports[1].levels.iter().map(|row| row.level).max();
        assert!(levels >= Some(2), "{}", reports[1]);
        assert!(built(&reports[1]) <= built(&reports[0]), "no more bytes");
        assert!(reads[0] > 1_000, "there is something to save: {reads:?}");
        assert!(reads[1] * 2 < reads[0], "less than half as many wasted reads: {reads:?}");
        let budget = reports[1].budget.as_ref().unwrap();
        assert_eq!(budget.space.dropped_tables, 0, "{budget}");
        assert!(budget.space.built_bytes <= budget.space.budget_bytes, "{budget}");
        let expected = budget.value.expected_wasted_reads * lookups as f64;
        assert!((reads[1] as f64 / expected - 1.0).abs() < 0.15, "{expected}: {reads:?}");
        check(&solved);
        counters.add("reads.uniform", reads[0]);
        counters.add("reads.solved", reads[1]);
    }
    counters.finish();
}

/// A pseudo-random key of eight bytes.
fn short(seed: u64, number: u64) -> [u8; 8] {
    Rng::new(seed << 40 | number).u64().to_le_bytes()
}

/// Number of keys in a run of level 0 and in the levels below it. Ten bits per key give whole cache
/// lines in the upper ones, so that rounding does not increase uniform bits.
const FULL: [u64; 5] = [204, 2_048, 20_480, 204_800, 2_048_000];

/// A store of five levels, each ten times larger than the one above and nearly full: one run of
/// level 0, and four below, the last of two million keys; the keys do not depend on the filters.
///
/// It is built from the bottom: each level from two runs, compacted into a base level that is large
/// enough, so that nothing depends on when a compaction runs. The last level is then rewritten with
/// the final base level, as in a store that has been in use for long: a budget knows which levels
/// are above it.
fn five_levels(filters: &str, seed: u64) -> Db {
    let base = |level: usize| (48 << 10) * 10_u64.pow(level as u32 - 1);
    let db = open(
        options(filters)
            .writes(|w| w.write_buffer_bytes(256 << 20))
            .compaction(|c| c.table_bytes(1 << 20).level_ratio(10).l0_trigger(2)),
    );
    let mut number = 0;
    let mut put = |keys: u64| {
        for number in number..number + keys {
            db.put(short(seed, number), []).unwrap();
        }
        number += keys;
        db.flush().unwrap();
    };
    for (level, keys) in FULL.into_iter().enumerate().skip(1).rev() {
        db.set_options(|options| options.compaction(|c| c.base_level_bytes(base(level)))).unwrap();
        (0..2).for_each(|_| put(keys / 2));
        db.wait_idle().unwrap();
        if level == FULL.len() - 1 {
            db.set_options(|options| options.compaction(|c| c.base_level_bytes(base(1)))).unwrap();
            db.compact_all().unwrap();
        }
    }
    put(FULL[0]);
    db.wait_idle().unwrap();
    let keys: Vec<u64> = db.filter_report().levels.iter().map(|row| row.keys).collect();
    assert_eq!(keys, FULL, "{:?}", db.stats().levels);
    db
}

#[test]
fn five_full_levels_waste_a_third_of_what_uniform_bits_waste() {
    let mut counters = Counters::new("model/budget/five_levels");
    let lookups = 1_000_000;
    for seed in first_seed()..first_seed() + rounds(3) {
        let [uniform, solved] = ["paired:10", "budget=10/key,misses=1"].map(|filters| {
            let db = five_levels(filters, seed);
            db.reset_stats();
            for number in 0..lookups {
                assert_eq!(db.get(short(seed, MISSING + number)).unwrap(), None);
            }
            let report = db.filter_report();
            let wasted: u64 = report.levels.iter().map(|row| row.counts.false_positives).sum();
            let keys: u64 = report.levels.iter().map(|row| row.keys).sum();
            println!("{:?}\n{report}\n{wasted} wasted reads", db.stats().levels);
            (wasted, built(&report) as f64 * 8.0 / keys as f64, report)
        });
        assert!(solved.1 <= 10.0 && solved.1 <= uniform.1, "{} and {} bits", uniform.1, solved.1);
        assert!(uniform.0 > 25_000, "one read in 110 on each of five levels: {}", uniform.0);
        assert!(solved.0 * 3 <= uniform.0, "{} and {} reads", uniform.0, solved.0);
        let budget = solved.2.budget.unwrap();
        let expected = budget.value.expected_wasted_reads * lookups as f64;
        assert!((solved.0 as f64 / expected - 1.0).abs() < 0.1, "{expected}: {}", solved.0);
        counters.add("reads.uniform", uniform.0);
        counters.add("reads.solved", solved.0);
    }
    counters.finish();
}

/// Small tables in several levels, with iterators held over them, under changing budgets.
#[test]
fn no_more_is_held_than_may_be_whatever_is_kept_open() {
    let small = |filters| {
        options(filters)
            .writes(|w| w.write_buffer_bytes(32 << 10))
            .compaction(|c| c.table_bytes(16 << 10).base_level_bytes(64 << 10).level_ratio(4))
    };
    for filters in ["budget=4KiB,misses=1", "budget=10/key", "budget=5KiB,kinds=blocked"] {
        let cached = trommel::FilterResidency::Cached;
        let pinned = trommel::FilterResidency::Pinned;
        for residency in [pinned, cached] {
            let db = open(
                small(filters)
                    .filtering(|f| f.filter_residency(residency))
                    .reads(|r| r.cache_bytes(4 << 20)),
            );
            let mut model = BTreeMap::new();
            let (mut held, mut dropped) = (Vec::new(), 0);
            for round in 0..12_u64 {
                // Every third time tables are written without a budget.
                let is_free = round % 3 == 2;
                if is_free {
                    db.set_filters("paired:16".parse().unwrap()).unwrap();
                }
                for number in 0..1_500 {
                    let (key, value) =
                        (key(3, (number * 7 + round * 500) % 4_000), (round * 10_000 + number));
                    db.put(key, value.to_le_bytes()).unwrap();
                    model.insert(key, value);
                }
                db.flush().unwrap();
                if is_free {
                    db.compact_all().unwrap();
                    wasted(&db, 3, 300);
                    db.set_filters(filters.parse().unwrap()).unwrap();
                    dropped += budget(&db).space.dropped_tables;
                }
                check(&db);
                // Iterators that have started hold their tables.
                let mut iterator = db.iter();
                iterator.next().unwrap().unwrap();
                held.push(iterator);
                for (nth, (key, value)) in model.iter().enumerate() {
                    assert_eq!(db.get(key).unwrap().unwrap(), value.to_le_bytes()[..]);
                    if nth % 50 == 0 {
                        check(&db);
                    }
                }
                wasted(&db, 3, 300);
                check(&db);
                db.wait_idle().unwrap();
                assert_eq!(fits(&db), Ok(true));
                if round % 5 == 4 {
                    held.clear();
                    check(&db);
                }
            }
            db.compact_all().unwrap();
            check(&db);
            wasted(&db, 3, 300);
            let report = budget(&db);
            assert!(report.space.resident_bytes > 0, "{filters}: {report}");
            assert!(dropped > 0, "{filters}: nothing had to go");
            drop(held);
            check(&db);
        }
    }
}

#[test]
fn what_is_built_comes_back_to_the_budget_as_tables_are_merged() {
    let db = open(leveled("budget=40KiB"));
    fill(&db, 8, 0..10_000);
    db.compact_all().unwrap();
    let rich = budget(&db);
    assert!(rich.levels[0].built_bits() > 20.0, "there was room: {rich}");
    fill(&db, 8, 10_000..60_000);
    db.flush().unwrap();
    db.wait_idle().unwrap();
    wasted(&db, 8, 1_000);
    check(&db);
    db.compact_all().unwrap();
    let poor = budget(&db);
    println!("{rich}\n{poor}");
    assert!(poor.space.built_bytes <= poor.space.budget_bytes, "{poor}");
    assert_eq!(poor.space.dropped_tables, 0, "{poor}");
    assert!(poor.levels[0].built_bits() < 6.0, "{poor}");
    assert!(poor.value.price > rich.value.price, "a byte is worth more: {rich}\n{poor}");
    check(&db);
}

#[test]
fn a_policy_changed_on_a_live_store_counts_for_new_tables() {
    let db = open(leveled("paired:12"));
    fill(&db, 9, 0..20_000);
    db.compact_all().unwrap();
    let before = built(&db.filter_report());
    assert_eq!(db.stats().memory.filter_budget, None);
    wasted(&db, 9, 100);

    db.set_filters("budget=6/key,misses=1".parse().unwrap()).unwrap();
    check(&db);
    let report = budget(&db);
    assert_eq!(report.space.built_bytes, report.tables.iter().map(|t| t.built_bytes).sum::<u64>());
    assert!(report.space.dropped_tables > 0, "twelve bits are more than six: {report}");
    assert!(report.tables.iter().all(|t| t.reason == DriftReason::WasCheaper), "{report}");
    assert!(report.to_string().contains("less scarce"), "{report}");
    wasted(&db, 9, 1_000);
    check(&db);

    // Rewritten tables have the filters of the budget.
    fill(&db, 9, 20_000..21_000);
    db.compact_all().unwrap();
    let report = budget(&db);
    assert_eq!(report.space.dropped_tables, 0, "{report}");
    let (built_bits, planned) = (report.levels[0].built_bits(), report.levels[0].planned_bits());
    assert!((built_bits / planned - 1.0).abs() < 0.05, "{report}");
    assert!((4.0..6.0).contains(&report.levels[0].built_bits()), "{report}");

    // Without a budget all filters are queried again.
    db.set_filters("paired:12".parse().unwrap()).unwrap();
    assert_eq!(db.stats().memory.filter_budget, None);
    assert_eq!(db.filter_report().budget, None);
    let after = built(&db.filter_report());
    assert!(after * 18 < before * 11, "they keep the filters they have: {after}, {before}");
}

#[test]
fn misses_are_those_that_were_seen() {
    let db = open(leveled("budget=10/key"));
    fill(&db, 4, 0..5_000);
    db.flush().unwrap();
    assert_eq!((budget(&db).value.misses, budget(&db).value.misses_seen_in), (0.5, None));
    wasted(&db, 4, 9_999);
    assert_eq!(
        (budget(&db).value.misses, budget(&db).value.misses_seen_in),
        (0.5, None),
        "too few"
    );
    wasted(&db, 4, 1);
    assert_eq!((budget(&db).value.misses, budget(&db).value.misses_seen_in), (1.0, Some(10_000)));
    for number in 0..30_000 {
        assert!(db.contains_key(key(4, number % 5_000)).unwrap());
    }
    assert_eq!((budget(&db).value.misses, budget(&db).value.misses_seen_in), (0.25, Some(40_000)));
    db.set_filters("budget=10/key,misses=0.9".parse().unwrap()).unwrap();
    assert_eq!((budget(&db).value.misses, budget(&db).value.misses_seen_in), (0.9, None));
}

#[test]
fn the_same_writes_make_the_same_filters() {
    let tables = || {
        let db = open(leveled("budget=8/key,kinds=paired|blocked"));
        fill(&db, 12, 0..40_000);
        wasted(&db, 12, 500);
        db.wait_idle().unwrap();
        let report = budget(&db);
        (report.value.price, report.tables)
    };
    assert_eq!(tables(), tables());
}

#[test]
fn a_budget_of_nothing_and_a_level_without_filters() {
    let db = open(leveled("budget=0"));
    fill(&db, 5, 0..20_000);
    db.wait_idle().unwrap();
    assert_eq!(wasted(&db, 5, 200), wasted(&db, 5, 200));
    assert_eq!((budget(&db).space.built_bytes, budget(&db).space.resident_bytes), (0, 0));
    check(&db);
    // All of it is for the upper levels.
    let db = open(leveled("budget=5/key").filtering(|f| f.filters_on_last_level(false)));
    fill(&db, 5, 0..60_000);
    db.wait_idle().unwrap();
    let report = budget(&db);
    let last = report.levels.last().unwrap();
    assert_eq!((last.planned_bytes, last.built_bytes), (0, 0), "{report}");
    assert!(report.space.built_bytes > 0, "{report}");
    let refused = Options::default()
        .filtering(|f| f.prefix_extractor("fixed:4".parse::<trommel::Prefix>().unwrap()));
    let refused = refused.filtering(|f| f.prefix_filters(Some("budget=5/key".parse().unwrap())));
    let error = Db::open("/other", refused.vfs(Arc::new(MemoryVfs::new()))).unwrap_err();
    assert!(error.to_string().contains("prefix_filters is a budget"), "{error}");
}
