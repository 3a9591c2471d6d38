//! Each call to the disk fails once, during repair, verify, and a degraded open: the result is an
//! error, or names the loss, or is the same as without the fault. Never a silent loss.

use std::path::Path;
use std::sync::Arc;

use trommel::vfs::Vfs as _;
use trommel::{Db, Degraded, RepairOptions, VerifyReport};
use trommel_sim::{Failure, Fault, OpKind, SimDisk};
use trommel_tests::counters::Counters;

use crate::repair::{examine, is_named};
use crate::stores::{DIR, Files, Left, Store, contents, small, write};

/// The files on a new disk.
fn disk_of(files: &Files) -> Arc<SimDisk> {
    let disk = Arc::new(SimDisk::new());
    disk.create_dir(Path::new(DIR)).expect("making a directory");
    for (name, bytes) in files {
        write(&*disk, name, bytes);
    }
    disk
}

/// Intact stores, and one without the manifest that lists its tables.
fn stores() -> Vec<(&'static str, Store)> {
    let mut without = Store::filled(Left::Closed);
    without.files.retain(|(name, _)| !name.to_string_lossy().starts_with("MANIFEST"));
    vec![
        ("closed", Store::filled(Left::Closed)),
        ("killed", Store::filled(Left::Killed)),
        ("without manifest", without),
    ]
}

/// Runs `work` with each call failing once, until there is no such call.
fn each_call(
    files: &Files,
    counters: &mut Counters,
    mut work: impl FnMut(Arc<SimDisk>, &str) -> bool,
) {
    for failure in [Failure::Io, Failure::TooManyOpenFiles] {
        for call in 0.. {
            let disk = disk_of(files);
            disk.inject(Fault::new(failure).after(call));
            let came_through = work(Arc::clone(&disk), &format!("{failure} at call {call}"));
            if disk.faults_fired() == 0 {
                break;
            }
            counters.add("faults", 1);
            counters.add(if came_through { "answers" } else { "errors" }, 1);
        }
    }
}

#[test]
fn no_failed_call_makes_a_repair_lose_silently() {
    let mut counters = Counters::new("rescue/faults/repair");
    for (name, store) in stores() {
        for how in [RepairOptions::default(), RepairOptions::default().only_certain(true)] {
            each_call(&store.files, &mut counters, |disk, case| {
                let case = format!("{name}, {case}, {how:?}");
                let repaired = Db::repair(DIR, "new", small(&disk), how);
                disk.clear_faults();
                assert_eq!(contents(&*disk, DIR), store.files, "{case}: it was written");
                let Ok(report) = repaired else { return false };
                let kept = examine(&store, &disk, &report, &case);
                let is_whole = kept.right == store.keys().len() as u64;
                assert!(is_whole || !report.is_complete(), "{case}: {report:?}");
                true
            });
        }
    }
    for seen in ["answers", "errors"] {
        assert!(counters.get(seen) > 50, "{seen}: {}", counters.get(seen));
    }
    counters.finish();
}

/// An unreadable table loses its keys, which is reported.
#[test]
fn a_table_that_cannot_be_read_is_named() {
    for (name, store) in stores() {
        let tables = store.files.iter().map(|(name, _)| name.to_string_lossy().into_owned());
        for table in tables.filter(|name| name.ends_with(".sst")) {
            for kind in [OpKind::Read, OpKind::Open] {
                let disk = disk_of(&store.files);
                disk.inject(Fault::new(Failure::Io).on(kind).named(&table).lasting());
                let how = RepairOptions::default().dry_run(true);
                let Ok(report) = Db::repair(DIR, "new", small(&disk), how) else { continue };
                assert!(!report.is_complete(), "{name}: {table}: {report:?}");
                let is_reported = |key: &Vec<u8>| is_named(&report, key);
                assert!(store.history.keys().any(is_reported), "{name}: {table}: {report:?}");
            }
        }
    }
}

#[test]
fn no_failed_call_makes_verify_miss_a_thing() {
    let mut counters = Counters::new("rescue/faults/verify");
    let sums = |report: &VerifyReport| (report.tables, report.entries, report.logs, report.bytes);
    for left in [Left::Closed, Left::Killed] {
        let store = Store::filled(left);
        let sound = Db::verify_dir(DIR, &small(&disk_of(&store.files))).expect("verifying");
        each_call(&store.files, &mut counters, |disk, case| {
            let Ok(report) = Db::verify_dir(DIR, &small(&disk)) else { return false };
            let is_same = report.is_sound() && sums(&report) == sums(&sound);
            assert!(is_same || !report.is_sound(), "{left:?}, {case}: {report}");
            true
        });
    }
    assert!(counters.get("faults") > 100);
    counters.finish();
}

#[test]
fn no_failed_call_makes_a_degraded_store_answer_wrongly() {
    let mut counters = Counters::new("rescue/faults/degraded");
    for left in [Left::Closed, Left::Killed] {
        let store = Store::filled(left);
        each_call(&store.files, &mut counters, |disk, case| {
            let case = format!("{left:?}, {case}");
            let Ok(db) = Db::open_degraded(DIR, small(&disk), Degraded::Certain) else {
                return false;
            };
            for key in store.keys() {
                let Ok(got) = db.get(&key) else { continue };
                assert_eq!(got.as_deref(), store.truth(&key).map(|v| &**v), "{case}: {key:?}");
            }
            let Ok(healthy) = db.healthy(..) else { return false };
            let spans = healthy.in_doubt();
            let Ok(entries) = healthy.collect::<Result<Vec<_>, _>>() else { return false };
            for key in store.history.keys() {
                let got = entries.iter().find(|(other, _)| **other == **key);
                let is_right = got.map(|(_, value)| &**value) == store.truth(key).map(|v| &**v);
                let is_reported = got.is_none() && spans.iter().any(|keys| keys.holds(key));
                assert!(is_right || is_reported, "{case}: {key:?}");
            }
            true
        });
    }
    assert!(counters.get("answers") > 50 && counters.get("errors") > 10);
    counters.finish();
}
