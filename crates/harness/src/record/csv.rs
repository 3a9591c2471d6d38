//! Records as comma-separated values: one row per workload, always the same columns, for
//! spreadsheets and scripts. The format is RFC 4180, with line feeds.
//!
//! A field is empty if the record does not have it. Parts whose fields vary between records
//! (settings, levels, filters, memory) are one JSON field each.

use std::io::{self, Write};

use serde::Serialize;

use super::{Io, Record, Times};
use crate::table::csv_line;

/// The name of a column, and its text for a record.
type Column = (&'static str, fn(&Record) -> String);

/// Columns are never renamed or reordered; new ones are appended.
const COLUMNS: [Column; 64] = [
    ("schema", |r| r.schema.to_string()),
    ("run", |r| r.run.clone()),
    ("store", |r| r.store.name.clone()),
    ("store_version", |r| r.store.version.clone()),
    ("workload", |r| r.workload.clone()),
    ("repeat", |r| r.repeat.to_string()),
    ("start", |r| r.start.clone()),
    ("threads", |r| r.threads.to_string()),
    ("operations", |r| r.results.operations.to_string()),
    ("operations_per_second", |r| r.operations_per_second().to_string()),
    ("micros_per_operation", |r| r.micros_per_operation().to_string()),
    ("bytes", |r| r.results.bytes.to_string()),
    ("found", |r| text(r.results.found)),
    ("asked", |r| text(r.results.asked)),
    ("wall_seconds", |r| r.results.wall_seconds.to_string()),
    ("thread_seconds", |r| r.results.thread_seconds.to_string()),
    ("user_seconds", |r| text(r.results.user_seconds)),
    ("system_seconds", |r| text(r.results.system_seconds)),
    ("interrupted", |r| r.results.interrupted.to_string()),
    ("latency_count", |r| time(r, |t| t.count)),
    ("latency_min_ns", |r| time(r, |t| t.min)),
    ("latency_mean_ns", |r| time(r, |t| t.mean)),
    ("latency_p50_ns", |r| time(r, |t| t.p50)),
    ("latency_p75_ns", |r| time(r, |t| t.p75)),
    ("latency_p90_ns", |r| time(r, |t| t.p90)),
    ("latency_p95_ns", |r| time(r, |t| t.p95)),
    ("latency_p99_ns", |r| time(r, |t| t.p99)),
    ("latency_p999_ns", |r| time(r, |t| t.p999)),
    ("latency_p9999_ns", |r| time(r, |t| t.p9999)),
    ("latency_max_ns", |r| time(r, |t| t.max)),
    ("gets", |r| io(r, |io| io.lookups.gets)),
    ("block_reads", |r| io(r, |io| io.lookups.block_reads)),
    ("cache_hits", |r| io(r, |io| io.lookups.cache_hits)),
    ("bytes_read", |r| io(r, |io| io.bytes_read)),
    ("bytes_written", |r| io(r, |io| io.bytes_written)),
    ("user_bytes", |r| io(r, |io| io.user_bytes)),
    ("log_bytes", |r| io(r, |io| io.log_bytes)),
    ("log_syncs", |r| io(r, |io| io.log_syncs)),
    ("flushes", |r| io(r, |io| io.flushes.count)),
    ("flush_bytes", |r| io(r, |io| io.flushes.bytes)),
    ("compactions", |r| io(r, |io| io.compactions.count)),
    ("compaction_bytes_read", |r| io(r, |io| io.compactions.bytes_read)),
    ("compaction_bytes_written", |r| io(r, |io| io.compactions.bytes_written)),
    ("flush_seconds", |r| io(r, |io| io.flushes.seconds)),
    ("compaction_seconds", |r| io(r, |io| io.compactions.seconds)),
    ("filter_seconds", |r| io(r, |io| io.filter_seconds)),
    ("stall_seconds", |r| io(r, |io| io.stall_seconds)),
    ("write_amplification", |r| text(r.state.amplification.as_ref().and_then(|a| a.write))),
    ("space_amplification", |r| text(r.state.amplification.as_ref().and_then(|a| a.space))),
    ("read_amplification", |r| text(r.state.amplification.as_ref().and_then(|a| a.read))),
    ("level_bytes", |r| {
        text(r.state.levels.as_ref().map(|all| all.iter().map(|level| level.bytes).sum::<u64>()))
    }),
    ("filter_bytes", |r| {
        text(r.state.filters.as_ref().map(|all| all.iter().map(|filter| filter.bytes).sum::<u64>()))
    }),
    ("filter_budget_bytes", |r| text(r.state.budget.as_ref().map(|budget| budget.budget_bytes))),
    ("filter_resident_bytes", |r| {
        text(r.state.budget.as_ref().map(|budget| budget.resident_bytes))
    }),
    ("memory_bytes", |r| text(r.state.memory.as_ref().map(|all| all.values().sum::<u64>()))),
    ("cpu", |r| text(r.environment.cpu.clone())),
    ("cores", |r| r.environment.cores.to_string()),
    ("commit", |r| text(r.environment.build.commit.clone())),
    ("settings", |r| json(&r.settings)),
    ("levels", |r| r.state.levels.as_ref().map_or(String::new(), json)),
    ("filters", |r| r.state.filters.as_ref().map_or(String::new(), json)),
    ("budget", |r| r.state.budget.as_ref().map_or(String::new(), json)),
    ("memory", |r| r.state.memory.as_ref().map_or(String::new(), json)),
    ("environment", |r| json(&r.environment)),
];

fn text<T: ToString>(value: Option<T>) -> String {
    value.map_or(String::new(), |value| value.to_string())
}

fn time<T: ToString>(record: &Record, of: impl Fn(&Times) -> T) -> String {
    text(record.results.latency_ns.as_ref().map(of))
}

fn io<T: ToString>(record: &Record, of: impl Fn(&Io) -> Option<T>) -> String {
    text(record.state.io.as_ref().and_then(of))
}

fn json<T: Serialize>(value: &T) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

/// Writes the header line.
///
/// # Errors
/// Any error of `out`.
pub fn write_csv_header(out: &mut dyn Write) -> io::Result<()> {
    out.write_all(csv_line(COLUMNS.iter().map(|(name, _)| name)).as_bytes())
}

/// Writes the line of a record.
///
/// # Errors
/// Any error of `out`.
pub fn write_csv(record: &Record, out: &mut dyn Write) -> io::Result<()> {
    out.write_all(csv_line(COLUMNS.iter().map(|(_, of)| of(record))).as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::testing::full;

    /// Splits a line according to RFC 4180.
    fn fields(line: &str) -> Vec<String> {
        let (mut fields, mut is_quoted) = (vec![String::new()], false);
        let mut chars = line.trim_end_matches('\n').chars().peekable();
        while let Some(c) = chars.next() {
            let field = fields.last_mut().unwrap();
            match c {
                '"' if is_quoted && chars.peek() == Some(&'"') => {
                    field.push('"');
                    chars.next();
                }
                '"' => is_quoted = !is_quoted,
                ',' if !is_quoted => fields.push(String::new()),
                c => field.push(c),
            }
        }
        fields
    }

    #[test]
    fn a_record_is_a_row_under_its_columns() {
        let mut record = full();
        record.workload = "read,\"ran\"\ndom".into();
        let (mut header, mut row) = (Vec::new(), Vec::new());
        write_csv_header(&mut header).unwrap();
        write_csv(&record, &mut row).unwrap();
        let header = fields(&String::from_utf8(header).unwrap());
        let row = fields(&String::from_utf8(row).unwrap());
        assert_eq!((header.len(), row.len()), (COLUMNS.len(), COLUMNS.len()));
        let value = |name: &str| &*row[header.iter().position(|column| column == name).unwrap()];
        assert_eq!(value("workload"), "read,\"ran\"\ndom");
        assert_eq!((value("operations"), value("found")), ("1000000", "632132"));
        assert_eq!((value("latency_p50_ns"), value("block_reads")), ("1773", "640211"));
        assert_eq!((value("write_amplification"), value("level_bytes")), ("3.25", "73949747"));
        let settings: serde_json::Value = serde_json::from_str(value("settings")).unwrap();
        assert_eq!(settings["filters"], "L0=paired:16,L1-=paired:12");
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(value("levels")).unwrap()[1]["level"],
            1
        );
    }

    #[test]
    fn unknown_values_are_empty() {
        let mut row = Vec::new();
        write_csv(&Record::default(), &mut row).unwrap();
        let row = fields(&String::from_utf8(row).unwrap());
        for (column, field) in COLUMNS.iter().map(|(name, _)| name).zip(row) {
            let is_part = ["latency", "block", "levels", "memory", "found"]
                .iter()
                .any(|part| column.starts_with(part));
            assert!(!is_part || field.is_empty(), "{column}: {field}");
        }
    }
}
