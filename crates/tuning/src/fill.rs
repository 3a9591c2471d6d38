//! Spends the remaining bytes on fractions of a bit.
//!
//! Options are an eighth of a bit apart; a spec has a resolution of a thousandth. So the table that
//! gains most from all of the remaining bytes gets them; then the next, until no table's filter can
//! grow by a cache line.

use trommel_filter::FilterSpec;

use crate::curve;
use crate::rules::Rule;
use crate::tree::Table;

/// A table with its filter.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Slot<'a> {
    pub(crate) weight: f64,
    pub(crate) table: Table,
    pub(crate) rule: &'a Rule,
    pub(crate) spec: FilterSpec,
}

impl Slot<'_> {
    pub(crate) fn bytes(&self) -> u64 {
        curve::bytes(self.spec, self.table.keys).saturating_mul(self.table.alike)
    }

    pub(crate) fn cost(&self) -> f64 {
        let rate = if self.table.keys == 0 { 1.0 } else { curve::rate(self.spec, self.table.keys) };
        self.weight * rate
    }

    /// The best filter that takes at most `more` additional bytes.
    fn grown(self, more: u64) -> Self {
        let keys = self.table.keys;
        let room = self.bytes().saturating_add(more) / self.table.alike.max(1);
        let spec = |kind, millibits| FilterSpec::new(kind, f64::from(millibits) / 1000.0).ok();
        let grown = |kind: &_| {
            let least = (self.rule.floor().max(0.5) * 1000.0).ceil() as u32;
            let most = (self.rule.cap() * 1000.0) as u32;
            let fits =
                |millibits| spec(*kind, millibits).is_some_and(|s| curve::bytes(s, keys) <= room);
            if keys == 0 || most < least || !fits(least) {
                return None;
            }
            spec(*kind, last_that(least, most, fits)).map(|spec| Self { spec, ..self })
        };
        let kinds = self.rule.kinds().iter().filter_map(grown);
        kinds.fold(self, |best, next| if next.cost() < best.cost() { next } else { best })
    }
}

/// Spends the rest of `budget` on `slots`, which must fit it and still do afterwards.
pub(crate) fn fill(slots: &mut [Slot<'_>], budget: u64) {
    let taken = slots.iter().map(Slot::bytes).fold(0, u64::saturating_add);
    let mut left = budget.saturating_sub(taken);
    for _ in 0..slots.len() {
        let mut best: Option<(f64, usize, Slot<'_>)> = None;
        for (nth, slot) in slots.iter().enumerate() {
            let grown = slot.grown(left);
            let gain = slot.cost() - grown.cost();
            if gain > best.as_ref().map_or(0.0, |(best, ..)| *best) {
                best = Some((gain, nth, grown));
            }
        }
        let Some((_, nth, grown)) = best else { return };
        left = (left + slots[nth].bytes()).saturating_sub(grown.bytes());
        slots[nth] = grown;
    }
}

/// The last number from `least` to `most` for which `holds` is true. It must be true for `least`,
/// and for all numbers before the last.
pub(crate) fn last_that(least: u32, most: u32, holds: impl Fn(u32) -> bool) -> u32 {
    let (mut low, mut high) = (least, most);
    while low < high {
        let middle = high - (high - low) / 2;
        if holds(middle) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    low
}
