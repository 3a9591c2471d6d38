//! Few keys on few blocks: the enumeration of all outcomes.
//!
//! `n` keys fall on `B` blocks with the sorted counts `c_1 <= ... <= c_B` with probability
//! `n! / (c_1! ... c_B!) * B! / (m_0! m_1! ...) / B^n`, where `m_j` is the number of counts equal
//! to `j`. There are some thousand such partitions of 48 keys on 6 blocks.

use alloc::vec::Vec;

#[cfg(not(feature = "std"))]
use crate::float::Float;

/// The mean over all ways that `keys` keys fall on `blocks` blocks (of one batch) of the mean over
/// the pairs, fullest with emptiest, of `pass(keys of the pair)`.
pub(super) fn mean_over_partitions(keys: u64, blocks: u64, pass: impl Fn(usize) -> f64) -> f64 {
    let ln_factorials: Vec<f64> = core::iter::once(0.0)
        .chain((1..=keys.max(blocks)).scan(0.0, |sum, i| {
            *sum += (i as f64).ln();
            Some(*sum)
        }))
        .collect();
    let ways = ln_factorials[keys as usize] + ln_factorials[blocks as usize]
        - keys as f64 * (blocks as f64).ln();
    let mut partition = Partition {
        counts: Vec::with_capacity(blocks as usize),
        blocks: blocks as usize,
        ln_factorials,
        sum: 0.0,
        pass,
    };
    partition.extend(keys as usize, 0, 0, ways);
    partition.sum
}

struct Partition<F> {
    /// The counts chosen so far, in ascending order.
    counts: Vec<usize>,
    blocks: usize,
    ln_factorials: Vec<f64>,
    sum: f64,
    pass: F,
}

impl<F: Fn(usize) -> f64> Partition<F> {
    /// Adds the missing blocks. `left` keys remain for them, and none takes fewer than `least`; the
    /// last `alike` blocks have taken exactly that many.
    fn extend(&mut self, left: usize, least: usize, alike: usize, ln_chance: f64) {
        let missing = self.blocks - self.counts.len();
        if missing == 0 {
            let pairs = self.counts.iter().zip(self.counts.iter().rev());
            let mean = pairs.map(|(a, b)| (self.pass)(a + b)).sum::<f64>() / self.blocks as f64;
            self.sum += ln_chance.exp() * mean;
            return;
        }
        let most = left / missing;
        for count in least..=most {
            if missing == 1 && count != left {
                continue;
            }
            let alike = if count == least { alike + 1 } else { 1 };
            // Dividing by `alike` at each block of a run divides by the run's factorial.
            let chance = ln_chance - self.ln_factorials[count] - (alike as f64).ln();
            self.counts.push(count);
            self.extend(left - count, count, alike, chance);
            self.counts.pop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chances_add_up_and_small_cases_are_right() {
        for (keys, blocks) in [(0, 2), (1, 4), (5, 4), (17, 4), (48, 6)] {
            let total = mean_over_partitions(keys, blocks, |_| 1.0);
            assert!((total - 1.0).abs() < 1e-12, "{keys} keys on {blocks} blocks: {total}");
            let mean = mean_over_partitions(keys, blocks, |keys| keys as f64);
            assert!((mean - 2.0 * keys as f64 / blocks as f64).abs() < 1e-11);
        }
        // Two keys on four blocks: in one block (1/4) they make a pair of two; otherwise two pairs
        // of one.
        let twos = mean_over_partitions(2, 4, |keys| if keys == 2 { 1.0 } else { 0.0 });
        assert!((twos - 0.25 / 2.0).abs() < 1e-15);
    }
}
