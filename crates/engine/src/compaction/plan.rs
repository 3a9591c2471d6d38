//! Choosing the next merge: a pure function from a version to a plan. The worker that runs a plan
//! makes no choices.
//!
//! 1. Each level gets a score ([`Shape`]); levels from 1 on are tried, the highest score first.
//! 2. Level 0 offers its groups of runs that overlap one another, the largest first: whoever is
//!    moved down takes everything older beside it along. A deeper level offers its tables, the one
//!    that overlaps the fewest bytes of the next level per byte of its own first: that moves most
//!    bytes down per byte written (a random fill of 2000 runs writes each byte 13 times; 19 times
//!    if tables are taken at random). Tombstones count double, for they free what they meet.
//! 3. The offer is closed under equal boundary keys, joined by all tables of the output level that
//!    it overlaps, and grown by tables of its own level that cost no further output-level table.
//! 4. Runs of level 0 that would fill the base level above its target go through it: with what they
//!    overlap there, into the level below it. What would have to go on at once is written once, not
//!    twice, and the base level is empty for the next runs. Only while that is a merge of bounded
//!    size ([`CompactionOptions::max_through_bytes`]), which is so in stores of up to a few times
//!    the base level's size and in small parts of the key space.
//! 5. It is refused, and the next one tried, where it would touch a running plan.
//! 6. Where somebody waits for the store to rest and nothing is left to do, a group of fewer runs than the
//!    trigger says is merged too, if it finds little in the base level: lookups and walks have to ask each
//!    of them, and the merge costs less per byte than any further down.
//! 7. With nothing to merge it with, a table is moved without being read, unless it overlaps so
//!    much of the level below the output that its next merge would be too large.
//!
//! Invariants of every plan:
//! * It shares no table with a running plan, and no range with one that writes into its output
//!   level.
//! * Nothing older than any of its inputs stays in its key ranges at or above the output level:
//!   not in level 0, not in the levels that it skips or goes through, not in the outputs of running
//!   plans.
//! * A table of any level below 0 that shares a user key with an input of that level is an input.
//!
//! Source: the leveled compaction of LevelDB and RocksDB; the order of the levels' scores follows
//! Pebble.

use std::sync::Arc;
use trommel_base::planted::{Bug, planted};

use crate::version::{LEVELS, TableFile, Version};

use super::in_progress::InProgress;
use super::key_range::{KeyRange, total_bytes};
use super::options::CompactionOptions;
use super::shape::Shape;

/// Why a plan was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reason {
    /// Level 0 has too many runs.
    Runs,
    /// The level holds more than its target.
    Bytes,
    /// Somebody asked for the range to be compacted.
    Range,
}

/// One merge, decided in full.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    /// The level the plan starts from.
    pub(crate) level: usize,
    /// Its tables in `level`, in the level's order (level 0: newest first). Never empty.
    pub(crate) upper: Vec<Arc<TableFile>>,
    /// Its tables in the level above `output_level`, by key, where a plan of level 0 goes through
    /// that; else empty.
    pub(crate) through: Vec<Arc<TableFile>>,
    /// Where the outputs go; `level` itself where a level is rewritten in place.
    pub(crate) output_level: usize,
    /// Its tables in `output_level`, by key; empty where that is `level`.
    pub(crate) lower: Vec<Arc<TableFile>>,
    /// Whether the tables of `upper` go to the output level as they are.
    pub(crate) trivial_move: bool,
    /// Why.
    pub(crate) reason: Reason,
    /// The tables of the level below the output level that the inputs overlap, by key: where
    /// outputs are best cut.
    pub(crate) grandparents: Vec<Grandparent>,
    /// All keys of the inputs lie in here.
    pub(crate) range: KeyRange,
}

/// A table below the output level. Not the file: that leaves the disk when another merge replaces it.
#[derive(Debug, Clone)]
pub(crate) struct Grandparent {
    /// What tests call it.
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

    /// The same, to be changed.
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

    /// Bytes of all inputs.
    pub(crate) fn input_bytes(&self) -> u64 {
        total_bytes(self.tables())
    }
}

/// The next merge that `version` needs and the running plans allow.
pub(crate) fn plan(
    version: &Version,
    busy: &InProgress,
    options: &CompactionOptions,
) -> Option<Plan> {
    let planner = Planner { version, busy, options };
    let shape = Shape::of(version, busy, options);
    let mut scores = [0.0; LEVELS];
    for (level, score) in scores.iter_mut().enumerate() {
        *score = shape.score(level, version, busy, options);
    }
    let mut levels: Vec<usize> = (0..LEVELS - 1).filter(|level| scores[*level] >= 1.0).collect();
    // A level that is itself too full is no place to move tables to: relieve it first. Under a
    // backlog that leaves fewer runs in level 0 for the same bytes written.
    let weight = |level: usize| {
        let below = if level == 0 { shape.base } else { level + 1 };
        scores[level] / f64::max(scores[below], 1.0)
    };
    levels.sort_by(|a, b| weight(*b).total_cmp(&weight(*a)));
    let needed = levels.into_iter().find_map(|level| match level {
        0 => planner.out_of_level_0(&shape),
        _ => planner.out_of_level(level),
    });
    needed.or_else(|| planner.few_runs(&shape))
}

/// What every choice looks at.
pub(super) struct Planner<'a> {
    pub(super) version: &'a Version,
    pub(super) busy: &'a InProgress,
    pub(super) options: &'a CompactionOptions,
}

impl Planner<'_> {
    /// A group of overlapping runs of level 0 into the base level or through it, the largest group
    /// first.
    fn out_of_level_0(&self, shape: &Shape) -> Option<Plan> {
        let mut groups = self.groups_of_level_0();
        groups.sort_by_key(|group| std::cmp::Reverse(group.len()));
        groups.into_iter().find_map(|group| {
            self.through_base(&group, shape)
                .or_else(|| self.complete(0, group, shape.base, Reason::Runs))
        })
    }

    /// A group of few overlapping runs of level 0 into the base level, where no more are expected and that is
    /// cheap.
    fn few_runs(&self, shape: &Shape) -> Option<Plan> {
        let enough = self.options.few_runs()?;
        let groups = self.groups_of_level_0().into_iter().filter(|group| group.len() >= enough);
        groups.into_iter().find_map(|group| {
            let plan = self.complete(0, group, shape.base, Reason::Runs)?;
            let (bytes, below) = (total_bytes(&plan.upper), total_bytes(&plan.lower));
            self.options.is_cheap(bytes, below).then_some(plan)
        })
    }

    /// A group of overlapping runs of level 0, with what they overlap in the base level, into the
    /// level below that: if the base level could not keep them, and the merge is not too large.
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
        self.checked(0, group.to_vec(), through, output_level, lower, Reason::Runs)
    }

    /// The runs of level 0 in groups that do not overlap one another, the group with the oldest
    /// run first.
    pub(super) fn groups_of_level_0(&self) -> Vec<Vec<Arc<TableFile>>> {
        if planted(Bug::OverlapsLeftBehind) {
            return self.version.levels[0].iter().map(|table| vec![Arc::clone(table)]).collect();
        }
        let mut groups: Vec<Vec<Arc<TableFile>>> = Vec::new();
        for table in self.version.levels[0].iter().rev() {
            if groups.iter().flatten().all(|grouped| grouped.number != table.number) {
                groups.push(self.closed(0, vec![Arc::clone(table)]));
            }
        }
        groups
    }

    /// A table of `level` into the next, the one with the smallest overlap ratio first.
    fn out_of_level(&self, level: usize) -> Option<Plan> {
        let mut offers: Vec<(f64, &Arc<TableFile>)> = self.version.levels[level]
            .iter()
            .filter(|table| !self.busy.is_busy(table.number))
            .map(|table| (self.overlap_ratio(level, table), table))
            .collect();
        offers.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        offers.into_iter().find_map(|(_, table)| {
            self.complete(level, vec![Arc::clone(table)], level + 1, Reason::Bytes)
        })
    }

    /// Bytes of the next level that must be rewritten per byte moved out of `level`.
    fn overlap_ratio(&self, level: usize, table: &TableFile) -> f64 {
        let overlapped = self.version.overlapping(level + 1, &table.smallest, &table.largest);
        let tombstones = table.deletions as f64 / table.entries.max(1) as f64;
        let weight = table.file_bytes.max(1) as f64 * (1.0 + tombstones);
        total_bytes(&overlapped) as f64 / weight
    }

    /// Makes an offer of tables of `level` a plan, or refuses it.
    pub(super) fn complete(
        &self,
        level: usize,
        offer: Vec<Arc<TableFile>>,
        output_level: usize,
        reason: Reason,
    ) -> Option<Plan> {
        let upper = self.closed(level, offer);
        let lower = self.below(&upper, output_level)?;
        let upper = self.grown(level, upper, &lower, output_level);
        self.checked(level, upper, Vec::new(), output_level, lower, reason)
    }

    /// The plan with these inputs, unless it would touch a running one or pass older data.
    fn checked(
        &self,
        level: usize,
        upper: Vec<Arc<TableFile>>,
        through: Vec<Arc<TableFile>>,
        output_level: usize,
        lower: Vec<Arc<TableFile>>,
        reason: Reason,
    ) -> Option<Plan> {
        let range = KeyRange::hull(upper.iter().chain(&through).chain(&lower))?;
        let grandparents = self.grandparents(output_level, &range);
        let is_alone = through.is_empty() && lower.is_empty();
        let trivial_move = is_alone && self.may_move(level, &upper, output_level);
        let plan = Plan {
            level,
            upper,
            through,
            output_level,
            lower,
            trivial_move,
            reason,
            grandparents: grandparents.iter().map(Grandparent::of).collect(),
            range,
        };
        let is_free = !plan.tables().any(|table| self.busy.is_busy(table.number))
            && !self.busy.writes_into(output_level, &plan.range);
        (is_free && self.may_pass(&plan)).then_some(plan)
    }

    /// Makes tables of a sorted `level` a plan that rewrites them in place, or refuses it.
    pub(super) fn in_place(
        &self,
        level: usize,
        offer: Vec<Arc<TableFile>>,
        reason: Reason,
    ) -> Option<Plan> {
        let upper = self.closed(level, offer);
        let range = KeyRange::hull(&upper)?;
        let touched = upper.iter().any(|table| self.busy.is_busy(table.number));
        if touched || self.busy.writes_into(level, &range) {
            return None;
        }
        let grandparents = self.grandparents(level, &range);
        Some(Plan {
            level,
            upper,
            through: Vec::new(),
            output_level: level,
            lower: Vec::new(),
            trivial_move: false,
            reason,
            grandparents: grandparents.iter().map(Grandparent::of).collect(),
            range,
        })
    }

    /// The tables below `output_level` that meet `range`.
    fn grandparents(&self, output_level: usize, range: &KeyRange) -> Vec<Arc<TableFile>> {
        match output_level + 1 {
            LEVELS => Vec::new(),
            below => self.version.overlapping(below, &range.smallest, &range.largest),
        }
    }

    /// `offer` with all tables of `level` that share a key with it, theirs, and so on; in the
    /// level's order. In level 0 this is every run that overlaps, in deeper levels normally none.
    fn closed(&self, level: usize, mut offer: Vec<Arc<TableFile>>) -> Vec<Arc<TableFile>> {
        if planted(Bug::OverlapsLeftBehind) && level == 0 {
            return offer;
        }
        while let Some(range) = KeyRange::hull(&offer) {
            let wider = self.version.overlapping(level, &range.smallest, &range.largest);
            if wider.len() <= offer.len() {
                break;
            }
            offer = wider;
        }
        offer
    }

    /// The tables of `output_level` that those of `upper`, from the first key to the last, overlap.
    fn below<'a>(
        &self,
        upper: impl IntoIterator<Item = &'a Arc<TableFile>>,
        output_level: usize,
    ) -> Option<Vec<Arc<TableFile>>> {
        let range = KeyRange::hull(upper)?;
        let lower = self.version.overlapping(output_level, &range.smallest, &range.largest);
        Some(self.closed(output_level, lower))
    }

    /// `upper` with further tables of its level that bring no further table of the output level
    /// with them, while they are free and the job stays within its limit.
    fn grown(
        &self,
        level: usize,
        upper: Vec<Arc<TableFile>>,
        lower: &[Arc<TableFile>],
        output_level: usize,
    ) -> Vec<Arc<TableFile>> {
        let Some(range) = KeyRange::hull(upper.iter().chain(lower)) else { return upper };
        let widest = self.version.overlapping(level, &range.smallest, &range.largest);
        if level == 0 {
            let widest = self.closed(0, widest);
            return if self.is_no_dearer(&widest, lower, output_level) { widest } else { upper };
        }
        let is_in_upper = |table: &Arc<TableFile>| upper.iter().any(|t| t.number == table.number);
        let Some(mut from) = widest.iter().position(is_in_upper) else { return upper };
        let mut to = from + upper.len();
        while from > 0 && self.is_no_dearer(&widest[from - 1..to], lower, output_level) {
            from -= 1;
        }
        while to < widest.len() && self.is_no_dearer(&widest[from..to + 1], lower, output_level) {
            to += 1;
        }
        widest[from..to].to_vec()
    }

    /// Whether a job may take all of `upper` with no more of the output level than `lower`.
    fn is_no_dearer(
        &self,
        upper: &[Arc<TableFile>],
        lower: &[Arc<TableFile>],
        output_level: usize,
    ) -> bool {
        let bytes = total_bytes(upper.iter().chain(lower));
        bytes <= self.options.max_job_bytes()
            && upper.iter().all(|table| !self.busy.is_busy(table.number))
            && self.below(upper, output_level).is_some_and(|below| below.len() == lower.len())
    }

    /// Whether nothing that `plan` leaves between its levels, now or when the running plans are
    /// done, lies in the way of what it takes down.
    fn may_pass(&self, plan: &Plan) -> bool {
        let Some(range) = KeyRange::hull(plan.upper.iter().chain(&plan.through)) else {
            return false;
        };
        let is_taken = |table: &Arc<TableFile>| plan.tables().any(|t| t.number == table.number);
        (plan.level.max(1)..plan.output_level).all(|between| {
            let held = self.version.overlapping(between, &range.smallest, &range.largest);
            let is_free = between == plan.level || held.iter().all(is_taken);
            is_free && !self.busy.writes_into(between, &range)
        })
    }

    /// Whether `upper`, which overlaps nothing in the output level, may go there unread.
    fn may_move(&self, level: usize, upper: &[Arc<TableFile>], output_level: usize) -> bool {
        let limit = self.options.max_grandparent_bytes();
        let is_light = |table: &Arc<TableFile>| {
            KeyRange::hull([table])
                .is_some_and(|range| total_bytes(&self.grandparents(output_level, &range)) <= limit)
        };
        (level > 0 || upper.len() == 1) && upper.iter().all(is_light)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::tree;
    use super::*;

    fn complete(version: &Version, busy: &InProgress, output_level: usize) -> Option<Plan> {
        let options = CompactionOptions::default();
        let planner = Planner { version, busy, options: &options };
        planner.complete(0, version.levels[0].clone(), output_level, Reason::Runs)
    }

    /// Level 0 merged past a level that holds older data makes deleted keys reappear (leveldb 184,
    /// rocksdb 2722, badger 2143). The base level alone should prevent it; this is the second lock.
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
    fn nor_what_a_running_merge_will_put_there() {
        let version = tree(&[(0, 9, "c", "d"), (2, 7, "a", "b"), (2, 8, "x", "z")]);
        let mut busy = InProgress::default();
        let options = CompactionOptions::default();
        let planner = Planner { version: &version, busy: &busy, options: &options };
        let running = planner.complete(2, version.levels[2].clone(), 3, Reason::Bytes).unwrap();
        assert!(complete(&version, &busy, 4).is_some());
        busy.start(&running).unwrap();
        assert!(complete(&version, &busy, 4).is_none(), "the output may span a to z");
        assert!(complete(&version, &busy, 3).is_none());
        assert!(complete(&version, &busy, 2).is_some(), "above it, the way is free");
    }

    /// Two merges of the same tables write their contents twice (rocksdb 6.11).
    #[test]
    fn a_plan_made_from_an_older_state_does_not_start() {
        let version = tree(&[(0, 9, "a", "m"), (6, 1, "a", "z"), (5, 4, "x", "y")]);
        let mut busy = InProgress::default();
        let first = complete(&version, &busy, 6).unwrap();
        let second = complete(&version, &busy, 6).unwrap();
        let id = busy.start(&first).unwrap();
        assert!(busy.start(&second).is_none());
        let options = CompactionOptions::default();
        let planner = Planner { version: &version, busy: &busy, options: &options };
        assert!(planner.in_place(6, version.levels[6].clone(), Reason::Range).is_none());
        assert!(planner.in_place(5, version.levels[5].clone(), Reason::Range).is_some());
        // Nor one of what the first has put in force, as long as it goes on.
        let goes_on = tree(&[(0, 9, "a", "m"), (6, 10, "a", "c"), (6, 1, "d", "z")]);
        let into = |busy: &InProgress| {
            let planner = Planner { version: &goes_on, busy, options: &options };
            planner.in_place(6, vec![Arc::clone(&goes_on.levels[6][0])], Reason::Range)
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
