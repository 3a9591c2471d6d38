//! The order of the sources of a merge by their entries.

use std::cmp::Ordering;

use trommel_base::{CursorHints, EntryKind, KeyHead, SeqNo};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    Forward,
    Backward,
}

/// Key bytes that a head holds.
pub(super) const SHOWN_BYTES: u32 = 16;

/// The head of the entry that a source is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SourceHead {
    /// The key's first sixteen bytes as a number that sorts alike; shorter keys are padded with
    /// zeros. Going backward, its complement: the smaller rank comes first in either direction. The
    /// largest number if the source is off the end.
    pub(super) rank: u128,
    /// The entry's sequence number.
    pub(crate) seqno: SeqNo,
    /// Length of the key.
    pub(super) len: u32,
    /// The entry's kind.
    pub(crate) kind: EntryKind,
    /// Whether the source is on an entry.
    pub(super) live: bool,
}

impl SourceHead {
    /// The head of an entry, for this direction.
    #[inline]
    pub(super) fn new(head: KeyHead, direction: Direction) -> Self {
        let KeyHead { words, len, kind, seqno } = head;
        let rank = if direction == Direction::Forward { words } else { !words };
        Self { rank, seqno, len, kind, live: true }
    }

    /// The first bytes of the key as a number, of a head made for this direction.
    #[inline]
    pub(super) fn words(&self, direction: Direction) -> u128 {
        if direction == Direction::Forward { self.rank } else { !self.rank }
    }

    /// The entry's head, of a head made for this direction.
    #[inline]
    pub(super) fn entry(&self, direction: Direction) -> KeyHead {
        let Self { len, kind, seqno, .. } = *self;
        KeyHead { words: self.words(direction), len, kind, seqno }
    }
}

/// The head of a source that is off the end.
pub(super) const NO_HEAD: SourceHead =
    SourceHead { rank: u128::MAX, seqno: 0, len: 0, kind: EntryKind::Delete, live: false };

/// A source in the order, with the rank of its entry.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ranked {
    pub(super) rank: u128,
    pub(super) source: usize,
}

/// Decides the order of sources.
pub(super) struct Tie<'a, C> {
    pub(super) sources: &'a [C],
    pub(super) heads: &'a [SourceHead],
    pub(super) direction: Direction,
}

impl<C: CursorHints> Tie<'_, C> {
    /// Whether `a` comes first.
    #[inline]
    fn is_before(&self, a: Ranked, b: Ranked) -> bool {
        a.rank < b.rank || a.rank == b.rank && self.decide(a.source, b.source).is_lt()
    }

    /// The order of two sources of the same rank, never equal.
    #[inline(never)]
    pub(super) fn decide(&self, a: usize, b: usize) -> Ordering {
        let (head_a, head_b) = (&self.heads[a], &self.heads[b]);
        if !(head_a.live && head_b.live) {
            return head_b.live.cmp(&head_a.live).then(a.cmp(&b));
        }
        let order = if head_a.len.min(head_b.len) <= SHOWN_BYTES {
            // The bytes that the shorter key lacks are zeros, or come after the head.
            head_a.len.cmp(&head_b.len)
        } else {
            let key = |i: usize| self.sources[i].internal_key().map(|internal| internal.key);
            key(a).cmp(&key(b))
        };
        let order = order.then(head_b.seqno.cmp(&head_a.seqno)).then(a.cmp(&b));
        if self.direction == Direction::Forward { order } else { order.reverse() }
    }

    /// Reinserts `moved`, whose source was the first of `order`, in order.
    #[inline]
    pub(super) fn reinsert(&self, order: &mut [Ranked], moved: Ranked) {
        let nearest = order.len().min(NEAR + 1);
        let (near, far) = order.split_at_mut(nearest);
        let Some((mut free, others)) = near.split_first_mut() else { return };
        let mut is_near = false;
        for next in others {
            if !self.is_before(*next, moved) {
                is_near = true;
                break;
            }
            *free = *next;
            free = next;
        }
        if is_near || far.is_empty() {
            *free = moved;
        } else {
            self.insert_far(moved, free, far);
        }
    }

    /// Inserts `moved` into `free`, the last of the near positions, or beyond it into `far`.
    #[cold]
    fn insert_far(&self, moved: Ranked, free: &mut Ranked, far: &mut [Ranked]) {
        let passed = far.partition_point(|place| self.is_before(*place, moved));
        let Some(last) = passed.checked_sub(1) else {
            *free = moved;
            return;
        };
        *free = far[0];
        far.copy_within(1..passed, 0);
        far[last] = moved;
    }
}

/// Positions that a source is moved over one by one; beyond, the order is searched.
const NEAR: usize = 16;
