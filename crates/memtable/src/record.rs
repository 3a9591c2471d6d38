//! One version of one key as it lies in the arena: a head, the key behind it, the value behind
//! that.
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

/// To a record, or null.
pub(crate) type Link = AtomicPtr<Record>;

/// Bytes of an entry to prefetch. The hardware prefetcher follows what is longer.
const PREFETCH_BYTES: usize = 512;

/// The head of a record. Invariant: `key_len` bytes of key and `value_len` bytes of value lie
/// behind it in the same claim of an arena, and only `next` is ever written again.
#[repr(C)]
pub(crate) struct Record {
    /// To the next record of its chain.
    next: Link,
    /// Sequence number and kind in one word.
    trailer: u64,
    key_len: u32,
    value_len: u32,
    /// Tells models whether who looks at the record has been shown it whole; else nothing.
    witness: Witness,
}

const _: () = assert!(align_of::<Record>() <= CLAIM_ALIGN);

/// A record that may be read for as long as its arena is borrowed.
///
/// Invariant: it was written whole, in an arena that lives for `'a`, before whoever holds this came
/// to it.
#[derive(Clone, Copy)]
pub(crate) struct Stored<'a> {
    at: NonNull<Record>,
    arena: PhantomData<&'a Arena>,
}

impl<'a> Stored<'a> {
    /// Writes a record that nobody knows of yet.
    ///
    /// # Panics
    /// If a part of it is longer, or its number larger, than a store takes.
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
        // the head, and nobody else knows of it (`Arena::claim`), so it is apart from both sources.
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
            let behind = payload.add(key.len());
            behind.copy_from_nonoverlapping(NonNull::from(value).cast(), value.len());
        }
        Self { at, arena: PhantomData }
    }

    /// The record at `at`.
    ///
    /// # Safety
    /// It must have come from [`Stored::at`], of an arena that lives for `'a`, to this thread by a
    /// path that shows it all that was written before: a lock, or a link set with release order and
    /// read with acquire order.
    #[inline]
    pub(crate) unsafe fn new(at: NonNull<Record>) -> Self {
        let stored = Self { at, arena: PhantomData };
        stored.head().witness.look();
        stored
    }

    /// Where it lies: at a multiple of [`CLAIM_ALIGN`].
    #[inline]
    pub(crate) fn at(self) -> NonNull<Record> {
        self.at
    }

    #[inline]
    fn head(self) -> &'a Record {
        // SAFETY: written before, in an arena that lives for `'a` (invariant of the type), and
        // never changed but for its link, which is an atomic.
        unsafe { self.at.as_ref() }
    }

    /// To the next record of its chain.
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
        // SAFETY: as many bytes of key lie behind the head (invariant of `Record`), which nobody
        // writes to while the arena lives.
        unsafe {
            let key = self.at.add(1).cast::<u8>();
            slice::from_raw_parts(key.as_ptr(), self.head().key_len as usize)
        }
    }

    #[inline]
    pub(crate) fn entry(self) -> EntryRef<'a> {
        let Record { trailer, key_len, value_len, .. } = self.head();
        let (seqno, kind) = unpack_trailer(*trailer).expect("packed by `write`");
        // SAFETY: as many bytes of value lie behind the key (invariant of `Record`), which nobody
        // writes to while the arena lives.
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
