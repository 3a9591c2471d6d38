//! Range tombstones, in the log only or in the manifest, after a kill and in every way to read a
//! store that may be corrupt.

use std::sync::Arc;

use trommel::{Db, Degraded, RepairOptions, WriteBatch, WriteOptions};
use trommel_sim::{MemoryVfs, Policy, SimDisk};

use crate::stores::{DIR, Files, contents, disk_of, small};

/// The only record of a deletion of a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Record {
    Log,
    Manifest,
}

const RECORDS: [Record; 2] = [Record::Log, Record::Manifest];

fn key(number: u32) -> Vec<u8> {
    format!("key{number:03}").into_bytes()
}

/// Keys 0 to 89 in a table, of which 30 to 59 are deleted as a range, and key 40 written again.
fn files(record: Record) -> Files {
    let vfs = Arc::new(MemoryVfs::new());
    let db = Db::open(DIR, small(&vfs)).expect("opening");
    for number in 0..90 {
        db.put(key(number), "a value of some length").expect("writing");
    }
    db.flush().expect("flushing");
    db.delete_range(key(30)..key(60)).expect("deleting");
    if record == Record::Manifest {
        db.flush().expect("flushing");
    }
    db.put(key(40), "again").expect("writing");
    contents(&*vfs, DIR)
}

fn left() -> Vec<Vec<u8>> {
    (0..90).filter(|number| !(30..60).contains(number) || *number == 40).map(key).collect()
}

fn keys(
    entries: impl Iterator<Item = trommel::Result<(trommel::Slice, trommel::Slice)>>,
) -> Vec<Vec<u8>> {
    entries.map(|entry| entry.expect("reading").0.to_vec()).collect()
}

fn assert_deleted(db: &Db, case: Record) {
    assert_eq!(keys(db.iter()), left(), "{case:?}");
    let mut backward = keys(db.iter().rev());
    backward.reverse();
    assert_eq!(backward, left(), "{case:?}");
    assert_eq!(db.get(key(30)).expect("reading"), None, "{case:?}");
    assert_eq!(db.multi_get(&[key(59), key(60)]).expect("reading")[0], None, "{case:?}");
    assert_eq!(db.get(key(40)).expect("reading").as_deref(), Some(&b"again"[..]), "{case:?}");
}

#[test]
fn a_deleted_range_is_verified_and_served_degraded() {
    for record in RECORDS {
        let vfs = disk_of(&files(record));
        let report = Db::verify_dir(DIR, &small(&vfs)).expect("verifying");
        assert!(report.damage.is_empty(), "{record:?}: {report:?}");
        for how in [Degraded::Certain, Degraded::LastIntact] {
            let db = Db::open_degraded(DIR, small(&vfs), how).expect("opening");
            assert_deleted(&db, record);
            assert_eq!(keys(db.healthy(..).expect("scanning")), left(), "{record:?}");
        }
        let db = Db::open_read_only(DIR, small(&vfs)).expect("opening");
        assert_deleted(&db, record);
        drop(db);
        assert_deleted(&Db::open(DIR, small(&vfs)).expect("opening"), record);
    }
}

#[test]
fn a_repair_heeds_a_deleted_range() {
    for record in RECORDS {
        let vfs = disk_of(&files(record));
        let report =
            Db::repair(DIR, "new", small(&vfs), RepairOptions::default()).expect("repairing");
        assert!(report.is_complete() && report.all_in_doubt.is_none(), "{record:?}: {report:?}");
        assert_eq!((report.saved.deleted, report.saved.entries), (29, 61), "{record:?}");
        assert_deleted(&Db::open("new", small(&vfs)).expect("opening"), record);
    }
}

/// A range tombstone of a lost manifest is lost with it, so that all is in doubt; one in the log is
/// not.
#[test]
fn a_repair_without_a_manifest_doubts_all_keys() {
    for record in RECORDS {
        let mut files = files(record);
        files.retain(|(name, _)| !name.to_string_lossy().starts_with("MANIFEST"));
        let vfs = disk_of(&files);
        let report =
            Db::repair(DIR, "new", small(&vfs), RepairOptions::default()).expect("repairing");
        assert!(report.all_in_doubt.is_some(), "{record:?}: {report:?}");
        let db = Db::open("new", small(&vfs)).expect("opening");
        let kept = keys(db.iter()).len();
        assert_eq!(kept, if record == Record::Log { 61 } else { 90 }, "{record:?}");
        drop(db);
        let certain = RepairOptions::default().only_certain(true);
        let report = Db::repair(DIR, "certain", small(&vfs), certain).expect("repairing");
        assert_eq!(report.saved.entries, 0, "{record:?}");
    }
}

/// A log that is cut anywhere holds a batch as a whole or not at all, the deletion of a range
/// included.
#[test]
fn a_batch_with_a_deleted_range_is_replayed_whole_or_not_at_all() {
    let vfs = Arc::new(MemoryVfs::new());
    let db = Db::open(DIR, small(&vfs)).expect("opening");
    db.put("a", "1").and_then(|_| db.put("b", "2")).expect("writing");
    let before = contents(&*vfs, DIR);
    let mut batch = WriteBatch::new();
    batch.put("a0", "new").delete_range("a".."b").put("a1", "new").delete_range("b"..);
    db.write(batch).expect("writing");
    let files = contents(&*vfs, DIR);
    let is_log = |name: &std::ffi::OsString| name.to_string_lossy().ends_with(".log");
    let at = files.iter().position(|(name, _)| is_log(name)).expect("a log");
    let (old, new) = (before[at].1.len(), files[at].1.len());
    assert!(old < new, "the batch was written");
    for end in old..=new {
        let mut cut = files.clone();
        cut[at].1.truncate(end);
        let db = Db::open(DIR, small(&disk_of(&cut))).expect("opening");
        let expected =
            if end < new { vec![b"a".to_vec(), b"b".to_vec()] } else { vec![b"a1".to_vec()] };
        assert_eq!(keys(db.iter()), expected, "cut to {end} of {new}");
    }
}

/// A power cut takes no synced deletion of a range.
#[test]
fn a_synced_deletion_of_a_range_survives_a_power_cut() {
    for is_flushed in [false, true] {
        let disk = Arc::new(SimDisk::new());
        let db = Db::open(DIR, small(&disk)).expect("opening");
        db.put("a", "1").and_then(|_| db.put("b", "2")).expect("writing");
        db.flush().expect("flushing");
        db.delete_range_with("a".."b", WriteOptions::sync()).expect("deleting");
        if is_flushed {
            db.flush().expect("flushing");
        }
        db.put("c", "not synced").expect("writing");
        for policy in Policy::ALL {
            let image = Arc::new(disk.crash(policy, 1).disk());
            let db = Db::open(DIR, small(&image)).expect("opening");
            let case = format!("flushed: {is_flushed}, {policy:?}");
            assert_eq!(db.get("a").expect("reading"), None, "{case}");
            assert_eq!(db.get("b").expect("reading").as_deref(), Some(&b"2"[..]), "{case}");
        }
    }
}
