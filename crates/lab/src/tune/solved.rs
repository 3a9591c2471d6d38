//! `solved=10/key`: the solver's filters by level, for a tree that is filled as planned. With a
//! policy in place of the number, `solved=L0=paired:14,L1-=paired:10`, the budget is the size of
//! that policy's filters on the tree.
//!
//! This is the result of a budget that is spent at once on a tree that no longer changes; the
//! engine's own `budget=10/key` spends it on tables as they are written.

use trommel::tuning::{
    self, ByLevel, Cost, Rules, Run, Table, Tree, TuningError, Visited, Visits, Workload,
};
use trommel::{FilterPolicy, FilterSpec};

use super::shape::{KEY_BYTES, Shape};

/// Approximate bytes of an entry in a table besides its key and value.
const ENTRY_BYTES: u64 = 8;

/// A budget for filters.
pub(super) enum Budget {
    /// This many bits per key.
    Bits(f64),
    /// The size of this policy's filters.
    As(FilterPolicy),
}

impl Budget {
    /// Parses `solved=...`; none for other texts.
    ///
    /// # Errors
    /// If the budget is invalid; the text gives the reason.
    pub(super) fn parse(text: &str) -> Option<Result<Self, String>> {
        let budget = text.strip_prefix("solved=")?;
        if budget.contains('=') {
            return Some(match budget.parse::<FilterPolicy>() {
                Ok(_) if budget.contains("budget=") => Err(format!(
                    "\"{text}\": a budget cannot be the policy here: write it as solved=10/key"
                )),
                Ok(policy) => Ok(Self::As(policy)),
                Err(error) => Err(error.to_string()),
            });
        }
        let bits = budget.strip_suffix("/key").and_then(|bits| bits.parse::<f64>().ok());
        let bits = bits.filter(|bits| (0.0..=64.0).contains(bits));
        let or = "or, for the bytes of a policy, as solved=L0-=paired:10";
        Some(bits.map(Self::Bits).ok_or_else(|| {
            format!("\"{text}\": write it as solved=10/key, for up to 64 bits per key, {or}")
        }))
    }

    fn bytes(&self, tree: &Tree) -> u64 {
        match self {
            Self::Bits(bits) => (tree.keys() as f64 * bits / 8.0) as u64,
            Self::As(policy) => {
                let deepest = tree.runs().iter().map(|run| run.level).max().unwrap_or(0);
                let of = |run: &Run| {
                    let spec = policy.for_level(run.level, run.level == deepest);
                    let bytes = |table: &Table| tuning::bytes(spec, table.keys) * table.alike;
                    run.tables.iter().map(bytes).sum::<u64>()
                };
                tree.runs().iter().map(of).sum()
            }
        }
    }
}

/// The policy of paired filters within a budget, on a filled tree where the fraction `misses` of
/// lookups finds nothing.
///
/// # Errors
/// If `misses` is not from 0 to 1.
pub(super) fn policy(tree: &Shape, misses: f64, budget: &Budget) -> Result<String, TuningError> {
    let runs = runs_of(tree)?;
    let mut tables = Vec::new();
    for ((level, table), all) in runs.tables().zip(Workload::new(misses)?.visits(&runs)) {
        let share = |of: f64| of / table.alike.max(1) as f64;
        let visits = Visits { in_vain: share(all.in_vain), hits: share(all.hits), ..all };
        let one = Visited { level, keys: table.keys, visits };
        tables.extend((0..table.alike).map(|_| one));
    }
    let plan = ByLevel::new(&Rules::default(), &tables).solve(budget.bytes(&runs))?;
    let entry = |(level, (spec, _)): (&usize, &(FilterSpec, Cost))| format!("L{level}={spec}");
    // Flushes write to level 0 first, whether or not the tree has runs there.
    let first = plan.levels.first_key_value().filter(|(level, _)| **level > 0);
    let level_0 = first.map(|(_, (spec, _))| format!("L0={spec}"));
    let entries: Vec<String> = level_0.into_iter().chain(plan.levels.iter().map(entry)).collect();
    Ok(entries.join(","))
}

/// Converts a filled tree for the solver.
fn runs_of(tree: &Shape) -> Result<Tree, TuningError> {
    let l0 = tree.l0.iter().map(|keys| Run::whole(0, *keys));
    let levels = (1..).zip(&tree.levels).map(|(level, keys)| level_of(tree, level, *keys));
    Tree::new(l0.chain(levels).collect())
}

/// A level as tables of the tree's size.
fn level_of(tree: &Shape, level: usize, keys: u64) -> Run {
    let bytes = keys.saturating_mul(KEY_BYTES as u64 + ENTRY_BYTES + tree.value_bytes);
    let tables = bytes.div_ceil(tree.table_bytes).clamp(1, keys.max(1));
    let reach = 1.0 / tables as f64;
    let table = Table { keys: keys / tables, bytes: bytes / tables, reach, alike: tables };
    Run { level, tables: vec![table] }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree() -> Shape {
        let (l0, levels) = Shape::filled(100_000, 10.0, &[1.0; 3], &[1.0, 0.5]).unwrap();
        Shape {
            name: "three".into(),
            l0,
            levels,
            grown: None,
            table_bytes: 1 << 20,
            value_bytes: 100,
            block_bytes: 4096,
        }
    }

    fn bits(budget: &str) -> Vec<f64> {
        let budget = Budget::parse(budget).unwrap().unwrap();
        let policy: FilterPolicy = policy(&tree(), 1.0, &budget).unwrap().parse().unwrap();
        (0..4).map(|level| policy.for_level(level, level == 3).bits_per_key()).collect()
    }

    #[test]
    fn upper_levels_get_more() {
        let bits = bits("solved=10/key");
        // The filters of level 0, of 100 and 50 keys, are few cache lines.
        assert!(bits.windows(2).all(|pair| pair[0] > pair[1] + 1.5), "{bits:?}");
        assert!((8.0..10.0).contains(&bits[3]), "{bits:?}");
    }

    #[test]
    fn a_policy_stands_for_its_bytes() {
        let tree = tree();
        let runs = runs_of(&tree).unwrap();
        let bytes = |policy: &str| Budget::As(policy.parse().unwrap()).bytes(&runs) as f64;
        for given in ["L0-=paired:10", "L0=blocked:14,L1-=paired:10,last=none", "L0-=none"] {
            let budget = Budget::parse(&format!("solved={given}")).unwrap().unwrap();
            let solved = policy(&tree, 1.0, &budget).unwrap();
            let (all, spent) = (bytes(given), bytes(&solved));
            assert!((0.98 * all..=all).contains(&spent), "{given}: {all}, {solved}: {spent}");
        }
        let few = bits("solved=L0=paired:14,L1-=paired:10,last=none");
        assert!(few[1] > few[2] && few[2] > few[3], "{few:?}");
        for wrong in ["solved=65/key", "solved=x", "solved=L0=x:3", "solved=budget=10/key"] {
            assert!(Budget::parse(wrong).unwrap().is_err(), "{wrong}");
        }
        assert!(Budget::parse("paired:10").is_none());
    }
}
