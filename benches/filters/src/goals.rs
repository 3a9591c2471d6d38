//! The target speeds of Trommel's filters, as ratios within one run, and whether they are met.
//!
//! *Out of cache* is the largest number of keys, *in cache* the second smallest. A goal has a row
//! for each number of bits, kernel and kind of pages; each ratio is that of the two filters' times
//! in the same round, and its median over the rounds is compared with the bound.

use std::fmt;

use crate::cell::{Cell, Results, Spread};
use crate::loops::{Mode, Pattern, Side};
use crate::plan::{GOAL_BITS, Given};

/// The bound of a ratio.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Bound {
    /// At most this.
    AtMost(f64),
    /// At least this.
    AtLeast(f64),
    /// More than this.
    Above(f64),
}

impl Bound {
    /// Whether `ratio` satisfies the bound.
    pub fn is_met(self, ratio: f64) -> bool {
        match self {
            Self::AtMost(most) => ratio <= most,
            Self::AtLeast(least) => ratio >= least,
            Self::Above(bound) => ratio > bound,
        }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtMost(bound) => write!(f, "at most {bound}"),
            Self::AtLeast(bound) => write!(f, "at least {bound}"),
            Self::Above(bound) => write!(f, "more than {bound}"),
        }
    }
}

/// One measured ratio.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Bits per key, kernel, pages.
    pub of: String,
    /// The ratio over the rounds.
    pub ratio: Spread,
    /// Whether the bound is met.
    pub is_met: bool,
}

/// A goal with its measurements.
#[derive(Debug, Clone, PartialEq)]
pub struct Goal {
    /// The dividend and the divisor.
    pub what: String,
    /// The bound of the ratio.
    pub bound: Bound,
    /// The measured ratios; empty if it was not measured.
    pub rows: Vec<Row>,
}

/// All goals.
pub fn goals(results: &Results) -> Vec<Goal> {
    let Ok([_, small, middle, _, huge]) = <[u64; 5]>::try_from(&*results.machine.keys) else {
        return Vec::new();
    };
    let look = Look { results, middle, huge };
    let (negative, positive) = (Side::Negative, Side::Positive);
    let paired =
        |keys, mode, bound, what| look.against("paired", "blocked", keys, mode, bound, what);
    let mut goals = vec![
        paired(
            huge,
            (negative, Pattern::Independent),
            Bound::AtMost(1.2),
            "paired / blocked: negative, out of cache, independent",
        ),
        paired(
            small,
            (negative, Pattern::Independent),
            Bound::AtMost(1.4),
            "paired / blocked: negative, in cache, independent",
        ),
        paired(
            huge,
            (positive, Pattern::Independent),
            Bound::AtMost(2.5),
            "paired / blocked: positive, out of cache, independent",
        ),
        paired(
            huge,
            (positive, Pattern::Dependent),
            Bound::AtMost(1.8),
            "paired / blocked: positive, out of cache, dependent",
        ),
        look.build(huge, "paired / blocked: build, out of cache"),
        look.build(small, "paired / blocked: build, in cache"),
        look.batched(Pattern::Dependent, Bound::AtLeast(3.0)),
        look.batched(Pattern::Independent, Bound::AtLeast(2.0)),
    ];
    for rival in ["sbbf-rs", "fastbloom"] {
        for (keys, place) in [(small, "in cache"), (huge, "out of cache")] {
            for side in [negative, positive] {
                goals.push(look.rival(rival, keys, place, side));
            }
        }
        goals.push(look.rates(rival));
    }
    goals.push(look.huge_pages());
    goals
}

/// Finds cells and turns them into rows.
struct Look<'a> {
    results: &'a Results,
    middle: u64,
    huge: u64,
}

impl<'a> Look<'a> {
    /// The cells of this name with this many keys and bits.
    fn cells(&self, keys: u64, bits: f64, name: &'a str) -> impl Iterator<Item = &'a Cell> {
        let group = Given::Bits(bits).to_string();
        let results = self.results;
        results
            .cells
            .iter()
            .filter(move |cell| cell.keys == keys && cell.group == group && cell.contestant == name)
    }

    /// A row for each cell of `above` and the cell of `below` with the same kernel and pages.
    fn against(
        &self,
        above: &'a str,
        below: &'a str,
        keys: u64,
        mode: Mode,
        bound: Bound,
        what: &str,
    ) -> Goal {
        let mut rows = Vec::new();
        for bits in GOAL_BITS {
            for cell in self.cells(keys, bits, above).filter(is_vector) {
                let other = self.cells(keys, bits, below).find(|other| is_alike(cell, other));
                let ratio = other
                    .and_then(|other| Spread::of_ratios(cell.rounds(mode), other.rounds(mode)));
                rows.extend(ratio.map(|ratio| row(bits, cell, ratio, bound)));
            }
        }
        Goal { what: what.to_owned(), bound, rows }
    }

    fn build(&self, keys: u64, what: &str) -> Goal {
        let bound = Bound::AtMost(1.4);
        let mut rows = Vec::new();
        for bits in GOAL_BITS {
            let built = |name| self.cells(keys, bits, name).find(|cell| !cell.build_ns.is_empty());
            if let (Some(above), Some(below)) = (built("paired"), built("blocked"))
                && let Some(ratio) = Spread::of_ratios(&above.build_ns, &below.build_ns)
            {
                let is_met = bound.is_met(ratio.median);
                rows.push(Row { of: format!("{bits} bits"), ratio, is_met });
            }
        }
        Goal { what: what.to_owned(), bound, rows }
    }

    /// Single queries against batches, for paired filters.
    fn batched(&self, pattern: Pattern, bound: Bound) -> Goal {
        let mut rows = Vec::new();
        for bits in GOAL_BITS {
            for cell in self.cells(self.huge, bits, "paired").filter(is_vector) {
                let one_by_one = cell.rounds((Side::Negative, pattern));
                let batches = cell.rounds((Side::Negative, Pattern::Batched));
                let ratio = Spread::of_ratios(one_by_one, batches);
                rows.extend(ratio.map(|ratio| row(bits, cell, ratio, bound)));
            }
        }
        let what = format!("paired: {pattern} / batched, negative, out of cache");
        Goal { what, bound, rows }
    }

    /// A rival's time against that of the blocked filter, on the same pages.
    fn rival(&self, rival: &'a str, keys: u64, place: &str, side: Side) -> Goal {
        let (bound, mode) = (Bound::Above(1.0), (side, Pattern::Independent));
        let mut rows = Vec::new();
        for bits in GOAL_BITS {
            let Some(other) = self.cells(keys, bits, rival).next() else { continue };
            for cell in
                self.cells(keys, bits, "blocked").filter(is_vector).filter(|cell| !cell.huge)
            {
                let ratio = Spread::of_ratios(other.rounds(mode), cell.rounds(mode));
                rows.extend(ratio.map(|ratio| row(bits, cell, ratio, bound)));
            }
        }
        Goal { what: format!("{rival} / blocked: {side}, {place}, independent"), bound, rows }
    }

    /// A rival's rate against that of the blocked filter of the same size.
    fn rates(&self, rival: &'a str) -> Goal {
        let bound = Bound::Above(1.0);
        let mut rows = Vec::new();
        for bits in GOAL_BITS {
            let rate = |name| self.cells(self.middle, bits, name).next()?.rate.measured();
            if let (Some(above), Some(below)) = (rate(rival), rate("blocked")) {
                let ratio = above / below;
                let is_met = bound.is_met(ratio);
                let ratio = Spread { median: ratio, least: ratio, greatest: ratio };
                rows.push(Row { of: format!("{bits} bits"), ratio, is_met });
            }
        }
        Goal { what: format!("{rival} / blocked: rate of false positives"), bound, rows }
    }

    /// The time on small pages against that on huge ones.
    fn huge_pages(&self) -> Goal {
        let (bound, mode) = (Bound::AtLeast(1.15), (Side::Negative, Pattern::Independent));
        let mut rows = Vec::new();
        for bits in GOAL_BITS {
            for name in ["blocked", "paired"] {
                for cell in
                    self.cells(self.huge, bits, name).filter(is_vector).filter(|cell| cell.huge)
                {
                    let small = self
                        .cells(self.huge, bits, name)
                        .find(|other| !other.huge && other.kernel == cell.kernel);
                    let ratio = small
                        .and_then(|small| Spread::of_ratios(small.rounds(mode), cell.rounds(mode)));
                    let made = |ratio| {
                        let row = row(bits, cell, ratio, bound);
                        Row { of: format!("{name}, {}", row.of), ..row }
                    };
                    rows.extend(ratio.map(made));
                }
            }
        }
        let what = "small pages / huge pages: negative, out of cache, independent".to_owned();
        Goal { what, bound, rows }
    }
}

/// Goals are for vector kernels, if there are any.
fn is_vector(cell: &&Cell) -> bool {
    cell.kernel.as_deref() != Some("scalar")
}

fn is_alike(cell: &Cell, other: &Cell) -> bool {
    cell.kernel == other.kernel && cell.huge == other.huge
}

fn row(bits: f64, cell: &Cell, ratio: Spread, bound: Bound) -> Row {
    let kernel = cell.kernel.as_deref().unwrap_or("no kernels");
    let pages = if cell.huge { ", huge pages" } else { "" };
    let of = format!("{bits} bits, {kernel}{pages}");
    Row { of, ratio, is_met: bound.is_met(ratio.median) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::Machine;
    use crate::loops::mode_name;

    fn cell(name: &str, keys: u64, kernel: Option<&str>, ns: f64) -> Cell {
        let mode = mode_name((Side::Negative, Pattern::Independent));
        Cell {
            group: Given::Bits(10.0).to_string(),
            keys,
            contestant: name.into(),
            kernel: kernel.map(Into::into),
            query_ns: [(mode, vec![ns, 2.0 * ns, 3.0 * ns])].into(),
            build_ns: vec![ns],
            ..Cell::default()
        }
    }

    #[test]
    fn like_is_held_against_like() {
        let machine = Machine { keys: vec![1, 2, 3, 4, 5], ..Machine::default() };
        let cells = vec![
            cell("paired", 5, Some("avx2"), 11.0),
            cell("paired", 5, Some("avx512"), 26.0),
            cell("paired", 5, Some("scalar"), 99.0),
            cell("blocked", 5, Some("avx512"), 20.0),
            cell("blocked", 5, Some("avx2"), 10.0),
            cell("fastbloom", 5, None, 8.0),
        ];
        let results = Results { machine, cells, end: None };
        let goals = goals(&results);
        let rows: Vec<_> =
            goals[0].rows.iter().map(|row| (&*row.of, row.ratio.median, row.is_met)).collect();
        assert_eq!(rows, [("10 bits, avx2", 1.1, true), ("10 bits, avx512", 1.3, false)]);
        assert!(goals[1].rows.is_empty(), "nothing was measured in the cache");
        let rival = goals
            .iter()
            .find(|goal| goal.what == "fastbloom / blocked: negative, out of cache, independent");
        let rows = &rival.unwrap().rows;
        assert!(rows.len() == 2 && rows.iter().all(|row| !row.is_met), "{rows:?}");
    }
}
