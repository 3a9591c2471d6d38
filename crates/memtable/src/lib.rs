//! The newest writes, sorted, in memory.
//!
//! A [`Memtable`] accepts entries from many threads at once while others read it. It only grows: it
//! holds every version of every key, under its own sequence number, until the whole memtable is
//! dropped. Its order is that of [`trommel_base::compare_internal`].
//!
//! # Structure
//! 1. Each version of a key is a record, followed by key and value (module `record`), in an arena
//!    (module `arena`). The arena takes its memory from an [`ArenaPool`] and returns it when the
//!    memtable is dropped.
//! 2. A hash table (module `chains`) finds a single key, without a lock unless its chain is very
//!    long.
//! 3. The order is created on demand (module `order`): an insert appends to a list, and a scan
//!    reads sorted runs.
//!
//! So an insert or a get waits for two or three cache misses, however many entries there are.
//!
//! # Invariants
//! * (key, sequence number) is unique; [`Memtable::insert`] panics if it is not.
//! * An entry whose insert has returned is found by every later read, in any thread that has
//!   synchronized with the inserting one.
//! * Nothing is replaced or removed, so the result of a read stays valid as long as the memtable.
//!
//! The engine is the caller: its write path inserts, its read path gets, and a flush iterates with
//! a [`MemtableCursor`].
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
//! assert_eq!(cursor.entry().unwrap().seqno, 2); // the newest version sorts first
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
use order::{Order, Probe, Scan, Slot};
use record::Stored;

/// The longest common prefix that is used, in bytes.
const LONGEST_PREFIX: usize = 256;

/// Sorted entries in memory, written and read by many threads at once.
///
/// Dropping a memtable frees its memory chunk by chunk, whatever it holds.
pub struct Memtable {
    chains: Newest,
    written: Mutex<Written>,
    len: AtomicUsize,
    deletions: AtomicUsize,
    /// Bytes of all but the arena: the memtable itself, and what `written` points to.
    other_bytes: AtomicUsize,
    /// The expected common prefix of most keys.
    common_prefix: Box<[u8]>,
    /// The expected number of entries.
    expected: usize,
    /// Declared last, so that it outlives everything that points into it.
    arena: Arena,
}

/// The state that is written under a lock.
#[derive(Default)]
struct Written {
    /// Records linked in the newest table.
    linked: usize,
    /// The largest sequence number of all linked records.
    newest: Option<SeqNo>,
    order: Order,
}

impl Memtable {
    /// An empty memtable, which takes its memory from `pool` and returns it when dropped.
    pub fn new(pool: &Arc<ArenaPool>) -> Self {
        Self::with_common_prefix(pool, &[])
    }

    /// An empty memtable that is fastest for keys that begin with `prefix`.
    ///
    /// Any key may be inserted, and all results are the same as without a prefix. But most
    /// comparisons use the first 16 bytes after the prefix, not the first 16 of the key, which
    /// makes sorting and scans faster if many keys share their first bytes. The
    /// [`Memtable::common_prefix`] of the previous memtable is a good guess. At most 256 bytes of a
    /// prefix are used, because it takes memory before there is an entry.
    pub fn with_common_prefix(pool: &Arc<ArenaPool>, prefix: &[u8]) -> Self {
        let used = &prefix[..prefix.len().min(LONGEST_PREFIX)];
        Self {
            chains: Newest::none(),
            written: Mutex::default(),
            len: AtomicUsize::new(0),
            deletions: AtomicUsize::new(0),
            other_bytes: AtomicUsize::new(size_of::<Self>() + used.len()),
            common_prefix: Box::from(used),
            expected: 0,
            arena: Arena::new(Arc::clone(pool)),
        }
    }

    /// Sizes the memtable for `entries` entries. The first insert allocates 8 to 16 bytes for each
    /// in one allocation. If at least 11,000 are expected and there has been no scan, it also
    /// reserves 27 bytes for each for the order; a reservation of 2 MiB or more takes memory only
    /// as entries arrive. The length of the previous memtable is a good guess. The number affects
    /// no result.
    #[must_use]
    pub fn expecting(self, entries: usize) -> Self {
        self.written().order.expect(entries);
        Self { expected: entries, ..self }
    }

    /// An empty memtable for entries like those of `before`: keys with the same prefix, the same
    /// number, and scans during inserts if `before` had any. Other entries affect no result.
    pub fn following(pool: &Arc<ArenaPool>, before: &Self) -> Self {
        let next = Self::with_common_prefix(pool, &before.common_prefix());
        if before.written().order.was_scanned {
            next.written().order.expect_scans();
        }
        next.expecting(before.len())
    }

    /// The longest common prefix of all keys, from the first and the last. Empty if there is no
    /// key.
    pub fn common_prefix(&self) -> Vec<u8> {
        let Some([first, last]) = self.ends() else { return Vec::new() };
        let same = first.iter().zip(&last).take_while(|(a, b)| a == b).count();
        first[..same].to_vec()
    }

    /// The first key and the last, unless there is none.
    pub fn ends(&self) -> Option<[Box<[u8]>; 2]> {
        let written = self.written();
        let (first, last) = written.order.ends()?;
        Some([first.entry().key.into(), last.entry().key.into()])
    }

    /// Adds one version of `key`.
    ///
    /// # Panics
    /// If the memtable holds an entry of this key and sequence number: their order would be
    /// undefined. (The check is part of finding the entry's position, so it is always on.) If the
    /// key is longer than [`trommel_base::MAX_KEY_BYTES`], the value longer than
    /// [`trommel_base::MAX_VALUE_BYTES`], or the sequence number larger than
    /// [`trommel_base::MAX_SEQNO`]: the caller checks its input before it logs it.
    pub fn insert(&self, key: &[u8], seqno: SeqNo, kind: EntryKind, value: &[u8]) {
        assert!(
            self.insert_new(key, seqno, kind, value),
            "key {} was inserted twice with sequence number {seqno}",
            key.escape_ascii()
        );
    }

    /// Inserts, or returns false if there is an entry of this key and sequence number.
    #[inline]
    fn insert_new(&self, key: &[u8], seqno: SeqNo, kind: EntryKind, value: &[u8]) -> bool {
        let hash = hash_of(key);
        let record = Stored::write(&self.arena, key, seqno, kind, value);
        let slot = Slot::new(&self.common_prefix, record);
        let mut written = self.written();
        let chains = self.room_for_one(&mut written);
        // Counted before it can be found, so that a reader that finds it sees it counted.
        self.len.store(self.len.load(Relaxed) + 1, Relaxed);
        if written.newest < Some(seqno) {
            // The usual case: no linked record has to be read.
            chains.link_newest(hash, record);
            written.newest = Some(seqno);
        } else if !chains.link(hash, record) {
            self.len.store(self.len.load(Relaxed) - 1, Relaxed);
            return false;
        }
        if kind == EntryKind::Delete {
            self.deletions.store(self.deletions.load(Relaxed) + 1, Relaxed);
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
        // No code under the lock panics between two changes that belong together.
        lock(&self.written)
    }

    /// Prefetches the memory that an insert or a get of `key` will read first.
    #[inline]
    pub fn prefetch(&self, key: &[u8]) {
        if let Some(chains) = self.chains.get() {
            chains.prefetch(hash_of(key));
        }
    }

    /// The newest version of `key` that is not newer than `seqno`: a value or a tombstone.
    #[inline]
    pub fn get(&self, key: &[u8], seqno: SeqNo) -> Option<EntryRef<'_>> {
        // Empty in a store that is only read.
        match self.chains.get()?.find(hash_of(key), key, seqno) {
            Found::Version(record) => Some(record.entry()),
            Found::Nothing => None,
            Found::GaveUp => self.get_by_order(key, seqno),
        }
    }

    /// Like `get`, for a bucket with very many records. Takes the lock, and sorts what is unsorted.
    #[cold]
    fn get_by_order(&self, key: &[u8], seqno: SeqNo) -> Option<EntryRef<'_>> {
        let mut scan = self.scan();
        scan.seek(&self.probe(key, seqno));
        scan.record(&self.arena).map(Stored::entry).filter(|entry| entry.key == key)
    }

    fn probe<'a>(&self, key: &'a [u8], seqno: SeqNo) -> Probe<'a> {
        Probe::new(&self.common_prefix, key, seqno)
    }

    /// The number of entries, including tombstones and old versions. During concurrent inserts, it
    /// may count an entry that is not yet found.
    pub fn len(&self) -> usize {
        self.len.load(Relaxed)
    }

    /// The number of tombstones among the entries.
    pub fn deletions(&self) -> usize {
        self.deletions.load(Relaxed)
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of memory held: the arena's chunks, used or not, and the structures that find and
    /// order the entries, including the allocator's overhead. Accurate to within a few percent.
    pub fn memory_bytes(&self) -> usize {
        self.arena.reserved_bytes() + self.other_bytes.load(Relaxed)
    }

    /// A cursor over the entries whose inserts had returned when it was created, and over no later
    /// ones. It is not positioned. It keeps the memtable alive.
    pub fn cursor(self: &Arc<Self>) -> MemtableCursor {
        MemtableCursor { scan: self.scan(), owner: Arc::clone(self) }
    }

    /// An iterator over all entries; sorts the unsorted ones into a run.
    fn scan(&self) -> Scan {
        let mut written = self.written();
        let scan = written.order.scan();
        self.account(&written);
        scan
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

/// A cursor over the entries of a [`Memtable`], as of its creation.
///
/// Creating one sorts the entries inserted since the last was created. `next` and `prev` read
/// memory sequentially, and prefetch entries ahead.
pub struct MemtableCursor {
    scan: Scan,
    /// Keeps the arena that the slots point to alive.
    owner: Arc<Memtable>,
}

impl MemtableCursor {
    /// Moves forward past the entries that are before `to` and older than `since`, the current one
    /// included. Takes about one step for every few thousand of them.
    pub fn skip_older(&mut self, since: SeqNo, to: Option<&[u8]>) {
        let to = to.map(|to| self.owner.probe(to, SeqNo::MAX));
        self.scan.skip_older(since, to.as_ref());
    }

    /// Moves backward past the entries that are at or after `from` and older than `since`, the
    /// current one included. Takes about one step for every few thousand of them.
    pub fn skip_older_back(&mut self, since: SeqNo, from: &[u8]) {
        self.scan.skip_older_back(since, &self.owner.probe(from, SeqNo::MAX));
    }
}

impl Cursor for MemtableCursor {
    type Error = Infallible;

    fn seek_to_first(&mut self) -> Result<(), Infallible> {
        self.scan.first();
        Ok(())
    }

    fn seek_to_last(&mut self) -> Result<(), Infallible> {
        self.scan.last();
        Ok(())
    }

    fn seek(&mut self, key: &[u8], seqno: SeqNo) -> Result<(), Infallible> {
        self.scan.seek(&self.owner.probe(key, seqno));
        Ok(())
    }

    fn seek_before(&mut self, key: &[u8]) -> Result<(), Infallible> {
        self.scan.before(&self.owner.probe(key, SeqNo::MAX));
        Ok(())
    }

    #[inline]
    fn next(&mut self) -> Result<(), Infallible> {
        self.scan.next();
        Ok(())
    }

    #[inline]
    fn prev(&mut self) -> Result<(), Infallible> {
        self.scan.prev();
        Ok(())
    }

    #[inline]
    fn entry(&self) -> Option<EntryRef<'_>> {
        self.scan.slot().map(Slot::entry)
    }
}

impl CursorHints for MemtableCursor {}

impl fmt::Debug for MemtableCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemtableCursor").field("entry", &self.entry()).finish()
    }
}
