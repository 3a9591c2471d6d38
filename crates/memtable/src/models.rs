//! Loom models of a memtable: a few threads in every order that the memory model allows. Records
//! carry a witness, which fails if a read does not happen after the record's write. A table begins
//! with one bucket, so that few entries cover every path.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use trommel_base::sync::models::{check, thread};
use trommel_base::{Cursor, EntryKind, SeqNo};

use crate::chains::hash_of;
use crate::{ArenaPool, Memtable, MemtableKind};

/// A memtable with one entry, `m`.
fn memtable() -> Arc<Memtable> {
    let memtable = Arc::new(Memtable::new(MemtableKind::Hash, &ArenaPool::new(0)));
    memtable.insert(b"m", 5, EntryKind::Put, b"m");
    memtable
}

/// The keys from end to end; fails if one is out of order, or does not have its own value.
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

/// Fails unless each of `expected` is found in order, by its key and by a full scan.
fn assert_whole(memtable: &Arc<Memtable>, expected: &[u8]) {
    assert_eq!(keys(memtable), expected);
    assert_eq!(memtable.len(), expected.len());
    for key in expected {
        assert_eq!(memtable.get(&[*key], SeqNo::MAX).unwrap().value, [*key]);
    }
}

/// Two threads link records in one bucket, one of them after the other's or in the next table, and
/// every later reader finds both.
#[test]
fn inserts_into_one_bucket_are_all_found() {
    check("inserts_into_one_bucket_are_all_found", || {
        let memtable = memtable();
        let threads = [(b"n", 6), (b"o", 7)].map(|(key, seqno)| {
            let memtable = Arc::clone(&memtable);
            thread::spawn(move || {
                memtable.insert(key, seqno, EntryKind::Put, key);
                assert!(memtable.get(key, SeqNo::MAX).is_some(), "not found by its own writer");
            })
        });
        for thread in threads {
            thread.join().unwrap();
        }
        assert_whole(&memtable, b"mno");
    });
}

/// Two keys before `m` in one chain, with the same mark.
fn keys_of_one_chain() -> (u8, u8) {
    let place = |key: u8| (hash_of(&[key], 0) % 16, hash_of(&[key], 0) >> 62);
    let pairs = (b'A'..b'm').flat_map(|k| (k + 1..b'm').map(move |l| (k, l)));
    pairs.into_iter().find(|(k, l)| place(*k) == place(*l)).expect("some are alike")
}

/// A thread that reaches a record, through a bucket, another record, or a run, sees it whole.
#[test]
fn who_finds_an_entry_sees_it_whole() {
    // How many entries a reader saw, over all orders; so it is not loom's atomic.
    static SEEN: AtomicUsize = AtomicUsize::new(0);
    let (k, l) = keys_of_one_chain();
    check("who_finds_an_entry_sees_it_whole", move || {
        let memtable = memtable();
        let writer = {
            let memtable = Arc::clone(&memtable);
            thread::spawn(move || {
                memtable.insert(&[l], 7, EntryKind::Put, &[l]);
                // Older than the previous one: it is linked after it in the chain.
                memtable.insert(&[k], 6, EntryKind::Put, &[k]);
            })
        };
        let reader = {
            let memtable = Arc::clone(&memtable);
            thread::spawn(move || {
                let found = [k, l, b'm'].map(|key| {
                    let entry = memtable.get(&[key], SeqNo::MAX);
                    entry.inspect(|entry| assert_eq!(entry.value, [key])).is_some()
                });
                assert!(found[2], "what was there before is always found");
                let seen = keys(&memtable);
                assert!([k, l, b'm'].ends_with(&seen), "{seen:?}");
                assert!(!found[0] || seen.len() == 3, "found before, and not there later");
                seen.len()
            })
        };
        SEEN.fetch_or(1 << reader.join().unwrap(), Relaxed);
        writer.join().unwrap();
        assert_whole(&memtable, &[k, l, b'm']);
    });
    assert_eq!(SEEN.load(Relaxed), 0b1110, "one, two and three entries were seen");
}

/// If two threads insert one key and number, one of them is refused, and its entry is not linked.
#[test]
fn of_two_equal_entries_one_is_refused() {
    check("of_two_equal_entries_one_is_refused", || {
        let memtable = Arc::new(Memtable::new(MemtableKind::Hash, &ArenaPool::new(0)));
        let insert = {
            let memtable = Arc::clone(&memtable);
            move || memtable.insert_new(b"k", 3, EntryKind::Put, b"k")
        };
        let other = thread::spawn(insert.clone());
        let inserted = [insert(), other.join().unwrap()];
        assert!(inserted[0] != inserted[1], "both or neither: {inserted:?}");
        assert_whole(&memtable, b"k");
    });
}
