//! Skips of deleted entries in a sorted view.
//!
//! What is deleted by something newer than a run holds is skipped unread: the selectors alone say
//! where the next entry of any other run is.

use trommel_base::{CursorHints, MAX_SEQNO, SeqNo};
use trommel_sstable::{SeekTarget, Toward};

use super::{LostEntry, OFF_END, SortedCursor};
use crate::error::Result;

impl SortedCursor {
    /// See [`SkipsDeleted::skip_deleted`](crate::iter::merge::SkipsDeleted::skip_deleted).
    pub(crate) fn skip_deleted(&mut self, covering: SeqNo, to: Option<&[u8]>) -> Result<bool> {
        let Some(entry) = self.here() else { return Ok(false) };
        let (at, newer) = (self.at, self.newer_runs(covering, &entry.key, to));
        if self.is_of(at, newer) {
            return Ok(false);
        }
        let stop = (at + 1..self.view.entries).find(|next| self.is_of(*next, newer));
        let end = match (to, stop) {
            (None, _) => Some(self.view.entries),
            (Some(to), Some(stop))
                if self.is_before(stop, &SeekTarget::new(to, MAX_SEQNO))? == Some(true) =>
            {
                Some(stop)
            }
            (Some(to), _) => self.find(to, MAX_SEQNO)?,
        };
        let end = end.map(|end| end.min(stop.unwrap_or(end)));
        self.end_skip(entry, end.filter(|end| *end > at), Toward::Larger)
    }

    /// As `skip_deleted`, backward.
    pub(crate) fn skip_deleted_back(&mut self, covering: SeqNo, from: &[u8]) -> Result<bool> {
        let Some(entry) = self.here() else { return Ok(false) };
        let (at, newer) = (self.at, self.newer_runs(covering, from, Some(&entry.key)));
        if self.is_of(at, newer) {
            return Ok(false);
        }
        let Some(first) = self.find(from, MAX_SEQNO)?.filter(|first| *first <= at) else {
            return self.end_skip(entry, None, Toward::Smaller);
        };
        let stop = (first..at).rev().find(|before| self.is_of(*before, newer));
        match stop.or(first.checked_sub(1)) {
            None => Ok(true),
            end => self.end_skip(entry, end, Toward::Smaller),
        }
    }

    /// The current entry.
    fn here(&self) -> Option<LostEntry> {
        let here = self.internal_key()?;
        Some(LostEntry { key: here.key.to_vec(), seqno: here.seqno })
    }

    /// Whether entry `at` of the view is of one of these runs.
    fn is_of(&self, at: usize, runs: u32) -> bool {
        runs >> self.view.selector(at) & 1 != 0
    }

    /// The runs that may hold an entry from `from` to `to`, both included, that was not written
    /// before `covering`: one bit for each.
    fn newer_runs(&self, covering: SeqNo, from: &[u8], to: Option<&[u8]>) -> u32 {
        (0..self.view.runs()).fold(0, |newer, run| {
            let tables = self.view.tables(run);
            let first = tables.partition_point(|table| *table.largest < *from);
            let mut met = tables.iter().skip(first);
            let is_met = |smallest: &[u8]| to.is_none_or(|to| smallest <= to);
            let is_newer = met
                .by_ref()
                .take_while(|table| is_met(&table.smallest))
                .any(|table| table.max_seqno >= covering);
            newer | u32::from(is_newer) << run
        })
    }

    /// Moves to entry `end`, or off the end after the last one; `None` if the view is wrong.
    /// Returns that it has moved.
    fn end_skip(&mut self, from: LostEntry, end: Option<usize>, toward: Toward) -> Result<bool> {
        self.run = OFF_END;
        let has_landed = match end {
            Some(end) if end >= self.view.entries => true,
            Some(end) => self.land(end, toward)?,
            None => false,
        };
        if !has_landed {
            self.lose(from);
        }
        Ok(true)
    }
}
