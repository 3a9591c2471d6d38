//! Prefetching of mapped blocks that are verified for a round of keys.
//!
//! 1. All blocks of the round are recorded. Then one byte of each of their pages is prefetched, all
//!    at once, so that the processor resolves the pages in parallel. A load from a page without a
//!    TLB entry waits for the page walk, and prefetching block after block would wait for one page
//!    at a time.
//! 2. The lines of the first two blocks are prefetched at once. The lines of each later block are
//!    prefetched while the block two before it is processed: one third before that one is verified,
//!    one after, and one after its search, as the processor drops requests of too long a burst.
//!
//! The lines go to the second-level cache, which can have twice as many requests in flight as the
//! first. A prefetch reads nothing: a block is verified as if it had not been prefetched. Called by
//! lookups of many keys.

use trommel_filter::{prefetch_at, prefetch_into_second};

/// Prefetch steps while one block is verified and searched.
const STEPS: usize = 3;

/// Bytes prefetched per step: all steps together cover a block of 4 KiB, and only the start of a
/// larger one.
const STEP_BYTES: usize = 22 * LINE;

/// Distance in blocks between the block being verified and the one being prefetched.
const AHEAD: usize = 2;

const LINE: usize = 64;
const PAGE: usize = 4096;

/// Stored blocks to be verified, at most `N`, in the order of verification.
#[derive(Debug)]
pub(crate) struct PrefetchQueue<'a, const N: usize> {
    /// Each with the number of the first request that needs it.
    blocks: [(usize, &'a [u8]); N],
    len: usize,
    /// How many have been verified or are being verified.
    passed: usize,
}

impl<'a, const N: usize> PrefetchQueue<'a, N> {
    pub(crate) fn new() -> Self {
        Self { blocks: [(0, &[]); N], len: 0, passed: 0 }
    }

    /// Forgets all blocks.
    #[inline]
    pub(crate) fn clear(&mut self) {
        (self.len, self.passed) = (0, 0);
    }

    /// Records that request `nth` needs the block with these stored bytes, unless it is the last
    /// one recorded.
    #[inline]
    pub(crate) fn note(&mut self, nth: usize, stored: &'a [u8]) {
        let last = self.len.checked_sub(1).and_then(|last| self.blocks.get(last));
        if last.is_some_and(|(_, last)| std::ptr::eq(*last, stored)) {
            return;
        }
        if let Some(block) = self.blocks.get_mut(self.len) {
            *block = (nth, stored);
            self.len += 1;
        }
    }

    /// Prefetches a byte of each page of all blocks, and the lines of the first blocks.
    #[inline]
    pub(crate) fn begin(&self) {
        let blocks = self.blocks.get(..self.len).unwrap_or_default();
        for (_, block) in blocks {
            for at in (0..block.len()).step_by(PAGE) {
                prefetch_at(block.as_ptr().addr() + at);
            }
            prefetch_at(block.as_ptr_range().end.addr().wrapping_sub(1));
        }
        for (_, block) in blocks.iter().take(AHEAD) {
            block.chunks(STEP_BYTES).take(STEPS).for_each(prefetch_to_second_level);
        }
    }

    /// The bytes to prefetch, with [`prefetch_to_second_level`], before the block of request `nth`
    /// is verified, after that, and after it was searched.
    #[inline]
    pub(crate) fn steps(&mut self, nth: usize) -> [&'a [u8]; STEPS] {
        let blocks = self.blocks.get(self.passed..self.len).unwrap_or_default();
        self.passed += blocks.iter().take_while(|(first, _)| *first <= nth).count();
        let noted = self.blocks.get(..self.len).unwrap_or_default();
        let Some((_, block)) = noted.get(self.passed + AHEAD - 1) else { return [&[]; STEPS] };
        let mut steps = block.chunks(STEP_BYTES);
        [(); STEPS].map(|()| steps.next().unwrap_or_default())
    }
}

/// Prefetches the lines of `bytes` into the second-level cache, except a partial last line that no
/// step of the range reaches.
#[inline]
pub(crate) fn prefetch_to_second_level(bytes: &[u8]) {
    for line in (0..bytes.len()).step_by(LINE) {
        prefetch_into_second(bytes.as_ptr().addr() + line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: [&[u8]; STEPS] = [&[]; STEPS];

    #[test]
    fn each_block_after_the_second_is_prefetched_once() {
        let bytes = [7; 5 * 4000];
        let blocks: Vec<&[u8]> = bytes.chunks(4000).collect();
        let mut prefetch_queue = PrefetchQueue::<8>::new();
        // Requests 3 and 4 need no block that must be verified, 6 and 7 the same one.
        for (nth, block) in [(0, 0), (1, 1), (2, 2), (5, 3), (6, 4), (7, 4)] {
            prefetch_queue.note(nth, blocks[block]);
        }
        prefetch_queue.begin();
        for (nth, prefetched) in [(0, Some(2)), (1, Some(3)), (2, Some(4)), (5, None), (6, None)] {
            let steps = prefetch_queue.steps(nth);
            assert_eq!(
                steps.concat(),
                prefetched.map_or(&[][..], |prefetched: usize| blocks[prefetched])
            );
            if let Some(prefetched) = prefetched {
                assert_eq!(steps[0].as_ptr(), blocks[prefetched].as_ptr());
                assert!(steps.iter().all(|step| !step.is_empty()));
            }
        }
        prefetch_queue.clear();
        assert_eq!(prefetch_queue.steps(9), NOTHING);
    }

    #[test]
    fn no_more_than_a_block_is_prefetched() {
        let bytes = [7; 4 * STEP_BYTES];
        for len in [0, 1, STEP_BYTES - 1, STEP_BYTES, STEP_BYTES + 1, 4096, 4 * STEP_BYTES] {
            let blocks = [&bytes[3..4], &bytes[2..4], &bytes[..len]];
            let mut prefetch_queue = PrefetchQueue::<4>::new();
            (0..).zip(blocks).for_each(|(nth, block)| prefetch_queue.note(nth, block));
            prefetch_queue.begin();
            assert_eq!(prefetch_queue.steps(0).concat(), bytes[..len.min(STEPS * STEP_BYTES)]);

            // Blocks beyond the capacity are ignored.
            let mut prefetch_queue = PrefetchQueue::<2>::new();
            (0..).zip(blocks).for_each(|(nth, block)| prefetch_queue.note(nth, block));
            prefetch_queue.begin();
            assert_eq!(prefetch_queue.steps(0), NOTHING);
        }
    }
}
