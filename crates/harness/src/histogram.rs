//! Latencies of single operations.

use std::fmt::{self, Write as _};
use std::time::Duration;

use hdrhistogram::Histogram;

/// Longest distinct time: one hour. Longer ones count as this.
const NANOS_MAX: u64 = 3_600_000_000_000;
/// Significant digits of each time.
const DIGITS: u8 = 3;
const NANOS_PER_MICRO: f64 = 1000.0;

/// A histogram of operation times, each to three significant digits.
#[derive(Debug, Clone)]
pub struct Latencies(Histogram<u64>);

impl Latencies {
    /// An empty histogram.
    pub fn new() -> Self {
        Self(
            Histogram::new_with_bounds(1, NANOS_MAX, DIGITS)
                .expect("the bounds are in order and the digits few"),
        )
    }

    /// Adds `time`.
    #[inline]
    pub fn record(&mut self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(NANOS_MAX);
        self.0.saturating_record(nanos);
    }

    /// Adds all times of `other`.
    pub fn merge(&mut self, other: &Self) {
        self.0.add(&other.0).expect("both have the same bounds");
    }

    /// The times in nanoseconds.
    pub(crate) fn histogram(&self) -> &Histogram<u64> {
        &self.0
    }

    /// Number of times recorded.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// The percentile `percent` of the times, in microseconds.
    pub fn percentile(&self, percent: f64) -> f64 {
        self.0.value_at_percentile(percent) as f64 / NANOS_PER_MICRO
    }

    /// Operations by time: (from, to, operations), in microseconds, without empty bins; `from` is
    /// exclusive except in the first bin.
    fn bins(&self) -> Vec<(u64, u64, u64)> {
        let limits = bin_limits();
        let mut counts = vec![0; limits.len()];
        for entry in self.0.iter_recorded() {
            let micros = entry.value_iterated_to() as f64 / NANOS_PER_MICRO;
            let bin = limits.partition_point(|limit| (*limit as f64) < micros);
            if let Some(count) = counts.get_mut(bin) {
                *count += entry.count_at_value();
            }
        }
        let starts = [0].into_iter().chain(limits.iter().copied());
        starts
            .zip(&limits)
            .zip(counts)
            .filter(|(_, count)| *count > 0)
            .map(|((start, end), count)| (start, *end, count))
            .collect()
    }
}

impl Default for Latencies {
    fn default() -> Self {
        Self::new()
    }
}

/// Upper ends of the bins, in microseconds: each 1.5 times the one before, rounded down to two
/// digits.
fn bin_limits() -> Vec<u64> {
    let mut limits = vec![1, 2];
    let mut last = 2;
    while last < NANOS_MAX / 1000 {
        let mut next = last * 3 / 2;
        let mut power = 1;
        while next >= 100 {
            next /= 10;
            power *= 10;
        }
        last = next * power;
        limits.push(last);
    }
    limits
}

/// db_bench's table: summary, percentiles and one line per bin, in microseconds.
impl fmt::Display for Latencies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.count();
        let micros = |nanos: f64| nanos / NANOS_PER_MICRO;
        writeln!(
            f,
            "Count: {count} Average: {:.4}  StdDev: {:.2}",
            micros(self.0.mean()),
            micros(self.0.stdev())
        )?;
        let least = if count == 0 { 0.0 } else { micros(self.0.min() as f64) };
        writeln!(
            f,
            "Min: {least:.0}  Median: {:.4}  Max: {:.0}",
            self.percentile(50.0),
            micros(self.0.max() as f64)
        )?;
        f.write_str("Percentiles:")?;
        for percent in [50.0, 75.0, 99.0, 99.9, 99.99] {
            write!(f, " P{percent}: {:.2}", self.percentile(percent))?;
        }
        writeln!(f, "\n{}", "-".repeat(54))?;
        let mut sum = 0;
        for (start, end, operations) in self.bins() {
            sum += operations;
            let percent = operations as f64 * 100.0 / count as f64;
            let total = sum as f64 * 100.0 / count as f64;
            let open = if start == 0 { '[' } else { '(' };
            let mut bar = String::new();
            for _ in 0..(percent / 5.0).round() as usize {
                bar.write_char('#')?;
            }
            writeln!(
                f,
                "{open} {start:>7}, {end:>7} ] {operations:>8} {percent:>7.3}% {total:>7.3}% {bar}"
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_the_known_shape() {
        let mut latencies = Latencies::new();
        for _ in 0..90 {
            latencies.record(Duration::from_nanos(2500));
        }
        let mut slow = Latencies::new();
        for _ in 0..10 {
            slow.record(Duration::from_micros(15));
        }
        latencies.merge(&slow);
        assert_eq!(
            latencies.to_string(),
            "Count: 100 Average: 3.7513  StdDev: 3.75\n\
             Min: 2  Median: 2.5010  Max: 15\n\
             Percentiles: P50: 2.50 P75: 2.50 P99: 15.01 P99.9: 15.01 P99.99: 15.01\n\
             ------------------------------------------------------\n\
             (       2,       3 ]       90  90.000%  90.000% ##################\n\
             (      13,      19 ]       10  10.000% 100.000% ##\n"
        );
    }

    #[test]
    fn no_times_and_extreme_times_are_shown() {
        assert!(Latencies::new().to_string().starts_with("Count: 0 Average: 0.0000"));
        let mut latencies = Latencies::new();
        latencies.record(Duration::ZERO);
        latencies.record(Duration::from_secs(1_000_000));
        assert_eq!(latencies.count(), 2);
        assert_eq!(latencies.bins().iter().map(|(.., count)| count).sum::<u64>(), 2);
    }

    #[test]
    fn bins_grow_by_half_and_reach_an_hour() {
        let limits = bin_limits();
        assert_eq!(limits[..12], [1, 2, 3, 4, 6, 9, 13, 19, 28, 42, 63, 94]);
        assert_eq!(limits[12], 140);
        assert!(limits.is_sorted() && limits[limits.len() - 1] >= 3_600_000_000);
    }
}
