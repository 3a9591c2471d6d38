//! Maintenance when no level needs a compaction: tables are rewritten in place to free space, and
//! small ones are merged.
//!
//! 1. *Dead entries.* A compaction keeps an older version of a key for as long as a snapshot sees
//!    it, and nothing revisits it: its table may stay forever. The manifest's counts of entries and
//!    keys show how many such versions a table has. Once the oldest snapshot is as new as the whole
//!    table, a rewrite is certain to drop all of them, except those that merge operands need. The
//!    manifest does not record which those are, so a table may be rewritten once in vain, and again
//!    after a reopen ([`TableFile::is_rid_of_dead`]). After a reopen there are no snapshots.
//! 2. A rewrite also drops the tombstones of a table that overlaps no deeper table. If there are
//!    few, they are left alone, because a rewrite costs as much as the whole table: they hide
//!    nothing any more. A table is also rewritten if range tombstones delete half of its bytes.
//! 3. *Tombstones above what they delete.* A table in which at least one in eight entries is a
//!    tombstone is compacted into the next level, if its tombstones are also at least one in eight
//!    of all entries that the compaction reads. Rewriting many live entries for few tombstones is
//!    left to the compactions that the size of a level triggers. So a tombstone costs at most eight
//!    entries in each level on its way to the last, where it is dropped. Runs of level 0, which are
//!    compacted soon in any case, must be half tombstones.
//! 4. *Small tables.* Four or more adjacent small tables are merged into one, unless one of them
//!    has most of their bytes. So each rewrite at least doubles the size of the table that holds a
//!    byte, and if tables arrive one by one, the number that remains grows only with the logarithm
//!    of their bytes.
//! 5. None of this goes on forever: a table rewritten for its dead entries is not rewritten again,
//!    unless half of the rest is estimated to be deleted beyond what the rewrite has kept;
//!    tombstones only move down; and small tables whose merge left as many, which can happen when
//!    memory for filters is short, are left alone ([`TableFile::stays_small`]).
//!
//! Each such rewrite takes a bounded number of bytes, so that needed work does not wait long.
//!
//! Source of item 1: RocksDB's bottommost files marked for compaction.
//!
//! Called by the planner, and by the engine when a snapshot is released.

use std::sync::Arc;

use trommel_base::SeqNo;

use crate::levels::LEVELS;
use crate::version::{TableFile, Version};

use super::gather::Groups;
use super::key_range::total_bytes;
use super::plan::{Plan, Planner, Reason};

/// A rewrite is worth it if at least one in this many entries is a tombstone with nothing below, or
/// one of a level above the rewritten one.
const TOMBSTONES_PART: u64 = 8;
/// A run of level 0 is compacted for the sake of its tombstones if they are at least one in this
/// many of its entries.
const RUN_TOMBSTONES_PART: u64 = 2;
/// A rewrite is worth it if at least one in this many bytes is deleted by a range tombstone.
const DELETED_PART: u64 = 2;
/// Fewest small tables that are merged.
const FEWEST_SMALL: usize = 4;

/// Whether `table` in `level` holds entries that a rewrite drops once no snapshot is older than the
/// table.
fn has_dead(version: &Version, level: usize, table: &TableFile) -> bool {
    let is_deepest = || {
        (level + 1..LEVELS)
            .all(|below| version.span(below, &table.smallest, &table.largest).is_empty())
    };
    let has_hidden = table.entries > table.keys && !table.is_rid_of_dead();
    has_hidden || level > 0 && are_many(table.deletions, table.entries) && is_deepest()
}

/// Whether tombstones are many among `entries`.
fn are_many(tombstones: u64, entries: u64) -> bool {
    tombstones > 0 && tombstones.saturating_mul(TOMBSTONES_PART) >= entries
}

/// The sequence number that the oldest snapshot must reach for a rewrite of some table of `version`
/// to drop entries; `None` if no table has any.
pub(crate) fn dead_from(version: &Version) -> Option<SeqNo> {
    let dead_from = |(level, table): (usize, &Arc<TableFile>)| {
        let dead = rewrite_from(version, level, table);
        let deleted = deleted_from(version, table);
        dead.into_iter().chain(deleted).chain(sinks_from(version, level, table)).min()
    };
    version.tables().filter_map(dead_from).min()
}

/// The sequence number that the oldest snapshot must reach for a rewrite of `table` in `level` to
/// drop entries; `None` if it has none to drop.
fn rewrite_from(version: &Version, level: usize, table: &TableFile) -> Option<SeqNo> {
    let of_versions = has_dead(version, level, table).then_some(table.max_seqno);
    let deleted = table.deleted_bytes().saturating_sub(table.kept_bytes());
    let others = table.file_bytes.saturating_sub(table.kept_bytes());
    let is_half = deleted > 0 && deleted.saturating_mul(DELETED_PART) >= others;
    let of_ranges = is_half.then(|| table.deleted_by().max(table.max_seqno));
    of_versions.into_iter().chain(of_ranges).min()
}

/// If the tombstones of `table` in `level` are many among the entries that they overlap in level 0
/// and the nearest deeper level, the sequence number that the oldest snapshot must reach for them
/// to drop what they delete.
fn sinks_from(version: &Version, level: usize, table: &TableFile) -> Option<SeqNo> {
    let is_young =
        level == 0 && table.deletions.saturating_mul(RUN_TOMBSTONES_PART) < table.entries;
    if is_young || !are_many(table.deletions, table.entries) {
        return None;
    }
    let overlapped = |level| version.overlapping(level, &table.smallest, &table.largest);
    let beside = if level == 0 { overlapped(0) } else { Vec::new() };
    let nearest = (level + 1..LEVELS).map(overlapped).find(|tables| !tables.is_empty());
    let others = beside.iter().filter(|other| other.number != table.number);
    let others: u64 = others.chain(nearest.iter().flatten()).map(|other| other.entries).sum();
    are_many(table.deletions, table.entries.saturating_add(others)).then_some(table.max_seqno)
}

/// If range tombstones delete every entry of `table`, the sequence number that the oldest snapshot
/// must reach for no reader to see any of them.
fn deleted_from(version: &Version, table: &TableFile) -> Option<SeqNo> {
    if version.ranges.is_empty() {
        return None;
    }
    version.ranges.hides(&table.smallest, &table.largest, table.max_seqno)
}

impl Planner<'_> {
    /// Removes the tables of one level in which no reader can see anything.
    pub(super) fn deleted(&self, oldest: SeqNo) -> Option<Plan> {
        if self.version.ranges.is_empty() {
            return None;
        }
        (0..LEVELS).find_map(|level| {
            let is_deleted = |table: &&Arc<TableFile>| {
                self.count_step();
                !self.busy.is_busy(table.number)
                    && deleted_from(self.version, table).is_some_and(|from| from <= oldest)
            };
            let upper = self.version.levels[level].iter().filter(is_deleted).cloned().collect();
            self.removal(level, upper)
        })
    }

    /// Rewrites tables with entries that no reader can see in place; runs of level 0 are compacted
    /// into the `base` level if that is cheap.
    pub(super) fn dead(&self, base: usize, oldest: SeqNo) -> Option<Plan> {
        let is_dead = |level: usize, table: &Arc<TableFile>| {
            self.count_step();
            let is_free = table.max_seqno <= oldest && !self.busy.is_busy(table.number);
            is_free && rewrite_from(self.version, level, table).is_some_and(|from| from <= oldest)
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

    /// Compacts a table of many tombstones into the next level, in which they delete enough: in a
    /// deep level first, so that less is rewritten after it.
    pub(super) fn above_deleted(&self, base: usize, oldest: SeqNo) -> Option<Plan> {
        let is_worth_it = |plan: &Plan| {
            let tombstones = plan.above().map(|table| table.deletions).sum();
            are_many(tombstones, plan.tables().map(|table| table.entries).sum())
        };
        let may_sink = |level: usize, table: &TableFile| {
            self.count_step();
            let from = sinks_from(self.version, level, table);
            from.is_some_and(|from| from <= oldest) && !self.busy.is_busy(table.number)
        };
        let deeper = (1..LEVELS - 1).rev().find_map(|level| {
            let tables = self.version.levels[level].iter().enumerate();
            tables.filter(|(_, table)| may_sink(level, table)).find_map(|(at, _)| {
                self.down_from(level, at..at + 1, level + 1, Reason::Dead).filter(is_worth_it)
            })
        });
        deeper.or_else(|| {
            if !self.version.levels[0].iter().any(|table| may_sink(0, table)) {
                return None;
            }
            let groups = Groups::of(self);
            groups.oldest_first().into_iter().find_map(|at| {
                groups.get(at).tables.iter().find(|table| may_sink(0, table))?;
                self.down_from_0(&groups, at, base, Reason::Dead).filter(is_worth_it)
            })
        })
    }

    /// Merges adjacent small tables of a level into one.
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

    /// As `small_neighbours`, among `run`, whose tables are all small if there are several.
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

    /// As `small_among`, for tables that fit into one: all of them, or those on one side of the
    /// largest.
    fn evenly_small(&self, level: usize, tables: &[Arc<TableFile>]) -> Option<Plan> {
        if tables.len() < FEWEST_SMALL {
            return None;
        }
        let at = (0..tables.len()).max_by_key(|at| {
            self.count_step();
            tables[*at].file_bytes
        })?;
        if total_bytes(tables) / 2 < tables[at].file_bytes {
            // Each recursion halves the bytes, so it is shallow.
            return self
                .evenly_small(level, &tables[..at])
                .or_else(|| self.evenly_small(level, &tables[at + 1..]));
        }
        let plan = self.in_place(level, tables, Reason::Small)?;
        let below = plan.grandparents.iter().map(|table| table.file_bytes);
        // Otherwise the output would be cut into as many tables.
        (below.sum::<u64>() <= self.options.max_grandparent_bytes()).then_some(plan)
    }
}
