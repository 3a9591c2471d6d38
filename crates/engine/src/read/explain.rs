//! The steps of a lookup, one by one.
//!
//! The steps are those of a get, in its order (see `read/get.rs`), each timed by itself. They count
//! in no statistics, so explaining changes no report. Blocks enter the cache as they do in a get.

use std::time::Duration;

use trommel_base::{EntryKind, SeqNo, Slice};
use trommel_sstable::{FilterLabel, Found, ReadStats, Verdict, Wants};

use crate::engine::Engine;
use crate::env;
use crate::error::Result;
use crate::keyspaces::Part;
use crate::version::{Fence, logical_level};
use crate::view::View;

/// The steps of a lookup of a key: see [`Db::explain`](crate::Db::explain).
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Explanation {
    /// The memtables and tables that the lookup reached, in its order, which is newest first. The
    /// last one has the answer, unless the key is absent.
    pub steps: Vec<ExplainedStep>,
    /// The sequence number as of which the key was looked up.
    pub seqno: SeqNo,
    /// The sequence number of the newest range tombstone that applies to the key, or that of the
    /// expiry horizon: older versions do not count.
    pub deleted_before: Option<SeqNo>,
    /// Bytes of the key's value; `None` if the key is absent.
    pub value_bytes: Option<u64>,
    /// Time of the whole lookup, explaining it included.
    pub time: Duration,
}

/// A memtable or table that a lookup has reached.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ExplainedStep {
    /// The place that was searched.
    pub place: ExplainedPlace,
    /// The verdict of the table's filter; `None` for a memtable, and for a table without a filter
    /// that could be queried.
    pub filter: Option<ExplainedFilter>,
    /// The result of this step.
    pub outcome: ExplainedOutcome,
    /// Data blocks and index leaves read from the file or its map.
    pub block_reads: u64,
    /// Data blocks found in the cache.
    pub cache_hits: u64,
    /// Time of this step.
    pub time: Duration,
}

/// Where a lookup has searched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ExplainedPlace {
    /// A memtable: 0 is the active one, 1 the newest one that waits for a flush.
    Memtable(usize),
    /// A table.
    Table {
        /// Its level, numbered as in reports.
        level: usize,
        /// Its number, by which its file is named.
        number: u64,
    },
}

/// The verdict of a table's filter on a key.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct ExplainedFilter {
    /// Its kind.
    pub kind: FilterLabel,
    /// Whether it holds prefixes of keys, and was queried because the table has no other.
    pub is_of_prefixes: bool,
    /// Whether the table may hold the key. If not, it is not searched.
    pub maybe: bool,
    /// The fraction of absent keys that pass the filter, from 0 to 1, according to theory.
    pub expected: f64,
}

/// The result of a search in one place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ExplainedOutcome {
    /// The filter excludes the key, which saved a search.
    Skipped,
    /// No version of the key, which was searched for.
    Absent,
    /// Its value.
    Value,
    /// Its tombstone: the key is absent.
    Tombstone,
    /// A merge operand: older versions are needed too.
    Operand,
    /// A version that a range tombstone deletes, or that has expired: the key is absent.
    Deleted,
}

impl ExplainedStep {
    /// Whether the filter let the lookup search a table that does not hold the key.
    pub fn is_false_positive(&self) -> bool {
        self.filter.is_some() && self.outcome == ExplainedOutcome::Absent
    }
}

/// A lookup that is being explained.
struct Explaining<'a> {
    engine: &'a Engine,
    view: &'a View,
    key: &'a [u8],
    hash: u64,
    seqno: SeqNo,
    deleted: SeqNo,
    steps: Vec<ExplainedStep>,
    /// The operands that were found, newest first, and the value below them.
    operands: Vec<Slice>,
    existing: Option<Slice>,
}

impl Engine {
    /// Looks up `key` of this part now, and reports what that took.
    pub(crate) fn explain_in(&self, part: Part<'_>, key: &[u8]) -> Result<Explanation> {
        self.access.check_open()?;
        self.mapped(part, None, |space| self.explain(&space.key(key)))
    }

    fn explain(&self, key: &[u8]) -> Result<Explanation> {
        let start = env::now();
        // As in `look_up`: the view first.
        let view = self.view.load_full();
        let (mut seqno, mut deleted) = (self.snapshots.visible(), 0);
        if view.needs_moment(None, &self.snapshots) {
            let moment = view.moment(None, &self.snapshots);
            (seqno, deleted) = (moment.seqno, moment.covering(key));
        }
        let mut explaining = Explaining {
            engine: self,
            view: &view,
            key,
            hash: self.files.hash_seed.hash(key),
            seqno,
            deleted,
            steps: Vec::new(),
            operands: Vec::new(),
            existing: None,
        };
        let is_answered = explaining.search_memtables();
        if !is_answered {
            explaining.search_tables()?;
        }
        let value_bytes = explaining.value_bytes()?;
        Ok(Explanation {
            steps: explaining.steps,
            seqno,
            deleted_before: Some(deleted).filter(|deleted| *deleted > 0),
            value_bytes,
            time: env::now() - start,
        })
    }
}

impl Explaining<'_> {
    /// Returns whether the lookup ends in a memtable.
    fn search_memtables(&mut self) -> bool {
        let view = self.view;
        view.memtables().enumerate().any(|(nth, logged)| {
            let versions = |seqno| {
                let found = logged.memtable.get(self.key, seqno)?;
                let value = Slice::from(found.value);
                Some(Found { seqno: found.seqno, kind: found.kind, value })
            };
            let (start, mut next) = (env::now(), Some(self.seqno));
            let mut found = Vec::new();
            while let Some(version) = next.and_then(versions) {
                let is_operand = version.kind == EntryKind::Merge;
                next = version.seqno.checked_sub(1).filter(|_| is_operand);
                found.push(version);
            }
            let step = ExplainedStep {
                place: ExplainedPlace::Memtable(nth),
                filter: None,
                outcome: ExplainedOutcome::Absent,
                block_reads: 0,
                cache_hits: 0,
                time: env::now() - start,
            };
            self.add(step, found)
        })
    }

    fn search_tables(&mut self) -> Result<()> {
        let view = self.view;
        let (mut candidates, mut place) = (view.tables_for(self.key), [None]);
        while let [Some(fence)] = candidates.next(&mut place) {
            if self.search_table(fence)? {
                break;
            }
        }
        Ok(())
    }

    /// Returns whether the lookup ends in this table.
    fn search_table(&mut self, fence: &Fence) -> Result<bool> {
        let start = env::now();
        let table = self.engine.files.tables.reader(&fence.file)?;
        let mut verdict = table.filters().query(self.key, self.hash);
        let is_of_prefixes = verdict == Verdict::UNFILTERED;
        if is_of_prefixes {
            verdict = self.engine.probe_prefix(&table, self.key);
        }
        let mut reads = ReadStats::default();
        let (mut found, mut next) = (Vec::new(), Some(self.seqno).filter(|_| verdict.maybe));
        while let Some(seqno) = next {
            let version = table.look_up(self.key, self.hash, seqno, Wants::Value, &mut reads)?;
            let Some(version) = version else { break };
            let is_operand = version.kind == EntryKind::Merge;
            next = version.seqno.checked_sub(1).filter(|_| is_operand);
            found.push(version);
        }
        let Verdict { maybe, kind, expected } = verdict;
        let filter = ExplainedFilter { kind, is_of_prefixes, maybe, expected };
        let step = ExplainedStep {
            place: ExplainedPlace::Table {
                level: logical_level(&self.view.version, fence.level).0,
                number: fence.file.number,
            },
            filter: Some(filter).filter(|_| verdict != Verdict::UNFILTERED),
            outcome: match maybe {
                true => ExplainedOutcome::Absent,
                false => ExplainedOutcome::Skipped,
            },
            block_reads: reads.block_reads + reads.index_reads,
            cache_hits: reads.cache_hits,
            time: env::now() - start,
        };
        Ok(self.add(step, found))
    }

    /// Adds the versions found in one place, newest first. Returns whether the lookup ends there.
    fn add(&mut self, mut step: ExplainedStep, found: Vec<Found>) -> bool {
        let mut is_last = false;
        for version in found {
            step.outcome = match version.kind {
                _ if version.seqno < self.deleted => ExplainedOutcome::Deleted,
                EntryKind::Put => ExplainedOutcome::Value,
                EntryKind::Delete => ExplainedOutcome::Tombstone,
                EntryKind::Merge => ExplainedOutcome::Operand,
            };
            match step.outcome {
                ExplainedOutcome::Operand => self.operands.push(version.value),
                ExplainedOutcome::Value => self.existing = Some(version.value),
                _ => {}
            }
            is_last = step.outcome != ExplainedOutcome::Operand;
        }
        self.steps.push(step);
        is_last
    }

    fn value_bytes(&self) -> Result<Option<u64>> {
        if self.operands.is_empty() {
            return Ok(self.existing.as_ref().map(|value| value.len() as u64));
        }
        let operands: Vec<&[u8]> = self.operands.iter().rev().map(|operand| &**operand).collect();
        let key = (self.key, self.seqno);
        let merged = self.engine.apply_operands(key, self.existing.as_deref(), &operands)?;
        Ok(merged.map(|value| value.len() as u64))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use trommel_sim::MemoryVfs;

    use super::*;
    use crate::{Db, KeyspaceOptions, Merge, Options};

    fn outcomes(explanation: &Explanation) -> Vec<(ExplainedPlace, ExplainedOutcome)> {
        explanation.steps.iter().map(|step| (step.place, step.outcome)).collect()
    }

    /// A store without background work, whose tables hold all keys below 100.
    fn filled() -> Db {
        let options = Options::default()
            .vfs(Arc::new(MemoryVfs::new()))
            .background_threads(0)
            .writes(|w| w.merge_operator(Merge::counter()));
        let db = Db::open("db", options).unwrap();
        for key in 0..100_u32 {
            db.put(format!("{key:03}"), [0; 8]).unwrap();
        }
        db.flush().unwrap();
        db
    }

    #[test]
    fn each_place_on_the_way_is_a_step() {
        use ExplainedOutcome::{Absent, Skipped, Tombstone, Value};
        let db = filled();
        db.delete("005").unwrap();
        let memtable = ExplainedPlace::Memtable(0);
        let gone = db.explain("005").unwrap();
        assert_eq!(outcomes(&gone), [(memtable, Tombstone)]);
        assert_eq!(gone.value_bytes, None);

        let before = db.filter_report().to_string();
        let there = db.explain("006").unwrap();
        let [_, (table @ ExplainedPlace::Table { level: 0, .. }, Value)] = outcomes(&there)[..]
        else {
            panic!("{there:?}");
        };
        assert_eq!(there.value_bytes, Some(8));
        let filter = there.steps[1].filter.unwrap();
        assert!(filter.maybe && filter.expected < 0.05 && !filter.is_of_prefixes, "{filter:?}");
        assert_eq!(there.steps[1].block_reads + there.steps[1].cache_hits, 1);

        // Within the key range of the table, and in no table.
        let absent: Vec<_> =
            (0..1000).map(|nth| db.explain(format!("005{nth:04}")).unwrap()).collect();
        for one in &absent {
            let passed = one.steps[1].filter.unwrap().maybe;
            let expected = if passed { Absent } else { Skipped };
            assert_eq!(outcomes(one), [(memtable, Absent), (table, expected)]);
            assert_eq!((one.value_bytes, one.steps[1].is_false_positive()), (None, passed));
        }
        let skipped = absent.iter().filter(|one| one.steps[1].outcome == Skipped).count();
        assert!(skipped > 900, "{skipped} of 1,000 were saved");
        assert_eq!(db.filter_report().to_string(), before, "explaining counts nowhere");
    }

    #[test]
    fn operands_lead_to_older_versions() {
        use ExplainedOutcome::{Deleted, Operand, Value};
        let db = filled();
        let key = "007";
        db.merge(key, 1_u64.to_le_bytes()).unwrap();
        db.merge(key, 1_u64.to_le_bytes()).unwrap();
        let explanation = db.explain(key).unwrap();
        let found: Vec<_> = explanation.steps.iter().map(|step| step.outcome).collect();
        assert_eq!((found, explanation.value_bytes), (vec![Operand, Value], Some(8)));

        let users = db.keyspace("users", Default::default()).unwrap();
        users.put("1", "Ada").unwrap();
        assert_eq!(users.explain("1").unwrap().value_bytes, Some(3));
        let of_key = Merge::associative("of key", |key, _, _| Ok(key.to_vec()));
        let named = db.keyspace("named", KeyspaceOptions::new().merge_operator(of_key)).unwrap();
        named.merge("key", "").unwrap();
        named.merge("key", "").unwrap();
        assert_eq!(named.explain("key").unwrap().value_bytes, Some(3), "it has no header");
        db.delete_range(..).unwrap();
        let explanation = db.explain(key).unwrap();
        let last = explanation.steps.last().unwrap().outcome;
        assert_eq!((last, explanation.value_bytes), (Deleted, None));
        assert!(explanation.deleted_before.is_some());
        assert_eq!(users.explain("1").unwrap().value_bytes, Some(3));
    }
}
