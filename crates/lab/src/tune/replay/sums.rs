//! The sums of a spec's results.

use super::{Estimate, ReplayedLevel};
use crate::statistics::student_quantile;

/// All lookups, clustered by key.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Lookups {
    /// Number of keys.
    keys: f64,
    /// Number of lookups, and the sum of their squares over keys.
    times: f64,
    squares: f64,
}

impl Lookups {
    /// Adds the lookups of one key.
    pub(super) fn add(&mut self, times: u64) {
        let times = times as f64;
        self.keys += 1.0;
        self.times += times;
        self.squares += times * times;
    }

    pub(super) fn keys(&self) -> u64 {
        self.keys as u64
    }
}

/// The sums of one spec's filters on one level, or on all.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Sums {
    pub(super) tables: u64,
    pub(super) keys: u64,
    pub(super) filter_bytes: u64,
    pub(super) probes: u64,
    pub(super) true_positives: u64,
    pub(super) false_positives: u64,
    /// Expected false positives by theory, and the variance of their count.
    pub(super) expected: f64,
    pub(super) variance: f64,
    /// Sums over keys: of the squared wasted reads, and of the wasted reads times the key's
    /// lookups.
    squares: f64,
    products: f64,
}

impl Sums {
    /// Adds the wasted reads of all lookups of one key; keys without any need not be added.
    pub(super) fn add_key(&mut self, wasted: f64, times: u64) {
        self.squares += wasted * wasted;
        self.products += wasted * times as f64;
    }

    /// Adds another level, except for the counts that [`Sums::add_key`] adds.
    pub(super) fn add_level(&mut self, level: &Self) {
        self.tables += level.tables;
        self.keys += level.keys;
        self.filter_bytes += level.filter_bytes;
        self.probes = self.probes.saturating_add(level.probes);
        self.true_positives = self.true_positives.saturating_add(level.true_positives);
        self.false_positives = self.false_positives.saturating_add(level.false_positives);
        self.expected += level.expected;
        self.variance += level.variance;
    }

    /// The counts scaled to all lookups, if one in `sample` was recorded.
    pub(super) fn report(
        &self,
        level: Option<usize>,
        lookups: Lookups,
        sample: u64,
    ) -> ReplayedLevel {
        let per_lookup = |count: f64| if lookups.times > 0.0 { count / lookups.times } else { 0.0 };
        let scaled = |count: u64| count.saturating_mul(sample);
        ReplayedLevel {
            level,
            tables: self.tables,
            keys: self.keys,
            filter_bytes: self.filter_bytes,
            probes: scaled(self.probes),
            true_positives: scaled(self.true_positives),
            false_positives: scaled(self.false_positives),
            wasted_reads: self.wasted_reads(lookups),
            expected: per_lookup(self.expected),
        }
    }

    /// The mean over lookups, which are drawn in clusters, one per key (W. G. Cochran, "Sampling
    /// Techniques", 1977, 9A.1: the ratio to size).
    fn wasted_reads(&self, lookups: Lookups) -> Estimate {
        let Lookups { keys, times, squares } = lookups;
        if times == 0.0 {
            return Estimate::default();
        }
        let mean = self.false_positives as f64 / times;
        let between = self.squares - 2.0 * mean * self.products + mean * mean * squares;
        let freedom = (keys - 1.0).max(1.0);
        let between = between.max(0.0) * keys / freedom;
        let standard_error = between.max(self.variance).sqrt() / times;
        let half = student_quantile(0.05, freedom) * standard_error;
        Estimate { mean, standard_error, interval: ((mean - half).max(0.0), mean + half) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sums(wasted: &[(u64, u64)]) -> (Sums, Lookups) {
        let (mut sums, mut lookups) = (Sums::default(), Lookups::default());
        for (wasted, times) in wasted {
            sums.false_positives += wasted;
            sums.add_key(*wasted as f64, *times);
            lookups.add(*times);
        }
        (sums, lookups)
    }

    #[test]
    fn the_error_of_distinct_keys_is_that_of_a_share() {
        let keys: Vec<(u64, u64)> = (0..10_000).map(|n| (u64::from(n % 100 == 0), 1)).collect();
        let (sums, lookups) = sums(&keys);
        let Estimate { mean, standard_error, interval } = sums.wasted_reads(lookups);
        let binomial = (0.01_f64 * 0.99 / 9999.0).sqrt();
        assert!((mean - 0.01).abs() < 1e-12 && (standard_error / binomial - 1.0).abs() < 1e-9);
        assert!((interval.1 - mean - 1.9602 * binomial).abs() < 1e-6);
    }

    #[test]
    fn a_key_looked_up_often_is_no_more_than_one_draw() {
        // A hundredth of all lookups wasted a read: those of one key, or of a hundred.
        let rest = |many: u64| (0..10_000 - many).map(|_| (0, 1));
        let one: Vec<(u64, u64)> = rest(100).chain([(100, 100)]).collect();
        let many: Vec<(u64, u64)> = rest(100).chain((0..100).map(|_| (1, 1))).collect();
        let error = |keys: &[(u64, u64)]| {
            let (sums, lookups) = sums(keys);
            let estimate = sums.wasted_reads(lookups);
            assert!((estimate.mean - 0.01).abs() < 1e-12);
            estimate.standard_error
        };
        let ratio = error(&one) / error(&many);
        assert!((9.8..10.1).contains(&ratio), "{ratio}");
    }

    #[test]
    fn nothing_wasted_is_no_certainty() {
        let (mut sums, lookups) = sums(&[(0, 1); 1000]);
        assert_eq!(sums.wasted_reads(lookups).interval, (0.0, 0.0));
        sums.variance = 0.25;
        let Estimate { mean, standard_error, interval } = sums.wasted_reads(lookups);
        assert_eq!((mean, standard_error), (0.0, 0.0005));
        assert!(interval.1 > 0.0009);
        assert_eq!(Sums::default().report(None, Lookups::default(), 9), ReplayedLevel::default());
    }
}
