//! Models of the list: every order of a few threads, by the memory model. Nodes carry a witness, at
//! which a look fails that does not come behind the writing of the node.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use trommel_base::sync::models::{check, thread};
use trommel_base::{Cursor, EntryKind, SeqNo};

use crate::list::{EntryList, height_of};
use crate::{ArenaPool, Memtable};

/// The `nth` sequence number whose node has this height.
fn seqno_of(height: usize, nth: usize) -> SeqNo {
    (1..).filter(|seqno| height_of(*seqno) == height).nth(nth).unwrap()
}

/// A memtable with one entry, `m`, of two levels.
fn memtable() -> Arc<Memtable> {
    let memtable = Arc::new(Memtable::new(&ArenaPool::new(0)));
    memtable.insert(b"m", seqno_of(2, 9), EntryKind::Put, b"m");
    memtable
}

/// The keys from end to end; fails if one is out of order, or has not its own value.
fn keys(memtable: &Arc<Memtable>) -> Vec<u8> {
    let mut cursor = memtable.cursor();
    let Ok(()) = cursor.seek_to_first();
    let mut keys = Vec::new();
    while let Some(entry) = cursor.entry() {
        assert_eq!(entry.key, entry.value);
        keys.push(entry.key[0]);
        let Ok(()) = cursor.next();
    }
    assert!(keys.is_sorted(), "out of order: {keys:?}");
    keys
}

/// Fails unless each of `expected`, in order, can be reached, by every level and from end to end.
fn assert_whole(memtable: &Arc<Memtable>, expected: &[u8]) {
    assert_eq!(keys(memtable), expected);
    assert_eq!(memtable.len(), expected.len());
    for key in expected {
        assert_eq!(memtable.get(&[*key], SeqNo::MAX).unwrap().value, [*key]);
    }
    let mut cursor = memtable.cursor();
    let Ok(()) = cursor.seek_to_last();
    assert_eq!(cursor.entry().map(|entry| entry.key[0]), expected.last().copied());
}

/// Two threads put nodes of two levels into one gap, and end up in order at both.
#[test]
fn inserts_into_one_gap_are_all_found() {
    check("inserts_into_one_gap_are_all_found", || {
        let memtable = memtable();
        let threads = [(b"n", 0), (b"o", 1)].map(|(key, nth)| {
            let memtable = Arc::clone(&memtable);
            thread::spawn(move || {
                memtable.insert(key, seqno_of(2, nth), EntryKind::Put, key);
                assert!(memtable.get(key, SeqNo::MAX).is_some(), "not found by its own writer");
            })
        });
        for thread in threads {
            thread.join().unwrap();
        }
        assert_whole(&memtable, b"mno");
    });
}

/// Whoever comes to a node, at whichever level, sees it whole, with its links to lower levels.
#[test]
fn who_finds_an_entry_sees_it_whole() {
    // How many entries a reader saw, in some order; the same for all orders, so not loom's.
    static SEEN: AtomicUsize = AtomicUsize::new(0);
    check("who_finds_an_entry_sees_it_whole", || {
        let memtable = memtable();
        let writer = {
            let memtable = Arc::clone(&memtable);
            thread::spawn(move || {
                memtable.insert(b"l", seqno_of(3, 0), EntryKind::Put, b"l");
                memtable.insert(b"k", seqno_of(1, 0), EntryKind::Put, b"k");
            })
        };
        let reader = {
            let memtable = Arc::clone(&memtable);
            thread::spawn(move || {
                let seen = keys(&memtable);
                assert!([&b"m"[..], b"lm", b"klm"].contains(&&seen[..]), "{seen:?}");
                // What was found once is found again, by a search.
                let again = memtable.get(&seen[..1], SeqNo::MAX).map(|entry| entry.value[0]);
                assert_eq!(again, Some(seen[0]));
                seen.len()
            })
        };
        SEEN.fetch_or(1 << reader.join().unwrap(), Relaxed);
        writer.join().unwrap();
        assert_whole(&memtable, b"klm");
    });
    assert_eq!(SEEN.load(Relaxed), 0b1110, "one, two and three entries were seen");
}

/// Of two that insert one key under one number, one is told that it was there, and stands nowhere.
#[test]
fn of_two_equal_entries_one_is_refused() {
    check("of_two_equal_entries_one_is_refused", || {
        let list = Arc::new(EntryList::new(&ArenaPool::new(0), &[]));
        let seqno = seqno_of(2, 0);
        let insert = {
            let list = Arc::clone(&list);
            move || list.insert_new(b"k", seqno, EntryKind::Put, b"v")
        };
        let other = thread::spawn(insert.clone());
        let inserted = [insert(), other.join().unwrap()];
        assert!(inserted[0] != inserted[1], "both or neither: {inserted:?}");
        assert_eq!(list.len(), 1);
        assert_eq!(list.first_at(b"k", seqno).map(|entry| entry.value), Some(&b"v"[..]));
    });
}
