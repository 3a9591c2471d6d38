//! The results of one workload of a bench as a line of JSON, for other programs.
//!
//! The format is specified in `docs/format/bench-record.md`; a test keeps it and these types in
//! step.
//!
//! 1. A [`Run`] is the part that all workloads of a bench share: the store, its settings, and the
//!    machine.
//! 2. [`Record::new`] joins it with the measurements; the store's own counters are added as
//!    [`Record::state`] if the store has them.
//! 3. [`write_line`] writes a record, [`read_lines`] reads a file of them.
//!
//! Invariants: a value that a store does not know is left out, never zero. A reader ignores unknown
//! fields and rejects a schema newer than [`SCHEMA`]; so a new field keeps the number, and a field
//! whose meaning changes raises it. Called by the bench, by the comparison with other stores, by
//! the report and by `compare`.

mod budget;
mod lines;
mod state;
#[cfg(test)]
mod testing;
mod times;

use std::collections::HashMap;
use std::time::SystemTime;

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::machine::Environment;
use crate::measured::Measured;
use crate::units;

pub use budget::BudgetRecord;
pub use lines::{ReadError, read_each, read_lines, write_line};
pub use state::{
    Amplification, CompactionIo, FilterCounts, FilterRates, FilterRecord, FlushIo, Io, LevelRecord,
    LookupIo, State,
};
pub use times::Times;

/// Version of the records that this program writes, and the newest that it reads.
pub const SCHEMA: u32 = 1;

/// A kind of store, and its version.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Product {
    /// Such as `trommel` or `rocksdb`.
    pub name: String,
    /// In the numbering of the store's project.
    pub version: String,
}

/// The part of a record that all workloads of a bench share.
#[derive(Debug, Clone, Default)]
pub struct Run {
    /// Identifies the run: the same in all records of a run, and in no other.
    pub id: String,
    /// The store under test.
    pub store: Product,
    /// All options with their resolved values, defaults included, in display order. The directory
    /// is part of the environment instead.
    pub settings: IndexMap<String, Value>,
    /// The environment of the run.
    pub environment: Environment,
}

impl Run {
    /// A run that starts now.
    pub fn new(
        store: Product,
        settings: IndexMap<String, Value>,
        environment: Environment,
    ) -> Self {
        let now = units::utc(SystemTime::now());
        let id = format!("{now}-{:08x}", fastrand::u32(..));
        Self { id, store, settings, environment }
    }
}

/// The measurements of one execution of a workload.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Results {
    /// Operations done, all threads together.
    pub operations: u64,
    /// Keys and values written, or found, in bytes.
    pub bytes: u64,
    /// Keys found, of workloads that look up keys.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub found: Option<u64>,
    /// Keys looked up.
    #[serde(rename = "asked", skip_serializing_if = "Option::is_none")]
    pub lookups: Option<u64>,
    /// From the first thread's start to the last one's end.
    pub wall_seconds: f64,
    /// Sum of the time of all threads.
    pub thread_seconds: f64,
    /// CPU time of the whole process in user mode, background threads included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_seconds: Option<f64>,
    /// CPU time of the whole process in the kernel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_seconds: Option<f64>,
    /// Whether the workload was stopped early.
    #[serde(default)]
    pub interrupted: bool,
    /// Latencies of operations in nanoseconds, if recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_ns: Option<Times>,
    /// Operations over time: for each interval its end, in seconds since the start, and the number
    /// of operations in it. Empty if not recorded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub series: Vec<(f64, u64)>,
}

impl Results {
    fn of(measured: &Measured) -> Self {
        let processor = measured.time.processor;
        Self {
            operations: measured.operations,
            bytes: measured.bytes,
            found: measured.found.map(|(found, _)| found),
            lookups: measured.found.map(|(_, lookups)| lookups),
            wall_seconds: measured.time.wall.as_secs_f64(),
            thread_seconds: measured.time.threads.as_secs_f64(),
            user_seconds: processor.map(|cpu| cpu.user),
            system_seconds: processor.map(|cpu| cpu.system),
            interrupted: measured.interrupted,
            latency_ns: measured.latencies.as_ref().map(Times::new),
            series: measured.series.clone(),
        }
    }
}

/// The results of one execution of a workload.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Record {
    /// [`SCHEMA`] of the program that wrote the record.
    pub schema: u32,
    /// [`Run::id`].
    pub run: String,
    /// The store under test.
    pub store: Product,
    /// Name of the workload.
    pub workload: String,
    /// 1 for the first of several executions of the workload in a row, 2 for the second, and so on.
    pub repeat: u32,
    /// [`Run::settings`].
    pub settings: IndexMap<String, Value>,
    /// The environment of the run.
    pub environment: Environment,
    /// Start of the workload: UTC, as `2026-11-21T09:30:00Z`.
    pub start: String,
    /// Number of measured threads.
    pub threads: u64,
    /// The measurements.
    #[serde(flatten)]
    pub results: Results,
    /// The store's report on its state.
    #[serde(flatten)]
    pub state: State,
}

impl Record {
    /// The record of repeat number `repeat` of `workload`, started at `start` with `threads`
    /// threads. The caller fills in the state.
    pub fn new(
        run: &Run,
        workload: &str,
        repeat: u32,
        threads: usize,
        start: SystemTime,
        measured: &Measured,
    ) -> Self {
        Self {
            schema: SCHEMA,
            run: run.id.clone(),
            store: run.store.clone(),
            workload: workload.into(),
            repeat,
            settings: run.settings.clone(),
            environment: run.environment.clone(),
            start: units::utc(start),
            threads: threads as u64,
            results: Results::of(measured),
            state: State::default(),
        }
    }

    /// Operations per second of all threads together.
    pub fn operations_per_second(&self) -> f64 {
        // If the clock did not advance, the rate must not be infinite.
        self.results.operations as f64 / self.results.wall_seconds.max(1e-9)
    }

    /// Microseconds per operation, as seen by its thread.
    pub fn micros_per_operation(&self) -> f64 {
        self.results.thread_seconds * 1e6 / self.results.operations.max(1) as f64
    }
}

/// The display form of a setting's value: strings without quotes, integers without a decimal point.
pub fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => {
            let text = number.to_string();
            text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
        }
        other => other.to_string(),
    }
}

/// For each record, the occurrence of its workload in the run: 1 for the first, with all repeats; 2
/// if the workload occurs again later, and so on.
pub fn turns(records: &[Record]) -> Vec<u32> {
    // For each run, store and workload: the current occurrence, and its last repeat.
    let mut latest: HashMap<(&str, &str, &str), (u32, u32)> = HashMap::new();
    let mut turns = Vec::with_capacity(records.len());
    for record in records {
        let place = (record.run.as_str(), record.store.name.as_str(), record.workload.as_str());
        let (turn, last) = latest.entry(place).or_default();
        if *turn == 0 || record.repeat <= *last {
            *turn += 1;
        }
        *last = record.repeat;
        turns.push(*turn);
    }
    turns
}
