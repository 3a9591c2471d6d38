//! What a store says about itself after a workload, and what of that the workload did.

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use trommel::{FilterLevel, FilterReport, Stats, wilson};

use super::{BudgetRecord, Record};

/// What a store says about itself. A part that it does not know is none.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct State {
    /// What was read and written in the workload.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub io: Option<Io>,
    /// Levels that hold data, from the top, as the workload left them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub levels: Option<Vec<LevelRecord>>,
    /// What each level's filters are, and what they did in the workload.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filters: Option<Vec<FilterRecord>>,
    /// How the budget for filters was kept, where there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<BudgetRecord>,
    /// Bytes of memory by part, as the workload left them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<IndexMap<String, u64>>,
    /// What the workload cost beyond what was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub amplification: Option<Amplification>,
}

/// What was read and written, in counts and bytes.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Io {
    /// Keys looked up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gets: Option<u64>,
    /// Data blocks that lookups read from files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block_reads: Option<u64>,
    /// Data blocks that lookups found in the store's cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_hits: Option<u64>,
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
    /// Times the log was made durable for a writer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_syncs: Option<u64>,
    /// Memtables written out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flushes: Option<u64>,
    /// Bytes of the tables they became.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flush_bytes: Option<u64>,
    /// Seconds that writing them out took, added up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flush_seconds: Option<f64>,
    /// Compactions that merged tables.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compactions: Option<u64>,
    /// Bytes they read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compaction_bytes_read: Option<u64>,
    /// Bytes they wrote.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compaction_bytes_written: Option<u64>,
    /// Seconds that they took, added up; several may run at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compaction_seconds: Option<f64>,
    /// Seconds within both in which filters were completed and written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filter_seconds: Option<f64>,
    /// Seconds for which writers were held up, added up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stall_seconds: Option<f64>,
}

/// One level that holds data.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LevelRecord {
    /// 0, or 1 for the first level below that holds data, and so on.
    pub level: u64,
    /// Its tables.
    pub tables: u64,
    /// Bytes of its files.
    pub bytes: u64,
    /// Its entries, tombstones and older versions included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entries: Option<u64>,
    /// Tombstones among them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletions: Option<u64>,
}

/// The filters of one kind on one level.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct FilterRecord {
    /// 0, or 1 for the first level below that holds data, and so on.
    pub level: u64,
    /// Kind of the filters; `none` stands for tables without a usable one.
    pub kind: String,
    /// Tables with such filters.
    pub tables: u64,
    /// Distinct keys in those tables, each table counted on its own.
    pub keys: u64,
    /// Bits per key asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bits_asked: Option<f64>,
    /// Bits per key stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bits_stored: Option<f64>,
    /// Bytes of the filters in memory, were all tables open.
    pub bytes: u64,
    /// Lookups that came to such a table in the workload.
    pub probes: u64,
    /// Probes that the filter answered with "no": each a read saved.
    pub negatives: u64,
    /// Probes for a key that is not in the table, which the filter let pass: each a read wasted.
    pub false_positives: u64,
    /// Probes for a key that is in the table.
    pub true_positives: u64,
    /// False positives among the probes for keys not in the table.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub measured_rate: Option<f64>,
    /// 95% interval of the rate (Wilson's score interval): its ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval: Option<(f64, f64)>,
    /// What theory predicts for the same probes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected_rate: Option<f64>,
    /// That more distinct keys were let pass than chance explains: the evidence in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alarm: Option<String>,
}

/// What a workload cost beyond what was asked.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Amplification {
    /// Bytes written to files for a byte that the user wrote.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write: Option<f64>,
    /// Bytes of files for a byte of keys and values that are there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub space: Option<f64>,
    /// Data blocks looked at for a key looked up, from files or the cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read: Option<f64>,
}

impl State {
    /// What a Trommel store says, all counts since it was opened or its counts were reset.
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

    /// This state with what was counted since `before`. Where a count has gone down since then (it
    /// was reset), all of it counts.
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
    ]
    .map(|(part, bytes)| (part.to_owned(), bytes))
    .into_iter()
    .collect()
}

impl Io {
    fn of(stats: &Stats) -> Self {
        let stalls = [stats.stalled_by_memtables, stats.stalled_by_level_0, stats.stalled_by_debt];
        let written = stats.log_bytes + stats.flush_bytes + stats.compaction_bytes_written;
        Self {
            gets: Some(stats.gets),
            block_reads: Some(stats.block_reads),
            cache_hits: Some(stats.cache_hits),
            bytes_read: Some(stats.block_read_bytes + stats.compaction_bytes_read),
            bytes_written: Some(written),
            user_bytes: Some(stats.user_bytes),
            log_bytes: Some(stats.log_bytes),
            log_syncs: Some(stats.log_syncs),
            flushes: Some(stats.flushes),
            flush_bytes: Some(stats.flush_bytes),
            flush_seconds: Some(stats.flush_time.as_secs_f64()),
            compactions: Some(stats.compactions),
            compaction_bytes_read: Some(stats.compaction_bytes_read),
            compaction_bytes_written: Some(stats.compaction_bytes_written),
            compaction_seconds: Some(stats.compaction_time.as_secs_f64()),
            filter_seconds: Some(stats.filter_time.as_secs_f64()),
            stall_seconds: Some(stalls.iter().map(|stall| stall.total.as_secs_f64()).sum()),
        }
    }

    fn subtract(&mut self, before: &Self) {
        let counts = [
            (&mut self.gets, before.gets),
            (&mut self.block_reads, before.block_reads),
            (&mut self.cache_hits, before.cache_hits),
            (&mut self.bytes_read, before.bytes_read),
            (&mut self.bytes_written, before.bytes_written),
            (&mut self.user_bytes, before.user_bytes),
            (&mut self.log_bytes, before.log_bytes),
            (&mut self.log_syncs, before.log_syncs),
            (&mut self.flushes, before.flushes),
            (&mut self.flush_bytes, before.flush_bytes),
            (&mut self.compactions, before.compactions),
            (&mut self.compaction_bytes_read, before.compaction_bytes_read),
            (&mut self.compaction_bytes_written, before.compaction_bytes_written),
        ];
        for (count, before) in counts {
            if let (Some(count), Some(before)) = (count, before) {
                *count = count.checked_sub(before).unwrap_or(*count);
            }
        }
        let times = [
            (&mut self.flush_seconds, before.flush_seconds),
            (&mut self.compaction_seconds, before.compaction_seconds),
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
            bits_asked: filter.bits_asked,
            bits_stored: Some(filter.bits_stored),
            bytes: filter.filter_bytes,
            probes: filter.probes,
            negatives: filter.negatives,
            false_positives: filter.false_positives,
            true_positives: filter.true_positives,
            measured_rate: filter.measured_rate,
            interval: filter.interval,
            expected_rate: filter.expected_rate,
            alarm: filter.alarm().map(ToString::to_string),
        }
    }

    /// The filters of all these records: what they did is added up, what they are is that of the
    /// last.
    pub(crate) fn sum(records: &[&Record]) -> Vec<Self> {
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

    /// This with the counts of another added; rates are those of both together.
    fn plus(mut self, other: &Self) -> Self {
        // Where nothing was probed in vain, nothing wrong was to be expected.
        let expected = |filter: &Self| match filter.misses() {
            0 => Some(0.0),
            misses => filter.expected_rate.map(|rate| rate * misses as f64),
        };
        let expected = expected(&self).zip(expected(other)).map(|(one, two)| one + two);
        self.probes = self.probes.saturating_add(other.probes);
        self.negatives = self.negatives.saturating_add(other.negatives);
        self.false_positives = self.false_positives.saturating_add(other.false_positives);
        self.true_positives = self.true_positives.saturating_add(other.true_positives);
        self.alarm = self.alarm.or_else(|| other.alarm.clone());
        let misses = self.misses();
        if misses > 0 {
            self.measured_rate = Some(self.false_positives as f64 / misses as f64);
            self.interval = Some(wilson(self.false_positives, misses));
            self.expected_rate = expected.map(|expected| expected / misses as f64);
        }
        self
    }

    /// Probes for keys that are not in the table.
    fn misses(&self) -> u64 {
        self.negatives.saturating_add(self.false_positives)
    }

    /// Takes off what was counted before; the expected rate becomes that of the probes since.
    fn subtract(&mut self, before: &Self) {
        let misses = self.misses();
        let counts = [
            (&mut self.probes, before.probes),
            (&mut self.negatives, before.negatives),
            (&mut self.false_positives, before.false_positives),
            (&mut self.true_positives, before.true_positives),
        ];
        if counts.iter().any(|(count, before)| **count < *before) {
            return;
        }
        for (count, before) in counts {
            *count -= before;
        }
        let since = self.misses();
        if since == 0 {
            (self.measured_rate, self.interval, self.expected_rate) = (None, None, None);
            return;
        }
        self.measured_rate = Some(self.false_positives as f64 / since as f64);
        self.interval = Some(wilson(self.false_positives, since));
        if let Some(rate) = self.expected_rate {
            let expected_before = before.expected_rate.unwrap_or(0.0) * before.misses() as f64;
            let expected = rate * misses as f64 - expected_before;
            self.expected_rate = Some((expected / since as f64).clamp(0.0, 1.0));
        }
    }
}

impl Amplification {
    /// As far as these counts say it.
    fn of(io: &Io) -> Self {
        let ratio = |all: Option<u64>, of: Option<u64>| match (all, of) {
            (Some(all), Some(of)) if of > 0 => Some(all as f64 / of as f64),
            _ => None,
        };
        let blocks = io.block_reads.zip(io.cache_hits).map(|(files, cache)| files + cache);
        Self {
            write: ratio(io.bytes_written, io.user_bytes),
            space: None,
            read: ratio(blocks, io.gets),
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
                gets: Some(gets),
                block_reads: Some(gets / 2),
                cache_hits: Some(gets / 4),
                ..Io::default()
            }),
            filters: Some(vec![FilterRecord {
                level: 1,
                kind: "paired".into(),
                probes,
                negatives,
                false_positives,
                expected_rate: Some(expected_rate),
                ..FilterRecord::default()
            }]),
            ..State::default()
        }
    }

    #[test]
    fn what_a_workload_did_is_the_difference() {
        let since = state(400, 3000, 60, 0.02).since(&state(100, 1000, 10, 0.01));
        let io = since.io.unwrap();
        assert_eq!((io.gets, io.block_reads, io.log_bytes), (Some(300), Some(150), None));
        let filter = &since.filters.unwrap()[0];
        assert_eq!((filter.probes, filter.false_positives), (2000, 50));
        assert_eq!(filter.measured_rate, Some(0.025));
        assert_eq!(filter.interval, Some(wilson(50, 2000)));
        // 60 expected in all, 10 of them before.
        assert!((filter.expected_rate.unwrap() - 0.025).abs() < 1e-12);
        assert_eq!(since.amplification.unwrap().read, Some(225.0 / 300.0));
    }

    #[test]
    fn after_a_reset_all_counts() {
        let since = state(50, 100, 1, 0.02).since(&state(100, 1000, 10, 0.01));
        assert_eq!(since.io.unwrap().gets, Some(50));
        let filter = &since.filters.unwrap()[0];
        assert_eq!((filter.probes, filter.expected_rate), (100, Some(0.02)));
    }

    #[test]
    fn filters_that_were_not_asked_have_no_rate() {
        let since = state(400, 1000, 10, 0.01).since(&state(100, 1000, 10, 0.01));
        let filter = &since.filters.unwrap()[0];
        assert_eq!(
            (filter.measured_rate, filter.interval, filter.expected_rate),
            (None, None, None)
        );
    }
}
