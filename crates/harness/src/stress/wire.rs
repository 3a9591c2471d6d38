//! What the parent tells its worker, and what it is told: lines of JSON on the worker's standard
//! input and output.
//!
//! 1. The first line down is the [`Task`]. The input then stays open: when it ends, the worker ends
//!    in order, whether the parent asked for that or died.
//! 2. Up goes a [`Line`] several times a second, whatever the worker does; silence is a hang.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::draw::{Draw, Profile};
use super::records::Records;
use crate::error::Error;

/// What one worker is to do.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Task {
    /// The keys, where the expected state does not say.
    pub(super) records: Records,
    pub(super) profile: Profile,
    pub(super) threads: usize,
    /// Decides what is drawn.
    pub(super) seed: u64,
    /// [`trommel::Options::memory_limit`], where one is set.
    pub(super) memory_limit: u64,
    /// The filter policy of every open; none where each draws its own.
    pub(super) filters: Option<String>,
    /// Mean seconds between two opens of the store.
    pub(super) reopen_every: f64,
    /// Part of the calls to the disk that fail.
    pub(super) faults: f64,
    /// The call to the disk that is the process's last; 0 for none.
    pub(super) die_at: u64,
    /// Whether all keys are read once the store is open.
    pub(super) check_all: bool,
}

impl Task {
    /// What options are drawn within.
    ///
    /// # Errors
    /// If the filter policy is none.
    pub(super) fn draw(&self) -> Result<Draw, Error> {
        let filters = self.filters.as_deref().map(str::parse).transpose();
        Ok(Draw {
            sizes: self.profile.sizes(),
            memory_limit: self.memory_limit,
            filters: filters.map_err(|error: trommel::Error| Error::Usage(error.to_string()))?,
        })
    }
}

/// What the worker is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) enum Phase {
    /// The store is being opened.
    #[default]
    Opening,
    /// What the last process left is being checked.
    Checking,
    /// Threads read and write.
    Running,
    /// The store is being closed, or checked for the last time.
    Closing,
}

/// How far the worker is.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Tick {
    pub(super) phase: Phase,
    pub(super) counts: BTreeMap<String, u64>,
    /// Microseconds of the longest operation so far.
    pub(super) longest: u64,
    /// Microseconds of the one that goes on the longest now, and what it is.
    pub(super) current: (u64, String),
    /// Bytes of the keys and values that the store must hold.
    pub(super) live_bytes: u64,
}

/// One line up.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum Line {
    /// It goes on.
    Tick(Tick),
    /// The store said what is not so.
    Mismatch(String),
    /// The store, or something of our own, failed.
    Error(String),
    /// All is checked and closed; the process ends next.
    Done(Tick),
}
