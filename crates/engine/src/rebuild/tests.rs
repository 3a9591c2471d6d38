//! Rebuilding filters, from the request to the reads.

use std::sync::Arc;

use trommel_sim::{Failure, Fault, MemoryVfs, OpKind, SimDisk};
use trommel_vfs::Vfs;

use crate::{Db, Error, ErrorKind, Options, RebuildOptions};

const DIR: &str = "db";

fn options(vfs: &Arc<dyn Vfs>) -> Options {
    Options::default()
        .vfs(Arc::clone(vfs))
        .filters("blocked:6".parse().unwrap())
        .background_threads(0)
        .writes(|w| w.write_buffer_bytes(1 << 20))
        .compaction(|c| c.table_bytes(4 << 10))
        .reads(|r| r.block_bytes(512))
        .compression(crate::Compression::None)
}

fn key(i: usize) -> String {
    format!("key {i:05}")
}

/// A store of several tables in its last level.
fn filled(vfs: &Arc<dyn Vfs>) -> Db {
    let db = Db::open(DIR, options(vfs)).unwrap();
    for i in 0..2000 {
        db.put(key(i), format!("value of {i}")).unwrap();
    }
    db.compact_all().unwrap();
    db.wait_idle().unwrap();
    assert!(tables(&db) > 8);
    db
}

fn tables(db: &Db) -> u64 {
    db.stats().levels.iter().map(|level| level.tables).sum()
}

fn in_memory() -> Arc<dyn Vfs> {
    Arc::new(MemoryVfs::new())
}

fn names(vfs: &Arc<dyn Vfs>, extension: &str) -> Vec<String> {
    let listing = vfs.list(DIR.as_ref()).unwrap();
    let names = listing.iter().map(|entry| entry.name.to_string_lossy().into_owned());
    names.filter(|name| name.ends_with(extension)).collect()
}

fn check(db: &Db) {
    for i in 0..2000 {
        assert_eq!(db.get(key(i)).unwrap().unwrap(), format!("value of {i}").as_bytes());
    }
    assert_eq!(db.iter().count(), 2000);
}

/// False positives among lookups of missing keys.
fn wasted(db: &Db) -> u64 {
    db.reset_stats();
    for i in 0..2000 {
        assert_eq!(db.get(format!("key {i:05}x")).unwrap(), None);
    }
    db.filter_report().levels.iter().map(|level| level.counts.false_positives).sum()
}

fn rebuild(db: &Db, filters: &str) -> crate::FilterRebuildReport {
    db.set_filters(filters.parse().unwrap()).unwrap();
    let report = db.rebuild_filters(&RebuildOptions::default()).unwrap();
    // Files that are no longer held are removed.
    db.wait_idle().unwrap();
    report
}

#[test]
fn the_plan_of_a_rebuild_matches_its_report_and_the_reads() {
    let vfs = in_memory();
    let db = filled(&vfs);
    let all = tables(&db);
    assert_eq!(db.filter_rebuild_plan(&RebuildOptions::default()).unwrap().tables, []);
    let (before, data) = (wasted(&db), names(&vfs, ".sst"));
    db.set_filters("paired:20".parse().unwrap()).unwrap();
    let plan = db.filter_rebuild_plan(&RebuildOptions::default()).unwrap();
    assert_eq!((plan.tables.len() as u64, plan.keys), (all, 2000));
    assert!(plan.tables.iter().all(|table| table.from == "blocked:6" && table.to == "paired:20"));
    let report = db.rebuild_filters(&RebuildOptions::default()).unwrap();
    db.wait_idle().unwrap();
    assert_eq!((report.rebuilt, report.keys), (all, plan.keys));
    assert_eq!(db.stats().background.filter_rebuilds.tables, all);
    assert_eq!(report.bytes_read, plan.bytes_read);
    let off = report.bytes_written.abs_diff(plan.bytes_written);
    assert!(off * 10 < report.bytes_written, "{plan:?} {report:?}");
    assert_eq!(names(&vfs, ".sst"), data, "data is never written");
    assert_eq!(names(&vfs, ".flt").len() as u64, all);
    check(&db);
    assert!(before > 20 && wasted(&db) <= 2, "{before} before");
    let level = &db.filter_report().levels[0];
    assert_eq!((level.kind.name(), level.tables), ("paired", all));
    assert_eq!(db.filter_rebuild_plan(&RebuildOptions::default()).unwrap().tables, []);
    let verified = db.verify().unwrap();
    assert_eq!((verified.tables, verified.sidecars), (all, all));
    assert_eq!(db.stats().background.filter_rebuilds.queued, 0);
    db.close().unwrap();
    let db = Db::open(DIR, options(&vfs).filters("paired:20".parse().unwrap())).unwrap();
    assert!(db.recovery_report().orphans.is_empty());
    check(&db);
    assert!(wasted(&db) <= 2);
    assert_eq!(db.filter_rebuild_plan(&RebuildOptions::default()).unwrap().tables, []);
}

#[test]
fn a_sidecar_is_replaced_by_the_next_and_by_the_tables_own_filter() {
    let vfs = in_memory();
    let db = filled(&vfs);
    let all = tables(&db);
    rebuild(&db, "paired:20");
    let first = names(&vfs, ".flt");
    assert_eq!(rebuild(&db, "standard:12").rebuilt, all);
    let second = names(&vfs, ".flt");
    assert!(second.len() as u64 == all && second.iter().all(|name| !first.contains(name)));
    check(&db);
    // A sidecar without filters is a sidecar, too, for which nothing is read.
    let none = rebuild(&db, "none");
    assert_eq!((none.rebuilt, none.keys, none.bytes_read), (all, 0, 0));
    assert!(wasted(&db) > 1900, "all tables are searched");
    assert_eq!(db.filter_report().filter_bytes, 0);
    check(&db);
    assert_eq!(rebuild(&db, "blocked:6").dropped, all);
    assert_eq!(names(&vfs, ".flt"), [""; 0]);
    check(&db);
    assert!(wasted(&db) > 20, "the tables' own");
    db.verify().unwrap();
}

#[test]
fn a_compaction_ends_a_sidecar_with_its_table_and_a_move_keeps_it() {
    let vfs = in_memory();
    let db = filled(&vfs);
    rebuild(&db, "paired:20");
    db.put(key(7), "newer").unwrap();
    db.put(key(7), "value of 7").unwrap();
    db.compact_all().unwrap();
    db.wait_idle().unwrap();
    assert_eq!(names(&vfs, ".flt"), [""; 0], "all were merged");
    check(&db);
    // A table that is moved down keeps its own filters.
    db.put("zzz", "last").unwrap();
    db.flush().unwrap();
    rebuild(&db, "standard:9");
    let before = names(&vfs, ".flt");
    db.put("zzzz", "last").unwrap();
    db.flush().unwrap();
    db.wait_idle().unwrap();
    assert!(names(&vfs, ".flt").iter().all(|name| before.contains(name)));
    db.verify().unwrap();
}

#[test]
fn only_requested_tables_are_rebuilt() {
    let vfs = in_memory();
    let db = filled(&vfs);
    db.put(key(1), "value of 1").unwrap();
    db.flush().unwrap();
    db.set_filters("paired:20".parse().unwrap()).unwrap();
    let of_level = RebuildOptions::default().levels([0]);
    let plan = db.filter_rebuild_plan(&of_level).unwrap();
    assert_eq!(plan.tables.len(), 1);
    let of_table = RebuildOptions::default().tables([plan.tables[0].table]);
    assert_eq!(db.rebuild_filters(&of_table).unwrap().rebuilt, 1);
    assert_eq!(db.rebuild_filters(&of_level).unwrap(), crate::FilterRebuildReport::default());
    let absent = RebuildOptions::default().tables([999_999]);
    assert_eq!(db.rebuild_filters(&absent).unwrap(), crate::FilterRebuildReport::default());
}

/// An older iterator keeps its files: those of tables whose sidecars are replaced and that are then
/// compacted away.
#[test]
fn a_running_iterator_keeps_the_files() {
    let vfs = in_memory();
    let options = options(&vfs).reads(|r| r.max_open_files(16));
    drop(filled(&vfs));
    let db = Db::open(DIR, options).unwrap();
    let mut walk = db.iter();
    assert!(walk.next().is_some());
    let before = names(&vfs, ".sst").len();
    rebuild(&db, "paired:20");
    rebuild(&db, "standard:12");
    let snapshot = db.snapshot();
    db.compact_all().unwrap();
    assert!(names(&vfs, ".sst").len() > before, "they are held");
    assert_eq!(walk.map(Result::unwrap).count(), 1999);
    drop(snapshot);
    db.wait_idle().unwrap();
    db.put("a", "b").unwrap();
    db.compact_all().unwrap();
    db.wait_idle().unwrap();
    assert_eq!(names(&vfs, ".flt"), [""; 0]);
    assert_eq!(names(&vfs, ".sst").len() as u64, tables(&db));
}

/// If the sidecar is missing, empty, or of another table, the table's own filter answers, and the
/// loss is reported and repaired.
#[test]
fn a_sidecar_that_is_lost_costs_nothing_but_reads() {
    let vfs = in_memory();
    let db = filled(&vfs);
    rebuild(&db, "paired:20");
    db.close().unwrap();
    let files = names(&vfs, ".flt");
    let path = |name: &String| std::path::Path::new(DIR).join(name);
    vfs.remove(&path(&files[0])).unwrap();
    vfs.remove(&path(&files[1])).unwrap();
    vfs.create(&path(&files[1])).unwrap();
    let other = vfs.read(&path(&files[3]), u64::MAX).unwrap();
    vfs.remove(&path(&files[2])).unwrap();
    vfs.create(&path(&files[2])).unwrap().append(&other).unwrap();
    let db = Db::open(DIR, options(&vfs).filters("paired:20".parse().unwrap())).unwrap();
    check(&db);
    assert_eq!(db.stats().filters.unusable.len(), 3);
    let report = db.filter_report();
    let kinds: Vec<_> = report.levels.iter().map(|level| level.kind.name()).collect();
    assert_eq!(kinds, ["blocked", "paired"], "{report}");
    let damage = db.verify_all().unwrap().damage;
    assert_eq!(damage.len(), 3, "{damage:?}");
    assert!(damage.iter().all(|damage| damage.keys.is_none()));
    let copy = format!("{DIR}-copy");
    db.checkpoint(&copy).unwrap();
    let plan = db.filter_rebuild_plan(&RebuildOptions::default()).unwrap();
    assert_eq!(plan.tables.len(), 3);
    assert_eq!(db.rebuild_filters(&RebuildOptions::default()).unwrap().rebuilt, 3);
    assert_eq!(db.stats().filters.unusable, []);
    db.verify().unwrap();
    check(&db);
    let copied = Db::open(copy, options(&vfs)).unwrap();
    check(&copied);
    assert_eq!(copied.verify_all().unwrap().damage.len(), 2, "the missing one is not missed");
}

#[test]
fn a_full_disk_ends_a_rebuild_and_nothing_else() {
    let disk = SimDisk::new();
    let vfs: Arc<dyn Vfs> = Arc::new(disk.clone());
    let db = filled(&vfs);
    db.set_filters("paired:20".parse().unwrap()).unwrap();
    disk.inject(Fault::new(Failure::NoSpace).on(OpKind::Append).named(".flt").lasting());
    let error = db.rebuild_filters(&RebuildOptions::default()).unwrap_err();
    assert!(matches!(&error, Error::Io { .. }) && error.kind() == ErrorKind::Retry, "{error}");
    assert_eq!(names(&vfs, ".flt"), [""; 0]);
    db.put("more", "goes on").unwrap();
    db.delete("more").unwrap();
    disk.clear_faults();
    assert_eq!(db.rebuild_filters(&RebuildOptions::default()).unwrap().rebuilt, tables(&db));
    check(&db);
}

#[test]
fn a_failed_sync_of_a_sidecar_poisons() {
    let disk = SimDisk::new();
    let vfs: Arc<dyn Vfs> = Arc::new(disk.clone());
    let db = filled(&vfs);
    db.set_filters("paired:20".parse().unwrap()).unwrap();
    disk.inject(Fault::new(Failure::Io).on(OpKind::Sync).named(".flt"));
    db.rebuild_filters(&RebuildOptions::default()).unwrap_err();
    assert!(matches!(db.put("a", "b"), Err(Error::Poisoned { .. })));
    check(&db);
}

#[test]
fn an_unreadable_table_keeps_its_filters_and_the_others_are_rebuilt() {
    let disk = SimDisk::new();
    let vfs: Arc<dyn Vfs> = Arc::new(disk.clone());
    let db = filled(&vfs);
    check(&db);
    db.set_filters("paired:20".parse().unwrap()).unwrap();
    disk.inject(Fault::new(Failure::Io).on(OpKind::Read).named(".sst"));
    let error = db.rebuild_filters(&RebuildOptions::default()).unwrap_err();
    assert!(matches!(error, Error::Io { .. }), "{error}");
    assert_eq!(db.stats().background.filter_rebuilds.tables, tables(&db) - 1);
    db.put("a", "b").unwrap();
    db.delete("a").unwrap();
    assert_eq!(db.rebuild_filters(&RebuildOptions::default()).unwrap().rebuilt, 1);
    check(&db);
}

#[test]
fn a_rebuild_under_a_ceiling_frees_its_memory() {
    let vfs = in_memory();
    drop(filled(&vfs));
    let options = options(&vfs).memory_limit(4 << 20).writes(|w| w.write_buffer_bytes(64 << 10));
    let db = Db::open(DIR, options.filters("paired:20".parse().unwrap())).unwrap();
    let report = db.rebuild_filters(&RebuildOptions::default()).unwrap();
    assert_eq!((report.rebuilt, report.skipped.len()), (tables(&db), 0));
    check(&db);
    assert_eq!(db.stats().memory.construction, 0);
}

#[test]
fn a_read_only_store_and_a_closed_one_refuse() {
    let vfs = in_memory();
    filled(&vfs).close().unwrap();
    let db = Db::open_read_only(DIR, options(&vfs).filters("paired:20".parse().unwrap())).unwrap();
    assert!(!db.filter_rebuild_plan(&RebuildOptions::default()).unwrap().tables.is_empty());
    assert!(matches!(db.rebuild_filters(&RebuildOptions::default()), Err(Error::ReadOnly)));
}

/// Regression: if all tables were compacted away before their turn, the request ended without
/// notifying the waiter.
#[test]
fn a_request_of_which_no_table_is_left_ends() {
    let vfs = in_memory();
    drop(filled(&vfs));
    let db = Db::open(DIR, options(&vfs).background_threads(1)).unwrap();
    let engine = Arc::clone(db.engine());
    let (noted, hears) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let gone = std::collections::VecDeque::from([999_998, 999_999]);
        let report = engine.rebuild_tables(gone).unwrap();
        let _ = noted.send(report.needless);
    });
    assert_eq!(hears.recv_timeout(std::time::Duration::from_secs(60)), Ok(2));
    db.wait_idle().unwrap();
}

/// With threads: writers, compactions and rebuilds at once, and a close in the middle.
#[test]
fn rebuilds_beside_compactions() {
    let vfs = in_memory();
    drop(filled(&vfs));
    let options = options(&vfs)
        .background_threads(2)
        .writes(|w| w.write_buffer_bytes(32 << 10))
        .compaction(|c| c.l0_trigger(2));
    let db = Db::open(DIR, options.clone()).unwrap();
    std::thread::scope(|scope| {
        let rebuilder = scope.spawn(|| {
            for filters in ["paired:20", "standard:9", "none", "blocked:6"].repeat(3) {
                db.set_filters(filters.parse().unwrap()).unwrap();
                db.rebuild_filters(&RebuildOptions::default()).unwrap();
            }
        });
        for round in 0..6 {
            for i in (round..2000).step_by(3) {
                db.put(key(i), format!("value of {i}")).unwrap();
            }
            db.compact_range(key(round * 200)..key(round * 300 + 1)).unwrap();
        }
        rebuilder.join().unwrap();
    });
    db.wait_idle().unwrap();
    check(&db);
    db.verify().unwrap();
    // The store is closed in the middle of a rebuild.
    let other = db.clone();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            other.set_filters("paired:20".parse().unwrap()).unwrap();
            match other.rebuild_filters(&RebuildOptions::default()) {
                Ok(_) | Err(Error::Closed) => {}
                Err(error) => panic!("{error}"),
            }
        });
        db.close().unwrap();
    });
    drop(other);
    let db = Db::open(DIR, options).unwrap();
    check(&db);
    db.verify().unwrap();
    let named = db.verify().unwrap().sidecars as usize;
    assert_eq!(names(&vfs, ".flt").len(), named, "no orphan is left");
}
