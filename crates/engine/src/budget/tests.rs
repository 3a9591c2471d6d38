//! Built filters return to the budget by themselves, whatever fails.

mod drift;
mod keyspaces;
mod limit;
mod optimum;
mod ranges;

use std::path::Path;
use std::sync::Arc;

use trommel_sim::{Failure, Fault, MemoryVfs, OpKind, SimDisk};
use trommel_vfs::Vfs;

use crate::sync::lock;
use crate::{BudgetReport, Db, Error, ErrorKind, Merge, Options, RebuildOptions};

const DIR: &str = "db";

fn options(vfs: &Arc<dyn Vfs>, filters: &str) -> Options {
    Options::default()
        .vfs(Arc::clone(vfs))
        .filters(filters.parse().unwrap())
        .background_threads(0)
        .writes(|w| w.write_buffer_bytes(1 << 20))
        .compaction(|c| c.table_bytes(16 << 10))
        .reads(|r| r.block_bytes(512))
        .compression(crate::Compression::None)
}

fn key(i: usize) -> String {
    format!("key {i:05}")
}

/// A store with about a dozen tables in its last level, of 4,000 keys with 16 bits each.
fn filled(vfs: &Arc<dyn Vfs>) -> Db {
    let db = Db::open(DIR, options(vfs, "paired:16")).unwrap();
    for i in 0..4_000 {
        db.put(key(i), format!("value of {i}")).unwrap();
    }
    db.compact_all().unwrap();
    assert!(db.stats().levels.iter().map(|level| level.tables).sum::<u64>() > 6);
    db
}

fn in_memory() -> Arc<dyn Vfs> {
    Arc::new(MemoryVfs::new())
}

fn names(vfs: &Arc<dyn Vfs>, extension: &str) -> Vec<String> {
    let listing = vfs.list(Path::new(DIR)).unwrap();
    let names = listing.iter().map(|entry| entry.name.to_string_lossy().into_owned());
    names.filter(|name| name.ends_with(extension)).collect()
}

fn budget(db: &Db) -> BudgetReport {
    db.filter_report().budget.unwrap()
}

/// Checks that every key is found and that filters are within the limit; returns the wasted reads
/// of as many missing keys.
fn check(db: &Db) -> u64 {
    db.reset_stats();
    for i in 0..4_000 {
        assert_eq!(db.get(key(i)).unwrap().unwrap(), format!("value of {i}").as_bytes());
        assert_eq!(db.get(format!("{}x", key(i))).unwrap(), None);
    }
    let report = budget(db);
    assert!(report.space.resident_bytes <= report.space.budget_bytes, "{report}");
    db.filter_report().levels.iter().map(|level| level.counts.false_positives).sum()
}

/// Checks that nothing is queued and the built filters fit.
fn check_fits(db: &Db) {
    let report = budget(db);
    assert!(report.space.built_bytes <= report.space.budget_bytes, "{report}");
    assert_eq!((report.queued_rebuilds, report.space.dropped_tables), (0, 0), "{report}");
    assert_eq!(report.rebuild_failure, None);
    db.verify().unwrap();
}

/// A budget lowered on reopening: filters that are too large are rebuilt, by a job that is reported
/// by its name.
#[test]
fn filters_that_are_too_large_are_rebuilt_until_they_fit() {
    for threads in [0, 2] {
        let vfs = in_memory();
        filled(&vfs).close().unwrap();
        let data = names(&vfs, ".sst");
        let lower = options(&vfs, "budget=6/key,misses=1");

        let db = Db::open_read_only(DIR, lower.clone()).unwrap();
        let report = budget(&db);
        assert!(
            report.space.built_bytes > report.space.budget_bytes && report.space.dropped_tables > 0,
            "{report}"
        );
        assert_eq!(report.queued_rebuilds, 0, "nothing is written: {report}");
        db.wait_idle().unwrap();
        db.close().unwrap();

        let db = Db::open(DIR, lower.background_threads(threads)).unwrap();
        if threads == 0 {
            let report = budget(&db);
            assert!(report.space.built_bytes > report.space.budget_bytes, "{report}");
            assert!(report.queued_rebuilds > 0, "{report}");
            assert!(report.to_string().contains("fit-budget"), "{report}");
            assert_eq!(db.stats().background.filter_rebuilds.queued, report.queued_rebuilds);
        }
        db.wait_idle().unwrap();
        check_fits(&db);
        let wasted = check(&db);
        let report = budget(&db);
        // Filters of 500 keys are sized in cache lines, and each table has some memory overhead.
        assert!(
            report.space.resident_bytes * 10 > report.space.budget_bytes * 7,
            "it is used: {report}"
        );
        assert!((20..1_600).contains(&wasted), "four bits a key err once in five: {wasted}");
        assert_eq!(names(&vfs, ".sst"), data, "data is never written");
        assert!(!names(&vfs, ".flt").is_empty());
        // A requested rebuild finds almost nothing to do.
        db.rebuild_filters(&RebuildOptions::default()).unwrap();
        db.wait_idle().unwrap();
        check_fits(&db);
        check(&db);
    }
}

/// Two workers at once: a table rebuilt by one is seen by the other before the queue is refilled.
/// It is not taken again: no smaller filter could then be built, and its filters would be dropped.
#[test]
fn a_table_rebuilt_by_another_worker_keeps_its_filters() {
    let vfs = in_memory();
    filled(&vfs).close().unwrap();
    let db = Db::open(DIR, options(&vfs, "budget=6/key,misses=1")).unwrap();
    let stale = lock(&db.engine().background.state).requests.fit_budget.waiting();
    assert!(stale.len() > 6);
    db.wait_idle().unwrap();
    check_fits(&db);
    let (before, files) = (budget(&db), names(&vfs, ".flt"));
    lock(&db.engine().background.state).requests.fit_budget.refill(stale);
    db.wait_idle().unwrap();
    assert_eq!(names(&vfs, ".flt"), files);
    assert_eq!(budget(&db).space.built_bytes, before.space.built_bytes, "{}", budget(&db));
    check_fits(&db);
    check(&db);
}

/// Regression: filters were rebuilt automatically during a pause.
#[test]
fn filters_wait_for_the_end_of_a_pause() {
    for threads in [0, 1] {
        let vfs = in_memory();
        filled(&vfs).close().unwrap();
        let db = Db::open(DIR, options(&vfs, "paired:16").background_threads(threads)).unwrap();
        db.pause_compaction().unwrap();
        db.pause_compaction().unwrap();
        db.set_filters("budget=6/key,misses=1".parse().unwrap()).unwrap();
        db.resume_compaction();
        for i in 0..10 {
            db.put(key(i), format!("value of {i}")).unwrap();
            db.flush().unwrap();
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
        let report = budget(&db);
        assert_eq!(names(&vfs, ".flt"), [""; 0], "{report}");
        assert!(
            report.queued_rebuilds > 0 && report.space.resident_bytes <= report.space.budget_bytes
        );
        // A wait for an idle store brings it within its budget, during a pause as well.
        if threads == 0 {
            db.wait_idle().unwrap();
            check_fits(&db);
        }
        db.resume_compaction();
        db.wait_idle().unwrap();
        check_fits(&db);
        check(&db);
        assert!(!names(&vfs, ".flt").is_empty());
    }
}

/// Budgets below the smallest filters, and below the floors: filters are dropped altogether, and
/// the rebuilds come to an end.
#[test]
fn any_budget_is_reached() {
    let by_prefix = |options: Options| {
        let prefix: crate::Prefix = "fixed:8".parse().unwrap();
        options.filtering(|f| {
            f.prefix_extractor(prefix).prefix_filters(Some("paired:20".parse().unwrap()))
        })
    };
    for filters in ["budget=0", "budget=700", "budget=1/key,L0-=8..", "budget=3000,last=6.."] {
        for has_prefixes in [false, true] {
            let vfs = in_memory();
            let with = |options| if has_prefixes { by_prefix(options) } else { options };
            filled(&vfs).close().unwrap();
            if has_prefixes {
                let db = Db::open(DIR, with(options(&vfs, "paired:16"))).unwrap();
                db.rebuild_filters(&RebuildOptions::default()).unwrap();
                db.close().unwrap();
            }
            let db = Db::open(DIR, with(options(&vfs, filters))).unwrap();
            assert!(budget(&db).queued_rebuilds > 0, "{filters}");
            db.wait_idle().unwrap();
            check_fits(&db);
            check(&db);
            let rebuilt = db.stats().background.filter_rebuilds.tables;
            let tables: u64 = db.stats().levels.iter().map(|level| level.tables).sum();
            assert!(rebuilt <= 5 * tables, "{filters}: {rebuilt} rebuilds of {tables} tables");
            // The filters stay within the budget.
            db.wait_idle().unwrap();
            assert_eq!(db.stats().background.filter_rebuilds.tables, rebuilt);
        }
    }
}

/// The floors of a budget may exceed it. The budget is kept, and the report gives the reason.
#[test]
fn floors_give_way_to_the_budget() {
    for filters in ["budget=6/key,L0-=8..", "budget=2KiB,L0-=10.."] {
        let vfs = in_memory();
        filled(&vfs).close().unwrap();
        let db = Db::open(DIR, options(&vfs, filters)).unwrap();
        db.wait_idle().unwrap();
        check_fits(&db);
        check(&db);
        let report = budget(&db);
        let bare = report.tables.iter().filter(|table| table.built_bytes == 0).count();
        assert!(bare > 0 && bare < report.tables.len(), "{report}");
        let said = report.to_string();
        assert!(said.contains("the floors take more than the budget"), "{said}");
        assert!(!said.contains("inf"), "{said}");
    }
}

/// A full disk: the error is returned to waiters, the rebuild is retried, and nothing else stops.
#[test]
fn a_full_disk_is_reported_and_stops_no_writes() {
    for threads in [0, 1] {
        let disk = SimDisk::new();
        let vfs: Arc<dyn Vfs> = Arc::new(disk.clone());
        filled(&vfs).close().unwrap();
        disk.inject(Fault::new(Failure::NoSpace).on(OpKind::Append).named(".flt").lasting());
        let db = Db::open(DIR, options(&vfs, "budget=6/key").background_threads(threads)).unwrap();
        let error = db.wait_idle().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Retry, "{error}");
        let report = budget(&db);
        assert!(
            report.queued_rebuilds > 0 && report.space.built_bytes > report.space.budget_bytes,
            "{report}"
        );
        assert!(report.rebuild_failure.is_some(), "{report}");
        assert!(report.to_string().contains("tried again"), "{report}");
        // Enough for some flushes and a compaction.
        for i in 0..4_000 {
            db.put(key(i), format!("value of {i}")).unwrap();
            if i % 1_000 == 0 {
                db.flush().unwrap();
            }
        }
        check(&db);
        assert_eq!(names(&vfs, ".flt"), [""; 0]);
        disk.clear_faults();
        while let Err(error) = db.wait_idle() {
            assert_eq!(error.kind(), ErrorKind::Retry, "{error}");
        }
        check_fits(&db);
        check(&db);
    }
}

/// Occasional read failures cost no table its filter: the rebuild is retried.
#[test]
fn a_read_that_fails_once_takes_no_filter_away() {
    for threads in [0, 1] {
        let disk = SimDisk::new();
        let vfs: Arc<dyn Vfs> = Arc::new(disk.clone());
        let db = filled(&vfs);
        db.close().unwrap();
        for _ in 0..3 {
            disk.inject(Fault::new(Failure::Io).on(OpKind::Read).named(".sst").after(2));
        }
        let db = Db::open(DIR, options(&vfs, "budget=6/key").background_threads(threads)).unwrap();
        db.wait_idle().unwrap();
        let report = db.last_filter_rebuild().unwrap();
        assert!(disk.faults_fired() > 0 && report.failed > 0, "{report:?}");
        assert!(report.rebuilt > 0 && report.given_up.is_empty(), "{report:?}");
        disk.clear_faults();
        check_fits(&db);
        let after = budget(&db);
        assert!(after.tables.iter().all(|table| table.built_bytes > 0), "{after}");
        check(&db);
    }
}

/// Tables whose data repeatedly cannot be read lose their filters; removing those reads nothing.
#[test]
fn a_table_that_cannot_be_read_goes_without() {
    let disk = SimDisk::new();
    let vfs: Arc<dyn Vfs> = Arc::new(disk.clone());
    filled(&vfs).close().unwrap();
    let db = Db::open(DIR, options(&vfs, "budget=6/key").background_threads(0)).unwrap();
    let before = budget(&db);
    // All tables are open.
    check(&db);
    disk.inject(Fault::new(Failure::Io).on(OpKind::Read).named(".sst").lasting());
    db.wait_idle().unwrap();
    disk.clear_faults();
    check_fits(&db);
    let after = budget(&db);
    let report = db.last_filter_rebuild().unwrap();
    let given_up: Vec<u64> = report.given_up.iter().map(|(table, _)| *table).collect();
    assert!(!given_up.is_empty(), "{report:?}");
    // The tables are chosen again when one was given up, so some failed less often.
    assert!(report.failed >= 3 * given_up.len() as u64 && report.rebuilt == 0, "{report:?}");
    for table in &after.tables {
        assert_eq!(table.built_bytes == 0, given_up.contains(&table.number), "{before}\n{after}");
    }
    check(&db);
}

/// A failed sync poisons the store; and a policy without a budget ends the queue.
#[test]
fn a_failed_sync_poisons_and_another_policy_ends_it() {
    let disk = SimDisk::new();
    let vfs: Arc<dyn Vfs> = Arc::new(disk.clone());
    filled(&vfs).close().unwrap();
    let db = Db::open(DIR, options(&vfs, "budget=6/key")).unwrap();
    assert!(budget(&db).queued_rebuilds > 0);
    db.set_filters("paired:10".parse().unwrap()).unwrap();
    assert_eq!(db.stats().background.filter_rebuilds.queued, 0);
    db.wait_idle().unwrap();
    assert_eq!(names(&vfs, ".flt"), [""; 0]);
    db.set_filters("budget=6/key".parse().unwrap()).unwrap();
    disk.inject(Fault::new(Failure::Io).on(OpKind::Sync).named(".flt"));
    assert!(matches!(db.wait_idle(), Err(Error::Poisoned { .. })));
    assert!(matches!(db.put("a", "b"), Err(Error::Poisoned { .. })));
    check(&db);
}

/// The tree grows under a budget in bytes: filters built while there was room are made smaller.
#[test]
fn a_tree_that_grows_stays_within_its_bytes() {
    for threads in [0, 2] {
        let vfs = in_memory();
        let options =
            options(&vfs, "budget=6KiB,misses=1").writes(|w| w.write_buffer_bytes(64 << 10));
        let db = Db::open(DIR, options.background_threads(threads)).unwrap();
        for i in 0..4_000 {
            db.put(key(i), format!("value of {i}")).unwrap();
            if i % 400 == 399 {
                db.flush().unwrap();
                db.wait_idle().unwrap();
                check_fits(&db);
            }
        }
        // Ascending keys are never merged, so only rebuilds could make the filters smaller.
        assert!(db.stats().background.filter_rebuilds.tables > 0);
        check(&db);
        let report = budget(&db);
        assert!(
            report.space.built_bytes * 2 > report.space.budget_bytes,
            "most of it is used: {report}"
        );
    }
}

/// A table whose hidden versions operands need is not rewritten for them twice. Regression: new
/// filters removed that mark, and rewrites and rebuilds for the budget followed each other without
/// end.
#[test]
fn new_filters_are_no_reason_to_rewrite_a_table() {
    let never = Merge::associative("never", |_, _, _| Err("not today".to_owned()));
    let options = options(&in_memory(), "paired:16").writes(|w| w.merge_operator(never));
    let db = Db::open(DIR, options).unwrap();
    for operand in [[1], [2]] {
        (0..100).for_each(|i| _ = db.merge(key(i), operand).unwrap());
    }
    db.compact_all().unwrap();
    drop(db.snapshot());
    db.wait_idle().unwrap();
    let before = db.stats().background.compactions.count;
    db.set_options(|options| options.filters("paired:4".parse().unwrap())).unwrap();
    assert!(db.rebuild_filters(&RebuildOptions::default()).unwrap().rebuilt > 0);
    drop(db.snapshot());
    db.wait_idle().unwrap();
    assert_eq!(db.stats().background.compactions.count, before);
}
