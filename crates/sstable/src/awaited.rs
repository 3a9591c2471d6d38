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
const TURNS: usize = 3;

/// Bytes prefetched per step: all steps together cover a block of 4 KiB, and only the start of a
/// larger one.
const TURN_BYTES: usize = 22 * LINE;

/// Distance in blocks between the block being verified and the one being prefetched.
const AHEAD: usize = 2;

const LINE: usize = 64;
const PAGE: usize = 4096;

/// Stored blocks to be verified, at most `N`, in the order of verification.
#[derive(Debug)]
pub(crate) struct Awaited<'a, const N: usize> {
    /// Each with the number of the first request that needs it.
    blocks: [(usize, &'a [u8]); N],
    len: usize,
    /// How many have been verified or are being verified.
    passed: usize,
}

impl<'a, const N: usize> Awaited<'a, N> {
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
    pub(crate) fn ask(&self) {
        let blocks = self.blocks.get(..self.len).unwrap_or_default();
        for (_, block) in blocks {
            for at in (0..block.len()).step_by(PAGE) {
                prefetch_at(block.as_ptr().addr() + at);
            }
            prefetch_at(block.as_ptr_range().end.addr().wrapping_sub(1));
        }
        for (_, block) in blocks.iter().take(AHEAD) {
            block.chunks(TURN_BYTES).take(TURNS).for_each(ask_second_for);
        }
    }

    /// The bytes to prefetch, with [`ask_second_for`], before the block of request `nth` is
    /// verified, after that, and after it was searched.
    #[inline]
    pub(crate) fn turns(&mut self, nth: usize) -> [&'a [u8]; TURNS] {
        let blocks = self.blocks.get(self.passed..self.len).unwrap_or_default();
        self.passed += blocks.iter().take_while(|(first, _)| *first <= nth).count();
        let noted = self.blocks.get(..self.len).unwrap_or_default();
        let Some((_, block)) = noted.get(self.passed + AHEAD - 1) else { return [&[]; TURNS] };
        let mut turns = block.chunks(TURN_BYTES);
        [(); TURNS].map(|()| turns.next().unwrap_or_default())
    }
}

/// Prefetches the lines of `bytes` into the second-level cache, except a partial last line that no
/// step of the range reaches.
#[inline]
pub(crate) fn ask_second_for(bytes: &[u8]) {
    for line in (0..bytes.len()).step_by(LINE) {
        prefetch_into_second(bytes.as_ptr().addr() + line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: [&[u8]; TURNS] = [&[]; TURNS];

    #[test]
    fn each_block_behind_the_second_is_asked_for_once() {
        let bytes = [7; 5 * 4000];
        let blocks: Vec<&[u8]> = bytes.chunks(4000).collect();
        let mut awaited = Awaited::<8>::new();
        // Requests 3 and 4 need no block that must be verified, 6 and 7 the same one.
        for (nth, block) in [(0, 0), (1, 1), (2, 2), (5, 3), (6, 4), (7, 4)] {
            awaited.note(nth, blocks[block]);
        }
        awaited.ask();
        for (nth, asked) in [(0, Some(2)), (1, Some(3)), (2, Some(4)), (5, None), (6, None)] {
            let turns = awaited.turns(nth);
            assert_eq!(turns.concat(), asked.map_or(&[][..], |asked: usize| blocks[asked]));
            if let Some(asked) = asked {
                assert_eq!(turns[0].as_ptr(), blocks[asked].as_ptr());
                assert!(turns.iter().all(|turn| !turn.is_empty()));
            }
        }
        awaited.clear();
        assert_eq!(awaited.turns(9), NOTHING);
    }

    #[test]
    fn of_blocks_of_any_size_no_more_is_asked_for_than_they_have() {
        let bytes = [7; 4 * TURN_BYTES];
        for len in [0, 1, TURN_BYTES - 1, TURN_BYTES, TURN_BYTES + 1, 4096, 4 * TURN_BYTES] {
            let blocks = [&bytes[3..4], &bytes[2..4], &bytes[..len]];
            let mut awaited = Awaited::<4>::new();
            (0..).zip(blocks).for_each(|(nth, block)| awaited.note(nth, block));
            awaited.ask();
            assert_eq!(awaited.turns(0).concat(), bytes[..len.min(TURNS * TURN_BYTES)]);

            // Blocks beyond the capacity are ignored.
            let mut awaited = Awaited::<2>::new();
            (0..).zip(blocks).for_each(|(nth, block)| awaited.note(nth, block));
            awaited.ask();
            assert_eq!(awaited.turns(0), NOTHING);
        }
    }
}
