//! Loading of filters and indexes: each stored byte of a filter is read once, however many threads
//! query it at once; nothing is in memory twice; and reported memory matches allocated memory.

use std::io;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use trommel_base::MAX_SEQNO;
use trommel_sstable::{
    BlockCache, Compression, Expected, FilterHost, FilterPlan, FilterShape, FilterState, ReadStats,
    Table, TableConfig, TableMemory, TableOptions,
};
use trommel_vfs::{Access, ReadFile, Vfs};

use crate::allocator::{held, most_held};
use crate::common::*;
use crate::filter_shapes::{Host, SHAPES};

/// Size of each read of a filter.
const TURN_BYTES: u64 = 256 << 10;

/// A file that counts reads of its filters, the first of which are slow.
#[derive(Debug)]
struct Counting {
    file: Arc<dyn ReadFile>,
    filters: std::ops::Range<u64>,
    reads: AtomicU64,
    bytes: AtomicU64,
}

impl ReadFile for Counting {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let end = (offset + buffer.len() as u64).min(self.filters.end);
        let read = end.saturating_sub(offset.max(self.filters.start));
        if read > 0 {
            self.bytes.fetch_add(read, Ordering::Relaxed);
            // Long enough for another thread to query the same filter.
            if self.reads.fetch_add(1, Ordering::Relaxed) < 6 {
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        self.file.read_at(offset, buffer)
    }

    fn bytes(&self) -> u64 {
        self.file.bytes()
    }
}

fn table(shape: FilterShape, keys: u64, partition_bytes: usize) -> InMemory {
    let keys_filter = "blocked:40".parse().unwrap();
    let filters = FilterPlan { keys: keys_filter, shape, partition_bytes, ..FilterPlan::default() };
    let entries: Vec<Entry> = (0..keys).map(|i| put(key(i), i, b"")).collect();
    let options = TableOptions { filters, ..options(4096, Compression::None, "none") };
    InMemory::new(options, &entries)
}

fn key(i: u64) -> [u8; 8] {
    (2 * i).swap_bytes().to_le_bytes()
}

/// Opens the table without reading its filters.
fn open(table: &InMemory, pinned: u64, cache: &Arc<BlockCache>) -> (Arc<Table>, Arc<Counting>) {
    let file = table.vfs.open(&table.path, Access::Buffered).unwrap();
    let expected = Expected { file_bytes: file.bytes(), table_id: TABLE_ID };
    let config = TableConfig {
        cache: Arc::clone(cache),
        access: Access::Buffered,
        filter_host: Some(Host::new(pinned)),
    };
    let opened = Table::open(Arc::clone(&file), &table.path, expected, &config).unwrap();
    let start = opened.footer().data_bytes;
    let filters = start..start + opened.footer().filter_bytes;
    let counting =
        Arc::new(Counting { file, filters, reads: AtomicU64::new(0), bytes: AtomicU64::new(0) });
    let file = Arc::<Counting>::clone(&counting);
    let opened = Table::open(file, &table.path, expected, &config).unwrap();
    // Opening reads the end of the file, all of a small one.
    counting.bytes.store(0, Ordering::Relaxed);
    counting.reads.store(0, Ordering::Relaxed);
    (Arc::new(opened), counting)
}

fn query_all(table: &Table, keys: u64) {
    for i in 0..keys {
        let verdict = table.filters().query(&key(i), trommel_filter::hash(&key(i)));
        assert!(verdict.maybe && verdict.expected < 1.0, "key {i}: {verdict:?}");
    }
}

#[test]
fn threads_that_query_the_same_filter_read_it_once() {
    let keys = 120_000;
    for shape in SHAPES {
        let table = table(shape, keys, 32 << 10);
        for pinned in [u64::MAX, 0] {
            let (opened, counting) = open(&table, pinned, &BlockCache::new(256 << 20));
            let start = Barrier::new(3);
            std::thread::scope(|scope| {
                for _ in 0..3 {
                    scope.spawn(|| {
                        start.wait();
                        query_all(&opened, keys);
                    });
                }
            });
            let stored = counting.filters.end - counting.filters.start;
            let read = counting.bytes.load(Ordering::Relaxed);
            assert!(stored > 2 * TURN_BYTES, "{shape:?}: {stored} bytes");
            assert_eq!(read, stored, "{shape:?}, {pinned} pinned");
        }
    }
}

#[test]
fn a_filter_is_not_in_memory_twice_while_it_is_read() {
    let table = table(FilterShape::Whole, 300_000, 32 << 10);
    for pinned in [u64::MAX, 0] {
        let (opened, counting) = open(&table, pinned, &BlockCache::new(256 << 20));
        let stored = counting.filters.end - counting.filters.start;
        assert!(stored > 5 * TURN_BYTES, "{stored} bytes");
        let ((), most) = most_held(|| query_all(&opened, 1));
        assert!(most < stored + TURN_BYTES + 4096, "{most} bytes for {stored}");
    }
}

#[test]
fn counted_memory_of_filters_is_allocated_memory() {
    let keys = 60_000;
    for shape in SHAPES {
        // Small partitions, so that the overhead of each matters.
        let table = table(shape, keys, 256);
        for pinned in [u64::MAX, 0] {
            let cache = BlockCache::new(256 << 20);
            let (opened, _) = open(&table, pinned, &cache);
            let before = (held(), cache.stats().used_bytes);
            // One key loads mostly the top; all keys, mostly the partitions.
            for count in [1, keys] {
                query_all(&opened, count);
                let held = (held() - before.0) as u64;
                let pinned_bytes = opened.filters().pinned_bytes();
                let counted = pinned_bytes + cache.stats().used_bytes - before.1;
                assert_eq!(pinned_bytes > 0, pinned > 0, "{shape:?}");
                let context = format!("{shape:?}, {pinned} pinned: {counted} counted, {held} held");
                // The cache's own tables grow as well.
                assert!(counted.abs_diff(held) <= 640 + held / 100, "{context}");
            }
        }
    }
}

#[test]
fn counted_memory_of_an_index_is_allocated_memory() {
    /// The reference counts of a shared allocation.
    const SHARED: isize = 16;
    // One leaf, several, and many small ones.
    for (keys, index_leaf_bytes) in [(1, 4096), (300, 64 << 10), (60_000, 64 << 10), (60_000, 512)]
    {
        let entries: Vec<Entry> = (0..keys).map(|i| put(key(i), i, b"a value")).collect();
        let options = TableOptions { index_leaf_bytes, ..options(256, Compression::None, "none") };
        let table = InMemory::new(options, &entries);
        let (cache, mut stats) = (BlockCache::new(0), ReadStats::default());
        for access in [Access::Buffered, Access::Mapped] {
            let what = format!("{keys} keys, leaves of {index_leaf_bytes}, {access:?}");
            let file = table.vfs.open(&table.path, access).unwrap();
            let expected = Expected { file_bytes: file.bytes(), table_id: TABLE_ID };
            let config = TableConfig { cache: Arc::clone(&cache), access, filter_host: None };
            let before = held();
            let opened =
                Table::open(file, &table.path, expected, &config).unwrap().verifying_once();
            let beside = || {
                let TableMemory { index, filter, other } = opened.memory_bytes();
                held() - before - (index + filter + other) as isize
            };
            // The table itself is on the stack; file, index and verified blocks are shared.
            let is_mapped = access == Access::Mapped;
            let shared = if is_mapped { 3 } else { 2 } * SHARED - size_of::<Table>() as isize;
            assert_eq!(beside(), shared, "{what}: opened");
            let at_first = opened.memory_bytes().index;
            for i in 0..keys {
                if is_mapped {
                    let hash = trommel_filter::hash(&key(i));
                    assert!(opened.get(&key(i), hash, MAX_SEQNO, &mut stats).unwrap().is_some());
                } else {
                    // Reads only the index.
                    assert!(opened.approximate_offset(&key(i)) < opened.footer().data_bytes);
                }
            }
            assert_eq!(beside(), shared, "{what}: read");
            let grown = opened.memory_bytes().index - at_first;
            assert!(index_leaf_bytes > 512 || grown > 50_000, "{what}: {grown} bytes of leaves");
        }
    }
}

/// Bytes that a table has reported to its host.
#[derive(Debug, Default)]
struct Ledger(AtomicI64);

impl FilterHost for Ledger {
    fn pin(&self, _: u64) -> bool {
        false
    }

    fn unpin(&self, _: u64) {}

    fn unusable(&self, _: &FilterState) {}

    fn grows(&self, bytes: u64) {
        self.0.fetch_add(bytes as i64, Ordering::Relaxed);
    }

    fn shrinks(&self, bytes: u64) {
        self.0.fetch_sub(bytes as i64, Ordering::Relaxed);
    }
}

/// Leaves of the index and records of verified blocks are loaded on demand. The host is notified
/// then, but not of the small amount that opening a table takes.
#[test]
fn memory_that_an_open_table_acquires_is_reported() {
    let entries: Vec<Entry> = (0..20_000).map(|i| put(key(i), i, b"a value")).collect();
    let options = TableOptions { index_leaf_bytes: 512, ..options(256, Compression::None, "none") };
    let table = InMemory::new(options, &entries);
    for access in [Access::Buffered, Access::Mapped] {
        let ledger = Arc::new(Ledger::default());
        let noted = || ledger.0.load(Ordering::Relaxed);
        let file = table.vfs.open(&table.path, access).unwrap();
        let expected = Expected { file_bytes: file.bytes(), table_id: TABLE_ID };
        let filter_host = Some(Arc::<Ledger>::clone(&ledger) as Arc<dyn FilterHost>);
        let config = TableConfig { cache: BlockCache::new(0), access, filter_host };
        let opened = Table::open(file, &table.path, expected, &config).unwrap().verifying_once();
        let at_first = opened.memory_bytes().index;
        assert_eq!(noted(), 0);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut stats = ReadStats::default();
                    for i in 0..20_000 {
                        let hash = trommel_filter::hash(&key(i));
                        assert!(
                            opened.get(&key(i), hash, MAX_SEQNO, &mut stats).unwrap().is_some()
                        );
                    }
                });
            }
        });
        let grown = (opened.memory_bytes().index - at_first) as i64;
        assert!(grown > 20_000, "{grown} bytes of leaves");
        assert_eq!(noted(), grown, "{access:?}");
        drop(opened);
        assert_eq!(noted(), 0, "{access:?}");
    }
}
