//! What a filter's rate of false positives is expected to be: exact sums, not rules of thumb.

mod counts;
mod occupancy;
mod paired;
mod pairs;
mod probes;

pub use probes::{best_blocked_probes, best_paired_probes, best_standard_probes};

use counts::Counts;
use occupancy::{Balls, PassTable};

use crate::block::BLOCK_BITS;
use crate::spec::FilterKind;

/// Bits up to which [`standard_fpr`] follows every ball.
const SMALL_STANDARD: u64 = 4096;

/// The textbook's rate of a standard filter of `bits_per_key` bits per key and `probes` probes, in
/// the limit of many keys: `(1 - e^(-k/c))^k`.
///
/// ```
/// // The worked example: 100 bits, 10 keys, 7 probes.
/// let rate = trommel_filter::theory::standard_limit(10.0, 7);
/// assert!((rate - (1.0 - (-0.7_f64).exp()).powi(7)).abs() < 1e-15);
/// assert_eq!(format!("{:.2}%", rate * 100.0), "0.82%");
/// ```
#[must_use]
pub fn standard_limit(bits_per_key: f64, probes: u32) -> f64 {
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
    if bits == 0 {
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
    // Above, X is close to normal: the mean of its power is that of a normal law's, to a relative
    // 1e-5 at 4,096 bits and better beyond.
    let clear = (balls * (-1.0 / m).ln_1p()).exp();
    let both_clear = (balls * (-2.0 / m).ln_1p()).exp();
    let mean = 1.0 - clear;
    let variance = (clear / m + both_clear * (1.0 - 1.0 / m) - clear * clear).max(0.0);
    mean.powf(k) * (k * (k - 1.0) / 2.0 * variance / (mean * mean)).exp()
}

/// The exact expected rate of a blocked filter of `keys` keys in `blocks` blocks of 512 bits. 0
/// without keys, 1 without blocks.
#[must_use]
pub fn blocked_fpr(keys: u64, blocks: u64, probes: u32) -> f64 {
    if keys == 0 {
        return 0.0;
    }
    if blocks == 0 {
        return 1.0;
    }
    let table = PassTable::of::<0>(probes);
    Counts::binomial(keys, 1.0 / blocks as f64).mean_of(|keys| table.at(keys))
}

/// The rate of a blocked filter of `bits_per_key` bits per key in the limit of many keys.
#[must_use]
pub fn blocked_limit(bits_per_key: f64, probes: u32) -> f64 {
    let table = PassTable::of::<0>(probes);
    Counts::poisson(BLOCK_BITS as f64 / bits_per_key).mean_of(|keys| table.at(keys))
}

/// The exact expected rate of a paired filter of `keys` keys in `blocks` blocks (1, or an even
/// number). 0 without keys, 1 without blocks.
#[must_use]
pub fn paired_fpr(keys: u64, blocks: u64, probes: u32) -> f64 {
    if keys == 0 {
        return 0.0;
    }
    if blocks == 0 {
        return 1.0;
    }
    paired::rate(keys, blocks, probes)
}

/// The rate of a paired filter of `bits_per_key` bits per key in the limit of many keys.
#[must_use]
pub fn paired_limit(bits_per_key: f64, probes: u32) -> f64 {
    paired::limit(BLOCK_BITS as f64 / bits_per_key, probes)
}

/// The rate of a filter of `bits_per_key` bits per key, in the limit of many keys, with the number
/// of probes that suits it best. 1 for a kind without bits.
#[must_use]
pub fn best_fpr(kind: FilterKind, bits_per_key: f64) -> f64 {
    match kind {
        FilterKind::Standard => standard_limit(bits_per_key, best_standard_probes(bits_per_key)),
        FilterKind::Blocked => blocked_limit(bits_per_key, best_blocked_probes(bits_per_key)),
        FilterKind::Paired => paired_limit(bits_per_key, best_paired_probes(bits_per_key)),
        FilterKind::None | FilterKind::Ribbon => 1.0,
    }
}

#[cfg(test)]
mod tests;
