//! The protocol between the parent and its worker: lines of JSON on the worker's standard input and
//! output.
//!
//! 1. The first line to the worker is the [`Task`]. Its input then stays open: at the end of input
//!    the worker ends in order, whether the parent closed the pipe or died.
//! 2. The worker sends a [`Line`] several times a second, whatever it does; silence is a hang.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::draw::{Draw, Profile};
use super::records::RecordSpec;
use crate::error::Error;

/// The task of one worker.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Task {
    /// The keys, unless there is an expected state already.
    pub(super) records: RecordSpec,
    pub(super) profile: Profile,
    pub(super) threads: usize,
    /// Seed of everything random.
    pub(super) seed: u64,
    /// [`trommel::Options::memory_limit`], where the options set one.
    pub(super) memory_limit: u64,
    /// The filter policy of every open; if none, each open draws its own.
    pub(super) filters: Option<String>,
    /// Mean seconds between two opens of the store.
    pub(super) reopen_every: f64,
    /// Fraction of the calls to the disk that fail.
    pub(super) faults: f64,
    /// The call to the disk at which the process dies; 0 for none.
    pub(super) die_at: u64,
    /// Whether to read all keys once the store is open.
    pub(super) check_all: bool,
}

impl Task {
    /// The bounds of random options.
    ///
    /// # Errors
    /// If the filter policy is invalid.
    pub(super) fn draw(&self) -> Result<Draw, Error> {
        let filters = self.filters.as_deref().map(str::parse).transpose();
        Ok(Draw {
            sizes: self.profile.sizes(),
            memory_limit: self.memory_limit,
            filters: filters.map_err(|error: trommel::Error| Error::Usage(error.to_string()))?,
        })
    }
}

/// The phase of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) enum WorkerPhase {
    /// Opening the store.
    #[default]
    Opening,
    /// Checking the state that the last process left.
    Checking,
    /// Threads read and write.
    Running,
    /// Closing the store, or checking it for the last time.
    Closing,
}

/// The progress of a worker.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Tick {
    pub(super) phase: WorkerPhase,
    pub(super) counts: BTreeMap<String, u64>,
    /// Microseconds of the longest operation so far.
    pub(super) longest: u64,
    /// Microseconds of the longest current operation, and its name.
    pub(super) current: (u64, String),
    /// Bytes of the keys and values that must be present.
    pub(super) live_bytes: u64,
}

/// A message to the parent.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum Line {
    /// The worker is alive.
    Tick(Tick),
    /// The store returned a wrong answer.
    Mismatch(String),
    /// An error of the store, or of the harness.
    Error(String),
    /// Everything is checked and closed; the process is about to end.
    Done(Tick),
}
