//! The newest writes, sorted, in memory.
//!
//! A [`Memtable`] takes entries from many threads at once while others read it. It only grows:
//! every version of every key stands in it under its own sequence number until the whole memtable
//! is dropped. Its order is that of [`trommel_base::compare_internal`].
//!
//! # How it is built
//! 1. Each version of a key is a record, key and value behind it (module `record`), in an arena
//!    (module `arena`), whose memory is taken from an [`ArenaPool`] and given back to it when the
//!    memtable is dropped.
//! 2. One key is found by a hash table (module `chains`), without a lock.
//! 3. The order is made when it is asked for (module `order`): an insert appends to a list, and a
//!    walk goes along sorted runs.
//!
//! So an insert, and a get, wait for two or three cache misses, however many entries there are.
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
#[expect(unsafe_code, reason = "links between records in the arena; argued block by block")]
mod chains;
#[expect(unsafe_code, reason = "items in memory of their own; argued block by block")]
mod list;
#[cfg(test)]
mod memory_tests;
#[cfg(all(test, trommel_loom))]
mod models;
#[expect(unsafe_code, reason = "slots that lead to records in the arena; argued block by block")]
mod order;
#[expect(unsafe_code, reason = "the prefetch instruction")]
mod prefetch;
#[expect(unsafe_code, reason = "records in the arena; argued block by block")]
mod record;
#[cfg(test)]
mod tests;

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use trommel_base::sync::linked::AtomicUsize;
use trommel_base::sync::{Mutex, MutexGuard, lock};
use trommel_base::{Cursor, CursorHints, EntryKind, EntryRef, SeqNo};

use arena::Arena;
pub use arena::{ArenaPool, LARGEST_CHUNK};
use chains::{Chains, Found, Newest, hash_of};
use order::{Order, Probe, Slot, Walk};
use record::Stored;

/// Bytes of a common prefix that are made use of.
const LONGEST_PREFIX: usize = 256;

/// Sorted entries in memory, written and read by many threads at once.
///
/// Dropping one gives its memory back chunk by chunk, whatever it holds.
pub struct Memtable {
    chains: Newest,
    written: Mutex<Written>,
    len: AtomicUsize,
    /// Bytes of all but the arena: the memtable itself, and what `written` leads to.
    other_bytes: AtomicUsize,
    /// What most keys are expected to begin with.
    common_prefix: Box<[u8]>,
    /// How many entries are expected.
    expected: usize,
    /// Last, so that it outlives what leads into it.
    arena: Arena,
}

/// What is written under a lock.
#[derive(Default)]
struct Written {
    /// Records linked in the newest table.
    linked: usize,
    /// The largest sequence number of all that are linked.
    newest: Option<SeqNo>,
    order: Order,
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
    /// makes sorting and walks faster where many keys share their first bytes. The
    /// [`Memtable::common_prefix`] of the memtable before is a good guess. Of a long prefix the
    /// first 256 bytes are used: it is memory that is held before there is a single entry.
    pub fn with_common_prefix(pool: &Arc<ArenaPool>, prefix: &[u8]) -> Self {
        let used = &prefix[..prefix.len().min(LONGEST_PREFIX)];
        Self {
            chains: Newest::none(),
            written: Mutex::default(),
            len: AtomicUsize::new(0),
            other_bytes: AtomicUsize::new(size_of::<Self>() + used.len()),
            common_prefix: Box::from(used),
            expected: 0,
            arena: Arena::new(Arc::clone(pool)),
        }
    }

    /// The same, made for so many entries: with the first one it takes 8 to 16 bytes for each, in
    /// one piece, and 27 for the order where at least 11,000 are expected and nobody has walked
    /// along: where that is 2 MiB or more, as they come. The length of the memtable before is a
    /// good guess. With fewer or more than expected every answer is the same.
    #[must_use]
    pub fn expecting(self, entries: usize) -> Self {
        self.written().order.expect(entries);
        Self { expected: entries, ..self }
    }

    /// An empty memtable for entries like those of `before`: keys that begin alike, as many of
    /// them, and walked along while they are inserted if those were. With others every answer is
    /// the same.
    pub fn following(pool: &Arc<ArenaPool>, before: &Self) -> Self {
        let next = Self::with_common_prefix(pool, &before.common_prefix());
        if before.written().order.was_walked {
            next.written().order.expect_walks();
        }
        next.expecting(before.len())
    }

    /// What all keys begin with: the bytes that the first and the last have in common at their
    /// beginning. Empty if there is no key.
    pub fn common_prefix(&self) -> Vec<u8> {
        let written = self.written();
        let Some((first, last)) = written.order.ends() else { return Vec::new() };
        let (first, last) = (first.entry().key, last.entry().key);
        let same = first.iter().zip(last).take_while(|(a, b)| a == b).count();
        first[..same].to_vec()
    }

    /// Adds one version of `key`.
    ///
    /// # Panics
    /// If the memtable holds an entry of this key and sequence number: the order of the two would
    /// be anyone's guess. (The check is part of finding the entry's place, so it is always on.)
    /// If the key is longer than [`trommel_base::MAX_KEY_BYTES`], the value longer than
    /// [`trommel_base::MAX_VALUE_BYTES`], or the sequence number larger than
    /// [`trommel_base::MAX_SEQNO`]: the caller checks its input before it logs it.
    pub fn insert(&self, key: &[u8], seqno: SeqNo, kind: EntryKind, value: &[u8]) {
        assert!(
            self.insert_new(key, seqno, kind, value),
            "key {} was inserted twice with sequence number {seqno}",
            key.escape_ascii()
        );
    }

    /// Inserts unless there is an entry of this key and sequence number; false if there is.
    #[inline]
    fn insert_new(&self, key: &[u8], seqno: SeqNo, kind: EntryKind, value: &[u8]) -> bool {
        let hash = hash_of(key);
        let record = Stored::write(&self.arena, key, seqno, kind, value);
        let slot = Slot::new(&self.common_prefix, record);
        let mut written = self.written();
        let chains = self.room_for_one(&mut written);
        // Before it can be found, so that whoever finds it sees it counted.
        self.len.store(self.len.load(Relaxed) + 1, Relaxed);
        if written.newest < Some(seqno) {
            // So it nearly always is: then nothing that is linked has to be looked at.
            chains.link_newest(hash, record);
            written.newest = Some(seqno);
        } else if !chains.link(hash, record) {
            self.len.store(self.len.load(Relaxed) - 1, Relaxed);
            return false;
        }
        written.linked += 1;
        let held = written.order.bytes();
        written.order.push(slot);
        if written.order.bytes() != held {
            self.account(&written);
        }
        true
    }

    /// The table to link the next record in.
    #[inline]
    fn room_for_one<'a>(&'a self, written: &mut Written) -> &'a Chains {
        loop {
            match self.chains.get() {
                Some(chains) if written.linked < chains.capacity() => return chains,
                _ => self.chains.grow(self.expected),
            }
            written.linked = 0;
            self.account(written);
        }
    }

    fn account(&self, written: &Written) {
        let chains = self.chains.get().map_or(0, Chains::bytes);
        let own = size_of::<Self>() + self.common_prefix.len();
        self.other_bytes.store(own + chains + written.order.bytes(), Relaxed);
    }

    fn written(&self) -> MutexGuard<'_, Written> {
        // Nothing under the lock panics between two changes that belong together.
        lock(&self.written)
    }

    /// Asks for the memory that an insert or a get of `key` will look at first, without waiting for
    /// it.
    #[inline]
    pub fn prefetch(&self, key: &[u8]) {
        if let Some(chains) = self.chains.get() {
            chains.prefetch(hash_of(key));
        }
    }

    /// The newest version of `key` that is not newer than `seqno`: a value or a tombstone.
    #[inline]
    pub fn get(&self, key: &[u8], seqno: SeqNo) -> Option<EntryRef<'_>> {
        // Empty it is in a store that is only read.
        match self.chains.get()?.find(hash_of(key), key, seqno) {
            Found::Version(record) => Some(record.entry()),
            Found::Nothing => None,
            Found::GaveUp => self.get_by_order(key, seqno),
        }
    }

    /// As `get`, of a key of very many versions.
    #[cold]
    fn get_by_order(&self, key: &[u8], seqno: SeqNo) -> Option<EntryRef<'_>> {
        let mut walk = self.walk();
        walk.at_or_behind(&self.probe(key, seqno));
        walk.record(&self.arena).map(Stored::entry).filter(|entry| entry.key == key)
    }

    fn probe<'a>(&self, key: &'a [u8], seqno: SeqNo) -> Probe<'a> {
        Probe::new(&self.common_prefix, key, seqno)
    }

    /// How many entries there are, tombstones and old versions included. While others insert, the
    /// number may count an entry that is not yet found.
    pub fn len(&self) -> usize {
        self.len.load(Relaxed)
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of memory held: the arena's chunks, used or not yet, and what finds and orders the
    /// entries, with what the allocator adds to them. Right to within a few per cent.
    pub fn memory_bytes(&self) -> usize {
        self.arena.reserved_bytes() + self.other_bytes.load(Relaxed)
    }

    /// A cursor over the entries whose inserts had returned when it was made, and over none that
    /// came later; off the end. It keeps the memtable alive.
    pub fn cursor(self: &Arc<Self>) -> MemtableCursor {
        MemtableCursor { walk: self.walk(), owner: Arc::clone(self) }
    }

    /// A walk over all entries there are, for which those that are unsorted become a run.
    fn walk(&self) -> Walk {
        let mut written = self.written();
        let walk = written.order.walk();
        self.account(&written);
        walk
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

/// A walk over the entries of a [`Memtable`], as it was when the cursor was made.
///
/// Making one sorts what was inserted since the last was made. `next` and `prev` go along memory,
/// and ask for entries ahead.
pub struct MemtableCursor {
    walk: Walk,
    /// Keeps the arena that the walk's slots lead to.
    owner: Arc<Memtable>,
}

impl Cursor for MemtableCursor {
    type Error = Infallible;

    fn seek_to_first(&mut self) -> Result<(), Infallible> {
        self.walk.first();
        Ok(())
    }

    fn seek_to_last(&mut self) -> Result<(), Infallible> {
        self.walk.last();
        Ok(())
    }

    fn seek(&mut self, key: &[u8], seqno: SeqNo) -> Result<(), Infallible> {
        self.walk.at_or_behind(&self.owner.probe(key, seqno));
        Ok(())
    }

    fn seek_before(&mut self, key: &[u8]) -> Result<(), Infallible> {
        self.walk.before(&self.owner.probe(key, SeqNo::MAX));
        Ok(())
    }

    #[inline]
    fn next(&mut self) -> Result<(), Infallible> {
        self.walk.next();
        Ok(())
    }

    #[inline]
    fn prev(&mut self) -> Result<(), Infallible> {
        self.walk.prev();
        Ok(())
    }

    #[inline]
    fn entry(&self) -> Option<EntryRef<'_>> {
        self.walk.slot().map(Slot::entry)
    }
}

impl CursorHints for MemtableCursor {}

impl fmt::Debug for MemtableCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemtableCursor").field("entry", &self.entry()).finish()
    }
}
