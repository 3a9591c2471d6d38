//! The metrics that a writer publishes, as OpenMetrics text.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// The last line of the text.
const END: &str = "# EOF\n";

/// Metrics by name and labels.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Metrics(BTreeMap<String, f64>);

impl Metrics {
    /// Parses the text; `None` if it is not complete.
    fn parse(text: &str) -> Option<Self> {
        let body = text.strip_suffix(END)?;
        let samples = body.lines().filter(|line| !line.starts_with('#'));
        let sample = |line: &str| {
            let (name, value) = line.rsplit_once(' ')?;
            Some((name.strip_prefix("trommel_")?.to_owned(), value.parse().ok()?))
        };
        samples.map(sample).collect::<Option<_>>().map(Self)
    }

    /// The value of a metric, with its labels as they are written.
    pub(super) fn get(&self, sample: &str) -> Option<f64> {
        self.0.get(sample).copied()
    }

    /// The upper bounds of a histogram's buckets, in seconds, and the numbers up to them.
    pub(super) fn buckets(&self, operation: &str) -> Vec<(f64, f64)> {
        let start = format!("operation_seconds_bucket{{operation=\"{operation}\",le=\"");
        let bucket = |(sample, count): (&String, &f64)| {
            let bound = sample.strip_prefix(&start)?.strip_suffix("\"}")?;
            Some((bound.replace('+', "").parse().ok()?, *count))
        };
        let mut buckets: Vec<(f64, f64)> = self.0.iter().filter_map(bucket).collect();
        buckets.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        buckets
    }
}

/// Metrics, and how old they are.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Published {
    pub(super) metrics: Metrics,
    pub(super) age: Duration,
    /// When the writer published them.
    pub(super) written: SystemTime,
}

impl Published {
    /// Those of now.
    pub(super) fn now(text: &str) -> Self {
        let metrics = Metrics::parse(text).unwrap_or_default();
        Self { metrics, age: Duration::ZERO, written: SystemTime::now() }
    }

    /// Reads the metrics of the store with this number, or says why there are none.
    pub(super) fn read(file: &Path, store: u64) -> Result<Self, String> {
        let text = fs::read_to_string(file).map_err(|error| error.to_string())?;
        let metrics = Metrics::parse(&text).ok_or("the file does not hold metrics of a store")?;
        if metrics.get(&format!("store_info{{id=\"{store:016x}\"}}")).is_none() {
            return Err("those of another store".into());
        }
        let written = fs::metadata(file).and_then(|file| file.modified());
        let written = written.map_err(|error| error.to_string())?;
        let age = SystemTime::now().duration_since(written).unwrap_or_default();
        Ok(Self { metrics, age, written })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_complete_texts_are_metrics() {
        let text = "# TYPE trommel_gets counter\ntrommel_gets_total 7\ntrommel_x{a=\"b c\"} 1e-3\n";
        assert_eq!(Metrics::parse(text), None);
        let metrics = Metrics::parse(&format!("{text}# EOF\n")).unwrap();
        assert_eq!(
            (metrics.get("gets_total"), metrics.get("x{a=\"b c\"}")),
            (Some(7.0), Some(0.001))
        );
        for wrong in ["other_gets 1\n# EOF\n", "trommel_gets\n# EOF\n", "trommel_gets x\n# EOF\n"] {
            assert_eq!(Metrics::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn buckets_are_in_the_order_of_their_bounds() {
        let line = |bound: &str, count: u64| {
            format!(
                "trommel_operation_seconds_bucket{{operation=\"get\",le=\"{bound}\"}} {count}\n"
            )
        };
        let text = line("+Inf", 3) + &line("0.0001", 1) + &line("0.00002", 0) + END;
        let buckets = Metrics::parse(&text).unwrap().buckets("get");
        assert_eq!(buckets, [(0.00002, 0.0), (0.0001, 1.0), (f64::INFINITY, 3.0)]);
    }
}
