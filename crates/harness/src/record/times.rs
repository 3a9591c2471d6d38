//! Latencies of operations in a form that can be stored and merged.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer as _, V2Serializer};
use serde::{Deserialize, Serialize};

use crate::histogram::Latencies;

/// Latencies of operations, in nanoseconds.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Times {
    /// Number of operations timed.
    pub count: u64,
    /// The minimum.
    pub min: u64,
    /// The mean.
    pub mean: f64,
    /// The median.
    pub p50: u64,
    /// The 75th percentile.
    pub p75: u64,
    /// The 90th percentile.
    pub p90: u64,
    /// The 95th percentile.
    pub p95: u64,
    /// The 99th percentile.
    pub p99: u64,
    /// The 99.9th percentile.
    pub p999: u64,
    /// The 99.99th percentile.
    pub p9999: u64,
    /// The maximum.
    pub max: u64,
    /// The complete HdrHistogram: its V2 encoding, uncompressed, in base64.
    pub hdr: String,
}

impl Times {
    /// Converts recorded latencies.
    pub fn new(latencies: &Latencies) -> Self {
        Self::of(latencies.histogram())
    }

    /// Converts a histogram of nanoseconds.
    pub fn of(histogram: &Histogram<u64>) -> Self {
        let within = |percent| histogram.value_at_percentile(percent);
        let mut bytes = Vec::new();
        V2Serializer::new()
            .serialize(histogram, &mut bytes)
            .expect("a histogram in memory is written to memory");
        Self {
            count: histogram.len(),
            min: if histogram.is_empty() { 0 } else { histogram.min() },
            mean: histogram.mean(),
            p50: within(50.0),
            p75: within(75.0),
            p90: within(90.0),
            p95: within(95.0),
            p99: within(99.0),
            p999: within(99.9),
            p9999: within(99.99),
            max: histogram.max(),
            hdr: BASE64_STANDARD.encode(bytes),
        }
    }

    /// The complete histogram, in nanoseconds.
    ///
    /// # Errors
    /// If `hdr` is not valid; the text gives the reason.
    pub fn histogram(&self) -> Result<Histogram<u64>, String> {
        let bytes = BASE64_STANDARD.decode(&self.hdr).map_err(|error| error.to_string())?;
        Deserializer::new().deserialize(&mut bytes.as_slice()).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_histogram_survives_and_can_be_merged() {
        let mut latencies = Latencies::new();
        for micros in 1..=1000 {
            latencies.record(Duration::from_micros(micros));
        }
        let times = Times::new(&latencies);
        assert_eq!((times.count, times.min), (1000, 1000));
        for (time, micros) in [(times.p50, 500), (times.p99, 990), (times.max, 1000)] {
            let off = time.abs_diff(micros * 1000);
            assert!(off < 1000, "{time} ns is not {micros} us to three digits");
        }
        let mut histogram = times.histogram().unwrap();
        histogram.add(times.histogram().unwrap()).unwrap();
        assert_eq!(histogram.len(), 2000);
        assert_eq!(histogram.value_at_percentile(50.0), times.p50);
    }

    #[test]
    fn no_times_are_all_zero() {
        let times = Times::new(&Latencies::new());
        assert_eq!((times.count, times.min, times.p9999, times.max), (0, 0, 0, 0));
        assert!(times.histogram().unwrap().is_empty());
    }

    #[test]
    fn an_invalid_histogram_is_rejected() {
        let times = |hdr: &str| Times { hdr: hdr.into(), ..Times::default() };
        assert!(times("not base64!").histogram().is_err());
        assert!(times("AAAA").histogram().is_err());
        assert!(times("").histogram().is_err());
    }
}
