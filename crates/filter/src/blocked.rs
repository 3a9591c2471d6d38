//! The blocked Bloom filter: every key lives in one cache line.
//!
//! # Idea
//! A standard filter touches a new cache line with each probe. Here the hash first chooses one
//! 512-bit block, and all probes stay in it: one miss for a key that is there, one for a key that
//! is not.
//!
//! # Algorithm
//! To add a key with hash `h` to a filter of `s` blocks and `k` probes:
//! 1. The block is `h * s / 2^64`.
//! 2. The hash is remixed into two 32-bit seeds; the first makes `k/2` probes (rounded up), the
//!    second the others.
//! 3. Each probe sets the bit that the top nine bits of its chain's state name.
//!
//! A query looks at the same bits and says no at the first one that is not set.
//!
//! # Mathematics
//! Keys fall on blocks like balls into bins: a block holds `i` of `n` keys with the binomial
//! probability of `i` successes in `n` trials at `1/s`. Given `i`, the number `X` of set bits after
//! `i*k` balls in 512 bins is known exactly, and a query of `k` probes passes with `E[(X/512)^k]`.
//! The expected rate is the sum over `i` ([`crate::theory::blocked_fpr`]). It is worse than a
//! standard filter's because full blocks lose more than empty ones win, and the more bits per key
//! the worse: 1.2 times at 10 bits, 4.9 times at 23.4, 11 times at 28. What undoes most of that is
//! [`crate::paired`].
//!
//! # Source
//! F. Putze, P. Sanders, J. Singler, "Cache-, Hash- and Space-Efficient Bloom Filters", 2007. The
//! number of probes is the exact optimum of the sum, not the standard filter's.

use std::hint::black_box;

use crate::block::{BLOCK_BITS, Block};
use crate::mix::{Golden, Scheme, remix, scale};
use crate::probe::{hits, set};
use crate::theory;

/// Questions whose cache misses overlap in [`contains_many`].
pub(crate) const GROUP: usize = 32;

/// Blocks and probes for `keys` keys at `millibits` thousandths of a bit each.
pub(crate) fn plan(keys: u64, millibits: u32) -> crate::builder::Plan {
    let blocks = crate::builder::blocks_for(keys, millibits);
    let bits_per_key = (blocks * BLOCK_BITS) as f64 / keys as f64;
    crate::builder::Plan { blocks, probes: theory::best_blocked_probes(bits_per_key) }
}

/// How the probes are split over the two chains.
#[inline]
fn halves(probes: u32) -> (usize, usize) {
    (probes.div_ceil(2) as usize, (probes / 2) as usize)
}

/// Sets the bits of every hash.
pub(crate) fn fill(blocks: &mut [Block], probes: u32, hashes: impl Iterator<Item = u64>) {
    let count = blocks.len() as u64;
    let (first, second) = halves(probes);
    for hash in hashes {
        let (seed_0, seed_1) = Golden::seeds(remix(hash));
        let block = &mut blocks[scale(hash, count) as usize];
        set::<Golden, 0>(block, seed_0, first);
        set::<Golden, 0>(block, seed_1, second);
    }
}

/// Whether every bit of `hash` is set. False for a filter without blocks.
#[inline]
pub(crate) fn contains(blocks: &[Block], probes: u32, hash: u64) -> bool {
    let Some(block) = blocks.get(scale(hash, blocks.len() as u64) as usize) else {
        return false;
    };
    block_contains(block, probes, Golden::seeds(remix(hash)))
}

#[inline]
fn block_contains(block: &Block, probes: u32, (seed_0, seed_1): (u32, u32)) -> bool {
    let (first, second) = halves(probes);
    hits::<Golden, 0>(block, seed_0, first) && hits::<Golden, 0>(block, seed_1, second)
}

/// [`contains`] for many hashes, in two stages: all blocks are asked for, then all are tested.
pub(crate) fn contains_many(blocks: &[Block], probes: u32, hashes: &[u64], answers: &mut [bool]) {
    let count = blocks.len() as u64;
    for (hashes, answers) in hashes.chunks(GROUP).zip(answers.chunks_mut(GROUP)) {
        let mut places = [0_usize; GROUP];
        let mut touched = 0;
        for (place, &hash) in places.iter_mut().zip(hashes) {
            *place = scale(hash, count) as usize;
            touched |= blocks.get(*place).map_or(0, |block| block.0[0]);
        }
        black_box(touched);
        for ((answer, &hash), &place) in answers.iter_mut().zip(hashes).zip(&places) {
            *answer = blocks
                .get(place)
                .is_some_and(|block| block_contains(block, probes, Golden::seeds(remix(hash))));
        }
    }
}
