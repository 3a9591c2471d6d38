//! Reduces all versions of all keys to what a reader sees as of one moment: for each key, the
//! newest version that is visible at that moment, or nothing if that version is a tombstone.
//!
//! 1. Entries that are not yielded (tombstones, and versions that are too new or hidden) are
//!    stepped over one by one, because usually there are few. After [`STEPS_BEFORE_RESEEK`]
//!    versions of one key in one source, that source alone seeks: forward, to the version that the
//!    reader sees, or past all of them; backward, to that version, and then before all of them. So
//!    a key costs a few steps and two seeks per source, however often it was overwritten. A
//!    memtable with a hash table shows a reader one or two versions of a key only.
//! 2. Before a range tombstone, the sources that hold nothing newer within its range seek to the
//!    other end of the range, and skip tables in between unread.
//! 3. While nothing is yielded, each new key is checked against the bounds, so that nothing beyond
//!    them is read just to find the next key.
//! 4. Once the store is closed, every movement fails. A running visit ends within a block.

mod deleted;
mod empty;
mod operands;
mod version_run;
mod visit;

use std::sync::Arc;

use trommel_base::{
    Cursor, CursorHints, EntryKind, MAX_SEQNO, SeqNo, Slice, SliceBuffer, compare_keys,
};
use trommel_sstable::ReadStats;

use super::gate::RangeGate;
use super::merge::{Mark, MergeCursor, MergeLists};
use super::source::Source;
use super::spare;
use crate::bounds::SharedBounds;
use crate::env;
use crate::error::Result;
use crate::fork::{Opener, leak};
use crate::handle::Handle;
use crate::latencies::TimedOperation;
use crate::ranges::RangeSet;
use crate::view::View;
use deleted::{Gap, KnownDeleted, is_deleted_by};
use version_run::VersionRun;

/// The position of the merge relative to the current key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Position {
    /// Off the end.
    OffEnd,
    /// The merge is on the current entry, in either direction of travel.
    On,
    /// The merge is before all versions of the current key, which is held in `key` and `value`.
    Before,
    /// The merge is on the newest visible version of the current key, a merge operand, in either
    /// direction of travel; `value` is the merged value of the key.
    OnOperand,
}

/// A cursor over the keys and values that are visible as of one moment.
///
/// It keeps the memtables and tables of its view alive, so no change of the store affects the
/// entries that it yields.
pub(crate) struct VisibleCursor {
    merge: MergeCursor<Source>,
    seqno: SeqNo,
    position: Position,
    /// Going forward: the key whose remaining versions are to be skipped, if it is longer than its
    /// mark. If the merge is before it: the current key.
    key: Vec<u8>,
    /// If the merge is before the current key: its value.
    value: Slice,
    /// The known deleted ranges, if there are any.
    deleted: Option<Box<KnownDeleted>>,
    /// The keys that are being passed.
    gap: Gap,
    /// The range of interest: nothing beyond it is read to find the next key.
    bounds: SharedBounds,
    /// Entries that were skipped, not yielded.
    skipped: u64,
    /// Seeks that skipped the rest of a key's versions.
    reseeks: u64,
    /// The buffer for a value that cannot be shared.
    values: SliceBuffer,
    opener: Opener,
    _view: Arc<View>,
    /// Last field: the view must be dropped before the store may close.
    store: Arc<Handle>,
}

impl Drop for VisibleCursor {
    fn drop(&mut self) {
        if self.opener.is_forked() {
            let nothing = MergeCursor::new(Vec::new());
            std::mem::forget(std::mem::replace(&mut self.merge, nothing));
            leak(&self._view);
            leak(&self.store);
            return;
        }
        let mut read = ReadStats::default();
        for source in self.merge.sources() {
            read.add(&source.read_stats());
        }
        let skipped = self.skipped + self.merge.skipped_in_visits();
        self.store.engine.statistics.counters.with_at_the_end(|shard| {
            shard.scan_block_reads.add(read.block_reads);
            shard.scan_cache_hits.add(read.cache_hits);
            if skipped > 0 {
                shard.scan_skipped.add(skipped);
                shard.scan_reseeks.add(self.reseeks);
            }
        });
        spare::keep(self.merge.take_lists());
    }
}

impl VisibleCursor {
    #[inline]
    pub(crate) fn new(
        lists: MergeLists<Source>,
        seqno: SeqNo,
        ranges: Option<Arc<RangeSet>>,
        gate: Option<Arc<RangeGate>>,
        bounds: SharedBounds,
        view: Arc<View>,
        store: Arc<Handle>,
    ) -> Self {
        let deleted = KnownDeleted::new(ranges, &store, &view, seqno);
        Self {
            merge: MergeCursor::in_lists(lists),
            seqno,
            position: Position::OffEnd,
            key: Vec::new(),
            value: Slice::default(),
            deleted,
            gap: Gap::new(gate),
            bounds,
            skipped: 0,
            reseeks: 0,
            values: SliceBuffer::default(),
            opener: store.engine.access.opener(),
            _view: view,
            store,
        }
    }

    /// An error, off the end, if the store was closed or belongs to another process.
    #[inline]
    fn check_open(&mut self) -> Result<()> {
        if self.opener.is_closed() { self.refuse() } else { Ok(()) }
    }

    #[cold]
    fn refuse(&mut self) -> Result<()> {
        self.position = Position::OffEnd;
        self.store.engine.access.check_open()
    }

    /// The current key.
    #[inline]
    pub(crate) fn key(&self) -> Option<&[u8]> {
        match self.position {
            Position::OffEnd => None,
            Position::On | Position::OnOperand => {
                self.merge.internal_key().map(|internal| internal.key)
            }
            Position::Before => Some(&self.key),
        }
    }

    /// The current key and value, not copied. Always inlined: a call costs a tenth of a step.
    #[inline(always)]
    pub(crate) fn entry(&self) -> Option<(&[u8], &[u8])> {
        match self.position {
            Position::OffEnd => None,
            Position::On => self.merge.entry().map(|entry| (entry.key, entry.value)),
            Position::Before => Some((&self.key, &self.value)),
            Position::OnOperand => Some((self.merge.internal_key()?.key, &self.value)),
        }
    }

    /// The current value; empty off the end.
    #[inline]
    pub(crate) fn value(&self) -> Slice {
        match self.position {
            Position::OffEnd => Slice::default(),
            Position::On => self.merge.value(),
            Position::Before | Position::OnOperand => self.value.clone(),
        }
    }

    /// As `value`, copying into `buffer` if it cannot be shared.
    #[inline]
    pub(crate) fn value_in(&self, buffer: &mut SliceBuffer) -> Slice {
        match self.position {
            Position::OffEnd => Slice::default(),
            Position::On => self.merge.shared_value().unwrap_or_else(|| {
                self.merge.entry().map_or_else(Slice::default, |entry| buffer.copied(entry.value))
            }),
            Position::Before | Position::OnOperand => self.value.clone(),
        }
    }

    /// Moves off the end.
    pub(crate) fn leave(&mut self) {
        self.position = Position::OffEnd;
    }

    /// Makes `seek`, which is in the sample of timed ones.
    #[cold]
    #[inline(never)]
    fn timed(&mut self, seek: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        let start = env::now();
        let outcome = seek(self);
        let latencies = &self.store.engine.statistics.latencies;
        latencies.record(TimedOperation::Seek, env::now() - start);
        outcome
    }

    #[inline]
    fn is_sampled(&self) -> bool {
        self.store.engine.statistics.latencies.samples()
    }

    pub(crate) fn seek_to_last(&mut self) -> Result<()> {
        if self.is_sampled() {
            return self.timed(Self::seek_to_last);
        }
        self.check_open()?;
        self.position = Position::OffEnd;
        self.merge.seek_to_last()?;
        self.settle_backward()
    }

    /// Moves to the first visible key at or after `key`.
    pub(crate) fn seek(&mut self, key: &[u8]) -> Result<()> {
        if self.is_sampled() {
            return self.timed(|cursor| cursor.seek(key));
        }
        self.check_open()?;
        self.position = Position::OffEnd;
        self.merge.seek(key, self.seqno)?;
        self.settle_forward(None)
    }

    /// Moves to the last visible key before `key`.
    pub(crate) fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        if self.is_sampled() {
            return self.timed(|cursor| cursor.seek_before(key));
        }
        self.check_open()?;
        self.position = Position::OffEnd;
        self.merge.seek_before(key)?;
        self.settle_backward()
    }

    /// Moves to the next visible key; does nothing off the end.
    #[inline]
    pub(crate) fn next(&mut self) -> Result<()> {
        self.check_open()?;
        if self.position == Position::On
            && let Some((left, reached)) = self.merge.pass_at_hand()
        {
            let is_new = reached.seqno <= self.seqno && Mark::of_head(&reached) != left;
            if is_new && reached.kind == EntryKind::Put && !self.is_deleted() {
                return Ok(());
            }
            self.position = Position::OffEnd;
            return self.settle_forward(Some(left));
        }
        self.next_by_merge()
    }

    /// As `next`, if the next entry is not at hand.
    #[inline(never)]
    fn next_by_merge(&mut self) -> Result<()> {
        match std::mem::replace(&mut self.position, Position::OffEnd) {
            Position::OffEnd => Ok(()),
            Position::On | Position::OnOperand => {
                let current = self.remember_current_key();
                self.merge.next()?;
                self.settle_forward(current)
            }
            Position::Before => self.next_from_before(),
        }
    }

    /// As `next`, while the merge is before the current key: moves past all of its versions.
    #[cold]
    fn next_from_before(&mut self) -> Result<()> {
        self.key.push(0);
        self.merge.seek(&self.key, self.seqno)?;
        self.settle_forward(None)
    }

    /// Moves to the previous visible key; does nothing off the end.
    #[inline]
    pub(crate) fn prev(&mut self) -> Result<()> {
        self.check_open()?;
        if self.position == Position::On
            && let Some((left, reached)) = self.merge.pass_back_at_hand()
        {
            if Mark::of_head(&reached) != left
                && self.sees(reached.seqno)
                && reached.kind == EntryKind::Put
                && self.merge.begins_key()
                && !self.is_deleted()
            {
                return Ok(());
            }
            self.position = Position::OffEnd;
            return self.leave_backward(Some(left));
        }
        self.prev_by_merge()
    }

    /// As `prev`, if the previous entry is not at hand.
    #[inline(never)]
    fn prev_by_merge(&mut self) -> Result<()> {
        match std::mem::replace(&mut self.position, Position::OffEnd) {
            Position::OffEnd => Ok(()),
            Position::On | Position::OnOperand => {
                // Newer versions of the current key come before it.
                let current = self.remember_current_key();
                self.merge.prev()?;
                self.leave_backward(current)
            }
            Position::Before => self.settle_backward(),
        }
    }

    /// As `settle_backward`, after the remaining versions of the remembered key.
    fn leave_backward(&mut self, remembered: Option<Mark>) -> Result<()> {
        let mut run = VersionRun::NONE;
        while self.is_of(remembered) {
            self.pass_back(&mut run)?;
        }
        self.settle_backward()
    }

    /// Moves backward past one unwanted version of a key, or in a long run past all versions in the
    /// source.
    #[inline]
    fn pass_back(&mut self, run: &mut VersionRun) -> Result<()> {
        self.skipped += 1;
        if run.is_long(self.merge.current()) {
            self.copy_current_key();
            self.reseeks += 1;
            return self.merge.skip_back(&self.key, None).map(|_| ());
        }
        self.merge.prev()
    }

    /// Moves forward past one version of a key, or in a long run by a seek: past all versions if
    /// `all`, otherwise past those that are too new.
    #[inline]
    fn pass(&mut self, run: &mut VersionRun, all: bool) -> Result<()> {
        self.skipped += 1;
        if run.is_long(self.merge.current()) {
            return self.skip(all);
        }
        self.merge.next()
    }

    #[cold]
    fn skip(&mut self, all: bool) -> Result<()> {
        self.copy_current_key();
        self.reseeks += 1;
        if !all {
            return self.merge.skip_to(&self.key, self.seqno);
        }
        // The next possible key: a seek there reads no block of a table that holds only this one.
        self.key.push(0);
        let outcome = self.merge.skip_to(&self.key, MAX_SEQNO);
        self.key.pop();
        outcome
    }

    /// The mark of the merge's current key; a key longer than its mark is copied to `self.key`.
    #[inline]
    fn remember_current_key(&mut self) -> Option<Mark> {
        let mark = self.merge.mark(self.merge.head()?);
        if !mark.is_whole() {
            self.copy_current_key();
        }
        Some(mark)
    }

    fn copy_current_key(&mut self) {
        self.key.clear();
        if let Some(internal) = self.merge.internal_key() {
            self.key.extend_from_slice(internal.key);
        }
    }

    /// Whether the merge is on a version of the key remembered with this mark.
    #[inline]
    fn is_of(&self, remembered: Option<Mark>) -> bool {
        let Some((mark, head)) = remembered.zip(self.merge.head()) else { return false };
        self.merge.mark(head) == mark
            && (mark.is_whole()
                || self.merge.internal_key().is_some_and(|internal| *internal.key == *self.key))
    }

    /// Moves forward from the merge's position to the newest visible version of a key, skipping
    /// tombstones with everything they hide, and versions of the remembered key `passed`.
    fn settle_forward(&mut self, passed: Option<Mark>) -> Result<()> {
        self.gap.restart();
        self.pass_forward(passed)?;
        if self.gap.is_long() {
            self.learn();
        }
        Ok(())
    }

    /// As `settle_forward`; records gaps in which nothing is visible.
    #[inline]
    fn pass_forward(&mut self, passed: Option<Mark>) -> Result<()> {
        // The key whose versions are being skipped: all that are left, or those that are too new.
        let (mut current, mut is_done) = (passed, true);
        let mut run = VersionRun::NONE;
        while let Some(head) = self.merge.head() {
            let (is_visible, kind) = (head.seqno <= self.seqno, head.kind);
            if self.is_of(current) && (is_done || !is_visible) {
                self.pass(&mut run, is_done)?;
                continue;
            }
            let is_deleted = is_visible && self.is_deleted();
            if is_visible && kind == EntryKind::Put && !is_deleted {
                self.position = Position::On;
                return Ok(());
            }
            if self.is_beyond() || self.gap.is_full() {
                return Ok(());
            }
            if kind == EntryKind::Merge
                && is_visible
                && !is_deleted
                && (self.settle_on_operand()? || self.gap.is_full())
            {
                return Ok(());
            }
            (current, is_done) = (self.pass_unseen(is_deleted)?, is_visible);
            run = VersionRun::NONE;
        }
        Ok(())
    }

    /// Moves forward past an entry that is not yielded, or past the deleted range that it is in.
    /// Returns the key whose other versions are to be skipped.
    #[inline(never)]
    fn pass_unseen(&mut self, is_deleted: bool) -> Result<Option<Mark>> {
        self.gap.pass(self.merge.internal_key().map(|internal| internal.key));
        if is_deleted && self.skip_deleted()? {
            return Ok(None);
        }
        let current = self.remember_current_key();
        self.skipped += 1;
        self.merge.next()?;
        Ok(current)
    }

    /// Whether the merge is on a key at or after the end of the range.
    #[inline]
    fn is_beyond(&self) -> bool {
        let Some(to) = &self.bounds.to else { return false };
        self.merge.internal_key().is_some_and(|internal| compare_keys(internal.key, to).is_ge())
    }

    /// Whether the merge is on a key before the range.
    #[inline]
    fn is_below(&self) -> bool {
        let from = &*self.bounds.from;
        let is_below = |key: &[u8]| compare_keys(key, from).is_lt();
        !from.is_empty() && self.merge.internal_key().is_some_and(|internal| is_below(internal.key))
    }

    /// Moves backward from the merge's position over all versions of one key after another (oldest
    /// first), until one has a visible version that is no tombstone, or the range has ended.
    fn settle_backward(&mut self) -> Result<()> {
        self.gap.restart();
        self.pass_backward()?;
        if self.gap.is_long() {
            self.learn_back();
        }
        Ok(())
    }

    /// As `settle_backward`; records gaps in which nothing is visible.
    #[inline]
    fn pass_backward(&mut self) -> Result<()> {
        let mut run = VersionRun::NONE;
        while let Some(head) = self.merge.head() {
            let (seqno, kind) = (head.seqno, head.kind);
            if self.merge.is_hidden_at(self.seqno) {
                self.pass_back(&mut run)?;
                continue;
            }
            run = VersionRun::NONE;
            let is_deleted = self.sees(seqno) && self.is_deleted();
            if is_deleted && self.skip_deleted()? {
                // Checked against the bounds below.
                self.gap.pass(None);
            } else if !self.merge.begins_key() {
                if self.settle_among_versions()? {
                    return Ok(());
                }
                self.gap.pass(Some(&self.key));
            } else if self.sees(seqno) && kind == EntryKind::Put && !is_deleted {
                // The only version of its key, so it is the newest.
                self.position = Position::On;
                return Ok(());
            } else if kind == EntryKind::Merge
                && self.sees(seqno)
                && !is_deleted
                && !self.is_below()
                && (self.settle_on_operand()? || self.gap.is_full())
            {
                return Ok(());
            } else {
                self.gap.pass(self.merge.internal_key().map(|internal| internal.key));
                self.skipped += 1;
                self.merge.prev()?;
            }
            if self.is_below() || self.gap.is_full() {
                return Ok(());
            }
        }
        Ok(())
    }

    #[inline]
    fn sees(&self, seqno: SeqNo) -> bool {
        sees(self.seqno, seqno)
    }

    /// Moves backward over all versions of one key. Returns whether the newest visible one exists
    /// and is no tombstone.
    fn settle_among_versions(&mut self) -> Result<bool> {
        let current = self.merge.head().map(|head| self.merge.mark(head));
        self.copy_current_key();
        self.value = Slice::default();
        let (mut newest_visible, mut newest_seqno) = (None, 0);
        let mut is_operand = false;
        let mut run = VersionRun::NONE;
        while self.is_of(current) {
            let Some(head) = self.merge.head() else { break };
            let (is_seen, mut kind, mut seqno) = (self.sees(head.seqno), head.kind, head.seqno);
            self.skipped += 1;
            let value = if run.is_long(self.merge.current()) {
                self.reseeks += 1;
                // If this version is visible, so is the newest visible one in its source.
                let found = self.merge.skip_back(&self.key, is_seen.then_some(self.seqno))?;
                found.map(|found| {
                    (kind, seqno) = (found.0, found.1);
                    found.2
                })
            } else {
                // Dropped first, so that its memory can be reused.
                drop(newest_visible.take_if(|_| is_seen));
                let (merge, values) = (&self.merge, &mut self.values);
                let copied = || Some(values.copied(merge.entry()?.value));
                let is_wanted = is_seen && kind == EntryKind::Put;
                let value = is_wanted.then(|| merge.shared_value().or_else(copied)).flatten();
                self.merge.prev()?;
                value
            };
            if is_seen {
                newest_visible = value.filter(|_| kind == EntryKind::Put);
                newest_seqno = seqno;
                is_operand = kind == EntryKind::Merge;
            }
        }
        if is_operand {
            newest_visible = self.value_of_operands()?;
            if newest_visible.is_none() {
                self.exclude_from_gap();
                if self.gap.is_full() {
                    // A limited search ends here, as if the key were visible.
                    self.position = Position::Before;
                    return Ok(true);
                }
            }
        }
        let newest_visible =
            newest_visible.filter(|_| !is_deleted_by(&mut self.deleted, &self.key, newest_seqno));
        let Some(value) = newest_visible else { return Ok(false) };
        self.skipped -= 1;
        self.value = value;
        self.position = Position::Before;
        Ok(true)
    }
}

/// Whether a backward scan as of `now` sees an entry written at `seqno`.
#[inline]
fn sees(now: SeqNo, seqno: SeqNo) -> bool {
    seqno <= now
}
