//! Prefetch of the next block of a scan: a few cache lines in each step through the current block,
//! so that entering the next one waits for no memory.
//!
//! 1. When a block is entered, the next one in the direction of the scan is located: in the map, or
//!    in the cache, where it is looked up once and kept until it is entered.
//! 2. Each step prefetches enough lines to cover the block before the last step.
//!
//! Prefetching affects no result. Called by [`Reading`](super::reading::Reading).

use trommel_filter::prefetch_at;

use crate::block::SharedBlock;
use crate::format::Handle;

/// Bytes of a cache line.
const LINE_BYTES: usize = 64;
/// Most lines prefetched in one step: about as many as a core can have in flight. In a block of a
/// few large values, the last lines are not prefetched.
const MOST_LINES: usize = 8;

/// The next block of a scan, and the progress of its prefetch.
#[derive(Debug, Default)]
pub(super) struct BlockPrefetch {
    /// The block, if it was found in the cache.
    found: Option<(Handle, SharedBlock)>,
    /// Address of the line to prefetch next.
    line: usize,
    /// The end address of the range to prefetch.
    end: usize,
    /// Bytes to prefetch per step.
    each: usize,
}

impl BlockPrefetch {
    /// Forgets the block.
    #[inline]
    pub(super) fn forget(&mut self) {
        (self.found, self.end) = (None, 0);
    }

    /// Sets the next block, found in the cache, to be entered after `steps` steps.
    pub(super) fn set_block(&mut self, handle: Handle, block: SharedBlock, steps: usize) {
        self.set_bytes(block.view().payload, steps);
        self.found = Some((handle, block));
    }

    /// Sets the next block, in `bytes`, to be entered after `steps` steps.
    pub(super) fn set_bytes(&mut self, bytes: &[u8], steps: usize) {
        let first = bytes.as_ptr().addr();
        self.line = first - first % LINE_BYTES;
        self.end = first + bytes.len();
        let lines = (self.end - self.line).div_ceil(LINE_BYTES);
        self.each = lines.div_ceil(steps.saturating_sub(2).max(1)).min(MOST_LINES) * LINE_BYTES;
    }

    /// Prefetches some more lines.
    #[inline]
    pub(super) fn step(&mut self) {
        let until = self.end.min(self.line.wrapping_add(self.each));
        while self.line < until {
            prefetch_at(self.line);
            self.line = self.line.wrapping_add(LINE_BYTES);
        }
    }

    /// The block at `handle`, if it was found in the cache.
    #[inline]
    pub(super) fn take(&mut self, handle: Handle) -> Option<SharedBlock> {
        self.end = 0;
        let (at, block) = self.found.take()?;
        (at == handle).then_some(block)
    }
}
