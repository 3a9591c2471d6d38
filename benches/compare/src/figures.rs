//! Reduces records to figures.
//!
//! 1. Records are grouped by number of keys, contender and round.
//! 2. A [`Figure`] is a number that a group may have.
//! 3. Over the rounds a figure has a median, a minimum and a maximum.

use serde_json::Value;
use trommel_harness::record::Record;

use crate::rows;
use crate::studies::{self, SETTING, Study};
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
    Figure { title: "read", of: |group| group.per_operation("readrandom") },
    Figure { title: "missing", of: |group| group.per_operation("readmissing") },
    Figure { title: "multi-get", of: |group| group.per_operation("multireadrandom") },
    Figure { title: "read, 2 threads", of: |group| group.per_operation("readrandom (2 threads)") },
    Figure {
        title: "missing, 2 threads",
        of: |group| group.per_operation("readmissing (2 threads)"),
    },
    Figure { title: "seek+10", of: |group| group.per_operation("seekrandom") },
    Figure { title: "seek+100", of: |group| group.per_operation("seekrandom (100 entries)") },
    Figure { title: "scan", of: |group| group.per_operation("readseq") },
    Figure { title: "reverse", of: |group| group.per_operation("readreverse") },
];

/// Other figures; less is better for these too.
pub(crate) const SIZES: [Figure; 9] = [
    Figure { title: "disk, MiB", of: |group| Some(mebibytes(group.find(DISK)?.results.bytes)) },
    Figure {
        title: "disk at most, MiB",
        of: |group| Some(mebibytes(group.find(DISK_PEAK)?.results.bytes)),
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
    /// The records without a study, if there are any, and those of each study with any.
    pub(crate) fn split(records: Vec<Record>) -> Vec<(Option<&'static Study>, Self)> {
        let of = |study: Option<&'static Study>| {
            let is_its = |record: &&Record| {
                record.settings.get(SETTING).and_then(Value::as_str) == study.map(|it| it.name)
            };
            (study, Self { records: records.iter().filter(is_its).cloned().collect() })
        };
        let all = std::iter::once(None).chain(studies::ALL.map(Some)).map(of);
        all.filter(|(_, results)| !results.records.is_empty()).collect()
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

    /// A figure of a contender over the rounds.
    pub(crate) fn figure(&self, num: u64, name: &str, figure: &Figure) -> Option<Spread> {
        let mut groups: Vec<(u64, Group<'_>)> = Vec::new();
        for record in self.of_num(num).filter(|record| record.store.name == name) {
            let round = round_of(record);
            match groups.iter_mut().find(|(other, _)| *other == round) {
                Some((_, group)) => group.records.push(record),
                None => groups.push((round, Group { records: vec![record] })),
            }
        }
        Spread::of(groups.iter().filter_map(|(_, group)| (figure.of)(group)).collect())
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
            let is_scan =
                rows::ALL.iter().any(|row| row.title == record.workload && row.reads_all());
            let Some(answer) =
                record.results.found.or(is_scan.then_some(record.results.operations))
            else {
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

    fn of(records: Vec<Record>) -> Results {
        Results { records }
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
        let results = of(vec![
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
    fn records_of_a_study_are_its_own() {
        let mut of_study = record("trommel", 1, "fillsync", 1.0);
        of_study.settings.insert(SETTING.into(), "sync".into());
        let main = record("trommel", 1, "fillrandom", 1.0);
        let split = Results::split(vec![of_study, main]);
        let names: Vec<_> = split.iter().map(|(study, _)| study.map(|study| study.name)).collect();
        assert_eq!(names, [None, Some("sync")]);
        assert_eq!(split[1].1.records[0].workload, "fillsync");
    }

    #[test]
    fn stores_that_disagree_are_named() {
        let mut wrong = record("redb", 1, "readrandom", 1.0);
        wrong.results.found = Some(599);
        let right = record("lmdb", 1, "readrandom", 1.0);
        let results = of(vec![right.clone(), right]);
        assert!(results.disagreements(1000).is_empty());
        let results = of([results.records, vec![wrong]].concat());
        let found = results.disagreements(1000);
        assert_eq!(found, ["readrandom: redb found 599, lmdb 600"]);
    }
}
