//! A degraded open serves everything intact and returns errors for the rest: never a wrong value,
//! never a silent "not there".

use std::ops::Bound;
use std::sync::Arc;

use trommel::vfs::Vfs as _;
use trommel::{Db, Degraded, Error, ErrorKind};
use trommel_sim::MemoryVfs;
use trommel_tests::counters::Counters;

use crate::stores::{DIR, Injury, Left, Store, contents, disk_of, path, small};

fn opened(vfs: &Arc<MemoryVfs>, how: Degraded) -> Result<Db, Error> {
    Db::open_degraded(DIR, small(vfs), how)
}

fn is_typed(error: &Error) -> bool {
    matches!(error, Error::Corruption(_) | Error::InDoubt { .. } | Error::NotAStore { .. })
}

/// All answers of the store, with the permitted ones.
struct Exam<'a> {
    store: &'a Store,
    db: &'a Db,
    case: String,
    /// Whether older values are right too: in the last-intact mode, or if a crash explains missing
    /// writes.
    older: bool,
}

impl Exam<'_> {
    fn is_right(&self, key: &[u8], got: Option<&[u8]>) -> bool {
        let truth = self.store.truth(key).map(|value| &**value);
        got == truth || (self.older && self.store.was_ever(key, got))
    }

    /// Looks up every key; returns the numbers of answers and errors.
    fn gets(&self) -> (u64, u64) {
        let (mut answers, mut errors) = (0, 0);
        for key in self.store.keys() {
            match self.db.get(&key) {
                Ok(got) => {
                    let name = String::from_utf8_lossy(&key);
                    assert!(self.is_right(&key, got.as_deref()), "{}: {name}: {got:?}", self.case);
                    answers += 1;
                }
                Err(error) => {
                    assert!(is_typed(&error), "{}: {error:?}", self.case);
                    errors += 1;
                }
            }
        }
        (answers, errors)
    }

    /// Scans everything, from both ends: every entry is right, and nothing is left out without an
    /// error.
    fn scans(&self) {
        for backward in [false, true] {
            let range = self.db.range(..);
            let entries: Box<dyn Iterator<Item = _>> =
                if backward { Box::new(range.rev()) } else { Box::new(range) };
            let mut seen = Vec::new();
            let mut failed = false;
            for entry in entries {
                let Ok((key, value)) = entry else {
                    failed = true;
                    break;
                };
                assert!(self.is_right(&key, Some(&value)), "{}: {key:?}", self.case);
                seen.push(key.to_vec());
            }
            let all = self.store.history.keys().filter(|key| self.store.truth(key).is_some());
            let is_complete = all.count() == seen.len();
            assert!(failed || self.older || is_complete, "{}: a scan left out keys", self.case);
        }
    }

    /// Iterates over everything intact; the rest is named.
    fn scan_healthy(&self) -> u64 {
        let Ok(mut healthy) = self.db.healthy(..) else { return 0 };
        let mut seen = std::collections::BTreeSet::new();
        for entry in &mut healthy {
            let (key, value) = entry.unwrap_or_else(|error| panic!("{}: {error}", self.case));
            assert!(self.is_right(&key, Some(&value)), "{}: {key:?}", self.case);
            assert!(seen.last().is_none_or(|last: &Vec<u8>| **last < *key), "{}: order", self.case);
            seen.insert(key.to_vec());
        }
        let spans = healthy.in_doubt();
        for key in self.store.history.keys().filter(|key| self.store.truth(key).is_some()) {
            let is_reported = self.older || spans.iter().any(|keys| keys.holds(key));
            assert!(seen.contains(key) || is_reported, "{}: {key:?} is passed over", self.case);
        }
        for key in self.store.keys() {
            let is_had = matches!(self.db.get(&key), Ok(Some(_)));
            assert_eq!(seen.contains(&key), is_had, "{}: {key:?}: walk and get", self.case);
        }
        seen.len() as u64
    }
}

#[test]
fn each_answer_is_right_or_an_error() {
    let mut counters = Counters::new("rescue/degraded");
    for left in [Left::Closed, Left::Killed] {
        let store = Store::filled(left);
        store.each_injury(67, |name, injury, vfs| {
            for how in [Degraded::Certain, Degraded::LastIntact] {
                let case = format!("{left:?} {name:?} {injury:?} {how:?}");
                let before = contents(&*vfs, DIR);
                let db = match opened(&vfs, how) {
                    Ok(db) => db,
                    Err(error) => {
                        let name = name.to_string_lossy();
                        assert!(is_typed(&error), "{case}: {error:?}");
                        assert!(name.starts_with("MANIFEST"), "{case}: {error}");
                        counters.add("stores.without_manifest", 1);
                        continue;
                    }
                };
                let report = db.recovery_report().clone();
                let torn = !report.dropped.is_empty() && report.damage.is_empty();
                let may_be_torn = Store::may_be_torn(injury);
                assert!(may_be_torn || !torn, "{case} is called incomplete: {report:?}");
                let silent = Store::is_silent(left, name, injury);
                let older = how == Degraded::LastIntact || torn || silent;
                let exam = Exam { store: &store, db: &db, case: case.clone(), older };
                let (answers, errors) = exam.gets();
                exam.scans();
                let scanned = exam.scan_healthy();
                assert!(db.put("a", "b").is_err(), "{case}: it is read-only");
                drop(db);
                assert_eq!(contents(&*vfs, DIR), before, "{case}: the store was written");
                counters.add("stores", 1);
                counters.add("answers", answers);
                counters.add("errors", errors);
                counters.add("walked", scanned);
            }
        });
    }
    assert!(counters.get("answers") > 10 * 1000 && counters.get("errors") > 1000);
    counters.finish();
}

/// A missing table loses its keys, not the store; and a newer version elsewhere is served.
#[test]
fn a_missing_table_costs_only_what_it_may_hold() {
    let store = Store::filled(Left::Closed);
    let tables = store.files.iter().filter(|(name, _)| name.to_string_lossy().ends_with(".sst"));
    for (name, _) in tables {
        let vfs = store.hurt(name, Injury::Deleted).expect("it changed");
        assert!(matches!(Db::open(DIR, small(&vfs)), Err(Error::Corruption(_))));
        let db = opened(&vfs, Degraded::Certain).expect("the manifest is whole");
        let report = db.recovery_report();
        assert_eq!(report.damage.len(), 1, "{report:?}");
        assert!(report.damage[0].keys.is_some() && report.doubt.is_none(), "{report:?}");
        let case = format!("without {name:?}");
        let exam = Exam { store: &store, db: &db, case, older: false };
        let (answers, errors) = exam.gets();
        assert!(answers > 0 && errors > 0, "{name:?}: {answers} {errors}");
    }
}

/// The iteration used to skip every key of a lost table, even if newer versions of them were above
/// it.
#[test]
fn what_lies_above_a_lost_table_is_walked_over() {
    let vfs = Arc::new(MemoryVfs::new());
    let options = || small(&vfs).compaction(|c| c.table_bytes(1 << 20));
    let db = Db::open(DIR, options()).expect("opening");
    for number in 0..100 {
        db.put(format!("key{number:03}"), "old").expect("writing");
    }
    db.compact_all().expect("compacting");
    for number in (0..100).step_by(2) {
        db.put(format!("key{number:03}"), "new").expect("writing");
    }
    db.delete("key004").expect("deleting");
    db.flush().expect("flushing");
    db.put("key001", "newest").expect("writing");
    db.close().expect("closing");
    let tables = contents(&*vfs, DIR).into_iter().map(|(name, _)| name);
    let bottom = tables.filter(|name| name.to_string_lossy().ends_with(".sst")).min();
    vfs.remove(&path(bottom.expect("a table"))).expect("removing");
    let db = Db::open_degraded(DIR, options(), Degraded::Certain).expect("opening");
    let scan_healthy = |range: (Bound<&str>, Bound<&str>)| {
        let healthy = db.healthy(range).expect("a walk");
        assert_eq!(healthy.in_doubt().len(), 1);
        healthy.map(|entry| entry.expect("an entry")).collect::<Vec<_>>()
    };
    let all = scan_healthy((Bound::Unbounded, Bound::Unbounded));
    assert_eq!(all.len(), 50, "each even key but one, and one odd key");
    let is_new = |(_, value): &(_, trommel::Slice)| **value == *b"new";
    assert_eq!(all.iter().filter(|entry| is_new(entry)).count(), 49);
    assert_eq!(scan_healthy((Bound::Included("key010"), Bound::Excluded("key020"))).len(), 5);
}

/// After corruption in a log anything may have been written: nothing is certain.
#[test]
fn a_damaged_log_puts_everything_in_doubt() {
    let store = Store::filled(Left::Killed);
    let logs = store.files.iter().filter(|(name, _)| name.to_string_lossy().ends_with(".log"));
    let (name, _) = logs.max_by_key(|(_, bytes)| bytes.len()).expect("a log");
    let vfs = store.hurt(name, Injury::Flipped(100)).expect("it changed");
    let db = opened(&vfs, Degraded::Certain).expect("opening");
    assert!(db.recovery_report().doubt.is_some());
    for refused in [
        db.get("key0001").map(drop),
        db.multi_get(&["key0001"]).map(drop),
        db.range(..).next().expect("an error").map(drop),
        db.cursor().map(drop),
        db.snapshot().get("key0001").map(drop),
        db.healthy(..).map(drop),
    ] {
        let error = refused.expect_err("nothing is certain");
        assert!(matches!(error, Error::InDoubt { .. }), "{error:?}");
        assert_eq!(error.kind(), ErrorKind::RestoreData);
    }
    db.close().expect("closing");
    let db = opened(&vfs, Degraded::LastIntact).expect("opening");
    let case = "the last intact state".to_owned();
    let exam = Exam { store: &store, db: &db, case, older: true };
    assert_eq!(exam.gets().1, 0);
    assert!(exam.scan_healthy() > 50);
}

#[test]
fn without_a_manifest_there_is_repair() {
    let store = Store::filled(Left::Closed);
    let is_manifest = |name: &std::ffi::OsString| name.to_string_lossy().starts_with("MANIFEST");
    let files = store.files.iter().filter(|(name, _)| !is_manifest(name)).cloned().collect();
    let refused = opened(&disk_of(&files), Degraded::Certain).map(drop).expect_err("no manifest");
    assert!(matches!(refused, Error::Corruption(_)) && refused.to_string().contains("repair"));
}
