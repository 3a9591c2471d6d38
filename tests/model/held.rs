//! Objects that keep a store open, and the effect of `close` on them.

use std::sync::Arc;

use trommel::vfs::Vfs;
use trommel::{Db, Error, Options};
use trommel_sim::MemoryVfs;

fn open(vfs: &Arc<dyn Vfs>) -> trommel::Result<Db> {
    Db::open("/held", Options::default().vfs(Arc::clone(vfs)))
}

fn filled(vfs: &Arc<dyn Vfs>) -> Db {
    let db = open(vfs).unwrap();
    for key in 0..2_000 {
        db.put(format!("{key:05}"), "value").unwrap();
        if key == 1_500 {
            db.flush().unwrap();
        }
    }
    db
}

#[expect(clippy::needless_pass_by_value, reason = "an outcome is asserted and gone")]
fn says_closed<T: std::fmt::Debug>(outcome: trommel::Result<T>) {
    assert!(matches!(outcome, Err(Error::Closed)), "{outcome:?}");
}

/// A snapshot that outlived the last handle used to report that its store was closed, but a range
/// did not.
#[test]
fn whatever_is_held_keeps_the_store_open_and_the_last_closes_it() {
    type Hold = fn(&Db) -> Box<dyn Send>;
    let holders: [Hold; 8] = [
        |db| Box::new(db.clone()),
        |db| Box::new(db.snapshot()),
        |db| Box::new(db.snapshot().clone()),
        |db| Box::new(db.iter()),
        |db| Box::new(db.snapshot().prefix("0001")),
        |db| {
            let mut begun = db.range("00500".."01000");
            begun.next_back().unwrap().unwrap();
            Box::new(begun)
        },
        |db| Box::new(db.cursor().unwrap()),
        |db| Box::new(db.healthy(..).unwrap()),
    ];
    for (nth, hold) in holders.into_iter().enumerate() {
        let vfs: Arc<dyn Vfs> = Arc::new(MemoryVfs::new());
        let db = filled(&vfs);
        let held = hold(&db);
        drop(db);
        let second = open(&vfs);
        assert!(matches!(second, Err(Error::Locked { .. })), "holder {nth}: the store was closed");
        // The last holder may be in another thread.
        std::thread::spawn(move || drop(held)).join().unwrap();
        let db = open(&vfs).unwrap();
        assert!(db.recovery_report().was_closed, "holder {nth}");
        assert_eq!(db.iter().count(), 2_000);
    }
}

#[test]
fn what_is_held_reads_on_when_the_last_handle_is_dropped() {
    let vfs: Arc<dyn Vfs> = Arc::new(MemoryVfs::new());
    let db = filled(&vfs);
    let (snapshot, range, mut cursor) = (db.snapshot(), db.iter(), db.cursor().unwrap());
    drop(db);
    assert_eq!(snapshot.get("00007").unwrap().unwrap(), b"value"[..]);
    assert_eq!(snapshot.range("00100".."00200").rev().count(), 100);
    drop(snapshot);
    assert_eq!(range.map(Result::unwrap).count(), 2_000);
    cursor.seek_to_last().unwrap();
    assert_eq!(cursor.key(), Some(&b"01999"[..]));
}

/// An existing range used to continue after the store was closed, and so did a cursor.
#[test]
fn close_ends_all_reads() {
    let vfs: Arc<dyn Vfs> = Arc::new(MemoryVfs::new());
    let db = filled(&vfs);
    let (other, snapshot) = (db.clone(), db.snapshot());
    let (mut untouched, mut ended) = (db.iter(), snapshot.range("00000".."00001"));
    let mut begun = db.range("00500".."01500");
    begun.next().unwrap().unwrap();
    begun.next_back().unwrap().unwrap();
    assert_eq!(ended.by_ref().count(), 1);
    let mut healthy = db.healthy(..).unwrap();
    healthy.next().unwrap().unwrap();
    let cursor = || {
        let mut cursor = db.cursor_in("00100".."00900").unwrap();
        cursor.seek_to_first().unwrap();
        cursor.next().unwrap();
        cursor
    };
    let mut cursors: Vec<_> = (0..8).map(|_| cursor()).collect();
    db.close().unwrap();

    says_closed(other.get("00001"));
    says_closed(other.contains_key("00001"));
    says_closed(other.multi_get(&["00001", "nothing"]));
    says_closed(other.approximate_bytes(..));
    says_closed(other.checkpoint("/copy"));
    says_closed(other.cursor());
    says_closed(other.healthy(..));
    says_closed(snapshot.get("00001"));
    says_closed(snapshot.contains_key("00001"));
    says_closed(snapshot.clone().multi_get(&["00001"]));
    says_closed(snapshot.cursor());
    says_closed(snapshot.prefix_cursor("0"));
    for mut range in [other.iter(), other.prefix("0"), snapshot.iter(), snapshot.prefix("0")] {
        says_closed(range.next().unwrap());
        assert!(range.next().is_none() && range.next_back().is_none());
    }
    says_closed(untouched.next_back().unwrap());
    assert!(untouched.next_back().is_none() && untouched.next().is_none());
    says_closed(begun.next().unwrap());
    assert!(begun.next_back().is_none() && begun.next().is_none());
    assert!(ended.next().is_none(), "a range that has ended has nothing more to say");
    says_closed(healthy.next().unwrap());
    assert!(healthy.next().is_none());
    let moved: [fn(&mut trommel::DbCursor) -> trommel::Result<()>; 8] = [
        trommel::DbCursor::next,
        trommel::DbCursor::prev,
        trommel::DbCursor::seek_to_first,
        trommel::DbCursor::seek_to_last,
        |cursor| cursor.seek("00200"),
        |cursor| cursor.seek_for_prev("00200"),
        |cursor| cursor.visit(|_, _| true),
        |cursor| cursor.visit_back(|_, _| true),
    ];
    for (cursor, moved) in cursors.iter_mut().zip(moved) {
        says_closed(moved(cursor));
        assert!(!cursor.valid());
        // Nor does it recover.
        says_closed(cursor.seek_to_first());
    }
}

/// After its visitor had closed the store, a visit used to continue to its last entry.
#[test]
fn a_visit_ends_when_the_store_is_closed() {
    for in_tables in [false, true] {
        let vfs: Arc<dyn Vfs> = Arc::new(MemoryVfs::new());
        let db = filled(&vfs);
        if in_tables {
            db.compact_all().unwrap();
        }
        let mut cursor = db.cursor().unwrap();
        cursor.seek_to_first().unwrap();
        let (mut visited, mut handle) = (0, Some(db));
        let visit = |_: &[u8], _: &[u8]| {
            visited += 1;
            if visited == 5 {
                handle.take().unwrap().close().unwrap();
            }
            true
        };
        says_closed(cursor.visit(visit));
        // Entries borrowed from a table continue at most to the end of the block: some 300 entries.
        assert!((5..=500).contains(&visited), "{visited}");
    }
}
