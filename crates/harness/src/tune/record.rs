//! Results in files: one JSON object a line.
//!
//! `docs/format/tune-record.md` is the page for readers of such files; a test holds it and these
//! types together. A reader ignores fields that it does not know and refuses a schema newer than
//! [`SCHEMA`].

use std::collections::HashMap;
use std::io::{self, Write};

use serde::{Deserialize, Serialize};

use super::cell::Cell;
use crate::machine::Environment;
use crate::record::{ReadError, read_each};
use crate::statistics::{mean_and_error, student_quantile};

/// Version of [`Record`] as JSON.
pub const SCHEMA: u32 = 1;

/// A mean over stores, and how sure it is.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Estimate {
    /// The mean.
    pub mean: f64,
    /// One standard error of it, from the variance between stores; never less than that of the
    /// count.
    pub standard_error: f64,
    /// 95% interval (Student's t); never below 0.
    pub interval: (f64, f64),
}

impl Estimate {
    /// The mean of `values`, whose standard error is at least `floor`.
    pub(super) fn of(values: &[f64], floor: f64) -> Self {
        let one = (values.first().copied().unwrap_or(0.0), 0.0);
        let (mean, square) = mean_and_error(values).unwrap_or(one);
        let standard_error = square.sqrt().max(floor);
        let freedom = (values.len() as f64 - 1.0).max(1.0);
        let half = student_quantile(0.05, freedom) * standard_error;
        Self { mean, standard_error, interval: ((mean - half).max(0.0), mean + half) }
    }
}

/// What the model says of a tree, of one lookup on average.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Predicted {
    /// Tables read that do not have the key.
    pub wasted_reads: f64,
    /// Bytes of all filters.
    pub filter_bytes: f64,
    /// Filters asked.
    pub filters_asked: f64,
    /// Cache lines touched in them.
    pub cache_lines: f64,
}

/// One level, as it was measured: the mean over the stores.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct LevelRecord {
    /// 0, or 1 for the first level below that holds data, and so on.
    pub level: u64,
    /// Sorted runs.
    pub runs: f64,
    /// Tables.
    pub tables: f64,
    /// Keys, each table's on its own.
    pub keys: f64,
    /// Bytes of the tables.
    pub bytes: f64,
    /// The filters that its tables were built with.
    pub filters: Vec<String>,
    /// Their bytes in memory.
    pub filter_bytes: f64,
    /// Reads a lookup wastes there, as the model predicts it from the tables.
    pub predicted: f64,
    /// The same by theory, for just the probes that were made.
    pub expected: f64,
    /// The same as measured.
    pub wasted_reads: Estimate,
}

impl LevelRecord {
    /// Bits of filter for a key.
    pub fn bits_per_key(&self) -> f64 {
        if self.keys > 0.0 { self.filter_bytes * 8.0 / self.keys } else { 0.0 }
    }
}

/// A cell and its result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// [`SCHEMA`] of the program that wrote it.
    pub schema: u32,
    /// [`Cell::key`].
    pub key: String,
    /// What its plan is called, if it says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// What was measured.
    pub cell: Cell,
    /// When it began: UTC, as `2026-11-21T09:30:00Z`.
    pub start: String,
    /// How long it took.
    pub seconds: f64,
    /// The machine and the build.
    pub environment: Environment,
    /// The tree that was measured, from the top.
    pub levels: Vec<LevelRecord>,
    /// Bytes of all filters in memory.
    pub filter_bytes: f64,
    /// Keys of all tables.
    pub keys: f64,
    /// What the model says.
    pub predicted: Predicted,
    /// Reads that a lookup of a missing key wastes, as the store's own report expects it.
    pub reported_per_miss: f64,
    /// Reads that a lookup wastes, by theory, for just the probes that were made.
    pub expected: f64,
    /// Reads that a lookup wasted.
    pub wasted_reads: Estimate,
    /// Microseconds of a lookup.
    pub micros: Estimate,
    /// Data blocks looked into, of one lookup.
    pub blocks: f64,
    /// Of those, read from files.
    pub block_reads: f64,
    /// Reads of files as the disk counted them, of one lookup: none where files are mapped.
    #[serde(default)]
    pub file_reads: f64,
}

impl Record {
    /// Bits of filter for a key.
    pub fn bits_per_key(&self) -> f64 {
        if self.keys > 0.0 { self.filter_bytes * 8.0 / self.keys } else { 0.0 }
    }

    /// How far off the prediction is: what was measured less what was predicted, as a share of
    /// that. None where nothing was wasted, or nothing predicted.
    pub fn off(&self) -> Option<f64> {
        let measured = self.wasted_reads.mean;
        (measured > 0.0).then(|| self.off_by(measured)).filter(|share| share.is_finite())
    }

    /// The same of another measured number of wasted reads.
    pub(crate) fn off_by(&self, wasted_reads: f64) -> f64 {
        wasted_reads / self.predicted.wasted_reads - 1.0
    }

    /// The result in a line.
    pub(super) fn in_words(&self) -> String {
        let half = (self.wasted_reads.interval.1 - self.wasted_reads.interval.0) / 2.0;
        format!(
            "{}: {:.2} bits a key, wasted reads {:.4e} ± {half:.1e} a lookup, predicted {:.4e}; \
             {:.2} µs",
            self.cell.name(),
            self.bits_per_key(),
            self.wasted_reads.mean,
            self.predicted.wasted_reads,
            self.micros.mean
        )
    }
}

/// Writes `record` as one line.
///
/// # Errors
/// What `out` reports.
pub fn write_line(record: &Record, out: &mut dyn Write) -> io::Result<()> {
    let mut line = serde_json::to_string(record)?;
    line.push('\n');
    out.write_all(line.as_bytes())
}

/// Reads the text of a file of records. Empty lines are passed over, fields that are not known are
/// ignored.
///
/// # Errors
/// The first line that is no record, or one of a newer schema; a file without any record.
pub fn read_lines(text: &str) -> Result<Vec<Record>, ReadError> {
    read_each(text, "an experiment", SCHEMA)
}

/// Records of several machines, each cell once, in the order of their first: of those of one cell
/// that which was begun last. Also how many were left out.
pub fn merge(records: Vec<Record>) -> (Vec<Record>, usize) {
    let all = records.len();
    let mut places: HashMap<String, usize> = HashMap::new();
    let mut kept: Vec<Record> = Vec::new();
    for record in records {
        match places.get(&record.key) {
            None => {
                places.insert(record.key.clone(), kept.len());
                kept.push(record);
            }
            Some(&at) if kept[at].start <= record.start => kept[at] = record,
            Some(_) => {}
        }
    }
    let left_out = all - kept.len();
    (kept, left_out)
}
