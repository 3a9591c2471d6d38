//! One ceiling over all memory: the block cache gets what memtables, indexes and filters leave.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use trommel_sstable::BlockCache;

/// Who holds how much, and the limit over it.
#[derive(Debug)]
pub(crate) struct MemoryShares {
    blocks: Arc<BlockCache>,
    /// The ceiling; `u64::MAX` where there is none.
    limit: AtomicU64,
    /// What the cache gets where the ceiling allows it.
    cache_bytes: AtomicU64,
    /// Memtables, and what is kept for the next ones.
    memtables: AtomicU64,
    /// Indexes, filters and the rest of open tables.
    tables: AtomicU64,
}

impl MemoryShares {
    /// Shares with nothing taken yet.
    pub(crate) fn new(blocks: Arc<BlockCache>, limit: Option<u64>, cache_bytes: u64) -> Arc<Self> {
        let shares = Self {
            blocks,
            limit: AtomicU64::new(u64::MAX),
            cache_bytes: AtomicU64::new(cache_bytes),
            memtables: AtomicU64::new(0),
            tables: AtomicU64::new(0),
        };
        shares.set_limits(limit, cache_bytes);
        Arc::new(shares)
    }

    /// Changes the ceiling and what the cache would get without it.
    pub(crate) fn set_limits(&self, limit: Option<u64>, cache_bytes: u64) {
        self.limit.store(limit.unwrap_or(u64::MAX), Relaxed);
        self.cache_bytes.store(cache_bytes, Relaxed);
        self.blocks.set_capacity(self.cache_share());
    }

    /// Notes what memtables may take, at most.
    pub(crate) fn set_memtables(&self, bytes: u64) {
        self.memtables.store(bytes, Relaxed);
        self.rebalance();
    }

    /// Notes that a table was opened.
    pub(crate) fn add_table(&self, bytes: u64) {
        self.tables.fetch_add(bytes, Relaxed);
        self.rebalance();
    }

    /// Notes that a table was closed.
    pub(crate) fn remove_table(&self, bytes: u64) {
        self.tables.fetch_sub(bytes, Relaxed);
        self.rebalance();
    }

    /// Whether open tables take so much that one should be closed: more than half of the ceiling.
    pub(crate) fn tables_are_heavy(&self) -> bool {
        self.tables.load(Relaxed) > self.limit.load(Relaxed) / 2
    }

    fn cache_share(&self) -> u64 {
        let taken = self.memtables.load(Relaxed).saturating_add(self.tables.load(Relaxed));
        let left = self.limit.load(Relaxed).saturating_sub(taken);
        left.min(self.cache_bytes.load(Relaxed))
    }

    fn rebalance(&self) {
        if self.limit.load(Relaxed) != u64::MAX {
            self.blocks.set_capacity(self.cache_share());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_gets_what_the_others_leave() {
        let blocks = BlockCache::new(1000);
        let capacity = || blocks.stats().capacity_bytes;
        let shares = MemoryShares::new(Arc::clone(&blocks), Some(10_000), 9_000);
        assert_eq!(capacity(), 9_000);
        shares.set_memtables(3_000);
        assert_eq!(capacity(), 7_000);
        shares.add_table(4_000);
        assert_eq!(capacity(), 3_000);
        assert!(!shares.tables_are_heavy());
        shares.add_table(4_000);
        assert_eq!(capacity(), 0);
        assert!(shares.tables_are_heavy());
        shares.remove_table(8_000);
        shares.set_limits(None, 500);
        assert_eq!(capacity(), 500);
    }
}
