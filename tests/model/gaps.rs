//! Deletions of ranges: what concurrent readers see, and gaps that scans learn.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use trommel::vfs::Vfs;
use trommel::{Compression, Db, Options, WriteBatch};
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

/// Regression: keys deleted one by one kept their bytes for as long as nobody waited for the store
/// to become idle.
#[test]
fn keys_deleted_one_by_one_free_the_disk_at_rest() {
    let vfs = Arc::new(MemoryVfs::new());
    let options = Options::default().vfs(Arc::clone(&vfs) as _).compression(Compression::None);
    let db = Db::open("db", options.background_threads(1)).unwrap();
    let disk_bytes =
        || -> u64 { vfs.list(Path::new("db")).unwrap().iter().map(|entry| entry.bytes).sum() };
    for place in 0..KEYS {
        db.put(key(place), [7; 200]).unwrap();
    }
    db.compact_all().unwrap();
    let full = disk_bytes();
    for place in 0..KEYS {
        db.delete(key(place)).unwrap();
    }
    // As long as it takes, up to a timeout.
    let end = Instant::now() + Duration::from_secs(60);
    while disk_bytes() > full / 50 && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(10));
    }
    let left = disk_bytes();
    assert!(left <= full / 50, "{left} of {full} bytes are left");
}

/// A range that ends with the last key of a table does not delete the table.
#[test]
fn a_range_up_to_the_last_key_of_a_table_leaves_that_key() {
    let options = Options::default().vfs(Arc::new(MemoryVfs::new())).background_threads(0);
    let db = Db::open("db", options).unwrap();
    for place in 0..100 {
        db.put(key(place), "").unwrap();
    }
    db.compact_all().unwrap();
    db.delete_range(key(0)..key(40)).unwrap();
    db.delete_range(key(40)..key(99)).unwrap();
    db.flush().unwrap();
    db.wait_idle().unwrap();
    let left: Vec<_> = db.iter().map(|entry| entry.unwrap().0.to_vec()).collect();
    assert_eq!(left, [key(99).into_bytes()]);
}

/// Skipping a gap moves the sources that are as old as it, and leaves others in it. A visit after
/// that lent values whose tombstones had been skipped.
#[test]
fn a_visit_after_a_skipped_gap_lends_nothing_deleted() {
    let options = Options::default()
        .vfs(Arc::new(MemoryVfs::new()))
        .background_threads(0)
        .compression(Compression::None)
        .compaction(|c| c.table_bytes(2 << 10).auto_compaction(false));
    let db = Db::open("db", options).unwrap();
    let name = |place: u32| format!("k{place:02}");
    for place in 0..1000 {
        db.put(format!("a{place:03}"), [7; 100]).unwrap();
    }
    for place in 0..100 {
        db.put(name(place), "old").unwrap();
    }
    db.compact_all().unwrap();
    db.delete("a000").unwrap();
    for place in 10..90 {
        db.delete(name(place)).unwrap();
    }
    db.flush().unwrap();
    // The table of the values is then newer than that of the tombstones, and as new as the scan.
    db.put(name(95), "new").unwrap();
    db.flush().unwrap();
    db.compact_range(name(95)..=name(95)).unwrap();
    assert_eq!(db.range(name(0)..).count(), 20);
    db.put(name(50), "new").unwrap();
    let mut expected: Vec<String> = (0..10).chain([50]).chain(90..100).map(name).collect();
    let mut cursor = db.cursor().unwrap();
    let mut lent = Vec::new();
    cursor.seek(name(0)).unwrap();
    cursor
        .visit(|key, _| {
            lent.push(String::from_utf8(key.to_vec()).unwrap());
            true
        })
        .unwrap();
    assert_eq!(lent, expected);
    expected.reverse();
    lent.clear();
    cursor.seek_to_last().unwrap();
    cursor
        .visit_back(|key, _| {
            lent.push(String::from_utf8(key.to_vec()).unwrap());
            key > name(0).as_bytes()
        })
        .unwrap();
    assert_eq!(lent, expected);
}
