//! What an open store holds in memory: blocks, memtables' chunks, and its share of the ceiling.

use std::sync::Arc;

use trommel_memtable::ArenaPool;
use trommel_sstable::BlockCache;

use crate::memory::MemoryShares;

/// What an open store holds in memory.
#[derive(Debug)]
pub(crate) struct StoreMemory {
    pub(crate) blocks: Arc<BlockCache>,
    /// Who holds how much of what the store may.
    pub(crate) shares: Arc<MemoryShares>,
    /// Chunks of memtables that were dropped, for the next ones.
    pub(crate) arenas: Arc<ArenaPool>,
}
