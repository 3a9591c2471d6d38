//! Lookups of many keys in the tables of one sorted run, with overlapping waits for memory and for
//! the device.
//!
//! 1. Keys are processed in *rounds* of [`ROUND`]: all of them are searched in the indexes, and the
//!    memory that the search of each block reads is prefetched, in the map or through the block's
//!    cache slot, before the first block is searched. Mapped blocks that must be verified are
//!    prefetched while earlier ones are verified (see [`PrefetchQueue`]).
//! 2. Before the first block is read, the files get access hints for the blocks of the next
//!    [`HINTED_AHEAD`] keys, in all of the tables, so that those reads overlap.
//! 3. Whether a mapped block is in memory is unknown. Therefore the first block of each round is
//!    timed, and the files get the hints if it came from the device.
//! 4. Files open for direct reads do not benefit from hints: the reads of those blocks are
//!    submitted to the system in one batch, or made by several threads.
//!
//! Called by the engine's `multi_get`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use trommel_base::SeqNo;
use trommel_vfs::{Piece, Pieces, read_at_once};

use crate::Error;
use crate::block::SharedBlock;
use crate::block_slots::BlockLocation;
use crate::compression::zeroed;
use crate::format::Handle;
use crate::parallel_reads::read_in_parallel;
use crate::prefetch_queue::{PrefetchQueue, prefetch_to_second_level};
use crate::source::ReadStats;
use crate::table::{Found, Held, Table, Wants};

/// Keys per round.
const ROUND: usize = 16;

/// Requests whose blocks get access hints together.
const HINTED_AHEAD: usize = 64;

/// Most stored bytes of blocks that are read together, without the first block.
const BATCH_READ_BYTES: usize = 4 << 20;

/// A mapped block that took longer than this came from the device: verifying one takes less than a
/// microsecond, a read from any device more than ten.
const FROM_DEVICE: Duration = Duration::from_micros(15);

/// A key to look up.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// The number of its table.
    pub table: usize,
    /// The key.
    pub key: &'a [u8],
    /// Its hash, with the [seed](Table::hash_seed) of the table.
    pub hash: u64,
    /// Versions newer than this are invisible.
    pub seqno: SeqNo,
}

/// Looks up each of `requests` in its table, as [`Table::get`] does; `tables` maps a request's
/// table number to the table. Calls `answer` with the number of each request and the result, in
/// order. A block that neighbouring requests share, as when they are sorted by key, is read once.
/// Either all tables are mapped or none is.
///
/// # Errors
///
/// As [`Table::get`]; answers given before the error are valid.
#[inline]
pub fn get_many<'a>(
    tables: impl Fn(usize) -> Option<&'a Table>,
    requests: &[Request<'_>],
    stats: &mut ReadStats,
    mut answer: impl FnMut(usize, Option<Found>),
) -> Result<(), Error> {
    let first = requests.first().and_then(|request| tables(request.table));
    let is_mapped = first.is_some_and(|table| table.source.mapped);
    let (ahead, fetched) = (ReadStats::default(), Vec::new());
    let (taken, prefetch_queue) = ([const { None }; ROUND], PrefetchQueue::new());
    let mut batch =
        Batch { tables, requests, is_mapped, hinted: 0, ahead, fetched, taken, prefetch_queue };
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
                    let [first, second, third] = batch.prefetch_queue.steps(nth);
                    prefetch_to_second_level(first);
                    let held = batch.hold(nth, place, stats)?;
                    prefetch_to_second_level(second);
                    later = third;
                    &last.insert((place.table, held)).1
                }
            };
            let Request { key, hash, seqno, .. } = *request;
            let Wanted { table, location } = place;
            let mut found = held.get(table, key, hash, seqno, Wants::Value)?;
            if found.is_none() {
                found = table.get_after(location, key, hash, seqno, stats)?;
            }
            prefetch_to_second_level(later);
            answer(nth, found);
        }
    }
    stats.add(&batch.ahead);
    Ok(())
}

/// The location of the only block that can hold a key, or its first version.
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
    /// The first request whose block has not got an access hint yet.
    hinted: usize,
    /// Index reads of requests located in advance.
    ahead: ReadStats,
    /// Blocks that were read together and not searched yet, in the order of the requests.
    fetched: Vec<(Wanted<'a>, SharedBlock)>,
    /// Blocks of this round that were taken from their cache slots and not searched yet.
    taken: [Option<SharedBlock>; ROUND],
    /// Mapped blocks of this round that must be verified.
    prefetch_queue: PrefetchQueue<'a, ROUND>,
}

impl<'a, Tables: Fn(usize) -> Option<&'a Table>> Batch<'a, '_, Tables> {
    /// Locates the key of `request` in the index.
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

    /// Locates the keys of the round that begins with request `first`, and prefetches the memory
    /// that a search of their blocks reads. Always inlined: a call costs 2% of a multi-get.
    #[inline(always)]
    fn prefetch_round(
        &mut self,
        first: usize,
        round: &[Request<'_>],
        stats: &mut ReadStats,
    ) -> Result<[Option<Wanted<'a>>; ROUND], Error> {
        let mut places = [None; ROUND];
        self.prefetch_queue.clear();
        for (nth, (request, place)) in (first..).zip(round.iter().zip(&mut places)) {
            *place = self.find(request, stats)?;
            match *place {
                Some(Wanted { table, location }) if self.is_mapped => {
                    if let Some(stored) = table.prefetch_search(location) {
                        self.prefetch_queue.note(nth, stored);
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
        self.prefetch_queue.begin();
        for (nth, (request, place)) in (first..).zip(round.iter().zip(&places)) {
            if let Some(place @ Wanted { table, location }) = place {
                self.timed(nth, *place, |_| table.prefetch_entry(*location, request.hash));
            }
        }
        Ok(places)
    }

    /// Takes the blocks of a round from their cache slots, after prefetching all of them.
    fn take(&mut self, places: &[Option<Wanted<'a>>; ROUND]) {
        self.taken = [const { None }; ROUND];
        if !self.fetched.is_empty() {
            // Nearly all cached blocks of this round are in their slots.
            return;
        }
        for Wanted { location, .. } in places.iter().flatten() {
            location.prefetch_block();
        }
        let mut last = None;
        for (place, taken) in places.iter().zip(&mut self.taken) {
            let Some(Wanted { table, location }) = place else { continue };
            // A block with several of the keys is held until the last of them.
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
            // The block may have been evicted in the meantime, and read again with others.
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

    /// The block of request `nth` from a file open for direct reads: from the cache, or read
    /// together with later ones. `None` if it cannot be read; a second read then reports the error.
    fn hold_direct(
        &mut self,
        nth: usize,
        place: Wanted<'a>,
        stats: &mut ReadStats,
    ) -> Option<SharedBlock> {
        if self.fetched.is_empty() {
            if let Some(block) = place.table.source.cached(place.location, stats) {
                return Some(block);
            }
            if nth >= self.hinted {
                self.read_at_once(nth, place);
            }
        }
        self.read_of(place)
    }

    /// The block at `place`, if it is among those read together. Drops the blocks before it.
    fn read_of(&mut self, place: Wanted<'a>) -> Option<SharedBlock> {
        let found =
            self.fetched.iter().position(|(read, _)| place.is_at(read.table, read.location.handle));
        self.fetched.drain(..=found?).next_back().map(|(_, block)| block)
    }

    /// Reads the block of request `nth`, located at `first`, together with later ones that are not
    /// cached.
    #[cold]
    fn read_at_once(&mut self, nth: usize, first: Wanted<'a>) {
        let mut blocks = BatchedBlocks::new(self, nth, first);
        read_at_once(&mut blocks);
        let (ahead, blocks) = blocks.finish();
        self.hinted = self.seen(&ahead);
        for (place, block) in blocks {
            let Some(block) = block else { continue };
            self.ahead.block_reads += 1;
            self.ahead.block_bytes += place.location.handle.bytes as u64;
            self.fetched.push((place, block));
        }
    }

    /// Runs `look`, which reads the block of request `nth`. If that is the first of a round and its
    /// mapped block came from the device, gives access hints for later blocks.
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

    /// Gives access hints for the blocks of the requests after `nth`, whose block is at `last`,
    /// unless they were given before.
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

    /// The next block of `ahead` that differs from the one before it. An error is ignored here and
    /// reported when the block is read.
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

    /// Counts the index reads of `ahead`. Returns the first request that it did not reach.
    fn seen(&mut self, ahead: &Ahead<'a>) -> usize {
        self.ahead.index_reads += ahead.stats.index_reads;
        ahead.until
    }
}

/// Later requests whose blocks are located in advance.
struct Ahead<'a> {
    /// The first request not located yet.
    until: usize,
    end: usize,
    /// The last block located.
    last: Wanted<'a>,
    stats: ReadStats,
}

impl<'a> Ahead<'a> {
    /// The requests after `nth`, whose block is at `last`.
    fn of(nth: usize, last: Wanted<'a>) -> Self {
        let until = nth + 1;
        Self { until, end: until + HINTED_AHEAD, last, stats: ReadStats::default() }
    }
}

/// Blocks that are not cached: located one by one, read together, and inserted into the cache.
///
/// Reads are submitted to the system while the next blocks are located. Reads that the system does
/// not accept are made by several threads.
struct BatchedBlocks<'a, 'r, 'b, Tables> {
    batch: &'b Batch<'a, 'r, Tables>,
    ahead: Ahead<'a>,
    /// Stored bytes of all blocks except the first.
    bytes: usize,
    places: Vec<Wanted<'a>>,
    /// Buffers, allocated for the first blocks only so far.
    room: Vec<Arc<[u8]>>,
    /// Results of the reads; the inner option is `None` for a corrupt block.
    read: Vec<Option<Option<SharedBlock>>>,
}

impl<'a, 'r, 'b, Tables: Fn(usize) -> Option<&'a Table>> BatchedBlocks<'a, 'r, 'b, Tables> {
    /// The block of request `nth`, located at `first`, and later ones.
    fn new(batch: &'b Batch<'a, 'r, Tables>, nth: usize, first: Wanted<'a>) -> Self {
        let (places, room, read) = (Vec::new(), Vec::new(), Vec::new());
        Self { batch, ahead: Ahead::of(nth, first), bytes: 0, places, room, read }
    }

    /// The next block to read.
    fn find_next(&mut self) -> Option<Wanted<'a>> {
        if self.places.is_empty() {
            return Some(self.ahead.last);
        }
        while self.bytes < BATCH_READ_BYTES {
            let place = self.batch.next_ahead(&mut self.ahead)?;
            if place.table.source.in_cache(place.location).is_none() {
                self.bytes += place.location.handle.bytes;
                return Some(place);
            }
        }
        None
    }

    /// All blocks, `None` for each that cannot be read.
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
            let fetched = read_in_parallel(wanted, |(source, handle)| {
                source.read_block(*handle, &mut ReadStats::default()).ok()
            });
            for ((place, read), block) in left.into_iter().zip(fetched) {
                *read = Some(place.keep(block.flatten()));
            }
        }
        (ahead, places.into_iter().zip(read.into_iter().map(Option::flatten)).collect())
    }
}

impl<'a, Tables: Fn(usize) -> Option<&'a Table>> Pieces<'a> for BatchedBlocks<'a, '_, '_, Tables> {
    fn next(&mut self) -> Option<Piece<'a>> {
        let place = self.find_next()?;
        self.places.push(place);
        self.read.push(None);
        Some(place.piece())
    }

    /// Allocates buffers while the device is busy: new memory costs page faults.
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

    /// Inserts the block into the cache, if the read succeeded.
    fn keep(&self, block: Option<SharedBlock>) -> Option<SharedBlock> {
        if let Some(block) = &block {
            self.table.source.keep(self.location, block);
        }
        block
    }
}
