//! Statistics as OpenMetrics text, which Prometheus and most other collectors read.
//!
//! Every metric has a type, a unit in its name if it has one, and a line of help. Counters count
//! since the store was opened, or its counters were reset; gauges are what it holds now.

use std::fmt::{Display, Write as _};
use std::time::Duration;

use super::Stats;

/// The metrics written so far.
struct Metrics(String);

impl Metrics {
    /// Begins a family of metrics.
    fn begin(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.0, "# TYPE trommel_{name} {kind}");
        for unit in ["bytes", "seconds"] {
            if name.ends_with(unit) {
                let _ = writeln!(self.0, "# UNIT trommel_{name} {unit}");
            }
        }
        let _ = writeln!(self.0, "# HELP trommel_{name} {help}");
    }

    /// Adds a sample of the family.
    fn sample(&mut self, name: &str, labels: &str, value: impl Display) {
        let _ = writeln!(self.0, "trommel_{name}{labels} {value}");
    }

    fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.begin(name, "counter", help);
        self.sample(&format!("{name}_total"), "", value);
    }

    fn time(&mut self, name: &str, help: &str, value: Duration) {
        self.begin(name, "counter", help);
        self.sample(&format!("{name}_total"), "", value.as_secs_f64());
    }

    fn gauge(&mut self, name: &str, help: &str, value: u64) {
        self.begin(name, "gauge", help);
        self.sample(name, "", value);
    }
}

impl Stats {
    /// These statistics as [OpenMetrics](https://prometheus.io/docs/specs/om/open_metrics_spec/)
    /// text, to be served under the content type `application/openmetrics-text; version=1.0.0`.
    /// Names begin with `trommel_`; a program with several stores must add a label to each.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// db.put("key", "value")?;
    /// let text = db.stats().open_metrics();
    /// assert!(text.contains("\ntrommel_writes_total 1\n") && text.ends_with("# EOF\n"));
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn open_metrics(&self) -> String {
        let mut out = Metrics(String::new());
        self.measure_reads(&mut out);
        self.measure_writes(&mut out);
        self.measure_background(&mut out);
        self.measure_levels(&mut out);
        self.measure_memory(&mut out);
        out.gauge("open_tables", "Tables that are open.", self.open_tables as u64);
        out.gauge("last_seqno", "The newest visible sequence number.", self.last_seqno);
        out.0.push_str("# EOF\n");
        out.0
    }

    fn measure_reads(&self, out: &mut Metrics) {
        let (gets, scans, prefixes) = (&self.lookups, &self.scans, &self.prefixes);
        out.counter("gets", "Point lookups.", gets.gets);
        out.counter("gets_found", "Point lookups that found a value.", gets.found);
        out.counter("memtable_hits", "Point lookups answered by a memtable.", gets.memtable_hits);
        out.counter("block_reads", "Blocks that lookups read from files.", gets.block_reads);
        out.counter("block_read_bytes", "Bytes of these.", gets.block_read_bytes);
        out.counter("block_cache_hits", "Blocks that lookups found in memory.", gets.cache_hits);
        out.counter("scan_block_reads", "Blocks that scans read from files.", scans.block_reads);
        out.counter("scan_cache_hits", "Blocks that scans found in memory.", scans.cache_hits);
        out.counter("scan_entries_skipped", "Entries scans passed over.", scans.entries_skipped);
        out.counter("scan_reseeks", "Seeks past versions of one key.", scans.reseeks);
        out.counter("prefix_filters_checked", "Prefix filters queried.", prefixes.checked);
        out.counter("prefix_filters_useful", "Tables that they spared scans.", prefixes.useful);
        out.gauge("filters_unusable", "Unusable filters.", self.filters.unusable.len() as u64);
        out.gauge("filters_not_held", "Filters beyond memory limits.", self.filters.not_held);
    }

    fn measure_writes(&self, out: &mut Metrics) {
        let writes = &self.writes;
        out.counter("writes", "Operations written.", writes.operations);
        out.counter("user_bytes", "Bytes of their keys and values.", writes.user_bytes);
        out.counter("commits", "Groups of batches committed.", writes.commits);
        out.counter("log_bytes", "Bytes appended to the log.", writes.log_bytes);
        out.counter("log_syncs", "Syncs of the log.", writes.log_syncs);
        let stalls = &self.background.stalls;
        let causes =
            [("memtables", stalls.memtables), ("level_0", stalls.level_0), ("debt", stalls.debt)];
        out.begin("stalls", "counter", "Writes that were slowed or stopped, by cause.");
        for (cause, stall) in causes {
            out.sample("stalls_total", &format!("{{cause=\"{cause}\"}}"), stall.times);
        }
        out.begin("stall_seconds", "counter", "Time that writes waited, by cause.");
        for (cause, stall) in causes {
            let seconds = stall.total.as_secs_f64();
            out.sample("stall_seconds_total", &format!("{{cause=\"{cause}\"}}"), seconds);
        }
    }

    fn measure_background(&self, out: &mut Metrics) {
        let (all, flushes) = (&self.background, &self.background.flushes);
        let (compactions, rebuilds) = (&all.compactions, &all.filter_rebuilds);
        out.counter("flushes", "Memtables flushed.", flushes.count);
        out.counter("flush_bytes", "Bytes of the tables written.", flushes.bytes);
        out.time("flush_seconds", "Time of flushes.", flushes.time);
        out.counter("compactions", "Compactions.", compactions.count);
        out.counter("trivial_moves", "Tables moved down unread.", compactions.trivial_moves);
        out.counter("compaction_read_bytes", "Bytes compactions read.", compactions.bytes_read);
        out.counter(
            "compaction_written_bytes",
            "Bytes compactions wrote.",
            compactions.bytes_written,
        );
        out.time("compaction_seconds", "Time of compactions.", compactions.time);
        out.time("filter_build_seconds", "Time to build filters.", all.filter_time);
        out.counter("filter_rebuilds", "Tables that got new filters.", rebuilds.tables);
        out.gauge("compaction_debt_bytes", "Bytes yet to be compacted.", all.compaction_debt);
        out.gauge("spare_file_bytes", "Bytes of files kept to be recycled.", all.spare_file_bytes);
        out.gauge("deleted_bytes", "Bytes of deleted entries in tables.", all.deleted_bytes);
        out.gauge(
            "background_failing",
            "Whether a job failed last.",
            u64::from(all.error.is_some()),
        );
    }

    fn measure_levels(&self, out: &mut Metrics) {
        type Part = fn(&super::LevelStats) -> u64;
        let parts: [(&str, &str, Part); 5] = [
            ("level_tables", "Tables, by level.", |level| level.tables),
            ("level_bytes", "Bytes of files, by level.", |level| level.bytes),
            ("level_entries", "Entries, by level.", |level| level.entries),
            ("level_tombstones", "Tombstones among them, by level.", |level| level.deletions),
            ("level_filter_bytes", "Bytes of filters, by level.", |level| level.filter_bytes),
        ];
        for (name, help, part) in parts {
            out.begin(name, "gauge", help);
            for level in &self.levels {
                out.sample(name, &format!("{{level=\"{}\"}}", level.level), part(level));
            }
        }
    }

    fn measure_memory(&self, out: &mut Metrics) {
        let memory = &self.memory;
        out.begin("memory_bytes", "gauge", "Memory, by part; the parts add up.");
        for (part, bytes) in [
            ("memtables", memory.memtables),
            ("idle_arenas", memory.idle_arenas),
            ("block_cache", memory.block_cache),
            ("filters", memory.filters),
            ("index", memory.index),
            ("other", memory.other),
            ("construction", memory.construction),
            ("deleted_ranges", memory.deleted_ranges),
        ] {
            out.sample("memory_bytes", &format!("{{part=\"{part}\"}}"), bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use trommel_sim::MemoryVfs;

    use crate::{Db, Options};

    /// Each sample belongs to the family right before it, under the rules of the format.
    #[test]
    fn the_text_keeps_the_rules_of_the_format() {
        let db = Db::open("db", Options::default().vfs(Arc::new(MemoryVfs::new()))).unwrap();
        db.put("key", "value").unwrap();
        db.flush().unwrap();
        db.get("key").unwrap();
        let stats = db.stats();
        let text = stats.open_metrics();
        assert!(text.ends_with("# EOF\n") && !text.contains("\n\n"));
        let (mut families, mut family, mut samples) = (BTreeSet::new(), ("", ""), 0);
        for line in text.lines().take_while(|line| *line != "# EOF") {
            let words: Vec<&str> = line.split(' ').collect();
            if let ["#", keyword, name, rest @ ..] = &*words {
                match *keyword {
                    "TYPE" => {
                        assert!(families.insert(*name), "{name} occurs twice");
                        family = (name, rest[0]);
                    }
                    "UNIT" => assert!(*name == family.0 && name.ends_with(rest[0]), "{line}"),
                    _ => assert!(*keyword == "HELP" && *name == family.0, "{line}"),
                }
                continue;
            }
            let name = words[0].split('{').next().unwrap();
            let wanted = match family.1 {
                "counter" => format!("{}_total", family.0),
                kind => {
                    assert_eq!(kind, "gauge");
                    family.0.to_owned()
                }
            };
            assert_eq!(name, wanted);
            assert!(words.len() == 2 && words[1].parse::<f64>().is_ok(), "{line}");
            samples += 1;
        }
        assert!(families.len() > 40 && samples > families.len(), "{samples} samples");
        let parts = text.lines().filter(|line| line.starts_with("trommel_memory_bytes{"));
        let sum: u64 =
            parts.map(|line| line.split(' ').nth(1).unwrap().parse::<u64>().unwrap()).sum();
        assert_eq!(sum, stats.memory.total());
        for line in ["trommel_gets_found_total 1", "trommel_flushes_total 1"] {
            assert!(text.lines().any(|other| other == line), "{line}");
        }
        assert!(text.contains("\ntrommel_level_entries{level=\"0\"} 1\n"), "{text}");
    }
}
