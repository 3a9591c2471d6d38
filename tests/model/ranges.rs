//! Deleted ranges as seen by what is not a plain read: conditional writes, open iterators, and
//! copies of the store.

use std::sync::Arc;

use trommel::dump::{DumpReader, DumpWriter};
use trommel::{Db, Options};
use trommel_sim::MemoryVfs;

fn options(vfs: &Arc<MemoryVfs>) -> Options {
    Options::default()
        .vfs(Arc::<MemoryVfs>::clone(vfs))
        .background_threads(0)
        .compaction(|c| c.auto_compaction(false))
}

fn entries(db: &Db) -> Vec<(Vec<u8>, Vec<u8>)> {
    db.iter().map(|entry| entry.map(|(k, v)| (k.to_vec(), v.to_vec())).unwrap()).collect()
}

fn key(number: u32) -> String {
    format!("key{number:03}")
}

/// A store of keys 0 to 89, 20 to 39 of which are deleted by a tombstone in the manifest, and 50 to
/// 59 by one in a memtable.
fn filled(vfs: &Arc<MemoryVfs>) -> Db {
    let db = Db::open("db", options(vfs)).unwrap();
    for number in 0..90 {
        db.put(key(number), "1").unwrap();
    }
    db.flush().unwrap();
    db.delete_range(key(20)..key(40)).unwrap();
    db.flush().unwrap();
    db.delete_range(key(50)..=key(59)).unwrap();
    let left = (0..90).filter(|n| !(20..40).contains(n) && !(50..60).contains(n));
    let expected: Vec<_> = left.map(|n| (key(n).into_bytes(), b"1".to_vec())).collect();
    assert_eq!(entries(&db), expected);
    db
}

#[test]
fn copies_of_a_store_heed_deleted_ranges() {
    let vfs = Arc::new(MemoryVfs::new());
    let db = filled(&vfs);
    let expected = entries(&db);
    db.checkpoint("checkpoint").unwrap();
    let mut writer = DumpWriter::new(Vec::new()).unwrap();
    for (key, value) in &expected {
        writer.append(key, value).unwrap();
    }
    let (stream, totals) = writer.finish().unwrap();
    assert_eq!(totals.entries, 60);
    let mut reader = DumpReader::new(&*stream, "dump").unwrap();
    let loaded = Db::open("loaded", options(&vfs)).unwrap();
    while let Some((key, value)) = reader.next_entry().unwrap() {
        loaded.put(key, value).unwrap();
    }
    assert_eq!(entries(&loaded), expected);
    db.delete_range(..).unwrap();
    let copy = Db::open_read_only("checkpoint", options(&vfs)).unwrap();
    copy.verify().unwrap();
    assert_eq!(entries(&copy), expected);
    drop(copy);
    let copy = Db::open("checkpoint", options(&vfs)).unwrap();
    copy.compact_all().unwrap();
    assert_eq!(entries(&copy), expected);
    assert_eq!(entries(&db), []);
}

#[test]
fn conditional_writes_heed_deleted_ranges() {
    let db = filled(&Arc::new(MemoryVfs::new()));
    for number in [25, 55] {
        let key = key(number);
        assert!(!db.compare_and_set(&key, Some(b"1"), Some(b"2")).unwrap(), "{key}");
        assert!(db.insert_if_absent(&key, "3").unwrap(), "{key}");
        assert!(!db.insert_if_absent(&key, "4").unwrap(), "{key}");
        assert!(db.compare_and_set(&key, Some(b"3"), None).unwrap(), "{key}");
        assert!(db.compare_and_set(&key, None, Some(b"5")).unwrap(), "{key}");
        db.delete_range(&*key..=&*key).unwrap();
        assert!(!db.compare_and_set(&key, Some(b"5"), None).unwrap(), "{key}");
        assert_eq!(db.get(&key).unwrap(), None);
    }
    assert!(!db.insert_if_absent(key(45), "2").unwrap(), "it is not in a deleted range");
}

/// An open iterator, cursor or snapshot keeps what it sees, whatever happens to the range.
#[test]
fn what_was_open_before_a_deletion_keeps_what_it_sees() {
    let db = filled(&Arc::new(MemoryVfs::new()));
    let expected = entries(&db);
    let (mut forward, mut backward) = (db.iter(), db.iter().rev());
    let first = forward.next().unwrap().unwrap();
    let last = backward.next().unwrap().unwrap();
    assert_eq!((&*first.0, &*last.0), (&*expected[0].0, &*expected[59].0));
    let (mut cursor, snapshot) = (db.cursor().unwrap(), db.snapshot());
    cursor.seek(key(10)).unwrap();
    db.delete_range(key(1)..).unwrap();
    db.flush().unwrap();
    db.compact_all().unwrap();
    assert_eq!(entries(&db), expected[..1]);
    assert_eq!(forward.count(), 59);
    assert_eq!(backward.count(), 59);
    assert_eq!(cursor.key(), Some(key(10).as_bytes()));
    cursor.next().unwrap();
    assert_eq!(cursor.key(), Some(key(11).as_bytes()));
    assert_eq!(snapshot.get(key(11)).unwrap().as_deref(), Some(&b"1"[..]));
    assert_eq!(snapshot.iter().count(), 60);
}
