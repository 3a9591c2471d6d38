//! The cost of planning: plans, and steps of the planner, for many runs and many tables.

use std::sync::Arc;

use trommel_base::MAX_SEQNO;

use crate::version::{TableFile, Version};

use super::super::in_progress::InProgress;
use super::super::key_range::total_bytes;
use super::super::plan::{Planner, next_plan};
use super::{Rng, install, table};
use crate::compaction_options::CompactionOptions;

/// Runs, or tables of a level, of these bytes, with consecutive first keys; every key is in `deep`
/// of them.
fn tables(count: u64, bytes: u64, deep: u64) -> Vec<Arc<TableFile>> {
    let key = |nth: u64| format!("{nth:08}").into_bytes();
    let mut order: Vec<u64> = (0..count).collect();
    let mut rng = Rng(count);
    (1..order.len()).for_each(|at| order.swap(at, rng.below(at + 1)));
    let run = |(number, nth): (u64, u64)| {
        let first = nth / deep * 10;
        Arc::new(TableFile::new(table(number + 1, &key(first), &key(first + 5), bytes)))
    };
    let mut runs: Vec<_> = (0..).zip(order).map(run).collect();
    runs.reverse();
    runs
}

/// The number of plans until nothing is left to do, and their steps.
fn settle(mut version: Version) -> (u64, u64) {
    let (mut plans, mut steps) = (0, 0);
    let busy = InProgress::default();
    let options = CompactionOptions { waits_for_runs: false, ..CompactionOptions::default() };
    let mut number = 1_000_000;
    loop {
        let planner = Planner::new(&version, &busy, &options);
        let plan = next_plan(&planner, MAX_SEQNO);
        steps += planner.steps();
        let Some(plan) = plan else { return (plans, steps) };
        plans += 1;
        number += 1;
        let (smallest, largest) = (&plan.range.smallest, &plan.range.largest);
        let outputs = match plan.trivial_move {
            true => plan.upper.clone(),
            false => {
                let meta = table(number, smallest, largest, total_bytes(plan.tables()));
                vec![Arc::new(TableFile::new(meta))]
            }
        };
        version = install(&version, &plan, true, outputs);
    }
}

fn in_level(level: usize, tables: Vec<Arc<TableFile>>) -> Version {
    let mut version = Version::default();
    version.levels[level] = tables;
    if level > 0 {
        version.levels[level].sort_by(|a, b| a.smallest.cmp(&b.smallest));
    }
    version
}

/// Regression: 1,000, 2,000 and 4,000 disjoint runs took 5.7, 35 and more than 100 s: each plan
/// compared all with all, and took one of them.
#[test]
fn plans_for_many_runs_are_few_and_near_linear() {
    let small = 1 << 10;
    let large = 2 << 20;
    let cases = [(0, small, 1), (0, large, 1), (0, small, 2), (0, small, 4), (6, small, 1)];
    for (level, bytes, deep) in cases {
        let settled = |count| settle(in_level(level, tables(count, bytes, deep)));
        let found = [1_000, 2_000, 4_000].map(settled);
        let what = format!("{found:?} plans and steps: level {level}, {bytes} bytes, {deep} deep");
        for (plans, _) in found {
            assert!((1..=12).contains(&plans), "{what}");
        }
        // Sorting adds a logarithmic factor.
        assert!(found[2].1 < found[0].1 * 6, "{what}");
        assert!(found[2].1 < 4_000 * 100, "{what}");
    }
}
