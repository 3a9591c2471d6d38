//! The tables and the range tombstones that make up the store at one moment: an immutable value,
//! replaced as a whole.
//!
//! Invariants:
//! 1. Level 0 holds tables that may overlap, newest first; each deeper level is one sorted run of
//!    tables that do not overlap, smallest key first.
//! 2. All versions of one user key in one level below 0 are in one table.
//! 3. For any key, in any version that a reader may see, the first table with the key holds its
//!    newest version: the tables of level 0 in their order, then each deeper level. Entries in an
//!    upper level are newer than those in a deeper one. The exception is a compaction that was
//!    installed [in part](crate::compaction_job::slices) and still runs or was abandoned: the
//!    versions that it kept are then in a deeper level too.

mod fences;
mod kept_files;
mod shared_files;
mod table_cache;
mod table_file;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use trommel_base::SeqNo;
use trommel_filter::HashSeed;

use crate::expiry::TimeMarks;
use crate::levels::LEVELS;
use crate::ranges::{RangeSet, RangeTombstone};
use crate::space::{DEFAULT_ID, id_of};

pub(crate) use fences::{Candidates, Fence, Fences, Run};
pub(crate) use shared_files::SharedFiles;
pub(crate) use table_cache::{Reader, TableCache};
pub use table_file::{FilterMeta, TableMeta};
pub(crate) use table_file::{Keeping, TableFile};

/// The tables and the range tombstones of the store at one moment.
#[derive(Debug, Clone, Default)]
pub(crate) struct Version {
    /// Level 0 newest first; deeper levels by key.
    pub(crate) levels: [Vec<Arc<TableFile>>; LEVELS],
    /// The range tombstones, whose entries may be in any table. They delete expired entries, too.
    pub(crate) ranges: RangeSet,
    /// When entries were written, if they expire.
    pub(crate) time_marks: Arc<TimeMarks>,
    /// The salt of the catalog of keyspaces; `None` if the store has never had any.
    pub(crate) catalog_salt: Option<u64>,
    /// The name of the merge operator, if there may be operands.
    pub(crate) merge_operator: Option<Arc<str>>,
    /// Whether there may be operands of merge operators that keyspaces have of their own.
    pub(crate) has_keyspace_operators: bool,
    /// The secret with which the keys of all tables are hashed; `None` in a store that was created
    /// by a version without such secrets.
    pub(crate) hash_seed: Option<HashSeed>,
}

impl Version {
    /// All tables with their levels, level 0 first.
    pub(crate) fn tables(&self) -> impl Iterator<Item = (usize, &Arc<TableFile>)> {
        self.levels.iter().enumerate().flat_map(|(level, run)| run.iter().map(move |t| (level, t)))
    }

    /// The times of entries and the expiry horizons: of each keyspace, if there are any.
    pub(crate) fn times(&self) -> TimeMarks {
        let mut times = (*self.time_marks).clone();
        if self.catalog_salt.is_some() {
            times.separate();
        }
        times
    }

    /// Whether there may be merge operands.
    pub(crate) fn may_hold_operands(&self) -> bool {
        self.merge_operator.is_some() || self.has_keyspace_operators
    }

    /// The range tombstones that may delete an entry of some table.
    pub(crate) fn needed_ranges(&self) -> Vec<RangeTombstone> {
        let has_older = |range: &RangeTombstone| {
            let is_older = |table: &Arc<TableFile>| {
                table.min_seqno < range.seqno && table.ranges_applied < range.seqno
            };
            let is_met = |table: &Arc<TableFile>| range.meets(&table.smallest, &table.largest);
            self.levels[0].iter().any(|table| is_older(table) && is_met(table))
                || self.levels[1..].iter().any(|run| {
                    let from = run.partition_point(|table| *table.largest < *range.from);
                    run[from..].iter().take_while(|table| is_met(table)).any(is_older)
                })
        };
        self.ranges.tombstones().filter(has_older).collect()
    }

    /// For each keyspace by its id, the next expiry horizon above the recorded one at which half of
    /// some table has expired, estimated from the sequence numbers of its entries. All named
    /// keyspaces of a table have the same `ttl`. The default one has the id 0, and stands for all
    /// if no keyspace has a horizon of its own.
    pub(crate) fn half_expires_at(&self) -> BTreeMap<u32, SeqNo> {
        let recorded = self.ranges.horizons();
        let mut first = BTreeMap::new();
        for (_, table) in self.tables() {
            let half = table.min_seqno + (table.max_seqno - table.min_seqno) / 2 + 1;
            let id = match self.time_marks.keyspaces() {
                None => DEFAULT_ID,
                Some(_) => id_of(&table.smallest).unwrap_or(DEFAULT_ID),
            };
            if half > recorded.before(&table.smallest) {
                let known = first.entry(id).or_insert(half);
                *known = half.min(*known);
            }
        }
        first
    }

    /// Keys of all tables, except for tombstones, with duplicates across tables.
    pub(crate) fn valued_keys(&self) -> u64 {
        self.tables().map(|(_, table)| table.valued_keys()).sum()
    }

    /// The tables of `level` whose key range overlaps `smallest..=largest`, in the level's order.
    pub(crate) fn overlapping(
        &self,
        level: usize,
        smallest: &[u8],
        largest: &[u8],
    ) -> Vec<Arc<TableFile>> {
        let meets = |t: &&Arc<TableFile>| t.overlaps(smallest, largest);
        if level == 0 {
            return self.levels[0].iter().filter(meets).cloned().collect();
        }
        self.levels[level][self.span(level, smallest, largest)].to_vec()
    }

    /// The positions of the tables of a sorted `level` whose key range overlaps
    /// `smallest..=largest`.
    pub(crate) fn span(&self, level: usize, smallest: &[u8], largest: &[u8]) -> Range<usize> {
        let run = &self.levels[level];
        let from = run.partition_point(|table| *table.largest < *smallest);
        let len = run[from..].partition_point(|table| *table.smallest <= *largest);
        from..from + len
    }
}

/// The number that reports and filter policies use for physical `level`, assuming it has a table:
/// 0, or 1 for the first deeper level with data, and so on; and whether it is the deepest.
pub(crate) fn logical_level(version: &Version, level: usize) -> (usize, bool) {
    if level == 0 {
        return (0, false);
    }
    let holds_data = |other: usize| other == level || !version.levels[other].is_empty();
    let number = (1..=level).filter(|other| holds_data(*other)).count();
    let is_last = (level + 1..LEVELS).all(|deeper| version.levels[deeper].is_empty());
    (number, is_last)
}
