//! Which neighbours of one level share a compaction.
//!
//! 1. A level is a list of *units* by key: in level 0, groups of overlapping runs; in deeper
//!    levels, tables. Units do not overlap each other.
//! 2. A plan begins with one unit, or several adjacent ones, and adds its neighbours one by one,
//!    first towards greater keys and then towards smaller ones, while [`Planner::may_join`] agrees.
//! 3. A neighbour within the tables of the output level that are rewritten anyway costs only its
//!    own bytes, and joins while the job stays within its limit.
//! 4. Large runs of level 0 that overlap nothing are moved together, unread.
//! 5. Small ones are merged into one table, together with the tables between them in the output
//!    level, if these are small: moved one by one they would stay small tables forever, each adding
//!    to the version.
//!
//! A plan looks at each unit a bounded number of times; finding the groups of level 0 sorts it
//! once.
//!
//! Called by the planner.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use crate::version::TableFile;

use super::key_range::{KeyBounds, total_bytes};
use super::plan::{Inputs, Plan, Planner, Reason};

/// Runs of level 0 that overlap one another, and no others.
#[derive(Debug)]
pub(super) struct Group {
    /// Newest first.
    pub(super) tables: Vec<Arc<TableFile>>,
    range: KeyBounds,
    bytes: u64,
    /// Index of its oldest run in level 0.
    oldest: usize,
}

/// The groups of level 0, by key.
#[derive(Debug)]
pub(super) struct Groups(Vec<Group>);

impl Groups {
    pub(super) fn of(planner: &Planner<'_>) -> Self {
        let runs = &planner.version.levels[0];
        let mut by_key: Vec<usize> = (0..runs.len()).collect();
        by_key.sort_by(|a, b| {
            planner.count_step();
            runs[*a].smallest.cmp(&runs[*b].smallest)
        });
        let mut groups: Vec<(Vec<usize>, &[u8])> = Vec::new();
        for at in by_key {
            planner.count_step();
            match groups.last_mut() {
                Some((group, largest)) if *runs[at].smallest <= **largest => {
                    *largest = (*largest).max(&runs[at].largest);
                    group.push(at);
                }
                _ => groups.push((vec![at], &runs[at].largest)),
            }
        }
        let group = |(mut indices, largest): (Vec<usize>, &[u8])| {
            let smallest = runs[indices[0]].smallest.clone();
            indices.sort_unstable();
            let tables: Vec<_> = indices.iter().map(|at| Arc::clone(&runs[*at])).collect();
            let bytes = total_bytes(&tables);
            let range = KeyBounds { smallest, largest: largest.into() };
            Group { tables, range, bytes, oldest: indices.last().copied().unwrap_or_default() }
        };
        Self(groups.into_iter().map(group).collect())
    }

    pub(super) fn get(&self, at: usize) -> &Group {
        &self.0[at]
    }

    /// Indexes of the groups, the one with the oldest run first.
    pub(super) fn oldest_first(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.0.len()).collect();
        order.sort_by_key(|at| std::cmp::Reverse(self.0[*at].oldest));
        order
    }

    /// Indexes of the groups, the one with the most runs first.
    pub(super) fn largest_first(&self) -> Vec<usize> {
        let mut order = self.oldest_first();
        order.sort_by_key(|at| std::cmp::Reverse(self.0[*at].tables.len()));
        order
    }

    fn unit(&self, at: usize) -> Option<Unit<'_>> {
        let Group { tables, range, bytes, .. } = self.0.get(at)?;
        Some(Unit { tables, smallest: &range.smallest, largest: &range.largest, bytes: *bytes })
    }
}

/// Tables of a level that no other table of the level overlaps.
#[derive(Debug, Clone, Copy)]
struct Unit<'a> {
    tables: &'a [Arc<TableFile>],
    smallest: &'a [u8],
    largest: &'a [u8],
    bytes: u64,
}

impl<'a> Unit<'a> {
    fn of(table: &'a Arc<TableFile>) -> Self {
        let (smallest, largest) = (&*table.smallest, &*table.largest);
        Self { tables: std::slice::from_ref(table), smallest, largest, bytes: table.file_bytes }
    }
}

/// Units that are compacted together, and the tables that they overlap.
#[derive(Debug, Clone)]
struct Gathered<'a> {
    units: Range<usize>,
    smallest: &'a [u8],
    largest: &'a [u8],
    bytes: u64,
    /// The tables of the output level that they overlap, from the first key to the last.
    lower: Range<usize>,
    lower_bytes: u64,
    /// Whether the units and the output level allow moving them unread.
    moves: bool,
}

impl Planner<'_> {
    /// Compacts the group at `seed` of level 0 into `output_level`, with neighbours, unless it
    /// would conflict with a running plan.
    pub(super) fn down_from_0(
        &self,
        groups: &Groups,
        seed: usize,
        output_level: usize,
        reason: Reason,
    ) -> Option<Plan> {
        let mut gathered = self.gather(0, |at| groups.unit(at), seed..seed + 1, output_level)?;
        if gathered.moves && reason == Reason::Range {
            // Its neighbours may be newer than the request.
            gathered = Gathered { units: seed..seed + 1, ..gathered };
        }
        let taken = &groups.0[gathered.units.clone()];
        let upper = match taken {
            [one] => one.tables.clone(),
            several => {
                let tables = several.iter().flat_map(|group| &group.tables);
                let numbers: HashSet<u64> = tables.map(|table| table.number).collect();
                let runs = self.version.levels[0].iter();
                runs.filter(|table| numbers.contains(&table.number)).cloned().collect()
            }
        };
        self.checked(self.inputs(0, upper, &gathered, output_level), reason)
    }

    /// Compacts the adjacent tables at `seed` of `level`, which is not level 0, into
    /// `output_level`, with neighbours, unless they would conflict with a running plan.
    pub(super) fn down_from(
        &self,
        level: usize,
        seed: Range<usize>,
        output_level: usize,
        reason: Reason,
    ) -> Option<Plan> {
        let run = &self.version.levels[level];
        let ends = |units: &Range<usize>| Some((run.get(units.start)?, run.get(units.end - 1)?));
        let closed = |units: &Range<usize>| {
            ends(units).map(|(first, last)| self.closed(level, &first.smallest, &last.largest))
        };
        let unit = |at| run.get(at).map(Unit::of);
        let mut gathered = self.gather(level, unit, closed(&seed)?, output_level)?;
        // A neighbour that joined may share a key with the next one, though no version of Trommel
        // writes such tables.
        while let Some(wider) = closed(&gathered.units).filter(|all| *all != gathered.units) {
            gathered = self.gather(level, unit, wider, output_level)?;
        }
        let upper = run[gathered.units.clone()].to_vec();
        self.checked(self.inputs(level, upper, &gathered, output_level), reason)
    }

    fn inputs(
        &self,
        level: usize,
        upper: Vec<Arc<TableFile>>,
        gathered: &Gathered<'_>,
        output_level: usize,
    ) -> Inputs {
        let lower = self.version.levels[output_level][gathered.lower.clone()].to_vec();
        let (through, moves) = (Vec::new(), gathered.moves);
        Inputs { level, upper, through, output_level, lower, moves }
    }

    fn gather<'a>(
        &self,
        level: usize,
        unit: impl Fn(usize) -> Option<Unit<'a>>,
        seed: Range<usize>,
        output_level: usize,
    ) -> Option<Gathered<'a>> {
        let (first, last) = (unit(seed.start)?, unit(seed.end.checked_sub(1)?)?);
        let units = || seed.clone().filter_map(&unit);
        let lower = self.closed(output_level, first.smallest, last.largest);
        let lower_bytes = total_bytes(&self.version.levels[output_level][lower.clone()]);
        let may_move = |unit: Unit<'_>| {
            let is_run = level > 0 || unit.tables.len() == 1;
            is_run && unit.tables.iter().all(|table| self.is_light(table, output_level))
        };
        let mut all = Gathered {
            smallest: first.smallest,
            largest: last.largest,
            bytes: units().map(|unit| unit.bytes).sum(),
            moves: lower.is_empty() && units().all(may_move),
            units: seed.clone(),
            lower,
            lower_bytes,
        };
        if !units().all(|unit| self.is_free(&unit, &all, output_level)) {
            return None;
        }
        while let Some(next) = unit(all.units.end)
            && self.may_join(level, &mut all, &next, output_level)
        {
            all.units.end += 1;
        }
        while let Some(next) = all.units.start.checked_sub(1).and_then(&unit)
            && self.may_join(level, &mut all, &next, output_level)
        {
            all.units.start -= 1;
        }
        Some(all)
    }

    fn is_free(&self, unit: &Unit<'_>, with: &Gathered<'_>, output_level: usize) -> bool {
        self.count_step();
        let smallest = unit.smallest.min(with.smallest);
        let largest = unit.largest.max(with.largest);
        unit.tables.iter().all(|table| !self.busy.is_busy(table.number))
            && !self.busy.writes_between(output_level, smallest, largest)
    }

    /// Whether `next`, a neighbour of `all`, joins it; if so, adds it.
    fn may_join<'a>(
        &self,
        level: usize,
        all: &mut Gathered<'a>,
        next: &Unit<'a>,
        output_level: usize,
    ) -> bool {
        if !self.is_free(next, all, output_level) {
            return false;
        }
        let small = self.options.small_bytes();
        let (smallest, largest) = (all.smallest.min(next.smallest), all.largest.max(next.largest));
        let run = &self.version.levels[output_level];
        // Only the tables beyond those already included are searched for.
        let lower = self.closed(output_level, smallest, largest);
        let more = [
            &run[lower.start..all.lower.start.max(lower.start)],
            &run[all.lower.end.min(lower.end)..lower.end],
        ];
        let more = if all.lower.is_empty() { [&run[lower.clone()], &[]] } else { more };
        let lower_bytes =
            all.lower_bytes + more.iter().map(|tables| total_bytes(*tables)).sum::<u64>();
        let bytes = all.bytes.saturating_add(next.bytes);
        let read = bytes.saturating_add(lower_bytes);
        let has_more = lower.len() > all.lower.len();
        let is_small = next.bytes <= small;
        let lies_within = run[all.lower.clone()]
            .first()
            .zip(run[all.lower.clone()].last())
            .is_some_and(|(first, last)| {
                all.smallest.min(&*first.smallest) <= next.largest
                    && next.smallest <= all.largest.max(&*last.largest)
            });
        let count = all.units.len() as u64;
        let is_of_small = is_small && all.bytes <= small.saturating_mul(count);
        let joins = if !has_more && lies_within {
            read <= self.options.max_job_bytes()
        } else if is_of_small {
            let is_worth_it = !has_more || self.options.is_cheap(bytes, lower_bytes);
            is_worth_it && read <= self.options.table_bytes
        } else {
            // All are moved, or none.
            let is_move = all.moves && level == 0 && next.tables.len() == 1 && lower.is_empty();
            is_move
                && !is_small
                && all.bytes > small.saturating_mul(count)
                && next.tables.iter().all(|table| self.is_light(table, output_level))
        };
        if joins {
            all.moves &= !is_small && lower.is_empty() && level == 0;
            (all.smallest, all.largest, all.bytes) = (smallest, largest, bytes);
            (all.lower, all.lower_bytes) = (lower, lower_bytes);
        }
        joins
    }
}

/// Arranges runs of level 0 into as few sorted sequences of disjoint tables as possible: a
/// compaction opens one table of each at a time.
pub(crate) fn sequences(runs: &[Arc<TableFile>]) -> Vec<Vec<Arc<TableFile>>> {
    let mut by_key: Vec<&Arc<TableFile>> = runs.iter().collect();
    by_key.sort_by(|a, b| a.smallest.cmp(&b.smallest));
    let mut sequences: Vec<Vec<Arc<TableFile>>> = Vec::new();
    for table in by_key {
        let ends_before = |sequence: &&mut Vec<Arc<TableFile>>| {
            sequence.last().is_some_and(|last| last.largest < table.smallest)
        };
        match sequences.iter_mut().find(ends_before) {
            Some(sequence) => sequence.push(Arc::clone(table)),
            None => sequences.push(vec![Arc::clone(table)]),
        }
    }
    sequences
}
