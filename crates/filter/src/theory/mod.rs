//! The expected false positive rate of a filter: exact sums, not rules of thumb.
//!
//! For each kind there are two functions. `*_limit` is the rate for many keys as a function of the
//! bits per key alone: the curve to plan with. `*_fpr` is the rate of a filter with a given number
//! of keys and bits: the reference for a built filter. [`best_fpr`] is the limit with the best
//! number of probes.
//!
//! A limit is defined for any number of bits per key: below 1/2048, and for NaN, it is 1, which is
//! nearly exact.
//!
//! *Expected* means on average over all sets of keys. A single filter deviates from it, by more the
//! fewer keys it has: by 3.5% (one standard deviation) with 1,000 keys at 10 bits per key, by 7.7%
//! at 23.4.
//!
//! # Derivation of the exact rates
//! 1. The number of keys of a block: binomial or Poisson weights (`counts`).
//! 2. The probability of passing a block with a given number of keys: balls in bins, exactly
//!    (`occupancy`).
//! 3. The number of keys of a *pair* of blocks: order statistics (`pairs`), for a fixed total
//!    number of keys (`paired`, `few`).
//!
//! Probes are assumed to be ideal: independent and uniform. The filters' actual probes behave like
//! that, within the resolution of the rate tests: some 2% at all bits per key and numbers of keys
//! (`RATES.md`). One effect is left out: two keys may have the same 64-bit hash, which adds
//! `keys / 2^64`.
//!
//! All tables are computed on first use and cached: some milliseconds the first time and
//! microseconds from then on.

mod counts;
mod few;
mod lines;
mod occupancy;
mod paired;
mod pairs;
mod probes;

pub use lines::TouchedLines;
pub use probes::{best_blocked_probes, best_paired_probes, best_probes, best_standard_probes};

use counts::CountDistribution;
use occupancy::{Balls, PassTable};

use crate::block::BLOCK_BITS;
#[cfg(not(feature = "std"))]
use crate::float::Float;
use crate::kind::FilterKind;

/// The most bits for which [`standard_fpr`] computes the distribution ball by ball.
const SMALL_STANDARD: u64 = 4096;
/// Keys per block from which a blocked filter answers yes to everything: no bit is clear.
const CROWDED: u64 = 1 << 20;
/// Bits per key below which a limit is 1: more than [`CROWDED`] keys fall on a block.
const LEAST_BITS: f64 = BLOCK_BITS as f64 / CROWDED as f64;

/// The most bytes that computing the rate of a filter of `bits` bits takes, without the tables that
/// the process caches.
pub(crate) fn working_bytes(kind: FilterKind, bits: u64) -> u64 {
    match kind {
        // A probability for each number of set bits.
        FilterKind::Standard if bits <= SMALL_STANDARD => size_of::<f64>() as u64 * (bits + 1),
        // The probabilities of a block's likely numbers of keys.
        FilterKind::Standard | FilterKind::Blocked | FilterKind::Paired => 2048,
        FilterKind::None | FilterKind::Ribbon | FilterKind::Fuse => 0,
    }
}

/// The textbook's rate of a standard filter of `bits_per_key` bits per key and `probes` probes, in
/// the limit of many keys: `(1 - e^(-k/c))^k`. 1 below 1/2048 bits per key, and for NaN.
///
/// ```
/// // The worked example: 100 bits, 10 keys, 7 probes.
/// let rate = trommel_filter::theory::standard_limit(10.0, 7);
/// assert!((rate - (1.0 - (-0.7_f64).exp()).powi(7)).abs() < 1e-15);
/// assert_eq!(format!("{:.2}%", rate * 100.0), "0.82%");
/// ```
#[must_use]
pub fn standard_limit(bits_per_key: f64, probes: u32) -> f64 {
    if !is_enough(bits_per_key) {
        return 1.0;
    }
    let k = f64::from(probes);
    (-(-k / bits_per_key).exp_m1()).powf(k)
}

/// The exact expected rate of a standard filter of `keys` keys in `bits` bits: `E[(X/m)^k]`, where
/// `X` is the number of set bits. 0 without keys, 1 without bits.
#[must_use]
pub fn standard_fpr(keys: u64, bits: u64, probes: u32) -> f64 {
    if keys == 0 {
        return 0.0;
    }
    if bits == 0 || probes == 0 {
        return 1.0;
    }
    let (m, k) = (bits as f64, f64::from(probes));
    let balls = keys as f64 * k;
    if bits <= SMALL_STANDARD && balls <= 16.0 * m {
        let mut law = Balls::new(bits as usize);
        for _ in 0..keys * u64::from(probes) {
            law.throw();
        }
        return law.pass(probes as usize);
    }
    // For more bits, X is close to normal, and the contribution of its variance to the mean of its
    // k-th power is known to a relative 1e-4 at 4,096 bits, and better for more.
    let load = balls / m;
    let mean = -(balls * (-1.0 / m).ln_1p()).exp_m1();
    let variance = (-load).exp() * (1.0 - (1.0 + load) * (-load).exp()) / m;
    let lift = (k * (k - 1.0) / 2.0 * variance / (mean * mean)).exp();
    (mean.powf(k) * lift).min(1.0)
}

/// The exact expected rate of a blocked filter of `keys` keys in `blocks` blocks of 512 bits. 0
/// without keys; 1 without blocks, or with more than 2^20 keys per block.
#[must_use]
pub fn blocked_fpr(keys: u64, blocks: u64, probes: u32) -> f64 {
    if keys == 0 {
        return 0.0;
    }
    if blocks == 0 || keys / blocks > CROWDED {
        return 1.0;
    }
    let table = PassTable::of::<0>(probes);
    CountDistribution::binomial(keys, 1.0 / blocks as f64).mean_of(|keys| table.at(keys)).min(1.0)
}

/// The rate of a blocked filter of `bits_per_key` bits per key in the limit of many keys. 1 below
/// 1/2048 bits per key, and for NaN.
#[must_use]
pub fn blocked_limit(bits_per_key: f64, probes: u32) -> f64 {
    if !is_enough(bits_per_key) {
        return 1.0;
    }
    let table = PassTable::of::<0>(probes);
    CountDistribution::poisson(BLOCK_BITS as f64 / bits_per_key).mean_of(|keys| table.at(keys))
}

/// The exact expected rate of a paired filter of `keys` keys in `blocks` blocks (1, or an even
/// number). 0 without keys; 1 without blocks, or with more than 2,048 keys per block if there are
/// several.
#[must_use]
pub fn paired_fpr(keys: u64, blocks: u64, probes: u32) -> f64 {
    if keys == 0 {
        return 0.0;
    }
    if blocks == 0 {
        return 1.0;
    }
    paired::rate(keys, blocks, probes).min(1.0)
}

/// The rate of a paired filter of `bits_per_key` bits per key in the limit of many keys. 1 below a
/// quarter of a bit per key, and for NaN; more than 128 bits per key count as 128.
#[must_use]
pub fn paired_limit(bits_per_key: f64, probes: u32) -> f64 {
    if !is_enough(bits_per_key) {
        return 1.0;
    }
    paired::limit(BLOCK_BITS as f64 / bits_per_key, probes)
}

/// The rate of a ribbon filter of `bits_per_key` bits per key in the limit of many keys: between
/// whole numbers of columns, a mean of the two rates. 1 below 1/2048 bits per key, and for NaN.
#[must_use]
pub fn ribbon_limit(bits_per_key: f64) -> f64 {
    if is_enough(bits_per_key) { crate::ribbon::limit(bits_per_key) } else { 1.0 }
}

/// The rate of a fuse filter of `bits_per_key` bits per key in the limit of many keys: between
/// whole numbers of bits, a mean of the two rates. 1 below 1/2048 bits per key, and for NaN.
#[must_use]
pub fn fuse_limit(bits_per_key: f64) -> f64 {
    if is_enough(bits_per_key) { crate::fuse_shape::limit(bits_per_key) } else { 1.0 }
}

/// The rate of a range filter of `bits_per_key` bits per key for empty ranges, in the limit of many
/// keys that are spread evenly: the share of occupied cells, if there are `2^(bits - 2)` for each
/// key. 1 without bits, and for NaN.
///
/// ```
/// let rate = trommel_filter::theory::infix_limit(6.0);
/// assert!((rate - (1.0 - (-1.0_f64 / 16.0).exp())).abs() < 1e-15);
/// ```
#[must_use]
pub fn infix_limit(bits_per_key: f64) -> f64 {
    if !is_enough(bits_per_key) {
        return 1.0;
    }
    -(-(2.0 - bits_per_key).exp2()).exp_m1()
}

/// Whether a limit must be computed; false for NaN.
fn is_enough(bits_per_key: f64) -> bool {
    bits_per_key >= LEAST_BITS
}

/// The rate of a filter of `bits_per_key` bits per key, in the limit of many keys, with the best
/// number of probes. 1 for a kind without bits; few or many bits are treated like in the kind's
/// limit.
#[must_use]
pub fn best_fpr(kind: FilterKind, bits_per_key: f64) -> f64 {
    match kind {
        FilterKind::Standard => standard_limit(bits_per_key, best_standard_probes(bits_per_key)),
        FilterKind::Blocked => blocked_limit(bits_per_key, best_blocked_probes(bits_per_key)),
        FilterKind::Paired => paired_limit(bits_per_key, best_paired_probes(bits_per_key)),
        FilterKind::Ribbon => ribbon_limit(bits_per_key),
        FilterKind::Fuse => fuse_limit(bits_per_key),
        FilterKind::None => 1.0,
    }
}

/// From this number of keys on, the spread falls with the square root of the number.
const SOME_KEYS: f64 = 1000.0;

/// How much the rate of one filter of `keys` keys and `bits_per_key` bits per key differs from the
/// expected one: a relative standard deviation, or slightly more. Rates of blocked filters depend
/// on a few crowded blocks, and differ most.
///
/// An upper envelope of measurements at 100, 1,000 and 20,000 keys and from 4 to 30 bits per key. 0
/// without keys.
#[must_use]
pub fn spread(kind: FilterKind, keys: u64, bits_per_key: f64) -> f64 {
    if keys == 0 {
        return 0.0;
    }
    let of_some = match kind {
        FilterKind::Standard => 0.014 * bits_per_key.max(0.0).sqrt(),
        FilterKind::Blocked => 0.03 + 0.0005 * bits_per_key * bits_per_key,
        FilterKind::Paired => 0.045 * (0.065 * (bits_per_key - 10.0)).exp(),
        FilterKind::Ribbon => 0.01,
        // A fingerprint does not depend on the slots, so each filter has exactly its rate.
        FilterKind::None | FilterKind::Fuse => 0.0,
    };
    let few = SOME_KEYS / keys as f64;
    of_some * if few > 1.0 { few } else { few.sqrt() }
}

#[cfg(test)]
mod tests;
