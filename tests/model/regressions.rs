//! What the sequences found, each cut down to the few steps it takes.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use trommel::vfs::{Failure, Fault, MemoryVfs, OpKind, SimDisk};
use trommel::{Db, Options};

/// Runs `test` in a thread of its own; fails where it does not come back.
fn comes_back(what: &str, test: impl FnOnce() + Send + 'static) {
    let (done, outcome) = channel();
    let thread = std::thread::spawn(move || {
        test();
        done.send(()).unwrap();
    });
    if let Err(RecvTimeoutError::Timeout) = outcome.recv_timeout(Duration::from_secs(30)) {
        panic!("{what} does not come back");
    }
    thread.join().unwrap();
}

fn tiny() -> Options {
    Options::default()
        .vfs(Arc::new(MemoryVfs::new()))
        .background_threads(0)
        .write_buffer_bytes(8 << 10)
        .block_bytes(256)
        .table_bytes(4 << 10)
        .base_level_bytes(16 << 10)
        .level_ratio(2)
        .l0_trigger(1)
}

/// A memtable that held but one key, of 50,000 bytes, gave all of it to its successor as the
/// prefix to expect; the successor, though empty, was then larger than the write buffer, was
/// "full", was not frozen because it was empty, and the writer looked again for ever.
#[test]
fn one_giant_key_leaves_room_for_the_next_write() {
    comes_back("the write", || {
        let db = Db::open("/store", tiny()).unwrap();
        db.put(vec![7; 50_000], b"").unwrap();
        db.flush().unwrap();
        db.put(b"k", b"v").unwrap();
        db.close().unwrap();
    });
}

/// Without background threads a compaction that found compaction paused slept until another call
/// happened to work; the end of the pause did not wake it.
#[test]
fn a_compaction_goes_on_when_the_pause_is_over() {
    comes_back("compact_all", || {
        let db = Db::open("/store", tiny()).unwrap();
        db.put(b"k", b"v").unwrap();
        db.pause_compaction().unwrap();
        std::thread::scope(|scope| {
            let compacting = scope.spawn(|| db.compact_all().unwrap());
            while db.stats().flushes == 0 {
                std::thread::yield_now();
            }
            std::thread::sleep(Duration::from_millis(50));
            assert!(!compacting.is_finished(), "compaction is paused");
            db.resume_compaction();
        });
    });
}

/// A read-only store whose tree wants compacting waited for ever for somebody to do it.
#[test]
fn a_read_only_store_is_idle() {
    comes_back("wait_idle", || {
        let options = tiny();
        let db = Db::open("/store", options.clone().auto_compaction(false)).unwrap();
        for round in 0..5 {
            db.put(b"k", [round]).unwrap();
            db.flush().unwrap();
        }
        db.close().unwrap();
        let db = Db::open_read_only("/store", options).unwrap();
        db.wait_idle().unwrap();
    });
}

/// The second of two closers ended the background work at once, and with it the flush that the
/// first one waited for: without a log, the last memtable was lost.
#[test]
fn two_may_close_at_once() {
    comes_back("closing", || {
        for round in 0..300_u32 {
            let options = tiny().background_threads(1).log(false);
            let db = Db::open("/store", options.clone()).unwrap();
            db.put(b"k", round.to_string()).unwrap();
            std::thread::scope(|scope| {
                let second = db.clone();
                scope.spawn(move || second.close().unwrap());
                db.close().unwrap();
            });
            let db = Db::open("/store", options).unwrap();
            assert_eq!(db.get(b"k").unwrap().unwrap(), *round.to_string().as_bytes());
        }
    });
}

/// A checkpoint of a store that was closed meanwhile said that the store was read-only; waiting
/// for it to be idle, or pausing it, went well.
#[test]
fn a_closed_store_says_so() {
    let db = Db::open("/store", tiny()).unwrap();
    let clone = db.clone();
    db.close().unwrap();
    for refused in [clone.wait_idle(), clone.pause_compaction(), clone.checkpoint("/copy")] {
        assert!(matches!(refused, Err(trommel::Error::Closed)), "{refused:?}");
    }
}

/// A level that had lost its data kept a row of its own in the filter report, under the number
/// of the level that had taken its place: two rows said "L1".
#[test]
fn the_report_has_one_row_for_each_level_and_kind() {
    let db = Db::open("/store", tiny().filters("paired:10".parse().unwrap())).unwrap();
    for key in 0..1500 {
        let key = key * 7919 % 1500;
        db.put(format!("{key:05}"), [0; 100]).unwrap();
        db.get(format!("{key:05}x")).unwrap();
    }
    assert!(db.stats().levels.len() > 2, "{}", db.stats());
    db.compact_all().unwrap();
    let report = db.filter_report();
    let rows: Vec<_> = report.levels.iter().map(|row| (row.level, row.kind.name())).collect();
    let distinct: BTreeSet<_> = rows.iter().collect();
    assert_eq!(distinct.len(), rows.len(), "{report}");
    assert!(report.levels.iter().all(|row| row.probes > 0), "{report}");
}

/// Without a file handle left a log was made, and its directory could not be synced. The write was
/// refused and the log stayed. The next one named the same predecessor, and at the next opening the
/// store was said to be damaged.
#[test]
fn a_log_that_could_not_be_begun_is_taken_back() {
    comes_back("the store", || {
        let disk = SimDisk::new();
        let options = tiny().vfs(Arc::new(disk.clone()));
        let db = Db::open("/store", options.clone()).unwrap();
        disk.inject(Fault::new(Failure::TooManyOpenFiles).on(OpKind::Create).named(".log"));
        disk.inject(Fault::new(Failure::TooManyOpenFiles).on(OpKind::SyncDir));
        let (mut written, mut refused) = (Vec::new(), 0);
        for number in 0..60_u64 {
            match db.put(number.to_le_bytes(), [7; 500]) {
                Ok(()) => written.push(number),
                Err(_) => refused += 1,
            }
        }
        assert!(refused > 1 && written.len() > 5, "{refused} refused of {}", written.len());
        drop(db);
        let db = Db::open("/store", options).unwrap();
        for number in written {
            assert_eq!(db.get(number.to_le_bytes()).unwrap().unwrap(), [7; 500]);
        }
    });
}
