//! The ideal curve, `f(b) = e^(-b ln(2)^2)`, whose optimum is known in two other ways.

use crate::Workload;
use crate::menu::{Choice, Menu};
use crate::price::{Item, buy};
use trommel_filter::FilterSpec;

use super::{random_tree, tree};

const LN_2_SQUARED: f64 = std::f64::consts::LN_2 * std::f64::consts::LN_2;
/// Bytes per key and bit, so that no bits are lost by rounding.
const FINE: u64 = 1 << 20;
/// Distance between bits per key: the curve between them is off by 1 part in 10^5.
const STEP: f64 = 1.0 / 64.0;

/// A run as these references see it: keys, and waste without a filter.
type Run = (f64, f64);

/// The runs' waste by numeric water-filling: `p_i = min(1, m n_i / w_i)`, with `m` such that the
/// bits add up.
fn water_filling(runs: &[Run], bits: f64) -> f64 {
    let rates = |level: f64| runs.iter().map(move |(n, w)| (level.exp() * n / w).min(1.0));
    let (mut low, mut high) = (-200.0_f64, 200.0_f64);
    for _ in 0..200 {
        let middle = f64::midpoint(low, high);
        let needed: f64 =
            runs.iter().zip(rates(middle)).map(|((n, _), p)| -n * p.ln() / LN_2_SQUARED).sum();
        if needed > bits { low = middle } else { high = middle }
    }
    runs.iter().zip(rates(high)).map(|((_, w), p)| w * p).sum()
}

/// The choices at a price on the same curve, tabulated; the remaining bits are spent where they
/// gain most.
fn solved(runs: &[Run], bits: f64) -> f64 {
    let menu = |keys: f64| {
        let choice = |step: u32| {
            let bits = f64::from(step) * STEP;
            let bytes = (bits * keys * FINE as f64 / 8.0) as u64;
            Choice { spec: FilterSpec::NONE, bytes, rate: (-bits * LN_2_SQUARED).exp() }
        };
        Menu::of((0..(64.0 / STEP) as u32).map(choice).collect())
    };
    let menus: Vec<Menu> = runs.iter().map(|(keys, _)| menu(*keys)).collect();
    let items = runs.iter().zip(&menus);
    let items: Vec<_> =
        items.map(|((_, weight), menu)| Item { weight: *weight, scale: 1.0, menu }).collect();
    let bought = buy(&items, bits * FINE as f64 / 8.0);
    let corners = items.iter().zip(&bought.corners);
    let chosen: Vec<Choice> = corners.map(|(item, corner)| item.menu.corner(*corner)).collect();
    let taken: f64 = chosen.iter().map(|choice| choice.bytes as f64).sum();
    let left = bits - taken * 8.0 / FINE as f64;
    let cost = |more_for: usize| -> f64 {
        let each = runs.iter().zip(&chosen).enumerate();
        let cost = |(nth, ((keys, weight), choice)): (usize, (&Run, &Choice))| {
            let more = if nth == more_for { left / keys } else { 0.0 };
            weight * choice.rate * (-more * LN_2_SQUARED).exp()
        };
        each.map(cost).sum()
    };
    (0..runs.len()).map(cost).fold(f64::INFINITY, f64::min)
}

/// Dayan, Athanassoulis, Idreos, "Monkey", SIGMOD 2017: the waste of levels of `runs_per_level`
/// runs, each level `ratio` times larger than the one above, with `bits` for each key.
fn monkey(ratio: f64, runs_per_level: f64, bits: f64) -> f64 {
    let threshold = ratio.ln() / LN_2_SQUARED / (ratio - 1.0);
    let unfiltered = if bits >= threshold { 0.0 } else { (threshold / bits).log(ratio).ceil() };
    let scale = ratio.powf(ratio / (ratio - 1.0)) / (ratio - 1.0);
    let filtered = scale * (-bits * LN_2_SQUARED * ratio.powf(unfiltered)).exp();
    runs_per_level * (unfiltered + filtered)
}

/// Full levels, the topmost first, each of `runs_per_level` runs.
fn levels(ratio: f64, count: i32, runs_per_level: u32) -> Vec<Run> {
    let keys = |level: i32| 1e9 * ratio.powi(level - count) / f64::from(runs_per_level);
    (0..count).flat_map(|level| (0..runs_per_level).map(move |_| (keys(level), 1.0))).collect()
}

fn bits_of(runs: &[Run], bits_per_key: f64) -> f64 {
    bits_per_key * runs.iter().map(|(keys, _)| keys).sum::<f64>()
}

#[track_caller]
fn assert_near(found: f64, expected: f64, most: f64) {
    let off = found / expected - 1.0;
    assert!(off.abs() < most, "{found}, expected {expected}: {off}");
}

#[test]
fn it_equals_the_closed_form_at_seven_levels() {
    for count in [7, 8, 9] {
        for bits in [0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0] {
            let leveled = levels(10.0, count, 1);
            let expected = monkey(10.0, 1.0, bits);
            assert_near(water_filling(&leveled, bits_of(&leveled, bits)), expected, 1e-4);
            assert_near(solved(&leveled, bits_of(&leveled, bits)), expected, 1e-4);
        }
    }
    // The same curve for nine runs on each level: each wastes as much as a leveled run.
    let tiered = levels(10.0, 7, 9);
    for bits in [1.0, 5.0, 10.0] {
        assert_near(water_filling(&tiered, bits_of(&tiered, bits)), monkey(10.0, 9.0, bits), 1e-4);
    }
}

#[test]
fn the_closed_form_is_off_where_levels_are_few() {
    let off = |ratio, count| {
        let runs = levels(ratio, count, 1);
        water_filling(&runs, bits_of(&runs, 10.0)) / monkey(ratio, 1.0, 10.0) - 1.0
    };
    assert!((0.005..0.012).contains(&off(10.0, 3).abs()), "{}", off(10.0, 3));
    assert!((0.10..0.16).contains(&off(2.0, 5).abs()), "{}", off(2.0, 5));
}

#[test]
fn it_equals_water_filling_on_any_tree() {
    let mut random = fastrand::Rng::with_seed(6);
    for _ in 0..200 {
        let tree = random_tree(&mut random, 10_000_000);
        let workload = Workload::new(random.f64()).unwrap();
        let runs: Vec<Run> = tree
            .tables()
            .zip(workload.visits(&tree))
            .map(|((_, table), visits)| ((table.keys * table.alike) as f64, visits.weight()))
            .filter(|(keys, weight)| *keys > 0.0 && *weight > 0.0)
            .collect();
        let bits = bits_of(&runs, 0.5 + 20.0 * random.f64());
        assert_near(solved(&runs, bits), water_filling(&runs, bits), 1e-4);
    }
}

#[test]
fn weights_follow_where_hits_lie() {
    let tree = tree(&[10, 90, 900]);
    let weights = |workload: Workload| -> Vec<f64> {
        workload.visits(&tree).iter().map(crate::Visits::weight).collect()
    };
    assert_eq!(weights(Workload::new(1.0).unwrap()), [1.0, 1.0, 1.0]);
    assert_eq!(weights(Workload::new(0.0).unwrap()), [0.99, 0.9, 0.0]);
    let measured = Workload::new(0.5).unwrap().with_hits(&[3.0, 1.0, 0.0, 7.0]).unwrap();
    assert_eq!(weights(measured), [0.625, 0.5, 0.5]);
    let cheap = Workload::new(1.0).unwrap().with_read_cost(1, 0.25).unwrap();
    assert_eq!(weights(cheap), [1.0, 0.25, 1.0]);
}
