//! `Db::repair` saves everything recoverable, invents nothing, and names every key whose newest
//! value it may have lost.

use std::ffi::OsString;
use std::sync::Arc;

use trommel::vfs::Vfs;
use trommel::{Db, Error, RepairOptions, RepairReport};
use trommel_sim::MemoryVfs;
use trommel_tests::counters::Counters;

use crate::stores::{DIR, Injury, Left, Store, contents, disk_of, path, small, write};

const NEW: &str = "new";

fn repaired(vfs: &Arc<MemoryVfs>, how: RepairOptions) -> RepairReport {
    Db::repair(DIR, NEW, small(vfs), how).expect("repairing")
}

/// Whether the report names `key` as one that may be missing, old, or undeleted.
pub(crate) fn is_named(report: &RepairReport, key: &[u8]) -> bool {
    report.all_in_doubt.is_some() || report.in_doubt.iter().any(|keys| keys.holds(key))
}

/// The fate of all keys.
#[derive(Default)]
pub(crate) struct Kept {
    pub(crate) right: u64,
    pub(crate) older: u64,
    pub(crate) back: u64,
    pub(crate) missing: u64,
}

pub(crate) fn examine<V: Vfs + 'static>(
    store: &Store,
    vfs: &Arc<V>,
    report: &RepairReport,
    case: &str,
) -> Kept {
    examine_but(store, vfs, report, case, false)
}

/// As [`examine`]; a `silent` loss is undetectable.
fn examine_but<V: Vfs + 'static>(
    store: &Store,
    vfs: &Arc<V>,
    report: &RepairReport,
    case: &str,
    silent: bool,
) -> Kept {
    let db = Db::open(NEW, small(vfs)).expect("a repaired store opens");
    db.verify().expect("a repaired store is sound");
    let mut kept = Kept::default();
    for key in store.keys() {
        let got = db.get(&key).expect("reading");
        let truth = store.truth(&key);
        if got.as_deref() == truth.map(|value| &**value) {
            kept.right += 1;
            continue;
        }
        let name = String::from_utf8_lossy(&key).into_owned();
        assert!(store.was_ever(&key, got.as_deref()), "{case}: {name} is made up");
        assert!(
            is_named(report, &key) || silent,
            "{case}: {name} is {got:?}, and was {truth:?}: {report:?}"
        );
        assert!(!report.is_complete() || silent, "{case}");
        match (truth, got) {
            (None, Some(_)) => kept.back += 1,
            (Some(_), Some(_)) => kept.older += 1,
            _ => kept.missing += 1,
        }
    }
    kept
}

/// Whether a loss of unnamed keys is acceptable: at the end of a file after a crash, or
/// undetectable. Nothing else may be reported as an incomplete end.
fn is_excused(
    left: Left,
    name: &OsString,
    injury: Injury,
    report: &RepairReport,
    case: &str,
) -> bool {
    let may_be_torn = Store::may_be_torn(injury);
    assert!(may_be_torn || report.incomplete.is_empty(), "{case} is called incomplete: {report:?}");
    !report.incomplete.is_empty() || Store::is_silent(left, name, injury)
}

/// Every single file, corrupted in every way: each key is right or named.
#[test]
fn whatever_is_hurt_each_key_is_right_or_named() {
    let mut counters = Counters::new("rescue/repair");
    for left in [Left::Closed, Left::Killed] {
        let store = Store::filled(left);
        store.each_injury(121, |name, injury, vfs| {
            let case = format!("{left:?} {name:?} {injury:?}");
            let before = contents(&*vfs, DIR);
            let report = repaired(&vfs, RepairOptions::default());
            assert_eq!(contents(&*vfs, DIR), before, "{case}: the old store was written");
            let silent = is_excused(left, name, injury, &report, &case);
            let kept = examine_but(&store, &vfs, &report, &case, silent);
            counters.add("stores", 1);
            counters.add("keys.right", kept.right);
            counters.add("keys.older", kept.older);
            counters.add("keys.back", kept.back);
            counters.add("keys.missing", kept.missing);
        });
    }
    for seen in ["keys.older", "keys.back", "keys.missing"] {
        assert!(counters.get(seen) > 0, "no {seen}: nothing was lost, so nothing was shown");
    }
    counters.finish();
}

/// With only certain entries nothing is old or undeleted, except for the effect of a torn end.
#[test]
fn what_is_certain_is_right() {
    for left in [Left::Closed, Left::Killed] {
        let store = Store::filled(left);
        let mut saved = 0;
        store.each_injury(301, |name, injury, vfs| {
            let case = format!("{left:?} {name:?} {injury:?}");
            let report = repaired(&vfs, RepairOptions::default().only_certain(true));
            let silent = is_excused(left, name, injury, &report, &case);
            let kept = examine_but(&store, &vfs, &report, &case, silent);
            assert!(kept.older + kept.back == 0 || silent, "{case}: {report:?}");
            saved += report.saved.entries;
        });
        assert!(saved > 1000, "{saved}");
    }
}

/// Without `CURRENT`, or if it names a missing manifest, the newest manifest has everything.
#[test]
fn without_current_nothing_is_lost() {
    let store = Store::filled(Left::Closed);
    for injury in [Injury::Deleted, Injury::Emptied, Injury::Flipped(5), Injury::Directory] {
        let vfs = store.hurt(&"CURRENT".into(), injury).expect("it changed");
        let report = repaired(&vfs, RepairOptions::default());
        assert!(report.all_in_doubt.is_none() && report.in_doubt.is_empty(), "{report:?}");
        assert!(!report.damage.is_empty() && report.manifest.is_some());
        let kept = examine(&store, &vfs, &report, "no CURRENT");
        assert_eq!(kept.right, store.keys().len() as u64);
    }
}

/// Without any manifest the tables are found by name: everything present is saved, and everything
/// is in doubt, because it is unknown which tables were obsolete, or are missing. What was deleted
/// by ranges comes back, because the manifest held their tombstones.
#[test]
fn without_a_manifest_the_tables_are_found() {
    let store = Store::filled(Left::Closed);
    let files =
        store.files.iter().filter(|(name, _)| !name.to_string_lossy().starts_with("MANIFEST"));
    let vfs = disk_of(&files.cloned().collect());
    let report = repaired(&vfs, RepairOptions::default());
    assert!(report.all_in_doubt.is_some() && report.manifest.is_none(), "{report:?}");
    let kept = examine(&store, &vfs, &report, "no manifest");
    assert_eq!((kept.older, kept.missing), (0, 0), "the store had no obsolete files");
    assert_eq!(kept.right + kept.back, store.keys().len() as u64);
    assert!(kept.back > 0 && kept.back <= store.range_deleted, "{} came back", kept.back);
}

/// The records after the corruption of a log are counted, and kept only on request.
#[test]
fn records_beyond_damage_are_reported_and_kept_on_request() {
    let store = Store::filled(Left::Killed);
    let logs = store.files.iter().filter(|(name, _)| name.to_string_lossy().ends_with(".log"));
    let (name, _) = logs.max_by_key(|(_, bytes)| bytes.len()).expect("a log");
    let vfs = store.hurt(name, Injury::Flipped(100)).expect("it changed");
    let report = repaired(&vfs, RepairOptions::default());
    assert!(report.beyond_damage.len() > 3, "{report:?}");
    assert!(report.all_in_doubt.as_ref().is_some_and(|why| why.contains(".log")), "{report:?}");
    let beyond = &report.beyond_damage[0];
    assert!(beyond.file == path(name) && beyond.offset > 100 && beyond.operations > 0);
    let few = examine(&store, &vfs, &report, "prefix").right;
    let vfs = store.hurt(name, Injury::Flipped(100)).expect("it changed");
    let report = repaired(&vfs, RepairOptions::default().beyond_damage(true));
    let more = examine(&store, &vfs, &report, "beyond").right;
    assert!(more > few, "{more} {few}");
}

#[test]
fn a_dry_run_says_the_same_and_writes_nothing() {
    let store = Store::filled(Left::Closed);
    let name = store.files.iter().find(|(name, _)| name.to_string_lossy().ends_with(".sst"));
    let vfs = store.hurt(&name.expect("a table").0, Injury::Flipped(10)).expect("it changed");
    let dry = repaired(&vfs, RepairOptions::default().dry_run(true));
    assert!(vfs_has_no_new(&vfs));
    let real = repaired(&vfs, RepairOptions::default());
    assert_eq!(format!("{dry:?}"), format!("{real:?}"));
    assert!(!real.in_doubt.is_empty() && !real.is_complete());
}

fn vfs_has_no_new(vfs: &MemoryVfs) -> bool {
    vfs.list(std::path::Path::new(NEW)).is_err()
}

/// An intact store is copied completely.
#[test]
fn nothing_is_lost_of_a_sound_store() {
    for left in [Left::Closed, Left::Killed] {
        let store = Store::filled(left);
        let vfs = store.disk();
        let report = repaired(&vfs, RepairOptions::default());
        assert!(report.is_complete() && report.damage.is_empty(), "{report:?}");
        let kept = examine(&store, &vfs, &report, "sound");
        assert_eq!(kept.right, store.keys().len() as u64);
    }
}

#[test]
fn a_place_that_is_taken_is_refused_and_an_unfinished_one_cannot_be_opened() {
    let store = Store::filled(Left::Closed);
    let vfs = store.disk();
    for taken in [DIR, "db/inside"] {
        let refused = Db::repair(DIR, taken, small(&vfs), RepairOptions::default());
        assert!(refused.is_err(), "{taken}");
    }
    assert_eq!(contents(&*vfs, DIR), store.files);
    write(&*vfs, "UNFINISHED", b"");
    let refused = Db::open(DIR, small(&vfs));
    let noted = refused.as_ref().is_err_and(|error| error.to_string().contains("UNFINISHED"));
    assert!(noted, "{:?}", refused.map(drop));
    assert!(matches!(Db::open_read_only(DIR, small(&vfs)), Err(Error::NotAStore { .. })));
    Db::destroy(DIR, &small(&vfs)).expect("it is a store's");
}
