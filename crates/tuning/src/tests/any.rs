//! Random trees drawn from a seed, and degenerate trees.

use crate::*;
use trommel_filter::{FilterKind, FilterSpec};

use super::{choose, drawn_kinds, random_tree, tree};

#[test]
fn budgets_are_kept_and_never_spent_worse_than_uniformly() {
    let mut random = fastrand::Rng::with_seed(1);
    for round in 0..100 {
        let tree = random_tree(&mut random, 3_000_000);
        let workload = Workload::new(*random.choice(&[0.0, 0.1, 0.5, 1.0]).unwrap()).unwrap();
        let solver = Solver::new(Rules::everywhere(Rule::new(&drawn_kinds(&mut random)).unwrap()));
        let mut before = f64::INFINITY;
        let mut bits = 0.1 + random.f64();
        while bits < 50.0 {
            let budget = (tree.keys() as f64 * bits / 8.0) as u64;
            let plan = solver.solve(&tree, &workload, budget).unwrap();
            let uniform = solver.uniform(&tree, &workload, budget).unwrap();
            assert_eq!(plan.cost, Cost::of(&tree, &workload, &plan.filters).unwrap());
            assert!(plan.cost.filter_bytes <= budget, "{round}: {plan:?} beyond {budget}");
            assert!(uniform.cost.filter_bytes <= budget, "{round}: {uniform:?} beyond {budget}");
            let cost = plan.cost.wasted_cost;
            assert!(cost <= uniform.cost.wasted_cost, "{round}: {plan:?} {uniform:?}");
            assert!(cost <= before * 1.001, "{round}: {cost} with more bytes, {before} with fewer");
            before = cost;
            bits *= 1.0 + random.f64() / 2.0;
        }
    }
}

#[test]
fn equal_tables_share_the_budget() {
    let run = |level, count: u64, alike: u64| Run {
        level,
        tables: vec![
            Table { keys: 60_000, bytes: 0, reach: 1.0 / count as f64, alike };
            (count / alike) as usize
        ],
    };
    let (solver, workload) = (Solver::default(), Workload::new(1.0).unwrap());
    let tree = |grouped: bool, counts: &[u64]| {
        let runs = counts.iter().enumerate();
        let runs = runs.map(|(level, &count)| run(level, count, if grouped { count } else { 1 }));
        Tree::new(runs.collect()).unwrap()
    };
    for counts in [&[300][..], &[40, 300]] {
        let (each, together) = (tree(false, counts), tree(true, counts));
        for step in 0..10 {
            let bits = 11.5 + 0.03 * f64::from(step);
            let budget = (each.keys() as f64 * bits / 8.0) as u64;
            let plan = solver.solve(&each, &workload, budget).unwrap();
            let uniform = solver.uniform(&each, &workload, budget).unwrap();
            assert!(plan.cost.wasted_cost <= uniform.cost.wasted_cost, "{bits}: {:?}", plan.cost);
            let grouped = solver.solve(&together, &workload, budget).unwrap();
            assert!(plan.cost.wasted_cost <= grouped.cost.wasted_cost * 1.001, "{bits}");
        }
    }
}

#[test]
fn large_tables_take_the_remaining_bytes() {
    let (solver, workload) = (Solver::default(), Workload::new(1.0).unwrap());
    for keys in [[1_000_000, 10_000_000], [1_000_000, 1_000_000]] {
        let tree = tree(&keys);
        for bits in [3.03, 11.56, 17.21] {
            let budget = (tree.keys() as f64 * bits / 8.0) as u64;
            let plan = solver.solve(&tree, &workload, budget).unwrap();
            assert!(budget - plan.cost.filter_bytes < 300, "{bits}: {plan:?} of {budget}");
            // Neither of two equal tables should have more.
            let uniform = solver.uniform(&tree, &workload, budget).unwrap();
            assert!(plan.cost.wasted_cost <= uniform.cost.wasted_cost, "{bits}: {plan:?}");
        }
    }
}

#[test]
fn a_price_buys_what_its_budget_buys() {
    let mut random = fastrand::Rng::with_seed(2);
    for _ in 0..100 {
        let tree = random_tree(&mut random, 10_000_000);
        let (solver, workload) = (Solver::default(), Workload::new(random.f64()).unwrap());
        let price = Price::new(10.0_f64.powf(-4.0 - 10.0 * random.f64())).unwrap();
        let filters: Vec<FilterSpec> = tree
            .tables()
            .zip(workload.visits(&tree))
            .map(|((level, table), visits)| {
                let each = visits.weight() / table.alike as f64;
                choose(solver.rules(), level, table.keys, each, price)
            })
            .collect();
        let bought = Cost::of(&tree, &workload, &filters).unwrap();
        let solved = solver.solve(&tree, &workload, bought.filter_bytes).unwrap();
        // The choices at a price are the best for their bytes, up to the rounding of large filters.
        assert!(solved.cost.wasted_cost <= bought.wasted_cost * 1.001);
        assert!(solved.cost.wasted_cost >= bought.wasted_cost * 0.99);
    }
}

#[test]
fn floors_and_caps_are_kept() {
    let rule = |kind, floor, cap| Rule::new(&[kind]).unwrap().with_bits(floor, cap).unwrap();
    let rules = Rules::everywhere(rule(FilterKind::Paired, 0.0, 20.0))
        .with_level(1, rule(FilterKind::Blocked, 8.0, 12.0))
        .with_level(2, rule(FilterKind::Standard, 1.0, 2.0))
        .with_level(2, rule(FilterKind::Paired, 0.0, 0.0))
        .with_level(4, rule(FilterKind::Ribbon, 3.3, 3.3));
    assert_eq!(rules.of(2).cap(), 0.0, "of two rules for a level the last holds");
    let solver = Solver::new(rules.clone());
    let tree = tree(&[3_000, 20_000, 100_000, 400_000, 2_000_000]);
    let workload = Workload::new(0.7).unwrap();
    for bits in [5.0, 6.0, 8.0, 15.0, 100.0] {
        let budget = (tree.keys() as f64 * bits / 8.0) as u64;
        for plan in [
            solver.solve(&tree, &workload, budget).unwrap(),
            solver.uniform(&tree, &workload, budget).unwrap(),
        ] {
            assert!(plan.cost.filter_bytes <= budget);
            for ((level, _), spec) in tree.tables().zip(&plan.filters) {
                let rule = rules.of(level);
                let bits = spec.bits_per_key();
                assert!((rule.floor()..=rule.cap()).contains(&bits), "level {level}: {spec}");
                assert!(*spec == FilterSpec::NONE || rule.kinds().contains(&spec.kind()));
            }
        }
    }
    let error = solver.solve(&tree, &workload, 100_000).unwrap_err();
    let TuningError::BelowFloors { needed, budget: 100_000 } = error else { panic!("{error}") };
    assert!(solver.solve(&tree, &workload, needed).is_ok());
    assert!(solver.solve(&tree, &workload, needed - 1).is_err());
}

#[test]
fn degenerate_trees_are_solved() {
    let solver = Solver::default();
    let misses = |share| Workload::new(share).unwrap();
    let filters = |keys: &[u64], share, budget| -> Vec<String> {
        let plan = solver.solve(&tree(keys), &misses(share), budget).unwrap();
        plan.filters.iter().map(ToString::to_string).collect()
    };
    assert!(filters(&[], 1.0, 0).is_empty());
    assert_eq!(filters(&[0], 1.0, u64::MAX), ["none"], "a table without keys needs no filter");
    assert_eq!(filters(&[1000], 1.0, 0), ["none"]);
    assert_eq!(filters(&[1000], 1.0, 127), ["none"], "no filter is that small");
    assert_eq!(filters(&[1000], 1.0, u64::MAX), ["paired:40"]);
    assert_eq!(filters(&[1000, u64::MAX, u64::MAX], 1.0, u64::MAX)[0], "paired:40");
    assert_eq!(filters(&[1000, 10_000], 0.0, u64::MAX), ["paired:40", "none"], "all are found");
    let mut unreached = Run::whole(0, 1000);
    unreached.tables[0].reach = 0.0;
    let unreached = Tree::new(vec![unreached]).unwrap();
    let plan = solver.solve(&unreached, &misses(1.0), 1000).unwrap();
    assert_eq!(plan.filters, [FilterSpec::NONE], "what no lookup reaches needs no filter");
}

#[test]
fn nonsense_is_refused() {
    let table =
        |reach| Run { level: 0, tables: vec![Table { keys: 1, bytes: 1, reach, alike: 1 }] };
    let workload = || Workload::new(0.5).unwrap();
    let rule = || Rule::default();
    for bad in [f64::NAN, -0.1, f64::INFINITY] {
        assert!(Workload::new(bad).is_err());
        assert!(workload().with_hits(&[bad]).is_err());
        assert!(workload().with_read_cost(0, bad).is_err());
        assert!(Tree::new(vec![table(bad)]).is_err());
        assert!(rule().with_bits(bad, 10.0).is_err());
        assert!(rule().with_bits(0.0, bad).is_err());
        assert!(Budget::per_key(bad).is_err());
    }
    assert!(Price::new(f64::NAN).is_err() && Price::new(-1.0).is_err());
    assert!(workload().with_read_cost(usize::MAX, 1.0).is_err());
    assert!(rule().with_bits(10.0, 9.0).unwrap_err().to_string().contains("above the cap"));
    assert!(rule().with_bits(0.1, 9.0).unwrap_err().to_string().contains("0.5 to 64"));
    assert!(Rule::new(&[]).is_err() && Rule::new(&[FilterKind::None]).is_err());
    let lonely = Cost::of(&tree(&[1, 2]), &workload(), &[FilterSpec::NONE]);
    assert!(lonely.unwrap_err().to_string().contains("1 filters for 2 tables"));
    assert_eq!(choose(&Rules::default(), 0, 1000, f64::NAN, Price::FREE), FilterSpec::NONE);
}

#[test]
fn a_million_tables_are_solved() {
    let mut random = fastrand::Rng::with_seed(3);
    let level = |(level, count): (usize, u64), random: &mut fastrand::Rng| Run {
        level,
        tables: (0..count)
            .map(|_| Table {
                keys: random.u64(200_000..600_000),
                bytes: 64 << 20,
                reach: 1.0 / count as f64,
                alike: 1,
            })
            .collect(),
    };
    let counts = [(1, 1), (2, 90), (3, 900), (4, 9_000), (5, 90_000), (6, 900_009)];
    let tree = Tree::new(counts.map(|count| level(count, &mut random)).to_vec()).unwrap();
    assert_eq!(tree.tables().count(), 1_000_000);
    let (solver, workload) = (Solver::default(), Workload::new(1.0).unwrap());
    let budget = tree.keys() * 10 / 8;
    let plan = solver.solve(&tree, &workload, budget).unwrap();
    assert!(plan.cost.filter_bytes <= budget);
    let spare = (budget - plan.cost.filter_bytes) as f64 / budget as f64;
    assert!(spare < 1e-6, "{spare} of the budget is left");
    let uniform = solver.uniform(&tree, &workload, budget).unwrap();
    assert!(plan.cost.wasted_reads < uniform.cost.wasted_reads / 3.0, "{}", plan.cost.wasted_reads);
}
