//! The target shape of the tree, how far the tree is from it, and what getting there costs.
//!
//! The deepest level is always the last; levels above it are opened only as the data grows. So a
//! store of any size has all its levels except one full, and about nine tenths of its data in the
//! last (RocksDB's "dynamic level bytes", which this follows). In steps:
//!
//! 1. Treat all bytes below level 0 as if they were in the last level.
//! 2. While that is more than the base level may hold, open the level above, with a target smaller
//!    by the level ratio. No target is smaller than the base level's size: a level smaller than
//!    what one compaction of level 0 brings would be rewritten to no purpose. The base level itself
//!    may hold twice that before a level is opened above it, unless it is the last: a fill writes
//!    up to 6 of 100 bytes more, and lookups and scans have one run fewer to search.
//! 3. The topmost level opened this way is needed. Level 0 is compacted into it, or into a level
//!    above it that still holds tables (or is about to), because newer data must not pass below
//!    older data.
//! 4. Levels above the needed ones are drained. A level that holds tables is needed until the bytes
//!    fall to half of what opened it, so that a store at the threshold does not oscillate.
//!
//! Called by the planner, and by the write path for its debt.

use trommel_tuning::BASE_LEVEL_GROWTH;

use crate::levels::LEVELS;
use crate::version::Version;

use super::in_progress::InProgress;
use super::key_range::total_bytes;
use crate::compaction_options::CompactionOptions;

const LAST: usize = LEVELS - 1;

/// The target size of each level.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Shape {
    /// The level that level 0 is compacted into, or through.
    pub(crate) base: usize,
    /// Target bytes of each level: `u64::MAX` for the last, 0 for levels that are not needed. Level
    /// 0 is counted in runs and has 0 here.
    pub(crate) targets: [u64; LEVELS],
}

impl Shape {
    /// The shape for `version` while the plans `busy` are running.
    pub(crate) fn of(version: &Version, busy: &InProgress, options: &CompactionOptions) -> Self {
        let holds = |level: &usize| !version.levels[*level].is_empty() || busy.fills(*level);
        let first_held = (1..LEVELS).find(holds).unwrap_or(LAST);
        let mut targets = [0; LEVELS];
        targets[LAST] = u64::MAX;
        let mut bytes = version.levels[1..]
            .iter()
            .fold(0, |sum: u64, tables| sum.saturating_add(total_bytes(tables)));
        let mut needed = LAST;
        while needed > 1 {
            let held_above = first_held < needed;
            let most = options.base_level_bytes.saturating_mul(if needed == LAST {
                1
            } else {
                BASE_LEVEL_GROWTH
            });
            if bytes <= most / if held_above { 2 } else { 1 } {
                break;
            }
            needed -= 1;
            bytes /= options.level_ratio.max(2);
            targets[needed] = bytes.max(options.base_level_bytes);
        }
        Self { base: needed.min(first_held), targets }
    }

    /// Target bytes of the base level; 0 if it has no bound, or none of its own.
    fn base_target(&self) -> u64 {
        if self.base == LAST { 0 } else { self.targets[self.base] }
    }

    /// How urgently `level` must be compacted into the next: at 1 or more it should be.
    ///
    /// Tables that running plans take away are not counted.
    pub(crate) fn score(
        &self,
        level: usize,
        version: &Version,
        busy: &InProgress,
        options: &CompactionOptions,
    ) -> f64 {
        let idle = || version.levels[level].iter().filter(|table| !busy.is_busy(table.number));
        let bytes = total_bytes(idle());
        if level == 0 {
            return idle().count() as f64 / options.runs_due(bytes, self.base_target()) as f64;
        }
        let bytes = bytes as f64;
        if self.targets[level] > 0 {
            return bytes / self.targets[level] as f64;
        }
        let over_base = bytes / options.base_level_bytes.max(1) as f64;
        if bytes > 0.0 { over_base.max(1.0) } else { 0.0 }
    }
}

/// Approximate bytes that must be read and merged before every level is within its target.
///
/// Each level's excess is merged with the overlapping part of the next level, larger by the level
/// ratio, and adds to the next level's excess.
pub(crate) fn debt(version: &Version, options: &CompactionOptions) -> u64 {
    let shape = Shape::of(version, &InProgress::default(), options);
    let bytes = |level: usize| total_bytes(&version.levels[level]);
    let mut debt: u64 = 0;
    let mut incoming: u64 = 0;
    if version.levels[0].len() >= options.runs_due(bytes(0), shape.base_target()) {
        incoming = bytes(0);
        debt = incoming.saturating_add(bytes(shape.base));
    }
    for level in shape.base..LAST {
        let held = bytes(level).saturating_add(incoming);
        incoming = held.saturating_sub(shape.targets[level]);
        if held > 0 {
            let overlapped = bytes(level + 1) as f64 * (incoming as f64 / held as f64);
            debt = debt.saturating_add(incoming).saturating_add(overlapped as u64);
        }
    }
    debt
}
