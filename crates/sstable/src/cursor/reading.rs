//! Reading of blocks for a cursor: from the cache, from its read-ahead buffer, or one by one from
//! the map.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::access_hints::AccessHints;
use super::block_prefetch::BlockPrefetch;
use super::direction::Direction;
use super::entered::{EnteredBlock, MappedBlock};
use super::gated::Gate;
use super::options::ScanOptions;
use crate::Error;
use crate::block::{Layout, SharedBlock, is_fitting, prefetch_columns};
use crate::block_slots::BlockLocation;
use crate::compression::zeroed;
use crate::format::{Handle, frame_of};
use crate::index::{At, Index};
use crate::index_tree::IndexTree;
use crate::source::{ReadStats, Source};
use crate::verified::VerifiedBlocks;

/// The first read-ahead of a scan that began in the cache.
const FIRST_READ_AHEAD_BYTES: usize = 16 << 10;
/// Consecutive blocks read through the cache before a scan reads ahead.
const BLOCKS_BEFORE_READ_AHEAD: u32 = 2;
/// Consecutive blocks read from a map before the file gets access hints: a short scan in memory
/// does not pay for a system call.
const BLOCKS_BEFORE_HINTS: u32 = 4;
/// Consecutive blocks entered before the next one is prefetched: a short scan does not get that
/// far.
const BLOCKS_BEFORE_PREFETCH: u32 = 3;

/// The block reader of a cursor, and the costs of its reads.
#[derive(Debug)]
pub(super) struct Reading {
    options: ScanOptions,
    /// The blocks that need no verification, if the scan trusts that and can hold the map.
    known: Option<Arc<VerifiedBlocks>>,
    pub(super) stats: ReadStats,
    /// Whether a value of the last block was taken, so that values of the next one probably will
    /// be. Only a hint.
    value_taken: AtomicBool,
    /// Consecutive blocks entered.
    run: u32,
    /// Allocated when it is first needed: short scans have none.
    sequential: Option<Box<Sequential>>,
}

/// The state of sequential reads, and what few other cursors need: every scan moves and drops its
/// cursors, so that each field in them costs.
#[derive(Debug, Default)]
pub(super) struct Sequential {
    ahead: ReadAhead,
    /// The buffer for a block copied from the read-ahead buffer.
    own: Option<Arc<[u8]>>,
    prefetch: BlockPrefetch,
    hints: AccessHints,
    /// The previous key, if order is checked and it is long.
    pub(super) previous: Vec<u8>,
    /// Lets the cursor skip blocks. It then yields all entries of a range, and an arbitrary part of
    /// the others.
    pub(super) gate: Option<Box<Gate>>,
}

/// Blocks read but not entered yet.
#[derive(Debug, Default)]
struct ReadAhead {
    buffer: Option<Arc<[u8]>>,
    /// The range of the file in the buffer.
    range: Range<u64>,
    /// Size of the next read.
    window: usize,
}

impl ReadAhead {
    /// The position of the block in the buffer, if it is there.
    #[inline]
    fn position(&self, handle: Handle) -> Option<usize> {
        let inside = self.range.start <= handle.offset && handle.end() <= self.range.end;
        inside.then(|| (handle.offset - self.range.start) as usize)
    }

    /// The first `bytes` of the buffer, if it is long enough and not shared.
    #[inline]
    fn room(&mut self, bytes: usize) -> Option<&mut [u8]> {
        Arc::get_mut(self.buffer.as_mut()?)?.get_mut(..bytes)
    }

    /// Reads `range` of the file into the buffer.
    fn read(&mut self, source: &Source, range: Range<u64>) -> Result<(), Error> {
        let bytes = (range.end - range.start) as usize;
        self.range = 0..0;
        if self.room(bytes).is_none() {
            // A small table never fills a large window.
            let most = usize::try_from(source.data_bytes).unwrap_or(usize::MAX);
            self.buffer = Some(zeroed(bytes.max(self.window.min(most))));
        }
        source.read_into(range.start, self.room(bytes).unwrap_or_default())?;
        self.range = range;
        Ok(())
    }

    /// Copies a block from the map into the buffer.
    fn copy(&mut self, stored: &[u8], handle: Handle) {
        copy_into(&mut self.buffer, stored);
        self.range = handle.offset..handle.end();
    }
}

/// Copies `bytes` to the start of `buffer`: the present one if it is not shared and not much too
/// large, otherwise a new one.
fn copy_into<'a>(buffer: &'a mut Option<Arc<[u8]>>, bytes: &[u8]) -> &'a Arc<[u8]> {
    let room = buffer.as_mut().filter(|buffer| is_fitting(buffer, bytes.len()));
    let room = room.and_then(Arc::get_mut).and_then(|room| room.get_mut(..bytes.len()));
    let is_room = room.map(|room| room.copy_from_slice(bytes)).is_some();
    if !is_room {
        *buffer = Some(Arc::from(bytes));
    }
    buffer.get_or_insert_with(|| zeroed(0))
}

/// Size of the first read-ahead of a scan.
#[inline]
fn first_window(options: &ScanOptions) -> usize {
    let first = if options.fill_cache { FIRST_READ_AHEAD_BYTES } else { usize::MAX };
    first.min(options.read_ahead_bytes)
}

impl Sequential {
    /// The state at the start of a scan.
    #[cold]
    fn new(options: &ScanOptions) -> Box<Self> {
        let ahead = ReadAhead { window: first_window(options), ..ReadAhead::default() };
        Box::new(Self { ahead, ..Self::default() })
    }
}

impl Reading {
    #[inline]
    pub(super) fn new(options: ScanOptions, known: Option<Arc<VerifiedBlocks>>) -> Self {
        let (stats, value_taken) = (ReadStats::default(), AtomicBool::new(false));
        Self { options, known, stats, value_taken, run: 0, sequential: None }
    }

    /// The state of sequential reads, allocated if there is none.
    pub(super) fn sequential(&mut self) -> &mut Sequential {
        let Self { sequential, options, .. } = self;
        sequential.get_or_insert_with(|| Sequential::new(options))
    }

    /// What lets the cursor skip blocks, if anything does.
    #[inline]
    pub(super) fn gate(&self) -> Option<&Gate> {
        self.sequential.as_ref()?.gate.as_deref()
    }

    /// Whether the first blocks after a seek may be all that are read: not of a scan that has gone
    /// on after an earlier seek, unless it skips blocks.
    #[inline]
    fn may_be_short(&self) -> bool {
        self.sequential.as_ref().is_none_or(|sequential| sequential.gate.is_some())
    }

    /// The position of the block in the read-ahead buffer, if it is there.
    #[inline]
    fn position_ahead(&self, handle: Handle) -> Option<usize> {
        self.sequential.as_ref()?.ahead.position(handle)
    }

    /// Whether each entry is compared with the previous one.
    #[inline]
    pub(super) fn checks_order(&self) -> bool {
        self.options.check_order
    }

    /// Resets the state of sequential reads after a seek.
    #[inline]
    pub(super) fn restart(&mut self) {
        // If `run` is 0, no block was entered since the last restart.
        if std::mem::take(&mut self.run) > 0
            && let Some(sequential) = &mut self.sequential
        {
            sequential.prefetch.forget();
            sequential.hints = AccessHints::default();
            sequential.ahead.window = first_window(&self.options);
        }
    }

    /// Records that a value of the current block was taken.
    #[inline]
    pub(super) fn note_value_taken(&self) {
        self.value_taken.store(true, Ordering::Relaxed);
    }

    /// Prefetches a few more lines of the next block, in each step within the current one.
    #[inline]
    pub(super) fn step(&mut self) {
        if let Some(sequential) = &mut self.sequential {
            sequential.prefetch.step();
        }
    }

    /// Prefetches the memory that entering a block and seeking in it would wait for, if the
    /// references to it are in memory.
    pub(super) fn prefetch_wanted(source: &Source, index: &IndexTree, leaf: &Index, at: At) {
        let in_map = || source.raw_in_map(leaf.handle(at.slot)?).ok().flatten();
        // Compressed blocks come from the cache even if the table is mapped.
        match if source.mapped { in_map() } else { None } {
            Some(stored) => prefetch_columns(stored),
            None => index.prefetch_block(at),
        }
    }

    /// As `load`, for one of the first blocks after a seek, if the block is in its slot.
    #[inline(always)]
    pub(super) fn take_from_slot(
        &mut self,
        source: &Source,
        wanted: BlockLocation<'_>,
    ) -> Option<SharedBlock> {
        let is_short = self.may_be_short() && self.run < BLOCKS_BEFORE_READ_AHEAD;
        if !is_short || !self.options.fill_cache || source.mapped || self.known.is_some() {
            return None;
        }
        let block = source.in_slot(wanted)?;
        self.run += 1;
        self.stats.cache_hits += 1;
        // Nothing else is in its buffer.
        *self.value_taken.get_mut() = false;
        Some(block)
    }

    /// Returns the `wanted` block, verified now or before. A scan that continues in this direction
    /// also prefetches the next block and gives access hints.
    #[inline(never)]
    pub(super) fn load(
        &mut self,
        source: &Source,
        wanted: BlockLocation<'_>,
        direction: Direction,
    ) -> Result<EnteredBlock, Error> {
        self.run = self.run.saturating_add(1);
        let takes_values = std::mem::take(self.value_taken.get_mut());
        // Most scans have no verified blocks of a map.
        let mapped = match self.known {
            Some(_) => self.in_map(source, wanted, direction)?,
            None => None,
        };
        let block = match mapped {
            Some(block) => EnteredBlock::Mapped(block),
            None => EnteredBlock::Shared(self.fetch(source, wanted, direction)?),
        };
        let block = if takes_values { self.alone(block) } else { block };
        if self.run >= BLOCKS_BEFORE_PREFETCH && self.options.fill_cache {
            let is_in_map = matches!(block, EnteredBlock::Mapped(_));
            let is_mapped = is_in_map || self.position_ahead(wanted.handle).is_some();
            self.prefetch_next(source, wanted, direction, is_mapped, block.count());
        }
        Ok(block)
    }

    /// The block in a buffer that holds little else, as its values may be kept.
    #[inline(never)]
    fn alone(&mut self, block: EnteredBlock) -> EnteredBlock {
        match block {
            EnteredBlock::Shared(block) if !block.is_alone() => {
                let own = &mut self.sequential().own;
                let buffer = Arc::clone(copy_into(own, block.view().payload));
                EnteredBlock::Shared(SharedBlock { buffer, start: 0, ..block })
            }
            block => block,
        }
    }

    /// The `wanted` block in the map, if it needs no verification.
    #[inline]
    fn in_map(
        &mut self,
        source: &Source,
        wanted: BlockLocation<'_>,
        direction: Direction,
    ) -> Result<Option<MappedBlock>, Error> {
        let BlockLocation { at, handle, .. } = wanted;
        if !self.options.fill_cache || !self.known.as_ref().is_some_and(|known| known.has(at)) {
            return Ok(None);
        }
        let Some(stored) = source.raw_in_map(handle)? else { return Ok(None) };
        if let Some(sequential) = &mut self.sequential {
            sequential.prefetch.forget();
        }
        self.hint_for_map(source, handle, direction);
        self.stats.block_reads += 1;
        self.stats.block_bytes += handle.bytes as u64;
        let opened = frame_of(stored).and_then(|(payload, _)| {
            let (start, len) = (handle.offset as usize, payload.len() as u32);
            Ok(MappedBlock { start, len, layout: Layout::parse(payload)? })
        });
        opened.map(Some).map_err(|fault| fault.at(&source.path, handle.offset))
    }

    /// Gives a mapped file access hints, once the scan has continued for some blocks.
    #[inline]
    fn hint_for_map(&mut self, source: &Source, handle: Handle, direction: Direction) {
        if source.mapped && self.run > BLOCKS_BEFORE_HINTS {
            let hints = &mut self.sequential().hints;
            hints.will_read(source, handle.offset..handle.end(), direction);
        }
    }

    /// Prefetches the block after `wanted`, to be entered in `steps` steps. Errors are ignored here
    /// and returned when the block is entered.
    fn prefetch_next(
        &mut self,
        source: &Source,
        wanted: BlockLocation<'_>,
        direction: Direction,
        is_mapped: bool,
        steps: usize,
    ) {
        let is_new = |next: &BlockLocation<'_>| self.position_ahead(next.handle).is_none();
        let Some(next) = direction.after(wanted).filter(is_new) else { return };
        let prefetch = &mut self.sequential().prefetch;
        if is_mapped && let Some(map) = source.map() {
            prefetch.set_bytes(source.in_map(map, next.handle).unwrap_or_default(), steps);
        } else if let Some(block) = source.in_cache(next) {
            prefetch.set_block(next.handle, block, steps);
            // Entering the block after that would wait for its reference count and its columns.
            if let Some(later) = direction.after(next) {
                later.prefetch_block();
            }
        }
    }

    #[inline]
    fn fetch(
        &mut self,
        source: &Source,
        wanted: BlockLocation<'_>,
        direction: Direction,
    ) -> Result<SharedBlock, Error> {
        let is_short = self.may_be_short() && self.run <= BLOCKS_BEFORE_READ_AHEAD;
        if is_short && self.options.fill_cache && !source.mapped {
            return source.block(wanted, true, &mut self.stats);
        }
        self.fetch_next(source, wanted, direction)
    }

    /// As `fetch`, for a scan that may have the block at hand, or reads ahead.
    #[inline(never)]
    fn fetch_next(
        &mut self,
        source: &Source,
        wanted: BlockLocation<'_>,
        direction: Direction,
    ) -> Result<SharedBlock, Error> {
        let handle = wanted.handle;
        let at_hand = self.sequential.as_mut().and_then(|all| all.prefetch.take(handle));
        if let Some(block) = at_hand {
            self.stats.cache_hits += 1;
            return Ok(block);
        }
        if self.position_ahead(handle).is_none() {
            if self.options.fill_cache {
                self.hint_for_map(source, handle, direction);
                if let Some(stored) = source.raw_in_map(handle)? {
                    self.sequential().ahead.copy(stored, handle);
                    let block = self.open(source, handle)?;
                    if let Some(known) = &self.known {
                        known.note(wanted.at, wanted.leaf);
                    }
                    return Ok(block);
                }
                if self.run <= BLOCKS_BEFORE_READ_AHEAD {
                    return source.block(wanted, true, &mut self.stats);
                }
                if let Some(block) = source.cached(wanted, &mut self.stats) {
                    return Ok(block);
                }
            }
            let most = self.options.read_ahead_bytes;
            let Sequential { ahead, hints, .. } = self.sequential();
            let range = window(wanted, ahead.window, direction);
            hints.will_read(source, range.clone(), direction);
            ahead.read(source, range)?;
            ahead.window = ahead.window.saturating_mul(2).min(most);
        }
        self.open(source, handle)
    }

    /// Verifies a block in the read-ahead buffer.
    fn open(&mut self, source: &Source, handle: Handle) -> Result<SharedBlock, Error> {
        self.stats.block_reads += 1;
        self.stats.block_bytes += handle.bytes as u64;
        let ahead = &mut self.sequential().ahead;
        let start = ahead.position(handle).unwrap_or(0);
        let buffer = ahead.buffer.get_or_insert_with(|| zeroed(0));
        source.open_block(buffer, start, handle)
    }
}

/// The range to read: the `wanted` block and its neighbours in the direction of the scan, together
/// at most `bytes` long if there are neighbours.
fn window(wanted: BlockLocation<'_>, bytes: usize, direction: Direction) -> Range<u64> {
    let BlockLocation { leaf, at: At { slot, .. }, handle, .. } = wanted;
    let mut range = handle.offset..handle.end();
    let fits = |range: &Range<u64>| range.end - range.start <= bytes as u64;
    match direction {
        Direction::Forward => {
            for next in (slot + 1..leaf.len()).map_while(|slot| leaf.handle(slot)) {
                let wider = range.start..next.end();
                if !fits(&wider) {
                    break;
                }
                range = wider;
            }
        }
        Direction::Backward => {
            for previous in (0..slot).rev().map_while(|slot| leaf.handle(slot)) {
                let wider = previous.offset..range.end;
                if !fits(&wider) {
                    break;
                }
                range = wider;
            }
        }
    }
    range
}
