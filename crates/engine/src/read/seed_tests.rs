//! The hash seed of a store, and tables with another.

use std::path::Path;
use std::sync::Arc;

use trommel_filter::HashSeed;
use trommel_sim::MemoryVfs;
use trommel_vfs::{Layer, Vfs};

use crate::manifest::edit::VersionEdit;
use crate::{Db, Error, Options, RepairOptions};

/// A file system whose new stores have no seed, as those of earlier versions.
#[derive(Debug)]
struct Seedless(MemoryVfs);

impl Layer for Seedless {
    fn below(&self) -> &dyn Vfs {
        &self.0
    }

    fn random_u64(&self) -> u64 {
        0
    }
}

const KEYS: u32 = 1000;

fn options(vfs: impl Vfs + 'static) -> Options {
    Options::default().vfs(Arc::new(vfs)).background_threads(0)
}

/// A store without a seed, and with one table.
fn seedless(vfs: &MemoryVfs) -> Db {
    let db = Db::open("db", options(Seedless(vfs.clone()))).unwrap();
    (0..KEYS).for_each(|n| _ = db.put(n.to_le_bytes(), "").unwrap());
    db.flush().unwrap();
    db
}

fn seeds_of_tables(db: &Db) -> Vec<HashSeed> {
    let version = db.engine().version();
    let readers = version.tables().map(|(_, file)| db.engine().files.tables.reader(file).unwrap());
    readers.map(|table| table.hash_seed()).collect()
}

/// A version without seeds can still read it.
#[test]
fn a_store_without_a_seed_stays_without() {
    let vfs = MemoryVfs::new();
    seedless(&vfs).close().unwrap();
    let db = Db::open("db", options(vfs)).unwrap();
    db.put("new", "").unwrap();
    db.flush().unwrap();
    assert_eq!(seeds_of_tables(&db), [HashSeed::NONE; 2]);
    db.compact_range(..).unwrap();
    assert_eq!(seeds_of_tables(&db), [HashSeed::NONE]);
    assert!((0..KEYS).all(|n| db.contains_key(n.to_le_bytes()).unwrap()));
    assert_eq!(db.engine().version().hash_seed, None);
}

/// Its filters and tags would deny keys that it has. A repair reads no hashes.
#[test]
fn a_table_with_another_seed_is_refused_and_can_be_repaired() {
    let vfs = MemoryVfs::new();
    let db = seedless(&vfs);
    let edit = VersionEdit { hash_seed: Some(HashSeed::new(7)), ..VersionEdit::default() };
    db.engine().install(edit, None, None).unwrap();
    db.close().unwrap();
    let db = Db::open("db", options(vfs.clone())).unwrap();
    for n in 0..KEYS {
        assert!(matches!(db.get(n.to_le_bytes()), Err(Error::Corruption(_))));
    }
    assert!(matches!(db.multi_get(&[KEYS.to_le_bytes()]), Err(Error::Corruption(_))));
    db.close().unwrap();
    let repaired = Path::new("repaired");
    let report =
        Db::repair("db", repaired, options(vfs.clone()), RepairOptions::default()).unwrap();
    assert_eq!(report.saved.entries, u64::from(KEYS));
    let db = Db::open(repaired, options(vfs)).unwrap();
    assert!((0..KEYS).all(|n| db.contains_key(n.to_le_bytes()).unwrap()));
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
