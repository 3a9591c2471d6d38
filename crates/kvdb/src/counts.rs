//! What was read and written, and since when.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use kvdb::{IoStats, IoStatsKind};

/// Counts since the columns were opened.
#[derive(Debug)]
pub(crate) struct Counts {
    transactions: AtomicU64,
    reads: AtomicU64,
    writes: AtomicU64,
    bytes_read: AtomicU64,
    bytes_written: AtomicU64,
    started: Instant,
    /// As of the last query of what has changed since the query before it.
    previous: Mutex<IoStats>,
}

/// The time, which statistics are of. Nothing else here reads the clock.
fn now() -> Instant {
    Instant::now()
}

impl Counts {
    pub(crate) fn new() -> Self {
        let started = now();
        Self {
            transactions: AtomicU64::new(0),
            reads: AtomicU64::new(0),
            writes: AtomicU64::new(0),
            bytes_read: AtomicU64::new(0),
            bytes_written: AtomicU64::new(0),
            started,
            previous: Mutex::new(IoStats { started, ..IoStats::empty() }),
        }
    }

    /// Counts a read by a key, or a prefix, of this length.
    pub(crate) fn read(&self, key_bytes: usize, value: Option<&[u8]>) {
        self.reads.fetch_add(1, Relaxed);
        let bytes = key_bytes + value.map_or(0, <[u8]>::len);
        self.bytes_read.fetch_add(bytes as u64, Relaxed);
    }

    /// Counts a transaction.
    pub(crate) fn written(&self, ops: usize, bytes: usize) {
        self.transactions.fetch_add(1, Relaxed);
        self.writes.fetch_add(ops as u64, Relaxed);
        self.bytes_written.fetch_add(bytes as u64, Relaxed);
    }

    /// Since the columns were opened. `span` is left out.
    fn overall(&self) -> IoStats {
        IoStats {
            transactions: self.transactions.load(Relaxed),
            reads: self.reads.load(Relaxed),
            writes: self.writes.load(Relaxed),
            bytes_read: self.bytes_read.load(Relaxed),
            bytes_written: self.bytes_written.load(Relaxed),
            started: self.started,
            ..IoStats::empty()
        }
    }

    pub(crate) fn stats(&self, kind: &IoStatsKind) -> IoStats {
        // Locked before the counts are read: those of a later query are no smaller.
        let mut previous = self.previous.lock().unwrap_or_else(PoisonError::into_inner);
        let (now, overall) = (now(), self.overall());
        let mut stats = overall.clone();
        if let IoStatsKind::SincePrevious = kind {
            let next = IoStats { started: now, ..overall };
            let last = std::mem::replace(&mut *previous, next);
            stats.transactions -= last.transactions;
            stats.reads -= last.reads;
            stats.writes -= last.writes;
            stats.bytes_read -= last.bytes_read;
            stats.bytes_written -= last.bytes_written;
            stats.started = last.started;
        }
        stats.span = now.saturating_duration_since(stats.started);
        stats
    }
}
