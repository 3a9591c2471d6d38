use std::path::Path;
use std::sync::{Arc, mpsc};
use std::thread;

use trommel_sim::{Failure, Fault, MemoryVfs, OpKind, Policy, SimDisk, WallClock};
use trommel_vfs::Vfs;

use super::*;
use crate::batch::BatchOp;
use crate::{KeyspaceOptions, Merge, Options, RepairOptions, WriteBatch, WriteOptions};

const MARKED: &[u8] = b"\xff\xff\xff\xff\0\0\0\x02key";

/// A store whose memtables are full after a few writes.
fn options(vfs: impl Vfs + 'static) -> Options {
    Options::default()
        .vfs(Arc::new(vfs))
        .background_threads(0)
        .writes(|w| w.write_buffer_bytes(8 << 10).log_archive_bytes(1 << 30))
}

fn open(disk: &SimDisk) -> Db {
    Db::open("db", options(disk.clone())).unwrap()
}

fn text(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}

fn op_text(changed: ChangedOp<'_>) -> String {
    let keyspace = match changed.keyspace {
        ChangedKeyspace::Default => String::new(),
        ChangedKeyspace::Named { name, .. } => format!("{name}: "),
        ChangedKeyspace::Dropped { id } => format!("#{id}: "),
    };
    let op = match changed.op {
        BatchOp::Put { key, value } => format!("{}={}", text(key), text(value)),
        BatchOp::Delete { key } => format!("-{}", text(key)),
        BatchOp::Merge { key, operand } => format!("{}+{}", text(key), text(operand)),
        BatchOp::DeleteRange { from, to } => {
            format!("-{}..{}", text(from), to.map(text).unwrap_or_default())
        }
        other => format!("{other:?}"),
    };
    keyspace + &op
}

/// The batches, each as its sequence number and the text of its operations.
fn batches(changes: impl Iterator<Item = Result<ChangedBatch>>) -> Vec<(SeqNo, String)> {
    let batch = |batch: Result<ChangedBatch>| {
        let batch = batch.unwrap();
        (batch.seqno(), batch.iter().map(op_text).collect::<Vec<_>>().join(" "))
    };
    changes.map(batch).collect()
}

fn since(db: &Db, seqno: SeqNo) -> Vec<(SeqNo, String)> {
    batches(db.changes_since(seqno).unwrap())
}

fn ops(db: &Db, seqno: SeqNo) -> Vec<String> {
    since(db, seqno).into_iter().map(|(_, text)| text).collect()
}

/// Puts that rotate the log several times; each with its sequence number.
fn fill(db: &Db, numbers: std::ops::Range<u32>) -> Vec<(SeqNo, String)> {
    let put = |number: u32| {
        let (key, value) = (format!("{number:05}"), "v".repeat(100));
        (db.put(&key, &value).unwrap(), format!("{key}={value}"))
    };
    numbers.map(put).collect()
}

fn missing(error: Error) -> (SeqNo, SeqNo) {
    match error {
        Error::ChangesMissing { after, oldest } => (after, oldest),
        other => panic!("{other}"),
    }
}

/// A feed may be moved to another thread, and read there for as long as needed.
#[test]
fn feeds_may_go_to_another_thread() {
    fn may_go<T: Send + 'static>() {}
    may_go::<Changes>();
    may_go::<ChangedBatch>();
}

#[test]
fn batches_come_back_in_order_across_rotations_and_opens() {
    let disk = SimDisk::new();
    let mut expected = Vec::new();
    for round in 0..4 {
        let db = open(&disk);
        expected.extend(fill(&db, round * 300..(round + 1) * 300));
        let mut batch = WriteBatch::new();
        batch.put("b", "1").delete("a").delete_range("c".."d").delete_range("e"..);
        expected.push((db.write(&batch).unwrap(), "b=1 -a -c..d -e..".to_owned()));
        if round == 1 {
            db.flush().unwrap();
        }
        assert_eq!(since(&db, 0), expected);
        for position in [1, 5, 299, 301, 700, 1000] {
            let rest = expected.iter().filter(|(seqno, _)| *seqno > position);
            let newest = db.snapshot().seqno();
            if position <= newest {
                assert_eq!(since(&db, position), rest.cloned().collect::<Vec<_>>());
            }
        }
        assert!(db.stats().archive.logs > 0, "{:?}", db.stats().archive);
        // Every second time the store is not closed, as if the process were killed.
        if round % 2 == 0 {
            db.close().unwrap();
        } else {
            let killed = disk.crash(Policy::EVERYTHING, 1).disk();
            assert_eq!(since(&open(&killed), 0), expected);
        }
    }
}

/// A feed follows live writes; it is over when the store is closed.
#[test]
fn a_feed_waits_for_writes_and_ends_with_the_store() {
    let db = open(&SimDisk::new());
    db.put("a", "1").unwrap();
    let mut changes = db.changes_since(1).unwrap();
    assert!(!changes.wait(Duration::from_millis(1)).unwrap());
    assert!(changes.next().is_none());
    let writer = db.clone();
    let ((read, has_read), (ended, has_ended)) = (mpsc::channel(), mpsc::channel());
    let waiting = thread::spawn(move || {
        assert!(changes.wait(Duration::MAX).unwrap());
        let seen = batches(&mut changes);
        read.send(changes.position()).unwrap();
        // Until the store is closed.
        let over = loop {
            match changes.wait(Duration::MAX) {
                Ok(there_are) => assert!(there_are),
                Err(error) => break error,
            }
            assert!(changes.by_ref().all(|batch| batch.is_ok()));
            read.send(changes.position()).unwrap();
        };
        assert!(changes.next().is_none(), "it is over");
        assert!(matches!(changes.wait(Duration::ZERO), Err(Error::Closed)));
        ended.send(()).unwrap();
        (seen, changes.position(), over)
    });
    // After a close nothing more is read.
    let wait_for_read = |seqno: SeqNo| {
        while has_read.recv_timeout(Duration::from_secs(60)).expect("the feed goes on") < seqno {}
        thread::sleep(Duration::from_millis(50));
    };
    thread::sleep(Duration::from_millis(50));
    let written = writer.put("b", "2").unwrap();
    wait_for_read(written);
    let last = writer.put("c", "3").unwrap();
    wait_for_read(last);
    db.close().unwrap();
    has_ended.recv_timeout(Duration::from_secs(60)).expect("the feed ends with the store");
    let (seen, position, over) = waiting.join().unwrap();
    assert_eq!(seen[0], (written, "b=2".to_owned()));
    assert_eq!(position, last);
    assert!(matches!(over, Error::Closed), "{over}");
}

/// The oldest logs are removed once the others have the configured bytes; a feed that needs them
/// gets an error with the position from which it can continue.
#[test]
fn the_archive_keeps_the_bytes_it_is_set_to() {
    const KEPT: u64 = 256 << 10;
    let disk = SimDisk::new();
    let db = open(&disk);
    let mut slow = db.changes_since(0).unwrap();
    let mut expected = fill(&db, 0..100);
    assert_eq!(slow.by_ref().take(10).count(), 10);
    expected.extend(fill(&db, 100..2_000));
    let all = db.stats().archive;
    assert!(all.removed == 0 && all.logs > 10, "{all:?}");
    db.set_options(|o| o.writes(|w| w.log_archive_bytes(KEPT))).unwrap();
    let kept = db.stats().archive;
    assert_eq!((kept.logs + kept.removed, kept.failed), (all.logs, 0));
    // Each counts as 64 KiB, and there is one more than needed.
    assert_eq!(kept.logs, KEPT / (64 << 10));
    let listed = || crate::log_archive::archived(&disk.list(Path::new("db")).unwrap());
    assert_eq!(listed().len() as u64, kept.logs);
    let (after, oldest) = missing(db.changes_since(0).unwrap_err());
    assert!(after == 0 && oldest > 1000, "{oldest}");
    assert_eq!(since(&db, oldest - 1), expected[oldest as usize - 1..]);
    let (after, _) = missing(db.changes_since(oldest - 2).unwrap_err());
    assert_eq!(after, oldest - 2);
    // A feed that was reading: no batch is skipped before the error.
    let (seen, errors): (Vec<_>, Vec<_>) = slow.by_ref().partition(Result::is_ok);
    assert_eq!(batches(seen.into_iter()), expected[10..slow.position() as usize]);
    let error = errors.into_iter().next().unwrap().unwrap_err();
    assert_eq!(missing(error), (slow.position(), oldest));
    db.set_options(|o| o.writes(|w| w.log_archive_bytes(0))).unwrap();
    assert_eq!((db.stats().archive.logs, listed().len()), (0, 0));
    db.reset_stats();
    assert_eq!(db.stats().archive.removed, 0);
    let refused = db.changes_since(db.snapshot().seqno()).unwrap_err();
    assert!(refused.to_string().contains("log_archive_bytes"), "{refused}");
}

/// The archive is as large after a close as before, and gone if the store is opened without it.
#[test]
fn the_setting_is_that_of_each_open() {
    let disk = SimDisk::new();
    let db = open(&disk);
    fill(&db, 0..500);
    let before = db.stats().archive;
    drop(db);
    let latest = Options::default().vfs(Arc::new(disk.clone())).load_latest("db").unwrap().options;
    let db = Db::open("db", latest.background_threads(0)).unwrap();
    assert!(db.stats().archive.logs >= before.logs, "recorded in the store");
    assert_eq!(since(&db, 0).len(), 500);
    drop(db);
    let db = Db::open("db", options(disk.clone()).writes(|w| w.log_archive_bytes(0))).unwrap();
    assert_eq!(db.stats().archive.logs, 0);
    drop(db);
    let db = open(&disk);
    let newest = db.snapshot().seqno();
    // The last log was copied.
    let (after, oldest) = missing(db.changes_since(1).unwrap_err());
    assert!(after == 1 && oldest > 400, "{oldest}");
    assert_eq!(since(&db, oldest - 1).len() as u64, newest + 1 - oldest);
}

/// No crash takes back what a feed has yielded, whatever the durability of the write.
#[test]
fn what_was_yielded_is_durable() {
    for sync in [false, true] {
        let disk = SimDisk::new();
        let db = open(&disk);
        let how = if sync { WriteOptions::sync() } else { WriteOptions::os() };
        let mut changes = db.changes_since(0).unwrap();
        for round in 0..40_u32 {
            for number in 0..20 {
                db.put_with(format!("{round:03}.{number}"), "v".repeat(100), how).unwrap();
            }
            let yielded = batches(&mut changes);
            assert_eq!(yielded.len(), 20);
            let db = open(&disk.crash(Policy::SYNCED, 1).disk());
            assert_eq!(db.snapshot().seqno(), changes.position(), "round {round}");
            assert_eq!(since(&db, 0).len() as u64, changes.position());
            assert_eq!(since(&db, changes.position()), []);
        }
    }
}

/// A feed reads two logs at once, the first of which is still needed: its memtable cannot be
/// flushed.
#[test]
fn what_was_yielded_from_several_logs_is_durable() {
    let disk = SimDisk::new();
    let options = options(disk.clone()).writes(|w| w.max_frozen_memtables(8));
    let db = Db::open("db", options).unwrap();
    let mut changes = db.changes_since(0).unwrap();
    disk.inject(Fault::new(Failure::NoSpace).on(OpKind::Create).named(".sst").lasting());
    for number in 0..200 {
        db.put_with(format!("{number:03}"), "v".repeat(100), WriteOptions::os()).unwrap();
    }
    let yielded = batches(&mut changes);
    assert_eq!((yielded.len(), db.stats().archive.logs), (200, 0));
    let db = open(&disk.crash(Policy::SYNCED, 1).disk());
    assert_eq!(since(&db, 0), yielded);
}

/// Regression: a consumer that began after a snapshot had copied writes that a power failure took
/// back, and missed the later writes that got the same numbers.
#[test]
fn what_a_feed_begins_after_is_durable() {
    let disk = SimDisk::new();
    let db = open(&disk);
    for number in 0..20 {
        db.put_with(format!("{number}"), "v", WriteOptions::os()).unwrap();
    }
    let snapshot = db.snapshot();
    drop(db.changes_since(snapshot.seqno()).unwrap());
    let db = open(&disk.crash(Policy::SYNCED, 1).disk());
    assert_eq!((db.snapshot().seqno(), db.iter().count()), (20, 20));
}

/// Without the sync, a batch written after a power failure could get the number of a batch that was
/// yielded.
#[test]
fn a_failed_sync_poisons_and_yields_nothing() {
    let disk = SimDisk::new();
    let db = open(&disk);
    db.put("a", "1").unwrap();
    let mut changes = db.changes_since(1).unwrap();
    db.put("b", "2").unwrap();
    disk.inject(Fault::new(Failure::Io).on(OpKind::Sync).named(".log"));
    let failed = changes.next().unwrap().unwrap_err();
    assert!(matches!(failed, Error::Io { .. }), "{failed}");
    assert!(changes.next().is_none() && changes.position() == 1);
    assert!(matches!(db.put("c", "3"), Err(Error::Poisoned { .. })));
    let poisoned = db.changes_since(1).unwrap_err();
    assert!(matches!(poisoned, Error::Poisoned { .. }), "{poisoned}");
    // A feed does not begin after writes that a crash may take back, either.
    let poisoned = db.changes_since(db.snapshot().seqno()).unwrap_err();
    assert!(matches!(poisoned, Error::Poisoned { .. }), "{poisoned}");
}

/// A feed that waits ends when the store refuses writes.
#[test]
fn a_feed_that_waits_ends_with_a_failure() {
    let disk = SimDisk::new();
    let db = open(&disk);
    let newest = db.put("a", "1").unwrap();
    let mut changes = db.changes_since(newest).unwrap();
    disk.inject(Fault::new(Failure::Io).on(OpKind::Sync).named(".log"));
    db.put_with("b", "2", WriteOptions::sync()).unwrap_err();
    let poisoned = changes.wait(Duration::from_secs(60)).unwrap_err();
    assert!(matches!(poisoned, Error::Poisoned { .. }), "{poisoned}");
}

#[test]
fn what_is_loaded_is_reported_as_missing() {
    let db = open(&SimDisk::new());
    let before = db.put("a", "1").unwrap();
    let mut changes = db.changes_since(0).unwrap();
    db.load_sorted([("k1", "1"), ("k2", "2")].map(Ok)).unwrap();
    let loaded = db.snapshot().seqno();
    assert_eq!(batches(changes.by_ref().take(1)), [(before, "a=1".to_owned())]);
    // The load is the last change.
    let error = changes.next().unwrap().unwrap_err();
    assert_eq!(missing(error), (before, loaded + 1));
    assert_eq!(since(&db, loaded), []);
    // A load between other writes.
    let after = db.put("b", "2").unwrap();
    assert_eq!(missing(db.changes_since(before).unwrap_err()), (before, after));
    assert_eq!(since(&db, after - 1), [(after, "b=2".to_owned())]);
    let disk = SimDisk::new();
    let db = open(&disk);
    db.load_sorted([("k1", "1")].map(Ok)).unwrap();
    db.put("b", "2").unwrap();
    drop(db);
    let db = open(&disk);
    let newest = db.snapshot().seqno();
    assert_eq!(missing(db.changes_since(0).unwrap_err()), (0, newest));
}

/// Keys are those of their keyspace, before and after the first one, and after a drop; the catalog
/// is hidden.
#[test]
fn keyspaces_are_named_and_the_catalog_is_hidden() {
    let disk = SimDisk::new();
    let db = open(&disk);
    db.put(MARKED, "plain").unwrap();
    db.put("a", "1").unwrap();
    db.delete_range(MARKED..).unwrap();
    db.put(MARKED, "plain").unwrap();
    let users = db.keyspace("users", KeyspaceOptions::new()).unwrap();
    users.put("k", "1").unwrap();
    db.put(MARKED, "mapped").unwrap();
    db.delete_range("b"..).unwrap();
    db.delete_range(MARKED..).unwrap();
    users.delete_range(.."m").unwrap();
    users.delete_range("m"..).unwrap();
    let orders = db.keyspace("orders", KeyspaceOptions::new()).unwrap();
    let mut batch = WriteBatch::new();
    batch.put("a", "2");
    batch.keyspace(&users).put("u", "3");
    batch.keyspace(&orders).delete("o");
    db.write(&batch).unwrap();
    db.drop_keyspace("users").unwrap();
    let marked = text(MARKED);
    let expected = [
        format!("{marked}=plain"),
        "a=1".to_owned(),
        format!("-{marked}.."),
        format!("{marked}=plain"),
        "users: k=1".to_owned(),
        format!("{marked}=mapped"),
        "-b..".to_owned(),
        format!("-{marked}.."),
        "users: -..m".to_owned(),
        "users: -m..".to_owned(),
        "a=2 users: u=3 orders: -o".to_owned(),
        "users: -..".to_owned(),
    ];
    assert_eq!(ops(&db, 0), expected);
    drop((batch, users, orders, db));
    let db = open(&disk);
    assert_eq!(ops(&db, 0), expected);
    // A feed that has not passed the entry of the catalog does not know the name.
    let after = since(&db, 0)[9].0;
    let late = ["a=2 #2: u=3 orders: -o", "users: -.."];
    assert_eq!(ops(&db, after), late);
}

/// The time marks between the writes are hidden, and their numbers do not count as gaps.
#[test]
fn merges_are_operands_and_time_marks_are_hidden() {
    let (disk, clock) = (SimDisk::new(), WallClock::default());
    let options = || {
        let options = options(disk.clone()).vfs(clock.over(Arc::new(disk.clone())));
        options.writes(|w| w.ttl(Duration::from_secs(60)).merge_operator(Merge::counter()))
    };
    let db = Db::open("db", options()).unwrap();
    let mut expected = Vec::new();
    for number in 0..20_u64 {
        db.merge("n", number.to_le_bytes()).unwrap();
        expected.push(format!("n+{}", text(&number.to_le_bytes())));
        clock.advance(Duration::from_secs(10));
        if number == 10 {
            db.flush().unwrap();
        }
    }
    assert!(db.snapshot().seqno() > 20, "no marks");
    assert_eq!(ops(&db, 0), expected);
    drop(db);
    assert_eq!(ops(&Db::open("db", options()).unwrap(), 0), expected);
}

#[test]
fn feeds_that_cannot_be_are_refused() {
    let vfs = MemoryVfs::new();
    let refused = |db: &Db, seqno| db.changes_since(seqno).unwrap_err();
    let off = options(vfs.clone()).writes(|w| w.log_archive_bytes(0));
    let error = refused(&Db::open("off", off).unwrap(), 0);
    assert!(matches!(error, Error::InvalidOption { .. }), "{error}");
    let without_log = options(vfs.clone()).writes(|w| w.log(false));
    let error = refused(&Db::open("none", without_log).unwrap(), 0);
    assert!(error.to_string().contains("log is false"), "{error}");
    let db = Db::open("db", options(vfs)).unwrap();
    db.put("a", "1").unwrap();
    let error = refused(&db, 2);
    assert!(matches!(error, Error::ChangesAhead { after: 2, newest: 1 }), "{error}");
    let other = db.clone();
    db.close().unwrap();
    assert!(matches!(refused(&other, 0), Error::Closed));
}

#[test]
fn readers_and_followers_have_feeds_of_what_they_see() {
    let disk = SimDisk::new();
    let db = open(&disk);
    let mut expected = fill(&db, 0..700);
    let plain = Options::default().vfs(Arc::new(disk.clone()));
    let follower = Db::open_follower("db", plain.clone()).unwrap();
    assert_eq!(since(&follower, 0), expected);
    let mut changes = follower.changes_since(700).unwrap();
    expected.extend(fill(&db, 700..1_500));
    assert!(changes.next().is_none(), "it has not caught up");
    follower.catch_up().unwrap();
    assert_eq!(batches(&mut changes), expected[700..]);
    follower.catch_up_every(Duration::from_millis(1)).unwrap();
    expected.extend(fill(&db, 1_500..1_501));
    assert!(changes.wait(Duration::from_secs(60)).unwrap());
    assert_eq!(batches(&mut changes), expected[1_500..]);
    drop(db);
    let db = Db::open_read_only("db", plain).unwrap();
    assert_eq!(since(&db, 0), expected);
    assert_eq!(since(&db, 1_400), expected[1_400..]);
}

/// Archived logs belong to the store: they are not orphans, are verified, and are removed with it;
/// copies of the store begin without archived logs.
#[test]
fn archived_logs_are_files_of_the_store() {
    let disk = SimDisk::new();
    let db = open(&disk);
    fill(&db, 0..500);
    db.checkpoint("copy").unwrap();
    let newest = db.snapshot().seqno();
    drop(db);
    let archived = |dir| crate::log_archive::archived(&disk.list(Path::new(dir)).unwrap());
    assert!(archived("db").len() > 3 && archived("copy").is_empty());
    let report = Db::verify_dir("db", &options(disk.clone())).unwrap();
    assert!(report.orphans.is_empty() && report.damage.is_empty(), "{report:?}");
    // The other two are the manifest and the log.
    assert_eq!(report.logs, archived("db").len() as u64 + 2);
    let copy = Db::open("copy", options(disk.clone())).unwrap();
    assert_eq!(missing(copy.changes_since(0).unwrap_err()).1, copy.snapshot().seqno() + 1);
    copy.put("a", "1").unwrap();
    assert_eq!(ops(&copy, newest), ["a=1"]);
    Db::repair("db", "repaired", options(disk.clone()), RepairOptions::default()).unwrap();
    assert!(archived("repaired").is_empty());
    Db::destroy("db", &options(disk.clone())).unwrap();
    let left = disk.list(Path::new("db")).unwrap_or_default();
    assert!(crate::log_archive::archived(&left).is_empty(), "{left:?}");
}

/// One flipped bit in an archived log is an error of the feed, and of nothing else.
#[test]
fn a_corrupt_archived_log_is_an_error_of_the_feed() {
    let disk = SimDisk::new();
    let db = open(&disk);
    let expected = fill(&db, 0..500);
    drop(db);
    let listing = disk.list(Path::new("db")).unwrap();
    let (number, bytes) = crate::log_archive::archived(&listing).into_iter().nth(1).unwrap();
    let path = crate::files::archived_log_path(Path::new("db"), number);
    let mut content = disk.read(&path, bytes).unwrap();
    content[bytes as usize / 2] ^= 4;
    disk.remove(&path).unwrap();
    let mut file = disk.create(&path).unwrap();
    file.append(&content).unwrap();
    drop(file);
    let report = Db::verify_dir("db", &options(disk.clone())).unwrap();
    assert_eq!(report.damage.len(), 1, "{report:?}");
    let db = open(&disk);
    assert_eq!(db.iter().count(), 500);
    let mut changes = db.changes_since(0).unwrap();
    let (good, bad): (Vec<_>, Vec<_>) = changes.by_ref().partition(Result::is_ok);
    assert_eq!(batches(good.into_iter()), expected[..changes.position() as usize]);
    let error = bad.into_iter().next().unwrap().unwrap_err();
    assert!(matches!(error, Error::Corruption(_)), "{error}");
}

/// If a log cannot be archived, nothing else fails, and a feed finds the gap.
#[test]
fn a_log_that_cannot_be_archived_is_a_gap() {
    for kind in [OpKind::HardLink, OpKind::Sync] {
        let disk = SimDisk::new();
        let db = open(&disk);
        db.put("a", "1").unwrap();
        let name = if kind == OpKind::Sync { "000001.log" } else { ".log" };
        let first = db.engine().view.load().active.log_number;
        let name = if kind == OpKind::Sync { crate::names::log(first) } else { name.to_owned() };
        disk.inject(Fault::new(Failure::Io).on(kind).named(&name));
        db.flush().unwrap();
        assert_eq!(disk.faults_fired(), 1);
        assert_eq!((db.stats().archive.logs, db.stats().archive.failed), (0, 1));
        let after = db.put("b", "2").unwrap();
        assert_eq!(missing(db.changes_since(0).unwrap_err()), (0, after));
        assert_eq!(ops(&db, after - 1), ["b=2"]);
    }
}

/// Regression: a log was left out of the archive, and a feed reported a gap, because the process
/// had no file handle left at that moment, although tables could have been closed.
#[test]
fn a_log_is_archived_when_file_handles_run_out() {
    for kind in [OpKind::Open, OpKind::Sync, OpKind::SyncDir] {
        let disk = SimDisk::new();
        let db = open(&disk);
        let written = fill(&db, 0..20);
        let fault = Fault::new(Failure::TooManyOpenFiles).on(kind);
        disk.inject(if kind == OpKind::SyncDir { fault.after(1) } else { fault.named(".log") });
        db.flush().unwrap();
        assert_eq!(disk.faults_fired(), 1, "{kind:?}");
        assert_eq!(db.stats().archive.failed, 0, "{kind:?}");
        assert_eq!(since(&db, 0), written);
    }
}

/// Regression: each step of a feed read the catalog of keyspaces again.
#[test]
fn a_feed_of_a_follower_reads_the_catalog_once() {
    let disk = SimDisk::new();
    let db = open(&disk);
    let keyspace = db.keyspace("some", KeyspaceOptions::new()).unwrap();
    let put = |number: u32| keyspace.put(format!("{number}"), vec![7; 100 << 10]).unwrap();
    (0..60).for_each(|number| _ = put(number));
    let follower = Db::open_follower("db", options(disk.clone())).unwrap();
    let mut changes = follower.changes_since(0).unwrap();
    let known = || Arc::clone(&follower.engine().options.keyspaces.catalog().live["some"]);
    let first = known();
    // A step reads a MiB, also if each log is shorter.
    assert_eq!(changes.ready.len(), 11);
    assert_eq!(changes.by_ref().count(), 60);
    assert!(Arc::ptr_eq(&first, &known()));
    // It is read again once there is more.
    db.keyspace("other", KeyspaceOptions::new()).unwrap().put("key", "value").unwrap();
    follower.catch_up().unwrap();
    assert_eq!(batches(changes).last().unwrap().1, "other: key=value");
}
