//! Flushes, compactions and rotations during reads and writes.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use shuttle::thread::spawn;
use trommel::{Db, Error, ErrorKind, MemtableKind, WriteBatch, WriteOptions};
use trommel_sim::{OpKind, SimDisk};

use crate::lane::lane;
use crate::store::{after_power_cut, number, open, options};

/// Number of keys that share a sum.
const ACCOUNTS: u64 = 3;
const SUM: u64 = 300;

fn account(n: u64) -> String {
    format!("account{n}")
}

fn fill(db: &Db) {
    let mut batch = WriteBatch::new();
    for n in 0..ACCOUNTS {
        batch.put(account(n), (SUM / ACCOUNTS).to_le_bytes());
    }
    db.write(batch).unwrap();
}

/// Moves one from an account to another: the only writer of both.
fn transfer(db: &Db, from: u64, to: u64) {
    let of = |n| number(db.get(account(n)).unwrap());
    let (rest, more) = (of(from) - 1, of(to) + 1);
    let mut batch = WriteBatch::new();
    batch.put(account(from), rest.to_le_bytes());
    batch.put(account(to), more.to_le_bytes());
    db.write(batch).unwrap();
}

/// The sum of all accounts, each looked up at another point in time.
fn sum_of_gets(db: &Db) -> u64 {
    let snapshot = db.snapshot();
    (0..ACCOUNTS).map(|n| number(snapshot.get(account(n)).unwrap())).sum()
}

/// The sum of all accounts, from one scan.
fn sum_of_scan(db: &Db) -> u64 {
    db.prefix("account").map(|entry| number(Some(entry.unwrap().1))).sum()
}

/// Three writers that fill a memtable with each write: every write rotates, while others wait for a
/// rotation. All acknowledged writes are present, and durable if a later write was synced.
fn rotation() {
    let disk = SimDisk::new();
    let db = open(options(&disk).writes(|w| w.max_frozen_memtables(2)));
    let synced = Arc::new(Mutex::new(Vec::new()));
    let writers: Vec<_> = (0..3u64)
        .map(|writer| {
            let (db, synced) = (db.clone(), Arc::clone(&synced));
            spawn(move || {
                for round in 1..=2u64 {
                    let syncs = writer == 0;
                    let with = if syncs { WriteOptions::sync() } else { WriteOptions::os() };
                    let key = format!("k{writer}{round}");
                    db.put_with(&key, round.to_le_bytes(), with).unwrap();
                    assert_eq!(number(db.get(&key).unwrap()), round);
                    if syncs {
                        synced.lock().unwrap().push(key);
                    }
                }
            })
        })
        .collect();
    shuttle::thread::yield_now();
    let promised = synced.lock().unwrap().clone();
    let left = after_power_cut(&disk);
    for key in promised {
        assert!(left.get(&key).unwrap().is_some(), "{key} was acknowledged as durable");
    }
    for writer in writers {
        writer.join().unwrap();
    }
    db.close().unwrap();
    let db = after_power_cut(&disk);
    assert_eq!(db.iter().count(), 6);
}

/// A sum is the same at every point in time, whatever happens to memtables and tables.
fn flush_against_readers(kind: MemtableKind) {
    let disk = SimDisk::new();
    let options = options(&disk).writes(|w| w.memtable(kind));
    let db = open(options.compaction(|c| c.auto_compaction(false)));
    fill(&db);
    let writer = spawn({
        let db = db.clone();
        move || {
            transfer(&db, 0, 1);
            transfer(&db, 1, 2);
        }
    });
    let flusher = spawn({
        let db = db.clone();
        move || db.flush().unwrap()
    });
    let reader = spawn({
        let db = db.clone();
        move || assert_eq!(sum_of_scan(&db), SUM)
    });
    assert_eq!(sum_of_gets(&db), SUM);
    for thread in [writer, flusher, reader] {
        thread.join().unwrap();
    }
    assert_eq!((sum_of_gets(&db), sum_of_scan(&db)), (SUM, SUM));
    db.close().unwrap();
}

/// As above, with compactions of everything, and an iterator and a snapshot that are held through
/// them.
fn compaction_against_readers() {
    let disk = SimDisk::new();
    let db = open(options(&disk).compaction(|c| c.l0_trigger(2)));
    fill(&db);
    transfer(&db, 2, 0);
    let held = db.snapshot();
    let before: Vec<_> = held.iter().map(|entry| entry.unwrap()).collect();
    let mut scan = db.iter();
    let compactor = spawn({
        let db = db.clone();
        move || db.compact_all().unwrap()
    });
    let writer = spawn({
        let db = db.clone();
        move || {
            transfer(&db, 0, 1);
            transfer(&db, 1, 2);
        }
    });
    let first = scan.next().unwrap().unwrap();
    assert_eq!(sum_of_gets(&db), SUM);
    assert_eq!(sum_of_scan(&db), SUM);
    let rest = scan.map(|entry| entry.unwrap());
    let walked: Vec<_> = std::iter::once(first).chain(rest).collect();
    assert_eq!(walked, before, "an iterator sees one moment");
    compactor.join().unwrap();
    writer.join().unwrap();
    let after: Vec<_> = held.iter().map(|entry| entry.unwrap()).collect();
    assert_eq!(after, before, "a snapshot sees one moment");
    drop(held);
    db.compact_all().unwrap();
    assert_eq!(sum_of_gets(&db), SUM);
    db.close().unwrap();
}

/// A snapshot is taken while a write is published and a compaction determines which versions to
/// retain.
fn snapshots_against_the_drop_rule() {
    let disk = SimDisk::new();
    let db = open(options(&disk).compaction(|c| c.auto_compaction(false)).background_threads(1));
    fill(&db);
    let compactor = spawn({
        let db = db.clone();
        move || db.compact_all().unwrap()
    });
    let writer = spawn({
        let db = db.clone();
        move || transfer(&db, 0, 1)
    });
    let holder = spawn({
        let db = db.clone();
        move || {
            let snapshot = db.snapshot();
            let look = || {
                let found = (0..ACCOUNTS).map(|n| snapshot.get(account(n)).unwrap());
                found.map(number).collect::<Vec<_>>()
            };
            let first = look();
            db.flush().unwrap();
            let second = look();
            assert_eq!(first.iter().sum::<u64>(), SUM);
            assert_eq!(first, second, "of one moment");
            snapshot.seqno()
        }
    });
    let snapshot = db.snapshot();
    db.flush().unwrap();
    let sum: u64 = snapshot.iter().map(|entry| number(Some(entry.unwrap().1))).sum();
    assert_eq!(sum, SUM);
    compactor.join().unwrap();
    writer.join().unwrap();
    holder.join().unwrap();
    drop(snapshot);
    db.close().unwrap();
}

#[test]
fn rotates_against_writers() {
    lane("rotates_against_writers", 8_000, rotation);
}

#[test]
fn flushes_against_readers() {
    lane("flushes_against_readers", 20_000, || flush_against_readers(MemtableKind::Hash));
}

#[test]
fn flushes_skip_lists_against_readers() {
    let scenario = || flush_against_readers(MemtableKind::SkipList);
    lane("flushes_skip_lists_against_readers", 6_000, scenario);
}

#[test]
fn compacts_against_readers() {
    lane("compacts_against_readers", 3_000, compaction_against_readers);
}

/// Number of keys in a store whose compaction has a dozen tables' worth.
const MERGED_KEYS: u64 = 48;

/// Number of schedules in which a compaction was shared.
static SHARED: AtomicU64 = AtomicU64::new(0);

/// Number of schedules in which a memtable was flushed in the middle of a compaction.
static BETWEEN: AtomicU64 = AtomicU64::new(0);

/// A store with two runs of level 0, and this many workers.
fn two_runs(disk: &SimDisk, workers: usize) -> Db {
    let small = options(disk)
        .writes(|w| w.write_buffer_bytes(1 << 20))
        .reads(|r| r.block_bytes(64))
        .compaction(|c| c.table_bytes(1 << 10));
    let small = small.writes(|w| w.spare_file_bytes(0));
    let db = open(small.background_threads(workers).compaction(|c| c.auto_compaction(false)));
    for round in 1..=2u64 {
        let mut batch = WriteBatch::new();
        for n in (0..MERGED_KEYS).filter(|n| n % round == 0) {
            batch.put(format!("key{n:03}"), [round as u8; 128]);
        }
        db.write(batch).unwrap();
        db.flush().unwrap();
    }
    db
}

/// Asserts that a scan sees everything.
fn assert_sees_all(db: &Db) {
    let entries: Vec<_> = db.iter().map(|entry| entry.unwrap()).collect();
    assert_eq!(entries.len() as u64, MERGED_KEYS);
    for (n, (key, value)) in (0..MERGED_KEYS).zip(&entries) {
        assert_eq!(*key, *format!("key{n:03}").as_bytes());
        assert_eq!(value[..], [if n % 2 == 0 { 2 } else { 1 }; 128]);
    }
}

/// While a caller waits for its compaction, the other worker takes subcompactions, wherever the
/// first one is. Nothing is lost or duplicated, for concurrent readers either.
fn shared_merge() {
    let disk = SimDisk::new();
    let db = two_runs(&disk, 2);
    let compactor = spawn({
        let db = db.clone();
        move || db.compact_all().unwrap()
    });
    assert_sees_all(&db);
    compactor.join().unwrap();
    assert_sees_all(&db);
    assert_sees_all(&after_power_cut(&disk));
    SHARED.fetch_add(db.stats().background.compactions.shared, Relaxed);
    db.close().unwrap();
}

/// As above, and the store is closed meanwhile, or the disk is full.
fn shared_merge_that_is_given_up() {
    let disk = SimDisk::new();
    let db = two_runs(&disk, 2);
    let compactor = spawn({
        let db = db.clone();
        move || {
            let outcome = db.compact_all();
            let is_given_up =
                |error: &Error| matches!(error, Error::Closed) || error.kind() == ErrorKind::Retry;
            assert!(outcome.as_ref().err().is_none_or(is_given_up), "{outcome:?}");
        }
    });
    disk.set_capacity(Some(disk.used_bytes() + 6_000));
    shuttle::thread::yield_now();
    disk.set_capacity(None);
    shuttle::thread::yield_now();
    db.close().unwrap();
    compactor.join().unwrap();
    assert_sees_all(&after_power_cut(&disk));
}

/// The only worker is compacting when a memtable is frozen: a writer that waits for the flush does
/// not have to wait for the compaction.
fn flush_in_a_merge() {
    let disk = SimDisk::new();
    let db = two_runs(&disk, 1);
    let created = disk.calls(OpKind::Create);
    let compactor = spawn({
        let db = db.clone();
        move || db.compact_all().unwrap()
    });
    let flusher = spawn({
        let (db, disk) = (db.clone(), disk.clone());
        move || {
            let has_begun = disk.calls(OpKind::Create) > created;
            db.put("key000", [2; 128]).unwrap();
            db.flush().unwrap();
            let is_over = db.stats().background.compactions.count > 0;
            BETWEEN.fetch_add(u64::from(has_begun && !is_over), Relaxed);
        }
    });
    assert_sees_all(&db);
    flusher.join().unwrap();
    compactor.join().unwrap();
    assert_sees_all(&db);
    assert_sees_all(&after_power_cut(&disk));
    db.close().unwrap();
}

#[test]
fn flushes_in_the_middle_of_a_merge() {
    lane("flushes_in_the_middle_of_a_merge", 2_000, flush_in_a_merge);
    let is_replay = std::env::var_os("TROMMEL_SCHEDULE").is_some();
    assert!(is_replay || BETWEEN.load(Relaxed) > 0, "every flush waited for the merge");
}

#[test]
fn shares_a_merge_with_an_idle_worker() {
    lane("shares_a_merge_with_an_idle_worker", 2_000, shared_merge);
    // In a single schedule there may be no idle worker.
    let is_replay = std::env::var_os("TROMMEL_SCHEDULE").is_some();
    assert!(is_replay || SHARED.load(Relaxed) > 0, "nobody took part in any merge");
}

#[test]
fn gives_a_shared_merge_up() {
    lane("gives_a_shared_merge_up", 2_000, shared_merge_that_is_given_up);
}

#[test]
fn takes_snapshots_while_versions_are_dropped() {
    lane("takes_snapshots_while_versions_are_dropped", 6_000, snapshots_against_the_drop_rule);
}
