//! Statistics as metrics: the one table of their names, for every form in which they are published.
//!
//! A family is a name, a type, a help text and its samples. Counters count since the store was
//! opened or its counters were reset; a reader of counters copes with a reset.
//!
//! 1. All values come from counters, from the version and from tables that are open: publishing
//!    opens no table.
//! 2. A level is named by its number in the tree, 0 to 6, whatever other levels hold data. In
//!    reports, levels are numbered by those that hold data, so that a number changes its level when
//!    the tree grows by one: counters would seem to fall.

use std::fmt::Display;
use std::time::Duration;

use crate::background::BackgroundError;
use crate::counters::FilterTotals;
use crate::engine::Engine;
use crate::filter_kinds::{ByKind, KINDS, kind_index};
use crate::job_counters::Stall;
use crate::latencies::LatencyStats;
use crate::levels::LEVELS;
use crate::metric_family::{Family, FamilyKind, Figure, MetricSample};
use crate::stats::{LevelStats, Stats};

/// The name and the help of a family, and the value of each of its samples.
type FigureOf<Of, Value> = (&'static str, &'static str, fn(&Of) -> Value);

/// The bounds of a histogram are powers of two, from 2^8 to 2^34 nanoseconds: 256 ns to 17 s.
const LEAST_BITS: u32 = 8;
const MOST_BITS: u32 = 34;

impl Engine {
    /// All metrics of the store, which are published at this interval, if it is known. None in a
    /// forked child.
    pub(crate) fn metric_families(&self, period: Option<Duration>) -> Vec<Family> {
        if self.access.opener().is_forked() {
            return Vec::new();
        }
        let stats = self.stats();
        let mut all = FamilyList(Vec::new());
        all.family("store", FamilyKind::Info, "The store, by its number.");
        all.sample("_info", &[("id", &format_args!("{:016x}", self.files.store_id))], 1.into());
        if let Some(period) = period {
            all.gauge("metrics_period_seconds", "Time between two publications.", period);
        }
        all.reads(&stats);
        all.writes(&stats);
        all.background(&stats);
        all.memory(&stats);
        all.levels(&self.level_stats());
        let counters = &self.statistics.counters;
        all.filters(&counters.totals().filters, &counters.watched_keys());
        let help = "Expected reads of data blocks that a lookup of a missing key wastes.";
        let wasted = self.wasted_reads_by_open_tables();
        all.gauge("expected_wasted_reads_per_miss", help, wasted);
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
        let help = "Data blocks that scans skipped, as range filters denied them.";
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
            self.sample("_total", &[("cause", &cause)], total.into());
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

    /// All levels, so that those of a level that has lost its data become 0.
    fn levels(&mut self, held: &[(usize, LevelStats)]) {
        let figures: [FigureOf<LevelStats, u64>; 5] = [
            ("level_tables", "Tables, by level.", |level| level.tables),
            ("level_bytes", "Bytes of tables, by level.", |level| level.bytes),
            ("level_entries", "Entries, by level.", |level| level.entries),
            ("level_tombstones", "Tombstones, by level.", |level| level.deletions),
            ("level_filter_bytes", "Bytes of filters, by level.", |level| level.filter_bytes),
        ];
        for (name, help, of) in figures {
            self.family(name, FamilyKind::Gauge, help);
            for level in 0..LEVELS {
                let held = held.iter().find(|(number, _)| *number == level);
                let value = held.map_or(0, |(_, stats)| of(stats));
                self.sample("", &[("level", &level)], value.into());
            }
        }
    }

    fn filters(&mut self, totals: &ByKind<FilterTotals>, keys: &ByKind<u64>) {
        let figures: [FigureOf<FilterTotals, Figure>; 5] = [
            ("filter_probes", "Probes of filters.", |cell| cell.probes().into()),
            ("filter_negatives", "Probes that saved a read.", |cell| cell.negatives.into()),
            ("filter_false_positives", "Probes that wasted a read.", |cell| {
                cell.false_positives.into()
            }),
            ("filter_true_positives", "Probes for keys of the table.", |cell| {
                cell.true_positives.into()
            }),
            (
                "filter_expected_false_positives",
                "False positives expected of these probes.",
                |cell| cell.expected.into(),
            ),
        ];
        let cells = || (0..LEVELS).flat_map(|level| KINDS.map(|kind| (level, kind)));
        let probed = cells().filter(|(level, kind)| totals[*level][kind_index(*kind)].probes() > 0);
        let probed: Vec<_> = probed.collect();
        for (name, help, of) in figures {
            self.family(name, FamilyKind::Counter, format!("{help} By level and kind."));
            for (level, kind) in &probed {
                let value = of(&totals[*level][kind_index(*kind)]);
                self.sample("_total", &[("level", level), ("kind", kind)], value);
            }
        }
        let help = "Keys in the last two windows of false positives. By level and kind.";
        self.family("filter_false_positive_keys", FamilyKind::Gauge, help);
        for (level, kind) in &probed {
            let keys = keys[*level][kind_index(*kind)];
            self.sample("", &[("level", level), ("kind", kind)], keys.into());
        }
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use trommel_sim::{MemoryVfs, OpKind, SimDisk};

    use crate::{Db, Options};

    fn samples(db: &Db) -> BTreeMap<String, f64> {
        let text = db.openmetrics("it");
        let samples =
            text.lines().filter_map(|line| line.strip_prefix("trommel_")?.rsplit_once(' '));
        samples.map(|(name, value)| (name.to_owned(), value.parse().unwrap())).collect()
    }

    /// Regression: each publication opened every table.
    #[test]
    fn publishing_opens_no_table() {
        let disk = SimDisk::new();
        let options = Options::default()
            .vfs(Arc::new(disk.clone()))
            .compaction(|c| c.auto_compaction(false))
            .reads(|r| r.max_open_files(16));
        let db = Db::open("db", options.clone()).unwrap();
        for key in 0..40_u32 {
            db.put(format!("{key}"), "value").unwrap();
            db.flush().unwrap();
        }
        db.close().unwrap();
        let db = Db::open("db", options).unwrap();
        let opens = || disk.calls(OpKind::Open);
        for lookups in [0, 1000] {
            (0..lookups).for_each(|key| _ = db.get(format!("{}", key % 50)).unwrap());
            let before = opens();
            for _period in 0..2 {
                let samples = samples(&db);
                assert_eq!(samples["level_tables{store=\"it\",level=\"0\"}"], 40.0);
                let wasted = samples["expected_wasted_reads_per_miss{store=\"it\"}"];
                assert_eq!(wasted.is_nan(), lookups == 0, "unknown until a table is open");
            }
            assert_eq!(opens(), before);
        }
        // The counter works, and there are more tables than may be open.
        let before = opens();
        db.filter_report();
        assert!(opens() - before >= 24, "{} to {}", before, opens());
    }

    /// Regression: each of many overlapping tables counted as if every lookup reached it.
    #[test]
    fn wasted_reads_are_those_of_the_report() {
        let spec = crate::FilterSpec::new(crate::FilterKind::Standard, 4.0).unwrap();
        let options = Options::default()
            .vfs(Arc::new(MemoryVfs::new()))
            .filters(crate::FilterPolicy::uniform(spec))
            .compaction(|c| c.auto_compaction(false));
        let db = Db::open("db", options).unwrap();
        let published = |db: &Db| samples(db)["expected_wasted_reads_per_miss{store=\"it\"}"];
        let is_equal = |db: &Db| {
            let (report, gauge) =
                (db.filter_report().expected_wasted_reads_per_miss, published(db));
            assert!(report > 0.001 && (gauge - report).abs() < 1e-9, "{report} {gauge}");
        };
        for table in 0..20_u32 {
            (0..50).for_each(|key| _ = db.put(format!("{:05}", table * 50 + key), "v").unwrap());
            db.flush().unwrap();
        }
        is_equal(&db);
        db.compact_all().unwrap();
        (0..10).for_each(|key| _ = db.put(format!("{:05}", key * 100), "new").unwrap());
        db.flush().unwrap();
        is_equal(&db);
    }

    /// Regression: the counters of a level became those of another one when the tree grew.
    #[test]
    fn counters_do_not_fall_when_levels_are_renumbered() {
        let options = Options::default()
            .vfs(Arc::new(MemoryVfs::new()))
            .compression(crate::Compression::None)
            .writes(|w| w.write_buffer_bytes(64 << 10))
            .compaction(|c| c.base_level_bytes(128 << 10));
        let db = Db::open("db", options).unwrap();
        let put = |keys: std::ops::Range<u32>| {
            keys.for_each(|key| _ = db.put(format!("{key:08}"), [b'x'; 100]).unwrap());
        };
        put(0..100);
        db.compact_all().unwrap();
        (0..20_000).for_each(|key| _ = db.get(format!("{key:08}.5")).unwrap());
        let before = samples(&db);
        let mut probes = before.iter().filter(|(name, _)| name.starts_with("filter_probes_total"));
        assert!(probes.any(|(_, probes)| *probes > 90.0), "{before:?}");
        // Until the level that was L1 is L2.
        let is_renumbered = |round: &u32| {
            put(round * 500..(round + 1) * 500);
            db.stats().levels.iter().any(|level| level.level == 2)
        };
        assert!((0..2000).any(|round| is_renumbered(&round)), "{:?}", db.stats().levels);
        let after = samples(&db);
        let counters = before.iter().filter(|(name, _)| name.contains("_total"));
        assert!(counters.clone().count() > 30);
        for (name, before) in counters {
            assert!(after.get(name).is_some_and(|after| after >= before), "{name}: {after:?}");
        }
    }
}
