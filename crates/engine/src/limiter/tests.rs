//! Which writes the limit applies to, by the number of limited bytes; no time is measured.
#![expect(clippy::big_endian_bytes, reason = "keys in the order of their numbers")]

use trommel_sim::{MemoryVfs, Policy, SimDisk};
use trommel_vfs::Vfs;

use super::*;
use crate::{Compression, Db, Options, RebuildOptions, WriteOptions};

/// So low a limit that limited work does not end within a test.
const LOW: u64 = 4 << 10;

fn options(vfs: Arc<dyn Vfs>, limit: u64) -> Options {
    Options::default()
        .vfs(vfs)
        .compression(Compression::None)
        .compaction(|c| c.auto_compaction(false).background_bytes_per_second(Some(limit)))
        .background_threads(1)
}

fn open(change: impl FnOnce(Options) -> Options) -> Db {
    Db::open("db", change(options(Arc::new(MemoryVfs::new()), LOW))).unwrap()
}

/// Writes `kib` KiB, with the same keys each time.
fn fill(db: &Db, kib: u32) {
    // In scattered order, so that tables overlap.
    let key = |n: u32| n.wrapping_mul(2_654_435_761).to_be_bytes();
    (0..kib).for_each(|n| {
        db.put(key(n), [7; 1 << 10]).unwrap();
    });
}

fn limited(db: &Db) -> u64 {
    db.stats().background.rate_limited_bytes
}

/// Regression: a store killed with 40 MiB in its log took 40 seconds to open at 1 MiB/s.
#[test]
fn opening_is_not_limited() {
    let disk = SimDisk::new();
    let db = Db::open("db", options(Arc::new(disk.clone()), LOW)).unwrap();
    fill(&db, 2 << 10);
    let killed = disk.crash(Policy::EVERYTHING, 1).disk();
    // Two tables, and part of a third.
    let options = options(Arc::new(killed), 1 << 20).writes(|w| w.write_buffer_bytes(1 << 20));
    let db = Db::open("db", options).unwrap();
    assert!(db.recovery_report().replayed_batches == 2 << 10);
    assert_eq!(limited(&db), 0);
}

#[test]
fn work_without_waiting_callers_is_limited() {
    let db = open(|options| {
        options
            .writes(|w| w.write_buffer_bytes(64 << 10))
            .compaction(|c| c.background_bytes_per_second(Some(1 << 20)))
    });
    fill(&db, 100);
    while db.stats().background.flushes.count == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(limited(&db) > 32 << 10, "{}", limited(&db));
}

#[test]
fn calls_that_wait_for_tables_are_not_limited() {
    let db = open(|options| options);
    fill(&db, 512);
    db.flush().unwrap();
    fill(&db, 512);
    db.checkpoint("copy").unwrap();
    fill(&db, 512);
    db.compact_all().unwrap();
    assert_eq!(limited(&db), 0);
}

#[test]
fn resting_is_not_limited() {
    let db = open(|options| options);
    for _ in 0..4 {
        fill(&db, 256);
        db.flush().unwrap();
    }
    db.set_options(|options| options.compaction(|c| c.auto_compaction(true))).unwrap();
    db.wait_idle().unwrap();
    assert!(db.stats().background.compactions.count > 0);
    // The compaction may have begun before.
    assert!(limited(&db) < 64 << 10, "{}", limited(&db));
}

#[test]
fn rebuilds_that_a_caller_waits_for_are_not_limited() {
    let db = open(|options| options.filters("none".parse().unwrap()));
    (0..100_000_u32).for_each(|key| {
        db.put(key.to_be_bytes(), b"").unwrap();
    });
    db.flush().unwrap();
    db.set_filters("paired:16".parse().unwrap()).unwrap();
    let report = db.rebuild_filters(&RebuildOptions::default()).unwrap();
    assert!(report.bytes_written > 100 << 10, "{report:?}");
    assert_eq!(limited(&db), 0);
}

#[test]
fn synced_writes_without_a_log_are_not_limited() {
    let db = open(|options| options.writes(|w| w.log(false)));
    fill(&db, 256);
    db.put_with("key", "value", WriteOptions::sync()).unwrap();
    assert_eq!(limited(&db), 0);
}

#[test]
fn jobs_of_a_store_without_threads_are_not_limited() {
    let db = open(|options| {
        options
            .background_threads(0)
            .writes(|w| w.write_buffer_bytes(64 << 10))
            .compaction(|c| c.auto_compaction(true))
    });
    fill(&db, 1 << 10);
    assert!(
        db.stats().background.flushes.count > 10 && db.stats().background.compactions.count > 0
    );
    assert_eq!(limited(&db), 0);
}

/// Writers that wait for memtables to be flushed, and for a full level 0.
#[test]
fn work_that_stopped_writers_wait_for_is_not_limited() {
    let db =
        open(|options| options.writes(|w| w.write_buffer_bytes(64 << 10).max_frozen_memtables(1)));
    fill(&db, 2 << 10);
    let stats = db.stats();
    assert!(stats.background.stalls.memtables.times > 0);
    assert!(stats.background.rate_limited_bytes < stats.background.flushes.bytes / 4, "{stats:?}");
    drop(db);
    let db = open(|options| {
        options
            .writes(|w| w.write_buffer_bytes(64 << 10))
            .compaction(|c| c.l0_trigger(2).l0_slowdown(4).l0_stop(4))
    });
    // Level 0 is full before it may be compacted, which takes half a minute at the limit: a writer
    // stops, however slow it is.
    for _ in 0..4 {
        fill(&db, 32);
        db.flush().unwrap();
    }
    db.set_options(|options| options.compaction(|c| c.auto_compaction(true))).unwrap();
    fill(&db, 2 << 10);
    let stats = db.stats();
    assert!(stats.background.stalls.level_0.times > 0);
    let written = stats.background.flushes.bytes + stats.background.compactions.bytes_written;
    assert!(stats.background.rate_limited_bytes < written / 4, "{stats:?}");
}

/// The only worker is at a limited compaction: the flush does not wait for the rest of it.
#[test]
fn a_flush_is_not_held_up_by_a_compaction_that_is() {
    let db = open(|options| options.compaction(|c| c.l0_trigger(2)));
    for _ in 0..2 {
        fill(&db, 4 << 10);
        db.flush().unwrap();
    }
    db.set_options(|options| options.compaction(|c| c.auto_compaction(true))).unwrap();
    while limited(&db) == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    db.put("key", "value").unwrap();
    db.flush().unwrap();
    let stats = db.stats();
    assert_eq!(stats.background.flushes.count, 3);
    assert!(
        stats.background.rate_limited_bytes < 1 << 20,
        "{}",
        stats.background.rate_limited_bytes
    );
}

/// Nor is a close delayed by a flush that no caller waited for.
#[test]
fn closing_is_not_limited() {
    let db = open(|options| options.writes(|w| w.write_buffer_bytes(1 << 20)));
    let other = db.clone();
    fill(&db, 1 << 10);
    db.put("key", "value").unwrap();
    db.close().unwrap();
    let stats = other.stats();
    assert!(
        stats.background.rate_limited_bytes < 512 << 10,
        "{}",
        stats.background.rate_limited_bytes
    );
}

#[test]
fn jobs_share_one_rate() {
    let mut state = LimiterState::default();
    let now = env::now();
    let mut wait = |moment| state.book(1000, 10_000, moment) - moment;
    assert_eq!(wait(now), Duration::ZERO, "the first is free");
    assert_eq!(wait(now), Duration::from_millis(100));
    assert_eq!(wait(now), Duration::from_millis(200));
    let later = now + Duration::from_secs(5);
    assert_eq!(wait(later), Duration::ZERO, "idle time is not saved up");
}

#[test]
fn work_that_a_caller_waits_for_is_not_limited() {
    use FilterReason::{Compaction, Flush, Rebuild, Recovery};
    let limiter = Limiter::default();
    let limited = || {
        let state = lock(&limiter.state);
        [Recovery, Flush, Compaction, Rebuild].map(|reason| !state.is_awaited(reason))
    };
    assert_eq!(limited(), [false, true, true, true]);
    let flush = limiter.awaits(AwaitedWork::Flushes);
    assert_eq!(limited(), [false; 4], "the flush needs a worker");
    limiter.note_file(Flush, |files| *files += 1);
    assert_eq!(limited(), [false, false, true, true], "the flush has one");
    let all = limiter.awaits(AwaitedWork::All);
    assert_eq!(limited(), [false; 4]);
    drop(flush);
    assert_eq!(limited(), [false; 4]);
    drop(all);
    assert_eq!(limited(), [false, true, true, true]);
}
