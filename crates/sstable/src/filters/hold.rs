//! Where the pieces of filters are held: in the table, or in the block cache.
//!
//! 1. A *piece* is what one block of the filter region decodes to. It is read when it is first
//!    asked for, never when the table is opened.
//! 2. The table's [`FilterHost`] says whether its bytes may be *pinned*: held as long as the table
//!    is open, found by one load, without a lock. They are counted before they are allocated and
//!    given back after they are freed.
//! 3. Otherwise the piece lies in the block cache like any block, and is evicted like one. A piece
//!    that the cache cannot keep is not read at all: reading it again for each question would cost
//!    more than the block that it might save.
//! 4. A piece that cannot be used is remembered as such: it answers "maybe", and the host is told
//!    once a table. One that the file system failed to read answers "maybe" this once, and is read
//!    again for the next question: that says nothing of the piece.

use std::borrow::Borrow;
use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use trommel_filter::{DecodeError, Filter, SmallFilters};
use trommel_vfs::advise_huge_pages;

use super::user::OpenUserFilter;
use super::{Answers, FilterState, UserFilterReader, Verdict};
use crate::Error;
use crate::cache::CachedPiece;
use crate::format::{BlockKind, Handle};
use crate::index::{Index, IndexTree};
use crate::source::Source;

/// Who allows a table's filters their memory, and hears of those that cannot be used.
pub trait FilterHost: Send + Sync + fmt::Debug {
    /// Whether `bytes` more may be held for as long as the table is open. If so they count as held
    /// from now on.
    fn pin(&self, bytes: u64) -> bool;

    /// `bytes` that were pinned are held no longer.
    fn unpin(&self, bytes: u64);

    /// A filter, or a piece of one, was asked for and can be held nowhere: it may not be pinned,
    /// and takes more than half a shard of the block cache. Said once for each piece as long as
    /// the table is open; the table answers "maybe" in its place.
    fn not_held(&self) {}

    /// A filter of the table cannot be used; said once.
    fn unusable(&self, state: &FilterState);

    /// Who reads the filters of users that are stored in the table, if anybody can.
    fn user_filters(&self) -> Option<Arc<dyn UserFilterReader>> {
        None
    }

    /// Whether the table's filters are to be used at all. Asked when the table is opened.
    fn wants_filters(&self) -> bool {
        true
    }
}

const NO_READER: &str = "its policy is not here";

/// What one block of the filter region holds.
#[derive(Debug)]
pub(crate) enum Piece {
    /// A filter, of the whole table or of a range of its keys.
    Filter(Filter),
    /// A filter for each data block of a range of keys.
    Small(SmallFilters),
    /// Which piece is that of a key.
    Top(Index),
    /// A filter of a user's making.
    User(OpenUserFilter),
}

/// What a filter of our own says of the key whose hash this is.
#[inline]
pub(super) fn verdict_of(filter: &Filter, hash: u64) -> Verdict {
    Verdict {
        maybe: filter.may_contain_hash(hash),
        kind: filter.kind().into(),
        expected: filter.expected_fpr(),
    }
}

impl Piece {
    /// What the filter says of the key whose hash this is.
    #[inline]
    pub(super) fn verdict(&self, key: &[u8], hash: u64) -> Verdict {
        match self {
            Self::Filter(filter) => verdict_of(filter, hash),
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
}

/// What all pieces of a table share.
#[derive(Debug)]
pub(super) struct Keeper {
    pub(super) source: Arc<Source>,
    pub(super) index: Arc<IndexTree>,
    host: Option<Arc<dyn FilterHost>>,
    pub(super) reader: Option<Arc<dyn UserFilterReader>>,
    /// The first thing found wrong.
    fault: OnceLock<FilterState>,
    /// The first thing that is not used and not wrong.
    unused: OnceLock<FilterState>,
}

impl Keeper {
    /// Without a host everything is pinned.
    pub(super) fn new(
        source: Arc<Source>,
        index: Arc<IndexTree>,
        host: Option<Arc<dyn FilterHost>>,
        reader: Option<Arc<dyn UserFilterReader>>,
    ) -> Self {
        Self { source, index, host, reader, fault: OnceLock::new(), unused: OnceLock::new() }
    }

    /// What is wrong; where nothing is, what is not used.
    pub(super) fn fault(&self) -> Option<&FilterState> {
        self.fault.get().or(self.unused.get())
    }

    #[cold]
    pub(super) fn note(&self, state: FilterState) {
        let place = match state {
            FilterState::Foreign(_) | FilterState::Unknown(_) | FilterState::Spared => &self.unused,
            _ => &self.fault,
        };
        if place.set(state).is_ok()
            && let (Some(host), Some(state)) = (&self.host, place.get())
        {
            host.unusable(state);
        }
    }

    fn charge(&self, bytes: u64) -> Option<Charge> {
        let allowed = self.host.as_ref().is_none_or(|host| host.pin(bytes));
        allowed.then(|| Charge { host: self.host.clone(), bytes })
    }

    /// Reads the piece at `handle` from the file.
    pub(super) fn read(&self, handle: Handle, form: Form) -> Result<Piece, Unread> {
        let kind = match form {
            Form::Filter | Form::Small | Form::User | Form::Foreign => BlockKind::Filter,
            Form::Top { .. } => BlockKind::FilterTop,
        };
        let payload = self.source.read_plain(handle, kind).map_err(|error| match error {
            Error::Io { .. } => Unread::Failed(error),
            Error::Unsupported { .. } => FilterState::Unknown(error.to_string()).into(),
            error => FilterState::Damaged(error.to_string()).into(),
        })?;
        Ok(self.decode(&payload, handle, form)?)
    }

    fn decode(&self, payload: &[u8], handle: Handle, form: Form) -> Result<Piece, FilterState> {
        match form {
            Form::Filter => Filter::decode_into(payload, advise_huge_pages)
                .map(Piece::Filter)
                .map_err(|error| refused(&error)),
            Form::Foreign => Err(FilterState::Foreign(NO_READER.into())),
            Form::User => {
                let reader =
                    self.reader.as_ref().ok_or_else(|| FilterState::Foreign(NO_READER.into()))?;
                OpenUserFilter::open(Arc::clone(reader), payload).map(Piece::User).map_err(|why| {
                    let name = reader.name();
                    FilterState::Foreign(format!("the policy \"{name}\" does not take it: {why}"))
                })
            }
            Form::Small => {
                SmallFilters::decode(payload).map(Piece::Small).map_err(|error| refused(&error))
            }
            Form::Top { first } => match Index::decode(payload, handle.offset) {
                Ok(index) if index.len() > 0 && index.range() == (first, handle.offset) => {
                    Ok(Piece::Top(index))
                }
                Ok(_) => Err(FilterState::Damaged("its top does not cover its pieces".into())),
                Err(fault) => {
                    let error = fault.at(&self.source.path, handle.offset);
                    Err(FilterState::Damaged(error.to_string()))
                }
            },
        }
    }
}

/// Why a piece is not here.
#[derive(Debug)]
pub(super) enum Unread {
    /// The file system failed to read it: another time it may not.
    Failed(Error),
    /// What was read cannot be used, and never will be.
    Useless(FilterState),
}

impl From<FilterState> for Unread {
    fn from(state: FilterState) -> Self {
        Self::Useless(state)
    }
}

fn refused(error: &DecodeError) -> FilterState {
    match error {
        DecodeError::Unknown { .. } => FilterState::Unknown(error.to_string()),
        _ => FilterState::Damaged(error.to_string()),
    }
}

/// As what a block of the region is read.
#[derive(Debug, Clone, Copy)]
pub(super) enum Form {
    Filter,
    /// Small filters, one a data block.
    Small,
    /// A filter of the user's whose reader is here.
    User,
    /// One that nobody here can ask: no more of it is known than that its checksum is right.
    Foreign,
    /// The top of the pieces that lie from `first` up to it.
    Top {
        first: u64,
    },
}

/// Bytes that count as pinned; given back when dropped.
#[derive(Debug)]
struct Charge {
    host: Option<Arc<dyn FilterHost>>,
    bytes: u64,
}

impl Drop for Charge {
    fn drop(&mut self) {
        if let Some(host) = &self.host {
            host.unpin(self.bytes);
        }
    }
}

/// A piece that stays as long as its table is open. (The piece is dropped before its charge.)
#[derive(Debug)]
pub(super) struct Pinned {
    piece: Piece,
    charge: Charge,
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
            None => self.fetch(keeper, form, handle()?),
        }
    }

    #[cold]
    fn fetch(&self, keeper: &Keeper, form: Form, handle: Handle) -> Option<Got<'_>> {
        if self.useless.load(Ordering::Relaxed) {
            return None;
        }
        let Source { cache, number, .. } = &*keeper.source;
        let bytes = weight(handle);
        if let Some(charge) = keeper.charge(bytes) {
            let piece = self.read(keeper, form, handle)?;
            let charge = self.charge_rest(keeper, charge, &piece)?;
            cache.remove(*number, handle.offset);
            // Two readers may load the same piece; one of the two is kept.
            let _ = self.pinned.set(Pinned { piece, charge }.into());
            return self.pinned.get().map(|pinned| Got::Pinned(&pinned.borrow().piece));
        }
        if let Some(cached) = cache.piece(*number, handle.offset) {
            return Some(Got::Cached(cached));
        }
        if !cache.can_keep(bytes) {
            if let Some(host) = &keeper.host
                && !self.is_homeless.load(Ordering::Relaxed)
                && !self.is_homeless.swap(true, Ordering::Relaxed)
            {
                host.not_held();
            }
            return None;
        }
        let piece = self.read(keeper, form, handle)?;
        let bytes = bytes.max(memory(&piece));
        if !cache.can_keep(bytes) {
            self.refuse(keeper, bytes);
            return None;
        }
        Some(Got::Cached(cache.insert_piece(*number, handle.offset, piece, bytes)))
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

    /// A charge for all of the piece, where it turns out to take more than its bytes in the file.
    fn charge_rest(&self, keeper: &Keeper, charge: Charge, piece: &Piece) -> Option<Charge> {
        let bytes = memory(piece);
        if bytes <= charge.bytes {
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
        self.pinned.get().map_or(0, |pinned| pinned.borrow().charge.bytes)
    }
}

/// What a user's filter says that it takes; of our own, [`weight`] knows.
fn memory(piece: &Piece) -> u64 {
    match piece {
        Piece::User(filter) => filter.memory_bytes() as u64,
        Piece::Filter(_) | Piece::Small(_) | Piece::Top(_) => 0,
    }
}

/// What a piece takes in memory, at most: a filter no more than it takes in the file, and a decoded
/// top, whose cells are counted with it, less than three times as much.
fn weight(handle: Handle) -> u64 {
    (handle.bytes + size_of::<Pinned>()) as u64
}
