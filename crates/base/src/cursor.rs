//! The one way to walk over entries: memtables, blocks, tables, levels and merges of them.

use crate::{EntryRef, InternalKey, KeyHead, SeqNo, Slice};

/// Which entry is sought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Aim {
    /// As by [`Cursor::seek`].
    From,
    /// As by [`Cursor::seek_before`].
    Before,
}

/// A stage of [`Cursor::await_seek`], in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// What is wanted is looked for.
    Find,
    /// Where it lies is asked for.
    Reach,
    /// What is there is asked for.
    Ask,
}

/// An ordered walk over entries in the order of [`compare_internal`](crate::compare_internal).
///
/// A cursor stands on an entry or off the end (a fresh cursor stands off the end). Every movement
/// that fails leaves it off the end and returns the error: an error is never mistaken for "no
/// more entries". `next` and `prev` may be called only on an entry; off the end they do nothing.
/// A cursor owns what it reads from, so it carries no lifetime and may be sent to another thread.
pub trait Cursor {
    /// What may go wrong while moving.
    type Error;

    /// Moves to the first entry.
    fn seek_to_first(&mut self) -> Result<(), Self::Error>;

    /// Moves to the last entry.
    fn seek_to_last(&mut self) -> Result<(), Self::Error>;

    /// Moves to the first entry at or behind (`key`, `seqno`): the newest version of `key` that
    /// is not newer than `seqno`, or else the first version of the next key.
    fn seek(&mut self, key: &[u8], seqno: SeqNo) -> Result<(), Self::Error>;

    /// Moves to the last entry whose key is smaller than `key`.
    fn seek_before(&mut self, key: &[u8]) -> Result<(), Self::Error>;

    /// Says that [`seek`](Self::seek) or [`seek_before`](Self::seek_before) to `key` is next, so
    /// that what that waits for in memory is asked for. Where several cursors are sought at once,
    /// each stage of all of them comes before the next one of any. Returns whether there was
    /// anything to ask for. Where the cursor stands until that seek is left open; no answer depends
    /// on it otherwise.
    #[inline]
    fn await_seek(&mut self, _key: &[u8], _aim: Aim, _stage: Stage) -> bool {
        false
    }

    /// Moves one entry forward.
    fn next(&mut self) -> Result<(), Self::Error>;

    /// Moves one entry backward.
    fn prev(&mut self) -> Result<(), Self::Error>;

    /// Moves one entry forward and returns where it stands then, if the next entry is at hand:
    /// nothing has to be read or decided for it, and nothing can fail. `None` if it has not moved,
    /// which says nothing about whether there is a next entry.
    #[inline]
    fn next_at_hand(&mut self) -> Option<KeyHead> {
        None
    }

    /// As [`next_at_hand`](Self::next_at_hand), backward.
    #[inline]
    fn prev_at_hand(&mut self) -> Option<KeyHead> {
        None
    }

    /// The entry the cursor stands on.
    fn entry(&self) -> Option<EntryRef<'_>>;

    /// The entry the cursor stands on, but for its value.
    #[inline]
    fn internal_key(&self) -> Option<InternalKey<'_>> {
        self.entry().map(|entry| entry.internal_key())
    }

    /// The head of the entry the cursor stands on.
    #[inline]
    fn head(&self) -> Option<KeyHead> {
        self.internal_key().map(|internal| internal.head())
    }

    /// Whether it is known without a movement that the entry before this one has another key, or
    /// that there is none. False where that would have to be found out.
    #[inline]
    fn begins_key(&self) -> bool {
        false
    }

    /// The value of the entry the cursor stands on, sharing memory with its source where that is
    /// possible, and where the source is no larger than the value deserves.
    fn shared_value(&self) -> Option<Slice> {
        None
    }

    /// The value of the entry the cursor stands on: shared, or copied.
    ///
    /// Empty when the cursor stands off the end.
    fn value(&self) -> Slice {
        let copied = || self.entry().map_or_else(Slice::default, |entry| Slice::from(entry.value));
        self.shared_value().unwrap_or_else(copied)
    }
}
