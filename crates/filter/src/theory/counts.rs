//! The number of keys of a block: binomial and Poisson weights.

use alloc::vec;
use alloc::vec::Vec;

#[cfg(not(feature = "std"))]
use crate::float::Float;

/// Weights below this fraction of the largest are omitted.
const NEGLIGIBLE: f64 = 1e-22;

/// Probabilities of consecutive whole numbers; all others are negligible.
#[derive(Debug, Clone)]
pub(super) struct CountDistribution {
    /// The number of the first weight.
    pub(super) first: usize,
    /// The probabilities; their sum is 1.
    pub(super) weights: Vec<f64>,
}

impl CountDistribution {
    /// Poisson probabilities of mean `mean`.
    pub(super) fn poisson(mean: f64) -> Self {
        Self::around(mean.floor(), |i| mean / (i + 1.0))
    }

    /// Probabilities of the number of successes in `trials` trials of probability `chance`.
    pub(super) fn binomial(trials: u64, chance: f64) -> Self {
        let n = trials as f64;
        if chance >= 1.0 {
            return Self { first: trials as usize, weights: vec![1.0] };
        }
        let odds = chance / (1.0 - chance);
        Self::around(((n + 1.0) * chance).floor().min(n), |i| odds * (n - i) / (i + 1.0))
    }

    /// Starts at the most probable number and goes outwards; `ratio(i)` is the probability of
    /// `i + 1` divided by that of `i`. Starting at the mode needs no factorials and loses no
    /// digits.
    fn around(mode: f64, ratio: impl Fn(f64) -> f64) -> Self {
        let mut below = Vec::new();
        let (mut i, mut weight) = (mode, 1.0);
        while i > 0.0 && weight > NEGLIGIBLE {
            i -= 1.0;
            weight /= ratio(i);
            below.push(weight);
        }
        let first = i as usize;
        let mut weights: Vec<f64> = below.into_iter().rev().collect();
        weights.push(1.0);
        let (mut i, mut weight) = (mode, 1.0);
        while weight > NEGLIGIBLE {
            weight *= ratio(i);
            i += 1.0;
            weights.push(weight);
        }
        let total: f64 = weights.iter().sum();
        for weight in &mut weights {
            *weight /= total;
        }
        Self { first, weights }
    }

    /// The numbers and their probabilities.
    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, f64)> + '_ {
        self.weights.iter().enumerate().map(|(i, &weight)| (self.first + i, weight))
    }

    /// The mean of `f` over the numbers.
    pub(super) fn mean_of(&self, f: impl Fn(usize) -> f64) -> f64 {
        self.iter().map(|(i, weight)| weight * f(i)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_have_the_right_moments() {
        for mean in [0.01, 1.0, 21.88, 1024.0] {
            let counts = CountDistribution::poisson(mean);
            let first = counts.mean_of(|i| i as f64);
            let second = counts.mean_of(|i| (i as f64 - mean).powi(2));
            assert!((first / mean - 1.0).abs() < 1e-10, "{mean}: {first}");
            assert!((second / mean - 1.0).abs() < 1e-10, "{mean}: {second}");
        }
        for (trials, chance) in [(1, 0.5), (7, 1.0), (100, 0.01), (1000, 0.02), (1_000_000, 1e-5)] {
            let counts = CountDistribution::binomial(trials, chance);
            let mean = trials as f64 * chance;
            let first = counts.mean_of(|i| i as f64);
            let second = counts.mean_of(|i| (i as f64 - mean).powi(2));
            assert!((first / mean - 1.0).abs() < 1e-9);
            assert!((second - mean * (1.0 - chance)).abs() < 1e-9 * mean);
        }
    }
}
