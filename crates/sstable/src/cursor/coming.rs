//! The block that a walk comes to next: asked for, a few cache lines a step, while the walk goes
//! through the one before, so that nothing of it has to be waited for when it is entered.
//!
//! 1. When a block is entered, the next one in the direction of travel is looked for: in the map, or in
//!    the cache, where it is found once and kept until it is entered.
//! 2. Each step asks for as many of its lines as bring all of them before the last step.
//!
//! No answer depends on any of this. Called by [`Reading`](super::reading::Reading).

use trommel_filter::prefetch_at;

use crate::block::SharedBlock;
use crate::format::Handle;

/// Bytes of a cache line.
const LINE_BYTES: usize = 64;
/// Most lines asked for in one step: about as many as a core can wait for. Of a block of few and
/// large values the last ones are left to whoever looks at them.
const MOST_LINES: usize = 8;

/// What is known of the next block.
#[derive(Debug, Default)]
pub(super) struct Coming {
    /// The block, if it was found in the cache.
    found: Option<(Handle, SharedBlock)>,
    /// Address of the line to ask for next.
    line: usize,
    /// The address behind the last one.
    end: usize,
    /// Bytes to ask for in each step.
    each: usize,
}

impl Coming {
    /// Nothing is coming.
    #[inline]
    pub(super) fn forget(&mut self) {
        (self.found, self.end) = (None, 0);
    }

    /// The block at `handle` was found in the cache; it will be entered after so many steps.
    pub(super) fn found(&mut self, handle: Handle, block: SharedBlock, steps: usize) {
        self.lies_in(block.view().payload, steps);
        self.found = Some((handle, block));
    }

    /// The next block, to be entered after so many steps, lies in `bytes`.
    pub(super) fn lies_in(&mut self, bytes: &[u8], steps: usize) {
        let first = bytes.as_ptr().addr();
        self.line = first - first % LINE_BYTES;
        self.end = first + bytes.len();
        let lines = (self.end - self.line).div_ceil(LINE_BYTES);
        self.each = lines.div_ceil(steps.saturating_sub(2).max(1)).min(MOST_LINES) * LINE_BYTES;
    }

    /// Asks for some more lines.
    #[inline]
    pub(super) fn ask(&mut self) {
        let until = self.end.min(self.line.wrapping_add(self.each));
        while self.line < until {
            prefetch_at(self.line);
            self.line = self.line.wrapping_add(LINE_BYTES);
        }
    }

    /// The block at `handle`, if it was found.
    #[inline]
    pub(super) fn take(&mut self, handle: Handle) -> Option<SharedBlock> {
        self.end = 0;
        let (at, block) = self.found.take()?;
        (at == handle).then_some(block)
    }
}
