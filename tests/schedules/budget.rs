//! A filter budget while others read, write and change it: filters in memory and on disk, and that
//! nothing is lost or left pending.

use shuttle::thread::spawn;
use trommel::{Db, FilterPolicy, Options};
use trommel_sim::{Policy, SimDisk};

use crate::lane::lane;
use crate::store::{number, open, options};

/// Number of tables in level 0, with [`KEYS`] keys each.
const TABLES: u64 = 4;
const KEYS: u64 = 40;

fn policy(text: &str) -> FilterPolicy {
    text.parse().unwrap()
}

fn key(table: u64, nth: u64) -> String {
    format!("k{table}-{nth:02}")
}

fn write_table(db: &Db, table: u64) {
    for nth in 0..KEYS {
        db.put(key(table, nth), (table + 1).to_le_bytes()).unwrap();
    }
    db.flush().unwrap();
}

fn look(db: &Db, table: u64) {
    assert_eq!(number(db.get(key(table, 7)).unwrap()), table + 1);
    assert_eq!(db.get(format!("k{table}-missing")).unwrap(), None);
}

/// Checks that the filters of an idle store fit, and that nothing is pending.
fn fits(db: &Db) {
    let report = db.filter_report().budget.expect("the policy is a budget");
    let most = report.space.built_bytes.max(report.space.resident_bytes);
    assert!(most <= report.space.budget_bytes && report.queued_rebuilds == 0, "{report}");
}

/// A budget drops to a fraction while a thread looks up keys and another one flushes; the store's
/// own thread builds smaller filters at the same time. A caller's rebuild runs into these.
fn falls(rebuild: bool) {
    let disk = SimDisk::new();
    let quiet = |options: Options| {
        options.writes(|w| w.write_buffer_bytes(64 << 10)).compaction(|c| c.auto_compaction(false))
    };
    let db = open(quiet(options(&disk)).filters(policy("budget=4KiB")));
    (0..TABLES).for_each(|table| write_table(&db, table));
    let scan = db.iter();
    let reader = db.clone();
    let reader = spawn(move || (0..TABLES).for_each(|table| look(&reader, table)));
    let writer = db.clone();
    let writer = spawn(move || {
        write_table(&writer, TABLES);
        if rebuild {
            writer.rebuild_filters(&trommel::RebuildOptions::default()).unwrap();
        }
    });
    db.set_filters(policy("budget=300")).unwrap();
    look(&db, 0);
    reader.join().unwrap();
    writer.join().unwrap();
    db.wait_idle().unwrap();
    fits(&db);
    assert_eq!(scan.count() as u64, TABLES * KEYS);
    fits(&db);
    (0..=TABLES).for_each(|table| look(&db, table));
    let left = disk.crash(Policy::SYNCED, 0).disk();
    let left = open(quiet(options(&left)).filters(policy("budget=300")));
    left.wait_idle().unwrap();
    fits(&left);
    (0..=TABLES).for_each(|table| look(&left, table));
    db.close().unwrap();
}

#[test]
fn fits_a_budget_that_falls_under_readers() {
    lane("fits_a_budget_that_falls_under_readers", 1_000, || falls(false));
}

#[test]
fn fits_a_budget_during_a_requested_rebuild() {
    lane("fits_a_budget_during_a_requested_rebuild", 1_000, || falls(true));
}
