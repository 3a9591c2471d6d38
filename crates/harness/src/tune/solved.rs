//! `solved=10/key`: the filters that the solver gives a tree that is full as planned, by level.
//!
//! It is what a budget comes to when it is spent at once on a tree that does not change any more; the
//! engine's own `budget=10/key` spends it on tables as they come.

use trommel::FilterSpec;
use trommel::tuning::{Run, Solver, Table, Tree, TuningError, Workload};

use super::shape::{KEY_BYTES, Shape};

/// Bytes of an entry in a table beside its key and value, roughly.
const ENTRY_BYTES: u64 = 8;

/// The bits per key of `solved=10/key`; none for other texts.
pub(super) fn bits(text: &str) -> Option<&str> {
    text.strip_prefix("solved=")?.strip_suffix("/key")
}

/// The policy of so many bits per key, of paired filters, on a filled tree of which `misses` of all
/// lookups find nothing.
///
/// # Errors
/// The share of misses is not from 0 to 1.
pub(super) fn policy(tree: &Shape, misses: f64, bits: f64) -> Result<String, TuningError> {
    let l0 = tree.l0.iter().map(|keys| Run::whole(0, *keys));
    let levels = (1..).zip(&tree.levels).map(|(level, keys)| level_of(tree, level, *keys));
    let runs = Tree::new(l0.chain(levels).collect())?;
    let budget = (runs.keys() as f64 * bits / 8.0) as u64;
    let plan = Solver::default().solve(&runs, &Workload::new(misses)?, budget)?;
    let mut entries = Vec::new();
    // A policy has one filter for all runs of level 0: their mean.
    let (of_l0, of_levels) = plan.filters.split_at(tree.l0.len());
    if !of_l0.is_empty() {
        let bits: f64 =
            of_l0.iter().zip(&tree.l0).map(|(spec, keys)| spec.bits_per_key() * *keys as f64).sum();
        let keys: u64 = tree.l0.iter().sum();
        entries.push(format!("L0={}", paired(bits / keys as f64)));
    }
    for (level, spec) in (1..).zip(of_levels) {
        entries.push(format!("L{level}={spec}"));
    }
    Ok(entries.join(","))
}

/// A level as tables of the size that the tree's have.
fn level_of(tree: &Shape, level: usize, keys: u64) -> Run {
    let bytes = keys.saturating_mul(KEY_BYTES as u64 + ENTRY_BYTES + tree.value_bytes);
    let tables = bytes.div_ceil(tree.table_bytes).clamp(1, keys.max(1));
    let reach = 1.0 / tables as f64;
    let table = Table { keys: keys / tables, bytes: bytes / tables, reach, alike: tables };
    Run { level, tables: vec![table] }
}

/// A paired filter of so many bits per key, or none where that is too few for one.
fn paired(bits: f64) -> String {
    let spec = format!("paired:{bits:.3}").parse::<FilterSpec>();
    spec.unwrap_or(FilterSpec::NONE).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn upper_levels_get_more() {
        let (l0, levels) = Shape::filled(100_000, 10.0, &[1.0; 3], &[1.0, 0.5]).unwrap();
        let tree = Shape {
            name: "three".into(),
            l0,
            levels,
            grown: None,
            table_bytes: 1 << 20,
            value_bytes: 100,
            block_bytes: 4096,
        };
        let policy: trommel::FilterPolicy = policy(&tree, 1.0, 10.0).unwrap().parse().unwrap();
        let bits: Vec<f64> =
            (0..4).map(|level| policy.for_level(level, level == 3).bits_per_key()).collect();
        assert!(bits.windows(2).all(|pair| pair[0] > pair[1] + 3.0), "{bits:?}");
        assert!((8.0..10.0).contains(&bits[3]), "{bits:?}");
    }
}
