//! The flush and compaction backlog, as counts that every write checks.
//!
//! They are set when a view or a version is installed, and read without a lock.

use std::sync::atomic::Ordering;

use trommel_base::SeqNo;

use crate::compaction::pressure::Backlog;
use crate::sync::{AtomicU64, Mutex, MutexGuard, lock};

/// The backlog of the current view.
#[derive(Debug)]
pub(crate) struct BacklogCounts {
    /// Runs in level 0.
    l0_runs: AtomicU64,
    /// Memtables waiting to be flushed.
    frozen_memtables: AtomicU64,
    /// Bytes of compaction debt.
    debt: AtomicU64,
    /// The sequence number that the oldest snapshot must reach for some table to hold dead entries.
    dead_from: AtomicU64,
    /// Held while the bytes of tables that range tombstones delete are estimated.
    estimating: Mutex<()>,
}

impl BacklogCounts {
    /// An empty backlog.
    pub(crate) fn new() -> Self {
        Self {
            l0_runs: AtomicU64::new(0),
            frozen_memtables: AtomicU64::new(0),
            debt: AtomicU64::new(0),
            dead_from: AtomicU64::new(u64::MAX),
            estimating: Mutex::default(),
        }
    }

    /// Sets the counts of a new view.
    pub(crate) fn set_view(&self, frozen_memtables: usize, l0_runs: usize) {
        self.frozen_memtables.store(frozen_memtables as u64, Ordering::Relaxed);
        self.l0_runs.store(l0_runs as u64, Ordering::Relaxed);
    }

    /// Sets the bytes of compaction debt.
    pub(crate) fn set_debt(&self, bytes: u64) {
        self.debt.store(bytes, Ordering::Relaxed);
    }

    /// Bytes of compaction debt.
    #[inline]
    pub(crate) fn debt(&self) -> u64 {
        self.debt.load(Ordering::Relaxed)
    }

    /// Sets the sequence number that the oldest snapshot must reach for some table to hold dead
    /// entries.
    pub(crate) fn set_dead_from(&self, seqno: Option<SeqNo>) {
        self.dead_from.store(seqno.unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Held by the thread that estimates how much of each table is deleted.
    pub(crate) fn begin_estimate(&self) -> MutexGuard<'_, ()> {
        lock(&self.estimating)
    }

    /// Whether some table holds dead entries now that the oldest snapshot is `oldest`, and none did
    /// while it was `before`.
    pub(crate) fn becomes_dead(&self, before: SeqNo, oldest: SeqNo) -> bool {
        let dead_from = self.dead_from.load(Ordering::Relaxed);
        before < dead_from && dead_from <= oldest
    }

    /// All counts, without the active memtable.
    #[inline]
    pub(crate) fn load(&self) -> Backlog {
        Backlog {
            l0_runs: self.l0_runs.load(Ordering::Relaxed) as usize,
            debt: self.debt(),
            frozen_memtables: self.frozen_memtables.load(Ordering::Relaxed) as usize,
            active_fill: 0.0,
        }
    }
}
