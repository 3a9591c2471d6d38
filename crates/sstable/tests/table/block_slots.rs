//! Block slots: found, emptied with the cache's entry, and counted.

use std::sync::Arc;
use std::thread;

use trommel_base::MAX_SEQNO;
use trommel_sstable::{BlockCache, Compression, ReadStats, Request, Table, get_many};
use trommel_vfs::Access;

use crate::allocator::held;
use crate::common::*;

const KEYS: u64 = 20_000;

/// Blocks of about 4 KiB, six entries each.
fn table(keys: u64) -> (InMemory, Vec<Entry>) {
    let entries: Vec<Entry> =
        (0..keys).map(|i| put(format!("key{i:06}"), i + 1, vec![i as u8; 600])).collect();
    (InMemory::new(options(4096, Compression::None, "none"), &entries), entries)
}

fn open_with(table: &InMemory, cache: &Arc<BlockCache>) -> Arc<Table> {
    open(&table.vfs, &table.path, Access::Buffered, cache).unwrap()
}

fn check(table: &Table, entry: &Entry, stats: &mut ReadStats) {
    let hash = trommel_filter::hash(&entry.key);
    let found = table.get(&entry.key, hash, MAX_SEQNO, stats).unwrap();
    assert_eq!(found.map(|found| found.value.to_vec()).as_ref(), Some(&entry.value));
}

/// xorshift64*, below `limit`.
fn random(state: &mut u64, limit: usize) -> usize {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    (state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % limit
}

#[test]
fn an_evicted_block_leaves_its_slot() {
    let (table, entries) = table(KEYS);
    let capacity = 2 << 20;
    let cache = BlockCache::new(capacity);
    let opened = open_with(&table, &cache);
    let (before, state, mut stats) = (held(), &mut 7, ReadStats::default());
    for _ in 0..30_000 {
        check(&opened, &entries[random(state, entries.len())], &mut stats);
        assert!(cache.stats().used_bytes <= capacity + (capacity >> 5), "{:?}", cache.stats());
    }
    let used = cache.stats().used_bytes;
    let held = (held() - before) as u64;
    assert!(used > capacity / 2, "{:?}", cache.stats());
    // Includes the cache's own tables, which also list ghost entries.
    assert!(held <= capacity + capacity / 10, "{held} held, {used} counted");
    opened.evict();
    assert_eq!(cache.stats().blocks, 0);
    let held = (self::held() - before) as u64;
    assert!(held <= capacity / 8, "{held} held of nothing");
}

#[test]
fn counted_memory_of_blocks_is_allocated_memory() {
    let (table, entries) = table(KEYS);
    let cache = BlockCache::new(256 << 20);
    let opened = open_with(&table, &cache);
    let (before, mut stats) = (held(), ReadStats::default());
    for entry in &entries {
        check(&opened, entry, &mut stats);
    }
    let (held, used) = ((held() - before) as u64, cache.stats().used_bytes);
    assert!(used.abs_diff(held) <= held / 100, "{held} held, {used} counted");
}

/// Slots are charged to the cache. With a small cache, blocks are found without them.
#[test]
fn slots_take_a_small_part_of_the_cache() {
    let (table, entries) = table(KEYS);
    for capacity in [0, 10_000, 100_000, 1 << 20, 4 << 20] {
        let cache = BlockCache::new(capacity);
        let opened = open_with(&table, &cache);
        let mut stats = ReadStats::default();
        for entry in &entries {
            check(&opened, entry, &mut stats);
        }
        assert!(cache.stats().used_bytes <= capacity, "{:?}", cache.stats());
        cache.set_capacity(0);
        let slots = cache.stats().used_bytes;
        assert!(slots <= capacity / 32, "{slots} bytes of slots of {capacity}");
        assert!(slots > 0 || capacity < 4 << 20, "no slots");
        cache.set_capacity(capacity);
        let (first, mut stats) = (&entries[3], ReadStats::default());
        check(&opened, first, &mut stats);
        check(&opened, first, &mut stats);
        let hits = u64::from(capacity > 0);
        assert_eq!((stats.block_reads, stats.cache_hits), (2 - hits, hits), "{capacity}");
        drop(opened);
        cache.set_capacity(0);
        assert_eq!(cache.stats().used_bytes, 0, "slots of a table that is closed");
    }
}

/// Read statistics of the first `often` entries, which are all read up front, and of the other
/// entries. Each of `rounds` draws `draws` entries of both kinds.
fn read_often(
    capacity: u64,
    often: usize,
    rounds: usize,
    draws: (usize, usize),
) -> (ReadStats, ReadStats) {
    let (table, entries) = table(KEYS);
    let opened = open_with(&table, &BlockCache::new(capacity));
    let (often, seldom) = entries.split_at(often);
    let (state, mut of_often, mut of_seldom) = (&mut 3, ReadStats::default(), ReadStats::default());
    for entry in often.iter().chain(often) {
        check(&opened, entry, &mut ReadStats::default());
    }
    for _ in 0..rounds {
        for (entries, draws, stats) in
            [(seldom, draws.1, &mut of_seldom), (often, draws.0, &mut of_often)]
        {
            (0..draws).for_each(|_| check(&opened, &entries[random(state, entries.len())], stats));
        }
    }
    (of_often, of_seldom)
}

/// Hits in slots are reported to the cache often enough: a block in constant use stays, however
/// many other blocks are read once.
#[test]
fn a_block_that_is_used_in_its_slot_is_not_evicted() {
    let (of_often, of_seldom) = read_often(4 << 20, 600, 10_000, (1, 1));
    assert!(of_seldom.block_reads > 6000, "{of_seldom:?}");
    assert!(of_often.block_reads < 200, "{of_often:?}");
}

/// If nearly all of the cache is in constant use, nearly all of it stays.
#[test]
fn a_working_set_that_nearly_fills_the_cache_stays() {
    let (of_often, _) = read_often(8 << 20, 11_400, 20_000, (10, 1));
    let missed = of_often.block_reads as f64 / 200_000.0;
    // The same rate as if the cache saw every use; with a quarter of the turns, it is a fifth
    // higher.
    assert!(missed < 0.027, "{of_often:?}");
}

#[test]
fn lookups_of_many_keys_find_blocks_in_their_slots() {
    let (table, entries) = table(2000);
    let cache = BlockCache::new(64 << 20);
    let opened = open_with(&table, &cache);
    let request = |entry| {
        let Entry { key, .. }: &Entry = entry;
        Request { table: 0, key, hash: trommel_filter::hash(key), seqno: MAX_SEQNO }
    };
    let requests: Vec<_> = entries.iter().map(request).collect();
    // First half of the blocks are cached, then all.
    let mut stats = ReadStats::default();
    for entry in &entries[..1000] {
        check(&opened, entry, &mut stats);
    }
    let there = stats.block_reads;
    for reads in [table.summary.contents.blocks - there, 0] {
        let (mut stats, mut values) = (ReadStats::default(), Vec::new());
        let answer = |_, found: Option<trommel_sstable::Found>| values.push(found.unwrap().value);
        get_many(|_| Some(&*opened), &requests, &mut stats, answer).unwrap();
        assert!(values.iter().zip(&entries).all(|(value, entry)| *value == entry.value));
        assert_eq!(
            (stats.block_reads, stats.cache_hits),
            (reads, table.summary.contents.blocks - reads)
        );
    }
}

#[test]
fn concurrent_reads_and_evictions_leak_nothing() {
    let (table, entries) = table(3000);
    let cache = BlockCache::new(1 << 20);
    let opened = open_with(&table, &cache);
    thread::scope(|scope| {
        for thread in 0..4 {
            let (opened, entries) = (&opened, &entries);
            scope.spawn(move || {
                let (state, mut stats) = (&mut (thread + 11), ReadStats::default());
                for round in 0..20_000 {
                    check(opened, &entries[random(state, entries.len())], &mut stats);
                    if thread == 0 && round % 1000 == 0 {
                        opened.evict();
                    }
                }
            });
        }
    });
    opened.evict();
    assert_eq!(cache.stats().blocks, 0);
    let mut stats = ReadStats::default();
    for entry in &entries {
        check(&opened, entry, &mut stats);
    }
    // Each block is read once, and found for its other entries.
    assert_eq!(stats.block_reads, table.summary.contents.blocks, "in a slot, but not in the cache");
}
