//! Deletions of ranges, and the gaps that scans learn, with concurrent readers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use shuttle::thread::spawn;
use trommel::{Db, WriteBatch};
use trommel_sim::SimDisk;

use crate::lane::lane;
use crate::store::{number, open, options};

/// A store whose memtable is frozen only by a flush.
fn large() -> Db {
    let options = options(&SimDisk::new()).background_threads(0);
    open(options.writes(|w| w.write_buffer_bytes(1 << 20)))
}

/// Rounds of a writer. After three deletions of a range, the first is left out for new readers.
const ROUNDS: u64 = 4;

/// Each batch deletes everything and puts one key again: a reader sees that key, as new as it was
/// when the read began, and never one that was deleted before.
fn deletions_beside_readers() {
    let db = large();
    db.put("gone", 7u64.to_le_bytes()).unwrap();
    let round = |db: &Db, round: u64| {
        let mut batch = WriteBatch::new();
        batch.delete_range(..).put("kept", round.to_le_bytes());
        db.write(batch).unwrap();
    };
    round(&db, 1);
    let acknowledged = Arc::new(AtomicU64::new(1));
    let readers: Vec<_> = (0..3)
        .map(|way| {
            let (db, acknowledged) = (db.clone(), Arc::clone(&acknowledged));
            spawn(move || {
                let least = acknowledged.load(SeqCst);
                let (kept, gone) = match way {
                    0 => (number(db.get("kept").unwrap()), db.contains_key("gone").unwrap()),
                    1 => {
                        let mut both = db.multi_get(&["gone", "kept"]).unwrap().into_iter();
                        let gone = both.next().unwrap().is_some();
                        (number(both.next().unwrap()), gone)
                    }
                    _ => {
                        let all: Vec<_> = db.iter().map(Result::unwrap).collect();
                        let kept = all.iter().find(|(key, _)| **key == *b"kept");
                        (number(kept.map(|(_, value)| value.clone())), all.len() > 1)
                    }
                };
                assert!(kept >= least, "round {kept} after {least}");
                assert!(!gone, "what was deleted came back");
            })
        })
        .collect();
    for next in 2..=ROUNDS {
        round(&db, next);
        acknowledged.store(next, SeqCst);
    }
    readers.into_iter().for_each(|reader| reader.join().unwrap());
    assert_eq!(number(db.get("kept").unwrap()), ROUNDS);
    assert_eq!(db.iter().count(), 1);
}

fn key(place: u64) -> String {
    format!("key{place}")
}

/// Keys of a gap that is long enough to be kept.
const STRETCH: u64 = 8;

/// A store of tombstones, and one key after them.
fn store_of_tombstones() -> Db {
    let db = large();
    for place in 0..STRETCH {
        db.put(key(place), place.to_le_bytes()).unwrap();
    }
    for place in 0..STRETCH {
        db.delete(key(place)).unwrap();
    }
    db.put("last", 1u64.to_le_bytes()).unwrap();
    db
}

/// Scans learn gaps while the memtable is frozen and keys are put into the gaps: none hides a key
/// that was put before the scan that looks for it.
fn gaps_beside_rotations() {
    let db = store_of_tombstones();
    let put = Arc::new(AtomicU64::new(0));
    let scanners: Vec<_> = (0..2)
        .map(|backward| {
            let (db, put) = (db.clone(), Arc::clone(&put));
            spawn(move || {
                for _ in 0..2 {
                    let least = put.load(SeqCst) as usize;
                    let found =
                        if backward == 1 { db.iter().rev().count() } else { db.iter().count() };
                    assert!((1 + least..=4).contains(&found), "{found} keys, not {least}");
                }
            })
        })
        .collect();
    for place in 0..3 {
        if place == 0 {
            db.flush().unwrap();
        }
        db.put(key(2 * place), place.to_le_bytes()).unwrap();
        put.store(place + 1, SeqCst);
    }
    scanners.into_iter().for_each(|scanner| scanner.join().unwrap());
    assert_eq!((db.iter().count(), db.iter().rev().count()), (4, 4));
}

/// A snapshot that is taken while a compaction begins keeps what is deleted right after.
fn snapshots_beside_compactions() {
    let db = large();
    db.put("key", 1u64.to_le_bytes()).unwrap();
    db.flush().unwrap();
    db.put("other", 1u64.to_le_bytes()).unwrap();
    db.flush().unwrap();
    let compacting = {
        let db = db.clone();
        spawn(move || db.compact_all().unwrap())
    };
    let snapshot = db.snapshot();
    db.delete_range(..).unwrap();
    db.flush().unwrap();
    compacting.join().unwrap();
    assert_eq!((snapshot.iter().count(), db.iter().count()), (2, 0));
    drop(snapshot);
    db.compact_all().unwrap();
    assert_eq!(db.iter().count(), 0);
}

#[test]
fn readers_see_ranges_deleted_and_not_what_is_put_later() {
    let name = "readers_see_ranges_deleted_and_not_what_is_put_later";
    lane(name, 8_000, deletions_beside_readers);
}

#[test]
fn no_gap_hides_a_key_that_was_put_into_it() {
    lane("no_gap_hides_a_key_that_was_put_into_it", 4_000, gaps_beside_rotations);
}

#[test]
fn a_snapshot_keeps_what_is_deleted_while_a_compaction_begins() {
    let name = "a_snapshot_keeps_what_is_deleted_while_a_compaction_begins";
    lane(name, 12_000, snapshots_beside_compactions);
}
