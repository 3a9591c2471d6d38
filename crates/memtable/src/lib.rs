//! The newest writes, sorted, in memory.
//!
//! A [`Memtable`] takes entries from many threads at once while others read it. It only grows:
//! every version of every key stands in it under its own sequence number until the whole memtable
//! is dropped. Its order is that of [`trommel_base::compare_internal`].
//!
//! # How it is built
//! 1. Keys, values and nodes lie in an arena (module `arena`), taken from an [`ArenaPool`] and
//!    given back to it when the memtable is dropped.
//! 2. The order is a skip list (module `list`) of small nodes (module `node`): first 16 bytes of
//!    the key, sequence number, kind, and where the rest lies.
//! 3. Reads write nothing that other threads read: no lock, no reference count, no epoch.
//!
//! # Invariants
//! * (key, sequence number) is unique; [`Memtable::insert`] panics if it is not.
//! * An entry whose insert has returned is found by every read that starts later, in any thread
//!   that knows of it.
//! * Nothing is replaced or removed, so what a read has found stays valid as long as the memtable.
//!
//! The engine is the caller: its write path inserts, its read path gets, a flush walks a
//! [`MemtableCursor`].
//!
//! ```
//! use trommel_base::{Cursor, EntryKind};
//! use trommel_memtable::{ArenaPool, Memtable};
//!
//! let pool = ArenaPool::new(64 << 20);
//! let memtable = std::sync::Arc::new(Memtable::new(&pool));
//! memtable.insert(b"k", 1, EntryKind::Put, b"old");
//! memtable.insert(b"k", 2, EntryKind::Put, b"new");
//! assert_eq!(memtable.get(b"k", 9).unwrap().value, b"new");
//! assert_eq!(memtable.get(b"k", 1).unwrap().value, b"old");
//!
//! let mut cursor = memtable.cursor();
//! cursor.seek_to_first().unwrap();
//! assert_eq!(cursor.entry().unwrap().seqno, 2); // the newest version stands first
//! ```

#[expect(unsafe_code, reason = "claims of raw memory by many threads; argued block by block")]
mod arena;
#[expect(unsafe_code, reason = "links between nodes in the arena; argued block by block")]
mod list;
#[cfg(all(test, trommel_loom))]
mod models;
#[expect(unsafe_code, reason = "nodes that point into the arena; argued block by block")]
mod node;
#[cfg(test)]
mod tests;

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;

use trommel_base::{Cursor, EntryKind, EntryRef, SeqNo};

pub use arena::{ArenaPool, LARGEST_CHUNK};
use list::{EntryList, Position};

/// Bytes of a common prefix that are made use of.
const LONGEST_PREFIX: usize = 256;

/// Sorted entries in memory, written and read by many threads at once.
///
/// Dropping one gives its memory back chunk by chunk, whatever it holds.
pub struct Memtable {
    entries: EntryList,
}

impl Memtable {
    /// An empty memtable, which takes its memory from `pool` and gives it back when dropped.
    pub fn new(pool: &Arc<ArenaPool>) -> Self {
        Self::with_common_prefix(pool, &[])
    }

    /// An empty memtable that is fastest where keys begin with `prefix`.
    ///
    /// Any key may be inserted, and every answer is the same as without. But the first 16 bytes
    /// behind the prefix, not the first 16 of the key, are what most comparisons look at, which
    /// makes inserts and gets up to twice as fast where many keys share their first bytes. The
    /// [`Memtable::common_prefix`] of the memtable before is a good guess. Of a long prefix the
    /// first 256 bytes are used: it is memory that is held before there is a single entry.
    pub fn with_common_prefix(pool: &Arc<ArenaPool>, prefix: &[u8]) -> Self {
        let used = &prefix[..prefix.len().min(LONGEST_PREFIX)];
        Self { entries: EntryList::new(pool, used) }
    }

    /// What all keys begin with: the bytes that the first and the last have in common at their
    /// beginning. Empty if there is no key.
    pub fn common_prefix(self: &Arc<Self>) -> Vec<u8> {
        let mut first = self.cursor();
        let Ok(()) = first.seek_to_first();
        let mut last = self.cursor();
        let Ok(()) = last.seek_to_last();
        let (Some(first), Some(last)) = (first.entry(), last.entry()) else {
            return Vec::new();
        };
        let same = first.key.iter().zip(last.key).take_while(|(a, b)| a == b).count();
        first.key[..same].to_vec()
    }

    /// Adds one version of `key`.
    ///
    /// # Panics
    /// If the memtable holds an entry of this key and sequence number: the order of the two would
    /// be anyone's guess. (The check costs one comparison of two pointers, so it is always on.)
    /// If the key is longer than [`trommel_base::MAX_KEY_BYTES`], the value longer than
    /// [`trommel_base::MAX_VALUE_BYTES`], or the sequence number larger than
    /// [`trommel_base::MAX_SEQNO`]: the caller checks its input before it logs it.
    pub fn insert(&self, key: &[u8], seqno: SeqNo, kind: EntryKind, value: &[u8]) {
        self.entries.insert(key, seqno, kind, value);
    }

    /// The newest version of `key` that is not newer than `seqno`: a value or a tombstone.
    #[inline]
    pub fn get(&self, key: &[u8], seqno: SeqNo) -> Option<EntryRef<'_>> {
        // Empty it is in a store that is only read.
        if self.entries.is_empty() {
            return None;
        }
        self.entries.first_at(key, seqno).filter(|entry| entry.key == key)
    }

    /// How many entries there are, tombstones and old versions included. While others insert, the
    /// number may count an entry that is not yet found.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of memory held: the arena's chunks, used or not yet, with what the allocator adds to
    /// them. Right to within a few per cent.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.entries.memory_bytes()
    }

    /// A cursor over the entries, off the end. It keeps the memtable alive, and sees entries that
    /// are inserted in front of it while it moves.
    pub fn cursor(self: &Arc<Self>) -> MemtableCursor {
        MemtableCursor { position: Position::new(Arc::clone(self)) }
    }
}

impl fmt::Debug for Memtable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memtable")
            .field("len", &self.len())
            .field("memory_bytes", &self.memory_bytes())
            .finish()
    }
}

/// A walk over the entries of a [`Memtable`].
///
/// `next` follows a link; `prev` is a search, as dear as a `get`.
pub struct MemtableCursor {
    position: Position,
}

impl Cursor for MemtableCursor {
    type Error = Infallible;

    fn seek_to_first(&mut self) -> Result<(), Infallible> {
        self.position.first();
        Ok(())
    }

    fn seek_to_last(&mut self) -> Result<(), Infallible> {
        self.position.last();
        Ok(())
    }

    fn seek(&mut self, key: &[u8], seqno: SeqNo) -> Result<(), Infallible> {
        self.position.at_or_behind(key, seqno);
        Ok(())
    }

    fn seek_before(&mut self, key: &[u8]) -> Result<(), Infallible> {
        self.position.before(key, SeqNo::MAX);
        Ok(())
    }

    fn next(&mut self) -> Result<(), Infallible> {
        self.position.next();
        Ok(())
    }

    fn prev(&mut self) -> Result<(), Infallible> {
        self.position.prev();
        Ok(())
    }

    fn entry(&self) -> Option<EntryRef<'_>> {
        self.position.entry()
    }
}

impl fmt::Debug for MemtableCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemtableCursor").field("entry", &self.entry()).finish()
    }
}
