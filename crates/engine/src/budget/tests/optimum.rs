//! The engine's choice under a budget, compared with the optimum for the same bytes.
//!
//! 1. A tree is generated: keys for each level, in the whole key space or a part of it, divided
//!    into tables of one size or of many. The engine gets its tables as a version.
//! 2. The probability that a lookup reaches a table is counted from the keys themselves: the share
//!    of all keys in its range. So the solver gets the exact tree, table by table, while the engine
//!    solves levels and estimates ranges.
//! 3. The engine chooses: for all tables at once, as for its report and its rebuilds
//!    (`Engine::planned_by_budget`); and for one job after the other, as for flushes and
//!    compactions (`Engine::choose_by_budget`), each of which writes a few tables while the others
//!    stay.
//! 4. The wasted reads of its filters are compared with those of the solver's own filters, within
//!    the bytes that the engine's filters take: it may spend less than the budget, because it
//!    reserves room for the memory overhead of filters, for rounding, and, with automatic
//!    compaction, for runs and levels that fill.

use std::sync::Arc;

use fastrand::Rng;
use trommel_filter::FilterSpec;
use trommel_tuning::{Cost, Run, Solver, Table, Tree, Workload, bytes, rate};

use super::{in_memory, options};
use crate::Db;
use crate::compaction::key_range::KeyBounds;
use crate::filter_policy::FilterBudget;
use crate::levels::LEVELS;
use crate::purpose::{MemtableShare, Purpose};
use crate::user_filters::FilterReason;
use crate::version::logical_level;
use crate::version::{FilterMeta, TableFile, TableMeta, Version};

/// How much more than the optimum the engine's choice may waste.
const WITHIN: f64 = 1.05;

/// The keys of a level, and its tables.
#[derive(Debug, Clone)]
struct Level {
    keys: u64,
    /// Average keys of a table.
    of_table: u64,
    /// Whether tables have from one fifth to nine fifths of that.
    is_uneven: bool,
    /// Its part of the key space.
    from: f64,
    to: f64,
}

/// A tree to be generated: runs of level 0, newest first, and levels.
#[derive(Debug, Clone)]
struct Sketch {
    runs: Vec<Level>,
    levels: Vec<Level>,
}

fn whole(keys: u64, of_table: u64) -> Level {
    Level { keys, of_table, is_uneven: false, from: 0.0, to: 1.0 }
}

impl Sketch {
    fn even(runs: &[u64], levels: &[(u64, u64)]) -> Self {
        let runs = runs.iter().map(|&keys| whole(keys, keys)).collect();
        Self { runs, levels: levels.iter().map(|&(keys, each)| whole(keys, each)).collect() }
    }

    /// A random tree of one to four levels below level 0 and up to six runs, with tables of a
    /// thousand to thirty thousand keys if it has that many.
    fn drawn(rng: &mut Rng) -> Self {
        let between = |rng: &mut Rng, low: f64, high: f64| low * (high / low).powf(rng.f64());
        let part = |rng: &mut Rng, level: Level| {
            let is_part = rng.u8(..4) == 0;
            let from = if is_part { rng.f64() * 0.7 } else { 0.0 };
            let to = if is_part { from + (1.0 - from) * (0.1 + 0.9 * rng.f64()) } else { 1.0 };
            Level { from, to, is_uneven: rng.bool(), ..level }
        };
        let mut keys = between(rng, 2e4, 2e5);
        let of_table = between(rng, 1e3, 3e4) as u64;
        let mut levels = Vec::new();
        for depth in 0..rng.usize(1..=4) {
            let level = whole(keys as u64, of_table.min(keys as u64));
            // The last level has keys everywhere, because all keys end there.
            levels.insert(0, if depth == 0 { level } else { part(rng, level) });
            keys /= between(rng, 2.0, 12.0);
            if keys < 1e3 {
                break;
            }
        }
        let runs = (0..rng.usize(..=6)).map(|_| {
            let keys = (keys * (0.3 + rng.f64())).max(500.0) as u64;
            part(rng, whole(keys, keys))
        });
        Self { runs: runs.collect(), levels }
    }

    /// A tree of two to four tables of a hundred to three thousand keys.
    fn small(rng: &mut Rng) -> Self {
        let mut keys = |most: u64| whole(rng.u64(100..most), u64::MAX);
        let runs = (0..2).map(|_| keys(1_000)).collect::<Vec<_>>();
        let levels = vec![keys(1_500), keys(3_000)];
        let (runs, levels) = match rng.u8(..3) {
            0 => (runs, levels),
            1 => (runs[..1].to_vec(), levels),
            _ => (Vec::new(), levels),
        };
        Self { runs, levels }
    }
}

/// A version, and the same tree for the solver.
struct Grown {
    version: Version,
    tree: Tree,
}

fn table(number: u64, level: usize, keys: &[u64]) -> Arc<TableFile> {
    let key = |key: &u64| key.swap_bytes().to_le_bytes().into();
    Arc::new(TableFile::new(TableMeta {
        number,
        table_id: number,
        file_bytes: keys.len() as u64 * 100,
        smallest: keys.first().map(key).unwrap(),
        largest: keys.last().map(key).unwrap(),
        min_seqno: 1,
        max_seqno: 2,
        entries: keys.len() as u64,
        deletions: 0,
        keys: keys.len() as u64,
        filters: FilterMeta { bytes: 0, built_for: level as u8, sidecar: None },
        ranges_applied: 0,
    }))
}

impl Level {
    /// Its keys, table by table.
    fn grow(&self, rng: &mut Rng) -> Vec<Vec<u64>> {
        let key = |at: f64| ((self.from + (self.to - self.from) * at) * u64::MAX as f64) as u64;
        let mut keys: Vec<u64> = (0..self.keys).map(|_| key(rng.f64())).collect();
        keys.sort_unstable();
        keys.dedup();
        let mut tables = Vec::new();
        while !keys.is_empty() {
            let part = if self.is_uneven { 0.2 + 1.6 * rng.f64() } else { 1.0 };
            let next = ((self.of_table as f64 * part) as usize).clamp(1, keys.len());
            let rest = keys.split_off(next);
            tables.push(std::mem::replace(&mut keys, rest));
        }
        tables
    }
}

impl Grown {
    fn of(sketch: &Sketch, rng: &mut Rng) -> Self {
        let runs: Vec<Vec<Vec<u64>>> = sketch.runs.iter().map(|run| run.grow(rng)).collect();
        let levels: Vec<Vec<Vec<u64>>> = sketch.levels.iter().map(|run| run.grow(rng)).collect();
        let mut all: Vec<u64> = runs.iter().chain(&levels).flatten().flatten().copied().collect();
        all.sort_unstable();
        all.dedup();
        let as_it_is = |keys: &Vec<u64>| {
            let (first, last) = (keys[0], keys[keys.len() - 1]);
            let from = all.partition_point(|key| *key < first);
            let to = all.partition_point(|key| *key <= last);
            let reach = (to - from) as f64 / all.len() as f64;
            Table { keys: keys.len() as u64, bytes: 0, reach, alike: 1 }
        };
        let mut version = Version::default();
        let mut tree = Vec::new();
        let mut number = 0;
        let mut new = |level: usize, keys: &Vec<u64>| {
            number += 1;
            table(number, level, keys)
        };
        for run in &runs {
            // A run of level 0 is one table.
            let keys: Vec<u64> = run.concat();
            version.levels[0].push(new(0, &keys));
            tree.push(Run { level: 0, tables: vec![as_it_is(&keys)] });
        }
        let first = LEVELS - levels.len();
        for (nth, run) in levels.iter().enumerate() {
            version.levels[first + nth] = run.iter().map(|keys| new(nth + 1, keys)).collect();
            tree.push(Run { level: nth + 1, tables: run.iter().map(as_it_is).collect() });
        }
        Self { version, tree: Tree::new(tree).unwrap() }
    }

    fn tables(&self) -> u64 {
        self.version.tables().count() as u64
    }
}

/// An empty store with this budget.
fn store(filters: &str, compacts: bool) -> Db {
    let options = options(&in_memory(), filters).compaction(|c| c.auto_compaction(compacts));
    Db::open(super::DIR, options).unwrap()
}

/// The engine's plan for all tables, in the tree's order.
fn planned(db: &Db, grown: &Grown) -> Vec<FilterSpec> {
    let planned = db.engine().planned_by_budget(&grown.version, |_, _| true).unwrap();
    grown.version.tables().map(|(_, table)| planned[&table.number]).collect()
}

/// The choices of jobs that rewrite all tables three times, up to `together` of a level at a time.
fn chosen_by_jobs(db: &Db, grown: &Grown, together: usize) -> Vec<FilterSpec> {
    let engine = db.engine();
    let options = engine.options.load();
    let budget = options.filters.budget().unwrap();
    let mut version = grown.version.clone();
    let mut specs = std::collections::HashMap::new();
    for _ in 0..3 {
        for level in (0..LEVELS).rev() {
            let at_a_time = if level == 0 { 1 } else { together };
            for from in (0..version.levels[level].len()).step_by(at_a_time) {
                let to = (from + at_a_time).min(version.levels[level].len());
                let written = &version.levels[level][from..to];
                let keys: u64 = written.iter().map(|table| table.keys).sum();
                let mut inputs: Vec<u64> = written.iter().map(|table| table.number).collect();
                inputs.sort_unstable();
                let purpose = Purpose {
                    reason: FilterReason::Compaction,
                    keys,
                    deletions: 0,
                    own: MemtableShare::default(),
                    expected_keys: keys.div_ceil(written.len() as u64),
                    inputs,
                    span: KeyBounds::hull(written),
                };
                let choice = engine.choose_by_budget(budget, &version, level, &purpose);
                for table in &mut version.levels[level][from..to] {
                    let spec = choice.of(table.number);
                    let filter_bytes = bytes(spec, table.keys);
                    let mut meta = table.meta().clone();
                    meta.filters.bytes = filter_bytes;
                    specs.insert(table.number, spec);
                    *table = Arc::new(TableFile::new(meta));
                }
            }
        }
    }
    grown.version.tables().map(|(_, table)| specs[&table.number]).collect()
}

/// The solver for the rules of `budget` and this version, and its workload.
fn solver(db: &Db, budget: &FilterBudget, version: &Version) -> (Solver, Workload) {
    let deepest = (0..LEVELS).rev().find(|level| !version.levels[*level].is_empty()).unwrap();
    let last = logical_level(version, deepest).0;
    let misses = db.engine().misses(budget).share;
    (Solver::new(budget.rules(last, true)), Workload::new(misses).unwrap())
}

/// How the filters of a tree compare with the optimum.
#[derive(Debug)]
struct Compared {
    /// Wasted reads relative to those of the solver's filters within the same bytes.
    excess: f64,
    /// Bytes of memory of these filters, and the budget.
    takes: u64,
    limit: u64,
}

fn compare(db: &Db, grown: &Grown, filters: &[FilterSpec]) -> Compared {
    let options = db.engine().options.load();
    let budget = options.filters.budget().unwrap();
    let (solver, workload) = solver(db, budget, &grown.version);
    let cost = Cost::of(&grown.tree, &workload, filters).unwrap();
    let best = solver.solve(&grown.tree, &workload, cost.filter_bytes).unwrap();
    let built = filters.iter().filter(|spec| **spec != FilterSpec::NONE).count() as u64;
    Compared {
        excess: cost.wasted_cost / best.cost.wasted_cost,
        takes: cost.filter_bytes + built * trommel_sstable::FILTER_OVERHEAD_BYTES,
        limit: budget.budget().bytes(grown.version.valued_keys()),
    }
}

/// Budgets and workloads, used in turn.
const BUDGETS: [&str; 8] = [
    "budget=10/key,misses=1",
    "budget=5/key,misses=0.3",
    "budget=16/key",
    "budget=24/key,misses=0.1",
    "budget=8/key,misses=0.9,kinds=blocked|paired",
    "budget=64KiB,misses=0.7",
    "budget=10/key,misses=1,kinds=ribbon",
    "budget=7/key,misses=0.5,kinds=ribbon|paired",
];

/// Typical trees, and some random ones.
fn trees() -> Vec<Sketch> {
    let mut trees = vec![
        Sketch::even(&[], &[(100_000, 5_000)]),
        Sketch::even(&[1_000; 4], &[(100_000, 5_000)]),
        Sketch::even(&[1_000; 8], &[(9_000, 3_000), (90_000, 3_000)]),
        Sketch::even(&[], &[(200, 200), (2_000, 2_000), (20_000, 2_000), (200_000, 2_000)]),
        Sketch::even(&[5_000, 20_000, 500], &[(30_000, 30_000)]),
        Sketch::even(&[300; 20], &[(50_000, 2_000)]),
    ];
    let mut rng = Rng::with_seed(6);
    trees.extend((0..24).map(|_| Sketch::drawn(&mut rng)));
    trees
}

/// With at least this many keys per table, on average, jobs that share a budget come as near to the
/// optimum as a plan for all tables. With smaller tables, one more cache line for each soon exceeds
/// the reserve, at the expense of what a job writes last: [`AMONG_SMALL`] was measured with tables
/// of 1,300 keys.
const NOT_SMALL: u64 = 2_000;
const AMONG_SMALL: f64 = 1.2;
/// A step of a ribbon filter is one bit per key of its table, and few tables cannot share such
/// steps evenly.
const OF_RIBBONS: f64 = 1.12;

#[test]
fn plans_waste_no_more_than_the_optimum() {
    let mut rng = Rng::with_seed(1);
    let mut worst = [1.0_f64; 3];
    for (nth, sketch) in trees().iter().enumerate() {
        let grown = Grown::of(sketch, &mut rng);
        for turn in 0..3 {
            let filters = BUDGETS[(nth + 2 * turn) % BUDGETS.len()];
            let db = store(filters, turn > 0);
            let at_once = compare(&db, &grown, &planned(&db, &grown));
            let by_jobs = compare(&db, &grown, &chosen_by_jobs(&db, &grown, 4));
            println!("{nth} {filters}: {} tables: {at_once:?} {by_jobs:?}", grown.tables());
            let is_small = grown.version.valued_keys() < NOT_SMALL * grown.tables();
            let of_jobs = if is_small { 2 } else { 1 };
            worst[0] = worst[0].max(at_once.excess);
            worst[of_jobs] = worst[of_jobs].max(by_jobs.excess);
            let of_kind = if filters.contains("ribbon") { OF_RIBBONS } else { WITHIN };
            assert!(at_once.excess <= of_kind, "{filters}: {at_once:?}, {sketch:?}");
            let most = if is_small { AMONG_SMALL } else { of_kind };
            assert!(by_jobs.excess <= most, "{filters}, job by job: {by_jobs:?}, {sketch:?}");
            // Except for the fraction that rounding takes in small tables.
            assert!(
                by_jobs.takes * 99 <= by_jobs.limit * 100,
                "{filters}: {by_jobs:?}, {sketch:?}"
            );
        }
    }
    println!("{worst:?} at most: at once, job by job, and that of small tables");
}

/// Possible filter sizes of a table, with their rates: one for each number of cache lines.
fn sizes(solver: &Solver, level: usize, keys: u64) -> Vec<(u64, f64)> {
    let rule = solver.rules().of(level);
    let mut sizes = vec![(0, 1.0)];
    for &kind in rule.kinds() {
        let bits = (10..=800).map(|step| f64::from(step) / 20.0).filter(|bits| *bits <= rule.cap());
        let specs = bits.map(|bits| FilterSpec::new(kind, bits).unwrap());
        sizes.extend(specs.map(|spec| (bytes(spec, keys), rate(spec, keys))));
    }
    sizes.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
    let mut best = f64::INFINITY;
    sizes.retain(|(_, rate)| {
        let is_better = *rate < best;
        best = best.min(*rate);
        is_better
    });
    sizes
}

/// The fewest wasted reads of any choice of sizes within `room` bytes.
fn brute_force(tables: &[(f64, Vec<(u64, f64)>)], room: u64) -> f64 {
    let ((weight, sizes), rest) = tables.split_first().unwrap();
    let fitting = &sizes[..sizes.partition_point(|(bytes, _)| *bytes <= room)];
    if rest.is_empty() {
        return weight * fitting.last().unwrap().1;
    }
    let cost = |&(bytes, rate): &(u64, f64)| weight * rate + brute_force(rest, room - bytes);
    fitting.iter().map(cost).fold(f64::INFINITY, f64::min)
}

#[test]
fn plans_of_small_trees_match_brute_force() {
    let mut rng = Rng::with_seed(2);
    let mut worst = 1.0_f64;
    for nth in 0..24 {
        let grown = Grown::of(&Sketch::small(&mut rng), &mut rng);
        for spec in &BUDGETS[..4] {
            let db = store(spec, nth % 2 == 0);
            let filters = planned(&db, &grown);
            let compared = compare(&db, &grown, &filters);
            let options = db.engine().options.load();
            let budget = options.filters.budget().unwrap();
            let (solver, workload) = solver(&db, budget, &grown.version);
            let cost = Cost::of(&grown.tree, &workload, &filters).unwrap();
            let visits = workload.visits(&grown.tree);
            let tables: Vec<_> = grown
                .tree
                .tables()
                .zip(&visits)
                .map(|((level, table), visits)| {
                    (visits.weight(), sizes(&solver, level, table.keys))
                })
                .collect();
            let best = brute_force(&tables, cost.filter_bytes);
            let excess = cost.wasted_cost / best;
            worst = worst.max(excess);
            assert!(
                excess <= WITHIN,
                "{spec}: {filters:?}, {compared:?}, beside all choices {excess}"
            );
        }
    }
    println!("{worst} at most");
}
