//! The blocked Bloom filter: every key sets bits of a single cache line.
//!
//! # Idea
//! A standard filter touches a new cache line with each probe. Here the hash first chooses one
//! 512-bit block, and all probes stay in it: one miss per query, whether or not the key is present.
//!
//! # Algorithm
//! To add a key with hash `h` to a filter of `s` blocks and `k` probes:
//! 1. The block is `h * s / 2^64`.
//! 2. The hash is folded into two 32-bit seeds of two chains, which produce the `k` probes
//!    alternately.
//! 3. Each probe sets the bit selected by the top nine bits of its chain's state.
//!
//! A query tests the same bits and answers no at the first one that is clear.
//!
//! # Mathematics
//! Keys fall on blocks like balls into bins: the number of keys in a block is binomial, with `n`
//! trials of probability `1/s`. Given `i` keys, the distribution of the number `X` of set bits
//! after `i*k` balls in 512 bins is known exactly, and a query of `k` probes passes with
//! `E[(X/512)^k]`. The expected rate is the sum over `i` ([`crate::theory::blocked_fpr`]). It is
//! worse than a standard filter's because full blocks lose more than empty ones gain, and the
//! difference grows with the bits per key: 1.2 times at 10 bits, 4.9 times at 23.4, 11 times at 28.
//! [`crate::paired`] removes most of it.
//!
//! # Costs
//! A query costs one cache miss, whatever the answer. With vector instructions, 8 (AVX2) or 16
//! (AVX-512) probes are tested at once. Building takes 8 bytes a key on top of the filter, and sets
//! all bits in the first-level cache ([`crate::partition`]).
//!
//! # Source
//! F. Putze, P. Sanders, J. Singler, "Cache-, Hash- and Space-Efficient Bloom Filters", 2007. The
//! number of probes is the exact optimum of the sum, not the standard filter's.

use alloc::vec::Vec;

use crate::block::{BLOCK_BITS, Bits, Block};
use crate::kernel::{Probe, Query, Task, prefetch};
use crate::mix::{fold, scale};
use crate::plan::{Part, Plan, blocks_for};
use crate::theory;

/// Queries whose cache misses overlap in [`BlockedContainsMany`]: as many outstanding lines as a
/// core supports.
pub(crate) const AHEAD: usize = 32;

/// Blocks and probes for `keys` keys at `millibits` thousandths of a bit each.
pub(crate) fn plan(keys: u64, millibits: u32) -> Plan {
    let blocks = blocks_for(keys, millibits);
    let bits_per_key = blocks as f64 * BLOCK_BITS as f64 / keys as f64;
    Plan { blocks, probes: theory::best_blocked_probes(bits_per_key) }
}

/// Sets the bits of every hash. All hashes belong to `part`.
pub(crate) struct BlockedFill<'a, 'b> {
    pub(crate) part: &'a mut Part<'b>,
    pub(crate) probes: u32,
    pub(crate) chunks: &'a [Vec<u64>],
}

impl Task for BlockedFill<'_, '_> {
    type Answer = ();

    #[inline(always)]
    fn run<P: Probe>(self, probe: P) {
        for chunk in self.chunks {
            for &hash in chunk {
                let place = self.part.place(hash);
                let block = &mut self.part.blocks[place];
                probe.set_both(block, fold(hash), self.probes as usize);
            }
        }
    }
}

/// Whether every bit of a hash is set. False for a filter without blocks.
pub(crate) struct BlockedContains;

impl Query for BlockedContains {
    #[inline(always)]
    fn query<P: Probe>(probe: P, bits: &Bits, hash: u64) -> bool {
        let Bits { blocks, probes } = bits;
        let place = scale(hash, blocks.len() as u64) as usize;
        let block = blocks.get(place);
        block.is_some_and(|block| probe.hits_both(block, fold(hash), *probes as usize))
    }
}

/// [`BlockedContains`] for many hashes: when one is tested, the blocks of the next [`AHEAD`] have
/// been prefetched.
pub(crate) struct BlockedContainsMany<'a> {
    pub(crate) bits: &'a Bits,
    pub(crate) hashes: &'a [u64],
    pub(crate) answers: &'a mut [bool],
}

impl Task for BlockedContainsMany<'_> {
    type Answer = ();

    #[inline(always)]
    fn run<P: Probe>(self, probe: P) {
        let Self { bits: Bits { blocks, probes }, hashes, answers } = self;
        let (count, probes) = (blocks.len() as u64, *probes as usize);
        for &hash in hashes.iter().take(AHEAD) {
            prefetch_block(blocks, hash);
        }
        for (nth, (&hash, answer)) in hashes.iter().zip(answers).enumerate() {
            if let Some(&later) = hashes.get(nth + AHEAD) {
                prefetch_block(blocks, later);
            }
            let block = blocks.get(scale(hash, count) as usize);
            *answer = block.is_some_and(|block| probe.hits_both(block, fold(hash), probes));
        }
    }
}

/// Prefetches the block of `hash`.
#[inline(always)]
pub(crate) fn prefetch_block(blocks: &[Block], hash: u64) {
    if let Some(block) = blocks.get(scale(hash, blocks.len() as u64) as usize) {
        prefetch(block);
    }
}

/// Sets the bits of every hash, like [`BlockedFill`].
#[cfg(test)]
pub(crate) fn fill(part: &mut Part<'_>, probes: u32, hashes: impl Iterator<Item = u64>) {
    let chunks = [hashes.collect()];
    crate::kernel::Chosen::best().run(BlockedFill { part, probes, chunks: &chunks });
}
