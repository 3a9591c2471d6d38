//! What a node of the list says, and how two compare.
//!
//! # Algorithm
//! 1. A list may be told a prefix that most keys will share. A key that has it is compared by its
//!    *tail*, what stands behind the prefix; any other key has itself for a tail. The keys below
//!    the prefix, those that have it, and those above make three classes that stand one behind
//!    the other, so the order of keys is that of (class, tail).
//! 2. A node holds the class and the first 16 bytes of the tail inline, so that most comparisons
//!    on the way down are of integers on the cache line just loaded. A key of at most 16 bytes
//!    that is its own tail lies in the node whole; any other lies, whole, in the arena, with the
//!    value behind it.
//!
//! One of the modules of this crate that hold `unsafe`.

use std::cmp::Ordering;
use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr::NonNull;
use std::slice;

use trommel_base::entry::pack_trailer;
use trommel_base::sync::linked::Witness;
use trommel_base::{EntryKind, MAX_SEQNO, SeqNo};

/// Bytes of a tail that lie in the node.
///
/// With none, inserts and gets take about twice as long. Eight are as fast as
/// sixteen where they tell keys apart; sixteen do so more often, and hold a short key whole.
const INLINE_BYTES: usize = 16;

/// Bits of [`Node::class_and_len`] that hold the length.
const LEN_BITS: u32 = 30;

/// Where a key stands to the prefix that most keys share.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Class {
    /// Smaller than the prefix.
    Below = 0,
    /// Begins with the prefix, which has at least one byte; the tail is what stands behind it.
    Within = 1,
    /// Larger than every key that begins with the prefix; every key, if there is no prefix.
    Above = 2,
}

impl Class {
    /// The class of `key`, and its tail, under the prefix that most keys share.
    #[inline]
    pub(crate) fn and_tail<'a>(common_prefix: &[u8], key: &'a [u8]) -> (Self, &'a [u8]) {
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

/// What a node of the list says: an entry, its payload elsewhere. The node's links lie behind it.
///
/// Invariant: if the tail is not inline, `payload` is valid for reads of it for as long as this
/// value is used; in a stored entry, the shared prefix lies in front of it, if its class is
/// `Within`, and the value behind it. If it is inline, `payload` is where the value lies. Nobody
/// writes to any of them.
#[repr(C)]
pub(crate) struct Node {
    /// The first bytes of the tail, filled up with zeros.
    prefix: [u8; INLINE_BYTES],
    /// Class in the highest bits, length of the tail below.
    class_and_len: u32,
    pub(crate) value_len: u32,
    /// Sequence number and kind in one word.
    pub(crate) trailer: u64,
    pub(crate) payload: NonNull<u8>,
    /// Tells models whether who looks at the node has been shown it whole; else nothing.
    pub(crate) witness: Witness,
}

// SAFETY: `payload` points at bytes that nobody writes to (invariant of the type). A witness is
// only looked at; in models it is told of every look.
unsafe impl Send for Node {}
// SAFETY: as above.
unsafe impl Sync for Node {}

impl Node {
    /// What comes before every entry: it is compared with none.
    pub(crate) fn head() -> Self {
        Self::new(Class::Below, &[], 0)
    }

    /// Of `tail`, with no value and no payload yet.
    #[inline]
    pub(crate) fn new(class: Class, tail: &[u8], trailer: u64) -> Self {
        // A length beyond `LEN_BITS` is cut, which no stored key can tell: it is shorter.
        let len = tail.len().min((1 << LEN_BITS) - 1) as u32;
        Self {
            prefix: Self::prefix_of(tail),
            class_and_len: (class as u32) << LEN_BITS | len,
            value_len: 0,
            trailer,
            payload: NonNull::dangling(),
            witness: Witness::new(),
        }
    }

    /// The first bytes of `tail`, filled up with zeros.
    #[inline]
    fn prefix_of(tail: &[u8]) -> [u8; INLINE_BYTES] {
        if let Some(prefix) = tail.first_chunk() {
            return *prefix;
        }
        let mut prefix = [0; INLINE_BYTES];
        prefix[..tail.len()].copy_from_slice(tail);
        prefix
    }

    /// The first bytes of the tail as a number of the same order.
    #[inline(always)]
    #[expect(
        clippy::big_endian_bytes,
        reason = "the order of bytes is that of their big-endian number"
    )]
    fn prefix_word(&self) -> u128 {
        u128::from_be_bytes(self.prefix)
    }

    #[inline]
    fn seqno(&self) -> SeqNo {
        self.trailer >> 8
    }

    #[inline(always)]
    fn class(&self) -> u32 {
        self.class_and_len >> LEN_BITS
    }

    /// Whether the tail stands behind the prefix that most keys share.
    #[inline]
    pub(crate) fn is_within(&self) -> bool {
        self.class() == Class::Within as u32
    }

    #[inline]
    pub(crate) fn tail_len(&self) -> usize {
        (self.class_and_len & ((1 << LEN_BITS) - 1)) as usize
    }

    /// Whether the tail lies in the node and is the whole key.
    #[inline]
    pub(crate) fn is_inline(&self) -> bool {
        self.tail_len() <= INLINE_BYTES && !self.is_within()
    }

    #[inline]
    pub(crate) fn tail(&self) -> &[u8] {
        if self.is_inline() {
            return &self.prefix[..self.tail_len()];
        }
        // SAFETY: the tail is not inline, so `payload` is valid for its bytes, to which nobody
        // writes (invariant of the type).
        unsafe { slice::from_raw_parts(self.payload.as_ptr(), self.tail_len()) }
    }

    /// How this one stands to `other` in the order of [`trommel_base::compare_internal`].
    #[inline(always)]
    pub(crate) fn compare(&self, other: &Self) -> Ordering {
        if self.class() != other.class() {
            return self.class().cmp(&other.class());
        }
        let (word, other_word) = (self.prefix_word(), other.prefix_word());
        if word != other_word {
            return if word < other_word { Ordering::Less } else { Ordering::Greater };
        }
        self.compare_behind_prefix(other)
    }

    /// The order of two nodes of one class of whose tails the first 16 bytes, filled up with zeros,
    /// are equal.
    fn compare_behind_prefix(&self, other: &Self) -> Ordering {
        let (len, other_len) = (self.tail_len(), other.tail_len());
        let by_key = if len.min(other_len) <= INLINE_BYTES {
            // One is the other with zeros, or more than that, behind it.
            len.cmp(&other_len)
        } else {
            self.tail()[INLINE_BYTES..].cmp(&other.tail()[INLINE_BYTES..])
        };
        by_key.then_with(|| other.seqno().cmp(&self.seqno()))
    }
}

/// A place in the order to search for: a node over a key that is the caller's.
pub(crate) struct Probe<'a> {
    node: Node,
    key: PhantomData<&'a [u8]>,
}

impl<'a> Probe<'a> {
    #[inline]
    pub(crate) fn new(common_prefix: &[u8], key: &'a [u8], seqno: SeqNo) -> Self {
        let (class, tail) = Class::and_tail(common_prefix, key);
        let mut node = Node::new(class, tail, pack_trailer(seqno.min(MAX_SEQNO), EntryKind::Put));
        // Borrowed for as long as the probe lives.
        node.payload = NonNull::from(tail).cast();
        Self { node, key: PhantomData }
    }
}

impl Deref for Probe<'_> {
    type Target = Node;

    #[inline]
    fn deref(&self) -> &Node {
        &self.node
    }
}
