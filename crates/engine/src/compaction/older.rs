//! Whether a tombstone may still have something to hide: could data older than a merge's inputs
//! lie outside it, below or beside?
//!
//! Plans leave nothing older at or above their output level, so only deeper levels should ever
//! answer. All places that could be older are asked nevertheless: a deleted key that reappears is
//! the classic bug of stores of this kind (leveldb 184, rocksdb 2722, badger 2143: level 0 merged
//! past a skipped level). They are: runs of level 0 older than the newest input, and all tables of
//! the start level and below, inputs excepted. Running merges need no place of their own, for
//! their inputs stay in the version until their outputs replace them.
//!
//! Called by the worker, with the version current when the merge starts.

use std::collections::HashSet;
use std::sync::Arc;

use crate::version::{LEVELS, TableFile, Version};

use super::plan::Plan;

/// The tables outside a merge that may hold data older than its inputs.
#[derive(Debug)]
pub(crate) struct OlderData {
    /// Runs of level 0, each on its own, and sorted runs of deeper levels.
    runs: Vec<Run>,
}

#[derive(Debug)]
struct Run {
    tables: Vec<Arc<TableFile>>,
    /// Tables before this one end before every key still to come.
    at: usize,
}

impl OlderData {
    /// What lies outside `plan` in `version`.
    pub(crate) fn new(version: &Version, plan: &Plan) -> Self {
        let inputs: HashSet<u64> = plan.tables().map(|table| table.number).collect();
        let is_outside = |table: &Arc<TableFile>| !inputs.contains(&table.number);
        let range = &plan.range;
        let mut runs = Vec::new();
        if plan.level == 0 {
            let level_0 = &version.levels[0];
            let newest_input = level_0.iter().position(|table| !is_outside(table)).unwrap_or(0);
            let older = level_0[newest_input..].iter().filter(|table| is_outside(table));
            let meets = |t: &&Arc<TableFile>| t.overlaps(&range.smallest, &range.largest);
            runs.extend(older.filter(meets).map(|t| Run { tables: vec![Arc::clone(t)], at: 0 }));
        }
        for level in plan.level.max(1)..LEVELS {
            let mut tables = version.overlapping(level, &range.smallest, &range.largest);
            tables.retain(is_outside);
            if !tables.is_empty() {
                runs.push(Run { tables, at: 0 });
            }
        }
        Self { runs }
    }

    /// Whether a table outside the merge may hold a version of `key`. Asked with ascending keys.
    ///
    /// `may_contain` may rule a table out whose key range holds the key, by its filter; it must
    /// never deny a key that is there.
    pub(crate) fn may_exist(
        &mut self,
        key: &[u8],
        mut may_contain: impl FnMut(&TableFile) -> bool,
    ) -> bool {
        self.runs.iter_mut().any(|run| {
            let passed = run.tables[run.at..].iter().take_while(|table| *table.largest < *key);
            run.at += passed.count();
            run.tables.get(run.at).is_some_and(|t| *t.smallest <= *key && may_contain(t))
        })
    }
}
