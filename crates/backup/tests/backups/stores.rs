//! Stores to back up, and their entries.

use std::path::Path;
use std::sync::Arc;

use trommel::vfs::Vfs;
use trommel::{Db, Options};
use trommel_sim::MemoryVfs;

/// Everything in a store.
pub(crate) type Entries = Vec<(Vec<u8>, Vec<u8>)>;

/// Options without background work.
pub(crate) fn options(vfs: &Arc<dyn Vfs>) -> Options {
    Options::default()
        .vfs(Arc::clone(vfs))
        .background_threads(0)
        .compaction(|c| c.auto_compaction(false))
        .reads(|r| r.cache_bytes(1 << 20))
        .writes(|w| w.write_buffer_bytes(1 << 20))
}

pub(crate) fn open(vfs: &Arc<dyn Vfs>, dir: &str) -> Db {
    Db::open(dir, options(vfs)).unwrap()
}

/// A store in memory.
pub(crate) fn new_store() -> (Arc<dyn Vfs>, Db) {
    let vfs: Arc<dyn Vfs> = Arc::new(MemoryVfs::new());
    let db = open(&vfs, "store");
    (vfs, db)
}

/// Writes `count` entries, drawn from `seed`, as one table of level 0.
pub(crate) fn write(db: &Db, seed: u64, count: usize) {
    let mut random = fastrand::Rng::with_seed(seed);
    for _ in 0..count {
        let (key, value) = (random.u64(..10_000), random.u128(..));
        db.put(key.to_le_bytes(), value.to_le_bytes().repeat(4)).unwrap();
    }
    db.delete(random.u64(..10_000).to_le_bytes()).unwrap();
    db.flush().unwrap();
}

pub(crate) fn entries(db: &Db) -> Entries {
    db.iter().map(|entry| entry.map(|(k, v)| (k.to_vec(), v.to_vec())).unwrap()).collect()
}

/// The content of the store in `dir`, verified.
pub(crate) fn entries_in(vfs: &Arc<dyn Vfs>, dir: impl AsRef<Path>) -> Entries {
    let db = Db::open_read_only(dir, options(vfs)).unwrap();
    db.verify().unwrap();
    entries(&db)
}

/// The names in a directory.
pub(crate) fn names(vfs: &dyn Vfs, dir: impl AsRef<Path>) -> Vec<String> {
    let entries = vfs.list(dir.as_ref()).unwrap();
    entries.into_iter().map(|entry| entry.name.into_string().unwrap()).collect()
}
