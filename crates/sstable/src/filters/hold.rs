//! Where the pieces of filters are held: in the table, or in the block cache.
//!
//! 1. A *piece* is what one block of the filter region decodes to. It is read when it is first
//!    asked for, never when the table is opened.
//! 2. The table's [`FilterHost`](crate::FilterHost) says whether its bytes may be *pinned*: held as long as the table
//!    is open, found by one load, without a lock. They are counted before they are allocated, by
//!    what they take at most, then by what they do take, and given back after they are freed.
//! 3. The places of a part's pieces belong to its top, come and go with it, and are counted with it.
//!    So pieces are pinned only where their top is, and an evicted top gives no pinned bytes back.
//! 4. Otherwise the piece lies in the block cache like any block, and is evicted like one. A piece
//!    that the cache cannot keep, or that would be more of filters than may be held
//!    ([`FilterMemory`](crate::FilterMemory)), is not read at all: reading it again for each question
//!    would cost more than the block that it might save.
//! 5. A piece that cannot be used is remembered as such: it answers "maybe", and the host is told
//!    once a table. One that the file system failed to read answers "maybe" this once, and is read
//!    again for the next question: that says nothing of the piece.

use std::borrow::Borrow;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use trommel_filter::{Filter, SmallFilters};

use super::keeper::{Form, Keeper, Unread};
use crate::cache::CachedPiece;
use crate::filter_host::{FilterState, PinCharge};
use crate::format::Handle;
use crate::index::Index;
use crate::source::Source;
use crate::user_filter::OpenUserFilter;
use crate::verdict::{Answers, Verdict};

/// What one block of the filter region holds.
#[derive(Debug)]
pub(crate) enum Piece {
    /// A filter, of the whole table or of a range of its keys.
    Filter(Filter),
    /// A filter for each data block of a range of keys.
    Small(SmallFilters),
    /// Which piece is that of a key.
    Top(Top),
    /// A filter of a user's making.
    User(OpenUserFilter),
}

impl Piece {
    /// What the filter says of the key whose hash this is.
    #[inline]
    pub(super) fn verdict(&self, key: &[u8], hash: u64) -> Verdict {
        match self {
            Self::Filter(filter) => Verdict::of(filter, hash),
            Self::User(filter) => filter.verdict(key, hash),
            Self::Small(_) | Self::Top(_) => Verdict::UNFILTERED,
        }
    }

    /// What the filter says of each of many keys.
    pub(super) fn answer(&self, keys: &[&[u8]], hashes: &[u64], answers: &mut Answers) {
        if let Self::Filter(filter) = self {
            let (kind, expected) = (filter.kind().into(), filter.expected_fpr());
            let verdict = Verdict { maybe: true, kind, expected };
            filter.may_contain_many(hashes, answers.add(hashes.len(), verdict));
            return;
        }
        for (key, hash) in keys.iter().zip(hashes) {
            answers.add_one(self.verdict(key, *hash));
        }
    }

    /// What the filter of the data block at `offset` says; `None` if it is not here.
    pub(super) fn verdict_of_block(&self, offset: u64, hash: u64) -> Option<Verdict> {
        let Self::Small(filters) = self else { return None };
        let maybe = filters.may_contain_hash(offset, hash)?;
        Some(Verdict { maybe, kind: filters.kind().into(), expected: filters.expected_fpr() })
    }

    /// Bytes of memory that it takes, of which `stored` are in the file: at least what a user says
    /// of his.
    fn memory_bytes(&self, stored: usize) -> u64 {
        let beside = match self {
            Self::Filter(filter) => filter.memory_bytes() - size_of::<Filter>(),
            Self::Small(filters) => filters.memory_bytes() - size_of::<SmallFilters>(),
            Self::Top(top) => top.index.heap_bytes() + size_of_val(&*top.cells),
            Self::User(filter) => filter.memory_bytes().max(stored),
        };
        (size_of::<Pinned>() + beside) as u64
    }
}

/// Which piece is that of a key, and their places in memory.
#[derive(Debug)]
pub(crate) struct Top {
    index: Index,
    cells: Box<[Cell<Box<Pinned>>]>,
}

impl Top {
    /// The top that says `index`.
    pub(super) fn new(index: Index) -> Self {
        let cells = std::iter::repeat_with(Cell::default).take(index.len()).collect();
        Self { index, cells }
    }

    /// Where its pieces lie.
    pub(super) fn handles(&self) -> impl Iterator<Item = Handle> {
        (0..self.index.len()).map_while(|i| self.index.handle(i))
    }

    /// Bytes that its pieces have pinned.
    pub(super) fn pinned_bytes(&self) -> u64 {
        self.cells.iter().map(Cell::pinned_bytes).sum()
    }
}

/// A piece that stays as long as its table is open. (The piece is dropped before its charge.)
#[derive(Debug)]
pub(super) struct Pinned {
    piece: Piece,
    charge: PinCharge,
}

/// A piece to ask.
pub(super) enum Got<'a> {
    Pinned(&'a Piece),
    Cached(Arc<CachedPiece>),
}

impl Deref for Got<'_> {
    type Target = Piece;

    #[inline]
    fn deref(&self) -> &Piece {
        match self {
            Self::Pinned(piece) => piece,
            Self::Cached(cached) => cached.piece(),
        }
    }
}

impl Got<'_> {
    /// The pieces, if this is their top.
    #[inline]
    pub(super) fn pieces(&self) -> Option<Pieces<'_>> {
        let Piece::Top(Top { index, cells }) = &**self else { return None };
        Some(Pieces { index, cells, are_pinned: matches!(self, Self::Pinned(_)) })
    }
}

/// The pieces of a part, as long as their top is held.
#[derive(Clone, Copy)]
pub(super) struct Pieces<'a> {
    pub(super) index: &'a Index,
    cells: &'a [Cell<Box<Pinned>>],
    /// Whether they may be: as long as their top is.
    are_pinned: bool,
}

impl<'a> Pieces<'a> {
    /// Piece `i`, from where it is held or from the file; `None` if it cannot be used or held.
    #[inline]
    pub(super) fn get(self, i: usize, keeper: &Keeper, form: Form) -> Option<Got<'a>> {
        let cell = self.cells.get(i)?;
        match cell.pinned() {
            Some(piece) => Some(Got::Pinned(piece)),
            None => cell.fetch(keeper, form, self.index.handle(i)?, self.are_pinned),
        }
    }

    /// Which piece a search for `key` arrives at.
    #[inline]
    pub(super) fn place_of(self, key: &[u8]) -> usize {
        self.index.find(key).min(self.index.len() - 1)
    }
}

/// The place of one piece in the table's memory. `P` is [`Pinned`] itself where there is one cell,
/// and a box around it where there are many.
#[derive(Debug)]
pub(super) struct Cell<P> {
    pinned: OnceLock<P>,
    useless: AtomicBool,
    /// Whether the host was told that it can be held nowhere.
    is_homeless: AtomicBool,
}

impl<P> Default for Cell<P> {
    fn default() -> Self {
        Self {
            pinned: OnceLock::new(),
            useless: AtomicBool::new(false),
            is_homeless: AtomicBool::new(false),
        }
    }
}

impl<P: Borrow<Pinned> + From<Pinned>> Cell<P> {
    /// The piece, if it is pinned already.
    #[inline]
    pub(super) fn pinned(&self) -> Option<&Piece> {
        self.pinned.get().map(|pinned| &pinned.borrow().piece)
    }

    /// The piece, from where it is held or from the file; `None` if it cannot be used or held.
    #[inline]
    pub(super) fn get(
        &self,
        keeper: &Keeper,
        form: Form,
        handle: impl FnOnce() -> Option<Handle>,
    ) -> Option<Got<'_>> {
        match self.pinned() {
            Some(piece) => Some(Got::Pinned(piece)),
            None => self.fetch(keeper, form, handle()?, true),
        }
    }

    /// As `get`, of a piece that is not pinned, and that only `may_pin` lets be.
    #[cold]
    fn fetch(&self, keeper: &Keeper, form: Form, handle: Handle, may_pin: bool) -> Option<Got<'_>> {
        if self.useless.load(Ordering::Relaxed) {
            return None;
        }
        let bytes = most_memory(handle, form);
        // What could be pinned is given back at once: whoever has the turn takes it.
        if !may_pin || keeper.charge(bytes).is_none() {
            let cache = &keeper.source.cache;
            if let Some(cached) = cache.piece(keeper.source.number, handle.offset) {
                return Some(Got::Cached(cached));
            }
            if !cache.can_keep(bytes) || cache.hold(bytes).is_none() {
                self.tell_homeless(keeper);
                return None;
            }
        }
        let _turn = (!matches!(form, Form::User)).then(|| keeper.turn(handle.offset));
        self.load(keeper, form, handle, may_pin)
    }

    /// Brings the piece to memory, unless somebody just did.
    fn load(&self, keeper: &Keeper, form: Form, handle: Handle, may_pin: bool) -> Option<Got<'_>> {
        if let Some(piece) = self.pinned() {
            return Some(Got::Pinned(piece));
        }
        let Source { cache, number, .. } = &*keeper.source;
        let most = most_memory(handle, form);
        if let Some(charge) = may_pin.then(|| keeper.charge(most)).flatten() {
            let piece = self.read(keeper, form, handle)?;
            let charge = self.charge_all(keeper, charge, piece.memory_bytes(handle.bytes))?;
            cache.remove(*number, handle.offset);
            let _ = self.pinned.set(Pinned { piece, charge }.into());
            return self.pinned().map(Got::Pinned);
        }
        if let Some(cached) = cache.piece(*number, handle.offset) {
            return Some(Got::Cached(cached));
        }
        let mut hold = cache.can_keep(most).then(|| cache.hold(most)).flatten()?;
        let piece = self.read(keeper, form, handle)?;
        let bytes = piece.memory_bytes(handle.bytes);
        if !cache.can_keep(bytes) {
            self.refuse(keeper, bytes);
            return None;
        }
        if !hold.change_to(bytes) {
            return None;
        }
        Some(Got::Cached(cache.insert_piece(*number, handle.offset, piece, hold)))
    }

    /// Tells the host, once, that the piece can be held nowhere.
    fn tell_homeless(&self, keeper: &Keeper) {
        if !self.is_homeless.load(Ordering::Relaxed)
            && !self.is_homeless.swap(true, Ordering::Relaxed)
        {
            keeper.tell_not_held();
        }
    }

    fn read(&self, keeper: &Keeper, form: Form, handle: Handle) -> Option<Piece> {
        match keeper.read(handle, form) {
            Ok(piece) => Some(piece),
            Err(Unread::Failed(_)) => None,
            Err(Unread::Useless(state)) => {
                self.useless.store(true, Ordering::Relaxed);
                keeper.note(state);
                None
            }
        }
    }

    /// A charge for the `bytes` that the piece turns out to take.
    fn charge_all(&self, keeper: &Keeper, mut charge: PinCharge, bytes: u64) -> Option<PinCharge> {
        if bytes <= charge.bytes() {
            charge.shrink_to(bytes);
            return Some(charge);
        }
        drop(charge);
        let charge = keeper.charge(bytes);
        if charge.is_none() {
            self.refuse(keeper, bytes);
        }
        charge
    }

    /// Gives up on a user's filter that is larger than what may be held.
    fn refuse(&self, keeper: &Keeper, bytes: u64) {
        self.useless.store(true, Ordering::Relaxed);
        let why = format!("it takes {bytes} bytes of memory, more than it may have");
        keeper.note(FilterState::Foreign(why));
    }

    /// Bytes that it has pinned.
    pub(super) fn pinned_bytes(&self) -> u64 {
        self.pinned.get().map_or(0, |pinned| pinned.borrow().charge.bytes())
    }
}

/// Bytes that a filter that is not cut takes in memory beyond those in the file, at most.
pub const FILTER_OVERHEAD_BYTES: u64 = size_of::<Pinned>() as u64;

/// What a piece of our own takes in memory, at most: a filter no more than it takes in the file, and
/// a top, whose cells are counted with it, less than four times as much.
fn most_memory(handle: Handle, form: Form) -> u64 {
    let times = if matches!(form, Form::Top { .. }) { 4 } else { 1 };
    (times * handle.bytes + size_of::<Pinned>()) as u64
}
