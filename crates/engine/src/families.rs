//! Statistics as metrics: the one table of their names, for every form in which they are published.
//!
//! A family is a name, a type, a help text and its samples. Counters count since the store was
//! opened or its counters were reset; a reader of counters copes with a reset.

use std::fmt::Display;
use std::time::Duration;

use crate::background::BackgroundError;
use crate::conformance::Conformance;
use crate::engine::Engine;
use crate::job_counters::Stall;
use crate::latencies::LatencyStats;
use crate::report::{FilterLevel, FilterReport};
use crate::stats::{LevelStats, Stats};

/// The name and the help of a family, and the value of each of its samples.
type FigureOf<Of, Value> = (&'static str, &'static str, fn(&Of) -> Value);

/// The bounds of a histogram are powers of two, from 2^8 to 2^34 nanoseconds: 256 ns to 17 s.
const LEAST_BITS: u32 = 8;
const MOST_BITS: u32 = 34;

/// The type of a family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FamilyKind {
    Counter,
    Gauge,
    Histogram,
    Info,
}

/// Metrics of one name.
#[derive(Debug)]
pub(crate) struct Family {
    /// Without the `trommel_` that all begin with.
    pub(crate) name: &'static str,
    pub(crate) kind: FamilyKind,
    pub(crate) help: String,
    pub(crate) samples: Vec<MetricSample>,
}

/// A number of a family.
#[derive(Debug)]
pub(crate) struct MetricSample {
    /// What follows the name of the family.
    pub(crate) suffix: &'static str,
    pub(crate) labels: Vec<(&'static str, String)>,
    pub(crate) value: Figure,
}

/// A value of a metric.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Figure {
    Count(u64),
    Real(f64),
}

impl From<u64> for Figure {
    fn from(count: u64) -> Self {
        Self::Count(count)
    }
}

impl From<f64> for Figure {
    fn from(real: f64) -> Self {
        Self::Real(real)
    }
}

impl From<Duration> for Figure {
    fn from(time: Duration) -> Self {
        Self::Real(time.as_secs_f64())
    }
}

impl Engine {
    /// All metrics of the store.
    pub(crate) fn metric_families(&self) -> Vec<Family> {
        let stats = self.stats();
        let mut all = FamilyList(Vec::new());
        all.family("store", FamilyKind::Info, "The store, by its number.");
        all.sample("_info", &[("id", &format_args!("{:016x}", self.files.store_id))], 1.into());
        all.reads(&stats);
        all.writes(&stats);
        all.background(&stats);
        all.memory(&stats);
        all.levels(&stats.levels);
        all.filters(&self.filter_report());
        all.latencies(&self.statistics.latencies.stats());
        all.0
    }
}

struct FamilyList(Vec<Family>);

impl FamilyList {
    fn family(&mut self, name: &'static str, kind: FamilyKind, help: impl Into<String>) {
        self.0.push(Family { name, kind, help: help.into(), samples: Vec::new() });
    }

    /// Adds a sample to the last family.
    fn sample(
        &mut self,
        suffix: &'static str,
        labels: &[(&'static str, &dyn Display)],
        value: Figure,
    ) {
        let labels = labels.iter().map(|(name, value)| (*name, value.to_string())).collect();
        if let Some(family) = self.0.last_mut() {
            family.samples.push(MetricSample { suffix, labels, value });
        }
    }

    fn counter(&mut self, name: &'static str, help: &str, value: impl Into<Figure>) {
        self.family(name, FamilyKind::Counter, help);
        self.sample("_total", &[], value.into());
    }

    fn gauge(&mut self, name: &'static str, help: &str, value: impl Into<Figure>) {
        self.family(name, FamilyKind::Gauge, help);
        self.sample("", &[], value.into());
    }

    fn reads(&mut self, stats: &Stats) {
        let (lookups, scans) = (&stats.lookups, &stats.scans);
        self.counter("gets", "Keys looked up.", lookups.gets);
        self.counter("gets_found", "Keys found.", lookups.found);
        self.counter("memtable_hits", "Lookups answered by a memtable.", lookups.memtable_hits);
        self.counter("block_reads", "Data blocks read by lookups.", lookups.block_reads);
        let help = "Bytes of data blocks read by lookups.";
        self.counter("block_read_bytes", help, lookups.block_read_bytes);
        let help = "Data blocks that lookups found in the cache.";
        self.counter("block_cache_hits", help, lookups.cache_hits);
        self.counter("scan_block_reads", "Data blocks read by scans.", scans.block_reads);
        let help = "Data blocks that scans found in the cache.";
        self.counter("scan_block_cache_hits", help, scans.cache_hits);
        let help = "Data blocks that scans skipped, as filters for ranges denied them.";
        self.counter("scan_blocks_skipped", help, scans.blocks_skipped);
        let help = "Tombstones and hidden versions that scans stepped over.";
        self.counter("scan_entries_skipped", help, scans.entries_skipped);
    }

    fn writes(&mut self, stats: &Stats) {
        let (writes, stalls) = (&stats.writes, &stats.background.stalls);
        self.counter("writes", "Operations written.", writes.operations);
        self.counter("user_bytes", "Bytes of keys and values written.", writes.user_bytes);
        self.counter("commits", "Groups of batches committed.", writes.commits);
        self.counter("log_bytes", "Bytes written to the log.", writes.log_bytes);
        self.counter("log_syncs", "Syncs of the log for writers.", writes.log_syncs);
        let causes =
            [("memtables", stalls.memtables), ("level-0", stalls.level_0), ("debt", stalls.debt)];
        self.family("write_stalls", FamilyKind::Counter, "Write stalls, by cause.");
        for (cause, Stall { times, .. }) in causes {
            self.sample("_total", &[("cause", &cause)], times.into());
        }
        self.family("write_stall_seconds", FamilyKind::Counter, "Time of write stalls, by cause.");
        for (cause, Stall { total, .. }) in causes {
            self.sample("_total", &[("cause", &cause)], total.as_secs_f64().into());
        }
    }

    fn background(&mut self, stats: &Stats) {
        let all = &stats.background;
        let (flushes, compactions) = (&all.flushes, &all.compactions);
        self.counter("flushes", "Memtables flushed.", flushes.count);
        self.counter("flush_bytes", "Bytes of tables that flushes wrote.", flushes.bytes);
        self.counter("flush_seconds", "Time of flushes.", flushes.time);
        self.counter("compactions", "Compactions that merged tables.", compactions.count);
        let help = "Bytes that compactions read.";
        self.counter("compaction_read_bytes", help, compactions.bytes_read);
        let help = "Bytes that compactions wrote.";
        self.counter("compaction_written_bytes", help, compactions.bytes_written);
        self.counter("compaction_seconds", "Time of compactions.", compactions.time);
        let help = "Background jobs that are running, by kind.";
        self.family("running_jobs", FamilyKind::Gauge, help);
        for (kind, running) in [("flush", flushes.running), ("compaction", compactions.running)] {
            self.sample("", &[("kind", &kind)], running.into());
        }
        let help = "Bytes of compaction needed to bring the tree into shape.";
        self.gauge("compaction_debt_bytes", help, all.compaction_debt);
        self.gauge("range_tombstones", "Range tombstones in the manifest.", all.range_tombstones);
        let help = "Estimated bytes in tables that range tombstones delete or that have expired.";
        self.gauge("deleted_bytes", help, all.deleted_bytes);
        let archive = &stats.archive;
        self.gauge("archived_logs", "Logs kept for change feeds.", archive.logs);
        self.gauge("archived_log_bytes", "Bytes of logs kept for change feeds.", archive.bytes);
        self.counter("archived_logs_removed", "Archived logs removed.", archive.removed);
        let help = "Logs that could not be archived.";
        self.counter("logs_not_archived", help, archive.failed);
        let help = "Whether background work keeps failing (1) or not (0).";
        let fails = all.error.as_ref().is_some_and(BackgroundError::is_current);
        self.gauge("background_failing", help, u64::from(fails));
    }

    fn memory(&mut self, stats: &Stats) {
        let memory = &stats.memory;
        let parts = [
            ("memtables", memory.memtables),
            ("idle-arenas", memory.idle_arenas),
            ("block-cache", memory.block_cache),
            ("filters", memory.filters),
            ("index", memory.index),
            ("other", memory.other),
            ("construction", memory.construction),
            ("deleted-ranges", memory.deleted_ranges),
        ];
        self.family("memory_bytes", FamilyKind::Gauge, "Memory, by component.");
        for (part, bytes) in parts {
            self.sample("", &[("component", &part)], bytes.into());
        }
        self.gauge("open_tables", "Tables that are open.", stats.open_tables as u64);
        self.gauge("last_sequence_number", "Newest visible sequence number.", stats.last_seqno);
    }

    fn levels(&mut self, levels: &[LevelStats]) {
        let figures: [FigureOf<LevelStats, u64>; 5] = [
            ("level_tables", "Tables, by level.", |level| level.tables),
            ("level_bytes", "Bytes of tables, by level.", |level| level.bytes),
            ("level_entries", "Entries, by level.", |level| level.entries),
            ("level_tombstones", "Tombstones, by level.", |level| level.deletions),
            ("level_filter_bytes", "Bytes of filters, by level.", |level| level.filter_bytes),
        ];
        for (name, help, of) in figures {
            self.family(name, FamilyKind::Gauge, help);
            for level in levels {
                self.sample("", &[("level", &level.level)], of(level).into());
            }
        }
    }

    fn filters(&mut self, report: &FilterReport) {
        let counts: [FigureOf<FilterLevel, u64>; 4] = [
            ("filter_probes", "Probes of filters.", |row| row.counts.probes),
            ("filter_negatives", "Probes that saved a read.", |row| row.counts.negatives),
            ("filter_false_positives", "Probes that wasted a read.", |row| {
                row.counts.false_positives
            }),
            ("filter_true_positives", "Probes for keys of the table.", |row| {
                row.counts.true_positives
            }),
        ];
        let rows = &report.levels;
        for (name, help, of) in counts {
            self.family(name, FamilyKind::Counter, format!("{help} By level and kind."));
            for row in rows {
                let labels: [(&str, &dyn Display); 2] =
                    [("level", &row.level), ("kind", &row.kind)];
                self.sample("_total", &labels, of(row).into());
            }
        }
        let rates: [FigureOf<FilterLevel, Option<f64>>; 2] = [
            ("filter_measured_rate", "Measured rate of false positives.", |row| row.rates.measured),
            ("filter_expected_rate", "Rate that theory expects of these probes.", |row| {
                row.rates.expected
            }),
        ];
        for (name, help, of) in rates {
            self.family(name, FamilyKind::Gauge, help);
            for row in rows {
                let labels: [(&str, &dyn Display); 2] =
                    [("level", &row.level), ("kind", &row.kind)];
                if let Some(rate) = of(row) {
                    self.sample("", &labels, rate.into());
                }
            }
        }
        let help = "Distinct keys among the latest false positives, by table. By level and kind.";
        self.family("filter_false_positive_keys", FamilyKind::Gauge, help);
        for row in rows {
            let labels: [(&str, &dyn Display); 2] = [("level", &row.level), ("kind", &row.kind)];
            if let Some(Conformance { distinct_keys, .. }) = row.conformance {
                self.sample("", &labels, distinct_keys.into());
            }
        }
        let help = "Expected reads of data blocks that a lookup of a missing key wastes.";
        let wasted = report.expected_wasted_reads_per_miss;
        self.gauge("expected_wasted_reads_per_miss", help, wasted);
    }

    fn latencies(&mut self, all: &[LatencyStats]) {
        if all.is_empty() {
            return;
        }
        let help = "Times of operations, of which reads and writes are sampled.";
        self.family("operation_seconds", FamilyKind::Histogram, help);
        for latency in all {
            let operation = latency.operation.name();
            for bits in LEAST_BITS..=MOST_BITS {
                let bound = (1_u64 << bits) as f64 / 1e9;
                let labels: [(_, &dyn Display); 2] = [("operation", &operation), ("le", &bound)];
                self.sample("_bucket", &labels, latency.within_bits(bits).into());
            }
            let labels: [(_, &dyn Display); 2] = [("operation", &operation), ("le", &"+Inf")];
            self.sample("_bucket", &labels, latency.count.into());
            self.sample("_count", &[("operation", &operation)], latency.count.into());
            self.sample("_sum", &[("operation", &operation)], latency.total.into());
        }
    }
}
