//! The ordered list of entries: what a node of the skip list holds, how two compare, and the only
//! operations that are ever done on the list.
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
//! 3. Entries stand in the order of [`trommel_base::compare_internal`].
//! 4. An insert is `get_or_insert`: it returns the node in the list under that key and sequence
//!    number. If that is not the new one, the caller has broken its word, and the insert panics.
//!
//! # Invariants
//! * (key, sequence number) is unique. Nothing is replaced, nothing is removed: the list only
//!   grows until it is dropped. crossbeam-skiplist 0.1.3 loses reads otherwise (its issue 1023),
//!   and everything that is `unsafe` here rests on it.
//! * A node, once reachable, is never changed but for its links.
//!
//! This is one of the two modules of this crate that hold `unsafe`.

use std::cmp::Ordering;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::Bound;
use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;

use crossbeam_epoch::{self as epoch, Guard};
use crossbeam_skiplist::base::{Entry, SkipList};
use trommel_base::entry::{pack_trailer, unpack_trailer};
use trommel_base::{EntryKind, EntryRef, MAX_KEY_BYTES, MAX_SEQNO, MAX_VALUE_BYTES, SeqNo};

use crate::Memtable;
use crate::arena::{Arena, ArenaPool};

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
enum Class {
    /// Smaller than the prefix.
    Below = 0,
    /// Begins with the prefix, which has at least one byte; the tail is what stands behind it.
    Within = 1,
    /// Larger than every key that begins with the prefix; every key, if there is no prefix.
    Above = 2,
}

/// What a node of the skip list holds: an entry, its payload elsewhere.
///
/// Invariant: if the tail is not inline, `payload` is valid for reads of it for as long as this
/// value is used; in a stored entry, the shared prefix lies in front of it, if its class is
/// `Within`, and the value behind it. If it is inline, `payload` is where the value lies. Nobody
/// writes to any of them.
struct Node {
    /// The first bytes of the tail, filled up with zeros.
    prefix: [u8; INLINE_BYTES],
    /// Class in the highest bits, length of the tail below.
    class_and_len: u32,
    value_len: u32,
    /// Sequence number and kind in one word.
    trailer: u64,
    payload: NonNull<u8>,
}

// SAFETY: `payload` points at bytes that nobody writes to (invariant of the type).
unsafe impl Send for Node {}
// SAFETY: as above.
unsafe impl Sync for Node {}

impl Node {
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

    /// A length beyond [`LEN_BITS`] is cut, which no stored key can tell: it is shorter.
    #[inline]
    fn class_and_len(class: Class, tail: &[u8]) -> u32 {
        let len = tail.len().min((1 << LEN_BITS) - 1) as u32;
        (class as u32) << LEN_BITS | len
    }

    /// The first bytes of the tail as a number of the same order.
    #[inline]
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

    #[inline]
    fn class(&self) -> u32 {
        self.class_and_len >> LEN_BITS
    }

    #[inline]
    fn tail_len(&self) -> usize {
        (self.class_and_len & ((1 << LEN_BITS) - 1)) as usize
    }

    /// Whether the tail lies in the node and is the whole key.
    #[inline]
    fn is_inline(&self) -> bool {
        self.tail_len() <= INLINE_BYTES && self.class() != Class::Within as u32
    }

    #[inline]
    fn tail(&self) -> &[u8] {
        if self.is_inline() {
            return &self.prefix[..self.tail_len()];
        }
        // SAFETY: the tail is not inline, so `payload` is valid for its bytes, to which nobody
        // writes (invariant of the type).
        unsafe { slice::from_raw_parts(self.payload.as_ptr(), self.tail_len()) }
    }

    /// The order of two tails of which the first 16 bytes, filled up with zeros, are equal.
    #[inline]
    fn compare_behind_prefix(&self, other: &Self) -> Ordering {
        let (len, other_len) = (self.tail_len(), other.tail_len());
        if len.min(other_len) <= INLINE_BYTES {
            // One is the other with zeros, or more than that, behind it.
            return len.cmp(&other_len);
        }
        self.tail()[INLINE_BYTES..].cmp(&other.tail()[INLINE_BYTES..])
    }
}

impl Ord for Node {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        self.class()
            .cmp(&other.class())
            .then_with(|| self.prefix_word().cmp(&other.prefix_word()))
            .then_with(|| self.compare_behind_prefix(other))
            .then_with(|| other.seqno().cmp(&self.seqno()))
    }
}

impl PartialOrd for Node {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Node {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Node {}

/// A place in the order to search for: a node over a key that is the caller's.
struct Probe<'a> {
    node: Node,
    key: PhantomData<&'a [u8]>,
}

/// The class of `key`, and its tail, under the prefix that most keys share.
#[inline]
fn class_and_tail<'a>(common_prefix: &[u8], key: &'a [u8]) -> (Class, &'a [u8]) {
    if common_prefix.is_empty() {
        return (Class::Above, key);
    }
    match key.strip_prefix(common_prefix) {
        Some(tail) => (Class::Within, tail),
        None if key < common_prefix => (Class::Below, key),
        None => (Class::Above, key),
    }
}

/// The guard that all operations run under: none.
fn guard() -> &'static Guard {
    // SAFETY: a guard keeps nodes that were unlinked from being freed. This module unlinks none:
    // it calls neither `remove`, `pop_*`, `clear` nor `insert` (which replaces), so no tower is
    // ever marked, no count of references falls to zero (the link at the lowest level counts as
    // one), nothing is deferred, and nodes are freed by the list's `drop` only, which has the list
    // to itself. Two threads may use the unprotected guard at once: it has no state.
    unsafe { epoch::unprotected() }
}

/// Entries in order, and the memory their keys and values lie in.
pub(crate) struct EntryList {
    nodes: SkipList<Node, ()>,
    /// What most keys are expected to begin with.
    common_prefix: Box<[u8]>,
    /// Dropped after the nodes that point into it, which do not look there when dropped.
    arena: Arena,
}

impl EntryList {
    pub(crate) fn new(pool: &Arc<ArenaPool>, common_prefix: &[u8]) -> Self {
        Self {
            nodes: SkipList::new(epoch::default_collector().clone()),
            common_prefix: Box::from(common_prefix),
            arena: Arena::new(Arc::clone(pool)),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.arena.reserved_bytes() + self.len() * NODE_BYTES + self.common_prefix.len()
    }

    pub(crate) fn insert(&self, key: &[u8], seqno: SeqNo, kind: EntryKind, value: &[u8]) {
        assert!(key.len() <= MAX_KEY_BYTES, "a key of {} bytes is too long", key.len());
        assert!(value.len() <= MAX_VALUE_BYTES, "a value of {} bytes is too long", value.len());
        assert!(seqno <= MAX_SEQNO, "sequence number {seqno} has more than 56 bits");
        let (class, tail) = class_and_tail(&self.common_prefix, key);
        let mut node = Node {
            prefix: Node::prefix_of(tail),
            class_and_len: Node::class_and_len(class, tail),
            value_len: value.len() as u32,
            trailer: pack_trailer(seqno, kind),
            payload: NonNull::dangling(),
        };
        let stored_key = if node.is_inline() { &[] } else { key };
        let stored = self.arena.store(stored_key, value);
        // SAFETY: either nothing is skipped or the whole key was stored, of which the tail is a
        // part.
        let payload = unsafe { stored.add(stored_key.len().saturating_sub(tail.len())) };
        node.payload = payload;
        let entry = self.nodes.get_or_insert(node, (), guard());
        // No two payloads of one key are at the same address, since `store` returns none twice;
        // so this tells the new node from an older one, at no cost.
        let is_new = entry.key().payload == payload;
        // Gives back the reference that came with the entry; the list's own remain.
        entry.release(guard());
        assert!(
            is_new,
            "key {} was inserted twice with sequence number {seqno}",
            key.escape_ascii()
        );
    }

    /// The first entry at or behind (`key`, `seqno`).
    #[inline]
    pub(crate) fn first_at(&self, key: &[u8], seqno: SeqNo) -> Option<EntryRef<'_>> {
        let probe = self.probe(key, seqno);
        let entry = self.nodes.lower_bound(Bound::Included(&probe.node), guard())?;
        // SAFETY: the node was just found in this list.
        Some(unsafe { self.entry_ref(entry.key()) })
    }

    #[inline]
    fn probe<'a>(&self, key: &'a [u8], seqno: SeqNo) -> Probe<'a> {
        let (class, tail) = class_and_tail(&self.common_prefix, key);
        // The tail is borrowed for as long as the probe lives, which the list never keeps.
        let node = Node {
            prefix: Node::prefix_of(tail),
            class_and_len: Node::class_and_len(class, tail),
            value_len: 0,
            trailer: pack_trailer(seqno.min(MAX_SEQNO), EntryKind::Put),
            payload: NonNull::from(tail).cast(),
        };
        Probe { node, key: PhantomData }
    }

    /// What a node of this list says.
    ///
    /// # Safety
    /// `node` must lie in this very list.
    #[inline]
    unsafe fn entry_ref<'a>(&'a self, node: &'a Node) -> EntryRef<'a> {
        let (seqno, kind) = unpack_trailer(node.trailer).expect("packed by insert");
        let skipped =
            if node.class() == Class::Within as u32 { self.common_prefix.len() } else { 0 };
        let (key, value_at) = if node.is_inline() {
            (node.tail(), node.payload)
        } else {
            let len = skipped + node.tail_len();
            // SAFETY: `insert` stored the whole key of a node that is not inline, and `payload`
            // is where its tail begins, behind the prefix of this list if it has that. The arena
            // lives as long as `self`, borrowed here, and never writes to stored bytes again.
            // They were written before the node was made reachable by a compare-and-swap of
            // release order, and a reader comes to them through that very pointer.
            let key = unsafe { slice::from_raw_parts(node.payload.sub(skipped).as_ptr(), len) };
            // SAFETY: the value, perhaps empty, was stored behind the key in the same allocation.
            (key, unsafe { node.payload.add(node.tail_len()) })
        };
        // SAFETY: `insert` stored `value_len` bytes of value there; for the rest as above.
        let value = unsafe { slice::from_raw_parts(value_at.as_ptr(), node.value_len as usize) };
        EntryRef { key, seqno, kind, value }
    }
}

/// What one node takes of the allocator's memory, on average, in bytes.
///
/// A node of height h is the entry, a word of counts and h links; half of all nodes have height
/// 1, a quarter height 2, and so on. An allocator of the usual make adds a word and rounds up to
/// 16 bytes.
const NODE_BYTES: usize = {
    let mut sum = 0;
    let mut height = 1;
    while height <= 16 {
        let bytes = size_of::<Node>() + (1 + height) * size_of::<usize>();
        let taken = (bytes + size_of::<usize>()).next_multiple_of(16);
        sum += taken << (16 - height);
        height += 1;
    }
    sum.div_ceil(1 << 16)
};

type StaticEntry = Entry<'static, 'static, Node, ()>;

/// A place on a memtable's list, which it keeps alive.
pub(crate) struct Position {
    /// The node, if any.
    ///
    /// Its lifetimes are a fiction: it is valid as long as `owner` is. `MaybeUninit` (always
    /// initialised here) tells the compiler not to count on its references being valid while a
    /// position is moved or dropped, when `owner` may already be gone.
    at: Option<MaybeUninit<StaticEntry>>,
    owner: Arc<Memtable>,
}

// SAFETY: an entry is three shared references: to the list and a node, both `Sync`, and to the
// unprotected guard, which has no state and belongs to no thread.
unsafe impl Send for Position {}
// SAFETY: as above.
unsafe impl Sync for Position {}

impl Position {
    /// Off the end of `owner`'s list.
    pub(crate) fn new(owner: Arc<Memtable>) -> Self {
        Self { at: None, owner }
    }

    fn move_to(&mut self, find: impl FnOnce(&'static EntryList) -> Option<StaticEntry>) {
        let list: *const EntryList = &self.owner.entries;
        // SAFETY: the list lies behind the `Arc` that `self` keeps, which never moves it. The
        // entry found goes into `self.at` and out of it only as a borrow of `self`.
        self.at = find(unsafe { &*list }).map(MaybeUninit::new);
    }

    fn at(&self) -> Option<&StaticEntry> {
        // SAFETY: initialised whenever it is there; the list it points into is alive with
        // `self.owner`.
        self.at.as_ref().map(|entry| unsafe { entry.assume_init_ref() })
    }

    pub(crate) fn first(&mut self) {
        self.move_to(|list| list.nodes.front(guard()));
    }

    pub(crate) fn last(&mut self) {
        self.move_to(|list| list.nodes.back(guard()));
    }

    /// To the first entry at or behind (`key`, `seqno`).
    pub(crate) fn at_or_behind(&mut self, key: &[u8], seqno: SeqNo) {
        self.move_to(|list| {
            let probe = list.probe(key, seqno);
            list.nodes.lower_bound(Bound::Included(&probe.node), guard())
        });
    }

    /// To the last entry before (`key`, `seqno`).
    pub(crate) fn before(&mut self, key: &[u8], seqno: SeqNo) {
        self.move_to(|list| {
            let probe = list.probe(key, seqno);
            list.nodes.upper_bound(Bound::Excluded(&probe.node), guard())
        });
    }

    /// One entry on; off the end, nowhere.
    pub(crate) fn next(&mut self) {
        self.at = self.at().and_then(Entry::next).map(MaybeUninit::new);
    }

    /// One entry back; off the end, nowhere.
    pub(crate) fn prev(&mut self) {
        self.at = self.at().and_then(Entry::prev).map(MaybeUninit::new);
    }

    #[inline]
    pub(crate) fn entry(&self) -> Option<EntryRef<'_>> {
        // SAFETY: `at` is only ever set from the list of `self.owner`.
        self.at().map(|entry| unsafe { self.owner.entries.entry_ref(entry.key()) })
    }
}
