//! Moves of a cursor to an entry that is known by its place, without a search.
//!
//! Called by whoever has recorded places of an immutable table: see the engine's sorted view.

use trommel_base::CursorHints;

use super::{Direction, TableBlocks, TableCursor};
use crate::block::Way;
use crate::index::At;
use crate::{Error, Table};

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

impl Table {
    /// The number of blocks in each leaf of the index. Reads leaves that are not in memory.
    ///
    /// # Errors
    /// As of any read of the index.
    pub fn blocks_of_leaves(&self) -> Result<Vec<usize>, Error> {
        let mut blocks = Vec::with_capacity(self.index.leaf_count());
        self.index.each_leaf(&self.source, |_, leaf| {
            blocks.push(leaf.len());
            Ok::<_, Error>(())
        })?;
        Ok(blocks)
    }
}

impl TableCursor {
    /// The place of the current entry.
    pub fn place(&self) -> Option<EntryPlace> {
        let At { leaf, slot } = self.at;
        self.valid.then_some(EntryPlace { leaf, slot, entry: self.position.i })
    }

    /// Moves to the entry at `place`. Where the table ends before it, the cursor is off the end,
    /// and the number of entries is returned that are then to be skipped after the table.
    ///
    /// # Errors
    /// As [`seek`](trommel_base::Cursor::seek).
    pub fn seek_to_place(&mut self, place: EntryPlace) -> Result<Option<usize>, Error> {
        let EntryPlace { leaf, slot, mut entry } = place;
        self.restart();
        let TableBlocks { source, index, .. } = &self.table;
        index.leaf(leaf, source, &mut self.reading.stats)?;
        self.enter_at(At { leaf, slot }, Direction::Forward)?;
        while entry >= self.count() {
            entry -= self.count();
            if !self.enter(Direction::Forward, TableBlocks::next)? {
                return Ok(Some(entry));
            }
        }
        self.position_at(entry, Way::Onward)?;
        Ok(None)
    }

    /// Whether the current entry comes before (`key`, `seqno`), whose first bytes are `words`;
    /// `None` off the end.
    #[inline]
    pub fn is_before(&self, key: &[u8], words: u128, seqno: u64) -> Option<bool> {
        let head = self.head()?;
        if head.words != words {
            return Some(head.words < words);
        }
        let order = trommel_base::compare_keys(self.position.key(), key);
        Some(order.is_lt() || order.is_eq() && head.seqno > seqno)
    }
}
