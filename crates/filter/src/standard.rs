//! The standard Bloom filter: one bit array, with each probe anywhere in it.
//!
//! # Idea
//! `m` bits, all clear. Adding a key sets `k` of them, chosen by `k` hash functions. A query tests
//! its own `k` bits and answers no if any is clear. An added key is never denied.
//!
//! # Algorithm
//! 1. The hash is remixed into a start `x` and a stride `y`, 64 bits each; the stride is odd.
//! 2. Probe `i` is bit `x * m / 2^64`, which is uniform for any `m`, not only for powers of two.
//! 3. Then `x += y` and `y *= C`, an odd constant.
//!
//! Step 3 is double hashing (Kirsch and Mitzenmacher, 2006) with a stride that changes at every
//! step. With a constant stride, keys with similar strides share runs of probes, and the rate of a
//! small or very accurate filter is measurably too high: by a quarter at 1,000 keys and 23.4 bits.
//! The change costs one more multiplication.
//!
//! # Mathematics
//! After `n` keys a bit is still clear with probability `(1 - 1/m)^(kn)`, about `e^(-kn/m)`, hence
//! the textbook's rate `(1 - e^(-k/c))^k` with `c = m/n` bits per key. The optimum is `k = c ln 2`,
//! where half of the bits are set. The textbook treats the bits as independent; the exact rate is
//! `E[(X/m)^k]` with `X` the number of set bits. The difference matters below a few thousand bits
//! ([`crate::theory::standard_fpr`]).
//!
//! # Bounds
//! `m` is a multiple of 512, so a single key still has 512 bits. `k` is chosen for at most 64 bits
//! per key, so that such a filter does not use 355 probes.
//!
//! Positions are computed in 64 bits, so a filter of more than 2^32 bits loses no accuracy: a
//! billion keys have the rate of a million.
//!
//! # Costs
//! While the filter is larger than the cache, each probe is a cache miss: `k` misses to build and
//! for a present key. An absent key costs two misses, which overlap; one key in four costs two
//! more, and so on: 2.7 on average, since half of the bits are clear. Unlike the other kinds,
//! building does not partition the hashes to fit a cache. It takes 8 bytes a key on top of the
//! filter.
//!
//! # Source
//! B. H. Bloom, "Space/Time Trade-offs in Hash Coding with Allowable Errors", 1970; A. Kirsch and
//! M. Mitzenmacher, "Less Hashing, Same Performance", 2006.

use crate::block::{BLOCK_BITS, Bits, Block};
use crate::blocked::AHEAD;
use crate::kernel::prefetch;
use crate::mix::{remix, scale};
use crate::theory;

/// The multiplier of the stride after each probe: odd, without a visible pattern.
const STRIDE_FACTOR: u64 = 0xd134_2543_de82_ef95;

/// Queries of [`contains_many`] that wait for all of their lines. A core cannot wait for many more.
const IN_SECOND_STAGE: usize = 4;

/// Blocks and probes for `keys` keys at `millibits` thousandths of a bit each.
pub(crate) fn plan(keys: u64, millibits: u32) -> crate::plan::Plan {
    let blocks = crate::plan::blocks_for(keys, millibits);
    let bits_per_key = blocks as f64 * BLOCK_BITS as f64 / keys as f64;
    crate::plan::Plan { blocks, probes: theory::best_standard_probes(bits_per_key) }
}

/// The positions of a key's probes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ProbeSequence {
    place: u64,
    stride: u64,
}

impl ProbeSequence {
    #[inline]
    pub(crate) fn new(hash: u64) -> Self {
        let place = remix(hash);
        Self { place, stride: remix(place) | 1 }
    }

    #[inline]
    pub(crate) fn next(&mut self, bits: u64) -> u64 {
        let position = scale(self.place, bits);
        self.place = self.place.wrapping_add(self.stride);
        self.stride = self.stride.wrapping_mul(STRIDE_FACTOR);
        position
    }

    /// Bit 0 is the bit of the next probe; 0 in a filter without blocks.
    #[inline]
    fn next_bit(&mut self, blocks: &[Block]) -> u64 {
        let position = self.next(blocks.len() as u64 * BLOCK_BITS);
        let block = blocks.get((position / BLOCK_BITS) as usize);
        block.map_or(0, |block| block.bit(position as u32))
    }

    /// Whether the bits of the first two probes are set (or of the only probe). The second miss
    /// overlaps the first, and three of four negative queries end here.
    #[inline]
    fn first_two(&mut self, blocks: &[Block], probes: u32) -> bool {
        let first = self.next_bit(blocks);
        let second = if probes > 1 { self.next_bit(blocks) } else { 1 };
        first & second & 1 == 1
    }

    /// Whether the bits of the probes after the first two are set, testing two per branch.
    #[inline]
    fn others(mut self, blocks: &[Block], probes: u32) -> bool {
        let left = probes.saturating_sub(2);
        for _ in 0..left / 2 {
            if self.next_bit(blocks) & self.next_bit(blocks) & 1 == 0 {
                return false;
            }
        }
        left.is_multiple_of(2) || self.next_bit(blocks) & 1 == 1
    }

    /// Prefetches the lines of the probes after the first two.
    #[inline]
    fn prefetch_others(mut self, blocks: &[Block], probes: u32) {
        for _ in 2..probes {
            let position = self.next(blocks.len() as u64 * BLOCK_BITS);
            if let Some(block) = blocks.get((position / BLOCK_BITS) as usize) {
                prefetch(block);
            }
        }
    }
}

/// Sets the bits of every hash.
pub(crate) fn fill(blocks: &mut [Block], probes: u32, hashes: impl Iterator<Item = u64>) {
    let bits = blocks.len() as u64 * BLOCK_BITS;
    for hash in hashes {
        let mut sequence = ProbeSequence::new(hash);
        for _ in 0..probes {
            let position = sequence.next(bits);
            blocks[(position / BLOCK_BITS) as usize].set(position as u32);
        }
    }
}

/// Prefetches the lines of the first two probes, which [`contains`] always reads.
#[inline]
pub(crate) fn prefetch_first(blocks: &[Block], hash: u64) {
    let bits = blocks.len() as u64 * BLOCK_BITS;
    let mut sequence = ProbeSequence::new(hash);
    for _ in 0..2 {
        if let Some(block) = blocks.get((sequence.next(bits) / BLOCK_BITS) as usize) {
            prefetch(block);
        }
    }
}

/// Whether every bit of `hash` is set. False for a filter without blocks.
// Not inlined: it would take registers that the other kinds' queries need.
#[inline(never)]
pub(crate) fn contains(bits: &Bits, hash: u64) -> bool {
    let Bits { blocks, probes } = bits;
    let mut sequence = ProbeSequence::new(hash);
    sequence.first_two(blocks, *probes) && sequence.others(blocks, *probes)
}

/// [`contains`] for many hashes, as a pipeline of three stages. The lines of the first two probes
/// are prefetched. [`AHEAD`] queries later these probes are tested, and if they pass, the lines of
/// all other probes are prefetched. [`IN_SECOND_STAGE`] passed queries later the other probes are
/// tested.
pub(crate) fn contains_many(bits: &Bits, hashes: &[u64], answers: &mut [bool]) {
    let Bits { blocks, probes } = bits;
    for &hash in hashes.iter().take(AHEAD) {
        prefetch_first(blocks, hash);
    }
    let mut passed = [const { (0, ProbeSequence { place: 0, stride: 0 }) }; IN_SECOND_STAGE];
    let mut count_passed = 0;
    for (nth, &hash) in hashes.iter().enumerate() {
        if let Some(&later) = hashes.get(nth + AHEAD) {
            prefetch_first(blocks, later);
        }
        let mut sequence = ProbeSequence::new(hash);
        answers[nth] = sequence.first_two(blocks, *probes);
        if answers[nth] {
            sequence.prefetch_others(blocks, *probes);
            let slot = &mut passed[count_passed % IN_SECOND_STAGE];
            if count_passed >= IN_SECOND_STAGE {
                answers[slot.0] = slot.1.others(blocks, *probes);
            }
            *slot = (nth, sequence);
            count_passed += 1;
        }
    }
    for (nth, sequence) in passed.into_iter().take(count_passed) {
        answers[nth] = sequence.others(blocks, *probes);
    }
}

/// Whether the bits of the probes of `hash` in `range` are set: a part of the probes of
/// [`contains`], for rates that are measured in parts.
#[cfg(test)]
pub(crate) fn contains_between(blocks: &[Block], range: core::ops::Range<u32>, hash: u64) -> bool {
    let bits = blocks.len() as u64 * BLOCK_BITS;
    let mut sequence = ProbeSequence::new(hash);
    for _ in 0..range.start {
        sequence.next(bits);
    }
    range.into_iter().all(|_| {
        let position = sequence.next(bits);
        blocks[(position / BLOCK_BITS) as usize].bit(position as u32) & 1 == 1
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// More bits than 32-bit numbers can address, up to a filter of 128 GiB.
    const LARGE: [u64; 4] = [10_000_000_000 / 512 * 512, (1 << 33) + 512, 3 << 38, 1 << 40];

    /// The 7 probes of each of 300,000 keys.
    fn positions(bits: u64) -> impl Iterator<Item = [u64; 7]> {
        (0..300_000_u64).map(move |key| {
            let mut sequence = ProbeSequence::new(crate::hash(&key.to_le_bytes()));
            std::array::from_fn(|_| sequence.next(bits))
        })
    }

    /// Whether counts are as even as chance makes them: chi squared within five standard
    /// deviations.
    fn are_even(counts: &[u32]) -> bool {
        let mean = counts.iter().map(|&n| f64::from(n)).sum::<f64>() / counts.len() as f64;
        let chi: f64 = counts.iter().map(|&n| (f64::from(n) - mean).powi(2) / mean).sum();
        let freedom = counts.len() as f64 - 1.0;
        (chi - freedom).abs() < 5.0 * (2.0 * freedom).sqrt()
    }

    #[test]
    fn probes_are_uniform_over_more_than_2_to_the_32_bits() {
        for bits in LARGE {
            let (mut high, mut low, mut joint) = ([0; 4096], [0; 512], vec![0; 64 * 64 * 6]);
            for probes in positions(bits) {
                let part = |position, parts: u64| {
                    (u128::from(position) * u128::from(parts) / u128::from(bits)) as usize
                };
                for (nth, &position) in probes.iter().enumerate() {
                    assert!(position < bits);
                    high[part(position, 4096)] += 1;
                    low[position as usize % 512] += 1;
                    // The first probe paired with each of the others: they must be independent.
                    if nth > 0 {
                        let beside = part(probes[0], 64) * 64 + part(position, 64);
                        joint[(nth - 1) * 4096 + beside] += 1;
                    }
                }
            }
            assert!(are_even(&high), "{bits} bits: some regions are preferred");
            assert!(are_even(&low), "{bits} bits: some places in a block are preferred");
            assert!(are_even(&joint), "{bits} bits: probes follow from each other");
        }
    }

    /// With 32 bits of hash, more than half of 10^10 bits would never be set.
    #[test]
    fn every_bit_can_be_set() {
        for bits in LARGE {
            for position in (0..4096).flat_map(|i| [i, bits / 2 + i, bits - 1 - i]) {
                let place = (u128::from(position) << 64).div_ceil(u128::from(bits)) as u64;
                assert_eq!(scale(place, bits), position);
                assert_eq!(scale(place.wrapping_sub(1), bits), (position + bits - 1) % bits);
            }
        }
    }

    #[test]
    fn uneven_counts_are_detected() {
        assert!(are_even(&[1010, 985, 1020, 995, 970, 1025, 990, 1005]));
        assert!(!are_even(&[900, 1100, 1000, 1200, 800, 1000, 1000, 1000]));
    }
}
