//! The price of a byte, and the choices that are best at that price.
//!
//! With a price `p` a table's best filter is the one of least `weight * rate + p * bytes`,
//! independently of the other tables. No other way to spend the same total of bytes wastes less
//! (Everett, "Generalized Lagrange multiplier method", 1963). So a budget is met by the lowest
//! price at which the choices fit.
//!
//! 1. The best choice at a price is a corner of the menu's hull: the last corner up to which every
//!    edge reduces the rate by more than the price per byte.
//! 2. The bytes bought fall as the price rises. Bisect the price, over all floating-point numbers
//!    from 0 to infinity, until two neighbors remain: the lower one buys too much.
//! 3. Tables with the same corner on both sides are settled, and not visited again.
//! 4. Several edges may be tied at the final price. Buy them in the tree's order while they fit.
//!
//! The result is that of greedily buying the best edge, without sorting all edges: each table is
//! visited once for each bit of the price until it is settled.

use crate::error::{TuningError, within};
use crate::menu::Menu;

/// The saving that a byte of filter must bring, in expected cost of wasted reads per lookup.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Default)]
pub struct Price(f64);

impl Price {
    /// Bytes cost nothing: every filter that saves anything is bought at its largest.
    pub const FREE: Self = Self(0.0);

    /// A price per byte.
    ///
    /// # Errors
    /// It is negative or NaN. It may be infinite: nothing is bought then.
    pub fn new(per_byte: f64) -> Result<Self, TuningError> {
        let bounds = (0.0, f64::INFINITY);
        within("the price of a byte", per_byte, bounds, "0 or more").map(Self)
    }

    /// A price, which must not be negative.
    pub(crate) fn at(per_byte: f64) -> Self {
        Self(per_byte)
    }

    /// The price per byte.
    #[must_use]
    pub fn per_byte(self) -> f64 {
        self.0
    }
}

/// A price for most tables, and a lower one for some.
///
/// Equal tables grow by the same step at the same price, all or none of them, which may leave much
/// of a budget unspent: a step is a cache line for each table, and with ribbons a bit for each key.
/// So a share of the tables is offered the price at which they take the step. Their numbers
/// determine which, spread evenly over consecutive numbers (multiples of the golden ratio: D.
/// Knuth, "The Art of Computer Programming", volume 3, section 6.4), so that the offer for a table
/// is stable.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Offer {
    price: Price,
    lower: Price,
    /// The share of tables that are offered the lower price.
    share: f64,
}

impl Offer {
    /// One price for all tables.
    #[must_use]
    pub const fn flat(price: Price) -> Self {
        Self { price, lower: price, share: 0.0 }
    }

    /// The price for most tables: about the saving of one more byte.
    #[must_use]
    pub const fn price(&self) -> Price {
        self.price
    }

    /// The price for the others.
    #[must_use]
    pub const fn lower(&self) -> Price {
        self.lower
    }

    /// The share of tables that are offered the lower price, from 0 to 1.
    #[must_use]
    pub const fn share(&self) -> f64 {
        self.share
    }

    /// Whether the table with this number is offered the lower price.
    #[must_use]
    pub fn is_lower_for(&self, number: u64) -> bool {
        let place = number.wrapping_mul(GOLDEN) as f64 / TWO_TO_64;
        place < self.share
    }

    /// The same offer, with a lower price for a share of the tables.
    pub(crate) fn with_lower(self, lower: Price, share: f64) -> Self {
        Self { lower, share, ..self }
    }

    /// The price for the table with this number.
    #[must_use]
    pub fn of(&self, number: u64) -> Price {
        if self.is_lower_for(number) { self.lower } else { self.price }
    }
}

/// 2 to the 64th divided by the golden ratio.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
const TWO_TO_64: f64 = 18_446_744_073_709_551_616.0;
/// The relative difference of a price from the worth of an edge, so that rounding of sums does not
/// affect whether it is bought.
const ROUNDING: f64 = 1e-6;

/// A group of tables with one filter each, all of the same spec.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Item<'a> {
    /// The cost of their wasted reads per lookup, without a filter.
    pub(crate) weight: f64,
    /// Their bytes as a multiple of the menu's bytes.
    pub(crate) scale: f64,
    pub(crate) menu: &'a Menu,
}

impl Item<'_> {
    /// The last corner whose edge is worth more than `price`.
    pub(crate) fn corner_at(&self, price: Price) -> usize {
        if self.weight > 0.0 && self.scale > 0.0 {
            self.menu.corner_at(price.0 * self.scale / self.weight)
        } else {
            0
        }
    }

    pub(crate) fn bytes(&self, corner: usize) -> f64 {
        self.scale * self.menu.corner(corner).bytes as f64
    }

    /// The saving per byte of the edge after `corner`; 0 after the last.
    pub(crate) fn worth(&self, corner: usize) -> f64 {
        let slope = self.menu.slopes().get(corner).copied().unwrap_or(0.0);
        if self.scale > 0.0 { self.weight * slope / self.scale } else { 0.0 }
    }
}

/// The choices that fit a budget.
#[derive(Debug)]
pub(crate) struct Bought {
    pub(crate) price: Price,
    /// A corner for each item.
    pub(crate) corners: Vec<usize>,
}

impl Bought {
    /// The item whose next edge is worth most, the price at which it is just bought, and the
    /// corners of all items at that price. `None` if no remaining edge is worth anything.
    pub(crate) fn next(&self, items: &[Item<'_>]) -> Option<(usize, Price, Vec<usize>)> {
        let worth = items.iter().zip(&self.corners).map(|(item, &corner)| item.worth(corner));
        let next = worth.enumerate().max_by(|(_, a), (_, b)| a.total_cmp(b));
        let (nth, worth) = next.filter(|(_, worth)| *worth > 0.0)?;
        let price = Price(self.price.0.min(worth * (1.0 - ROUNDING)));
        // Other items' edges may be worth as much, and so may the edges after these.
        let corners = items.iter().zip(&self.corners);
        let corners = corners.map(|(item, &corner)| item.corner_at(price).max(corner)).collect();
        Some((nth, price, corners))
    }

    /// A price at which no more than this is bought, whatever the rounding of sums.
    pub(crate) fn just_above(&self) -> Price {
        Price(self.price.0 * (1.0 + ROUNDING))
    }

    /// The `most` items whose next or last edge is worth nearest to the price, in their order; all
    /// items if there are no more.
    pub(crate) fn nearest(&self, items: &[Item<'_>], most: usize) -> Vec<usize> {
        let mut nearest: Vec<usize> = (0..items.len()).collect();
        if nearest.len() <= most {
            return nearest;
        }
        let from = |worth: f64| (worth / self.price.0).ln().abs();
        let distance = |(item, &corner): (&Item<'_>, &usize)| {
            let last = corner.checked_sub(1).map_or(f64::INFINITY, |last| from(item.worth(last)));
            from(item.worth(corner)).min(last)
        };
        let distances: Vec<f64> = items.iter().zip(&self.corners).map(distance).collect();
        let order = |a: &usize, b: &usize| distances[*a].total_cmp(&distances[*b]).then(a.cmp(b));
        nearest.select_nth_unstable_by(most, order);
        nearest.truncate(most);
        nearest.sort_unstable();
        nearest
    }
}

/// The lowest price at which the choices take at most `budget` bytes, and these choices. The first
/// corners are taken even if they do not fit.
pub(crate) fn buy(items: &[Item<'_>], budget: f64) -> Bought {
    let mut search = Search::new(items);
    if search.most <= budget {
        return Bought { price: Price::FREE, corners: search.most_corners };
    }
    // Positive floating-point numbers are ordered like their bits.
    let (mut low, mut high) = (0.0_f64.to_bits(), f64::INFINITY.to_bits());
    while high - low > 1 {
        let middle = low.midpoint(high);
        if search.fits_at(Price::at(f64::from_bits(middle)), budget) {
            high = middle;
        } else {
            low = middle;
        }
    }
    search.spend_ties(budget);
    Bought { price: Price(f64::from_bits(high)), corners: search.least_corners }
}

/// The state of the bisection.
struct Search<'a> {
    items: &'a [Item<'a>],
    /// Corners at the lowest price that is known to be high enough.
    least_corners: Vec<usize>,
    /// Corners at the highest price that is known to be too low.
    most_corners: Vec<usize>,
    /// Bytes of `most_corners`.
    most: f64,
    /// Items whose corners still differ.
    open: Vec<usize>,
    /// Bytes of the items whose corners agree.
    settled: f64,
    /// Corners of the open items at the price that is being tried.
    tried: Vec<usize>,
}

impl<'a> Search<'a> {
    fn new(items: &'a [Item<'a>]) -> Self {
        let most_corners: Vec<usize> =
            items.iter().map(|item| item.corner_at(Price::FREE)).collect();
        let most = items.iter().zip(&most_corners).map(|(item, corner)| item.bytes(*corner)).sum();
        let mut search = Self {
            items,
            least_corners: vec![0; items.len()],
            most_corners,
            most,
            open: (0..items.len()).collect(),
            settled: 0.0,
            tried: Vec::with_capacity(items.len()),
        };
        search.settle();
        search
    }

    /// Whether the choices at `price` fit; narrows the open items' corners accordingly.
    fn fits_at(&mut self, price: Price, budget: f64) -> bool {
        let items = self.items;
        self.tried.clear();
        self.tried.extend(self.open.iter().map(|item| items[*item].corner_at(price)));
        let tried = self.open.iter().zip(&self.tried);
        let bytes: f64 = tried.map(|(item, corner)| items[*item].bytes(*corner)).sum();
        let fits = self.settled + bytes <= budget;
        let bound = if fits { &mut self.least_corners } else { &mut self.most_corners };
        for (item, corner) in self.open.iter().zip(&self.tried) {
            bound[*item] = *corner;
        }
        self.settle();
        fits
    }

    fn settle(&mut self) {
        let Self { items, least_corners, most_corners, open, settled, .. } = self;
        open.retain(|&item| {
            let is_open = least_corners[item] < most_corners[item];
            if !is_open {
                *settled += items[item].bytes(least_corners[item]);
            }
            is_open
        });
    }

    /// Buys edges that are worth exactly the price.
    fn spend_ties(&mut self, budget: f64) {
        let bytes = |item: usize, corner| self.items[item].bytes(corner);
        let open = self.open.iter().map(|&item| bytes(item, self.least_corners[item]));
        let mut left = budget - self.settled - open.sum::<f64>();
        for &item in &self.open {
            let corner = &mut self.least_corners[item];
            while *corner < self.most_corners[item] {
                let more = bytes(item, *corner + 1) - bytes(item, *corner);
                if more > left {
                    break;
                }
                left -= more;
                *corner += 1;
            }
        }
    }
}
