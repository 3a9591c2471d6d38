//! Deletions of ranges: what readers see beside them, and gaps that scans learn.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use trommel::{Db, Options, WriteBatch};
use trommel_sim::MemoryVfs;

/// Keys of a store with some hundred small tables.
const KEYS: u32 = 8_000;
/// Adjacent keys that are deleted one by one: enough for scans to remember where.
const RUN: u32 = 83;

fn key(place: u32) -> String {
    format!("{place:06}")
}

/// Beyond its bounds a scan leaves tables out: the next key that it reaches ends no gap.
fn gaps_end_at_bounds(forward: bool) {
    let options = Options::default()
        .vfs(Arc::new(MemoryVfs::new()))
        .background_threads(0)
        .compaction(|c| c.table_bytes(2 << 10).base_level_bytes(1 << 20));
    let db = Db::open("db", options).unwrap();
    for place in 0..KEYS {
        db.put(key(place), [7; 60]).unwrap();
    }
    db.compact_all().unwrap();
    // The next key in the memtable is far beyond the bounds.
    db.put(key(if forward { KEYS - 1 } else { 0 }), "far").unwrap();
    let mut left = KEYS;
    for nth in 0..(KEYS - RUN) / RUN {
        let low = if forward { nth * RUN } else { KEYS - (nth + 1) * RUN };
        let range = low..low + RUN;
        for place in range.clone() {
            db.delete(key(place)).unwrap();
        }
        left -= RUN;
        let mut scan = db.range(key(range.start)..key(range.end));
        assert!(if forward { scan.next() } else { scan.next_back() }.is_none());
        assert_eq!(db.iter().count() as u32, left, "after {range:?} was deleted and scanned");
    }
}

#[test]
fn a_gap_ends_where_the_scan_did() {
    gaps_end_at_bounds(true);
    gaps_end_at_bounds(false);
}

/// Each batch deletes everything and puts one key again: a reader sees that key, as new as it was
/// when the read began, and never one that was deleted before.
#[test]
fn what_was_deleted_stays_deleted_beside_deletions() {
    let db = Db::open("db", Options::default().vfs(Arc::new(MemoryVfs::new()))).unwrap();
    let round = |round: u64| {
        let mut batch = WriteBatch::new();
        batch.delete_range(..).put("kept", round.to_le_bytes());
        db.write(batch).unwrap();
    };
    db.put("gone", "7").unwrap();
    round(0);
    let (acknowledged, done) = (AtomicU64::new(0), AtomicBool::new(false));
    let read = || {
        while !done.load(SeqCst) {
            let least = acknowledged.load(SeqCst);
            assert!(db.get("gone").unwrap().is_none(), "it came back for a get");
            let found = db.multi_get(&["gone", "kept"]).unwrap();
            assert!(found[0].is_none(), "it came back for a multi-get");
            let kept = found[1].as_ref().expect("it is in every batch");
            assert!(u64::from_le_bytes(kept[..].try_into().unwrap()) >= least);
            assert_eq!(db.iter().count(), 1, "a scan");
        }
    };
    std::thread::scope(|scope| {
        let readers = [scope.spawn(read), scope.spawn(read)];
        for next in 1..=3_000 {
            round(next);
            acknowledged.store(next, SeqCst);
        }
        done.store(true, SeqCst);
        readers.into_iter().for_each(|reader| reader.join().unwrap());
    });
}
