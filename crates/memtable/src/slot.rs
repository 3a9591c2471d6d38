//! A slot: an entry in an order, with the bytes that are compared first.
//!
//! # Invariants
//! * The record of a slot is in the arena of the memtable that holds the slot, or that a scan keeps
//!   alive.
//!
//! One of the modules of this crate that hold `unsafe`.

use std::cmp::Ordering;
use std::ptr::NonNull;

use trommel_base::{EntryRef, SeqNo, compare_internal, first_words};

use crate::arena::CLAIM_ALIGN;
use crate::record::{Record, Stored};

/// How far ahead of a scan a seek first looks for its target, in slots.
const NEAR: usize = 32;

/// The order of a key relative to the prefix that most keys share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    /// Smaller than the prefix.
    Below = 0,
    /// Begins with the prefix; the bytes after it are compared first.
    Within = 1,
    /// Greater than every key that begins with the prefix; every key, if there is no prefix.
    Above = 2,
}

impl Class {
    /// The class of `key`, and the part of it that is compared first.
    #[inline]
    fn and_tail<'a>(common_prefix: &[u8], key: &'a [u8]) -> (Self, &'a [u8]) {
        if common_prefix.is_empty() {
            return (Self::Above, key);
        }
        match key.strip_prefix(common_prefix) {
            Some(tail) => (Self::Within, tail),
            None if key < common_prefix => (Self::Below, key),
            None => (Self::Above, key),
        }
    }
}

/// The bits of a slot's address that hold the class.
const CLASS_BITS: usize = 3;
/// The bit that says that the slot before has the same key.
const REPEATS: usize = 4;
const TAG_BITS: usize = CLASS_BITS | REPEATS;
const _: () = assert!(CLASS_BITS & REPEATS == 0 && TAG_BITS < CLAIM_ALIGN);

/// An entry of the sorted order.
#[derive(Clone, Copy)]
pub(crate) struct Slot {
    /// The first 16 bytes of the key's tail as two numbers of the same order.
    high: u64,
    low: u64,
    /// The address of the record. Its lowest bits hold the class, and whether the slot before is
    /// known to have the same key.
    tagged: NonNull<Record>,
}

// SAFETY: it points to a record that is only read, except for an atomic.
unsafe impl Send for Slot {}
// SAFETY: as above.
unsafe impl Sync for Slot {}

impl Slot {
    /// The slot of a record, given the prefix that most keys share.
    #[inline]
    pub(crate) fn new(common_prefix: &[u8], record: Stored<'_>) -> Self {
        let (class, tail) = Class::and_tail(common_prefix, record.key());
        let words = first_words(tail);
        let tagged = record.at().map_addr(|at| at | class as usize);
        Self { high: (words >> 64) as u64, low: words as u64, tagged }
    }

    /// The values compared first: the class, and the first bytes of the key's tail.
    #[inline]
    pub(crate) fn rank(&self) -> (usize, u128) {
        let class = self.tagged.addr().get() & CLASS_BITS;
        (class, u128::from(self.high) << 64 | u128::from(self.low))
    }

    /// The address of the record.
    #[inline]
    pub(crate) fn at(&self) -> NonNull<Record> {
        // SAFETY: records are at multiples of `CLAIM_ALIGN`, never at 0, so the address is not zero
        // without its tag.
        unsafe { NonNull::new_unchecked(self.tagged.as_ptr().map_addr(|at| at & !TAG_BITS)) }
    }

    /// The record of this slot.
    #[inline]
    pub(crate) fn record(&self) -> Stored<'_> {
        // SAFETY: the arena lives (invariant of the module). Slots are passed on under a lock, and
        // records are written before their slot exists.
        unsafe { Stored::new(self.at()) }
    }

    /// The entry of this slot.
    #[inline]
    pub(crate) fn entry(&self) -> EntryRef<'_> {
        self.record().entry()
    }

    /// Notes that `before`, the slot before this one, has the same key, if it has.
    #[inline]
    pub(crate) fn note_before(&mut self, before: &Self) {
        if before.has_key_of(self) {
            self.tagged = self.tagged.map_addr(|at| at | REPEATS);
        }
    }

    /// Whether the slot before this one is known to have the same key.
    #[inline]
    pub(crate) fn repeats(&self) -> bool {
        self.tagged.addr().get() & REPEATS != 0
    }

    /// Whether both are versions of one key.
    #[inline]
    pub(crate) fn has_key_of(&self, other: &Self) -> bool {
        self.rank() == other.rank() && self.record().key() == other.record().key()
    }

    /// Whether its entry is before that of `other`.
    #[inline]
    pub(crate) fn comes_before(&self, other: &Self) -> bool {
        let (rank, other_rank) = (self.rank(), other.rank());
        if rank == other_rank { self.decide(other) } else { rank < other_rank }
    }

    /// As `comes_before`, for slots of the same rank.
    #[cold]
    pub(crate) fn decide(&self, other: &Self) -> bool {
        let (one, other) = (self.record(), other.record());
        compare_internal(one.key(), one.seqno(), other.key(), other.seqno()).is_lt()
    }
}

/// A position in the order.
pub(crate) struct Probe<'a> {
    /// As the rank of a slot.
    pub(crate) rank: (usize, u128),
    pub(crate) key: &'a [u8],
    pub(crate) seqno: SeqNo,
}

impl<'a> Probe<'a> {
    /// The position of version `seqno` of `key`, whether or not it exists.
    #[inline]
    pub(crate) fn new(common_prefix: &[u8], key: &'a [u8], seqno: SeqNo) -> Self {
        let (class, tail) = Class::and_tail(common_prefix, key);
        Self { rank: (class as usize, first_words(tail)), key, seqno }
    }

    /// Whether `slot` is before this position.
    #[inline]
    pub(crate) fn is_after(&self, slot: &Slot) -> bool {
        match slot.rank().cmp(&self.rank) {
            Ordering::Equal => {
                let record = slot.record();
                compare_internal(record.key(), record.seqno(), self.key, self.seqno).is_lt()
            }
            order => order.is_lt(),
        }
    }

    /// The number of slots of `run` before this position.
    pub(crate) fn place(&self, run: &[Slot]) -> usize {
        run.partition_point(|slot| self.is_after(slot))
    }

    /// As `place`; faster if it is among the next slots after `at`.
    pub(crate) fn place_near(&self, run: &[Slot], at: usize) -> usize {
        let near = run.get(at..).unwrap_or_default();
        let near = near.get(..NEAR).unwrap_or(near);
        match near {
            [next, .., last] if self.is_after(next) && !self.is_after(last) => {
                at + self.place(near)
            }
            _ => self.place(run),
        }
    }
}
