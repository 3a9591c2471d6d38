//! Entries that only a snapshot saw, after its release.
#![expect(clippy::big_endian_bytes, reason = "keys in the order of their numbers")]

use std::sync::Arc;
use std::time::Duration;

use trommel_sim::MemoryVfs;
use trommel_vfs::Vfs;

use crate::{Compression, Db, Options};

fn options(vfs: &Arc<MemoryVfs>) -> Options {
    let options = Options::default().vfs(Arc::clone(vfs) as Arc<dyn Vfs>).background_threads(0);
    options
        .compression(Compression::None)
        .writes(|w| w.write_buffer_bytes(64 << 10))
        .compaction(|c| c.table_bytes(64 << 10))
}

fn entries(db: &Db) -> u64 {
    db.stats().levels.iter().map(|level| level.entries).sum()
}

fn bytes(db: &Db) -> u64 {
    db.stats().levels.iter().map(|level| level.bytes).sum()
}

fn key(n: u32) -> [u8; 4] {
    n.to_be_bytes()
}

fn put_all(db: &Db, count: u32, value: u8) {
    (0..count).for_each(|n| {
        db.put(key(n), [value; 100]).unwrap();
    });
}

fn delete_all(db: &Db, count: u32) {
    (0..count).for_each(|n| {
        db.delete(key(n)).unwrap();
    });
}

/// Regression: 98 MiB that only a snapshot had kept stayed after its drop, through a wait for idle
/// and 300,000 more puts (rocksdb pull request 3009).
#[test]
fn entries_seen_only_by_a_snapshot_go_with_it() {
    let db = Db::open("db", options(&Arc::default())).unwrap();
    put_all(&db, 10_000, 1);
    let snapshot = db.snapshot();
    delete_all(&db, 10_000);
    db.compact_all().unwrap();
    db.wait_idle().unwrap();
    assert_eq!(snapshot.get(key(9)).unwrap().unwrap(), [1; 100][..]);
    let held = bytes(&db);
    assert!(held > 1_000_000, "{held} bytes while it is there");
    drop(snapshot);
    db.wait_idle().unwrap();
    assert_eq!((bytes(&db), entries(&db)), (0, 0), "bytes and entries when it is gone");
}

/// The same while another snapshot remains that does not see these entries.
#[test]
fn a_newer_snapshot_keeps_only_what_it_sees() {
    let db = Db::open("db", options(&Arc::default())).unwrap();
    put_all(&db, 5_000, 1);
    let older = db.snapshot();
    put_all(&db, 5_000, 2);
    let newer = db.snapshot();
    db.compact_all().unwrap();
    db.wait_idle().unwrap();
    assert_eq!(entries(&db), 10_000);
    let before = db.stats().background.compactions.count;
    db.wait_idle().unwrap();
    assert_eq!(db.stats().background.compactions.count, before, "nothing can be dropped yet");
    drop(older);
    db.wait_idle().unwrap();
    assert_eq!(entries(&db), 5_000);
    assert_eq!(newer.get(key(3)).unwrap().unwrap(), [2; 100][..]);
    let before = db.stats().background.compactions.count;
    drop(newer);
    db.wait_idle().unwrap();
    assert_eq!(
        db.stats().background.compactions.count,
        before,
        "what lost nothing is not rewritten again"
    );
}

/// Snapshots do not survive closing the store.
#[test]
fn entries_seen_only_by_a_snapshot_go_after_a_reopen() {
    let vfs = Arc::default();
    let db = Db::open("db", options(&vfs)).unwrap();
    put_all(&db, 5_000, 1);
    let snapshot = db.snapshot();
    put_all(&db, 5_000, 2);
    db.compact_all().unwrap();
    assert_eq!(entries(&db), 10_000);
    db.close().unwrap();
    drop(snapshot);
    let db = Db::open("db", options(&vfs)).unwrap();
    db.wait_idle().unwrap();
    assert_eq!(entries(&db), 5_000);
    assert_eq!(db.get(key(3)).unwrap().unwrap(), [2; 100][..]);
}

/// Workers free the space although no caller waits.
#[test]
fn workers_look_when_a_snapshot_goes() {
    let db = Db::open("db", options(&Arc::default()).background_threads(1)).unwrap();
    put_all(&db, 5_000, 1);
    let snapshot = db.snapshot();
    put_all(&db, 5_000, 2);
    db.compact_all().unwrap();
    db.wait_idle().unwrap();
    assert_eq!(entries(&db), 10_000);
    drop(snapshot);
    // As long as it takes, up to a timeout.
    let end = crate::env::now() + Duration::from_secs(60);
    while entries(&db) > 5_000 && crate::env::now() < end {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(entries(&db), 5_000);
}

/// Bytes of all files of the store.
fn disk_bytes(vfs: &MemoryVfs) -> u64 {
    vfs.list("db".as_ref()).unwrap().iter().map(|entry| entry.bytes).sum()
}

/// Fills a store, deletes everything by `delete`, and waits for its worker to free the space.
fn frees_disk_at_rest(delete: impl Fn(&Db)) {
    let vfs = Arc::default();
    let options = options(&vfs).background_threads(1).writes(|w| w.write_buffer_bytes(64 << 20));
    let db = Db::open("db", options).unwrap();
    put_all(&db, 10_000, 1);
    db.compact_all().unwrap();
    let full = disk_bytes(&vfs);
    delete(&db);
    // As long as it takes, up to a timeout.
    let end = crate::env::now() + Duration::from_secs(60);
    let is_freed = || disk_bytes(&vfs) <= full / 50 && entries(&db) == 0;
    while !is_freed() && crate::env::now() < end {
        std::thread::sleep(Duration::from_millis(5));
    }
    let left = disk_bytes(&vfs);
    assert!(left <= full / 50, "{left} of {full} bytes are left");
    assert_eq!((bytes(&db), entries(&db)), (0, 0));
}

/// Regression: 200,000 deleted keys kept 77 MB until `wait_idle` was called: their tombstones
/// stayed in the memtable, and would have stayed in level 0.
#[test]
fn keys_deleted_one_by_one_free_the_disk_at_rest() {
    frees_disk_at_rest(|db| delete_all(db, 10_000));
}

#[test]
fn a_deleted_range_frees_the_disk_at_rest() {
    frees_disk_at_rest(|db| _ = db.delete_range(..).unwrap());
}

/// Regression: 450,000 tombstones that were moved unread into the deepest level stayed there
/// (pebble 838).
#[test]
fn tombstones_that_were_moved_to_the_deepest_level_go() {
    let db = Db::open("db", options(&Arc::default()).compaction(|c| c.l0_trigger(1))).unwrap();
    delete_all(&db, 10_000);
    db.flush().unwrap();
    db.wait_idle().unwrap();
    let stats = db.stats();
    assert!(stats.background.compactions.trivial_moves > 0, "none was moved unread");
    assert_eq!((bytes(&db), entries(&db)), (0, 0));
}
