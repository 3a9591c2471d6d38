//! What a run did and found.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

/// What was found wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// `mismatch`, `error`, `death`, `hang`, or the limit that was broken: `memory`, `handles`,
    /// `space`.
    pub kind: &'static str,
    /// What was found, and what was expected.
    pub what: String,
}

/// The counters of a run: one object of JSON.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Report {
    /// What decided all that was drawn. Threads and kills come as they come all the same.
    pub seed: u64,
    /// How large everything was.
    pub profile: &'static str,
    /// Threads that read and wrote.
    pub threads: u64,
    /// Keys that could be written.
    pub keys: u64,
    /// Part of the calls to the disk that failed by request.
    pub fault_rate: f64,
    /// How long it took.
    pub seconds: f64,
    /// Whether it was ended before its time.
    pub interrupted: bool,
    /// Things read that could not be so.
    pub mismatches: u64,
    /// What was found wrong, if anything.
    pub finding: Option<Finding>,
    /// What was done, by name. What a killed worker did in its last twentieth of a second is
    /// missing.
    pub counters: BTreeMap<String, u64>,
    /// Most bytes of a worker's memory that are no file's.
    pub peak_memory_bytes: u64,
    /// Most file handles of a worker.
    pub peak_handles: u64,
    /// Most bytes of the store's files.
    pub peak_disk_bytes: u64,
    /// Bytes of the keys and values that the store held at the end.
    pub live_bytes: u64,
    /// Bytes of its files at the end for each of those.
    pub space_amplification: f64,
    /// The operation that took longest.
    pub longest_operation_seconds: f64,
}

impl Report {
    /// Adds to a counter.
    pub(super) fn add(&mut self, name: &str, count: u64) {
        *self.counters.entry(name.to_owned()).or_default() += count;
    }

    /// The counter of this name.
    pub fn count(&self, name: &str) -> u64 {
        self.counters.get(name).copied().unwrap_or(0)
    }

    /// How far it is, in a line.
    pub(super) fn progress(&self, time: Duration) -> String {
        format!(
            "{}: {} writes acknowledged, {} kills, {} opens, {} keys checked after opening",
            crate::units::duration(time),
            self.count("acknowledged_writes"),
            self.count("kills"),
            self.count("opens"),
            self.count("keys_checked_after_opening")
        )
    }
}
