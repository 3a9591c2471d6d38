//! The expiry horizon of each keyspace.

use std::sync::Arc;

use trommel_base::SeqNo;

use crate::space::{CATALOG_ID, DEFAULT_ID, HEADER_BYTES, header, id_of};

/// The expiry horizons: the first sequence number that has not expired, by keyspace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Horizons {
    /// The horizon of the default keyspace, or of all keys if no keyspace has one of its own.
    default: SeqNo,
    /// The horizons of named keyspaces, by id. The catalog, and keyspaces that are not listed, have
    /// none.
    named: Option<Arc<[NamedHorizon]>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct NamedHorizon {
    id: u32,
    /// The first physical key of the keyspace, and the first one after it.
    from: [u8; HEADER_BYTES],
    to: [u8; HEADER_BYTES],
    seqno: SeqNo,
}

/// Physical keys with the same horizon.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct HorizonSpan<'a> {
    pub(crate) from: &'a [u8],
    pub(crate) to: Option<&'a [u8]>,
    pub(crate) seqno: SeqNo,
}

/// Where the catalog begins.
const CATALOG: [u8; HEADER_BYTES] = header(CATALOG_ID);

impl Horizons {
    /// One horizon for all keys.
    pub(crate) fn everywhere(seqno: SeqNo) -> Self {
        Self { default: seqno, named: None }
    }

    /// The horizons of these keyspaces, ascending by id.
    pub(crate) fn of(all: impl Iterator<Item = (u32, SeqNo)>) -> Self {
        let mut default = 0;
        let mut named = Vec::new();
        for (id, seqno) in all {
            match id {
                DEFAULT_ID => default = seqno,
                _ if seqno == 0 => {}
                _ => {
                    let (from, to) = (header(id), header(id.saturating_add(1)));
                    named.push(NamedHorizon { id, from, to, seqno });
                }
            }
        }
        Self { default, named: Some(named.into()) }
    }

    /// Whether nothing has expired.
    #[inline]
    pub(crate) fn are_none(&self) -> bool {
        self.default == 0 && self.named.as_ref().is_none_or(|named| named.is_empty())
    }

    /// The horizon of the default keyspace.
    pub(crate) fn of_default(&self) -> SeqNo {
        self.default
    }

    /// The same horizons, with another one for the default keyspace.
    pub(crate) fn with_default(&self, default: SeqNo) -> Self {
        Self { default, named: self.named.clone() }
    }

    /// The lowest horizon of all keys.
    pub(crate) fn of_all(&self) -> SeqNo {
        if self.named.is_none() { self.default } else { 0 }
    }

    /// The highest horizon.
    pub(crate) fn newest(&self) -> SeqNo {
        let named = self.named.iter().flat_map(|named| named.iter());
        named.map(|one| one.seqno).max().unwrap_or(0).max(self.default)
    }

    /// The horizons of named keyspaces.
    pub(crate) fn named(&self) -> impl Iterator<Item = (u32, SeqNo)> {
        self.named.iter().flat_map(|named| named.iter()).map(|one| (one.id, one.seqno))
    }

    /// Every version of this physical key with a lower sequence number has expired.
    #[inline]
    pub(crate) fn before(&self, key: &[u8]) -> SeqNo {
        let Some(named) = &self.named else { return self.default };
        match id_of(key) {
            None | Some(DEFAULT_ID) => self.default,
            Some(id) => found(named, id),
        }
    }

    /// As [`before`](Self::before), for the keys of a named keyspace.
    pub(crate) fn before_id(&self, id: u32) -> SeqNo {
        self.named.as_ref().map_or(self.default, |named| found(named, id))
    }

    /// The keys around `key` with the same horizon.
    pub(crate) fn span(&self, key: &[u8]) -> HorizonSpan<'_> {
        let Some(named) = &self.named else {
            return HorizonSpan { from: &[], to: None, seqno: self.default };
        };
        if *key < CATALOG[..] {
            return HorizonSpan { from: &[], to: Some(&CATALOG), seqno: self.default };
        }
        let next = named.partition_point(|one| one.from[..] <= *key);
        let before = next.checked_sub(1).and_then(|at| named.get(at));
        if let Some(one) = before.filter(|one| *key < one.to[..]) {
            return HorizonSpan { from: &one.from, to: Some(&one.to), seqno: one.seqno };
        }
        HorizonSpan {
            from: before.map_or(&CATALOG, |one| &one.to),
            to: named.get(next).map(|one| &one.from[..]),
            seqno: 0,
        }
    }

    /// The parts of `smallest..=largest` with one horizon each.
    pub(crate) fn spans<'a>(
        &'a self,
        smallest: &'a [u8],
        largest: &'a [u8],
    ) -> impl Iterator<Item = HorizonSpan<'a>> {
        let mut next = Some(smallest);
        std::iter::from_fn(move || {
            let span = self.span(next?);
            next = span.to.filter(|to| *to <= largest);
            Some(span)
        })
    }

    /// Adds other horizons: the higher one of each keyspace counts.
    pub(crate) fn extend(&mut self, other: &Self) {
        if other.are_none() || self.are(other) {
            return;
        }
        if self.are_none() {
            *self = other.clone();
            return;
        }
        if self.named.is_none() && other.named.is_none() {
            self.default = self.default.max(other.default);
            return;
        }
        let mut all = std::collections::BTreeMap::new();
        for one in [&*self, other] {
            for (id, seqno) in one.named().chain([(DEFAULT_ID, one.default)]) {
                let highest = all.entry(id).or_insert(0);
                *highest = seqno.max(*highest);
            }
        }
        *self = Self::of(all.into_iter());
    }

    /// Whether these are the same shared values. A cheap check: equal horizons may not be the same.
    pub(crate) fn are(&self, other: &Self) -> bool {
        let are_same = match (&self.named, &other.named) {
            (Some(named), Some(others)) => Arc::ptr_eq(named, others),
            (None, None) => true,
            _ => false,
        };
        are_same && self.default == other.default || self.are_none() && other.are_none()
    }
}

fn found(named: &[NamedHorizon], id: u32) -> SeqNo {
    let found = named.binary_search_by_key(&id, |one| one.id);
    found.ok().and_then(|at| named.get(at)).map_or(0, |one| one.seqno)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::space::Space;

    #[test]
    fn each_keyspace_has_its_own_horizon_and_the_catalog_has_none() {
        let all = Horizons::of([(0, 9), (3, 5), (4, 7), (9, 0), (u32::MAX - 1, 8)].into_iter());
        let spaces = [
            (Space::Default, 9),
            (Space::Named(1), 0),
            (Space::Named(2), 0),
            (Space::Named(3), 5),
            (Space::Named(4), 7),
            (Space::Named(9), 0),
            (Space::Named(u32::MAX - 1), 8),
        ];
        for (space, expected) in spaces {
            for key in [&b""[..], b"k", b"\xff\xff\xff\xff", b"\xff\xff\xff\xff\0\0\0\x03"] {
                let key = space.key(key);
                assert_eq!(all.before(&key), expected, "{space:?}");
                let span = all.span(&key);
                assert!(*span.from <= *key && span.to.is_none_or(|to| *key < *to));
                assert_eq!(span.seqno, expected);
            }
        }
        let (first, last) = (Space::Default.key(b"a"), Space::Named(9).key(b"z"));
        let spans = all.spans(&first, &last).map(|span| span.seqno);
        assert_eq!(spans.collect::<Vec<_>>(), [9, 0, 5, 7, 0]);
        assert_eq!((all.newest(), all.of_all(), all.of_default()), (9, 0, 9));
        let one = Horizons::everywhere(4);
        assert_eq!((one.before(&first), one.before(&last), one.of_all()), (4, 4, 4));
        let mut both = Horizons::of([(0, 3), (3, 6)].into_iter());
        both.extend(&all);
        assert_eq!(both, Horizons::of([(0, 9), (3, 6), (4, 7), (u32::MAX - 1, 8)].into_iter()));
        assert!(both.are(&both.clone()) && !both.are(&all));
        assert!(Horizons::of([(3, 0)].into_iter()).are_none());
    }
}
