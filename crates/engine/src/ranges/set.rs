//! Range tombstones that are added one by one.
//!
//! A set is a few maps with rapidly falling sizes. A new tombstone is a map of its own, which is
//! merged with the previous one while that is less than [`RATIO`] times as large. So adding one of
//! *n* costs a time of log *n*, amortized, and a search log *n* binary searches at most.

use std::sync::Arc;

use trommel_base::{MAX_SEQNO, SeqNo};

use crate::bounds::Bounds;
use crate::expiry::{HorizonSpan, Horizons};

use super::map::{RangeMap, RangeTombstone, Readers, Span};

/// Each map has at least this many times as many fragments as the next.
const RATIO: usize = 2;

/// An immutable set of range tombstones.
#[derive(Debug, Clone, Default)]
pub(crate) struct RangeSet {
    /// Largest first.
    maps: Vec<Arc<RangeMap>>,
    /// The expiry horizons, which apply whatever a reader's sequence number.
    horizons: Horizons,
}

impl RangeSet {
    /// Whether nothing is deleted or expired.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.maps.is_empty() && self.horizons.are_none()
    }

    /// The expiry horizons.
    #[inline]
    pub(crate) fn horizons(&self) -> &Horizons {
        &self.horizons
    }

    /// Raises the expiry horizons to these.
    pub(crate) fn expire(&mut self, horizons: &Horizons) {
        self.horizons.extend(horizons);
    }

    /// Sets the expiry horizons, none of which is below that of the set.
    pub(crate) fn set_horizons(&mut self, horizons: &Horizons) {
        self.horizons = horizons.clone();
    }

    /// This set and `tombstones`, without those that no reader needs.
    #[must_use]
    pub(crate) fn with(&self, tombstones: Vec<RangeTombstone>, readers: &Readers) -> Self {
        let mut maps = self.maps.clone();
        let mut last = RangeMap::new(tombstones, readers);
        while let Some(before) = maps.pop_if(|before| before.len() < RATIO * last.len()) {
            let both = before.tombstones().chain(last.tombstones()).collect();
            last = RangeMap::new(both, readers);
        }
        if last.len() > 0 {
            maps.push(Arc::new(last));
        }
        Self { maps, horizons: self.horizons.clone() }
    }

    /// This set and `tombstones`, for readers at any sequence number.
    #[must_use]
    pub(crate) fn with_all(&self, tombstones: Vec<RangeTombstone>) -> Self {
        self.with(tombstones, &Readers::Anywhere)
    }

    /// Adds the tombstones of another set.
    pub(crate) fn extend(&mut self, other: &Self) {
        self.maps.extend(other.maps.iter().cloned());
        self.expire(&other.horizons);
    }

    /// The tombstones, cut into fragments.
    pub(crate) fn tombstones(&self) -> impl Iterator<Item = RangeTombstone> {
        self.maps.iter().flat_map(|map| map.tombstones())
    }

    /// Number of fragments.
    pub(crate) fn len(&self) -> usize {
        self.maps.iter().map(|map| map.len()).sum()
    }

    /// The newest tombstone, or the newest sequence number that has expired in every keyspace; 0
    /// if there is none.
    pub(crate) fn newest(&self) -> SeqNo {
        self.maps.iter().map(|map| map.newest()).max().unwrap_or(0).max(self.horizons.of_all())
    }

    /// If everything written up to `newest` between `smallest` and `largest` is deleted or expired,
    /// the newest tombstone needed for that; 0 if all of it has expired.
    pub(crate) fn hides(&self, smallest: &[u8], largest: &[u8], newest: SeqNo) -> Option<SeqNo> {
        let mut last = 0;
        let mut spans = self.spans(smallest, largest);
        let are_hidden = spans.all(|span| {
            if span.expired > newest {
                return true;
            }
            last = span.covering.max(last);
            span.covering > newest
        });
        are_hidden.then_some(last)
    }

    /// The parts of the key space that together hold `smallest..=largest`, in each of which the
    /// same tombstones apply and the same has expired. The first may begin earlier, and the last
    /// may end later.
    pub(crate) fn spans<'a>(
        &'a self,
        smallest: &'a [u8],
        largest: &'a [u8],
    ) -> impl Iterator<Item = Span<'a>> {
        let mut next = Some(smallest);
        std::iter::from_fn(move || {
            let span = self.span(next?, MAX_SEQNO);
            next = span.to.filter(|to| *to <= largest);
            Some(span)
        })
    }

    /// Number of tombstones, each cut to one fragment.
    pub(crate) fn tombstone_count(&self) -> usize {
        self.maps.iter().map(|map| map.tombstone_count()).sum()
    }

    /// Whether some tombstones may have been left out, because a map is full.
    pub(crate) fn is_full(&self) -> bool {
        self.maps.iter().any(|map| map.is_full())
    }

    /// Approximate bytes of memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.maps.iter().map(|map| map.memory_bytes()).sum()
    }

    /// Every version of `key` with a lower sequence number is deleted for readers as of `at`, or
    /// expired; 0 if none is.
    #[inline]
    pub(crate) fn covering(&self, key: &[u8], at: SeqNo) -> SeqNo {
        self.deleting(key, at).max(self.horizons.before(key))
    }

    /// The newest tombstone up to `at` that applies to `key`, whatever has expired; 0 if there is
    /// none.
    #[inline]
    pub(crate) fn deleting(&self, key: &[u8], at: SeqNo) -> SeqNo {
        self.maps.iter().map(|map| map.covering(key, at)).max().unwrap_or(0)
    }

    /// The first key within `bounds` that a tombstone newer than `since` applies to.
    pub(crate) fn deleted_in(&self, bounds: &Bounds, since: SeqNo) -> Option<Vec<u8>> {
        if self.newest() <= since {
            return None;
        }
        let mut key = &*bounds.from;
        while !bounds.ends_before(key) {
            let Span { to, covering, .. } = self.span(key, MAX_SEQNO);
            if covering > since {
                return Some(key.to_vec());
            }
            key = to?;
        }
        None
    }

    /// The tombstones that apply to `key`, and its expiry horizon.
    pub(super) fn span(&self, key: &[u8], at: SeqNo) -> Span<'_> {
        let HorizonSpan { from, to, seqno } = self.horizons.span(key);
        let all = Span { from, to, covering: 0, expired: seqno };
        self.maps.iter().map(|map| map.span(key, at)).fold(all, |all, one| Span {
            from: all.from.max(one.from),
            to: match (all.to, one.to) {
                (Some(to), Some(other)) => Some(to.min(other)),
                (to, other) => to.or(other),
            },
            covering: all.covering.max(one.covering),
            expired: all.expired,
        })
    }
}
