//! The optional methods of a cursor that make a merge fast.
//!
//! Each method has a default that is always correct. A cursor implements those for which it has a
//! shortcut.

use crate::{Cursor, InternalKey, KeyHead, Slice};

/// The target of a seek, relative to its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Aim {
    /// The target of [`Cursor::seek`].
    From,
    /// The target of [`Cursor::seek_before`].
    Before,
}

/// A stage of [`CursorHints::prefetch_seek`], in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Locate the target, and prefetch the memory that leads to it.
    Find,
    /// Prefetch the memory that holds the target.
    Prefetch,
}

/// Faster alternatives to the methods of [`Cursor`].
pub trait CursorHints: Cursor {
    /// Prefetches the memory that the following [`seek`](Cursor::seek) or
    /// [`seek_before`](Cursor::seek_before) to `key` will read. To seek several cursors at once,
    /// call each stage on all of them before the next stage on any. Returns whether there was
    /// anything to prefetch. The cursor's position until that seek is unspecified; results do not
    /// depend on this call otherwise.
    #[inline]
    fn prefetch_seek(&mut self, _key: &[u8], _aim: Aim, _stage: Stage) -> bool {
        false
    }

    /// Moves one entry forward and returns the new head, if the next entry needs no read and no
    /// decision and cannot fail. Returns `None` if the cursor has not moved, which does not mean
    /// that there is no next entry.
    #[inline]
    fn next_at_hand(&mut self) -> Option<KeyHead> {
        None
    }

    /// Like [`next_at_hand`](Self::next_at_hand), backward.
    #[inline]
    fn prev_at_hand(&mut self) -> Option<KeyHead> {
        None
    }

    /// The current entry, without its value.
    #[inline]
    fn internal_key(&self) -> Option<InternalKey<'_>> {
        self.entry().map(|entry| entry.internal_key())
    }

    /// The head of the current entry.
    #[inline]
    fn head(&self) -> Option<KeyHead> {
        self.internal_key().map(|internal| internal.head())
    }

    /// Whether the previous entry is known, without a move, to have another key or not to exist.
    /// False if finding out needs a move.
    #[inline]
    fn begins_key(&self) -> bool {
        false
    }

    /// The value of the current entry, sharing memory with its source if that is possible and the
    /// source is not too large for the value.
    fn shared_value(&self) -> Option<Slice> {
        None
    }

    /// The value of the current entry: shared, or copied. Empty if the cursor is not positioned.
    fn value(&self) -> Slice {
        let copied = || self.entry().map_or_else(Slice::default, |entry| Slice::from(entry.value));
        self.shared_value().unwrap_or_else(copied)
    }
}
