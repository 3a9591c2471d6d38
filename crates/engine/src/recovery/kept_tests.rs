//! A store opens even without disk space to flush its log to tables.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use trommel_sim::{Policy, SimDisk};
use trommel_vfs::{Layer, Vfs};

use crate::{Compression, Db, Error, ErrorKind, Options, RepairOptions, WriteOptions};

/// Free bytes that suffice for a log, a manifest and a few writes.
const LITTLE: u64 = 256 << 10;
const KEYS: u32 = 1000;

fn options(disk: &SimDisk) -> Options {
    let options = Options::default().vfs(Arc::new(disk.clone())).background_threads(0);
    options.compression(Compression::None).writes(|w| w.spare_file_bytes(0))
}

fn open(disk: &SimDisk) -> Db {
    Db::open("db", options(disk)).unwrap()
}

fn key(number: u32) -> String {
    format!("{number:04}")
}

/// A disk, and a store on it with 1 MB in its log.
fn filled() -> (SimDisk, Db) {
    let disk = SimDisk::new();
    let db = open(&disk);
    for number in 0..KEYS {
        db.put(key(number), [7; 1000]).unwrap();
    }
    (disk, db)
}

/// The disk of such a store after a kill, with `LITTLE` free.
fn killed() -> SimDisk {
    cut(&filled().0)
}

/// The disk of a store killed now, with `LITTLE` free.
fn cut(disk: &SimDisk) -> SimDisk {
    let disk = disk.crash(Policy::EVERYTHING, 1).disk();
    disk.set_capacity(Some(disk.used_bytes() + LITTLE));
    disk
}

fn names(disk: &SimDisk, ending: &str) -> Vec<String> {
    let listing = disk.list(Path::new("db")).unwrap();
    let names = listing.into_iter().map(|entry| entry.name.into_string().unwrap());
    names.filter(|name| name.ends_with(ending)).collect()
}

/// Whether the store holds exactly the keys from `first` on.
#[track_caller]
fn holds_from(db: &Db, first: u32) {
    let found: Vec<_> = db.iter().map(|entry| entry.unwrap().0.to_vec()).collect();
    let wanted: Vec<_> = (first..KEYS).map(|number| key(number).into_bytes()).collect();
    assert_eq!(found.len(), wanted.len());
    assert!(found == wanted);
    assert_eq!(db.get(key(KEYS - 1)).unwrap().unwrap(), [7; 1000][..]);
}

/// Regression: opening a store to delete data failed for lack of the space that the deletion would
/// have freed.
#[test]
fn a_store_opens_without_room_for_its_log() {
    let disk = killed();
    let db = open(&disk);
    assert_eq!(db.recovery_report().replayed_batches, u64::from(KEYS));
    assert_eq!((names(&disk, ".log").len(), names(&disk, ".sst").len()), (2, 0));
    holds_from(&db, 0);
    db.verify().unwrap();
    for number in 0..KEYS / 2 {
        db.delete(key(number)).unwrap();
    }
    holds_from(&db, KEYS / 2);
    db.close().unwrap();
    // Without space, as before, and with it.
    let db = open(&disk);
    assert!(db.recovery_report().was_closed && db.recovery_report().dropped.is_empty());
    holds_from(&db, KEYS / 2);
    assert_eq!(names(&disk, ".log").len(), 3);
    db.verify().unwrap();
    drop(db);
    disk.set_capacity(None);
    let db = open(&disk);
    holds_from(&db, KEYS / 2);
    assert_eq!((names(&disk, ".log").len(), names(&disk, ".sst").len()), (1, 1));
    db.verify().unwrap();
}

/// Deleted entries are not flushed, and the logs become obsolete with their last entry.
#[test]
fn a_flush_makes_kept_logs_obsolete() {
    let disk = killed();
    let db = open(&disk);
    for number in 0..KEYS * 9 / 10 {
        db.delete(key(number)).unwrap();
    }
    let logs = names(&disk, ".log");
    db.flush().unwrap();
    holds_from(&db, KEYS * 9 / 10);
    assert!(names(&disk, ".log").iter().all(|name| !logs.contains(name)), "{logs:?}");
    assert!(disk.used_bytes() < LITTLE, "{} bytes", disk.used_bytes());
    db.verify().unwrap();
    drop(db);
    let db = open(&disk);
    assert_eq!(db.recovery_report().orphans, [] as [&Path; 0]);
    holds_from(&db, KEYS * 9 / 10);
}

/// A memtable over its limit is frozen: its flush fails and is reported, loses nothing, and does
/// not block closing.
#[test]
fn a_log_above_the_limit_of_a_memtable_is_kept_too() {
    for threads in [0, 2] {
        let disk = killed();
        let small = || {
            let options = options(&disk).background_threads(threads);
            Db::open("db", options.writes(|w| w.write_buffer_bytes(128 << 10))).unwrap()
        };
        let db = small();
        holds_from(&db, 0);
        // Without threads, the writer that finds it full flushes it and gets the error.
        if threads == 0 {
            assert_eq!(db.delete(key(0)).unwrap_err().kind(), ErrorKind::Retry);
        }
        db.delete(key(0)).unwrap();
        db.delete(key(1)).unwrap();
        assert_eq!(db.flush().unwrap_err().kind(), ErrorKind::Retry);
        assert!(db.stats().background.error.is_some());
        holds_from(&db, 2);
        db.verify().unwrap();
        db.close().unwrap();
        let db = small();
        holds_from(&db, 2);
        disk.set_capacity(None);
        let start = std::time::Instant::now();
        while let Err(error) = db.flush() {
            assert_eq!(error.kind(), ErrorKind::Retry, "{error}");
            assert!(start.elapsed().as_secs() < 30, "it never finds the room: {error}");
        }
        holds_from(&db, 2);
        assert_eq!(names(&disk, ".log").len(), 1, "{threads} threads");
        assert!(db.stats().background.error.is_none());
        db.verify().unwrap();
    }
}

/// The oldest log.
fn oldest(disk: &SimDisk) -> PathBuf {
    Path::new("db").join(&names(disk, ".log")[0])
}

fn replace(disk: &SimDisk, path: &Path, bytes: &[u8]) {
    disk.remove(path).unwrap();
    disk.create(path).unwrap().append(bytes).unwrap();
}

/// Every operation that reads or copies the store without writing to it.
#[test]
fn a_store_with_kept_logs_can_be_read_and_copied() {
    let (filled, db) = filled();
    let disk = cut(&filled);
    // After the recorded end of the oldest log: a record, and other bytes.
    let end = filled.read(&oldest(&filled), 2 << 20).unwrap().len();
    db.put("later", "value").unwrap();
    let mut behind = filled.read(&oldest(&filled), 2 << 20).unwrap().split_off(end);
    behind.extend([0x5a; 700]);
    let db = open(&disk);
    db.delete(key(0)).unwrap();
    let disk = cut(&disk);
    drop(open(&disk));
    let disk = cut(&disk);
    let log = disk.read(&oldest(&disk), 2 << 20).unwrap();
    replace(&disk, &oldest(&disk), &[&log[..], &behind].concat());
    let read_only = Db::open("db", options(&disk).opening(|o| o.read_only(true))).unwrap();
    holds_from(&read_only, 1);
    read_only.verify().unwrap();
    drop(read_only);
    let report = Db::verify_dir("db", &options(&disk)).unwrap();
    assert!(report.damage.is_empty() && report.orphans.is_empty() && report.incomplete.is_empty());
    let trace = crate::inspect::find(&disk, Path::new("db"), key(0).as_bytes()).unwrap();
    assert!(trace.problems.is_empty());
    assert_eq!(trace.newest().map(|version| version.value_bytes), Some(0));
    let healthy =
        Db::open("db", options(&disk).opening(|o| o.degraded(crate::options::Degraded::Certain)));
    holds_from(&healthy.unwrap(), 1);
    disk.set_capacity(None);
    let report = Db::repair("db", "new", options(&disk), RepairOptions::default()).unwrap();
    assert!(report.is_complete() && report.beyond_damage.is_empty());
    holds_from(&Db::open("new", options(&disk)).unwrap(), 1);
    let db = open(&cut(&disk));
    assert!(matches!(db.checkpoint("copy"), Err(Error::Io { .. })), "it needs the room of a table");
    let db = open(&disk);
    db.checkpoint("copy").unwrap();
    holds_from(&Db::open("copy", options(&disk)).unwrap(), 1);
}

/// Bytes that an open dropped stay dropped, however often the store is killed before it has space
/// again.
#[test]
fn a_torn_tail_that_was_dropped_stays_dropped() {
    let disk = SimDisk::new();
    let db = open(&disk);
    for number in 0..KEYS {
        db.put_with(key(number), [7; 1000], WriteOptions::sync()).unwrap();
    }
    db.put("torn", [9; 3000]).unwrap();
    db.put("behind", [9; 3000]).unwrap();
    let mut torn = 0;
    for seed in 0..40 {
        let mut disk = disk.crash(Policy::ALL[seed as usize % Policy::ALL.len()], seed).disk();
        disk.set_capacity(Some(disk.used_bytes() + LITTLE));
        let db = open(&disk);
        let dropped = !db.recovery_report().dropped.is_empty();
        torn += usize::from(dropped);
        let extra = |db: &Db| ["torn", "behind"].map(|key| db.get(key).unwrap().is_some());
        let found = extra(&db);
        for round in 0..4 {
            let db = match round {
                0 => db.clone(),
                _ => open(&disk),
            };
            assert!(round == 0 || db.recovery_report().dropped.is_empty(), "noted once");
            assert_eq!(extra(&db), found, "seed {seed}, round {round}");
            assert!((0..round).all(|n| db.get(format!("new{n}")).unwrap().is_some()));
            db.put_with(format!("new{round}"), "value", WriteOptions::sync()).unwrap();
            db.put("open", [9; 2000]).unwrap();
            db.delete("open").unwrap();
            let policy = Policy::ALL[(seed + round) as usize % Policy::ALL.len()];
            disk = disk.crash(policy, seed ^ round).disk();
            disk.set_capacity(Some(disk.used_bytes() + LITTLE));
            // It reports the torn tail of this round's writes.
            assert_eq!(extra(&open(&disk)), found, "seed {seed}, round {round}");
        }
        disk.set_capacity(None);
        let db = open(&disk);
        assert_eq!(extra(&db), found);
        assert!((0..KEYS).all(|number| db.get(key(number)).unwrap().is_some()));
    }
    assert!(torn > 5, "{torn} stores were torn");
}

/// If not even the new files fit, the error states how many bytes they need, and that many suffice.
#[test]
fn a_full_disk_is_reported_with_the_bytes_that_are_needed() {
    let disk = killed();
    let with_room = |bytes| {
        disk.set_capacity(Some(disk.used_bytes() + bytes));
        Db::open("db", options(&disk))
    };
    let mut needed = 0;
    for free in [0, 64, 100, 200] {
        let error = with_room(free).map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Retry);
        assert_eq!(number(&error, "are free"), free, "{error}");
        needed = number(&error, "bytes for a new log");
    }
    assert!(needed < 64 << 10, "{needed}");
    holds_from(&with_room(needed).unwrap(), 0);
}

/// A store that is opened without a log, or with salvage, has no log to continue in: the whole log
/// must fit.
#[test]
fn without_a_log_or_in_a_salvage_the_whole_log_has_to_fit() {
    for change in [
        |options: Options| options.writes(|w| w.log(false)),
        |options: Options| options.opening(|o| o.salvage(true)),
    ] {
        let disk = killed();
        let error = Db::open("db", change(options(&disk))).map(drop).unwrap_err();
        assert_eq!(number(&error, "are free"), LITTLE, "{error}");
        let needed = number(&error, "bytes of the log");
        assert!((1_000_000..1_100_000).contains(&needed), "{error}");
        disk.set_capacity(Some(disk.used_bytes() + needed + (64 << 10)));
        holds_from(&Db::open("db", change(options(&disk))).unwrap(), 0);
    }
}

/// A file system whose finished files cannot be made durable.
#[derive(Debug)]
struct NoSync(SimDisk);

impl Layer for NoSync {
    fn below(&self) -> &dyn Vfs {
        &self.0
    }

    fn sync_file(&self, path: &Path) -> io::Result<()> {
        Err(io::Error::new(io::ErrorKind::Unsupported, path.display().to_string()))
    }
}

/// A log that a power cut may lose cannot be kept.
#[test]
fn without_file_syncs_the_whole_log_must_fit() {
    let disk = killed();
    let vfs = Arc::new(NoSync(disk.clone()));
    let error = Db::open("db", options(&disk).vfs(vfs)).map(drop).unwrap_err();
    assert!(number(&error, "bytes of the log") > 1_000_000, "{error}");
    assert_eq!(number(&error, "are free"), LITTLE, "{error}");
    holds_from(&open(&disk), 0);
}

/// The number before `words`.
#[track_caller]
fn number(error: &Error, words: &str) -> u64 {
    let text = error.to_string();
    let before = text.split_once(words).map(|(before, _)| before.trim_end());
    let number = before.and_then(|before| before.rsplit(' ').next()?.parse().ok());
    number.unwrap_or_else(|| panic!("{text}"))
}

/// A kept log is as durable as the manifest records: corruption of it is reported.
#[test]
fn a_kept_log_that_is_cut_is_corruption() {
    let disk = killed();
    drop(open(&disk));
    let log = oldest(&disk);
    let whole = disk.read(&log, 2 << 20).unwrap();
    disk.set_capacity(None);
    for bytes in [0, 64, whole.len() / 2, whole.len() - 1] {
        let disk = disk.crash(Policy::EVERYTHING, 1).disk();
        replace(&disk, &log, &whole[..bytes]);
        let error = Db::open("db", options(&disk)).map(drop).unwrap_err();
        assert!(matches!(&error, Error::Corruption(c) if c.file == log), "{bytes}: {error}");
    }
}
