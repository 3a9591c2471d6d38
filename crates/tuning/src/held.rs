//! Filters that are there already: how far from today's best, and which to do without.

use crate::curve;
use crate::error::TuningError;
use crate::solver::Plan;
use crate::tree::Tree;

/// A filter as it was built.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Held {
    /// What the reads in vain of its table would cost without it: [`Visits::weight`](crate::Visits::weight).
    pub weight: f64,
    /// Bytes that it takes in memory; 0 without a filter.
    pub bytes: u64,
    /// Its own rate of false positives; 1 without a filter.
    pub rate: f64,
}

impl Held {
    /// What it saves for a byte.
    #[must_use]
    pub fn worth(&self) -> f64 {
        self.weight * (1.0 - self.rate) / self.bytes.max(1) as f64
    }
}

/// How far a built filter is from the one that the plan has for its table.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Drift {
    /// Bytes that it takes beyond the plan's; negative where it is smaller.
    pub bytes: i128,
    /// Cost of reads in vain, of one lookup, beyond the plan's; negative where it is better.
    pub cost: f64,
}

impl Plan {
    /// The drift of each table of the tree that this plan is for, in its order; `held` is one filter
    /// for each.
    ///
    /// # Errors
    /// There are not as many filters as tables.
    pub fn drift(&self, tree: &Tree, held: &[Held]) -> Result<Vec<Drift>, TuningError> {
        if held.len() != self.filters.len() || held.len() != tree.tables().count() {
            return Err(TuningError::Count { tables: self.filters.len(), given: held.len() });
        }
        let drift = |(((_, table), spec), held): (((_, &crate::Table), _), &Held)| {
            let rate = if table.keys == 0 { 1.0 } else { curve::rate(spec, table.keys) };
            Drift {
                bytes: i128::from(held.bytes) - i128::from(curve::bytes(spec, table.keys)),
                cost: held.weight * (held.rate - rate),
            }
        };
        let planned = tree.tables().zip(self.filters.iter().copied());
        Ok(planned.zip(held).map(drift).collect())
    }
}

/// Filters to do without, that those left take at most `budget` bytes: the places in `held`, what
/// is worth least for its bytes first. A table whose filter is dropped answers "maybe".
///
/// 1. Drop what is worth least for a byte, until the others fit.
/// 2. Take back, the best first, what has room all the same: the last one dropped may have been
///    much larger than the rest of what had to go.
///
/// ```
/// use trommel_tuning::{Held, to_drop};
/// let held = |weight, bytes| Held { weight, bytes, rate: 0.01 };
/// let filters = [held(1.0, 100), held(1.0, 1000), held(0.001, 10)];
/// assert_eq!(to_drop(&filters, 1110), []);
/// assert_eq!(to_drop(&filters, 1100), [2]);
/// assert_eq!(to_drop(&filters, 1099), [1], "the small one has room again");
/// ```
#[must_use]
pub fn to_drop(held: &[Held], budget: u64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..held.len()).filter(|nth| held[*nth].bytes > 0).collect();
    order.sort_by(|a, b| held[*a].worth().total_cmp(&held[*b].worth()).then(a.cmp(b)));
    let mut bytes = order.iter().map(|nth| u128::from(held[*nth].bytes)).sum::<u128>();
    let budget = u128::from(budget);
    let fits = order.iter().position(|nth| {
        let fits = bytes <= budget;
        if !fits {
            bytes -= u128::from(held[*nth].bytes);
        }
        fits
    });
    order.truncate(fits.unwrap_or(order.len()));
    for place in (0..order.len()).rev() {
        let more = u128::from(held[order[place]].bytes);
        if bytes + more <= budget {
            bytes += more;
            order.remove(place);
        }
    }
    order
}
