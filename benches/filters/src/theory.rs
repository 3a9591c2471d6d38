//! The expected rates of the contestants, and the size for a given rate.
//!
//! Trommel's filters and fastbloom report their own rate. A binary fuse filter's is 2 to the minus
//! number of its fingerprint's bits. For split blocks it is the exact sum: a block holds `i` of `n`
//! keys with the binomial probability; each key sets one bit in each of its eight words of 32 bits,
//! so a word matches with `1 - (31/32)^i`, and all eight with that to the eighth.

use trommel_filter::{FilterKind, FilterSpec, theory::best_fpr};

use crate::contestant::Contestant;

/// Bits of a split block.
const SPLIT_BITS: f64 = 256.0;
/// Maximum bits per key.
const MOST_BITS: f64 = 64.0;

/// The expected rate of a split block filter of `keys` keys in `blocks` blocks.
pub fn split_block_rate(keys: u64, blocks: u64) -> f64 {
    let word = |count: f64| 1.0 - (31.0_f64 / 32.0).powf(count);
    if keys == 0 || blocks == 0 {
        return 0.0;
    }
    if blocks == 1 {
        return word(keys as f64).powi(8);
    }
    let (n, q) = (keys as f64, 1.0 / blocks as f64);
    let odds = q / (1.0 - q);
    let mut weight = (n * (-q).ln_1p()).exp();
    let (mut sum, mut count, mean) = (0.0, 0.0, n * q);
    while count <= n && (count <= mean || weight > 1e-18) {
        sum += weight * word(count).powi(8);
        weight *= (n - count) / (count + 1.0) * odds;
        count += 1.0;
    }
    sum
}

/// The rate of `contestant` with `bits` bits per key and many keys; none if its size is fixed.
pub fn rate_at(contestant: Contestant, bits: f64) -> Option<f64> {
    let many = 10_000_000;
    match contestant {
        Contestant::Ours(kind) => Some(best_fpr(kind, bits)),
        Contestant::Fastbloom => {
            let size = (bits * many as f64) as usize;
            let probes = fastbloom::optimal_hashes(size, many);
            let density = fastbloom::expected_density(probes, size, many);
            Some(fastbloom::expected_false_pos(probes, density))
        }
        Contestant::SplitBlock => {
            Some(split_block_rate(many as u64, (bits * many as f64 / SPLIT_BITS) as u64))
        }
        Contestant::Fuse(_) => None,
    }
}

/// The fewest bits per key, to a hundredth, with which the rate of `contestant` is at most `rate`;
/// none if it cannot reach it.
pub fn bits_for(contestant: Contestant, rate: f64) -> Option<f64> {
    match contestant {
        Contestant::Ours(kind) if kind != FilterKind::None => {
            FilterSpec::with_fpr(kind, rate).ok().map(|spec| spec.bits_per_key())
        }
        Contestant::Fuse(width) => {
            let meets = (-f64::from(width.bits())).exp2() <= rate;
            meets.then_some(f64::from(width.bits()))
        }
        _ => {
            let meets = |hundredths: u32| {
                rate_at(contestant, f64::from(hundredths) / 100.0).is_some_and(|at| at <= rate)
            };
            let (mut low, mut high) = (100, (MOST_BITS * 100.0) as u32);
            if !meets(high) {
                return None;
            }
            while low < high {
                let middle = low.midpoint(high);
                if meets(middle) { high = middle } else { low = middle + 1 }
            }
            Some(f64::from(high) / 100.0)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contestant::Width;

    /// The table in Apache Parquet's specification, which describes this filter: bits per key for a
    /// rate.
    #[test]
    fn split_blocks_have_the_rates_of_their_specification() {
        for (bits, rate) in [(6.0, 0.10), (10.5, 0.01), (16.9, 0.001), (26.4, 0.0001)] {
            let found = rate_at(Contestant::SplitBlock, bits).unwrap();
            assert!((found / rate - 1.0).abs() < 0.05, "{bits} bits: {found}");
        }
        assert_eq!(split_block_rate(0, 10), 0.0);
        assert!((split_block_rate(1, 1) - 32.0_f64.powi(-8)).abs() < 1e-15);
    }

    #[test]
    fn bits_are_the_fewest_that_do() {
        for contestant in [Contestant::Fastbloom, Contestant::SplitBlock] {
            let bits = bits_for(contestant, 1e-3).unwrap();
            assert!(rate_at(contestant, bits).unwrap() <= 1e-3);
            assert!(rate_at(contestant, bits - 0.02).unwrap() > 1e-3, "{contestant}: {bits}");
        }
        assert_eq!(bits_for(Contestant::Fuse(Width::Eight), 1e-3), None);
        assert_eq!(bits_for(Contestant::Fuse(Width::Sixteen), 1e-4), Some(16.0));
        let paired = Contestant::Ours(FilterKind::Paired);
        let bits = bits_for(paired, 1.0 / 58_000.0).unwrap();
        assert!((23.0..23.4).contains(&bits), "{bits}");
    }
}
