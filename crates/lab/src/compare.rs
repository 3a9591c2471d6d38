//! Compares two sets of records: which figures became faster or slower, and whether chance explains
//! it.
//!
//! 1. [`unequal`] lists the differences that make a comparison unfair: settings, machine or build.
//!    The caller decides whether to continue.
//! 2. The samples are runs: where a side has several, each run is one sample, the median of its
//!    repeats. Repeats share a process and a tree, so they hide the variation between runs. Only if
//!    both sides have a single run are the repeats the samples, and the change says so.
//! 3. A workload that occurs several times in a run counts as several, numbered by occurrence.
//! 4. For throughput, the mean and each percentile of latency, [`compare`] returns both geometric
//!    means, the change between them, its 95% interval, and the probability that chance alone
//!    explains it; the last two from Welch's test on the logarithms. With one sample on a side
//!    nothing is known about chance.
//! 5. [`absent`] lists the workloads that could not be compared, [`failures`] the figures that
//!    became too slow.
//!
//! Called by `trommel compare` and by the comparison with other stores.

use std::collections::{BTreeMap, BTreeSet};

use indexmap::IndexMap;
use trommel_harness::record::{Record, plain, turns};

use crate::statistics::{holm, welch};

/// The p-value from which on chance explains a change.
const SIGNIFICANT: f64 = 0.05;

/// Fields that may differ because they are the subject of the comparison.
const MAY_BE_MEANT: [&str; 2] = ["environment.rustc", "environment.kernel"];

/// A figure of a workload to compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Metric {
    Throughput,
    Mean,
    P50,
    P90,
    P99,
    P999,
    Max,
}

impl Metric {
    /// All metrics, in display order.
    pub const ALL: [Self; 7] =
        [Self::Throughput, Self::Mean, Self::P50, Self::P90, Self::P99, Self::P999, Self::Max];

    /// The name on the command line and in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Throughput => "throughput",
            Self::Mean => "mean",
            Self::P50 => "p50",
            Self::P90 => "p90",
            Self::P99 => "p99",
            Self::P999 => "p99.9",
            Self::Max => "max",
        }
    }

    /// The unit of the values.
    pub fn unit(self) -> &'static str {
        if self == Self::Throughput { "ops/s" } else { "us" }
    }

    /// The metric's value, if the record has one above zero.
    fn of(self, record: &Record) -> Option<f64> {
        let times = record.results.latency_ns.as_ref();
        let micros = |nanos: f64| nanos / 1000.0;
        let value = match self {
            Self::Throughput => record.operations_per_second(),
            Self::Mean => micros(times?.mean),
            Self::P50 => micros(times?.p50 as f64),
            Self::P90 => micros(times?.p90 as f64),
            Self::P99 => micros(times?.p99 as f64),
            Self::P999 => micros(times?.p999 as f64),
            Self::Max => micros(times?.max as f64),
        };
        (value > 0.0 && value.is_finite()).then_some(value)
    }
}

/// The assessment of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Better, and chance does not explain it.
    Faster,
    /// Worse, and chance does not explain it.
    Slower,
    /// Chance explains it.
    Same,
    /// One side has a single sample, so nothing is known about chance.
    Unknown,
}

impl Verdict {
    /// The verdict in one word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Faster => "faster",
            Self::Slower => "slower",
            Self::Same => "same",
            Self::Unknown => "unknown",
        }
    }
}

/// How one metric of one workload changed.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// The store, where the files hold several.
    pub store: Option<String>,
    /// The workload, with a number from its second occurrence in a run on: `readrandom#2`.
    pub workload: String,
    /// The metric compared.
    pub metric: Metric,
    /// Geometric mean of the base.
    pub base: f64,
    /// Geometric mean of the new records.
    pub new: f64,
    /// Number of samples on each side.
    pub samples: (usize, usize),
    /// Whether the samples are repeats within one run per side, instead of runs.
    pub within_run: bool,
    /// New over base, minus one: 0.05 is 5% more.
    pub change: f64,
    /// 95% interval of `change`.
    pub interval: Option<(f64, f64)>,
    /// Probability that chance alone makes such a difference.
    pub p: Option<f64>,
    /// The assessment.
    pub verdict: Verdict,
}

impl Change {
    /// How much worse the metric became, in whichever direction is worse: 0.05 is 5% less
    /// throughput, or 5% more time. Negative if it became better.
    pub fn slowdown(&self) -> f64 {
        if self.metric == Metric::Throughput { -self.change } else { self.change }
    }

    /// Whether the metric became worse by more than `threshold`: the whole interval, if there is
    /// one, is beyond it, and `p` (adjusted for multiple tests) rules out chance.
    fn fails(&self, threshold: f64, p: Option<f64>) -> bool {
        let least = match self.interval {
            Some((_, high)) if self.metric == Metric::Throughput => -high,
            Some((low, _)) => low,
            None => self.slowdown(),
        };
        least > threshold && p.is_none_or(|p| p < SIGNIFICANT)
    }
}

/// The changes of `watched` metrics that are worse by more than `threshold`. All watched changes
/// form one family of tests (Holm). Without an interval the change itself decides.
pub fn failures<'a>(changes: &'a [Change], watched: &[Metric], threshold: f64) -> Vec<&'a Change> {
    let watched = changes.iter().filter(|change| watched.contains(&change.metric));
    let (tested, untested): (Vec<&Change>, Vec<_>) = watched.partition(|c| c.p.is_some());
    let raised = holm(&tested.iter().filter_map(|change| change.p).collect::<Vec<_>>());
    let tested = tested.into_iter().zip(raised.into_iter().map(Some));
    let all = tested.chain(untested.into_iter().map(|change| (change, None)));
    all.filter(|(change, p)| change.fails(threshold, *p)).map(|(change, _)| change).collect()
}

/// Why a workload could not be compared in full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Absence {
    /// In the base, but not in the new records.
    Missing,
    /// Interrupted, or without operations, at least once in the new records.
    Interrupted,
    /// The same, in the base.
    BaseInterrupted,
    /// Only in the new records.
    OnlyNew,
}

impl Absence {
    /// Whether the change under test may be the cause, so that a check must fail.
    pub fn fails(self) -> bool {
        matches!(self, Self::Missing | Self::Interrupted)
    }

    /// The reason in words.
    pub fn name(self) -> &'static str {
        match self {
            Self::Missing => "missing in the new records",
            Self::Interrupted => "interrupted in the new records",
            Self::BaseInterrupted => "interrupted in the base",
            Self::OnlyNew => "only in the new records",
        }
    }
}

/// Workloads, named with store and occurrence as in [`Change`], that could not be compared in full.
pub fn absent(base: &[Record], new: &[Record]) -> Vec<(String, Absence)> {
    let (base, new) = (groups(base, new), groups(new, base));
    let broken = |records: &[&Record]| !records.iter().all(|record| is_whole(record));
    let mut found = Vec::new();
    for (key, records) in &base {
        match new.get(key) {
            None => found.push((title(key), Absence::Missing)),
            Some(new) if broken(new) => found.push((title(key), Absence::Interrupted)),
            Some(_) if broken(records) => found.push((title(key), Absence::BaseInterrupted)),
            Some(_) => {}
        }
    }
    let only_new = new.keys().filter(|key| !base.contains_key(*key));
    found.extend(only_new.map(|key| (title(key), Absence::OnlyNew)));
    found
}

/// The display name of a workload.
fn title(key: &Key) -> String {
    let store = key.0.as_ref().map_or(String::new(), |store| format!("{store} "));
    store + &with_turn(key)
}

fn with_turn((_, workload, turn): &Key) -> String {
    if *turn > 1 { format!("{workload}#{turn}") } else { workload.clone() }
}

/// A difference that makes a comparison unfair.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Unequal {
    /// The name of a setting, or of a field of the record.
    pub what: String,
    /// All its values in the base.
    pub base: String,
    /// All its values in the new records.
    pub new: String,
    /// Whether the difference may be the subject of the comparison (a compiler, a kernel), so that
    /// a warning is enough.
    pub may_be_meant: bool,
}

/// Differences between the two sets of records, or within one of them.
pub fn unequal(base: &[Record], new: &[Record]) -> Vec<Unequal> {
    let (base, new) = (groups(base, new), groups(new, base));
    let mut found = Vec::new();
    for (key, base) in &base {
        let Some(new) = new.get(key) else { continue };
        let (base, new) = (values(base), values(new));
        let names = base.keys().chain(new.keys().filter(|name| !base.contains_key(*name)));
        for name in names {
            let text = |side: &IndexMap<String, Vec<String>>| match side.get(name) {
                Some(values) => values.join(" and "),
                None => "not set".into(),
            };
            let (base_text, new_text) = (text(&base), text(&new));
            let is_one = |side: &IndexMap<String, Vec<String>>| {
                side.get(name).is_none_or(|values| values.len() == 1)
            };
            if base_text != new_text || !is_one(&base) || !is_one(&new) {
                let differs = Unequal {
                    what: name.clone(),
                    base: base_text,
                    new: new_text,
                    may_be_meant: MAY_BE_MEANT.contains(&name.as_str()),
                };
                if !found.contains(&differs) {
                    found.push(differs);
                }
            }
        }
    }
    found
}

/// Each setting, and every other field that must be equal, with all its values in `records`.
fn values(records: &[&Record]) -> IndexMap<String, Vec<String>> {
    let mut values: IndexMap<String, Vec<String>> = IndexMap::new();
    let mut add = |name: &str, value: String| {
        let values = values.entry(name.to_owned()).or_default();
        if !values.contains(&value) {
            values.push(value);
        }
    };
    for record in records {
        for (name, value) in &record.settings {
            add(name, plain(value));
        }
        add("store.name", record.store.name.clone());
        add("threads", record.threads.to_string());
        let here = &record.environment;
        let or_unknown = |text: &Option<String>| text.clone().unwrap_or("not known".into());
        add("environment.cpu", or_unknown(&here.cpu));
        add("environment.cpu_flags", here.cpu_flags.join(" "));
        add("environment.cores", here.cores.to_string());
        let memory = here.memory_bytes.map(|bytes| bytes.to_string());
        add("environment.memory_bytes", or_unknown(&memory));
        add("environment.file_system", or_unknown(&here.storage.file_system));
        add("environment.device", or_unknown(&here.storage.device));
        add("environment.profile", here.build.profile.clone());
        add("environment.debug_assertions", here.build.debug_assertions.to_string());
        add(MAY_BE_MEANT[0], here.build.rustc.clone());
        add(MAY_BE_MEANT[1], or_unknown(&here.kernel));
    }
    values
}

/// A workload of a store, and its occurrence in a run.
type Key = (Option<String>, String, u32);

/// Groups records by workload. Stores are distinguished if either side has several.
fn groups<'a>(records: &'a [Record], others: &[Record]) -> BTreeMap<Key, Vec<&'a Record>> {
    let has_several = |records: &[Record]| {
        records.iter().any(|record| record.store.name != records[0].store.name)
    };
    let by_store = has_several(records) || has_several(others);
    let mut groups: BTreeMap<Key, Vec<&Record>> = BTreeMap::new();
    for (record, turn) in records.iter().zip(turns(records)) {
        let store = by_store.then(|| record.store.name.clone());
        groups.entry((store, record.workload.clone(), turn)).or_default().push(record);
    }
    groups
}

/// The changes of all workloads that both sides have, in the order of the base. Records of
/// workloads that were interrupted, or did nothing, are left out. Empty if the sides share no
/// workload.
pub fn compare(base: &[Record], new: &[Record]) -> Vec<Change> {
    let (base_groups, new_groups) = (groups(base, new), groups(new, base));
    let mut order: Vec<(&Key, &Vec<&Record>)> = base_groups.iter().collect();
    let place = |records: &[&Record]| {
        base.iter().position(|record| std::ptr::eq(record, records[0])).unwrap_or_default()
    };
    order.sort_by_key(|(_, records)| place(records));
    let mut changes = Vec::new();
    for (key, base) in order {
        let Some(new) = new_groups.get(key) else { continue };
        let within_run = runs(base) <= 1 && runs(new) <= 1;
        for metric in Metric::ALL {
            let samples = |records| samples(metric, records, within_run);
            let change = change(key, metric, &samples(base), &samples(new));
            changes.extend(change.map(|change| Change { within_run, ..change }));
        }
    }
    changes
}

/// Whether the workload ran to its end.
fn is_whole(record: &Record) -> bool {
    !record.results.interrupted && record.results.operations > 0
}

/// Number of runs among complete records.
fn runs(records: &[&Record]) -> usize {
    let whole = records.iter().filter(|record| is_whole(record));
    whole.map(|record| record.run.as_str()).collect::<BTreeSet<_>>().len()
}

/// The values of complete records, or the median of each run.
fn samples(metric: Metric, records: &[&Record], within_run: bool) -> Vec<f64> {
    let mut by_run: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for record in records.iter().filter(|record| is_whole(record)) {
        if let Some(value) = metric.of(record) {
            by_run.entry(&record.run).or_default().push(value);
        }
    }
    if within_run {
        return by_run.into_values().flatten().collect();
    }
    by_run.into_values().map(median).collect()
}

/// The median; `values` must not be empty.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 {
        values[middle]
    } else {
        f64::midpoint(values[middle - 1], values[middle])
    }
}

/// The change between two samples; none if either is empty.
fn change(key: &Key, metric: Metric, base: &[f64], new: &[f64]) -> Option<Change> {
    if base.is_empty() || new.is_empty() {
        return None;
    }
    let logs = |values: &[f64]| values.iter().map(|value| value.ln()).collect::<Vec<_>>();
    let mean = |values: &[f64]| match *values {
        [one] => one,
        _ => (logs(values).iter().sum::<f64>() / values.len() as f64).exp(),
    };
    let welch = welch(&logs(base), &logs(new));
    // Equal values without any spread are no change; for unequal ones the spread is unknown.
    let all_equal = base.len().min(new.len()) > 1 && base.iter().chain(new).all(|v| *v == base[0]);
    let p = welch.map(|welch| welch.p).or(all_equal.then_some(1.0));
    let mut change = Change {
        store: key.0.clone(),
        workload: with_turn(key),
        metric,
        base: mean(base),
        new: mean(new),
        samples: (base.len(), new.len()),
        within_run: false,
        change: mean(new) / mean(base) - 1.0,
        interval: welch.map(|welch| (welch.interval.0.exp_m1(), welch.interval.1.exp_m1())),
        p,
        verdict: Verdict::Unknown,
    };
    change.verdict = match p {
        None => Verdict::Unknown,
        Some(p) if p >= SIGNIFICANT => Verdict::Same,
        Some(_) if change.slowdown() > 0.0 => Verdict::Slower,
        Some(_) => Verdict::Faster,
    };
    Some(change)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::full;

    /// A record of `operations` operations per second.
    fn record(workload: &str, repeat: u32, operations: u64) -> Record {
        let mut record = full();
        record.workload = workload.into();
        record.repeat = repeat;
        (record.results.operations, record.results.wall_seconds) = (operations, 1.0);
        record
    }

    fn repeats(workload: &str, speeds: &[u64]) -> Vec<Record> {
        (1..).zip(speeds).map(|(repeat, speed)| record(workload, repeat, *speed)).collect()
    }

    fn throughput(base: &[u64], new: &[u64]) -> Change {
        let changes = compare(&repeats("readrandom", base), &repeats("readrandom", new));
        assert_eq!(changes.len(), Metric::ALL.len());
        changes.into_iter().find(|change| change.metric == Metric::Throughput).unwrap()
    }

    #[test]
    fn a_clear_slowdown_is_one_and_noise_is_none() {
        let base = [1000, 1010, 990, 1005, 995];
        let slower = throughput(&base, &[900, 910, 890, 905, 895]);
        assert_eq!((slower.verdict, slower.samples), (Verdict::Slower, (5, 5)));
        assert!(slower.p.unwrap() < 1e-5 && slower.within_run, "{slower:?}");
        assert!((slower.slowdown() - 0.1).abs() < 0.001, "{slower:?}");
        let fails = |change: &Change, threshold| {
            let changes = [change.clone()];
            !failures(&changes, &[Metric::Throughput], threshold).is_empty()
        };
        assert!(fails(&slower, 0.05) && !fails(&slower, 0.15));
        assert!(!fails(&slower, 0.095), "its interval reaches across the threshold");
        let (low, high) = slower.interval.unwrap();
        assert!(low < -0.1 && -0.1 < high && high < -0.08, "{low} {high}");

        let faster = throughput(&[900, 910, 890, 905, 895], &base);
        assert!(faster.verdict == Verdict::Faster && !fails(&faster, 0.0), "{faster:?}");
        let noise = throughput(&base, &[700, 1200, 900, 1300, 800]);
        assert_eq!(noise.verdict, Verdict::Same);
        assert!(!fails(&noise, 0.0), "{noise:?}");
    }

    #[test]
    fn three_repeats_are_distinguished_by_their_spread() {
        let slower = throughput(&[1000, 1010, 990], &[800, 810, 790]);
        assert_eq!(slower.verdict, Verdict::Slower);
        assert_eq!(throughput(&[1000, 1400, 600], &[800, 1200, 400]).verdict, Verdict::Same);
    }

    #[test]
    fn without_repeats_nothing_is_known_and_any_slowdown_fails() {
        let change = throughput(&[1000], &[900]);
        assert_eq!((change.verdict, change.p, change.interval), (Verdict::Unknown, None, None));
        assert!(change.fails(0.05, None) && !change.fails(0.11, None));
        assert!(!throughput(&[1000], &[1100]).fails(0.05, None));
    }

    #[test]
    fn more_time_is_slower() {
        let scaled = |factor: u64| -> Vec<Record> {
            let mut records = repeats("readrandom", &[1000; 5]);
            for (nth, record) in (0..).zip(&mut records) {
                record.results.latency_ns.as_mut().unwrap().p99 = factor * 10_000 + nth;
            }
            records
        };
        let changes = compare(&scaled(10), &scaled(12));
        let p99 = changes.iter().find(|change| change.metric == Metric::P99).unwrap();
        assert_eq!(
            (p99.verdict, p99.base.round(), p99.new.round()),
            (Verdict::Slower, 100.0, 120.0)
        );
        assert!((p99.slowdown() - 0.2).abs() < 0.001 && p99.fails(0.1, p99.p));
        let speed = changes.iter().find(|change| change.metric == Metric::Throughput).unwrap();
        assert_eq!((speed.verdict, speed.p), (Verdict::Same, Some(1.0)));
    }

    #[test]
    fn turns_of_a_workload_are_compared_each_with_its_like() {
        let run = |first: u64, second: u64| {
            let mut run = repeats("readrandom", &[first, first + 1]);
            run.push(record("compact", 1, 7));
            run.extend(repeats("readrandom", &[second, second + 1]));
            run
        };
        let mut other = run(1000, 3000);
        other.push(record("readseq", 1, 5));
        let changes = compare(&run(1000, 2000), &other);
        let speeds: Vec<_> = changes
            .iter()
            .filter(|change| change.metric == Metric::Throughput)
            .map(|change| (&*change.workload, change.new.round(), change.samples))
            .collect();
        assert_eq!(
            speeds,
            [
                ("readrandom", 1000.0, (2, 2)),
                ("compact", 7.0, (1, 1)),
                ("readrandom#2", 3000.0, (2, 2))
            ]
        );
    }

    #[test]
    fn several_runs_and_stores_in_a_file_are_kept_apart() {
        let mut runs = repeats("readrandom", &[10, 20]);
        runs[1].repeat = 1;
        runs[1].run = "another".into();
        let changes = compare(&runs, &runs);
        assert_eq!(changes[0].samples, (2, 2), "another run is another sample");

        let mut stores = repeats("readrandom", &[10, 20]);
        stores[1].repeat = 1;
        stores[1].store.name = "rocksdb".into();
        let changes = compare(&stores, &stores);
        assert_eq!(changes[0].store.as_deref(), Some("trommel"));
        assert_eq!((changes[0].samples, changes[0].new), ((1, 1), 10.0));
    }

    #[test]
    fn interrupted_and_empty_workloads_are_left_out() {
        let mut base = repeats("readrandom", &[1000, 0, 5]);
        base[2].results.interrupted = true;
        let changes = compare(&base, &repeats("readrandom", &[1000]));
        assert_eq!(changes[0].samples, (1, 1));
        assert_eq!(compare(&base, &repeats("fillseq", &[1])), []);
    }

    /// A run of three repeats with about `speed` operations per second each.
    fn run_of(id: &str, speed: u64) -> Vec<Record> {
        let mut records = repeats("readrandom", &[speed, speed + 1, speed + 2]);
        records.iter_mut().for_each(|record| record.run = id.into());
        records
    }

    #[test]
    fn runs_that_differ_among_themselves_show_no_change() {
        let side = |name: &str, speeds: [u64; 3]| {
            let runs = (0..).zip(speeds);
            runs.flat_map(|(nth, speed)| run_of(&format!("{name}{nth}"), speed)).collect::<Vec<_>>()
        };
        let (base, new) = (side("a", [1000, 1400, 900]), side("b", [950, 800, 1300]));
        let change = compare(&base, &new).remove(0);
        assert_eq!((change.samples, change.within_run), ((3, 3), false), "medians of runs");
        assert_eq!(change.verdict, Verdict::Same);
        let change = compare(&base[..3], &new[..3]).remove(0);
        assert_eq!((change.samples, change.within_run), ((3, 3), true));
        assert_eq!(change.verdict, Verdict::Slower, "as repeats of one run see it");
        let change = compare(&base, &new[..3]).remove(0);
        assert_eq!((change.samples, change.verdict), ((3, 1), Verdict::Unknown));
    }

    #[test]
    fn absent_workloads_are_listed() {
        let mut base = vec![record("fillrandom", 1, 5), record("readrandom", 1, 5)];
        let mut new = vec![record("fillrandom", 1, 5), record("readseq", 1, 5)];
        assert_eq!(absent(&base, &base), []);
        assert_eq!(
            absent(&base, &new),
            [("readrandom".to_owned(), Absence::Missing), ("readseq".to_owned(), Absence::OnlyNew)]
        );
        new[1] = record("readrandom", 1, 5);
        new[1].results.interrupted = true;
        assert_eq!(absent(&base, &new), [("readrandom".to_owned(), Absence::Interrupted)]);
        std::mem::swap(&mut base, &mut new);
        assert_eq!(absent(&base, &new), [("readrandom".to_owned(), Absence::BaseInterrupted)]);
    }

    #[test]
    fn many_watched_changes_need_more_certainty() {
        let mut one = throughput(&[1000, 1010, 990], &[800, 810, 790]);
        one.p = Some(0.02);
        let alone = [one.clone()];
        assert_eq!(failures(&alone, &[Metric::Throughput], 0.05).len(), 1);
        let mut chance = one.clone();
        (chance.p, chance.interval) = (Some(0.9), Some((-0.1, 0.1)));
        let many = [one, chance.clone(), chance];
        assert_eq!(failures(&many, &[Metric::Throughput], 0.05), [] as [&Change; 0]);
    }

    #[test]
    fn unequal_settings_machines_and_builds_are_listed() {
        let base = repeats("readrandom", &[10, 20]);
        assert_eq!(unequal(&base, &base), []);
        let mut new = base.clone();
        for record in &mut new {
            record.settings.insert("num".into(), 5.into());
            record.settings.shift_remove("sync");
            record.settings.insert("level".into(), "high".into());
            record.environment.build.debug_assertions = true;
            record.environment.build.profile = "dev".into();
            record.environment.kernel = None;
            record.store.version = "0.2.0".into();
        }
        let differs = |what: &str, base: &str, new: &str| Unequal {
            what: what.into(),
            base: base.into(),
            new: new.into(),
            may_be_meant: what == "environment.kernel",
        };
        assert_eq!(
            unequal(&base, &new),
            [
                differs("num", "1000000", "5"),
                differs("sync", "false", "not set"),
                differs("environment.profile", "release", "dev"),
                differs("environment.debug_assertions", "false", "true"),
                differs("environment.kernel", "Linux 6.1.0", "not known"),
                differs("level", "not set", "high"),
            ]
        );
        new[1].settings.insert("num".into(), 1_000_000.into());
        let mixed = &unequal(&base, &new)[0];
        assert_eq!(*mixed, differs("num", "1000000", "5 and 1000000"));
        new[1].workload = "another".into();
        assert_eq!(unequal(&base, &new[1..]), [], "what is not compared need not be equal");
    }
}
