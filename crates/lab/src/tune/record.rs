//! Records of results in files: one JSON object per line.
//!
//! The format is specified in `docs/format/tune-record.md`; a test keeps it and these types in
//! step. A reader ignores unknown fields and rejects a schema newer than [`SCHEMA`].

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use trommel_harness::machine::Environment;
use trommel_harness::record::{ReadError, read_each};

use super::cell::Cell;
use crate::statistics::{mean_and_error, student_quantile};

/// Version of [`Record`] as JSON.
pub const SCHEMA: u32 = 1;

/// A mean over stores, with its error.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Estimate {
    /// The mean.
    pub mean: f64,
    /// The standard error of the mean, from the variance between stores; never less than that of
    /// the count.
    pub standard_error: f64,
    /// 95% confidence interval (Student's t); never below 0.
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

/// The model's prediction for a tree, per lookup on average.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Predicted {
    /// Reads of tables that do not have the key.
    pub wasted_reads: f64,
    /// Bytes of all filters.
    pub filter_bytes: f64,
    /// Filters queried.
    #[serde(rename = "filters_asked")]
    pub filters_queried: f64,
    /// Cache lines touched in filters.
    pub cache_lines: f64,
}

/// The measurements of one level, as means over the stores.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct LevelRecord {
    /// 0, or 1 for the first level below level 0 that holds data, and so on.
    pub level: u64,
    /// Number of sorted runs.
    pub runs: f64,
    /// Number of tables.
    pub tables: f64,
    /// Number of keys, counted per table.
    pub keys: f64,
    /// Bytes of the tables.
    pub bytes: f64,
    /// The filters of its tables.
    pub filters: Vec<String>,
    /// Bytes of the filters in memory.
    pub filter_bytes: f64,
    /// Wasted reads per lookup on this level, predicted by the model from the tables.
    pub predicted: f64,
    /// The same by theory, for exactly the probes that were made.
    pub expected: f64,
    /// The same, measured.
    pub wasted_reads: Estimate,
}

impl LevelRecord {
    /// Bits of filters per key.
    pub fn bits_per_key(&self) -> f64 {
        if self.keys > 0.0 { self.filter_bytes * 8.0 / self.keys } else { 0.0 }
    }
}

/// The measured costs of a lookup.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct LookupCosts {
    /// Wasted reads per lookup of a missing key, as the store's own report expects.
    pub reported_per_miss: f64,
    /// Wasted reads per lookup by theory, for exactly the probes that were made.
    pub expected: f64,
    /// Wasted reads per lookup, measured.
    pub wasted_reads: Estimate,
    /// Microseconds per lookup.
    pub micros: Estimate,
    /// Data blocks searched per lookup.
    pub blocks: f64,
    /// Data blocks read from files per lookup.
    pub block_reads: f64,
    /// Reads of files per lookup, counted by the disk; 0 if files are mapped.
    #[serde(default)]
    pub file_reads: f64,
}

/// A cell and its result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// [`SCHEMA`] of the program that wrote it.
    pub schema: u32,
    /// [`Cell::key`].
    pub key: String,
    /// The title of the plan, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The cell.
    pub cell: Cell,
    /// Start of the measurement: UTC, as `2026-11-21T09:30:00Z`.
    pub start: String,
    /// Duration of the measurement.
    pub seconds: f64,
    /// The machine and the build.
    pub environment: Environment,
    /// The actual tree, from the top.
    pub levels: Vec<LevelRecord>,
    /// Bytes of all filters in memory.
    pub filter_bytes: f64,
    /// Number of keys in all tables, counted per table.
    pub keys: f64,
    /// The model's prediction.
    pub predicted: Predicted,
    /// The measurements, per lookup.
    #[serde(flatten)]
    pub measured: LookupCosts,
}

impl Record {
    /// Bits of filters per key.
    pub fn bits_per_key(&self) -> f64 {
        if self.keys > 0.0 { self.filter_bytes * 8.0 / self.keys } else { 0.0 }
    }

    /// The deviation of the measurement from the prediction, as a fraction of the prediction. None
    /// if nothing was wasted, or none was predicted.
    pub fn off(&self) -> Option<f64> {
        let measured = self.measured.wasted_reads.mean;
        (measured > 0.0).then(|| self.off_by(measured)).filter(|share| share.is_finite())
    }

    /// The same for another measured number of wasted reads.
    pub(crate) fn off_by(&self, wasted_reads: f64) -> f64 {
        wasted_reads / self.predicted.wasted_reads - 1.0
    }

    /// The result in one line.
    pub(super) fn in_words(&self) -> String {
        let half =
            (self.measured.wasted_reads.interval.1 - self.measured.wasted_reads.interval.0) / 2.0;
        format!(
            "{}: {:.2} bits a key, wasted reads {:.4e} ± {half:.1e} a lookup, predicted {:.4e}; \
             {:.2} µs",
            self.cell.name(),
            self.bits_per_key(),
            self.measured.wasted_reads.mean,
            self.predicted.wasted_reads,
            self.measured.micros.mean
        )
    }
}

/// Parses a file of records. Empty lines and unknown fields are ignored.
///
/// # Errors
/// The first line that is not a record, or has a newer schema; a file without any record.
pub fn read_lines(text: &str) -> Result<Vec<Record>, ReadError> {
    read_each(text, "an experiment", SCHEMA)
}

/// Merges the records of several machines. Each cell appears once, in the order of first
/// occurrence, with the record that was started last. Also returns how many records were dropped.
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
