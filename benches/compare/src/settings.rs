//! The conditions that all stores share.

use serde::{Deserialize, Serialize};

/// The data, and the limits of every store that supports them.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Settings {
    /// Keys drawn from, and writes.
    pub(crate) num: u64,
    pub(crate) reads: u64,
    pub(crate) key_bytes: usize,
    pub(crate) value_bytes: usize,
    pub(crate) seed: u64,
    /// Writes in one commit of a store that is slow at single ones, and keys in one multi-get.
    pub(crate) batch: usize,
    pub(crate) multi_get: usize,
    pub(crate) filter_bits: f64,
    pub(crate) block_bytes: u64,
    pub(crate) cache_bytes: u64,
    pub(crate) write_buffer_bytes: u64,
    pub(crate) frozen_memtables: usize,
    pub(crate) l0_trigger: usize,
    pub(crate) l0_slowdown: usize,
    pub(crate) l0_stop: usize,
    pub(crate) base_level_bytes: u64,
    pub(crate) level_ratio: u32,
    pub(crate) table_bytes: u64,
    pub(crate) background_threads: usize,
    /// Whether every commit must be durable when it returns.
    pub(crate) durable: bool,
    /// Whether stores keep statistics, including those that do so only on request because it costs
    /// them time.
    pub(crate) counted: bool,
    /// Whether much is deleted, for stores with options for that.
    pub(crate) deletes: bool,
}

impl Settings {
    /// The conditions of a measurement with `num` keys and `reads` reads.
    pub(crate) fn new(num: u64, reads: u64) -> Self {
        Self {
            num,
            reads,
            key_bytes: 16,
            value_bytes: 256,
            seed: 42,
            batch: 1000,
            multi_get: 100,
            filter_bits: 10.0,
            block_bytes: 4 << 10,
            cache_bytes: 2 << 30,
            write_buffer_bytes: 64 << 20,
            frozen_memtables: 4,
            l0_trigger: 4,
            l0_slowdown: 12,
            l0_stop: 24,
            base_level_bytes: 256 << 20,
            level_ratio: 10,
            table_bytes: 64 << 20,
            background_threads: 2,
            durable: false,
            counted: false,
            deletes: false,
        }
        .with_cache_for_all()
    }

    /// The same with a cache for all data, in whole GiB, and at least as large as before.
    fn with_cache_for_all(mut self) -> Self {
        self.cache_bytes = self.cache_bytes.max(self.user_bytes().next_multiple_of(1 << 30));
        self
    }

    /// The same with a tree so small that few keys make several levels.
    pub(crate) fn with_small_tree(mut self) -> Self {
        self.write_buffer_bytes = 2 << 20;
        self.base_level_bytes = 8 << 20;
        self.table_bytes = 2 << 20;
        self
    }

    /// Bytes of keys and values written.
    pub(crate) fn user_bytes(&self) -> u64 {
        self.num * (self.key_bytes + self.value_bytes) as u64
    }
}
