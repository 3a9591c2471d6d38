//! A cursor over one table, in both directions.
//!
//! 1. The first blocks after a seek come through the cache, if the scan uses it.
//! 2. A scan that continues in one direction reads ahead: several blocks in one `pread`, twice as
//!    many each time up to [`ScanOptions::read_ahead_bytes`]. Each block is verified when the
//!    cursor enters it. Blocks read ahead do not enter the cache, so that a long scan does not
//!    displace the blocks of point reads; a scan that bypasses the cache reads ahead from the
//!    start.
//! 3. Blocks of a mapped file are copied one by one, and verified in the copy: a mapped file can
//!    change under the cursor, a copy cannot. A cursor that trusts earlier verification iterates
//!    over verified blocks in the map and does not verify them again.
//! 4. The file gets access hints for the ranges that the scan will read, unless the system detects
//!    the pattern itself: for reads from a map, and backward (`access_hints`).
//! 5. No value holds the read-ahead buffer, which is reused. Once a value was taken from a block,
//!    the next block from that buffer is copied into a buffer of its own, which values share;
//!    values of the block before are copied. So a value that is kept holds at most its block, and a
//!    scan that takes no values copies nothing.
//!
//! 6. A scan of a range may skip blocks that hold nothing of it (`gated`).
//!
//! The key is assembled in a reused buffer. The value is not copied, unless it is in a map or in a
//! read-ahead buffer and must outlive it.

mod access_hints;
mod block_prefetch;
mod direction;
mod entered;
mod gated;
mod options;
mod reading;

use std::cmp::Ordering;
use std::sync::Arc;

use trommel_base::{
    Aim, Cursor, CursorHints, EntryRef, InternalKey, KeyHead, SeqNo, Slice, Stage, first_words,
};
use trommel_vfs::SharedMap;

use crate::Error;
use crate::block::{Block, Position, Way};
use crate::filters::{RangePart, ScanRange};
use crate::format::{Fault, Handle};
use crate::index::{At, Index};
use crate::index_tree::IndexTree;
use crate::source::{ReadStats, Source};
use crate::verified::VerifiedBlocks;
use direction::Direction;
use entered::EnteredBlock;
use gated::Gate;
pub use options::ScanOptions;
use reading::Reading;

/// The parts of a table that a cursor uses: not the filters, so that a long scan keeps none of them
/// in memory after the table is closed.
#[derive(Debug)]
struct TableBlocks {
    source: Arc<Source>,
    index: Arc<IndexTree>,
    /// The map, if the cursor iterates over verified blocks in it.
    map: Option<SharedMap>,
}

const NO_BLOCK: Fault = Fault::Damaged("there is no block to stand in");

/// A block and its leaf, if there is one.
type Place<'a> = Option<(&'a Index, At)>;

impl TableBlocks {
    #[inline]
    fn next(&self, at: At, stats: &mut ReadStats) -> Result<Place<'_>, Error> {
        self.index.next(at, &self.source, stats)
    }

    #[inline]
    fn previous(&self, at: At, stats: &mut ReadStats) -> Result<Place<'_>, Error> {
        self.index.previous(at, &self.source, stats)
    }

    /// Whether the block before `at` is known to end before `key`, the first key at `at`.
    fn ends_before(&self, at: At, key: &[u8]) -> bool {
        let before = at.slot.checked_sub(1).zip(self.index.loaded_leaf(at.leaf));
        // If versions of one key straddle blocks, the separator is that key.
        before.is_some_and(|(slot, leaf)| !leaf.separator_is(slot, key))
    }

    fn first(&self, _: At, stats: &mut ReadStats) -> Result<Place<'_>, Error> {
        self.index.first(&self.source, stats)
    }

    fn last(&self, _: At, stats: &mut ReadStats) -> Result<Place<'_>, Error> {
        self.index.last(&self.source, stats)
    }
}

/// The block that a prefetched seek has located.
#[derive(Debug)]
struct Sought {
    /// The first bytes of the key, as [`first_words`] but in the order of memory, and its length.
    shown: [u8; size_of::<u128>()],
    len: u32,
    at: At,
}

impl Sought {
    #[inline]
    fn new(key: &[u8], at: At) -> Self {
        // A key has at most 64 KiB.
        Self { shown: first_words(key).to_le_bytes(), len: key.len() as u32, at }
    }

    /// Whether it was located for this key, if that is known.
    #[inline]
    fn is_of(&self, key: &[u8]) -> bool {
        key.len() <= self.shown.len()
            && self.len as usize == key.len()
            && self.shown == first_words(key).to_le_bytes()
    }
}

/// A cursor over one table.
#[derive(Debug)]
pub struct TableCursor {
    table: TableBlocks,
    reading: Reading,
    at: At,
    /// The block that the next seek will enter.
    sought: Option<Sought>,
    handle: Handle,
    block: Option<EnteredBlock>,
    /// Whether the cursor is positioned on an entry.
    valid: bool,
    /// The position, if `valid`.
    position: Position,
}

impl TableCursor {
    /// A cursor over the table of this source and index, not positioned. `verified` are the blocks
    /// of its map that need no verification, if the scan trusts that. Always inlined, so that a
    /// cursor of half a KiB is built in place.
    #[inline(always)]
    pub(crate) fn new(
        source: &Arc<Source>,
        index: &Arc<IndexTree>,
        verified: Option<&Arc<VerifiedBlocks>>,
        options: ScanOptions,
    ) -> Self {
        let (source, index) = (Arc::clone(source), Arc::clone(index));
        let known = verified.filter(|_| options.trust_verified);
        let map = known.and_then(|_| source.file.shared_map());
        let known = known.filter(|_| map.is_some());
        Self {
            table: TableBlocks { source, index, map },
            reading: Reading::new(options, known.map(Arc::clone)),
            at: At { leaf: 0, slot: 0 },
            sought: None,
            handle: Handle { offset: 0, bytes: 0 },
            block: None,
            valid: false,
            position: Position::default(),
        }
    }

    /// Restricts the cursor, which was not moved yet, to a scan within `range`, in which it skips
    /// blocks that `ranges` denies.
    pub(crate) fn skip_blocks(&mut self, ranges: &Arc<RangePart>, range: Arc<dyn ScanRange>) {
        self.reading.sequential().gate = Some(Box::new(Gate::new(ranges, range)));
    }

    /// Whether the cursor skips blocks.
    #[inline]
    fn is_gated(&self) -> bool {
        self.reading.gate().is_some()
    }

    /// Costs of the cursor's reads so far.
    pub fn stats(&self) -> ReadStats {
        self.reading.stats
    }

    /// The file offset of the current entry's block.
    pub fn block_offset(&self) -> u64 {
        self.handle.offset
    }

    /// Whether the block of `key` is located for the next seek, as far as that is known.
    #[inline]
    pub fn has_sought(&self, key: &[u8]) -> bool {
        self.sought.as_ref().is_some_and(|sought| sought.is_of(key))
    }

    /// Whether the cursor is positioned on an entry.
    #[inline]
    pub fn is_valid(&self) -> bool {
        self.valid
    }

    /// Moves off the end, without reading.
    pub fn leave(&mut self) {
        self.restart();
    }

    fn restart(&mut self) {
        self.valid = false;
        self.position.restart();
        self.reading.restart();
    }

    /// Enters the block that `find` returns; false if it returns none.
    #[inline]
    fn enter(
        &mut self,
        direction: Direction,
        find: impl for<'a> FnOnce(&'a TableBlocks, At, &mut ReadStats) -> Result<Place<'a>, Error>,
    ) -> Result<bool, Error> {
        let place = find(&self.table, self.at, &mut self.reading.stats)?;
        let Some((_, at)) = place else { return Ok(false) };
        self.enter_at(at, direction)?;
        Ok(true)
    }

    /// Enters the block at `at`, whose leaf is in memory.
    #[inline(never)]
    fn enter_at(&mut self, at: At, direction: Direction) -> Result<(), Error> {
        let Self { table, reading, .. } = self;
        let Some(leaf) = table.index.loaded_leaf(at.leaf) else { return Err(self.fail(NO_BLOCK)) };
        let wanted = table.index.locate(leaf, at);
        let is_here = self.block.is_some() && self.handle == wanted.handle;
        (self.at, self.handle) = (at, wanted.handle);
        if !is_here {
            self.block = None;
            self.position.leave();
            self.block = Some(match reading.take_from_slot(&table.source, wanted) {
                Some(block) => EnteredBlock::Shared(block),
                None => reading.load(&table.source, wanted, direction)?,
            });
        }
        Ok(())
    }

    /// Moves to entry `i` of the current block.
    #[inline]
    fn position_at(&mut self, i: usize, way: Way) -> Result<(), Error> {
        self.reading.step();
        if self.position.at_hand(i).is_some() {
            self.valid = true;
            return Ok(());
        }
        self.position_anew(i, way)
    }

    /// Like `position_at`, when the block must be decoded further.
    #[inline(never)]
    fn position_anew(&mut self, i: usize, way: Way) -> Result<(), Error> {
        let moved = match &self.block {
            Some(block) => self.position.move_to(&block.view(self.table.map.as_ref()), i, way),
            None => Err(NO_BLOCK),
        };
        match moved {
            Ok(()) => {
                self.valid = true;
                Ok(())
            }
            Err(fault) => Err(self.fail(fault)),
        }
    }

    #[cold]
    fn fail(&mut self, fault: Fault) -> Error {
        self.valid = false;
        fault.at(&self.table.source.path, self.handle.offset)
    }

    /// The current block.
    #[inline]
    fn view(&self) -> Option<Block<'_>> {
        Some(self.block.as_ref()?.view(self.table.map.as_ref()))
    }

    /// Entries of the current block.
    #[inline]
    fn count(&self) -> usize {
        self.block.as_ref().map_or(0, EnteredBlock::count)
    }

    /// Moves to the first entry of the next block; invalid if there is none.
    fn next_block(&mut self) -> Result<(), Error> {
        self.valid = false;
        if self.is_gated() {
            return self.next_block_gated();
        }
        match self.enter(Direction::Forward, TableBlocks::next)? {
            false => Ok(()),
            true => self.position_at(0, Way::Onward),
        }
    }

    /// Moves to the last entry of the previous block; invalid if there is none.
    fn previous_block(&mut self) -> Result<(), Error> {
        self.valid = false;
        if self.is_gated() {
            return self.previous_block_gated();
        }
        match self.enter(Direction::Backward, TableBlocks::previous)? {
            false => Ok(()),
            true => self.position_at(self.count().saturating_sub(1), Way::Back),
        }
    }

    /// Finds the first entry at or after (`key`, `seqno`), enters its block and returns its number;
    /// `None` if all entries are smaller. If it `lands` and is valid, the cursor is already on it.
    #[inline(always)]
    fn find(&mut self, key: &[u8], seqno: SeqNo, lands: bool) -> Result<Option<usize>, Error> {
        self.restart();
        let sought = self.sought.take().filter(|sought| sought.is_of(key));
        let mut is_there = match sought {
            Some(Sought { at, .. }) => self.enter_at(at, Direction::Forward).map(|()| true)?,
            None => self.enter(Direction::Forward, |table, _, stats| {
                table.index.find(key, &table.source, stats)
            })?,
        };
        while is_there {
            let Self { table, block, position, .. } = self;
            let block = block.as_ref().map(|block| block.view(table.map.as_ref()));
            let Some(block) = block else { return Err(self.fail(NO_BLOCK)) };
            match position.find(&block, key, seqno) {
                Ok(i) if i < block.count() => {
                    self.valid = lands && position.land(&block, i);
                    return Ok(Some(i));
                }
                Ok(_) => is_there = self.enter(Direction::Forward, TableBlocks::next)?,
                Err(fault) => return Err(self.fail(fault)),
            }
        }
        Ok(None)
    }

    /// Like `next`, but compares the new entry with the old one.
    fn next_in_order(&mut self) -> Result<(), Error> {
        let Some(before) = self.head() else { return self.step() };
        if before.is_long() {
            let previous = &mut self.reading.sequential().previous;
            previous.clear();
            previous.extend_from_slice(self.position.key());
        }
        self.step()?;
        let Some(now) = self.head() else { return Ok(()) };
        let Self { reading, position, .. } = self;
        let order = before.compare(&now, || (*reading.sequential().previous).cmp(position.key()));
        if order != Ordering::Less {
            return Err(self.fail(Fault::Damaged("entries are out of order")));
        }
        Ok(())
    }

    /// Like `begins_key`, when the block or the index must be consulted.
    #[inline(never)]
    fn begins_key_by_block(&self) -> bool {
        let Some(block) = self.view() else { return false };
        let known = self.position.begins_key_by_tag(&block);
        known.unwrap_or_else(|| self.table.ends_before(self.at, self.position.key()))
    }

    /// Like `next_at_hand`, if the next entry is in the same block but not decoded yet.
    #[inline(never)]
    fn next_in_block(&mut self) -> Option<KeyHead> {
        let Self { table, block, position, .. } = self;
        position.next_in(&block.as_ref()?.view(table.map.as_ref()))
    }

    /// As `next_in_block`, backward.
    #[inline(never)]
    fn prev_in_block(&mut self) -> Option<KeyHead> {
        let Self { table, block, position, .. } = self;
        position.prev_in(&block.as_ref()?.view(table.map.as_ref()))
    }

    #[inline]
    fn step(&mut self) -> Result<(), Error> {
        let next = self.position.i + 1;
        if next < self.count() { self.position_at(next, Way::Onward) } else { self.next_block() }
    }
}

impl Cursor for TableCursor {
    type Error = Error;

    fn seek_to_first(&mut self) -> Result<(), Error> {
        if self.is_gated() {
            return self.seek_to_first_gated();
        }
        self.restart();
        match self.enter(Direction::Forward, TableBlocks::first)? {
            false => Ok(()),
            true => self.position_at(0, Way::Onward),
        }
    }

    fn seek_to_last(&mut self) -> Result<(), Error> {
        if self.is_gated() {
            return self.seek_to_last_gated();
        }
        self.restart();
        match self.enter(Direction::Backward, TableBlocks::last)? {
            false => Ok(()),
            true => self.position_at(self.count().saturating_sub(1), Way::Back),
        }
    }

    fn seek(&mut self, key: &[u8], seqno: SeqNo) -> Result<(), Error> {
        if self.is_gated() {
            return self.seek_gated(key, seqno);
        }
        match self.find(key, seqno, true)? {
            None => Ok(()),
            Some(_) if self.valid => Ok(()),
            Some(i) => self.position_anew(i, Way::Onward),
        }
    }

    fn seek_before(&mut self, key: &[u8]) -> Result<(), Error> {
        if self.is_gated() {
            return self.seek_before_gated(Some(key));
        }
        match self.find(key, SeqNo::MAX, false)? {
            None => self.seek_to_last(),
            Some(0) => self.previous_block(),
            Some(i) => self.position_at(i - 1, Way::Back),
        }
    }

    #[inline]
    fn next(&mut self) -> Result<(), Error> {
        if !self.valid {
            return Ok(());
        }
        if self.reading.checks_order() { self.next_in_order() } else { self.step() }
    }

    #[inline]
    fn prev(&mut self) -> Result<(), Error> {
        if !self.valid {
            return Ok(());
        }
        match self.position.i.checked_sub(1) {
            Some(i) => self.position_at(i, Way::Back),
            None => self.previous_block(),
        }
    }

    #[inline]
    fn entry(&self) -> Option<EntryRef<'_>> {
        let InternalKey { key, seqno, kind } = self.internal_key()?;
        let value = self.view()?.payload.get(self.position.value())?;
        Some(EntryRef { key, seqno, kind, value })
    }
}

impl CursorHints for TableCursor {
    fn prefetch_seek(&mut self, key: &[u8], _: Aim, stage: Stage) -> bool {
        let TableBlocks { source, index, map } = &self.table;
        if self.is_gated() || source.mapped && map.is_none() {
            // The block may be skipped, or is copied whole, which a prefetch does not speed up.
            return false;
        }
        if stage == Stage::Find {
            // The seek returns any error.
            let found = index.find(key, source, &mut self.reading.stats);
            let found = found.ok().flatten();
            self.sought = found.map(|(leaf, at)| {
                index.prefetch_slot(at);
                source.prefetch_frame(leaf, at);
                Sought::new(key, at)
            });
        } else if let Some(Sought { at, .. }) = self.sought
            && let Some(leaf) = index.loaded_leaf(at.leaf)
        {
            Reading::prefetch_wanted(source, index, leaf, at);
        }
        self.sought.is_some()
    }

    #[inline]
    fn next_at_hand(&mut self) -> Option<KeyHead> {
        if !self.valid || self.reading.checks_order() {
            return None;
        }
        let head = match self.position.next_at_hand() {
            Some(head) => head,
            None => self.next_in_block()?,
        };
        self.reading.step();
        Some(head)
    }

    #[inline]
    fn prev_at_hand(&mut self) -> Option<KeyHead> {
        if !self.valid {
            return None;
        }
        let head = match self.position.prev_at_hand() {
            Some(head) => head,
            None => self.prev_in_block()?,
        };
        self.reading.step();
        Some(head)
    }

    #[inline]
    fn internal_key(&self) -> Option<InternalKey<'_>> {
        let Self { position, valid, .. } = self;
        valid.then(|| InternalKey {
            key: position.key(),
            seqno: position.seqno(),
            kind: position.kind(),
        })
    }

    #[inline]
    fn head(&self) -> Option<KeyHead> {
        self.valid.then(|| self.position.head())
    }

    #[inline]
    fn begins_key(&self) -> bool {
        let known = if self.valid { self.position.begins_key() } else { Some(false) };
        known.unwrap_or_else(|| self.begins_key_by_block())
    }

    fn shared_value(&self) -> Option<Slice> {
        let Some(EnteredBlock::Shared(block)) = self.block.as_ref().filter(|_| self.valid) else {
            return None;
        };
        self.reading.note_value_taken();
        let value = self.position.value();
        let start = block.start as usize + value.start;
        block.is_alone().then(|| Slice::window(&block.buffer, start, value.len()))
    }
}
