//! Choosing the next compaction: a pure function from a version to a plan. The worker that runs a
//! plan chooses no tables.
//!
//! 0. Tables all of whose entries are deleted by range tombstones are removed unread.
//! 1. Each level gets a score ([`Shape`]); levels with a score of at least 1 are tried, the highest
//!    first.
//! 2. Level 0 offers its groups of overlapping runs, the largest first: a run that is moved down
//!    takes along every older run that it overlaps. A deeper level offers its tables, first the one
//!    that overlaps the fewest bytes of the next level per byte of its own: that moves most bytes
//!    down per byte written (a random fill of 2000 runs writes each byte 13 times; 19 times if
//!    tables are picked at random). Tombstones count double, because they free what they overlap.
//! 3. The offer is joined by all tables of the output level that it overlaps, and by tables of its
//!    own level that add no output-level table.
//! 4. Runs of level 0 that would fill the base level above its target go through it: with the
//!    tables they overlap there, into the level below. Bytes that would have to move further at
//!    once are written once, not twice, and the base level is empty for the next runs. This is
//!    limited to compactions of bounded size ([`CompactionOptions::max_through_bytes`]), which
//!    occur in stores of up to a few times the base level's size and in small parts of the key
//!    space.
//! 5. An offer that would conflict with a running plan is refused, and the next one tried.
//! 6. If a caller waits for the store to become idle and nothing is left to do, a group of fewer
//!    runs than the trigger is compacted too, if it overlaps little of the base level: lookups and
//!    scans have to search each run, and the compaction costs less per byte than any further down.
//! 7. With nothing to merge it with, a table is moved without being read, unless it overlaps so
//!    much of the level below the output that its next compaction would be too large. Runs of level
//!    0 that overlap nothing are moved together; small ones are merged into one table instead
//!    ([`gather`](super::gather)).
//! 8. If there is nothing else to do, tables with entries that no reader can see are rewritten in
//!    place, tombstones are moved down to the entries that they delete, and small neighbours are
//!    merged ([`upkeep`](super::upkeep)).
//!
//! Invariants of every plan:
//! * It shares no table with a running plan, and no range with one that writes into its output
//!   level.
//! * Nothing older than any of its inputs stays in its key ranges at or above the output level: not
//!   in level 0, not in the levels that it skips or goes through, not in the outputs of running
//!   plans.
//! * A table of any level below 0 that shares a user key with an input of that level is an input.
//!
//! Source: the leveled compaction of LevelDB and RocksDB; the order of the levels' scores follows
//! Pebble.

use std::cell::Cell;
use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use trommel_base::SeqNo;

use crate::levels::LEVELS;
use crate::version::{TableFile, Version};

use super::gather::Groups;
use super::in_progress::InProgress;
use super::key_range::{KeyBounds, total_bytes};
use super::shape::Shape;
use crate::compaction_options::CompactionOptions;

/// Why a plan was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reason {
    /// Level 0 has too many runs.
    Runs,
    /// The level holds more than its target.
    Bytes,
    /// The range is being compacted on request.
    Range,
    /// Its tables hold entries that no reader can see.
    Dead,
    /// Its tables hold nothing that a reader can see, and are removed unread.
    Deleted,
    /// Its tables are small neighbours.
    Small,
}

impl Reason {
    /// Its name in traces.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Runs => "runs",
            Self::Bytes => "bytes",
            Self::Range => "range",
            Self::Dead => "dead",
            Self::Deleted => "deleted",
            Self::Small => "small",
        }
    }
}

/// One compaction, decided in full.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    /// The level the plan starts from.
    pub(crate) level: usize,
    /// Its tables in `level`, in the level's order (level 0: newest first). Never empty.
    pub(crate) upper: Vec<Arc<TableFile>>,
    /// Its tables in the level above `output_level`, by key, if a plan of level 0 goes through that
    /// level; otherwise empty.
    pub(crate) through: Vec<Arc<TableFile>>,
    /// The level of the outputs; `level` itself if it is rewritten in place.
    pub(crate) output_level: usize,
    /// Its tables in `output_level`, by key; empty if that is `level`.
    pub(crate) lower: Vec<Arc<TableFile>>,
    /// Whether the tables of `upper` are moved to the output level unchanged.
    pub(crate) trivial_move: bool,
    /// Why.
    pub(crate) reason: Reason,
    /// The tables of the level below the output level that the inputs overlap, by key: outputs are
    /// best cut at their ends.
    pub(crate) grandparents: Vec<Grandparent>,
    /// The keys of all inputs are in this range.
    pub(crate) range: KeyBounds,
}

/// A table below the output level. It does not hold the file, which is deleted when another
/// compaction replaces it.
#[derive(Debug, Clone)]
pub(crate) struct Grandparent {
    /// Its name in tests.
    #[cfg(test)]
    pub(crate) number: u64,
    pub(crate) file_bytes: u64,
    pub(crate) smallest: Box<[u8]>,
    pub(crate) largest: Box<[u8]>,
}

impl Grandparent {
    pub(super) fn of(table: &Arc<TableFile>) -> Self {
        Self {
            #[cfg(test)]
            number: table.number,
            file_bytes: table.file_bytes,
            smallest: table.smallest.clone(),
            largest: table.largest.clone(),
        }
    }
}

impl Plan {
    /// All inputs.
    pub(crate) fn tables(&self) -> impl Iterator<Item = &Arc<TableFile>> {
        self.upper.iter().chain(&self.through).chain(&self.lower)
    }

    /// Its tables in the output level.
    pub(crate) fn replaced(&self) -> &[Arc<TableFile>] {
        if self.is_in_place() { &self.upper } else { &self.lower }
    }

    /// As `replaced`, mutable.
    pub(crate) fn replaced_mut(&mut self) -> &mut Vec<Arc<TableFile>> {
        if self.is_in_place() { &mut self.upper } else { &mut self.lower }
    }

    /// Its tables in levels above the output level.
    pub(crate) fn above(&self) -> impl Iterator<Item = &Arc<TableFile>> {
        let upper = if self.is_in_place() { &[] } else { &self.upper[..] };
        upper.iter().chain(&self.through)
    }

    fn is_in_place(&self) -> bool {
        self.output_level == self.level
    }

    /// Whether its tables are removed without being read.
    pub(crate) fn only_removes(&self) -> bool {
        self.reason == Reason::Deleted
    }

    /// Bytes of all inputs.
    pub(crate) fn input_bytes(&self) -> u64 {
        total_bytes(self.tables())
    }
}

/// The next compaction that `version` needs and the running plans allow. Entries that only readers
/// before the `oldest` snapshot could see are obsolete; without snapshots, `oldest` is
/// [`MAX_SEQNO`](trommel_base::MAX_SEQNO).
pub(crate) fn plan(
    version: &Version,
    busy: &InProgress,
    options: &CompactionOptions,
    oldest: SeqNo,
) -> Option<Plan> {
    next_plan(&Planner::new(version, busy, options), oldest)
}

pub(super) fn next_plan(planner: &Planner<'_>, oldest: SeqNo) -> Option<Plan> {
    if let Some(plan) = planner.deleted(oldest) {
        return Some(plan);
    }
    let Planner { version, busy, options, .. } = *planner;
    let shape = Shape::of(version, busy, options);
    let mut scores = [0.0; LEVELS];
    for (level, score) in scores.iter_mut().enumerate() {
        *score = shape.score(level, version, busy, options);
    }
    let mut levels: Vec<usize> = (0..LEVELS - 1).filter(|level| scores[*level] >= 1.0).collect();
    // A level that is itself too full is a bad target: relieve it first. Under a backlog that
    // leaves fewer runs in level 0 for the same bytes written.
    let weight = |level: usize| {
        let below = if level == 0 { shape.base } else { level + 1 };
        scores[level] / f64::max(scores[below], 1.0)
    };
    levels.sort_by(|a, b| weight(*b).total_cmp(&weight(*a)));
    let needed = levels.into_iter().find_map(|level| match level {
        0 => planner.out_of_level_0(&shape),
        _ => planner.out_of_level(level),
    });
    let needed = needed.or_else(|| planner.few_runs(&shape));
    needed
        .or_else(|| planner.dead(shape.base, oldest))
        .or_else(|| planner.above_deleted(shape.base, oldest))
        .or_else(|| planner.small_neighbours())
}

/// The tables of a plan.
pub(super) struct Inputs {
    pub(super) level: usize,
    pub(super) upper: Vec<Arc<TableFile>>,
    pub(super) through: Vec<Arc<TableFile>>,
    pub(super) output_level: usize,
    pub(super) lower: Vec<Arc<TableFile>>,
    /// Whether the tables of `upper` are moved unread.
    pub(super) moves: bool,
}

/// The inputs of every choice.
pub(super) struct Planner<'a> {
    pub(super) version: &'a Version,
    pub(super) busy: &'a InProgress,
    pub(super) options: &'a CompactionOptions,
    /// Number of tables and groups examined, and of comparisons.
    steps: Cell<u64>,
}

impl<'a> Planner<'a> {
    pub(super) fn new(
        version: &'a Version,
        busy: &'a InProgress,
        options: &'a CompactionOptions,
    ) -> Self {
        Self { version, busy, options, steps: Cell::new(0) }
    }
}

impl Planner<'_> {
    #[cfg(test)]
    pub(super) fn steps(&self) -> u64 {
        self.steps.get()
    }

    pub(super) fn count_step(&self) {
        self.steps.set(self.steps.get() + 1);
    }

    /// Compacts a group of overlapping runs of level 0 into the base level or through it, the
    /// largest group first.
    fn out_of_level_0(&self, shape: &Shape) -> Option<Plan> {
        let groups = Groups::of(self);
        groups.largest_first().into_iter().find_map(|at| {
            self.through_base(&groups.get(at).tables, shape)
                .or_else(|| self.down_from_0(&groups, at, shape.base, Reason::Runs))
        })
    }

    /// Compacts a group of few overlapping runs of level 0 into the base level, if no more runs are
    /// expected and the compaction is cheap.
    fn few_runs(&self, shape: &Shape) -> Option<Plan> {
        let enough = self.options.few_runs()?;
        let groups = Groups::of(self);
        let order = groups.oldest_first().into_iter();
        order.filter(|at| groups.get(*at).tables.len() >= enough).find_map(|at| {
            let plan = self.down_from_0(&groups, at, shape.base, Reason::Runs)?;
            self.is_cheap(&plan).then_some(plan)
        })
    }

    /// Whether `plan` overlaps little of the output level.
    pub(super) fn is_cheap(&self, plan: &Plan) -> bool {
        self.options.is_cheap(total_bytes(&plan.upper), total_bytes(&plan.lower))
    }

    /// Compacts a group of overlapping runs of level 0, with what they overlap in the base level,
    /// into the level below that, if the base level could not keep them and the compaction is not
    /// too large.
    fn through_base(&self, group: &[Arc<TableFile>], shape: &Shape) -> Option<Plan> {
        let output_level = shape.base + 1;
        if output_level == LEVELS {
            return None;
        }
        let through = self.below(group, shape.base)?;
        let lower = self.below(group.iter().chain(&through), output_level)?;
        let going_down = total_bytes(group.iter().chain(&through));
        let is_worth_it = !through.is_empty() && going_down > shape.targets[shape.base];
        let bytes = going_down.saturating_add(total_bytes(&lower));
        if !is_worth_it || bytes > self.options.max_through_bytes() {
            return None;
        }
        let upper = group.to_vec();
        let inputs = Inputs { level: 0, upper, through, output_level, lower, moves: false };
        self.checked(inputs, Reason::Runs)
    }

    /// Compacts a table of `level` into the next, the one with the smallest overlap ratio first.
    fn out_of_level(&self, level: usize) -> Option<Plan> {
        let tables = self.version.levels[level].iter().enumerate();
        let free = tables.filter(|(_, table)| !self.busy.is_busy(table.number));
        let offer = |(at, table): (usize, &Arc<TableFile>)| (self.overlap_ratio(level, table), at);
        let mut offers: Vec<(f64, usize)> = free.map(offer).collect();
        offers.sort_by(|(a, _), (b, _)| {
            self.count_step();
            a.total_cmp(b)
        });
        offers
            .into_iter()
            .find_map(|(_, at)| self.down_from(level, at..at + 1, level + 1, Reason::Bytes))
    }

    /// Bytes of the next level that must be rewritten per byte moved out of `level`.
    fn overlap_ratio(&self, level: usize, table: &TableFile) -> f64 {
        self.count_step();
        let overlapped = self.version.span(level + 1, &table.smallest, &table.largest);
        let overlapped = &self.version.levels[level + 1][overlapped];
        let tombstones = table.deletions as f64 / table.entries.max(1) as f64;
        let weight = table.file_bytes.max(1) as f64 * (1.0 + tombstones);
        total_bytes(overlapped) as f64 / weight
    }

    /// The plan with these inputs, unless it would conflict with a running one or pass older data.
    pub(super) fn checked(&self, inputs: Inputs, reason: Reason) -> Option<Plan> {
        let Inputs { level, upper, through, output_level, lower, moves } = inputs;
        let range = KeyBounds::hull(upper.iter().chain(&through).chain(&lower))?;
        let grandparents = self.grandparents(output_level, &range);
        let plan = Plan {
            level,
            upper,
            through,
            output_level,
            lower,
            trivial_move: moves,
            reason,
            grandparents: grandparents.iter().map(Grandparent::of).collect(),
            range,
        };
        let is_free = !plan.tables().any(|table| self.busy.is_busy(table.number))
            && !self.busy.writes_into(output_level, &plan.range);
        (is_free && self.may_pass(&plan)).then_some(plan)
    }

    /// A plan that removes tables of `level` unread, if there are any.
    pub(super) fn removal(&self, level: usize, upper: Vec<Arc<TableFile>>) -> Option<Plan> {
        self.within(level, upper, Reason::Deleted)
    }

    /// A plan that rewrites tables of a sorted `level` in place, unless it would conflict.
    pub(super) fn in_place(
        &self,
        level: usize,
        offer: &[Arc<TableFile>],
        reason: Reason,
    ) -> Option<Plan> {
        let mut plan = self.within(level, self.below(offer, level)?, reason)?;
        if plan.upper.iter().any(|table| self.busy.is_busy(table.number)) {
            return None;
        }
        let grandparents = self.grandparents(level, &plan.range);
        plan.grandparents = grandparents.iter().map(Grandparent::of).collect();
        Some(plan)
    }

    /// A plan of tables of `level` whose outputs stay there, if there are any and no running plan
    /// writes into their range.
    fn within(&self, level: usize, upper: Vec<Arc<TableFile>>, reason: Reason) -> Option<Plan> {
        let range = KeyBounds::hull(&upper)?;
        (!self.busy.writes_into(level, &range)).then_some(Plan {
            level,
            upper,
            through: Vec::new(),
            output_level: level,
            lower: Vec::new(),
            trivial_move: false,
            reason,
            grandparents: Vec::new(),
            range,
        })
    }

    /// The tables below `output_level` that overlap `range`.
    fn grandparents(&self, output_level: usize, range: &KeyBounds) -> Vec<Arc<TableFile>> {
        match output_level + 1 {
            LEVELS => Vec::new(),
            below => self.version.overlapping(below, &range.smallest, &range.largest),
        }
    }

    /// The tables of a sorted `output_level` that overlap the range of `upper`.
    fn below<'a>(
        &self,
        upper: impl IntoIterator<Item = &'a Arc<TableFile>>,
        output_level: usize,
    ) -> Option<Vec<Arc<TableFile>>> {
        let range = KeyBounds::hull(upper)?;
        let below = self.closed(output_level, &range.smallest, &range.largest);
        Some(self.version.levels[output_level][below].to_vec())
    }

    /// Indexes of the tables of a sorted `level` that overlap `smallest..=largest`, with all tables
    /// that share a key with these, and so on; normally there are none of the latter.
    pub(super) fn closed(&self, level: usize, smallest: &[u8], largest: &[u8]) -> Range<usize> {
        let run = &self.version.levels[level];
        let mut met = self.version.span(level, smallest, largest);
        while let [first, .., last] = &run[met.clone()] {
            let wider = self.version.span(level, &first.smallest, &last.largest);
            if wider.len() <= met.len() {
                break;
            }
            met = wider;
        }
        met
    }

    /// Whether nothing that stays between the levels of `plan`, now or after the running plans,
    /// overlaps the tables that it moves down.
    fn may_pass(&self, plan: &Plan) -> bool {
        let Some(range) = KeyBounds::hull(plan.upper.iter().chain(&plan.through)) else {
            return false;
        };
        let taken: HashSet<u64> = plan.through.iter().map(|table| table.number).collect();
        let is_taken = |table: &Arc<TableFile>| taken.contains(&table.number);
        (plan.level.max(1)..plan.output_level).all(|between| {
            let held = self.version.overlapping(between, &range.smallest, &range.largest);
            let is_free = between == plan.level || held.iter().all(is_taken);
            is_free && !self.busy.writes_into(between, &range)
        })
    }

    /// Whether `table` may move to `output_level` unread, as far as the level below that is
    /// concerned.
    pub(super) fn is_light(&self, table: &TableFile, output_level: usize) -> bool {
        let below = output_level + 1;
        below == LEVELS || {
            let overlapped = self.version.span(below, &table.smallest, &table.largest);
            total_bytes(&self.version.levels[below][overlapped])
                <= self.options.max_grandparent_bytes()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::tree;
    use super::*;

    fn complete(version: &Version, busy: &InProgress, output_level: usize) -> Option<Plan> {
        let options = CompactionOptions::default();
        let planner = Planner::new(version, busy, &options);
        planner.down_from_0(&Groups::of(&planner), 0, output_level, Reason::Runs)
    }

    /// Level 0 compacted past a level that holds older data makes deleted keys reappear (leveldb
    /// 184, rocksdb 2722, badger 2143). The choice of the base level alone should prevent that;
    /// this check is a second safeguard.
    #[test]
    fn nothing_passes_older_data_on_its_way_down() {
        let busy = InProgress::default();
        let version = tree(&[(0, 9, "a", "m"), (3, 5, "m", "p"), (6, 1, "a", "z")]);
        assert!(complete(&version, &busy, 3).is_some());
        assert!(complete(&version, &busy, 2).is_some());
        assert!(complete(&version, &busy, 6).is_none());
        let beside = tree(&[(0, 9, "a", "m"), (3, 5, "n", "p"), (6, 1, "a", "z")]);
        assert!(complete(&beside, &busy, 6).is_some());
    }

    #[test]
    fn nothing_passes_the_outputs_of_running_plans() {
        let version = tree(&[(0, 9, "c", "d"), (2, 7, "a", "b"), (2, 8, "x", "z")]);
        let mut busy = InProgress::default();
        let options = CompactionOptions::default();
        let planner = Planner::new(&version, &busy, &options);
        let running = planner.down_from(2, 0..2, 3, Reason::Bytes).unwrap();
        assert!(complete(&version, &busy, 4).is_some());
        busy.start(&running).unwrap();
        assert!(complete(&version, &busy, 4).is_none(), "the output may span a to z");
        assert!(complete(&version, &busy, 3).is_none());
        assert!(complete(&version, &busy, 2).is_some(), "above it, the way is free");
    }

    /// Two compactions of the same tables write their contents twice (rocksdb 6.11).
    #[test]
    fn a_plan_made_from_an_older_state_does_not_start() {
        let version = tree(&[(0, 9, "a", "m"), (6, 1, "a", "z"), (5, 4, "x", "y")]);
        let mut busy = InProgress::default();
        let first = complete(&version, &busy, 6).unwrap();
        let second = complete(&version, &busy, 6).unwrap();
        let id = busy.start(&first).unwrap();
        assert!(busy.start(&second).is_none());
        let options = CompactionOptions::default();
        let planner = Planner::new(&version, &busy, &options);
        assert!(planner.in_place(6, &version.levels[6], Reason::Range).is_none());
        assert!(planner.in_place(5, &version.levels[5], Reason::Range).is_some());
        // Nor does a plan start with a table that the first has installed while it continues.
        let goes_on = tree(&[(0, 9, "a", "m"), (6, 10, "a", "c"), (6, 1, "d", "z")]);
        let into = |busy: &InProgress| {
            let planner = Planner::new(&goes_on, busy, &options);
            planner.in_place(6, &goes_on.levels[6][..1], Reason::Range)
        };
        let mut apart = InProgress::default();
        let rebuild = apart.start_rebuild(1).unwrap();
        assert!(into(&apart).is_some());
        apart.keep(rebuild, [10].into_iter());
        assert!(into(&apart).is_none());
        apart.finish(rebuild);
        assert!(into(&apart).is_some() && !apart.is_busy(10));
        busy.finish(id);
        assert!(busy.is_empty() && busy.start(&second).is_some());
    }
}
