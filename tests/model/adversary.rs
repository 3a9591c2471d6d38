//! Keys chosen by an adversary who knows the hash, but not the secret of the store.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use trommel::filter::HashSeed;
use trommel::inspect::Table;
use trommel::vfs::{Layer, Vfs};
use trommel::{Db, FilterShape, Options, Prefix, RebuildOptions, RepairOptions, filter};
use trommel_sim::MemoryVfs;

const KEYS: u64 = 10_000;

fn store(filters: &str, shape: FilterShape) -> Db {
    let options = Options::default()
        .vfs(Arc::new(MemoryVfs::new()))
        .background_threads(0)
        .filtering(|f| f.filter_shape(shape).filter_partition_bytes(4 << 10))
        .filters(filters.parse().unwrap());
    Db::open("/store", options).unwrap()
}

/// Keys that have the same hash without a secret: the first word is that of XXH3's own secret, so
/// that a factor of its first product is zero.
fn colliding_key(n: u64) -> [u8; 32] {
    let mut key = [7; 32];
    key[..8].copy_from_slice(&0xbe4b_a423_396c_feb8_u64.to_le_bytes());
    key[8..16].copy_from_slice(&n.to_le_bytes());
    key
}

/// The fraction of lookups of absent keys that a filter passed.
fn passed(db: &Db) -> f64 {
    let levels = db.filter_report().levels;
    let positives: u64 = levels.iter().map(|level| level.counts.false_positives).sum();
    let negatives: u64 = levels.iter().map(|level| level.counts.negatives).sum();
    positives as f64 / (positives + negatives) as f64
}

/// Each absent key with the hash of a present one used to pass, and anyone could name such keys.
#[test]
fn absent_keys_of_the_same_hash_pass_no_filter() {
    assert_eq!(filter::hash(&colliding_key(0)), filter::hash(&colliding_key(1)));
    for filters in ["standard:10", "blocked:10", "paired:10", "fuse:10", "ribbon:10"] {
        for shape in [FilterShape::Whole, FilterShape::Partitioned] {
            let db = store(filters, shape);
            (0..KEYS).for_each(|n| _ = db.put(n.to_le_bytes(), "").unwrap());
            // Both ends, so that the range of keys excludes none of the others.
            db.put(colliding_key(0), "").unwrap();
            db.put(colliding_key(u64::MAX), "").unwrap();
            db.flush().unwrap();
            for n in 1..=5_000 {
                assert_eq!(db.get(colliding_key(n)).unwrap(), None);
            }
            let passed = passed(&db);
            assert!(passed < 0.03, "{filters}, {shape:?}: {passed} of chosen absent keys passed");
        }
    }
}

/// Blocks used to be filled by keys of a few of all hashes, and then passed every absent key of
/// these hashes.
#[test]
fn keys_of_few_hashes_fill_no_blocks() {
    let in_few_blocks = |n: &u64| filter::hash(&n.to_le_bytes()) >> 56 == 0;
    let chosen: Vec<u64> = (0..).filter(in_few_blocks).take(4_000).collect();
    let (present, absent) = chosen.split_at(2_000);
    for filters in ["blocked:10", "paired:10"] {
        let db = store(filters, FilterShape::Whole);
        present.iter().for_each(|n| _ = db.put(n.to_le_bytes(), "").unwrap());
        db.flush().unwrap();
        absent.iter().for_each(|n| assert_eq!(db.get(n.to_le_bytes()).unwrap(), None));
        let passed = passed(&db);
        assert!(passed < 0.05, "{filters}: {passed} of chosen absent keys passed");
    }
}

/// Lookups of such keys in a memtable used to sort it and to search it under the writers' lock.
#[test]
fn keys_of_the_same_hash_are_found_in_a_memtable_without_sorting_it() {
    let db = store("none", FilterShape::Whole);
    (0..KEYS).for_each(|n| _ = db.put(colliding_key(n), "").unwrap());
    let before = db.stats().memory.memtables;
    for n in 0..KEYS {
        assert!(db.contains_key(colliding_key(n)).unwrap());
    }
    assert_eq!(db.stats().memory.memtables, before);
}

/// A file system whose stores have different seeds.
#[derive(Debug, Default)]
struct Drawing {
    below: MemoryVfs,
    drawn: AtomicU64,
}

impl Layer for Drawing {
    fn below(&self) -> &dyn Vfs {
        &self.below
    }

    fn random_u64(&self) -> u64 {
        filter::hash(&self.drawn.fetch_add(1, Relaxed).to_le_bytes())
    }
}

/// Checks that all `keys` are found, in each way, and that filters answer as they should. Returns
/// the seed of the tables, which all have the same.
fn seed_of_a_sound_store(db: &Db, keys: u64) -> HashSeed {
    let key = |n: u64| format!("{:03}/{n}", n % 100);
    let all: Vec<String> = (0..2 * keys).map(key).collect();
    let (present, absent) = all.split_at(keys as usize);
    for (n, found) in db.multi_get(&all).unwrap().into_iter().enumerate() {
        assert_eq!(found.is_some(), n < present.len(), "{}", all[n]);
    }
    assert!(present.iter().all(|key| db.get(key).unwrap().as_deref() == Some(key.as_bytes())));
    assert!(absent.iter().all(|key| !db.contains_key(key).unwrap()));
    assert_eq!(db.prefix("042").count() as u64, keys / 100);
    assert!(passed(db) < 0.03, "{} of absent keys passed", passed(db));
    assert_eq!(db.verify().unwrap().keys, keys);
    let table = |(name, _): (String, u64)| Table::open(&**db.vfs(), &db.dir().join(name)).unwrap();
    let seeds = db.table_ids().into_iter().map(|id| table(id).info().unwrap().properties.hash_seed);
    let seeds: Vec<HashSeed> = seeds.collect();
    assert!(seeds.iter().all(|seed| *seed == seeds[0] && *seed != HashSeed::NONE));
    seeds[0]
}

/// A copy that lost the seed would deny keys that it has.
#[test]
fn every_copy_of_a_store_finds_its_keys() {
    let vfs = Arc::new(Drawing::default());
    let options = || {
        Options::default()
            .vfs(Arc::<Drawing>::clone(&vfs))
            .background_threads(0)
            .filters("ribbon:10".parse().unwrap())
            .filtering(|f| f.prefix_extractor(Prefix::fixed(3)))
            .compaction(|c| c.auto_compaction(false))
    };
    let key = |n: u64| format!("{:03}/{n}", n % 100);
    let db = Db::open("/store", options()).unwrap();
    (0..1000).for_each(|n| _ = db.put(key(n), key(n)).unwrap());
    db.flush().unwrap();
    let mut sorted: Vec<String> = (1000..2000).map(key).collect();
    sorted.sort();
    db.load_sorted(sorted.iter().map(|key| Ok((key, key)))).unwrap();
    let seed = seed_of_a_sound_store(&db, 2000);
    db.set_filters("paired:12".parse().unwrap()).unwrap();
    assert!(db.rebuild_filters(&RebuildOptions::default()).unwrap().rebuilt > 0);
    assert_eq!(seed_of_a_sound_store(&db, 2000), seed);
    let follower = Db::open_follower("/store", options()).unwrap();
    assert!((0..2000).all(|n| follower.get(key(n)).unwrap().is_some()));
    drop(follower);
    db.checkpoint("/checkpoint").unwrap();
    db.close().unwrap();
    let checkpoint = Db::open("/checkpoint", options()).unwrap();
    assert_eq!(seed_of_a_sound_store(&checkpoint, 2000), seed);

    // Without a manifest, each table has what is needed to read it.
    for entry in vfs.below.list(Path::new("/store")).unwrap() {
        let name = entry.name.to_string_lossy();
        if name.starts_with("MANIFEST") || name == "CURRENT" {
            vfs.below.remove(&Path::new("/store").join(&*name)).unwrap();
        }
    }
    let report = Db::repair("/store", "/repaired", options(), RepairOptions::default()).unwrap();
    assert_eq!(report.saved.entries, 2000);
    let repaired = Db::open("/repaired", options()).unwrap();
    assert_ne!(seed_of_a_sound_store(&repaired, 2000), seed);
}
