//! A store's report on its state after a workload, and the part of it caused by the workload.

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use trommel::{FilterLevel, FilterReport, Stats, wilson};

use super::{BudgetRecord, Record};

/// A store's report on its state. Parts that it does not know are none.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct State {
    /// Reads and writes during the workload.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub io: Option<Io>,
    /// Levels that hold data, from the top, after the workload.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub levels: Option<Vec<LevelRecord>>,
    /// The filters of each level, and their probes during the workload.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filters: Option<Vec<FilterRecord>>,
    /// The state of the filter budget, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<BudgetRecord>,
    /// Bytes of memory by part, after the workload.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<IndexMap<String, u64>>,
    /// The amplification factors of the workload.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub amplification: Option<Amplification>,
}

/// Reads and writes, in counts and bytes.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Io {
    /// Lookups.
    #[serde(flatten)]
    pub lookups: LookupIo,
    /// Bytes read from files, by lookups and compactions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_read: Option<u64>,
    /// Bytes written to files, logs included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_written: Option<u64>,
    /// Bytes of keys and values that the user wrote.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_bytes: Option<u64>,
    /// Bytes written to the log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_bytes: Option<u64>,
    /// Syncs of the log on behalf of writers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_syncs: Option<u64>,
    /// Flushes of memtables.
    #[serde(flatten)]
    pub flushes: FlushIo,
    /// Compactions.
    #[serde(flatten)]
    pub compactions: CompactionIo,
    /// Seconds of flushes and compactions spent on building and writing filters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filter_seconds: Option<f64>,
    /// Total seconds of write stalls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stall_seconds: Option<f64>,
}

/// Counts of lookups.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct LookupIo {
    /// Keys looked up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gets: Option<u64>,
    /// Data blocks that lookups read from files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block_reads: Option<u64>,
    /// Data blocks that lookups found in the store's cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_hits: Option<u64>,
}

/// Counts of flushes.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct FlushIo {
    /// Memtables flushed.
    #[serde(rename = "flushes", skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// Bytes of the tables written.
    #[serde(rename = "flush_bytes", skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Total seconds.
    #[serde(rename = "flush_seconds", skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
}

/// Counts of compactions.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct CompactionIo {
    /// Compactions that merged tables.
    #[serde(rename = "compactions", skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// Bytes read.
    #[serde(rename = "compaction_bytes_read", skip_serializing_if = "Option::is_none")]
    pub bytes_read: Option<u64>,
    /// Bytes written.
    #[serde(rename = "compaction_bytes_written", skip_serializing_if = "Option::is_none")]
    pub bytes_written: Option<u64>,
    /// Total seconds; several may run at once.
    #[serde(rename = "compaction_seconds", skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
}

/// One level that holds data.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LevelRecord {
    /// 0, or 1 for the first level below level 0 that holds data, and so on.
    pub level: u64,
    /// Number of tables.
    pub tables: u64,
    /// Bytes of the files.
    pub bytes: u64,
    /// Number of entries, tombstones and older versions included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entries: Option<u64>,
    /// Tombstones among them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletions: Option<u64>,
}

/// The filters of one kind on one level.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct FilterRecord {
    /// 0, or 1 for the first level below level 0 that holds data, and so on.
    pub level: u64,
    /// Kind of the filters; `none` means tables without a usable one.
    pub kind: String,
    /// Tables with such filters.
    pub tables: u64,
    /// Distinct keys in those tables, counted per table.
    pub keys: u64,
    /// Requested bits per key.
    #[serde(rename = "bits_asked", skip_serializing_if = "Option::is_none")]
    pub bits_requested: Option<f64>,
    /// Stored bits per key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bits_stored: Option<f64>,
    /// Bytes of the filters in memory if all tables were open.
    pub bytes: u64,
    /// The probes of the workload, by outcome.
    #[serde(flatten)]
    pub counts: FilterCounts,
    /// The rates that follow from these counts.
    #[serde(flatten)]
    pub rates: FilterRates,
    /// Set if more distinct keys were false positives than chance explains: the evidence in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alarm: Option<String>,
}

/// Probes of filters, by outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct FilterCounts {
    /// Lookups during the workload that reached such a table.
    pub probes: u64,
    /// Probes with a negative answer: each saves a read.
    pub negatives: u64,
    /// False positives: each wastes a read.
    pub false_positives: u64,
    /// Probes for a key that is in the table.
    pub true_positives: u64,
}

/// Rates of false positives.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct FilterRates {
    /// False positives divided by probes for keys that are not in the table.
    #[serde(rename = "measured_rate", skip_serializing_if = "Option::is_none")]
    pub measured: Option<f64>,
    /// 95% confidence interval of the rate (Wilson's score interval).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval: Option<(f64, f64)>,
    /// The rate that theory predicts for the same probes.
    #[serde(rename = "expected_rate", skip_serializing_if = "Option::is_none")]
    pub expected: Option<f64>,
}

/// The amplification factors of a workload.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Amplification {
    /// Bytes written to files per byte that the user wrote.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write: Option<f64>,
    /// Bytes of files per byte of live keys and values.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub space: Option<f64>,
    /// Data blocks searched per lookup, from files or the cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read: Option<f64>,
}

impl State {
    /// The report of a Trommel store; its counters run from its opening or their last reset.
    pub fn of(stats: &Stats, filters: &FilterReport) -> Self {
        let io = Io::of(stats);
        Self {
            amplification: Some(Amplification::of(&io)),
            io: Some(io),
            levels: Some(stats.levels.iter().map(LevelRecord::of).collect()),
            filters: Some(filters.levels.iter().map(FilterRecord::of).collect()),
            budget: filters.budget.as_ref().map(BudgetRecord::of),
            memory: Some(memory(stats)),
        }
    }

    /// This state with only the counts since `before`. A counter that has decreased since then was
    /// reset, and counts in full.
    pub fn since(mut self, before: &Self) -> Self {
        if let (Some(io), Some(before)) = (&mut self.io, &before.io) {
            io.subtract(before);
            let space = self.amplification.and_then(|amplification| amplification.space);
            self.amplification = Some(Amplification { space, ..Amplification::of(io) });
        }
        if let (Some(filters), Some(before)) = (&mut self.filters, &before.filters) {
            for filter in filters {
                let same = |other: &&FilterRecord| {
                    (other.level, &other.kind) == (filter.level, &filter.kind)
                };
                if let Some(before) = before.iter().find(same) {
                    filter.subtract(before);
                }
            }
        }
        self
    }
}

fn memory(stats: &Stats) -> IndexMap<String, u64> {
    let memory = &stats.memory;
    [
        ("memtables", memory.memtables),
        ("idle arenas", memory.idle_arenas),
        ("block cache", memory.block_cache),
        ("filters", memory.filters),
        ("index", memory.index),
        ("other", memory.other),
        ("filter construction", memory.construction),
        ("deleted ranges", memory.deleted_ranges),
    ]
    .map(|(part, bytes)| (part.to_owned(), bytes))
    .into_iter()
    .collect()
}

impl Io {
    fn of(stats: &Stats) -> Self {
        let jobs = &stats.background;
        let stalls = [jobs.stalls.memtables, jobs.stalls.level_0, jobs.stalls.debt];
        let written = stats.writes.log_bytes + jobs.flushes.bytes + jobs.compactions.bytes_written;
        Self {
            lookups: LookupIo {
                gets: Some(stats.lookups.gets),
                block_reads: Some(stats.lookups.block_reads),
                cache_hits: Some(stats.lookups.cache_hits),
            },
            bytes_read: Some(
                stats.lookups.block_read_bytes + stats.background.compactions.bytes_read,
            ),
            bytes_written: Some(written),
            user_bytes: Some(stats.writes.user_bytes),
            log_bytes: Some(stats.writes.log_bytes),
            log_syncs: Some(stats.writes.log_syncs),
            flushes: FlushIo {
                count: Some(jobs.flushes.count),
                bytes: Some(jobs.flushes.bytes),
                seconds: Some(jobs.flushes.time.as_secs_f64()),
            },
            compactions: CompactionIo {
                count: Some(jobs.compactions.count),
                bytes_read: Some(jobs.compactions.bytes_read),
                bytes_written: Some(jobs.compactions.bytes_written),
                seconds: Some(jobs.compactions.time.as_secs_f64()),
            },
            filter_seconds: Some(stats.background.filter_time.as_secs_f64()),
            stall_seconds: Some(stalls.iter().map(|stall| stall.total.as_secs_f64()).sum()),
        }
    }

    fn subtract(&mut self, before: &Self) {
        let (lookups, flushes) = (&mut self.lookups, &mut self.flushes);
        let compactions = &mut self.compactions;
        let counts = [
            (&mut lookups.gets, before.lookups.gets),
            (&mut lookups.block_reads, before.lookups.block_reads),
            (&mut lookups.cache_hits, before.lookups.cache_hits),
            (&mut self.bytes_read, before.bytes_read),
            (&mut self.bytes_written, before.bytes_written),
            (&mut self.user_bytes, before.user_bytes),
            (&mut self.log_bytes, before.log_bytes),
            (&mut self.log_syncs, before.log_syncs),
            (&mut flushes.count, before.flushes.count),
            (&mut flushes.bytes, before.flushes.bytes),
            (&mut compactions.count, before.compactions.count),
            (&mut compactions.bytes_read, before.compactions.bytes_read),
            (&mut compactions.bytes_written, before.compactions.bytes_written),
        ];
        for (count, before) in counts {
            if let (Some(count), Some(before)) = (count, before) {
                *count = count.checked_sub(before).unwrap_or(*count);
            }
        }
        let times = [
            (&mut flushes.seconds, before.flushes.seconds),
            (&mut compactions.seconds, before.compactions.seconds),
            (&mut self.filter_seconds, before.filter_seconds),
            (&mut self.stall_seconds, before.stall_seconds),
        ];
        for (seconds, before) in times {
            if let (Some(seconds), Some(before)) = (seconds, before)
                && *seconds >= before
            {
                *seconds -= before;
            }
        }
    }
}

impl LevelRecord {
    fn of(level: &trommel::LevelStats) -> Self {
        Self {
            level: level.level as u64,
            tables: level.tables,
            bytes: level.bytes,
            entries: Some(level.entries),
            deletions: Some(level.deletions),
        }
    }
}

impl FilterRecord {
    fn of(filter: &FilterLevel) -> Self {
        Self {
            level: filter.level as u64,
            kind: filter.kind.name().into(),
            tables: filter.tables,
            keys: filter.keys,
            bits_requested: filter.bits_requested,
            bits_stored: Some(filter.bits_stored),
            bytes: filter.filter_bytes,
            counts: FilterCounts {
                probes: filter.counts.probes,
                negatives: filter.counts.negatives,
                false_positives: filter.counts.false_positives,
                true_positives: filter.counts.true_positives,
            },
            rates: FilterRates {
                measured: filter.rates.measured,
                interval: filter.rates.interval,
                expected: filter.rates.expected,
            },
            alarm: filter.alarm().map(ToString::to_string),
        }
    }

    /// The sum of these records' filters: counters are added up, the rest is from the last record.
    pub fn sum(records: &[&Record]) -> Vec<Self> {
        let mut sums: Vec<Self> = Vec::new();
        for filter in records.iter().filter_map(|record| record.state.filters.as_ref()).flatten() {
            let is_same =
                |other: &&mut Self| (other.level, &other.kind) == (filter.level, &filter.kind);
            match sums.iter_mut().find(is_same) {
                Some(sum) => *sum = filter.clone().plus(sum),
                None => sums.push(filter.clone()),
            }
        }
        sums
    }

    /// `self` with the counters of `other` added, and rates over both together.
    fn plus(mut self, other: &Self) -> Self {
        // Without probes of absent keys no false positive was to be expected.
        let expected = |filter: &Self| match filter.misses() {
            0 => Some(0.0),
            misses => filter.rates.expected.map(|rate| rate * misses as f64),
        };
        let expected = expected(&self).zip(expected(other)).map(|(one, two)| one + two);
        self.counts.probes = self.counts.probes.saturating_add(other.counts.probes);
        self.counts.negatives = self.counts.negatives.saturating_add(other.counts.negatives);
        self.counts.false_positives =
            self.counts.false_positives.saturating_add(other.counts.false_positives);
        self.counts.true_positives =
            self.counts.true_positives.saturating_add(other.counts.true_positives);
        self.alarm = self.alarm.or_else(|| other.alarm.clone());
        let misses = self.misses();
        if misses > 0 {
            self.rates.measured = Some(self.counts.false_positives as f64 / misses as f64);
            self.rates.interval = Some(wilson(self.counts.false_positives, misses));
            self.rates.expected = expected.map(|expected| expected / misses as f64);
        }
        self
    }

    /// Probes for keys that are not in the table.
    fn misses(&self) -> u64 {
        self.counts.negatives.saturating_add(self.counts.false_positives)
    }

    /// Subtracts the earlier counters; the expected rate becomes that of the probes since.
    fn subtract(&mut self, before: &Self) {
        let misses = self.misses();
        let counts = [
            (&mut self.counts.probes, before.counts.probes),
            (&mut self.counts.negatives, before.counts.negatives),
            (&mut self.counts.false_positives, before.counts.false_positives),
            (&mut self.counts.true_positives, before.counts.true_positives),
        ];
        if counts.iter().any(|(count, before)| **count < *before) {
            return;
        }
        for (count, before) in counts {
            *count -= before;
        }
        let since = self.misses();
        if since == 0 {
            (self.rates.measured, self.rates.interval, self.rates.expected) = (None, None, None);
            return;
        }
        self.rates.measured = Some(self.counts.false_positives as f64 / since as f64);
        self.rates.interval = Some(wilson(self.counts.false_positives, since));
        if let Some(rate) = self.rates.expected {
            let expected_before = before.rates.expected.unwrap_or(0.0) * before.misses() as f64;
            let expected = rate * misses as f64 - expected_before;
            self.rates.expected = Some((expected / since as f64).clamp(0.0, 1.0));
        }
    }
}

impl Amplification {
    /// The factors that follow from `io`.
    fn of(io: &Io) -> Self {
        let ratio = |all: Option<u64>, of: Option<u64>| match (all, of) {
            (Some(all), Some(of)) if of > 0 => Some(all as f64 / of as f64),
            _ => None,
        };
        let blocks =
            io.lookups.block_reads.zip(io.lookups.cache_hits).map(|(files, cache)| files + cache);
        Self {
            write: ratio(io.bytes_written, io.user_bytes),
            space: None,
            read: ratio(blocks, io.lookups.gets),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(gets: u64, probes: u64, false_positives: u64, expected_rate: f64) -> State {
        let negatives = probes - false_positives;
        State {
            io: Some(Io {
                lookups: LookupIo {
                    gets: Some(gets),
                    block_reads: Some(gets / 2),
                    cache_hits: Some(gets / 4),
                },
                ..Io::default()
            }),
            filters: Some(vec![FilterRecord {
                level: 1,
                kind: "paired".into(),
                counts: FilterCounts { probes, negatives, false_positives, true_positives: 0 },
                rates: FilterRates { expected: Some(expected_rate), ..FilterRates::default() },
                ..FilterRecord::default()
            }]),
            ..State::default()
        }
    }

    #[test]
    fn a_workload_is_the_difference_of_two_states() {
        let since = state(400, 3000, 60, 0.02).since(&state(100, 1000, 10, 0.01));
        let io = since.io.unwrap();
        assert_eq!(
            (io.lookups.gets, io.lookups.block_reads, io.log_bytes),
            (Some(300), Some(150), None)
        );
        let filter = &since.filters.unwrap()[0];
        assert_eq!((filter.counts.probes, filter.counts.false_positives), (2000, 50));
        assert_eq!(filter.rates.measured, Some(0.025));
        assert_eq!(filter.rates.interval, Some(wilson(50, 2000)));
        // 60 expected in total, 10 of them before.
        assert!((filter.rates.expected.unwrap() - 0.025).abs() < 1e-12);
        assert_eq!(since.amplification.unwrap().read, Some(225.0 / 300.0));
    }

    #[test]
    fn after_a_reset_all_counts() {
        let since = state(50, 100, 1, 0.02).since(&state(100, 1000, 10, 0.01));
        assert_eq!(since.io.unwrap().lookups.gets, Some(50));
        let filter = &since.filters.unwrap()[0];
        assert_eq!((filter.counts.probes, filter.rates.expected), (100, Some(0.02)));
    }

    #[test]
    fn filters_without_queries_have_no_rate() {
        let since = state(400, 1000, 10, 0.01).since(&state(100, 1000, 10, 0.01));
        let filter = &since.filters.unwrap()[0];
        assert_eq!(
            (filter.rates.measured, filter.rates.interval, filter.rates.expected),
            (None, None, None)
        );
    }
}
