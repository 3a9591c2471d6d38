//! Foreign changes to the lock file and the directory of an open store: the owner must notice
//! before it overwrites another owner's data, and moving the store must not lose an acknowledged
//! write.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};

use trommel::vfs::{DiskVfs, Layer, Vfs};
use trommel::{Db, Error};

use crate::common::{fill, home, small};

/// Makes the store write to its manifest.
fn change(db: &Db, key: &str) -> Result<(), Error> {
    db.put(key, "1")?;
    db.flush()
}

fn is_reported(result: Result<(), Error>, case: &str) {
    let reported = result.expect_err(case).to_string();
    assert!(
        reported.contains("LOCK") && reported.contains("removed or replaced"),
        "{case}: {reported}"
    );
}

/// Two processes used to have one store open, and each removed the other's files.
#[test]
fn an_owner_whose_lock_was_replaced_writes_no_more() {
    let (_home, dir) = home();
    fill(&dir);
    let first = Db::open(&dir, small()).expect("opening");
    change(&first, "before").expect("all is well");
    fs::remove_file(dir.join("LOCK")).expect("removing");
    let second = Db::open(&dir, small()).expect("nobody can tell it");
    change(&second, "second").expect("it is the owner now");
    is_reported(change(&first, "first"), "a flush");
    let refused = first.put("more", "of it");
    assert!(matches!(refused, Err(Error::Poisoned { .. })), "{refused:?}");
    drop(first);
    change(&second, "third").expect("it is the owner still");
    second.close().expect("closing");
    assert!(Db::verify_dir(&dir, &small()).expect("verifying").is_sound());
    let db = Db::open(&dir, small()).expect("opening");
    for key in ["before", "second", "third", "last"] {
        assert!(db.get(key).expect("reading").is_some(), "{key}");
    }
}

#[test]
fn each_way_to_lose_a_lock_is_noticed() {
    let replace = |path: &Path| {
        fs::remove_file(path).expect("removing");
        fs::write(path, "").expect("writing");
    };
    let rename = |path: &Path| fs::rename(path, path.with_extension("old")).expect("renaming");
    let remove = |path: &Path| fs::remove_file(path).expect("removing");
    let ways: [&dyn Fn(&Path); 3] = [&replace, &rename, &remove];
    for (name, lose) in ["replaced", "renamed", "removed"].into_iter().zip(ways) {
        let (_home, dir) = home();
        fill(&dir);
        let db = Db::open(&dir, small()).expect("opening");
        db.put("written", "1").expect("writing");
        lose(&dir.join("LOCK"));
        assert!(db.get("last").expect("reading").is_some(), "{name}: reads go on");
        is_reported(change(&db, "more"), name);
        drop(db);
        let db = Db::open(&dir, small()).expect("opening");
        for key in ["written", "more", "last"] {
            assert!(db.get(key).expect("reading").is_some(), "{name}: {key} was acknowledged");
        }
        lose(&dir.join("LOCK"));
        is_reported(db.close(), &format!("{name}, closing"));
    }
}

/// Touching a lock file, or writing to it, does not replace it.
#[test]
fn a_lock_file_that_is_written_to_is_still_the_lock() {
    let (_home, dir) = home();
    fill(&dir);
    let db = Db::open(&dir, small()).expect("opening");
    fs::write(dir.join("LOCK"), "somebody's words").expect("writing");
    change(&db, "more").expect("it is held");
    let second = Db::open(&dir, small()).map(drop);
    assert!(matches!(second, Err(Error::Locked { .. })), "{second:?}");
    db.close().expect("closing");
}

/// Renaming a directory invalidates the store's paths: no write is acknowledged that is not in it.
#[test]
fn a_store_that_is_renamed_while_open_loses_nothing_acknowledged() {
    let (home, dir) = home();
    fill(&dir);
    let db = Db::open(&dir, small()).expect("opening");
    let moved = home.path().join("moved");
    fs::rename(&dir, &moved).expect("renaming");
    let mut acknowledged = Vec::new();
    for number in 0..3000 {
        let key = format!("new{number:04}");
        if db.put(&key, "w".repeat(60)).is_ok() {
            acknowledged.push(key);
        }
    }
    assert!(db.flush().is_err(), "there is nothing where the store was");
    assert!(acknowledged.len() < 3000, "a new log cannot be made there");
    assert!(!dir.exists(), "nothing is made in its old place");
    drop(db);
    let db = Db::open(&moved, small()).expect("opening");
    for key in acknowledged.iter().map(String::as_str).chain(["last", "key001"]) {
        assert!(db.get(key).expect("reading").is_some(), "{key}");
    }
}

/// Another store at its path is not written to.
#[test]
fn another_store_in_the_place_of_an_open_one_is_left_alone() {
    let (home, dir) = home();
    fill(&dir);
    let other = home.path().join("other");
    fill(&other);
    let db = Db::open(&dir, small()).expect("opening");
    fs::rename(&dir, home.path().join("moved")).expect("renaming");
    fs::rename(&other, &dir).expect("renaming");
    let listing = || {
        let entries = fs::read_dir(&dir).expect("listing").map(|e| e.expect("an entry"));
        let mut all: Vec<_> = entries.map(|e| (e.file_name(), fs::read(e.path()).ok())).collect();
        all.sort();
        all
    };
    let before = listing();
    is_reported(change(&db, "more"), "a flush");
    drop(db);
    assert_eq!(listing(), before);
}

/// An iterator keeps tables open that compactions have replaced. The store used to remove the files
/// at their paths when the iterator was dropped, even if they belonged to another store by then.
#[test]
fn what_a_walk_held_is_not_removed_from_another_store() {
    let (home, dir) = home();
    fill(&dir);
    let db = Db::open(&dir, small()).expect("opening");
    let other = home.path().join("other");
    db.checkpoint(&other).expect("a copy, whose tables have the same names");
    let mut iterator = db.iter();
    iterator.next().expect("an entry").expect("reading");
    change(&db, "more").expect("a flush");
    db.compact_all().expect("merging");
    fs::rename(&dir, home.path().join("moved")).expect("renaming");
    fs::rename(&other, &dir).expect("renaming");
    drop(iterator);
    assert!(db.put("more", "of it").is_ok(), "nothing is known yet");
    let _ = db.wait_idle();
    db.close().expect_err("its place is another's");
    assert!(Db::verify_dir(&dir, &small()).expect("verifying").is_sound());
}

/// When a new table's name is to be made durable, puts `other` in the place of its directory, with
/// a table of this name, and has no file descriptors left.
#[derive(Debug)]
struct Swap {
    other: PathBuf,
}

impl Layer for Swap {
    fn below(&self) -> &dyn Vfs {
        &DiskVfs
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let entries = DiskVfs.list(dir)?.into_iter().map(|entry| entry.name);
        let new = entries
            .filter(|name| Path::new(name).extension().is_some_and(|of| of == "sst"))
            .find(|name| self.other.exists() && !self.other.join(name).exists());
        let moved = self.other.with_extension("moved");
        if let Some(new) = new {
            fs::rename(dir, &moved)?;
            fs::rename(&self.other, dir)?;
            fs::write(dir.join(new), "another's")?;
        }
        if moved.exists() {
            return Err(io::Error::from_raw_os_error(libc::EMFILE));
        }
        DiskVfs.sync_dir(dir)
    }
}

/// The table of a failed job used to be removed by its path, even if another store's was there.
#[test]
fn what_a_failed_job_made_is_not_removed_from_another_store() {
    let (home, dir) = home();
    fill(&dir);
    let other = home.path().join("other");
    let options = small().vfs(Arc::new(Swap { other: other.clone() }));
    let db = Db::open(&dir, options).expect("opening");
    db.checkpoint(&other).expect("a copy");
    change(&db, "more").expect_err("its place is another's");
    drop(db);
    assert!(!other.exists(), "the directories were not swapped");
    let read = |entry: io::Result<fs::DirEntry>| fs::read(entry.expect("an entry").path()).ok();
    let mut files = fs::read_dir(&dir).expect("listing").filter_map(read);
    assert!(files.any(|bytes| bytes == b"another's"));
}

#[test]
fn a_store_that_is_deleted_while_open_is_an_error_and_stays_deleted() {
    let (_home, dir) = home();
    fill(&dir);
    let db = Db::open(&dir, small()).expect("opening");
    fs::remove_dir_all(&dir).expect("removing");
    assert!(change(&db, "more").is_err());
    assert!(db.put("again", "1").is_err(), "nothing more is acknowledged");
    drop(db);
    assert!(!dir.exists());
}
