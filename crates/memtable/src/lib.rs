//! The newest writes, sorted, in memory.
//!
//! A [`Memtable`] accepts entries from many threads at once while others read it. It only grows: it
//! holds every version of every key, under its own sequence number, until the whole memtable is
//! dropped. It is ordered by [`trommel_base::compare_internal`].
//!
//! # Structure
//! 1. Each version of a key is a record, followed by key and value (module `record`), in an arena
//!    (module `arena`). The arena takes its memory from an [`ArenaPool`] and returns it when the
//!    memtable is dropped.
//! 2. An index (module `index`) finds and orders the records. There are two kinds
//!    ([`MemtableKind`]): a hash table and an order that is created when a scan starts (module
//!    `hash_index`), or a skip list (module `skip_list`). A scan in the order of the first kind
//!    skips versions that its reader does not see (module `versions`).
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
//! use trommel_memtable::{ArenaPool, Memtable, MemtableKind};
//!
//! let pool = ArenaPool::new(64 << 20);
//! let memtable = std::sync::Arc::new(Memtable::new(MemtableKind::Hash, &pool));
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
#[cfg(test)]
mod conformance;
mod hash_index;
mod index;
mod kind;
#[expect(unsafe_code, reason = "items in memory of their own; argued block by block")]
mod list;
#[cfg(test)]
mod memory_tests;
#[cfg(all(test, trommel_loom))]
mod models;
#[expect(unsafe_code, reason = "slots that lead to records in the arena; argued block by block")]
mod order;
#[cfg_attr(target_arch = "x86_64", expect(unsafe_code, reason = "the prefetch instruction"))]
mod prefetch;
#[expect(unsafe_code, reason = "records in the arena; argued block by block")]
mod record;
#[expect(unsafe_code, reason = "nodes that live as long as their list; argued block by block")]
mod skip_list;
#[expect(unsafe_code, reason = "addresses of records with a tag; argued block by block")]
mod slot;
#[cfg(test)]
mod tests;
mod tree;
mod versions;

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use trommel_base::sync::linked::AtomicUsize;
use trommel_base::{Cursor, CursorHints, EntryKind, EntryRef, SeqNo};

use arena::Arena;
pub use arena::{ArenaPool, LARGEST_CHUNK};
use hash_index::HashIndex;
use index::{Index, IndexScan};
pub use kind::MemtableKind;
use order::Scan;
use record::Stored;
use skip_list::{ListIndex, ListScan};
use slot::{Probe, Slot};

/// The longest common prefix that is used, in bytes.
const LONGEST_PREFIX: usize = 256;

/// Sorted entries in memory, written and read by many threads at once.
///
/// Dropping a memtable frees its memory chunk by chunk, whatever it holds; the nodes of a skip list
/// are freed one by one.
pub struct Memtable {
    index: AnyIndex,
    len: AtomicUsize,
    deletions: AtomicUsize,
    /// The expected common prefix of most keys.
    common_prefix: Box<[u8]>,
    /// Declared last, so that it outlives everything that points into it.
    arena: Arena,
}

/// The index of a memtable.
#[allow(clippy::large_enum_variant, reason = "a memtable has one; lookups follow no pointer to it")]
enum AnyIndex {
    Hash(HashIndex),
    SkipList(Box<ListIndex>),
}

/// A scan of a memtable.
enum AnyScan {
    Runs(Scan),
    SkipList(ListScan),
}

macro_rules! each_index {
    ($self:expr, $index:ident => $call:expr) => {
        match $self {
            AnyIndex::Hash($index) => $call,
            AnyIndex::SkipList($index) => $call,
        }
    };
}

macro_rules! each_scan {
    ($self:expr, $scan:ident => $call:expr) => {
        match $self {
            AnyScan::Runs($scan) => $call,
            AnyScan::SkipList($scan) => $call,
        }
    };
}

impl Memtable {
    /// An empty memtable, which takes its memory from `pool` and returns it when dropped.
    pub fn new(kind: MemtableKind, pool: &Arc<ArenaPool>) -> Self {
        Self::with_common_prefix(kind, pool, &[])
    }

    /// An empty memtable that is fastest for keys that begin with `prefix`.
    ///
    /// Any key may be inserted, and all results are the same as without a prefix. But most
    /// comparisons use the first 16 bytes after the prefix, not the first 16 of the key, which
    /// makes sorting, searches of a skip list, and scans faster if many keys share their first
    /// bytes. The [`Memtable::common_prefix`] of the previous memtable is a good guess. At most 256
    /// bytes of a prefix are used, because it takes memory before there is an entry.
    pub fn with_common_prefix(kind: MemtableKind, pool: &Arc<ArenaPool>, prefix: &[u8]) -> Self {
        let used = &prefix[..prefix.len().min(LONGEST_PREFIX)];
        Self {
            index: match kind {
                MemtableKind::Hash => AnyIndex::Hash(HashIndex::new(pool.hash_seed)),
                MemtableKind::SkipList => AnyIndex::SkipList(Box::default()),
            },
            len: AtomicUsize::new(0),
            deletions: AtomicUsize::new(0),
            common_prefix: Box::from(used),
            arena: Arena::new(Arc::clone(pool)),
        }
    }

    /// Sizes the memtable for `entries` entries; a skip list needs no size. The first insert
    /// allocates 8 to 16 bytes for each in one allocation. If at least 11,000 are expected and
    /// there has been no scan, it also reserves 27 bytes for each for the order; a reservation of 2
    /// MiB or more takes memory only as entries arrive. The length of the previous memtable is a
    /// good guess. The number affects no result.
    #[must_use]
    pub fn expecting(mut self, entries: usize) -> Self {
        if let AnyIndex::Hash(hash) = &mut self.index {
            hash.expect(entries);
        }
        self
    }

    /// An empty memtable for entries like those of `before`: keys with the same prefix, the same
    /// number, and scans during inserts if `before` had any. Other entries affect no result.
    pub fn following(kind: MemtableKind, pool: &Arc<ArenaPool>, before: &Self) -> Self {
        let next = Self::with_common_prefix(kind, pool, &before.common_prefix());
        if let (AnyIndex::Hash(next), AnyIndex::Hash(before)) = (&next.index, &before.index) {
            next.follow(before);
        }
        next.expecting(before.len())
    }

    /// The kind of this memtable.
    pub fn kind(&self) -> MemtableKind {
        match self.index {
            AnyIndex::Hash(_) => MemtableKind::Hash,
            AnyIndex::SkipList(_) => MemtableKind::SkipList,
        }
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
        let ends = each_index!(&self.index, index => index.ends())?;
        Some([ends[0].entry().key.into(), ends[1].entry().key.into()])
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
        let record = Stored::write(&self.arena, key, seqno, kind, value);
        let slot = Slot::new(&self.common_prefix, record);
        let is_new = each_index!(&self.index, index => index.insert(record, slot, &self.len));
        if is_new && kind == EntryKind::Delete {
            self.deletions.fetch_add(1, Relaxed);
        }
        is_new
    }

    /// Prefetches the memory that an insert or a get of `key` will read first.
    #[inline]
    pub fn prefetch(&self, key: &[u8]) {
        each_index!(&self.index, index => index.prefetch(key));
    }

    /// The newest version of `key` that is not newer than `seqno`: a value or a tombstone.
    #[inline]
    pub fn get(&self, key: &[u8], seqno: SeqNo) -> Option<EntryRef<'_>> {
        let prefix = &self.common_prefix;
        let found = each_index!(
            &self.index,
            index => index.find(&self.arena, prefix, key, seqno)
        );
        found.map(Stored::entry)
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
        let own = size_of::<Self>() + self.common_prefix.len();
        own + self.arena.reserved_bytes() + each_index!(&self.index, index => index.bytes())
    }

    /// A cursor over the entries whose inserts had returned when it was created, and over no later
    /// ones. It is not positioned. It keeps the memtable alive.
    pub fn cursor(self: &Arc<Self>) -> MemtableCursor {
        self.scan(None)
    }

    /// As [`cursor`](Self::cursor), for a reader as of `seqno`. It shows at least the newest
    /// version of each key up to `seqno`, or the oldest version if all are newer, and may leave
    /// out all others. So a key that was overwritten many times costs hardly more than another. A
    /// skip list shows all versions.
    pub fn cursor_at(self: &Arc<Self>, seqno: SeqNo) -> MemtableCursor {
        self.scan(Some(seqno))
    }

    fn scan(self: &Arc<Self>, moment: Option<SeqNo>) -> MemtableCursor {
        let scan = match &self.index {
            AnyIndex::Hash(index) => AnyScan::Runs(index.scan(moment)),
            AnyIndex::SkipList(index) => AnyScan::SkipList(index.scan(moment)),
        };
        MemtableCursor { scan, owner: Arc::clone(self) }
    }
}

impl fmt::Debug for Memtable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memtable")
            .field("kind", &self.kind())
            .field("len", &self.len())
            .field("memory_bytes", &self.memory_bytes())
            .finish()
    }
}

/// A cursor over the entries of a [`Memtable`], as of its creation.
///
/// Of a memtable with a hash table, creating the first one sorts the entries; `next` and `prev`
/// read memory sequentially, and prefetch entries ahead. In a skip list, `next` follows a link and
/// `prev` is a search.
pub struct MemtableCursor {
    scan: AnyScan,
    /// Keeps the index, and the arena that the slots point to, alive.
    owner: Arc<Memtable>,
}

impl MemtableCursor {
    /// Moves forward past the entries that are before `to` and older than `since`, the current one
    /// included. Takes about one step for every few thousand of them, or one for each in a skip
    /// list.
    pub fn skip_older(&mut self, since: SeqNo, to: Option<&[u8]>) {
        let to = to.map(|to| self.owner.probe(to, SeqNo::MAX));
        each_scan!(&mut self.scan, scan => scan.skip_older(since, to.as_ref()));
    }

    /// Moves backward past the entries that are at or after `from` and older than `since`, the
    /// current one included. Takes as many steps as `skip_older`.
    pub fn skip_older_back(&mut self, since: SeqNo, from: &[u8]) {
        let from = self.owner.probe(from, SeqNo::MAX);
        each_scan!(&mut self.scan, scan => scan.skip_older_back(since, &from));
    }
}

impl Cursor for MemtableCursor {
    type Error = Infallible;

    fn seek_to_first(&mut self) -> Result<(), Infallible> {
        each_scan!(&mut self.scan, scan => scan.first());
        Ok(())
    }

    fn seek_to_last(&mut self) -> Result<(), Infallible> {
        each_scan!(&mut self.scan, scan => scan.last());
        Ok(())
    }

    fn seek(&mut self, key: &[u8], seqno: SeqNo) -> Result<(), Infallible> {
        let probe = self.owner.probe(key, seqno);
        each_scan!(&mut self.scan, scan => scan.seek(&probe));
        Ok(())
    }

    fn seek_before(&mut self, key: &[u8]) -> Result<(), Infallible> {
        let probe = self.owner.probe(key, SeqNo::MAX);
        each_scan!(&mut self.scan, scan => scan.before(&probe));
        Ok(())
    }

    #[inline]
    fn next(&mut self) -> Result<(), Infallible> {
        each_scan!(&mut self.scan, scan => scan.next());
        Ok(())
    }

    #[inline]
    fn prev(&mut self) -> Result<(), Infallible> {
        each_scan!(&mut self.scan, scan => scan.prev());
        Ok(())
    }

    #[inline]
    fn entry(&self) -> Option<EntryRef<'_>> {
        each_scan!(&self.scan, scan => scan.slot()).map(Slot::entry)
    }
}

impl CursorHints for MemtableCursor {
    #[inline]
    fn begins_key(&self) -> bool {
        match &self.scan {
            AnyScan::Runs(scan) => scan.begins_key(),
            AnyScan::SkipList(_) => false,
        }
    }
}

impl fmt::Debug for MemtableCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemtableCursor").field("entry", &self.entry()).finish()
    }
}
