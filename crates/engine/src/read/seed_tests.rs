//! Tables whose keys are hashed with another seed than the store's: written by a version without
//! seeds, or brought here.

use std::sync::Arc;

use trommel_filter::HashSeed;
use trommel_sim::MemoryVfs;

use crate::manifest::edit::VersionEdit;
use crate::{Db, Options, Prefix, RebuildOptions};

fn options(vfs: &Arc<MemoryVfs>, filters: &str) -> Options {
    let prefixes = filters.ends_with("16");
    Options::default()
        .vfs(Arc::<MemoryVfs>::clone(vfs))
        .background_threads(0)
        .filters(filters.parse().unwrap())
        .filtering(|f| f.prefix_extractor(prefixes.then(|| Prefix::fixed(3))))
}

fn key(n: usize) -> String {
    format!("{:03}/{}", n % 100, n / 100)
}

/// Replaces the seed of the store, and opens it again.
fn reopened_with(db: Db, options: Options, seed: HashSeed) -> Db {
    let edit = VersionEdit { hash_seed: Some(seed), ..VersionEdit::default() };
    db.engine().install(edit, None, None).unwrap();
    db.close().unwrap();
    let db = Db::open("db", options).unwrap();
    assert_eq!(db.engine().files.hash_seed, seed);
    db
}

/// Every key is found, and no absent one; filters answer as well as ever.
fn check(db: &Db, keys: usize) {
    for n in 0..keys {
        assert_eq!(db.get(key(n)).unwrap().as_deref(), Some(key(n).as_bytes()));
    }
    let all: Vec<String> = (0..2 * keys).map(key).collect();
    let many = db.multi_get(&all).unwrap();
    assert!(many.iter().take(keys).all(Option::is_some));
    assert!(many.iter().skip(keys).all(Option::is_none));
    assert_eq!(db.prefix("042").count(), keys / 100);
    assert_eq!(db.prefix("1000").count(), 0);
    let absent = (keys..2 * keys).filter(|n| db.contains_key(key(*n)).unwrap()).count();
    assert_eq!(absent, 0);
    for row in db.filter_report().levels {
        let rate = row.counts.false_positives as f64 / row.counts.negatives.max(1) as f64;
        assert!(rate < 0.05, "{rate} of absent keys passed");
    }
}

#[test]
fn tables_with_different_seeds_are_read_and_merged() {
    for filters in ["blocked:10", "paired:16", "fuse:10", "ribbon:10", "standard:10"] {
        let vfs = Arc::new(MemoryVfs::new());
        let options = || options(&vfs, filters);
        let mut db = Db::open("db", options()).unwrap();
        for (nth, seed) in [HashSeed::new(1), HashSeed::NONE, HashSeed::new(2)].iter().enumerate() {
            db = reopened_with(db, options(), *seed);
            (nth * 1000..(nth + 1) * 1000).for_each(|n| _ = db.put(key(n), key(n)).unwrap());
            db.flush().unwrap();
            check(&db, (nth + 1) * 1000);
        }
        let seeds = |db: &Db| {
            let version = db.engine().version();
            let tables = version.tables().map(|(_, file)| file.open_reader().unwrap());
            tables.map(|open| open.table().hash_seed()).collect::<Vec<_>>()
        };
        assert_eq!(seeds(&db), [HashSeed::new(2), HashSeed::NONE, HashSeed::new(1)]);
        db.close().unwrap();
        let db = Db::open("db", options().filters("paired:14".parse().unwrap())).unwrap();
        let rebuilt = db.rebuild_filters(&RebuildOptions::default()).unwrap();
        assert_eq!((rebuilt.rebuilt, rebuilt.failed), (3, 0), "{rebuilt:?}");
        check(&db, 3000);
        assert_eq!(db.verify().unwrap().keys, 3000);
        let follower = Db::open_follower("db", options()).unwrap();
        assert_eq!(follower.get(key(1)).unwrap().as_deref(), Some(key(1).as_bytes()));
        db.compact_range(..).unwrap();
        check(&db, 3000);
        assert_eq!(seeds(&db), [HashSeed::new(2)]);
        db.close().unwrap();
    }
}

/// A new store on disk has a seed that differs from that of any other, keeps it, and shows it
/// nowhere.
#[test]
fn a_store_has_a_seed_of_its_own() {
    let seed = |db: &Db| db.engine().files.hash_seed;
    let dir = tempfile::tempdir().unwrap();
    let open = |name: &str| Db::open(dir.path().join(name), Options::default()).unwrap();
    let db = open("one");
    let first = seed(&db);
    db.put("k", "v").unwrap();
    db.checkpoint(dir.path().join("copy")).unwrap();
    db.close().unwrap();
    assert_eq!((seed(&open("one")), seed(&open("copy"))), (first, first));
    let other = open("other");
    assert!(seed(&other) != first && first != HashSeed::NONE && seed(&other) != HashSeed::NONE);
    assert!(!format!("{:?}", other.engine()).contains(&seed(&other).word().to_string()));
}
