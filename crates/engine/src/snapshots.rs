//! The registry of live snapshots, and the range of sequence numbers that reads see.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use trommel_base::{MAX_SEQNO, SeqNo};

use crate::expiry::{Expiry, Horizons};
use crate::sync::{AtomicU64, Mutex, lock};

/// The live snapshots of a store, and the newest sequence number visible to reads.
///
/// The two belong together: taking a snapshot reads the newest sequence number and registers it
/// under the lock under which a compaction lists what it must keep. If these were two steps, a
/// compaction in between could drop a version that the snapshot needs.
#[derive(Debug, Default)]
pub(crate) struct Snapshots {
    /// The last sequence number whose group is completely in the memtable.
    visible: AtomicU64,
    live: Mutex<BTreeMap<SeqNo, usize>>,
    /// The sequence number of the newest sorted load whose tables are in the view, or are about to
    /// be.
    last_load: AtomicU64,
    /// The expiry of entries: expired ones are visible to no reader.
    pub(crate) expiry: Expiry,
}

impl Snapshots {
    /// No snapshots, of a store in which nothing is visible yet.
    pub(crate) fn new(expiry: Expiry) -> Self {
        Self { expiry, ..Self::default() }
    }

    /// The first sequence number of the default keyspace that has not expired now.
    #[inline]
    pub(crate) fn horizon(&self) -> SeqNo {
        self.expiry.horizon(|| self.visible())
    }

    /// The expiry horizons now. Load the view before this: a version loaded later may lack entries
    /// that have expired since.
    pub(crate) fn horizons(&self) -> Arc<Horizons> {
        self.expiry.horizons(|| self.visible())
    }

    /// The newest sequence number visible to reads. Load the view *before* this: a version loaded
    /// later may have dropped versions visible at it, in favour of newer ones.
    #[inline]
    pub(crate) fn visible(&self) -> SeqNo {
        self.visible.load(Ordering::Acquire)
    }

    /// Makes everything up to `seqno` visible. Called by one commit group at a time, in order.
    pub(crate) fn publish(&self, seqno: SeqNo) {
        debug_assert!(seqno >= self.visible.load(Ordering::Relaxed), "moments come in order");
        self.visible.store(seqno, Ordering::Release);
    }

    /// Announces that entries with this sequence number, in tables, join the view before it is
    /// published.
    pub(crate) fn announce_load(&self, seqno: SeqNo) {
        self.last_load.store(seqno, Ordering::Release);
    }

    /// Whether a view loaded before this call may hold a load that is not visible as of `seqno`.
    pub(crate) fn is_before_load(&self, seqno: SeqNo) -> bool {
        seqno < self.last_load.load(Ordering::Acquire)
    }

    /// Registers the current sequence number.
    pub(crate) fn take(&self) -> SeqNo {
        let mut live = lock(&self.live);
        let seqno = self.visible();
        *live.entry(seqno).or_insert(0) += 1;
        seqno
    }

    /// Registers a sequence number that is already registered.
    pub(crate) fn take_again(&self, seqno: SeqNo) {
        let mut live = lock(&self.live);
        *live.entry(seqno).or_insert(0) += 1;
    }

    /// Releases a registered sequence number. If it was the oldest, and this its last holder,
    /// returns the new oldest one, [`MAX_SEQNO`] if none is left.
    pub(crate) fn release(&self, seqno: SeqNo) -> Option<SeqNo> {
        let mut live = lock(&self.live);
        let holders = live.get_mut(&seqno)?;
        *holders -= 1;
        if *holders > 0 {
            return None;
        }
        live.remove(&seqno);
        let oldest = live.keys().next().map_or(MAX_SEQNO, |oldest| *oldest);
        (oldest > seqno).then_some(oldest)
    }

    /// The oldest registered sequence number; [`MAX_SEQNO`] if there is none.
    pub(crate) fn oldest(&self) -> SeqNo {
        lock(&self.live).keys().next().map_or(MAX_SEQNO, |oldest| *oldest)
    }

    /// The registered sequence numbers, and the visible one as of the same moment.
    pub(crate) fn live_and_visible(&self) -> (Vec<SeqNo>, SeqNo) {
        let live = lock(&self.live);
        (live.keys().copied().collect(), self.visible())
    }

    /// The registered sequence numbers, oldest first.
    pub(crate) fn live(&self) -> Vec<SeqNo> {
        lock(&self.live).keys().copied().collect()
    }
}
