//! Small trees, compared with every possible choice.

use crate::*;
use trommel_filter::{FilterKind, FilterSpec};

use super::{drawn_kinds, tree};

/// Bits per key of brute force: none, and from 1 to 40 in halves.
fn grid(kinds: &[FilterKind], keys: u64, alike: u64) -> Vec<(u64, f64)> {
    let sizes = (2..=80).map(|halves| f64::from(halves) / 2.0);
    let all = kinds.iter().flat_map(|&kind| {
        sizes.clone().map(move |bits| {
            let spec = FilterSpec::new(kind, bits).unwrap();
            (alike * bytes(spec, keys), rate(spec, keys))
        })
    });
    let mut all: Vec<_> = all.chain([(0, 1.0)]).collect();
    all.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
    let mut best = f64::INFINITY;
    all.retain(|&(_, rate)| {
        let better = rate < best;
        best = best.min(rate);
        better
    });
    all
}

/// The least cost of any choice from the grid.
fn brute_force(tables: &[(f64, &[(u64, f64)])], budget: u64) -> f64 {
    let ((weight, options), rest) = tables.split_first().unwrap();
    let fitting = &options[..options.partition_point(|(bytes, _)| *bytes <= budget)];
    if rest.is_empty() {
        return weight * fitting.last().unwrap().1;
    }
    let cost = |&(bytes, rate): &(u64, f64)| weight * rate + brute_force(rest, budget - bytes);
    fitting.iter().map(cost).fold(f64::INFINITY, f64::min)
}

/// Every list of up to `most` of these numbers of keys.
fn shapes(keys: &[u64], most: usize) -> Vec<Vec<u64>> {
    let mut all: Vec<Vec<u64>> = vec![Vec::new()];
    let mut from = 0;
    for _ in 0..most {
        let end = all.len();
        for shorter in from..end {
            for &keys in keys {
                let mut longer = all[shorter].clone();
                longer.push(keys);
                all.push(longer);
            }
        }
        from = end;
    }
    all.split_off(1)
}

/// The relative excess of the solver's cost over brute force.
fn excess(solver: &Solver, tree: &Tree, workload: &Workload, budget: u64) -> f64 {
    let visits = workload.visits(tree);
    let grids: Vec<_> = tree
        .tables()
        .map(|(level, table)| grid(solver.rules().of(level).kinds(), table.keys, table.alike))
        .collect();
    let tables: Vec<_> =
        visits.iter().zip(&grids).map(|(visits, grid)| (visits.weight(), &grid[..])).collect();
    let best = brute_force(&tables, budget);
    let plan = solver.solve(tree, workload, budget).unwrap();
    assert!(plan.cost.filter_bytes <= budget);
    if best > 0.0 { plan.cost.wasted_cost / best - 1.0 } else { plan.cost.wasted_cost }
}

#[test]
fn small_trees_are_solved_as_well_as_by_brute_force() {
    let solver = Solver::default();
    for keys in shapes(&[1, 12, 100, 1_000, 20_000, 1_000_000], 3) {
        let tree = tree(&keys);
        for misses in [0.0, 0.3, 1.0] {
            let workload = Workload::new(misses).unwrap();
            for bits in [0.0, 0.7, 2.0, 5.0, 10.0, 23.0, 60.0] {
                // The smallest filter takes two lines, including its header.
                let budget = (tree.keys() as f64 * bits / 8.0) as u64 + 128;
                let excess = excess(&solver, &tree, &workload, budget);
                assert!(excess < 0.001, "{keys:?}, {misses} miss, {budget} bytes: {excess}");
            }
        }
    }
}

#[test]
fn random_small_trees_are_solved_as_well_as_by_brute_force() {
    let mut random = fastrand::Rng::with_seed(5);
    for round in 0..400 {
        let kinds = drawn_kinds(&mut random);
        let solver = Solver::new(Rules::everywhere(Rule::new(&kinds).unwrap()));
        let most = *random.choice(&[50.0_f64, 2_000.0, 1e6]).unwrap();
        let run = |level: usize, random: &mut fastrand::Rng| {
            let keys = (most.ln() * random.f64()).exp() as u64;
            let alike = *random.choice(&[1, 1, 3]).unwrap();
            Run { level, tables: vec![Table { keys, bytes: 0, reach: random.f64(), alike }] }
        };
        let runs = (0..random.usize(2..=4)).map(|level| run(level, &mut random)).collect();
        let tree = Tree::new(runs).unwrap();
        let cost = 10.0_f64.powf(4.0 * random.f64() - 2.0);
        let workload = Workload::new(random.f64()).unwrap().with_read_cost(1, cost).unwrap();
        let bits = (64.0_f64.ln() * random.f64()).exp() - 1.0;
        let budget = (tree.keys() as f64 * bits / 8.0) as u64 + random.u64(0..400);
        let excess = excess(&solver, &tree, &workload, budget);
        assert!(excess < 0.001, "{round}: {tree:?}, {budget} bytes: {excess}");
    }
}
