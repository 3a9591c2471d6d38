//! One version of one key in the arena: a head, followed by the key and the value.
//!
//! One of the modules of this crate that hold `unsafe`.

use std::marker::PhantomData;
use std::ptr::{self, NonNull};
use std::slice;

use trommel_base::entry::{pack_trailer, unpack_trailer};
use trommel_base::sync::linked::{AtomicPtr, Witness};
use trommel_base::{EntryKind, EntryRef, MAX_KEY_BYTES, MAX_SEQNO, MAX_VALUE_BYTES, SeqNo};

use crate::arena::{Arena, CLAIM_ALIGN};
use crate::prefetch::{CACHE_LINE, prefetch};

/// A link to a record, or null.
pub(crate) type Link = AtomicPtr<Record>;

/// The most bytes of an entry to prefetch. The hardware prefetcher follows longer ones.
const PREFETCH_BYTES: usize = 512;

/// The head of a record. Invariant: `key_len` bytes of key and `value_len` bytes of value follow it
/// in the same claim of an arena, and only `next` is ever written again.
#[repr(C)]
pub(crate) struct Record {
    /// The next record of its chain.
    next: Link,
    /// Sequence number and kind in one word.
    trailer: u64,
    key_len: u32,
    value_len: u32,
    /// Shows loom models whether a reader sees the record whole; empty in other builds.
    witness: Witness,
}

const _: () = assert!(align_of::<Record>() <= CLAIM_ALIGN);

/// A record that may be read for as long as its arena is borrowed.
///
/// Invariant: it was written whole, in an arena that lives for `'a`, and that write happens before
/// the creation of this value.
#[derive(Clone, Copy)]
pub(crate) struct Stored<'a> {
    at: NonNull<Record>,
    arena: PhantomData<&'a Arena>,
}

impl<'a> Stored<'a> {
    /// Writes a record that is not yet linked anywhere.
    ///
    /// # Panics
    /// If the key, the value or the sequence number exceeds its maximum.
    #[inline]
    pub(crate) fn write(
        arena: &'a Arena,
        key: &[u8],
        seqno: SeqNo,
        kind: EntryKind,
        value: &[u8],
    ) -> Self {
        assert!(key.len() <= MAX_KEY_BYTES, "a key of {} bytes is too long", key.len());
        assert!(value.len() <= MAX_VALUE_BYTES, "a value of {} bytes is too long", value.len());
        assert!(seqno <= MAX_SEQNO, "sequence number {seqno} has more than 56 bits");
        let at = arena.claim(size_of::<Record>() + key.len() + value.len()).cast::<Record>();
        // SAFETY: the claim is valid for writes of a head, the key and the value, is aligned for
        // the head, and is exclusive (`Arena::claim`), so it does not overlap the sources.
        unsafe {
            at.write(Record {
                next: Link::new(ptr::null_mut()),
                trailer: pack_trailer(seqno, kind),
                key_len: key.len() as u32,
                value_len: value.len() as u32,
                witness: Witness::new(),
            });
            let payload = at.add(1).cast::<u8>();
            payload.copy_from_nonoverlapping(NonNull::from(key).cast(), key.len());
            let end = payload.add(key.len());
            end.copy_from_nonoverlapping(NonNull::from(value).cast(), value.len());
        }
        Self { at, arena: PhantomData }
    }

    /// The record at `at`.
    ///
    /// # Safety
    /// `at` must be from [`Stored::at`], of a record in an arena that lives for `'a`, and must have
    /// reached this thread by synchronization that makes the record's write visible: a lock, or a
    /// link stored with release and loaded with acquire ordering.
    #[inline]
    pub(crate) unsafe fn new(at: NonNull<Record>) -> Self {
        let stored = Self { at, arena: PhantomData };
        stored.head().witness.look();
        stored
    }

    /// Its address: a multiple of [`CLAIM_ALIGN`].
    #[inline]
    pub(crate) fn at(self) -> NonNull<Record> {
        self.at
    }

    #[inline]
    fn head(self) -> &'a Record {
        // SAFETY: written before, in an arena that lives for `'a` (invariant of the type), and
        // never changed except for its link, which is an atomic.
        unsafe { self.at.as_ref() }
    }

    /// The link to the next record of its chain.
    #[inline]
    pub(crate) fn next(self) -> &'a Link {
        &self.head().next
    }

    #[inline]
    pub(crate) fn seqno(self) -> SeqNo {
        self.head().trailer >> 8
    }

    #[inline]
    pub(crate) fn key(self) -> &'a [u8] {
        // SAFETY: `key_len` bytes of key follow the head (invariant of `Record`), which are not
        // written while the arena lives.
        unsafe {
            let key = self.at.add(1).cast::<u8>();
            slice::from_raw_parts(key.as_ptr(), self.head().key_len as usize)
        }
    }

    #[inline]
    pub(crate) fn entry(self) -> EntryRef<'a> {
        let Record { trailer, key_len, value_len, .. } = self.head();
        let (seqno, kind) = unpack_trailer(*trailer).expect("packed by `write`");
        // SAFETY: `value_len` bytes of value follow the key (invariant of `Record`), which are not
        // written while the arena lives.
        let value = unsafe {
            let value = self.at.add(1).cast::<u8>().add(*key_len as usize);
            slice::from_raw_parts(value.as_ptr(), *value_len as usize)
        };
        EntryRef { key: self.key(), seqno, kind, value }
    }

    /// Prefetches the cache lines of key and value. Reads the head, which should be in the cache by
    /// then.
    #[inline]
    pub(crate) fn prefetch_payload(self) {
        let Record { key_len, value_len, .. } = self.head();
        let bytes = size_of::<Record>() + *key_len as usize + *value_len as usize;
        prefetch(
            self.at.addr().get() + CACHE_LINE,
            bytes.min(PREFETCH_BYTES).saturating_sub(CACHE_LINE),
        );
    }

    /// Prefetches the first cache line of the record at `at`.
    #[inline]
    pub(crate) fn prefetch_head(at: NonNull<Record>) {
        prefetch(at.addr().get(), 1);
    }
}
