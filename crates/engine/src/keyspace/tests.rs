//! Keyspaces, and how they are stored.
#![expect(clippy::big_endian_bytes, reason = "keys in the order of their numbers")]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use trommel_sim::{MemoryVfs, Policy, SimDisk};
use trommel_vfs::Vfs;

use crate::bounds::Bounds;
use crate::keyspaces::Part;
use crate::manifest::edit::VersionEdit;
use crate::{
    CompactionContext, CompactionFilter, Compression, Db, Error, FilterDecision, Keyspace,
    KeyspaceOptions, Options, Prefix, RepairOptions, Slice, WriteBatch,
};

const MARKED: &[u8] = b"\xff\xff\xff\xffkey";
/// A user's key that equals the physical key of the catalog's first entry.
const IN_PLACE_OF_CATALOG: &[u8] = b"\xff\xff\xff\xff\0\0\0\x01";

fn options(vfs: &Arc<MemoryVfs>) -> Options {
    Options::default().vfs(Arc::<MemoryVfs>::clone(vfs)).background_threads(0)
}

fn new_store() -> (Arc<MemoryVfs>, Db) {
    let vfs = Arc::new(MemoryVfs::new());
    let db = Db::open("db", options(&vfs)).unwrap();
    (vfs, db)
}

fn keyspace(db: &Db, name: &str) -> Keyspace {
    db.keyspace(name, KeyspaceOptions::new()).unwrap()
}

fn keys(entries: impl Iterator<Item = crate::Result<(Slice, Slice)>>) -> Vec<Vec<u8>> {
    entries.map(|entry| entry.unwrap().0.to_vec()).collect()
}

/// Physical entries of everything.
fn physical(db: &Db) -> Vec<Vec<u8>> {
    keys(db.handle().range(Part::Whole, Bounds::all(), None))
}

#[test]
fn keyspaces_are_apart() {
    let (_, db) = new_store();
    let (a, b) = (keyspace(&db, "a"), keyspace(&db, "b"));
    let longest = vec![0xff; 65_527];
    for (nth, space) in [&a, &b].into_iter().enumerate() {
        space.put("k", [nth as u8]).unwrap();
        space.put("", "empty").unwrap();
        space.put(&longest, "long").unwrap();
        let refused = space.put(vec![0xff; 65_528], "");
        assert!(matches!(refused, Err(Error::KeyTooLong { bytes: 65_536 })), "{refused:?}");
    }
    db.put("k", "default").unwrap();
    db.put(MARKED, "marked").unwrap();
    for _ in 0..2 {
        assert_eq!(keys(db.iter()), [b"k", MARKED]);
        for (nth, space) in [&a, &b].into_iter().enumerate() {
            assert_eq!(space.get("k").unwrap().unwrap(), [nth as u8]);
            assert_eq!(keys(space.iter()), [&b""[..], b"k", &longest]);
            assert_eq!(keys(space.range("a"..).rev()), [&longest[..], b"k"]);
            assert_eq!(keys(space.prefix("\u{7f}k")), [b""; 0]);
            assert_eq!(space.get(MARKED).unwrap(), None);
        }
        db.flush().unwrap();
        db.compact_all().unwrap();
    }
    assert!(a.approximate_bytes(..).unwrap() < db.stats().levels[0].bytes);
    db.delete_range(..).unwrap();
    assert_eq!((db.iter().count(), a.iter().count(), b.iter().count()), (0, 3, 3));
    a.delete_range("a"..).unwrap();
    assert_eq!((keys(a.iter()), b.iter().count()), (vec![b"".to_vec()], 3));
    for name in ["", &"x".repeat(256)] {
        let refused = db.keyspace(name, KeyspaceOptions::new()).unwrap_err().to_string();
        assert!(refused.contains("1 to 255"), "{refused}");
    }
}

/// Keys of the default keyspace that look like those of others are moved when there are others, for
/// later readers only.
#[test]
fn the_first_keyspace_moves_keys_that_begin_with_the_marker() {
    let (vfs, db) = new_store();
    let expected = [&b"a"[..], b"\xff\xff\xff", IN_PLACE_OF_CATALOG, MARKED];
    for key in expected {
        db.put(key, key).unwrap();
    }
    assert_eq!(physical(&db), expected);
    let (before, mut iter) = (db.snapshot(), db.range(b"\xff".as_slice()..));
    let (reads, marks) = (db.begin(), db.begin());
    assert!(reads.contains_key("a").unwrap() && !marks.contains_key("\u{0}").unwrap());
    reads.put("b", "").unwrap();
    assert!(marks.contains_key(MARKED).unwrap());
    marks.put("c", "").unwrap();
    let named = keyspace(&db, "named");
    named.put("k", "v").unwrap();
    assert_eq!(physical(&db).len(), 7, "the catalog has two entries");
    assert_eq!(keys(iter.by_ref()), expected[1..]);
    reads.commit().unwrap();
    assert!(matches!(marks.commit(), Err(Error::Conflict(_))));
    db.delete("b").unwrap();
    let check = |db: &Db| {
        assert_eq!(keys(db.iter()), expected);
        assert_eq!(keys(db.iter().rev()), expected.iter().copied().rev().collect::<Vec<_>>());
        let values = db.multi_get(&expected).unwrap();
        for (key, value) in expected.into_iter().zip(values) {
            assert_eq!((value.as_deref(), db.get(key).unwrap().as_deref()), (Some(key), Some(key)));
            assert!(db.contains_key(key).unwrap() && !db.insert_if_absent(key, "").unwrap());
        }
        assert_eq!(keys(db.prefix(b"\xff\xff\xff\xff")), expected[2..]);
    };
    check(&db);
    assert_eq!(keys(before.iter()), expected);
    assert_eq!(before.get(MARKED).unwrap().unwrap(), MARKED);
    assert!(before.keyspace(&named).unwrap().iter().next().is_none());
    drop((before, iter));
    db.compact_all().unwrap();
    check(&db);
    db.close().unwrap();
    drop(named);
    let db = Db::open("db", options(&vfs)).unwrap();
    check(&db);
    let named = db.open_keyspace("named").unwrap().unwrap();
    assert_eq!(keys(named.iter()), [b"k"]);
    db.delete_range(MARKED..).unwrap();
    assert_eq!((keys(db.iter()).len(), named.iter().count()), (3, 1));
}

#[test]
fn too_many_keys_with_the_marker_are_refused_before_anything_changes() {
    let (_, db) = new_store();
    db.put([&[0xff; 8][..], &[1; 65_520]].concat(), "").unwrap();
    let refused = db.keyspace("a", KeyspaceOptions::new()).unwrap_err().to_string();
    assert!(refused.contains("FF FF FF FF") && refused.contains("65527"), "{refused}");
    db.delete_range(..).unwrap();
    for nth in 0..3 {
        db.put([0xff, 0xff, 0xff, 0xff, nth], vec![nth; 24 << 20]).unwrap();
    }
    let refused = db.keyspace("a", KeyspaceOptions::new()).unwrap_err().to_string();
    assert!(refused.contains("64 MiB"), "{refused}");
    assert_eq!((keys(db.iter()).len(), db.list_keyspaces().unwrap().len()), (3, 0));
    db.delete([0xff, 0xff, 0xff, 0xff, 0]).unwrap();
    keyspace(&db, "a").put("k", "v").unwrap();
    assert_eq!(db.iter().count(), 2);
}

/// The manifest has a salt, and the process died before the catalog was written.
#[test]
fn a_salt_without_its_catalog_changes_nothing() {
    let (vfs, db) = new_store();
    db.put(MARKED, "marked").unwrap();
    db.put(IN_PLACE_OF_CATALOG, "trommel keyspaces 1\nsalt = 1\nlast_id = 9\n").unwrap();
    let edit = VersionEdit { catalog_salt: Some(7), ..VersionEdit::default() };
    db.engine().install(edit, None, None).unwrap();
    db.close().unwrap();
    let db = Db::open("db", options(&vfs)).unwrap();
    assert_eq!(db.engine().version().catalog_salt, Some(7));
    assert_eq!(physical(&db), [IN_PLACE_OF_CATALOG, MARKED]);
    assert_eq!((keys(db.iter()).len(), db.list_keyspaces().unwrap().len()), (2, 0));
    let named = keyspace(&db, "named");
    assert_eq!((db.iter().count(), named.iter().count()), (2, 0));
    assert_ne!(db.engine().version().catalog_salt, Some(7));
}

#[test]
fn a_dropped_keyspace_is_gone_for_all_but_what_was_open() {
    let (vfs, db) = new_store();
    let (a, b) = (keyspace(&db, "a"), keyspace(&db, "b"));
    for number in 0..1000_u32 {
        a.put(number.to_be_bytes(), [7; 100]).unwrap();
    }
    b.put("k", "v").unwrap();
    db.compact_all().unwrap();
    let snapshot = db.snapshot();
    let (moment, mut iter, mut cursor) =
        (snapshot.keyspace(&a).unwrap(), a.iter(), a.cursor().unwrap());
    iter.next().unwrap().unwrap();
    let (writes, reads) = (db.begin(), db.begin());
    writes.keyspace(&a).unwrap().put("k", "v").unwrap();
    assert_eq!(reads.keyspace(&a).unwrap().iter().take(3).count(), 3);
    reads.put("k", "v").unwrap();
    assert!(db.drop_keyspace("a").unwrap() && !db.drop_keyspace("a").unwrap());
    assert_eq!(db.list_keyspaces().unwrap(), ["b"]);
    let mut batch = WriteBatch::new();
    batch.put("k", "v").keyspace(&a).put("k", "v");
    for outcome in [
        a.put("k", "v").map(drop),
        a.delete_range(..).map(drop),
        a.compare_and_set("k", None, Some(b"v")).map(drop),
        a.get("k").map(drop),
        a.multi_get(&["k"]).map(drop),
        a.cursor().map(drop),
        a.iter().next().unwrap().map(drop),
        a.compact_range(..),
        db.write(batch).map(drop),
        db.snapshot().keyspace(&a).map(drop),
        db.begin().keyspace(&a).map(drop),
        writes.commit().map(drop),
    ] {
        let error = outcome.unwrap_err();
        assert!(matches!(&error, Error::KeyspaceDropped { name } if name == "a"), "{error}");
    }
    assert!(matches!(reads.commit(), Err(Error::Conflict(_))));
    assert_eq!(db.get("k").unwrap(), None);
    db.compact_all().unwrap();
    assert_eq!((iter.count(), moment.iter().count()), (999, 1000));
    cursor.seek_to_last().unwrap();
    assert_eq!(cursor.key(), Some(&999_u32.to_be_bytes()[..]));
    drop((moment, snapshot, cursor));
    let again = keyspace(&db, "a");
    assert_eq!((again.iter().count(), again.state.id), (0, b.state.id + 1));
    db.wait_idle().unwrap();
    db.compact_all().unwrap();
    assert!(db.approximate_bytes(..).unwrap() + b.approximate_bytes(..).unwrap() < 10_000);
    assert!(db.drop_keyspace("a").unwrap());
    db.close().unwrap();
    let db = Db::open("db", options(&vfs)).unwrap();
    assert_eq!(keyspace(&db, "a").state.id, b.state.id + 2, "the id of a dropped one is not used");
    let foreign = db.snapshot().keyspace(&b).unwrap_err().to_string();
    assert!(foreign.contains("another store"), "{foreign}");
    let mut batch = WriteBatch::new();
    batch.keyspace(&b).put("k", "v");
    assert!(matches!(db.write(batch), Err(Error::InvalidOption { .. })));
}

/// No write through a handle happens after the drop, where no read would find it.
#[test]
fn writes_beside_a_drop_are_before_it_or_refused() {
    let vfs = Arc::new(MemoryVfs::new());
    let db = Db::open("db", options(&vfs).background_threads(1)).unwrap();
    for round in 0..30 {
        let doomed = keyspace(&db, "doomed");
        let is_dropped = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let (doomed, is_dropped, db) = (doomed.clone(), &is_dropped, &db);
                scope.spawn(move || {
                    for number in 0_u32.. {
                        let was_dropped = is_dropped.load(Ordering::SeqCst);
                        let key = number.to_be_bytes();
                        let mut batch = WriteBatch::new();
                        batch.put(key, "1").keyspace(&doomed).put(key, "2");
                        let outcome = match thread {
                            0 => db.write(batch).map(drop),
                            1 => doomed.put(key, "3").map(drop),
                            _ => doomed.get(key).map(drop),
                        };
                        match outcome {
                            Ok(()) => assert!(!was_dropped),
                            Err(Error::KeyspaceDropped { .. }) => break,
                            Err(error) => panic!("{error}"),
                        }
                    }
                });
            }
            std::thread::sleep(Duration::from_micros(100 * round));
            assert!(db.drop_keyspace("doomed").unwrap());
            is_dropped.store(true, Ordering::SeqCst);
        });
        let left = db.handle().range(Part::Whole, doomed.state.space().all(), None);
        assert_eq!(left.count(), 0, "round {round}");
    }
}

/// A filter that removes everything that it is called for.
#[derive(Debug)]
struct RemoveAll;

impl CompactionFilter for RemoveAll {
    fn name(&self) -> &'static str {
        "remove-all"
    }

    fn filter(&self, _: &CompactionContext, key: &[u8], _: &[u8]) -> FilterDecision {
        assert!(key == b"a" || key == MARKED, "{}", key.escape_ascii());
        FilterDecision::Remove
    }
}

#[test]
fn compaction_filters_are_called_for_the_default_keyspace_only() {
    let vfs = Arc::new(MemoryVfs::new());
    let filtered = || options(&vfs).compaction(|c| c.compaction_filter(Arc::new(RemoveAll)));
    let db = Db::open("db", filtered()).unwrap();
    let named = keyspace(&db, "named");
    for key in [&b"a"[..], MARKED] {
        db.put(key, "1").unwrap();
        named.put(key, "1").unwrap();
    }
    db.compact_all().unwrap();
    assert_eq!((db.iter().count(), named.iter().count()), (0, 2));
    drop(named);
    db.close().unwrap();
    assert_eq!(Db::open("db", filtered()).unwrap().list_keyspaces().unwrap(), ["named"]);
}

/// The compression, prefix rule and whole-key filter of each table, with the ids of its keyspaces.
fn layouts(db: &Db) -> Vec<(String, Vec<u8>)> {
    let version = db.engine().version();
    let mut found: Vec<_> = version
        .tables()
        .map(|(_, file)| {
            let reader = db.engine().files.tables.reader(file).unwrap();
            let prefix = reader.filters().prefixes_part().map(|part| part.extractor.clone());
            let keys = reader.filters().facts().kind;
            (format!("{} {}", keys.name(), prefix.unwrap_or_default()), file.smallest.to_vec())
        })
        .collect();
    found.sort_by(|a, b| a.1.cmp(&b.1));
    found
}

#[test]
fn keyspaces_have_filters_and_prefixes_of_their_own() {
    let vfs = Arc::new(MemoryVfs::new());
    let options = options(&vfs).filters("paired:12".parse().unwrap());
    let db = Db::open("db", options.clone()).unwrap();
    let ribbon = || KeyspaceOptions::new().filters("ribbon:9".parse().unwrap());
    let plain = keyspace(&db, "plain");
    let (one, two) = (db.keyspace("one", ribbon()).unwrap(), db.keyspace("two", ribbon()).unwrap());
    let by_prefix = ribbon().prefix_extractor(Prefix::until("/"));
    let prefixed = db.keyspace("prefixed", by_prefix).unwrap();
    let fill = |db: &Db| {
        for number in 0..200_u32 {
            for space in [&plain, &one, &two, &prefixed] {
                space.put(format!("{}/{number}", number % 7), [number as u8; 9]).unwrap();
            }
            db.put(format!("{}/{number}", number % 7), "v").unwrap();
        }
        db.flush().unwrap();
    };
    fill(&db);
    for _ in 0..2 {
        // The default keyspace and `plain` are in one table, and so are `one` and `two`.
        let found = layouts(&db);
        let expected = ["paired ", "ribbon ", "ribbon keyspace:until:/"];
        assert_eq!(found.iter().map(|(layout, _)| &**layout).collect::<Vec<_>>(), expected);
        assert_eq!(found[1].1, *one.state.space().key(b"0/0"));
        db.compact_all().unwrap();
    }
    db.reset_stats();
    assert_eq!((prefixed.prefix("3/").count(), prefixed.prefix("35/").count()), (29, 0));
    let prefixes = db.stats().prefixes;
    assert_eq!((prefixes.useful, prefixes.unused), (1, 0));
    assert_eq!(one.prefix("3/").count(), 29);
    db.verify().unwrap();
    // The current options apply to later tables, and to filters that are rebuilt.
    db.keyspace("one", KeyspaceOptions::new()).unwrap();
    fill(&db);
    db.compact_all().unwrap();
    let found: Vec<_> = layouts(&db).into_iter().map(|(layout, _)| layout).collect();
    assert_eq!(found, ["paired ", "ribbon ", "ribbon keyspace:until:/"]);
    assert_eq!(layouts(&db)[1].1, *two.state.space().key(b"0/0"));
    assert!(db.filter_rebuild_plan(&Default::default()).unwrap().tables.is_empty());
    let budget = KeyspaceOptions::new().filters("budget=10/key".parse().unwrap());
    assert!(matches!(db.keyspace("four", budget), Err(Error::InvalidOption { .. })));
    db.close().unwrap();
    let db = Db::open("db", options).unwrap();
    db.open_keyspace("prefixed").unwrap().unwrap().put("x/", "v").unwrap();
    db.flush().unwrap();
    let last = layouts(&db).pop().unwrap();
    assert_eq!(last.0, "ribbon keyspace:until:/", "the options are recorded");
}

#[test]
fn keyspaces_have_a_compression_of_their_own() {
    let (_, db) = new_store();
    let raw = KeyspaceOptions::new().compression(Compression::None);
    let (raw, packed) = (db.keyspace("raw", raw).unwrap(), keyspace(&db, "packed"));
    for number in 0..1000_u32 {
        raw.put(number.to_be_bytes(), [7; 500]).unwrap();
        packed.put(number.to_be_bytes(), [7; 500]).unwrap();
    }
    db.flush().unwrap();
    let bytes = |space: &Keyspace| space.approximate_bytes(..).unwrap();
    assert!(
        bytes(&raw) > 500_000 && bytes(&packed) < 100_000,
        "{} {}",
        bytes(&raw),
        bytes(&packed)
    );
}

fn filled(db: &Db) {
    let (a, b) = (keyspace(db, "a"), keyspace(db, "b"));
    for number in 0..300_u32 {
        a.put(number.to_be_bytes(), [1; 100]).unwrap();
        b.put(number.to_be_bytes(), [2; 100]).unwrap();
        db.put(number.to_be_bytes(), [3; 100]).unwrap();
    }
    db.put(MARKED, "marked").unwrap();
    db.drop_keyspace("b").unwrap();
    keyspace(db, "c").put("k", "v").unwrap();
}

fn assert_filled(db: &Db) {
    assert_eq!(db.list_keyspaces().unwrap(), ["a", "c"]);
    let open = |name: &str| db.open_keyspace(name).unwrap().unwrap();
    assert_eq!((db.iter().count(), open("a").iter().count()), (301, 300));
    assert_eq!(open("c").get("k").unwrap().unwrap(), b"v");
    assert_eq!(db.get(MARKED).unwrap().unwrap(), b"marked");
}

#[test]
fn copies_and_repairs_have_the_keyspaces() {
    for is_flushed in [false, true] {
        let (vfs, db) = new_store();
        filled(&db);
        if is_flushed {
            db.flush().unwrap();
        }
        db.checkpoint("copy").unwrap();
        assert_filled(&db);
        assert_filled(&Db::open("copy", options(&vfs)).unwrap());
        db.close().unwrap();
        assert_filled(&Db::open_read_only("db", options(&vfs)).unwrap());
        assert!(Db::verify_dir("db", &options(&vfs)).unwrap().is_sound());
        let how = RepairOptions::default();
        assert!(Db::repair("db", "repaired", options(&vfs), how).unwrap().is_complete());
        assert_filled(&Db::open("repaired", options(&vfs)).unwrap());
        // Without any manifest. Entries of the dropped keyspace may come back: the drop is a range
        // tombstone that only the manifest has.
        vfs.remove(Path::new("db/CURRENT")).unwrap();
        let manifest =
            |name: &str| name.starts_with("MANIFEST").then(|| Path::new("db").join(name));
        for entry in vfs.list(Path::new("db")).unwrap() {
            manifest(&entry.name.to_string_lossy())
                .iter()
                .for_each(|path| vfs.remove(path).unwrap());
        }
        Db::repair("db", "rescued", options(&vfs), how).unwrap();
        let db = Db::open("rescued", options(&vfs)).unwrap();
        assert!(db.list_keyspaces().unwrap().iter().any(|name| name == "a"));
        assert_eq!(db.open_keyspace("a").unwrap().unwrap().iter().count(), 300);
        assert_eq!(db.get(MARKED).unwrap().unwrap(), b"marked");
    }
}

#[test]
fn a_read_only_store_reads_its_keyspaces() {
    let (vfs, db) = new_store();
    filled(&db);
    db.close().unwrap();
    let db = Db::open_read_only("db", options(&vfs)).unwrap();
    let other = KeyspaceOptions::new().compression(Compression::None);
    assert_eq!(db.keyspace("a", other).unwrap().iter().count(), 300);
    let refused = db.keyspace("new", KeyspaceOptions::new());
    assert!(matches!(refused, Err(Error::ReadOnly)), "{refused:?}");
    assert!(matches!(db.drop_keyspace("a"), Err(Error::ReadOnly)));
}

/// The process is killed in the middle of a life with keyspaces, and after it.
#[test]
fn keyspaces_survive_kills() {
    let disk = Arc::new(SimDisk::new());
    let on = |disk: &Arc<SimDisk>| {
        Options::default().vfs(Arc::<SimDisk>::clone(disk)).background_threads(0)
    };
    let db = Db::open("db", on(&disk)).unwrap();
    db.put(MARKED, "marked").unwrap();
    let killed = |policy| Arc::new(disk.crash(policy, 0).disk());
    let before = killed(Policy::EVERYTHING);
    filled(&db);
    let after = killed(Policy::EVERYTHING);
    drop(db);
    let db = Db::open("db", on(&before)).unwrap();
    assert_eq!((keys(db.iter()), db.list_keyspaces().unwrap().len()), (vec![MARKED.to_vec()], 0));
    let db = Db::open("db", on(&after)).unwrap();
    assert_filled(&db);
    assert_eq!(keyspace(&db, "d").state.id, 5);
}

#[test]
fn conflicts_name_the_keyspace() {
    let (_, db) = new_store();
    let users = keyspace(&db, "users");
    users.put("1", "Ada").unwrap();
    db.put(MARKED, "1").unwrap();
    let mut batch = WriteBatch::new();
    batch.put("k", "v").keyspace(&users).expect_absent("1");
    let Err(Error::Conflict(conflict)) = db.write(&batch) else { panic!("it was written") };
    assert_eq!((&*conflict.key, conflict.keyspace.as_deref()), (&b"1"[..], Some("users")));
    assert!(conflict.to_string().starts_with("keyspace users: key 1 "), "{conflict}");
    batch.clear();
    batch.expect_absent(MARKED).put("k", "v");
    let Err(Error::Conflict(conflict)) = db.write(&batch) else { panic!("it was written") };
    assert_eq!((&*conflict.key, conflict.keyspace), (MARKED, None));
    let tx = db.begin();
    assert_eq!(tx.keyspace(&users).unwrap().range("0"..).count(), 1);
    tx.put("k", "v").unwrap();
    users.put("2", "Grace").unwrap();
    let Err(Error::Conflict(conflict)) = tx.commit() else { panic!("it was written") };
    assert_eq!((&*conflict.key, conflict.keyspace.as_deref()), (&b"2"[..], Some("users")));
    assert_eq!(db.get("k").unwrap(), None);
}

/// Each idle keyspace takes a few hundred bytes, in memory and on disk, and no thread.
#[test]
fn ten_thousand_keyspaces_take_little() {
    const COUNT: u64 = 10_000;
    let (vfs, db) = new_store();
    for number in 0..COUNT {
        keyspace(&db, &format!("keyspace {number}")).put("k", "v").unwrap();
    }
    db.compact_all().unwrap();
    let bytes = db.stats().levels.iter().map(|level| level.bytes).sum::<u64>();
    assert!(bytes / COUNT < 256, "{} bytes each", bytes / COUNT);
    assert!(db.stats().levels.iter().map(|level| level.tables).sum::<u64>() < 4);
    db.close().unwrap();
    let all = |entry: &trommel_vfs::DirEntry| {
        vfs.read(&Path::new("db").join(&entry.name), 1 << 30).unwrap().len() as u64
    };
    let bytes: u64 = vfs.list(Path::new("db")).unwrap().iter().map(all).sum();
    assert!(bytes / COUNT < 4 << 10, "{} bytes each", bytes / COUNT);
    let db = Db::open("db", options(&vfs)).unwrap();
    assert_eq!(db.list_keyspaces().unwrap().len() as u64, COUNT);
    let last = db.open_keyspace(format!("keyspace {}", COUNT - 1)).unwrap().unwrap();
    assert_eq!(last.get("k").unwrap().unwrap(), b"v");
    for number in 0..COUNT {
        assert!(db.drop_keyspace(format!("keyspace {number}")).unwrap());
    }
    assert_eq!(db.list_keyspaces().unwrap().len(), 0);
}

/// The time of a write is that of the whole call, whatever its form: waiting for a keyspace that
/// another thread drops is in it. Regression: in that of a commit only.
#[test]
fn the_time_of_a_write_is_that_of_the_call() {
    let (_, db) = new_store();
    let keyspace = keyspace(&db, "some");
    let commit = || {
        let transaction = db.begin();
        transaction.keyspace(&keyspace).unwrap().put("a", "1").unwrap();
        transaction.commit().unwrap();
    };
    let batch = || {
        let mut batch = WriteBatch::new();
        batch.keyspace(&keyspace).put("a", "1");
        db.write(batch).unwrap();
    };
    let forms: [(&str, &dyn Fn()); 6] = [
        ("put", &|| _ = keyspace.put("a", "1").unwrap()),
        ("delete", &|| _ = keyspace.delete("a").unwrap()),
        ("delete_range", &|| _ = keyspace.delete_range("a".."b").unwrap()),
        ("insert_if_absent", &|| _ = keyspace.insert_if_absent("a", "1").unwrap()),
        ("batch", &batch),
        ("commit", &commit),
    ];
    db.measure_latencies(true);
    for (form, act) in forms {
        db.reset_stats();
        // Enough for one to be in the sample.
        for _ in 0..4 * crate::LATENCY_SAMPLE {
            let (held, is_held) = std::sync::mpsc::channel();
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let alone = crate::sync::write_lock(&keyspace.state.gate);
                    held.send(()).unwrap();
                    std::thread::sleep(Duration::from_millis(1));
                    drop(alone);
                });
                is_held.recv().unwrap();
                act();
            });
        }
        let write = &db.latencies()[crate::TimedOperation::Write as usize];
        // Much more than a write takes, and less than the wait even if this thread resumes late.
        let mean = write.total / u32::try_from(write.count).unwrap();
        assert!(mean > Duration::from_micros(100), "{form}: {mean:?} of {}", write.count);
    }
}
