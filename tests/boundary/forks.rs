//! Handles in a forked child (leveldb 169, 455). A child used to hang when it dropped, closed or
//! flushed a store of its parent; one that wrote made the parent's next write fail, and one that
//! wrote more left a store that did not open.
//!
//! Each test runs in a process of its own, so that no other test holds a lock at the moment of a
//! fork. An alarm ends a child that hangs.

#![allow(unsafe_code, reason = "a process is forked by nothing else")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use trommel::trace::TraceOptions;
use trommel::{
    AdviceOptions, Db, Degraded, Error, ErrorKind, Options, RebuildOptions, Result, TableWriter,
    WriteBatch, WriteOptions,
};

use crate::common::home;

/// Time limit of a child in seconds, exceeded only if it hangs.
const PATIENCE: u32 = 30;

/// Runs `body` in a process that does nothing else: this test's program, started again.
fn alone(name: &str, body: impl FnOnce()) {
    const NAME: &str = "TROMMEL_FORKS";
    if std::env::var(NAME).is_ok_and(|wanted| wanted == name) {
        return body();
    }
    let mut command = Command::new(std::env::current_exe().expect("a program"));
    command.args(["--exact", &format!("forks::{name}"), "--nocapture", "--test-threads", "1"]);
    let output = command.env(NAME, name).output().expect("starting it again");
    let text =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert!(output.status.success(), "{name}: {}\n{}\n{}", output.status, text[0], text[1]);
}

/// The way to fork.
#[derive(Debug, Clone, Copy)]
enum Fork {
    /// Through the C library, which calls fork handlers.
    Library,
    /// Through the system call alone.
    System,
}

/// Runs `body` in a forked child; panics unless it succeeds, and in time.
fn in_child(fork: Fork, body: impl FnOnce()) {
    // SAFETY: the child runs `body`, whose allocations the C library allows in a child, and ends
    // without unwinding into its parent's frames or running its exit handlers.
    let child = unsafe {
        match fork {
            Fork::Library => libc::fork(),
            Fork::System => {
                libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) as libc::pid_t
            }
        }
    };
    assert!(child >= 0, "a process");
    if child == 0 {
        // SAFETY: as above; an unhandled alarm ends the process.
        unsafe {
            libc::alarm(PATIENCE);
            let failed = catch_unwind(AssertUnwindSafe(body)).is_err();
            libc::_exit(i32::from(failed));
        }
    }
    let mut status = 0;
    // SAFETY: the status is the caller's, and the child is its own.
    let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(waited, child);
    assert!(!libc::WIFSIGNALED(status), "the child hung: signal {}", libc::WTERMSIG(status));
    assert_eq!(libc::WEXITSTATUS(status), 0, "the child failed");
}

fn options() -> Options {
    Options::default()
        .writes(|w| w.write_buffer_bytes(64 << 10))
        .compaction(|c| c.table_bytes(64 << 10))
        .background_threads(2)
}

fn key(number: u64) -> String {
    format!("{:08}", number.wrapping_mul(0x9e37_79b9) % 100_000_000)
}

fn fill(db: &Db, numbers: std::ops::Range<u64>) {
    for number in numbers {
        db.put(key(number), "v".repeat(100)).expect("writing");
    }
}

/// When dropped, stops the threads that check it, also if a test fails.
struct Stops<'a>(&'a AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// All files of the store, with their lengths.
fn files(dir: &Path) -> Vec<(std::ffi::OsString, u64)> {
    let entries = std::fs::read_dir(dir).expect("listing").map(|entry| entry.expect("an entry"));
    let mut files: Vec<_> =
        entries.map(|it| (it.file_name(), it.metadata().expect("a file").len())).collect();
    files.sort();
    files
}

fn is_refused<T>(call: &str, outcome: Result<T>) {
    match outcome {
        Err(error @ Error::Forked) => assert_eq!(error.kind(), ErrorKind::Reopen),
        Err(error) => panic!("{call}: {error}"),
        Ok(_) => panic!("{call}: it went well"),
    }
}

/// Makes every call on `db` that can fail, and expects an error.
fn every_call_is_refused(db: &Db, elsewhere: &Path) {
    let sync = WriteOptions::sync;
    is_refused("get", db.get("a"));
    is_refused("contains_key", db.contains_key("a"));
    is_refused("multi_get", db.multi_get(&["a", "b"]));
    is_refused("put", db.put("a", "child"));
    is_refused("a synced put", db.put_with("a", "child", sync()));
    is_refused("delete", db.delete("a"));
    let mut batch = WriteBatch::new();
    batch.put("a", "child").put("b", "child");
    is_refused("write", db.write(&batch));
    is_refused("an empty batch", db.write_with(WriteBatch::new(), sync()));
    is_refused("insert_if_absent", db.insert_if_absent("a", "child"));
    is_refused("compare_and_set", db.compare_and_set("a", None, Some(b"child")));
    is_refused("iter", db.iter().next().expect("an error"));
    is_refused("prefix", db.prefix("0").next_back().expect("an error"));
    is_refused("cursor", db.cursor());
    is_refused("flush", db.flush());
    is_refused("changes_since", db.changes_since(0));
    is_refused("load_sorted", db.load_sorted([Ok(("a", "child"))]));
    is_refused("ingest", db.ingest::<&str>([]));
    is_refused("sync", db.sync());
    is_refused("compact_all", db.compact_all());
    is_refused("compact_range", db.compact_range("a".."b"));
    is_refused("wait_idle", db.wait_idle());
    is_refused("pause_compaction", db.pause_compaction());
    is_refused("verify", db.verify());
    is_refused("verify_all", db.verify_all());
    is_refused("healthy", db.healthy(..));
    is_refused("checkpoint", db.checkpoint(elsewhere));
    is_refused("approximate_bytes", db.approximate_bytes(..));
    is_refused("set_options", db.set_options(|options| options));
    is_refused("filter_rebuild_plan", db.filter_rebuild_plan(&RebuildOptions::default()));
    is_refused("rebuild_filters", db.rebuild_filters(&RebuildOptions::default()));
    is_refused("filter_advice", db.filter_advice_with(&AdviceOptions::default()));
    is_refused("trace_lookups", db.trace_lookups(elsewhere, TraceOptions::default()));
}

/// A fork may happen while other threads hold any locks: these write, flush, compact and read.
#[test]
fn a_child_is_refused_at_once_and_its_parent_goes_on() {
    alone("a_child_is_refused_at_once_and_its_parent_goes_on", || {
        let (home, dir) = home();
        let elsewhere = home.path().join("elsewhere");
        let db = Db::open(&dir, options()).expect("opening");
        fill(&db, 0..5_000);
        let (stops, written) = (AtomicBool::new(false), AtomicU64::new(5_000));
        thread::scope(|scope| {
            let _stops = Stops(&stops);
            scope.spawn(|| {
                while !stops.load(Ordering::Relaxed) {
                    let number = written.fetch_add(1, Ordering::Relaxed);
                    fill(&db, number..number + 1);
                }
            });
            scope.spawn(|| {
                while !stops.load(Ordering::Relaxed) {
                    drop((db.snapshot(), db.stats(), db.iter().take(10).count()));
                    db.publish_metrics("parent");
                }
            });
            for _ in 0..40 {
                let snapshot = db.snapshot();
                let (mut range, mut fresh) = (db.iter(), db.range(.."5"));
                range.next().expect("an entry").expect("reading");
                range.next_back().expect("an entry").expect("reading");
                let mut cursor = db.cursor().expect("a cursor");
                cursor.seek("5").expect("reading");
                let other = db.clone();
                in_child(Fork::Library, || {
                    every_call_is_refused(&db, &elsewhere);
                    is_refused("a snapshot", snapshot.get("a"));
                    is_refused("its clone", snapshot.clone().iter().next().expect("an error"));
                    is_refused("a new snapshot", db.snapshot().get("a"));
                    is_refused("a range", range.next().expect("an error"));
                    assert!(range.next_back().is_none(), "it yields nothing after an error");
                    is_refused("a fresh range", fresh.next_back().expect("an error"));
                    is_refused("a cursor", cursor.next());
                    is_refused("seek", cursor.seek("1"));
                    is_refused("seek_to_last", cursor.seek_to_last());
                    is_refused("visit", cursor.visit(|_, _| true));
                    assert_eq!(db.stats().last_seqno, 0);
                    assert!(db.filter_report().levels.is_empty());
                    assert_eq!(db.openmetrics("child"), "# EOF\n");
                    db.publish_metrics("child");
                    assert!(db.last_filter_rebuild().is_none());
                    db.reset_stats();
                    db.resume_compaction();
                    is_refused("close", db.clone().close());
                    drop((snapshot, range, fresh, cursor, other));
                });
            }
        });
        assert!(!elsewhere.exists(), "a child has made something");
        let written = written.load(Ordering::Relaxed);
        fill(&db, written..written + 1_000);
        db.flush().expect("flushing");
        db.verify().expect("verifying");
        let keys = db.iter().count();
        db.close().expect("closing");
        let db = Db::open(&dir, options()).expect("opening");
        assert!(db.recovery_report().was_closed);
        assert_eq!(db.iter().count(), keys);
        for number in 0..written + 1_000 {
            assert!(db.get(key(number)).expect("reading").is_some(), "{number}");
        }
    });
}

/// The last handle is dropped in the child, with the values read from it, and nothing changes on
/// disk. The parent still has the lock, and releases it when it closes, whatever the child holds.
#[test]
fn a_child_touches_no_file() {
    alone("a_child_touches_no_file", || {
        for fork in [Fork::Library, Fork::System] {
            let (home, dir) = home();
            let db = Db::open(&dir, options()).expect("opening");
            fill(&db, 0..3_000);
            let mut held = db.iter();
            held.next().expect("an entry").expect("reading");
            let trace = home.path().join("trace");
            let recorded = db.trace_lookups(&trace, TraceOptions::default()).expect("a trace");
            for number in 0..100 {
                db.get(key(number)).expect("reading");
            }
            // These tables are obsolete except for the range, and would be removed with it.
            db.compact_all().expect("merging");
            db.wait_idle().expect("resting");
            let (before, traced) = (files(&dir), files(home.path()));
            let (mut db, mut held, mut recorded) = (Some(db), Some(held), Some(recorded));
            in_child(fork, || {
                drop(held.take());
                drop(recorded.take());
                let db = db.take().expect("a handle");
                is_refused("put", db.put("a", "child"));
                drop(db);
            });
            assert_eq!(files(&dir), before, "{fork:?}");
            assert_eq!(files(home.path()), traced, "{fork:?}");
            let second = Db::open(&dir, options()).map(drop);
            assert!(matches!(second, Err(Error::Locked { .. })), "{second:?}");
            let db = db.expect("a handle");
            assert_eq!(held.expect("a range").count(), 2_999);
            recorded.expect("a trace").finish().expect("tracing");
            in_child(fork, || {
                is_refused("close", db.clone().close());
            });
            db.put("parent", "1").expect("writing");
            db.close().expect("closing");
            let db = Db::open(&dir, options()).expect("opening");
            assert_eq!(db.iter().count(), 3_001);
            db.verify().expect("verifying");
        }
    });
}

/// A child that dropped the writer of a file removed the file that its parent went on writing.
#[test]
fn a_child_leaves_the_files_that_are_being_written() {
    alone("a_child_leaves_the_files_that_are_being_written", || {
        for fork in [Fork::Library, Fork::System] {
            let (home, dir) = home();
            let file = home.path().join("all.table");
            let mut writer = TableWriter::create(&file, &options()).expect("creating");
            writer.put("a", "parent").expect("writing");
            let mut writer = Some(writer);
            in_child(fork, || {
                let mut writer = writer.take().expect("a writer");
                is_refused("put", writer.put("b", "child"));
                is_refused("finish", writer.finish());
            });
            in_child(fork, || drop(writer.take()));
            let mut writer = writer.expect("a writer");
            writer.put("c", "parent").expect("writing");
            assert_eq!(writer.finish().expect("finishing").entries, 2, "{fork:?}");
            let db = Db::open(&dir, options()).expect("opening");
            assert_eq!(db.ingest([&file]).expect("ingesting").entries, 2);
        }
    });
}

/// A store opened in the child belongs to the child, but not to the child's own child.
#[test]
fn a_child_has_stores_of_its_own() {
    alone("a_child_has_stores_of_its_own", || {
        for fork in [Fork::Library, Fork::System] {
            let (home, dir) = home();
            let own = home.path().join("own");
            let db = Db::open(&dir, options()).expect("opening");
            in_child(fork, || {
                let second = Db::open(&dir, options()).map(drop);
                assert!(matches!(second, Err(Error::Locked { .. })), "{second:?}");
                let mine = Db::open(&own, options()).expect("opening");
                fill(&mine, 0..2_000);
                // A thread at work may hold a lock of the allocator, which this fork does not end.
                mine.wait_idle().expect("resting");
                in_child(fork, || {
                    is_refused("a grandchild's get", mine.get(key(1)));
                    is_refused("a grandchild's get of its grandparent's", db.get(key(1)));
                });
                is_refused("the parent's", db.get(key(1)));
                fill(&mine, 2_000..3_000);
                mine.close().expect("closing");
            });
            fill(&db, 0..10);
            db.close().expect("closing");
            let mine = Db::open(&own, options()).expect("opening");
            assert_eq!(mine.iter().count(), 3_000);
        }
    });
}

/// A degraded read is rejected too, and so are further reads from its iterator.
#[test]
fn a_child_reads_nothing_around_damage() {
    alone("a_child_reads_nothing_around_damage", || {
        let (_home, dir) = home();
        let db = Db::open(&dir, options()).expect("opening");
        fill(&db, 0..1_000);
        db.close().expect("closing");
        let db = Db::open_degraded(&dir, options(), Degraded::Certain).expect("opening");
        let mut healthy = db.healthy(..).expect("reading");
        healthy.next().expect("an entry").expect("reading");
        in_child(Fork::Library, || {
            is_refused("healthy", healthy.next().expect("an error"));
            assert!(healthy.next().is_none(), "it yields nothing after an error");
            drop(healthy);
        });
        assert_eq!(db.healthy(..).expect("reading").count(), 1_000);
    });
}
