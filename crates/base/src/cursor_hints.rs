//! What a merge asks of a cursor beside its movements, to be fast.
//!
//! Each method has an answer that is always right, so a cursor implements those that it has a
//! shorter way for.

use crate::{Cursor, InternalKey, KeyHead, Slice};

/// Which entry is sought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Aim {
    /// As by [`Cursor::seek`].
    From,
    /// As by [`Cursor::seek_before`].
    Before,
}

/// A stage of [`CursorHints::prefetch_seek`], in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// What is sought is looked up.
    Find,
    /// The memory that leads to it is prefetched.
    Reach,
    /// The memory that holds it is prefetched.
    Prefetch,
}

/// Shorter ways than those of [`Cursor`].
pub trait CursorHints: Cursor {
    /// Prefetches what a [`seek`](Cursor::seek) or [`seek_before`](Cursor::seek_before) to `key`
    /// reads, which comes next. Where several cursors are sought at once, each stage of all of them
    /// comes before the next one of any. Returns whether there was anything to prefetch. Where the
    /// cursor stands until that seek is left open; no answer depends on it otherwise.
    #[inline]
    fn prefetch_seek(&mut self, _key: &[u8], _aim: Aim, _stage: Stage) -> bool {
        false
    }

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

    /// The entry the cursor stands on, without its value.
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

    /// The value of the entry the cursor stands on: shared, or copied. Empty when the cursor stands
    /// off the end.
    fn value(&self) -> Slice {
        let copied = || self.entry().map_or_else(Slice::default, |entry| Slice::from(entry.value));
        self.shared_value().unwrap_or_else(copied)
    }
}
