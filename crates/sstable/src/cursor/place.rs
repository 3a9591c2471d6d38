//! Moves of a cursor to entries that are known by their places, without a search.
//!
//! A cursor enters a block first; its entries are then compared or moved to by their numbers in the
//! block. Called by whoever has recorded places of an immutable table, as the engine's sorted view
//! has.

use trommel_base::{KeyHead, Stage};

use super::{Direction, NO_BLOCK, Reading, TableBlocks, TableCursor};
use crate::Error;
use crate::block::{SeekTarget, Way};
use crate::index::At;

/// The place of an entry in its table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntryPlace {
    /// The leaf of the index.
    pub leaf: usize,
    /// The block, among those of the leaf.
    pub slot: usize,
    /// The entry, among those of the block, or as many entries after its first one.
    pub entry: usize,
}

/// The direction of a move to a neighbour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Toward {
    /// To larger keys.
    Larger,
    /// To smaller keys.
    Smaller,
}

impl Toward {
    #[inline]
    fn way(self) -> Way {
        match self {
            Self::Larger => Way::Onward,
            Self::Smaller => Way::Back,
        }
    }
}

impl TableCursor {
    /// The place of the current entry.
    pub fn place(&self) -> Option<EntryPlace> {
        let At { leaf, slot } = self.at;
        self.valid.then_some(EntryPlace { leaf, slot, entry: self.position.i })
    }

    /// Prefetches what entering the block of `place` will read, as
    /// [`prefetch_seek`](trommel_base::CursorHints::prefetch_seek) does.
    pub fn prefetch_place(&self, place: EntryPlace, stage: Stage) {
        let TableBlocks { source, index, map } = &self.table;
        let at = At { leaf: place.leaf, slot: place.slot };
        let Some(leaf) = index.loaded_leaf(at.leaf) else { return };
        // Where the whole block is copied, a prefetch does not speed that up.
        if source.mapped && map.is_none() {
            return;
        }
        if stage == Stage::Find {
            index.prefetch_slot(at);
            source.prefetch_frame(leaf, at);
        } else {
            Reading::prefetch_wanted(source, index, leaf, at);
        }
    }

    /// Number of entries of the current block.
    #[inline]
    pub fn block_entries(&self) -> usize {
        self.count()
    }

    /// Enters the block of `place`. The cursor is then on no entry. Returns the number of the entry
    /// in its block. If the table ends before it, the error is how many entries are then to be
    /// skipped after the table.
    ///
    /// # Errors
    /// As [`seek`](trommel_base::Cursor::seek).
    pub fn enter_place(&mut self, place: EntryPlace) -> Result<Result<usize, usize>, Error> {
        let EntryPlace { leaf, slot, mut entry } = place;
        self.restart();
        if self.table.index.loaded_leaf(leaf).is_none() {
            let TableBlocks { source, index, .. } = &self.table;
            index.leaf(leaf, source, &mut self.reading.stats)?;
        }
        self.enter_at(At { leaf, slot }, Direction::Forward)?;
        while entry >= self.count() {
            entry -= self.count();
            if !self.enter(Direction::Forward, TableBlocks::next)? {
                return Ok(Err(entry));
            }
        }
        Ok(Ok(entry))
    }

    /// Enters the next block of a scan, or the first or last one if `begins`. The cursor is then on
    /// no entry. False if there is none.
    ///
    /// # Errors
    /// As [`next`](trommel_base::Cursor::next).
    pub fn enter_neighbour(&mut self, toward: Toward, begins: bool) -> Result<bool, Error> {
        self.valid = false;
        match (toward, begins) {
            (Toward::Larger, false) => self.enter(Direction::Forward, TableBlocks::next),
            (Toward::Larger, true) => self.enter(Direction::Forward, TableBlocks::first),
            (Toward::Smaller, false) => self.enter(Direction::Backward, TableBlocks::previous),
            (Toward::Smaller, true) => self.enter(Direction::Backward, TableBlocks::last),
        }
    }

    /// Whether entry `i` of the current block comes before `target`. Does not move there.
    ///
    /// # Errors
    /// If the block is corrupt.
    #[inline]
    pub fn is_before(&mut self, i: usize, target: &SeekTarget<'_>) -> Result<bool, Error> {
        let is_before = self.view().map(|block| block.is_entry_before(i, target));
        is_before.unwrap_or(Err(NO_BLOCK)).map_err(|fault| self.fail(fault))
    }

    /// Moves to entry `i` of the current block.
    ///
    /// # Errors
    /// If the block is corrupt.
    #[inline]
    pub fn move_in_block(&mut self, i: usize, toward: Toward) -> Result<(), Error> {
        self.position_at(i, toward.way())
    }

    /// As [`move_in_block`](Self::move_in_block), if the entry needs no decision and its key is
    /// short. Returns the new head; `None` if the cursor has not moved. It must be on an entry of
    /// the block, unless it has just entered it.
    #[inline]
    pub fn move_at_hand(&mut self, i: usize, toward: Toward) -> Option<KeyHead> {
        if self.reading.checks_order() {
            return None;
        }
        let head = match self.position.at_hand(i) {
            Some(head) => head,
            None => self.decode_at_hand(i, toward)?,
        };
        self.valid = true;
        self.reading.step();
        Some(head)
    }

    #[inline(never)]
    fn decode_at_hand(&mut self, i: usize, toward: Toward) -> Option<KeyHead> {
        let Self { table, block, position, .. } = self;
        let block = block.as_ref().filter(|block| i < block.count())?;
        position.move_near(&block.view(table.map.as_ref()), i, toward.way())
    }
}
