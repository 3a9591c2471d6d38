//! A live store: one price for new tables, and existing filters.

use crate::*;
use trommel_filter::FilterSpec;

use super::{choose, tree};

#[test]
fn new_tables_get_the_filters_that_the_solution_has_for_their_run() {
    let keys = [100_000, 800_000, 9_000_000, 70_000_000];
    let (tree, solver) = (tree(&keys), Solver::default());
    let budget = Budget::PerKey(10.0).bytes(tree.keys());
    for misses in [1.0, 0.4, 0.0] {
        let workload = Workload::new(misses).unwrap();
        let plan = solver.solve(&tree, &workload, budget).unwrap();
        let weights = workload.visits(&tree).into_iter().map(|visits| visits.weight());
        for (level, (spec, weight)) in plan.filters.iter().zip(weights).enumerate().skip(1) {
            // A run is written as tables of about this many keys, each with its share of the
            // weight.
            let part = weight * 200_000.0 / keys[level] as f64;
            let new = choose(solver.rules(), level, 200_000, part, plan.price);
            let off = new.bits_per_key() - spec.bits_per_key();
            assert!(off.abs() <= 1.0, "{misses} level {level}: {new}, expected {spec}");
        }
    }
}

#[test]
fn the_price_rises_as_a_budget_of_bytes_gets_tight() {
    let (solver, workload) = (Solver::default(), Workload::new(1.0).unwrap());
    let mut before = Price::FREE;
    for keys in [1_000, 500_000, 1_000_000, 5_000_000] {
        let plan = solver.solve(&tree(&[1_000, keys]), &workload, 1 << 20).unwrap();
        assert!(plan.cost.filter_bytes <= 1 << 20);
        assert!(plan.price >= before, "{keys}");
        before = plan.price;
    }
    assert!(before > Price::FREE);
    // With this many keys the smallest filter does not fit.
    let plan = solver.solve(&tree(&[1_000, 100_000_000]), &workload, 1 << 20).unwrap();
    assert_eq!(plan.filters[1], FilterSpec::NONE);
    assert_eq!(choose(solver.rules(), 1, 100_000_000, 1.0, plan.price), FilterSpec::NONE);
}

#[test]
fn a_tree_of_one_table_keeps_to_the_budget() {
    let lone = |budget: &str, misses| {
        let budget: Budget = budget.parse().unwrap();
        let (tree, workload) = (tree(&[50_000]), Workload::new(misses).unwrap());
        Solver::default().solve(&tree, &workload, budget.bytes(50_000)).unwrap().filters[0]
    };
    let spec = lone("10/key", 0.3);
    assert!((9.9..10.0).contains(&spec.bits_per_key()), "{spec}");
    assert_eq!(lone("10/key", 0.0), FilterSpec::NONE);
    assert_eq!(lone("0", 1.0), FilterSpec::NONE);
    assert_eq!(lone("1GiB", 1.0).to_string(), "paired:40");
}

#[test]
fn only_filters_above_the_budget_are_dropped() {
    let mut random = fastrand::Rng::with_seed(4);
    for _ in 0..500 {
        let held: Vec<Held> = (0..random.usize(0..12))
            .map(|_| Held { weight: random.f64(), bytes: random.u64(0..1000), rate: random.f64() })
            .collect();
        let all: u64 = held.iter().map(|held| held.bytes).sum();
        let budget = random.u64(0..=all + 100);
        let dropped = to_drop(&held, budget);
        let bytes: u64 = dropped.iter().map(|nth| held[*nth].bytes).sum();
        assert!(all - bytes <= budget, "what is left fits");
        for nth in &dropped {
            assert!(all - bytes + held[*nth].bytes > budget, "{nth} is dropped for nothing");
        }
        assert!(dropped.is_sorted_by(|a, b| held[*a].worth() <= held[*b].worth()));
    }
    let huge = Held { weight: 1.0, bytes: u64::MAX, rate: 0.0 };
    assert_eq!(to_drop(&[huge, huge], u64::MAX), [0]);
    assert_eq!(to_drop(&[huge], 0), [0]);
}
