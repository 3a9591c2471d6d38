//! From all versions of all keys to what a reader at one moment sees: of each key the newest
//! version that is not newer than that moment, and nothing where that is a tombstone.

use std::sync::Arc;
use trommel_base::planted::{Bug, planted};

use trommel_base::{Cursor, EntryKind, SeqNo, Slice};
use trommel_sstable::ReadStats;

use super::merge::MergeCursor;
use super::source::Source;
use crate::engine::Engine;
use crate::error::Result;
use crate::view::View;

/// Which way the merge stands relative to the current key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stand {
    /// Off the end.
    Nowhere,
    /// The merge stands on the current entry.
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
    /// Going forward: the key whose remaining versions are to be skipped. Going backward: the
    /// current key.
    key: Vec<u8>,
    /// Going backward: the current value.
    value: Slice,
    _view: Arc<View>,
    engine: Arc<Engine>,
    /// Keys from here on are not wanted: tombstones there are not passed over, so that nothing is
    /// read behind the end only to find the next key.
    to: Option<Vec<u8>>,
}

impl Drop for VisibleCursor {
    fn drop(&mut self) {
        let mut read = ReadStats::default();
        for source in self.merge.sources() {
            read.add(&source.read_stats());
        }
        self.engine.counters.with(|shard| {
            shard.scan_block_reads.add(read.block_reads);
            shard.scan_cache_hits.add(read.cache_hits);
        });
    }
}

impl VisibleCursor {
    pub(crate) fn new(
        sources: Vec<Source>,
        seqno: SeqNo,
        view: Arc<View>,
        engine: Arc<Engine>,
        to: Option<Vec<u8>>,
    ) -> Self {
        Self {
            merge: MergeCursor::new(sources),
            seqno,
            stand: Stand::Nowhere,
            key: Vec::new(),
            value: Slice::default(),
            _view: view,
            engine,
            to,
        }
    }

    /// The current key.
    #[inline]
    pub(crate) fn key(&self) -> Option<&[u8]> {
        match self.stand {
            Stand::Nowhere => None,
            Stand::On => self.merge.entry().map(|entry| entry.key),
            Stand::Before => Some(&self.key),
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
        self.stand = Stand::Nowhere;
        self.merge.seek_to_last()?;
        self.settle_backward()
    }

    /// Moves to the first visible key at or behind `key`.
    pub(crate) fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.stand = Stand::Nowhere;
        self.merge.seek(key, self.seqno)?;
        self.settle_forward(false)
    }

    /// Moves to the last visible key before `key`.
    pub(crate) fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        self.stand = Stand::Nowhere;
        self.merge.seek_before(key)?;
        self.settle_backward()
    }

    /// Moves to the next visible key; off the end it does nothing.
    pub(crate) fn next(&mut self) -> Result<()> {
        match std::mem::replace(&mut self.stand, Stand::Nowhere) {
            Stand::Nowhere => Ok(()),
            Stand::On => {
                self.remember_current_key();
                match self.merge.next() {
                    Err(_) if planted(Bug::ReadErrorEndsScan) => return Ok(()),
                    moved => moved?,
                }
                self.settle_forward(true)
            }
            Stand::Before => {
                // The merge is off the front, or on the key before: go past all of the current's.
                let key = std::mem::take(&mut self.key);
                let outcome = self.merge.seek(&key, 0);
                self.key = key;
                outcome?;
                self.settle_forward(true)
            }
        }
    }

    /// Moves to the previous visible key; off the end it does nothing.
    pub(crate) fn prev(&mut self) -> Result<()> {
        match std::mem::replace(&mut self.stand, Stand::Nowhere) {
            Stand::Nowhere => Ok(()),
            Stand::On => {
                self.remember_current_key();
                // Newer versions of the current key stand before it.
                while self.merge.entry().is_some_and(|entry| *entry.key == *self.key) {
                    self.merge.prev()?;
                }
                self.settle_backward()
            }
            Stand::Before => self.settle_backward(),
        }
    }

    fn remember_current_key(&mut self) {
        self.key.clear();
        if let Some(entry) = self.merge.entry() {
            self.key.extend_from_slice(entry.key);
        }
    }

    /// From where the merge stands, forward to the newest visible version of a key, passing
    /// tombstones with all they hide, and the versions of `self.key` if `skipping`.
    fn settle_forward(&mut self, mut skipping: bool) -> Result<()> {
        while let Some(entry) = self.merge.entry() {
            let passed = skipping && *entry.key == *self.key;
            if entry.seqno <= self.seqno && !passed {
                if entry.kind == EntryKind::Put {
                    self.stand = Stand::On;
                    return Ok(());
                }
                if self.to.as_ref().is_some_and(|to| **to <= *entry.key) {
                    return Ok(());
                }
                self.key.clear();
                self.key.extend_from_slice(entry.key);
                skipping = true;
            }
            self.merge.next()?;
        }
        Ok(())
    }

    /// From where the merge stands, backward over all versions of one key after another (oldest
    /// first), until one has a visible version that is no tombstone.
    fn settle_backward(&mut self) -> Result<()> {
        loop {
            let Some(entry) = self.merge.entry() else { return Ok(()) };
            self.key.clear();
            self.key.extend_from_slice(entry.key);
            let mut newest_visible = None;
            while let Some(entry) = self.merge.entry() {
                if *entry.key != *self.key {
                    break;
                }
                let is_skipped = planted(Bug::ReverseSkipsVersion) && entry.seqno == self.seqno;
                if entry.seqno <= self.seqno && !is_skipped {
                    newest_visible = match entry.kind {
                        EntryKind::Put => Some(self.merge.value()),
                        EntryKind::Delete => None,
                    };
                }
                self.merge.prev()?;
            }
            if let Some(value) = newest_visible {
                self.value = value;
                self.stand = Stand::Before;
                return Ok(());
            }
        }
    }
}
