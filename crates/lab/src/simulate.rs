//! The cost and benefit of filters in a hypothetical store.
//!
//! 1. [`TreeShape`] determines the tree: levels, tables and keys, by the engine's own rule for the
//!    sizes of levels.
//! 2. Each policy determines the filter of each level; a budget is solved for the tree.
//! 3. The model ([`Cost`]) sums the filters' bytes, false positives and probes.
//!
//! Nothing is built or measured, so [`Simulation::assumptions`] are part of the result. Called by
//! `trommel tune simulate`.

mod shape;

use trommel::tuning::{Budget, Cost, Rules, Solver, Tree, TuningError, Workload};
use trommel::{FilterKind, FilterPolicy, FilterSpec};
use trommel_harness::{Error, units};

pub use shape::TreeShape;

/// A tree, and the cost of filter policies on it.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Simulation {
    /// The levels, from the top.
    pub levels: Vec<TreeLevel>,
    /// The policies, in the given order.
    pub policies: Vec<Simulated>,
    /// The assumptions behind the figures, in sentences.
    pub assumptions: Vec<String>,
}

/// A level of the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct TreeLevel {
    /// 0, or 1 for the first level below level 0 that holds data, and so on.
    pub level: usize,
    /// Number of sorted runs: several in level 0, one in every other level.
    pub runs: u64,
    /// Number of tables.
    pub tables: u64,
    /// Number of keys.
    pub keys: u64,
    /// Bytes of data.
    pub data_bytes: u64,
}

/// The cost of one policy.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Simulated {
    /// The policy's text, as given.
    pub policy: String,
    /// Bits of filters per key of the tree.
    pub bits_per_key: f64,
    /// The cost of one lookup in the whole tree.
    pub cost: Cost,
    /// Each level, from the top.
    pub levels: Vec<SimulatedLevel>,
}

/// The cost of one policy on one level.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct SimulatedLevel {
    /// As [`TreeLevel::level`].
    pub level: usize,
    /// The filter of the level's tables; if they differ, the mean of their bits.
    pub filter: String,
    /// Bits of filters per key, as stored in memory.
    pub bits_per_key: f64,
    /// The cost of one lookup in this level.
    pub cost: Cost,
}

/// Computes the cost of `policies` in a store of this `shape`, where the fraction `misses` of
/// lookups finds nothing. The cost of a wasted read is that of its level in `read_costs`, or 1 on
/// other levels. A policy is a [`FilterPolicy`], or a budget for [`Solver`], as in `budget=10/key`
/// or `budget=64MiB`.
///
/// # Errors
/// [`Error::Usage`] if a number is out of range, `read_costs` names a level that the tree does not
/// have, or a policy is invalid.
pub fn simulate(
    shape: &TreeShape,
    misses: f64,
    read_costs: &[(usize, f64)],
    policies: &[String],
) -> Result<Simulation, Error> {
    let tree = shape.tree().map_err(|error| usage(&error))?;
    let mut workload = Workload::new(misses).map_err(|error| usage(&error))?;
    let deepest = tree.runs().last().map_or(0, |run| run.level);
    for &(level, cost) in read_costs {
        if level > deepest {
            return Err(Error::Usage(format!(
                "a read cost is given for L{level}, but the deepest level of this tree is \
                 L{deepest}"
            )));
        }
        workload = workload.with_read_cost(level, cost).map_err(|error| usage(&error))?;
    }
    let policies = policies.iter().map(|text| {
        let filters = filters_of(text, &tree, &workload)?;
        simulated(text, &tree, &workload, &filters)
    });
    Ok(Simulation {
        policies: policies.collect::<Result<_, _>>()?,
        levels: levels_of(&tree),
        assumptions: assumptions(shape, misses, read_costs),
    })
}

fn usage(error: &TuningError) -> Error {
    Error::Usage(error.to_string())
}

fn levels_of(tree: &Tree) -> Vec<TreeLevel> {
    let mut levels: Vec<TreeLevel> = Vec::new();
    for run in tree.runs() {
        if levels.last().is_none_or(|last| last.level != run.level) {
            levels.push(TreeLevel { level: run.level, ..TreeLevel::default() });
        }
        let Some(level) = levels.last_mut() else { continue };
        level.runs += 1;
        for table in &run.tables {
            level.tables += table.alike;
            level.keys += table.keys * table.alike;
            level.data_bytes += table.bytes * table.alike;
        }
    }
    levels
}

/// The filter of each table of `tree` under the policy `text`.
fn filters_of(text: &str, tree: &Tree, workload: &Workload) -> Result<Vec<FilterSpec>, Error> {
    let is_budget = |part: &str| {
        let name = part.split('=').next().unwrap_or_default().trim();
        ["budget", "kinds", "misses"].contains(&name)
    };
    if text.split(',').any(is_budget) {
        let bytes = text.trim().strip_prefix("budget=").filter(|rest| !rest.contains(','));
        let bytes = bytes.ok_or_else(|| {
            Error::Usage(format!(
                "\"{text}\": here a budget takes no other settings, as in budget=10/key or \
                 budget=64MiB; it is solved for paired filters and this simulation's fraction of \
                 misses"
            ))
        })?;
        let budget = bytes.parse::<Budget>().map_err(|error| usage(&error))?;
        let plan = Solver::new(Rules::default()).solve(tree, workload, budget.bytes(tree.keys()));
        return Ok(plan.map_err(|error| usage(&error))?.filters);
    }
    let policy: FilterPolicy =
        text.parse().map_err(|error: trommel::Error| Error::Usage(error.to_string()))?;
    let last = tree.runs().last().map_or(0, |run| run.level);
    Ok(tree
        .tables()
        .map(|(level, _)| policy.for_level(level, level > 0 && level == last))
        .collect())
}

fn simulated(
    text: &str,
    tree: &Tree,
    workload: &Workload,
    filters: &[FilterSpec],
) -> Result<Simulated, Error> {
    let cost = Cost::of(tree, workload, filters).map_err(|error| usage(&error))?;
    let by_level = Cost::by_level(tree, workload, filters).map_err(|error| usage(&error))?;
    let levels = by_level.into_iter().map(|(level, cost)| {
        let tables = tree.tables().zip(filters).filter(|((other, _), _)| *other == level);
        let tables: Vec<(u64, FilterSpec)> =
            tables.map(|((_, table), spec)| (table.keys * table.alike, *spec)).collect();
        let keys = tables.iter().map(|(keys, _)| keys).sum();
        let bits_per_key = bits(cost.filter_bytes, keys);
        SimulatedLevel { level, filter: in_words(&tables), bits_per_key, cost }
    });
    Ok(Simulated {
        policy: text.to_owned(),
        bits_per_key: bits(cost.filter_bytes, tree.keys()),
        levels: levels.collect(),
        cost,
    })
}

fn bits(bytes: u64, keys: u64) -> f64 {
    if keys == 0 { 0.0 } else { bytes as f64 * 8.0 / keys as f64 }
}

/// Describes the filters of tables, each with its number of keys: the filter that they share, or
/// the mean of their bits.
fn in_words(tables: &[(u64, FilterSpec)]) -> String {
    let all: u64 = tables.iter().map(|(keys, _)| keys).sum();
    let bits: f64 =
        tables.iter().map(|(keys, spec)| *keys as f64 * spec.bits_per_key()).sum::<f64>();
    match tables.iter().find(|(_, spec)| spec.kind() != FilterKind::None) {
        None => FilterKind::None.name().to_owned(),
        Some((_, first)) if tables.iter().all(|(_, spec)| spec == first) => first.to_string(),
        Some((_, first)) => format!("{}:{:.1}", first.kind().name(), bits / all as f64),
    }
}

fn assumptions(shape: &TreeShape, misses: f64, read_costs: &[(usize, f64)]) -> Vec<String> {
    let percent = 100.0 * misses;
    let costs: Vec<String> =
        read_costs.iter().map(|(level, cost)| format!("{cost} on L{level}")).collect();
    let costs = match costs.is_empty() {
        true => "a wasted read costs the same on every level".to_owned(),
        false => format!("a wasted read costs {}, and 1 on other levels", costs.join(", ")),
    };
    vec![
        "every key is written once, in random order, and nothing is deleted; obsolete versions and \
         tombstones that are not compacted away yet come on top"
            .to_owned(),
        format!(
            "an entry takes {} bytes of key, {} of value and {} of overhead in a table, times {} \
             for compression",
            shape.key_bytes, shape.value_bytes, shape.overhead_bytes, shape.compressed
        ),
        format!(
            "level 0 has {} runs, each of one full memtable; the memtables are empty, and no \
             compaction is pending",
            shape.l0_runs
        ),
        format!(
            "each level is {} times larger than the one above, from {} on; all between the topmost \
             and the last are full",
            shape.level_ratio,
            units::bytes(shape.base_level_bytes)
        ),
        "each run covers all keys; if one does not, for example during a compaction, lookups \
         outside its range query no filter there and waste less"
            .to_owned(),
        format!(
            "{percent}% of lookups miss, within the range of the stored keys; the others find \
             every key equally often"
        ),
        format!("filters have the exact rates of their kinds and are all in memory; {costs}"),
    ]
}

#[cfg(test)]
mod tests {
    /// A cost on a level that does not exist used to be ignored silently.
    #[test]
    fn a_cost_on_a_missing_level_is_rejected() {
        let shape = TreeShape { keys: 100_000, ..TreeShape::default() };
        let policies = [String::from("paired:10")];
        let deepest = simulate(&shape, 1.0, &[], &policies).unwrap().levels.last().unwrap().level;
        assert!(simulate(&shape, 1.0, &[(deepest, 0.5)], &policies).is_ok());
        let error = simulate(&shape, 1.0, &[(9, 0.5)], &policies).unwrap_err().to_string();
        assert!(error.contains("L9") && error.contains(&format!("L{deepest}")), "{error}");
    }

    use std::env;

    use trommel::{Compression, Db, Options};
    use trommel_harness::ScratchDir;

    use super::*;

    fn texts(policies: &[&str]) -> Vec<String> {
        policies.iter().map(|&text| text.to_owned()).collect()
    }

    #[test]
    fn a_budget_wastes_less_than_the_same_bytes_spread_evenly() {
        let shape = TreeShape { keys: 1_000_000_000, value_bytes: 256, ..TreeShape::default() };
        let policies =
            texts(&["paired:10", "L0=paired:20,L1-=paired:12,last=none", "budget=10/key"]);
        let simulation = simulate(&shape, 1.0, &[], &policies).unwrap();
        let keys: u64 = simulation.levels.iter().map(|level| level.keys).sum();
        assert_eq!(keys, 1_000_000_000);
        let [even, bare, solved] = &simulation.policies[..] else { panic!("three were requested") };
        assert!((9.99..=10.01).contains(&even.bits_per_key), "{even:?}");
        assert!(solved.bits_per_key <= 10.0);
        assert!(solved.cost.wasted_reads < even.cost.wasted_reads / 2.0, "{solved:?}");
        // An unfiltered last level costs one read per miss.
        assert!((1.0..1.1).contains(&bare.cost.wasted_reads), "{bare:?}");
        assert_eq!(bare.levels.last().unwrap().filter, "none");
        assert_eq!(even.levels[0].filter, "paired:10");
        let parts: f64 = solved.levels.iter().map(|level| level.cost.wasted_reads).sum();
        assert!((parts - solved.cost.wasted_reads).abs() < 1e-12);
        // If all lookups hit, the last level's filter saves nothing.
        let hits = simulate(&shape, 0.0, &[], &policies).unwrap();
        assert!(hits.policies[1].cost.wasted_reads < hits.policies[0].cost.wasted_reads);
    }

    #[test]
    fn bytes_go_where_reads_are_dear() {
        let shape = TreeShape { keys: 1_000_000_000, value_bytes: 256, ..TreeShape::default() };
        let policy = texts(&["budget=10/key"]);
        let with = |costs: &[(usize, f64)]| simulate(&shape, 1.0, costs, &policy).unwrap();
        let of = |simulation: &Simulation, level: usize| {
            simulation.policies[0].levels[level].bits_per_key
        };
        let alike = with(&[]);
        let cost = alike.policies[0].cost;
        assert_eq!(cost.wasted_cost, cost.wasted_reads);
        // The cache serves nine of ten reads of level 3, and all of level 1.
        let cached = with(&[(3, 0.1), (1, 0.0)]);
        assert!(of(&cached, 3) < of(&alike, 3) - 3.0, "{cached:?}");
        assert!(of(&cached, 1) == 0.0 && of(&alike, 1) > 20.0, "{cached:?}");
        let cost = cached.policies[0].cost;
        assert!(cost.wasted_reads > 1.0 && cost.wasted_cost < alike.policies[0].cost.wasted_cost);
        let said = cached.assumptions.last().unwrap();
        assert!(said.contains("costs 0.1 on L3, 0 on L1, and 1 on other levels"), "{said}");
        for wrong in [(0, -1.0), (0, f64::NAN), (0, 1e13), (1001, 1.0)] {
            assert!(simulate(&shape, 1.0, &[wrong], &policy).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn invalid_input_is_rejected_with_a_valid_example() {
        let shape = TreeShape::default();
        let error = |shape: &TreeShape, misses, policy: &str| {
            simulate(shape, misses, &[], &texts(&[policy])).unwrap_err().to_string()
        };
        assert!(error(&shape, 1.5, "paired:10").contains("0 to 1"));
        assert!(error(&shape, 1.0, "paired").contains("for example"));
        assert!(error(&shape, 1.0, "budget=much").contains("as in 10/key"));
        assert!(error(&shape, 1.0, "misses=1,budget=10/key").contains("no other settings"));
        assert!(error(&TreeShape { level_ratio: 1, ..shape }, 1.0, "none").contains("2 to 1000"));
    }

    #[test]
    fn no_keys_make_no_tree() {
        let none = TreeShape { keys: 0, ..TreeShape::default() };
        let simulation = simulate(&none, 1.0, &[], &texts(&["paired:10", "budget=1MiB"])).unwrap();
        assert!(simulation.levels.is_empty());
        assert!(simulation.policies.iter().all(|policy| policy.cost == Cost::default()));
    }

    /// The tree of a store that received all keys of `shape`, each once, in random order, after
    /// compaction.
    fn grown(shape: &TreeShape) -> Vec<TreeLevel> {
        let scratch = ScratchDir::new(&env::temp_dir()).unwrap();
        let options = Options::default()
            .compression(Compression::None)
            .writes(|w| w.write_buffer_bytes(shape.write_buffer_bytes as usize).log(false))
            .compaction(|c| {
                c.table_bytes(shape.table_bytes)
                    .base_level_bytes(shape.base_level_bytes)
                    .level_ratio(shape.level_ratio as u32)
            })
            .background_threads(0);
        let db = Db::open(scratch.path().join("db"), options).unwrap();
        let mut order: Vec<u64> = (0..shape.keys).collect();
        fastrand::Rng::with_seed(1).shuffle(&mut order);
        let value = vec![7; shape.value_bytes as usize];
        for key in order {
            db.put(format!("{key:016}"), &value).unwrap();
        }
        db.flush().unwrap();
        db.wait_idle().unwrap();
        let levels = db.stats().levels.into_iter().map(|level| TreeLevel {
            level: level.level,
            runs: if level.level == 0 { level.tables } else { 1 },
            tables: level.tables,
            keys: level.entries,
            data_bytes: level.bytes,
        });
        let levels = levels.collect();
        db.close().unwrap();
        levels
    }

    /// Keys of the levels below level 0 are within 20%, of the last within 5%, tables within a
    /// quarter. The topmost level empties and fills with compactions, so it may be off by half.
    /// Level 0 holds at most the predicted number, because the last memtable was not full.
    #[test]
    fn trees_are_those_of_real_stores() {
        let off = |simulated: u64, real: u64| (simulated as f64 / real as f64 - 1.0).abs();
        // The second number of keys is between the one that opens a third level, and the one that
        // did while the base level could not grow.
        for keys in [20_000, 30_000, 100_000] {
            let shape = TreeShape {
                keys,
                write_buffer_bytes: 128 << 10,
                table_bytes: 128 << 10,
                base_level_bytes: 512 << 10,
                level_ratio: 5,
                ..TreeShape::default()
            };
            let real = grown(&shape);
            let runs = real.first().filter(|level| level.level == 0).map_or(0, |level| level.runs);
            let simulated =
                simulate(&TreeShape { l0_runs: runs, ..shape }, 1.0, &[], &[]).unwrap().levels;
            assert_eq!(real.len(), simulated.len(), "{real:?}\n{simulated:?}");
            for (real, simulated) in real.iter().zip(&simulated) {
                assert_eq!((real.level, real.runs), (simulated.level, simulated.runs), "{real:?}");
                let keys = off(simulated.keys, real.keys);
                let most = match real.level {
                    0 => {
                        assert!(real.keys <= simulated.keys, "{real:?} {simulated:?}");
                        continue;
                    }
                    1 => 0.5,
                    2 => 0.2,
                    _ => 0.05,
                };
                assert!(keys <= most, "{real:?} {simulated:?}");
                assert!(off(simulated.tables, real.tables) <= 0.25, "{real:?} {simulated:?}");
            }
        }
    }
}
