//! Range tombstones as disjoint fragments, found by binary search.

use std::collections::BTreeMap;
use std::sync::Arc;

use trommel_base::SeqNo;

/// Every key in `from..to` that was written before `seqno` is deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RangeTombstone {
    /// The first key in the range.
    pub from: Arc<[u8]>,
    /// The first key after it; `None` if the range has no end.
    pub to: Option<Arc<[u8]>>,
    /// The sequence number of the deletion.
    pub seqno: SeqNo,
}

impl RangeTombstone {
    pub(crate) fn new(from: &[u8], to: Option<&[u8]>, seqno: SeqNo) -> Self {
        Self { from: from.into(), to: to.map(Into::into), seqno }
    }

    /// Whether the range has a key from `smallest` to `largest`.
    pub(crate) fn meets(&self, smallest: &[u8], largest: &[u8]) -> bool {
        *self.from <= *largest && self.to.as_ref().is_none_or(|to| *smallest < **to)
    }
}

/// The sequence numbers at which something may read, other than those above all tombstones.
/// Tombstones that make no difference to any of these readers are not kept.
#[derive(Debug, Clone)]
pub(crate) enum Readers {
    /// Readers at these sequence numbers, in ascending order.
    At(Vec<SeqNo>),
    /// Readers at any sequence number.
    Anywhere,
}

impl Readers {
    /// Readers at these sequence numbers, in any order.
    pub(crate) fn at(mut seqnos: Vec<SeqNo>) -> Self {
        seqnos.sort_unstable();
        seqnos.dedup();
        Self::At(seqnos)
    }
}

/// A part of the key space in which the same tombstones apply to every key.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Fragment {
    from: Arc<[u8]>,
    to: Option<Arc<[u8]>>,
    newest: SeqNo,
    /// Older tombstones that some reader needs, newest first.
    older: Box<[SeqNo]>,
}

impl Fragment {
    fn seqnos(&self) -> impl Iterator<Item = SeqNo> {
        std::iter::once(self.newest).chain(self.older.iter().copied())
    }

    /// The newest tombstone that is visible at `at`; 0 if there is none.
    fn visible_at(&self, at: SeqNo) -> SeqNo {
        self.seqnos().find(|seqno| *seqno <= at).unwrap_or(0)
    }

    fn key_bytes(&self) -> usize {
        self.from.len() + self.to.as_ref().map_or(0, |to| to.len())
    }

    fn ends_before(&self, key: &[u8]) -> bool {
        self.to.as_ref().is_some_and(|to| **to <= *key)
    }
}

/// The tombstones that apply to one key, and the keys around it to which the same ones apply.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Span<'a> {
    pub(crate) from: &'a [u8],
    pub(crate) to: Option<&'a [u8]>,
    /// The newest visible tombstone; 0 if there is none.
    pub(crate) covering: SeqNo,
    /// Older entries have expired; 0 if none have.
    pub(crate) expired: SeqNo,
}

/// Disjoint fragments of range tombstones, in key order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct RangeMap {
    fragments: Vec<Fragment>,
    /// The newest tombstone; 0 if there is none.
    newest: SeqNo,
    /// Older tombstones in all fragments.
    older: usize,
    /// Bytes of the fragments' bounds.
    key_bytes: usize,
}

/// Most older tombstones in all fragments of a map: it bounds the memory for corrupt or malicious
/// input.
const MOST_OLDER: usize = 1 << 24;

impl RangeMap {
    /// Cuts `tombstones` into fragments, in time *n* log *n* for a given number of readers.
    pub(crate) fn new(tombstones: Vec<RangeTombstone>, readers: &Readers) -> Self {
        let mut ends: Vec<(Arc<[u8]>, SeqNo)> = Vec::with_capacity(tombstones.len());
        let mut starts: Vec<(Arc<[u8]>, SeqNo)> = Vec::with_capacity(tombstones.len());
        for RangeTombstone { from, to, seqno } in tombstones {
            if let Some(to) = to {
                if to <= from {
                    continue;
                }
                ends.push((to, seqno));
            }
            starts.push((from, seqno));
        }
        starts.sort_unstable();
        ends.sort_unstable();
        let mut boundaries: Vec<&Arc<[u8]>> =
            starts.iter().chain(&ends).map(|(key, _)| key).collect();
        boundaries.sort_unstable();
        boundaries.dedup();
        let (mut begun, mut ended) = (starts.iter().peekable(), ends.iter().peekable());
        let mut active = BTreeMap::new();
        let mut map = Self::default();
        for (index, from) in boundaries.iter().enumerate() {
            while let Some((_, seqno)) = ended.next_if(|(key, _)| key == *from) {
                // Several parts of one tombstone may overlap.
                match active.get_mut(seqno) {
                    Some(parts) if *parts > 1 => *parts -= 1,
                    _ => _ = active.remove(seqno),
                }
            }
            while let Some((_, seqno)) = begun.next_if(|(key, _)| key == *from) {
                *active.entry(*seqno).or_insert(0_u32) += 1;
            }
            if let Some((newest, _)) = active.last_key_value() {
                let to = boundaries.get(index + 1).map(|to| Arc::clone(to));
                map.push(Fragment {
                    from: Arc::clone(from),
                    to,
                    newest: *newest,
                    older: needed(&active, *newest, readers, MOST_OLDER.saturating_sub(map.older)),
                });
            }
        }
        map.key_bytes = map.fragments.iter().map(Fragment::key_bytes).sum();
        map
    }

    /// Appends a fragment, joining it with the last one if that makes no difference.
    fn push(&mut self, fragment: Fragment) {
        if let Some(last) = self.fragments.last_mut()
            && last.to.as_ref() == Some(&fragment.from)
            && (last.newest, &last.older) == (fragment.newest, &fragment.older)
        {
            last.to = fragment.to;
            return;
        }
        self.newest = self.newest.max(fragment.newest);
        self.older += fragment.older.len();
        self.fragments.push(fragment);
    }

    /// Number of fragments.
    pub(crate) fn len(&self) -> usize {
        self.fragments.len()
    }

    /// The tombstones, each cut to one fragment.
    pub(crate) fn tombstones(&self) -> impl Iterator<Item = RangeTombstone> {
        self.fragments.iter().flat_map(|fragment| {
            let Fragment { from, to, .. } = fragment;
            fragment.seqnos().map(|seqno| RangeTombstone {
                from: Arc::clone(from),
                to: to.clone(),
                seqno,
            })
        })
    }

    /// The newest tombstone that is visible at `at` and applies to `key`; 0 if there is none.
    #[inline]
    pub(crate) fn covering(&self, key: &[u8], at: SeqNo) -> SeqNo {
        self.span(key, at).covering
    }

    pub(super) fn span(&self, key: &[u8], at: SeqNo) -> Span<'_> {
        let next = self.fragments.partition_point(|fragment| *fragment.from <= *key);
        let before = next.checked_sub(1).and_then(|index| self.fragments.get(index));
        if let Some(fragment) = before.filter(|fragment| !fragment.ends_before(key)) {
            let covering = fragment.visible_at(at);
            return Span { from: &fragment.from, to: fragment.to.as_deref(), covering, expired: 0 };
        }
        let from = before.and_then(|fragment| fragment.to.as_deref()).unwrap_or_default();
        let to = self.fragments.get(next).map(|fragment| &*fragment.from);
        Span { from, to, covering: 0, expired: 0 }
    }

    /// The newest tombstone; 0 if there is none.
    pub(crate) fn newest(&self) -> SeqNo {
        self.newest
    }

    /// Number of tombstones, each cut to one fragment.
    pub(crate) fn tombstone_count(&self) -> usize {
        self.fragments.len() + self.older
    }

    /// Whether some tombstones may have been left out, because the map is full.
    pub(crate) fn is_full(&self) -> bool {
        self.older >= MOST_OLDER
    }

    /// Approximate bytes of memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        let fragments = self.fragments.len() * (size_of::<Fragment>() + 32);
        self.key_bytes + self.older * size_of::<SeqNo>() + fragments
    }
}

/// The tombstones older than `newest` that some reader needs, newest first, but `most` at most.
fn needed(
    active: &BTreeMap<SeqNo, u32>,
    newest: SeqNo,
    readers: &Readers,
    most: usize,
) -> Box<[SeqNo]> {
    let readers = match readers {
        Readers::At(readers) => readers,
        Readers::Anywhere => {
            return active.range(..newest).rev().map(|(seqno, _)| *seqno).take(most).collect();
        }
    };
    let mut needed = Vec::new();
    for reader in readers.iter().rev() {
        let seen = active.range(..=*reader).next_back().map(|(seqno, _)| seqno);
        if let Some(seen) = seen.filter(|seen| **seen < newest)
            && needed.last() != Some(seen)
        {
            needed.push(*seen);
        }
    }
    needed.into()
}
