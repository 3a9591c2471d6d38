//! The data blocks of a mapped table that passed their checksum, for tables that verify each block
//! once.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use crate::filter_host::{FilterHost, LoadedMemory};
use crate::index::{At, Index};

/// One bit per data block, by leaf of the index. A leaf's bits are allocated when its first block
/// is verified.
#[derive(Debug)]
pub(crate) struct VerifiedBlocks {
    leaves: Box<[OnceLock<Box<[AtomicU64]>>]>,
    memory: LoadedMemory,
}

impl VerifiedBlocks {
    /// No block verified yet, for a table whose index has `leaf_count` leaves. `host` accounts for
    /// the memory of the bits.
    pub(crate) fn new(leaf_count: usize, host: Option<Arc<dyn FilterHost>>) -> Self {
        let leaves = std::iter::repeat_with(OnceLock::new).take(leaf_count).collect();
        Self { memory: LoadedMemory::new(host), leaves }
    }

    /// Whether the block at `at` was verified.
    #[inline]
    pub(crate) fn has(&self, at: At) -> bool {
        let words = self.leaves.get(at.leaf).and_then(OnceLock::get);
        // Relaxed: a bit publishes no memory, since the bytes of its block never change.
        words
            .and_then(|words| words.get(at.slot / 64))
            .is_some_and(|word| word.load(Ordering::Relaxed) >> (at.slot % 64) & 1 == 1)
    }

    /// Records that the block at `at`, in `leaf`, was verified.
    #[cold]
    pub(crate) fn note(&self, at: At, leaf: &Index) {
        let Some(cell) = self.leaves.get(at.leaf) else { return };
        let words = cell.get_or_init(|| {
            let words: Box<[_]> =
                std::iter::repeat_with(AtomicU64::default).take(leaf.len().div_ceil(64)).collect();
            self.memory.add(size_of_val(&*words));
            words
        });
        if let Some(word) = words.get(at.slot / 64) {
            word.fetch_or(1 << (at.slot % 64), Ordering::Relaxed);
        }
    }

    /// Memory in use, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        size_of::<Self>() + size_of_val(&*self.leaves) + self.memory.bytes()
    }
}
