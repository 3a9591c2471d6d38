//! Whole stores of earlier versions, which every later version must open, read and verify.
//!
//! `golden/` has one directory per store, and next to it the store's contents as text. The formats
//! are frozen: a change that makes a test here fail needs a new format version and keeps the old
//! directories. Missing ones are written (and existing ones kept) by
//!
//! ```text
//! cargo test -p trommel-tests --test damage -- --ignored write_missing_golden_stores
//! ```

mod expiring;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use trommel::filter::HashSeed;
use trommel::inspect::{EntryKind, ListedTable, Log, Manifest, Table};
use trommel::vfs::Vfs;
use trommel::{Compression, Db, Merge, Options, WriteBatch};
use trommel_sim::MemoryVfs;

use crate::exam::leave;
use crate::stores::{DIR, Ending, Image, Store, build, image_of, vfs_of};

/// The stores: filters, compression, and final state.
const STORES: [(&str, Compression, Ending); 13] = [
    ("none", Compression::None, Ending::Closed),
    ("none", Compression::Lz4, Ending::Killed),
    ("standard:10", Compression::Lz4, Ending::Closed),
    ("standard:10", Compression::None, Ending::Torn),
    ("blocked:10", Compression::None, Ending::Closed),
    ("blocked:10", Compression::Lz4, Ending::Killed),
    ("paired:16", Compression::Lz4, Ending::Closed),
    ("paired:16", Compression::None, Ending::TwoLogs),
    // The last level has filter sidecars.
    ("ribbon:12", Compression::None, Ending::Closed),
    // Range tombstones in the manifest, with tables that they apply to and tables to which they
    // were applied, and in one log or two.
    ("paired:16", Compression::Lz4, Ending::Killed),
    ("blocked:10", Compression::None, Ending::TwoLogs),
    // With hash seeds, and sidecars.
    ("ribbon:12", Compression::Lz4, Ending::Killed),
    ("fuse:12", Compression::Lz4, Ending::TwoLogs),
];

/// The first stores with a hash seed. They have sidecars, too.
const WITH_SEEDS: [&str; 2] = ["v1-killed-ribbon-lz4", "v1-twologs-fuse-lz4"];

/// The first stores with range tombstones, by their number of logs. They have sidecars, too.
const WITH_RANGES: [&str; 2] = ["v1-killed-paired-lz4", "v1-twologs-blocked-none"];

/// A store with merge operands, in tables and in a log, killed.
const WITH_MERGES: &str = "v1-killed-merges";

/// That store, and its contents as text. Its operator is a built-in one, which an open finds.
fn with_merges() -> (Image, String) {
    let vfs = MemoryVfs::new();
    let options = Options::default().vfs(Arc::new(vfs.clone())).background_threads(0);
    let options = options.filters("none".parse().expect("a filter policy"));
    let options = options.writes(|w| w.merge_operator(Merge::max()));
    let db = Db::open(DIR, options).expect("a new store");
    let mut expected = BTreeMap::<String, String>::new();
    let mut write = |number: usize, value: &str, merges: bool| {
        let key = format!("key {:02}", number % 12);
        let mut batch = WriteBatch::new();
        if merges {
            batch.merge(&key, value)
        } else {
            batch.put(&key, value)
        };
        db.write(&batch).expect("memory takes it");
        let largest = expected.remove(&key).filter(|so_far| merges && **so_far > *value);
        expected.insert(key, largest.unwrap_or_else(|| value.to_owned()));
    };
    for round in 0..4 {
        (0..20).for_each(|at| write(at * 5 + round, &format!("{}{round}", at % 7), at % 4 > 0));
        if round < 2 {
            db.flush().expect("memory takes it");
        }
    }
    let line = |(key, value): (&String, &String)| format!("\"{key}\" = \"{value}\"\n");
    (image_of(&vfs, Path::new(DIR)), expected.iter().map(line).collect())
}

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("format/golden")
}

/// Bytes as text: a repeated byte is written once.
fn text_of(bytes: &[u8]) -> String {
    match bytes.first() {
        Some(first) if bytes.len() > 16 && bytes.iter().all(|byte| byte == first) => {
            format!("{} times {first:#04x}", bytes.len())
        }
        _ => format!("\"{}\"", bytes.escape_ascii()),
    }
}

/// The contents of `store`, a line for each key that it ever had.
fn expected(store: &Store) -> String {
    let state = &store.states[store.batches()];
    let mut text = String::new();
    for key in store.keys() {
        let value = state.get(&key).map_or("nothing".to_owned(), |value| text_of(value));
        writeln!(text, "{} = {value}", text_of(&key)).expect("a string takes it");
    }
    text
}

#[test]
#[ignore = "writes into the source tree; see the module"]
fn write_missing_golden_stores() {
    for (filters, compression, ending) in STORES {
        let store = build(filters, compression, ending);
        let dir = golden().join(format!("v1-{}", store.name));
        if !dir.exists() {
            leave(&store.image, &dir);
            std::fs::write(dir.with_extension("txt"), expected(&store)).expect("a writable tree");
        }
    }
    expiring::write_missing();
    let dir = golden().join(WITH_MERGES);
    if !dir.exists() {
        let (image, expected) = with_merges();
        leave(&image, &dir);
        std::fs::write(dir.with_extension("txt"), expected).expect("a writable tree");
    }
}

fn read(dir: &Path) -> Image {
    let entries = std::fs::read_dir(dir).expect("a golden store");
    let files = entries.map(|entry| {
        let entry = entry.expect("a file");
        let bytes = std::fs::read(entry.path()).expect("a small file");
        (entry.file_name().to_string_lossy().into_owned(), bytes)
    });
    files.collect()
}

/// Compares every line of `expected` with the store.
fn check(db: &Db, expected: &str, name: &str, has_old_filters: bool) {
    let mut held = String::new();
    for line in expected.lines() {
        let (key, value) = line.split_once(" = ").expect("key = value");
        let key = unescape(key.trim_matches('"'));
        let found = db.get(&key).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(found.map_or("nothing".to_owned(), |value| text_of(&value)), value, "{name}");
        if value != "nothing" {
            writeln!(held, "{line}").expect("a string takes it");
        }
    }
    let mut scanned = String::new();
    for entry in db.iter() {
        let (key, value) = entry.unwrap_or_else(|error| panic!("{name}: {error}"));
        writeln!(scanned, "{} = {}", text_of(&key), text_of(&value)).expect("a string takes it");
    }
    assert_eq!(scanned, held, "{name}");
    db.verify().unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_eq!(!db.stats().filters.unusable.is_empty(), has_old_filters, "{name}");
}

/// A store with a seed keeps it, in the manifest and in all tables, and one without stays without.
fn check_seed(db: &Db, is_seeded: bool, name: &str) {
    let contents = Manifest::in_force(&**db.vfs(), db.dir()).and_then(|it| it.info());
    let contents = contents.unwrap_or_else(|error| panic!("{name}: {error}")).contents;
    assert_eq!(contents.has_hash_seed, is_seeded, "{name}");
    let mut seeds = contents.tables.iter().map(|table| {
        let path = db.dir().join(format!("{:06}.sst", table.meta.number));
        let info = Table::open(&**db.vfs(), &path).and_then(|table| table.info());
        info.unwrap_or_else(|error| panic!("{name}: {error}")).properties.hash_seed
    });
    let first = seeds.next().expect("a table");
    assert_eq!(first != HashSeed::NONE, is_seeded, "{name}");
    assert!(seeds.all(|seed| seed == first), "{name}");
}

/// The keys of golden stores are plain text.
fn unescape(text: &str) -> Vec<u8> {
    assert!(!text.contains('\\'), "{text}");
    text.as_bytes().to_vec()
}

#[test]
fn golden_stores_open_forever() {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(golden()).expect("the golden stores") {
        let path = entry.expect("a file").path();
        if !path.is_dir() {
            continue;
        }
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        let expected = std::fs::read_to_string(path.with_extension("txt")).expect("its contents");
        let image = read(&path);
        let sidecars = image.keys().filter(|file| file.ends_with(".flt")).count() as u64;
        let has_sidecars = [&WITH_RANGES, &WITH_SEEDS].iter().any(|names| names.contains(&&*name));
        let has_sidecars = has_sidecars || name.contains("ribbon");
        assert_eq!(sidecars > 0, has_sidecars, "{name}");
        for read_only in [true, false] {
            let vfs = vfs_of(&image);
            let options = Options::default().vfs(Arc::new(vfs)).reads(|r| r.cache_bytes(1 << 20));
            // `check_seed` opens the listed tables, which no compaction may remove before.
            let options = options.background_threads(0);
            let db = Db::open(DIR, options.opening(|o| o.read_only(read_only)));
            let db = db.unwrap_or_else(|error| panic!("{name}: {error}"));
            let torn = usize::from(name.contains("torn"));
            assert_eq!(db.recovery_report().dropped.len(), torn, "{name}");
            // Filters of a version that is no longer read answer "maybe" until they are rebuilt.
            let has_old_filters = ["-blocked1-", "-paired1-"].iter().any(|old| name.contains(old));
            check(&db, &expected, &name, has_old_filters);
            if read_only {
                assert_eq!(db.verify().map_or(0, |it| it.sidecars), sidecars, "{name}");
            }
            check_seed(&db, WITH_SEEDS.contains(&&*name), &name);
            if !read_only {
                db.compact_all().unwrap_or_else(|error| panic!("{name}: {error}"));
                check(&db, &expected, &name, false);
                check_seed(&db, WITH_SEEDS.contains(&&*name), &name);
            }
            db.close().unwrap_or_else(|error| panic!("{name}: {error}"));
        }
        names.push(name);
    }
    for (filters, compression, ending) in STORES {
        let (kind, _) = filters.split_once(':').unwrap_or((filters, ""));
        let name = format!("v1-{ending:?}-{kind}-{compression:?}").to_lowercase();
        assert!(names.contains(&name), "{name} is missing");
    }
}

/// A store without operands would test none of their kinds and fields.
#[test]
fn a_golden_store_has_merge_operands_wherever_they_are_stored() {
    let vfs = vfs_of(&read(&golden().join(WITH_MERGES)));
    let dir = Path::new(DIR);
    let in_tables = |table: &ListedTable| {
        let path = dir.join(format!("{:06}.sst", table.meta.number));
        let table = Table::open(&vfs, &path).expect("a table");
        let entries = table.scan(Bound::Unbounded, Bound::Unbounded).expect("a sound table");
        entries.filter(|entry| entry.as_ref().is_ok_and(|it| it.kind == EntryKind::Merge)).count()
    };
    let contents = Manifest::in_force(&vfs, dir).and_then(|it| it.info()).expect("a manifest");
    assert!(contents.contents.tables.iter().map(in_tables).sum::<usize>() > 0);
    let logs = vfs.list(dir).expect("its files").into_iter().map(|entry| dir.join(entry.name));
    let logs = logs.filter(|path| path.extension().is_some_and(|extension| extension == "log"));
    let merges = logs.map(|path| {
        Log::open(&vfs, &path).and_then(|log| log.info()).expect("a log").written.merges
    });
    assert!(merges.sum::<u64>() > 0);
    let db =
        Db::open(DIR, Options::default().vfs(Arc::new(vfs_of(&read(&golden().join(WITH_MERGES))))));
    let settings = db.expect("a sound store").options().settings();
    assert!(settings.contains(&("merge_operator", "\"trommel.max\"".to_owned())));
}

/// A store without range tombstones would test none of their fields.
#[test]
fn golden_stores_have_range_tombstones_wherever_they_are_stored() {
    for (logs, name) in (1..).zip(WITH_RANGES) {
        let image = read(&golden().join(name));
        let vfs = vfs_of(&image);
        let dir = Path::new(DIR);
        let manifest = Manifest::in_force(&vfs, dir).expect("a manifest");
        let contents = manifest.info().expect("a sound manifest").contents;
        assert!(contents.range_tombstones.len() > 1, "{name}: {:?}", contents.range_tombstones);
        let metas = || contents.tables.iter().map(|table| &table.meta);
        let newest = contents.range_tombstones.iter().map(|range| range.seqno).max();
        assert!(metas().any(|meta| meta.ranges_applied > 0), "{name}");
        assert!(metas().any(|meta| Some(meta.ranges_applied) < newest), "{name}");
        let of_logs = image.keys().filter(|file| file.ends_with(".log"));
        let deleted = of_logs.map(|file| {
            let log = Log::open(&vfs, &dir.join(file)).expect("a log");
            log.info().expect("a sound log").written.range_deletes
        });
        assert_eq!(deleted.filter(|deletes| *deletes > 0).count(), logs, "{name}");
    }
}
