//! Point lookups: a hash table of chains, written under a lock and read without one.
//!
//! # Algorithm
//! 1. Each bucket links to a chain of records, each of which links to the next. A chain is in the
//!    order of sequence numbers, newest first, whatever the keys: a new record nearly always comes
//!    first, and the result of a lookup is its key's first record that is old enough.
//! 2. Records are at multiples of sixteen bytes, so a bucket's link has four spare bits. Each bit
//!    marks whether the chain has keys of one quarter of all hashes: three of four lookups of an
//!    absent key end without reading a record.
//! 3. A table with as many records as buckets is followed by one four times as large. The old one
//!    remains, and is searched too.
//! 4. A lookup that has passed [`LONGEST_SEARCH`] records gives up: the key has many newer
//!    versions, or another key of its bucket has many. The sorted order is searched then, under the
//!    writers' lock.
//!
//! # Invariants
//! * One thread writes at a time; the caller holds a lock.
//! * Linked records are in the arena of the memtable that holds these tables, and are never
//!   removed.
//! * A record is written before it is linked. Links are stored with release and loaded with acquire
//!   ordering.
//!
//! One of the modules of this crate that hold `unsafe`.

use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use trommel_base::SeqNo;
use trommel_base::sync::linked::AtomicPtr;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::arena::CLAIM_ALIGN;
use crate::list::List;
use crate::prefetch::prefetch;
use crate::record::{Link, Record, Stored};

/// Buckets of the first table, if the number of entries is unknown.
const FIRST_BUCKETS: usize = if cfg!(trommel_loom) { 1 } else { 64 };
/// The most buckets of a first table.
const MOST_FIRST_BUCKETS: usize = 1 << 24;
/// How much larger the next table is.
const GROWTH: usize = 4;
/// The most records that a lookup reads in one chain.
const LONGEST_SEARCH: usize = 64;
/// The bits of a bucket's link that mark the hashes of its chain.
const MARKS: usize = CLAIM_ALIGN - 1;

/// The hash of a key. Without the seed, keys cannot be chosen to be in one chain: the head of
/// `seed.rs` in crate `trommel-filter` describes why each step is needed.
#[inline]
pub(crate) fn hash_of(key: &[u8], seed: u64) -> u64 {
    let product = xxh3_64_with_seed(key, seed).wrapping_mul(seed | 1);
    product ^ product >> 32
}

/// The mark of this hash in a bucket's link. Other bits select the bucket.
#[inline]
fn mark(hash: u64) -> usize {
    1 << (hash >> 62)
}

/// The result of a lookup.
pub(crate) enum Found<'a> {
    /// The newest version that is old enough.
    Version(Stored<'a>),
    /// There is none.
    Nothing,
    /// A search of the sorted order is faster.
    GaveUp,
}

/// The newest table, which links to the older ones: replaced under a lock, read without one.
pub(crate) struct Newest {
    /// From `Arc::into_raw`; null before the first table.
    at: AtomicPtr<Chains>,
}

impl Default for Newest {
    fn default() -> Self {
        Self { at: AtomicPtr::new(ptr::null_mut()) }
    }
}

impl Newest {
    #[inline]
    pub(crate) fn get(&self) -> Option<&Chains> {
        // SAFETY: null, or from an `Arc` that is owned by this value, or by the table that replaced
        // it. None of them is dropped before `self`, borrowed here, and tables are only used
        // shared.
        unsafe { self.at.load(Acquire).as_ref() }
    }

    /// Installs a larger table, or the first one, for `expected` records. Does nothing if another
    /// thread installs one at the same time.
    pub(crate) fn grow(&self, expected: usize) {
        let full = self.at.load(Acquire);
        let older = NonNull::new(full).map(|full| {
            // SAFETY: it came from `Arc::into_raw`, and lives as argued in `get`, so another owner
            // may be created.
            unsafe {
                Arc::increment_strong_count(full.as_ptr());
                Arc::from_raw(full.as_ptr())
            }
        });
        let next = older.map_or_else(|| Chains::new(expected), Chains::after);
        let next = Arc::into_raw(Arc::new(next)).cast_mut();
        // Release: a thread that reads the pointer sees the table.
        let replaced = self.at.compare_exchange(full, next, Release, Relaxed);
        if let Some(left) = NonNull::new(if replaced.is_ok() { full } else { next }) {
            // SAFETY: it came from `Arc::into_raw`. If the exchange succeeded, this value no longer
            // owns `full`, and the next table does; otherwise `next` was never shared.
            drop(unsafe { Arc::from_raw(left.as_ptr()) });
        }
    }
}

impl Drop for Newest {
    fn drop(&mut self) {
        if let Some(at) = NonNull::new(self.at.load(Relaxed)) {
            // SAFETY: it came from `Arc::into_raw`, and no borrow of `self` remains.
            drop(unsafe { Arc::from_raw(at.as_ptr()) });
        }
    }
}

/// One table of chains, and those before it.
pub(crate) struct Chains {
    buckets: List<Link>,
    older: Option<Arc<Self>>,
}

impl Chains {
    /// The first table, for this many records.
    fn new(expected: usize) -> Self {
        let most = if cfg!(trommel_loom) { FIRST_BUCKETS } else { MOST_FIRST_BUCKETS };
        Self::with_buckets(expected.clamp(FIRST_BUCKETS, most).next_power_of_two(), None)
    }

    /// The table that follows `full`.
    fn after(full: Arc<Self>) -> Self {
        Self::with_buckets(full.buckets.len() * GROWTH, Some(full))
    }

    fn with_buckets(count: usize, older: Option<Arc<Self>>) -> Self {
        Self { buckets: List::filled(count, || Link::new(ptr::null_mut())), older }
    }

    /// The number of records that it is sized for.
    pub(crate) fn capacity(&self) -> usize {
        self.buckets.len()
    }

    /// Bytes of memory held, including the older tables.
    pub(crate) fn bytes(&self) -> usize {
        let older = self.older.as_ref().map_or(0, |older| older.bytes());
        // The reference counts and the allocator's words.
        older + self.buckets.bytes() + 4 * size_of::<usize>()
    }

    #[inline]
    fn bucket(&self, hash: u64) -> &Link {
        // A power of two, at least one.
        &self.buckets[hash as usize & (self.buckets.len() - 1)]
    }

    /// Prefetches the cache line of a key's bucket.
    #[inline]
    pub(crate) fn prefetch(&self, hash: u64) {
        prefetch(ptr::from_ref(self.bucket(hash)).addr(), 1);
    }

    /// The newest version of `key` that is not newer than `seqno`.
    #[inline]
    pub(crate) fn find(&self, hash: u64, key: &[u8], seqno: SeqNo) -> Found<'_> {
        let mut newest: Option<Stored<'_>> = None;
        let mut table = Some(self);
        while let Some(here) = table {
            match here.find_here(hash, key, seqno) {
                Found::GaveUp => return Found::GaveUp,
                Found::Nothing => {}
                // Concurrent inserts may have put the newer one into the older table.
                Found::Version(found) => {
                    if newest.is_none_or(|newest| newest.seqno() < found.seqno()) {
                        newest = Some(found);
                    }
                }
            }
            table = here.older.as_deref();
        }
        newest.map_or(Found::Nothing, Found::Version)
    }

    #[inline]
    fn find_here(&self, hash: u64, key: &[u8], seqno: SeqNo) -> Found<'_> {
        let first = self.bucket(hash).load(Acquire);
        if first.addr() & mark(hash) == 0 {
            return Found::Nothing;
        }
        let mut at = without_marks(first);
        for _ in 0..LONGEST_SEARCH {
            let Some(record) = shown(at) else { return Found::Nothing };
            if record.seqno() <= seqno && record.key() == key {
                return Found::Version(record);
            }
            at = record.next().load(Acquire);
        }
        Found::GaveUp
    }

    /// Links a record that is newer than all linked ones. The caller holds the writers' lock.
    #[inline]
    pub(crate) fn link_newest(&self, hash: u64, new: Stored<'_>) {
        let bucket = self.bucket(hash);
        let first = bucket.load(Relaxed);
        new.next().store(without_marks(first), Relaxed);
        let marks = first.addr() & MARKS | mark(hash);
        // Release: a thread that reaches the record sees it, and its link.
        bucket.store(new.at().as_ptr().map_addr(|at| at | marks), Release);
    }

    /// Links a record, or returns false if one of the same key and sequence number is in one of
    /// these tables. The caller holds the writers' lock.
    #[cold]
    pub(crate) fn link(&self, hash: u64, new: Stored<'_>) -> bool {
        let is_known = |older: &Self| older.place(hash, new).is_none();
        let mut older = self.older.as_deref();
        while let Some(table) = older {
            if is_known(table) {
                return false;
            }
            older = table.older.as_deref();
        }
        let Some((before, after)) = self.place(hash, new) else { return false };
        let Some(before) = before else {
            self.link_newest(hash, new);
            return true;
        };
        new.next().store(after, Relaxed);
        let bucket = self.bucket(hash);
        let first = bucket.load(Relaxed);
        // Release: as above. The record is not found until the mark is set.
        before.next().store(new.at().as_ptr(), Release);
        bucket.store(first.map_addr(|at| at | mark(hash)), Release);
        true
    }

    /// The position of a record in its chain: after the first value, if any, and before the second,
    /// or null. `None` if one of its key and sequence number exists.
    fn place(&self, hash: u64, new: Stored<'_>) -> Option<(Option<Stored<'_>>, *mut Record)> {
        let (mut before, mut after) = (None, without_marks(self.bucket(hash).load(Acquire)));
        while let Some(record) = shown(after).filter(|record| record.seqno() >= new.seqno()) {
            if record.seqno() == new.seqno() && record.key() == new.key() {
                return None;
            }
            before = Some(record);
            after = record.next().load(Acquire);
        }
        Some((before, after))
    }
}

#[inline]
fn without_marks(link: *mut Record) -> *mut Record {
    link.map_addr(|at| at & !MARKS)
}

/// The record of a loaded link, for as long as the caller borrows the tables, whose memtable owns
/// the arena.
#[inline]
fn shown<'a>(link: *mut Record) -> Option<Stored<'a>> {
    // SAFETY: a link points to a record in the arena of the memtable whose tables the caller
    // borrows; it was stored with release and loaded with acquire ordering (invariants of the
    // module).
    NonNull::new(link).map(|at| unsafe { Stored::new(at) })
}
