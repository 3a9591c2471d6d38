//! A memtable over its limit is flushed even when no further write comes.

use std::sync::Arc;

use trommel_sim::{Failure, Fault, MemoryVfs, OpKind, SimDisk};

use crate::{Db, Options, WriteBatch};

const LIMIT: u64 = 4 << 20;

fn open(change: impl FnOnce(Options) -> Options) -> Db {
    let options = Options::default().vfs(Arc::new(MemoryVfs::new()));
    Db::open("db", change(options)).unwrap()
}

/// A batch far above the limit, with this many operations.
fn large(operations: u32) -> WriteBatch {
    batch(operations, 32 << 20)
}

fn batch(operations: u32, bytes: usize) -> WriteBatch {
    let value = vec![7; bytes / operations as usize];
    let mut batch = WriteBatch::new();
    for n in 0..operations {
        batch.put(n.to_le_bytes(), &value);
    }
    batch
}

fn active(db: &Db) -> u64 {
    db.engine().view.load().active.memtable.memory_bytes() as u64
}

/// Regression: one batch of 200 MiB stayed in memory until the next write.
#[test]
fn a_batch_beyond_the_limit_is_written_out() {
    // The leader inserts while it leads, and after it has handed on the lead.
    for operations in [1, 4096] {
        for threads in [0, 1] {
            let db = open(|options| options.memory_limit(LIMIT).background_threads(threads));
            db.write(large(operations)).unwrap();
            db.wait_idle().unwrap();
            let memory = db.stats().memory;
            assert!(memory.total() < LIMIT, "{operations}, {threads}: {memory:?}");
            assert_eq!(db.stats().background.flushes.count, 1);
        }
    }
}

#[test]
fn conditional_writes_beyond_the_limit_are_written_out() {
    let db = open(|options| options.memory_limit(LIMIT).background_threads(0));
    assert!(db.insert_if_absent("key", vec![7; 8 << 20]).unwrap());
    assert_eq!(db.stats().background.flushes.count, 1);
}

#[test]
fn a_limit_that_is_lowered_is_kept_at_once() {
    for by_memory in [false, true] {
        let db = open(|options| options.background_threads(0));
        db.write(large(100)).unwrap();
        assert!(active(&db) > 32 << 20);
        let lower = |options: Options| match by_memory {
            true => options.memory_limit(LIMIT),
            false => options.writes(|w| w.write_buffer_bytes(1 << 20)),
        };
        db.set_options(lower).unwrap();
        assert_eq!(db.stats().background.flushes.count, 1, "{by_memory}");
        assert!(active(&db) < 1 << 20);
    }
}

/// While one frozen memtable waits (the maximum), a second full one is not frozen; it is frozen
/// once the first is flushed.
#[test]
fn a_full_memtable_is_frozen_after_the_one_before_it() {
    let disk = SimDisk::new();
    let db = open(|options| {
        let options = options.vfs(Arc::new(disk.clone())).writes(|w| w.spare_file_bytes(0));
        options
            .writes(|w| w.write_buffer_bytes(1 << 20).max_frozen_memtables(1))
            .background_threads(1)
    });
    disk.inject(Fault::new(Failure::NoSpace).on(OpKind::Create).named(".sst").lasting());
    db.write(large(100)).unwrap();
    db.write(large(100)).unwrap();
    let frozen = || db.engine().view.load().frozen.len();
    assert_eq!(frozen(), 1);
    assert!(active(&db) > 32 << 20);
    disk.clear_faults();
    while db.stats().background.flushes.count < 2 {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    assert!(active(&db) < 1 << 20);
}
