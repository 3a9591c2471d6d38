//! Memtables of both kinds: whichever held an entry, reads and replays are the same, and none is
//! larger than its limit.

use std::collections::BTreeMap;
use std::sync::Arc;

use trommel::MemtableKind::{self, Hash, SkipList};
use trommel::{Db, Options};
use trommel_sim::{MemoryVfs, Policy, SimDisk};

/// An opening without background threads and compactions.
fn options(kind: MemtableKind) -> Options {
    Options::default()
        .background_threads(0)
        .compaction(|c| c.auto_compaction(false))
        .writes(|w| w.memtable(kind))
}

type Entries = Vec<(Vec<u8>, Vec<u8>)>;

fn forward(db: &Db) -> Entries {
    db.iter().map(|entry| entry.map(|(k, v)| (k.to_vec(), v.to_vec())).unwrap()).collect()
}

fn backward(db: &Db) -> Entries {
    let entries = db.iter().rev();
    entries.map(|entry| entry.map(|(k, v)| (k.to_vec(), v.to_vec())).unwrap()).collect()
}

/// Fails unless all reads of `db` are those of the model.
fn assert_is(db: &Db, model: &BTreeMap<Vec<u8>, Vec<u8>>, what: &str) {
    let of_model = |(key, value): (&Vec<u8>, &Vec<u8>)| (key.clone(), value.clone());
    assert!(forward(db).into_iter().eq(model.iter().map(of_model)), "{what}: forward");
    assert!(backward(db).into_iter().eq(model.iter().rev().map(of_model)), "{what}: backward");
    for n in 0..500 {
        let key = format!("{n:03}").into_bytes();
        let found = db.get(&key).unwrap();
        assert_eq!(found.as_deref(), model.get(&key).map(|value| &value[..]), "{what}: {n}");
    }
}

/// Each opening replays what memtables of another kind held when the process died, and changes the
/// kind while it is open.
#[test]
fn the_kind_may_change_at_any_opening_and_in_between() {
    let mut disk = SimDisk::new();
    let mut model = BTreeMap::new();
    for (round, kind) in [Hash, SkipList, SkipList, Hash, Hash, SkipList].into_iter().enumerate() {
        let db = Db::open("db", options(kind).vfs(Arc::new(disk.clone()))).unwrap();
        assert_is(&db, &model, &format!("round {round}, replayed"));
        let at_first = (db.snapshot(), model.clone());
        for n in 0..900 {
            let key = format!("{:03}", n * (7 + 2 * round) % 499).into_bytes();
            if n % 6 == round {
                db.delete(&key).unwrap();
                model.remove(&key);
            } else {
                let value = format!("{round} {n}").into_bytes();
                db.put(&key, &value).unwrap();
                model.insert(key, value);
            }
            if n == 400 {
                let other = if kind == Hash { SkipList } else { Hash };
                db.set_options(|o| o.writes(|w| w.memtable(other))).unwrap();
                if round % 2 == 0 {
                    db.flush().unwrap();
                }
                assert_is(&db, &model, &format!("round {round}, half"));
            }
        }
        assert_is(&db, &model, &format!("round {round}"));
        let (snapshot, earlier) = at_first;
        for (key, value) in &earlier {
            assert_eq!(snapshot.get(key).unwrap().as_deref(), Some(&value[..]), "round {round}");
        }
        assert!(snapshot.iter().map(|entry| entry.unwrap().0.to_vec()).eq(earlier.into_keys()));
        disk = disk.crash(Policy::EVERYTHING, 0).disk();
    }
}

/// A cursor that turns around moves the sources of its merge one entry back: to where a memtable
/// may have got a new entry meanwhile. The new entry came before an old version, and the key was
/// shown again with that.
#[test]
fn a_cursor_that_turns_around_shows_no_key_again() {
    for kind in MemtableKind::ALL {
        let db = Db::open("db", options(kind).vfs(Arc::new(MemoryVfs::new()))).unwrap();
        for value in ["old", "new"] {
            db.put("m", value).unwrap();
            db.flush().unwrap();
        }
        db.put("a", "").unwrap();
        db.put("z", "").unwrap();
        let mut cursor = db.cursor().unwrap();
        cursor.seek_to_last().unwrap();
        cursor.prev().unwrap();
        assert_eq!(cursor.entry(), Some((&b"m"[..], &b"new"[..])));
        db.put("f", "put later").unwrap();
        cursor.next().unwrap();
        assert_eq!(cursor.entry(), Some((&b"z"[..], &b""[..])), "{kind}");
        cursor.prev().unwrap();
        assert_eq!(cursor.entry(), Some((&b"m"[..], &b"new"[..])), "{kind}");
        cursor.prev().unwrap();
        assert_eq!(cursor.entry(), Some((&b"a"[..], &b""[..])), "{kind}");
    }
}

/// Scans skip what a range tombstone has deleted, many entries at a time, and nothing that was put
/// later.
#[test]
fn what_is_put_into_a_deleted_range_is_seen() {
    const KEYS: u32 = 3_000;
    for kind in MemtableKind::ALL {
        let db = Db::open("db", options(kind).vfs(Arc::new(MemoryVfs::new()))).unwrap();
        let key = |n: u32| format!("{n:05}").into_bytes();
        let scattered = |n: u32| n * 1_009 % KEYS;
        for n in 0..KEYS {
            db.put(key(scattered(n)), "old").unwrap();
            if n == 0 {
                // From now on entries are inserted in order.
                assert_eq!(forward(&db).len(), 1);
            }
        }
        let snapshot = db.snapshot();
        db.delete_range(key(10)..key(KEYS - 10)).unwrap();
        let again: Vec<u32> = (100..KEYS - 100).filter(|n| n % 37 == 0).collect();
        for n in again.iter().rev() {
            db.put(key(*n), "new").unwrap();
        }
        let kept = (0..10).chain(again.iter().copied()).chain(KEYS - 10..KEYS);
        let expected: Vec<_> = kept.map(key).collect();
        let keys = |entries: Entries| entries.into_iter().map(|(key, _)| key);
        assert!(keys(forward(&db)).eq(expected.iter().cloned()), "{kind}: forward");
        assert!(keys(backward(&db)).eq(expected.into_iter().rev()), "{kind}: backward");
        assert_eq!(snapshot.iter().count(), KEYS as usize, "{kind}");
    }
}

/// Most of the memory of small entries is that of the index.
#[test]
fn what_finds_and_orders_small_entries_counts_towards_the_limit() {
    const ENTRIES: u64 = 20_000;
    for kind in MemtableKind::ALL {
        let db = Db::open("db", options(kind).vfs(Arc::new(MemoryVfs::new()))).unwrap();
        let empty = db.stats().memory.memtables;
        for n in 0..ENTRIES {
            db.put(n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes(), "").unwrap();
        }
        let each = (db.stats().memory.memtables - empty) / ENTRIES;
        // 32 bytes of the arena, and at least 32 of the index; chunks are filled to half or more.
        let least = if kind == Hash { 64 } else { 100 };
        assert!((least..170).contains(&each), "{kind}: {each} bytes an entry");
    }
}
