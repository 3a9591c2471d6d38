//! Iterating in a transaction: the snapshot's entries merged with the transaction's own writes.
//!
//! 1. Each end holds the next entry of the snapshot that it has fetched and not yielded. If one end
//!    has reached the other, it takes over the other's fetched entry.
//! 2. At each step, the transaction's own keys before the fetched one are looked up, then that key
//!    itself: only when an entry is next is it decided whether the transaction has overwritten,
//!    merged into or deleted it. So writes ahead of an end are seen, and so are rollbacks to a
//!    savepoint.
//! 3. When the iterator is dropped, the part that it covered is added to the transaction's reads:
//!    the keys from the start of the range to the last key that the front yielded, and from the
//!    last key that the back yielded to the end, or the whole range if it was exhausted.

use std::ops::Bound;

use trommel_base::Slice;

use super::Transaction;
use super::writes::OwnValue;
use crate::bounds::Bounds;
use crate::error::Result;
use crate::iter::range::Range;
use crate::space::Space;
use crate::sync::lock;

/// An entry.
type Pair = (Slice, Slice);

/// An iterator over the entries that a [`Transaction`] sees in a range, in key order, from both
/// ends. Only the part that it has covered when it is dropped counts as read. After an error it
/// yields nothing more.
///
/// It must be dropped for that: reads by an iterator that is leaked by [`std::mem::forget`] are not
/// checked.
#[derive(Debug)]
#[must_use = "it reads nothing until it is asked"]
pub struct TransactionRange<'a> {
    transaction: &'a Transaction,
    space: Space,
    /// Of physical keys, like all keys below.
    bounds: Bounds,
    stored: Range,
    front: RangeEnd,
    back: RangeEnd,
    is_done: bool,
}

/// One end.
#[derive(Debug, Default)]
struct RangeEnd {
    /// The last key that it yielded.
    last: Option<Slice>,
    /// The entry of the snapshot that comes next.
    fetched: Option<Pair>,
}

/// From which end the next entry is taken.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Front,
    Back,
}

impl<'a> TransactionRange<'a> {
    pub(super) fn new(
        transaction: &'a Transaction,
        space: Space,
        bounds: Bounds,
        stored: Range,
    ) -> Self {
        let is_done = bounds.ends_before(&bounds.from);
        let (front, back) = (RangeEnd::default(), RangeEnd::default());
        Self { transaction, space, bounds, stored, front, back, is_done }
    }

    fn step(&mut self, side: Side) -> Option<Result<Pair>> {
        if self.is_done {
            return None;
        }
        let step = self.next_from(side).transpose();
        match &step {
            Some(Ok((key, _))) => self.end(side).last = Some(key.clone()),
            // The whole range was read, or as much of it as can be read.
            _ => self.is_done = true,
        }
        let own_key = |key: Slice| key.slice(self.space.skipped(&key)..);
        Some(step?.map(|(key, value)| (own_key(key), value)))
    }

    fn end(&mut self, side: Side) -> &mut RangeEnd {
        match side {
            Side::Front => &mut self.front,
            Side::Back => &mut self.back,
        }
    }

    /// The next entry from this end: the transaction's own, or that of the snapshot.
    fn next_from(&mut self, side: Side) -> Result<Option<Pair>> {
        loop {
            self.fetch(side)?;
            if let Some(own) = self.own(side)? {
                return Ok(Some(own));
            }
            let Some((key, value)) = self.end(side).fetched.take() else { return Ok(None) };
            let value = match self.transaction.state()?.writes.get(&key) {
                None => Some(value),
                Some(OwnValue::Set(own)) => own.map(Slice::from),
                Some(OwnValue::Merged { base, operands }) => {
                    self.transaction.merged(&key, base.unwrap_or(Some(&*value)), operands)?
                }
            };
            if let Some(value) = value {
                return Ok(Some((key, value)));
            }
            // The transaction has removed the entry, perhaps by a merge. The end passes its key, so
            // that it is not found again among the transaction's own writes.
            self.end(side).last = Some(key);
        }
    }

    /// Fetches the next entry of the snapshot, unless it has been fetched.
    fn fetch(&mut self, side: Side) -> Result<()> {
        if self.end(side).fetched.is_some() {
            return Ok(());
        }
        let next = match side {
            Side::Front => self.stored.next(),
            Side::Back => self.stored.next_back(),
        };
        let other = if side == Side::Front { Side::Back } else { Side::Front };
        self.end(side).fetched = match next {
            Some(entry) => Some(entry?),
            None => self.end(other).fetched.take(),
        };
        Ok(())
    }

    /// The transaction's own next entry from this end, if it comes before the fetched one.
    fn own(&self, side: Side) -> Result<Option<Pair>> {
        let (fetched, is_front) = match side {
            Side::Front => (&self.front.fetched, true),
            Side::Back => (&self.back.fetched, false),
        };
        let stored = fetched.as_ref().map(|(key, _)| Bound::Excluded(&**key));
        let from = match &self.front.last {
            Some(last) => Bound::Excluded(&**last),
            None => Bound::Included(&*self.bounds.from),
        };
        let to = match (&self.back.last, &self.bounds.to) {
            (Some(last), _) => Bound::Excluded(&**last),
            (None, Some(to)) => Bound::Excluded(&**to),
            (None, None) => Bound::Unbounded,
        };
        let (from, to) = match stored {
            Some(stored) if is_front => (from, stored),
            Some(stored) => (stored, to),
            None => (from, to),
        };
        let state = self.transaction.state()?;
        let (mut from, mut to) = (from, to);
        loop {
            let own = match side {
                Side::Front => state.writes.first_in(from, to),
                Side::Back => state.writes.last_in(from, to),
            };
            let Some(key) = own else { return Ok(None) };
            let value = match state.writes.get(key) {
                _ if self.space == Space::Plain && state.is_in_keyspace(key) => None,
                Some(OwnValue::Set(value)) => value.map(Slice::from),
                // The snapshot has no value between the fetched key and the last one yielded.
                Some(OwnValue::Merged { base, operands }) => {
                    self.transaction.merged(key, base.flatten(), operands)?
                }
                None => None,
            };
            if let Some(value) = value {
                return Ok(Some((Slice::from(key), value)));
            }
            match side {
                Side::Front => from = Bound::Excluded(key),
                Side::Back => to = Bound::Excluded(key),
            }
        }
    }
}

impl Iterator for TransactionRange<'_> {
    type Item = Result<Pair>;

    fn next(&mut self) -> Option<Self::Item> {
        self.step(Side::Front)
    }
}

impl DoubleEndedIterator for TransactionRange<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.step(Side::Back)
    }
}

impl std::iter::FusedIterator for TransactionRange<'_> {}

impl Drop for TransactionRange<'_> {
    fn drop(&mut self) {
        if self.transaction.is_forked() {
            return;
        }
        let Bounds { from, to } = std::mem::replace(&mut self.bounds, Bounds::all());
        let reads = &mut lock(&self.transaction.state).reads;
        if self.is_done {
            return reads.add_range(Bounds { from, to });
        }
        if let Some(last) = &self.front.last {
            reads.add_range(Bounds { from, to: Some(Bounds::after(last)) });
        }
        if let Some(last) = &self.back.last {
            reads.add_range(Bounds { from: last.to_vec(), to });
        }
    }
}
