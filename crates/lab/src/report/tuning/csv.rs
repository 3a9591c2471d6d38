//! Results as comma-separated values (RFC 4180, with line feeds): a row for each level of each
//! cell, and one for the whole cell, with level `all`.

use std::io::{self, Write};

use trommel_harness::table::csv_line;

use crate::tune::{Estimate, LevelRecord, Record};

/// The name of a column, and its text for a part of a record.
type Column = (&'static str, fn(&Record, &Part) -> String);

/// A column is never renamed or moved; new ones come last.
const COLUMNS: [Column; 34] = [
    ("key", |r, _| r.key.clone()),
    ("family", |r, _| r.cell.family.clone()),
    ("filters", |r, _| r.cell.filters.clone()),
    ("budget", |r, _| r.cell.budget.map_or_else(String::new, |bits| bits.to_string())),
    ("tree", |r, _| r.cell.tree.name.clone()),
    ("misses", |r, _| r.cell.misses.to_string()),
    ("distribution", |r, _| r.cell.draw.to_string()),
    ("read_mode", |r, _| r.cell.read_mode.clone()),
    ("cache_bytes", |r, _| r.cell.cache_bytes.to_string()),
    ("stores", |r, _| r.cell.stores.to_string()),
    ("lookups", |r, _| r.cell.lookups.to_string()),
    ("seed", |r, _| r.cell.seed.to_string()),
    ("level", |_, p| p.level.clone()),
    ("runs", |_, p| p.runs.to_string()),
    ("tables", |_, p| p.tables.to_string()),
    ("keys", |_, p| p.keys.to_string()),
    ("built_with", |_, p| p.built_with.clone()),
    ("filter_bytes", |_, p| p.filter_bytes.to_string()),
    ("bits_per_key", |_, p| p.bits_per_key.to_string()),
    ("predicted", |_, p| p.predicted.to_string()),
    ("expected", |_, p| p.expected.to_string()),
    ("wasted_reads", |_, p| p.wasted.mean.to_string()),
    ("standard_error", |_, p| p.wasted.standard_error.to_string()),
    ("low", |_, p| p.wasted.interval.0.to_string()),
    ("high", |_, p| p.wasted.interval.1.to_string()),
    ("micros", |r, p| whole(p, r.measured.micros.mean)),
    ("micros_low", |r, p| whole(p, r.measured.micros.interval.0)),
    ("micros_high", |r, p| whole(p, r.measured.micros.interval.1)),
    ("blocks", |r, p| whole(p, r.measured.blocks)),
    ("block_reads", |r, p| whole(p, r.measured.block_reads)),
    ("program", |r, _| r.environment.build.program.clone()),
    ("commit", |r, _| r.environment.build.commit.clone().unwrap_or_default()),
    ("cpu", |r, _| r.environment.cpu.clone().unwrap_or_default()),
    ("file_reads", |r, p| whole(p, r.measured.file_reads)),
];

/// The figures of a level, or of all levels.
struct Part {
    level: String,
    runs: f64,
    tables: f64,
    keys: f64,
    built_with: String,
    filter_bytes: f64,
    bits_per_key: f64,
    predicted: f64,
    expected: f64,
    wasted: Estimate,
}

/// Writes all records.
///
/// # Errors
/// Any error of `out`.
pub fn write_csv(records: &[Record], out: &mut dyn Write) -> io::Result<()> {
    out.write_all(csv_line(COLUMNS.map(|(name, _)| name)).as_bytes())?;
    for record in records {
        for part in parts(record) {
            out.write_all(csv_line(COLUMNS.map(|(_, of)| of(record, &part))).as_bytes())?;
        }
    }
    Ok(())
}

fn parts(record: &Record) -> Vec<Part> {
    let sum = |value: fn(&LevelRecord) -> f64| record.levels.iter().map(value).sum();
    let all = Part {
        level: "all".into(),
        runs: sum(|level| level.runs),
        tables: sum(|level| level.tables),
        keys: record.keys,
        built_with: String::new(),
        filter_bytes: record.filter_bytes,
        bits_per_key: record.bits_per_key(),
        predicted: record.predicted.wasted_reads,
        expected: record.measured.expected,
        wasted: record.measured.wasted_reads,
    };
    let levels = record.levels.iter().map(|level| Part {
        level: level.level.to_string(),
        runs: level.runs,
        tables: level.tables,
        keys: level.keys,
        built_with: level.filters.join(" "),
        filter_bytes: level.filter_bytes,
        bits_per_key: level.bits_per_key(),
        predicted: level.predicted,
        expected: level.expected,
        wasted: level.wasted_reads,
    });
    std::iter::once(all).chain(levels).collect()
}

// Times and blocks are known per lookup only, not per level.
fn whole(part: &Part, value: f64) -> String {
    if part.level == "all" { value.to_string() } else { String::new() }
}
