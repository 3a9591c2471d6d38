//! Stores that are written a little at a time: what they hold stays in few tables.

use std::sync::Arc;

use trommel_vfs::{MemoryVfs, Vfs};

use crate::{Db, Options};

fn options(vfs: &Arc<MemoryVfs>) -> Options {
    Options::default().vfs(Arc::clone(vfs) as Arc<dyn Vfs>).background_threads(0)
}

fn tables(db: &Db) -> u64 {
    db.stats().levels.iter().map(|level| level.tables).sum()
}

/// They were moved one by one to the deepest level, and stayed there: 20,000 flushes left 20,000 tables (perkeep 1008).
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
        // Each rewrite doubles the table that an entry lies in, or more.
        let written = stats.compaction_bytes_written;
        assert!(written < 1_000 * 10_000, "{written} bytes written, order {nth}");
        for n in 0..1_000 {
            assert_eq!(db.get(order(n).to_be_bytes()).unwrap().unwrap(), n.to_be_bytes()[..]);
        }
        db.wait_idle().unwrap();
        assert_eq!(db.stats().compactions, stats.compactions, "order {nth}: it goes on for ever");
    }
}
