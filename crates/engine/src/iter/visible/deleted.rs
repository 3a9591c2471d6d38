//! What scans know of deleted keys, and what they learn.
//!
//! A cursor looks up range tombstones and what earlier scans have learned in one place. Where it
//! passes many keys without finding a visible one, it adds that to what is known
//! ([`Gaps`](crate::ranges::Gaps)).

use trommel_base::{CursorHints, SeqNo};

use super::{Position, VisibleCursor};
use crate::bounds::Bounds;
use crate::error::Result;
use crate::ranges::{Gaps, RangeCursor, RangeSet, RangeTombstone};

/// A cursor over the range tombstones `deleted` and the known gaps, if there are any.
pub(super) fn with_gaps(deleted: &RangeSet, gaps: &Gaps, seqno: SeqNo) -> Option<RangeCursor> {
    let gaps = gaps.load();
    if deleted.is_empty() && gaps.is_none() {
        return None;
    }
    let mut all = deleted.clone();
    gaps.iter().for_each(|gaps| all.extend(gaps));
    Some(RangeCursor::new(all, seqno))
}

/// A stretch of keys in which nothing is visible, while a scan passes it.
#[derive(Default)]
pub(super) struct Stretch {
    /// Keys passed, and skips of many at once.
    keys: u32,
    /// A key that was passed, near the first.
    start: Option<Vec<u8>>,
}

/// From the key with this number on, a stretch is remembered.
const REMEMBERED_FROM: u32 = if cfg!(any(test, shuttle)) { 2 } else { 16 };
/// A stretch of as many keys is kept for later scans.
const WORTH_KEEPING: u32 = if cfg!(any(test, shuttle)) { 4 } else { 64 };

impl Stretch {
    /// Notes that nothing is visible at `key`.
    #[inline]
    pub(super) fn pass(&mut self, key: Option<&[u8]>) {
        self.keys += 1;
        if self.keys == REMEMBERED_FROM {
            self.begin(key);
        }
    }

    /// Notes a skip of many keys, the first of which is `key`.
    #[cold]
    pub(super) fn begin(&mut self, key: Option<&[u8]>) {
        if self.start.is_none() {
            self.start = key.map(<[u8]>::to_vec);
        }
    }

    /// The key where it begins, if it is long enough to be kept.
    #[inline]
    pub(super) fn is_long(&self) -> bool {
        self.keys >= WORTH_KEEPING && self.start.is_some()
    }
}

/// Whether one of the `ranges` deletes a version of `key`.
#[inline]
pub(super) fn is_deleted_by(ranges: &mut Option<RangeCursor>, key: &[u8], seqno: SeqNo) -> bool {
    ranges.as_mut().is_some_and(|ranges| ranges.deletes(key, seqno))
}

impl VisibleCursor {
    /// Whether a range tombstone deletes the merge's current entry.
    #[inline]
    pub(super) fn is_deleted(&mut self) -> bool {
        let Some(ranges) = &mut self.ranges else { return false };
        let current = self.merge.internal_key();
        current.is_some_and(|current| ranges.deletes(current.key, current.seqno))
    }

    /// On a deleted entry: moves the sources past what is deleted, or to the end of the bounds,
    /// beyond which a block may be corrupt. Returns whether the entry was left.
    #[cold]
    pub(super) fn skip_deleted(&mut self, stretch: &mut Stretch) -> Result<bool> {
        let Some(ranges) = &self.ranges else { return Ok(false) };
        stretch.begin(self.merge.internal_key().map(|internal| internal.key));
        let from = ranges.from().max(&self.bounds.from);
        let ends = [ranges.to(), self.bounds.to.as_deref()];
        let to = ends.into_iter().flatten().min();
        self.merge.skip_deleted(ranges.covering(), from, to)
    }

    /// Keeps the stretch that a scan forward has passed, for later scans: from its start to the
    /// current key, or to the end of the range.
    #[cold]
    pub(super) fn learn(&mut self, stretch: Stretch) {
        let Some(start) = stretch.start else { return };
        let from = start.max(self.bounds.from.clone());
        let here = (self.position == Position::On).then(|| self.merge.internal_key()).flatten();
        let to = here.map(|here| here.key).or(self.bounds.to.as_deref());
        self.learn_gap(RangeTombstone::new(&from, to, self.seqno));
    }

    /// As `learn`, of a scan backward: from after the current key, or from the start of the range.
    #[cold]
    pub(super) fn learn_back(&mut self, stretch: Stretch) {
        let Some(start) = stretch.start else { return };
        let end = Bounds::after(&start);
        let to = self.bounds.to.as_deref().map_or(&*end, |to| to.min(&end));
        let from = match self.entry() {
            Some((key, _)) => Bounds::after(key),
            None => self.bounds.from.clone(),
        };
        self.learn_gap(RangeTombstone::new(&from, Some(to), self.seqno));
    }

    fn learn_gap(&mut self, gap: RangeTombstone) {
        if gap.to.as_ref().is_none_or(|to| gap.from < *to) {
            self.store.engine.memory.gaps.add(gap);
            self.ranges = with_gaps(&self.deleted, &self.store.engine.memory.gaps, self.seqno);
        }
    }
}
