//! Statistics as OpenMetrics text, which Prometheus and compatible systems read.
//!
//! A family is a name, a type, a help text and its samples. Counters count since the store was
//! opened or its counters were reset; a reader of counters copes with a reset.
//!
//! Source: [OpenMetrics 1.0](https://prometheus.io/docs/specs/om/open_metrics_spec/).

use std::fmt::{Display, Write};
use std::time::Duration;

use crate::background::BackgroundError;
use crate::job_counters::Stall;
use crate::report::{FilterLevel, FilterReport};
use crate::stats::{LevelStats, Stats};

/// The name and the help of a family, and the value of each of its samples.
type Figure<Of, Value> = (&'static str, &'static str, fn(&Of) -> Value);

/// The text, with its end marker.
pub(crate) fn text(stats: &Stats, filters: &FilterReport) -> String {
    let mut text = MetricsText(String::new());
    text.reads(stats);
    text.writes(stats);
    text.background(stats);
    text.memory(stats);
    text.levels(&stats.levels);
    text.filters(filters);
    text.0.push_str("# EOF\n");
    text.0
}

struct MetricsText(String);

impl MetricsText {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a string never fails.
        let _ = writeln!(self.0, "# TYPE trommel_{name} {kind}\n# HELP trommel_{name} {help}");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &dyn Display)], value: impl Display) {
        let _ = write!(self.0, "trommel_{name}");
        for (nth, (label, value)) in labels.iter().enumerate() {
            let before = if nth == 0 { '{' } else { ',' };
            let _ = write!(self.0, "{before}{label}=\"{}\"", escaped(&value.to_string()));
        }
        let after = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.0, "{after} {value}");
    }

    fn counter(&mut self, name: &str, help: &str, value: impl Display) {
        self.family(name, "counter", help);
        self.sample(&format!("{name}_total"), &[], value);
    }

    fn seconds(&mut self, name: &str, help: &str, time: Duration) {
        self.counter(name, help, time.as_secs_f64());
    }

    fn gauge(&mut self, name: &str, help: &str, value: impl Display) {
        self.family(name, "gauge", help);
        self.sample(name, &[], value);
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
        self.family("write_stalls", "counter", "Write stalls, by cause.");
        for (cause, Stall { times, .. }) in causes {
            self.sample("write_stalls_total", &[("cause", &cause)], times);
        }
        self.family("write_stall_seconds", "counter", "Time of write stalls, by cause.");
        for (cause, Stall { total, .. }) in causes {
            self.sample("write_stall_seconds_total", &[("cause", &cause)], total.as_secs_f64());
        }
    }

    fn background(&mut self, stats: &Stats) {
        let all = &stats.background;
        let (flushes, compactions) = (&all.flushes, &all.compactions);
        self.counter("flushes", "Memtables flushed.", flushes.count);
        self.counter("flush_bytes", "Bytes of tables that flushes wrote.", flushes.bytes);
        self.seconds("flush_seconds", "Time of flushes.", flushes.time);
        self.counter("compactions", "Compactions that merged tables.", compactions.count);
        let help = "Bytes that compactions read.";
        self.counter("compaction_read_bytes", help, compactions.bytes_read);
        let help = "Bytes that compactions wrote.";
        self.counter("compaction_written_bytes", help, compactions.bytes_written);
        self.seconds("compaction_seconds", "Time of compactions.", compactions.time);
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
        self.gauge("background_failing", help, u8::from(fails));
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
        self.family("memory_bytes", "gauge", "Memory, by component.");
        for (part, bytes) in parts {
            self.sample("memory_bytes", &[("component", &part)], bytes);
        }
        self.gauge("open_tables", "Tables that are open.", stats.open_tables);
        self.gauge("last_sequence_number", "Newest visible sequence number.", stats.last_seqno);
    }

    fn levels(&mut self, levels: &[LevelStats]) {
        let figures: [Figure<LevelStats, u64>; 5] = [
            ("level_tables", "Tables, by level.", |level| level.tables),
            ("level_bytes", "Bytes of tables, by level.", |level| level.bytes),
            ("level_entries", "Entries, by level.", |level| level.entries),
            ("level_tombstones", "Tombstones, by level.", |level| level.deletions),
            ("level_filter_bytes", "Bytes of filters, by level.", |level| level.filter_bytes),
        ];
        for (name, help, of) in figures {
            self.family(name, "gauge", help);
            for level in levels {
                self.sample(name, &[("level", &level.level)], of(level));
            }
        }
    }

    fn filters(&mut self, report: &FilterReport) {
        let counts: [Figure<FilterLevel, u64>; 4] = [
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
            self.family(name, "counter", &format!("{help} By level and kind."));
            for row in rows {
                let labels: [(&str, &dyn Display); 2] =
                    [("level", &row.level), ("kind", &row.kind)];
                self.sample(&format!("{name}_total"), &labels, of(row));
            }
        }
        let rates: [Figure<FilterLevel, Option<f64>>; 2] = [
            ("filter_measured_rate", "Measured rate of false positives.", |row| row.rates.measured),
            ("filter_expected_rate", "Rate that theory expects of these probes.", |row| {
                row.rates.expected
            }),
        ];
        for (name, help, of) in rates {
            self.family(name, "gauge", help);
            for row in rows {
                let labels: [(&str, &dyn Display); 2] =
                    [("level", &row.level), ("kind", &row.kind)];
                if let Some(rate) = of(row) {
                    self.sample(name, &labels, rate);
                }
            }
        }
        let help = "Expected reads of data blocks that a lookup of a missing key wastes.";
        let wasted = report.expected_wasted_reads_per_miss;
        self.gauge("expected_wasted_reads_per_miss", help, wasted);
    }
}

/// A label's value as it is written between quotation marks.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use trommel_sim::MemoryVfs;

    use crate::{Db, Options};

    fn store() -> Db {
        let options = Options::default().vfs(Arc::new(MemoryVfs::new()));
        let db = Db::open("db", options.filters("blocked:10".parse().unwrap())).unwrap();
        (0..1000_u32).for_each(|key| _ = db.put(format!("{:04}", 2 * key), "value").unwrap());
        db.flush().unwrap();
        (0..1999_u32).for_each(|key| _ = db.get(format!("{key:04}")).unwrap());
        db
    }

    /// Each sample belongs to the family above it, each family occurs once, and the values are
    /// those of the statistics.
    #[test]
    fn the_text_is_openmetrics_and_has_the_values_of_the_statistics() {
        let db = store();
        let text = db.openmetrics();
        let body = text.strip_suffix("# EOF\n").expect("an end marker");
        let (mut names, mut family, mut is_counter) = (BTreeSet::new(), "", false);
        for line in body.lines() {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').unwrap();
                assert!(names.insert(name), "{name} twice");
                assert!(["counter", "gauge"].contains(&kind), "{line}");
                (family, is_counter) = (name, kind == "counter");
                continue;
            }
            if let Some(rest) = line.strip_prefix("# HELP ") {
                assert_eq!(rest.split_once(' ').unwrap().0, family);
                continue;
            }
            let (sample, value) = line.rsplit_once(' ').unwrap();
            let name = sample.split('{').next().unwrap();
            assert_eq!(name, if is_counter { format!("{family}_total") } else { family.into() });
            assert!(value.parse::<f64>().is_ok_and(f64::is_finite), "{line}");
        }
        let stats = db.stats();
        let has = |line: String| assert!(body.lines().any(|it| it == line), "{line} in\n{body}");
        has("trommel_gets_total 1999".into());
        has("trommel_gets_found_total 1000".into());
        has("trommel_level_entries{level=\"0\"} 1000".into());
        has(format!("trommel_memory_bytes{{component=\"memtables\"}} {}", stats.memory.memtables));
        let counts = db.filter_report().levels[0].counts;
        assert!(counts.negatives > 900, "{counts:?}");
        let labels = "{level=\"0\",kind=\"blocked\"}";
        has(format!("trommel_filter_negatives_total{labels} {}", counts.negatives));
    }

    #[test]
    fn a_label_cannot_end_its_line() {
        assert_eq!(super::escaped("a\"b\\c\nd"), "a\\\"b\\\\c\\nd");
    }
}
