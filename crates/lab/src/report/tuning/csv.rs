//! Results as comma-separated values (RFC 4180, with line feeds): a row for each level of each
//! cell, and one for the whole cell, with level `all`.

use std::io::{self, Write};

use trommel_harness::record::quoted;

use crate::tune::{Estimate, LevelRecord, Record};

/// The columns. They are never renamed or reordered; new ones are appended.
const COLUMNS: [&str; 34] = [
    "key",
    "family",
    "filters",
    "budget",
    "tree",
    "misses",
    "distribution",
    "read_mode",
    "cache_bytes",
    "stores",
    "lookups",
    "seed",
    "level",
    "runs",
    "tables",
    "keys",
    "built_with",
    "filter_bytes",
    "bits_per_key",
    "predicted",
    "expected",
    "wasted_reads",
    "standard_error",
    "low",
    "high",
    "micros",
    "micros_low",
    "micros_high",
    "blocks",
    "block_reads",
    "program",
    "commit",
    "cpu",
    "file_reads",
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
    writeln!(out, "{}", COLUMNS.join(","))?;
    for record in records {
        for part in parts(record) {
            let fields = fields(record, &part).map(|field| quoted(&field));
            writeln!(out, "{}", fields.join(","))?;
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
        expected: record.expected,
        wasted: record.wasted_reads,
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

fn fields(record: &Record, part: &Part) -> [String; COLUMNS.len()] {
    let (cell, environment) = (&record.cell, &record.environment);
    // Times and blocks are known per lookup only, not per level.
    let whole = |value: f64| match part.level.as_str() {
        "all" => value.to_string(),
        _ => String::new(),
    };
    [
        record.key.clone(),
        cell.family.clone(),
        cell.filters.clone(),
        cell.budget.map_or_else(String::new, |bits| bits.to_string()),
        cell.tree.name.clone(),
        cell.misses.to_string(),
        cell.draw.to_string(),
        cell.read_mode.clone(),
        cell.cache_bytes.to_string(),
        cell.stores.to_string(),
        cell.lookups.to_string(),
        cell.seed.to_string(),
        part.level.clone(),
        part.runs.to_string(),
        part.tables.to_string(),
        part.keys.to_string(),
        part.built_with.clone(),
        part.filter_bytes.to_string(),
        part.bits_per_key.to_string(),
        part.predicted.to_string(),
        part.expected.to_string(),
        part.wasted.mean.to_string(),
        part.wasted.standard_error.to_string(),
        part.wasted.interval.0.to_string(),
        part.wasted.interval.1.to_string(),
        whole(record.micros.mean),
        whole(record.micros.interval.0),
        whole(record.micros.interval.1),
        whole(record.blocks),
        whole(record.block_reads),
        environment.program.clone(),
        environment.commit.clone().unwrap_or_default(),
        environment.cpu.clone().unwrap_or_default(),
        whole(record.file_reads),
    ]
}
