//! The best number of probes.
//!
//! For the blocked and the paired kind, a table lists the bits per key from which the next number
//! of probes is better. The tables follow from the rates; a test recomputes them.

use crate::kind::FilterKind;

/// The most bits per key for which the number of probes is optimized: more bits still help, but
/// more probes would only cost time. Without this bound a single key in a block would have 355
/// probes.
const MAX_BITS: f64 = 64.0;

/// Entry `i`: thousandths of a bit per key from which `i + 2` probes beat `i + 1`.
const BLOCKED: [u32; 19] = [
    2082, 3585, 5104, 6674, 8318, 10058, 11921, 13933, 16124, 18528, 21185, 24140, 27445, 31162,
    35361, 40127, 45559, 51775, 58916,
];

/// Entry `i`: thousandths of a bit per key from which `2 i + 4` probes beat `2 i + 2`.
const PAIRED: [u32; 15] = [
    4224, 7239, 10223, 13208, 16206, 19224, 22270, 25355, 28491, 31702, 35023, 38518, 42318, 46718,
    52624,
];

/// The best number of probes of a standard filter of `bits_per_key` bits per key: the better of the
/// two integers next to `c ln 2`.
#[must_use]
pub fn best_standard_probes(bits_per_key: f64) -> u32 {
    let bits = bits_per_key.clamp(0.0, MAX_BITS);
    let below = ((bits * core::f64::consts::LN_2) as u32).max(1);
    let rate = |probes| super::standard_limit(bits, probes);
    if rate(below + 1) < rate(below) { below + 1 } else { below }
}

/// The best number of probes of a blocked filter of `bits_per_key` bits per key.
#[must_use]
pub fn best_blocked_probes(bits_per_key: f64) -> u32 {
    1 + steps(&BLOCKED, bits_per_key)
}

/// The best number of probes of a paired filter of `bits_per_key` bits per key; always even.
#[must_use]
pub fn best_paired_probes(bits_per_key: f64) -> u32 {
    2 + 2 * steps(&PAIRED, bits_per_key)
}

/// The best number of probes of a Bloom filter of this kind; 0 for the other kinds.
#[must_use]
pub fn best_probes(kind: FilterKind, bits_per_key: f64) -> u32 {
    match kind {
        FilterKind::Standard => best_standard_probes(bits_per_key),
        FilterKind::Blocked => best_blocked_probes(bits_per_key),
        FilterKind::Paired => best_paired_probes(bits_per_key),
        FilterKind::None | FilterKind::Ribbon | FilterKind::Fuse => 0,
    }
}

/// The number of thresholds that `bits_per_key` has reached.
fn steps(thresholds: &[u32], bits_per_key: f64) -> u32 {
    let millibits = bits_per_key.clamp(0.0, MAX_BITS) * 1000.0;
    thresholds.partition_point(|&threshold| f64::from(threshold) <= millibits) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::theory::{blocked_limit, paired_limit};

    /// The thresholds from `low` on at which `beats` becomes true for 1, 2, 3...
    fn thresholds(beats: impl Fn(u32, f64) -> bool) -> Vec<u32> {
        let mut found = vec![500];
        for step in 1.. {
            let (mut low, mut high) = (found[found.len() - 1], 64_001_u32);
            while low < high {
                let middle = low.midpoint(high);
                if beats(step, f64::from(middle) / 1000.0) {
                    high = middle;
                } else {
                    low = middle + 1;
                }
            }
            if low > 64_000 {
                break;
            }
            found.push(low);
        }
        found.split_off(1)
    }

    #[test]
    fn blocked_thresholds_follow_from_the_rates() {
        let found = thresholds(|k, bits| blocked_limit(bits, k + 1) < blocked_limit(bits, k));
        assert_eq!(found, BLOCKED);
    }

    #[test]
    fn paired_thresholds_follow_from_the_rates() {
        let found = thresholds(|k, bits| paired_limit(bits, 2 * k + 2) < paired_limit(bits, 2 * k));
        assert_eq!(found.len(), PAIRED.len());
        for (found, stored) in found.iter().zip(PAIRED) {
            assert!(found.abs_diff(stored) <= 5, "{found} against {stored}");
        }
        // Values known from an earlier computation on a grid, to one decimal and within 0.2.
        let coarse = [4.4, 7.4, 10.4, 13.4, 16.4, 19.4, 22.4, 25.4, 28.6, 31.8, 35.2, 38.6];
        for (coarse, stored) in coarse.iter().zip(PAIRED) {
            assert!((coarse - f64::from(stored) / 1000.0).abs() < 0.2);
        }
    }

    #[test]
    fn probes_stay_within_bounds() {
        for bits in [0.0, 0.5, 1.0, 64.0, 65.0, 512.0, 1e9, f64::INFINITY] {
            assert!((1..=45).contains(&best_standard_probes(bits)));
            assert!((1..=20).contains(&best_blocked_probes(bits)));
            assert!((2..=32).contains(&best_paired_probes(bits)));
        }
        assert_eq!(best_standard_probes(10.0), 7);
        assert_eq!(best_standard_probes(23.4), 16);
        assert_eq!(best_blocked_probes(28.0), 14);
        assert_eq!(best_paired_probes(23.4), 16);
    }
}
