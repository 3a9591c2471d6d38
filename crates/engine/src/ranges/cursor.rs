//! Searching range tombstones for keys that come in order.

use trommel_base::{SeqNo, compare_keys};

use super::map::Span;
use super::set::RangeSet;

/// Finds the tombstone that applies to each of many keys. Keys near the last one cost two
/// comparisons, others a search.
#[derive(Debug, Clone)]
pub(crate) struct RangeCursor {
    set: RangeSet,
    /// The keys around the last one to which the same tombstones apply.
    from: Vec<u8>,
    to: Option<Vec<u8>>,
    /// Versions of the keys around the last one with lower sequence numbers are deleted or expired.
    covering: SeqNo,
    /// The sequence number that reads are as of.
    at: SeqNo,
    /// Whether there was a search.
    was_moved: bool,
}

impl RangeCursor {
    /// A cursor for reads as of `at`.
    pub(crate) fn new(set: RangeSet, at: SeqNo) -> Self {
        Self { set, from: Vec::new(), to: None, covering: 0, at, was_moved: false }
    }

    /// The newest tombstone, or sequence number that has expired in every keyspace; 0 if there is
    /// none.
    pub(crate) fn newest(&self) -> SeqNo {
        self.set.newest()
    }

    /// Whether a version of `key` written at `seqno` is deleted.
    #[inline]
    pub(crate) fn deletes(&mut self, key: &[u8], seqno: SeqNo) -> bool {
        if !self.was_moved || !self.is_near(key) {
            self.search(key);
        }
        self.covering > seqno
    }

    fn is_near(&self, key: &[u8]) -> bool {
        compare_keys(&self.from, key).is_le()
            && self.to.as_ref().is_none_or(|to| compare_keys(key, to).is_lt())
    }

    fn search(&mut self, key: &[u8]) {
        let Span { from, to, covering, expired } = self.set.span(key, self.at);
        self.from.clear();
        self.from.extend_from_slice(from);
        self.to = to.map(<[u8]>::to_vec);
        self.covering = covering.max(expired);
        self.was_moved = true;
    }

    /// Versions of the last key with lower sequence numbers are deleted or expired.
    pub(crate) fn covering(&self) -> SeqNo {
        self.covering
    }

    /// The first of the keys around the last one to which the same tombstones apply.
    pub(crate) fn from(&self) -> &[u8] {
        &self.from
    }

    /// The first key after them, if there is an end.
    pub(crate) fn to(&self) -> Option<&[u8]> {
        self.to.as_deref()
    }
}
