//! The one way to iterate over entries: of memtables, blocks, tables, levels and merges of them.

use crate::{EntryRef, SeqNo};

/// A position among entries in the order of [`compare_internal`](crate::compare_internal).
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

    /// Moves one entry forward.
    fn next(&mut self) -> Result<(), Self::Error>;

    /// Moves one entry backward.
    fn prev(&mut self) -> Result<(), Self::Error>;

    /// The entry the cursor stands on.
    fn entry(&self) -> Option<EntryRef<'_>>;
}
