//! A budget of bytes, spent on the filters of a tree so that they waste least.
//!
//! For table `i` of `n_i` keys and weight `w_i` ([`crate::workload`]), and filters of `b_i` bits per
//! key, minimise `sum w_i f(b_i)` subject to `sum bytes(n_i, b_i) <= budget`, where `f` is the rate
//! of the kind itself and `bytes` what its filters really take ([`crate::curve`]). In steps:
//!
//! 1. Make a menu for each table ([`crate::menu`]). Tables of 65,536 keys and more share one for
//!    their level, scaled, since to them a cache line is nothing.
//! 2. Find the price of a byte at which what is bought fits ([`crate::price`]).
//! 3. Solve the tables nearest to that price exactly ([`crate::core`]).
//! 4. Spend what is left on fractions of a bit ([`crate::fill`]).
//! 5. If one spec for all tables does better, take that. So the result is never worse than uniform.
//!
//! Everything is a function of its arguments: the same tree gets the same filters, on any machine of
//! the same floating-point arithmetic.
//!
//! # Bounds
//! Of a tree of up to 16 tables, the result is within 1% of the best that a choice among all
//! eighths of a bit makes. Of larger ones, step 2 alone is off by less than one edge of one table's
//! hull. The work is that of making the menus, and `O(tables * log(options))` for each bit of the
//! price that is searched.
//!
//! Source: N. Dayan, M. Athanassoulis, S. Idreos, "Monkey: Optimal Navigable Key-Value Store", SIGMOD
//! 2017, which solves it for an ideal curve and levels that grow by a fixed ratio.

use std::collections::HashMap;

use trommel_filter::{FilterKind, FilterSpec};

use crate::core::{self, CORE, Part};
use crate::cost::Cost;
use crate::curve;
use crate::error::TuningError;
use crate::fill::{Slot, fill};
use crate::menu::Menu;
use crate::price::{Bought, Item, Price, buy};
use crate::rules::{Rule, Rules};
use crate::tree::{Table, Tree};
use crate::workload::{Visits, Workload};

/// Keys from which on tables share a menu: two cache lines are a part in 64 of the smallest filter
/// listed, and a part in 640 of a usual one.
const MANY_KEYS: u64 = 1 << 16;
/// The keys that their menu is made for.
const MENU_KEYS: u64 = 1 << 20;

/// Filters for a tree.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Plan {
    /// One for each table, in the tree's order.
    pub filters: Vec<FilterSpec>,
    /// What a byte more would save, about; [`Price::FREE`] where all filters are as large as the
    /// rules allow.
    pub price: Price,
    /// What these filters cost.
    pub cost: Cost,
}

/// Spends budgets by [`Rules`].
///
/// ```
/// use trommel_tuning::{Run, Rules, Solver, Tree, Workload};
/// // Five full levels, each ten times larger than the one above, and 10 bits for each key.
/// let keys = [1_000, 10_000, 100_000, 1_000_000, 10_000_000];
/// let runs = keys.iter().enumerate().map(|(above, &keys)| Run::whole(above + 1, keys));
/// let tree = Tree::new(runs.collect())?;
/// let (workload, budget) = (Workload::new(1.0)?, tree.keys() * 10 / 8);
///
/// let solver = Solver::new(Rules::default());
/// let solved = solver.solve(&tree, &workload, budget)?;
/// let uniform = solver.uniform(&tree, &workload, budget)?;
/// assert!(solved.cost.filter_bytes <= budget);
/// assert!(solved.cost.wasted_reads < uniform.cost.wasted_reads / 3.0);
/// assert!(solved.filters[0].bits_per_key() > 25.0 && solved.filters[4].bits_per_key() < 10.0);
/// # Ok::<(), trommel_tuning::TuningError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Solver {
    rules: Rules,
}

impl Solver {
    /// A solver that keeps to `rules`.
    #[must_use]
    pub fn new(rules: Rules) -> Self {
        Self { rules }
    }

    /// The rules.
    #[must_use]
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// The filters of `tree` that waste least within `budget` bytes.
    ///
    /// # Errors
    /// [`TuningError::BelowFloors`].
    pub fn solve(
        &self,
        tree: &Tree,
        workload: &Workload,
        budget: u64,
    ) -> Result<Plan, TuningError> {
        let problem = Problem::new(&self.rules, tree, workload);
        let bought = problem.buy(budget)?;
        let mut filters = problem.filters(&bought.corners);
        problem.improve(&bought, &mut filters, budget);
        let plan = Plan { cost: Cost::of(tree, workload, &filters)?, filters, price: bought.price };
        match self.uniform(tree, workload, budget) {
            Ok(uniform) if uniform.cost.wasted_cost < plan.cost.wasted_cost => {
                Ok(Plan { price: plan.price, ..uniform })
            }
            _ => Ok(plan),
        }
    }

    /// The filters of `tree` that waste least with bytes at `price`.
    ///
    /// # Errors
    /// None that a tree and a workload could cause.
    pub fn at_price(
        &self,
        tree: &Tree,
        workload: &Workload,
        price: Price,
    ) -> Result<Plan, TuningError> {
        let problem = Problem::new(&self.rules, tree, workload);
        let corners: Vec<usize> =
            problem.items().iter().map(|item| item.corner_at(price)).collect();
        let filters = problem.filters(&corners);
        Ok(Plan { cost: Cost::of(tree, workload, &filters)?, filters, price })
    }

    /// The filter of a table of `keys` keys and this weight ([`Tree::weight_of_new`]) on `level`,
    /// with bytes at `price`: the one of least `weight * rate + price * bytes`.
    #[must_use]
    pub fn choose(&self, level: usize, keys: u64, weight: f64, price: Price) -> FilterSpec {
        let menu = Menu::new(self.rules.of(level), keys);
        let corner = Item { weight, scale: 1.0, menu: &menu }.corner_at(price);
        menu.corner(corner).spec
    }

    /// The best that one spec for all tables does within `budget` bytes: what stores without
    /// tuning do. Levels whose rule does not allow it get the nearest that it does.
    ///
    /// # Errors
    /// [`TuningError::BelowFloors`].
    pub fn uniform(
        &self,
        tree: &Tree,
        workload: &Workload,
        budget: u64,
    ) -> Result<Plan, TuningError> {
        let mut best: Option<Plan> = None;
        let mut needed = u64::MAX;
        for kind in self.kinds(tree) {
            let at = |millibits: u32| {
                tree.tables().map(move |(level, table)| {
                    (table, nearest(self.rules.of(level), kind, millibits, table.keys))
                })
            };
            needed = needed.min(total_bytes(at(0)));
            if total_bytes(at(0)) > budget {
                continue;
            }
            let millibits = last_that(0, 64_000, |bits| total_bytes(at(bits)) <= budget);
            let filters: Vec<FilterSpec> = at(millibits).map(|(_, spec)| spec).collect();
            let cost = Cost::of(tree, workload, &filters)?;
            if best.as_ref().is_none_or(|best| cost.wasted_cost < best.cost.wasted_cost) {
                best = Some(Plan { filters, price: Price::FREE, cost });
            }
        }
        best.ok_or(TuningError::BelowFloors { needed, budget })
    }

    /// The kinds that the rules of the tree's levels name.
    fn kinds(&self, tree: &Tree) -> Vec<FilterKind> {
        let levels = tree.runs().iter().map(|run| self.rules.of(run.level));
        let mut kinds: Vec<FilterKind> =
            levels.flat_map(|rule| rule.kinds().iter().copied()).collect();
        kinds.sort_unstable();
        kinds.dedup();
        if kinds.is_empty() { self.rules.of(0).kinds().to_vec() } else { kinds }
    }
}

/// The filter of `kind` with the bits nearest to `millibits` that `rule` allows; of its first kind,
/// if it does not allow that.
fn nearest(rule: &Rule, kind: FilterKind, millibits: u32, keys: u64) -> FilterSpec {
    let kind = if rule.kinds().contains(&kind) { kind } else { rule.kinds()[0] };
    let bits = (f64::from(millibits) / 1000.0).clamp(rule.floor(), rule.cap());
    if keys == 0 {
        FilterSpec::NONE
    } else {
        FilterSpec::new(kind, bits).unwrap_or(FilterSpec::NONE)
    }
}

/// Bytes of these tables' filters.
fn total_bytes<'a>(filters: impl Iterator<Item = (&'a Table, FilterSpec)>) -> u64 {
    let bytes =
        |(table, spec): (&Table, _)| curve::bytes(spec, table.keys).saturating_mul(table.alike);
    filters.map(bytes).fold(0, u64::saturating_add)
}

/// The last number from `least` to `most` for which `holds`, which it does for `least` and for all
/// before the last.
pub(crate) fn last_that(least: u32, most: u32, holds: impl Fn(u32) -> bool) -> u32 {
    let (mut low, mut high) = (least, most);
    while low < high {
        let middle = high - (high - low) / 2;
        if holds(middle) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    low
}

/// A tree as items with menus.
struct Problem<'a> {
    rules: &'a Rules,
    tables: Vec<(usize, Table)>,
    weights: Vec<f64>,
    menus: Vec<Menu>,
    /// Of each table: its menu, and how many times that menu's bytes it takes.
    menu_of: Vec<(usize, f64)>,
}

impl<'a> Problem<'a> {
    fn new(rules: &'a Rules, tree: &Tree, workload: &Workload) -> Self {
        let mut problem = Self {
            rules,
            tables: tree.tables().map(|(level, table)| (level, *table)).collect(),
            weights: workload.visits(tree).iter().map(Visits::weight).collect(),
            menus: Vec::new(),
            menu_of: Vec::new(),
        };
        let mut known = HashMap::new();
        for &(level, table) in &problem.tables {
            let keys = if table.keys < MANY_KEYS { table.keys } else { MENU_KEYS };
            let menu = *known.entry((level, keys)).or_insert_with(|| {
                problem.menus.push(Menu::new(rules.of(level), keys));
                problem.menus.len() - 1
            });
            let scale = table.keys as f64 / keys.max(1) as f64 * table.alike as f64;
            problem.menu_of.push((menu, scale));
        }
        problem
    }

    fn items(&self) -> Vec<Item<'_>> {
        let item = |(&weight, &(menu, scale)): (&f64, &(usize, f64))| Item {
            weight,
            scale,
            menu: &self.menus[menu],
        };
        self.weights.iter().zip(&self.menu_of).map(item).collect()
    }

    fn filters(&self, corners: &[usize]) -> Vec<FilterSpec> {
        let menus = self.menu_of.iter().map(|(menu, _)| &self.menus[*menu]);
        menus.zip(corners).map(|(menu, corner)| menu.corner(*corner).spec).collect()
    }

    fn total_bytes(&self, filters: &[FilterSpec]) -> u64 {
        total_bytes(self.tables.iter().map(|(_, table)| table).zip(filters.iter().copied()))
    }

    /// What `budget` buys in real bytes.
    fn buy(&self, budget: u64) -> Result<Bought, TuningError> {
        let items = self.items();
        let least = self.total_bytes(&self.filters(&vec![0; items.len()]));
        if least > budget {
            return Err(TuningError::BelowFloors { needed: least, budget });
        }
        // Scaled menus say a few bytes less than there are.
        let mut target = budget as f64;
        loop {
            let bought = buy(&items, target);
            let bytes = self.total_bytes(&self.filters(&bought.corners));
            if bytes <= budget {
                return Ok(bought);
            }
            target -= 2.0 * (budget as f64 - target).max((bytes - budget) as f64);
        }
    }

    /// Solves the tables exactly whose next or last edge is nearest to the price, and spends what is
    /// left on them.
    fn improve(&self, bought: &Bought, filters: &mut [FilterSpec], budget: u64) {
        if bought.price == Price::FREE {
            return;
        }
        let core = self.nearest_to_price(bought);
        let parts: Vec<Part> = core.iter().map(|&nth| self.part(nth)).collect();
        let slots = |filters: &[FilterSpec]| -> Vec<Slot<'_>> {
            let slot = |&nth: &usize| {
                let (level, table) = self.tables[nth];
                Slot {
                    weight: self.weights[nth],
                    table,
                    rule: self.rules.of(level),
                    spec: filters[nth],
                }
            };
            core.iter().map(slot).collect()
        };
        let now = slots(filters);
        let spare = budget - self.total_bytes(filters);
        let own: u64 = now.iter().map(Slot::bytes).sum();
        let known = now.iter().map(Slot::cost).sum();
        if let Some(choices) = core::best(&parts, spare + own, bought.price, known) {
            for (&nth, choice) in core.iter().zip(choices) {
                filters[nth] = choice.spec;
            }
        }
        let mut slots = slots(filters);
        fill(&mut slots, budget - self.total_bytes(filters));
        for (nth, slot) in core.iter().zip(slots) {
            filters[*nth] = slot.spec;
        }
    }

    /// A table with its own menu.
    fn part(&self, nth: usize) -> Part {
        let (level, table) = self.tables[nth];
        let menu = if table.keys < MANY_KEYS {
            self.menus[self.menu_of[nth].0].clone()
        } else {
            Menu::new(self.rules.of(level), table.keys)
        };
        Part { weight: self.weights[nth], alike: table.alike, menu }
    }

    /// The tables whose next or last edge is worth nearest to the price, in the tree's order.
    fn nearest_to_price(&self, bought: &Bought) -> Vec<usize> {
        let distance = |(item, &corner): (&Item<'_>, &usize)| {
            let from = |worth: f64| (worth / bought.price.per_byte()).ln().abs();
            let before = corner.checked_sub(1).map_or(f64::INFINITY, |last| from(item.worth(last)));
            from(item.worth(corner)).min(before)
        };
        let items = self.items();
        let distances: Vec<f64> = items.iter().zip(&bought.corners).map(distance).collect();
        let mut nearest: Vec<usize> = (0..items.len()).collect();
        if nearest.len() > CORE {
            let order =
                |a: &usize, b: &usize| distances[*a].total_cmp(&distances[*b]).then(a.cmp(b));
            nearest.select_nth_unstable_by(CORE, order);
            nearest.truncate(CORE);
            nearest.sort_unstable();
        }
        nearest
    }
}
