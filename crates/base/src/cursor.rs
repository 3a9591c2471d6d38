//! The interface for iterating over entries: of memtables, blocks, tables, levels and merges of
//! them.

use crate::{EntryRef, SeqNo};

/// A position among entries in the order of [`compare_internal`](crate::compare_internal).
///
/// A cursor is at an entry or not positioned; a new cursor is not positioned. A failed move leaves
/// it not positioned and returns the error: an error is never mistaken for the end of the entries.
/// `next` and `prev` may be called only at an entry; otherwise they do nothing. A cursor owns its
/// source, so it carries no lifetime and may be sent to another thread.
pub trait Cursor {
    /// The error of a failed move.
    type Error;

    /// Moves to the first entry.
    fn seek_to_first(&mut self) -> Result<(), Self::Error>;

    /// Moves to the last entry.
    fn seek_to_last(&mut self) -> Result<(), Self::Error>;

    /// Moves to the first entry at or after (`key`, `seqno`): the newest version of `key` that is
    /// not newer than `seqno`, or else the first version of the next key.
    fn seek(&mut self, key: &[u8], seqno: SeqNo) -> Result<(), Self::Error>;

    /// Moves to the last entry whose key is smaller than `key`.
    fn seek_before(&mut self, key: &[u8]) -> Result<(), Self::Error>;

    /// Moves one entry forward.
    fn next(&mut self) -> Result<(), Self::Error>;

    /// Moves one entry backward.
    fn prev(&mut self) -> Result<(), Self::Error>;

    /// The current entry.
    fn entry(&self) -> Option<EntryRef<'_>>;
}
