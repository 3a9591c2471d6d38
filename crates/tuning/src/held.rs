//! Filters that are there already: which to do without, where not all of them may be held.

/// A filter as it was built.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Held {
    /// What the reads in vain of its table would cost without it:
    /// [`Visits::weight`](crate::Visits::weight).
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
