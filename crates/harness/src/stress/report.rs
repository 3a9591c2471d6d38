//! The report of a run.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

/// A fault that was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// `mismatch`, `error`, `death`, `hang`, or the limit that was exceeded: `memory`, `handles`,
    /// `space`.
    pub kind: &'static str,
    /// A description of what was found, and what was expected.
    pub what: String,
}

/// The parameters of a run.
#[derive(Debug, Clone, Default, Serialize)]
pub struct StressSetup {
    /// Seed of everything random. The timing of threads and kills is not reproducible.
    pub seed: u64,
    /// Name of the profile.
    pub profile: &'static str,
    /// Number of reading and writing threads.
    pub threads: u64,
    /// Number of keys.
    pub keys: u64,
    /// Fraction of the calls to the disk that failed on purpose.
    pub fault_rate: f64,
}

/// The peaks of a run.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct StressPeaks {
    /// Peak anonymous memory of a worker, in bytes.
    #[serde(rename = "peak_memory_bytes")]
    pub memory_bytes: u64,
    /// Peak number of a worker's file handles.
    #[serde(rename = "peak_handles")]
    pub handles: u64,
    /// Peak bytes of the store's files.
    #[serde(rename = "peak_disk_bytes")]
    pub disk_bytes: u64,
}

/// The counters of a run: one JSON object.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Report {
    /// The parameters of the run.
    #[serde(flatten)]
    pub setup: StressSetup,
    /// Duration of the run.
    pub seconds: f64,
    /// Whether the run was stopped early.
    pub interrupted: bool,
    /// Number of wrong answers.
    pub mismatches: u64,
    /// The fault found, if any.
    pub finding: Option<Finding>,
    /// Counters by name. Those of the last twentieth of a second of a killed worker are missing.
    pub counters: BTreeMap<String, u64>,
    /// The peaks of the run.
    #[serde(flatten)]
    pub peaks: StressPeaks,
    /// Bytes of the live keys and values at the end.
    pub live_bytes: u64,
    /// Bytes of its files at the end per byte of live data.
    pub space_amplification: f64,
    /// The longest operation.
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

    /// The progress in one line.
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
