//! Repeated failures of background work: statistics report them, and writers that wait for it get
//! an error after a time limit. In rust-rocksdb 818, and here, a put used to wait as long as there
//! were no file handles for a compaction, and nothing gave the reason.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use trommel::{BackgroundError, BackgroundJob, Db, Error, ErrorKind, Options, WriteOptions};
use trommel_sim::{Failure, Fault, OpKind, SimDisk};

use crate::liveness::{comes, ends, noise, scattered};

/// Resources that a system runs out of.
const SHORT_OF: [Failure; 4] =
    [Failure::NoSpace, Failure::TooManyOpenFiles, Failure::NoMemory, Failure::QuotaExceeded];

fn options(disk: &SimDisk) -> Options {
    Options::default()
        .writes(|w| w.write_buffer_bytes(64 << 10))
        .background_threads(1)
        .compaction(|c| c.l0_trigger(4).l0_slowdown(5).l0_stop(6))
        // Without recycled files, which need not be created.
        .writes(|w| w.spare_file_bytes(0))
        .vfs(Arc::new(disk.clone()))
}

/// A store whose writers wait for a compaction that fails for lack of a resource, and whose flushes
/// have nothing to do.
fn held_up(disk: &SimDisk, options: Options, short_of: Failure) -> Db {
    let db = Db::open("/db", options).unwrap();
    db.pause_compaction().unwrap();
    for i in 0..6 {
        // Tables that cannot be moved without a rewrite.
        db.put("first", noise(i)).unwrap();
        db.put("last", noise(i)).unwrap();
        db.flush().unwrap();
    }
    assert!(db.stats().background.error.is_none());
    disk.inject(Fault::new(short_of).on(OpKind::Create).named(".sst").lasting());
    db.resume_compaction();
    comes("a compaction that fails", || db.stats().background.error.is_some());
    db
}

fn last_error(db: &Db) -> BackgroundError {
    db.stats().background.error.expect("a job has failed")
}

/// Writes entries from the first on until one is rejected; returns its number and the error.
fn refused(db: &Db) -> (u32, Error) {
    (0..).find_map(|i| db.put(scattered(i), noise(i)).err().map(|error| (i, error))).unwrap()
}

#[test]
fn a_writer_that_waits_for_compactions_that_go_on_failing_is_refused() {
    for short_of in SHORT_OF {
        ends(move || {
            let disk = SimDisk::new();
            let options =
                options(&disk).writes(|w| w.stall_timeout(Some(Duration::from_millis(300))));
            let db = held_up(&disk, options.clone(), short_of);
            let (i, error) = refused(&db);
            assert_eq!(error.kind(), ErrorKind::Retry, "{error}");
            let Error::Stalled { job, failures, source } = &error else { panic!("{error}") };
            assert_eq!(*job, BackgroundJob::Compaction);
            assert!(*failures > 1, "{error}");
            assert!(matches!(**source, Error::Io { .. }) && source.kind() == ErrorKind::Retry);
            assert!(error.to_string().contains(&source.to_string()), "{error}");
            // Later writers do not wait again.
            let (waits, all) = (db.stats().background.stalls.level_0.times, 20);
            for _ in 0..all {
                assert!(matches!(db.put("later", "1"), Err(Error::Stalled { .. })));
            }
            assert_eq!(db.stats().background.stalls.level_0.times, waits + all);
            let keys = db.iter().filter(Result::is_ok).count();
            assert_eq!(keys, i as usize + 2, "a write that was refused is visible");
            // Neither was logged.
            drop(db);
            disk.clear_faults();
            let db = Db::open("/db", options).unwrap();
            assert_eq!(db.iter().count(), i as usize + 2, "a write that was refused was logged");
            assert_eq!(db.get("later").unwrap(), None);
        });
    }
}

#[test]
fn statistics_report_the_last_background_error_and_its_retries() {
    ends(|| {
        let disk = SimDisk::new();
        let db = held_up(&disk, options(&disk), Failure::TooManyOpenFiles);
        comes("a third attempt", || last_error(&db).failures_in_a_row >= 3);
        let failing = last_error(&db);
        assert_eq!(failing.job, BackgroundJob::Compaction);
        assert!(failing.is_current() && failing.next_retry.is_some());
        assert_eq!(failing.failures, failing.failures_in_a_row);
        assert_eq!(failing.retries, failing.failures - 1);
        assert!(failing.next_retry.unwrap() <= Duration::from_secs(5));
        let shown = db.stats().to_string();
        let line = shown.lines().find(|line| line.starts_with("background: compaction has failed"));
        assert!(line.is_some_and(|line| line.contains("times in a row")), "{shown}");
        disk.clear_faults();
        db.wait_idle().unwrap();
        let over = last_error(&db);
        assert!(!over.is_current() && over.next_retry.is_none());
        assert!(over.failures >= failing.failures);
        assert_eq!(over.retries, over.failures, "that which succeeded is one");
        let shown = db.stats().to_string();
        assert!(shown.contains("background: compaction has succeeded since it failed"), "{shown}");
    });
}

#[test]
fn a_writer_that_waits_for_flushes_that_go_on_failing_is_refused() {
    ends(|| {
        let disk = SimDisk::new();
        let options = options(&disk)
            .compaction(|c| c.auto_compaction(false))
            .writes(|w| w.max_frozen_memtables(1));
        let db =
            Db::open("/db", options.writes(|w| w.stall_timeout(Some(Duration::ZERO)))).unwrap();
        disk.inject(Fault::new(Failure::NoSpace).on(OpKind::Append).named(".sst").lasting());
        let (i, error) = refused(&db);
        assert!(matches!(error, Error::Stalled { job: BackgroundJob::Flush, .. }), "{error}");
        assert_eq!(last_error(&db).job, BackgroundJob::Flush);
        disk.clear_faults();
        comes("room", || db.put(scattered(i), noise(i)).is_ok());
        db.flush().unwrap();
        assert_eq!(db.iter().count(), i as usize + 1);
        assert!(!last_error(&db).is_current());
    });
}

/// Without a time limit, writers wait until there is space again.
#[test]
fn without_a_bound_writers_wait_for_as_long_as_it_takes() {
    ends(|| {
        let disk = SimDisk::new();
        let db = held_up(&disk, options(&disk).writes(|w| w.stall_timeout(None)), Failure::NoSpace);
        thread::scope(|scope| {
            let writer = scope.spawn(|| {
                for i in 0..1_000 {
                    db.put(scattered(i), noise(i)).unwrap();
                }
            });
            comes("a fourth attempt", || last_error(&db).failures_in_a_row >= 4);
            assert!(!writer.is_finished(), "it waits for no compaction");
            disk.clear_faults();
            writer.join().unwrap();
        });
        assert_eq!(db.iter().count(), 1_002);
    });
}

/// Without a log a synced write flushes: it used to be visible by the time it was rejected, and the
/// store was poisoned.
#[test]
fn a_synced_write_without_a_log_is_refused_before_it_is_visible() {
    ends(|| {
        let disk = SimDisk::new();
        let options = options(&disk).writes(|w| w.log(false).stall_timeout(Some(Duration::ZERO)));
        let db = held_up(&disk, options, Failure::NoSpace);
        let written = db.put_with("key", "value", WriteOptions::sync());
        assert!(matches!(written, Err(Error::Stalled { .. })), "{written:?}");
        assert_eq!(db.get("key").unwrap(), None);
        disk.clear_faults();
        comes("room", || db.put_with("key", "value", WriteOptions::sync()).is_ok());
    });
}
