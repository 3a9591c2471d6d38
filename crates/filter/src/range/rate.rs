//! The expected rate of a filter, from the cells of its keys.
//!
//! The queries that it is for are short ranges that hold nothing and begin with a key like those of
//! the table: one that could have been among them. How often does such a key fall into an occupied
//! cell? As often as a key of the table would if it were left out: the share of keys that are not
//! alone in their cell. This is the estimate of Good and Turing (Good, "The Population Frequencies
//! of Species and the Estimation of Population Parameters", 1953), and supposes nothing of how the
//! keys are spread.
//!
//! 1. If many keys share their cell, that share is the rate.
//! 2. Of few, the number is a matter of chance. Then cells of twice the width are tried, four times
//!    and so on, until many keys share one: if keys are spread evenly within these, as many share a
//!    narrow cell as the width says. The result is taken if it is within 1.5 standard
//!    errors of the number that do.
//! 3. A key of `n` in its block has only `n - 1` others to share its cell with, but without it the
//!    block would have ended one key later: each other one counts as `n / (n - 1)`, and as the
//!    mean of that if blocks differ.
//! 4. The rate is at least the share of occupied cells: that of queries that are spread evenly.

#[cfg(not(feature = "std"))]
use crate::float::Float;

/// As many keys in shared cells are enough to state the rate: its standard error is 1.6%.
const ENOUGH: u64 = 1 << 13;
/// Most times that the width is doubled.
const DOUBLINGS: usize = 12;

/// The rate of a filter of `all` cells, in which its keys have these `cells`, in order; `sizes` are
/// the numbers of keys of its blocks.
pub(super) fn expected(cells: &[u64], sizes: impl Iterator<Item = usize>, all: u64) -> f64 {
    let keys = cells.len() as f64;
    // The number of keys that share a cell first after so many doublings.
    let mut sharing = [0_u64; DOUBLINGS + 1];
    let mut occupied = 0_u64;
    for (i, cell) in cells.iter().enumerate() {
        let near = |other: Option<&u64>| other.map_or(u64::MAX, |other| cell ^ other);
        let before = near(i.checked_sub(1).and_then(|before| cells.get(before)));
        occupied += u64::from(before > 0);
        let doublings = u64::BITS - before.min(near(cells.get(i + 1))).leading_zeros();
        if let Some(count) = sharing.get_mut(doublings as usize) {
            *count += 1;
        }
    }
    let share = occupied as f64 / all.max(1) as f64;
    let in_one = sharing[0];
    // Keys come in pairs, so the variance of their number is twice that of independent events.
    let error = 1.5 * (2.0 * (in_one + 1) as f64).sqrt();
    let (mut count, mut rate) = (0, 0.0);
    for (doublings, more) in sharing.iter().enumerate() {
        count += more;
        let share = count as f64 / (keys + 1.0);
        let narrow = 1.0 - (1.0 - share).powf(0.5_f64.powi(doublings as i32));
        if (narrow * keys - in_one as f64).abs() > error {
            break;
        }
        rate = narrow;
        if count >= ENOUGH {
            break;
        }
    }
    let (mut blocks, mut pairs) = (0.0, 0.0);
    for size in sizes {
        blocks += 1.0;
        pairs += size as f64 * (size as f64 - 1.0);
    }
    let others = if pairs > 0.0 { keys * keys / (blocks * pairs) } else { 1.0 };
    let rate = 1.0 - (1.0 - rate).powf(others);
    rate.max(share).min(1.0)
}
