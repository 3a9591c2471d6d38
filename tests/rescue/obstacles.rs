//! Obstacles to an open that are not corruption of the data: each is reported, with advice, and
//! loses nothing unnecessarily.

use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;

use trommel::vfs::Vfs as _;
use trommel::{Db, Degraded, Error, Options, Remedy, RepairOptions};
use trommel_sim::{Failure, Fault, MemoryVfs, OpKind, SimDisk};

use crate::stores::{DIR, Left, Store, contents, path, small, write};

/// A store on a disk that can fail.
fn failing() -> (SimDisk, Options) {
    let disk = SimDisk::new();
    let options = Options::default().vfs(Arc::new(disk.clone())).background_threads(0);
    let db = Db::open(DIR, options.clone()).expect("opening");
    db.put("a", "1").expect("writing");
    db.close().expect("closing");
    (disk, options)
}

/// Verify and repair used to assume that nobody had the store open, and advised to remove its lock.
#[test]
fn a_lock_that_cannot_be_had_is_no_damage() {
    for failure in [Failure::PermissionDenied, Failure::Io, Failure::TooManyOpenFiles] {
        let (disk, options) = failing();
        disk.inject(Fault::new(failure).on(OpKind::Lock).lasting());
        let refused = Db::verify_dir(DIR, &options);
        assert!(matches!(refused, Err(Error::Io { .. })), "{failure}: {refused:?}");
        let refused = Db::repair(DIR, "new", options.clone(), RepairOptions::default());
        assert!(matches!(refused, Err(Error::Io { .. })), "{failure}: {refused:?}");
        disk.clear_faults();
        assert!(Db::verify_dir(DIR, &options).expect("verifying").is_sound());
    }
}

/// A store without a lock file cannot be locked; but another process is detected.
#[test]
fn a_store_without_a_lock_file_is_verified() {
    let store = Store::filled(Left::Closed);
    let vfs = store.disk();
    vfs.remove(&path("LOCK")).expect("removing");
    let report = Db::verify_dir(DIR, &small(&vfs)).expect("verifying");
    assert!(report.is_sound(), "{report}");
}

fn names(vfs: &MemoryVfs) -> Vec<String> {
    let listing = vfs.list(Path::new(DIR)).expect("listing");
    listing.iter().map(|entry| entry.name.to_string_lossy().into_owned()).collect()
}

/// Each such open used to leave a table, a log and a manifest behind, without advice.
#[test]
fn a_directory_in_the_place_of_current_tmp_is_named_before_anything_is_written() {
    for left in [Left::Closed, Left::Killed] {
        let vfs = Store::filled(left).disk();
        vfs.create_dir(&path("CURRENT.tmp")).expect("making a directory");
        let before = names(&vfs);
        for _ in 0..2 {
            let refused = Db::open(DIR, small(&vfs)).map(drop).expect_err("it is in the way");
            assert!(refused.to_string().contains("CURRENT.tmp"), "{refused}");
            assert!(refused.to_string().contains("remove it"), "{refused}");
        }
        assert_eq!(names(&vfs), before);
        let report = Db::verify_dir(DIR, &small(&vfs)).expect("verifying");
        assert_eq!(report.damage.len(), 1, "{report}");
        assert_eq!(report.damage[0].remedy, Remedy::Remove);
        assert_eq!(report.damage[0].file, path("CURRENT.tmp"));
        assert!(Db::open_read_only(DIR, small(&vfs)).is_ok());
    }
}

/// Any other failure of an open while it writes: the next attempt finds no more files on the disk.
#[test]
fn an_open_that_failed_leaves_nothing_behind() {
    let (disk, options) = failing();
    let list = |disk: &SimDisk| disk.list(Path::new(DIR)).expect("listing").len();
    let db = Db::open(DIR, options.clone()).expect("opening");
    db.put("b", "2").expect("writing");
    db.sync().expect("syncing");
    let disk = disk.crash(trommel_sim::Policy::SYNCED, 0).disk();
    drop(db);
    let options = options.vfs(Arc::new(disk.clone()));
    let before = list(&disk);
    for part in [".log", "MANIFEST", "CURRENT.tmp"] {
        for kind in [OpKind::Create, OpKind::Append, OpKind::Sync] {
            disk.inject(Fault::new(Failure::NoSpace).on(kind).named(part).lasting());
            let refused = Db::open(DIR, options.clone()).map(drop);
            assert!(refused.is_err() || part == ".log", "{part} {kind:?}");
            disk.clear_faults();
            let kept = usize::from(part == "CURRENT.tmp" && kind != OpKind::Create);
            if refused.is_err() {
                assert!(list(&disk) <= before + kept, "{part} {kind:?}");
            }
        }
    }
    let db = Db::open(DIR, options).expect("opening");
    assert_eq!(db.get("b").expect("reading").as_deref(), Some(&b"2"[..]));
}

/// An empty file of that name used to be enough for a good store to be thrown away.
#[test]
fn only_the_mark_of_a_repair_condemns_a_directory() {
    let store = Store::filled(Left::Closed);
    for text in ["", "whatever", "repair of \"x\"\ncrc32 00000000\n"] {
        let vfs = store.disk();
        write(&*vfs, "UNFINISHED", text.as_bytes());
        let refused = Db::open(DIR, small(&vfs)).map(drop).expect_err("it stands there");
        let noted = refused.to_string();
        assert!(noted.contains("UNFINISHED") && !noted.contains("remove the directory"), "{noted}");
        let report = Db::verify_dir(DIR, &small(&vfs)).expect("verifying");
        assert_eq!(report.damage.len(), 1, "{report}");
        assert_eq!(report.damage[0].remedy, Remedy::Remove, "{report}");
        vfs.remove(&path("UNFINISHED")).expect("removing");
        assert!(Db::open(DIR, small(&vfs)).is_ok());
    }
}

#[test]
fn a_repair_that_was_cut_short_is_reported_by_verify_and_by_an_open() {
    let store = Store::filled(Left::Closed);
    let disk = SimDisk::new();
    disk.create_dir(Path::new(DIR)).expect("making a directory");
    for (name, bytes) in &store.files {
        disk.create(&path(name)).expect("creating").append(bytes).expect("writing");
    }
    let options = Options::default().vfs(Arc::new(disk.clone())).background_threads(0);
    disk.inject(Fault::new(Failure::NoSpace).on(OpKind::Append).named(".sst").lasting());
    let cut = Db::repair(DIR, "new", options.clone(), RepairOptions::default());
    assert!(cut.is_err(), "{cut:?}");
    disk.clear_faults();
    let refused = Db::open("new", options.clone()).map(drop).expect_err("it is not finished");
    assert!(refused.to_string().contains("remove the directory"), "{refused}");
    assert!(refused.to_string().contains("repair of \"db\""), "{refused}");
    let report = Db::verify_dir("new", &options).expect("verifying");
    assert!(report.damage.iter().any(|d| d.remedy == Remedy::RepairAgain), "{report}");
}

/// A directory is not a log, unless a log is needed there.
#[test]
fn a_directory_named_like_a_log_is_not_the_stores() {
    for left in [Left::Closed, Left::Killed] {
        let vfs = Store::filled(left).disk();
        vfs.create_dir(&path("000099.log")).expect("making a directory");
        let report = Db::verify_dir(DIR, &small(&vfs)).expect("verifying");
        assert!(report.is_sound(), "{left:?}: {report}");
        assert_eq!(report.foreign, [path("000099.log")]);
        let report = Db::repair(DIR, "new", small(&vfs), RepairOptions::default());
        let report = report.expect("repairing");
        assert!(report.is_complete() && report.damage.is_empty(), "{report:?}");
        let db = Db::open_degraded(DIR, small(&vfs), Degraded::Certain).expect("opening");
        assert!(db.recovery_report().doubt.is_none());
        drop(db);
        let db = Db::open(DIR, small(&vfs)).expect("opening");
        db.close().expect("closing");
        assert!(names(&vfs).contains(&"000099.log".to_owned()));
    }
}

/// The current manifest used to be listed among the files that the next open removes.
#[test]
fn no_manifest_of_a_damaged_store_is_an_orphan() {
    let store = Store::filled(Left::Killed);
    store.each_injury(67, |name, injury, vfs| {
        let is_of_manifest =
            ["MANIFEST", "CURRENT"].iter().any(|part| name.to_string_lossy().starts_with(part));
        if !is_of_manifest {
            return;
        }
        let before = contents(&*vfs, DIR);
        let report = Db::verify_dir(DIR, &small(&vfs)).expect("verifying");
        let is_orphan = |file: &str| report.orphans.iter().any(|orphan| *orphan == path(file));
        let is_spare = |file: &OsString| file.to_string_lossy().ends_with(".spare");
        for (file, _) in before.iter().filter(|(file, _)| !report.is_sound() && !is_spare(file)) {
            assert!(!is_orphan(&file.to_string_lossy()), "{name:?} {injury:?}: {report}");
        }
    });
}
