//! What was counted, and the tables that it was counted of.
//!
//! Of a level are counted the lookups that came to one of its tables in vain (`absent`), and those
//! that found an entry there (`hits`). A lookup comes in vain if it misses everywhere, or finds its
//! key deeper. So the number of a level's tables that such a lookup comes to is
//!
//! ```text
//! reach = absent / (missing + hits of all deeper levels)
//! ```
//!
//! by the keys that were really asked for: at most 1 on a level whose tables do not meet, at most
//! all tables on level 0. There a lookup may also come to newer tables in vain before it finds its
//! key in an older one: what is counted beyond `reach`. With another share of misses than was
//! measured, these stay.
//!
//! What comes to a level is shared out among its tables by how many keys of the store lie in the
//! range of each; counts are not kept for each table. Where too little was counted, those shares
//! stand for what was not.

use std::sync::Arc;

use trommel_filter::{FilterKind, FilterSpec};
use trommel_sstable::{FilterFacts, FilterLabel};
use trommel_tuning::{Cost, Visited, Visits};

use crate::counters::Totals;
use crate::engine::Engine;
use crate::filter_policy::FilterPolicy;
use crate::version::logical_level;
use crate::version::{TableFile, Version};

/// Lookups of a sort that must have been counted for the count to say where they go.
const ENOUGH: u64 = 1000;

/// What was counted of all lookups.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    /// From the top; only those with tables.
    pub(super) levels: Vec<SeenLevel>,
    /// Lookups that came to tables.
    pub(super) lookups: u64,
    /// Of those, the ones that found nothing.
    missing: u64,
    /// Whether the last level goes without filters, whatever policies say.
    pub(super) spares_last: bool,
    /// The policy, where it is a budget, which chooses by itself.
    pub(super) budget: Option<FilterPolicy>,
}

/// A level, and what was counted of it.
#[derive(Debug, Clone, Default)]
pub(super) struct SeenLevel {
    pub(super) level: usize,
    pub(super) tables: Vec<SeenTable>,
    absent: u64,
    hits: u64,
}

/// A table with its filter.
#[derive(Debug, Clone, Copy)]
pub(super) struct SeenTable {
    keys: u64,
    /// How likely a missing key falls into its range, keys being missed where keys are.
    reach: f64,
    facts: FilterFacts,
}

/// What comes to a level, of one lookup.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Flow {
    /// Its tables that it comes to in vain, had they no filters.
    pub(super) in_vain: f64,
    /// Its tables that a lookup of a missing key comes to.
    pub(super) reach: f64,
    /// Lookups that find their key here.
    pub(super) hits: f64,
    /// What a read costs that finds nothing.
    pub(super) read_cost: f64,
}

impl Seen {
    pub(super) fn of(engine: &Engine) -> Self {
        let (version, totals) = (engine.version(), engine.statistics.counters.totals());
        let mut levels: Vec<SeenLevel> = Vec::new();
        for (physical, run) in version.levels.iter().enumerate() {
            let level = logical_level(&version, physical).0;
            if levels.last().is_none_or(|last| last.level != level) {
                levels.push(SeenLevel { level, ..SeenLevel::default() });
            }
            let Some(last) = levels.last_mut() else { continue };
            last.tables.extend(run.iter().map(|file| SeenTable::of(engine, &version, file)));
            last.count(physical, &totals);
        }
        let hits: u64 = levels.iter().map(|level| level.hits).sum();
        // Of what a memtable answers no table is asked: it is neither a hit nor a miss here.
        let missing = totals.gets.saturating_sub(totals.memtable_hits + hits);
        let options = engine.options.load();
        let spares_last = !options.filters_on_last_level;
        let budget = options.filters.budget().map(|_| options.filters.clone());
        Self { levels, lookups: missing + hits, missing, spares_last, budget }.without_empty()
    }

    /// Levels that hold no keys now have no filters to advise; their hits were hits of other
    /// levels' keys, which have moved.
    fn without_empty(mut self) -> Self {
        self.levels.retain(|level| level.keys() > 0);
        self
    }

    /// The share of lookups that found nothing.
    pub(super) fn misses(&self) -> Option<f64> {
        (self.lookups > 0).then(|| self.missing as f64 / self.lookups as f64)
    }

    /// What comes to each level, where the share `misses` of all lookups finds nothing, and the
    /// others find keys where they did; `costs` says what a read in vain costs on levels that it
    /// names.
    pub(super) fn flows(&self, misses: f64, costs: &[(usize, f64)]) -> Vec<Flow> {
        let hits: u64 = self.levels.iter().map(|level| level.hits).sum();
        let keys: u64 = self.levels.iter().map(SeenLevel::keys).sum();
        let are_counted = hits >= ENOUGH;
        let share = |level: &SeenLevel| match are_counted {
            true => level.hits as f64 / hits as f64,
            false => level.keys() as f64 / keys.max(1) as f64,
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
    }

    /// Keys of its tables.
    pub(super) fn keys(&self) -> u64 {
        self.tables.iter().map(|table| table.keys).sum()
    }

    /// Bytes of its filters.
    pub(super) fn filter_bytes(&self) -> u64 {
        self.tables.iter().map(SeenTable::filter_bytes).sum()
    }

    /// Tables that one of `passing` lookups, which find nothing here, comes to.
    fn reach(&self, passing: u64) -> f64 {
        let most = if self.level == 0 { self.tables.len() as f64 } else { 1.0 };
        let told = if passing >= ENOUGH {
            self.absent as f64 / passing as f64
        } else {
            self.tables.iter().map(|table| table.reach).sum()
        };
        told.min(most)
    }

    /// Tables of level 0 that a lookup comes to in vain before it finds its key in another one of
    /// level 0. On other levels a key lies in one table's range.
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

    /// What of `flow` comes to each table.
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

    /// What the filters that are there cost.
    pub(super) fn cost(&self, flow: &Flow) -> Cost {
        let mut all = Cost::default();
        for (table, visited) in self.tables.iter().zip(self.visited(flow)) {
            all.join(&table.cost(&visited.visits));
        }
        all
    }

    /// The kind that most of its keys have, if that is one of ours.
    pub(super) fn kind(&self) -> Option<FilterKind> {
        let specs = self.tables.iter().filter(|table| table.spec() != FilterSpec::NONE);
        let kinds = specs.map(|table| table.spec().kind());
        let keys = |kind: &FilterKind| {
            let alike = self.tables.iter().filter(|table| table.spec().kind() == *kind);
            alike.map(|table| table.keys).sum::<u64>()
        };
        kinds.max_by_key(keys)
    }

    /// Bits per key, averaged over its keys, of filters of ours.
    pub(super) fn bits(&self) -> f64 {
        let bits = |table: &SeenTable| table.spec().bits_per_key() * table.keys as f64;
        self.tables.iter().map(bits).sum::<f64>() / self.keys().max(1) as f64
    }

    /// Whether a user's policy made filters here.
    pub(super) fn has_foreign(&self) -> bool {
        self.tables.iter().any(|table| table.facts.kind == FilterLabel::User)
    }

    /// The filters in words: each kind with the mean of its bits.
    pub(super) fn in_words(&self) -> String {
        let mut kinds: Vec<FilterLabel> =
            self.tables.iter().map(|table| table.facts.kind).collect();
        kinds.sort_unstable();
        kinds.dedup();
        let word = |kind: FilterLabel| {
            let alike = || self.tables.iter().filter(move |table| table.facts.kind == kind);
            let keys: u64 = alike().map(|table| table.keys).sum();
            let bits: f64 = alike().map(|table| table.facts.bits_asked * table.keys as f64).sum();
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
    fn of(engine: &Engine, version: &Version, file: &Arc<TableFile>) -> Self {
        let reader = engine.files.tables.reader(file);
        let facts = reader.map_or(FilterFacts::NONE, |table| table.filters().facts());
        Self { keys: file.keys, reach: engine.reach(version, file), facts }
    }

    /// Its filter, if it is one of ours.
    fn spec(&self) -> FilterSpec {
        let FilterLabel::Own(kind) = self.facts.kind else { return FilterSpec::NONE };
        FilterSpec::new(kind, self.facts.bits_asked).unwrap_or(FilterSpec::NONE)
    }

    /// Bytes of its filter: of one of ours those that a plan would count for it, so that the two
    /// can be set side by side. In memory it takes some more, which are the same for all.
    fn filter_bytes(&self) -> u64 {
        match self.spec() {
            FilterSpec::NONE => self.facts.bytes,
            // It has fewer prefixes than keys.
            _ if self.facts.is_of_prefixes => self.facts.bytes,
            spec => trommel_tuning::bytes(spec, self.keys),
        }
    }

    /// What its filter costs. One that cannot be held lets all through, whatever its rate would be.
    fn cost(&self, visits: &Visits) -> Cost {
        let FilterFacts { expected, is_held, .. } = self.facts;
        let rate = if is_held { expected } else { 1.0 };
        Cost::of_filter(self.spec(), self.filter_bytes(), rate, visits)
    }
}
