//! Stores that share an environment: each is correct, whatever the others do, and memory goes to
//! those that need it.

use std::io;
use std::panic::resume_unwind;
use std::path::Path;
use std::sync::Arc;
use std::thread;

use trommel::vfs::{Layer, Vfs, WriteFile};
use trommel::{Db, Environment, Error, Options};
use trommel_sim::SimDisk;

use crate::liveness::{comes, noise, scattered};

/// A disk on which the store's threads panic when they create a table.
#[derive(Debug, Clone)]
struct NoTables(SimDisk);

impl Layer for NoTables {
    fn below(&self) -> &dyn Vfs {
        &self.0
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        let in_background =
            thread::current().name().is_some_and(|name| name.starts_with("trommel-"));
        if in_background && path.extension().is_some_and(|extension| extension == "sst") {
            // Panics without a message.
            resume_unwind(Box::new("planned"));
        }
        self.0.create(path)
    }
}

fn small(environment: &Environment, vfs: impl Vfs + 'static) -> Options {
    Options::default()
        .environment(environment)
        .vfs(Arc::new(vfs))
        .writes(|w| w.write_buffer_bytes(32 << 10).spare_file_bytes(0))
        .compaction(|c| c.table_bytes(32 << 10).base_level_bytes(64 << 10).level_ratio(3))
}

fn environment(threads: usize) -> Environment {
    let builder = Environment::builder().threads(threads).cache_bytes(1 << 20);
    builder.memory_limit(4 << 20).max_open_files(16).build().unwrap()
}

/// Six stores are written and read at once by as many threads, with fewer workers and open files
/// than they would have alone.
fn all_are_right(threads: usize) {
    const STORES: u32 = 6;
    const ENTRIES: u32 = 3_000;
    let environment = environment(threads);
    let broken = Db::open("broken", small(&environment, NoTables(SimDisk::new()))).unwrap();
    let stores: Vec<Db> =
        (0..STORES).map(|_| Db::open("db", small(&environment, SimDisk::new())).unwrap()).collect();
    thread::scope(|scope| {
        for (nth, db) in (0..).zip(&stores) {
            scope.spawn(move || {
                for round in 0..3 {
                    for i in 0..ENTRIES {
                        db.put(scattered(i), noise(i + nth + round)).unwrap();
                    }
                    for i in (0..ENTRIES).step_by(7) {
                        let found = db.get(scattered(i)).unwrap();
                        assert!(found.as_deref() == Some(&noise(i + nth + round)[..]));
                    }
                }
            });
        }
        scope.spawn(|| {
            let poisoned = (0..).find_map(|i| broken.put(scattered(i), noise(i)).err());
            assert!(matches!(poisoned, Some(Error::Poisoned { .. })), "{poisoned:?}");
        });
    });
    assert!(matches!(broken.wait_idle(), Err(Error::Poisoned { .. })));
    for (nth, db) in (0..).zip(&stores) {
        db.wait_idle().unwrap();
        assert!(db.stats().background.compactions.count > 0, "store {nth} was never compacted");
        for i in 0..ENTRIES {
            let found = db.get(scattered(i)).unwrap();
            assert!(found.as_deref() == Some(&noise(i + nth + 2)[..]), "entry {i} of store {nth}");
        }
        db.verify().unwrap();
    }
    let stats = environment.stats();
    assert!(stats.open_tables <= 16 + STORES as usize && stats.threads <= threads, "{stats:?}");
    drop(broken);
    stores.into_iter().for_each(|db| db.close().unwrap());
    let stats = environment.stats();
    assert_eq!((stats.stores, stats.memtables, stats.tables, stats.open_tables), (0, 0, 0, 0));
    assert_eq!(stats.block_cache, 0, "blocks of closed stores");
}

#[test]
fn stores_of_one_environment_are_right_though_one_fails() {
    [1, 2, 4].into_iter().for_each(all_are_right);
}

/// The store with the largest memtable is not written to, and makes space for the others.
#[test]
fn the_largest_memtable_is_written_out_for_others() {
    let environment = Environment::builder().threads(2).memory_limit(16 << 20).build().unwrap();
    let open = || {
        let options = Options::default().environment(&environment);
        Db::open("db", options.vfs(Arc::new(SimDisk::new()))).unwrap()
    };
    let fill = |db: &Db, bytes: u32| {
        (0..bytes / 1024).for_each(|i| {
            db.put(scattered(i), [7; 1024]).unwrap();
        });
    };
    let (large, small) = (open(), open());
    fill(&large, 400 << 10);
    fill(&small, 1 << 10);
    assert_eq!(large.stats().background.flushes.count, 0, "full by itself");
    let others: Vec<Db> = (0..16).map(|_| open()).collect();
    for db in &others {
        fill(db, 100 << 10);
    }
    comes("room for others", || large.stats().background.flushes.count > 0);
    assert_eq!(small.stats().background.flushes.count, 0, "the smallest was written out");
    let active = || environment.stats().memtables;
    comes("an end of flushes", || active() <= 8 << 20);
    assert_eq!(large.iter().count(), 400);
}

/// Closing a store waits for its own jobs, but not for those of others.
#[test]
fn a_store_is_closed_while_another_is_at_work() {
    let environment = environment(2);
    let slow = SimDisk::new();
    let options = small(&environment, slow).writes(|w| w.write_buffer_bytes(256 << 10));
    let busy =
        Db::open("busy", options.compaction(|c| c.background_bytes_per_second(Some(4 << 10))))
            .unwrap();
    let mut written = 0;
    while environment.stats().threads == 0 {
        busy.put(scattered(written), noise(written)).unwrap();
        written += 1;
    }
    for _ in 0..20 {
        let db = Db::open("db", small(&environment, SimDisk::new())).unwrap();
        db.put("a", "b").unwrap();
        db.flush().unwrap();
        db.close().unwrap();
    }
    assert_eq!((environment.stats().stores, busy.stats().background.flushes.count), (1, 0));
    busy.close().unwrap();
}
