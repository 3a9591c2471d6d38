//! Wrong input by a user: each error says what happened and what to do.

use std::path::Path;
use std::process::Command;

use trommel::{Compression, Db, Error, ErrorKind, FilterPolicy, Options};
use trommel_tests::scratch::scratch;

fn small() -> Options {
    Options::default().reads(|r| r.cache_bytes(1 << 20)).background_threads(0)
}

/// A store with some tables.
fn store_in(dir: &Path, tables: usize) {
    let db = Db::open(
        dir,
        small().compaction(|c| c.auto_compaction(false).l0_stop(1000).l0_slowdown(1000)),
    )
    .expect("a new store");
    for table in 0..tables {
        db.put(format!("key {table:03}"), "value").expect("room");
        db.flush().expect("room");
    }
    db.close().expect("room");
}

/// The error of an open, which contains all `parts`.
fn refusal(dir: &Path, options: Options, parts: &[&str]) -> Error {
    let error = Db::open(dir, options).err().unwrap_or_else(|| panic!("{parts:?} opened"));
    let text = error.to_string();
    println!("{text}");
    for part in parts.iter().chain([&&*dir.to_string_lossy()]) {
        assert!(text.contains(part), "\"{text}\" does not say \"{part}\"");
    }
    error
}

#[test]
fn a_mistyped_filter_is_explained() {
    for (spec, parts) in [
        ("pared:23.4", ["pared", "for example"]),
        ("paired:abc", ["abc", "for example"]),
        ("paired", ["paired", "for example"]),
        ("L9=paired:10", ["the deepest is L6", "for example"]),
    ] {
        let error = spec.parse::<FilterPolicy>().expect_err("a mistake");
        println!("{error}");
        assert_eq!(error.kind(), ErrorKind::Usage);
        for part in parts {
            assert!(error.to_string().contains(part), "{error}");
        }
    }
}

#[test]
fn a_directory_that_is_no_store_is_left_alone() {
    let dir = scratch();
    std::fs::write(dir.path().join("letter.txt"), "dear").expect("room");
    let error = refusal(dir.path(), small(), &["not a store", "letter.txt", "empty directory"]);
    assert_eq!(error.kind(), ErrorKind::Usage);
    assert_eq!(std::fs::read_dir(dir.path()).expect("a directory").count(), 1, "nothing was added");
}

#[test]
fn a_file_is_no_directory() {
    let dir = scratch();
    let file = dir.path().join("file");
    std::fs::write(&file, "x").expect("room");
    refusal(&file, small(), &["is a file, not a directory"]);
    let below = dir.path().join("file/below");
    refusal(&below, small(), &["something above it", "is a file, not a directory"]);
}

#[test]
fn a_missing_store_is_not_created_by_default() {
    let dir = scratch();
    let missing = dir.path().join("missing");
    refusal(
        &missing,
        small().opening(|o| o.create_if_missing(false)),
        &["there is no such directory"],
    );
    refusal(&missing, small().opening(|o| o.read_only(true)), &["there is no such directory"]);
    assert!(!missing.exists());
    refusal(dir.path(), small().opening(|o| o.create_if_missing(false)), &["holds no CURRENT"]);
}

#[test]
fn a_second_open_is_refused() {
    let dir = scratch();
    let db = Db::open(dir.path(), small()).expect("a new store");
    let error = refusal(dir.path(), small(), &["open elsewhere", "close it"]);
    assert_eq!(error.kind(), ErrorKind::Retry);
    db.close().expect("room");
    Db::open(dir.path(), small()).expect("free again").close().expect("room");
}

#[test]
fn a_damaged_table_is_named() {
    let dir = scratch();
    store_in(dir.path(), 1);
    let tables = std::fs::read_dir(dir.path())
        .expect("a directory")
        .filter_map(|entry| Some(entry.ok()?.path()));
    let table = tables
        .into_iter()
        .find(|path| path.extension().is_some_and(|e| e == "sst"))
        .expect("a table");
    let mut bytes = std::fs::read(&table).expect("a small file");
    bytes[3] ^= 1;
    std::fs::write(&table, bytes).expect("room");
    let db = Db::open(dir.path(), small()).expect("tables are read when needed");
    for error in [db.get("key 000").expect_err("damaged"), db.verify().expect_err("damaged")] {
        println!("{error}");
        assert_eq!(error.kind(), ErrorKind::RestoreData);
        let text = error.to_string();
        let parts = [&*table.to_string_lossy(), "byte 0", "restore"];
        assert!(parts.iter().all(|part| text.contains(part)), "{text}");
    }
}

#[cfg(unix)]
#[test]
fn what_is_no_regular_file_is_never_waited_for() {
    for make in ["mkfifo", "mkdir"] {
        let dir = scratch();
        store_in(dir.path(), 1);
        let stray = dir.path().join("000099.sst");
        assert!(Command::new(make).arg(&stray).status().expect("a shell tool").success());
        let db = Db::open(dir.path(), small()).expect("a stranger's file changes nothing");
        assert!(db.get("key 000").expect("whole").is_some());
        db.verify().expect("whole");
        db.close().expect("room");
        assert!(stray.exists(), "what is not ours stays");
        let table = std::fs::read_dir(dir.path())
            .expect("a directory")
            .filter_map(|e| Some(e.ok()?.path()));
        let mut table =
            table.into_iter().filter(|p| p.is_file() && p.extension().is_some_and(|e| e == "sst"));
        let table = table.next().expect("a table");
        assert!(Command::new("rm").arg(&table).status().expect("a shell tool").success());
        assert!(Command::new(make).arg(&table).status().expect("a shell tool").success());
        let name = table.file_name().expect("a name").to_string_lossy().into_owned();
        let error = refusal(dir.path(), small(), &[&name]);
        assert_eq!(error.kind(), ErrorKind::RestoreData);
    }
}

/// More tables than the process can open files, and an option that would open them all.
#[cfg(unix)]
#[test]
fn few_file_handles_are_enough() {
    let dir = scratch();
    let options = small().compression(Compression::None).compaction(|c| c.table_bytes(1 << 10));
    let db = Db::open(dir.path(), options).expect("a new store");
    for key in 0..300 {
        db.put(format!("key {key:03}"), vec![b'v'; 600]).expect("room");
    }
    db.compact_all().expect("room");
    let tables: u64 = db.stats().levels.iter().map(|level| level.tables).sum();
    assert!(tables > 100, "{tables}");
    db.close().expect("room");
    let own = std::env::current_exe().expect("this program");
    let test = "wrong_input::works_with_few_handles";
    let script = format!("ulimit -n 64; exec \"$0\" --exact {test} --ignored --nocapture");
    let mut child = Command::new("sh");
    child.args(["-c", &script]).arg(own).env("TROMMEL_DAMAGE_DIR", dir.path());
    let output = child.output().expect("a shell");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("300 keys"), "{text}\n{output:?}");
}

#[test]
#[ignore = "the child of few_file_handles_are_enough"]
fn works_with_few_handles() {
    let Some(dir) = std::env::var_os("TROMMEL_DAMAGE_DIR") else { return };
    let db =
        Db::open(dir, small().compaction(|c| c.table_bytes(1 << 10))).expect("handles for the log");
    for key in 0..300 {
        let found = db.get(format!("key {key:03}"));
        assert!(found.as_ref().is_ok_and(Option::is_some), "{found:?}");
    }
    for entry in db.iter().rev() {
        entry.expect("handles for one table at a time");
    }
    db.verify().expect("handles for one table at a time");
    println!("{} keys", db.iter().filter(Result::is_ok).count());
    // A store whose open tables used all handles could still read, but the next new log or table
    // used to fail and poison it.
    for key in 0..300 {
        assert!(db.get(format!("key {key:03}")).expect("a handle for one table").is_some());
        db.put("last key", "value").expect("no new handle is needed");
        db.flush().expect("handles for a new log and a new table");
    }
    db.compact_all().expect("handles for new tables");
    let keys = db.iter().map(|entry| entry.expect("a handle for one table at a time"));
    assert_eq!(keys.count(), 301);
    db.close().expect("room");
}
