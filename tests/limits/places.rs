//! Directories and mounts that reject writes, and users without permissions.

use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use trommel::{Db, Error};

use crate::stage::counted;
use crate::store::{Known, tiny};

fn written(store: &Path) -> Known {
    let db = Db::open(store, tiny()).unwrap();
    let mut known = Known::default();
    assert!(known.fill(&db, 500).is_none());
    db.close().unwrap();
    known
}

/// The names and lengths of all files.
fn listed(dir: &Path) -> Vec<(String, u64)> {
    let entries = std::fs::read_dir(dir).unwrap().map(Result::unwrap);
    let mut all: Vec<_> = entries
        .map(|entry| (format!("{:?}", entry.file_name()), entry.metadata().unwrap().len()))
        .collect();
    all.sort();
    all
}

/// Opening fails with the system's error; read-only it opens, and changes nothing.
fn only_readable(store: &Path, known: Known) {
    let before = listed(store);
    match Db::open(store, tiny()).map(|_| ()) {
        Err(error @ Error::Io { .. }) => println!("refused: {error}"),
        other => panic!("{other:?}"),
    }
    match Db::open(store.join("new"), tiny()).map(|_| ()) {
        Err(error @ Error::Io { .. }) => println!("refused: {error}"),
        other => panic!("{other:?}"),
    }
    counted("refusals", 2);
    let db = Db::open_read_only(store, tiny()).unwrap();
    known.check(&db);
    db.verify().unwrap();
    db.close().unwrap();
    assert_eq!(listed(store), before, "a read-only open changed the directory");
}

fn mount(dir: &Path) {
    let store = dir.join("store");
    let mut known = written(&store);
    let remount = |how: &str| {
        let mut command = std::process::Command::new("mount");
        command.args(["-o", &format!("remount,{how}")]).arg(dir);
        assert!(command.status().unwrap().success(), "remount {how}");
    };
    remount("ro");
    only_readable(&store, known);
    remount("rw");
    known.check_again(&store, tiny());
}

fn directory(dir: &Path) {
    let store = dir.join("store");
    let mut known = written(&store);
    set_permissions(&store, Permissions::from_mode(0o555)).unwrap();
    for entry in std::fs::read_dir(&store).unwrap() {
        set_permissions(entry.unwrap().path(), Permissions::from_mode(0o444)).unwrap();
    }
    only_readable(&store, known);
    set_permissions(&store, Permissions::from_mode(0o755)).unwrap();
    for entry in std::fs::read_dir(&store).unwrap() {
        set_permissions(entry.unwrap().path(), Permissions::from_mode(0o644)).unwrap();
    }
    known.check_again(&store, tiny());
}

/// A user at the limit of threads: callers do the store's background work, until threads can be
/// started again.
fn threads(dir: &Path) {
    let store = dir.join("store");
    let mut known = written(&store);
    let limits = getrlimit(Resource::Nproc);
    setrlimit(Resource::Nproc, Rlimit { current: Some(0), ..limits }).unwrap();
    let db = Db::open(&store, tiny().background_threads(4)).unwrap();
    known.check(&db);
    let flushes = || db.stats().background.flushes.count;
    assert!(known.fill(&db, known.written + 1_000).is_none());
    db.flush().unwrap();
    db.wait_idle().unwrap();
    let without = flushes();
    assert!(without > 5, "{without} flushes without a thread");
    counted("threads_not_started", 1);
    setrlimit(Resource::Nproc, limits).unwrap();
    assert!(known.fill(&db, known.written + 1_000).is_none());
    db.wait_idle().unwrap();
    assert!(flushes() > without, "no flush with threads");
    known.check(&db);
    drop(db);
    known.check_again(&store, tiny());
}

scenarios! {
    a_mount_is_read_only in Small: mount;
    a_directory_may_not_be_written in Nobody: directory;
    no_more_threads_may_be_started in Nobody: threads;
}
