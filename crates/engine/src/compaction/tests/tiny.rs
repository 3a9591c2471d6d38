//! Stores written a little at a time: their data stays in few tables.
#![expect(clippy::big_endian_bytes, reason = "keys in the order of their numbers")]

use std::sync::Arc;

use trommel_sim::MemoryVfs;
use trommel_vfs::Vfs;

use crate::{Db, Options};

fn options(vfs: &Arc<MemoryVfs>) -> Options {
    Options::default().vfs(Arc::clone(vfs) as Arc<dyn Vfs>).background_threads(0)
}

fn tables(db: &Db) -> u64 {
    db.stats().levels.iter().map(|level| level.tables).sum()
}

fn bytes(db: &Db) -> u64 {
    db.stats().levels.iter().map(|level| level.bytes).sum()
}

/// Regression: tables were moved one by one to the deepest level, and stayed there: 20,000 flushes
/// left 20,000 tables (perkeep 1008).
#[test]
fn tiny_flushes_leave_few_tables() {
    let orders: [fn(u32) -> u32; 3] = [|n| n, |n| 10_000 - n, |n| n.wrapping_mul(2_654_435_761)];
    for (nth, order) in orders.into_iter().enumerate() {
        let db = Db::open("db", options(&Arc::default())).unwrap();
        let mut most = 0;
        for n in 0..1_000 {
            db.put(order(n).to_be_bytes(), n.to_be_bytes()).unwrap();
            db.flush().unwrap();
            most = most.max(tables(&db));
        }
        assert!(most <= 24, "{most} tables, order {nth}");
        db.wait_idle().unwrap();
        let (left, stats) = (tables(&db), db.stats());
        assert!(left <= 16, "{left} tables at rest, order {nth}");
        // Each rewrite at least doubles the size of the table that holds an entry.
        let written = stats.background.compactions.bytes_written;
        assert!(written < 1_000 * 10_000, "{written} bytes written, order {nth}");
        for n in 0..1_000 {
            assert_eq!(db.get(order(n).to_be_bytes()).unwrap().unwrap(), n.to_be_bytes()[..]);
        }
        db.wait_idle().unwrap();
        assert_eq!(
            db.stats().background.compactions.count,
            stats.background.compactions.count,
            "order {nth}: it goes on for ever"
        );
    }
}

/// Regression: a store that is opened for each write, as by the program, wrote a table at each open
/// (rocksdb 2686).
#[test]
fn openings_for_one_write_each_leave_few_tables() {
    let vfs = Arc::default();
    for n in 0..400_u32 {
        let db = Db::open("db", options(&vfs)).unwrap();
        db.put(n.to_be_bytes(), [7; 100]).unwrap();
        db.close().unwrap();
    }
    let db = Db::open("db", options(&vfs)).unwrap();
    assert!(tables(&db) <= 1, "{} tables", tables(&db));
    for n in 0..400_u32 {
        assert_eq!(db.get(n.to_be_bytes()).unwrap().unwrap(), [7; 100][..]);
    }
}

/// Entries carried over from log to log are rewritten at each open, but no more of them than
/// documented.
#[test]
fn a_log_that_is_no_longer_short_becomes_a_table() {
    let vfs = Arc::default();
    let open = || Db::open("db", options(&vfs)).unwrap();
    let log_bytes = || {
        let files = vfs.list("db".as_ref()).unwrap().into_iter();
        let logs = files.filter(|file| file.name.to_string_lossy().ends_with(".log"));
        let path = |name: &std::ffi::OsStr| std::path::Path::new("db").join(name);
        let sizes = logs.map(|file| vfs.read(&path(&file.name), 1 << 30).unwrap().len() as u64);
        sizes.collect::<Vec<_>>()
    };
    let mut most = 0;
    for n in 0..40_u32 {
        let db = open();
        db.put(n.to_be_bytes(), [7; 20 << 10]).unwrap();
        db.close().unwrap();
        let logs = log_bytes();
        assert_eq!(logs.len(), 1, "of opening {n}");
        most = most.max(logs[0]);
    }
    assert!((200 << 10..300 << 10).contains(&most), "{most} bytes");
    let db = open();
    assert!((2..=5).contains(&tables(&db)), "{} tables", tables(&db));
    assert!(bytes(&db) > 0);
    for n in 0..40_u32 {
        assert_eq!(db.get(n.to_be_bytes()).unwrap().unwrap(), [7; 20 << 10][..]);
    }
}
