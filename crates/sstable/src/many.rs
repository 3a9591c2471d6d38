//! Looking up many keys in the tables of one sorted run, so that they wait for memory, and for the
//! device, together.
//!
//! Keys are taken a *round* of [`ROUND`] at a time, and each step is taken for all of a round before
//! the next one, so that what one key waits for is on its way while the others are served:
//!
//! 1. each key's block is looked for in its table's index;
//! 2. each block is held once: from the cache, the map or the file; what a search of it begins with
//!    is asked of the processor's memory;
//! 3. the entry that a key's tag points to is asked for;
//! 4. keys are compared, and answered.
//!
//! Before the first block is read the files are told of the blocks of the [`TOLD_AHEAD`] keys behind
//! it, in all of the tables, so that those reads overlap. What lies in a map is there or is waited for,
//! and nobody says which; there a round's first block is timed, and where it was waited for the files
//! are told. Called by the engine's `multi_get`.

use std::time::{Duration, Instant};

use crate::Error;
use crate::format::Handle;
use crate::index::{At, Index};
use crate::source::ReadStats;
use crate::table::{Found, Held, Table, handle_of};

/// Keys that are taken together.
const ROUND: usize = 16;

/// Requests whose blocks the files are told of at once.
const TOLD_AHEAD: usize = 64;

/// A block in a map that took longer than this was not in memory: verifying one takes less than a
/// microsecond, a read of any device more than ten.
const FROM_DEVICE: Duration = Duration::from_micros(15);

/// One key to look for.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// Its table's place among those that are asked.
    pub table: usize,
    /// The key.
    pub key: &'a [u8],
    /// Its [`trommel_filter::hash`].
    pub hash: u64,
    /// Versions newer than this are not seen.
    pub seqno: trommel_base::SeqNo,
}

/// Looks up each of `requests` in its one of `tables`, as [`Table::get`] does: `answer` is called
/// with each one's place among them and what was found, in their order. Where neighbours have one
/// block, as when they are sorted by key, it is read once.
///
/// # Errors
///
/// As [`Table::get`]; what was answered until then stands.
pub fn get_many(
    tables: &[&Table],
    requests: &[Request<'_>],
    stats: &mut ReadStats,
    mut answer: impl FnMut(usize, Option<Found>),
) -> Result<(), Error> {
    let mut batch = Batch { tables, requests, told: 0, ahead: ReadStats::default() };
    let mut round = Round::default();
    for from in (0..requests.len()).step_by(ROUND) {
        round.begin();
        batch.find(from, &mut round, stats)?;
        batch.hold(from, &mut round, stats)?;
        batch.ask_for_entries(from, &round);
        batch.answer(from, &round, stats, &mut answer)?;
    }
    stats.index_reads += batch.ahead.index_reads;
    Ok(())
}

struct Batch<'a, 'r> {
    tables: &'a [&'a Table],
    requests: &'a [Request<'r>],
    /// The files were told of the blocks of the requests before this one.
    told: usize,
    /// What telling them cost.
    ahead: ReadStats,
}

/// What is known of the keys of a round, and behind them of the last one of the round before.
#[derive(Default)]
struct Round<'a> {
    places: [Option<Place<'a>>; ROUND + 1],
    /// The blocks, each at the first of its keys.
    held: [Option<Held<'a>>; ROUND + 1],
    /// Where the last of them is.
    last: usize,
}

impl<'a> Round<'a> {
    /// Forgets the round, but for its last block: the next one may begin in it.
    fn begin(&mut self) {
        self.places.swap(self.last, ROUND);
        self.held.swap(self.last, ROUND);
        self.places[..ROUND].fill_with(|| None);
        self.held[..ROUND].fill_with(|| None);
        self.last = ROUND;
    }

    /// Notes where key number `nth` must be; whether its block is another than that of the one before.
    fn note(&mut self, nth: usize, mut place: Place<'a>) -> bool {
        let last = self.places.get(self.last).and_then(Option::as_ref);
        let is_other = !last.is_some_and(|last| place.is_in_block_of(last));
        if is_other {
            self.last = nth;
        }
        place.holder = self.last;
        if let Some(slot) = self.places.get_mut(nth) {
            *slot = Some(place);
        }
        is_other
    }

    /// The block of key number `nth`, and where it is.
    #[inline]
    fn block_of(&self, nth: usize) -> Option<(&Place<'a>, &Held<'a>)> {
        let place = self.places.get(nth)?.as_ref()?;
        Some((place, self.held.get(place.holder)?.as_ref()?))
    }
}

/// Where a key must be, if it is in its table.
struct Place<'a> {
    table: &'a Table,
    leaf: &'a Index,
    at: At,
    handle: Handle,
    /// Which of the round's keys has its block.
    holder: usize,
}

impl Place<'_> {
    fn is_in_block_of(&self, other: &Self) -> bool {
        std::ptr::eq(self.table, other.table) && self.handle == other.handle
    }
}

impl<'a, 'r> Batch<'a, 'r> {
    /// The requests of the round that begins with request `from`.
    fn round(&self, from: usize) -> &'a [Request<'r>] {
        let rest = self.requests.get(from..).unwrap_or_default();
        rest.get(..ROUND).unwrap_or(rest)
    }

    /// Looks each key's block up in the index.
    fn find(&self, from: usize, round: &mut Round<'a>, stats: &mut ReadStats) -> Result<(), Error> {
        for (nth, request) in self.round(from).iter().enumerate() {
            let Some(table) = self.tables.get(request.table).copied() else { continue };
            let found = table.index.find(request.key, &table.source, stats)?;
            let Some((leaf, at)) = found else { continue };
            let handle = handle_of(leaf, at.slot);
            if round.note(nth, Place { table, leaf, at, handle, holder: nth }) {
                table.ask_for_verified(handle, at);
            }
        }
        Ok(())
    }

    /// Holds the blocks.
    fn hold(
        &mut self,
        from: usize,
        round: &mut Round<'a>,
        stats: &mut ReadStats,
    ) -> Result<(), Error> {
        let mut is_first = true;
        let mut holders = (round.places.iter().enumerate().take(ROUND))
            .filter_map(|(nth, place)| Some((nth, place.as_ref()?)))
            .filter(|(nth, place)| place.holder == *nth)
            .peekable();
        while let Some((nth, place)) = holders.next() {
            if let Some((_, next)) = holders.peek() {
                next.table.ask_for_unverified(next.handle, next.at);
            }
            let Place { table, leaf, at, handle, .. } = *place;
            let is_timed = std::mem::take(&mut is_first) && table.source.mapped;
            let began = (is_timed && from + nth >= self.told).then(Instant::now);
            let mut tell = || self.tell_ahead(from + nth, (table, handle));
            let held = table.hold_after(leaf, at, stats, &mut tell)?;
            if began.is_some_and(|began| began.elapsed() > FROM_DEVICE) {
                tell();
            }
            if let Some(slot) = round.held.get_mut(nth) {
                *slot = Some(held);
            }
        }
        Ok(())
    }

    /// Asks for the entries that may be those of the keys.
    fn ask_for_entries(&self, from: usize, round: &Round<'a>) {
        for (nth, request) in self.round(from).iter().enumerate() {
            if let Some((_, held)) = round.block_of(nth) {
                held.ask_for_entry(request.hash);
            }
        }
    }

    /// Searches the blocks.
    fn answer(
        &self,
        from: usize,
        round: &Round<'a>,
        stats: &mut ReadStats,
        answer: &mut impl FnMut(usize, Option<Found>),
    ) -> Result<(), Error> {
        for (nth, request) in self.round(from).iter().enumerate() {
            let Request { key, hash, seqno, .. } = *request;
            let mut found = None;
            if let Some((Place { table, leaf, at, .. }, held)) = round.block_of(nth) {
                found = held.get(table, key, hash, seqno)?;
                if found.is_none() {
                    found = table.get_behind((leaf, *at), key, hash, seqno, stats)?;
                }
            }
            answer(from + nth, found);
        }
        Ok(())
    }

    /// Tells the files which blocks will be read for the requests behind number `nth`, whose block is
    /// `last`, unless they were told. What goes wrong here goes wrong again when the blocks are read.
    #[cold]
    fn tell_ahead(&mut self, nth: usize, last: (&'a Table, Handle)) {
        if nth < self.told {
            return;
        }
        let rest = self.requests.get(nth + 1..).unwrap_or_default();
        let rest = rest.get(..TOLD_AHEAD).unwrap_or(rest);
        self.told = nth + 1 + rest.len();
        let (mut last_table, mut last) = last;
        for request in rest {
            let Some(table) = self.tables.get(request.table).copied() else { continue };
            let found = table.index.find(request.key, &table.source, &mut self.ahead);
            let Ok(Some((leaf, at))) = found else { continue };
            let handle = handle_of(leaf, at.slot);
            if handle != last || !std::ptr::eq(table, last_table) {
                table.source.tell(handle);
            }
            (last_table, last) = (table, handle);
        }
    }
}
