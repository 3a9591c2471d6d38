//! What is done where no level needs a compaction: tables are rewritten in place to give space
//! back, and small ones to become fewer.
//!
//! 1. *Dead entries.* A compaction keeps an older version of a key for as long as a snapshot sees
//!    it, and nobody comes back for it: its table may stay where it is for ever. What the manifest
//!    says of a table tells how many there are: as many as it has more entries than keys. Once the
//!    oldest snapshot is as new as all of the table, a rewrite drops every one of them for certain.
//!    After a reopening there are no snapshots.
//! 2. So it drops the tombstones of a table below which nothing lies. Few of them are left alone,
//!    as each rewrite costs as much as all of the table: they hide nothing any more.
//! 3. *Small tables.* Four or more small tables side by side become one, unless one of them has
//!    most of their bytes. So each rewrite at least doubles the table that a byte lies in, and of
//!    tables that come one by one a number is left that grows with the logarithm of their bytes.
//! 4. None of this goes on for ever: what is rewritten for its dead entries has none afterwards,
//!    and small tables whose merge left as many, as may be where memory for filters is short, are
//!    left alone ([`TableFile::stays_small`]).
//!
//! Both are rewrites of a bounded number of bytes, so that nothing that is needed meanwhile waits
//! long.
//!
//! Source of the first: the bottommost files of RocksDB that are marked for compaction.
//!
//! Called by the planner, and by the engine, which has it look when a snapshot goes.

use std::sync::Arc;

use trommel_base::SeqNo;

use crate::levels::LEVELS;
use crate::version::{TableFile, Version};

use super::gather::Groups;
use super::key_range::total_bytes;
use super::plan::{Plan, Planner, Reason};

/// One in how many entries of a table are tombstones with nothing below them for a rewrite to be
/// worth it.
const TOMBSTONES_PART: u64 = 8;
/// Fewest small tables that are merged.
const FEWEST_SMALL: usize = 4;

/// Whether `table` in `level` holds entries that a rewrite drops once no snapshot is older than the
/// table.
fn has_dead(version: &Version, level: usize, table: &TableFile) -> bool {
    let is_deepest = || {
        (level + 1..LEVELS)
            .all(|below| version.span(below, &table.smallest, &table.largest).is_empty())
    };
    table.entries > table.keys
        || level > 0
            && table.deletions.saturating_mul(TOMBSTONES_PART) >= table.entries
            && table.deletions > 0
            && is_deepest()
}

/// How new the oldest snapshot must be for a table of `version` to hold what a rewrite drops;
/// `None` where none does.
pub(crate) fn dead_from(version: &Version) -> Option<SeqNo> {
    let dead = version.tables().filter(|(level, table)| has_dead(version, *level, table));
    dead.map(|(_, table)| table.max_seqno).min()
}

impl Planner<'_> {
    /// Tables that hold what no reader can see any more, in place; runs of level 0 into the `base`
    /// level, where that is cheap.
    pub(super) fn dead(&self, base: usize, oldest: SeqNo) -> Option<Plan> {
        let is_dead = |level: usize, table: &Arc<TableFile>| {
            self.count_step();
            let is_free = table.max_seqno <= oldest && !self.busy.is_busy(table.number);
            is_free && has_dead(self.version, level, table)
        };
        let deeper = (1..LEVELS).rev().find_map(|level| {
            let run = &self.version.levels[level];
            let mut at = 0;
            while at < run.len() {
                let mut bytes: u64 = 0;
                let dead = run[at..].iter().take_while(|table| {
                    let is_first = bytes == 0;
                    bytes = bytes.saturating_add(table.file_bytes);
                    (is_first || bytes <= self.options.max_rewrite_bytes()) && is_dead(level, table)
                });
                let dead: Vec<_> = dead.cloned().collect();
                at += dead.len().max(1);
                if let Some(plan) = self.in_place(level, &dead, Reason::Dead) {
                    return Some(plan);
                }
            }
            None
        });
        deeper.or_else(|| {
            if !self.version.levels[0].iter().any(|table| is_dead(0, table)) {
                return None;
            }
            let groups = Groups::of(self);
            groups.oldest_first().into_iter().find_map(|at| {
                groups.get(at).tables.iter().find(|table| is_dead(0, table))?;
                let plan = self.down_from_0(&groups, at, base, Reason::Dead)?;
                self.is_cheap(&plan).then_some(plan)
            })
        })
    }

    /// Small tables of a level, side by side, into one.
    pub(super) fn small_neighbours(&self) -> Option<Plan> {
        (1..LEVELS).find_map(|level| {
            let is_small = |table: &Arc<TableFile>| {
                self.count_step();
                table.file_bytes <= self.options.small_bytes()
                    && !table.stays_small()
                    && !self.busy.is_busy(table.number)
            };
            let mut runs = self.version.levels[level].chunk_by(|a, b| is_small(a) && is_small(b));
            runs.find_map(|run| self.small_among(level, run))
        })
    }

    /// The same of `run`, all of which are small if there are several.
    fn small_among(&self, level: usize, run: &[Arc<TableFile>]) -> Option<Plan> {
        let mut rest = run;
        while rest.len() >= FEWEST_SMALL {
            let mut bytes: u64 = 0;
            let fits = rest.iter().take_while(|table| {
                bytes = bytes.saturating_add(table.file_bytes);
                bytes <= self.options.table_bytes
            });
            let (some, later) = rest.split_at(fits.count().max(1));
            if let Some(plan) = self.evenly_small(level, some) {
                return Some(plan);
            }
            rest = later;
        }
        None
    }

    /// The same of tables that fit one together: all of them, or those on one side of the largest.
    fn evenly_small(&self, level: usize, tables: &[Arc<TableFile>]) -> Option<Plan> {
        if tables.len() < FEWEST_SMALL {
            return None;
        }
        let at = (0..tables.len()).max_by_key(|at| {
            self.count_step();
            tables[*at].file_bytes
        })?;
        if total_bytes(tables) / 2 < tables[at].file_bytes {
            // Halves the bytes each time, so not deep.
            return self
                .evenly_small(level, &tables[..at])
                .or_else(|| self.evenly_small(level, &tables[at + 1..]));
        }
        let plan = self.in_place(level, tables, Reason::Small)?;
        let below = plan.grandparents.iter().map(|table| table.file_bytes);
        // Else their merge would be cut into as many.
        (below.sum::<u64>() <= self.options.max_grandparent_bytes()).then_some(plan)
    }
}
