//! Whether a tombstone may still hide something: could data older than a compaction's inputs exist
//! outside them?
//!
//! Plans leave nothing older at or above their output level, so only deeper levels should ever
//! match. Every place that could hold older data is checked nevertheless: a deleted key that
//! reappears is the classic bug of LSM-trees (leveldb 184, rocksdb 2722, badger 2143: level 0
//! merged past a skipped level). These are the runs of level 0 older than the newest input, and all
//! tables of the start level and below, except the inputs. Running compactions need no check of
//! their own, because their inputs stay in the version until their outputs replace them.
//!
//! Called by the worker, with the version that is current when a slice begins, or when a helper
//! starts on a subrange.

use std::collections::HashSet;
use std::sync::Arc;

use crate::levels::LEVELS;
use crate::version::{TableFile, Version};

use super::plan::Plan;

/// The tables outside a compaction that may hold data older than its inputs.
#[derive(Debug)]
pub(crate) struct OlderData {
    /// Single runs of level 0, and sorted runs of deeper levels.
    runs: Vec<OlderRun>,
}

#[derive(Debug)]
struct OlderRun {
    tables: Vec<Arc<TableFile>>,
    /// Tables before this one end before every key still to come.
    at: usize,
}

impl OlderData {
    /// The tables of `version` outside `plan`.
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
            runs.extend(
                older.filter(meets).map(|t| OlderRun { tables: vec![Arc::clone(t)], at: 0 }),
            );
        }
        for level in plan.level.max(1)..LEVELS {
            let mut tables = version.overlapping(level, &range.smallest, &range.largest);
            tables.retain(is_outside);
            if !tables.is_empty() {
                runs.push(OlderRun { tables, at: 0 });
            }
        }
        Self { runs }
    }

    /// Whether a table outside the compaction may hold a version of `key`. Called with ascending
    /// keys.
    ///
    /// `may_contain` may exclude, by its filter, a table whose key range holds the key; it must
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

#[cfg(test)]
mod tests {
    use super::super::key_range::KeyBounds;
    use super::super::plan::Reason;
    use super::super::tests::tree;
    use super::*;

    /// A plan for these tables, valid or not.
    fn plan(version: &Version, numbers: &[u64], level: usize, output_level: usize) -> Plan {
        let tables = version.tables().map(|(_, table)| table);
        let upper: Vec<_> = tables.filter(|t| numbers.contains(&t.number)).cloned().collect();
        Plan {
            level,
            range: KeyBounds::hull(&upper).unwrap(),
            upper,
            through: Vec::new(),
            output_level,
            lower: Vec::new(),
            trivial_move: false,
            reason: Reason::Runs,
            grandparents: Vec::new(),
        }
    }

    fn held(version: &Version, plan: &Plan) -> String {
        let mut older = OlderData::new(version, plan);
        ('a'..='z').filter(|key| older.may_exist(&[*key as u8], |_| true)).collect()
    }

    #[test]
    fn every_place_that_could_be_older_is_searched() {
        let version = tree(&[
            (0, 9, "a", "z"),
            (0, 8, "a", "y"),
            (0, 7, "b", "d"),
            (0, 6, "d", "e"),
            (1, 5, "g", "h"),
            (3, 4, "a", "b"),
            (3, 3, "k", "l"),
            (6, 2, "n", "p"),
            (6, 1, "z", "z"),
        ]);
        assert_eq!(held(&version, &plan(&version, &[8], 0, 6)), "abcdeghklnop");
        assert_eq!(held(&version, &plan(&version, &[8, 7], 0, 6)), "abdeghklnop");
        assert_eq!(held(&version, &plan(&version, &[8, 7, 6, 5], 0, 1)), "abklnop");
        assert_eq!(
            held(&version, &plan(&version, &[4, 3, 2], 3, 6)),
            "",
            "newer runs do not count"
        );
        assert_eq!(
            held(&version, &plan(&version, &[4, 3], 3, 4)),
            "",
            "all beyond its range is not searched"
        );
    }

    #[test]
    fn a_filter_may_rule_a_table_out() {
        let version = tree(&[(0, 9, "a", "z"), (5, 2, "c", "e"), (6, 1, "d", "f")]);
        let mut older = OlderData::new(&version, &plan(&version, &[9], 0, 4));
        assert!(!older.may_exist(b"b", |_| panic!("no table holds it")));
        assert!(!older.may_exist(b"d", |_| false));
        assert!(older.may_exist(b"d", |table| table.number == 1), "each table is searched");
        assert!(!older.may_exist(b"f", |table| table.number == 2));
    }
}
