//! Movements of a cursor that skips blocks which hold nothing in the range of its scan.
//!
//! 1. The separators of the index say which block is the first or the last that may hold keys of
//!    the range. A block between them does: it has entries, and all are in the range. The blocks
//!    before the first and after the last hold none. So only these two, and the block that a search
//!    reaches, are queried in the table's range filter, and no block beyond them is read.
//! 2. A cursor that has skipped everything up to the end of the range is off the end, as if the
//!    table ended there. [`seek_to_first`](trommel_base::Cursor::seek_to_first) and
//!    [`seek_to_last`](trommel_base::Cursor::seek_to_last) then mean the ends of the range, so that
//!    a merge can turn such a cursor around.
//! 3. A step forward from an entry never passes an entry of the range, and one backward neither: a
//!    block is skipped only if none of its entries is in the part of the range ahead.
//!
//! The cursor yields all entries of the range, and an arbitrary part of the others; a search must
//! begin in the range. Called by [`TableCursor`] if it has a gate.

use std::cmp::Ordering;
use std::sync::{Arc, Weak};

use trommel_base::SeqNo;

use super::direction::Direction;
use super::{Place, TableCursor};
use crate::Error;
use crate::block::Way;
use crate::filters::{RangeAnswer, RangePart, ScanRange};
use crate::index::At;

/// The range of a scan, and the filter of the table for it.
#[derive(Debug)]
pub(super) struct Gate {
    ranges: Weak<RangePart>,
    range: Arc<dyn ScanRange>,
    /// Memory for separators.
    separators: [Vec<u8>; 2],
}

impl Gate {
    /// The gate of a scan of this range.
    pub(super) fn new(ranges: &Arc<RangePart>, range: Arc<dyn ScanRange>) -> Self {
        Self { ranges: Arc::downgrade(ranges), range, separators: [Vec::new(), Vec::new()] }
    }
}

/// The block to enter, and the rate of the filter that admitted it if one was queried.
type Admitted = Option<(At, Option<f64>)>;

fn position_of(place: Place<'_>) -> Option<At> {
    place.map(|(_, at)| at)
}

impl TableCursor {
    /// The range of the gate.
    fn range(&self) -> Option<Arc<dyn ScanRange>> {
        self.reading.gate().map(|gate| Arc::clone(&gate.range))
    }

    /// How the separator of the block at `at`, whose leaf is in memory, compares with `key`.
    fn compare_separator(&mut self, at: At, key: &[u8]) -> Ordering {
        let Self { table, reading, .. } = self;
        let leaf = table.index.loaded_leaf(at.leaf);
        let gate = reading.sequential().gate.as_deref_mut();
        let Some((gate, leaf)) = gate.zip(leaf) else { return Ordering::Equal };
        let [separator, _] = &mut gate.separators;
        leaf.separator_into(at.slot, separator);
        separator.as_slice().cmp(key)
    }

    fn find_block(&mut self, key: &[u8]) -> Result<Option<At>, Error> {
        let Self { table, reading, .. } = self;
        table.index.find(key, &table.source, &mut reading.stats).map(position_of)
    }

    fn block_after(&mut self, at: At) -> Result<Option<At>, Error> {
        let Self { table, reading, .. } = self;
        table.next(at, &mut reading.stats).map(position_of)
    }

    fn block_before(&mut self, at: At) -> Result<Option<At>, Error> {
        let Self { table, reading, .. } = self;
        table.previous(at, &mut reading.stats).map(position_of)
    }

    /// Whether the block at `at`, whose leaf is in memory, is the first that may hold keys from
    /// `from` on. The leaf before its own is not needed.
    fn is_first_from(&mut self, at: At, from: &[u8]) -> bool {
        let Self { table, reading, .. } = self;
        let leaf = table.index.loaded_leaf(at.leaf);
        let gate = reading.sequential().gate.as_deref_mut();
        let Some((gate, leaf)) = gate.zip(leaf) else { return false };
        let [separator, _] = &mut gate.separators;
        !table.index.separator_before(leaf, at, separator) || separator.as_slice() < from
    }

    /// The block before `at`, unless it ends before `from`.
    fn block_before_in(&mut self, at: At, from: &[u8]) -> Result<Option<At>, Error> {
        if self.is_first_from(at, from) { Ok(None) } else { self.block_before(at) }
    }

    /// Queries the filter whether the block at `at` may hold a key from `from` to before `to`.
    fn query(&mut self, at: At, from: &[u8], to: Option<&[u8]>) -> Option<RangeAnswer> {
        let Self { table, reading, .. } = self;
        let Gate { ranges, separators, .. } = reading.sequential().gate.as_deref_mut()?;
        ranges.upgrade()?.query(&table.index, at, from, to, separators)
    }

    /// The first block at `at` or after it that is to be read in a scan forward from `from`, where
    /// a search for that key has reached `at` if `is_sought`. `None` if none is.
    fn admit_forward(
        &mut self,
        range: &dyn ScanRange,
        mut at: Option<At>,
        from: &[u8],
        mut is_sought: bool,
    ) -> Result<Admitted, Error> {
        let Some(to) = range.to() else { return Ok(at.map(|at| (at, None))) };
        if to <= from {
            return Ok(None);
        }
        while let Some(here) = at {
            let is_last = self.compare_separator(here, to) != Ordering::Less;
            let may_skip = is_sought || is_last;
            match may_skip.then(|| self.query(here, from, Some(to))).flatten() {
                Some(RangeAnswer { maybe: false, expected }) => range.skipped(expected),
                Some(RangeAnswer { expected, .. }) => return Ok(Some((here, Some(expected)))),
                None => return Ok(Some((here, None))),
            }
            if is_last {
                break;
            }
            (at, is_sought) = (self.block_after(here)?, false);
        }
        Ok(None)
    }

    /// As `admit_forward`, for a scan backward from before `to`, at `at` or before it. Unless it
    /// `is_sought`, `at` does not end before the range.
    fn admit_backward(
        &mut self,
        range: &dyn ScanRange,
        mut at: Option<At>,
        to: Option<&[u8]>,
        mut is_sought: bool,
    ) -> Result<Admitted, Error> {
        let from = range.from();
        if from.is_empty() {
            return Ok(at.map(|at| (at, None)));
        }
        while let Some(here) = at {
            let is_first = self.is_first_from(here, from);
            let may_skip = is_sought || is_first;
            match may_skip.then(|| self.query(here, from, to)).flatten() {
                Some(RangeAnswer { maybe: false, expected }) => range.skipped(expected),
                Some(RangeAnswer { expected, .. }) => return Ok(Some((here, Some(expected)))),
                None => return Ok(Some((here, None))),
            }
            if is_first {
                break;
            }
            (at, is_sought) = (self.block_before(here)?, false);
        }
        Ok(None)
    }

    /// Reports whether the entered block had an entry of the range: where the search expected it,
    /// or one that is hidden from it.
    fn count_entered(
        &self,
        range: &dyn ScanRange,
        expected: Option<f64>,
        is_hidden: impl FnOnce() -> bool,
    ) {
        let Some(expected) = expected else { return };
        let key = self.position.key();
        let is_inside = *key >= *range.from() && range.to().is_none_or(|to| *key < *to);
        range.entered(expected, self.valid && is_inside || is_hidden());
    }

    /// Whether the entry before entry `i` of the current block is of `key`: a version too new for
    /// the search that has found `i`.
    fn is_after_key(&self, i: usize, key: &[u8]) -> bool {
        let Some((block, before)) = self.view().zip(i.checked_sub(1)) else { return false };
        let before = block.key(before).ok();
        before.is_some_and(|(prefix, suffix)| key.strip_prefix(prefix) == Some(suffix))
    }

    /// As [`seek`](trommel_base::Cursor::seek).
    #[cold]
    pub(super) fn seek_gated(&mut self, key: &[u8], seqno: SeqNo) -> Result<(), Error> {
        self.restart();
        self.sought = None;
        let Some(range) = self.range() else { return Ok(()) };
        let mut at = self.find_block(key)?;
        let mut is_sought = true;
        while let Some((here, expected)) = self.admit_forward(&*range, at, key, is_sought)? {
            self.enter_at(here, Direction::Forward)?;
            let i = self.find_in_block(key, seqno)?;
            if i < self.count() {
                self.position_anew(i, Way::Onward)?;
            }
            self.count_entered(&*range, expected, || self.is_after_key(i, key));
            if self.valid {
                return Ok(());
            }
            (at, is_sought) = (self.block_after(here)?, false);
        }
        Ok(())
    }

    /// As [`seek_before`](trommel_base::Cursor::seek_before); without a key, as
    /// [`seek_to_last`](trommel_base::Cursor::seek_to_last) in a range without an end.
    #[cold]
    pub(super) fn seek_before_gated(&mut self, key: Option<&[u8]>) -> Result<(), Error> {
        self.restart();
        self.sought = None;
        let Some(range) = self.range() else { return Ok(()) };
        let mut at = match key {
            Some(key) => self.find_block(key)?,
            None => None,
        };
        if at.is_none() {
            at = position_of(self.table.last(self.at, &mut self.reading.stats)?);
        }
        let mut is_sought = true;
        while let Some((here, expected)) = self.admit_backward(&*range, at, key, is_sought)? {
            self.enter_at(here, Direction::Backward)?;
            let end = match key {
                Some(key) => self.find_in_block(key, SeqNo::MAX)?,
                None => self.count(),
            };
            if let Some(i) = end.checked_sub(1) {
                self.position_anew(i, Way::Back)?;
            }
            self.count_entered(&*range, expected, || false);
            if self.valid {
                return Ok(());
            }
            (at, is_sought) = (self.block_before_in(here, range.from())?, false);
        }
        Ok(())
    }

    /// As `seek_to_first`: to the first entry of the range.
    #[cold]
    pub(super) fn seek_to_first_gated(&mut self) -> Result<(), Error> {
        let Some(range) = self.range() else { return Ok(()) };
        self.seek_gated(range.from(), SeqNo::MAX)
    }

    /// As `seek_to_last`: to the last entry of the range.
    #[cold]
    pub(super) fn seek_to_last_gated(&mut self) -> Result<(), Error> {
        let Some(range) = self.range() else { return Ok(()) };
        self.seek_before_gated(range.to())
    }

    /// Moves to the first entry of the next block that is to be read.
    #[cold]
    pub(super) fn next_block_gated(&mut self) -> Result<(), Error> {
        let Some(range) = self.range() else { return Ok(()) };
        let is_last = |to| self.compare_separator(self.at, to).is_ge();
        if range.to().is_some_and(is_last) {
            return Ok(());
        }
        let at = self.block_after(self.at)?;
        if let Some((at, expected)) = self.admit_forward(&*range, at, range.from(), false)? {
            self.enter_at(at, Direction::Forward)?;
            self.position_at(0, Way::Onward)?;
            self.count_entered(&*range, expected, || false);
        }
        Ok(())
    }

    /// Moves to the last entry of the previous block that is to be read.
    #[cold]
    pub(super) fn previous_block_gated(&mut self) -> Result<(), Error> {
        let Some(range) = self.range() else { return Ok(()) };
        let at = self.block_before_in(self.at, range.from())?;
        if let Some((at, expected)) = self.admit_backward(&*range, at, range.to(), false)? {
            self.enter_at(at, Direction::Backward)?;
            self.position_at(self.count().saturating_sub(1), Way::Back)?;
            self.count_entered(&*range, expected, || false);
        }
        Ok(())
    }

    /// The number of the first entry of the current block at or after (`key`, `seqno`).
    fn find_in_block(&mut self, key: &[u8], seqno: SeqNo) -> Result<usize, Error> {
        let Self { table, block, position, .. } = self;
        let block = block.as_ref().map(|block| block.view(table.map.as_ref()));
        let Some(block) = block else { return Err(self.fail(super::NO_BLOCK)) };
        position.find(&block, key, seqno).map_err(|fault| self.fail(fault))
    }
}
