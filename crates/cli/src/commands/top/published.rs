//! The metrics that a writer publishes, as OpenMetrics text.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// The last line of the text.
const END: &str = "# EOF\n";

/// A writer is late, not lost, until this many periods and a second have passed.
const LATE_PERIODS: u32 = 3;

/// Metrics by name and labels, without the label `store`.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Metrics(BTreeMap<String, f64>);

impl Metrics {
    /// Parses the text; `None` if it is not complete.
    fn parse(text: &str) -> Option<Self> {
        let body = text.strip_suffix(END)?;
        let samples = body.lines().filter(|line| !line.starts_with('#'));
        let sample = |line: &str| {
            let (name, value) = line.rsplit_once(' ')?;
            Some((without_store(name.strip_prefix("trommel_")?)?, value.parse().ok()?))
        };
        samples.map(sample).collect::<Option<_>>().map(Self)
    }

    /// The value of a metric, with its labels as they are written; `None` if it is unknown.
    pub(super) fn get(&self, sample: &str) -> Option<f64> {
        self.0.get(sample).copied().filter(|value| !value.is_nan())
    }

    /// The levels and kinds of filters that were probed: the level by its number in the tree.
    pub(super) fn filters(&self) -> impl Iterator<Item = (usize, &str)> {
        self.0.keys().filter_map(|sample| {
            let labels =
                sample.strip_prefix("filter_probes_total{level=\"")?.strip_suffix("\"}")?;
            let (level, kind) = labels.split_once("\",kind=\"")?;
            Some((level.parse().ok()?, kind))
        })
    }

    /// The number of a level in reports, which skip the levels that hold no data.
    pub(super) fn reported_level(&self, level: usize) -> usize {
        let tables = |level: usize| self.get(&format!("level_tables{{level=\"{level}\"}}"));
        let holds_data = |other: usize| other == level || tables(other) > Some(0.0);
        (1..=level).filter(|other| holds_data(*other)).count()
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

/// A sample's name and labels without its first label, the name of the store.
fn without_store(sample: &str) -> Option<String> {
    let (name, labels) = sample.split_once("{store=\"")?;
    let mut is_escaped = false;
    let is_end = |c: char| {
        let ends = c == '"' && !is_escaped;
        is_escaped = c == '\\' && !is_escaped;
        ends
    };
    let rest = &labels[labels.find(is_end)? + 1..];
    match rest.strip_prefix(',') {
        Some(others) => Some(format!("{name}{{{others}")),
        None => (rest == "}").then(|| name.to_owned()),
    }
}

/// Metrics, and how old they are.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Published {
    pub(super) metrics: Metrics,
    pub(super) age: Duration,
    /// When the writer published them.
    pub(super) written: SystemTime,
    /// Time until it publishes the next ones, if it says so.
    pub(super) period: Option<Duration>,
}

impl Published {
    /// The metrics of this process, which are current.
    pub(super) fn now(text: &str) -> Self {
        let metrics = Metrics::parse(text).unwrap_or_default();
        Self { metrics, age: Duration::ZERO, written: SystemTime::now(), period: None }
    }

    /// Whether the writer should have published newer ones by now.
    pub(super) fn is_overdue(&self) -> bool {
        let late = |period: Duration| {
            period.saturating_mul(LATE_PERIODS).saturating_add(Duration::from_secs(1))
        };
        self.period.is_some_and(|period| self.age > late(period))
    }

    /// Reads the metrics of the store with this number; the error is why there are none.
    pub(super) fn read(file: &Path, store: u64) -> Result<Self, String> {
        let modified = || fs::metadata(file)?.modified();
        let read = || -> io::Result<(String, SystemTime)> {
            loop {
                let written = modified()?;
                let text = fs::read_to_string(file)?;
                // Otherwise the writer has replaced the file meanwhile.
                if modified()? == written {
                    return Ok((text, written));
                }
            }
        };
        let (text, written) = read().map_err(|error| error.to_string())?;
        let metrics = Metrics::parse(&text).ok_or("the file does not hold metrics of a store")?;
        if metrics.get(&format!("store_info{{id=\"{store:016x}\"}}")).is_none() {
            return Err("metrics of another store".into());
        }
        let age = SystemTime::now().duration_since(written).unwrap_or_default();
        let period = metrics.get("metrics_period_seconds");
        let period = period.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        Ok(Self { metrics, age, written, period })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_complete_texts_are_metrics() {
        let text = "# TYPE trommel_gets counter\ntrommel_gets_total{store=\"s\"} 7\n\
                    trommel_x{store=\"a\\\"} \\\\\",a=\"b c\"} 1e-3\n";
        assert_eq!(Metrics::parse(text), None);
        let unknown = Metrics::parse("trommel_x{store=\"s\"} NaN\n# EOF\n").unwrap();
        assert_eq!(unknown.get("x"), None);
        let metrics = Metrics::parse(&format!("{text}# EOF\n")).unwrap();
        assert_eq!(
            (metrics.get("gets_total"), metrics.get("x{a=\"b c\"}")),
            (Some(7.0), Some(0.001))
        );
        let wrong = [
            "other_gets{store=\"s\"} 1",
            "trommel_gets{store=\"s\"}",
            "trommel_gets{store=\"s\"} x",
            "trommel_gets 1",
        ];
        for line in wrong {
            assert_eq!(Metrics::parse(&format!("{line}\n# EOF\n")), None, "{line}");
        }
    }

    #[test]
    fn buckets_are_in_the_order_of_their_bounds() {
        let line = |bound: &str, count: u64| {
            format!(
                "trommel_operation_seconds_bucket{{store=\"s\",operation=\"get\",le=\"{bound}\"}} {count}\n"
            )
        };
        let text = line("+Inf", 3) + &line("0.0001", 1) + &line("0.00002", 0) + END;
        let buckets = Metrics::parse(&text).unwrap().buckets("get");
        assert_eq!(buckets, [(0.00002, 0.0), (0.0001, 1.0), (f64::INFINITY, 3.0)]);
    }

    /// Levels 5 and 6 hold data, and level 4 did.
    #[test]
    fn levels_are_numbered_by_those_that_hold_data() {
        let line = |sample: &str, level: usize, labels: &str, value: u64| {
            format!("trommel_{sample}{{store=\"s\",level=\"{level}\"{labels}}} {value}\n")
        };
        let probes = |level| line("filter_probes_total", level, ",kind=\"paired\"", 1);
        let mut text: String =
            (0..7).map(|it| line("level_tables", it, "", it as u64 / 5)).collect();
        text += &(probes(0) + &probes(4) + &probes(6) + END);
        let metrics = Metrics::parse(&text).unwrap();
        let levels = metrics.filters().map(|(level, kind)| (metrics.reported_level(level), kind));
        let levels: Vec<_> = levels.collect();
        assert_eq!(levels, [(0, "paired"), (1, "paired"), (2, "paired")]);
    }

    #[test]
    fn a_writer_is_lost_when_it_is_several_periods_late() {
        let text = format!("trommel_metrics_period_seconds{{store=\"s\"}} 2\n{END}");
        let at = |age: u64, period: Option<u64>| {
            let (age, period) = (Duration::from_secs(age), period.map(Duration::from_secs));
            Published { age, period, ..Published::now(&text) }.is_overdue()
        };
        assert!(!at(7, Some(2)) && at(8, Some(2)));
        assert!(!at(1000, None), "unknown");
        assert!(!at(1000, Some(u64::MAX)));
    }
}
