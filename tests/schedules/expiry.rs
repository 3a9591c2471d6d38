//! Entries that expire, and snapshots while a compaction filter removes entries.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use shuttle::thread::spawn;
use trommel::{CompactionContext, CompactionFilter, FilterDecision};
use trommel_sim::{SimDisk, WallClock};

use crate::lane::lane;
use crate::store::{number, open, options};

/// The horizon passes an old entry while others are written, flushed and read: no reader sees the
/// old one, and each sees the new one as new as it was when the read began.
fn expiry_beside_writes() {
    let (disk, clock) = (SimDisk::new(), WallClock::default());
    let options = options(&disk).vfs(clock.over(Arc::new(disk.clone()))).background_threads(0);
    let ttl = Duration::from_secs(10);
    let db = open(options.writes(|w| w.write_buffer_bytes(1 << 20).ttl(ttl)));
    db.put("old", 1u64.to_le_bytes()).unwrap();
    clock.advance(ttl + Duration::from_millis(1_001));
    let acknowledged = Arc::new(AtomicU64::new(0));
    let readers: Vec<_> = (0..2)
        .map(|way| {
            let (db, acknowledged) = (db.clone(), Arc::clone(&acknowledged));
            spawn(move || {
                for _ in 0..2 {
                    let least = acknowledged.load(SeqCst);
                    let (old, new) = match way {
                        0 => (db.contains_key("old").unwrap(), number(db.get("new").unwrap())),
                        _ => {
                            let all: Vec<_> = db.iter().map(Result::unwrap).collect();
                            let new = all.iter().find(|(key, _)| **key == *b"new");
                            let old = all.iter().any(|(key, _)| **key == *b"old");
                            (old, number(new.map(|(_, value)| value.clone())))
                        }
                    };
                    assert!(!old, "what has expired is there");
                    assert!(new >= least, "{new} after {least}");
                }
            })
        })
        .collect();
    let flushing = {
        let db = db.clone();
        spawn(move || {
            db.flush().unwrap();
            db.compact_all().unwrap();
        })
    };
    for nth in 1..=3u64 {
        db.put("new", nth.to_le_bytes()).unwrap();
        acknowledged.store(nth, SeqCst);
        clock.advance(Duration::from_secs(4));
    }
    readers.into_iter().for_each(|reader| reader.join().unwrap());
    flushing.join().unwrap();
    assert_eq!((number(db.get("new").unwrap()), db.iter().count()), (3, 1));
}

#[derive(Debug)]
struct RemovesAll;

impl CompactionFilter for RemovesAll {
    fn name(&self) -> &str {
        "removes all"
    }

    fn filter(&self, _: &CompactionContext, _: &[u8], _: &[u8]) -> FilterDecision {
        FilterDecision::Remove
    }
}

/// A snapshot that is taken while a filter removes entries always sees them, or never.
fn snapshots_beside_a_filter() {
    let options = options(&SimDisk::new()).background_threads(0);
    let options = options.writes(|w| w.write_buffer_bytes(1 << 20));
    let db = open(options.compaction(|c| c.compaction_filter(Arc::new(RemovesAll))));
    for key in ["a", "b"] {
        db.put(key, key).unwrap();
        db.flush().unwrap();
    }
    let compacting = {
        let db = db.clone();
        spawn(move || db.compact_all().unwrap())
    };
    let snapshot = db.snapshot();
    let seen = snapshot.iter().count();
    db.put("c", "c").unwrap();
    compacting.join().unwrap();
    assert_eq!(snapshot.iter().count(), seen);
    assert_eq!(snapshot.contains_key("a").unwrap(), seen > 0);
    assert!(!snapshot.contains_key("c").unwrap());
    drop(snapshot);
    db.compact_all().unwrap();
    assert_eq!(db.iter().count(), 0);
}

#[test]
fn entries_expire_beside_writes_and_reads() {
    lane("entries_expire_beside_writes_and_reads", 4_000, expiry_beside_writes);
}

#[test]
fn a_snapshot_keeps_what_a_filter_removes_meanwhile() {
    lane("a_snapshot_keeps_what_a_filter_removes_meanwhile", 8_000, snapshots_beside_a_filter);
}
