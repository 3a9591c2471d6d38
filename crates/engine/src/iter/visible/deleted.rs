//! The deleted ranges that scans know, and the gaps that they find.
//!
//! A cursor looks up range tombstones, and the gaps that earlier scans have found, in one set of
//! ranges. Where it passes many keys without finding a visible one, it adds that gap to the known
//! ones ([`Gaps`]).

use std::sync::Arc;

use trommel_base::{Cursor, CursorHints, SeqNo};

use super::VisibleCursor;
use crate::bounds::Bounds;
use crate::error::Result;
use crate::expiry::Horizons;
use crate::handle::Handle;
use crate::iter::gate::RangeGate;
use crate::ranges::{Gaps, RangeCursor, RangeSet, RangeTombstone};
use crate::view::View;

/// The deleted ranges that a cursor knows.
pub(super) struct KnownDeleted {
    /// The range tombstones, if there are any.
    tombstones: Option<Arc<RangeSet>>,
    /// A cursor over them and the gaps that earlier scans have found.
    cursor: RangeCursor,
}

impl KnownDeleted {
    /// The deleted ranges that are known now, for reads of `view` as of `seqno`; `None` if there
    /// are none.
    #[inline]
    pub(super) fn new(
        tombstones: Option<Arc<RangeSet>>,
        store: &Handle,
        view: &View,
        seqno: SeqNo,
    ) -> Option<Box<Self>> {
        if tombstones.is_none() && store.engine.memory.gaps.is_empty() {
            return None;
        }
        Some(Self::of(tombstones, store, view, seqno))
    }

    #[inline]
    fn deletes(&mut self, key: &[u8], seqno: SeqNo) -> bool {
        self.cursor.deletes(key, seqno)
    }

    /// The sequence number before which all writes to `key` are deleted for readers as of `seqno`,
    /// or have expired.
    pub(super) fn covering(&self, key: &[u8], seqno: SeqNo) -> SeqNo {
        self.tombstones.as_ref().map_or(0, |set| set.covering(key, seqno))
    }

    #[cold]
    fn of(
        tombstones: Option<Arc<RangeSet>>,
        store: &Handle,
        view: &View,
        seqno: SeqNo,
    ) -> Box<Self> {
        let none = Horizons::default();
        let expired = tombstones.as_ref().map_or(&none, |set| set.horizons());
        let gaps = store.engine.memory.gaps.load();
        // A later scan may have found a gap only because entries have expired since this scan
        // began, or because of deletions in a memtable that this scan does not read, and whose puts
        // it would miss.
        let gaps = gaps.filter(|_| {
            store.engine.snapshots.expiry.are_published(expired) && is_newest(view, store)
        });
        let mut all = RangeSet::default();
        tombstones.iter().chain(&gaps).for_each(|set| all.extend(set));
        Box::new(Self { tombstones, cursor: RangeCursor::new(all, seqno) })
    }
}

/// Whether no memtable is newer than those of `view`.
fn is_newest(view: &View, store: &Handle) -> bool {
    Arc::ptr_eq(&view.active, &store.engine.view.load().active)
}

/// A gap, a range of keys in which nothing is visible, while a scan passes it.
pub(super) struct Gap {
    /// Keys passed, and skips of many at once.
    keys: u32,
    /// The number of keys after which the scan stops.
    most: u32,
    /// A key near the first one passed, if enough keys were passed.
    start: Box<[u8]>,
    /// Whether `start` belongs to this gap.
    is_begun: bool,
    /// The gate by which the scan may skip tables and blocks. A scan that has skipped one adds no
    /// gap: keys that it misses because a filter is wrong must not be missed by other scans.
    gate: Option<Arc<RangeGate>>,
}

/// Number of passed keys from which a gap is remembered.
const REMEMBERED_FROM: u32 = if cfg!(any(test, shuttle)) { 2 } else { 16 };
/// A scan that keeps a gap searches for its other end, among this many times the keys passed.
const LOOK_FACTOR: u32 = 8;
/// Most keys that this search passes.
const MOST_LOOKED: u32 = 1 << 14;

impl Gap {
    /// No gap yet, of a scan with this gate.
    pub(super) fn new(gate: Option<Arc<RangeGate>>) -> Self {
        Self { keys: 0, most: u32::MAX, start: Box::default(), is_begun: false, gate }
    }

    /// Whether the search has reached its limit of keys.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.keys >= self.most
    }

    /// Excludes the current key: a new gap begins after it, and a limited search ends at it.
    pub(super) fn exclude(&mut self) {
        if self.most == u32::MAX { self.restart() } else { self.keys = self.most }
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

    /// Whether the gap is long enough to be kept.
    #[inline]
    pub(super) fn is_long(&self) -> bool {
        self.keys >= Gaps::FEWEST_KEYS && self.is_begun && !self.has_skipped()
    }

    /// The gate of the scan.
    pub(super) fn gate(&self) -> Option<&RangeGate> {
        self.gate.as_deref()
    }

    /// Whether a filter has made the scan skip a table or a block.
    fn has_skipped(&self) -> bool {
        self.gate.as_ref().is_some_and(|gate| gate.has_skipped())
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

    /// On a deleted entry that was passed: moves the sources past the deleted range, or to the end
    /// of the bounds, beyond which a block may be corrupt. Returns whether the entry was left.
    #[cold]
    pub(super) fn skip_deleted(&mut self) -> Result<bool> {
        let Some(known) = &self.deleted else { return Ok(false) };
        self.gap.begin(self.merge.internal_key().map(|internal| internal.key));
        let from = known.cursor.from().max(&self.bounds.from);
        let ends = [known.cursor.to(), self.bounds.to.as_deref()];
        let to = ends.into_iter().flatten().min();
        self.merge.skip_deleted(known.cursor.covering(), from, to)
    }

    /// Keeps the gap that a forward scan has passed, for later scans. The gap ends at the current
    /// key, or at the end of the range, beyond which tables are left out. The seek may have begun
    /// anywhere within the gap, so its start is searched for.
    #[cold]
    pub(super) fn learn(&mut self) {
        let start = self.bounds.from.as_slice().max(&self.gap.start).to_vec();
        let from = self.start_of_gap(&start).unwrap_or(start);
        let ends = [self.key(), self.bounds.to.as_deref()];
        let gap = RangeTombstone::new(&from, ends.into_iter().flatten().min(), self.seqno);
        self.learn_gap(gap);
    }

    /// As `learn`, for a backward scan: the gap begins after the current key, or at the start of
    /// the range.
    #[cold]
    pub(super) fn learn_back(&mut self) {
        let end = Bounds::after(&self.gap.start);
        let end = self.bounds.to.clone().map_or(end.clone(), |to| to.min(end));
        let to = self.end_of_gap(&end).unwrap_or(end);
        let from = self.key().map(Bounds::after).unwrap_or_default();
        let from = from.max(self.bounds.from.clone());
        self.learn_gap(RangeTombstone::new(&from, Some(&to), self.seqno));
    }

    /// A key at or before `key` from which on nothing is visible up to `key`, if a limited search
    /// through the sources of this cursor succeeds.
    fn start_of_gap(&self, key: &[u8]) -> Option<Vec<u8>> {
        let bounds = Bounds { from: Vec::new(), to: Some(key.to_vec()) };
        let mut look = self.look_within(bounds)?;
        look.merge.seek_before(key).ok()?;
        look.pass_backward().ok()?;
        if look.gap.has_skipped() {
            return None;
        }
        Some(look.found_or_reached().map(Bounds::after).unwrap_or_default())
    }

    /// A key at or after `key` before which nothing is visible from `key` on, as `start_of_gap`.
    fn end_of_gap(&self, key: &[u8]) -> Option<Vec<u8>> {
        let mut look = self.look_within(Bounds { from: key.to_vec(), to: None })?;
        look.merge.seek(key, self.seqno).ok()?;
        look.pass_forward(None).ok()?;
        look.found_or_reached().filter(|_| !look.gap.has_skipped()).map(<[u8]>::to_vec)
    }

    /// A cursor over the sources of this one, which stops after a number of keys.
    fn look_within(&self, bounds: Bounds) -> Option<Self> {
        let tombstones = self.deleted.as_ref().and_then(|known| known.tombstones.clone());
        let view = Arc::clone(&self._view);
        let look = self.store.cursor_over(view, self.seqno, tombstones, bounds);
        let mut look = look.ok()?;
        look.gap.most = self.gap.keys.saturating_mul(LOOK_FACTOR).min(MOST_LOOKED);
        Some(look)
    }

    /// The key that a search has found, or has reached but not passed.
    fn found_or_reached(&self) -> Option<&[u8]> {
        self.key().or_else(|| self.merge.internal_key().map(|internal| internal.key))
    }

    /// Adds a gap, if the view is known to hold everything up to the cursor's sequence number. If
    /// the memtable was frozen between pinning the view and reading that number, some writes may be
    /// in the next memtable.
    fn learn_gap(&mut self, gap: RangeTombstone) {
        let engine = &self.store.engine;
        let is_whole = is_newest(&self._view, &self.store);
        // A compaction filter may have removed what snapshots still see in the views they keep.
        let filters = engine.options.load().compaction.compaction_filter.is_some();
        // The view of a follower may be older than its newest visible sequence number.
        let follows = engine.options.load().opening.follows;
        if is_whole && !filters && !follows && gap.to.as_ref().is_none_or(|to| gap.from < *to) {
            engine.memory.gaps.add(gap);
            engine.account_ranges();
            let tombstones = self.deleted.take().and_then(|known| known.tombstones);
            self.deleted = KnownDeleted::new(tombstones, &self.store, &self._view, self.seqno);
        }
    }
}
