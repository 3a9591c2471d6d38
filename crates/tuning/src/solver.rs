//! Spends a budget of bytes on the filters of a tree so that the expected waste is least.
//!
//! For table `i` of `n_i` keys and weight `w_i` ([`crate::workload`]), and filters of `b_i` bits
//! per key, minimize `sum w_i f(b_i)` subject to `sum bytes(n_i, b_i) <= budget`, where `f` is the
//! actual rate of the kind and `bytes` the actual size of its filters ([`crate::curve`]):
//!
//! 1. Make a menu for each table ([`crate::menu`]). Tables of 65,536 keys and more share a scaled
//!    one for their level, since a cache line is negligible for them.
//! 2. Find the price of a byte at which the choices fit ([`crate::price`]).
//! 3. Spend the remaining bytes on fractions of a bit ([`crate::fill`]).
//! 4. If the result is not near the bound, solve the tables nearest to that price exactly
//!    ([`crate::core`]).
//! 5. If one spec for all tables does better, use that. So the result is never worse than uniform.
//!
//! The result is a function of the arguments: the same tree gets the same filters, on any machine
//! with the same floating-point arithmetic.
//!
//! # Bounds
//! For a tree of up to 16 tables the result is within a part in 1,000 of the optimum, or it is the
//! best choice among all eighths of a bit, as far as 1,024 states can distinguish choices. For
//! larger trees the first two steps alone are off by less than one edge of one table's hull. The
//! work is making the menus, and `O(tables * log(options))` for each bit of the price. A million
//! tables take some seconds, a few dozen some milliseconds, and unlucky budgets some tenths of a
//! second.
//!
//! Source: N. Dayan, M. Athanassoulis, S. Idreos, "Monkey: Optimal Navigable Key-Value Store",
//! SIGMOD 2017, which solves it for an ideal curve and levels that grow by a fixed ratio.

use std::collections::HashMap;
use std::sync::Arc;

use trommel_filter::{FilterKind, FilterSpec};

use crate::core::{self, CORE, Part};
use crate::cost::Cost;
use crate::curve;
use crate::error::TuningError;
use crate::fill::{Slot, fill, last_that};
use crate::menu::Menu;
use crate::price::{Bought, Item, Offer, Price, buy};
use crate::rules::{Rule, Rules};
use crate::tree::{Table, Tree};
use crate::workload::{Visits, Workload};

/// Keys from which tables share a menu: two cache lines are a part in 64 of the smallest listed
/// filter, and a part in 640 of a usual one.
const MANY_KEYS: u64 = 1 << 16;
/// The number of keys for which their menu is made.
const MENU_KEYS: u64 = 1 << 20;

/// Filters for a tree.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Plan {
    /// One for each table, in the tree's order.
    pub filters: Vec<FilterSpec>,
    /// About the saving of one more byte; [`Price::FREE`] if all filters are as large as the rules
    /// allow.
    pub price: Price,
    /// The cost of these filters.
    pub cost: Cost,
}

/// Spends budgets within [`Rules`].
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
    /// A solver for `rules`.
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
        let problem = Problem::exact(&self.rules, tree, workload);
        let bought = problem.buy(budget)?;
        let mut filters = problem.filters(&bought.corners);
        problem.improve(&bought, &mut filters, budget);
        let plan = problem.plan(filters, bought.price);
        match self.uniform(tree, workload, budget) {
            Ok(uniform) if uniform.cost.wasted_cost < plan.cost.wasted_cost => {
                Ok(Plan { price: plan.price, ..uniform })
            }
            _ => Ok(plan),
        }
    }

    /// The best single spec for all tables within `budget` bytes, as in stores without tuning.
    /// Levels whose rule does not allow it get the nearest allowed one.
    ///
    /// # Errors
    /// [`TuningError::BelowFloors`].
    pub fn uniform(
        &self,
        tree: &Tree,
        workload: &Workload,
        budget: u64,
    ) -> Result<Plan, TuningError> {
        let visits = workload.visits(tree);
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
            let cost = Cost::sum(tree, &visits, &filters);
            if best.as_ref().is_none_or(|best| cost.wasted_cost < best.cost.wasted_cost) {
                best = Some(Plan { filters, price: Price::FREE, cost });
            }
        }
        best.ok_or(TuningError::BelowFloors { needed, budget })
    }

    /// The kinds in the rules of the tree's levels.
    fn kinds(&self, tree: &Tree) -> Vec<FilterKind> {
        let levels = tree.runs().iter().map(|run| self.rules.of(run.level));
        let mut kinds: Vec<FilterKind> =
            levels.flat_map(|rule| rule.kinds().iter().copied()).collect();
        kinds.sort_unstable();
        kinds.dedup();
        if kinds.is_empty() { self.rules.of(0).kinds().to_vec() } else { kinds }
    }
}

/// The filter of `kind` with the bits nearest to `millibits` that `rule` allows; of the rule's
/// first kind if `kind` is not allowed.
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

/// The number of keys for which the menu of a table of `keys` keys is made, and the ratio of the
/// table's keys to that number.
pub(crate) fn menu_of(keys: u64) -> (u64, f64) {
    if keys < MANY_KEYS { (keys, 1.0) } else { (MENU_KEYS, keys as f64 / MENU_KEYS as f64) }
}

/// A tree as items with menus.
pub(crate) struct Problem<'a> {
    rules: &'a Rules,
    tree: &'a Tree,
    tables: Vec<(usize, Table)>,
    visits: Vec<Visits>,
    menus: Vec<Arc<Menu>>,
    /// For each table: its menu, and its bytes as a multiple of the menu's.
    menu_of: Vec<(usize, f64)>,
}

impl<'a> Problem<'a> {
    /// With menus made for the tables' own keys.
    fn exact(rules: &'a Rules, tree: &'a Tree, workload: &Workload) -> Self {
        Self::new(rules, tree, workload, menu_of, |rule, keys| Arc::new(Menu::new(rule, keys)))
    }

    /// With menus from `make`; `menu_of` returns the menu's number of keys, and the ratio of the
    /// table's keys to it.
    pub(crate) fn new(
        rules: &'a Rules,
        tree: &'a Tree,
        workload: &Workload,
        menu_of: impl Fn(u64) -> (u64, f64),
        make: impl Fn(&Rule, u64) -> Arc<Menu>,
    ) -> Self {
        let mut problem = Self {
            rules,
            tree,
            tables: tree.tables().map(|(level, table)| (level, *table)).collect(),
            visits: workload.visits(tree),
            menus: Vec::new(),
            menu_of: Vec::new(),
        };
        let mut known = HashMap::new();
        for &(level, table) in &problem.tables {
            let (keys, scale) = menu_of(table.keys);
            let menu = *known.entry((level, keys)).or_insert_with(|| {
                problem.menus.push(make(rules.of(level), keys));
                problem.menus.len() - 1
            });
            problem.menu_of.push((menu, scale * table.alike as f64));
        }
        problem
    }

    fn items(&self) -> Vec<Item<'_>> {
        let item = |(visits, &(menu, scale)): (&Visits, &(usize, f64))| Item {
            weight: visits.weight(),
            scale,
            menu: &self.menus[menu],
        };
        self.visits.iter().zip(&self.menu_of).map(item).collect()
    }

    fn plan(&self, filters: Vec<FilterSpec>, price: Price) -> Plan {
        Plan { cost: Cost::sum(self.tree, &self.visits, &filters), filters, price }
    }

    fn filters(&self, corners: &[usize]) -> Vec<FilterSpec> {
        let menus = self.menu_of.iter().map(|(menu, _)| &self.menus[*menu]);
        menus.zip(corners).map(|(menu, corner)| menu.corner(*corner).spec).collect()
    }

    fn total_bytes(&self, filters: &[FilterSpec]) -> u64 {
        total_bytes(self.tables.iter().map(|(_, table)| table).zip(filters.iter().copied()))
    }

    /// The choices for `budget`, in real bytes.
    pub(crate) fn buy(&self, budget: u64) -> Result<Bought, TuningError> {
        let items = self.items();
        let least = self.total_bytes(&self.filters(&vec![0; items.len()]));
        if least > budget {
            return Err(TuningError::BelowFloors { needed: least, budget });
        }
        // Scaled menus include no header and no rounding, which every table has.
        let mut target = budget as f64;
        loop {
            let bought = buy(&items, target);
            let bytes = self.total_bytes(&self.filters(&bought.corners));
            if bytes <= budget {
                return Ok(bought);
            }
            let beyond = (bytes - budget) as f64;
            target -= beyond.max((budget as f64 - target) / 8.0);
        }
    }

    /// The price at which single tables spend `budget`.
    pub(crate) fn offer(&self, budget: u64) -> Result<Offer, TuningError> {
        let bought = self.buy(budget)?;
        let flat = Offer::flat(bought.just_above());
        let Some((nth, lower, corners)) = bought.next(&self.items()) else { return Ok(flat) };
        let bytes = self.total_bytes(&self.filters(&bought.corners));
        let more = self.total_bytes(&self.filters(&corners)).saturating_sub(bytes);
        // Only whole tables: a fraction of a table cannot take the step.
        let alike = self.tables[nth].1.alike.max(1) as f64;
        let tables = ((budget - bytes) as f64 / more.max(1) as f64 * alike).floor();
        Ok(if tables > 0.0 { flat.with_lower(lower, (tables / alike).min(1.0)) } else { flat })
    }

    /// Spends the remaining bytes on the tables whose next or last edge is nearest to the price,
    /// and solves these exactly if the result is not near the bound.
    fn improve(&self, bought: &Bought, filters: &mut [FilterSpec], budget: u64) {
        if bought.price == Price::FREE {
            return;
        }
        let core = bought.nearest(&self.items(), CORE);
        let mut slots: Vec<Slot<'_>> = core.iter().map(|&nth| self.slot(nth, filters)).collect();
        let spare = budget - self.total_bytes(filters);
        let all = spare + slots.iter().map(Slot::bytes).sum::<u64>();
        fill(&mut slots, all);
        let parts: Vec<Part> = core.iter().map(|&nth| self.part(nth)).collect();
        let known = slots.iter().map(Slot::cost).sum();
        if let Some(choices) = core::best(&parts, all, bought.price, known) {
            for (slot, choice) in slots.iter_mut().zip(choices) {
                slot.spec = choice.spec;
            }
            fill(&mut slots, all);
        }
        for (nth, slot) in core.into_iter().zip(slots) {
            filters[nth] = slot.spec;
        }
    }

    fn slot(&self, nth: usize, filters: &[FilterSpec]) -> Slot<'_> {
        let (level, table) = self.tables[nth];
        Slot {
            weight: self.visits[nth].weight(),
            table,
            rule: self.rules.of(level),
            spec: filters[nth],
        }
    }

    /// A table with its own menu.
    fn part(&self, nth: usize) -> Part {
        let (level, table) = self.tables[nth];
        let menu = if table.keys < MANY_KEYS {
            Menu::clone(&self.menus[self.menu_of[nth].0])
        } else {
            Menu::new(self.rules.of(level), table.keys)
        };
        Part { weight: self.visits[nth].weight(), alike: table.alike, menu }
    }
}
