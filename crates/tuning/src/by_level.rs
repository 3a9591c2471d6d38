//! One filter for each level, as in a policy by levels.
//!
//! A policy such as "16 bits on level 0, 12 below" sets the same bits per key for all tables of a
//! level. Tables differ in size, and a filter has whole cache lines, so small tables each get a
//! different number of actual bits. In steps:
//!
//! 1. For each level, and each tenth of a bit that its rule allows, add up bytes and cost over its
//!    actual tables. That is the level's menu ([`crate::menu`]).
//! 2. Spend the budget on these menus ([`crate::price`]); then solve them exactly
//!    ([`crate::core`]), since the levels are few.
//! 3. Conversely, a bound on the cost is met with the fewest bytes by the highest price that meets
//!    it.
//! 4. On a level of small tables many numbers of bits per key give the same cache lines. Of these,
//!    the level gets the bits of the level below, or the nearest to them. Bytes and cost are the
//!    same, and later tables of that level, which may be larger, get neither almost nothing nor far
//!    more than is worth it.
//!
//! The visits of each table are an input, so that they may be measured rather than modeled. The
//! work is 400 rates for each table: a thousand tables take some tens of milliseconds.

use std::collections::BTreeMap;

use trommel_filter::{FilterKind, FilterSpec};

use crate::core::{self, CORE, Part};
use crate::cost::Cost;
use crate::error::TuningError;
use crate::menu::{Choice, Menu};
use crate::price::{Item, Price, buy};
use crate::rules::{Rule, Rules};
use crate::tree::Table;
use crate::workload::Visits;

/// Choices per bit per key: few digits, for a readable policy.
const PER_BIT: f64 = 10.0;
/// Bits per key of the smallest listed filter.
const LEAST_BITS: f64 = 0.5;
/// The bits of small tables, as far as they make no difference, if no level below has a filter.
const USUAL_BITS: f64 = 10.0;

/// A table and its visits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Visited {
    /// 0, or 1 for the first level below that holds data, and so on.
    pub level: usize,
    /// Its distinct keys.
    pub keys: u64,
    /// Its visits per lookup.
    pub visits: Visits,
}

impl Visited {
    /// The cost of this table with `spec`.
    fn cost(&self, spec: FilterSpec) -> Cost {
        let table = Table { keys: self.keys, bytes: 0, reach: 0.0, alike: 1 };
        Cost::table(&table, &self.visits, spec)
    }
}

/// A filter for each level.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct LevelPlan {
    /// For each level: its filter, and its cost there.
    pub levels: BTreeMap<usize, (FilterSpec, Cost)>,
    /// The total cost.
    pub cost: Cost,
}

/// Tables, and the cost of each filter on each of their levels.
///
/// ```
/// use trommel_tuning::{ByLevel, Rules, Visited, Visits};
/// let visits = |in_vain| Visits { in_vain, hits: 0.0, read_cost: 1.0 };
/// let tables: Vec<Visited> = [(0, 900), (0, 1100), (1, 30_000)]
///     .map(|(level, keys)| Visited { level, keys, visits: visits(1.0) })
///     .into();
/// let plan = ByLevel::new(&Rules::default(), &tables).solve(32_000 * 10 / 8)?;
/// assert!(plan.cost.filter_bytes <= 40_000);
/// assert!(plan.levels[&0].0.bits_per_key() > plan.levels[&1].0.bits_per_key());
/// # Ok::<(), trommel_tuning::TuningError>(())
/// ```
#[derive(Debug, Clone)]
pub struct ByLevel {
    rules: Rules,
    tables: Vec<Visited>,
    parts: BTreeMap<usize, Part>,
}

impl ByLevel {
    /// Lists the choices that `rules` allow for these tables.
    #[must_use]
    pub fn new(rules: &Rules, tables: &[Visited]) -> Self {
        let mut by_level: BTreeMap<usize, Vec<Visited>> = BTreeMap::new();
        for table in tables.iter().filter(|table| table.keys > 0) {
            by_level.entry(table.level).or_default().push(*table);
        }
        let part = |(level, tables): (usize, Vec<Visited>)| {
            (level, Part { weight: 1.0, alike: 1, menu: menu(rules.of(level), &tables) })
        };
        let rules = rules.clone();
        Self { rules, tables: tables.to_vec(), parts: by_level.into_iter().map(part).collect() }
    }

    /// The filters that waste least within `budget` bytes.
    ///
    /// # Errors
    /// [`TuningError::BelowFloors`].
    pub fn solve(&self, budget: u64) -> Result<LevelPlan, TuningError> {
        let items = self.items();
        let needed = items.iter().map(|item| item.menu.corner(0).bytes).sum();
        if needed > budget {
            return Err(TuningError::BelowFloors { needed, budget });
        }
        let bought = buy(&items, budget as f64);
        let mut choices = corners(&items, &bought.corners);
        if bought.price != Price::FREE {
            let nearest = bought.nearest(&items, CORE);
            let is_core =
                |(nth, part): (usize, &Part)| nearest.contains(&nth).then(|| part.clone());
            let parts: Vec<Part> = self.parts.values().enumerate().filter_map(is_core).collect();
            let bytes = |choices: &[Choice]| choices.iter().map(|choice| choice.bytes).sum::<u64>();
            let core: Vec<Choice> = nearest.iter().map(|&nth| choices[nth]).collect();
            let room = budget - (bytes(&choices) - bytes(&core));
            let known = core.iter().map(|choice| choice.rate).sum();
            let better = core::best(&parts, room, bought.price, known).unwrap_or(core);
            for (nth, choice) in nearest.into_iter().zip(better) {
                choices[nth] = choice;
            }
        }
        Ok(self.plan(&choices))
    }

    /// The filters of about the fewest bytes whose wasted reads cost at most `most`; the best
    /// filters if none meet it.
    #[must_use]
    pub fn cheapest(&self, most: f64) -> LevelPlan {
        let items = self.items();
        let at = |price: Price| {
            let at_price: Vec<usize> = items.iter().map(|item| item.corner_at(price)).collect();
            corners(&items, &at_price)
        };
        let meets =
            |choices: &[Choice]| choices.iter().map(|choice| choice.rate).sum::<f64>() <= most;
        let mut best = at(Price::FREE);
        // Positive floating-point numbers are ordered like their bits.
        let (mut low, mut high) = (0.0_f64.to_bits(), f64::INFINITY.to_bits());
        while high - low > 1 {
            let middle = low.midpoint(high);
            let choices = at(Price::at(f64::from_bits(middle)));
            if meets(&choices) {
                (low, best) = (middle, choices);
            } else {
                high = middle;
            }
        }
        self.plan(&best)
    }

    fn items(&self) -> Vec<Item<'_>> {
        let item = |part| {
            let Part { weight, menu, .. }: &Part = part;
            Item { weight: *weight, scale: 1.0, menu }
        };
        self.parts.values().map(item).collect()
    }

    /// Of all filters that are as large and as good as `choice`, the one with `wanted` bits per
    /// key, or the nearest.
    fn steady(&self, level: usize, choice: &Choice, wanted: f64) -> FilterSpec {
        if choice.spec == FilterSpec::NONE {
            return choice.spec;
        }
        let rule = self.rules.of(level);
        let least = (rule.floor().max(LEAST_BITS) * PER_BIT).ceil();
        let wanted = (wanted * PER_BIT).round().max(least).min(rule.cap() * PER_BIT) as i64;
        let chosen = (choice.spec.bits_per_key() * PER_BIT).round() as i64;
        let tables: Vec<&Visited> =
            self.tables.iter().filter(|table| table.level == level && table.keys > 0).collect();
        let of = |tenths: i64| FilterSpec::new(choice.spec.kind(), tenths as f64 / PER_BIT).ok();
        let is_as_good = |spec: &FilterSpec| {
            let mut all = Cost::default();
            tables.iter().for_each(|table| all.join(&table.cost(*spec)));
            all.filter_bytes == choice.bytes && all.wasted_cost <= choice.rate
        };
        // Bytes grow with the bits: if the neighbor differs already, there is no choice.
        let towards = (wanted - chosen).signum();
        if towards == 0 || !of(chosen + towards).is_some_and(|spec| is_as_good(&spec)) {
            return choice.spec;
        }
        let nearest = (0..(wanted - chosen).abs())
            .find_map(|off| of(wanted - towards * off).filter(is_as_good));
        nearest.unwrap_or(choice.spec)
    }

    fn plan(&self, choices: &[Choice]) -> LevelPlan {
        let mut plan = LevelPlan::default();
        let mut below = None;
        for (level, choice) in self.parts.keys().zip(choices).rev() {
            let spec = self.steady(*level, choice, below.unwrap_or(USUAL_BITS));
            if spec != FilterSpec::NONE {
                below = Some(spec.bits_per_key());
            }
            plan.levels.insert(*level, (spec, Cost::default()));
        }
        for table in &self.tables {
            let Some((spec, cost)) = plan.levels.get_mut(&table.level) else { continue };
            let of_table = table.cost(*spec);
            cost.join(&of_table);
            plan.cost.join(&of_table);
        }
        plan
    }
}

fn corners(items: &[Item<'_>], corners: &[usize]) -> Vec<Choice> {
    items.iter().zip(corners).map(|(item, corner)| item.menu.corner(*corner)).collect()
}

/// The choices for the tables of a level, all with the same bits: total bytes and cost.
fn menu(rule: &Rule, tables: &[Visited]) -> Menu {
    let (floor, cap) = (rule.floor(), rule.cap());
    let first = (floor.max(LEAST_BITS) * PER_BIT).ceil() as u32;
    let last = (cap * PER_BIT).floor() as u32;
    let between = (first..=last).map(|tenths| f64::from(tenths) / PER_BIT);
    let sizes = || [floor, cap].into_iter().filter(|bits| *bits > 0.0).chain(between.clone());
    let of_kind = |kind: &FilterKind| {
        let kind = *kind;
        sizes().filter_map(move |bits| FilterSpec::new(kind, bits).ok())
    };
    let none = (floor == 0.0).then_some(FilterSpec::NONE);
    let specs = none.into_iter().chain(rule.kinds().iter().flat_map(of_kind));
    let choice = |spec: FilterSpec| {
        let mut all = Cost::default();
        tables.iter().for_each(|table| all.join(&table.cost(spec)));
        Choice { spec, bytes: all.filter_bytes, rate: all.wasted_cost }
    };
    Menu::of(specs.map(choice).collect())
}
