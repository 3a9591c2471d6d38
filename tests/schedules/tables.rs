//! Readers of tables: filters loaded by their first user, and tables that are closed during reads.

use shuttle::thread::spawn;
use trommel::{Db, FilterPolicy, Options};
use trommel_sim::{OpKind, SimDisk};

use crate::lane::lane;
use crate::store::{number, open, options};

/// Without automatic background work.
fn quiet(disk: &SimDisk) -> Options {
    options(disk).background_threads(0).compaction(|c| c.auto_compaction(false))
}

/// A store with `tables` tables of level 0, each with one key, closed and reopened, so that nothing
/// of them is in memory.
fn tables(disk: &SimDisk, tables: u64, with: impl Fn(Options) -> Options) -> Db {
    let db = open(with(quiet(disk)));
    for n in 1..=tables {
        db.put(format!("k{n:02}"), n.to_le_bytes()).unwrap();
        db.flush().unwrap();
    }
    db.close().unwrap();
    open(with(quiet(disk)))
}

fn look(db: &Db, n: u64) {
    assert_eq!(number(db.get(format!("k{n:02}")).unwrap()), n);
}

/// Three threads query one table's filter at once: no thread is left waiting, and it is read once.
fn filters() {
    let disk = SimDisk::new();
    let filters = FilterPolicy::uniform("blocked:10".parse().unwrap());
    let db = tables(&disk, 1, |options| options.filters(filters.clone()));
    let reads = |db: &Db, query: &dyn Fn(&Db)| {
        let before = disk.calls(OpKind::Read);
        query(db);
        disk.calls(OpKind::Read) - before
    };
    let alone = reads(&db, &|db| look(db, 1));
    db.close().unwrap();
    let db = open(quiet(&disk).filters(filters));
    let at_once = reads(&db, &query_at_once);
    // All three may read the data block, if none finds it in the cache; one reads the filter.
    assert!(at_once <= alone + 2, "{at_once} reads, {alone} alone");
    assert!(db.stats().filters.unusable.is_empty());
    db.close().unwrap();
}

fn query_at_once(db: &Db) {
    let threads: Vec<_> = (0..3)
        .map(|_| {
            let db = db.clone();
            spawn(move || look(&db, 1))
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
}

/// Readers of more tables than may be open, and compactions of the same tables.
fn evictions() {
    let disk = SimDisk::new();
    let db = tables(&disk, 18, |options| options.reads(|r| r.max_open_files(16)));
    let threads: Vec<_> = (0..2u64)
        .map(|n| {
            let db = db.clone();
            spawn(move || {
                for table in 1..=18 {
                    look(&db, if n == 0 { table } else { 19 - table });
                }
            })
        })
        .collect();
    let scan: Vec<u64> = db.iter().map(|entry| number(Some(entry.unwrap().1))).collect();
    assert_eq!(scan, (1..=18).collect::<Vec<_>>());
    for thread in threads {
        thread.join().unwrap();
    }
    assert!(db.stats().open_tables <= 16);
    db.close().unwrap();
}

#[test]
fn reads_filters_once() {
    lane("reads_filters_once", 5_000, filters);
}

#[test]
fn closes_tables_under_readers() {
    lane("closes_tables_under_readers", 1_000, evictions);
}
