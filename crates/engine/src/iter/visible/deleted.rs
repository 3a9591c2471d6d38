//! What scans know of deleted keys, and what they learn.
//!
//! A cursor looks up range tombstones and what earlier scans have learned in one place. Where it
//! passes many keys without finding a visible one, it adds that to what is known
//! ([`Gaps`](crate::ranges::Gaps)).

use std::sync::Arc;

use trommel_base::{CursorHints, SeqNo};

use super::VisibleCursor;
use crate::bounds::Bounds;
use crate::error::Result;
use crate::expiry::{Expiry, Horizons};
use crate::ranges::{Gaps, RangeCursor, RangeSet, RangeTombstone};

/// What a cursor knows of deleted ranges.
pub(super) struct KnownDeleted {
    /// The range tombstones, if there are any.
    tombstones: Option<Arc<RangeSet>>,
    /// A cursor over them and what earlier scans have learned.
    cursor: RangeCursor,
}

impl KnownDeleted {
    /// What is known now for reads as of `seqno`, if anything is.
    #[inline]
    pub(super) fn new(
        tombstones: Option<Arc<RangeSet>>,
        gaps: &Gaps,
        expiry: &Expiry,
        seqno: SeqNo,
    ) -> Option<Box<Self>> {
        if tombstones.is_none() && gaps.is_empty() {
            return None;
        }
        Some(Self::of(tombstones, gaps, expiry, seqno))
    }

    #[inline]
    fn deletes(&mut self, key: &[u8], seqno: SeqNo) -> bool {
        self.cursor.deletes(key, seqno)
    }

    /// What was written to `key` before this is deleted for readers as of `seqno`, or has expired.
    pub(super) fn covering(&self, key: &[u8], seqno: SeqNo) -> SeqNo {
        self.tombstones.as_ref().map_or(0, |set| set.covering(key, seqno))
    }

    #[cold]
    fn of(
        tombstones: Option<Arc<RangeSet>>,
        gaps: &Gaps,
        expiry: &Expiry,
        seqno: SeqNo,
    ) -> Box<Self> {
        let none = Horizons::default();
        let expired = tombstones.as_ref().map_or(&none, |set| set.horizons());
        let gaps = gaps.load();
        // A later scan may have learned of a gap what has expired since this one began.
        let gaps = gaps.filter(|_| expiry.are_published(expired));
        let mut all = RangeSet::default();
        tombstones.iter().chain(&gaps).for_each(|set| all.extend(set));
        Box::new(Self { tombstones, cursor: RangeCursor::new(all, seqno) })
    }
}

/// A gap of keys in which nothing is visible, while a scan passes it.
#[derive(Default)]
pub(super) struct Gap {
    /// Keys passed, and skips of many at once.
    keys: u32,
    /// A key that was passed, near the first, if enough were.
    start: Box<[u8]>,
    /// Whether `start` is of this gap.
    is_begun: bool,
    /// Whether the scan skips tables by their prefix filters. A wrong filter of a user costs that
    /// scan its keys; it must not cost other scans theirs, so nothing is learned.
    is_gated: bool,
}

/// From the key with this number on, a gap is remembered.
const REMEMBERED_FROM: u32 = if cfg!(any(test, shuttle)) { 2 } else { 16 };
/// A gap of as many keys is kept for later scans.
const WORTH_KEEPING: u32 = if cfg!(any(test, shuttle)) { 4 } else { 64 };

impl Gap {
    /// A gap of a scan that skips tables by their prefix filters, or of any other.
    pub(super) fn of(is_gated: bool) -> Self {
        Self { is_gated, ..Self::default() }
    }

    /// Begins a new gap.
    #[inline]
    pub(super) fn restart(&mut self) {
        (self.keys, self.is_begun) = (0, false);
    }

    /// Notes that nothing is visible at `key`.
    #[inline]
    pub(super) fn pass(&mut self, key: Option<&[u8]>) {
        self.keys += 1;
        if self.keys == REMEMBERED_FROM {
            self.begin(key);
        }
    }

    /// Notes a key that is passed, unless an earlier one was noted.
    #[cold]
    fn begin(&mut self, key: Option<&[u8]>) {
        if let Some(key) = key.filter(|_| !self.is_begun) {
            (self.start, self.is_begun) = (key.into(), true);
        }
    }

    /// Whether it is long enough to be kept.
    #[inline]
    pub(super) fn is_long(&self) -> bool {
        self.keys >= WORTH_KEEPING && self.is_begun && !self.is_gated
    }
}

/// Whether a range that is known to be deleted holds this version of `key`.
#[inline]
pub(super) fn is_deleted_by(
    deleted: &mut Option<Box<KnownDeleted>>,
    key: &[u8],
    seqno: SeqNo,
) -> bool {
    match deleted {
        None => false,
        Some(known) => known.deletes(key, seqno),
    }
}

impl VisibleCursor {
    /// Whether the merge's current entry is in a deleted range.
    #[inline]
    pub(super) fn is_deleted(&mut self) -> bool {
        self.deleted.is_some() && self.is_deleted_here()
    }

    #[inline(never)]
    fn is_deleted_here(&mut self) -> bool {
        let current = self.merge.internal_key();
        current.is_some_and(|here| is_deleted_by(&mut self.deleted, here.key, here.seqno))
    }

    /// On a deleted entry that was passed: moves the sources past what is deleted, or to the end of
    /// the bounds, beyond which a block may be corrupt. Returns whether the entry was left.
    #[cold]
    pub(super) fn skip_deleted(&mut self) -> Result<bool> {
        let Some(known) = &self.deleted else { return Ok(false) };
        self.gap.begin(self.merge.internal_key().map(|internal| internal.key));
        let from = known.cursor.from().max(&self.bounds.from);
        let ends = [known.cursor.to(), self.bounds.to.as_deref()];
        let to = ends.into_iter().flatten().min();
        self.merge.skip_deleted(known.cursor.covering(), from, to)
    }

    /// Keeps the gap that a scan forward has passed, for later scans: from its start to the
    /// current key, or to the end of the range, beyond which tables are left out.
    #[cold]
    pub(super) fn learn(&mut self) {
        let from = self.bounds.from.as_slice().max(&self.gap.start);
        let ends = [self.key(), self.bounds.to.as_deref()];
        let gap = RangeTombstone::new(from, ends.into_iter().flatten().min(), self.seqno);
        self.learn_gap(gap);
    }

    /// As `learn`, of a scan backward: from after the current key, or from the start of the range.
    #[cold]
    pub(super) fn learn_back(&mut self) {
        let end = Bounds::after(&self.gap.start);
        let to = self.bounds.to.as_deref().map_or(&*end, |to| to.min(&end));
        let from = self.key().map(Bounds::after).unwrap_or_default();
        let from = from.max(self.bounds.from.clone());
        self.learn_gap(RangeTombstone::new(&from, Some(to), self.seqno));
    }

    /// Adds a gap, if the view is known to hold everything up to the cursor's sequence number. If
    /// the memtable was frozen between pinning the view and reading that number, something may be
    /// in the next memtable.
    fn learn_gap(&mut self, gap: RangeTombstone) {
        let engine = &self.store.engine;
        let is_whole = Arc::ptr_eq(&self._view.active, &engine.view.load().active);
        // A compaction filter may have removed what snapshots still see in the views they keep.
        let filters = engine.options.load().compaction.compaction_filter.is_some();
        // The view of a follower may be older than its newest visible sequence number.
        let follows = engine.options.load().opening.follows;
        if is_whole && !filters && !follows && gap.to.as_ref().is_none_or(|to| gap.from < *to) {
            engine.memory.gaps.add(gap);
            engine.account_ranges();
            let tombstones = self.deleted.take().and_then(|known| known.tombstones);
            self.deleted = KnownDeleted::new(
                tombstones,
                &engine.memory.gaps,
                &engine.snapshots.expiry,
                self.seqno,
            );
        }
    }
}
