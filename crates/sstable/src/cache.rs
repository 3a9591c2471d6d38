//! The block cache: verified blocks in memory, shared by all tables and bounded by bytes. It holds
//! data blocks, and filter blocks that are not pinned, under one eviction policy.
//!
//! Built on `quick_cache`: sharded, with a scan-resistant eviction policy. The key of a block is a
//! number that the cache assigns to each open table, and the block's offset. Nothing in it comes
//! from the file, so two files with the same id are never confused. Lookups find most blocks
//! without searching the cache, through their [slots](crate::block_slots).

use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{OptionsBuilder, Weighter};

use crate::block::{SharedBlock, prefetch_columns};
use crate::block_slots::{CachedBlock, SlotBudget, SlotRef};
use crate::filter_block::FilterBlock;
use crate::filter_memory::{CachedCharge, FilterMemory};

/// Cost of an entry in addition to its bytes: the entry, its key, the allocation.
const ENTRY_OVERHEAD_BYTES: u64 = 112;
/// Cost of a block in addition to its buffer.
const BLOCK_OVERHEAD_BYTES: u64 = ENTRY_OVERHEAD_BYTES + size_of::<CachedBlock>() as u64 + 24;
/// Initial sizing of the cache's tables; a wrong guess costs only a regrowth.
const TYPICAL_BLOCK_BYTES: u64 = 4096;
/// More shards than threads are likely to contend for.
const SHARDS: usize = 64;
/// Slots may take at most this fraction of the capacity, which blocks may not use: 1/32.
const SLOTS_FRACTION: u64 = 32;
/// Number of turns in which all of the cache may have been replaced. A block in constant use is
/// reported once per turn, which keeps it cached even if nearly all others are used as well.
const TURNS: u64 = 32;

/// The key of a block: the number of its table, its offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct BlockKey {
    table: u64,
    offset: u64,
}

impl Hash for BlockKey {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.table);
        state.write_u64(self.offset);
    }
}

/// Hashes two words by multiplication. The words come from the cache itself, so no adversary
/// chooses them.
#[derive(Debug, Clone, Copy, Default)]
struct WordHasher(u64);

impl BuildHasher for WordHasher {
    type Hasher = Self;

    #[inline]
    fn build_hasher(&self) -> Self {
        Self(0)
    }
}

impl Hasher for WordHasher {
    #[inline]
    fn write_u64(&mut self, word: u64) {
        let product = u128::from(self.0 ^ word ^ 0x9e37_79b9_7f4a_7c15) * 0xa076_1d64_78bd_642f;
        self.0 = (product as u64) ^ ((product >> 64) as u64);
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct ByBytes;

/// An entry of the cache.
#[derive(Debug)]
enum CacheEntry {
    Block(Arc<CachedBlock>),
    Filter(Arc<CachedFilter>),
}

impl Clone for CacheEntry {
    /// Called by lookups. Prefetches the memory that a search of the block reads before it
    /// increments the reference count, as that is a memory access that later loads cannot overtake.
    #[inline]
    fn clone(&self) -> Self {
        match self {
            Self::Block(cached) => {
                prefetch_columns(&cached.block().buffer);
                Self::Block(Arc::clone(cached))
            }
            Self::Filter(cached) => Self::Filter(Arc::clone(cached)),
        }
    }
}

/// A filter block, in the cache or being evicted. (Fields drop in order: the block before its
/// charge.)
#[derive(Debug)]
pub(crate) struct CachedFilter {
    block: FilterBlock,
    charge: CachedCharge,
}

impl CachedFilter {
    #[inline]
    pub(crate) fn block(&self) -> &FilterBlock {
        &self.block
    }
}

impl Weighter<BlockKey, CacheEntry> for ByBytes {
    #[inline]
    fn weight(&self, _: &BlockKey, entry: &CacheEntry) -> u64 {
        match entry {
            CacheEntry::Block(cached) => cached.block().buffer.len() as u64 + BLOCK_OVERHEAD_BYTES,
            CacheEntry::Filter(cached) => cached.charge.bytes() + ENTRY_OVERHEAD_BYTES,
        }
    }
}

type Entries =
    Cache<BlockKey, CacheEntry, ByBytes, WordHasher, DefaultLifecycle<BlockKey, CacheEntry>>;

/// The cache of data blocks and filter blocks, shared by all tables of a store. If [several
/// stores](BlockCache::share) share one cache, this is the handle of one of them.
pub struct BlockCache {
    shared: Arc<Shared>,
    /// The number of the store among those that share the cache.
    owner: u64,
    next_table: AtomicU64,
    filters: Arc<FilterMemory>,
}

/// The state shared by all stores that share a cache.
struct Shared {
    blocks: Entries,
    next_owner: AtomicU64,
    /// Capacity in bytes, slots of blocks included.
    capacity: AtomicU64,
    slots: Arc<SlotBudget>,
    /// Bytes inserted so far.
    inserted: AtomicU64,
    turn: TurnNumber,
}

/// Low bits of a table's number, which count the tables of one store; the bits above them are the
/// store's number.
const TABLE_BITS: u32 = 40;

/// The number of the turn. Each lookup reads it, so it has a cache line apart from the counters
/// that insertions write.
#[derive(Debug, Default)]
#[repr(align(64))]
struct TurnNumber(AtomicU32);

/// How full a cache is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CacheStats {
    /// Bytes held, bookkeeping and slots of blocks included.
    pub used_bytes: u64,
    /// Bytes it may hold.
    pub capacity_bytes: u64,
    /// Blocks held, filter blocks among them.
    pub blocks: u64,
    /// Bytes of filter blocks among those held.
    pub filter_bytes: u64,
}

/// Most bytes of a capacity that slots may take.
fn for_slots(capacity: u64) -> u64 {
    capacity / SLOTS_FRACTION
}

/// Bytes of a capacity left for blocks, independent of the current number of slots: a gradual
/// change of capacity would make the cache forget its ghost entries.
fn for_blocks(capacity: u64) -> u64 {
    capacity - for_slots(capacity)
}

impl BlockCache {
    /// A cache of at most about `bytes` bytes of blocks; 0 caches nothing.
    pub fn new(bytes: u64) -> Arc<Self> {
        let expected = (bytes / TYPICAL_BLOCK_BYTES).max(1) as usize;
        // A shard too small for a few large blocks would hold none of them.
        let shards = ((bytes >> 20) as usize).clamp(1, SHARDS).next_power_of_two();
        let options = OptionsBuilder::new()
            .shards(shards)
            .estimated_items_capacity(expected)
            .weight_capacity(for_blocks(bytes))
            .build()
            .expect("both capacities were given");
        let blocks =
            Cache::with_options(options, ByBytes, WordHasher(0), DefaultLifecycle::default());
        let shared = Shared {
            blocks,
            next_owner: AtomicU64::new(0),
            capacity: AtomicU64::new(bytes),
            slots: SlotBudget::new(for_slots(bytes)),
            inserted: AtomicU64::new(0),
            turn: TurnNumber::default(),
        };
        Self::of_next_owner(Arc::new(shared))
    }

    fn of_next_owner(shared: Arc<Shared>) -> Arc<Self> {
        let owner = shared.next_owner.fetch_add(1, Ordering::Relaxed);
        Arc::new(Self { shared, owner, next_table: AtomicU64::new(0), filters: Arc::default() })
    }

    /// A handle of the same cache for another store. Capacity and blocks are shared; filters are
    /// counted and limited separately.
    #[must_use]
    pub fn share(&self) -> Arc<Self> {
        Self::of_next_owner(Arc::clone(&self.shared))
    }

    /// Evicts all blocks of this store's tables.
    pub fn forget_own(&self) {
        self.shared.blocks.retain(|key, _| key.table >> TABLE_BITS != self.owner);
    }

    /// Changes the capacity and evicts blocks that no longer fit. Slots of blocks stay until their
    /// tables are closed, even if they now exceed 1/32 of the capacity.
    pub fn set_capacity(&self, bytes: u64) {
        self.shared.capacity.store(bytes, Ordering::Relaxed);
        self.shared.slots.set_limit(for_slots(bytes));
        self.shared.blocks.set_capacity(for_blocks(bytes));
    }

    /// The budget for slots of blocks.
    pub(crate) fn slots(&self) -> &Arc<SlotBudget> {
        &self.shared.slots
    }

    /// Usage of the cache. Hits are counted in [`ReadStats`](crate::ReadStats) instead, so that
    /// readers do not contend for a counter.
    pub fn stats(&self) -> CacheStats {
        CacheStats {
            used_bytes: self.shared.blocks.weight() + self.shared.slots.used(),
            capacity_bytes: self.shared.capacity.load(Ordering::Relaxed),
            blocks: self.shared.blocks.len() as u64,
            filter_bytes: self.filters.cached(),
        }
    }

    /// Memory of filters, both in this cache and pinned by open tables.
    pub fn filters(&self) -> &Arc<FilterMemory> {
        &self.filters
    }

    /// Charges `bytes` for a filter block, unless that exceeds the limit.
    pub(crate) fn charge_filter(&self, bytes: u64) -> Option<CachedCharge> {
        self.filters.charge_cached(bytes)
    }

    /// A number for a table that is being opened.
    pub(crate) fn number_table(&self) -> u64 {
        (self.owner << TABLE_BITS) | self.next_table.fetch_add(1, Ordering::Relaxed)
    }

    /// The data block at `offset` of a table.
    pub(crate) fn get(&self, table: u64, offset: u64) -> Option<Arc<CachedBlock>> {
        match self.shared.blocks.get(&BlockKey { table, offset }) {
            Some(CacheEntry::Block(cached)) => Some(cached),
            _ => None,
        }
    }

    /// Reports a hit on a block found in its slot.
    #[cold]
    pub(crate) fn use_once(&self, table: u64, offset: u64) {
        self.shared.blocks.get(&BlockKey { table, offset });
    }

    /// Inserts a block, and puts it into its slot if it has one.
    pub(crate) fn insert(
        &self,
        table: u64,
        offset: u64,
        block: SharedBlock,
        slot: Option<SlotRef>,
    ) {
        let bytes = block.buffer.len() as u64;
        let cached = CachedBlock::new(block, slot, self.turn());
        self.shared.blocks.insert(BlockKey { table, offset }, CacheEntry::Block(cached));
        self.note_inserted(bytes);
    }

    /// The number of the turn, which changes each time 1/32 of the capacity was inserted.
    #[inline]
    pub(crate) fn turn(&self) -> u32 {
        self.shared.turn.0.load(Ordering::Relaxed)
    }

    fn note_inserted(&self, bytes: u64) {
        let turn_bytes = (self.shared.capacity.load(Ordering::Relaxed) / TURNS).max(1);
        let before = self.shared.inserted.fetch_add(bytes, Ordering::Relaxed);
        if before % turn_bytes + bytes >= turn_bytes {
            self.shared.turn.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The filter block at `offset` of a table.
    #[inline]
    pub(crate) fn filter(&self, table: u64, offset: u64) -> Option<Arc<CachedFilter>> {
        match self.shared.blocks.get(&BlockKey { table, offset }) {
            Some(CacheEntry::Filter(cached)) => Some(cached),
            _ => None,
        }
    }

    /// Inserts a filter block that `charge` covers. Removes it again if the limit on filters has
    /// dropped in the meantime: the eviction that follows such a change could not have found the
    /// block.
    pub(crate) fn insert_filter(
        &self,
        table: u64,
        offset: u64,
        block: FilterBlock,
        charge: CachedCharge,
    ) -> Arc<CachedFilter> {
        let bytes = charge.bytes();
        let cached = Arc::new(CachedFilter { block, charge });
        self.shared
            .blocks
            .insert(BlockKey { table, offset }, CacheEntry::Filter(Arc::clone(&cached)));
        self.note_inserted(bytes);
        if !cached.charge.is_within_limit() {
            self.remove(table, offset);
        }
        cached
    }

    /// Whether an entry of `bytes` bytes can stay for some time: it fills at most half of its
    /// shard.
    pub(crate) fn can_keep(&self, bytes: u64) -> bool {
        2 * (bytes + ENTRY_OVERHEAD_BYTES) <= self.shared.blocks.shard_capacity()
    }

    pub(crate) fn remove(&self, table: u64, offset: u64) {
        self.shared.blocks.remove(&BlockKey { table, offset });
    }
}

impl std::fmt::Debug for BlockCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BlockCache").field("stats", &self.stats()).finish()
    }
}

#[cfg(all(test, not(trommel_loom)))]
mod tests {
    use super::*;
    use crate::block_slots::BlockSlots;
    use crate::block_slots::fixtures::{block, hit, index, location};

    #[test]
    fn a_block_is_in_its_slot_while_the_cache_holds_it() {
        let (cache, slots, leaf) = (BlockCache::new(1 << 20), BlockSlots::new(1), index(12));
        let (one, other) = (block(), block());
        let buffers = [one.buffer.as_ptr(), other.buffer.as_ptr()];
        let insert = |slot, block| {
            let location = location(&slots, &leaf, slot);
            cache.insert(7, location.handle.offset, block, location.slot(cache.slots()));
        };
        assert_eq!(hit(location(&slots, &leaf, 8), 0), None);
        insert(8, one);
        for (turn, is_first) in [(0, true), (0, false), (1, true), (1, false)] {
            assert_eq!(hit(location(&slots, &leaf, 8), turn), Some((buffers[0], is_first)));
        }
        // A second reader of the same block takes the slot, and keeps it after the first entry is
        // dropped.
        insert(8, other);
        assert_eq!(hit(location(&slots, &leaf, 8), 1), Some((buffers[1], true)));
        assert_eq!(hit(location(&slots, &leaf, 3), 1), None);
        cache.remove(7, 80);
        assert_eq!(hit(location(&slots, &leaf, 8), 1), None);
    }

    #[test]
    fn slots_count_as_used_and_stay_within_a_32nd() {
        let (cache, leaf) = (BlockCache::new(4096 * 4), index(12));
        let (slots, more) = (BlockSlots::new(1), BlockSlots::new(1));
        assert!(location(&slots, &leaf, 0).slot(cache.slots()).is_some());
        assert_eq!(cache.stats().used_bytes, 3 * 128);
        assert!(location(&more, &leaf, 0).slot(cache.slots()).is_none(), "more than a 32nd");
        cache.set_capacity(4096 * 8);
        assert!(location(&more, &leaf, 0).slot(cache.slots()).is_some());
        drop((slots, more));
        assert_eq!(cache.stats().used_bytes, 0);
    }
}
