//! Counters of background jobs and of write stalls.
//!
//! The engine holds them; jobs and writers add to them, and [`Stats`](crate::Stats) reads them.
//! They know neither jobs nor the engine.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::compaction::pressure::Cause;

/// The counters of background jobs. Times are in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum JobCounter {
    Flushes,
    FlushBytes,
    FlushTime,
    Compactions,
    SharedCompactions,
    TrivialMoves,
    CompactionBytesRead,
    CompactionBytesWritten,
    CompactionTime,
    FilterTime,
    FilterFallbacks,
    Rebuilds,
    RebuildBytesRead,
    RebuildBytesWritten,
    /// The last: see [`JobCounter::COUNT`].
    RebuildTime,
}

impl JobCounter {
    const COUNT: usize = Self::RebuildTime as usize + 1;
}

/// Counters of background jobs and write stalls.
#[derive(Debug, Default)]
pub(crate) struct JobCounters {
    jobs: [AtomicU64; JobCounter::COUNT],
    stall_micros: [AtomicU64; 3],
    stalls: [AtomicU64; 3],
}

impl JobCounters {
    pub(crate) fn count_stall(&self, cause: Cause, time: Duration) {
        let at = number(cause);
        self.stalls[at].fetch_add(1, Relaxed);
        self.stall_micros[at].fetch_add(time.as_micros() as u64, Relaxed);
    }

    pub(crate) fn count_flush(&self, bytes: u64, time: Duration) {
        self.add_time(JobCounter::FlushTime, time);
        self.add(JobCounter::Flushes, 1);
        self.add(JobCounter::FlushBytes, bytes);
    }

    pub(crate) fn count_move(&self) {
        self.add(JobCounter::TrivialMoves, 1);
    }

    /// Adds the time for completing and writing a table's filters.
    pub(crate) fn count_filters(&self, time: Duration) {
        self.add_time(JobCounter::FilterTime, time);
    }

    /// Adds filters that were built as another kind than was chosen.
    pub(crate) fn count_fallbacks(&self, filters: u64) {
        self.add(JobCounter::FilterFallbacks, filters);
    }

    /// Adds an installed part of a compaction, with the time of its threads.
    pub(crate) fn count_merged(&self, read: u64, written: u64, time: Duration) {
        self.add_time(JobCounter::CompactionTime, time);
        self.add(JobCounter::CompactionBytesRead, read);
        self.add(JobCounter::CompactionBytesWritten, written);
    }

    pub(crate) fn count_compaction(&self, is_shared: bool) {
        self.add(JobCounter::Compactions, 1);
        self.add(JobCounter::SharedCompactions, u64::from(is_shared));
    }

    pub(crate) fn count_rebuild(&self, read: u64, written: u64, time: Duration) {
        self.add(JobCounter::Rebuilds, 1);
        self.add(JobCounter::RebuildBytesRead, read);
        self.add(JobCounter::RebuildBytesWritten, written);
        self.add_time(JobCounter::RebuildTime, time);
    }

    fn add(&self, counter: JobCounter, n: u64) {
        self.jobs[counter as usize].fetch_add(n, Relaxed);
    }

    fn add_time(&self, counter: JobCounter, time: Duration) {
        self.add(counter, time.as_nanos() as u64);
    }

    /// The count since the last reset.
    pub(crate) fn get(&self, counter: JobCounter) -> u64 {
        self.jobs[counter as usize].load(Relaxed)
    }

    /// A counter of time.
    pub(crate) fn time(&self, counter: JobCounter) -> Duration {
        Duration::from_nanos(self.get(counter))
    }

    /// Resets all of them.
    pub(crate) fn reset(&self) {
        for counter in self.jobs.iter().chain(&self.stall_micros).chain(&self.stalls) {
            counter.store(0, Relaxed);
        }
    }

    /// The number and total time of stalls for this cause.
    pub(crate) fn stall(&self, cause: Cause) -> Stall {
        let at = number(cause);
        Stall {
            times: self.stalls[at].load(Relaxed),
            total: Duration::from_micros(self.stall_micros[at].load(Relaxed)),
        }
    }
}

fn number(cause: Cause) -> usize {
    match cause {
        Cause::Memtables => 0,
        Cause::Level0 => 1,
        Cause::Debt => 2,
    }
}

/// Write stalls (slowed or stopped) for one cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Stall {
    /// Number of stalls.
    pub times: u64,
    /// Total time.
    pub total: Duration,
}
