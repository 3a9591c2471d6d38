//! What `top` shows at one moment: records and lists of values, for every form of output.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::time::Instant;

use trommel::{Stats, TimedOperation};
use trommel_lab::report::live::{LiveCell, LiveTable};

use super::{Metrics, Published};
use crate::failure::Failure;
use crate::output::{OutputArgs, Value};

/// The state of a store at one moment.
pub(super) struct Watched {
    pub(super) at: Instant,
    pub(super) dir: PathBuf,
    pub(super) id: u64,
    /// Whether its writer has closed it.
    pub(super) is_closed: bool,
    /// As a follower, or the owner, sees it.
    pub(super) stats: Stats,
    /// What the writer counts, or why it is not known.
    pub(super) published: Result<Published, String>,
}

/// The state of the writer, as far as it can be known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Writer {
    /// It may be at work.
    Open,
    /// It has closed the store.
    Closed,
    /// Its next metrics are overdue: it was killed, or hangs.
    Lost,
}

impl Watched {
    fn writer(&self) -> Writer {
        match &self.published {
            _ if self.is_closed => Writer::Closed,
            Ok(published) if published.is_overdue() => Writer::Lost,
            _ => Writer::Open,
        }
    }
}

/// One part of a frame.
enum Part {
    Record(&'static str, Vec<(&'static str, Value)>),
    List(&'static str, Vec<&'static str>, Vec<Vec<Value>>),
}

/// Everything that is shown at one moment.
pub(super) struct Frame(Vec<Part>);

impl Frame {
    /// The frame of `now`, with rates since `before`; those of the writer's counters since `older`,
    /// which it published before.
    pub(super) fn of(now: &Watched, before: Option<&Watched>, older: Option<&Published>) -> Self {
        let mut parts = vec![store(now, before), levels(now)];
        if let Ok(published) = &now.published {
            parts.push(filters(&published.metrics));
            let counters = Growth::of(published, older, now.writer());
            parts.push(counters.work());
            parts.push(counters.stalls());
            parts.extend(latencies(&published.metrics));
        }
        Self(parts)
    }

    /// Writes the frame as a document.
    pub(super) fn print(&self, output: &OutputArgs, out: &mut dyn Write) -> Result<(), Failure> {
        let mut output = output.begin("top", out);
        for part in &self.0 {
            match part {
                Part::Record(name, fields) => output.record(name, fields)?,
                Part::List(name, columns, rows) => {
                    output.list(name, columns)?;
                    rows.iter().try_for_each(|row| output.row(row.clone()))?;
                }
            }
        }
        Ok(output.finish()?)
    }

    /// The frame as the tables of a page.
    pub(super) fn tables(&self) -> Vec<LiveTable> {
        let title = |name: &str| {
            let mut chars = name.replace('_', " ").chars().collect::<Vec<_>>();
            chars.iter_mut().take(1).for_each(char::make_ascii_uppercase);
            chars.into_iter().collect::<String>()
        };
        let words = |name: &&'static str| name.replace('_', " ");
        let cell = |value: &Value| LiveCell { text: value.shown(), is_number: value.is_number() };
        let named = |(name, value): &(&'static str, Value)| {
            vec![LiveCell { text: words(name), is_number: false }, cell(value)]
        };
        let table = |part: &Part| match part {
            Part::Record(name, fields) => LiveTable {
                title: title(name),
                columns: vec!["What".into(), "Value".into()],
                rows: fields.iter().map(named).collect(),
            },
            Part::List(name, columns, rows) => LiveTable {
                title: title(name),
                columns: columns.iter().map(words).collect(),
                rows: rows.iter().map(|row| row.iter().map(cell).collect()).collect(),
            },
        };
        self.0.iter().map(table).collect()
    }
}

fn store(now: &Watched, before: Option<&Watched>) -> Part {
    let writes = before.map(|before| {
        let written = now.stats.last_seqno.saturating_sub(before.stats.last_seqno);
        Value::Float(written as f64 / (now.at - before.at).as_secs_f64())
    });
    let levels = &now.stats.levels;
    let metrics = match &now.published {
        Ok(published) => {
            let writer = match now.writer() {
                Writer::Open => "",
                Writer::Closed => "the writer has closed the store: ",
                Writer::Lost => "the writer no longer publishes: ",
            };
            format!("{writer}{:.1} s old", published.age.as_secs_f64())
        }
        Err(why) => why.clone(),
    };
    Part::Record(
        "store",
        vec![
            ("directory", now.dir.to_string_lossy().as_ref().into()),
            ("id", format!("{:016x}", now.id).into()),
            ("is_closed", now.is_closed.into()),
            ("last_seqno", Value::Integer(now.stats.last_seqno)),
            ("seqnos_per_second", writes.into()),
            ("tables", Value::Count(levels.iter().map(|level| level.tables).sum())),
            ("file_bytes", Value::Size(levels.iter().map(|level| level.bytes).sum())),
            ("metrics", metrics.into()),
        ],
    )
}

fn levels(now: &Watched) -> Part {
    let columns = vec![
        "level",
        "tables",
        "file_bytes",
        "entries",
        "deletions",
        "keys",
        "filter_bits_per_key",
    ];
    let rows = now.stats.levels.iter().map(|level| {
        vec![
            Value::level(level.level),
            Value::Count(level.tables),
            Value::Size(level.bytes),
            Value::Count(level.entries),
            Value::Count(level.deletions),
            Value::Count(level.keys),
            Value::Float(level.filter_bytes as f64 * 8.0 / level.keys.max(1) as f64),
        ]
    });
    Part::List("levels", columns, rows.collect())
}

/// The filters that lookups have probed, as the writer counts them.
fn filters(metrics: &Metrics) -> Part {
    const COUNTS: [&str; 5] = [
        "filter_probes_total",
        "filter_negatives_total",
        "filter_false_positives_total",
        "filter_expected_false_positives_total",
        "filter_false_positive_keys",
    ];
    let mut sums: BTreeMap<(usize, &str), [f64; COUNTS.len()]> = BTreeMap::new();
    for (level, kind) in metrics.filters() {
        let sum = sums.entry((metrics.reported_level(level), kind)).or_default();
        for (sum, name) in sum.iter_mut().zip(COUNTS) {
            let sample = format!("{name}{{level=\"{level}\",kind=\"{kind}\"}}");
            *sum += metrics.get(&sample).unwrap_or(0.0);
        }
    }
    let row = |((level, kind), [probes, negatives, passed, expected, keys]): (_, [f64; 5])| {
        let absent = negatives + passed;
        let rate = |count: f64| Value::from((absent > 0.0).then(|| count / absent));
        vec![
            Value::level(level),
            Value::Text(kind),
            Value::Count(probes as u64),
            Value::Count(passed as u64),
            Value::Count(keys as u64),
            rate(passed),
            rate(expected),
        ]
    };
    let columns = vec![
        "level",
        "filter",
        "probes",
        "false_positives",
        "distinct_keys",
        "measured_rate",
        "expected_rate",
    ];
    let rows = sums.into_iter().map(|((level, kind), sums)| row(((level, kind.to_owned()), sums)));
    Part::List("filters", columns, rows.collect())
}

/// The writer's counters, and those that it published before.
struct Growth<'a> {
    now: &'a Metrics,
    before: Option<&'a Metrics>,
    /// From one publication to the other, by the writer's clock.
    seconds: f64,
    /// Whether the writer may still be at work, so that its gauges are current.
    is_current: bool,
}

impl<'a> Growth<'a> {
    fn of(now: &'a Published, before: Option<&'a Published>, writer: Writer) -> Self {
        // Of a writer that has ended, the last rates are not current.
        let before = before.filter(|_| writer == Writer::Open);
        let passed = before.and_then(|before| now.written.duration_since(before.written).ok());
        let seconds = passed.map_or(0.0, |passed| passed.as_secs_f64());
        // Without time between them there are no rates.
        let before = before.filter(|_| seconds > 0.0).map(|before| &before.metrics);
        Self { now: &now.metrics, before, seconds, is_current: writer == Writer::Open }
    }

    /// By how much a counter has grown; `None` after a reset.
    fn growth(&self, sample: &str) -> Option<f64> {
        let growth = self.now.get(sample)? - self.before?.get(sample)?;
        (growth >= 0.0).then_some(growth)
    }

    fn rate(&self, sample: &str) -> Value {
        self.growth(sample).map(|growth| growth / self.seconds).into()
    }

    fn byte_rate(&self, sample: &str) -> Value {
        self.growth(sample).map(|growth| Value::Size((growth / self.seconds) as u64)).into()
    }

    /// The part of `one` in itself and `other`, since the publication before.
    fn part(&self, one: &str, other: &str) -> Value {
        let part = |one: f64, other: f64| (one + other > 0.0).then(|| one / (one + other));
        let grown = self.growth(one).zip(self.growth(other));
        grown.and_then(|(one, other)| part(one, other)).into()
    }

    fn gauge(&self, sample: &str, value: impl Fn(u64) -> Value) -> Value {
        let gauge = self.now.get(sample).filter(|_| self.is_current);
        gauge.map(|gauge| value(gauge as u64)).into()
    }

    fn work(&self) -> Part {
        let memory =
            |part: &str| self.gauge(&format!("memory_bytes{{component=\"{part}\"}}"), Value::Size);
        Part::Record(
            "work",
            vec![
                ("gets_per_second", self.rate("gets_total")),
                ("writes_per_second", self.rate("writes_total")),
                ("block_reads_per_second", self.rate("block_reads_total")),
                ("cache_hit_rate", self.part("block_cache_hits_total", "block_reads_total")),
                ("wasted_reads_per_miss", self.now.get("expected_wasted_reads_per_miss").into()),
                ("running_flushes", self.gauge("running_jobs{kind=\"flush\"}", Value::Count)),
                (
                    "running_compactions",
                    self.gauge("running_jobs{kind=\"compaction\"}", Value::Count),
                ),
                ("compaction_debt", self.gauge("compaction_debt_bytes", Value::Size)),
                ("written_by_flushes_per_second", self.byte_rate("flush_bytes_total")),
                (
                    "written_by_compactions_per_second",
                    self.byte_rate("compaction_written_bytes_total"),
                ),
                ("memtables", memory("memtables")),
                ("block_cache", memory("block-cache")),
                ("filters", memory("filters")),
            ],
        )
    }

    fn stalls(&self) -> Part {
        let row = |cause: &str| {
            let of = |name: &str| self.now.get(&format!("{name}{{cause=\"{cause}\"}}"));
            let times = of("write_stalls_total").map(|times| Value::Count(times as u64));
            let seconds = format!("write_stall_seconds_total{{cause=\"{cause}\"}}");
            let share = self.growth(&seconds).map(|stalled| stalled / self.seconds);
            vec![cause.into(), times.into(), self.now.get(&seconds).into(), share.into()]
        };
        let columns = vec!["cause", "times", "seconds", "seconds_per_second"];
        Part::List("stalls", columns, ["memtables", "level-0", "debt"].map(row).into())
    }
}

/// Percentiles of the operations that were timed. Published histograms have buckets up to powers of
/// two, so these are upper bounds, at most twice as high.
fn latencies(metrics: &Metrics) -> Option<Part> {
    let row = |operation: TimedOperation| {
        let buckets = metrics.buckets(operation.name());
        let (_, all) = buckets.last().copied().filter(|(_, all)| *all > 0.0)?;
        let within = |part: f64| {
            let found = buckets.iter().find(|(_, count)| *count >= part * all);
            found.map(|(bound, _)| bound * 1e6).filter(|micros| micros.is_finite())
        };
        Some(vec![
            operation.name().into(),
            Value::Count(all as u64),
            within(0.5).into(),
            within(0.99).into(),
            within(0.999).into(),
        ])
    };
    let rows: Vec<_> = TimedOperation::ALL.into_iter().filter_map(row).collect();
    let columns =
        vec!["operation", "timed", "p50_micros_bound", "p99_micros_bound", "p999_micros_bound"];
    (!rows.is_empty()).then_some(Part::List("latencies", columns, rows))
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;

    #[test]
    fn rates_are_those_between_two_publications() {
        let at = |seconds: u64, gets: u64| {
            let text = format!("trommel_gets_total{{store=\"s\"}} {gets}\n# EOF\n");
            let written = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
            Published { written, ..Published::now(&text) }
        };
        let rate = |now: &Published, older: Option<&Published>| {
            Growth::of(now, older, Writer::Open).rate("gets_total").shown()
        };
        let (first, second) = (at(10, 1000), at(14, 3000));
        assert_eq!(rate(&second, Some(&first)), Value::Float(500.0).shown());
        let none = rate(&first, None);
        assert_ne!(none, Value::Float(0.0).shown());
        // The same, a clock that was set back, and a store that was opened again.
        for older in [&second, &at(15, 1000), &at(10, 4000)] {
            assert_eq!(rate(&second, Some(older)), none);
        }
    }

    /// Regression: the last gauges of a writer that was killed, or had closed the store, were shown
    /// as current, and the rates of its last period.
    #[test]
    fn ended_writers_show_only_counters() {
        let text = "trommel_gets_total{store=\"s\"} 7\n\
                    trommel_compaction_debt_bytes{store=\"s\"} 4096\n# EOF\n";
        let older = Published::now(text);
        let now = Published { written: older.written + Duration::from_secs(1), ..older.clone() };
        let none = Value::Null.shown();
        let shown = |writer: Writer| {
            let growth = Growth::of(&now, Some(&older), writer);
            let debt = growth.gauge("compaction_debt_bytes", Value::Size).shown();
            (debt, growth.rate("gets_total").shown())
        };
        let (debt, zero) = (Value::Size(4096).shown(), Value::Float(0.0).shown());
        assert_eq!(shown(Writer::Open), (debt, zero));
        assert_eq!(shown(Writer::Closed), (none.clone(), none.clone()));
        assert_eq!(shown(Writer::Lost), (none.clone(), none));
    }
}
