//! A store that lives: one price for new tables, and filters that are there already.

use crate::*;
use trommel_filter::FilterSpec;

use super::tree;

#[test]
fn new_tables_get_what_the_solution_has_for_their_run() {
    let keys = [100_000, 800_000, 9_000_000, 70_000_000];
    let tree = tree(&keys);
    for misses in [1.0, 0.4, 0.0] {
        let workload = Workload::new(misses).unwrap();
        let mut policy = Policy::new(Rules::default(), workload, Budget::PerKey(10.0));
        let plan = policy.resolve(&tree).unwrap();
        for (level, spec) in plan.filters.iter().enumerate().skip(1) {
            // A run is written in tables of about as many keys.
            let weight = policy.weight_of_new(&tree, level, 200_000);
            let new = policy.choose(level, 200_000, weight);
            let off = new.bits_per_key() - spec.bits_per_key();
            assert!(off.abs() <= 1.0, "{misses} level {level}: {new} beside {spec}");
        }
    }
}

#[test]
fn the_price_rises_as_a_budget_of_bytes_gets_tight() {
    let mut policy =
        Policy::new(Rules::default(), Workload::new(1.0).unwrap(), Budget::Bytes(1 << 20));
    assert_eq!(policy.price(), None);
    let mut before = Price::FREE;
    for keys in [1_000, 500_000, 1_000_000, 5_000_000] {
        let plan = policy.resolve(&tree(&[1_000, keys])).unwrap();
        assert!(plan.cost.filter_bytes <= 1 << 20);
        assert!(policy.price() >= Some(before), "{keys}");
        before = policy.price().unwrap();
    }
    assert!(before > Price::FREE);
    // Of so many keys the smallest filter does not fit.
    let plan = policy.resolve(&tree(&[1_000, 100_000_000])).unwrap();
    assert_eq!(plan.filters[1], FilterSpec::NONE);
    assert_eq!(policy.choose(1, 100_000_000, 1.0), FilterSpec::NONE);
}

#[test]
fn a_first_table_keeps_to_the_budget() {
    let policy = |budget: &str| {
        let workload = Workload::new(0.5).unwrap();
        Policy::new(Rules::default(), workload, budget.parse().unwrap())
    };
    let spec = policy("10/key").choose(0, 50_000, 0.3);
    assert!((9.9..10.0).contains(&spec.bits_per_key()), "{spec}");
    assert_eq!(policy("10/key").choose(0, 50_000, 0.0), FilterSpec::NONE);
    assert_eq!(policy("0").choose(0, 50_000, 1.0), FilterSpec::NONE);
    assert_eq!(policy("1GiB").choose(0, 50_000, 1.0).to_string(), "paired:40");
}

#[test]
fn drift_is_what_a_table_has_beyond_the_plan() {
    let tree = tree(&[10_000, 1_000_000]);
    let workload = Workload::new(1.0).unwrap();
    let plan = Solver::default().solve(&tree, &workload, 1_200_000).unwrap();
    let built = |spec: FilterSpec, keys| Held {
        weight: 1.0,
        bytes: bytes(spec, keys),
        rate: rate(spec, keys),
    };
    let as_planned = [built(plan.filters[0], 10_000), built(plan.filters[1], 1_000_000)];
    let none = Drift { bytes: 0, cost: 0.0 };
    assert_eq!(plan.drift(&tree, &as_planned).unwrap(), [none, none]);
    // The upper table came down with the filter of its old level; the lower has none.
    let moved = [built("paired:40".parse().unwrap(), 10_000), built(FilterSpec::NONE, 1_000_000)];
    let drift = plan.drift(&tree, &moved).unwrap();
    assert!(drift[0].bytes > 0 && drift[0].cost < 0.0, "{drift:?}");
    assert!(drift[1].bytes < -1_000_000 && drift[1].cost > 0.98, "{drift:?}");
    assert!(plan.drift(&tree, &moved[..1]).is_err());
}

#[test]
fn no_more_is_dropped_than_must_be() {
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
