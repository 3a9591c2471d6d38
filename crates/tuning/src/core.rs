//! Solves exactly for the tables whose filters depend on the last bytes.
//!
//! Buying hull edges is optimal except for the last edge, which does not fit and leaves bytes over;
//! and options inside the hull, never best at any price, may fit. With many tables the loss is
//! small. With few it is large: with two tables of ten keys and a budget for one filter, greedy
//! buying may filter the wrong one. So the tables whose next or last edge is nearest to the price
//! are solved together:
//!
//! 1. With the price `p`, `sum_i min_j (weight_i * rate_ij + p * bytes_ij) - p * budget` is a lower
//!    bound of the cost of any choice. If the current solution is within [`NEAR`] of it, it stays:
//!    this is the case whenever a large table can take the remaining bytes.
//! 2. A choice `j` of table `i` that costs more at the price than the best of `i` raises that bound
//!    by the difference. If the bound then exceeds the cost of the current solution, no better
//!    solution contains the choice. This leaves few choices for each table.
//! 3. Take the tables one by one, keeping the reachable *states* of bytes and cost that no state of
//!    at most as many bytes dominates, and that the bound does not rule out.
//! 4. If there are more than [`MOST_STATES`], keep the one of the fewest bytes in each of as many
//!    equal intervals of cost. This changes the result by at most one interval for each table.
//! 5. The state of least cost at the end is the solution.
//!
//! Step 3 is Nemhauser and Ullmann's ("Discrete dynamic programming and capital allocation", 1969),
//! step 2 the usual reduction by Lagrange bounds.

use crate::menu::{Choice, Menu};
use crate::price::Price;

/// The most tables that are solved together.
pub(crate) const CORE: usize = 16;
/// The most states that are kept.
const MOST_STATES: usize = 1024;
/// The relative cost that a better solution must be able to save for the exact search to run.
const NEAR: f64 = 1e-3;

/// A table, or several equal ones, with all their choices.
#[derive(Debug, Clone)]
pub(crate) struct Part {
    pub(crate) weight: f64,
    pub(crate) alike: u64,
    pub(crate) menu: Menu,
}

impl Part {
    pub(crate) fn bytes(&self, choice: &Choice) -> u64 {
        choice.bytes.saturating_mul(self.alike)
    }

    pub(crate) fn cost(&self, choice: &Choice) -> f64 {
        self.weight * choice.rate
    }

    fn at_price(&self, choice: &Choice, price: Price) -> f64 {
        self.cost(choice) + price.per_byte() * self.bytes(choice) as f64
    }
}

/// A combination of choices for the first parts.
#[derive(Debug, Clone, Copy)]
struct State {
    bytes: u64,
    cost: f64,
    /// Its excess at the price over the best choices.
    extra: f64,
    /// The previous state, and the choice that leads here.
    from: (u32, u32),
}

/// The choices of least cost within `budget` bytes, if they cost less than the `known` ones.
pub(crate) fn best(parts: &[Part], budget: u64, price: Price, known: f64) -> Option<Vec<Choice>> {
    let cheapest: Vec<f64> = parts.iter().map(|part| cheapest(part, price)).collect();
    let bound = cheapest.iter().sum::<f64>() - price.per_byte() * budget as f64;
    let room = known - bound;
    if room <= NEAR * known {
        return None;
    }
    let mut layers = vec![vec![State { bytes: 0, cost: 0.0, extra: 0.0, from: (0, 0) }]];
    for (part, cheapest) in parts.iter().zip(cheapest) {
        let extra = |choice: &Choice| part.at_price(choice, price) - cheapest;
        let options = part.menu.options().iter().enumerate();
        let options = options.map(|(nth, choice)| (nth, choice, extra(choice)));
        let mut options: Vec<_> = options.filter(|(.., extra)| *extra <= room).collect();
        options.sort_by(|(.., a), (.., b)| a.total_cmp(b));
        let last = &layers[layers.len() - 1];
        let mut states = Vec::new();
        for (from, state) in last.iter().enumerate() {
            let fits = |(.., extra): &&(_, _, f64)| state.extra + extra <= room;
            for &(nth, choice, extra) in options.iter().take_while(fits) {
                let next = State {
                    bytes: state.bytes.saturating_add(part.bytes(choice)),
                    cost: state.cost + part.cost(choice),
                    extra: state.extra + extra,
                    from: (from as u32, nth as u32),
                };
                if next.bytes <= budget && next.cost < known {
                    states.push(next);
                }
            }
        }
        layers.push(thinned(undominated(states)));
    }
    // Sorted by bytes, and so by falling cost.
    let mut at = layers.last()?.len().checked_sub(1)?;
    let mut chosen = Vec::new();
    for (part, layer) in parts.iter().zip(&layers[1..]).rev() {
        let (from, nth) = layer[at].from;
        chosen.push(part.menu.options()[nth as usize]);
        at = from as usize;
    }
    chosen.reverse();
    Some(chosen)
}

/// The least cost of a part at the price.
fn cheapest(part: &Part, price: Price) -> f64 {
    let options = part.menu.options().iter();
    options.map(|choice| part.at_price(choice, price)).fold(f64::INFINITY, f64::min)
}

/// The states that none of at most as many bytes dominates, ascending in bytes.
fn undominated(mut states: Vec<State>) -> Vec<State> {
    states.sort_unstable_by(|a, b| {
        a.bytes.cmp(&b.bytes).then(a.cost.total_cmp(&b.cost)).then(a.from.cmp(&b.from))
    });
    let mut least = f64::INFINITY;
    states.retain(|state| {
        let is_better = state.cost < least;
        least = least.min(state.cost);
        is_better
    });
    states
}

/// Step 4.
fn thinned(mut states: Vec<State>) -> Vec<State> {
    let (Some(first), Some(last)) = (states.first(), states.last()) else { return states };
    if states.len() <= MOST_STATES {
        return states;
    }
    let (least, strip) = (last.cost, (first.cost - last.cost) / MOST_STATES as f64);
    let mut strip_before = u64::MAX;
    states.retain(|state| {
        let strip = ((state.cost - least) / strip) as u64;
        let is_new = strip != strip_before;
        strip_before = strip;
        is_new
    });
    states
}

#[cfg(test)]
mod tests {
    use super::*;
    use trommel_filter::FilterSpec;

    fn part(weight: f64, sizes: &[(u64, f64)]) -> Part {
        let choice = |&(bytes, rate)| Choice { spec: FilterSpec::NONE, bytes, rate };
        Part { weight, alike: 1, menu: Menu::of(sizes.iter().map(choice).collect()) }
    }

    #[test]
    fn a_choice_that_fits_beats_the_best_ratio() {
        // The first has the better ratio, but leaves room for nothing else.
        let parts = [part(1.0, &[(0, 1.0), (104, 0.0)]), part(1.3, &[(0, 1.0), (150, 0.0)])];
        let price = Price::new(1.3 / 150.0).unwrap();
        for (budget, bytes) in [(104, [104, 0]), (150, [0, 150]), (254, [104, 150])] {
            let chosen = best(&parts, budget, price, 10.0).unwrap();
            assert_eq!(chosen.iter().map(|c| c.bytes).collect::<Vec<_>>(), bytes, "{budget}");
        }
        assert_eq!(best(&parts, 150, price, 1.0), None, "no better one than that is known");
    }
}
