//! Existing filters: which ones to drop if not all of them fit in memory.

/// An existing filter.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Held {
    /// The cost of its table's wasted reads without a filter:
    /// [`Visits::weight`](crate::Visits::weight).
    pub weight: f64,
    /// Bytes of memory; 0 without a filter.
    pub bytes: u64,
    /// Its own false positive rate; 1 without a filter.
    pub rate: f64,
}

impl Held {
    /// The cost saved per byte.
    #[must_use]
    pub fn worth(&self) -> f64 {
        self.weight * (1.0 - self.rate) / self.bytes.max(1) as f64
    }
}

/// The filters to drop so that the others take at most `budget` bytes: their indexes in `held`, in
/// ascending order of worth per byte. A table without its filter answers "maybe".
///
/// 1. Drop the filters worth least per byte, until the others fit.
/// 2. Restore dropped filters that fit after all, the best first: the last one dropped may have
///    been much larger than the excess.
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
