//! Counters of background jobs and of write stalls.
//!
//! The engine holds them; jobs and writers add to them, and [`Stats`](crate::Stats) reads them.
//! They know neither jobs nor the engine.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::compaction::pressure::Cause;

macro_rules! job_counters {
    ($($name:ident,)*) => {
        /// Counters of background jobs and write stalls.
        #[derive(Debug, Default)]
        pub(crate) struct JobCounters {
            micros: [AtomicU64; 3],
            times: [AtomicU64; 3],
            $(pub(crate) $name: AtomicU64,)*
        }

        impl JobCounters {
            /// Resets all of them.
            pub(crate) fn reset(&self) {
                let jobs = [$(&self.$name),*];
                for counter in self.micros.iter().chain(&self.times).chain(jobs) {
                    counter.store(0, Relaxed);
                }
            }
        }
    };
}

job_counters! {
    flushes,
    flush_bytes,
    flush_nanos,
    compactions,
    shared_compactions,
    trivial_moves,
    compaction_bytes_read,
    compaction_bytes_written,
    compaction_nanos,
    filter_nanos,
    filter_fallbacks,
    rebuilds,
    rebuild_bytes_read,
    rebuild_bytes_written,
    rebuild_nanos,
}

impl JobCounters {
    pub(crate) fn add(&self, cause: Cause, time: Duration) {
        let at = number(cause);
        self.times[at].fetch_add(1, Relaxed);
        self.micros[at].fetch_add(time.as_micros() as u64, Relaxed);
    }

    pub(crate) fn count_flush(&self, bytes: u64, time: Duration) {
        self.flush_nanos.fetch_add(time.as_nanos() as u64, Relaxed);
        self.flushes.fetch_add(1, Relaxed);
        self.flush_bytes.fetch_add(bytes, Relaxed);
    }

    pub(crate) fn count_move(&self) {
        self.trivial_moves.fetch_add(1, Relaxed);
    }

    /// Adds the time for completing and writing a table's filters.
    pub(crate) fn count_filters(&self, time: Duration) {
        self.filter_nanos.fetch_add(time.as_nanos() as u64, Relaxed);
    }

    /// Adds filters that were built of another kind than chosen.
    pub(crate) fn count_fallbacks(&self, filters: u64) {
        self.filter_fallbacks.fetch_add(filters, Relaxed);
    }

    /// Adds an installed part of a compaction, with the time of its threads.
    pub(crate) fn count_merged(&self, read: u64, written: u64, time: Duration) {
        self.compaction_nanos.fetch_add(time.as_nanos() as u64, Relaxed);
        self.compaction_bytes_read.fetch_add(read, Relaxed);
        self.compaction_bytes_written.fetch_add(written, Relaxed);
    }

    pub(crate) fn count_compaction(&self, is_shared: bool) {
        self.compactions.fetch_add(1, Relaxed);
        self.shared_compactions.fetch_add(u64::from(is_shared), Relaxed);
    }

    pub(crate) fn count_rebuild(&self, read: u64, written: u64, time: Duration) {
        self.rebuilds.fetch_add(1, Relaxed);
        self.rebuild_bytes_read.fetch_add(read, Relaxed);
        self.rebuild_bytes_written.fetch_add(written, Relaxed);
        self.rebuild_nanos.fetch_add(time.as_nanos() as u64, Relaxed);
    }

    /// The number and total time of stalls for this cause.
    pub(crate) fn stall(&self, cause: Cause) -> Stall {
        let at = number(cause);
        Stall {
            times: self.times[at].load(Relaxed),
            total: Duration::from_micros(self.micros[at].load(Relaxed)),
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
