//! Extreme paths and names: very long ones, loops of links, names in another case, and empty files
//! with the store's own names.

use std::fs;
use std::os::unix::fs::symlink;

use trommel::{Db, Degraded, RepairOptions};

use crate::common::{files, fill, home, small};

#[test]
fn a_store_works_up_to_the_longest_name_and_is_refused_beyond() {
    let (home, _) = home();
    let longest = home.path().join("n".repeat(255));
    fill(&longest);
    assert!(Db::verify_dir(&longest, &small()).expect("verifying").is_sound());
    let beyond = home.path().join("n".repeat(256));
    assert!(Db::open(&beyond, small()).is_err());
    let mut deep = home.path().to_path_buf();
    while deep.as_os_str().len() < 5000 {
        deep.push("d".repeat(200));
    }
    assert!(Db::open(&deep, small()).is_err(), "longer than any path may be");
    assert!(Db::verify_dir(&deep, &small()).is_err());
    let repaired = Db::repair(&longest, &deep, small(), RepairOptions::default());
    assert!(repaired.is_err(), "{repaired:?}");
    assert!(Db::verify_dir(&longest, &small()).expect("verifying").is_sound());
}

#[test]
fn a_loop_of_links_is_an_error_at_once() {
    let (home, dir) = home();
    let (one, two) = (home.path().join("one"), home.path().join("two"));
    symlink(&one, &two).expect("a link");
    symlink(&two, &one).expect("a link");
    for path in [&one, &one.join("db")] {
        assert!(Db::open(path, small()).is_err());
        assert!(Db::open_read_only(path, small()).is_err());
        assert!(Db::open_degraded(path, small(), Degraded::Certain).is_err());
        assert!(Db::verify_dir(path, &small()).is_err());
        assert!(Db::destroy(path, &small()).is_err());
        fill(&dir);
        assert!(Db::repair(&dir, path, small(), RepairOptions::default()).is_err());
        assert!(
            Db::repair(path, home.path().join("new"), small(), RepairOptions::default()).is_err()
        );
    }
    assert!(fs::symlink_metadata(&one).expect("it is there").is_symlink());
}

/// Two stores whose names differ only in case are distinct, or one store on a case-insensitive
/// system.
#[test]
fn names_in_another_case_are_not_the_stores() {
    let (_home, dir) = home();
    fill(&dir);
    let names = ["current", "lock", "Manifest-000001", "000001.SST", "000009.Log", "unfinished"];
    for name in names {
        fs::write(dir.join(name), "somebody's").expect("writing");
    }
    for _ in 0..2 {
        let db = Db::open(&dir, small()).expect("opening");
        db.compact_all().expect("compacting");
        db.close().expect("closing");
    }
    for name in names {
        assert_eq!(fs::read(dir.join(name)).expect("it is there"), b"somebody's", "{name}");
    }
    assert_eq!(Db::verify_dir(&dir, &small()).expect("verifying").foreign.len(), names.len());
}

/// Whichever file is emptied, no call treats the store as intact.
#[test]
fn an_empty_file_in_the_place_of_a_full_one_is_damage() {
    for like in ["CURRENT", "MANIFEST", ".log", ".sst"] {
        let (home, dir) = home();
        fill(&dir);
        let file = files(&dir, like).pop().expect("such a file");
        fs::write(&file, "").expect("emptying");
        assert!(Db::open(&dir, small()).is_err(), "{like}");
        assert!(Db::open_read_only(&dir, small()).is_err(), "{like}");
        let verified = Db::verify_dir(&dir, &small());
        assert!(!verified.is_ok_and(|report| report.is_sound()), "{like}");
        let new = home.path().join("new");
        let report = Db::repair(&dir, &new, small(), RepairOptions::default()).expect("repairing");
        assert!(!report.damage.is_empty(), "{like}: {report:?}");
        assert_eq!(fs::read(&file).expect("it is there"), b"", "{like}: it was written");
    }
}

/// An empty file with a name of the store's loses no data, whatever call reads it.
#[test]
fn an_empty_file_with_a_name_of_the_stores_costs_nothing() {
    for name in ["000777.sst", "MANIFEST-000777", "CURRENT.tmp", "000777.log"] {
        let (home, dir) = home();
        fill(&dir);
        fs::write(dir.join(name), "").expect("writing");
        let new = home.path().join("new");
        Db::repair(&dir, &new, small(), RepairOptions::default()).expect("repairing");
        let mended = match Db::open(&dir, small()) {
            Ok(db) => {
                db.close().expect("closing");
                &dir
            }
            // The error must name the file; everything else must still be readable.
            Err(error) => {
                assert!(error.to_string().contains(name), "{name}: {error}");
                &new
            }
        };
        let db = Db::open(mended, small()).expect("opening");
        assert_eq!(db.iter().count(), 67, "{name}");
        assert_eq!(db.get("last").expect("reading").as_deref(), Some(&b"one"[..]), "{name}");
    }
}
