//! Bugs of other stores, and the tests that would catch them here.
//!
//! Tests of this module show one of them each, as plainly as they can; the lanes named next to them
//! meet the same by the thousand. Names without a module are of this one.
//!
//! | bug | cause or effect there | caught by |
//! |---|---|---|
//! | leveldb#74 | CURRENT renamed and not synced: 16 zeros | `a_current_that_lost_its_bytes`, [`images`](crate::images) under P7 |
//! | leveldb#189, leveldb PR#604 | a new manifest not synced | [`images`](crate::images) under P1, P7 |
//! | leveldb#195 | the old file removed before the rename is durable | [`images`](crate::images) under P9 |
//! | leveldb#333 | an empty table referred to | [`images`](crate::images) under P7, P9 |
//! | rocksdb PR#10573, pebble#125, rocksdb#5287, PR#14780, mongo-rocks#35 | a directory not synced | [`images`](crate::images) under P1, P9; [`black_box`](crate::black_box) |
//! | pebble PR#5915, badger#155 | CURRENT durable before its manifest | [`images`](crate::images) under P9; `images::new_manifests` |
//! | rocksdb#4990, PR#5379 | a manifest's sync fails, and tables are removed | `a_manifest_that_cannot_be_synced_costs_no_table` |
//! | cockroach#37102, rocksdb 5.6.0 | a sync fails, the next succeeds, and is believed | `a_failed_sync_is_not_tried_again` |
//! | rocksdb PR#12448 | writes after a failed append to the log | `nothing_is_written_behind_a_failed_append` |
//! | fjall#304, fjall#308 | half a batch left in the log, and a later synced one lost | `nothing_is_written_behind_a_failed_append`, [`faults`](crate::faults) |
//! | redb PR#1177 | a transient error, and recovery is skipped | [`faults`](crate::faults), [`sites`](crate::sites) |
//! | leveldb#161 | a record of zeros in the middle of the manifest | `a_manifest_with_zeros_in_the_middle_is_damaged` |
//! | rocksdb#6316 | disk full while writing the manifest, which is then appended to | `a_manifest_cut_short_by_a_full_disk_is_left_behind` |
//! | rocksdb#7784, #919, #9762, redb#620, cockroach#32605 | no recovery from a full disk | [`full`](crate::full) |
//! | fjall#311, pebble#453, rocksdb#12467 | corruption in the middle of a log mistaken for its end | `zeros_in_the_middle_of_a_log_are_damage`; the lanes of `tests/damage` |
//! | rocksdb#6288 | a read error mistaken for the end of a log | `an_error_while_a_log_is_read_is_not_its_end`, [`sites`](crate::sites) |
//! | rocksdb PR#7701 | holes after a log that lost its end | [`images`](crate::images) under P4 to P7: a state is a prefix |
//! | pebble#567, rocksdb PR#12918, leveldb#251 | old records of a log valid again | [`images`](crate::images) under P8 |
//! | fjall#68 | a panic on a torn log | [`images`](crate::images) under P4 |
//! | fjall PR#317 | writes after a recovery are lost in the next | `what_is_written_after_a_recovery_is_found_by_the_next` |
//! | rocksdb PR#7621, PR#6426 | a number reused after a lost edit | `a_number_is_not_used_again_after_an_edit_that_was_lost`, [`images`](crate::images) |
//! | rocksdb PR#9634, #9942 | a second crash, right after a recovery | [`recovering`](crate::recovering); `inspect` crashes each image again |
//! | redb PR#1290, pebble#984, sled#893 | recovery that makes torn bytes valid | [`recovering`](crate::recovering) |
//! | leveldb#779 | CURRENT with its contents doubled | `a_current_that_is_there_twice_is_damaged` |
//! | leveldb#126, rocksdb#1780 | two owners | [`opening`](crate::opening) |
//! | fjall#176 | foreign files | [`opening`](crate::opening) |

use std::path::{Path, PathBuf};
use std::sync::Arc;

use trommel::vfs::Vfs;
use trommel::{Db, Error, WriteOptions};
use trommel_sim::{Failure, Fault, OpKind, Policy, SimDisk};

use crate::inspect::scan;
use crate::workload::{DIR, options};

fn open(disk: &SimDisk) -> trommel::Result<Db> {
    // The memtable is never full before it is flushed.
    let options = options(1, Arc::new(disk.clone())).background_threads(0);
    Db::open(DIR, options.writes(|w| w.write_buffer_bytes(1 << 20)))
}

fn put(db: &Db, key: &str, sync: bool) -> trommel::Result<()> {
    let options = if sync { WriteOptions::sync() } else { WriteOptions::os() };
    db.put_with(key, "v".repeat(300), options).map(drop)
}

fn entries(db: &Db) -> usize {
    scan(db).expect("reading").len()
}

/// A disk with a store of ten entries, all of them in tables or synced, open.
fn store() -> (SimDisk, Db) {
    let disk = SimDisk::new();
    let db = open(&disk).expect("a healthy disk");
    for number in 0..10 {
        put(&db, &format!("key{number}"), true).expect("a healthy disk");
    }
    (disk, db)
}

/// The store's files whose name contains `part`, in order of name.
fn files(disk: &SimDisk, part: &str) -> Vec<PathBuf> {
    let listing = disk.list(Path::new(DIR)).expect("it is there");
    let names = listing.into_iter().map(|entry| entry.name.to_string_lossy().into_owned());
    names.filter(|name| name.contains(part)).map(|name| Path::new(DIR).join(name)).collect()
}

/// Changes the bytes of a file.
fn replace(disk: &SimDisk, path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = disk.read(path, u64::MAX).expect("it is there");
    change(&mut bytes);
    disk.remove(path).expect("it is there");
    disk.create(path).expect("it is gone").append(&bytes).expect("room");
}

fn is_damaged(disk: &SimDisk) {
    let before = disk.hash();
    match open(disk) {
        Err(Error::Corruption(_)) => {}
        other => panic!("it must be found damaged, not {:?}", other.map(|db| entries(&db))),
    }
    assert_eq!(disk.hash(), before, "an open that found damage has changed something");
}

fn survives(disk: &SimDisk, wanted: usize) {
    for policy in [Policy::SYNCED, Policy::EVERYTHING] {
        let db = open(&disk.crash(policy, 0).disk()).expect("opening after a power cut");
        assert_eq!(entries(&db), wanted, "{policy}");
        db.verify().expect("whole");
    }
}

#[test]
fn a_manifest_that_cannot_be_synced_costs_no_table() {
    let (disk, db) = store();
    db.flush().expect("a healthy disk");
    let before = files(&disk, ".sst");
    put(&db, "late", true).expect("a healthy disk");
    disk.inject(Fault::new(Failure::Io).on(OpKind::Sync).named("MANIFEST-"));
    db.compact_all().expect_err("the manifest was not synced");
    for table in &before {
        assert!(files(&disk, ".sst").contains(table), "{} was removed", table.display());
    }
    assert!(matches!(put(&db, "more", false), Err(Error::Poisoned { .. })));
    assert_eq!(entries(&db), 11, "reads go on");
    survives(&disk, 11);
    drop(db);
    let db = open(&disk).expect("the disk is well again");
    put(&db, "more", true).expect("and the store with it");
    survives(&disk, 12);
}

#[test]
fn a_failed_sync_is_not_tried_again() {
    let (disk, db) = store();
    disk.inject(Fault::new(Failure::Io).on(OpKind::Sync).named(".log"));
    put(&db, "in doubt", true).expect_err("it was not synced");
    let syncs = disk.calls(OpKind::Sync);
    for _ in 0..3 {
        assert!(matches!(put(&db, "later", true), Err(Error::Poisoned { .. })));
        assert!(matches!(db.sync(), Err(Error::Poisoned { .. })));
        assert!(matches!(db.flush(), Err(Error::Poisoned { .. })));
    }
    assert_eq!(disk.calls(OpKind::Sync), syncs, "a later sync would have succeeded, and lied");
    assert_eq!(entries(&db), 10, "what failed is not visible");
    let left = open(&disk.crash(Policy::SYNCED, 0).disk()).expect("opening after a power cut");
    assert_eq!(entries(&left), 10);
}

/// Writes until an error: logs, tables, edits, and keys so long that a new manifest is written.
/// Returns the acknowledged keys, all of them durable.
fn write_until_it_fails(db: &Db) -> (Vec<String>, Error) {
    let mut written = Vec::new();
    for number in 0..60 {
        let key = format!("{number:03}{}", "k".repeat(40_000));
        let outcome = put(db, &key, true).and_then(|()| {
            written.push(key);
            db.flush()?;
            if number % 8 == 7 { db.compact_all() } else { Ok(()) }
        });
        if let Err(error) = outcome {
            return (written, error);
        }
    }
    panic!("nothing failed")
}

/// Every call that durability depends on fails at several of its occurrences: nothing is written
/// afterwards, reads still work, and an open restores the store.
#[test]
fn whatever_fails_on_the_way_to_durability_poisons() {
    let grid = [
        (OpKind::Append, ".log", vec![0, 1, 9]),
        (OpKind::Sync, ".log", vec![0, 1, 9]),
        (OpKind::Append, "MANIFEST-", vec![0, 1, 9]),
        (OpKind::Sync, "MANIFEST-", vec![0, 1, 9]),
        // The sync for a new log, for a table, and so on in turn; then that for a new manifest and
        // its CURRENT.
        (OpKind::SyncDir, "db", vec![0, 1, 2, 3, 17]),
        (OpKind::Rename, "CURRENT", vec![0]),
        (OpKind::Create, "MANIFEST-", vec![0]),
    ];
    for (kind, name, places) in grid {
        for (place, failure) in
            places.iter().flat_map(|place| [(*place, Failure::Io), (*place, Failure::NoSpace)])
        {
            let at = format!("{failure} at {kind:?} {place} of {name}");
            let (disk, db) = store();
            let fault = Fault::new(failure).on(kind).named(name).after(place);
            // A full disk stays full: after a single failure, files kept for recycling would be
            // removed.
            let is_full = failure == Failure::NoSpace;
            disk.inject(if is_full { fault.lasting() } else { fault });
            let (written, error) = write_until_it_fails(&db);
            assert!(matches!(error, Error::Io { .. }), "{at}: {error}");
            let fired = disk.faults_fired();
            assert!(fired == 1 || is_full && fired == 2, "{at}: {fired}");
            disk.clear_faults();
            let calls = disk.calls(OpKind::Append) + disk.calls(OpKind::Sync);
            for outcome in [put(&db, "later", true), put(&db, "later", false), db.flush()] {
                assert!(matches!(outcome, Err(Error::Poisoned { .. })), "{at}: {outcome:?}");
            }
            assert_eq!(disk.calls(OpKind::Append) + disk.calls(OpKind::Sync), calls, "{at}");
            let whole = |db: &Db| {
                let all = (0..10).map(|number| format!("key{number}")).chain(written.clone());
                all.into_iter().all(|key| db.get(key).expect("reading").is_some())
            };
            assert!(whole(&db), "{at}: reads go on");
            let cut = disk.crash(Policy::SYNCED, 0).disk();
            drop(db);
            for disk in [disk, cut] {
                let db = open(&disk).unwrap_or_else(|error| panic!("{at}: {error}"));
                assert!(whole(&db), "{at}: what was durable is lost");
                put(&db, "later", true).expect("the disk is well again");
                db.verify().expect("whole");
            }
        }
    }
}

#[test]
fn nothing_is_written_behind_a_failed_append() {
    for part in [0, 1, 40, 299] {
        let (disk, db) = store();
        disk.inject(
            // Also after files kept for recycling are removed.
            Fault::new(Failure::NoSpace)
                .on(OpKind::Append)
                .named(".log")
                .writing_part(part)
                .lasting(),
        );
        put(&db, "half", true).expect_err("there was no room");
        disk.clear_faults();
        let appends = disk.calls(OpKind::Append);
        assert!(matches!(put(&db, "whole", true), Err(Error::Poisoned { .. })));
        assert_eq!(disk.calls(OpKind::Append), appends, "it would be lost behind the half one");
        drop(db);
        let db = open(&disk).expect("opening again");
        assert_eq!(entries(&db), 10);
        put(&db, "whole", true).expect("room again");
        survives(&disk, 11);
    }
}

#[test]
fn a_manifest_with_zeros_in_the_middle_is_damaged() {
    let (disk, db) = store();
    for number in 0..4 {
        put(&db, &format!("more{number}"), false).expect("a healthy disk");
        db.flush().expect("a healthy disk");
    }
    drop(db);
    let manifest = files(&disk, "MANIFEST-").pop().expect("there is one");
    replace(&disk, &manifest, |bytes| {
        let middle = bytes.len() / 2;
        bytes[middle - 30..middle + 30].fill(0);
    });
    is_damaged(&disk);
}

#[test]
fn a_manifest_cut_short_by_a_full_disk_is_left_behind() {
    for part in [1, 20, 60] {
        let (disk, db) = store();
        let full = Fault::new(Failure::NoSpace).on(OpKind::Append).named("MANIFEST-");
        disk.inject(full.writing_part(part));
        db.flush().expect_err("the disk is full");
        assert!(matches!(put(&db, "later", false), Err(Error::Poisoned { .. })));
        let torn = files(&disk, "MANIFEST-");
        survives(&disk, 10);
        drop(db);
        let db = open(&disk).expect("room again");
        let fresh = files(&disk, "MANIFEST-");
        assert_ne!(torn.last(), fresh.last(), "what follows a torn record is never read");
        db.flush().expect("room again");
        put(&db, "later", true).expect("room again");
        survives(&disk, 11);
    }
}

#[test]
fn zeros_in_the_middle_of_a_log_are_damage() {
    let (disk, db) = store();
    drop(db);
    let before = disk.crash(Policy::EVERYTHING, 0);
    for log in files(&before.disk(), ".log") {
        let disk = before.disk();
        let bytes = disk.read(&log, u64::MAX).expect("it is there").len();
        if bytes > 1000 {
            replace(&disk, &log, |bytes| bytes[400..500].fill(0));
            is_damaged(&disk);
        }
    }
}

#[test]
fn an_error_while_a_log_is_read_is_not_its_end() {
    let (disk, db) = store();
    put(&db, "last", false).expect("a healthy disk");
    let killed = disk.crash(Policy::EVERYTHING, 0);
    for call in 0.. {
        let disk = killed.disk();
        disk.inject(Fault::new(Failure::Io).on(OpKind::Read).named(".log").after(call));
        let opened = open(&disk);
        if disk.faults_fired() == 0 {
            assert!(call > 0, "no log was read");
            return;
        }
        assert!(matches!(opened, Err(Error::Io { .. })), "read {call}");
        assert_eq!(entries(&open(&disk).expect("the disk is well again")), 11, "read {call}");
    }
}

#[test]
fn what_is_written_after_a_recovery_is_found_by_the_next() {
    let (disk, db) = store();
    let mut disk = disk.crash(Policy::EVERYTHING, 0).disk();
    drop(db);
    for round in 0..5_usize {
        let db = open(&disk).expect("opening");
        assert_eq!(entries(&db), 10 + round, "round {round}");
        put(&db, &format!("round{round}"), round.is_multiple_of(2)).expect("a healthy disk");
        // Killed: nothing is closed.
        disk = disk.crash(Policy::EVERYTHING, 0).disk();
    }
}

#[test]
fn a_number_is_not_used_again_after_an_edit_that_was_lost() {
    let (disk, db) = store();
    disk.inject(Fault::new(Failure::Io).on(OpKind::Append).named("MANIFEST-"));
    db.flush().expect_err("the manifest was not written");
    // The table exists, but no version refers to it.
    let orphans = files(&disk, ".sst");
    let killed = disk.crash(Policy::EVERYTHING, 0).disk();
    let db = open(&killed).expect("opening");
    put(&db, "later", false).expect("a healthy disk");
    db.flush().expect("a healthy disk");
    let numbers = |path: &PathBuf| path.file_stem().map(std::ffi::OsStr::to_os_string);
    let newest = orphans.iter().map(numbers).max().flatten();
    let created = killed.replay();
    let created = created.ops().iter().filter(|op| op.kind() == OpKind::Create);
    for path in created.map(|op| op.path().to_path_buf()) {
        if path.extension().is_some_and(|kind| kind == "sst" || kind == "log") {
            assert!(numbers(&path) > newest, "{}: its number was used", path.display());
        }
    }
    assert!(newest.is_some(), "a table was written");
    assert_eq!(entries(&db), 11);
}

#[test]
fn a_current_that_lost_its_bytes() {
    let (disk, db) = store();
    drop(db);
    let whole = disk.crash(Policy::EVERYTHING, 0);
    for length in [0, 1, 16] {
        let disk = whole.disk();
        replace(&disk, &Path::new(DIR).join("CURRENT"), |bytes| *bytes = vec![0; length]);
        is_damaged(&disk);
    }
}

#[test]
fn a_current_that_is_there_twice_is_damaged() {
    let (disk, db) = store();
    drop(db);
    replace(&disk, &Path::new(DIR).join("CURRENT"), |bytes| bytes.extend(bytes.clone()));
    is_damaged(&disk);
}
