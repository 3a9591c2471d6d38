//! Permitted opens: one owner at a time, a store or an empty directory, and readers that change
//! nothing; and the treatment of unneeded files by an open.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use trommel::vfs::DiskVfs;
use trommel::{Db, Error, Options, WriteOptions};
use trommel_tests::scratch::scratch;

use crate::inspect::scan;
use crate::workload::options;

/// The environment variable of the child: the directory to open, and how.
const CHILD: &str = "TROMMEL_CRASH_OPENER";

fn small() -> Options {
    options(1, Arc::new(DiskVfs)).background_threads(0)
}

fn home() -> (TempDir, PathBuf) {
    let home = scratch();
    let dir = home.path().join("db");
    (home, dir)
}

/// A store with tables, a log, and no handle.
fn filled(dir: &Path) {
    let db = Db::open(dir, small()).expect("opening");
    for number in 0..200 {
        db.put(format!("key{number:03}"), "v".repeat(60)).expect("writing");
    }
    db.close().expect("closing");
}

/// Not a test of its own: opens a directory and prints the result, until its input ends.
#[test]
fn opener() {
    let Ok(order) = std::env::var(CHILD) else { return };
    let (how, dir) = order.split_once('|').expect("how and where");
    let found = match Db::open(dir, small().opening(|o| o.read_only(how == "read"))) {
        Ok(db) if how == "write and die" => {
            for number in 0..300 {
                db.put(format!("late{number:03}"), "w".repeat(40)).expect("writing");
            }
            // As if killed: nothing is closed, nothing is dropped.
            std::process::exit(0);
        }
        Ok(_) => "it opened".to_owned(),
        Err(Error::Locked { dir }) => format!("it is locked: {}", dir.display()),
        Err(error) => format!("it failed: {error}"),
    };
    println!("{found}");
}

/// The result of opening `dir` in another process.
fn elsewhere(how: &str, dir: &Path) -> String {
    let output = Command::new(std::env::current_exe().expect("this program"))
        .args(["opening::opener", "--exact", "--nocapture"])
        .env(CHILD, format!("{how}|{}", dir.display()))
        .stderr(Stdio::null())
        .output()
        .expect("a child");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    said.lines().find(|line| line.starts_with("it ")).unwrap_or_default().to_owned()
}

fn is_locked<T>(opened: Result<T, Error>) -> bool {
    opened.is_err_and(|error| matches!(error, Error::Locked { .. }))
}

#[test]
fn a_store_has_one_owner() {
    let (_home, dir) = home();
    let db = Db::open(&dir, small()).expect("opening");
    let link = dir.with_extension("link");
    symlink(&dir, &link).expect("a link");
    let clone = db.clone();
    for path in [&dir, &link] {
        assert!(is_locked(Db::open(path, small())));
        assert!(is_locked(Db::open_read_only(path, small())));
        assert!(elsewhere("write", path).starts_with("it is locked"));
        assert!(elsewhere("read", path).starts_with("it is locked"));
    }
    // A failed attempt to take the lock must not release the owner's.
    assert!(is_locked(Db::open(&dir, small())));
    clone.put("still", "ours").expect("writing");
    drop(db);
    assert!(is_locked(Db::open(&dir, small())), "a clone keeps the store open");
    clone.close().expect("closing");
    assert_eq!(elsewhere("write", &dir), "it opened");
    drop(Db::open(&dir, small()).expect("nobody has it open"));
}

#[test]
fn readers_share_and_keep_writers_out() {
    let (_home, dir) = home();
    filled(&dir);
    let first = Db::open_read_only(&dir, small()).expect("opening");
    let second = Db::open_read_only(&dir, small()).expect("opening with another reader");
    assert_eq!(scan(&first).expect("scan"), scan(&second).expect("scan"));
    assert_eq!(elsewhere("read", &dir), "it opened");
    assert!(is_locked(Db::open(&dir, small())));
    drop(first);
    assert!(elsewhere("write", &dir).starts_with("it is locked"));
    drop(second);
    assert_eq!(elsewhere("write", &dir), "it opened");
}

/// Everything below `dir`: mode, bytes, and time of last change.
fn tree(dir: &Path) -> BTreeMap<PathBuf, (u32, i64, i64, Vec<u8>)> {
    let mut found = BTreeMap::new();
    let mut folders = vec![dir.to_path_buf()];
    while let Some(folder) = folders.pop() {
        let about = fs::symlink_metadata(&folder).expect("it is there");
        let bytes = if about.is_file() { fs::read(&folder).expect("readable") } else { Vec::new() };
        if about.is_dir() {
            let entries = fs::read_dir(&folder).expect("readable");
            folders.extend(entries.map(|entry| entry.expect("readable").path()));
        }
        found.insert(folder, (about.mode(), about.mtime(), about.mtime_nsec(), bytes));
    }
    found
}

#[test]
fn what_is_no_store_is_left_alone() {
    let (home, dir) = home();
    let is_no_store = |path: &Path, options: Options| {
        let before = tree(home.path());
        let exists = path.join("CURRENT").exists();
        match Db::open(path, options) {
            Err(Error::NotAStore { .. }) if !exists => {}
            Err(Error::InvalidOption { .. }) if exists => {}
            other => panic!("{}: {other:?}", path.display()),
        }
        assert!(before == tree(home.path()), "{}: something changed", path.display());
    };
    is_no_store(&dir, small().opening(|o| o.create_if_missing(false)));
    is_no_store(&dir, small().opening(|o| o.read_only(true)));
    fs::create_dir(&dir).expect("a directory");
    is_no_store(&dir, small().opening(|o| o.create_if_missing(false)));
    is_no_store(&dir, small().opening(|o| o.read_only(true)));
    fs::write(dir.join("letter.txt"), "dear").expect("a file");
    is_no_store(&dir, small());
    is_no_store(&dir.join("letter.txt"), small());
    let store = home.path().join("store");
    filled(&store);
    is_no_store(&store, small().opening(|o| o.error_if_exists(true)));
}

fn set_modes(dir: &Path, folder: u32, file: u32) {
    for entry in fs::read_dir(dir).expect("readable") {
        let path = entry.expect("readable").path();
        fs::set_permissions(path, fs::Permissions::from_mode(file)).expect("ours");
    }
    fs::set_permissions(dir, fs::Permissions::from_mode(folder)).expect("ours");
}

#[test]
fn a_reader_changes_nothing() {
    let (_home, dir) = home();
    filled(&dir);
    for killed in [false, true] {
        if killed {
            assert_eq!(elsewhere("write and die", &dir), "");
            // Files that only an open for writing may remove.
            fs::write(dir.join("CURRENT.tmp"), "MANI").expect("room");
            fs::write(dir.join("900000.sst"), "orphan").expect("room");
            fs::write(dir.join("notes.txt"), "foreign").expect("room");
        }
        set_modes(&dir, 0o555, 0o444);
        let before = tree(&dir);
        let db = Db::open_read_only(&dir, small()).expect("opening");
        let state = scan(&db).expect("scan");
        assert_eq!(state.len(), if killed { 500 } else { 200 });
        db.verify().expect("verifying");
        assert!(matches!(db.put("a", "b"), Err(Error::ReadOnly)));
        assert!(matches!(db.flush(), Err(Error::ReadOnly)));
        assert!(matches!(db.compact_all(), Err(Error::ReadOnly)));
        assert!(matches!(db.sync(), Err(Error::ReadOnly)));
        db.close().expect("closing");
        assert!(before == tree(&dir), "a reader changed something (killed: {killed})");
        set_modes(&dir, 0o755, 0o644);
    }
    let db = Db::open(&dir, small()).expect("opening for writing");
    assert_eq!(scan(&db).expect("scan").len(), 500);
    db.verify().expect("verifying");
}

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).expect("readable");
    let name = |entry: std::io::Result<fs::DirEntry>| {
        entry.expect("readable").file_name().to_string_lossy().into_owned()
    };
    entries.map(name).collect()
}

#[test]
fn leftovers_go_and_what_is_not_ours_stays() {
    let (_home, dir) = home();
    filled(&dir);
    let ours = ["000002.log", "000900.sst", "MANIFEST-000901", "000902.flt", "CURRENT.tmp"];
    let foreign = ["notes.txt", "._000007.sst", ".DS_Store", "7.sst", "000900.sst.bak", "CURRENT~"];
    for name in ours.iter().chain(&foreign) {
        fs::write(dir.join(name), "left over").expect("room");
    }
    fs::create_dir(dir.join("lost+found")).expect("a directory");
    fs::create_dir(dir.join("000903.sst")).expect("a directory");
    drop(Db::open(&dir, small()).expect("opening"));
    let left = names(&dir);
    for name in ours {
        assert!(!left.contains(&name.to_owned()), "{name} was left: {left:?}");
    }
    for name in foreign.iter().chain(&["lost+found", "000903.sst"]) {
        assert!(left.contains(&(*name).to_owned()), "{name} was removed: {left:?}");
    }
    // None of their numbers is reused.
    let numbers = left.iter().filter_map(|name| name.strip_prefix("MANIFEST-"));
    let manifest: u64 = numbers.map(|digits| digits.parse().expect("a number")).max().expect("one");
    assert!(manifest > 902, "the number of a leftover may come back: {left:?}");
}

/// Opening a store does not accumulate files: not of closed ones, nor of killed ones.
#[test]
fn files_do_not_pile_up() {
    let (_home, dir) = home();
    filled(&dir);
    for round in 0..12 {
        if round % 3 == 2 {
            assert_eq!(elsewhere("write and die", &dir), "");
        } else {
            let db = Db::open(&dir, small()).expect("opening");
            db.put_with("key", "value", WriteOptions::sync()).expect("writing");
            db.compact_all().expect("compacting");
        }
        let db = Db::open(&dir, small()).expect("opening");
        let tables: u64 = db.stats().levels.iter().map(|level| level.tables).sum();
        // In addition to the tables: LOCK, CURRENT, OPTIONS, a manifest and a log.
        assert_eq!(names(&dir).len() as u64, tables + 5, "{:?}", names(&dir));
    }
}

/// The lock is released with the last handle, at once, however busy its threads were.
#[test]
fn a_closed_store_can_be_opened_at_once() {
    let (_home, dir) = home();
    let start = Instant::now();
    for round in 0..50 {
        let options = options(1, Arc::new(DiskVfs)).background_threads(2);
        let db = Db::open(&dir, options).unwrap_or_else(|error| panic!("round {round}: {error}"));
        for number in 0..20 {
            db.put(format!("{round}/{number}"), "x".repeat(400)).expect("writing");
        }
        if round % 2 == 0 {
            db.close().expect("closing");
        }
    }
    assert!(start.elapsed() < Duration::from_secs(60));
}
