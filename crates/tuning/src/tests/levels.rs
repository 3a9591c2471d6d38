//! One filter for each level, compared with every possible choice.

use crate::*;
use trommel_filter::{FilterKind, FilterSpec};

use super::drawn_kinds;

/// Tables with these numbers of keys on each level; each level gets its number of wasted lookups in
/// all.
fn tables(levels: &[(&[u64], f64)]) -> Vec<Visited> {
    let mut tables = Vec::new();
    for (level, (keys, in_vain)) in levels.iter().enumerate() {
        let all: u64 = keys.iter().sum();
        tables.extend(keys.iter().map(|&keys| {
            let in_vain = in_vain * keys as f64 / all.max(1) as f64;
            Visited { level, keys, visits: Visits { in_vain, hits: 0.0, read_cost: 1.0 } }
        }));
    }
    tables
}

/// The bytes and wasted reads of a level's tables with `spec`.
fn sum(tables: &[Visited], level: usize, spec: FilterSpec) -> (u64, f64) {
    let on_level = tables.iter().filter(|table| table.level == level);
    on_level.fold((0, 0.0), |(all, wasted), table| {
        (all + bytes(spec, table.keys), wasted + table.visits.in_vain * rate(spec, table.keys))
    })
}

/// The least waste of any filters of these sizes, level by level.
fn brute_force(options: &[Vec<(u64, f64)>], budget: u64) -> f64 {
    let Some((first, rest)) = options.split_first() else { return 0.0 };
    let fitting = first.iter().filter(|(bytes, _)| *bytes <= budget);
    let wasted = |&(bytes, wasted): &(u64, f64)| wasted + brute_force(rest, budget - bytes);
    fitting.map(wasted).fold(f64::INFINITY, f64::min)
}

#[test]
fn levels_of_small_tables_are_solved_as_well_as_by_brute_force() {
    let mut random = fastrand::Rng::with_seed(7);
    for round in 0..60 {
        let kinds = drawn_kinds(&mut random);
        let rules = Rules::everywhere(Rule::new(&kinds).unwrap().with_bits(0.0, 6.0).unwrap());
        let keys: Vec<Vec<u64>> = (0..random.usize(1..=3))
            .map(|_| (0..random.usize(1..=4)).map(|_| random.u64(1..400)).collect())
            .collect();
        let levels: Vec<(&[u64], f64)> =
            keys.iter().map(|keys| (&keys[..], 4.0 * random.f64())).collect();
        let tables = tables(&levels);
        let all: u64 = tables.iter().map(|table| table.keys).sum();
        let budget = (all as f64 * 8.0 * random.f64()) as u64 / 8 + 128 * random.u64(0..8);
        let sizes = |kind: &FilterKind| {
            let kind = *kind;
            (5..=60).map(move |tenths| FilterSpec::new(kind, f64::from(tenths) / 10.0).unwrap())
        };
        let specs: Vec<FilterSpec> =
            std::iter::once(FilterSpec::NONE).chain(kinds.iter().flat_map(sizes)).collect();
        let options: Vec<Vec<(u64, f64)>> = (0..levels.len())
            .map(|level| {
                let mut all: Vec<(u64, f64)> =
                    specs.iter().map(|spec| sum(&tables, level, *spec)).collect();
                all.sort_by(|a, b| a.partial_cmp(b).unwrap());
                all.dedup_by_key(|(bytes, _)| *bytes);
                all
            })
            .collect();
        let best = brute_force(&options, budget);
        let plan = ByLevel::new(&rules, &tables).solve(budget).unwrap();
        assert!(plan.cost.filter_bytes <= budget, "round {round}");
        let wasted = plan.cost.wasted_reads;
        assert!(wasted <= best * 1.002 + 1e-12, "round {round}: {wasted}, best {best}");
        let by_hand: Vec<(u64, f64)> =
            plan.levels.iter().map(|(level, (spec, _))| sum(&tables, *level, *spec)).collect();
        for ((_, cost), (bytes, wasted)) in plan.levels.values().zip(&by_hand) {
            assert_eq!(cost.filter_bytes, *bytes);
            assert!((cost.wasted_reads - wasted).abs() < 1e-12);
        }
    }
}

#[test]
fn the_cheapest_filters_meet_their_bound_and_no_more() {
    let many: Vec<u64> = (0..300).map(|nth| 20_000 + 100 * nth).collect();
    let tables = tables(&[(&[900, 1000, 1100], 3.0), (&[15_000, 25_000], 1.0), (&many, 1.0)]);
    let by_level = ByLevel::new(&Rules::default(), &tables);
    let mut before = 0;
    for most in [6.0, 1.0, 0.1, 1e-3, 1e-6] {
        let plan = by_level.cheapest(most);
        assert!(plan.cost.wasted_cost <= most, "{most}: {:?}", plan.cost);
        assert!(plan.cost.filter_bytes > before || most == 6.0, "{most}: {:?}", plan.cost);
        before = plan.cost.filter_bytes;
        // No other choice of as many bytes is much better.
        let solved = by_level.solve(plan.cost.filter_bytes).unwrap();
        assert!(solved.cost.wasted_cost <= most);
        assert!(plan.cost.wasted_cost <= solved.cost.wasted_cost * 1.002 + 1e-15, "{most}");
    }
    let none = by_level.cheapest(10.0);
    assert!(none.levels.values().all(|(spec, _)| *spec == FilterSpec::NONE));
    // A bound that no filter of 40 bits meets is approached as closely as possible.
    let best = by_level.cheapest(0.0);
    assert!(best.levels.values().all(|(spec, _)| spec.bits_per_key() > 39.5), "{best:?}");
}

/// Twenty keys take one cache line of filter, with half a bit each or with twenty; the next
/// memtable to be flushed is larger.
#[test]
fn a_level_of_tiny_tables_gets_the_bits_of_the_level_below() {
    for keys in [5, 12, 20] {
        let l0 = [keys; 3];
        let tables = tables(&[(&l0, 3.0), (&[40_000], 1.0)]);
        for bits in [6, 10, 16] {
            let budget = (40_000 + 3 * keys) * bits / 8;
            let plan = ByLevel::new(&Rules::default(), &tables).solve(budget).unwrap();
            let [above, below] = [0, 1].map(|level| plan.levels[&level].0.bits_per_key());
            assert!((below - bits as f64).abs() < 0.5, "{keys} keys, {bits} bits: {below}");
            assert!((above - below).abs() < 0.06, "{keys} keys, {bits} bits: {above}");
            assert_eq!(plan.levels[&0].1.filter_bytes, 3 * bytes(plan.levels[&0].0, keys));
            assert!(plan.cost.filter_bytes <= budget);
        }
    }
    // Nor does it get more than usual if no level below has a filter.
    let tables = tables(&[(&[5, 5], 2.0), (&[40_000], 0.0)]);
    let plan = ByLevel::new(&Rules::default(), &tables).solve(1000).unwrap();
    assert_eq!(plan.levels[&0].0.to_string(), "paired:10");
}

#[test]
fn rules_hold_for_levels_and_nothing_makes_no_levels() {
    let tables = tables(&[(&[1000, 0], 1.0), (&[5000], 0.0), (&[0], 1.0)]);
    let rule =
        |floor, cap| Rule::new(&[FilterKind::Blocked]).unwrap().with_bits(floor, cap).unwrap();
    let rules = Rules::everywhere(rule(0.0, 0.0)).with_level(0, rule(12.34, 12.34));
    let by_level = ByLevel::new(&rules, &tables);
    let plan = by_level.solve(1 << 20).unwrap();
    assert_eq!(plan.levels[&0].0.to_string(), "blocked:12.34");
    assert_eq!(plan.levels[&1].0, FilterSpec::NONE);
    assert!(!plan.levels.contains_key(&2), "a level without keys");
    let error = by_level.solve(100).unwrap_err();
    assert!(matches!(error, TuningError::BelowFloors { budget: 100, .. }), "{error}");
    let nothing = ByLevel::new(&Rules::default(), &[]);
    assert_eq!(nothing.solve(0).unwrap(), nothing.cheapest(0.0));
    assert_eq!(nothing.solve(0).unwrap(), LevelPlan::default());
}
