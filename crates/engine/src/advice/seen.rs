//! The counters, and the tables they belong to.
//!
//! There are two counters for each level. `absent` counts the lookups that reached one of its
//! tables without finding their key, because the key is in a deeper level or absent. `hits` counts
//! the lookups that found an entry there, a value or a tombstone; either ends the lookup. So the
//! number of a level's tables that a lookup of the first kind reaches is
//!
//! ```text
//! reach = absent / (missing + hits of all deeper levels)
//! ```
//!
//! for the keys actually looked up: at most 1 on a level of disjoint tables, at most all tables on
//! level 0. There a lookup may also pass newer tables before it finds its key in an older one:
//! their number is the part of `absent` beyond `reach`. Both are assumed to be the same for another
//! share of misses.
//!
//! The lookups of a level are distributed over its tables by the share of the store's keys in the
//! range of each; there are no counters per table. If too little was counted, those shares are used
//! instead.

use std::sync::Arc;

use trommel_filter::{FilterKind, FilterSpec, RangeSpec};
use trommel_sstable::{FilterFacts, FilterLabel, Filters};
use trommel_tuning::{Cost, RangeDemand, Visited, Visits};

use crate::counters::{FilterTotals, Totals};
use crate::engine::Engine;
use crate::filter_policy::FilterPolicy;
use crate::reach::Reach;
use crate::version::TableFile;
use crate::version::logical_level;

/// Lookups of one sort that must have been counted for the count to be used.
const ENOUGH: u64 = 1000;
/// Empty scans that must have been counted before there is advice on range filters.
pub(super) const SCANS_FOR_ADVICE: u64 = 1000;
/// Bits per key of the range filter that is tried.
const TRIAL_BITS: f64 = 8.0;

fn trial_spec() -> RangeSpec {
    RangeSpec::new(TRIAL_BITS).unwrap_or(RangeSpec::NONE)
}

/// The counters of all lookups.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    /// From the top; only levels with tables.
    pub(super) levels: Vec<SeenLevel>,
    /// Lookups that reached tables.
    pub(super) lookups: u64,
    /// Lookups that found nothing.
    missing: u64,
    /// Whether the last level has no filters, whatever the policy.
    pub(super) spares_last: bool,
    /// The policy, if it is a budget, which chooses by itself.
    pub(super) budget: Option<FilterPolicy>,
    /// The policy.
    pub(super) policy: FilterPolicy,
    /// Scans of ranges that found nothing.
    pub(super) empty_scans: u64,
}

/// A level and its counters.
#[derive(Debug, Clone, Default)]
pub(super) struct SeenLevel {
    pub(super) level: usize,
    pub(super) tables: Vec<SeenTable>,
    absent: u64,
    hits: u64,
    /// Blocks that held nothing of a scan's range, read or skipped.
    empty_blocks: u64,
    /// The answers of its range filters.
    ranges: FilterTotals,
    /// The rate that one of [`TRIAL_BITS`] would state of its largest table, if it has none, or why
    /// that is not known.
    trial: Option<Result<f64, String>>,
}

/// A table with its filter.
#[derive(Debug, Clone, Copy)]
pub(super) struct SeenTable {
    keys: u64,
    /// Its keys, except for tombstones.
    valued_keys: u64,
    /// The probability that a missing key falls into its range, if missing keys are distributed
    /// like existing ones.
    reach: f64,
    facts: FilterFacts,
    /// Its range filter.
    ranges: FilterFacts,
}

/// What one lookup does on a level.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Flow {
    /// Tables that it reaches in vain, without filters.
    pub(super) in_vain: f64,
    /// Tables that a lookup of a missing key reaches.
    pub(super) reach: f64,
    /// Lookups that find their key here.
    pub(super) hits: f64,
    /// The cost of a wasted read.
    pub(super) read_cost: f64,
}

impl Seen {
    pub(super) fn of(engine: &Engine) -> Self {
        let (version, totals) = (engine.version(), engine.statistics.counters.totals());
        let reach = Reach::of(&version, Some(&engine.files.tables));
        let mut levels: Vec<SeenLevel> = Vec::new();
        for (physical, run) in version.levels.iter().enumerate() {
            let level = logical_level(&version, physical).0;
            if levels.last().is_none_or(|last| last.level != level) {
                levels.push(SeenLevel { level, ..SeenLevel::default() });
            }
            let Some(last) = levels.last_mut() else { continue };
            last.tables.extend(run.iter().map(|file| SeenTable::of(engine, &reach, file)));
            last.count(physical, &totals);
            if totals.empty_scans >= SCANS_FOR_ADVICE {
                last.try_ranges(engine, run);
            }
        }
        let hits: u64 = levels.iter().map(|level| level.hits).sum();
        // A lookup answered by a memtable reaches no table: it is neither a hit nor a miss here.
        let missing = totals.gets.saturating_sub(totals.memtable_hits + hits);
        let options = engine.options.load();
        let spares_last = !options.filtering.filters_on_last_level;
        let budget = options.filters.budget().map(|_| options.filters.clone());
        let (policy, empty_scans) = (options.filters.clone(), totals.empty_scans);
        let lookups = missing + hits;
        Self { levels, lookups, missing, spares_last, budget, policy, empty_scans }.without_empty()
    }

    /// Levels without keys need no advice; their hits were of keys that have moved to other levels.
    fn without_empty(mut self) -> Self {
        self.levels.retain(|level| level.keys() > 0);
        self
    }

    /// The share of lookups that found nothing.
    pub(super) fn misses(&self) -> Option<f64> {
        (self.lookups > 0).then(|| self.missing as f64 / self.lookups as f64)
    }

    /// The flow of each level, if the share `misses` of all lookups finds nothing and the others
    /// find their keys where they did; `costs` holds the cost of a wasted read for some levels.
    pub(super) fn flows(&self, misses: f64, costs: &[(usize, f64)]) -> Vec<Flow> {
        let hits: u64 = self.levels.iter().map(|level| level.hits).sum();
        let keys: u64 = self.levels.iter().map(SeenLevel::valued_keys).sum();
        let are_counted = hits >= ENOUGH;
        let share = |level: &SeenLevel| match are_counted {
            true => level.hits as f64 / hits as f64,
            false => level.valued_keys() as f64 / keys.max(1) as f64,
        };
        let (mut passing, mut deeper) = (self.missing, 0.0);
        let mut flows = Vec::new();
        for level in self.levels.iter().rev() {
            let reach = level.reach(passing);
            let again = level.again(reach, passing);
            let hits = (1.0 - misses) * share(level);
            let in_vain = reach * (misses + (1.0 - misses) * deeper) + hits * again;
            let named = costs.iter().rev().find(|(number, _)| *number == level.level);
            let read_cost = named.map_or(1.0, |(_, cost)| *cost);
            flows.push(Flow { in_vain, reach, hits, read_cost });
            passing += level.hits;
            deeper += share(level);
        }
        flows.reverse();
        flows
    }
}

impl SeenLevel {
    fn count(&mut self, physical: usize, totals: &Totals) {
        for cell in &totals.filters[physical] {
            self.absent += cell.negatives + cell.false_positives;
            self.hits += cell.true_positives;
        }
        self.empty_blocks += totals.empty_blocks[physical];
        self.ranges.add(&totals.ranges[physical]);
    }

    /// Keys of its tables.
    pub(super) fn keys(&self) -> u64 {
        self.tables.iter().map(|table| table.keys).sum()
    }

    /// The same, except for tombstones.
    pub(super) fn valued_keys(&self) -> u64 {
        self.tables.iter().map(|table| table.valued_keys).sum()
    }

    /// Bytes of its filters.
    pub(super) fn filter_bytes(&self) -> u64 {
        self.tables.iter().map(SeenTable::filter_bytes).sum()
    }

    /// Bytes of its range filters.
    pub(super) fn range_bytes(&self) -> u64 {
        self.tables.iter().map(|table| table.ranges.bytes).sum()
    }

    /// What empty scans do here, for each of `lookups` lookups.
    pub(super) fn range_demand(&self, lookups: u64) -> RangeDemand {
        let blocks = self.empty_blocks as f64 / lookups.max(1) as f64;
        RangeDemand { level: self.level, keys: self.keys(), blocks, crowded: self.crowded() }
    }

    /// The level and the reason, if the trial of a range filter has failed.
    pub(super) fn failed_trial(&self) -> Option<(usize, String)> {
        let why = self.trial.as_ref()?.as_ref().err()?;
        Some((self.level, why.clone()))
    }

    /// The share of these blocks that range filters let pass, whatever their size: by what the
    /// present ones have let pass, by what they state, or by a trial. All, if that has failed.
    fn crowded(&self) -> f64 {
        let filtered = || self.tables.iter().filter(|table| table.ranges.keys > 0);
        let keys: u64 = filtered().map(|table| table.ranges.keys).sum();
        let mean = |of: fn(&FilterFacts) -> f64| {
            let sum: f64 =
                filtered().map(|table| table.ranges.keys as f64 * of(&table.ranges)).sum();
            sum / keys as f64
        };
        if keys == 0 {
            return match self.trial {
                None => 0.0,
                Some(Ok(rate)) => RangeDemand::crowded_at(rate, trial_spec()),
                Some(Err(_)) => 1.0,
            };
        }
        let FilterTotals { negatives, false_positives, .. } = self.ranges;
        let empty = negatives + false_positives;
        let rate = match empty >= ENOUGH {
            true => false_positives as f64 / empty as f64,
            false => mean(|facts| facts.expected),
        };
        let spec = RangeSpec::new(mean(|facts| facts.bits_requested)).unwrap_or(RangeSpec::NONE);
        RangeDemand::crowded_at(rate, spec)
    }

    /// Tries a range filter on the largest table of `run`, if it has none and scans have read
    /// blocks there that held nothing of their range.
    fn try_ranges(&mut self, engine: &Engine, run: &[Arc<TableFile>]) {
        if self.range_bytes() > 0 || self.empty_blocks == 0 {
            return;
        }
        let Some(largest) = run.iter().max_by_key(|file| file.keys) else { return };
        let reader = engine.files.tables.reader(largest);
        let rate = reader.and_then(|table| Ok(table.range_rate(trial_spec())?));
        self.trial = Some(rate.map_err(|error| error.to_string()));
    }

    /// Tables that one of the `passing` lookups, which find nothing here, reaches.
    fn reach(&self, passing: u64) -> f64 {
        let most = if self.level == 0 { self.tables.len() as f64 } else { 1.0 };
        let measured = if passing >= ENOUGH {
            self.absent as f64 / passing as f64
        } else {
            self.tables.iter().map(|table| table.reach).sum()
        };
        measured.min(most)
    }

    /// Tables of level 0 that a lookup reaches in vain before it finds its key in another one of
    /// level 0. On other levels a key is in the range of one table.
    fn again(&self, reach: f64, passing: u64) -> f64 {
        let others = self.tables.len().saturating_sub(1) as f64;
        if self.level > 0 {
            0.0
        } else if self.hits >= ENOUGH {
            let beyond = self.absent as f64 - reach * passing as f64;
            (beyond / self.hits as f64).clamp(0.0, others)
        } else {
            // Half of the others are newer.
            reach / (others + 1.0) * others / 2.0
        }
    }

    /// The part of `flow` that reaches each table.
    pub(super) fn visited(&self, flow: &Flow) -> impl Iterator<Item = Visited> {
        let reach: f64 = self.tables.iter().map(|table| table.reach).sum();
        let keys = self.keys().max(1) as f64;
        let (level, flow) = (self.level, *flow);
        self.tables.iter().map(move |table| {
            let of_keys = table.keys as f64 / keys;
            let of_all = if reach > 0.0 { table.reach / reach } else { of_keys };
            let (in_vain, hits) = (flow.in_vain * of_all, flow.hits * of_keys);
            let visits = Visits { in_vain, hits, read_cost: flow.read_cost };
            Visited { level, keys: table.keys, visits }
        })
    }

    /// The cost of the current filters.
    pub(super) fn cost(&self, flow: &Flow) -> Cost {
        let mut all = Cost::default();
        for (table, visited) in self.tables.iter().zip(self.visited(flow)) {
            all.join(&table.cost(&visited.visits));
        }
        all
    }

    /// The kind of filter that most of its keys have, if it is built in.
    pub(super) fn kind(&self) -> Option<FilterKind> {
        let specs = self.tables.iter().filter(|table| table.spec() != FilterSpec::NONE);
        let kinds = specs.map(|table| table.spec().kind());
        let keys = |kind: &FilterKind| {
            let alike = self.tables.iter().filter(|table| table.spec().kind() == *kind);
            alike.map(|table| table.keys).sum::<u64>()
        };
        kinds.max_by_key(keys)
    }

    /// Bits per key of built-in filters, averaged over its keys.
    pub(super) fn bits(&self) -> f64 {
        let bits = |table: &SeenTable| table.spec().bits_per_key() * table.keys as f64;
        self.tables.iter().map(bits).sum::<f64>() / self.keys().max(1) as f64
    }

    /// Whether it has user filters.
    pub(super) fn has_foreign(&self) -> bool {
        self.tables.iter().any(|table| table.facts.kind == FilterLabel::User)
    }

    /// Describes the filters: each kind with the mean of its bits.
    pub(super) fn in_words(&self) -> String {
        let mut kinds: Vec<FilterLabel> =
            self.tables.iter().map(|table| table.facts.kind).collect();
        kinds.sort_unstable();
        kinds.dedup();
        let word = |kind: FilterLabel| {
            let alike = || self.tables.iter().filter(move |table| table.facts.kind == kind);
            let keys: u64 = alike().map(|table| table.keys).sum();
            let bits: f64 =
                alike().map(|table| table.facts.bits_requested * table.keys as f64).sum();
            let has_bits = kind != FilterLabel::User && kind != FilterKind::None;
            match has_bits {
                true => format!("{}:{:.1}", kind.name(), bits / keys.max(1) as f64),
                false => kind.name().to_owned(),
            }
        };
        kinds.into_iter().map(word).collect::<Vec<_>>().join("+")
    }
}

impl SeenTable {
    /// A table that cannot be opened counts as unfiltered.
    fn of(engine: &Engine, reach: &Reach<'_>, file: &Arc<TableFile>) -> Self {
        let reader = engine.files.tables.reader(file);
        let filters = reader.as_ref().ok().map(|table| table.filters());
        let facts = filters.map_or(FilterFacts::NONE, Filters::facts);
        let ranges = filters.map_or(FilterFacts::NONE, Filters::range_facts);
        let (keys, valued_keys) = (file.keys, file.valued_keys());
        Self { keys, valued_keys, reach: reach.share(file), facts, ranges }
    }

    /// Its filter, if it is built in.
    fn spec(&self) -> FilterSpec {
        let FilterLabel::BuiltIn(kind) = self.facts.kind else { return FilterSpec::NONE };
        FilterSpec::new(kind, self.facts.bits_requested).unwrap_or(FilterSpec::NONE)
    }

    /// Bytes of its filter; for a built-in one, the bytes that a plan would count, so that the two
    /// are comparable. In memory each takes some more.
    fn filter_bytes(&self) -> u64 {
        match self.spec() {
            FilterSpec::NONE => self.facts.bytes,
            // It has fewer prefixes than keys.
            _ if self.facts.is_of_prefixes => self.facts.bytes,
            spec => trommel_tuning::bytes(spec, self.keys),
        }
    }

    /// The cost of its filter. A filter that cannot be held passes every key, whatever its rate.
    fn cost(&self, visits: &Visits) -> Cost {
        let FilterFacts { expected, is_held, .. } = self.facts;
        let rate = if is_held { expected } else { 1.0 };
        Cost::of_filter(self.spec(), self.filter_bytes(), rate, visits)
    }
}
