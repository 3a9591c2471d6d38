//! The false-positive rate of filters, and its uncertainty.
//!
//! Filters of one kind and size differ: one of 1,000 keys has a rate some percent off the mean of
//! all, however many queries it gets. So the error of a mean comes from the variance *between*
//! filters, which includes that of the count. With fewer than [`ENOUGH`] filters that variance says
//! little, and an allowance replaces it: [`SPREAD`].

use serde::{Deserialize, Serialize};
use trommel::wilson;

use crate::statistics::student_quantile;

/// Number of filters from which on their variance is used as measured.
const ENOUGH: usize = 8;
/// Relative deviation of one filter from its expectation, per bit per key, times the square root of
/// its number of keys. Paired filters show 0.11, blocked ones up to 0.25 (1,000 keys, 10 to 23.4
/// bits); this is more than either.
const SPREAD: f64 = 0.3;
/// Standard errors of a normal distribution that chance does not explain.
const SIGMAS: f64 = 4.0;
/// The probability mass of a normal distribution beyond [`SIGMAS`] on both sides.
const TAILS: f64 = 6.334e-5;

/// A measured false-positive rate.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Rate {
    /// Number of filters queried.
    pub filters: u64,
    /// Number of queries, all for absent keys.
    #[serde(rename = "asked")]
    pub queries: u64,
    /// Positive answers to them.
    pub false_positives: u64,
    /// The rate.
    pub measured: f64,
    /// 95% confidence interval of the mean over all possible filters, from the variance between the
    /// measured ones (Student's t); never narrower than that of the count (Wilson's).
    pub interval: (f64, f64),
    /// One standard error, from the variance between filters. With fewer than 8 filters, an
    /// allowance replaces the variance.
    pub standard_error: f64,
    /// The highest rate of a filter.
    pub worst: f64,
    /// The lowest rate of a filter.
    pub best: f64,
    /// The exact rate that the filters announce, averaged.
    pub expected: f64,
}

impl Rate {
    /// The rate of filters with these counts of queries and false positives, which announce
    /// `expected` on average, and have `bits` bits per key and `keys` keys each. None without a
    /// query.
    pub(super) fn new(each: &[(u64, u64)], expected: f64, bits: f64, keys: f64) -> Option<Self> {
        let queries: u64 = each.iter().map(|(queries, _)| queries).sum();
        if queries == 0 {
            return None;
        }
        let false_positives: u64 = each.iter().map(|(_, hits)| hits).sum();
        let rates = || each.iter().map(|&(queries, hits)| hits as f64 / queries.max(1) as f64);
        let measured = false_positives as f64 / queries as f64;
        let n = each.len() as f64;
        let (standard_error, quantile) = if each.len() >= ENOUGH {
            let between: f64 = rates().map(|rate| (rate - measured).powi(2)).sum();
            ((between / (n - 1.0) / n).sqrt(), student_quantile(0.05, n - 1.0))
        } else {
            let counted = measured * (1.0 - measured) / queries as f64;
            let spread = SPREAD * bits / keys.max(1.0).sqrt() * expected;
            ((counted + spread * spread / n).sqrt(), 1.96)
        };
        let half = quantile * standard_error;
        let (low, high) = wilson(false_positives, queries);
        Some(Self {
            filters: each.len() as u64,
            queries,
            false_positives,
            measured,
            interval: ((measured - half).clamp(0.0, low), (measured + half).clamp(high, 1.0)),
            standard_error,
            worst: rates().fold(0.0, f64::max),
            best: rates().fold(1.0, f64::min),
            expected,
        })
    }

    /// The difference between the measured and the expected rate, in standard errors. If hardly a
    /// false positive is expected, the error is that of the expected count.
    pub fn deviation(&self) -> f64 {
        let counted = (self.expected / self.queries.max(1) as f64).sqrt();
        (self.measured - self.expected) / self.standard_error.max(counted).max(f64::MIN_POSITIVE)
    }

    /// Whether the measured rate exceeds the expected one by more than chance explains: by 2%, and
    /// by four standard errors (more if few filters make the error itself uncertain).
    pub fn is_bad(&self) -> bool {
        let limit = if self.filters >= ENOUGH as u64 {
            student_quantile(TAILS, (self.filters - 1) as f64)
        } else {
            SIGMAS
        };
        self.deviation() > limit && self.measured > 1.02 * self.expected
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(each: &[(u64, u64)], expected: f64) -> Rate {
        Rate::new(each, expected, 10.0, 10_000.0).unwrap()
    }

    #[test]
    fn a_rate_that_is_too_high_is_bad_and_one_by_chance_is_not() {
        let each: Vec<(u64, u64)> = (0..40).map(|nth| (10_000, 95 + nth % 10)).collect();
        let found = rate(&each, 0.009_95);
        assert!((found.measured - 0.009_95).abs() < 1e-9 && found.deviation().abs() < 0.1);
        assert!(!found.is_bad() && rate(&each, 0.009).is_bad());
        assert!(!rate(&[(1000, 1)], 1e-5).is_bad(), "one hit by chance");
    }

    #[test]
    fn the_interval_is_that_between_filters() {
        // Ten filters of 1% and ten of 3%: the interval of the count alone would be far too narrow
        // around 2%.
        let each: Vec<(u64, u64)> =
            (0..20).map(|nth| (1_000_000, 10_000 + nth % 2 * 20_000)).collect();
        let found = rate(&each, 0.02);
        let t = student_quantile(0.05, 19.0);
        let error = 0.01 * (20.0_f64 / 19.0).sqrt() / 20.0_f64.sqrt();
        assert!((found.standard_error / error - 1.0).abs() < 1e-9, "{found:?}");
        assert!((found.interval.0 - (0.02 - t * error)).abs() < 1e-9, "{found:?}");
        assert!((found.interval.1 - (0.02 + t * error)).abs() < 1e-9, "{found:?}");
        // Without a false positive there is no variance; the count still bounds the rate.
        let none: Vec<(u64, u64)> = (0..20).map(|_| (100_000, 0)).collect();
        let found = rate(&none, 1e-9);
        assert_eq!((found.measured, found.interval.0), (0.0, 0.0));
        assert!((1e-6..1e-5).contains(&found.interval.1), "{found:?}");
    }

    #[test]
    fn one_small_filter_off_the_mean_is_no_fault() {
        // 5% off: common for a filter of a thousand keys, though by the count alone it is certain.
        let one = |keys| Rate::new(&[(100_000_000, 1_050_000)], 0.01, 10.0, keys).unwrap();
        assert!(!one(1000.0).is_bad());
        assert!(one(10_000_000.0).is_bad());
        assert_eq!(Rate::new(&[], 0.01, 10.0, 1000.0), None);
    }

    #[test]
    fn the_tails_are_those_of_four_standard_errors() {
        assert!((student_quantile(TAILS, 1e9) - SIGMAS).abs() < 1e-3);
    }
}
