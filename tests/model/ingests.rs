//! Files of sorted entries, written outside a store and ingested: against a model, beside writers
//! and readers, with a disk that fails at every call, and with files that are refused.

#![expect(clippy::big_endian_bytes, reason = "keys in the order of their numbers")]

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use trommel::vfs::{Access, DiskVfs, Layer, ReadFile, Vfs};
use trommel::{
    Compression, Db, Error, IngestBatch, Keyspace, Options, RepairOptions, Snapshot, TableWriter,
    WriteBatch,
};
use trommel_sim::{Failure, Fault, MemoryVfs, OpKind, Policy, SimDisk, WallClock};

use crate::rng::Rng;

type State = BTreeMap<Vec<u8>, Vec<u8>>;

fn small(vfs: impl Vfs + 'static) -> Options {
    Options::default()
        .vfs(Arc::new(vfs))
        .background_threads(0)
        .compaction(|c| c.table_bytes(8 << 10).base_level_bytes(32 << 10).l0_trigger(2))
        .writes(|w| w.write_buffer_bytes(8 << 10))
}

fn state_of(entries: trommel::Range) -> State {
    entries.map(|entry| entry.map(|(k, v)| (k.to_vec(), v.to_vec())).unwrap()).collect()
}

/// Writes these entries to a file.
fn write<V: AsRef<[u8]>>(
    options: &Options,
    path: impl AsRef<Path>,
    entries: impl IntoIterator<Item = (impl AsRef<[u8]>, V)>,
) {
    let mut writer = TableWriter::create(path, options).unwrap();
    let mut count = 0;
    for (key, value) in entries {
        writer.put(key, value).unwrap();
        count += 1;
    }
    assert_eq!(writer.finish().unwrap().entries, count);
}

fn bytes_of(vfs: &dyn Vfs, path: &str) -> Vec<u8> {
    vfs.read(Path::new(path), 1 << 20).unwrap()
}

fn replace(vfs: &dyn Vfs, path: &str, bytes: &[u8]) {
    let path = Path::new(path);
    let _ = vfs.remove(path);
    vfs.create(path).unwrap().append(bytes).unwrap();
}

/// A store with a keyspace, and what they should hold.
struct World {
    db: Db,
    other: Keyspace,
    model: State,
    of_other: State,
}

impl World {
    fn open(options: Options) -> Self {
        let db = Db::open("db", options).unwrap();
        let other = db.keyspace("other", Default::default()).unwrap();
        Self { db, other, model: State::new(), of_other: State::new() }
    }

    fn check(&self, rng: &mut Rng, what: &str) {
        assert_eq!(state_of(self.db.iter()), self.model, "{what}");
        assert_eq!(state_of(self.other.iter()), self.of_other, "{what}");
        // A lookup stops at the first level that has the key.
        for key in (0..20).map(|_| key_of(rng.below(500))) {
            assert_eq!(self.db.get(&key).unwrap().as_deref(), self.model.get(&key).map(|v| &**v));
            let found = self.other.get(&key).unwrap();
            assert_eq!(found.as_deref(), self.of_other.get(&key).map(|v| &**v), "{what}");
        }
    }
}

/// Some of them begin with the marker of keys that have a header.
fn key_of(n: usize) -> Vec<u8> {
    let text = format!("{n:03}").into_bytes();
    if n < 300 { text } else { [&[0xff; 4], &*text].concat() }
}

/// Random files over live data: each is copied whole, atomically with the others of its batch.
#[test]
fn ingests_match_a_model() {
    for seed in 0..30 {
        let mut rng = Rng::new(seed);
        let vfs = MemoryVfs::new();
        let threads = rng.below(3);
        let options = || small(vfs.clone()).background_threads(threads);
        let mut world = World::open(options());
        let follower = Db::open_follower("db", options()).unwrap();
        let mut held: Vec<(Snapshot, State)> = Vec::new();
        for round in 0..100 {
            let what = format!("seed {seed}, round {round}");
            match rng.below(12) {
                0..4 => ingest_some(&mut world, &mut rng, &vfs, round),
                4 => {
                    let (from, to) = (key_of(rng.below(500)), key_of(rng.below(500)));
                    world.db.delete_range(&from[..]..&to[..]).unwrap();
                    world.model.retain(|key, _| !(from <= *key && *key < to));
                }
                5 => held.push((world.db.snapshot(), world.model.clone())),
                6 => world.db.flush().unwrap(),
                7 if rng.once_in(3) => world.db.compact_all().unwrap(),
                8 if rng.once_in(3) => {
                    held.clear();
                    let before = world;
                    let (model, of_other) = (before.model, before.of_other);
                    drop((before.other, before.db));
                    world = World { model, of_other, ..World::open(options()) };
                }
                _ => {
                    for _ in 0..rng.below(60) {
                        let key = key_of(rng.below(500));
                        let value = format!("put {round}").into_bytes();
                        world.db.put(&key, &value).unwrap();
                        world.other.put(&key, &value).unwrap();
                        world.model.insert(key.clone(), value.clone());
                        world.of_other.insert(key, value);
                    }
                }
            }
            world.check(&mut rng, &what);
            if rng.once_in(4) {
                follower.catch_up().unwrap();
                assert_eq!(state_of(follower.iter()), world.model, "{what}");
            }
            for (snapshot, state) in &held {
                assert_eq!(state_of(snapshot.iter()), *state, "{what}");
            }
        }
        world.db.verify().unwrap();
    }
}

/// Writes some files that overlap nothing among themselves, and ingests them in any order.
fn ingest_some(world: &mut World, rng: &mut Rng, vfs: &MemoryVfs, round: usize) {
    let mut batch = IngestBatch::new();
    let (mut files, mut entries) = (Vec::new(), 0);
    for of_other in [false, true] {
        let mut from = rng.below(500);
        for nth in 0..rng.below(4) {
            let end = (from + rng.below(120)).min(500);
            let keys = (from..end).filter(|_| rng.once_in(2)).map(key_of);
            let new: State = keys.map(|key| (key, format!("file {round}").into())).collect();
            let path = format!("{round}-{of_other}-{nth}.table");
            let compression = *rng.pick(&[Compression::None, Compression::Lz4]);
            let options = small(vfs.clone()).compression(compression);
            write(&options.reads(|r| r.block_bytes(200)), &path, &new);
            entries += new.len() as u64;
            if of_other { &mut world.of_other } else { &mut world.model }.extend(new);
            files.push((of_other, path));
            from = end;
        }
    }
    while !files.is_empty() {
        let (of_other, path) = files.swap_remove(rng.below(files.len()));
        if of_other {
            batch.add_to(&world.other, &path)
        } else {
            batch.add(&path)
        };
    }
    let report = world.db.ingest_batch(&batch).unwrap();
    assert_eq!(report.entries, entries);
    assert!(world.db.snapshot().seqno() >= report.seqno);
}

/// Each table goes below all that it does not overlap, so that nothing is written again.
#[test]
fn what_overlaps_nothing_is_copied_once() {
    let vfs = MemoryVfs::new();
    let options = || small(vfs.clone());
    let db = Db::open("db", options()).unwrap();
    let files = ["3", "0", "2", "1"].map(|part| {
        let path = format!("{part}.table");
        write(&options(), &path, (0..2_000).map(|n| (format!("{part}{n:04}"), [7; 40])));
        path
    });
    let report = db.ingest(&files).unwrap();
    assert_eq!((report.level, report.entries), (6, 8_000));
    assert!(report.tables > 8, "{report:?}");
    db.wait_idle().unwrap();
    let stats = db.stats();
    assert_eq!(stats.background.compactions.bytes_written, 0, "{stats}");
    assert_eq!((stats.levels.len(), stats.writes.log_bytes), (1, 0), "{stats}");
    assert_eq!(db.iter().count(), 8_000);
    // Of two files, only the one that overlaps something is above it.
    write(&options(), "above.table", [("10005", "new")]);
    write(&options(), "free.table", [("9", "new")]);
    let report = db.ingest(["free.table", "above.table"]).unwrap();
    assert_eq!((report.level, report.tables), (5, 2), "{report:?}");
    write(&options(), "many.table", (0..2_000).map(|n| (format!("8{n:04}"), [7; 40])));
    write(&options(), "again.table", [("10006", "new")]);
    let report = db.ingest(["many.table", "again.table"]).unwrap();
    assert_eq!(report.level, 5);
    let levels = db.stats().levels;
    let of_last = levels.last().unwrap().entries;
    assert!(of_last > 9_500, "the rest of the file is on the last level: {levels:?}");
    assert_eq!(db.get("10005").unwrap().unwrap(), b"new");
    assert_eq!(db.get("10006").unwrap().unwrap(), b"new");
}

/// Two small files, with a table of the store between them, shared one table, which overlapped it
/// and so went to the level above.
#[test]
fn no_table_of_two_files_covers_what_is_between_them() {
    let vfs = MemoryVfs::new();
    let db = Db::open("db", small(vfs.clone())).unwrap();
    for name in ["m", "a", "c", "x"] {
        write(&small(vfs.clone()), format!("{name}.table"), [(name, name)]);
    }
    assert_eq!(db.ingest(["m.table"]).unwrap().level, 6);
    let report = db.ingest(["a.table", "x.table", "c.table"]).unwrap();
    assert_eq!((report.level, report.tables), (6, 2), "{report:?}");
    assert_eq!(db.iter().count(), 4);
}

/// A file is of no store: its keys are hashed with the seed of each store that ingests it.
#[test]
fn stores_with_other_seeds_find_every_key() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("all.table");
    let key = |n: u32| n.wrapping_mul(0x9e37_79b9).to_be_bytes();
    let sorted: BTreeMap<_, _> = (0..5_000).map(|n| (key(n), n.to_string())).collect();
    write(&Options::default(), &file, &sorted);
    for filters in ["paired:16", "fuse:9", "none"] {
        for name in ["first", "second"] {
            let options = Options::default().vfs(Arc::new(DiskVfs)).background_threads(0);
            let options = options.filters(filters.parse().unwrap());
            let db = Db::open(dir.path().join(format!("{name}-{filters}")), options).unwrap();
            let users = db.keyspace("users", Default::default()).unwrap();
            let mut batch = IngestBatch::new();
            db.ingest_batch(batch.add(&file).add_to(&users, &file)).unwrap();
            for (key, value) in &sorted {
                assert_eq!(db.get(key).unwrap().unwrap(), value.as_bytes());
                assert_eq!(users.get(key).unwrap().unwrap(), value.as_bytes());
            }
            db.verify().unwrap();
            let absent = (5_000..10_000).filter(|n| db.get(key(*n)).unwrap().is_some()).count();
            assert_eq!(absent, 0);
        }
    }
}

/// Copies, checks and repairs of a store treat its tables like all others.
#[test]
fn copies_and_repairs_hold_what_was_ingested() {
    let vfs = MemoryVfs::new();
    let options = || small(vfs.clone());
    let world = World::open(options());
    let new: State = (0..500).map(|n| (key_of(n), b"ingested".to_vec())).collect();
    write(&options(), "all.table", &new);
    let mut batch = IngestBatch::new();
    world.db.put(key_of(3), "before").unwrap();
    world.db.ingest_batch(batch.add("all.table").add_to(&world.other, "all.table")).unwrap();
    world.db.checkpoint("copy").unwrap();
    world.db.close().unwrap();
    Db::repair("db", "repaired", options(), RepairOptions::default()).unwrap();
    for dir in ["db", "copy", "repaired"] {
        let db = Db::open(dir, options()).unwrap();
        let other = db.open_keyspace("other").unwrap().unwrap();
        assert_eq!((state_of(db.iter()), state_of(other.iter())), (new.clone(), new.clone()));
        db.compact_all().unwrap();
        assert_eq!(state_of(db.iter()), new, "{dir}");
        db.verify().unwrap();
    }
}

/// A store, a good file, and a file that is to be refused together with it.
struct Refusal {
    disk: SimDisk,
    db: Db,
}

impl Refusal {
    fn new() -> Self {
        let disk = SimDisk::new();
        let db = Db::open("db", small(disk.clone())).unwrap();
        db.put("a", "1").unwrap();
        write(&small(disk.clone()), "good.table", (0..300).map(|n| (format!("{n:05}"), [7; 9])));
        Self { disk, db }
    }

    /// The error of ingesting both files, which changes nothing.
    fn of(&self, path: &str) -> Error {
        let files = || self.disk.list(Path::new("db")).unwrap();
        let before = files();
        let error = self.db.ingest(["good.table", path]).unwrap_err();
        assert_eq!(files(), before, "{error}");
        assert_eq!(self.db.iter().count(), 1, "{error}");
        error
    }
}

/// Each byte of a file is under a checksum, and its contents are those that it states.
#[test]
fn every_flipped_byte_of_a_file_is_refused() {
    let Refusal { disk, db } = Refusal::new();
    let refusal = Refusal { disk: disk.clone(), db };
    let options = small(disk.clone()).reads(|r| r.block_bytes(100));
    let compressible = (0..40).map(|n| (format!("key {n}").repeat(3), "value ".repeat(6)));
    let sorted: BTreeMap<_, _> = compressible.collect();
    write(&options, "x.table", &sorted);
    let sound = bytes_of(&disk, "x.table");
    assert!(sound.len() > 1_000, "{}", sound.len());
    let mut offsets = Vec::new();
    for at in 0..sound.len() {
        let mut bytes = sound.clone();
        bytes[at] ^= 1 << (at % 8);
        replace(&disk, "x.table", &bytes);
        match refusal.of("x.table") {
            Error::Corruption(damage) => {
                assert_eq!(damage.file, Path::new("x.table"), "byte {at}");
                assert!(damage.offset <= at as u64, "byte {at}: {damage}");
                offsets.push(damage.offset);
            }
            other => panic!("byte {at}: {other}"),
        }
    }
    offsets.dedup();
    assert!(offsets.len() > 4, "the place is that of the block: {offsets:?}");
    replace(&disk, "x.table", &sound);
    refusal.db.ingest(["good.table", "x.table"]).unwrap();
    assert_eq!(refusal.db.iter().count(), 341);
}

#[test]
fn files_that_are_cut_or_longer_are_refused() {
    let refusal = Refusal::new();
    write(&small(refusal.disk.clone()), "x.table", [("k", "v"), ("l", "w")]);
    let sound = bytes_of(&refusal.disk, "x.table");
    for len in 0..sound.len() {
        replace(&refusal.disk, "x.table", &sound[..len]);
        assert!(matches!(refusal.of("x.table"), Error::Corruption(_)), "{len} bytes");
    }
    for more in [&[0; 1][..], &[0; 4096], &sound] {
        replace(&refusal.disk, "x.table", &[&*sound, more].concat());
        assert!(matches!(refusal.of("x.table"), Error::Corruption(_)), "{} more", more.len());
    }
}

/// Only files that were written for it are ingested.
#[test]
fn foreign_files_are_refused() {
    let refusal = Refusal::new();
    let disk = &refusal.disk;
    let other = Db::open("other", small(disk.clone())).unwrap();
    other.put("k", "v").unwrap();
    other.flush().unwrap();
    let table = disk.list(Path::new("other")).unwrap().into_iter();
    let table = table.map(|entry| entry.name).find(|name| name.to_string_lossy().ends_with(".sst"));
    let table = PathBuf::from("other").join(table.unwrap());
    let error = refusal.of(table.to_str().unwrap());
    let Error::WrongFile { file, .. } = &error else { panic!("{error}") };
    assert_eq!(*file, table);
    assert!(error.to_string().contains("TableWriter"), "{error}");
    assert!(matches!(refusal.of("other/CURRENT"), Error::Corruption(_)));
    let error = refusal.of("missing.table");
    assert!(error.to_string().contains("missing.table"), "{error}");
    assert!(matches!(error, Error::Io { .. }), "{error}");
    assert!(matches!(refusal.of("other"), Error::Io { .. }));
    refusal.db.put("b", "the store is as it was").unwrap();
}

#[test]
fn files_that_overlap_are_refused() {
    let refusal = Refusal::new();
    let options = small(refusal.disk.clone());
    write(&options, "x.table", [("00299", "v"), ("l", "w")]);
    match refusal.of("x.table") {
        Error::FilesOverlap { first, second } => {
            assert_eq!((first, second), ("good.table".into(), "x.table".into()));
        }
        other => panic!("{other}"),
    }
    assert!(matches!(refusal.of("good.table"), Error::FilesOverlap { .. }));
    // Side by side, around an empty one, and the same keys in two keyspaces.
    write(&options, "y.table", [("002990", "v")]);
    write(&options, "empty.table", [("", ""); 0]);
    let other = refusal.db.keyspace("other", Default::default()).unwrap();
    let mut batch = IngestBatch::new();
    batch.add("empty.table").add("y.table").add("good.table").add_to(&other, "x.table");
    let report = refusal.db.ingest_batch(batch.add_to(&other, "y.table")).unwrap_err();
    assert!(matches!(report, Error::FilesOverlap { .. }), "{report}");
    let mut batch = IngestBatch::new();
    batch.add("empty.table").add("y.table").add("good.table").add_to(&other, "good.table");
    assert_eq!(refusal.db.ingest_batch(&batch).unwrap().entries, 601);
    assert_eq!((refusal.db.iter().count(), other.iter().count()), (302, 300));
    let nothing = refusal.db.ingest(["empty.table"]).unwrap();
    assert_eq!((nothing.entries, nothing.tables), (0, 0));
    assert_eq!(nothing, refusal.db.ingest_batch(&IngestBatch::new()).unwrap());
}

#[test]
fn keys_that_are_too_long_for_a_keyspace_are_refused() {
    let vfs = MemoryVfs::new();
    let world = World::open(small(vfs.clone()));
    let longest = vec![b'k'; 65_535];
    write(&small(vfs.clone()), "x.table", [(&longest, "v")]);
    let error = world.other.ingest(["x.table"]).unwrap_err();
    assert!(matches!(error, Error::KeyTooLong { .. }), "{error}");
    world.db.ingest(["x.table"]).unwrap();
    assert_eq!(world.db.get(&longest).unwrap().unwrap(), b"v");
    assert_eq!(world.other.iter().count(), 0);
}

#[test]
fn read_only_stores_ingest_nothing() {
    let vfs = MemoryVfs::new();
    drop(World::open(small(vfs.clone())));
    write(&small(vfs.clone()), "x.table", [("k", "v")]);
    let reader = Db::open_read_only("db", small(vfs.clone())).unwrap();
    assert!(matches!(reader.ingest(["x.table"]), Err(Error::ReadOnly)));
    drop(reader);
    let (db, other) = (Db::open("db", small(vfs.clone())).unwrap(), World::open_elsewhere(&vfs));
    let mut batch = IngestBatch::new();
    let error = db.ingest_batch(batch.add_to(&other.other, "x.table")).unwrap_err();
    assert!(matches!(error, Error::InvalidOption { .. }), "a keyspace of another store: {error}");
    db.clone().close().unwrap();
    assert!(matches!(db.ingest(["x.table"]), Err(Error::Closed)));
}

impl World {
    fn open_elsewhere(vfs: &MemoryVfs) -> Self {
        let db = Db::open("elsewhere", small(vfs.clone())).unwrap();
        let other = db.keyspace("other", Default::default()).unwrap();
        Self { db, other, model: State::new(), of_other: State::new() }
    }
}

/// A file system on which something happens when a file is opened for the second time.
struct Hooked {
    below: MemoryVfs,
    file: &'static str,
    then: Mutex<Option<Then>>,
    opened: Mutex<u64>,
}

type Then = Box<dyn FnOnce() + Send>;

impl fmt::Debug for Hooked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.file)
    }
}

impl Layer for Hooked {
    fn below(&self) -> &dyn Vfs {
        &self.below
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn ReadFile>> {
        if path == Path::new(self.file) {
            let nth = {
                let mut opened = self.opened.lock().unwrap();
                *opened += 1;
                *opened
            };
            let then = self.then.lock().unwrap().take_if(|_| nth == 2);
            if let Some(then) = then {
                then();
            }
        }
        self.below.open(path, access)
    }
}

/// A store in which `then` runs while `x.table` is ingested, after it was looked at.
fn hooked(then: impl FnOnce(&Db) -> Then) -> (Arc<Hooked>, Db) {
    let (file, then_later, opened) = ("x.table", Mutex::default(), Mutex::default());
    let vfs = Arc::new(Hooked { below: MemoryVfs::new(), file, then: then_later, opened });
    let db = Db::open("db", small(MemoryVfs::new()).vfs(Arc::clone(&vfs) as _)).unwrap();
    *vfs.then.lock().unwrap() = Some(then(&db));
    (vfs, db)
}

/// A keyspace that is dropped during the load does not come back with it.
#[test]
fn a_keyspace_dropped_meanwhile_stays_empty() {
    let (vfs, db) = hooked(|db| {
        let db = db.clone();
        Box::new(move || assert!(db.drop_keyspace("gone").unwrap()))
    });
    let gone = db.keyspace("gone", Default::default()).unwrap();
    write(&small(vfs.below.clone()), "x.table", [("k", "v")]);
    let mut batch = IngestBatch::new();
    let error = db.ingest_batch(batch.add_to(&gone, "x.table")).unwrap_err();
    assert!(matches!(error, Error::KeyspaceDropped { .. }), "{error}");
    let again = db.keyspace("gone", Default::default()).unwrap();
    assert_eq!(again.iter().count(), 0);
    again.ingest(["x.table"]).unwrap();
    assert_eq!(again.get("k").unwrap().unwrap(), b"v");
}

/// Regression: where tables of other options begin within a load, a file was created without a
/// look at whether the store had been closed, and the directory was another owner's.
#[test]
fn an_ingest_that_outlives_its_store_creates_nothing() {
    let closed = Arc::new(AtomicBool::new(false));
    let (vfs, db) = hooked(|db| {
        let (db, closed) = (db.clone(), Arc::clone(&closed));
        Box::new(move || {
            db.close().unwrap();
            closed.store(true, Ordering::Relaxed);
        })
    });
    let first = db.keyspace("first", Default::default()).unwrap();
    let raw = trommel::KeyspaceOptions::new().compression(Compression::None);
    let second = db.keyspace("second", raw).unwrap();
    db.flush().unwrap();
    write(&small(vfs.below.clone()), "a.table", [("k", "v")]);
    write(&small(vfs.below.clone()), "x.table", [("k", "v")]);
    let tables = || {
        let listing = vfs.below.list(Path::new("db")).unwrap();
        listing.iter().filter(|entry| entry.name.as_encoded_bytes().ends_with(b".sst")).count()
    };
    let before = tables();
    let mut batch = IngestBatch::new();
    batch.add_to(&first, "a.table").add_to(&second, "x.table");
    let failed = db.ingest_batch(&batch);
    assert!(closed.load(Ordering::Relaxed) && matches!(failed, Err(Error::Closed)), "{failed:?}");
    assert_eq!(tables(), before + 1, "the table that was begun before, and none since");
}

/// Keys that begin with the marker move when the first keyspace is created.
#[test]
fn a_first_keyspace_created_meanwhile_loses_no_key() {
    let (vfs, db) = hooked(|db| {
        let db = db.clone();
        Box::new(move || _ = db.keyspace("first", Default::default()).unwrap())
    });
    let new = [(&b"a"[..], "1"), (&[0xff; 4], "2"), (b"\xff\xff\xff\xff\0\0\0\x02k", "3")];
    write(&small(vfs.below.clone()), "x.table", new);
    let error = db.ingest(["x.table"]).unwrap_err();
    assert!(error.to_string().contains("load again"), "{error}");
    assert_eq!(db.iter().count(), 0);
    db.ingest(["x.table"]).unwrap();
    for (key, value) in new {
        assert_eq!(db.get(key).unwrap().unwrap(), value.as_bytes());
    }
    assert_eq!(db.open_keyspace("first").unwrap().unwrap().iter().count(), 0);
    db.verify().unwrap();
}

/// An ingest is a write like any other for what was read before.
#[test]
fn a_transaction_conflicts_with_an_ingest() {
    let vfs = MemoryVfs::new();
    let world = World::open(small(vfs.clone()));
    write(&small(vfs.clone()), "x.table", [("key", "ingested")]);
    let late = world.db.begin();
    assert_eq!(late.keyspace(&world.other).unwrap().get("key").unwrap(), None);
    late.put("seen", "nothing").unwrap();
    let before = world.db.snapshot();
    world.other.ingest(["x.table"]).unwrap();
    assert!(matches!(late.commit(), Err(Error::Conflict(_))));
    assert_eq!(before.keyspace(&world.other).unwrap().get("key").unwrap(), None);
    assert!(!world.other.insert_if_absent("key", "again").unwrap());
    let mut batch = WriteBatch::new();
    batch.keyspace(&world.other).expect_value("key", "ingested").put("key", "2");
    world.db.write(batch).unwrap();
    assert_eq!(world.other.get("key").unwrap().unwrap(), b"2");
    assert_eq!(world.db.get("key").unwrap(), None);
}

#[test]
fn an_ingest_is_seen_whole_or_not_at_all_beside_writers() {
    let vfs = MemoryVfs::new();
    let world = World::open(small(vfs.clone()).background_threads(2));
    let is_over = AtomicBool::new(false);
    let seen = |snapshot: &Snapshot| {
        let other = snapshot.keyspace(&world.other).unwrap();
        let values = [snapshot.get("a"), snapshot.get("z"), other.get("a"), other.get("z")];
        let values = values.map(|value| value.unwrap().map(|value| value.to_vec()));
        assert!(values.iter().all(|value| *value == values[0]), "part of it: {values:?}");
        values[0].as_ref().map_or(0, |value| String::from_utf8_lossy(value).parse::<u64>().unwrap())
    };
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut last = 0;
                while !is_over.load(Ordering::Acquire) {
                    let round = seen(&world.db.snapshot());
                    assert!(round >= last, "{round} after {last}");
                    last = round;
                }
            });
        }
        scope.spawn(|| {
            for number in 0_u64.. {
                if is_over.load(Ordering::Acquire) {
                    return;
                }
                world.db.put(format!("k{:03}", number % 700), [1; 60]).unwrap();
            }
        });
        for round in 1..=40_u64 {
            let file = format!("{round}.table");
            let value = round.to_string();
            write(&small(vfs.clone()), &file, [("a", &value), ("z", &value)]);
            let mut batch = IngestBatch::new();
            world.db.ingest_batch(batch.add(&file).add_to(&world.other, &file)).unwrap();
            assert_eq!(seen(&world.db.snapshot()), round);
        }
        is_over.store(true, Ordering::Release);
    });
    world.db.verify().unwrap();
}

/// Whichever call to the disk fails, and whatever a power cut then leaves: the entries of all files
/// are there, or of none, and what was there before. The files are as they were.
#[test]
fn an_ingest_torn_at_any_call_is_whole_or_gone() {
    let before: State = (0..200).map(|n| (key_of(n), b"before".to_vec())).collect();
    let new: State = (100..500).map(|n| (key_of(n), b"ingested".to_vec())).collect();
    let after: State = before.clone().into_iter().chain(new.clone()).collect();
    let policies = [Policy::EVERYTHING, Policy::SYNCED, Policy::NAMES_ONLY, Policy::RANDOM];
    let mut outcomes = [0; 3];
    for calls in 0.. {
        let disk = SimDisk::new();
        let World { db, other, .. } = World::open(small(disk.clone()));
        before.iter().for_each(|(key, value)| _ = db.put(key, value).unwrap());
        db.sync().unwrap();
        write(&small(disk.clone()), "1.table", new.iter().take(150));
        write(&small(disk.clone()), "2.table", new.iter().skip(150));
        let mut batch = IngestBatch::new();
        batch.add("2.table").add("1.table").add_to(&other, "1.table");
        disk.inject(Fault::new(Failure::Io).after(calls).lasting());
        let ingested = db.ingest_batch(&batch);
        let is_over = disk.faults_fired() == 0;
        for policy in policies {
            let left = disk.crash(policy, calls).disk();
            let again = Db::open("db", small(left.clone())).unwrap();
            let found = state_of(again.iter());
            let of_other = again.open_keyspace("other").unwrap().unwrap().iter().count();
            let is_there = found == after;
            assert!(is_there || found == before, "call {calls}: {} keys", found.len());
            assert_eq!(of_other, if is_there { 150 } else { 0 }, "call {calls}");
            assert!(ingested.is_err() || is_there, "call {calls}: an acknowledged one is lost");
            again.verify().unwrap();
            // An open that had to drop bytes leaves all files to the next one.
            drop(again);
            let again = Db::open("db", small(left.clone())).unwrap();
            let tables = again.table_ids().len();
            let files = left.list(Path::new("db")).unwrap();
            let sst = files.iter().filter(|f| f.name.to_string_lossy().ends_with(".sst")).count();
            assert_eq!(sst, tables, "call {calls}: tables that nothing names");
            let mut batch = IngestBatch::new();
            again.ingest_batch(batch.add("2.table").add("1.table")).unwrap();
            assert_eq!(state_of(again.iter()), after, "call {calls}: the files are still there");
            outcomes[usize::from(is_there) + usize::from(ingested.is_ok())] += 1;
        }
        if is_over {
            break;
        }
    }
    assert!(outcomes.iter().all(|count| *count > 0), "{outcomes:?}");
}

/// A file that cannot be read is no reason to refuse writes.
#[test]
fn a_failed_read_of_a_file_changes_nothing() {
    let refusal = Refusal::new();
    write(&small(refusal.disk.clone()), "x.table", (0..900).map(|n| (format!("x{n:04}"), [1; 90])));
    for calls in 0..3 {
        let fault = Fault::new(Failure::Io).on(OpKind::Read).named("x.table").after(calls);
        refusal.disk.inject(fault);
        let error = refusal.of("x.table");
        assert!(error.to_string().contains("x.table"), "{error}");
        refusal.disk.clear_faults();
        refusal.db.put("a", "2").unwrap();
    }
    refusal.db.ingest(["x.table"]).unwrap();
}

#[test]
fn an_ingest_lasts_as_long_as_a_write_of_its_time() {
    let clock = WallClock::default();
    let ttl = Duration::from_secs(100);
    let vfs = clock.over(Arc::new(SimDisk::new()));
    let options = || small(MemoryVfs::new()).vfs(Arc::clone(&vfs)).writes(|w| w.ttl(ttl));
    let db = Db::open("db", options()).unwrap();
    // Its age is that of its entry into the store.
    write(&options(), "x.table", [("ingested", "1")]);
    db.put("old", "1").unwrap();
    clock.advance(3 * ttl);
    db.ingest(["x.table"]).unwrap();
    clock.advance(Duration::from_secs(98));
    assert!(db.get("ingested").unwrap().is_some());
    assert_eq!(db.get("old").unwrap(), None);
    clock.advance(Duration::from_secs(4));
    assert_eq!(db.get("ingested").unwrap(), None);
}

#[test]
fn a_writer_refuses_what_it_cannot_write_and_goes_on() {
    let disk = SimDisk::new();
    let options = small(disk.clone());
    for key in ["b", "a", ""] {
        let mut writer = TableWriter::create("x.table", &options).unwrap();
        writer.put("b", "1").unwrap();
        assert!(matches!(writer.put(key, "2"), Err(Error::Unsorted { position: 1 })), "{key}");
        let too_long = writer.put("x".repeat(65_536), "").unwrap_err();
        assert!(matches!(too_long, Error::KeyTooLong { bytes: 65_536 }));
        writer.put("c", "3").unwrap();
        assert_eq!(writer.finish().unwrap().entries, 2);
        let db = Db::open("db", options.clone()).unwrap();
        db.ingest(["x.table"]).unwrap();
        assert_eq!(state_of(db.iter()).len(), 2);
        disk.remove(Path::new("x.table")).unwrap();
    }
    write(&options, "x.table", [("a", "1")]);
    let error = TableWriter::create("x.table", &options).unwrap_err();
    assert!(matches!(error, Error::Io { .. }), "an existing file is replaced: {error}");
    let error = TableWriter::create("db/000007.sst", &options).unwrap_err();
    assert!(matches!(error, Error::InvalidOption { .. }), "a name of the store: {error}");
    let error = TableWriter::create("nowhere/x.table", &options).unwrap_err();
    assert!(error.to_string().contains("the directory"), "{error}");
    drop(TableWriter::create("y.table", &options).unwrap());
    assert!(disk.open(Path::new("y.table"), Access::Buffered).is_err(), "an unfinished file");
    assert!(!bytes_of(&disk, "x.table").is_empty());
}

/// Whichever call fails, and whatever a power cut leaves: a finished file is whole, and any other
/// is gone or refused.
#[test]
fn a_file_torn_at_any_call_is_whole_or_refused() {
    let policies = [Policy::EVERYTHING, Policy::SYNCED, Policy::NAMES_ONLY, Policy::RANDOM];
    let mut outcomes = [0; 2];
    for calls in 0.. {
        let disk = SimDisk::new();
        disk.inject(Fault::new(Failure::Io).after(calls).lasting());
        let written =
            TableWriter::create("x.table", &small(disk.clone())).and_then(|mut writer| {
                (0..4_000)
                    .try_for_each(|n: u32| writer.put(n.to_be_bytes(), n.pow(2).to_be_bytes()))?;
                writer.finish()
            });
        let is_over = disk.faults_fired() == 0;
        for policy in policies {
            let left = disk.crash(policy, calls).disk();
            let db = Db::open("db", small(left.clone())).unwrap();
            let ingested = db.ingest(["x.table"]);
            assert!(written.is_err() || ingested.is_ok(), "call {calls}: {ingested:?}");
            let expected = if ingested.is_ok() { 4_000 } else { 0 };
            assert_eq!(db.iter().count(), expected, "call {calls}");
            outcomes[usize::from(ingested.is_ok())] += 1;
        }
        if is_over {
            break;
        }
    }
    assert!(outcomes.iter().all(|count| *count > 0), "{outcomes:?}");
}
