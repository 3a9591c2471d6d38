//! Range filters beside those of keys, at the same price of a byte.
//!
//! A scan of an empty range reads a block of each table that it reaches, unless a filter denies
//! that the block holds anything of the range. Per key, `b` bits let the share
//! [`infix_limit(b)`](trommel_filter::theory::infix_limit) of these blocks pass, and those in which
//! keys crowd around the ranges, whose share must have been measured. A wasted read of a block
//! costs what a lookup's wasted read costs, so a byte is worth as much in either filter: the best
//! bits of a level are those of least `blocks * rate + price * bytes`, independently of the other
//! levels, as for filters of keys ([`crate::price`]).

use std::collections::BTreeMap;

use trommel_filter::RangeSpec;

use crate::price::Price;

/// Choices of bits per key: the least that a filter may have, and half bits up to where a block in
/// four thousand passes.
const HALF_BITS: std::ops::RangeInclusive<u32> = 6..=28;

/// A filter that lets more of the blocks pass is not worth its queries.
const MOST_PASSING: f64 = 0.5;

/// What empty scans do on a level without filters.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RangeDemand {
    /// 0, or 1 for the first level below that holds data, and so on.
    pub level: usize,
    /// Distinct keys of its tables.
    pub keys: u64,
    /// Blocks that scans read there although they hold nothing of the range, for each lookup.
    pub blocks: f64,
    /// The share of these that filters of any size let pass: see [`RangeDemand::crowded_at`].
    pub crowded: f64,
}

impl RangeDemand {
    /// The share of blocks that a filter of any size lets pass, if one of this spec lets the share
    /// `rate` pass: 0 for keys and ranges that are spread evenly. More bits save some of these in
    /// truth, so it is rather too large.
    ///
    /// ```
    /// let spec = "infix:6".parse().unwrap();
    /// assert!(trommel_tuning::RangeDemand::crowded_at(0.0606, spec) < 1e-4);
    /// assert!(trommel_tuning::RangeDemand::crowded_at(0.9, spec) > 0.89);
    /// ```
    #[must_use]
    pub fn crowded_at(rate: f64, spec: RangeSpec) -> f64 {
        let limit = spec.expected_fpr();
        if limit < 1.0 { ((rate - limit) / (1.0 - limit)).clamp(0.0, 1.0) } else { 0.0 }
    }

    /// The share of its blocks that a filter of this spec lets pass.
    fn rate(&self, spec: RangeSpec) -> f64 {
        self.crowded + (1.0 - self.crowded) * spec.expected_fpr()
    }
}

/// A range filter for each level.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct RangePlan {
    /// For each level that is to have one.
    pub levels: BTreeMap<usize, RangeSpec>,
    /// Bytes of the filters.
    pub bytes: u64,
    /// The same with these filters, for each lookup.
    pub wasted_reads: f64,
}

impl RangePlan {
    /// The best filters at this price of a byte.
    ///
    /// ```
    /// use trommel_tuning::{Price, RangeDemand, RangePlan};
    /// let demands = [(0, 1.0), (1, 0.0)]
    ///     .map(|(level, blocks)| RangeDemand { level, keys: 1_000_000, blocks, crowded: 0.0 });
    /// let plan = RangePlan::at(&demands, Price::new(1e-7)?);
    /// assert_eq!(plan.levels[&0].to_string(), "infix:7.5");
    /// assert_eq!(plan.levels.get(&1), None);
    /// assert!((918_000..919_000).contains(&plan.bytes));
    /// # Ok::<(), trommel_tuning::TuningError>(())
    /// ```
    #[must_use]
    pub fn at(demands: &[RangeDemand], price: Price) -> Self {
        let mut plan = Self::default();
        for demand in demands {
            let spec = best(demand, price);
            plan.bytes += spec.expected_bytes(demand.keys);
            plan.wasted_reads += demand.blocks * demand.rate(spec);
            if spec != RangeSpec::NONE {
                plan.levels.insert(demand.level, spec);
            }
        }
        plan
    }
}

/// The filter of least cost on a level.
fn best(demand: &RangeDemand, price: Price) -> RangeSpec {
    let cost = |spec: &RangeSpec| {
        let bytes = spec.expected_bytes(demand.keys) as f64;
        demand.blocks * demand.rate(*spec) + price.per_byte() * bytes
    };
    let sized = HALF_BITS.filter_map(|half| RangeSpec::new(f64::from(half) / 2.0).ok());
    let sized = sized.filter(|spec| demand.rate(*spec) <= MOST_PASSING);
    let all = std::iter::once(RangeSpec::NONE).chain(sized);
    let best = all.min_by(|a, b| cost(a).total_cmp(&cost(b)));
    best.filter(|_| demand.keys > 0 && demand.blocks > 0.0).unwrap_or(RangeSpec::NONE)
}
