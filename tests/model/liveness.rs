//! Nobody waits forever, and no promise about memory, handles or waiting is broken. Each test
//! failed before the engine kept its promise.

use std::cell::RefCell;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use trommel::{Compression, Db, DbCursor, Error, ErrorKind, Options};
use trommel_sim::{Failure, Fault, MemoryVfs, SimDisk};
use trommel_tests::scratch::scratch;

/// Panics if `work` has not ended after much longer than it needs.
pub(crate) fn ends(work: impl FnOnce() + Send + 'static) {
    let (done, waiting) = mpsc::channel();
    let worker = thread::spawn(move || {
        work();
        let _ = done.send(());
    });
    match waiting.recv_timeout(Duration::from_secs(200)) {
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("it hangs"),
        _ => worker.join().unwrap(),
    }
}

pub(crate) fn scattered(i: u32) -> [u8; 4] {
    i.wrapping_mul(2_654_435_761).to_le_bytes()
}

#[test]
fn writers_go_on_when_options_lift_what_stopped_them() {
    ends(|| {
        let dir = scratch();
        let options =
            Options::default().writes(|w| w.write_buffer_bytes(64 << 10)).compaction(|c| {
                c.debt_stop_bytes(200 << 10).table_bytes(64 << 10).base_level_bytes(1 << 20)
            });
        let db = Db::open(dir.path(), options).unwrap();
        db.pause_compaction().unwrap();
        for i in 0..20_000 {
            db.put(scattered(i), [i as u8; 100]).unwrap();
        }
        db.flush().unwrap();
        assert!(db.stats().background.compaction_debt > 200 << 10, "writers would be stopped");
        db.set_options(|options| {
            options.compaction(|c| {
                c.l0_trigger(900).l0_slowdown(900).l0_stop(1000).base_level_bytes(1 << 30)
            })
        })
        .unwrap();
        db.resume_compaction();
        db.wait_idle().unwrap();
        assert_eq!(db.stats().background.compaction_debt, 0);
        for i in 0..20_000 {
            db.put(scattered(i), [7; 100]).unwrap();
        }
    });
}

#[test]
fn a_flush_waits_for_its_own_memtables_only() {
    ends(|| {
        let dir = scratch();
        let options = Options::default()
            .writes(|w| w.write_buffer_bytes(256 << 10))
            .background_threads(1)
            .compaction(|c| c.auto_compaction(false));
        let db = Db::open(dir.path(), options).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let writers: Vec<_> = (0..2u64)
            .map(|writer| {
                let (db, stop) = (db.clone(), Arc::clone(&stop));
                thread::spawn(move || {
                    for i in (writer..).step_by(2) {
                        if stop.load(Ordering::Relaxed) {
                            break;
                        }
                        db.put(i.to_le_bytes(), [1; 500]).unwrap();
                    }
                })
            })
            .collect();
        for _ in 0..20 {
            let before = db.stats().background.flushes.count;
            db.flush().unwrap();
            // At most those already frozen, its own, and a few that were added meanwhile.
            let waited_for = db.stats().background.flushes.count - before;
            assert!(waited_for <= 16, "one flush waited for {waited_for} memtables");
        }
        stop.store(true, Ordering::Relaxed);
        for writer in writers {
            writer.join().unwrap();
        }
    });
}

#[test]
fn statistics_and_resets_may_meet() {
    let dir = scratch();
    let db = Db::open(dir.path(), Options::default()).unwrap();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                db.reset_stats();
            }
        });
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                db.get("x").unwrap();
            }
        });
        for _ in 0..20_000 {
            assert!(db.stats().lookups.gets < 1 << 40);
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn memory_stays_under_its_ceiling() {
    let dir = scratch();
    let limit = 16 << 20;
    let options = Options::default()
        .memory_limit(limit)
        .writes(|w| w.max_frozen_memtables(16))
        .compaction(|c| c.background_bytes_per_second(Some(8 << 20)));
    let db = Db::open(dir.path(), options).unwrap();
    for i in 0..100_000 {
        db.put(scattered(i), [i as u8; 100]).unwrap();
        if i % 100 == 0 {
            let memory = db.stats().memory;
            assert!(memory.total() <= limit, "{memory:?}");
        }
    }
    db.set_options(|options| options.compaction(|c| c.background_bytes_per_second(None))).unwrap();
    for i in 0..100_000 {
        db.get(scattered(i)).unwrap();
        if i % 100 == 0 {
            let memory = db.stats().memory;
            assert!(memory.total() <= limit, "{memory:?}");
        }
    }
}

#[test]
fn building_filters_stays_under_the_ceiling() {
    let dir = scratch();
    let limit = 2 << 20;
    let options = Options::default()
        .memory_limit(limit)
        .filters("paired:20".parse().unwrap())
        .compaction(|c| c.auto_compaction(false))
        .writes(|w| w.write_buffer_bytes(1 << 20));
    let db = Db::open(dir.path(), options).unwrap();
    let mut most = 0;
    let mut look = || {
        let memory = db.stats().memory;
        assert!(memory.total() <= limit, "{memory:?}");
        most = memory.construction.max(most);
    };
    for i in 0..200_000 {
        db.put(scattered(i), [i as u8; 20]).unwrap();
        if i % 100 == 0 {
            look();
        }
    }
    // From here on memtables use little, and the cache is full: filters under construction take
    // memory from it.
    db.flush().unwrap();
    db.set_options(|options| options.writes(|w| w.write_buffer_bytes(4 << 10))).unwrap();
    for i in 0..200_000 {
        db.get(scattered(i)).unwrap();
    }
    let memory = db.stats().memory;
    assert!(memory.total() > limit - limit / 16, "{memory:?}");
    // A single compaction of all keys: the hashes of one table would be most of the ceiling.
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            db.compact_all().unwrap();
            done.store(true, Ordering::Relaxed);
        });
        for i in 0.. {
            if done.load(Ordering::Relaxed) {
                break;
            }
            db.get(scattered(i % 200_000)).unwrap();
            look();
        }
    });
    assert!(most > 0, "what building takes was never seen");
    assert!(most <= limit / 8 + (64 << 10), "{most} bytes to build filters");
    assert_eq!(db.stats().memory.construction, 0);
    let tables: u64 = db.stats().levels.iter().map(|level| level.tables).sum();
    assert!(tables > 1, "tables end where their filters would not fit");
    for i in 0..200_000 {
        assert!(db.get(scattered(i)).unwrap().is_some());
    }
}

#[test]
fn an_iterator_whose_files_are_gone_says_that_its_store_was_closed() {
    let dir = scratch();
    let open = || {
        Db::open(dir.path(), Options::default().compaction(|c| c.auto_compaction(false))).unwrap()
    };
    let db = open();
    for round in 0..6 {
        db.put("k", [round]).unwrap();
        db.flush().unwrap();
    }
    drop(db);
    let db = open();
    let mut range = db.iter();
    db.close().unwrap();
    let next_owner = open();
    next_owner.compact_all().unwrap();
    next_owner.close().unwrap();
    assert!(matches!(range.next(), Some(Err(Error::Closed))));
    assert!(range.next().is_none());
}

#[test]
fn an_empty_checkpoint_directory_will_do() {
    let dir = scratch();
    let db = Db::open(dir.path().join("db"), Options::default()).unwrap();
    db.put("k", "v").unwrap();
    let copy = dir.path().join("copy");
    std::fs::create_dir(&copy).unwrap();
    db.checkpoint(&copy).unwrap();
    let refused = db.checkpoint(&copy).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Usage);
    assert!(refused.to_string().ends_with("copy is not empty: name a new directory"), "{refused}");
    for refused in [
        db.checkpoint(dir.path().join("not/there")).unwrap_err(),
        db.trace_lookups(dir.path().join("not/there"), Default::default()).unwrap_err(),
    ] {
        assert_eq!(refused.kind(), ErrorKind::Usage, "nothing of the store is missing");
        assert!(refused.to_string().contains("not/there cannot be made"), "{refused}");
    }
    // The first reader locks out writers, which would remove its tables.
    let reader = Db::open_read_only(&copy, Options::default()).unwrap();
    assert!(matches!(Db::open(&copy, Options::default()), Err(Error::Locked { .. })));
    reader.close().unwrap();
    let copy = Db::open(&copy, Options::default()).unwrap();
    assert_eq!(copy.get("k").unwrap().unwrap(), b"v"[..]);
}

thread_local! {
    static KEPT: RefCell<Option<DbCursor>> = const { RefCell::new(None) };
}

/// A value in thread-local storage may be dropped after all of the store's thread-local data: the
/// process used to abort.
#[test]
fn a_cursor_may_end_with_its_thread() {
    let dir = scratch();
    let db = Db::open(dir.path(), Options::default()).unwrap();
    db.put("k", "v").unwrap();
    db.flush().unwrap();
    let reads = || db.stats().scans.block_reads + db.stats().scans.cache_hits;
    let before = reads();
    let of_thread = db.clone();
    let thread = thread::spawn(move || {
        // Its thread-local slot is older than that of the counters, and so is dropped later.
        KEPT.with_borrow_mut(|kept| *kept = None);
        of_thread.get("k").unwrap();
        let mut cursor = of_thread.cursor().unwrap();
        cursor.seek(b"k").unwrap();
        KEPT.with_borrow_mut(|kept| *kept = Some(cursor));
    });
    thread.join().unwrap();
    assert_eq!(reads(), before + 1);
}

/// A caller that acts on the kind of error would otherwise reopen the store, and find the same
/// corruption.
#[test]
fn a_merge_that_meets_damage_says_that_opening_again_does_not_mend_it() {
    let dir = scratch();
    let options = || Options::default().compression(Compression::None);
    let db = Db::open(dir.path(), options()).unwrap();
    for value in [[1; 900], [2; 900]] {
        (0..40).for_each(|key: u8| {
            db.put([key], value).unwrap();
        });
        db.flush().unwrap();
    }
    db.close().unwrap();
    let tables = || std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path());
    let table = tables().find(|path| path.extension().is_some_and(|is| is == "sst")).unwrap();
    let mut bytes = std::fs::read(&table).unwrap();
    bytes[5000] ^= 1;
    std::fs::write(&table, bytes).unwrap();

    for _opened_again in 0..2 {
        let db = Db::open(dir.path(), options()).unwrap();
        assert!(db.compact_all().is_err());
        let refused = db.put("k", "v").unwrap_err();
        assert!(matches!(refused, Error::Poisoned { .. }), "{refused:?}");
        assert_eq!(refused.kind(), ErrorKind::RestoreData);
        let reported = refused.to_string();
        assert!(reported.starts_with("a flush or compaction could not go on"), "{reported}");
        assert!(reported.contains(&*table.to_string_lossy()), "{reported}");
    }
}

/// The environment variable of the process that is short of file handles.
const FEW_HANDLES: &str = "TROMMEL_FEW_HANDLES";

/// Many tables, few handles: in a process of its own, because the limit applies to the whole
/// process.
#[test]
fn few_file_handles_are_enough() {
    if std::env::var_os(FEW_HANDLES).is_some() {
        return many_tables_are_written_and_read();
    }
    let program = std::env::current_exe().unwrap();
    let script = "ulimit -n 48 && exec \"$0\" --exact liveness::few_file_handles_are_enough";
    let output = Command::new("sh")
        .args(["-c", script])
        .arg(program)
        .env(FEW_HANDLES, "1")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

fn many_tables_are_written_and_read() {
    let dir = scratch();
    let options = Options::default()
        .compaction(|c| c.table_bytes(8 << 10).base_level_bytes(64 << 10))
        .writes(|w| w.write_buffer_bytes(64 << 10));
    let db = Db::open(dir.path(), options).unwrap();
    for i in 0..20_000 {
        db.put(scattered(i), [i as u8; 100]).unwrap();
        assert!(db.get(scattered(i / 2)).unwrap().is_some());
    }
    db.wait_idle().unwrap();
    let tables: u64 = db.stats().levels.iter().map(|level| level.tables).sum();
    assert!(tables > 48, "{tables} tables are no test");
    for i in 0..20_000 {
        assert!(db.get(scattered(i)).unwrap().is_some());
    }
    assert_eq!(db.iter().filter(Result::is_ok).count(), 20_000);
}

/// Writes to a store on a disk of `capacity` bytes until it stalls; then there is space, and the
/// same handle continues. Returns the number of errors that writers got in between.
fn fills_up(capacity: u64, options: Options) -> u64 {
    const ENTRIES: u32 = 3_000;
    let disk = SimDisk::new();
    let db = Db::open("/db", options.vfs(Arc::new(disk.clone()))).unwrap();
    disk.set_capacity(Some(capacity));
    let (written, reported) = (AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for i in 0..ENTRIES {
                while let Err(error) = db.put(scattered(i), noise(i)) {
                    assert_eq!(error.kind(), ErrorKind::Retry, "{error}");
                    reported.fetch_add(1, Ordering::Relaxed);
                    thread::sleep(Duration::from_millis(20));
                }
                written.fetch_add(1, Ordering::Relaxed);
            }
        });
        // Until nothing was written for a while.
        let mut before = u64::MAX;
        while before != written.load(Ordering::Relaxed) {
            before = written.load(Ordering::Relaxed);
            thread::sleep(Duration::from_millis(700));
        }
        assert!(before < u64::from(ENTRIES), "the disk was large enough");
        assert!(!writer.is_finished());
        disk.set_capacity(None);
    });
    db.flush().unwrap();
    db.verify().unwrap();
    for i in 0..ENTRIES {
        assert!(db.get(scattered(i)).unwrap().as_deref() == Some(&noise(i)[..]), "entry {i}");
    }
    reported.into_inner()
}

/// An incompressible value.
pub(crate) fn noise(i: u32) -> Vec<u8> {
    let mut rng = fastrand::Rng::with_seed(u64::from(i));
    (0..500).map(|_| rng.u8(..)).collect()
}

/// Waits for a condition, much longer than it needs; panics with `what` if it never holds.
pub(crate) fn comes(what: &str, is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(60), "{what}: it never came");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Writes until a memtable is full, and a bit into the next one.
fn fill_a_memtable(db: &Db) {
    for i in 0..150 {
        db.put(scattered(i), noise(i)).unwrap();
    }
}

/// A memtable is full, and nobody flushes, waits or writes: it is flushed all the same.
#[test]
fn a_full_memtable_is_flushed_though_nobody_waits() {
    let disk = Arc::new(SimDisk::new());
    let options = Options::default()
        .writes(|w| w.write_buffer_bytes(64 << 10))
        .background_threads(1)
        .compaction(|c| c.auto_compaction(false));
    let db = Db::open("/db", options.vfs(disk)).unwrap();
    for _ in 0..8 {
        // The thread looks for work by itself when it starts, and after each job: wait until it
        // sleeps.
        thread::sleep(Duration::from_millis(25));
        let before = db.stats().background.flushes.count;
        fill_a_memtable(&db);
        comes("a flush", || db.stats().background.flushes.count > before);
    }
}

/// A flush fails for lack of space, and nobody flushes, waits or writes: it is retried
/// automatically once there is space.
#[test]
fn what_failed_for_want_of_room_is_tried_again_though_nobody_waits() {
    // A store that never tries again does not close either.
    ends(|| {
        let disk = SimDisk::new();
        let db = Db::open("/db", without_a_log().vfs(Arc::new(disk.clone()))).unwrap();
        disk.inject(Fault::new(Failure::NoSpace).named(".sst").lasting());
        fill_a_memtable(&db);
        comes("a flush that fails", || disk.faults_fired() > 0);
        assert_eq!(db.stats().background.flushes.count, 0);
        disk.clear_faults();
        comes("another attempt", || db.stats().background.flushes.count > 0);
    });
}

fn without_a_log() -> Options {
    Options::default().writes(|w| w.log(false).write_buffer_bytes(64 << 10)).background_threads(1)
}

#[test]
fn writers_are_notified_of_a_full_disk_under_a_flush_and_go_on_when_it_has_room() {
    ends(|| {
        let options = without_a_log().compaction(|c| c.auto_compaction(false));
        let reported = fills_up(
            200 << 10,
            options.writes(|w| w.stall_timeout(Some(Duration::from_millis(300)))),
        );
        assert!(reported > 0, "a flush failed again and again, and no writer was notified");
    });
}

/// Closing a store does not wait for a disk that stays full; it ends the wait of a stalled writer.
#[test]
fn closing_ends_the_wait_of_a_stopped_writer() {
    ends(|| {
        let disk = SimDisk::new();
        let options = without_a_log().compaction(|c| c.l0_trigger(4).l0_slowdown(5).l0_stop(6));
        let db = Db::open("/db", options.vfs(Arc::new(disk.clone()))).unwrap();
        db.pause_compaction().unwrap();
        for i in 0..6 {
            // So that none can be moved without a rewrite.
            db.put("first", noise(i)).unwrap();
            db.put("last", noise(i)).unwrap();
            db.flush().unwrap();
        }
        // No memtable is queued: only compactions fail from now on.
        disk.inject(Fault::new(Failure::NoSpace).named(".sst").lasting());
        db.resume_compaction();
        let written = AtomicU64::new(0);
        thread::scope(|scope| {
            let writer = scope.spawn(|| {
                (0..).find_map(|i| {
                    let outcome = db.put(scattered(i), noise(i));
                    written.fetch_add(1, Ordering::Relaxed);
                    outcome.err()
                })
            });
            comes("a merge that fails", || disk.faults_fired() > 0);
            let mut before = u64::MAX;
            while before != written.load(Ordering::Relaxed) {
                before = written.load(Ordering::Relaxed);
                thread::sleep(Duration::from_millis(700));
            }
            assert!(!writer.is_finished(), "it does not wait for a merge");
            let closed = db.clone().close();
            assert!(matches!(writer.join().unwrap(), Some(Error::Closed)));
            assert!(closed.is_err(), "without a log, what is in memory could not be written out");
        });
    });
}

#[test]
fn writers_wait_for_a_compaction_on_a_full_disk_and_go_on_when_it_has_room() {
    ends(|| {
        let options = without_a_log().compaction(|c| c.l0_trigger(4).l0_slowdown(5).l0_stop(6));
        fills_up(560 << 10, options);
    });
}

/// With keys of 60 KiB that differ at their ends, a table's index is as large as its keys: one
/// table of 64 MiB used to have 64 MiB of it, under a ceiling of 16 MiB.
#[test]
fn indexes_of_large_keys_stay_under_the_ceiling() {
    let limit = 16 << 20;
    let options = Options::default()
        .vfs(Arc::new(MemoryVfs::new()))
        .memory_limit(limit)
        .compaction(|c| c.auto_compaction(false))
        .compression(Compression::None);
    let db = Db::open("db", options).unwrap();
    let key = |i: u32| [vec![b'k'; 60 << 10], scattered(i).to_vec()].concat();
    for i in 0..1_000 {
        db.put(key(i), [i as u8; 20]).unwrap();
    }
    db.flush().unwrap();
    db.compact_all().unwrap();
    for i in 0..1_000 {
        assert_eq!(db.get(key(i)).unwrap().unwrap(), [i as u8; 20][..]);
        let memory = db.stats().memory;
        assert!(memory.total() <= limit, "{memory:?}");
    }
    let tables: u64 = db.stats().levels.iter().map(|level| level.tables).sum();
    assert!(tables > 30, "{tables} tables: they end where their index would not fit");
}
