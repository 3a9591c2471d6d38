//! Mistakes that a repair must not make: write to the old store, treat newer tables as lost, or
//! lose more than the disk did.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use trommel::vfs::{Access, Layer, ReadFile, Vfs};
use trommel::{Db, Degraded, Error, Options, RepairOptions};
use trommel_sim::MemoryVfs;

use crate::repair::{examine, is_named};
use crate::stores::{DIR, Injury, Left, Store, disk_of, path, small};

/// A disk with an unreadable range in one file.
#[derive(Debug)]
struct BadPlace {
    below: Arc<MemoryVfs>,
    file: PathBuf,
    at: u64,
}

#[derive(Debug)]
struct BadFile {
    below: Arc<dyn ReadFile>,
    at: u64,
}

impl ReadFile for BadFile {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        if (offset..offset + buffer.len() as u64).contains(&self.at) {
            return Err(io::Error::other("bad sector"));
        }
        self.below.read_at(offset, buffer)
    }

    fn bytes(&self) -> u64 {
        self.below.bytes()
    }

    fn mapped(&self) -> Option<&[u8]> {
        None
    }
}

impl Layer for BadPlace {
    fn below(&self) -> &dyn Vfs {
        &*self.below
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn ReadFile>> {
        let below = self.below.open(path, access)?;
        let is_it = path == self.file;
        Ok(if is_it { Arc::new(BadFile { below, at: self.at }) } else { below })
    }
}

fn table_of(store: &Store) -> (OsString, Vec<u8>) {
    let is_table = |name: &OsString| name.to_string_lossy().ends_with(".sst");
    let tables = store.files.iter().filter(|(name, _)| is_table(name));
    tables.max_by_key(|(_, bytes)| bytes.len()).cloned().expect("a table")
}

/// An unreadable range loses as much as a flipped bit there: for repair, for verify, and for an
/// iteration over what is intact.
#[test]
fn a_bad_place_costs_one_block() {
    let store = Store::filled(Left::Closed);
    let (name, bytes) = table_of(&store);
    for at in (0..bytes.len() - 200).step_by(151) {
        let case = format!("byte {at} of {name:?}");
        let flipped = store.hurt(&name, Injury::Flipped(at)).expect("it changed");
        let bad = Arc::new(BadPlace { below: store.disk(), file: path(&name), at: at as u64 });
        let how = RepairOptions::default();
        let one = Db::repair(DIR, "new", small(&flipped), how).expect("repairing");
        let other = Db::repair(DIR, "new", small(&bad), how).expect("repairing");
        assert_eq!(one.in_doubt, other.in_doubt, "{case}");
        assert_eq!(
            (one.saved.entries, one.unreadable),
            (other.saved.entries, other.unreadable),
            "{case}"
        );
        assert_eq!(one.is_complete(), other.is_complete(), "{case}");
        examine(&store, &bad, &other, &case);
        let places = |options: Options| {
            let found = Db::verify_dir(DIR, &options).expect("verifying").damage;
            found
                .into_iter()
                .map(|damage| (damage.file, damage.offset, damage.keys))
                .collect::<Vec<_>>()
        };
        assert_eq!(places(small(&flipped)), places(small(&bad)), "{case}");
    }
    let bad = Arc::new(BadPlace { below: store.disk(), file: path(&name), at: 10 });
    let db = Db::open_degraded(DIR, small(&bad), Degraded::Certain).expect("opening");
    let spans = db.healthy(..).expect("walking").in_doubt();
    let lost = store.history.keys().filter(|key| spans.iter().any(|keys| keys.holds(key))).count();
    assert!((1..store.history.len() / 4).contains(&lost), "{lost}: {spans:?}");
}

/// The loss is counted: at least as many entries as there are missing keys.
#[test]
fn what_is_lost_is_counted() {
    let store = Store::filled(Left::Closed);
    let (name, _) = table_of(&store);
    let vfs = store.hurt(&name, Injury::Deleted).expect("it changed");
    let report = Db::repair(DIR, "new", small(&vfs), RepairOptions::default()).expect("repairing");
    let whole = report.unreadable;
    assert!(whole > 10, "{report:?}");
    let kept = examine(&store, &vfs, &report, "a table is gone");
    assert!(kept.missing + kept.older + kept.back <= whole, "{report:?}");
    let vfs = store.hurt(&name, Injury::Flipped(10)).expect("it changed");
    let report = Db::repair(DIR, "new", small(&vfs), RepairOptions::default()).expect("repairing");
    assert!((1..whole).contains(&report.unreadable), "{report:?}");
    let sound = Db::repair(DIR, "new", small(&store.disk()), RepairOptions::default());
    assert_eq!(sound.expect("repairing").unreadable, 0);
}

/// A table of a newer version is intact: a repair would lose it, and returns an error. Before, a
/// key that it deletes reappeared, and was called certain.
#[test]
fn what_is_newer_is_not_repaired() {
    for with_manifest in [true, false] {
        let mut store = Store::filled(Left::Closed);
        if !with_manifest {
            store.files.retain(|(name, _)| !name.to_string_lossy().starts_with("MANIFEST"));
        }
        let (name, _) = table_of(&store);
        let (_, bytes) = store.files.iter_mut().find(|(other, _)| *other == name).expect("it");
        let at = bytes.len() - 12;
        let version = u16::from_le_bytes([bytes[at], bytes[at + 1]]) + 1;
        bytes[at..at + 2].copy_from_slice(&version.to_le_bytes());
        bytes[at + 2..at + 4].copy_from_slice(&(!version).to_le_bytes());
        let vfs = store.disk();
        for only_certain in [false, true] {
            let how = RepairOptions::default().only_certain(only_certain);
            let refused = Db::repair(DIR, "new", small(&vfs), how);
            assert!(matches!(refused, Err(Error::Unsupported { .. })), "{refused:?}");
            assert!(vfs.list(Path::new("new")).is_err(), "something was written");
        }
    }
}

/// An unreadable log is reported once.
#[test]
fn a_log_is_reported_once() {
    let store = Store::filled(Left::Killed);
    let logs = store.files.iter().filter(|(name, _)| name.to_string_lossy().ends_with(".log"));
    for (name, _) in logs {
        let bad = Arc::new(BadPlace { below: store.disk(), file: path(name), at: 0 });
        let how = RepairOptions::default().dry_run(true);
        let report = Db::repair(DIR, "new", small(&bad), how).expect("repairing");
        let noted = report.damage.iter().filter(|damage| damage.file == path(name));
        assert!(noted.count() <= 1, "{report:?}");
        assert!(is_named(&report, b"key0001") || report.damage.is_empty(), "{report:?}");
    }
}

/// An existing target directory is rejected before anything of the old store is read.
#[test]
fn the_new_place_is_looked_at_first() {
    let store = Store::filled(Left::Closed);
    let files = store.files.iter().filter(|(name, _)| !name.to_string_lossy().ends_with(".sst"));
    let vfs = disk_of(&files.cloned().collect());
    vfs.create_dir(Path::new("taken")).expect("making a directory");
    vfs.create(Path::new("taken/x")).expect("creating");
    for dry_run in [true, false] {
        let how = RepairOptions::default().dry_run(dry_run);
        let refused = Db::repair(DIR, "taken", small(&vfs), how);
        assert!(matches!(refused, Err(Error::InvalidOption { .. })), "{dry_run}: {refused:?}");
    }
}

/// No path and no link makes a repair write to the store that it repairs.
#[cfg(unix)]
#[test]
fn no_way_leads_into_the_old_store() {
    let home = tempfile::tempdir().expect("a directory");
    let home = home.path().canonicalize().expect("it is there");
    let (old, link) = (home.join("old"), home.join("link"));
    let db = Db::open(&old, Options::default()).expect("opening");
    db.put("a", "1").expect("writing");
    db.close().expect("closing");
    std::os::unix::fs::symlink(&old, &link).expect("linking");
    let here = std::env::current_dir().expect("a working directory");
    let up: PathBuf = here.components().skip(1).map(|_| "..").collect();
    let relative = up.join(old.strip_prefix("/").expect("it is absolute"));
    let names = || -> Vec<OsString> {
        let listed = std::fs::read_dir(&old).expect("listing");
        let mut names: Vec<_> = listed.map(|entry| entry.expect("an entry").file_name()).collect();
        names.sort();
        names
    };
    let before = names();
    for from in [&old, &link, &relative] {
        for to in [&old, &link, &relative] {
            for to in [to.clone(), to.join("sub"), to.join("../old/sub"), to.join("no/../sub")] {
                let refused = Db::repair(from, &to, Options::default(), RepairOptions::default());
                assert!(refused.is_err(), "{from:?} {to:?}: {refused:?}");
                assert_eq!(names(), before, "{from:?} {to:?}");
            }
        }
        let to = home.join("new");
        let report = Db::repair(from, &to, Options::default(), RepairOptions::default());
        assert!(report.expect("repairing").is_complete());
        std::fs::remove_dir_all(to).expect("removing");
    }
}
