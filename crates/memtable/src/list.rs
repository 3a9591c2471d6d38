//! The ordered list of entries: what a node of the skip list holds, how two compare, and the only
//! operations that are ever done on the list.
//!
//! # Algorithm
//! 1. A node holds the first 16 bytes of the key inline, so that most comparisons on the way down
//!    are of two integers on the cache line just loaded. A key of at most 16 bytes lies in the
//!    node whole; a longer one lies, whole, in the arena, with the value behind it.
//! 2. Entries stand in the order of [`trommel_base::compare_internal`].
//! 3. An insert is `get_or_insert`: it returns the node in the list under that key and sequence
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

/// Bytes of a key that lie in the node.
const INLINE_BYTES: usize = 16;

/// What a node of the skip list holds: an entry, its payload elsewhere.
///
/// Invariant: if `key_len` is more than 16, `payload` is valid for reads of the key's bytes for
/// as long as this value is used; in a stored entry, those of the value lie behind them (or at
/// `payload`, if the key is inline). Nobody writes to them.
struct Node {
    /// The first bytes of the key, filled up with zeros.
    prefix: [u8; INLINE_BYTES],
    /// Sequence number and kind in one word.
    trailer: u64,
    payload: NonNull<u8>,
    key_len: u32,
    value_len: u32,
}

// SAFETY: `payload` points at bytes that nobody writes to (invariant of the type).
unsafe impl Send for Node {}
// SAFETY: as above.
unsafe impl Sync for Node {}

impl Node {
    fn prefix_of(key: &[u8]) -> [u8; INLINE_BYTES] {
        let mut prefix = [0; INLINE_BYTES];
        let len = key.len().min(INLINE_BYTES);
        prefix[..len].copy_from_slice(&key[..len]);
        prefix
    }

    /// The first bytes of the key as a number of the same order.
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
    fn key(&self) -> &[u8] {
        let len = self.key_len as usize;
        if len <= INLINE_BYTES {
            return &self.prefix[..len];
        }
        // SAFETY: the key is not inline, so `payload` is valid for `key_len` bytes that nobody
        // writes to (invariant of the type).
        unsafe { slice::from_raw_parts(self.payload.as_ptr(), len) }
    }

    /// The order of two keys of which the first 16 bytes, filled up with zeros, are equal.
    #[inline]
    fn compare_behind_prefix(&self, other: &Self) -> Ordering {
        if self.key_len.min(other.key_len) as usize <= INLINE_BYTES {
            // One is the other with zeros, or a rest, behind it.
            return self.key_len.cmp(&other.key_len);
        }
        self.key()[INLINE_BYTES..].cmp(&other.key()[INLINE_BYTES..])
    }
}

impl Ord for Node {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        self.prefix_word()
            .cmp(&other.prefix_word())
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

impl<'a> Probe<'a> {
    #[inline]
    fn new(key: &'a [u8], seqno: SeqNo) -> Self {
        // The bytes at `payload` are borrowed for as long as the probe lives, which the list
        // never keeps. A length beyond 32 bits may be cut: stored keys are shorter than that, so
        // the key compares with each of them as before.
        let node = Node {
            prefix: Node::prefix_of(key),
            trailer: pack_trailer(seqno.min(MAX_SEQNO), EntryKind::Put),
            payload: NonNull::from(key).cast(),
            key_len: u32::try_from(key.len()).unwrap_or(u32::MAX),
            value_len: 0,
        };
        Self { node, key: PhantomData }
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
    /// Dropped after the nodes that point into it, which do not look there when dropped.
    arena: Arena,
}

impl EntryList {
    pub(crate) fn new(pool: &Arc<ArenaPool>) -> Self {
        Self {
            nodes: SkipList::new(epoch::default_collector().clone()),
            arena: Arena::new(Arc::clone(pool)),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.arena.reserved_bytes() + self.len() * NODE_BYTES
    }

    pub(crate) fn insert(&self, key: &[u8], seqno: SeqNo, kind: EntryKind, value: &[u8]) {
        assert!(key.len() <= MAX_KEY_BYTES, "a key of {} bytes is too long", key.len());
        assert!(value.len() <= MAX_VALUE_BYTES, "a value of {} bytes is too long", value.len());
        assert!(seqno <= MAX_SEQNO, "sequence number {seqno} has more than 56 bits");
        let stored_key = if key.len() <= INLINE_BYTES { &[] } else { key };
        let payload = self.arena.store(stored_key, value);
        let node = Node {
            prefix: Node::prefix_of(key),
            trailer: pack_trailer(seqno, kind),
            payload,
            key_len: key.len() as u32,
            value_len: value.len() as u32,
        };
        let entry = self.nodes.get_or_insert(node, (), guard());
        // Every stored payload has an address of its own, so this tells the new node from an
        // older one at no cost.
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
        let probe = Probe::new(key, seqno);
        let entry = self.nodes.lower_bound(Bound::Included(&probe.node), guard())?;
        // SAFETY: the node is in `self.nodes`, and `self` is borrowed for the result's lifetime.
        Some(unsafe { entry_ref(entry.key()) })
    }
}

/// What a stored node says.
///
/// # Safety
/// `node` must lie in the list of an [`EntryList`] that lives for `'a`.
#[inline]
unsafe fn entry_ref<'a>(node: &'a Node) -> EntryRef<'a> {
    let (seqno, kind) = unpack_trailer(node.trailer).expect("packed by insert");
    let key = node.key();
    let behind_key = if key.len() <= INLINE_BYTES { 0 } else { key.len() };
    // SAFETY: `insert` stored the value behind the key, if that is not inline, in the list's
    // arena, which the caller says lives for `'a` and which never writes to stored bytes again.
    // They were written before the node was made reachable by a compare-and-swap of release
    // order, and a reader comes to them through that very pointer.
    let value = unsafe {
        slice::from_raw_parts(node.payload.add(behind_key).as_ptr(), node.value_len as usize)
    };
    EntryRef { key, seqno, kind, value }
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

    fn move_to(&mut self, find: impl FnOnce(&'static SkipList<Node, ()>) -> Option<StaticEntry>) {
        let nodes: *const SkipList<Node, ()> = &self.owner.entries.nodes;
        // SAFETY: the list lies behind the `Arc` that `self` keeps, which never moves it. The
        // entry found goes into `self.at` and out of it only as a borrow of `self`.
        let nodes: &'static SkipList<Node, ()> = unsafe { &*nodes };
        self.at = find(nodes).map(MaybeUninit::new);
    }

    fn at(&self) -> Option<&StaticEntry> {
        // SAFETY: initialised whenever it is there; the list it points into is alive with
        // `self.owner`.
        self.at.as_ref().map(|entry| unsafe { entry.assume_init_ref() })
    }

    pub(crate) fn first(&mut self) {
        self.move_to(|nodes| nodes.front(guard()));
    }

    pub(crate) fn last(&mut self) {
        self.move_to(|nodes| nodes.back(guard()));
    }

    /// To the first entry at or behind (`key`, `seqno`).
    pub(crate) fn at_or_behind(&mut self, key: &[u8], seqno: SeqNo) {
        let probe = Probe::new(key, seqno);
        self.move_to(|nodes| nodes.lower_bound(Bound::Included(&probe.node), guard()));
    }

    /// To the last entry before (`key`, `seqno`).
    pub(crate) fn before(&mut self, key: &[u8], seqno: SeqNo) {
        let probe = Probe::new(key, seqno);
        self.move_to(|nodes| nodes.upper_bound(Bound::Excluded(&probe.node), guard()));
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
        // SAFETY: the node is in the list of `self.owner`, which lives as long as `self`, and
        // `self` is borrowed for the result's lifetime.
        self.at().map(|entry| unsafe { entry_ref(entry.key()) })
    }
}
