//! Checked with a counting allocator: once everything is cached, a lookup allocates only for a
//! value above 30 bytes that it copies from a memtable or a map, a scan allocates nothing per
//! entry, and a value that is kept holds at most its block.

#![allow(clippy::unwrap_used, reason = "a test's helpers may, as its tests do")]

#[path = "../../filter/tests/bounds/allocator.rs"]
mod allocator;

use std::sync::Arc;

use trommel::{
    Compression, Db, FilterChoice, FilterContext, FilterResidency, FilterShape, Options, Prefix,
    ReadMode, Slice, UserFilter, UserFilterBuilder, UserFilterPolicy, Verify,
};
use trommel_sim::MemoryVfs;

use crate::allocator::{held, taken};

const KEYS: u64 = 2_000;
const RUNS: u64 = 10;
const VALUE: [u8; 40] = [7; 40];
/// The two counts before the bytes of an `Arc`.
const SHARED_BYTES: u64 = 16;

/// Keys of odd numbers are never written.
fn key(number: u64) -> [u8; 11] {
    let mut key = *b"k00/0000000";
    let mut rest = number.wrapping_mul(2_654_435_761) % 10_000_019;
    for digit in key[4..].iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    key[2] = b'0' + (number % 8) as u8;
    key
}

/// Small tables in a deep level, runs in level 0, or both: every key is in one of them.
fn tree(options: Options, is_deep: bool, has_runs: bool) -> Db {
    let options = options
        .vfs(Arc::new(MemoryVfs::new()))
        .background_threads(0)
        .compaction(|c| c.auto_compaction(false).table_bytes(16 << 10))
        .reads(|r| r.cache_bytes(64 << 20).block_bytes(512));
    let db = Db::open("/store", options).unwrap();
    let parts = u64::from(is_deep) + if has_runs { RUNS } else { 0 };
    for part in 0..parts {
        for number in (part..KEYS).step_by(parts as usize) {
            db.put(key(number * 2), VALUE).unwrap();
        }
        db.flush().unwrap();
        if is_deep && part == 0 {
            db.compact_all().unwrap();
        }
    }
    assert!(db.table_ids().len() as u64 >= parts.max(2), "too few tables to choose among");
    db
}

fn trees(options: &Options) -> [Db; 3] {
    [(true, false), (false, true), (true, true)]
        .map(|(is_deep, has_runs)| tree(options.clone(), is_deep, has_runs))
}

/// The most that one lookup allocated, over all existing keys, or as many missing ones, with
/// everything cacheable already read.
fn most(db: &Db, missing: bool) -> (u64, u64) {
    let keys = || (0..KEYS).map(|number| key(number * 2 + u64::from(missing)));
    for _ in 0..2 {
        for key in keys() {
            assert_eq!(db.get(key).unwrap().is_none(), missing);
        }
    }
    let taken = keys().map(|key| taken(|| db.get(key).unwrap()));
    taken.fold((0, 0), |most, one| (most.0.max(one.0), most.1.max(one.1)))
}

/// Options by name: each kind of filter, partitioning and residency.
fn shapes() -> Vec<(String, Options)> {
    let policies = ["paired:16", "blocked:12", "standard:10", "ribbon:10", "fuse:10", "none"];
    let whole = policies
        .map(|filters| (filters.into(), Options::default().filters(filters.parse().unwrap())));
    let mut shapes: Vec<(String, Options)> = whole.into();
    let cuts = [FilterShape::Whole, FilterShape::Partitioned];
    for shape in cuts {
        for residency in [FilterResidency::Pinned, FilterResidency::Cached] {
            let cut = Options::default().filtering(|f| {
                f.filter_shape(shape).filter_partition_bytes(256).filter_residency(residency)
            });
            let name = format!("{shape}, {residency:?}");
            for extractor in [Prefix::fixed(4), Prefix::until("/"), closure()] {
                let by_prefix = cut.clone().filtering(|f| f.prefix_extractor(extractor.clone()));
                let name = format!("{name}, {}", extractor.name());
                let without = by_prefix.clone().filtering(|f| f.whole_key_filters(false));
                shapes.push((format!("{name} alone"), without));
                shapes.push((name, by_prefix));
            }
            shapes.push((name, cut));
        }
    }
    shapes.push((
        "user".into(),
        Options::default().filtering(|f| f.user_filters(Arc::new(Everything))),
    ));
    shapes
}

fn closure() -> Prefix {
    Prefix::custom("four", |key: &[u8]| (key.len() >= 4).then_some(4))
}

/// A filter that passes every key.
#[derive(Debug)]
struct Everything;

impl UserFilterPolicy for Everything {
    fn name(&self) -> &str {
        "everything"
    }

    fn choose(&self, _: &FilterContext) -> FilterChoice {
        FilterChoice::User(Box::new(Self))
    }

    fn open(&self, _: &[u8]) -> Result<Box<dyn UserFilter>, String> {
        Ok(Box::new(Self))
    }
}

impl UserFilterBuilder for Everything {
    fn add(&mut self, _: &[u8], _: u64) {}

    fn finish(self: Box<Self>) -> Vec<u8> {
        vec![1]
    }

    fn memory_bytes(&self) -> usize {
        0
    }
}

impl UserFilter for Everything {
    fn may_contain(&self, _: &[u8], _: u64) -> bool {
        true
    }

    fn expected_fpr(&self) -> f64 {
        1.0
    }

    fn memory_bytes(&self) -> usize {
        0
    }
}

#[test]
fn a_lookup_that_finds_nothing_takes_no_memory() {
    for (name, options) in shapes() {
        for (db, tree) in trees(&options).iter().zip(["deep", "runs", "both"]) {
            assert_eq!(most(db, true), (0, 0), "{name}, {tree}");
        }
    }
}

#[test]
fn a_value_in_the_cache_is_shared_and_takes_no_memory() {
    for (name, options) in shapes() {
        for (db, tree) in trees(&options).iter().zip(["deep", "runs", "both"]) {
            assert_eq!(most(db, false), (0, 0), "{name}, {tree}");
        }
    }
}

#[test]
fn many_keys_take_a_few_lists_however_many_tables_there_are() {
    const AT_ONCE: usize = 64;
    /// The values, five lists of keys, a filter's answers, and the requests.
    const LISTS: u64 = 16;
    for (name, options) in shapes() {
        for (db, tree) in trees(&options).iter().zip(["deep", "runs", "both"]) {
            let keys: Vec<_> = (0..KEYS * 2).map(key).collect();
            let look_up = |keys: &[_]| db.multi_get(keys).unwrap();
            keys.chunks(AT_ONCE).for_each(|keys| drop(look_up(keys)));
            for keys in keys.chunks(AT_ONCE) {
                let (times, _) = taken(|| look_up(keys));
                assert!(times <= LISTS, "{name}, {tree}: {times} times");
            }
        }
    }
}

#[test]
fn a_value_that_must_be_copied_takes_its_bytes_once() {
    let once = (1, SHARED_BYTES + VALUE.len() as u64);
    let options = Options::default().writes(|w| w.write_buffer_bytes(64 << 20));
    let db = Db::open("/store", options.vfs(Arc::new(MemoryVfs::new()))).unwrap();
    (0..KEYS).for_each(|number| {
        db.put(key(number * 2), VALUE).unwrap();
    });
    assert_eq!(most(&db, false), once, "in a memtable");
    let dir = tempfile::tempdir().unwrap();
    let mapped = Options::default()
        .reads(|r| r.read_mode(ReadMode::Mapped(Verify::EachUse)))
        .compression(Compression::None)
        .compaction(|c| c.auto_compaction(false));
    let db = Db::open(dir.path(), mapped).unwrap();
    (0..KEYS).for_each(|number| {
        db.put(key(number * 2), VALUE).unwrap();
    });
    db.flush().unwrap();
    assert_eq!(most(&db, false), once, "in a map");
    assert_eq!(most(&db, true), (0, 0), "in no map");
}

/// Entries of a store whose values are kept.
const MANY: u64 = 40_000;
const BLOCK_BYTES: u64 = 4096;

fn long_key(number: u64) -> String {
    format!("a key of some forty bytes, number {number:08}")
}

/// 300 bytes of incompressible noise.
fn noise(number: u64) -> Vec<u8> {
    let mut rng = fastrand::Rng::with_seed(number);
    (0..300).map(|_| rng.u8(..)).collect()
}

/// A store with all data in the last level, and a small cache.
fn settled(options: Options) -> Db {
    let options = options.compression(Compression::None).reads(|r| r.cache_bytes(1 << 20));
    let db = Db::open("/store", options.vfs(Arc::new(MemoryVfs::new()))).unwrap();
    for number in 0..MANY {
        db.put(long_key(number), noise(number)).unwrap();
    }
    db.compact_all().unwrap();
    db
}

/// Regression: each key above 22 bytes was copied to memory of its own.
#[test]
fn a_scan_takes_no_memory_for_each_entry() {
    let settled = settled(Options::default());
    let in_memory = Options::default().vfs(Arc::new(MemoryVfs::new()));
    let in_memory = Db::open("/store", in_memory).unwrap();
    (0..2_000).for_each(|number| {
        _ = in_memory.put(long_key(number), noise(number)).unwrap();
    });
    for (db, place) in [(&settled, "in tables"), (&in_memory, "in a memtable")] {
        let entries = db.iter().count() as u64;
        let forward = || db.iter().map(|entry| entry.unwrap().1.len()).sum::<usize>();
        let backward = || db.iter().rev().map(|entry| entry.unwrap().1.len()).sum::<usize>();
        for (way, (times, _)) in [("forward", taken(forward)), ("backward", taken(backward))] {
            assert!(times * 10 < entries, "{place}, {way}: {times} times for {entries} entries");
        }
    }
}

/// Regression: values from a scan's read-ahead held all bytes read with them: 128 KiB each.
#[test]
fn a_value_that_is_kept_holds_its_block_at_most() {
    let db = settled(Options::default());
    let one_in_500 = |db: &Db| db.iter().step_by(500).map(|entry| entry.unwrap().1).collect();
    let looked_up = |db: &Db| -> Vec<_> {
        (0..MANY).step_by(100).map(|number| db.get(long_key(number)).unwrap().unwrap()).collect()
    };
    assert_eq!(db.iter().count() as u64, MANY);
    for (way, keep) in [
        ("one value in 500 of a scan", &one_in_500 as &dyn Fn(&Db) -> Vec<Slice>),
        ("one value in 500 of a scan, detached", &|db| {
            db.iter().step_by(500).map(|entry| entry.unwrap().1.detached()).collect()
        }),
        ("one value in 100, looked up", &looked_up),
    ] {
        let before = held();
        let kept = keep(&db);
        let bytes = u64::try_from(held() - before).unwrap();
        let (count, own) = (kept.len() as u64, kept.iter().map(|value| value.len()).sum::<usize>());
        eprintln!("{way}: {count} values of {own} bytes hold {bytes} bytes");
        let most = if way.ends_with("detached") { 400 } else { 2 * BLOCK_BYTES };
        assert!(bytes < count * most + (2 << 20), "{way}: {count} values hold {bytes} bytes");
    }
}

/// Regression: `contains_key` read the value, and copied it if it could not be shared.
#[test]
fn a_key_is_looked_for_without_its_value() {
    let huge = vec![7; 1 << 20];
    let in_memory = Options::default().vfs(Arc::new(MemoryVfs::new()));
    let in_memory = Db::open("/store", in_memory).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let mapped = Options::default()
        .reads(|r| r.read_mode(ReadMode::Mapped(Verify::EachUse)))
        .compression(Compression::None);
    let mapped = Db::open(dir.path(), mapped).unwrap();
    for (db, place) in [(&in_memory, "in a memtable"), (&mapped, "in a map")] {
        db.put("key", &huge).unwrap();
        if place == "in a map" {
            db.flush().unwrap();
        }
        let snapshot = db.snapshot();
        for _ in 0..2 {
            assert!(db.contains_key("key").unwrap() && !db.contains_key("kez").unwrap());
        }
        assert_eq!(taken(|| db.contains_key("key").unwrap()), (0, 0), "{place}");
        assert_eq!(taken(|| snapshot.contains_key("key").unwrap()), (0, 0), "{place}, a snapshot");
        let (_, bytes) = taken(|| db.insert_if_absent("key", "value").unwrap());
        assert!(bytes < 1 << 10, "{place}: inserting where there is a value took {bytes} bytes");
    }
}
