//! One part of the filter region: which of its pieces is asked.
//!
//! * A *whole* part is one piece.
//! * A *cut* part is several, each for a range of keys that ends where a data block ends; behind
//!   them lies their *top*, an index of separators like that of the data blocks. The piece of a
//!   key is the first whose separator is not smaller.
//! * Where there is a filter for each data block, a piece is a group of them. The index of the data
//!   blocks is searched first, then the top, and the filter of the one block is asked.
//!
//! A key whose versions straddle two pieces is in the first of them, which is where a search for it
//! arrives. A prefix is in every piece that holds a key with it; see [`Part::ask_prefix`].

use trommel_base::planted::{Bug, planted};
use trommel_filter::{Filter, FilterKind, FilterSpec, theory};

use super::hold::{self, Cell, Piece, Pinned};
use super::keeper::{Form, Keeper, Unread};
use super::{FilterFacts, FilterPart, FilterRole, FilterShape};
use crate::Error;
use crate::cache::CachedPiece;
use crate::filter_host::FilterState;
use crate::format::Handle;
use crate::source::ReadStats;
use crate::user_filter::OpenUserFilter;
use crate::verdict::{Answers, FilterLabel, Verdict};

/// Pieces that a question about a prefix may visit before it gives up and says "maybe". In a sound
/// table the second one settles it.
const MOST_PIECES: usize = 4;

#[derive(Debug)]
pub(super) struct Part {
    pub(super) said: FilterPart,
    /// Kind of its filters.
    kind: FilterLabel,
    /// As what its pieces are read.
    form: Form,
    /// Its first byte in the file.
    offset: u64,
    pieces: Pieces,
}

#[derive(Debug)]
enum Pieces {
    Whole(Cell<Pinned>),
    Cut { top: Cell<Pinned> },
}

impl Part {
    /// The part that is said to start at `offset`; `is_foreign` where nobody here can ask it, so
    /// that it can only be checked.
    pub(super) fn new(said: FilterPart, offset: u64, is_foreign: bool) -> Self {
        let pieces = match said.shape {
            FilterShape::Whole => Pieces::Whole(Cell::default()),
            FilterShape::Partitioned | FilterShape::PerBlock => {
                Pieces::Cut { top: Cell::default() }
            }
        };
        let (kind, form) = if is_foreign {
            (FilterKind::None.into(), Form::Foreign)
        } else if !said.policy.is_empty() {
            (FilterLabel::User, Form::User)
        } else {
            let kind = said.spec.parse().map_or(FilterKind::None, |spec: FilterSpec| spec.kind());
            let is_small = said.shape == FilterShape::PerBlock;
            (kind.into(), if is_small { Form::Small } else { Form::Filter })
        };
        Self { said, kind, form, offset, pieces }
    }

    /// Why the part that is `said` to be there is asked nothing, if so.
    pub(super) fn why_foreign(said: &FilterPart, keeper: &Keeper) -> Option<FilterState> {
        if said.policy.is_empty() {
            return None;
        }
        if keeper.reader.as_ref().is_none_or(|reader| reader.name() != said.policy) {
            let why = format!("it was made by the policy {:?}, which is not here", said.policy);
            return Some(FilterState::Foreign(why));
        }
        let is_known = (said.shape, said.role) == (FilterShape::Whole, FilterRole::Keys);
        let why = "a user's filter is cut in a way this version cannot read";
        (!is_known).then(|| FilterState::Unknown(why.into()))
    }

    /// Whether the table may hold `key`, whose hash this is.
    #[inline]
    pub(super) fn ask(&self, key: &[u8], hash: u64, keeper: &Keeper) -> Verdict {
        match self.pinned_filter() {
            Some(filter) => Verdict::of(filter, hash),
            None => self.ask_elsewhere(key, hash, keeper),
        }
    }

    /// The filter of a part that is not cut, if it is pinned: three loads away, without a lock.
    #[inline]
    pub(super) fn pinned_filter(&self) -> Option<&Filter> {
        let Pieces::Whole(cell) = &self.pieces else { return None };
        let Piece::Filter(filter) = cell.pinned()? else { return None };
        Some(filter)
    }

    /// As [`ask`](Self::ask), where that is not so simple.
    #[inline(never)]
    fn ask_elsewhere(&self, key: &[u8], hash: u64, keeper: &Keeper) -> Verdict {
        let asked = match &self.pieces {
            Pieces::Whole(cell) => {
                let piece = cell.get(keeper, self.form, || Some(self.whole()));
                piece.map(|piece| piece.verdict(key, hash))
            }
            Pieces::Cut { top } if self.said.shape == FilterShape::PerBlock => {
                self.ask_block(top, key, hash, keeper)
            }
            Pieces::Cut { top } => self.with_pieces(top, keeper, |pieces| {
                let piece = pieces.get(pieces.place_of(key), keeper, self.form)?;
                Some(piece.verdict(key, hash))
            }),
        };
        if planted(Bug::DamagedFilterSaysNo) && asked.is_none() {
            return Verdict { maybe: false, ..Verdict::UNFILTERED };
        }
        asked.unwrap_or(Verdict::UNFILTERED)
    }

    /// Asks for the first cache line that [`ask`](Self::ask) looks at, if it is known without a
    /// search: not of a part that is cut.
    #[inline]
    pub(super) fn prefetch(&self, hash: u64) {
        if let Some(filter) = self.pinned_filter() {
            filter.prefetch(hash);
        }
    }

    /// Whether the table may hold a key with this prefix, whose hash this is.
    ///
    /// A search for the prefix itself arrives at the first piece (or block) that may hold such a
    /// key. If its separator starts with the prefix, such keys may also begin in the next one.
    pub(super) fn ask_prefix(&self, prefix: &[u8], hash: u64, keeper: &Keeper) -> Verdict {
        let asked = match &self.pieces {
            Pieces::Whole(_) => return self.ask(prefix, hash, keeper),
            Pieces::Cut { top } if self.said.shape == FilterShape::PerBlock => {
                self.with_pieces(top, keeper, |pieces| {
                    self.ask_prefix_of_blocks(pieces, prefix, hash, keeper)
                })
            }
            Pieces::Cut { top } => self.with_pieces(top, keeper, |pieces| {
                self.ask_prefix_of_pieces(pieces, prefix, hash, keeper)
            }),
        };
        asked.unwrap_or(Verdict::UNFILTERED)
    }

    fn ask_prefix_of_pieces(
        &self,
        pieces: hold::Pieces<'_>,
        prefix: &[u8],
        hash: u64,
        keeper: &Keeper,
    ) -> Option<Verdict> {
        let first = pieces.place_of(prefix);
        for i in first..first + MOST_PIECES {
            let verdict = pieces.get(i, keeper, self.form)?.verdict(prefix, hash);
            let is_last = i + 1 == pieces.index.len();
            if verdict.maybe || is_last || !pieces.index.separator_starts_with(i, prefix) {
                return Some(verdict);
            }
        }
        None
    }

    fn ask_prefix_of_blocks(
        &self,
        pieces: hold::Pieces<'_>,
        prefix: &[u8],
        hash: u64,
        keeper: &Keeper,
    ) -> Option<Verdict> {
        let mut i = pieces.place_of(prefix);
        let mut stats = ReadStats::default();
        let mut place = keeper.index.find(prefix, &keeper.table, &mut stats).ok()?;
        for _ in 0..MOST_PIECES {
            let (leaf, at) = place?;
            let offset = leaf.handle(at.slot)?.offset;
            let ask = |i| Some(pieces.get(i, keeper, self.form)?.verdict_of_block(offset, hash));
            let mut verdict = ask(i)?;
            if verdict.is_none() {
                // The block is the first of the next piece.
                i += 1;
                verdict = ask(i)?;
            }
            let verdict = verdict?;
            if verdict.maybe || !leaf.separator_starts_with(at.slot, prefix) {
                return Some(verdict);
            }
            place = keeper.index.next(at, &keeper.table, &mut stats).ok()?;
            if place.is_none() {
                return Some(verdict);
            }
        }
        None
    }

    /// What the filter of the block says that a search for `key` arrives at.
    fn ask_block(
        &self,
        top: &Cell<Pinned>,
        key: &[u8],
        hash: u64,
        keeper: &Keeper,
    ) -> Option<Verdict> {
        let mut stats = ReadStats::default();
        let (leaf, at) = keeper.index.find(key, &keeper.table, &mut stats).ok()??;
        let offset = leaf.handle(at.slot)?.offset;
        self.with_pieces(top, keeper, |pieces| {
            pieces.get(pieces.place_of(key), keeper, self.form)?.verdict_of_block(offset, hash)
        })
    }

    /// As [`ask`](Self::ask) for many keys: an answer for each.
    pub(super) fn ask_many(
        &self,
        keys: &[&[u8]],
        hashes: &[u64],
        answers: &mut Answers,
        keeper: &Keeper,
    ) {
        let asked = match &self.pieces {
            Pieces::Whole(cell) => {
                let piece = cell.get(keeper, self.form, || Some(self.whole()));
                piece.map(|piece| piece.answer(keys, hashes, answers))
            }
            Pieces::Cut { .. } if self.said.shape == FilterShape::PerBlock => {
                for (key, hash) in keys.iter().zip(hashes) {
                    answers.add_one(self.ask(key, *hash, keeper));
                }
                Some(())
            }
            Pieces::Cut { top } => self.with_pieces(top, keeper, |pieces| {
                self.ask_many_of_pieces(pieces, keys, hashes, answers, keeper);
                Some(())
            }),
        };
        if asked.is_none() {
            answers.add_unfiltered(keys.len());
        }
    }

    /// Asks neighbours of one piece together.
    fn ask_many_of_pieces(
        &self,
        pieces: hold::Pieces<'_>,
        mut keys: &[&[u8]],
        mut hashes: &[u64],
        answers: &mut Answers,
        keeper: &Keeper,
    ) {
        while let Some(first) = keys.first() {
            let i = pieces.place_of(first);
            let count = keys.iter().take_while(|key| pieces.place_of(key) == i).count();
            let (those, later) = keys.split_at(count);
            let (hashes_of_those, later_hashes) = hashes.split_at(count);
            match pieces.get(i, keeper, self.form) {
                Some(piece) => piece.answer(those, hashes_of_those, answers),
                None => answers.add_unfiltered(count),
            }
            (keys, hashes) = (later, later_hashes);
        }
    }

    /// What the part is; `None` if it cannot be used. Reads a whole filter; of a cut one the top,
    /// the directory says the rest.
    pub(super) fn facts(&self, keeper: &Keeper) -> Option<FilterFacts> {
        match &self.pieces {
            Pieces::Whole(cell) => {
                let read;
                let held = cell.get(keeper, self.form, || Some(self.whole()));
                let is_held = held.is_some();
                let piece = match held.as_deref() {
                    Some(piece) => piece,
                    None => {
                        read = keeper.read(self.whole(), self.form).ok()?;
                        &read
                    }
                };
                let filter = match piece {
                    Piece::Filter(filter) => filter,
                    Piece::User(filter) => {
                        return Some(FilterFacts { is_held, ..self.user_facts(filter) });
                    }
                    Piece::Small(_) | Piece::Top(_) => return None,
                };
                Some(FilterFacts {
                    kind: filter.kind().into(),
                    bits_asked: filter.requested_bits_per_key(),
                    bits_stored: filter.bits_per_key(),
                    keys: filter.keys(),
                    is_of_prefixes: self.said.role == FilterRole::Prefixes,
                    is_fallback: self.kind != filter.kind(),
                    probes: filter.probes(),
                    expected: filter.expected_fpr(),
                    bytes: filter.memory_bytes() as u64,
                    is_held,
                })
            }
            Pieces::Cut { .. } => {
                keeper.read(self.top_place(), self.top_form()).ok()?;
                let bits_asked = self.said.spec.parse::<FilterSpec>().ok()?.bits_per_key();
                let bytes = self.said.bytes - self.said.top_bytes;
                let keys = self.said.keys;
                let bits_stored = if keys == 0 { 0.0 } else { bytes as f64 * 8.0 / keys as f64 };
                let probes = match self.kind {
                    FilterLabel::Own(FilterKind::Standard) => {
                        theory::best_standard_probes(bits_asked)
                    }
                    FilterLabel::Own(FilterKind::Blocked) => {
                        theory::best_blocked_probes(bits_asked)
                    }
                    FilterLabel::Own(FilterKind::Paired) => theory::best_paired_probes(bits_asked),
                    _ => 0,
                };
                Some(FilterFacts {
                    kind: self.kind,
                    bits_asked,
                    bits_stored,
                    keys,
                    is_of_prefixes: self.said.role == FilterRole::Prefixes,
                    is_fallback: false,
                    probes,
                    expected: self.said.expected_fpr,
                    bytes,
                    is_held: true,
                })
            }
        }
    }

    /// What a user's filter is, as it says itself and as the directory does.
    fn user_facts(&self, filter: &OpenUserFilter) -> FilterFacts {
        let FilterPart { keys, bytes, .. } = self.said;
        FilterFacts {
            kind: FilterLabel::User,
            bits_stored: if keys == 0 { 0.0 } else { bytes as f64 * 8.0 / keys as f64 },
            keys,
            expected: filter.expected_fpr(),
            bytes: filter.memory_bytes() as u64,
            is_held: true,
            ..FilterFacts::NONE
        }
    }

    /// Reads every piece, so that what is wrong with any is noted.
    ///
    /// # Errors
    /// [`Error::Io`] where a piece could not be read.
    pub(super) fn check(&self, keeper: &Keeper) -> Result<(), Error> {
        let read = |handle, form| match keeper.read(handle, form) {
            Ok(piece) => Ok(Some(piece)),
            Err(Unread::Failed(error)) => Err(error),
            Err(Unread::Useless(state)) => {
                keeper.note(state);
                Ok(None)
            }
        };
        if let Pieces::Whole(_) = &self.pieces {
            read(self.whole(), self.form)?;
        } else if let Some(Piece::Top(top)) = read(self.top_place(), self.top_form())? {
            for handle in top.handles() {
                read(handle, self.form)?;
            }
        }
        Ok(())
    }

    /// Takes its pieces out of the cache.
    pub(super) fn evict(&self, keeper: &Keeper) {
        let forget = |offset| keeper.source.cache.remove(keeper.source.number, offset);
        match &self.pieces {
            Pieces::Whole(_) => forget(self.offset),
            Pieces::Cut { top } => {
                // Of a part whose top is not here, most pieces have gone as well.
                let offset = self.top_place().offset;
                let source = &keeper.source;
                let cached = source.cache.piece(source.number, offset);
                let held = top.pinned().or(cached.as_deref().map(CachedPiece::piece));
                if let Some(Piece::Top(top)) = held {
                    top.handles().for_each(|handle| forget(handle.offset));
                }
                forget(offset);
            }
        }
    }

    /// Bytes that it has pinned.
    pub(super) fn pinned_bytes(&self) -> u64 {
        match &self.pieces {
            Pieces::Whole(cell) => cell.pinned_bytes(),
            Pieces::Cut { top } => {
                let of_pieces = match top.pinned() {
                    Some(Piece::Top(pieces)) => pieces.pinned_bytes(),
                    _ => 0,
                };
                top.pinned_bytes() + of_pieces
            }
        }
    }

    fn whole(&self) -> Handle {
        Handle { offset: self.offset, bytes: self.said.bytes as usize }
    }

    fn top_place(&self) -> Handle {
        let before = self.said.bytes - self.said.top_bytes;
        Handle { offset: self.offset + before, bytes: self.said.top_bytes as usize }
    }

    fn top_form(&self) -> Form {
        Form::Top { first: self.offset }
    }

    /// What `ask` makes of the pieces of a part that is cut; `None` where its top cannot be used.
    fn with_pieces<T>(
        &self,
        top: &Cell<Pinned>,
        keeper: &Keeper,
        ask: impl FnOnce(hold::Pieces<'_>) -> Option<T>,
    ) -> Option<T> {
        let top = top.get(keeper, self.top_form(), || Some(self.top_place()))?;
        ask(top.pieces()?)
    }
}
