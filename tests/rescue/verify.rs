//! `Db::verify_dir` lists all corruption by file, also of a store that cannot be opened, and does
//! not report the effects of a crash, or foreign files, as corruption.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use trommel::vfs::Vfs as _;
use trommel::{Db, Error, Remedy, VerifyReport};
use trommel_sim::MemoryVfs;

use crate::stores::{DIR, Left, Store, contents, path, small, write};

fn verified(vfs: &Arc<MemoryVfs>) -> VerifyReport {
    Db::verify_dir(DIR, &small(vfs)).expect("verifying")
}

#[test]
fn a_sound_store_has_no_damage_and_stays_as_it_is() {
    for left in [Left::Closed, Left::Killed] {
        let store = Store::filled(left);
        let vfs = store.disk();
        let report = verified(&vfs);
        assert!(report.is_sound() && report.incomplete.is_empty(), "{left:?}: {report}");
        let is_spare = |path: &PathBuf| path.extension().is_some_and(|kind| kind == "spare");
        assert!(report.orphans.iter().all(is_spare) && report.foreign.is_empty(), "{left:?}");
        assert_eq!(report.orphans.is_empty(), left == Left::Closed, "{left:?}");
        assert!(report.tables >= 2 && report.keys > 100 && report.logs > 1, "{left:?}: {report}");
        assert_eq!(contents(&*vfs, DIR), store.files);
        let db = Db::open(DIR, small(&vfs)).expect("opening");
        assert!(db.verify_all().expect("verifying").is_sound());
    }
}

/// Any change to any file is reported. (All of a log's last record may be torn: that is reported as
/// an incomplete end, and the store opens. But no flipped bit is ever reported as one.) Each kind
/// of change is made to each file; offsets are every 37th of a table and every 13th of the others.
#[test]
fn every_injury_of_every_file_is_listed() {
    let (mut injuries, mut incomplete) = (0, 0);
    for left in [Left::Closed, Left::Killed] {
        let store = Store::filled(left);
        store.each_injury(37, |name, injury, vfs| {
            injuries += 1;
            let report = verified(&vfs);
            let named = report.damage.iter().any(|damage| damage.file == path(name));
            let torn = report.incomplete.iter().any(|end| end.file == path(name));
            assert!(
                Store::may_be_torn(injury) || report.incomplete.is_empty(),
                "{left:?} {name:?} {injury:?} is called an incomplete end: {report}"
            );
            // A manifest that ends between two records looks like that of a killed store, until a
            // file is missing that such a store would still need.
            let cut = name.to_string_lossy().starts_with("MANIFEST") && !report.is_sound();
            let silent = Store::is_silent(left, name, injury);
            assert!(named || torn || cut || silent, "{left:?} {name:?} {injury:?}: {report}");
            if report.is_sound() {
                // In a closed store only the end of the manifest may be missing without harm, and
                // the options.
                let may_end = left == Left::Killed
                    || silent
                    || name.to_string_lossy().starts_with("MANIFEST");
                assert!(may_end, "{name:?} {injury:?}: in a closed store no log is torn");
                incomplete += 1;
                let opened = Db::open_read_only(DIR, small(&vfs));
                assert!(opened.is_ok(), "{left:?} {name:?} {injury:?}: {report}");
            }
        });
    }
    assert!(injuries > 1000 && incomplete > 0, "{injuries}, {incomplete}");
}

/// `Db::verify` used to stop at the first corruption, and required opening the store.
#[test]
fn all_damage_is_listed_at_once() {
    let mut store = Store::filled(Left::Killed);
    let mut hurt = Vec::new();
    for (name, bytes) in &mut store.files {
        let text = name.to_string_lossy().into_owned();
        if text.ends_with(".sst") {
            // Two blocks of each table.
            bytes[10] ^= 1;
            hurt.push((name.clone(), 1));
            if bytes.len() > 2000 {
                bytes[700] ^= 1;
                hurt.push((name.clone(), 2));
            }
        } else if text.ends_with(".log") || text == "CURRENT" {
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
            hurt.push((name.clone(), 1));
        }
    }
    let vfs = store.disk();
    assert!(matches!(Db::open(DIR, small(&vfs)), Err(Error::Corruption(_))));
    let report = verified(&vfs);
    for (name, places) in hurt {
        let found: Vec<_> =
            report.damage.iter().filter(|damage| damage.file == path(&name)).collect();
        assert!(found.len() >= places, "{name:?}: {found:?}");
        assert!(found.iter().all(|damage| !damage.what.is_empty()), "{found:?}");
        let is_table = name.to_string_lossy().ends_with(".sst");
        let costs = |damage: &&&trommel::Damage| damage.remedy == Remedy::RestoreOrRepair;
        assert!(found.iter().filter(costs).all(|d| d.keys.is_some() == is_table), "{found:?}");
    }
}

/// On an open store too, where the rest is served.
#[test]
fn an_open_store_lists_all_damage() {
    let mut store = Store::filled(Left::Closed);
    let tables = store
        .files
        .iter_mut()
        .filter(|(name, _)| Path::new(name).extension().is_some_and(|e| e == "sst"));
    for (_, bytes) in tables.take(2) {
        bytes[10] ^= 1;
    }
    let vfs = store.disk();
    let db = Db::open(DIR, small(&vfs)).expect("its files are all there");
    let Err(Error::Corruption(first)) = db.verify() else { panic!("it is damaged") };
    let report = db.verify_all().expect("verifying");
    assert_eq!(report.damage.len(), 2, "{report}");
    assert!(report.damage.iter().any(|damage| damage.file == first.file));
}

#[test]
fn what_is_not_needed_is_listed_and_no_damage() {
    let store = Store::filled(Left::Closed);
    let vfs = store.disk();
    for name in ["000900.sst", "CURRENT.tmp", ".DS_Store", "._000001.sst", "x y"] {
        write(&*vfs, name, b"whatever");
    }
    vfs.create_dir(&path("lost+found")).expect("making a directory");
    let report = verified(&vfs);
    assert!(report.is_sound(), "{report}");
    let names = |paths: &[PathBuf]| -> Vec<String> {
        let name = |path: &PathBuf| path.file_name()?.to_str().map(str::to_owned);
        paths.iter().filter_map(name).collect()
    };
    assert_eq!(names(&report.orphans), ["000900.sst", "CURRENT.tmp"]);
    assert_eq!(names(&report.foreign), [".DS_Store", "._000001.sst", "lost+found", "x y"]);
}

#[test]
fn what_is_no_store_or_in_use_is_reported() {
    let vfs = Arc::new(MemoryVfs::new());
    vfs.create_dir(Path::new("empty")).expect("making a directory");
    for dir in ["absent", "empty"] {
        let refused = Db::verify_dir(dir, &small(&vfs));
        assert!(matches!(refused, Err(Error::NotAStore { .. })), "{refused:?}");
    }
    let db = Db::open(DIR, small(&vfs)).expect("opening");
    let refused = Db::verify_dir(DIR, &small(&vfs));
    assert!(matches!(refused, Err(Error::Locked { .. })), "{refused:?}");
    db.close().expect("closing");
    let reader = Db::open_read_only(DIR, small(&vfs)).expect("opening");
    assert!(verified(&vfs).is_sound(), "with a reader");
    drop(reader);
}
