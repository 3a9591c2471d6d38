//! The size of a filter, and the parts in which it is built.

use crate::block::{BLOCK_BITS, Block};
use crate::mix::{BATCH, scale};

/// Blocks whose bits are set together, 8 KiB: a batch of the paired kind, so that both blocks of
/// each pair are in one part.
pub(crate) const PART: usize = BATCH;

/// The size of a filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) blocks: u64,
    pub(crate) probes: u32,
}

/// Blocks for `keys` keys of `millibits` thousandths of a bit each, rounded up; at least one.
pub(crate) fn blocks_for(keys: u64, millibits: u32) -> u64 {
    if let Some(millibits) = keys.checked_mul(u64::from(millibits)) {
        return millibits.div_ceil(1000 * BLOCK_BITS).max(1);
    }
    let millibits = u128::from(keys) * u128::from(millibits);
    let blocks = millibits.div_ceil(1000 * u128::from(BLOCK_BITS));
    u64::try_from(blocks).unwrap_or(u64::MAX)
}

/// Adjacent blocks of a filter under construction.
pub(crate) struct Part<'a> {
    /// Blocks of the whole filter.
    pub(crate) count: u64,
    /// Index of the first block of this part.
    pub(crate) first: usize,
    /// The blocks.
    pub(crate) blocks: &'a mut [Block],
}

impl<'a> Part<'a> {
    /// The whole filter as one part.
    #[cfg(test)]
    pub(crate) fn whole(blocks: &'a mut [Block]) -> Self {
        Self { count: blocks.len() as u64, first: 0, blocks }
    }

    /// The number of keys of each block.
    #[cfg(test)]
    pub(crate) fn counts(&self, chunks: &[Vec<u64>]) -> Vec<u16> {
        let mut keys = vec![0; self.blocks.len()];
        chunks.iter().flatten().for_each(|&hash| keys[self.place(hash)] += 1);
        keys
    }

    /// The index within this part of the block of `hash`.
    #[inline]
    pub(crate) fn place(&self, hash: u64) -> usize {
        scale(hash, self.count) as usize - self.first
    }
}
