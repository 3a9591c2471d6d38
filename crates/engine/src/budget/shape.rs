//! A version as the solver sees it: runs of similar tables.
//!
//! 1. A table's *reach*, the probability that a lookup falls into its key range, is the share of
//!    live keys in that range, as [`LiveKeys`] estimates them.
//! 2. Each level below 0 is one run of tables of average size, or of a few sizes if they are small
//!    and differ, so that the problem does not grow with the number of tables. Tables that are
//!    mostly deleted are grouped by themselves. Each table of level 0 is solved by itself, if there
//!    are few.
//! 3. The inputs of a job are left out, and its outputs added. Tables of keyspaces that set their
//!    filters themselves are left out, too; their levels count.
//! 4. Upper levels fill and empty, and their filters take more bits per key than others; these bits
//!    must not be taken from existing tables. So level 0 is planned half as full as it gets before
//!    it is compacted, with runs like the last one written, and each level above the last as full
//!    as it may get, unless that would make up much of the tree.

use std::collections::BTreeMap;
use std::sync::Arc;

use trommel_sstable::FILTER_OVERHEAD_BYTES;
use trommel_tuning::{Run, Table, Tree, TuningError, Visits, Workload};

use super::own::OwnFilters;
use super::ranges::PlannedRanges;
use crate::levels::LEVELS;
use crate::live_keys::{KeyCount, LiveKeys};
use crate::purpose::Purpose;
use crate::version::{TableFile, Version};

/// Runs of level 0 that are solved individually; beyond this, neighbours are grouped.
const MOST_NEWEST: usize = 16;

/// Tables of at least this many keys are grouped whatever their sizes: a cache line is negligible
/// for their filters, so all are worth the same bits per key.
const MANY_KEYS: u64 = 1 << 16;

/// Tables differ if their keys deviate from the average by more than one part in this many, on
/// average.
const UNLIKE: u64 = 4;

/// In each level, expected keys are planned for up to one part in this many of all keys.
const MOST_TO_COME: u64 = 8;

/// Most bytes of memory that the filters of a table take if they are not partitioned.
pub(super) fn held_bytes(table: &TableFile) -> u64 {
    match table.built_bytes() {
        0 => 0,
        bytes => bytes + FILTER_OVERHEAD_BYTES,
    }
}

/// The facts about a tree in addition to its tables.
#[derive(Debug)]
pub(crate) struct Outlook {
    /// Whether the tables of the last level have filters.
    pub(super) filters_last: bool,
    /// Runs of level 0 to plan for, and keys of each.
    pub(super) runs: u64,
    pub(super) run_keys: u64,
    /// Keys of all tables whose filters are chosen, except for tombstones.
    pub(super) keys: u64,
    /// Keys that each physical level above the last may have; 0 if that is not planned for.
    pub(super) full: [u64; LEVELS],
    /// The tables whose filters are not chosen.
    pub(super) own: OwnFilters,
}

/// A tree for the solver, and its relation to the version.
#[derive(Debug)]
pub(crate) struct TreeShape {
    tree: Tree,
    /// The number of its last level.
    pub(super) last: usize,
    /// Keys of all tables that exist or are written by the job, except for tombstones.
    pub(super) keys: u64,
    /// The same, and tables, including the expected runs.
    pub(super) planned_keys: u64,
    pub(super) planned_tables: u64,
    /// Filter memory of the tables that no job replaces, if all were held.
    pub(super) bytes_that_stay: u64,
    /// The tables that are in the version and not in the tree.
    pub(super) own: OwnFilters,
    /// The index of the job's tables in the tree, and their level.
    job: Option<(usize, usize)>,
    /// For each table of the version that stays: its index in the tree, and its reach; a reach of 0
    /// for one that is not in the tree.
    places: Vec<(usize, f64)>,
}

impl TreeShape {
    /// The shape of `version`.
    pub(crate) fn of(version: &Version, outlook: Outlook) -> Result<Self, TuningError> {
        Self::build(version, None, outlook)
    }

    /// The shape of `version` after a job has written its tables to physical `level`.
    pub(crate) fn after(
        version: &Version,
        level: usize,
        purpose: &Purpose,
        outlook: Outlook,
    ) -> Result<Self, TuningError> {
        Self::build(version, Some((level, purpose)), outlook)
    }

    fn build(
        version: &Version,
        job: Option<(usize, &Purpose)>,
        outlook: Outlook,
    ) -> Result<Self, TuningError> {
        let mut builder = Builder {
            live: LiveKeys::of(version),
            runs: Vec::new(),
            places: Vec::new(),
            groups: 0,
            job: None,
            to_come: ToCome::default(),
        };
        let (mut number, mut keys, mut tables, mut bytes_that_stay) = (0, 0, 0, 0);
        let mut bytes_of_last = 0;
        for (level, run) in version.levels.iter().enumerate() {
            let stays = |table: &&Arc<TableFile>| job.is_none_or(|(_, job)| !job.replaces(table));
            let all: Vec<_> = run.iter().filter(stays).collect();
            let run: Vec<_> = all.iter().copied().filter(|table| !outlook.own.has(table)).collect();
            let writes = job.filter(|(to, _)| *to == level).map(|(_, purpose)| purpose);
            let place = builder.places.len();
            let has_number = level > 0 && !(all.is_empty() && writes.is_none());
            number += usize::from(has_number);
            if level == 0 {
                builder.add_newest(&run, writes, &outlook);
            } else if run.is_empty() && writes.is_none() {
                // A level without a number yet gets the filters of the next one.
                let number = number + usize::from(!has_number);
                builder.add_empty(number, outlook.full[level].min(outlook.most_to_come()));
            } else {
                builder.add_level(
                    number,
                    &run,
                    writes,
                    (outlook.full[level], outlook.most_to_come()),
                );
            }
            if has_number {
                bytes_of_last = run.iter().map(|table| held_bytes(table)).sum();
            }
            builder.spread_places(place, all.iter().map(|table| outlook.own.has(table)));
            let written =
                writes.map_or((0, 0), |purpose| (purpose.valued_keys(), purpose.tables()));
            keys += run.iter().map(|table| table.valued_keys()).sum::<u64>() + written.0;
            tables += run.len() as u64 + written.1;
            bytes_that_stay += run.iter().map(|table| held_bytes(table)).sum::<u64>();
        }
        if !outlook.filters_last {
            bytes_that_stay -= bytes_of_last;
        }
        let Builder { runs, places, job, to_come, .. } = builder;
        Ok(Self {
            tree: Tree::new(runs)?,
            last: number,
            keys,
            planned_keys: keys + to_come.keys,
            planned_tables: tables + to_come.tables,
            bytes_that_stay,
            own: outlook.own,
            job,
            places,
        })
    }

    pub(super) fn tree(&self) -> &Tree {
        &self.tree
    }

    /// Bytes of the range filters that the policy gives its tables, expected ones included.
    pub(super) fn range_bytes(&self, ranges: &PlannedRanges) -> u64 {
        let of_table = |(level, table): (usize, &Table)| {
            let is_last = level > 0 && level == self.last;
            ranges.bytes(level, is_last, table.keys).saturating_mul(table.alike)
        };
        self.tree.tables().map(of_table).sum()
    }

    /// The level that the job writes to, and the cost of wasted reads of each of its tables without
    /// filters.
    pub(super) fn job(&self, workload: &Workload) -> (usize, f64) {
        let Some((place, level)) = self.job else { return (0, 0.0) };
        (level, self.weights_of_places(workload).get(place).map_or(0.0, |(each, _)| *each))
    }

    /// The same cost for each table of the version, in order.
    pub(super) fn weights(&self, workload: &Workload) -> Vec<f64> {
        let of_places = self.weights_of_places(workload);
        let weight = |(place, reach): &(usize, f64)| {
            let (each, average) = of_places.get(*place).copied().unwrap_or_default();
            if average > 0.0 { each * reach / average } else { 0.0 }
        };
        self.places.iter().map(weight).collect()
    }

    /// For each index of the tree: the weight of one of its tables, and their reach.
    fn weights_of_places(&self, workload: &Workload) -> Vec<(f64, f64)> {
        let visits = workload.visits(&self.tree);
        let weights = self.tree.tables().zip(visits.iter().map(Visits::weight));
        weights.map(|((_, table), all)| (all / table.alike.max(1) as f64, table.reach)).collect()
    }
}

/// Builds the runs of a tree.
struct Builder<'a> {
    live: LiveKeys<'a>,
    runs: Vec<Run>,
    places: Vec<(usize, f64)>,
    groups: usize,
    job: Option<(usize, usize)>,
    to_come: ToCome,
}

/// Expected keys and tables, which do not exist yet.
#[derive(Debug, Clone, Copy, Default)]
struct ToCome {
    keys: u64,
    tables: u64,
}

impl Outlook {
    fn most_to_come(&self) -> u64 {
        self.keys / MOST_TO_COME
    }
}

impl Builder<'_> {
    /// Adds level 0, newest first: expected runs, then the tables that the job writes, then the
    /// existing tables.
    fn add_newest(
        &mut self,
        tables: &[&Arc<TableFile>],
        writes: Option<&Purpose>,
        outlook: &Outlook,
    ) {
        let runs = (tables.len() + usize::from(writes.is_some())) as u64;
        let most = outlook.most_to_come() / outlook.run_keys.max(1);
        let to_come = outlook.runs.saturating_sub(runs).min(most);
        if outlook.run_keys > 0 && to_come > 0 {
            self.add_group_to_come(0, outlook.run_keys, to_come);
        }
        if let Some(purpose) = writes {
            let group = self.group_of_job(0, purpose);
            self.runs.push(Run { level: 0, tables: vec![group] });
        }
        for some in tables.chunks(tables.len().div_ceil(MOST_NEWEST).max(1)) {
            let reaches: Vec<f64> = some.iter().map(|table| self.live.reach(table)).collect();
            self.places.extend(reaches.iter().map(|reach| (self.groups, *reach)));
            let group = self.group(&some.iter().copied().zip(reaches).collect::<Vec<_>>());
            self.runs.push(Run { level: 0, tables: vec![group] });
        }
    }

    /// Adds places for tables of a level that are not in the tree: from place `first` on, there is
    /// one for each of the others.
    fn spread_places(&mut self, first: usize, are_out: impl Iterator<Item = bool>) {
        let mut of_others = self.places.split_off(first).into_iter();
        let place = |is_out: bool| if is_out { None } else { of_others.next() };
        self.places.extend(are_out.map(place).map(Option::unwrap_or_default));
    }

    fn add_group_to_come(&mut self, level: usize, keys: u64, alike: u64) {
        let group = Table { keys, bytes: 0, reach: 1.0, alike };
        self.runs.push(Run { level, tables: vec![group] });
        self.groups += 1;
        self.to_come.keys += keys * alike;
        self.to_come.tables += alike;
    }

    /// Adds a deeper level that is expected to have `keys` keys, and has none.
    fn add_empty(&mut self, level: usize, keys: u64) {
        if keys > 0 {
            self.add_group_to_come(level, keys, 1);
        }
    }

    /// Adds a deeper level, which may have `full` keys; at most `most_to_come` are planned for
    /// beyond the existing ones.
    fn add_level(
        &mut self,
        level: usize,
        tables: &[&Arc<TableFile>],
        writes: Option<&Purpose>,
        (full, most_to_come): (u64, u64),
    ) {
        let mut groups = self.groups_of_sizes(tables);
        if let Some(purpose) = writes {
            groups.push(self.group_of_job(level, purpose));
        }
        // As if its tables were larger: their reach is the same.
        let keys: u64 = groups.iter().map(|group| group.keys * group.alike).sum();
        let to_come = full.saturating_sub(keys).min(most_to_come);
        if keys > 0 {
            let growth = (keys + to_come) as f64 / keys as f64;
            groups.iter_mut().for_each(|group| group.keys = (group.keys as f64 * growth) as u64);
            self.to_come.keys += to_come;
        }
        self.runs.push(Run { level, tables: groups });
    }

    /// The tables of a level, grouped by size. A lookup reaches at most one of them.
    fn groups_of_sizes(&mut self, tables: &[&Arc<TableFile>]) -> Vec<Table> {
        let reaches: Vec<f64> = tables.iter().map(|table| self.live.reach(table)).collect();
        let are_alike = are_alike(tables);
        let size = |table: &TableFile| {
            (KeyCount::of(table).is_mostly_deleted(), if are_alike { 0 } else { size(table.keys) })
        };
        let scale = 1.0 / reaches.iter().sum::<f64>().max(1.0);
        let mut of_sizes: BTreeMap<_, Vec<(&Arc<TableFile>, f64)>> = BTreeMap::new();
        for (table, reach) in tables.iter().zip(&reaches) {
            of_sizes.entry(size(table)).or_default().push((*table, reach * scale));
        }
        let first = self.groups;
        for (table, reach) in tables.iter().zip(&reaches) {
            let nth = of_sizes.range(..size(table)).count();
            self.places.push((first + nth, reach * scale));
        }
        of_sizes.values().map(|some| self.group(some)).collect()
    }

    /// A group of tables, with the reach of each.
    fn group(&mut self, tables: &[(&Arc<TableFile>, f64)]) -> Table {
        let count = tables.len().max(1) as u64;
        let reaches: f64 = tables.iter().map(|(_, reach)| reach).sum();
        self.groups += 1;
        let sum = |value: fn(&TableFile) -> u64| tables.iter().map(|(t, _)| value(t)).sum::<u64>();
        Table {
            keys: sum(|table| table.keys) / count,
            bytes: sum(|table| table.file_bytes) / count,
            reach: (reaches / count as f64).min(1.0),
            alike: count,
        }
    }

    /// The tables that a job writes.
    fn group_of_job(&mut self, level: usize, purpose: &Purpose) -> Table {
        self.job = Some((self.groups, level));
        self.groups += 1;
        let alike = purpose.tables();
        let reach = purpose.span.as_ref().map_or(1.0, |span| {
            let own = KeyCount::new(purpose.keys, purpose.deletions);
            let added = if purpose.inputs.is_empty() { own } else { KeyCount::default() };
            self.live.share(&span.smallest, &span.largest, own, added) / alike as f64
        });
        Table { keys: purpose.keys_each(), bytes: 0, reach, alike }
    }
}

/// Whether tables have similar numbers of keys: almost all do if they were cut by bytes.
fn are_alike(tables: &[&Arc<TableFile>]) -> bool {
    let all: u64 = tables.iter().map(|table| table.keys).sum();
    let count = tables.len() as u64;
    // Deviation from the average, each multiplied by the count.
    let off: u64 = tables.iter().map(|table| (table.keys * count).abs_diff(all)).sum();
    off <= all.saturating_mul(count) / UNLIKE
}

/// The size class of a table: four classes per doubling.
fn size(keys: u64) -> u32 {
    let length = u64::BITS - keys.leading_zeros();
    match keys {
        MANY_KEYS.. => u32::MAX,
        0..4 => length,
        _ => length * 4 + (keys >> (length - 3) & 3) as u32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::purpose::MemtableShare;
    use crate::user_filters::FilterReason;
    use crate::version::{FilterMeta, TableMeta};

    fn table(number: u64, level: u8, (from, to): (u64, u64), keys: u64) -> Arc<TableFile> {
        Arc::new(TableFile::new(TableMeta {
            number,
            table_id: number,
            file_bytes: keys * 100,
            smallest: from.swap_bytes().to_le_bytes().into(),
            largest: to.swap_bytes().to_le_bytes().into(),
            min_seqno: 1,
            max_seqno: 2,
            entries: keys,
            deletions: 0,
            keys,
            filters: FilterMeta { bytes: keys, built_for: level, sidecar: None },
            ranges_applied: 0,
        }))
    }

    /// Level 0 with `runs` runs over all keys, and levels of this many tables of 1,000 keys below.
    fn version(runs: u64, levels: &[u64]) -> Version {
        let mut version = Version::default();
        version.levels[0] = (0..runs).map(|n| table(1 + n, 0, (0, u64::MAX), 500)).collect();
        let first = LEVELS - levels.len();
        for (level, &tables) in (first..).zip(levels) {
            let wide = u64::MAX / tables;
            let range = |nth: u64| (nth * wide, nth * wide + wide - 1);
            let number = |nth| level as u64 * 1_000_000 + nth;
            version.levels[level] =
                (0..tables).map(|nth| table(number(nth), 1, range(nth), 1_000)).collect();
        }
        version
    }

    fn outlook(version: &Version, runs: u64) -> Outlook {
        let full = [0; LEVELS];
        let own = OwnFilters::default();
        Outlook { filters_last: true, runs, run_keys: 500, keys: version.valued_keys(), full, own }
    }

    fn merge(version: &Version, inputs: Vec<u64>) -> Purpose {
        let keys =
            version.tables().filter(|(_, table)| inputs.binary_search(&table.number).is_ok());
        let keys = keys.map(|(_, table)| table.keys).sum();
        let reason = FilterReason::Compaction;
        let own = MemtableShare::default();
        Purpose { reason, keys, deletions: 0, own, expected_keys: 1_000, inputs, span: None }
    }

    /// The size of a job's problem does not grow with the tables: runs of level 0, levels, the job.
    #[test]
    fn ten_thousand_tables_are_as_many_groups_as_a_hundred() {
        for (levels, runs) in [([1, 9, 90], 3), ([9, 900, 9_000], 400)] {
            let version = version(runs, &levels);
            let tables = version.tables().count();
            let inputs = (0..runs).map(|n| 1 + n).collect();
            let job = merge(&version, inputs);
            let shape = TreeShape::after(&version, LEVELS - 3, &job, outlook(&version, 2)).unwrap();
            // The last level, two more, one that is written to, and expected runs.
            assert_eq!(shape.tree().tables().count(), 3 + 1 + 1, "{tables} tables");
            let whole = TreeShape::of(&version, outlook(&version, 2)).unwrap();
            let groups = whole.tree().tables().count() as u64;
            assert!(groups <= runs.min(MOST_NEWEST as u64) + 3, "{groups} of {tables} tables");
            let weights = whole.weights(&Workload::new(1.0).unwrap());
            assert_eq!(weights.len(), tables);
        }
    }

    #[test]
    fn a_lookup_reads_each_level_once_and_each_run() {
        let version = version(3, &[4, 40]);
        let shape = TreeShape::of(&version, outlook(&version, 0)).unwrap();
        let weights = shape.weights(&Workload::new(1.0).unwrap());
        let mut of_levels = [0.0; LEVELS];
        for ((level, _), weight) in version.tables().zip(weights) {
            of_levels[level] += weight;
        }
        for (level, reads) in [(0, 3.0), (LEVELS - 2, 1.0), (LEVELS - 1, 1.0)] {
            assert!((of_levels[level] - reads).abs() < 0.05, "{of_levels:?}");
        }
    }

    #[test]
    fn a_job_replaces_its_inputs_and_has_the_reach_of_its_keys() {
        let version = version(2, &[10, 100]);
        let upper = (LEVELS - 2) as u64 * 1_000_000;
        let inputs: Vec<u64> = vec![upper];
        let mut job = merge(&version, inputs);
        let first = &version.levels[LEVELS - 2][0];
        job.span = crate::compaction::key_range::KeyBounds::hull([first]);
        let shape = TreeShape::after(&version, LEVELS - 1, &job, outlook(&version, 0)).unwrap();
        assert_eq!(shape.keys, version.valued_keys(), "they move");
        assert_eq!(shape.bytes_that_stay, {
            let stays = version.tables().filter(|(_, table)| table.number != upper);
            stays.map(|(_, table)| held_bytes(table)).sum::<u64>()
        });
        let (level, weight) = shape.job(&Workload::new(1.0).unwrap());
        assert_eq!((level, shape.last), (2, 2));
        assert!((0.05..0.2).contains(&weight), "a tenth of the keys: {weight}");
    }

    #[test]
    fn runs_to_come_are_planned_for_unless_they_are_most_of_the_tree() {
        let planned = |version: &Version| {
            let shape = TreeShape::of(version, outlook(version, 4)).unwrap();
            (shape.planned_keys - shape.keys) / 500
        };
        assert_eq!(planned(&version(1, &[100])), 3);
        assert_eq!(planned(&version(6, &[100])), 0, "there are more already");
        assert_eq!(planned(&version(0, &[8])), 2, "an eighth of 8,000 keys");
        assert_eq!(planned(&version(0, &[1])), 0);
    }

    #[test]
    fn upper_levels_are_planned_for_as_full_as_they_may_get() {
        let version = version(0, &[3, 100]);
        let planned = |full| {
            let outlook = Outlook { full, ..outlook(&version, 0) };
            let shape = TreeShape::of(&version, outlook).unwrap();
            let runs = shape.tree().runs();
            let keys: Vec<u64> = runs.iter().map(Run::keys).collect();
            let levels: Vec<usize> = runs.iter().map(|run| run.level).collect();
            (shape.planned_keys, shape.planned_tables, keys, levels)
        };
        let mut full = [0; LEVELS];
        assert_eq!(planned(full), (103_000, 103, vec![3_000, 100_000], vec![1, 2]));
        full[LEVELS - 2] = 10_000;
        let keys = vec![9_999, 100_000];
        assert_eq!(planned(full), (110_000, 103, keys, vec![1, 2]));
        full[LEVELS - 3] = 1_000;
        let keys = vec![1_000, 9_999, 100_000];
        assert_eq!(planned(full), (111_000, 104, keys, vec![1, 1, 2]), "one that is empty yet");
        full[LEVELS - 2] = 1_000;
        full[LEVELS - 3] = 50_000;
        let keys = vec![103_000 / MOST_TO_COME, 3_000, 100_000];
        assert_eq!(planned(full).2, keys, "no more than an eighth of all");
    }
}
