//! The ordered list of entries: a skip list that only grows, without a lock.
//!
//! # Algorithm
//! W. Pugh, "Skip lists: a probabilistic alternative to balanced trees" (1990), with links that are
//! set by compare-and-swap, as M. Herlihy and N. Shavit describe, and as insert-only lists of other
//! stores do (LevelDB, RocksDB's `InlineSkipList`):
//! 1. A node of height h stands in the lists of levels 0 to h - 1; of four nodes of one level one
//!    stands in the next. Level 0 holds every entry, in the order of
//!    [`trommel_base::compare_internal`].
//! 2. A search goes along the highest level to the last node before what it looks for, and from
//!    there along the next. An insert remembers for each level the node before and the one behind,
//!    and puts its own between them from the lowest level up, by one compare-and-swap each. Where
//!    another thread was faster, it goes on from the node before; nothing is ever unlinked, so that
//!    one is still in the list.
//! 3. Nodes lie in the arena, with their links behind them: a node of up to three levels is one
//!    cache line. While a search waits for one node it asks for the one it would look at next.
//! 4. At level 0 an insert finds an entry of the same key and sequence number, if there is one: then
//!    the caller has broken its word, and the insert panics.
//!
//! # Invariants
//! * (key, sequence number) is unique. Nothing is replaced, nothing is removed: the list only
//!   grows until it is dropped.
//! * A node, once reachable, is never changed but for its links, and is in the list of every level
//!   below that at which it was reached.
//! * Who reaches a node has been shown all of it, and its payload: links are set with release order
//!   and read with acquire order.
//!
//! One of the modules of this crate that hold `unsafe`.

use std::cmp::Ordering;
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use trommel_base::entry::{pack_trailer, unpack_trailer};
use trommel_base::sync::linked::{AtomicPtr, AtomicUsize};
use trommel_base::{EntryKind, EntryRef, MAX_KEY_BYTES, MAX_SEQNO, MAX_VALUE_BYTES, SeqNo};

use crate::Memtable;
use crate::arena::{Arena, ArenaPool, LINE};
use crate::node::{Class, Node, Probe};

/// Levels at most: with a quarter of each level's nodes in the next, for some sixteen million
/// entries. More entries make searches longer, nothing else.
const MAX_HEIGHT: usize = if cfg!(trommel_loom) { 3 } else { 12 };

/// To the next node of one level; null at its end.
type Link = AtomicPtr<Node>;

/// What stands before the first node of every level.
#[repr(C, align(64))]
struct Head {
    node: Node,
    links: [Link; MAX_HEIGHT],
}

// Links are behind a node as they are behind the head's, with nothing between.
const _: () = assert!(size_of::<Node>().is_multiple_of(align_of::<Link>()));
const _: () = assert!(align_of::<Link>() <= align_of::<Node>() && align_of::<Node>() <= LINE);

/// Entries in order, and the memory their nodes, keys and values lie in.
pub(crate) struct EntryList {
    head: Head,
    /// Levels that may hold a node. A search that sees it late takes longer.
    height: AtomicUsize,
    /// What most keys are expected to begin with.
    common_prefix: Box<[u8]>,
    len: AtomicUsize,
    arena: Arena,
}

/// Where a node goes: for each level the node before it, and the one behind or null.
struct Place {
    before: [NonNull<Node>; MAX_HEIGHT],
    behind: [*mut Node; MAX_HEIGHT],
}

impl EntryList {
    pub(crate) fn new(pool: &Arc<ArenaPool>, common_prefix: &[u8]) -> Self {
        Self {
            head: Head {
                node: Node::head(),
                links: std::array::from_fn(|_| Link::new(ptr::null_mut())),
            },
            height: AtomicUsize::new(1),
            common_prefix: Box::from(common_prefix),
            len: AtomicUsize::new(0),
            arena: Arena::new(Arc::clone(pool)),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.len.load(Relaxed)
    }

    /// Whether no entry can be found yet.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.head.links[0].load(Acquire).is_null()
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.arena.reserved_bytes() + self.common_prefix.len()
    }

    pub(crate) fn insert(&self, key: &[u8], seqno: SeqNo, kind: EntryKind, value: &[u8]) {
        assert!(
            self.insert_new(key, seqno, kind, value),
            "key {} was inserted twice with sequence number {seqno}",
            key.escape_ascii()
        );
    }

    /// Inserts unless there is an entry of this key and sequence number; false if there is.
    #[inline]
    pub(crate) fn insert_new(
        &self,
        key: &[u8],
        seqno: SeqNo,
        kind: EntryKind,
        value: &[u8],
    ) -> bool {
        assert!(key.len() <= MAX_KEY_BYTES, "a key of {} bytes is too long", key.len());
        assert!(value.len() <= MAX_VALUE_BYTES, "a value of {} bytes is too long", value.len());
        assert!(seqno <= MAX_SEQNO, "sequence number {seqno} has more than 56 bits");
        let height = height_of(seqno);
        self.link(self.store(key, pack_trailer(seqno, kind), value, height), height)
    }

    /// Makes a node that nobody knows of yet.
    #[inline]
    fn store(&self, key: &[u8], trailer: u64, value: &[u8], height: usize) -> NonNull<Node> {
        let (class, tail) = Class::and_tail(&self.common_prefix, key);
        let mut node = Node::new(class, tail, trailer);
        node.value_len = value.len() as u32;
        let stored_key = if node.is_inline() { &[] } else { key };
        let claim = self.arena.store(stored_key, value, node_bytes(height));
        // SAFETY: either nothing is skipped or the whole key was stored, of which the tail is a
        // part.
        node.payload = unsafe { claim.payload.add(stored_key.len().saturating_sub(tail.len())) };
        let at = claim.node.cast::<Node>();
        // SAFETY: there is room for a node and `height` links behind it (`node_bytes`), suitably
        // aligned, that no other thread knows of (`Arena::store`).
        unsafe {
            at.write(node);
            let links = at.add(1).cast::<Link>();
            for level in 0..height {
                links.add(level).write(Link::new(ptr::null_mut()));
            }
        }
        at
    }

    /// Puts a node of this height in its place. False if there is an entry of the same key and
    /// sequence number; then it is in none.
    fn link(&self, node: NonNull<Node>, height: usize) -> bool {
        // SAFETY: the node lies in this list's arena and was written.
        let new = unsafe { node.as_ref() };
        let mut top = self.height.load(Relaxed);
        if height > top {
            self.height.fetch_max(height, Relaxed);
            top = height;
        }
        let head = self.head();
        let mut place = Place { before: [head; MAX_HEIGHT], behind: [ptr::null_mut(); MAX_HEIGHT] };
        self.search(new, top, |level, before, behind| {
            place.before[level] = before;
            place.behind[level] = behind;
        });
        // Before it can be found, so that whoever finds it sees it counted.
        self.len.fetch_add(1, Relaxed);
        for level in 0..height {
            let (mut before, mut behind) = (place.before[level], place.behind[level]);
            loop {
                if level == 0 && is_equal(new, behind) {
                    self.len.fetch_sub(1, Relaxed);
                    return false;
                }
                // SAFETY: the node has `height` links; the node before stands in this level.
                let (own, link) = unsafe { (link_at(node, level), link_at(before, level)) };
                own.store(behind, Relaxed);
                // Release: who comes to the node sees it, its payload and its links.
                if link.compare_exchange(behind, node.as_ptr(), Release, Relaxed).is_ok() {
                    break;
                }
                (before, behind) = along(new, before, level, ptr::null_mut());
            }
        }
        true
    }

    /// What stands before the first entry.
    #[inline]
    fn head(&self) -> NonNull<Node> {
        // Not of the node alone: its links are behind it.
        NonNull::from(&self.head).cast()
    }

    /// Goes from level `top` - 1 down to level 0, to the last node before `probe`, and tells `passed`
    /// of each level the last node before it and the first that is not, or null. Returns those of
    /// level 0.
    #[inline(always)]
    fn search(
        &self,
        probe: &Node,
        top: usize,
        mut passed: impl FnMut(usize, NonNull<Node>, *mut Node),
    ) -> (NonNull<Node>, *mut Node) {
        let mut before = self.head();
        let mut behind = ptr::null_mut();
        for level in (0..top.min(MAX_HEIGHT)).rev() {
            (before, behind) = along(probe, before, level, behind);
            passed(level, before, behind);
        }
        (before, behind)
    }

    /// The last node before `probe`, perhaps the head, and the first that is not, or null.
    #[inline]
    fn find(&self, probe: &Node) -> (NonNull<Node>, *mut Node) {
        self.search(probe, self.height.load(Relaxed), |_, _, _| ())
    }

    /// The last node, or the head.
    fn find_last(&self) -> NonNull<Node> {
        let mut last = self.head();
        for level in (0..self.height.load(Relaxed)).rev() {
            // SAFETY: the head and every node that was reached at this level or above has a link
            // of this level.
            while let Some(next) = NonNull::new(unsafe { link_at(last, level) }.load(Acquire)) {
                last = next;
            }
        }
        last
    }

    /// The first entry at or behind (`key`, `seqno`).
    #[inline]
    pub(crate) fn first_at(&self, key: &[u8], seqno: SeqNo) -> Option<EntryRef<'_>> {
        let node = NonNull::new(self.find(&self.probe(key, seqno)).1)?;
        // SAFETY: the node was just found in this list.
        Some(unsafe { self.entry_ref(node) })
    }

    #[inline]
    fn probe<'a>(&self, key: &'a [u8], seqno: SeqNo) -> Probe<'a> {
        Probe::new(&self.common_prefix, key, seqno)
    }

    /// What a node of this list says.
    ///
    /// # Safety
    /// `node` must stand in this very list, and not be its head.
    #[inline]
    unsafe fn entry_ref(&self, node: NonNull<Node>) -> EntryRef<'_> {
        // SAFETY: a node of this list lies in its arena, which lives as long as `self`, borrowed
        // here, and is not written to again but for its links, which are not part of it. It was
        // written before it was made reachable by a compare-and-swap of release order, and a reader
        // comes to it through that very link.
        let node = unsafe { node.as_ref() };
        node.witness.look();
        let (seqno, kind) = unpack_trailer(node.trailer).expect("packed by insert");
        let skipped = if node.is_within() { self.common_prefix.len() } else { 0 };
        let (key, value_at) = if node.is_inline() {
            (node.tail(), node.payload)
        } else {
            let len = skipped + node.tail_len();
            // SAFETY: `store` stored the whole key of a node that is not inline, and `payload` is
            // where its tail begins, behind the prefix of this list if it has that. As above, nobody
            // writes there.
            let key = unsafe { slice::from_raw_parts(node.payload.sub(skipped).as_ptr(), len) };
            // SAFETY: the value, perhaps empty, was stored behind the key in the same claim.
            (key, unsafe { node.payload.add(node.tail_len()) })
        };
        // SAFETY: `store` stored `value_len` bytes of value there; for the rest as above.
        let value = unsafe { slice::from_raw_parts(value_at.as_ptr(), node.value_len as usize) };
        EntryRef { key, seqno, kind, value }
    }
}

/// From `before`, which stands before `probe` in this level, to the last node that does, and the
/// first that does not, or null. `known` is a node that is known not to, or null.
#[inline(always)]
fn along(
    probe: &Node,
    mut before: NonNull<Node>,
    level: usize,
    known: *mut Node,
) -> (NonNull<Node>, *mut Node) {
    loop {
        // SAFETY: whoever reached `before` did so at this level or above, or it is the head: it has
        // a link of this level.
        let behind = unsafe { link_at(before, level) }.load(Acquire);
        if level > 0 && !cfg!(trommel_loom) {
            // Where the search goes on if the node behind is too far.
            // SAFETY: as above.
            prefetch(unsafe { link_at(before, level - 1) }.load(Relaxed));
        }
        // What the level above has shown need not be compared again.
        if behind == known {
            return (before, behind);
        }
        let Some(next) = NonNull::new(behind) else { return (before, behind) };
        // SAFETY: a node that was reached was written before, see `EntryList::entry_ref`; the arena
        // lives as long as the list that the caller borrows.
        let node = unsafe { next.as_ref() };
        node.witness.look();
        if node.compare(probe) != Ordering::Less {
            return (before, behind);
        }
        before = next;
    }
}

/// Whether `behind` is a node of the same key and sequence number.
#[inline(always)]
fn is_equal(new: &Node, behind: *mut Node) -> bool {
    // SAFETY: null, or a node that was reached in the list which the caller borrows.
    unsafe { behind.as_ref() }.is_some_and(|behind| behind.compare(new) == Ordering::Equal)
}

/// The link of `node` at `level`.
///
/// # Safety
/// `node` must be the head, or a node of a height above `level`, of a list that lives as long as the
/// link is used.
#[inline(always)]
unsafe fn link_at<'a>(node: NonNull<Node>, level: usize) -> &'a Link {
    // SAFETY: links are behind a node, and behind the head's, as many as it has levels.
    unsafe { node.add(1).cast::<Link>().add(level).as_ref() }
}

/// Asks for the cache line of a node, or of null, without waiting for it. Elsewhere than on x86-64
/// it does nothing.
#[inline(always)]
fn prefetch(node: *mut Node) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch reads nothing that a program can see and never faults, whatever the
        // address. Every x86-64 processor has the instruction.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(node.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = node;
}

/// Bytes of a node of this height with its links, in whole cache lines.
#[inline]
fn node_bytes(height: usize) -> usize {
    (size_of::<Node>() + height * size_of::<Link>()).next_multiple_of(LINE)
}

/// The height of the node with this sequence number, from 1 to [`MAX_HEIGHT`]: each height has a
/// quarter of the nodes of the one before. Scattered by the finishing steps of SplitMix64.
#[inline]
pub(crate) fn height_of(seqno: SeqNo) -> usize {
    let mut z = seqno.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    let zeros = (z >> 32 | 1 << 31).trailing_zeros() as usize;
    (1 + zeros / 2).min(MAX_HEIGHT)
}

/// A place on a memtable's list, which it keeps alive.
pub(crate) struct Position {
    /// A node of the list of `owner`, not its head.
    at: Option<NonNull<Node>>,
    owner: Arc<Memtable>,
}

// SAFETY: a node is shared, and `Sync`; it lives as long as `owner`.
unsafe impl Send for Position {}
// SAFETY: as above.
unsafe impl Sync for Position {}

impl Position {
    /// Off the end of `owner`'s list.
    pub(crate) fn new(owner: Arc<Memtable>) -> Self {
        Self { at: None, owner }
    }

    /// The node, unless it is the head, which is no entry.
    fn entry_at(list: &EntryList, node: NonNull<Node>) -> Option<NonNull<Node>> {
        (node != list.head()).then_some(node)
    }

    pub(crate) fn first(&mut self) {
        self.at = NonNull::new(self.owner.entries.head.links[0].load(Acquire));
    }

    pub(crate) fn last(&mut self) {
        let list = &self.owner.entries;
        self.at = Self::entry_at(list, list.find_last());
    }

    /// To the first entry at or behind (`key`, `seqno`).
    pub(crate) fn at_or_behind(&mut self, key: &[u8], seqno: SeqNo) {
        let list = &self.owner.entries;
        self.at = NonNull::new(list.find(&list.probe(key, seqno)).1);
    }

    /// To the last entry before (`key`, `seqno`).
    pub(crate) fn before(&mut self, key: &[u8], seqno: SeqNo) {
        let list = &self.owner.entries;
        self.at = Self::entry_at(list, list.find(&list.probe(key, seqno)).0);
    }

    /// One entry on; off the end, nowhere.
    #[inline]
    pub(crate) fn next(&mut self) {
        let Some(at) = self.at else { return };
        // SAFETY: every node has a link of level 0, and this one lives as long as `owner`.
        let next = NonNull::new(unsafe { link_at(at, 0) }.load(Acquire));
        if let Some(next) = next {
            // SAFETY: as above.
            prefetch(unsafe { link_at(next, 0) }.load(Relaxed));
        }
        self.at = next;
    }

    /// One entry back; off the end, nowhere.
    pub(crate) fn prev(&mut self) {
        let Some(at) = self.at else { return };
        let list = &self.owner.entries;
        // SAFETY: a node of the list of `owner`, which was written before it was reached.
        let probe = unsafe { at.as_ref() };
        self.at = Self::entry_at(list, list.find(probe).0);
    }

    #[inline]
    pub(crate) fn entry(&self) -> Option<EntryRef<'_>> {
        // SAFETY: `at` is only ever set to nodes of the list of `owner`.
        self.at.map(|at| unsafe { self.owner.entries.entry_ref(at) })
    }
}
