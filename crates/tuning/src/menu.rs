//! The filters that a table may get, from the smallest to the largest, and those of them that are
//! best at some price.
//!
//! 1. List real bytes and rate for every kind and every eighth of a bit per key that the rule
//!    allows; and no filter, if there is no floor.
//! 2. Keep the *options*: the filters with a lower rate than every filter of at most their size, in
//!    ascending size and descending rate.
//! 3. Of these, find the corners of the lower convex hull. No other option is the best at any
//!    price. The edges between corners have a falling gain per byte, so that buying the best edge
//!    first is never wrong.
//!
//! Spending by hull edges is the standard solution of the continuous form of a knapsack whose items
//! come in several sizes (Sinha, Zoltners, "The multiple-choice knapsack problem", 1979).

use trommel_filter::FilterSpec;

use crate::curve;
use crate::rules::Rule;

/// Options for each bit per key.
const PER_BIT: f64 = 8.0;
/// Bits per key of the smallest listed option.
const LEAST_BITS: f64 = 0.5;

/// One filter that a table may get.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Choice {
    pub(crate) spec: FilterSpec,
    pub(crate) bytes: u64,
    pub(crate) rate: f64,
}

/// The filters that a table may get.
#[derive(Debug, Clone)]
pub(crate) struct Menu {
    /// Ascending in bytes, descending in rate, both strictly; never empty.
    options: Vec<Choice>,
    /// The hull's corners, as indexes of options; the first corner is the first option.
    corners: Vec<usize>,
    /// The reduction of the rate per byte on the edge after each corner except the last;
    /// descending.
    slopes: Vec<f64>,
}

impl Menu {
    /// The menu of a table of `keys` keys.
    pub(crate) fn new(rule: &Rule, keys: u64) -> Self {
        let none = Choice { spec: FilterSpec::NONE, bytes: 0, rate: 1.0 };
        let mut choices = Vec::new();
        if rule.floor() == 0.0 || keys == 0 {
            choices.push(none);
        }
        if keys > 0 {
            for &kind in rule.kinds() {
                let listed = sizes(rule).filter_map(|bits| FilterSpec::new(kind, bits).ok());
                choices.extend(listed.map(|spec| Choice {
                    spec,
                    bytes: curve::bytes(spec, keys),
                    rate: curve::rate(spec, keys),
                }));
            }
        }
        Self::of(choices)
    }

    /// The menu of these choices; there must be at least one.
    pub(crate) fn of(mut choices: Vec<Choice>) -> Self {
        // Stable: of equal choices, the first one listed is kept.
        choices.sort_by(|a, b| a.bytes.cmp(&b.bytes).then(a.rate.total_cmp(&b.rate)));
        let mut options: Vec<Choice> = Vec::new();
        for choice in choices {
            if options.last().is_none_or(|best| choice.rate < best.rate) {
                options.push(choice);
            }
        }
        let corners = corners(&options);
        let slope = |edge: &[usize]| slope(&options[edge[0]], &options[edge[1]]);
        let slopes = corners.windows(2).map(slope).collect();
        Self { options, corners, slopes }
    }

    /// The same menu with only the hull's corners as options: all that is ever bought at a price.
    pub(crate) fn hull(&self) -> Self {
        let options: Vec<Choice> =
            self.corners.iter().map(|corner| self.options[*corner]).collect();
        Self { corners: (0..options.len()).collect(), options, slopes: self.slopes.clone() }
    }

    /// All options, ascending in bytes.
    pub(crate) fn options(&self) -> &[Choice] {
        &self.options
    }

    /// The choice at a corner.
    pub(crate) fn corner(&self, corner: usize) -> Choice {
        self.options[self.corners[corner]]
    }

    /// The reduction of the rate per byte after each corner.
    pub(crate) fn slopes(&self) -> &[f64] {
        &self.slopes
    }

    /// The last corner up to which every edge reduces the rate by more than `slope` per byte.
    pub(crate) fn corner_at(&self, slope: f64) -> usize {
        self.slopes.partition_point(|edge| *edge > slope)
    }
}

/// The listed bits per key.
fn sizes(rule: &Rule) -> impl Iterator<Item = f64> {
    let (floor, cap) = (rule.floor(), rule.cap());
    let first = (floor.max(LEAST_BITS) * PER_BIT).ceil() as u32;
    let last = (cap * PER_BIT).floor() as u32;
    let between = (first..=last).map(|step| f64::from(step) / PER_BIT);
    [floor, cap].into_iter().filter(|bits| *bits > 0.0).chain(between)
}

fn slope(small: &Choice, large: &Choice) -> f64 {
    (small.rate - large.rate) / (large.bytes - small.bytes) as f64
}

/// The corners of the lower convex hull (Andrew's monotone chain).
fn corners(options: &[Choice]) -> Vec<usize> {
    let mut corners: Vec<usize> = Vec::new();
    for (next, option) in options.iter().enumerate() {
        while let [.., before, last] = corners[..] {
            if slope(&options[before], &options[last]) > slope(&options[last], option) {
                break;
            }
            corners.pop();
        }
        corners.push(next);
    }
    corners
}
