//! Filters for many tables of many trees, one at a time, at varying prices.
//!
//! Making a menu costs a hundred times as much as choosing from it, so tables of nearly the same
//! number of keys under the same rule share one. It is made for their number of keys with all but
//! the first seven bits cleared, scaled, and cached for later trees. The filter differs from that
//! of the exact menus by less than a part in 64 of its bytes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use trommel_filter::FilterSpec;

use crate::error::TuningError;
use crate::menu::Menu;
use crate::price::{Item, Offer, Price};
use crate::rules::Rule;
use crate::solver::{Problem, Solver, menu_of};
use crate::tree::Tree;
use crate::workload::Workload;

/// Leading bits of a number of keys that distinguish menus.
const KEY_BITS: u32 = 7;
/// The most menus to cache, of 3 to 6 KiB each with a cap of 40 bits.
const MOST_MENUS: usize = 512;

/// Menus cached for this process, whichever store uses them next. At most some 3 MiB: when there
/// are 512, all are dropped.
#[derive(Debug)]
struct Menus {
    /// By rule and by keys. There are few rules.
    known: Vec<(Rule, HashMap<u64, Arc<Menu>>)>,
    count: usize,
}

static MENUS: Mutex<Menus> = Mutex::new(Menus::none());

impl Menus {
    const fn none() -> Self {
        Self { known: Vec::new(), count: 0 }
    }

    fn get(&self, rule: &Rule, keys: u64) -> Option<Arc<Menu>> {
        self.known.iter().find(|(known, _)| known == rule)?.1.get(&keys).cloned()
    }

    fn keep(&mut self, rule: &Rule, keys: u64, menu: Arc<Menu>) {
        if self.count == MOST_MENUS {
            *self = Self::none();
        }
        let nth = self.known.iter().position(|(known, _)| known == rule).unwrap_or_else(|| {
            self.known.push((rule.clone(), HashMap::new()));
            self.known.len() - 1
        });
        self.count += usize::from(self.known[nth].1.insert(keys, menu).is_none());
    }
}

/// The menu of `keys` keys under `rule`, with only the corners of its hull: from the cache, or
/// added to it.
fn menu(kept: &Mutex<Menus>, rule: &Rule, keys: u64) -> Arc<Menu> {
    let menus = || kept.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(menu) = menus().get(rule, keys) {
        return menu;
    }
    // Made without the lock: two threads may make the same one, but none waits for another.
    let menu = Arc::new(Menu::new(rule, keys).hull());
    menus().keep(rule, keys, Arc::clone(&menu));
    menu
}

fn cached_menu(rule: &Rule, keys: u64) -> Arc<Menu> {
    menu(&MENUS, rule, keys)
}

impl Solver {
    /// The price of a byte at which the choices fit `budget` in real bytes. If one of many equal
    /// tables could have more, a share of them is offered a lower price. Menus are cached.
    ///
    /// # Errors
    /// [`TuningError::BelowFloors`].
    pub fn offer(
        &self,
        tree: &Tree,
        workload: &Workload,
        budget: u64,
    ) -> Result<Offer, TuningError> {
        Problem::new(self.rules(), tree, workload, near_menu_of, cached_menu).offer(budget)
    }

    /// The filter that a table with `keys` keys buys at `price`, to within a part in 64 of its
    /// bytes. Menus are cached.
    #[must_use]
    pub fn choose_near(&self, level: usize, keys: u64, weight: f64, price: Price) -> FilterSpec {
        let (menu_keys, scale) = near_menu_of(keys);
        let menu = cached_menu(self.rules().of(level), menu_keys);
        menu.corner(Item { weight, scale, menu: &menu }.corner_at(price)).spec
    }
}

/// Like [`menu_of`], with few distinct numbers of keys.
fn near_menu_of(keys: u64) -> (u64, f64) {
    let (menu_keys, _) = menu_of(rounded(keys));
    (menu_keys, if menu_keys == 0 { 1.0 } else { keys as f64 / menu_keys as f64 })
}

/// `keys` with only its first bits.
fn rounded(keys: u64) -> u64 {
    let cleared = (u64::BITS - keys.leading_zeros()).saturating_sub(KEY_BITS);
    keys >> cleared << cleared
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::Cost;
    use crate::curve::{bytes, rate};
    use crate::rules::Rules;
    use crate::tree::{Run, Table};
    use trommel_filter::FilterKind;

    #[test]
    fn choices_are_near_those_of_the_solver() {
        let solver = Solver::new(Rules::default());
        let mut differ = 0;
        for keys in [0, 1, 100, 127, 128, 5_001, 65_535, 65_536, 99_999, 12_345_678] {
            for weight in [0.0, 1e-3, 1.0] {
                for price in [0.0, 1e-9, 1e-7, 1e-5, f64::INFINITY] {
                    let price = Price::new(price).unwrap();
                    let (near, exact) = (
                        solver.choose_near(2, keys, weight, price),
                        crate::tests::choose(solver.rules(), 2, keys, weight, price),
                    );
                    let (near, exact) = (bytes(near, keys), bytes(exact, keys));
                    // Small filters are rounded to a cache line.
                    assert!(near.abs_diff(exact) <= exact / 32 + 64, "{keys}: {near}, {exact}");
                    differ += u64::from(near > 0);
                }
            }
        }
        assert!(differ > 20, "there were filters: {differ}");
        assert_eq!([0, 5, 127, 129, 255, 1_000_001].map(rounded), [0, 5, 127, 128, 254, 999_424]);
    }

    #[test]
    fn choices_waste_hardly_more_than_the_best() {
        let solver = Solver::new(Rules::default());
        let mut random = fastrand::Rng::with_seed(7);
        for nth in 0..40 {
            let levels = random.usize(2..6);
            let runs = (1..=levels).map(|level| Run::whole(level, random.u64(300..9_000_000)));
            let tree = Tree::new(runs.collect()).unwrap();
            let workload = Workload::new(random.f64()).unwrap();
            let budget = tree.keys() * random.u64(4..20) / 8;
            let price = solver.offer(&tree, &workload, budget).unwrap().price();
            let visits = workload.visits(&tree);
            let tables = tree.tables().zip(&visits);
            let filters: Vec<FilterSpec> = tables
                .map(|((level, table), visits)| {
                    solver.choose_near(level, table.keys, visits.weight(), price)
                })
                .collect();
            let cost = Cost::sum(&tree, &visits, &filters);
            assert!(cost.filter_bytes <= budget, "{nth}: {cost:?} of {budget}");
            let best = solver.solve(&tree, &workload, cost.filter_bytes).unwrap().cost;
            let beyond = cost.wasted_cost / best.wasted_cost;
            assert!(beyond < 1.01, "{nth}: {beyond} times the waste of {best:?}");
        }
    }

    /// Equal tables as separate choices: some of them are offered a lower price.
    #[test]
    fn equal_tables_spend_less_than_a_step_of_all_of_them() {
        let mut random = fastrand::Rng::with_seed(9);
        // A ribbon's step is a bit for each key, a Bloom filter's a cache line.
        for (kind, within) in [(FilterKind::Paired, 1.01), (FilterKind::Ribbon, 1.1)] {
            let solver = Solver::new(Rules::everywhere(Rule::new(&[kind]).unwrap()));
            let (mut worst, mut unmixed) = (1.0_f64, 1.0_f64);
            for nth in 0..20 {
                let (keys, alike) = (random.u64(600..20_000), random.u64(40..200));
                let group =
                    |keys, alike| Table { keys, bytes: 0, reach: 1.0 / alike as f64, alike };
                let runs = [(1, group(keys, 8)), (2, group(keys, alike))];
                let runs = runs.map(|(level, table)| Run { level, tables: vec![table] });
                let tree = Tree::new(runs.to_vec()).unwrap();
                let workload = Workload::new(1.0).unwrap();
                let budget = tree.keys() * random.u64(6..18) / 8;
                let offer = solver.offer(&tree, &workload, budget).unwrap();
                let visits = workload.visits(&tree);
                let (mut spent, mut wasted, mut flat) = (0, 0.0, 0.0);
                for ((level, table), visits) in tree.tables().zip(&visits) {
                    let weight = visits.weight() / table.alike as f64;
                    // Consecutive file numbers.
                    let first = random.u64(..1 << 40);
                    for number in first..first + table.alike {
                        let filter =
                            solver.choose_near(level, table.keys, weight, offer.of(number));
                        spent += bytes(filter, table.keys);
                        wasted += weight * rate(filter, table.keys);
                        let usual = solver.choose_near(level, table.keys, weight, offer.price());
                        flat += weight * rate(usual, table.keys);
                    }
                }
                let best = solver.solve(&separate(&tree), &workload, budget).unwrap().cost;
                let beyond = wasted / best.wasted_cost;
                unmixed = unmixed.max(flat / best.wasted_cost);
                assert!(spent as f64 <= budget as f64 * 1.0005, "{nth}: {spent} of {budget}");
                worst = worst.max(beyond);
            }
            println!("{kind}: {worst} times the least, at one price {unmixed}");
            assert!(worst < within && unmixed > 1.03, "{kind}: {worst}, at one price {unmixed}");
        }
    }

    /// The same tables, one by one.
    fn separate(tree: &Tree) -> Tree {
        let each = |table: &Table| vec![Table { alike: 1, ..*table }; table.alike as usize];
        let runs = tree.runs().iter().map(|run| Run {
            level: run.level,
            tables: run.tables.iter().flat_map(each).collect(),
        });
        Tree::new(runs.collect()).unwrap()
    }

    #[test]
    fn menus_are_made_once_and_dropped_when_there_are_too_many() {
        let (rule, other) = (Rule::default(), Rule::default().with_bits(0.0, 2.0).unwrap());
        let kept = Mutex::new(Menus::none());
        let made = menu(&kept, &rule, 640);
        assert!(Arc::ptr_eq(&made, &menu(&kept, &rule, 640)));
        assert!(!Arc::ptr_eq(&made, &menu(&kept, &other, 640)));
        for keys in 0..MOST_MENUS as u64 {
            menu(&kept, &other, keys);
            assert!(kept.lock().unwrap().count <= MOST_MENUS);
        }
        assert!(!Arc::ptr_eq(&made, &menu(&kept, &rule, 640)), "it was let go");
    }
}
