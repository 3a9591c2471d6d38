//! Backups of a process that changes its directory.

use std::fs;
use std::path::Path;
use std::process::Command;

use trommel::{Db, Options};
use trommel_backup::{Repository, target_at};

/// Marks the child process, and names its directory.
const CHILD: &str = "TROMMEL_BACKUP_CHILD";

/// Not a test of its own: opens a store by a relative path, changes to a directory in which that
/// path names another store, and creates backups.
#[test]
fn wanderer() {
    let Some(home) = std::env::var_os(CHILD) else { return };
    std::env::set_current_dir(&home).unwrap();
    let db = Db::open("db", Options::default()).unwrap();
    db.put("k", "of the first").unwrap();
    std::env::set_current_dir("elsewhere").unwrap();
    let repository = Repository::open_or_create(target_at("backups").unwrap()).unwrap();
    repository.create(&db, &()).unwrap();
    // A repository may be inside a directory that only has the store's relative path.
    let beside = Repository::open_or_create(target_at("db/backups").unwrap()).unwrap();
    beside.create(&db, &()).unwrap();
    let inside = Repository::open_or_create(target_at("../db/backups").unwrap()).unwrap();
    assert!(inside.create(&db, &()).is_err(), "it lies in the store");
    repository.restore(1, "restored", &()).unwrap();
    let restored = Db::open("restored", Options::default()).unwrap();
    assert_eq!(restored.get("k").unwrap().unwrap(), b"of the first"[..]);
}

#[test]
fn a_backup_ignores_the_current_directory() {
    let home = tempfile::tempdir().unwrap();
    let other = home.path().join("elsewhere/db");
    fs::create_dir_all(&other).unwrap();
    let ran = Command::new(std::env::current_exe().unwrap())
        .args(["paths::wanderer", "--exact"])
        .env(CHILD, home.path())
        .output()
        .unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stdout));
    let left = |dir: &Path| {
        let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name());
        entries.filter(|name| name.to_string_lossy().starts_with('.')).count()
    };
    assert_eq!((left(&other), left(&home.path().join("db"))), (0, 0));
}
