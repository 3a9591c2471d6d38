//! Directories and names of every kind: new files are accessible to the owner only, foreign files
//! are left alone, and every path to the directory works.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use trommel::{Db, Error, Options, RepairOptions};

use crate::common::{files, fill, home, small};

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).expect("it is there").permissions().mode() & 0o7777
}

fn is_private(dir: &Path) {
    assert_eq!(mode(dir), 0o700, "{}", dir.display());
    for path in files(dir, "") {
        assert_eq!(mode(&path), 0o600, "{}", path.display());
    }
}

#[test]
fn all_that_is_made_is_for_its_owner_only() {
    let (home, dir) = home();
    fill(&dir);
    is_private(&dir);
    let db = Db::open(&dir, small()).expect("opening");
    db.compact_all().expect("compacting");
    is_private(&dir);
    let copy = home.path().join("copy");
    db.checkpoint(&copy).expect("a checkpoint");
    is_private(&copy);
    db.close().expect("closing");
    let new = home.path().join("new");
    Db::repair(&dir, &new, small(), RepairOptions::default()).expect("repairing");
    is_private(&new);
}

#[test]
fn paths_of_any_bytes_and_with_spaces_will_do() {
    let (home, _) = home();
    for name in
        [&b"with space"[..], b"\xff\xfe not utf-8", b"-dash", "\u{fc}n\u{ef}".as_bytes(), b"a\nb"]
    {
        let dir = home.path().join(OsStr::from_bytes(name));
        fill(&dir);
        let db = Db::open_read_only(&dir, small()).expect("opening");
        assert_eq!(db.get("last").expect("reading").as_deref(), Some(&b"one"[..]));
        drop(db);
        assert!(Db::verify_dir(&dir, &small()).expect("verifying").is_sound());
        Db::destroy(&dir, &small()).expect("destroying");
        assert!(!dir.exists());
    }
}

#[test]
fn a_store_behind_a_link_is_the_same_store() {
    let (home, dir) = home();
    fill(&dir);
    let link = home.path().join("link");
    symlink(&dir, &link).expect("a link");
    let dotted = home.path().join("link").join("..").join("db").join(".");
    let db = Db::open(&link, small()).expect("a link to a directory");
    for way in [&dir, &link, &dotted] {
        let second = Db::open(way, small()).map(drop);
        assert!(matches!(second, Err(Error::Locked { .. })), "{}: {second:?}", way.display());
        let reader = Db::open_read_only(way, small()).map(drop);
        assert!(matches!(reader, Err(Error::Locked { .. })), "{}: {reader:?}", way.display());
    }
    drop(db);
    Db::open(&dotted, small()).expect("it is free").close().expect("closing");
}

#[test]
fn a_hard_linked_table_is_a_table() {
    let (home, dir) = home();
    fill(&dir);
    for (nth, table) in files(&dir, ".sst").iter().enumerate() {
        fs::hard_link(table, home.path().join(format!("second{nth}"))).expect("a hard link");
    }
    let db = Db::open(&dir, small()).expect("opening");
    db.verify().expect("sound");
    db.compact_all().expect("compacting");
    assert_eq!(db.get("key001").expect("reading").map(|value| value.len()), Some(60));
}

#[test]
fn what_is_not_the_stores_is_never_read_and_never_removed() {
    let (_home, dir) = home();
    fill(&dir);
    let names: Vec<&[u8]> = vec![
        b".DS_Store",
        b"._000001.sst",
        b"._MANIFEST-000001",
        b"7.sst",
        b"000007.sst~",
        b"000007.SST",
        b"CURRENT.bak",
        b"\xff\xfe.sst",
        b"MANIFEST-7",
        b"notes.txt",
        b"0000000007.log",
        b"18446744073709551616.sst",
    ];
    for name in &names {
        fs::write(dir.join(OsStr::from_bytes(name)), b"somebody's").expect("writing");
    }
    fs::create_dir(dir.join("lost+found")).expect("a directory");
    fs::create_dir(dir.join("000999.sst")).expect("a directory");
    let all = || {
        let mut there: Vec<_> =
            names.iter().map(|name| dir.join(OsStr::from_bytes(name))).collect();
        there.extend(["lost+found", "000999.sst"].map(|name| dir.join(name)));
        there.iter().all(|path| fs::symlink_metadata(path).is_ok())
    };
    for _ in 0..2 {
        let db = Db::open(&dir, small().compaction(|c| c.auto_compaction(true))).expect("opening");
        db.put("more", "of it").expect("writing");
        db.compact_all().expect("compacting");
        db.close().expect("closing");
        assert!(all());
    }
    assert!(Db::verify_dir(&dir, &small()).expect("verifying").is_sound());
    let report = Db::destroy(&dir, &small()).expect("destroying");
    assert!(all() && report.left.len() == names.len() + 2, "{:?}", report.left);
}

/// The environment variable that identifies the child, and holds its directory.
const CHILD: &str = "TROMMEL_BOUNDARY_CHILD";

/// Not a test of its own: opens a store by a relative path, changes the working directory, and
/// continues.
#[test]
fn wanderer() {
    let Some(home) = std::env::var_os(CHILD) else { return };
    std::env::set_current_dir(&home).expect("going there");
    let db = Db::open("db", small()).expect("opening");
    db.put("before", "1").expect("writing");
    std::env::set_current_dir("elsewhere").expect("going elsewhere");
    for number in 0..300 {
        db.put(format!("key{number:03}"), "w".repeat(60)).expect("writing");
    }
    db.flush().expect("flushing");
    db.compact_all().expect("compacting");
    db.verify().expect("sound");
    db.checkpoint("copy").expect("a checkpoint, where we are now");
    assert_eq!(db.get("before").expect("reading").as_deref(), Some(&b"1"[..]));
    db.close().expect("closing");
}

#[test]
fn a_relative_path_means_the_directory_it_meant_when_the_store_was_opened() {
    let (home, dir) = home();
    fs::create_dir(home.path().join("elsewhere")).expect("a directory");
    let ran = Command::new(std::env::current_exe().expect("this program"))
        .args(["paths::wanderer", "--exact"])
        .env(CHILD, home.path())
        .output()
        .expect("a child");
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stdout));
    let beside = files(&home.path().join("elsewhere"), "");
    assert_eq!(beside, [home.path().join("elsewhere").join("copy")]);
    for dir in [&dir, &beside[0]] {
        let db = Db::open_read_only(dir, Options::default()).expect("opening");
        assert_eq!(db.get("key299").expect("reading").map(|value| value.len()), Some(60));
        db.verify().expect("sound");
    }
}
