//! Events during `verify` or `repair`: another process opens a store that could not be locked, and
//! file handles run out.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use trommel::vfs::{Access, Layer, ReadFile, Vfs};
use trommel::{Db, Error, RepairOptions, VerifyReport};
use trommel_sim::{Failure, Fault, MemoryVfs, OpKind, SimDisk};

use crate::stores::{DIR, Left, Store, contents, path, small, write};

/// A disk on which a lock file appears when the first table is opened.
#[derive(Debug)]
struct Meddled {
    disk: Arc<MemoryVfs>,
    done: AtomicBool,
}

impl Layer for Meddled {
    fn below(&self) -> &dyn Vfs {
        &*self.disk
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn ReadFile>> {
        let is_table = path.to_string_lossy().ends_with(".sst");
        if is_table && path.starts_with(DIR) && !self.done.swap(true, Ordering::Relaxed) {
            drop(self.disk.lock(&Path::new(DIR).join("LOCK"))?);
        }
        self.disk.open(path, access)
    }
}

/// A store without a lock file, on a disk where one appears.
fn meddled() -> Arc<Meddled> {
    let disk = Store::filled(Left::Closed).disk();
    disk.remove(&path("LOCK")).expect("removing");
    Arc::new(Meddled { disk, done: AtomicBool::new(false) })
}

/// A repair used to continue during writes by another process, and call its copy complete.
#[test]
fn who_comes_late_is_noticed() {
    let disk = meddled();
    let refused = Db::verify_dir(DIR, &small(&disk));
    assert!(matches!(refused, Err(Error::Locked { .. })), "{refused:?}");
    for dry_run in [true, false] {
        let disk = meddled();
        let how = RepairOptions::default().dry_run(dry_run);
        let refused = Db::repair(DIR, "new", small(&disk), how);
        assert!(matches!(refused, Err(Error::Locked { .. })), "{dry_run}: {refused:?}");
        assert!(disk.done.load(Ordering::Relaxed));
        assert!(Db::open("new", small(&disk).opening(|o| o.create_if_missing(false))).is_err());
    }
    let disk = meddled();
    disk.done.store(true, Ordering::Relaxed);
    let report = Db::repair(DIR, "new", small(&disk), RepairOptions::default());
    assert!(report.expect("nobody came").is_complete());
}

fn failing() -> Arc<SimDisk> {
    let disk = Arc::new(SimDisk::new());
    disk.create_dir(Path::new(DIR)).expect("making a directory");
    for (name, bytes) in &Store::filled(Left::Killed).files {
        write(&*disk, name, bytes);
    }
    disk
}

/// Each table, log or manifest that could not be opened for lack of a handle used to be counted as
/// lost.
#[test]
fn what_cannot_be_opened_for_want_of_handles_is_not_lost() {
    let failures = [Failure::TooManyOpenFiles, Failure::TooManySystemFiles, Failure::NoMemory];
    for failure in failures {
        for part in [".sst", ".log", "MANIFEST", "CURRENT"] {
            for nth in 0..2 {
                let case = format!("{failure} at {part} {nth}");
                let inject = |disk: &SimDisk| {
                    disk.inject(Fault::new(failure).on(OpKind::Open).named(part).after(nth));
                };
                let disk = failing();
                let before = contents(&*disk, DIR);
                inject(&disk);
                let verified = Db::verify_dir(DIR, &small(&disk));
                let fired = disk.faults_fired() > 0;
                assert!(
                    !fired || matches!(verified, Err(Error::Io { .. })),
                    "{case}: {verified:?}"
                );
                disk.clear_faults();
                inject(&disk);
                let repaired = Db::repair(DIR, "new", small(&disk), RepairOptions::default());
                assert!(
                    !fired || matches!(repaired, Err(Error::Io { .. })),
                    "{case}: {repaired:?}"
                );
                disk.clear_faults();
                assert_eq!(contents(&*disk, DIR), before, "{case}");
                assert!(fired || nth > 0, "{case}: nothing failed");
            }
        }
    }
}

/// A table of an open store that could not be opened for lack of a handle used to be listed as
/// corrupt.
#[test]
fn want_of_handles_is_no_damage_of_an_open_store() {
    let disk = failing();
    let db = Db::open_read_only(DIR, small(&disk)).expect("opening");
    disk.inject(Fault::new(Failure::TooManyOpenFiles).on(OpKind::Open).named(".sst").lasting());
    let refused = db.verify_all();
    assert!(matches!(refused, Err(Error::Io { .. })), "{refused:?}");
    disk.clear_faults();
    assert!(db.verify_all().expect("verifying").is_sound());
}

/// The count used to leave out `CURRENT`.
#[test]
fn verify_counts_the_bytes_of_all_that_it_reads() {
    let store = Store::filled(Left::Closed);
    let disk = store.disk();
    let all: usize = store.files.iter().map(|(_, bytes)| bytes.len()).sum();
    let bytes = |report: VerifyReport| usize::try_from(report.bytes).expect("few");
    assert_eq!(bytes(Db::verify_dir(DIR, &small(&disk)).expect("verifying")), all);
    let db = Db::open_read_only(DIR, small(&disk)).expect("opening");
    assert_eq!(bytes(db.verify().expect("verifying")), all);
    assert_eq!(bytes(db.verify_all().expect("verifying")), all);
}
