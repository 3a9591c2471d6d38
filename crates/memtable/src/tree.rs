//! The order of entries that are inserted once there are scans: a B+-tree, of which each scan reads
//! the version of its creation.
//!
//! # Algorithm
//! 1. A leaf holds slots in order, an inner node its children and the first slot of each. An insert
//!    descends to a leaf: some three nodes, however many entries there are.
//! 2. A full node is split in half. If the new slot is its last, that begins the next node instead,
//!    so that keys in order fill their nodes.
//! 3. A scan holds the root of its moment. An insert changes a node in place unless a scan holds
//!    it, and copies it otherwise, with the nodes above it. So where scans and inserts alternate,
//!    nothing is copied.
//! 4. Each node knows the largest sequence number below it, so that a scan skips old entries a
//!    whole node at a time.
//!
//! # Invariants
//! * Slots are in the order of [`trommel_base::compare_internal`]; no two are equal.
//! * Within a leaf, a slot repeats if and only if the slot before it has the same key. The first
//!   slot of a leaf may repeat without knowing. A slot that repeats does so for ever: nothing is
//!   removed, and only another version of the key can come between two versions.
//! * No node is empty. The first slots of an inner node are exact, except its first child's, below
//!   which smaller slots may be inserted.

use std::sync::Arc;

use trommel_base::SeqNo;

use crate::slot::{Probe, Slot};
use crate::versions::Position;

/// Slots of a leaf, and children of an inner node: 2 KiB each.
const LEAF: usize = if cfg!(any(test, trommel_loom)) { 4 } else { 84 };
const INNER: usize = if cfg!(any(test, trommel_loom)) { 4 } else { 63 };

/// A part of a tree.
#[derive(Clone)]
enum Node {
    Leaf(Leaf),
    Inner(Inner),
}

/// Slots in order; those from `len` on are meaningless.
#[derive(Clone)]
struct Leaf {
    len: usize,
    newest: SeqNo,
    slots: [Slot; LEAF],
}

/// Children in order, each with its first slot; those from `len` on are `None`.
#[derive(Clone)]
struct Inner {
    len: usize,
    newest: SeqNo,
    firsts: [Slot; INNER],
    children: [Option<Arc<Node>>; INNER],
}

impl Node {
    fn newest(&self) -> SeqNo {
        match self {
            Self::Leaf(leaf) => leaf.newest,
            Self::Inner(inner) => inner.newest,
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Leaf(leaf) => leaf.len,
            Self::Inner(inner) => inner.len,
        }
    }

    fn child(&self, at: usize) -> Option<&Arc<Self>> {
        match self {
            Self::Leaf(_) => None,
            Self::Inner(inner) => inner.children.get(at)?.as_ref(),
        }
    }

    fn slots(&self) -> &[Slot] {
        match self {
            Self::Leaf(leaf) => leaf.slots(),
            Self::Inner(_) => &[],
        }
    }

    /// The place of the first slot that is not before `probe`: in a leaf its index, in an inner
    /// node the index of the child around it.
    fn place(&self, probe: &Probe<'_>) -> usize {
        match self {
            Self::Leaf(leaf) => leaf.slots().partition_point(|slot| probe.is_after(slot)),
            Self::Inner(inner) => inner.child_of(|first| probe.is_after(first)),
        }
    }
}

impl Leaf {
    fn new(slot: Slot, newest: SeqNo) -> Self {
        Self { len: 1, newest, slots: [slot; LEAF] }
    }

    fn slots(&self) -> &[Slot] {
        &self.slots[..self.len]
    }

    /// Inserts a slot. Returns the second half if the leaf was full.
    fn insert(&mut self, slot: Slot, seqno: SeqNo) -> Option<Self> {
        let at = self.slots().partition_point(|other| other.comes_before(&slot));
        if self.len < LEAF {
            self.insert_at(at, slot, seqno);
            return None;
        }
        if at == LEAF {
            return Some(Self::new(slot, seqno));
        }
        let middle = LEAF / 2;
        let mut right = Self { len: LEAF - middle, ..self.clone() };
        right.slots.copy_within(middle.., 0);
        self.len = middle;
        if at > middle {
            right.insert_at(at - middle, slot, seqno);
        } else {
            self.insert_at(at, slot, seqno);
        }
        self.note_newest();
        right.note_newest();
        Some(right)
    }

    fn insert_at(&mut self, at: usize, mut slot: Slot, seqno: SeqNo) {
        if let Some(next) = self.slots[..self.len].get_mut(at) {
            next.note_before(&slot);
        }
        if let Some(before) = at.checked_sub(1) {
            slot.note_before(&self.slots[before]);
        }
        self.slots.copy_within(at..self.len, at + 1);
        self.slots[at] = slot;
        self.len += 1;
        self.newest = self.newest.max(seqno);
    }

    fn note_newest(&mut self) {
        let seqnos = self.slots().iter().map(|slot| slot.record().seqno());
        self.newest = seqnos.max().unwrap_or_default();
    }
}

impl Inner {
    /// A node of these children, with the first slot of each.
    fn new<const N: usize>(children: [(Slot, Arc<Node>); N]) -> Self {
        let mut inner = Self {
            len: 0,
            newest: 0,
            firsts: [children[0].0; INNER],
            children: [const { None }; INNER],
        };
        children.into_iter().for_each(|(first, child)| inner.insert_at(inner.len, first, child));
        inner
    }

    /// The child around the first place whose slot is not before another. `is_before` returns
    /// whether a slot is before it.
    fn child_of(&self, is_before: impl Fn(&Slot) -> bool) -> usize {
        // The first slot of the first child is not exact.
        self.firsts[1..self.len].partition_point(is_before)
    }

    /// Inserts a slot, and counts new nodes. Returns the second half if the node was full.
    fn insert(&mut self, slot: Slot, seqno: SeqNo, nodes: &mut usize) -> Option<Self> {
        let at = self.child_of(|first| first.comes_before(&slot));
        self.newest = self.newest.max(seqno);
        let child = Arc::make_mut(self.children[at].as_mut()?);
        let (first, right) = insert(child, slot, seqno, nodes)?;
        let at = at + 1;
        if self.len < INNER {
            self.insert_at(at, first, right);
            return None;
        }
        if at == INNER {
            return Some(Self::new([(first, right)]));
        }
        let middle = INNER / 2;
        let mut second = Self::new([(self.firsts[middle], self.children[middle].take()?)]);
        for from in middle + 1..INNER {
            second.insert_at(second.len, self.firsts[from], self.children[from].take()?);
        }
        self.len = middle;
        if at > middle {
            second.insert_at(at - middle, first, right);
        } else {
            self.insert_at(at, first, right);
        }
        self.note_newest();
        Some(second)
    }

    fn insert_at(&mut self, at: usize, first: Slot, child: Arc<Node>) {
        self.newest = self.newest.max(child.newest());
        self.firsts.copy_within(at..self.len, at + 1);
        self.firsts[at] = first;
        self.children[at..=self.len].rotate_right(1);
        self.children[at] = Some(child);
        self.len += 1;
    }

    fn note_newest(&mut self) {
        let newest = self.children.iter().flatten().map(|child| child.newest()).max();
        self.newest = newest.unwrap_or_default();
    }
}

/// Inserts a slot below `node`, and counts new nodes. If `node` was full, returns its second half,
/// with its first slot.
fn insert(
    node: &mut Node,
    slot: Slot,
    seqno: SeqNo,
    nodes: &mut usize,
) -> Option<(Slot, Arc<Node>)> {
    let (first, right) = match node {
        Node::Leaf(leaf) => {
            let right = leaf.insert(slot, seqno)?;
            (right.slots[0], Node::Leaf(right))
        }
        Node::Inner(inner) => {
            let right = inner.insert(slot, seqno, nodes)?;
            (right.firsts[0], Node::Inner(right))
        }
    };
    *nodes += 1;
    Some((first, Arc::new(right)))
}

/// Slots in order.
#[derive(Default)]
pub(crate) struct Tree {
    root: Option<Arc<Node>>,
    nodes: usize,
}

impl Tree {
    /// Adds a slot.
    pub(crate) fn insert(&mut self, slot: Slot) {
        let seqno = slot.record().seqno();
        let Some(root) = &mut self.root else {
            self.root = Some(Arc::new(Node::Leaf(Leaf::new(slot, seqno))));
            self.nodes = 1;
            return;
        };
        if let Some(right) = insert(Arc::make_mut(root), slot, seqno, &mut self.nodes) {
            // The first slot of the first child need not be exact.
            let left = (right.0, Arc::clone(root));
            *root = Arc::new(Node::Inner(Inner::new([left, right])));
            self.nodes += 1;
        }
    }

    /// Bytes of memory held. Nodes that only scans hold are not counted.
    pub(crate) fn bytes(&self) -> usize {
        // The reference counts, and the allocator's words.
        self.nodes * (size_of::<Node>() + 4 * size_of::<usize>())
    }

    /// The first slot and the last, if there are any.
    pub(crate) fn ends(&self) -> Option<[Slot; 2]> {
        let mut scan = self.scan();
        scan.first();
        let first = scan.after()?;
        scan.last();
        Some([first, scan.before()?])
    }

    /// A scan of the slots as they are, not positioned.
    pub(crate) fn scan(&self) -> TreeScan {
        TreeScan { root: self.root.clone(), path: Vec::new() }
    }
}

/// A place between two slots of a tree, or before the first or after the last.
pub(crate) struct TreeScan {
    root: Option<Arc<Node>>,
    /// From the root to a leaf, each with the index of the child taken; of the leaf, the index of
    /// the slot after the place. Empty if not positioned.
    path: Vec<(Arc<Node>, usize)>,
}

impl TreeScan {
    /// Moves before the first slot.
    pub(crate) fn first(&mut self) {
        self.descend(|_| 0);
    }

    /// Moves after the last slot.
    pub(crate) fn last(&mut self) {
        self.descend(last_place);
    }

    /// Moves before the first slot that is not before `slot`.
    pub(crate) fn seek_slot(&mut self, slot: &Slot) {
        self.descend(|node| match node {
            Node::Leaf(leaf) => leaf.slots().partition_point(|other| other.comes_before(slot)),
            Node::Inner(inner) => inner.child_of(|first| first.comes_before(slot)),
        });
    }

    fn descend(&mut self, place: impl Fn(&Node) -> usize) {
        self.path.clear();
        if let Some(root) = self.root.clone() {
            self.descend_to(root, place);
        }
    }

    /// Extends the path by `node` and nodes below it.
    fn descend_to(&mut self, mut node: Arc<Node>, place: impl Fn(&Node) -> usize) {
        loop {
            let at = place(&node);
            let child = node.child(at).cloned();
            self.path.push((node, at));
            match child {
                Some(child) => node = child,
                None => return,
            }
        }
    }

    /// The slot after the place, if that is not at the end of its leaf.
    #[inline]
    pub(crate) fn slot(&self) -> Option<&Slot> {
        let (leaf, at) = self.path.last()?;
        leaf.slots().get(*at)
    }

    /// The slot this many places further, if it is in the same leaf; for negative numbers, in the
    /// other direction.
    #[inline]
    pub(crate) fn nearby(&self, places: isize) -> Option<&Slot> {
        let (leaf, at) = self.path.last()?;
        leaf.slots().get(at.checked_add_signed(places)?)
    }

    /// From the end of a leaf to the beginning of the next; stays if there is none.
    #[cold]
    fn enter_next(&mut self) {
        let is_last = |(node, at): &(Arc<Node>, usize)| at + 1 >= node.len();
        if let Some(level) = self.path[..self.path.len() - 1].iter().rposition(|it| !is_last(it)) {
            self.step_at(level, 1, |_| 0);
        }
    }

    /// From the beginning of a leaf to the end of the one before; stays if there is none.
    #[cold]
    fn enter_previous(&mut self) {
        let above = &self.path[..self.path.len() - 1];
        if let Some(level) = above.iter().rposition(|(_, at)| *at > 0) {
            self.step_at(level, -1, last_place);
        }
    }

    /// Goes to another child at this level, and from there on down.
    fn step_at(&mut self, level: usize, by: isize, place: impl Fn(&Node) -> usize) {
        self.path.truncate(level + 1);
        let Some((node, at)) = self.path.last_mut() else { return };
        *at = at.saturating_add_signed(by);
        if let Some(child) = node.child(*at).cloned() {
            self.descend_to(child, place);
        }
    }

    /// Moves forward to the first place whose slot was written at `since` or later, or is not
    /// before `end`, or to the end.
    pub(crate) fn skip_older(&mut self, since: SeqNo, end: Option<&Probe<'_>>) {
        while let Some(slot) = self.after() {
            let is_before_end = |slot: &Slot| end.is_none_or(|end| end.is_after(slot));
            if slot.record().seqno() >= since || !is_before_end(&slot) {
                return;
            }
            // A child none of whose slots was passed, all of them old and before the end.
            let is_whole = |level: usize| {
                let Some((Node::Inner(inner), at)) =
                    self.path.get(level).map(|(node, at)| (&**node, *at))
                else {
                    return false;
                };
                let below = self.path[level + 1..].iter().all(|(_, at)| *at == 0);
                let is_old =
                    inner.children[at].as_ref().is_some_and(|child| child.newest() < since);
                let next = inner.firsts[..inner.len].get(at + 1);
                below && is_old && next.is_some_and(is_before_end)
            };
            match (0..self.path.len() - 1).find(|level| is_whole(*level)) {
                Some(level) => self.step_at(level, 1, |_| 0),
                None => self.advance(),
            }
        }
    }

    /// Moves backward to the last place after a slot that was written at `since` or later, or that
    /// is before `begin`, or to the beginning.
    pub(crate) fn skip_older_back(&mut self, since: SeqNo, begin: &Probe<'_>) {
        while let Some(slot) = self.before() {
            if slot.record().seqno() >= since || begin.is_after(&slot) {
                return;
            }
            let is_whole = |level: usize| {
                let Some((Node::Inner(inner), at)) =
                    self.path.get(level).map(|(node, at)| (&**node, *at))
                else {
                    return false;
                };
                let below = self.path[level + 1..].iter().all(|(node, at)| *at == last_place(node));
                let is_old =
                    inner.children[at].as_ref().is_some_and(|child| child.newest() < since);
                // The first slot of the first child is not exact.
                at > 0 && below && is_old && !begin.is_after(&inner.firsts[at])
            };
            match (0..self.path.len() - 1).find(|level| is_whole(*level)) {
                Some(level) => self.step_at(level, -1, last_place),
                None => self.retreat(),
            }
        }
    }
}

impl Position for TreeScan {
    /// May replace a place at the end of a leaf by the same one at the beginning of the next.
    #[inline]
    fn after(&mut self) -> Option<Slot> {
        let (leaf, at) = self.path.last()?;
        if *at == leaf.len() {
            self.enter_next();
        }
        self.slot().copied()
    }

    /// May replace a place at the beginning of a leaf by the same one at the end of the one before.
    #[inline]
    fn before(&mut self) -> Option<Slot> {
        if self.path.last()?.1 == 0 {
            self.enter_previous();
        }
        let (leaf, at) = self.path.last()?;
        leaf.slots().get(at.checked_sub(1)?).copied()
    }

    #[inline]
    fn advance(&mut self) {
        if self.path.last().is_some_and(|(leaf, at)| *at == leaf.len()) {
            self.enter_next();
        }
        if let Some((_, at)) = self.path.last_mut() {
            *at += 1;
        }
    }

    #[inline]
    fn retreat(&mut self) {
        if self.path.last().is_some_and(|(_, at)| *at == 0) {
            self.enter_previous();
        }
        if let Some((_, at)) = self.path.last_mut() {
            *at = at.saturating_sub(1);
        }
    }

    #[inline]
    fn is_within_key(&mut self) -> bool {
        let Some(after) = self.after() else { return false };
        // A slot does not know what is before it in another leaf.
        let is_known = after.repeats() || self.path.last().is_some_and(|(_, at)| *at > 0);
        if is_known {
            after.repeats()
        } else {
            self.before().is_some_and(|it| it.has_key_of(&after))
        }
    }

    fn search(&mut self, probe: &Probe<'_>) {
        if let Some((leaf, at)) = self.path.last_mut() {
            // Often it is near, in the rest of the leaf.
            let rest = leaf.slots().get(*at..).unwrap_or_default();
            let ends = rest.first().zip(rest.last());
            if ends.is_some_and(|(next, last)| probe.is_after(next) && !probe.is_after(last)) {
                *at += rest.partition_point(|slot| probe.is_after(slot));
                return;
            }
        }
        self.descend(|node| node.place(probe));
    }
}

/// The last place of a node: after the last slot of a leaf, or its last child.
fn last_place(node: &Node) -> usize {
    match node {
        Node::Leaf(leaf) => leaf.len,
        Node::Inner(inner) => inner.len - 1,
    }
}
