//! A walk over one table, in both directions.
//!
//! 1. A positioned block (after a seek) comes through the cache, if the scan uses it.
//! 2. A scan that goes on in one direction reads ahead: several blocks in one `pread`, twice as
//!    many each time up to [`ScanOptions::read_ahead_bytes`]. Each block is verified when the
//!    cursor enters it. Blocks read ahead do not enter the cache, so that a long scan does not
//!    displace what point reads need; a scan that bypasses the cache reads ahead from the start.
//! 3. The read-ahead buffer is reused unless a value read from it still lives.
//!
//! The key is put together in one buffer that is reused; the value is not copied.

use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;

use trommel_base::{Cursor, EntryKind, EntryRef, SeqNo, Slice, compare_internal};

use crate::block::SharedBlock;
use crate::compression::zeroed;
use crate::format::{Fault, GROUP_ENTRIES, Handle};
use crate::index::{At, Index, IndexTree};
use crate::source::{ReadStats, Source};
use crate::{Error, Table};

/// How a scan reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScanOptions {
    /// Whether blocks come from the cache and, as long as the scan is not reading ahead, stay in
    /// it (default true). False for compactions.
    pub fill_cache: bool,
    /// Most bytes read in one go (default 128 KiB). A value read from a read-ahead buffer keeps
    /// the buffer in memory; [`Slice::detached`] copies it out.
    pub read_ahead_bytes: usize,
    /// Whether each entry is compared with the one before it on the way forward, so that a table
    /// in which they are out of order ends in an error (default false; true for compactions).
    pub check_order: bool,
}

impl Default for ScanOptions {
    fn default() -> Self {
        Self { fill_cache: true, read_ahead_bytes: 128 << 10, check_order: false }
    }
}

/// The first read-ahead of a scan that began in the cache.
const FIRST_READ_AHEAD_BYTES: usize = 16 << 10;
/// So many neighbouring blocks come through the cache before a scan reads ahead.
const BLOCKS_BEFORE_READ_AHEAD: u32 = 2;

/// No group of any block.
const NO_GROUP: usize = usize::MAX;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    Forward,
    Backward,
}

/// What a walk needs of its table: not the filters, so that a walk that goes on keeps none of them
/// in memory once the table itself is closed.
#[derive(Debug, Clone)]
struct Blocks {
    source: Arc<Source>,
    index: Arc<IndexTree>,
}

/// A cursor over one table.
#[derive(Debug)]
pub struct TableCursor {
    table: Blocks,
    options: ScanOptions,
    stats: ReadStats,
    ahead: ReadAhead,
    /// Neighbouring blocks entered in a row.
    run: u32,
    at: At,
    handle: Handle,
    block: Option<SharedBlock>,
    /// The entry, where `valid`.
    valid: bool,
    i: usize,
    key: Vec<u8>,
    /// The group `key` was put together in, and how many of its first bytes are its head's.
    group: usize,
    agreeing: usize,
    seqno: SeqNo,
    kind: EntryKind,
    /// The value, relative to the block's payload.
    value: Range<usize>,
    /// The key before this one, where order is checked.
    previous: Vec<u8>,
}

/// Blocks that were read but not yet entered.
#[derive(Debug)]
struct ReadAhead {
    buffer: Arc<[u8]>,
    /// The part of the file that the buffer holds.
    range: Range<u64>,
    /// How much to read next time.
    window: usize,
}

impl ReadAhead {
    /// Where in the buffer the block lies, if it does.
    #[inline]
    fn position(&self, handle: Handle) -> Option<usize> {
        let inside = self.range.start <= handle.offset && handle.end() <= self.range.end;
        inside.then(|| (handle.offset - self.range.start) as usize)
    }

    /// Reads `range` of the file.
    fn read(&mut self, source: &Source, range: Range<u64>) -> Result<(), Error> {
        let bytes = (range.end - range.start) as usize;
        self.range = 0..0;
        if self.buffer.len() < bytes || Arc::get_mut(&mut self.buffer).is_none() {
            // A small table never fills a large window.
            let most = usize::try_from(source.data_bytes).unwrap_or(usize::MAX);
            self.buffer = zeroed(bytes.max(self.window.min(most)));
        }
        let room = Arc::get_mut(&mut self.buffer).and_then(|buffer| buffer.get_mut(..bytes));
        source.read_into(range.start, room.unwrap_or_default())?;
        self.range = range;
        Ok(())
    }
}

impl TableCursor {
    pub(crate) fn new(table: &Table, options: ScanOptions) -> Self {
        let (source, index) = (Arc::clone(&table.source), Arc::clone(&table.index));
        let mut cursor = Self {
            table: Blocks { source, index },
            options,
            stats: ReadStats::default(),
            ahead: ReadAhead { buffer: zeroed(0), range: 0..0, window: 0 },
            run: 0,
            at: At { leaf: 0, slot: 0 },
            handle: Handle { offset: 0, bytes: 0 },
            block: None,
            valid: false,
            i: 0,
            key: Vec::new(),
            group: NO_GROUP,
            agreeing: 0,
            seqno: 0,
            kind: EntryKind::Delete,
            value: 0..0,
            previous: Vec::new(),
        };
        cursor.restart();
        cursor
    }

    /// What the cursor has read so far.
    pub fn stats(&self) -> ReadStats {
        self.stats
    }

    /// Where in the file the block of the entry begins.
    pub fn block_offset(&self) -> u64 {
        self.handle.offset
    }

    /// Forgets the run of blocks: the next one is positioned anew.
    fn restart(&mut self) {
        self.valid = false;
        self.run = 0;
        let first = if self.options.fill_cache { FIRST_READ_AHEAD_BYTES } else { usize::MAX };
        self.ahead.window = first.min(self.options.read_ahead_bytes);
    }

    /// Enters the block at `at`.
    fn enter(&mut self, at: At, direction: Direction) -> Result<(), Error> {
        let table = self.table.clone();
        let leaf = table.index.leaf(at.leaf, &table.source, &mut self.stats)?;
        let handle = leaf.handle(at.slot).unwrap_or(Handle { offset: 0, bytes: 0 });
        if self.block.is_some() && self.handle == handle {
            self.at = at;
            return Ok(());
        }
        self.block = None;
        self.group = NO_GROUP;
        (self.at, self.handle) = (at, handle);
        self.run = self.run.saturating_add(1);
        self.block = Some(self.load(&table.source, leaf, direction)?);
        Ok(())
    }

    /// The block at `self.at`.
    fn load(
        &mut self,
        source: &Source,
        leaf: &Index,
        direction: Direction,
    ) -> Result<SharedBlock, Error> {
        let handle = self.handle;
        if self.ahead.position(handle).is_none() {
            if self.options.fill_cache {
                if self.run <= BLOCKS_BEFORE_READ_AHEAD {
                    return source.block(handle, true, &mut self.stats);
                }
                if let Some(block) = source.cached(handle, &mut self.stats) {
                    return Ok(block);
                }
            }
            let range = window(leaf, self.at.slot, handle, self.ahead.window, direction);
            self.ahead.read(source, range)?;
            self.ahead.window =
                self.ahead.window.saturating_mul(2).min(self.options.read_ahead_bytes);
        }
        self.stats.block_reads += 1;
        self.stats.block_bytes += handle.bytes as u64;
        let start = self.ahead.position(handle).unwrap_or(0);
        source.open_block(&self.ahead.buffer, start, handle)
    }

    /// Stands on entry `i` of the current block.
    #[inline]
    fn stand(&mut self, i: usize) -> Result<(), Error> {
        match self.try_stand(i) {
            Ok(()) => {
                self.valid = true;
                Ok(())
            }
            Err(fault) => Err(self.fail(fault)),
        }
    }

    #[inline]
    fn try_stand(&mut self, i: usize) -> Result<(), Fault> {
        const OUTSIDE: Fault = Fault::Damaged("a key shares more than its head has");
        let Some(block) = &self.block else { return Err(OUTSIDE) };
        let block = block.view();
        let key = block.stored_key(i)?;
        (self.seqno, self.kind) = block.trailer(i)?;
        self.value = block.value(i)?;
        self.i = i;
        let group = i / GROUP_ENTRIES;
        if self.group != group || i.is_multiple_of(GROUP_ENTRIES) {
            (self.group, self.agreeing) = (group, 0);
        }
        // Going forward within a group, keys share less and less with the head: what is needed
        // of it is nearly always still there.
        self.key.truncate(self.agreeing.min(key.shared));
        if key.shared > self.agreeing {
            let head = block.head(i)?.get(self.agreeing..key.shared).ok_or(OUTSIDE)?;
            self.key.extend_from_slice(head);
        }
        self.key.extend_from_slice(key.suffix);
        self.agreeing = if i.is_multiple_of(GROUP_ENTRIES) { self.key.len() } else { key.shared };
        Ok(())
    }

    #[cold]
    fn fail(&mut self, fault: Fault) -> Error {
        self.valid = false;
        fault.at(&self.table.source.path, self.handle.offset)
    }

    /// Entries of the current block.
    #[inline]
    fn count(&self) -> usize {
        self.block.as_ref().map_or(0, |block| block.view().count())
    }

    /// Goes to the first entry of the next block; off the end if there is none.
    fn next_block(&mut self) -> Result<(), Error> {
        self.valid = false;
        let table = self.table.clone();
        match table.index.next(self.at, &table.source, &mut self.stats)? {
            None => Ok(()),
            Some((_, at)) => {
                self.enter(at, Direction::Forward)?;
                self.stand(0)
            }
        }
    }

    /// Goes to the last entry of the previous block; off the end if there is none.
    fn previous_block(&mut self) -> Result<(), Error> {
        self.valid = false;
        let table = self.table.clone();
        match table.index.previous(self.at, &table.source, &mut self.stats)? {
            None => Ok(()),
            Some((_, at)) => {
                self.enter(at, Direction::Backward)?;
                self.stand(self.count().saturating_sub(1))
            }
        }
    }

    /// Finds the first entry at or behind (`key`, `seqno`): its block is entered and its number
    /// returned. `None` if all entries are smaller.
    fn find(&mut self, key: &[u8], seqno: SeqNo) -> Result<Option<usize>, Error> {
        self.restart();
        let table = self.table.clone();
        let mut place = table.index.find(key, &table.source, &mut self.stats)?;
        while let Some((_, at)) = place {
            self.enter(at, Direction::Forward)?;
            let block = self.block.as_ref().map(|block| block.view().seek(key, seqno));
            match block.unwrap_or(Ok(0)) {
                Ok(i) if i < self.count() => return Ok(Some(i)),
                Ok(_) => place = table.index.next(at, &table.source, &mut self.stats)?,
                Err(fault) => return Err(self.fail(fault)),
            }
        }
        Ok(None)
    }

    /// As `next`, comparing the new entry with the old one.
    fn next_in_order(&mut self) -> Result<(), Error> {
        self.previous.clear();
        self.previous.extend_from_slice(&self.key);
        let seqno = self.seqno;
        self.step()?;
        let order = compare_internal(&self.previous, seqno, &self.key, self.seqno);
        if self.valid && order != Ordering::Less {
            return Err(self.fail(Fault::Damaged("entries are out of order")));
        }
        Ok(())
    }

    #[inline]
    fn step(&mut self) -> Result<(), Error> {
        if self.i + 1 < self.count() { self.stand(self.i + 1) } else { self.next_block() }
    }
}

/// What to read so that it holds the block at `handle`, slot `slot` of `leaf`, and neighbours in
/// the direction of the scan, together at most `bytes` long if there are neighbours.
fn window(
    leaf: &Index,
    slot: usize,
    handle: Handle,
    bytes: usize,
    direction: Direction,
) -> Range<u64> {
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

impl Cursor for TableCursor {
    type Error = Error;

    fn seek_to_first(&mut self) -> Result<(), Error> {
        self.restart();
        let table = self.table.clone();
        match table.index.first(&table.source, &mut self.stats)? {
            None => Ok(()),
            Some((_, at)) => {
                self.enter(at, Direction::Forward)?;
                self.stand(0)
            }
        }
    }

    fn seek_to_last(&mut self) -> Result<(), Error> {
        self.restart();
        let table = self.table.clone();
        match table.index.last(&table.source, &mut self.stats)? {
            None => Ok(()),
            Some((_, at)) => {
                self.enter(at, Direction::Backward)?;
                self.stand(self.count().saturating_sub(1))
            }
        }
    }

    fn seek(&mut self, key: &[u8], seqno: SeqNo) -> Result<(), Error> {
        match self.find(key, seqno)? {
            None => Ok(()),
            Some(i) => self.stand(i),
        }
    }

    fn seek_before(&mut self, key: &[u8]) -> Result<(), Error> {
        match self.find(key, SeqNo::MAX)? {
            None => self.seek_to_last(),
            Some(0) => self.previous_block(),
            Some(i) => self.stand(i - 1),
        }
    }

    #[inline]
    fn next(&mut self) -> Result<(), Error> {
        if !self.valid {
            return Ok(());
        }
        if self.options.check_order { self.next_in_order() } else { self.step() }
    }

    #[inline]
    fn prev(&mut self) -> Result<(), Error> {
        if !self.valid {
            return Ok(());
        }
        match self.i.checked_sub(1) {
            Some(i) => self.stand(i),
            None => self.previous_block(),
        }
    }

    #[inline]
    fn entry(&self) -> Option<EntryRef<'_>> {
        if !self.valid {
            return None;
        }
        let payload = self.block.as_ref()?.view().payload;
        let value = payload.get(self.value.clone())?;
        Some(EntryRef { key: &self.key, seqno: self.seqno, kind: self.kind, value })
    }

    fn value(&self) -> Slice {
        match &self.block {
            Some(block) if self.valid => {
                let start = block.start as usize + self.value.start;
                Slice::window(&block.buffer, start, self.value.len())
            }
            _ => Slice::default(),
        }
    }
}
