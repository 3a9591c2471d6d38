//! The moments that someone still reads at.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use trommel_base::planted::{Bug, dawdling, planted};
use trommel_base::{MAX_SEQNO, SeqNo};

use crate::sync::{AtomicU64, Mutex, lock};

/// The live snapshots of a store, and the newest moment that reads may see.
///
/// Both belong together: taking a snapshot reads the newest moment and registers it under the
/// same lock under which a compaction lists what it must keep. Were the two steps apart, a
/// compaction between them could drop a version that the snapshot needs.
#[derive(Debug, Default)]
pub(crate) struct Snapshots {
    /// The last sequence number whose group is wholly in the memtable.
    visible: AtomicU64,
    live: Mutex<BTreeMap<SeqNo, usize>>,
}

impl Snapshots {
    /// The newest moment that reads may see. Load the view *before* this: a version loaded later
    /// may have dropped, in favour of newer ones, what is visible at this moment.
    #[inline]
    pub(crate) fn visible(&self) -> SeqNo {
        self.visible.load(Ordering::Acquire)
    }

    /// Lets reads see everything up to `seqno`. Called by one commit group at a time, in order.
    pub(crate) fn publish(&self, seqno: SeqNo) {
        if planted(Bug::HalfBatchVisible) {
            // By several at a time, and in no order.
            self.visible.fetch_max(seqno, Ordering::AcqRel);
            return;
        }
        debug_assert!(seqno >= self.visible.load(Ordering::Relaxed), "moments come in order");
        self.visible.store(seqno, Ordering::Release);
    }

    /// Registers the current moment.
    pub(crate) fn take(&self) -> SeqNo {
        let early = planted(Bug::SnapshotNotAtomic).then(|| dawdling(self.visible()));
        let mut live = lock(&self.live);
        let seqno = early.unwrap_or_else(|| self.visible());
        *live.entry(seqno).or_insert(0) += 1;
        seqno
    }

    /// Registers a moment that is registered already.
    pub(crate) fn take_again(&self, seqno: SeqNo) {
        let mut live = lock(&self.live);
        *live.entry(seqno).or_insert(0) += 1;
    }

    /// Gives a registered moment back. If it was the oldest, and no other holder has it: the one
    /// that is the oldest from then on, [`MAX_SEQNO`] if none is left.
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

    /// The oldest registered moment; [`MAX_SEQNO`] without any.
    pub(crate) fn oldest(&self) -> SeqNo {
        lock(&self.live).keys().next().map_or(MAX_SEQNO, |oldest| *oldest)
    }

    /// The registered moments, oldest first.
    pub(crate) fn live(&self) -> Vec<SeqNo> {
        lock(&self.live).keys().copied().collect()
    }
}
