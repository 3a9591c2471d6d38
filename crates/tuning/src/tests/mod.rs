//! The promises of the crate, on trees of every shape.

mod any;
mod ideal;
mod levels;
mod live;
mod small;

use crate::menu::Menu;
use crate::price::Item;
use crate::solver::menu_of;
use crate::*;
use trommel_filter::{FilterKind, FilterSpec};

#[test]
fn unfiltered_tables_waste_every_read_that_reaches_them() {
    assert_eq!(wasted_reads_per_miss([(1.0, 1.0); 5]), 5.0);
    assert!(wasted_reads_per_miss([]).is_sign_positive(), "an empty tree prints as 0");
    assert_eq!(wasted_reads_per_miss([(0.0, 1.0)]), 0.0);
}

/// Whole runs with these numbers of keys, newest first.
pub(crate) fn tree(keys: &[u64]) -> Tree {
    let runs = keys.iter().enumerate().map(|(level, &keys)| Run::whole(level, keys));
    Tree::new(runs.collect()).unwrap()
}

/// The filter of a table of `keys` keys and this weight on `level` if bytes cost `price`: the one
/// of least `weight * rate + price * bytes`.
pub(crate) fn choose(
    rules: &Rules,
    level: usize,
    keys: u64,
    weight: f64,
    price: Price,
) -> FilterSpec {
    let (menu_keys, scale) = menu_of(keys);
    let menu = Menu::new(rules.of(level), menu_keys);
    menu.corner(Item { weight, scale, menu: &menu }.corner_at(price)).spec
}

/// One or two kinds of filters.
pub(crate) fn drawn_kinds(random: &mut fastrand::Rng) -> Vec<FilterKind> {
    let all = FilterKind::ALL;
    let first = random.usize(..all.len());
    let mut kinds = vec![all[first]];
    kinds.extend(random.bool().then(|| all[(first + 1) % all.len()]));
    kinds
}

/// A tree of up to seven runs and forty tables of up to `most_keys` keys, of all magnitudes.
pub(crate) fn random_tree(random: &mut fastrand::Rng, most_keys: u64) -> Tree {
    let magnitudes = (most_keys as f64).ln();
    let mut runs = Vec::new();
    for level in 0..random.usize(1..=7) {
        let count = *random.choice(&[1, 1, 2, 8]).unwrap();
        let mut table = || Table {
            keys: (magnitudes * random.f64()).exp() as u64,
            bytes: 0,
            reach: random.f64() / f64::from(count),
            alike: *random.choice(&[1, 1, 1, 5]).unwrap(),
        };
        runs.push(Run { level, tables: (0..count).map(|_| table()).collect() });
    }
    Tree::new(runs).unwrap()
}

#[test]
fn five_full_levels_waste_a_third_of_what_uniform_bits_waste() {
    let tree = tree(&[10_000, 100_000, 1_000_000, 10_000_000, 100_000_000]);
    let (solver, all_miss) = (Solver::default(), Workload::new(1.0).unwrap());
    let budget = tree.keys() * 10 / 8;
    let solved = solver.solve(&tree, &all_miss, budget).unwrap();
    let uniform = solver.uniform(&tree, &all_miss, budget).unwrap();
    assert!((uniform.cost.wasted_reads - 0.0452).abs() < 0.0001, "{uniform:?}");
    assert!((solved.cost.wasted_reads - 0.0128).abs() < 0.0001, "{solved:?}");
}
