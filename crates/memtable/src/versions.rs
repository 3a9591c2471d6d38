//! Shows a reader as of one moment a single version of each key: the newest one that it sees, or
//! the oldest one if it sees none.
//!
//! The others are skipped without reading their records, since a slot knows whether the one before
//! it has the same key. A long run of versions is skipped by a search. A key is never skipped as a
//! whole: whoever scans several sources has bounds and limits to check at each key.
//!
//! # Invariants
//! * Which version is shown depends on the slots and the moment only, not on where a scan began or
//!   in which direction it travels. So a scan that turns around meets the same ones again.

use std::cmp::Ordering;

use trommel_base::SeqNo;

use crate::slot::{Probe, Slot};

/// Steps over versions of one key, after which a search skips the rest.
const STEPS_BEFORE_SEARCH: usize = if cfg!(test) { 3 } else { 32 };

/// A position between two slots of an order, or before the first or after the last.
pub(crate) trait Position {
    /// The slot after the position.
    fn after(&mut self) -> Option<Slot>;

    /// The slot before the position.
    fn before(&mut self) -> Option<Slot>;

    /// Moves past the slot after the position, which must exist.
    fn advance(&mut self);

    /// Moves past the slot before the position, which must exist.
    fn retreat(&mut self);

    /// Whether the slots before and after the position are versions of one key.
    fn is_within_key(&mut self) -> bool;

    /// Moves before the first slot that is not before `probe`.
    fn search(&mut self, probe: &Probe<'_>);
}

/// The moment of a reader.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment(pub(crate) SeqNo);

impl Moment {
    #[inline]
    fn sees(self, slot: &Slot) -> bool {
        slot.record().seqno() <= self.0
    }

    /// Moves on until the next slot in this direction is a version to show, or to the end.
    #[inline]
    pub(crate) fn settle(self, position: &mut impl Position, direction: Ordering) {
        match direction {
            Ordering::Less => self.settle_back(position),
            _ => self.settle_forward(position),
        }
    }

    #[inline]
    fn settle_forward(self, position: &mut impl Position) {
        if position.is_within_key() {
            let shown = position.before().filter(|before| self.sees(before));
            if let Some(shown) = shown {
                skip_key(position, &shown);
            }
        }
        if let Some(slot) = position.after()
            && !self.sees(&slot)
        {
            self.skip_newer(position, &slot);
        }
    }

    /// Moves forward from a version that is not seen, `slot`, before the newest one that is, or
    /// before the oldest one.
    #[inline(never)]
    fn skip_newer(self, position: &mut impl Position, slot: &Slot) {
        for _ in 0..STEPS_BEFORE_SEARCH {
            position.advance();
            if !position.is_within_key() {
                return position.retreat();
            }
            if position.after().is_none_or(|next| self.sees(&next)) {
                return;
            }
        }
        position.search(&version(slot, self.0));
        if !position.is_within_key() {
            position.retreat();
        }
    }

    #[inline]
    fn settle_back(self, position: &mut impl Position) {
        let Some(mut slot) = position.before() else { return };
        if position.is_within_key() && !self.sees(&slot) {
            // The version to show comes after the position.
            to_first_version(position, &slot, SeqNo::MAX);
            let Some(of_previous_key) = position.before() else { return };
            slot = of_previous_key;
        }
        if self.sees(&slot) {
            self.to_newest_seen(position, &slot);
        }
    }

    /// Moves from the end of `slot`, which is seen, after the newest version of its key that is.
    #[inline]
    fn to_newest_seen(self, position: &mut impl Position, slot: &Slot) {
        position.retreat();
        if position.is_within_key() {
            position.advance();
            to_first_version(position, slot, self.0);
            if let Some(first) = position.after()
                && !self.sees(&first)
            {
                self.skip_newer(position, &first);
            }
        }
        position.advance();
    }
}

/// The position of a version of the key of `slot`.
fn version(slot: &Slot, seqno: SeqNo) -> Probe<'_> {
    Probe { rank: slot.rank(), key: slot.record().key(), seqno }
}

/// Moves from between two versions of the key of `slot` to the end of its versions.
#[inline]
fn skip_key(position: &mut impl Position, slot: &Slot) {
    for _ in 0..STEPS_BEFORE_SEARCH {
        position.advance();
        if !position.is_within_key() {
            return;
        }
    }
    position.search(&version(slot, 0));
    if position.after().is_some_and(|last| last.has_key_of(slot)) {
        position.advance();
    }
}

/// Moves from the end of `slot` before the first version of its key, or if that takes many steps,
/// before the first one that is not newer than `seqno`.
#[inline]
fn to_first_version(position: &mut impl Position, slot: &Slot, seqno: SeqNo) {
    for _ in 0..STEPS_BEFORE_SEARCH {
        position.retreat();
        if !position.is_within_key() {
            return;
        }
    }
    position.search(&version(slot, seqno));
}
