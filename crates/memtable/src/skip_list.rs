//! The index that keeps the entries in order at each insert: a skip list.
//!
//! # Algorithm
//! 1. The list is from the crate crossbeam-skiplist. A node holds the [`Slot`] of a record: the
//!    first bytes of its key, and its address. Keys and values stay in the arena.
//! 2. Inserts are made one at a time, under a lock, and numbered; the number is the node's value. A
//!    scan skips the nodes that were inserted after its creation, so that it sees the entries of
//!    one moment, as merges of several sources demand. Lookups and scans take no lock.
//! 3. Every search waits for some log2(n) dependent cache misses, and so does each step backward,
//!    which is a search.
//!
//! # Invariants
//! * No node is removed or replaced before the list is dropped. So a reference to a node is valid
//!   as long as the list, without a pinned epoch, and a read cannot miss a key while an equal one
//!   replaces it (crossbeam's issue 1023).
//! * The number of linked nodes is stored after the node is linked, with release ordering, and
//!   loaded with acquire ordering.
//!
//! One of the modules of this crate that hold `unsafe`.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::ops::Bound;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crossbeam_epoch::{Guard, default_collector, unprotected};
use crossbeam_skiplist::SkipList;
use crossbeam_skiplist::base::Entry;
use trommel_base::sync::linked::AtomicUsize;
use trommel_base::sync::{Mutex, lock};
use trommel_base::{SeqNo, compare_internal};

use crate::arena::Arena;
use crate::index::{Index, IndexScan};
use crate::record::Stored;
use crate::slot::{Probe, Slot};

/// Bytes of a node: slot, number, reference count, and on average two links, rounded up by the
/// allocator. Half of the nodes have one link, a quarter two, and so on.
const NODE_BYTES: usize = 69;

/// Slots in order, each with the number of slots inserted before it.
type Nodes = SkipList<Slot, usize>;

/// A node, for as long as its list.
type Node<'a> = Entry<'a, 'a, Slot, usize>;

/// A place in the order: a slot's, or one to search for.
trait Place {
    /// The values compared first.
    fn rank(&self) -> (usize, u128);
    fn key(&self) -> &[u8];
    fn seqno(&self) -> SeqNo;
}

impl Place for Slot {
    #[inline]
    fn rank(&self) -> (usize, u128) {
        Slot::rank(self)
    }

    #[inline]
    fn key(&self) -> &[u8] {
        self.record().key()
    }

    #[inline]
    fn seqno(&self) -> SeqNo {
        self.record().seqno()
    }
}

impl Place for Probe<'_> {
    #[inline]
    fn rank(&self) -> (usize, u128) {
        self.rank
    }

    #[inline]
    fn key(&self) -> &[u8] {
        self.key
    }

    #[inline]
    fn seqno(&self) -> SeqNo {
        self.seqno
    }
}

#[inline]
fn compare<A: Place + ?Sized, B: Place + ?Sized>(a: &A, b: &B) -> Ordering {
    let by_key = || compare_internal(a.key(), a.seqno(), b.key(), b.seqno());
    a.rank().cmp(&b.rank()).then_with(by_key)
}

macro_rules! ordered_by_place {
    ($($type:ty),*) => {
        $(
            impl Ord for $type {
                #[inline]
                fn cmp(&self, other: &Self) -> Ordering {
                    compare(self, other)
                }
            }

            impl PartialOrd for $type {
                #[inline]
                fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
                    Some(self.cmp(other))
                }
            }

            impl PartialEq for $type {
                #[inline]
                fn eq(&self, other: &Self) -> bool {
                    self.cmp(other).is_eq()
                }
            }

            impl Eq for $type {}
        )*
    };
}

ordered_by_place!(Slot, dyn Place + '_);

impl<'a> Borrow<dyn Place + 'a> for Slot {
    #[inline]
    fn borrow(&self) -> &(dyn Place + 'a) {
        self
    }
}

/// A guard that pins no epoch.
#[inline]
fn guard() -> &'static Guard {
    // SAFETY: nothing is removed from a list before it is dropped (invariant of the module), so no
    // thread can free what another reads, and nothing is deferred to the guard.
    unsafe { unprotected() }
}

/// The records of a memtable in a skip list.
pub(crate) struct ListIndex {
    nodes: Nodes,
    /// The number of nodes linked.
    linked: AtomicUsize,
    /// Held to insert.
    inserting: Mutex<()>,
}

impl Default for ListIndex {
    fn default() -> Self {
        Self {
            nodes: SkipList::new(default_collector().clone()),
            linked: AtomicUsize::new(0),
            inserting: Mutex::default(),
        }
    }
}

/// The first node at or after `probe`.
#[inline]
fn at_or_after<'a>(nodes: &'a Nodes, probe: &Probe<'_>) -> Option<Node<'a>> {
    let place: &dyn Place = probe;
    nodes.lower_bound(Bound::Included(place), guard())
}

impl Index for ListIndex {
    type Scan = ListScan;

    fn insert(&self, _: Stored<'_>, slot: Slot, len: &AtomicUsize) -> bool {
        let _one_at_a_time = lock(&self.inserting);
        let number = self.linked.load(Relaxed);
        len.store(len.load(Relaxed) + 1, Relaxed);
        // Never `insert`, which would replace an equal node.
        let node = self.nodes.get_or_insert(slot, number, guard());
        let is_new = *node.value() == number;
        node.release(guard());
        if is_new {
            self.linked.store(number + 1, Release);
        } else {
            len.store(len.load(Relaxed) - 1, Relaxed);
        }
        is_new
    }

    /// Nothing is known of the search path in advance.
    #[inline]
    fn prefetch(&self, _: &[u8]) {}

    #[inline]
    fn find<'a>(
        &'a self,
        _: &'a Arena,
        common_prefix: &[u8],
        key: &[u8],
        seqno: SeqNo,
    ) -> Option<Stored<'a>> {
        let found = at_or_after(&self.nodes, &Probe::new(common_prefix, key, seqno))?;
        Some(found.key().record()).filter(|record| record.key() == key)
    }

    fn ends(&self) -> Option<[Slot; 2]> {
        let [first, last] = [self.nodes.front(guard()), self.nodes.back(guard())];
        Some([*first?.key(), *last?.key()])
    }

    fn bytes(&self) -> usize {
        // This value is in an allocation of its own.
        size_of::<Self>() + 2 * size_of::<usize>() + self.linked.load(Relaxed) * NODE_BYTES
    }

    fn scan(&self, _: Option<SeqNo>) -> ListScan {
        // SAFETY: a scan is used only while its memtable lives (invariant of `Index`), which owns
        // this list, in an allocation that does not move.
        let nodes = unsafe { &*std::ptr::from_ref(&self.nodes) };
        ListScan { nodes, at: None, seen: self.linked.load(Acquire) }
    }
}

/// A position in a list. Its memtable lives longer (invariant of [`Index`]), which `'static` stands
/// for here.
pub(crate) struct ListScan {
    nodes: &'static Nodes,
    at: Option<Node<'static>>,
    /// Nodes with at least this number were inserted after this scan was created.
    seen: usize,
}

// SAFETY: of its fields only the guard is tied to a thread, and a guard that pins no epoch belongs
// to none; nodes are only read.
unsafe impl Send for ListScan {}
// SAFETY: as above.
unsafe impl Sync for ListScan {}

impl ListScan {
    /// Moves to `at`, or from there on by `step` to the first node that this scan sees.
    #[inline]
    fn settle(
        &mut self,
        mut at: Option<Node<'static>>,
        step: impl Fn(&Node<'static>) -> Option<Node<'static>>,
    ) {
        while let Some(node) = at.as_ref().filter(|node| *node.value() >= self.seen) {
            at = step(node);
        }
        self.at = at;
    }

    fn is_older(&self, since: SeqNo) -> bool {
        self.slot().is_some_and(|slot| slot.record().seqno() < since)
    }

    /// The order of the current entry and `probe`; equal to it if not positioned.
    fn compared(&self, probe: &Probe<'_>) -> Ordering {
        self.slot().map_or(Ordering::Equal, |slot| compare(slot, probe))
    }
}

impl IndexScan for ListScan {
    fn first(&mut self) {
        self.settle(self.nodes.front(guard()), Node::next);
    }

    fn last(&mut self) {
        self.settle(self.nodes.back(guard()), Node::prev);
    }

    fn seek(&mut self, probe: &Probe<'_>) {
        self.settle(at_or_after(self.nodes, probe), Node::next);
    }

    fn before(&mut self, probe: &Probe<'_>) {
        let place: &dyn Place = probe;
        self.settle(self.nodes.upper_bound(Bound::Excluded(place), guard()), Node::prev);
    }

    #[inline]
    fn next(&mut self) {
        let next = self.at.take().and_then(|node| node.next());
        self.settle(next, Node::next);
    }

    fn prev(&mut self) {
        let previous = self.at.take().and_then(|node| node.prev());
        self.settle(previous, Node::prev);
    }

    fn skip_older(&mut self, since: SeqNo, end: Option<&Probe<'_>>) {
        while self.is_older(since) && end.is_none_or(|end| self.compared(end).is_lt()) {
            self.next();
        }
    }

    fn skip_older_back(&mut self, since: SeqNo, begin: &Probe<'_>) {
        while self.is_older(since) && self.compared(begin).is_ge() {
            self.prev();
        }
    }

    #[inline]
    fn slot(&self) -> Option<&Slot> {
        self.at.as_ref().map(Node::key)
    }
}
