//! From all versions of all keys to what a reader at one moment sees: of each key the newest
//! version that is not newer than that moment, and nothing where that is a tombstone. Once the store is
//! closed, every movement fails.

use std::sync::Arc;
use trommel_base::planted::{Bug, planted};

use trommel_base::{Cursor, EntryKind, KeyHead, SeqNo, Slice};
use trommel_sstable::ReadStats;

use super::merge::{Mark, MergeCursor, Offered};
use super::range::Bounds;
use super::source::Source;
use crate::db::Handle;
use crate::error::Result;
use crate::fork::leak;
use crate::view::View;

/// Which way the merge stands relative to the current key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stand {
    /// Off the end.
    Nowhere,
    /// The merge stands on the current entry, in either direction of travel.
    On,
    /// The merge stands before all versions of the current key, which is held in `key`, `value`.
    Before,
}

/// A walk over the keys and values that are visible at one moment.
///
/// It keeps the memtables and tables of its view alive, so nothing that happens to the store
/// changes what it yields.
pub(crate) struct VisibleCursor {
    merge: MergeCursor<Source>,
    seqno: SeqNo,
    stand: Stand,
    /// Going forward: the key whose remaining versions are to be skipped, if it is longer than its
    /// mark. Where the merge stands before it: the current key.
    key: Vec<u8>,
    /// Where the merge stands before the current key: its value.
    value: Slice,
    /// Where keys are wanted: tombstones behind the end are not passed over, so that nothing is
    /// read there only to find the next key.
    bounds: Arc<Bounds>,
    _view: Arc<View>,
    /// Last: the view is released before the store may be closed.
    store: Arc<Handle>,
}

impl Drop for VisibleCursor {
    fn drop(&mut self) {
        if self.store.engine.opener.is_forked() {
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
        self.store.engine.counters.with_at_the_end(|shard| {
            shard.scan_block_reads.add(read.block_reads);
            shard.scan_cache_hits.add(read.cache_hits);
        });
    }
}

impl VisibleCursor {
    pub(crate) fn new(
        sources: Vec<Source>,
        seqno: SeqNo,
        bounds: Arc<Bounds>,
        view: Arc<View>,
        store: Arc<Handle>,
    ) -> Self {
        Self {
            merge: MergeCursor::new(sources),
            seqno,
            stand: Stand::Nowhere,
            key: Vec::new(),
            value: Slice::default(),
            bounds,
            _view: view,
            store,
        }
    }

    /// An error, off the end, if the store was closed, or opened by another process.
    #[inline]
    fn check_open(&mut self) -> Result<()> {
        if self.store.engine.is_closed() { self.refuse() } else { Ok(()) }
    }

    #[cold]
    fn refuse(&mut self) -> Result<()> {
        self.stand = Stand::Nowhere;
        self.store.engine.check_open()
    }

    /// The current key.
    #[inline]
    pub(crate) fn key(&self) -> Option<&[u8]> {
        match self.stand {
            Stand::Nowhere => None,
            Stand::On => self.merge.internal_key().map(|internal| internal.key),
            Stand::Before => Some(&self.key),
        }
    }

    /// The current key and its value, which is not copied.
    #[inline]
    pub(crate) fn entry(&self) -> Option<(&[u8], &[u8])> {
        match self.stand {
            Stand::Nowhere => None,
            Stand::On => self.merge.entry().map(|entry| (entry.key, entry.value)),
            Stand::Before => Some((&self.key, &self.value)),
        }
    }

    /// The current value; empty off the end.
    #[inline]
    pub(crate) fn value(&self) -> Slice {
        match self.stand {
            Stand::Nowhere => Slice::default(),
            Stand::On => self.merge.value(),
            Stand::Before => self.value.clone(),
        }
    }

    /// Moves off the end.
    pub(crate) fn leave(&mut self) {
        self.stand = Stand::Nowhere;
    }

    pub(crate) fn seek_to_last(&mut self) -> Result<()> {
        self.check_open()?;
        self.stand = Stand::Nowhere;
        self.merge.seek_to_last()?;
        self.settle_backward()
    }

    /// Moves to the first visible key at or behind `key`.
    pub(crate) fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.check_open()?;
        self.stand = Stand::Nowhere;
        self.merge.seek(key, self.seqno)?;
        self.settle_forward(None)
    }

    /// Moves to the last visible key before `key`.
    pub(crate) fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        self.check_open()?;
        self.stand = Stand::Nowhere;
        self.merge.seek_before(key)?;
        self.settle_backward()
    }

    /// Moves to the next visible key; off the end it does nothing.
    #[inline]
    pub(crate) fn next(&mut self) -> Result<()> {
        self.check_open()?;
        if self.stand == Stand::On
            && let Some((left, reached)) = self.merge.pass_at_hand()
        {
            let is_new = reached.seqno <= self.seqno && Mark::of_head(&reached) != left;
            if is_new && reached.kind == EntryKind::Put {
                return Ok(());
            }
            self.stand = Stand::Nowhere;
            return self.settle_forward(Some(left));
        }
        self.next_by_merge()
    }

    /// Lends the entries from the current one on to `visit`, until that says no: of that entry the cursor
    /// stands then.
    #[inline]
    pub(crate) fn visit(&mut self, mut visit: impl FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        self.check_open()?;
        while let Some((key, value)) = self.entry() {
            let mut goes_on = visit(key, value) && !self.store.engine.is_closed();
            if goes_on && self.stand == Stand::On {
                let (seen, engine) = (self.seqno, &self.store.engine);
                let left = self.merge.visit_onward(|head, key, value| {
                    offer(head.seqno <= seen, head, &mut goes_on, || {
                        visit(key, value) && !engine.is_closed()
                    })
                });
                if let Some(left) = self.known(left)? {
                    self.settle_forward(Some(left))?;
                    continue;
                }
            }
            if !goes_on || self.stand == Stand::Nowhere {
                return self.check_open();
            }
            self.next()?;
        }
        Ok(())
    }

    /// As `visit`, backward.
    #[inline]
    pub(crate) fn visit_back(&mut self, mut visit: impl FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        self.check_open()?;
        while let Some((key, value)) = self.entry() {
            let mut goes_on = visit(key, value) && !self.store.engine.is_closed();
            if goes_on && self.stand == Stand::On {
                let (seen, engine) = (self.seqno, &self.store.engine);
                let hides = |seqno| sees(seen, seqno) && !planted(Bug::ReverseSkipsVersion);
                let left = self.merge.visit_back(hides, |head, key, value| {
                    offer(sees(seen, head.seqno), head, &mut goes_on, || {
                        visit(key, value) && !engine.is_closed()
                    })
                });
                if let Some(left) = self.known(left)? {
                    self.leave_backward(Some(left))?;
                    continue;
                }
            }
            if !goes_on || self.stand == Stand::Nowhere {
                return self.check_open();
            }
            self.prev()?;
        }
        Ok(())
    }

    /// What a visit of the merge ended with. Where that has moved on, or failed, the cursor stands nowhere.
    #[inline]
    fn known(&mut self, left: Result<Option<Mark>>) -> Result<Option<Mark>> {
        if !matches!(left, Ok(None)) {
            self.stand = Stand::Nowhere;
        }
        match left {
            Err(_) if planted(Bug::ReadErrorEndsScan) => Ok(None),
            left => left,
        }
    }

    /// As `next`, where the next entry is not at hand.
    #[inline(never)]
    fn next_by_merge(&mut self) -> Result<()> {
        match std::mem::replace(&mut self.stand, Stand::Nowhere) {
            Stand::Nowhere => Ok(()),
            Stand::On => {
                let current = self.remember_current_key();
                match self.merge.next() {
                    Err(_) if planted(Bug::ReadErrorEndsScan) => return Ok(()),
                    moved => moved?,
                }
                self.settle_forward(current)
            }
            Stand::Before => self.next_from_before(),
        }
    }

    /// As `next`, from off the front or from the key before: goes past all of the current's.
    #[cold]
    fn next_from_before(&mut self) -> Result<()> {
        let key = std::mem::take(&mut self.key);
        let outcome = self.merge.seek(&key, 0);
        self.key = key;
        outcome?;
        self.settle_forward(Some(Mark::of(&self.key)))
    }

    /// Moves to the previous visible key; off the end it does nothing.
    #[inline]
    pub(crate) fn prev(&mut self) -> Result<()> {
        self.check_open()?;
        if self.stand == Stand::On
            && let Some((left, reached)) = self.merge.pass_back_at_hand()
        {
            if Mark::of_head(&reached) != left
                && self.sees(reached.seqno)
                && reached.kind == EntryKind::Put
                && self.merge.begins_key()
            {
                return Ok(());
            }
            self.stand = Stand::Nowhere;
            return self.leave_backward(Some(left));
        }
        self.prev_by_merge()
    }

    /// As `prev`, where the entry before is not at hand.
    #[inline(never)]
    fn prev_by_merge(&mut self) -> Result<()> {
        match std::mem::replace(&mut self.stand, Stand::Nowhere) {
            Stand::Nowhere => Ok(()),
            Stand::On => {
                // Newer versions of the current key stand before it.
                let current = self.remember_current_key();
                self.merge.prev()?;
                self.leave_backward(current)
            }
            Stand::Before => self.settle_backward(),
        }
    }

    /// As `settle_backward`, behind what is left of the versions of the key that was remembered.
    fn leave_backward(&mut self, remembered: Option<Mark>) -> Result<()> {
        while self.is_of(remembered) {
            self.merge.prev()?;
        }
        self.settle_backward()
    }

    /// The mark of the key that the merge stands on; in `self.key` is the key, if that is longer.
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

    /// Whether the merge stands on a version of the key that was remembered with this mark.
    #[inline]
    fn is_of(&self, remembered: Option<Mark>) -> bool {
        let Some((mark, head)) = remembered.zip(self.merge.head()) else { return false };
        self.merge.mark(head) == mark
            && (mark.is_whole()
                || self.merge.internal_key().is_some_and(|internal| *internal.key == *self.key))
    }

    /// From where the merge stands, forward to the newest visible version of a key, passing
    /// tombstones with all they hide, and the versions of the key that was remembered as `passed`.
    fn settle_forward(&mut self, mut passed: Option<Mark>) -> Result<()> {
        while let Some(head) = self.merge.head() {
            let (seqno, kind) = (head.seqno, head.kind);
            if seqno <= self.seqno && !self.is_of(passed) {
                if kind == EntryKind::Put {
                    self.stand = Stand::On;
                    return Ok(());
                }
                if self.is_behind() {
                    return Ok(());
                }
                passed = self.remember_current_key();
            }
            self.merge.next()?;
        }
        Ok(())
    }

    /// Whether the merge stands on a key that is not wanted.
    fn is_behind(&self) -> bool {
        let Some(to) = &self.bounds.to else { return false };
        self.merge.internal_key().is_some_and(|internal| **to <= *internal.key)
    }

    /// From where the merge stands, backward over all versions of one key after another (oldest
    /// first), until one has a visible version that is no tombstone.
    fn settle_backward(&mut self) -> Result<()> {
        while let Some(head) = self.merge.head() {
            let (seqno, kind) = (head.seqno, head.kind);
            if self.merge.is_hidden_at(self.seqno) && !planted(Bug::ReverseSkipsVersion) {
                self.merge.prev()?;
                continue;
            }
            if !self.merge.begins_key() {
                if self.settle_among_versions()? {
                    return Ok(());
                }
                continue;
            }
            // The one version of its key: nothing has to be looked at to know that it is the newest.
            if self.sees(seqno) && kind == EntryKind::Put {
                self.stand = Stand::On;
                return Ok(());
            }
            self.merge.prev()?;
        }
        Ok(())
    }

    #[inline]
    fn sees(&self, seqno: SeqNo) -> bool {
        sees(self.seqno, seqno)
    }

    /// From where the merge stands, backward over all versions of one key; whether one of them is
    /// visible and the newest such is no tombstone.
    fn settle_among_versions(&mut self) -> Result<bool> {
        let current = self.merge.head().map(|head| self.merge.mark(head));
        self.copy_current_key();
        let mut newest_visible = None;
        while self.is_of(current) {
            let Some(head) = self.merge.head() else { break };
            if self.sees(head.seqno) {
                newest_visible = match head.kind {
                    EntryKind::Put => Some(self.merge.value()),
                    EntryKind::Delete => None,
                };
            }
            self.merge.prev()?;
        }
        let Some(value) = newest_visible else { return Ok(false) };
        self.value = value;
        self.stand = Stand::Before;
        Ok(true)
    }
}

/// Whether a walk backward at moment `now` sees what was written at `seqno`.
#[inline]
fn sees(now: SeqNo, seqno: SeqNo) -> bool {
    let is_skipped = planted(Bug::ReverseSkipsVersion) && seqno == now;
    seqno <= now && !is_skipped
}

/// What becomes of an entry whose key has no other version that could be meant: it is taken if it is
/// seen and a value, and is the last one where `visit` then says no.
#[inline]
fn offer(
    is_seen: bool,
    head: &KeyHead,
    goes_on: &mut bool,
    visit: impl FnOnce() -> bool,
) -> Offered {
    if !is_seen || head.kind != EntryKind::Put {
        return Offered::Left;
    }
    *goes_on = visit();
    if *goes_on { Offered::Taken } else { Offered::Last }
}
