//! Queries filters, table by table.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;

use trommel::filter::Filter;
use trommel::inspect::{ListedTable, Table};
use trommel::{Db, FilterSpec};
use trommel_harness::{Control, Error};

use super::load::{Survey, TracePart};
use super::sums::{Lookups, Sums};
use super::{Candidate, Replay, Replayed, TraceRead};
use crate::tune::build::{STRIDE, store_error};

/// A replay in progress.
pub(super) struct Replayer<'a> {
    db: &'a Db,
    tables: &'a [ListedTable],
    /// File names of the tables, by id.
    names: HashMap<u64, String>,
    /// Each candidate's filter for each table.
    candidates: &'a [Vec<FilterSpec>],
    control: Control<'a>,
    lookups: Lookups,
    /// Number of lookups that ended on each level.
    ended: BTreeMap<usize, u64>,
    /// By candidate and level; and by candidate, over all levels.
    levels: Vec<BTreeMap<usize, Sums>>,
    all: Vec<Sums>,
}

/// The lookups of a part, on their way through the tables.
struct Round {
    part: TracePart,
    /// Wasted reads of one lookup of each key, by candidate: on the current level, and on those
    /// above.
    level: Vec<Vec<u32>>,
    above: Vec<Vec<u32>>,
}

/// A table, and the lookups that reach it.
struct Visited {
    /// Its index among the tables.
    nth: usize,
    level: usize,
    /// The hashes of its keys.
    hashes: Vec<u64>,
    /// The lookups that reach it, by index in the part.
    coming: Vec<usize>,
    /// Whether the table has the key of each of these.
    is_there: Vec<bool>,
}

impl<'a> Replayer<'a> {
    pub(super) fn new(
        db: &'a Db,
        tables: &'a [ListedTable],
        candidates: &'a [Vec<FilterSpec>],
        control: Control<'a>,
    ) -> Self {
        Self {
            db,
            tables,
            names: db.table_ids().into_iter().map(|(name, id)| (id, name)).collect(),
            candidates,
            control,
            lookups: Lookups::default(),
            ended: BTreeMap::new(),
            levels: vec![BTreeMap::new(); candidates.len()],
            all: vec![Sums::default(); candidates.len()],
        }
    }

    /// Runs the lookups of a part through all tables.
    pub(super) fn replay(&mut self, part: TracePart, is_first: bool) -> Result<(), Error> {
        let none = vec![vec![0; part.lookups.len()]; self.candidates.len()];
        let mut round = Round { part, level: none.clone(), above: none };
        let tables = self.tables;
        for (nth, table) in tables.iter().enumerate() {
            let part = &round.part;
            let within = part.within(&table.meta.smallest, &table.meta.largest);
            let comes = |at: &usize| !part.lookups[*at].is_over && part.lookups[*at].in_tables > 0;
            let coming: Vec<usize> = within.filter(comes).collect();
            // On the first pass every table counts, also without lookups.
            if is_first || !coming.is_empty() {
                let visited = self.visit(nth, coming, &round.part)?;
                self.query(&visited, &mut round, is_first)?;
                self.leave(&visited, &mut round.part);
            }
            self.control.progress.advance(table.meta.entries);
            if tables.get(nth + 1).is_none_or(|next| next.level != table.level) {
                self.end_level(table.level, &mut round);
            }
        }
        for (nth, sums) in self.all.iter_mut().enumerate() {
            for (wasted, lookup) in round.above[nth].iter().zip(&round.part.lookups) {
                sums.add_key(f64::from(*wasted) * lookup.in_tables as f64, lookup.times);
            }
        }
        round.part.lookups.iter().for_each(|lookup| self.lookups.add(lookup.times));
        Ok(())
    }

    /// Reads the table's keys in order, merged with those of the lookups that reach it.
    fn visit(&self, nth: usize, coming: Vec<usize>, part: &TracePart) -> Result<Visited, Error> {
        let ListedTable { level, meta, .. } = &self.tables[nth];
        let missing = || Error::Store("the store has changed while it was read".into());
        let file = self.db.dir().join(self.names.get(&meta.table_id).ok_or_else(missing)?);
        let mut hashes = Vec::new();
        let mut is_there = vec![false; coming.len()];
        let (mut next, mut last) = (0, None);
        let key_of = |next: usize| coming.get(next).map(|at| part.key(&part.lookups[*at]));
        let scan = Table::open(&**self.db.vfs(), &file)
            .and_then(|table| table.scan(Bound::Unbounded, Bound::Unbounded));
        for (nth, entry) in (1_u64..).zip(scan.map_err(store_error)?) {
            let key = entry.map_err(store_error)?.key;
            if nth % STRIDE == 0 && self.control.stop.is_set() {
                return Err(Error::Interrupted);
            }
            if last.as_ref() == Some(&key) {
                continue;
            }
            hashes.push(trommel::filter::hash(&key));
            while key_of(next).is_some_and(|wanted| *wanted < *key) {
                next += 1;
            }
            if key_of(next).is_some_and(|wanted| *wanted == *key) {
                is_there[next] = true;
                next += 1;
            }
            last = Some(key);
        }
        Ok(Visited { nth, level: *level, hashes, coming, is_there })
    }

    /// Queries the table's filter of each candidate; candidates with the same filter share it.
    fn query(&mut self, visited: &Visited, round: &mut Round, is_first: bool) -> Result<(), Error> {
        let lookups = &round.part.lookups;
        let hashes: Vec<u64> = visited.coming.iter().map(|at| lookups[*at].hash).collect();
        let mut passes = vec![true; hashes.len()];
        let mut queried: Vec<FilterSpec> = Vec::new();
        for candidate in 0..self.candidates.len() {
            let spec = self.candidates[candidate][visited.nth];
            if queried.contains(&spec) {
                continue;
            }
            queried.push(spec);
            let filter = build(spec, &visited.hashes)?;
            match &filter {
                Some(filter) => filter.may_contain_many(&hashes, &mut passes),
                None => passes.fill(true),
            }
            for other in candidate..self.candidates.len() {
                if self.candidates[other][visited.nth] == spec {
                    self.count(other, visited, filter.as_ref(), &passes, round);
                    if is_first {
                        let sums = self.levels[other].entry(visited.level).or_default();
                        sums.tables += 1;
                        sums.keys += visited.hashes.len() as u64;
                        sums.filter_bytes += filter.as_ref().map_or(0, Filter::memory_bytes) as u64;
                    }
                }
            }
        }
        Ok(())
    }

    /// Counts the answers of a candidate's filter.
    fn count(
        &mut self,
        candidate: usize,
        visited: &Visited,
        filter: Option<&Filter>,
        passes: &[bool],
        round: &mut Round,
    ) {
        let rate = filter.map_or(1.0, Filter::expected_fpr);
        let sums = self.levels[candidate].entry(visited.level).or_default();
        let answers = visited.coming.iter().zip(&visited.is_there).zip(passes);
        for ((at, is_there), passes) in answers {
            let in_tables = round.part.lookups[*at].in_tables;
            sums.probes = sums.probes.saturating_add(in_tables);
            if *is_there {
                sums.true_positives = sums.true_positives.saturating_add(in_tables);
                continue;
            }
            let lookups = in_tables as f64;
            sums.expected += lookups * rate;
            sums.variance += lookups * lookups * rate * (1.0 - rate);
            if *passes {
                sums.false_positives = sums.false_positives.saturating_add(in_tables);
                round.level[candidate][*at] += 1;
            }
        }
    }

    /// Ends the lookups whose key the table has.
    fn leave(&mut self, visited: &Visited, part: &mut TracePart) {
        let ended = self.ended.entry(visited.level).or_default();
        for (at, is_there) in visited.coming.iter().zip(&visited.is_there) {
            if *is_there {
                part.lookups[*at].is_over = true;
                *ended += part.lookups[*at].in_tables;
            }
        }
    }

    /// Adds each key's wasted reads on a level to the sums.
    fn end_level(&mut self, level: usize, round: &mut Round) {
        let Round { part, level: wasted, above } = round;
        for (nth, (wasted, above)) in wasted.iter_mut().zip(above).enumerate() {
            let sums = self.levels[nth].entry(level).or_default();
            for ((wasted, above), lookup) in wasted.iter_mut().zip(above).zip(&part.lookups) {
                if *wasted > 0 {
                    sums.add_key(f64::from(*wasted) * lookup.in_tables as f64, lookup.times);
                    *above += std::mem::take(wasted);
                }
            }
        }
    }

    /// The totals.
    pub(super) fn report(&self, survey: &Survey, candidates: &[Candidate]) -> Replay {
        let sample = survey.info.sample;
        let report = |(nth, candidate): (usize, &Candidate)| {
            let mut all = self.all[nth];
            self.levels[nth].values().for_each(|level| all.add_level(level));
            let level =
                |(level, sums): (&usize, &Sums)| sums.report(Some(*level), self.lookups, sample);
            Replayed {
                filters: candidate.to_string(),
                all: all.report(None, self.lookups, sample),
                levels: self.levels[nth].iter().map(level).collect(),
            }
        };
        let recorded = survey.ended.iter().copied().enumerate();
        let now = |level: usize| self.ended.get(&level).copied().unwrap_or(0);
        let off: u64 = recorded.map(|(level, then)| then.abs_diff(now(level))).sum();
        let ends = |all: u64, memory: u64| survey.lookups - memory - all;
        let nowhere = ends(survey.ended.iter().sum(), survey.in_memory)
            .abs_diff(ends(self.ended.values().sum(), survey.in_memory));
        Replay {
            trace: TraceRead {
                info: survey.info,
                lookups: survey.lookups,
                keys: self.lookups.keys(),
                found: survey.found,
                in_memory: survey.in_memory,
                is_cut_off: survey.is_cut_off,
                // Each lookup that ends elsewhere is missing on one level and surplus on another.
                elsewhere: (off + nowhere) / 2,
            },
            specs: candidates.iter().enumerate().map(report).collect(),
        }
    }
}

/// The filter of a table whose keys have these hashes.
fn build(spec: FilterSpec, hashes: &[u64]) -> Result<Option<Filter>, Error> {
    if spec == FilterSpec::NONE {
        return Ok(None);
    }
    let mut builder = spec.builder();
    hashes.iter().for_each(|hash| builder.add_hash(*hash));
    Filter::decode(builder.finish()).map(Some).map_err(|error| Error::Store(error.into()))
}
