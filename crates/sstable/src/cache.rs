//! Verified blocks in memory, shared by all tables and bounded by bytes.
//!
//! Built on `quick_cache`: sharded, with an eviction that a single scan does not sweep clean. A
//! block is keyed by a number that the cache gives each open table, not by anything a file says,
//! so two files that claim the same id never answer for each other.

use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{OptionsBuilder, Weighter};

use crate::block::SharedBlock;

/// What a cached block costs beside its bytes: the entry, its key, the allocation.
const BLOCK_OVERHEAD_BYTES: u64 = 160;
/// Used to size the cache's tables at first; wrong guesses only cost a regrowth.
const TYPICAL_BLOCK_BYTES: u64 = 4096;
/// More shards than threads are likely to meet in.
const SHARDS: usize = 64;

/// Names a block: the number of its table, its offset.
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

/// Hashes two words by multiplication; the words come from us, not from an adversary.
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

impl Weighter<BlockKey, SharedBlock> for ByBytes {
    #[inline]
    fn weight(&self, _: &BlockKey, block: &SharedBlock) -> u64 {
        block.buffer.len() as u64 + BLOCK_OVERHEAD_BYTES
    }
}

type Blocks =
    Cache<BlockKey, SharedBlock, ByBytes, WordHasher, DefaultLifecycle<BlockKey, SharedBlock>>;

/// Verified data blocks, shared by all tables of a store.
pub struct BlockCache {
    blocks: Blocks,
    next_table: AtomicU64,
}

/// How full a cache is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CacheStats {
    /// Bytes held, bookkeeping included.
    pub used_bytes: u64,
    /// Bytes it may hold.
    pub capacity_bytes: u64,
    /// Blocks held.
    pub blocks: u64,
}

impl BlockCache {
    /// A cache that holds at most about `bytes` bytes of blocks; 0 holds none.
    pub fn new(bytes: u64) -> Arc<Self> {
        let expected = (bytes / TYPICAL_BLOCK_BYTES).max(1) as usize;
        // A shard that cannot hold a few large blocks would hold none of them.
        let shards = ((bytes >> 20) as usize).clamp(1, SHARDS).next_power_of_two();
        let options = OptionsBuilder::new()
            .shards(shards)
            .estimated_items_capacity(expected)
            .weight_capacity(bytes)
            .build()
            .expect("both capacities were given");
        let blocks =
            Cache::with_options(options, ByBytes, WordHasher(0), DefaultLifecycle::default());
        Arc::new(Self { blocks, next_table: AtomicU64::new(0) })
    }

    /// Changes the capacity, and evicts what no longer fits.
    pub fn set_capacity(&self, bytes: u64) {
        self.blocks.set_capacity(bytes);
    }

    /// How full the cache is. Hits are counted where they happen, in
    /// [`ReadStats`](crate::ReadStats), so that readers do not meet in a counter.
    pub fn stats(&self) -> CacheStats {
        CacheStats {
            used_bytes: self.blocks.weight(),
            capacity_bytes: self.blocks.capacity(),
            blocks: self.blocks.len() as u64,
        }
    }

    /// A number for a table that is being opened.
    pub(crate) fn number_table(&self) -> u64 {
        self.next_table.fetch_add(1, Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn get(&self, table: u64, offset: u64) -> Option<SharedBlock> {
        self.blocks.get(&BlockKey { table, offset })
    }

    pub(crate) fn insert(&self, table: u64, offset: u64, block: SharedBlock) {
        self.blocks.insert(BlockKey { table, offset }, block);
    }

    pub(crate) fn remove(&self, table: u64, offset: u64) {
        self.blocks.remove(&BlockKey { table, offset });
    }
}

impl std::fmt::Debug for BlockCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BlockCache").field("stats", &self.stats()).finish()
    }
}
