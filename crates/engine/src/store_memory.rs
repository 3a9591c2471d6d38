//! The memory of an open store: blocks, memtable chunks, and its share of the ceiling.

use std::sync::Arc;

use trommel_memtable::ArenaPool;
use trommel_sstable::BlockCache;

use crate::memory::MemoryShares;
use crate::ranges::Gaps;

/// The memory of an open store.
#[derive(Debug)]
pub(crate) struct StoreMemory {
    pub(crate) blocks: Arc<BlockCache>,
    /// The accounting of the store's memory.
    pub(crate) shares: Arc<MemoryShares>,
    /// Chunks of dropped memtables, for the next ones.
    pub(crate) arenas: Arc<ArenaPool>,
    /// The gaps of deleted keys that scans have found.
    pub(crate) gaps: Gaps,
}
