//! Reduces records to figures.
//!
//! 1. Records are grouped by number of keys, contender and round.
//! 2. A [`Figure`] is a number that a group may have.
//! 3. Over the rounds a figure has a median, a minimum and a maximum.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use trommel_harness::record::Record;

use crate::rows::Row;
use crate::studies::{STUDY, Study};
use crate::trial::{DISK, DISK_PEAK, FAILED, OPEN, OWN, SETTLE, WHY};

/// Name of the contender whose only figure is the floor of the machine.
pub(crate) const FLOOR: &str = "write(2)";
/// Its workload.
pub(crate) const APPEND: &str = "append";
const FILL: &str = "fillrandom";

/// A number about a store.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Figure {
    /// Heading of its column.
    pub(crate) title: &'static str,
    pub(crate) of: fn(&Group<'_>) -> Option<f64>,
}

/// Times of operations, in microseconds; less is better.
pub(crate) const TIMES: [Figure; 11] = [
    Figure { title: "fill", of: |group| group.per_operation(FILL) },
    Figure { title: "fill until idle", of: |group| group.fill_until_idle() },
    Figure { title: "read", of: |group| group.row(Row::Read) },
    Figure { title: "missing", of: |group| group.row(Row::Missing) },
    Figure { title: "multi-get", of: |group| group.row(Row::MultiGet) },
    Figure { title: "read, 2 threads", of: |group| group.row(Row::Read2) },
    Figure { title: "missing, 2 threads", of: |group| group.row(Row::Missing2) },
    Figure { title: "seek+10", of: |group| group.row(Row::Seek) },
    Figure { title: "seek+100", of: |group| group.row(Row::LongSeek) },
    Figure { title: "scan", of: |group| group.row(Row::Scan) },
    Figure { title: "reverse", of: |group| group.row(Row::Reverse) },
];

/// Other figures; less is better for these too.
pub(crate) const SIZES: [Figure; 9] = [
    Figure { title: "disk, MiB", of: |group| Some(mebibytes(group.find(DISK)?.bytes)) },
    Figure {
        title: "disk at most, MiB",
        of: |group| Some(mebibytes(group.find(DISK_PEAK)?.bytes)),
    },
    Figure { title: "write amplification", of: |group| group.write_amplification() },
    Figure { title: "runs", of: |group| group.runs() },
    Figure { title: "open, ms", of: |group| Some(group.find(OPEN)?.results.wall_seconds * 1e3) },
    Figure { title: "peak in fill, MiB", of: |group| group.peak(true) },
    Figure { title: "own after fill, MiB", of: |group| group.own_after_fill() },
    Figure { title: "own after reads, MiB", of: |group| group.own_memory() },
    Figure { title: "peak in reads, MiB", of: |group| group.peak(false) },
];

fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / 1_048_576.0
}

/// The records of a contender with this many keys in a round.
pub(crate) struct Group<'a> {
    records: Vec<&'a Record>,
}

impl Group<'_> {
    pub(crate) fn find(&self, workload: &str) -> Option<&Record> {
        self.records.iter().find(|record| record.workload == workload).copied()
    }

    /// Wall time per operation, over the operations of all threads.
    pub(crate) fn per_operation(&self, workload: &str) -> Option<f64> {
        let record = self.find(workload)?;
        Some(record.results.wall_seconds * 1e6 / record.results.operations.max(1) as f64)
    }

    fn row(&self, row: Row) -> Option<f64> {
        self.per_operation(row.title())
    }

    fn fill_until_idle(&self) -> Option<f64> {
        let fill = self.find(FILL)?;
        let seconds = fill.results.wall_seconds + self.find(SETTLE)?.results.wall_seconds;
        Some(seconds * 1e6 / fill.results.operations.max(1) as f64)
    }

    fn write_amplification(&self) -> Option<f64> {
        self.find(SETTLE)?.state.amplification.as_ref()?.write
    }

    /// Sorted runs that a lookup may have to query: the tables of level 0, and each level below.
    fn runs(&self) -> Option<f64> {
        let levels = self.find(SETTLE)?.state.levels.as_ref()?;
        let runs = levels.iter().map(|level| if level.level == 0 { level.tables } else { 1 });
        Some(runs.sum::<u64>() as f64)
    }

    /// Peak resident memory during the fill, or, if not `of_fill`, during the reads, in MiB.
    fn peak(&self, of_fill: bool) -> Option<f64> {
        let records = self.records.iter().filter(|record| (record.workload == FILL) == of_fill);
        let peaks = records.filter_map(|record| Some(record.state.memory.as_ref()?.values().sum()));
        peaks.max().map(mebibytes)
    }

    /// Anonymous memory of the process after the last write, in MiB.
    fn own_after_fill(&self) -> Option<f64> {
        let own = *self.find(FILL)?.state.memory.as_ref()?.get(OWN)?;
        Some(mebibytes(own))
    }

    /// Anonymous memory of the process after the last row of reads, in MiB.
    fn own_memory(&self) -> Option<f64> {
        let reads = self.records.iter().filter(|record| record.workload != FILL);
        let mut own = reads.filter_map(|record| record.state.memory.as_ref()?.get(OWN));
        let last = own.next_back();
        last.copied().map(mebibytes)
    }
}

/// A figure over the rounds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) least: f64,
    pub(crate) greatest: f64,
    pub(crate) rounds: usize,
}

impl Spread {
    fn of(mut values: Vec<f64>) -> Option<Self> {
        values.sort_by(f64::total_cmp);
        let (least, greatest) = (*values.first()?, *values.last()?);
        let (low, high) = (values[(values.len() - 1) / 2], values[values.len() / 2]);
        Some(Self { median: (low + high) / 2.0, least, greatest, rounds: values.len() })
    }
}

/// All measurements.
pub(crate) struct Results {
    records: Vec<Record>,
}

impl Results {
    pub(crate) fn new(records: Vec<Record>) -> Self {
        Self { records }
    }

    /// The records without a study, and those of each study with any.
    pub(crate) fn split(records: Vec<Record>) -> (Self, Vec<(Study, Self)>) {
        let (main, mut rest): (Vec<_>, Vec<_>) =
            records.into_iter().partition(|record| !record.settings.contains_key(STUDY));
        let mut studies = Vec::new();
        for study in Study::ALL {
            let is_its = |record: &Record| {
                record.settings.get(STUDY).and_then(Value::as_str) == Some(study.name())
            };
            let (its, others) = rest.into_iter().partition(is_its);
            rest = others;
            let its = Self::new(its);
            if !its.records.is_empty() {
                studies.push((study, its));
            }
        }
        (Self::new(main), studies)
    }

    /// The results of the contenders whose names are selected.
    pub(crate) fn only(&self, is_wanted: impl Fn(&str) -> bool) -> Self {
        let records = self.records.iter().filter(|record| is_wanted(&record.store.name));
        Self { records: records.cloned().collect() }
    }

    pub(crate) fn records(&self) -> &[Record] {
        &self.records
    }

    /// The numbers of keys, in the order in which they were measured.
    pub(crate) fn nums(&self) -> Vec<u64> {
        let mut nums = Vec::new();
        for num in self.records.iter().filter_map(num_of) {
            if !nums.contains(&num) {
                nums.push(num);
            }
        }
        nums
    }

    /// Number of rounds of `num` keys that were started.
    pub(crate) fn rounds(&self, num: u64) -> usize {
        let rounds = self.of_num(num).map(|record| record.repeat).max();
        rounds.map_or(0, |rounds| usize::try_from(rounds).unwrap_or(usize::MAX))
    }

    /// The contenders of `num` keys, Trommel's first, then in the order of [`crate::stores::ALL`].
    pub(crate) fn names(&self, num: u64) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for record in self.of_num(num).filter(|record| record.store.name != FLOOR) {
            if !names.contains(&record.store.name.as_str()) {
                names.push(&record.store.name);
            }
        }
        let known = |name: &str| crate::stores::ALL.iter().position(|other| other.name == name);
        names.sort_by_key(|name| (!name.starts_with("trommel"), known(name)));
        names
    }

    /// The contenders of any number of keys, as [`Results::names`].
    pub(crate) fn all_names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for name in self.nums().into_iter().flat_map(|num| self.names(num)) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }

    /// The contenders of other numbers of keys that were not measured with `num`.
    pub(crate) fn absent(&self, num: u64) -> Vec<&str> {
        let here = self.names(num);
        let mut names = self.all_names();
        names.retain(|name| !here.contains(name));
        names
    }

    /// The number of rounds and of runs, and the program's versions: only within one run do all
    /// stores take turns.
    pub(crate) fn rounds_and_runs(&self, num: u64) -> String {
        let ids: BTreeSet<_> = self.of_num(num).map(|record| record.run.as_str()).collect();
        let runs = match ids.len() {
            1 => "one run".to_owned(),
            many => format!("{many} runs"),
        };
        let commits = self.of_num(num).map(|record| record.environment.build.commit.as_deref());
        let commits: BTreeSet<_> =
            commits.map(|it| it.unwrap_or("a commit not recorded")).collect();
        let commits = commits.into_iter().collect::<Vec<_>>().join(", ");
        format!("Rounds: {}, of {runs}, with the program of {commits}.", self.rounds(num))
    }

    /// A figure of a contender over the rounds.
    pub(crate) fn figure(&self, num: u64, name: &str, figure: &Figure) -> Option<Spread> {
        let groups = self.groups(num, name);
        Spread::of(groups.iter().filter_map(|group| (figure.of)(group)).collect())
    }

    /// The ratio of the other contender's figure to the first one's, in each round that has both.
    pub(crate) fn ratios(&self, num: u64, (one, other): (&str, &str), figure: &Figure) -> Vec<f64> {
        let of_rounds = |name: &str| {
            let rounds = self.groups_by_round(num, name).into_iter();
            rounds.filter_map(|(round, group)| Some((round, (figure.of)(&group)?)))
        };
        let others: BTreeMap<u64, f64> = of_rounds(other).collect();
        of_rounds(one)
            .filter_map(|(round, value)| Some(others.get(&round)? / value.max(f64::MIN_POSITIVE)))
            .collect()
    }

    /// Microseconds of an append on this machine.
    pub(crate) fn floor(&self, num: u64) -> Option<Spread> {
        let figure = Figure { title: "", of: |group| group.per_operation(APPEND) };
        self.figure(num, FLOOR, &figure)
    }

    /// The reasons of contenders that did not finish, by round.
    pub(crate) fn failures(&self, num: u64) -> Vec<(&str, u64, String)> {
        let failed = self.of_num(num).filter(|record| record.workload == FAILED);
        failed
            .map(|record| {
                let why = record.settings.get(WHY).and_then(|why| why.as_str());
                (&*record.store.name, round_of(record), why.unwrap_or_default().to_owned())
            })
            .collect()
    }

    /// Differences between stores with the same input: keys found and entries scanned.
    pub(crate) fn disagreements(&self, num: u64) -> Vec<String> {
        let mut seen: Vec<(&Record, u64)> = Vec::new();
        let mut found = Vec::new();
        for record in self.of_num(num) {
            let is_scan = [Row::Scan.title(), Row::Reverse.title()].contains(&&*record.workload);
            let Some(answer) = record.results.found.or(is_scan.then_some(record.results.operations)) else {
                continue;
            };
            let same = |(other, _): &&(&Record, u64)| other.workload == record.workload;
            match seen.iter().find(same) {
                None => seen.push((record, answer)),
                Some((_, expected)) if *expected == answer => {}
                Some((first, expected)) => found.push(format!(
                    "{}: {} found {answer}, {} {expected}",
                    record.workload, record.store.name, first.store.name
                )),
            }
        }
        found
    }

    /// The records of `num` keys.
    pub(crate) fn of_num(&self, num: u64) -> impl Iterator<Item = &Record> {
        self.records.iter().filter(move |record| num_of(record) == Some(num))
    }

    fn groups(&self, num: u64, name: &str) -> Vec<Group<'_>> {
        self.groups_by_round(num, name).into_iter().map(|(_, group)| group).collect()
    }

    fn groups_by_round(&self, num: u64, name: &str) -> Vec<(u64, Group<'_>)> {
        let mut groups: Vec<(u64, Group<'_>)> = Vec::new();
        for record in self.of_num(num).filter(|record| record.store.name == name) {
            let round = round_of(record);
            match groups.iter_mut().find(|(other, _)| *other == round) {
                Some((_, group)) => group.records.push(record),
                None => groups.push((round, Group { records: vec![record] })),
            }
        }
        groups
    }
}

fn num_of(record: &Record) -> Option<u64> {
    record.settings.get("num")?.as_u64()
}

fn round_of(record: &Record) -> u64 {
    u64::from(record.repeat)
}

#[cfg(test)]
mod tests {
    use trommel_harness::record::Results as Measurements;

    use super::*;

    fn record(name: &str, round: u32, workload: &str, seconds: f64) -> Record {
        let mut record = Record {
            workload: workload.into(),
            threads: 1,
            results: Measurements {
                operations: 1000,
                wall_seconds: seconds,
                found: Some(600),
                ..Measurements::default()
            },
            ..Record::default()
        };
        record.store.name = name.into();
        record.settings.insert("num".into(), 1000.into());
        record.repeat = round;
        record
    }

    #[test]
    fn rounds_are_a_median_between_two_ends() {
        let spread = |values: &[f64]| Spread::of(values.to_vec());
        assert_eq!(spread(&[]), None);
        let three = Spread { median: 2.0, least: 1.0, greatest: 9.0, rounds: 3 };
        assert_eq!(spread(&[9.0, 1.0, 2.0]), Some(three));
        assert_eq!(spread(&[4.0, 1.0]).map(|spread| spread.median), Some(2.5));
    }

    #[test]
    fn figures_come_from_the_records_of_one_contender() {
        let results = Results::new(vec![
            record("rocksdb", 1, "fillrandom", 0.004),
            record("rocksdb", 1, "waitforcompaction", 0.002),
            record("rocksdb", 2, "fillrandom", 0.006),
            record("trommel", 1, "fillrandom", 0.001),
        ]);
        assert_eq!(results.nums(), [1000]);
        assert_eq!((results.rounds(1000), results.rounds(5)), (2, 0));
        assert_eq!(results.names(1000), ["trommel", "rocksdb"]);
        let fill = results.figure(1000, "rocksdb", &TIMES[0]).unwrap();
        assert!((fill.median - 5.0).abs() < 1e-9 && fill.rounds == 2, "{fill:?}");
        let idle = results.figure(1000, "rocksdb", &TIMES[1]).unwrap();
        assert!((idle.median - 6.0).abs() < 1e-9 && idle.rounds == 1, "{idle:?}");
        assert_eq!(results.figure(1000, "trommel", &TIMES[2]), None);
    }

    #[test]
    fn ratios_are_of_one_round_each() {
        let results = Results::new(vec![
            record("trommel", 1, "fillrandom", 0.001),
            record("rocksdb", 1, "fillrandom", 0.004),
            record("rocksdb", 2, "fillrandom", 0.006),
            record("trommel", 3, "fillrandom", 0.002),
            record("rocksdb", 3, "fillrandom", 0.005),
        ]);
        let ratios = results.ratios(1000, ("trommel", "rocksdb"), &TIMES[0]);
        assert_eq!(ratios.len(), 2, "{ratios:?}");
        assert!((ratios[0] - 4.0).abs() < 1e-9 && (ratios[1] - 2.5).abs() < 1e-9, "{ratios:?}");
    }

    #[test]
    fn contenders_of_other_numbers_of_keys_are_known() {
        let mut more = record("rocksdb", 1, "fillrandom", 1.0);
        more.settings.insert("num".into(), 2000.into());
        more.run = "another".into();
        let mut again = record("trommel", 2, "fillrandom", 1.0);
        again.run = "another".into();
        let results = Results::new(vec![record("trommel", 1, "fillrandom", 1.0), again, more]);
        assert_eq!(results.all_names(), ["trommel", "rocksdb"]);
        assert_eq!(
            (results.absent(1000), results.absent(2000)),
            (vec!["rocksdb"], vec!["trommel"])
        );
        let unknown = "with the program of a commit not recorded.";
        assert_eq!(results.rounds_and_runs(1000), format!("Rounds: 2, of 2 runs, {unknown}"));
        assert_eq!(results.rounds_and_runs(2000), format!("Rounds: 1, of one run, {unknown}"));
    }

    #[test]
    fn records_of_a_study_are_its_own() {
        let mut of_study = record("trommel", 1, "fillsync", 1.0);
        of_study.settings.insert(STUDY.into(), "sync".into());
        let main = record("trommel", 1, "fillrandom", 1.0);
        let (main, studies) = Results::split(vec![of_study, main]);
        assert_eq!((main.records.len(), studies.len()), (1, 1));
        assert_eq!(studies[0].0, Study::Sync);
        assert_eq!(studies[0].1.records[0].workload, "fillsync");
    }

    #[test]
    fn stores_that_disagree_are_named() {
        let mut wrong = record("redb", 1, "readrandom", 1.0);
        wrong.results.found = Some(599);
        let right = record("lmdb", 1, "readrandom", 1.0);
        let results = Results::new(vec![right.clone(), right]);
        assert!(results.disagreements(1000).is_empty());
        let results = Results::new([results.records, vec![wrong]].concat());
        let found = results.disagreements(1000);
        assert_eq!(found, ["readrandom: redb found 599, lmdb 600"]);
    }
}
