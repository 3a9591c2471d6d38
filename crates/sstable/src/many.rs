//! Lookups of many keys in the tables of one sorted run, which overlap their waits for memory and
//! for the device.
//!
//! 1. Keys are taken a *round* of [`ROUND`] at a time: all of them are searched in the indexes, and
//!    what a search of each one's block reads is prefetched, in the map or through the block's
//!    cache slot, before the first block is searched. Blocks of a map that are to be verified are
//!    prefetched while those before them are verified (see [`Awaited`]).
//! 2. Before the first block is read, the files get access hints for the blocks of the next
//!    [`HINTED_AHEAD`] keys, in all of the tables, so that those reads overlap.
//! 3. Whether a block of a map is in memory is not known. So a round's first block is timed, and
//!    the files get the hints where it was waited for.
//! 4. Files that are opened for direct reads have no use for hints: the reads of those blocks are
//!    handed to the system at once, or several threads make them.
//!
//! Called by the engine's `multi_get`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use trommel_base::SeqNo;
use trommel_vfs::{Piece, Pieces, read_at_once};

use crate::Error;
use crate::awaited::{Awaited, ask_second_for};
use crate::block::SharedBlock;
use crate::block_slots::BlockLocation;
use crate::compression::zeroed;
use crate::format::Handle;
use crate::source::ReadStats;
use crate::table::{Found, Held, Table, Wants};
use crate::together::read_together;

/// Keys that are taken together.
const ROUND: usize = 16;

/// Requests for whose blocks the files get access hints at once.
const HINTED_AHEAD: usize = 64;

/// Most stored bytes of blocks that are read at once, the first block not counted.
const TOGETHER_BYTES: usize = 4 << 20;

/// A block in a map that took longer than this was not in memory: verifying one takes less than a
/// microsecond, a read of any device more than ten.
const FROM_DEVICE: Duration = Duration::from_micros(15);

/// One key to look for.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// The number of its table.
    pub table: usize,
    /// The key.
    pub key: &'a [u8],
    /// Its [`trommel_filter::hash`].
    pub hash: u64,
    /// Versions newer than this are not seen.
    pub seqno: SeqNo,
}

/// Looks up each of `requests` in its table, which `tables` has under that number, as
/// [`Table::get`] does: `answer` is called with the number of each request and what was found, in
/// their order. Where neighbours have one block, as when they are sorted by key, it is read once.
/// All tables are read in the same way, through maps or not.
///
/// # Errors
///
/// As [`Table::get`]; what was answered until then stands.
#[inline]
pub fn get_many<'a>(
    tables: impl Fn(usize) -> Option<&'a Table>,
    requests: &[Request<'_>],
    stats: &mut ReadStats,
    mut answer: impl FnMut(usize, Option<Found>),
) -> Result<(), Error> {
    let first = requests.first().and_then(|request| tables(request.table));
    let is_mapped = first.is_some_and(|table| table.source.mapped);
    let (ahead, together) = (ReadStats::default(), Vec::new());
    let (taken, awaited) = ([const { None }; ROUND], Awaited::new());
    let mut batch =
        Batch { tables, requests, is_mapped, hinted: 0, ahead, together, taken, awaited };
    let mut last: Option<(&Table, Held<'_>)> = None;
    for (first, round) in (0..).step_by(ROUND).zip(requests.chunks(ROUND)) {
        let places = batch.prefetch_round(first, round, stats)?;
        let ahead = |nth: usize| *places.get(nth - first)?;
        for (nth, request) in (first..).zip(round) {
            let Some(place) = ahead(nth) else {
                answer(nth, None);
                continue;
            };
            let mut later: &[u8] = &[];
            let held = match &last {
                Some((of, held)) if place.is_at(of, held.handle) => held,
                _ => {
                    let [first, second, third] = batch.awaited.turns(nth);
                    ask_second_for(first);
                    let held = batch.hold(nth, place, stats)?;
                    ask_second_for(second);
                    later = third;
                    &last.insert((place.table, held)).1
                }
            };
            let Request { key, hash, seqno, .. } = *request;
            let Wanted { table, location } = place;
            let mut found = held.get(table, key, hash, seqno, Wants::Value)?;
            if found.is_none() {
                found = table.get_behind(location, key, hash, seqno, stats)?;
            }
            ask_second_for(later);
            answer(nth, found);
        }
    }
    stats.add(&batch.ahead);
    Ok(())
}

/// Where a key must be, if it is in its table.
#[derive(Clone, Copy)]
struct Wanted<'a> {
    table: &'a Table,
    location: BlockLocation<'a>,
}

impl Wanted<'_> {
    #[inline]
    fn is_at(&self, table: &Table, handle: Handle) -> bool {
        self.location.handle == handle && std::ptr::eq(self.table, table)
    }
}

struct Batch<'a, 'r, Tables> {
    tables: Tables,
    requests: &'r [Request<'r>],
    is_mapped: bool,
    /// The first request for whose block the files have got no access hint.
    hinted: usize,
    /// What was read of indexes for that.
    ahead: ReadStats,
    /// Blocks that were read at once and not yet searched, in the order of the requests.
    together: Vec<(Wanted<'a>, SharedBlock)>,
    /// Blocks of this round that were taken from their cache slots and are not yet searched.
    taken: [Option<SharedBlock>; ROUND],
    /// Blocks of this round that lie in a map and are to be verified.
    awaited: Awaited<'a, ROUND>,
}

impl<'a, Tables: Fn(usize) -> Option<&'a Table>> Batch<'a, '_, Tables> {
    /// Where the key of `request` must be, by the index.
    #[inline]
    fn find(
        &self,
        request: &Request<'_>,
        stats: &mut ReadStats,
    ) -> Result<Option<Wanted<'a>>, Error> {
        let Some(table) = (self.tables)(request.table) else { return Ok(None) };
        let found = table.index.find(request.key, &table.source, stats)?;
        Ok(found.map(|(leaf, at)| Wanted { table, location: table.index.locate(leaf, at) }))
    }

    /// Finds the keys of the round that begins with request `first`, and prefetches what a search
    /// of their blocks reads.
    fn prefetch_round(
        &mut self,
        first: usize,
        round: &[Request<'_>],
        stats: &mut ReadStats,
    ) -> Result<[Option<Wanted<'a>>; ROUND], Error> {
        let mut places = [None; ROUND];
        self.awaited.clear();
        for (nth, (request, place)) in (first..).zip(round.iter().zip(&mut places)) {
            *place = self.find(request, stats)?;
            match *place {
                Some(Wanted { table, location }) if self.is_mapped => {
                    if let Some(stored) = table.ask_for_search(location) {
                        self.awaited.note(nth, stored);
                    }
                }
                Some(Wanted { location, .. }) => location.prefetch_slot(),
                None => {}
            }
        }
        if !self.is_mapped {
            self.take(&places);
            return Ok(places);
        }
        self.awaited.ask();
        for (nth, (request, place)) in (first..).zip(round.iter().zip(&places)) {
            if let Some(place @ Wanted { table, location }) = place {
                self.timed(nth, *place, |_| table.ask_for_entry(*location, request.hash));
            }
        }
        Ok(places)
    }

    /// Takes the blocks of a round from their cache slots, after all of them were prefetched.
    fn take(&mut self, places: &[Option<Wanted<'a>>; ROUND]) {
        self.taken = [const { None }; ROUND];
        if !self.together.is_empty() {
            // Nearly all blocks of this round that are cached are in their slots.
            return;
        }
        for Wanted { location, .. } in places.iter().flatten() {
            location.prefetch_block();
        }
        let mut last = None;
        for (place, taken) in places.iter().zip(&mut self.taken) {
            let Some(Wanted { table, location }) = place else { continue };
            // One block of several keys is held until the last of them.
            if last.replace((&raw const **table, location.handle))
                != Some((*table, location.handle))
            {
                *taken = table.source.in_slot(*location);
            }
        }
    }

    /// The block of request `nth`.
    #[inline]
    fn hold(
        &mut self,
        nth: usize,
        place: Wanted<'a>,
        stats: &mut ReadStats,
    ) -> Result<Held<'a>, Error> {
        let Wanted { table, location } = place;
        if let Some(block) = self.taken.get_mut(nth % ROUND).and_then(Option::take) {
            stats.cache_hits += 1;
            // It may have been evicted since, and read again with others.
            self.read_of(place);
            return Ok(Held::shared(location.handle, block));
        }
        if table.source.file.is_direct()
            && let Some(block) = self.hold_direct(nth, place, stats)
        {
            return Ok(Held::shared(location.handle, block));
        }
        self.timed(nth, place, |batch| {
            table.hold_after(location, stats, || batch.hint_ahead(nth, place))
        })
    }

    /// The block of request `nth` from a file that is opened for direct reads: from the cache, or
    /// read at once with those after it. `None` where it cannot be read; a second read reports the
    /// error.
    fn hold_direct(
        &mut self,
        nth: usize,
        place: Wanted<'a>,
        stats: &mut ReadStats,
    ) -> Option<SharedBlock> {
        if self.together.is_empty() {
            if let Some(block) = place.table.source.cached(place.location, stats) {
                return Some(block);
            }
            if nth >= self.hinted {
                self.read_at_once(nth, place);
            }
        }
        self.read_of(place)
    }

    /// The block at `place` among those that were read at once; those before it are dropped.
    fn read_of(&mut self, place: Wanted<'a>) -> Option<SharedBlock> {
        let found = self
            .together
            .iter()
            .position(|(read, _)| place.is_at(read.table, read.location.handle));
        self.together.drain(..=found?).next_back().map(|(_, block)| block)
    }

    /// Reads the block of request `nth`, which is at `first`, and those after it that are not
    /// cached.
    #[cold]
    fn read_at_once(&mut self, nth: usize, first: Wanted<'a>) {
        let mut blocks = Blocks::new(self, nth, first);
        read_at_once(&mut blocks);
        let (ahead, blocks) = blocks.finish();
        self.hinted = self.seen(&ahead);
        for (place, block) in blocks {
            let Some(block) = block else { continue };
            self.ahead.block_reads += 1;
            self.ahead.block_bytes += place.location.handle.bytes as u64;
            self.together.push((place, block));
        }
    }

    /// Runs `look`, which reads the block of request `nth`. If that is a round's first, and its
    /// block came into the map from the device, the files get access hints for those after it.
    #[inline]
    fn timed<T>(&mut self, nth: usize, place: Wanted<'a>, look: impl FnOnce(&mut Self) -> T) -> T {
        let is_timed = place.table.source.mapped && nth.is_multiple_of(ROUND) && nth >= self.hinted;
        let began = is_timed.then(Instant::now);
        let looked = look(self);
        if began.is_some_and(|began| began.elapsed() > FROM_DEVICE) {
            self.hint_ahead(nth, place);
        }
        looked
    }

    /// Hints to the files at the blocks of the requests after number `nth`, whose block is at
    /// `last`, unless that was done before.
    #[cold]
    fn hint_ahead(&mut self, nth: usize, last: Wanted<'a>) {
        if nth < self.hinted {
            return;
        }
        let mut ahead = Ahead::of(nth, last);
        while let Some(place) = self.next_ahead(&mut ahead) {
            place.table.source.will_need(place.location);
        }
        self.hinted = self.seen(&ahead);
    }

    /// The next block of `ahead`, other than the one before it. An error here is reported when the
    /// blocks are read.
    fn next_ahead(&self, ahead: &mut Ahead<'a>) -> Option<Wanted<'a>> {
        while ahead.until < ahead.end {
            let request = self.requests.get(ahead.until)?;
            ahead.until += 1;
            let Ok(Some(place)) = self.find(request, &mut ahead.stats) else { continue };
            let is_other = !place.is_at(ahead.last.table, ahead.last.location.handle);
            ahead.last = place;
            if is_other {
                return Some(place);
            }
        }
        None
    }

    /// Counts what `ahead` read, and returns the first request that it did not reach.
    fn seen(&mut self, ahead: &Ahead<'a>) -> usize {
        self.ahead.index_reads += ahead.stats.index_reads;
        ahead.until
    }
}

/// Later requests, whose blocks are located before they are needed.
struct Ahead<'a> {
    /// The first that was not located.
    until: usize,
    end: usize,
    /// The block of the last one that has one.
    last: Wanted<'a>,
    stats: ReadStats,
}

impl<'a> Ahead<'a> {
    /// Those after request `nth`, whose block is at `last`.
    fn of(nth: usize, last: Wanted<'a>) -> Self {
        let until = nth + 1;
        Self { until, end: until + HINTED_AHEAD, last, stats: ReadStats::default() }
    }
}

/// Blocks that are not cached, located one after the other, read at once, and inserted into the
/// cache.
///
/// Reads are handed to the system while the next blocks are located. Where the system does not take
/// them, several threads make them.
struct Blocks<'a, 'r, 'b, Tables> {
    batch: &'b Batch<'a, 'r, Tables>,
    ahead: Ahead<'a>,
    /// Stored bytes of all except the first.
    bytes: usize,
    places: Vec<Wanted<'a>>,
    /// Buffers, of the first ones so far.
    room: Vec<Arc<[u8]>>,
    /// Those that were read, `None` inside if they are damaged.
    read: Vec<Option<Option<SharedBlock>>>,
}

impl<'a, 'r, 'b, Tables: Fn(usize) -> Option<&'a Table>> Blocks<'a, 'r, 'b, Tables> {
    /// The block of request `nth`, which is at `first`, and those after it.
    fn new(batch: &'b Batch<'a, 'r, Tables>, nth: usize, first: Wanted<'a>) -> Self {
        let (places, room, read) = (Vec::new(), Vec::new(), Vec::new());
        Self { batch, ahead: Ahead::of(nth, first), bytes: 0, places, room, read }
    }

    /// The next one that is to be read.
    fn find_next(&mut self) -> Option<Wanted<'a>> {
        if self.places.is_empty() {
            return Some(self.ahead.last);
        }
        while self.bytes < TOGETHER_BYTES {
            let place = self.batch.next_ahead(&mut self.ahead)?;
            if place.table.source.in_cache(place.location).is_none() {
                self.bytes += place.location.handle.bytes;
                return Some(place);
            }
        }
        None
    }

    /// All of them, `None` for what cannot be read.
    fn finish(mut self) -> (Ahead<'a>, Vec<(Wanted<'a>, Option<SharedBlock>)>) {
        while self.next().is_some() {}
        let Self { ahead, places, mut read, room, .. } = self;
        drop(room);
        let each = places.iter().zip(&mut read);
        let left: Vec<_> = each.filter(|(_, read)| read.is_none()).collect();
        if !left.is_empty() {
            let source =
                |place: &Wanted<'_>| (Arc::clone(&place.table.source), place.location.handle);
            let wanted = left.iter().map(|(place, _)| source(place)).collect();
            let together = read_together(wanted, |(source, handle)| {
                source.read_block(*handle, &mut ReadStats::default()).ok()
            });
            for ((place, read), block) in left.into_iter().zip(together) {
                *read = Some(place.keep(block.flatten()));
            }
        }
        (ahead, places.into_iter().zip(read.into_iter().map(Option::flatten)).collect())
    }
}

impl<'a, Tables: Fn(usize) -> Option<&'a Table>> Pieces<'a> for Blocks<'a, '_, '_, Tables> {
    fn next(&mut self) -> Option<Piece<'a>> {
        let place = self.find_next()?;
        self.places.push(place);
        self.read.push(None);
        Some(place.piece())
    }

    /// Allocates buffers while the device is waited for: new memory costs page faults.
    fn meanwhile(&mut self) {
        let places = self.places.get(self.room.len()..).unwrap_or_default();
        self.room.extend(places.iter().map(|place| zeroed(place.location.handle.bytes)));
    }

    fn receive(&mut self, nth: usize, bytes: &[u8]) {
        if nth >= self.room.len() {
            self.meanwhile();
        }
        let Some(place) = self.places.get(nth) else { return };
        let Some((room, read)) = self.room.get_mut(nth).zip(self.read.get_mut(nth)) else { return };
        let mut room = std::mem::take(room);
        match Arc::get_mut(&mut room) {
            Some(room) if room.len() == bytes.len() => room.copy_from_slice(bytes),
            _ => return,
        }
        let block = place.table.source.open_block(&room, 0, place.location.handle);
        *read = Some(place.keep(block.ok()));
    }
}

impl<'a> Wanted<'a> {
    fn piece(&self) -> Piece<'a> {
        let Handle { offset, bytes } = self.location.handle;
        Piece { file: &*self.table.source.file, offset, bytes }
    }

    /// Inserts the block that was read here into the cache, if it was.
    fn keep(&self, block: Option<SharedBlock>) -> Option<SharedBlock> {
        if let Some(block) = &block {
            self.table.source.keep(self.location, block);
        }
        block
    }
}
