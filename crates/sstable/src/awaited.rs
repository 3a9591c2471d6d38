//! The blocks of a map that are verified for a round of keys, and what is asked for of them ahead.
//!
//! 1. All blocks of the round are noted. Then their pages are touched, all at once: so the
//!    processor looks for these side by side. Whoever asks for a line of a page that it has not
//!    found waits for that page, and whoever asks for the lines of one block after the other, for
//!    one page at a time.
//! 2. The lines of the first two are asked for; those of each other one around the second before
//!    it: a third of them before that is verified, one after, and one when it was searched, as what
//!    is asked for in too long a burst is not taken up.
//!
//! The lines come into the second cache, as twice as many can be on their way there as into the
//! first. Nothing that is asked for is looked at: a block is verified as if nobody had asked.
//! Called by lookups of many keys.

use trommel_filter::{prefetch_at, prefetch_into_second};

/// How often something is asked for while one block is verified and searched.
const TURNS: usize = 3;

/// Bytes that are asked for at a time: all of a block of 4 KiB in these turns, and no more of a
/// larger one.
const TURN_BYTES: usize = 22 * LINE;

/// So many blocks behind the one that is being verified are asked for.
const AHEAD: usize = 2;

const LINE: usize = 64;
const PAGE: usize = 4096;

/// Stored blocks that are to be verified, at most `N`, in the order in which they will be.
#[derive(Debug)]
pub(crate) struct Awaited<'a, const N: usize> {
    /// Each behind the number of the first request that needs it.
    blocks: [(usize, &'a [u8]); N],
    len: usize,
    /// How many of them have been verified, or are being so.
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

    /// Notes that request `nth` needs the block with these stored bytes, unless the one before it
    /// does.
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

    /// Asks the processor for the pages of all blocks, and for the lines of the first.
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

    /// What is to be asked for, with [`ask_second_for`], before the block of request `nth` is
    /// verified, after that, and when it was searched.
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

/// Asks the processor's second cache for the lines of `bytes`, but for that of the last byte where
/// it is no whole one.
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
        // Requests 3 and 4 need no block that is to be verified, 6 and 7 the same one.
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

            // What there is no room for is left out.
            let mut awaited = Awaited::<2>::new();
            (0..).zip(blocks).for_each(|(nth, block)| awaited.note(nth, block));
            awaited.ask();
            assert_eq!(awaited.turns(0), NOTHING);
        }
    }
}
