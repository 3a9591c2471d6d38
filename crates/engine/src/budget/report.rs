//! The budget report: the state of the budget, and how far each table is from its choice today.
//!
//! 1. The price is solved for the current tree. The choice for a table is the filter that it would
//!    get if it were written again now, in the same level.
//! 2. Its drift is the excess of its filter over that: bytes, and wasted reads.
//! 3. The drift has a reason: the filter was built at another time, for another level, or under
//!    another policy.

use std::fmt;

use trommel_filter::{FilterKind, FilterSpec};
use trommel_sstable::FilterFacts;
use trommel_tuning::{bytes, rate};

use super::TreeShape;
use crate::engine::Engine;
use crate::filter_policy::FilterBudget;
use crate::sync::lock;
use crate::version::logical_level;
use crate::version::{Keeping, TableFile, Version};

/// Drift below this part of a filter is ignored: sizes are rounded, and keys were not known
/// exactly.
const SLACK: f64 = 0.06;
/// Drift below this many bytes is ignored: a cache line, and the largest header.
const SLACK_BYTES: u64 = 128;
/// The bytes for which [`BudgetValue::saved_by_a_mib`] is computed.
const MIB: u64 = 1 << 20;

/// The state of a budget. All bytes are of whole-key and prefix filters together.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct BudgetReport {
    /// The budget, as in [`Options::filters`](crate::Options::filters).
    pub spec: String,
    /// The bytes of the budget, and what takes them.
    pub space: BudgetSpace,
    /// Tables queued or running in the rebuild `fit-budget`, which makes filters smaller in the
    /// background until all built filters fit.
    pub queued_rebuilds: u64,
    /// Why such a rebuild failed, if it is to be retried.
    pub rebuild_failure: Option<String>,
    /// The reads that the filters are expected to waste, and what more bytes would save.
    pub value: BudgetValue,
    /// Level by level.
    pub levels: Vec<LevelDrift>,
    /// Table by table, level 0 first.
    pub tables: Vec<TableDrift>,
}

/// The bytes of a budget, and what takes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct BudgetSpace {
    /// Bytes that filters may take in memory, for the current number of keys. A lowered budget
    /// takes effect once the excess has left memory, when the lookups probing it have ended.
    pub budget_bytes: u64,
    /// Stored bytes of the filters of all tables, except those of a last level without filters.
    /// More than the budget only while tables are queued for a rebuild, below.
    pub built_bytes: u64,
    /// Bytes of filters in memory now, pinned and in the block cache: never more than the budget.
    /// Less than the built bytes while some filters have not been probed yet.
    pub resident_bytes: u64,
    /// Tables whose filters are neither held nor probed, because others are worth more per byte.
    pub dropped_tables: u64,
    /// Stored bytes of those filters.
    pub dropped_bytes: u64,
}

/// The value of a budget's bytes in reads.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[non_exhaustive]
pub struct BudgetValue {
    /// The value of a byte: wasted reads per lookup that one more byte would save. 0 if all filters
    /// are at their maximum, infinite if the floors exceed the budget. It is valid for a few bytes
    /// only: see `saved_by_a_mib`.
    pub price: f64,
    /// Wasted reads per lookup that a budget larger by 1 MiB would save: the difference between the
    /// two plans, so at most `planned_wasted_reads`.
    pub saved_by_a_mib: f64,
    /// The planned share of lookups that find nothing.
    pub misses: f64,
    /// Lookups in which that was measured; `None` if it was configured, or not enough were seen.
    pub misses_seen_in: Option<u64>,
    /// Expected wasted reads per lookup, at this share of `misses`, with the current filters.
    pub expected_wasted_reads: f64,
    /// The same, if every table had its planned filter.
    pub planned_wasted_reads: f64,
}

/// The tables of one level, compared with the plan.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[non_exhaustive]
pub struct LevelDrift {
    /// 0, or 1 for the first level below that holds data, and so on.
    pub level: usize,
    /// Its tables.
    pub tables: u64,
    /// Their keys.
    pub keys: u64,
    /// Stored bytes of their filters.
    pub built_bytes: u64,
    /// Planned bytes of their filters.
    pub planned_bytes: u64,
    /// Tables that are not as planned.
    pub drifted: u64,
    /// Tables whose filters are not held because of the budget.
    pub dropped: u64,
    /// Wasted reads per lookup beyond the plan; negative if there are fewer.
    pub wasted_reads: f64,
}

impl LevelDrift {
    /// Bits per key of `bytes`.
    fn bits(&self, bytes: u64) -> f64 {
        bytes as f64 * 8.0 / self.keys.max(1) as f64
    }

    /// Bits per key stored.
    #[must_use]
    pub fn built_bits(&self) -> f64 {
        self.bits(self.built_bytes)
    }

    /// Bits per key planned.
    #[must_use]
    pub fn planned_bits(&self) -> f64 {
        self.bits(self.planned_bytes)
    }
}

/// One table, compared with the plan.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct TableDrift {
    /// Its file number.
    pub number: u64,
    /// 0, or 1 for the first level below that holds data, and so on.
    pub level: usize,
    /// Its keys.
    pub keys: u64,
    /// Stored bytes of its filters.
    pub built_bytes: u64,
    /// The filter it would get today.
    pub planned: FilterSpec,
    /// Planned bytes.
    pub planned_bytes: u64,
    /// Whether its filters are not held because of the budget.
    pub is_dropped: bool,
    /// Wasted reads per lookup beyond the plan; negative if there are fewer.
    pub wasted_reads: f64,
    /// Why it has its current filter.
    pub reason: DriftReason,
}

/// Why a table's filter differs from the one it would get today.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum DriftReason {
    /// It does not differ, except for rounding.
    AsPlanned,
    /// It is larger, because the table was built for a higher level: since then the table was moved
    /// down without being rewritten, or levels were opened above it.
    Moved {
        /// The level it was built for.
        from: usize,
    },
    /// It has none, and should.
    Unfiltered,
    /// Its kind is not among those of the budget.
    OtherKind,
    /// It has a range filter that the policy does not set, or lacks one that it sets: the policy
    /// was changed since.
    OtherRanges,
    /// It cannot be used: see [`FilterStats::unusable`](crate::FilterStats::unusable).
    Unusable,
    /// A byte was worth more elsewhere when the filter was built: it is smaller than it would be
    /// today.
    WasDearer,
    /// A byte was worth less elsewhere when the filter was built: it is larger than it would be
    /// today.
    WasCheaper,
}

impl fmt::Display for DriftReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AsPlanned => f.write_str("as planned"),
            Self::Moved { from } => write!(f, "built when it lay in L{from}"),
            Self::Unfiltered => f.write_str("built without a filter"),
            Self::OtherKind => f.write_str("of another kind, built under another policy"),
            Self::OtherRanges => f.write_str("with another range filter, under another policy"),
            Self::Unusable => f.write_str("cannot be used"),
            Self::WasDearer => f.write_str("bytes were scarcer when it was built"),
            Self::WasCheaper => f.write_str("bytes were less scarce when it was built"),
        }
    }
}

impl Engine {
    /// The state of `budget` in `version`, whose tables' filters have these `facts`.
    pub(crate) fn budget_report(
        &self,
        budget: &FilterBudget,
        version: &Version,
        facts: &[FilterFacts],
    ) -> Option<BudgetReport> {
        let filters = self.memory.shares.filters().seen();
        if filters.limit == u64::MAX && budget.budget().bytes(version.valued_keys()) != u64::MAX {
            // The limit was set just now, and is not in effect yet.
            return None;
        }
        let own = self.own_filters(version);
        let ranges = self.planned_ranges();
        let shape = TreeShape::of(version, self.outlook(version, own)).ok()?;
        let terms = self.terms(budget, &shape).ok()?;
        let weights = shape.weights(&terms.workload);
        let richer = self.terms_with(budget, &shape, MIB).ok()?;
        let (queued_rebuilds, rebuild_failure) = {
            let state = lock(&self.background.state);
            (state.requests.fit_budget.tables(), state.fit_failure().map(ToString::to_string))
        };
        let mut report = BudgetReport {
            spec: budget.to_string(),
            space: BudgetSpace {
                budget_bytes: filters.limit,
                resident_bytes: filters.held,
                ..BudgetSpace::default()
            },
            queued_rebuilds,
            rebuild_failure,
            value: BudgetValue {
                price: terms.offer.price().per_byte(),
                misses: terms.misses.share,
                misses_seen_in: terms.misses.seen_in,
                ..BudgetValue::default()
            },
            levels: Vec::new(),
            tables: Vec::new(),
        };
        for (((physical, table), weight), facts) in version.tables().zip(weights).zip(facts) {
            if shape.own.has(table) {
                report.space.count(table);
                continue;
            }
            let level = logical_level(version, physical).0;
            let price = terms.offer.of(table.number);
            let planned = terms.solver.choose_near(level, table.keys, weight, price);
            let is_last = level > 0 && level == shape.last;
            let of_ranges = RangeBytes {
                built: ranges.built_bytes(table, is_last),
                planned: ranges.bytes(level, is_last, table.keys),
            };
            report.add(budget, (planned, of_ranges), (level, table, *facts), weight);
            let price = richer.offer.of(table.number);
            let larger = richer.solver.choose_near(level, table.keys, weight, price);
            report.value.saved_by_a_mib +=
                weight * (planned_rate(planned, table) - planned_rate(larger, table));
        }
        // Among identical tables some get more than others, and not the same ones in both plans.
        report.value.saved_by_a_mib = report.value.saved_by_a_mib.max(0.0);
        Some(report)
    }
}

impl BudgetSpace {
    fn count(&mut self, table: &TableFile) {
        if table.keeping() != Keeping::NotInLastLevel {
            self.built_bytes += table.built_bytes();
        }
    }
}

impl BudgetReport {
    fn add(
        &mut self,
        budget: &FilterBudget,
        (planned, of_ranges): (FilterSpec, RangeBytes),
        (level, table, facts): (usize, &TableFile, FilterFacts),
        weight: f64,
    ) {
        let planned_rate = planned_rate(planned, table);
        let is_dropped = table.keeping() == Keeping::NotInBudget && table.built_bytes() > 0;
        let built_rate = if facts.is_held { facts.expected } else { 1.0 };
        let drift = TableDrift {
            number: table.number,
            level,
            keys: table.keys,
            built_bytes: table.built_bytes(),
            planned,
            planned_bytes: bytes(planned, table.keys) + of_ranges.planned,
            is_dropped,
            wasted_reads: weight * (built_rate - planned_rate),
            reason: DriftReason::AsPlanned,
        };
        let reason = reason(budget, table, facts, &drift, of_ranges);
        let drift = TableDrift { reason, ..drift };
        self.space.count(table);
        self.value.expected_wasted_reads += weight * built_rate;
        self.value.planned_wasted_reads += weight * planned_rate;
        if is_dropped {
            self.space.dropped_tables += 1;
            self.space.dropped_bytes += drift.built_bytes;
        }
        if self.levels.last().is_none_or(|last| last.level != level) {
            self.levels.push(LevelDrift { level, ..LevelDrift::default() });
        }
        if let Some(row) = self.levels.last_mut() {
            row.tables += 1;
            row.keys += drift.keys;
            row.built_bytes += drift.built_bytes;
            row.planned_bytes += drift.planned_bytes;
            row.drifted += u64::from(drift.reason != DriftReason::AsPlanned);
            row.dropped += u64::from(is_dropped);
            row.wasted_reads += drift.wasted_reads;
        }
        self.tables.push(drift);
    }
}

/// The expected rate of a filter planned for `table`.
fn planned_rate(planned: FilterSpec, table: &TableFile) -> f64 {
    if table.keys == 0 { 1.0 } else { rate(planned, table.keys) }
}

/// The bytes of a table's range filter, and those that the policy gives it.
#[derive(Debug, Clone, Copy)]
struct RangeBytes {
    built: u64,
    planned: u64,
}

/// Why a table has its current filters.
fn reason(
    budget: &FilterBudget,
    table: &TableFile,
    facts: FilterFacts,
    drift: &TableDrift,
    of_ranges: RangeBytes,
) -> DriftReason {
    // Range filters are not chosen by the budget: only their presence is compared.
    let built = drift.built_bytes.saturating_sub(of_ranges.built);
    let planned = drift.planned_bytes - of_ranges.planned;
    let off = built.abs_diff(planned);
    let is_queried = table.keeping() == Keeping::Held && built > 0;
    let is_of_kind = budget.kinds().iter().any(|kind| facts.kind == *kind) || built == 0;
    if is_queried && facts.kind == FilterKind::None {
        DriftReason::Unusable
    } else if is_queried && !is_of_kind {
        DriftReason::OtherKind
    } else if off <= SLACK_BYTES || off as f64 <= SLACK * planned as f64 {
        match (of_ranges.built > 0) == (of_ranges.planned > 0) {
            true => DriftReason::AsPlanned,
            false => DriftReason::OtherRanges,
        }
    } else if drift.built_bytes == 0 {
        DriftReason::Unfiltered
    } else if built < planned {
        DriftReason::WasDearer
    } else if usize::from(table.filters.built_for) < drift.level {
        DriftReason::Moved { from: usize::from(table.filters.built_for) }
    } else {
        DriftReason::WasCheaper
    }
}

/// Formats wasted reads per lookup: four digits, and a power of ten only instead of many zeros.
pub(crate) struct Reads(pub(crate) f64);

impl fmt::Display for Reads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0.0 => f.write_str("0"),
            few if few.abs() < 1e-4 => write!(f, "{few:.3e}"),
            reads => {
                let decimals = (3 - reads.abs().log10().floor() as i32).clamp(0, 7) as usize;
                write!(f, "{reads:.decimals$}")
            }
        }
    }
}

impl fmt::Display for BudgetReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kib = |bytes: u64| bytes as f64 / 1024.0;
        write!(
            f,
            "{}: {:.1} KiB, of which {:.1} are built and {:.1} in memory",
            self.spec,
            kib(self.space.budget_bytes),
            kib(self.space.built_bytes),
            kib(self.space.resident_bytes)
        )?;
        if self.space.dropped_tables > 0 {
            let (tables, bytes) = (self.space.dropped_tables, kib(self.space.dropped_bytes));
            write!(f, "; the filters of {tables} tables, {bytes:.1} KiB, find no room")?;
        }
        if self.queued_rebuilds > 0 {
            write!(f, "; fit-budget: {} tables wait for smaller ones", self.queued_rebuilds)?;
        }
        if let Some(why) = &self.rebuild_failure {
            write!(f, " (it will be tried again: {why})")?;
        }
        let seen = match self.value.misses_seen_in {
            Some(lookups) => format!("of {lookups} lookups"),
            None => "of lookups".to_owned(),
        };
        let misses = self.value.misses * 100.0;
        write!(
            f,
            "\na lookup is expected to waste {} reads, and {} as planned for now, where \
             {misses:.0}% {seen} find nothing; ",
            Reads(self.value.expected_wasted_reads),
            Reads(self.value.planned_wasted_reads),
        )?;
        if self.value.price.is_infinite() {
            f.write_str("the floors take more than the budget, which is kept all the same")?;
        } else {
            write!(f, "a MiB more would save {}", Reads(self.value.saved_by_a_mib))?;
        }
        for level in &self.levels {
            write!(
                f,
                "\nL{}: {} tables have {:.2} bits a key, as planned for now {:.2}",
                level.level,
                level.tables,
                level.built_bits(),
                level.planned_bits()
            )?;
            if level.drifted > 0 {
                let reasons = self.reasons(level.level);
                write!(f, "; {} differ ({reasons})", level.drifted)?;
            }
        }
        Ok(())
    }
}

impl BudgetReport {
    /// The reasons why tables of `level` differ from the plan, the most frequent first.
    fn reasons(&self, level: usize) -> String {
        let mut counts: Vec<(DriftReason, u64)> = Vec::new();
        let drifted = self.tables.iter().filter(|table| table.level == level);
        for table in drifted.filter(|table| table.reason != DriftReason::AsPlanned) {
            match counts.iter_mut().find(|(reason, _)| *reason == table.reason) {
                Some((_, count)) => *count += 1,
                None => counts.push((table.reason, 1)),
            }
        }
        counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let reported = counts.iter().map(|(reason, count)| format!("{count} {reason}"));
        reported.collect::<Vec<_>>().join(", ")
    }
}
