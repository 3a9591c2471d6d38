//! Small trees, beside every possible choice.

use crate::*;
use trommel_filter::{FilterKind, FilterSpec};

use super::tree;

/// Bits per key of brute force: none, and from 1 to 40 in halves.
fn grid(kinds: &[FilterKind], keys: u64) -> Vec<(u64, f64)> {
    let sizes = (2..=80).map(|halves| f64::from(halves) / 2.0);
    let all = kinds.iter().flat_map(|&kind| {
        sizes.clone().map(move |bits| {
            let spec = FilterSpec::new(kind, bits).unwrap();
            (bytes(spec, keys), rate(spec, keys))
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

/// The least cost that any choice from the grid has.
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

#[test]
fn small_trees_are_solved_as_well_as_by_brute_force() {
    let kinds = [FilterKind::Paired];
    let mut worst: f64 = 0.0;
    let mut count = 0;
    for keys in shapes(&[1, 12, 100, 1_000, 20_000, 1_000_000], 3) {
        let tree = tree(&keys);
        let grids: Vec<_> = keys.iter().map(|&keys| grid(&kinds, keys)).collect();
        for misses in [0.0, 0.3, 1.0] {
            let workload = Workload::new(misses).unwrap();
            let visits = workload.visits(&tree);
            let tables: Vec<_> =
                visits.iter().zip(&grids).map(|(v, grid)| (v.weight(), &grid[..])).collect();
            for bits in [0.0, 0.7, 2.0, 5.0, 10.0, 23.0, 60.0] {
                let budget = (tree.keys() as f64 * bits / 8.0) as u64 + 70;
                let best = brute_force(&tables, budget);
                let plan = Solver::default().solve(&tree, &workload, budget).unwrap();
                assert!(plan.cost.filter_bytes <= budget);
                let off = plan.cost.wasted_cost / best - 1.0;
                if best > 0.0 && off > worst {
                    worst = off;
                    println!("{keys:?} z {misses} at {bits}: {off} {best} {plan:?}");
                }
                count += 1;
            }
        }
    }
    println!("{count} {worst}");
    assert!(worst < 0.01, "{worst}");
}
