//! Derives everything that a filter needs from the 64-bit hash of a key.
//!
//! 1. The *place* (the block, for the kinds that have blocks) is [`scale`]: the high half of
//!    `hash * blocks`. It is uniform for any number of blocks, needs no division, and is monotone
//!    in the hash: a block's keys are exactly the hashes of one interval.
//! 2. Everything else comes from the whole word, mixed once more, because the hash's high bits are
//!    all alike within one block's interval. [`fold`] is one multiplication, by which every bit
//!    affects all bits above it, and one shift, by which the high half affects the low one: a
//!    bijection, as good as the hash's own low bits, and sufficient for the probes within a block.
//!    [`remix`] is a bijection in which every input bit flips every output bit with probability one
//!    half. Standard and ribbon filters, which also derive their places from it, use that.
//! 3. The halves of the folded word are the 32-bit seeds of two probe chains. They pass the test of
//!    independence `tests::the_chains_of_a_block_are_independent`.
//! 4. Probe `i` of a chain is `seed * GOLDEN^i` (modulo 2^32); only its *high* bits are used. The
//!    powers are in a table, so probes do not depend on each other.
//!
//! Why two seeds: a chain of 32 bits has 2^32 states, so a block that holds `x` keys answers yes to
//! at least `x / 2^32` of all hashes. From about 30 bits per key that floor is no longer small
//! compared with the filter's own rate (1.1 times at 32 bits, 2.3 times at 40).
//!
//! Why not additive double hashing (`seed + i * step`): in 512 bits, two keys with nearly the same
//! step share most of their probes, which multiplies the rate at 40 bits per key by 4.8.
//!
//! Sources: D. Lemire, "Fast random integer generation in an interval" (2019) for the scaling; S.
//! Vigna's SplitMix64 for the constants; D. E. Knuth, TAOCP 6.4 for multiplicative hashing.

/// 2^32 divided by the golden ratio, made odd.
const GOLDEN_32: u32 = 0x9e37_79b9;

/// The most probes that one chain can produce.
pub(crate) const MAX_CHAIN: usize = 32;

/// `GOLDEN_32^i` for every probe of a chain.
pub(crate) static POWERS: [u32; MAX_CHAIN] = {
    let mut powers = [1_u32; MAX_CHAIN];
    let mut i = 1;
    while i < MAX_CHAIN {
        powers[i] = powers[i - 1].wrapping_mul(GOLDEN_32);
        i += 1;
    }
    powers
};

/// The high half of `hash * n`: uniform in `0..n` if `hash` is uniform; 0 if `n` is 0.
#[inline]
pub(crate) fn scale(hash: u64, n: u64) -> u64 {
    ((u128::from(hash) * u128::from(n)) >> 64) as u64
}

/// A bijection that spreads every bit of `hash` over the whole word.
#[inline]
pub(crate) fn remix(hash: u64) -> u64 {
    let x = hash.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// The multiplier of [`fold`].
pub(crate) const FOLD_FACTOR: u64 = 0xbf58_476d_1ce4_e5b9;

/// A cheaper bijection, for a word that is a hash already: the high half of the result is that of
/// the product; the low half is the XOR of both halves of the product.
#[inline]
pub(crate) fn fold(hash: u64) -> u64 {
    let x = hash.wrapping_mul(FOLD_FACTOR);
    x ^ (x >> 32)
}

/// How a hash becomes probes. Only [`Golden`] is shipped. As a type parameter, it lets the tests
/// plant the classic faults in the shipped code and show that the rate tests detect them.
pub(crate) trait Scheme {
    /// Blocks of a full batch of the paired filter.
    const BATCH: usize = 128;

    /// The seeds of the two probe chains of a key whose [folded](fold) hash is `folded`.
    #[inline]
    fn seeds(folded: u64) -> (u32, u32) {
        (folded as u32, (folded >> 32) as u32)
    }

    /// State `i` of the chain that starts at `seed`; its high bits choose the position.
    #[inline]
    fn state(seed: u32, i: usize) -> u32 {
        seed.wrapping_mul(POWERS[i & (MAX_CHAIN - 1)])
    }
}

/// The scheme of all stored filters.
pub(crate) struct Golden;

impl Scheme for Golden {}

/// Blocks of a full batch of the paired filter.
pub(crate) const BATCH: usize = Golden::BATCH;
/// Bits of a paired filter's block that hold the index of its partner.
pub(crate) const RESERVED: u32 = 7;

/// The bit position, in `RESERVED..512`, that a chain's state chooses.
///
/// Multiplying the top 23 bits by the number of usable bits and keeping the top nine of the 32-bit
/// product is uniform to within 2^-14 and branchless.
#[inline]
pub(crate) fn position<const RESERVED: u32>(state: u32) -> u32 {
    RESERVED + (((state >> 9) * (512 - RESERVED)) >> 23)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scaling_is_monotone_and_in_range() {
        assert_eq!(scale(u64::MAX, 0), 0);
        for n in [1, 2, 3, 130, 1 << 20, u64::MAX] {
            assert_eq!(scale(0, n), 0);
            assert_eq!(scale(u64::MAX, n), n - 1);
            assert!(scale(1 << 60, n) <= scale(1 << 61, n));
        }
    }

    #[test]
    fn positions_cover_exactly_the_usable_bits() {
        let step = 1 << 9;
        let mut counts = [[0_u32; 512]; 2];
        for top in 0..1_u32 << 23 {
            counts[0][position::<0>(top * step) as usize] += 1;
            counts[1][position::<7>(top * step) as usize] += 1;
        }
        assert!(counts[0].iter().all(|&n| n == 1 << 14));
        assert!(counts[1][..7].iter().all(|&n| n == 0));
        assert!(counts[1][7..].iter().all(|&n| n.abs_diff((1 << 23) / 505) <= 1));
    }

    #[test]
    fn remixing_spreads_every_bit() {
        let samples: u64 = 4096;
        for bit in 0..64 {
            let mut flips = [0_u32; 64];
            for sample in 0..samples {
                let hash = sample.wrapping_mul(0xd134_2543_de82_ef95);
                let changed = remix(hash) ^ remix(hash ^ (1 << bit));
                for (out, count) in flips.iter_mut().enumerate() {
                    *count += (changed >> out) as u32 & 1;
                }
            }
            for count in flips {
                assert!((1800..2300).contains(&count), "input bit {bit}: {count} of {samples}");
            }
        }
    }
    #[test]
    fn no_two_hashes_have_both_seeds_in_common() {
        // The multiplier's inverse modulo 2^64, by Newton's method.
        let factor = FOLD_FACTOR;
        let inverse = (0..6).fold(factor, |inverse, _| {
            inverse.wrapping_mul(2_u64.wrapping_sub(factor.wrapping_mul(inverse)))
        });
        assert_eq!(factor.wrapping_mul(inverse), 1);
        for n in 0..100_000 {
            let hash = remix(n);
            let folded = fold(hash);
            assert_eq!((folded ^ (folded >> 32)).wrapping_mul(inverse), hash, "{hash:#x}");
        }
    }

    /// For hashes of one block of many, the joint distribution of one position of the first chain
    /// and one of the second must be that of two independent ones. The sum of squares over the
    /// cells of a table of 64 by 64 classes is then normal, 4095 on average with a standard
    /// deviation of 90.5.
    fn square_sum(seeds: impl Fn(u64) -> (u32, u32), i: usize, j: usize) -> f64 {
        let (block, samples) = (0x5a3c7_u64 << 44, 1_u64 << 18);
        let mut cells = vec![0_u32; 64 * 64];
        for sample in 0..samples {
            let (first, second) = seeds(block | remix(sample) >> 20);
            let class = |seed, i| (position::<0>(Golden::state(seed, i)) / 8) as usize;
            cells[class(first, i) * 64 + class(second, j)] += 1;
        }
        let mean = samples as f64 / cells.len() as f64;
        cells.iter().map(|&n| (f64::from(n) - mean).powi(2) / mean).sum()
    }

    #[test]
    fn the_chains_of_a_block_are_independent() {
        for i in [0, 1, 2, 5, 11, 31] {
            for j in [0, 1, 2, 5, 11, 31] {
                let sum = square_sum(|hash| Golden::seeds(fold(hash)), i, j);
                assert!((sum - 4095.0).abs() < 5.0 * 90.5, "positions {i} and {j}: {sum}");
            }
        }
        let sum = square_sum(|hash| (hash as u32, (hash as u32).wrapping_mul(GOLDEN_32)), 1, 0);
        assert!(sum > 1e6, "one seed for two chains goes unseen: {sum}");
    }
}
