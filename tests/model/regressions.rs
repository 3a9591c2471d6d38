//! What the sequences found, each cut down to the few steps it takes.

use std::collections::BTreeSet;
use std::sync::Arc;

use trommel::vfs::MemoryVfs;
use trommel::{Db, Options};

fn tiny() -> Options {
    Options::default()
        .vfs(Arc::new(MemoryVfs::new()))
        .background_threads(0)
        .write_buffer_bytes(8 << 10)
        .block_bytes(256)
        .table_bytes(4 << 10)
        .base_level_bytes(16 << 10)
        .level_ratio(2)
        .l0_trigger(1)
}

/// A memtable that held but one key, of 50,000 bytes, gave all of it to its successor as the
/// prefix to expect; the successor, though empty, was then larger than the write buffer, was
/// "full", was not frozen because it was empty, and the writer looked again for ever.
#[test]
fn one_giant_key_leaves_room_for_the_next_write() {
    let (done, outcome) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let db = Db::open("/store", tiny()).unwrap();
        db.put(vec![7; 50_000], b"").unwrap();
        db.flush().unwrap();
        db.put(b"k", b"v").unwrap();
        db.close().unwrap();
        done.send(()).unwrap();
    });
    outcome.recv_timeout(std::time::Duration::from_secs(30)).expect("the write comes back");
}

/// A level that had lost its data kept a row of its own in the filter report, under the number
/// of the level that had taken its place: two rows said "L1".
#[test]
fn the_report_has_one_row_for_each_level_and_kind() {
    let db = Db::open("/store", tiny().filters("paired:10".parse().unwrap())).unwrap();
    for key in 0..1500 {
        let key = key * 7919 % 1500;
        db.put(format!("{key:05}"), [0; 100]).unwrap();
        db.get(format!("{key:05}x")).unwrap();
    }
    assert!(db.stats().levels.len() > 2, "{}", db.stats());
    db.compact_all().unwrap();
    let report = db.filter_report();
    let rows: Vec<_> = report.levels.iter().map(|row| (row.level, row.kind.name())).collect();
    let distinct: BTreeSet<_> = rows.iter().collect();
    assert_eq!(distinct.len(), rows.len(), "{report}");
    assert!(report.levels.iter().all(|row| row.probes > 0), "{report}");
}
