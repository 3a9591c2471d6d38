//! Manual compaction of a key range: everything in it moves to the last level, whose tables in the
//! range are rewritten once.
//!
//! 1. The memtables are flushed (by the caller). Groups of overlapping runs of level 0 that overlap
//!    the range and hold entries written before the request go to the base level.
//! 2. Each deeper level is swept once, by ascending key, several tables per step.
//! 3. The tables of the last level that are older than the request, or hold tombstones, are
//!    rewritten in place, so that obsolete tombstones and hidden versions leave the disk.
//!
//! The sweep of a level begins when no compaction is running in the range, so that no output lands
//! where the sweep has passed. Later writes do not prolong it: each level is swept once, and runs
//! of level 0 that hold only newer data are skipped.
//!
//! Called by `compact_range`, which gets a step, runs it, and gets the next; several steps may run
//! at once.

use std::sync::Arc;

use trommel_base::SeqNo;

use crate::levels::LEVELS;
use crate::version::{TableFile, Version};

use super::gather::Groups;
use super::in_progress::InProgress;
use super::key_range::{KeyBounds, total_bytes};
use super::plan::{Plan, Planner, Reason};
use super::shape::Shape;
use crate::compaction_options::CompactionOptions;

const LAST: usize = LEVELS - 1;

/// The progress of the compaction of one key range.
#[derive(Debug)]
pub(crate) struct RangeCompaction {
    from: Box<[u8]>,
    to: Option<Box<[u8]>>,
    through: SeqNo,
    before: u64,
    level: usize,
    /// Tables of `level` that end at or before this key are done.
    swept: Option<Box<[u8]>>,
}

/// What to do next.
#[derive(Debug)]
pub(crate) enum RangeStep {
    /// Run this plan, then get the next step.
    Run(Box<Plan>),
    /// A running compaction is in the way: try again when one has ended.
    Wait,
    /// The range is compacted.
    Done,
}

impl RangeCompaction {
    /// A compaction of all keys from `from` to `to` (to the last key, if `None`), both included, as
    /// written up to the sequence number `through`. Tables whose numbers are below `before`, the
    /// next free file number, are older than the request.
    pub(crate) fn new(from: &[u8], to: Option<&[u8]>, through: SeqNo, before: u64) -> Self {
        let (from, to) = (Box::from(from), to.map(Box::from));
        Self { from, to, through, before, level: 0, swept: None }
    }

    /// The next step, given the current `version` and the running plans `busy`.
    pub(crate) fn next_step(
        &mut self,
        version: &Version,
        busy: &InProgress,
        options: &CompactionOptions,
    ) -> RangeStep {
        let planner = Planner::new(version, busy, options);
        while self.level < LEVELS {
            let step = match self.level {
                0 => self.out_of_level_0(&planner),
                LAST => self.rewrite(&planner),
                _ => self.sweep(&planner),
            };
            match step {
                RangeStep::Done => {}
                step => return step,
            }
            if busy.ranges().any(|range| self.meets(&range.smallest, &range.largest)) {
                return RangeStep::Wait;
            }
            self.level += 1;
            self.swept = None;
        }
        RangeStep::Done
    }

    fn meets(&self, smallest: &[u8], largest: &[u8]) -> bool {
        *self.from <= *largest && self.to.as_deref().is_none_or(|to| smallest <= to)
    }

    fn out_of_level_0(&self, planner: &Planner<'_>) -> RangeStep {
        let wanted = |table: &Arc<TableFile>| {
            table.min_seqno <= self.through && self.meets(&table.smallest, &table.largest)
        };
        let base = Shape::of(planner.version, planner.busy, planner.options).base;
        let mut blocked = false;
        let groups = Groups::of(planner);
        for at in groups.oldest_first() {
            if groups.get(at).tables.iter().any(wanted) {
                match planner.down_from_0(&groups, at, base, Reason::Range) {
                    Some(plan) => return RangeStep::Run(Box::new(plan)),
                    None => blocked = true,
                }
            }
        }
        if blocked { RangeStep::Wait } else { RangeStep::Done }
    }

    /// The tables of the level that are not done yet, by key, with their indexes.
    fn unswept<'a>(
        &'a self,
        version: &'a Version,
    ) -> impl Iterator<Item = (usize, &'a Arc<TableFile>)> {
        version.levels[self.level].iter().enumerate().filter(|(_, table)| {
            let is_ahead = self.swept.as_ref().is_none_or(|swept| table.largest > *swept);
            is_ahead && self.meets(&table.smallest, &table.largest)
        })
    }

    /// Compacts the next tables of an inner level, as many as one job should take, into the next
    /// level.
    fn sweep(&mut self, planner: &Planner<'_>) -> RangeStep {
        let below = self.level + 1;
        let (mut offer, mut upper_bytes) = (0..0, 0_u64);
        // The tables that they overlap, from the first key to the last. No table begins before
        // another ends.
        let (mut lower, mut lower_bytes) = (0..0, 0_u64);
        for (at, table) in self.unswept(planner.version) {
            let run = &planner.version.levels[below];
            let met = planner.version.span(below, &table.smallest, &table.largest);
            if offer.is_empty() {
                (offer, lower) = (at..at, met.start..met.start);
            }
            let more = total_bytes(&run[lower.end..met.end.max(lower.end)]);
            let bytes = upper_bytes + lower_bytes + table.file_bytes + more;
            let is_free = !planner.busy.is_busy(table.number);
            if !offer.is_empty() && (!is_free || bytes > planner.options.max_job_bytes()) {
                break;
            }
            offer.end = at + 1;
            lower.end = met.end.max(lower.end);
            (upper_bytes, lower_bytes) = (upper_bytes + table.file_bytes, lower_bytes + more);
        }
        if offer.is_empty() {
            return RangeStep::Done;
        }
        match planner.down_from(self.level, offer, below, Reason::Range) {
            Some(plan) => self.run(plan),
            None => RangeStep::Wait,
        }
    }

    /// Rewrites the next tables of the last level that are older than the request, or hold
    /// tombstones, in place.
    fn rewrite(&mut self, planner: &Planner<'_>) -> RangeStep {
        let (mut offer, mut bytes): (Vec<Arc<TableFile>>, u64) = (Vec::new(), 0);
        for (_, table) in self.unswept(planner.version) {
            // Tables moved here may hold tombstones whose targets have since been dropped.
            let is_old = table.number < self.before || table.deletions > 0;
            bytes += table.file_bytes;
            if !offer.is_empty() && (!is_old || bytes > planner.options.max_job_bytes()) {
                break;
            }
            if is_old {
                offer.push(Arc::clone(table));
            } else {
                bytes = 0;
            }
        }
        if offer.is_empty() {
            return RangeStep::Done;
        }
        match planner.in_place(LAST, &offer, Reason::Range) {
            Some(plan) => self.run(plan),
            None => RangeStep::Wait,
        }
    }

    fn run(&mut self, plan: Plan) -> RangeStep {
        self.swept = KeyBounds::hull(&plan.upper).map(|range| range.largest);
        RangeStep::Run(Box::new(plan))
    }
}
