//! File systems that fill up.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use trommel::{
    BackgroundJob, Db, Durability, Error, ErrorKind, Options, ReadMode, Verify, WriteBatch,
};

use crate::stage::counted;
use crate::store::{Known, key, refusal, tiny, tried, value};

/// A file that takes up space until it is removed.
struct Ballast(PathBuf);

impl Ballast {
    fn new(dir: &Path, bytes: usize) -> Self {
        let path = dir.join("ballast");
        fs::write(&path, vec![1; bytes]).unwrap();
        Self(path)
    }

    /// Fills all free space, to the last byte.
    fn all(dir: &Path) -> Self {
        let path = dir.join("ballast");
        let mut file = File::create(&path).unwrap();
        while file.write_all(&[1; 4096]).is_ok() {}
        while file.write_all(&[1]).is_ok() {}
        Self(path)
    }

    fn give_back(self) {
        fs::remove_file(self.0).unwrap();
    }
}

/// Writes until an error, or until writers wait for the space of a table: then the ballast is
/// removed, and the waiting write succeeds.
fn write_until_full(db: &Db, known: &mut Known, ballast: Ballast) {
    let (written, full) = (AtomicU64::new(0), AtomicBool::new(false));
    let waited = std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut last = (written.load(Ordering::Relaxed), Instant::now());
            while !full.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(20));
                let now = written.load(Ordering::Relaxed);
                if now != last.0 {
                    last = (now, Instant::now());
                } else if last.1.elapsed() > Duration::from_secs(3) {
                    ballast.give_back();
                    return true;
                }
            }
            ballast.give_back();
            false
        });
        while !watcher.is_finished() && known.fill(db, known.written + 10).is_none() {
            written.store(known.written, Ordering::Relaxed);
        }
        full.store(true, Ordering::Relaxed);
        watcher.join().unwrap()
    });
    if waited {
        counted("waits", 1);
    }
    known.check(db);
}

/// Fills the file system, reads, frees space, and reopens the store.
fn fill(dir: &Path, options: Options) {
    let ballast = Ballast::new(dir, 10 << 20);
    let store = dir.join("store");
    let db = Db::open(&store, options.clone()).unwrap();
    let mut known = Known::default();
    write_until_full(&db, &mut known, ballast);
    tried(&db.flush());
    known.check(&db);
    drop(db);
    known.check_again(&store, options);
}

/// Fills the disk without a log: memtables are flushed once there is space.
fn fill_without_a_log(dir: &Path) {
    let ballast = Ballast::new(dir, 10 << 20);
    let options = tiny().writes(|w| w.log(false)).background_threads(1);
    let store = dir.join("store");
    let db = Db::open(&store, options.clone()).unwrap();
    let mut known = Known::default();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // A table without space is retried until there is some. A waiting caller gets the error.
        let room = scope.spawn(|| {
            while tried(&db.wait_idle()) && !done.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            ballast.give_back();
        });
        known.fill(&db, 9_000);
        done.store(true, Ordering::Relaxed);
        room.join().unwrap();
    });
    known.check(&db);
    db.close().unwrap();
    known.check_again(&store, options);
}

fn no_room_to_compact(dir: &Path) {
    let options = tiny()
        .compaction(|c| c.auto_compaction(false).l0_slowdown(500).l0_stop(1000))
        .writes(|w| w.log(false));
    let store = dir.join("store");
    let db = Db::open(&store, options.clone()).unwrap();
    let mut known = Known::default();
    assert!(known.fill(&db, 3_000).is_none());
    db.flush().unwrap();
    let ballast = Ballast::all(dir);
    // It is retried automatically, but an explicit caller gets the error.
    refusal(&db.compact_all().expect_err("there was no room"));
    known.check(&db);
    ballast.give_back();
    while !tried(&db.compact_all()) {}
    known.check(&db);
    db.close().unwrap();
    known.check_again(&store, tiny());
}

fn no_room_to_open(dir: &Path) {
    let store = dir.join("store");
    let mut known = Known::default();
    let db = Db::open(&store, tiny()).unwrap();
    assert!(known.fill(&db, 2_000).is_none());
    drop(db);
    let ballast = Ballast::all(dir);
    match Db::open(&store, tiny()) {
        Err(error) => refusal(&error),
        Ok(db) => {
            known.check(&db);
            panic!("it opened on a full disk, for which this test has no oracle");
        }
    }
    let db = Db::open_read_only(&store, tiny()).unwrap();
    known.check(&db);
    drop(db);
    ballast.give_back();
    known.check_again(&store, tiny());
}

fn no_room_to_flush(dir: &Path) {
    let store = dir.join("store");
    let options = tiny().writes(|w| w.write_buffer_bytes(4 << 20)).background_threads(0);
    let mut known = Known::default();
    let db = Db::open(&store, options.clone()).unwrap();
    assert!(known.fill(&db, 1_500).is_none());
    let ballast = Ballast::all(dir);
    let flushed = tried(&db.flush());
    assert!(!flushed, "there was no room");
    known.check(&db);
    ballast.give_back();
    drop(db);
    known.check_again(&store, options);
}

/// A writer that waits for a flush without space gets an error with the reason.
fn no_room_in_the_background(dir: &Path) {
    let store = dir.join("store");
    let options = tiny().writes(|w| w.log(false).stall_timeout(Some(Duration::from_secs(1))));
    let mut known = Known::default();
    let db = Db::open(&store, options.clone()).unwrap();
    assert!(known.fill(&db, 500).is_none());
    db.wait_idle().unwrap();
    let ballast = Ballast::all(dir);
    let refused = known.fill(&db, 20_000).expect("the disk is full");
    assert_eq!(refused.kind(), ErrorKind::Retry, "{refused}");
    let Error::Stalled { job, source, .. } = &refused else { panic!("{refused}") };
    assert_eq!(*job, BackgroundJob::Flush, "{refused}");
    assert!(source.to_string().to_lowercase().contains("no space left"), "{source}");
    let last = db.stats().background.error.expect("a flush has failed");
    assert!(last.is_current() && last.job == BackgroundJob::Flush, "{last}");
    known.check(&db);
    ballast.give_back();
    while let Some(refused) = known.fill(&db, known.written + 100) {
        assert!(matches!(refused, Error::Stalled { .. }), "{refused}");
        std::thread::sleep(Duration::from_millis(50));
    }
    db.wait_idle().unwrap();
    let last =
        db.stats().background.error.expect("it is reported for as long as the store is open");
    assert!(!last.is_current(), "{last}");
    known.check(&db);
    db.close().unwrap();
    known.check_again(&store, options);
}

fn no_room_for_a_batch(dir: &Path) {
    let store = dir.join("store");
    let mut known = Known::default();
    let db = Db::open(&store, tiny()).unwrap();
    assert!(known.fill(&db, 1_000).is_none());
    let ballast = Ballast::new(dir, 10 << 20);
    let mut batch = WriteBatch::new();
    for number in 100_000..106_000 {
        batch.put(key(number), value(number));
    }
    refusal(&db.write(batch).expect_err("six MB cannot fit"));
    known.check(&db);
    ballast.give_back();
    drop(db);
    // Everything or nothing, and not everything was written.
    known.check_again(&store, tiny());
}

fn no_room_for_a_checkpoint(dir: &Path) {
    let store = dir.join("store");
    let mut known = Known::default();
    let db = Db::open(&store, tiny()).unwrap();
    assert!(known.fill(&db, 2_000).is_none());
    db.wait_idle().unwrap();
    let ballast = Ballast::all(dir);
    assert!(!tried(&db.checkpoint(dir.join("copy"))), "there was no room");
    known.check(&db);
    ballast.give_back();
    drop(db);
    let db = Db::open(&store, tiny()).unwrap();
    db.checkpoint(dir.join("second copy")).unwrap();
    let copy = Db::open(dir.join("second copy"), tiny()).unwrap();
    known.check(&copy);
    drop((db, copy));
    known.check_again(&store, tiny());
}

/// Full, and space again after deleting what was written, several times.
fn full_again_and_again(dir: &Path) {
    let store = dir.join("store");
    for _ in 0..4 {
        let ballast = Ballast::new(dir, 10 << 20);
        let mut known = Known::default();
        let db = Db::open(&store, tiny()).unwrap();
        write_until_full(&db, &mut known, ballast);
        drop(db);
        let db = Db::open(&store, tiny()).unwrap();
        known.check(&db);
        for number in 0..known.attempted {
            db.delete(key(number)).unwrap();
        }
        db.compact_all().unwrap();
        assert_eq!(db.iter().count(), 0);
        db.close().unwrap();
    }
}

fn no_room_to_close(dir: &Path) {
    let store = dir.join("store");
    let mut known = Known::default();
    let db = Db::open(&store, tiny().writes(|w| w.write_buffer_bytes(4 << 20))).unwrap();
    assert!(known.fill(&db, 1_200).is_none());
    let ballast = Ballast::all(dir);
    // The space preallocated for the log, as much as the log has, is enough for some more writes
    // and to close.
    assert!(known.fill(&db, 4 * known.written).is_some(), "the log took more");
    tried(&db.close());
    ballast.give_back();
    known.check_again(&store, tiny());
}

fn no_more_files(dir: &Path) {
    let store = dir.join("store");
    let db = Db::open(
        &store,
        tiny().compaction(|c| c.auto_compaction(false).l0_stop(1000).l0_slowdown(900)),
    )
    .unwrap();
    let mut known = Known::default();
    assert!(known.fill(&db, 3_000).is_some(), "24 files were enough");
    known.check(&db);
    drop(db);
    // All other files of the file system belong to the store: only reading is possible.
    let db = Db::open_read_only(&store, tiny()).unwrap();
    known.check(&db);
}

scenarios! {
    a_full_disk in Small: |dir| fill(dir, tiny());
    a_full_disk_and_syncs in Small: |dir| fill(dir, tiny().durability(Durability::Sync));
    a_full_disk_without_threads in Small: |dir| fill(dir, tiny().background_threads(0));
    a_full_disk_read_directly in Small: |dir| fill(dir, tiny().reads(|r| r.read_mode(ReadMode::Direct)));
    a_full_disk_read_through_maps in Small: |dir| fill(dir, tiny().reads(|r| r.read_mode(ReadMode::Mapped(Verify::EachUse))));
    a_full_disk_without_a_log in Small: fill_without_a_log;
    a_full_disk_has_no_room_to_compact in Small: no_room_to_compact;
    a_full_disk_has_no_room_to_open in Small: no_room_to_open;
    a_full_disk_has_no_room_to_flush in Small: no_room_to_flush;
    a_full_disk_holds_writers_up_and_says_so in Small: no_room_in_the_background;
    a_full_disk_has_no_room_for_a_batch in Small: no_room_for_a_batch;
    a_full_disk_has_no_room_for_a_checkpoint in Small: no_room_for_a_checkpoint;
    a_full_disk_has_no_room_to_close in Small: no_room_to_close;
    a_disk_is_full_again_and_again in Small: full_again_and_again;
    a_file_system_holds_no_more_files in FewFiles: no_more_files;
}
