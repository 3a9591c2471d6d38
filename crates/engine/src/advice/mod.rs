//! Recommends a filter for each level from the lookups that were counted.
//!
//! 1. The counters hold, for each level, how many lookups reach it without finding their key, and
//!    how many find their key there (`seen`).
//! 2. The budget, by default the bytes that the filters take now, is spent on one filter per level,
//!    for the existing tables with their sizes (`solve`).
//! 3. Bits that save next to nothing are left out again.
//! 4. Each level gets a sentence with the reason (`words`).
//!
//! Weights are measured, not modelled: a level gets no filter, however many keys it has, if every
//! lookup that reaches it finds its key there. The effect of a filter is computed by theory.
//!
//! Invariants: the advice is a function of counters and options alone, and changes nothing in the
//! store. Called by [`Db::filter_advice`](crate::Db::filter_advice).

mod seen;
mod solve;
#[cfg(test)]
mod tests;
mod words;

use std::fmt;

use trommel_filter::FilterSpec;
use trommel_tuning::Budget;

use crate::engine::Engine;
use crate::error::Result;
use crate::filter_policy::FilterPolicy;

/// Lookups that must have reached tables before there is advice: with this many, the share of a
/// level that gets one in a hundred is known to a tenth (one standard error).
pub const LOOKUPS_FOR_ADVICE: u64 = 10_000;

/// Options of the advice.
///
/// ```
/// use trommel::AdviceOptions;
/// let options = AdviceOptions::new().budget("10/key".parse()?).misses(0.5);
/// # Ok::<(), trommel::tuning::TuningError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct AdviceOptions {
    pub(crate) budget: Option<Budget>,
    pub(crate) misses: Option<f64>,
    pub(crate) read_costs: Vec<(usize, f64)>,
}

impl AdviceOptions {
    /// The bytes that the filters take now (10 bits per key if there are none), and the measured
    /// share of misses.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the memory for all filters.
    #[must_use]
    pub fn budget(mut self, budget: Budget) -> Self {
        self.budget = Some(budget);
        self
    }

    /// Sets the share of lookups that will find nothing, 0 to 1, instead of the measured one.
    #[must_use]
    pub fn misses(mut self, misses: f64) -> Self {
        self.misses = Some(misses);
        self
    }

    /// Sets the cost of a wasted read on `level` (0, or 1 for the first level below that holds
    /// data, and so on), in any unit shared by all levels: for example 0.1 if the block cache
    /// serves nine of ten. From 0 to 1e12; 1 on levels without a call. If a level is set twice, the
    /// last cost counts.
    #[must_use]
    pub fn read_cost(mut self, level: usize, cost: f64) -> Self {
        self.read_costs.push((level, cost));
        self
    }
}

/// The outcome of the advice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum AdviceVerdict {
    /// There are no tables, so there are no filters.
    NoTables,
    /// Fewer lookups than [`LOOKUPS_FOR_ADVICE`] reached tables.
    TooFewLookups,
    /// Other filters would save less than a twentieth of the wasted reads and of the bytes.
    Keep,
    /// Other filters would do better.
    Change,
}

impl AdviceVerdict {
    /// Its name in results, which is stable.
    pub fn name(self) -> &'static str {
        match self {
            Self::NoTables => "no_tables",
            Self::TooFewLookups => "too_few_lookups",
            Self::Keep => "keep",
            Self::Change => "change",
        }
    }
}

/// Filters of a level, or of all levels, and their effect per lookup that reaches tables.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[non_exhaustive]
pub struct FilterFigures {
    /// Their bytes, without the hundred or so of memory overhead of each.
    pub bytes: u64,
    /// Wasted reads.
    pub wasted_reads: f64,
    /// Their cost: the same number, unless [`AdviceOptions::read_cost`] sets another cost.
    pub wasted_cost: f64,
    /// Cache lines of filters touched: the CPU cost of probing.
    pub lines: f64,
}

impl FilterFigures {
    fn add(&mut self, other: &Self) {
        self.bytes += other.bytes;
        self.wasted_reads += other.wasted_reads;
        self.wasted_cost += other.wasted_cost;
        self.lines += other.lines;
    }
}

/// The advice for one level.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct LevelAdvice {
    /// 0, or 1 for the first level below that holds data, and so on.
    pub level: usize,
    /// Its tables.
    pub tables: u64,
    /// Their keys.
    pub keys: u64,
    /// Tables of this level that a lookup would read without finding its key, without filters.
    pub in_vain: f64,
    /// Cost of a wasted read here.
    pub read_cost: f64,
    /// Tables here that a lookup of a missing key reaches.
    pub reach: f64,
    /// The share of lookups that find their key here.
    pub hits: f64,
    /// The current filters: kind and bits per key, several if tables differ.
    pub filter_now: String,
    /// Their effect.
    pub now: FilterFigures,
    /// The recommended filter; if the verdict is to keep the current ones, the best one for the
    /// same bytes.
    pub filter: FilterSpec,
    /// Its expected effect.
    pub advised: FilterFigures,
    /// Why.
    pub reason: String,
}

/// The recommended filter for each level. `Display` prints a table, the reasons and the policy.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct FilterAdvice {
    /// The outcome.
    pub verdict: AdviceVerdict,
    /// Lookups that reached tables since the counters were reset, on which the advice is based.
    pub lookups: u64,
    /// The share of them that found nothing.
    pub measured_misses: Option<f64>,
    /// The share that is planned for.
    pub misses: f64,
    /// Whether that share was given by [`AdviceOptions::misses`].
    pub are_misses_given: bool,
    /// Bytes that the filters may take.
    pub budget_bytes: u64,
    /// From the top; empty if there is no advice.
    pub levels: Vec<LevelAdvice>,
    /// The effect of all filters now.
    pub now: FilterFigures,
    /// The expected effect of the recommended filters.
    pub advised: FilterFigures,
    /// Range filters, if enough scans of ranges found nothing, and enough lookups were counted to
    /// know what a byte is worth in the filters of keys.
    pub ranges: Option<RangeAdvice>,
    /// The advice as a policy for [`Db::set_filters`](crate::Db::set_filters), if the filters
    /// should change. A budget stays a budget, of the requested bytes: the tables get its current
    /// choice by [`Db::rebuild_filters`](crate::Db::rebuild_filters), or when they are compacted.
    pub policy: Option<FilterPolicy>,
}

/// Whether range filters would pay, and what they would cost.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct RangeAdvice {
    /// Scans of a bounded range that found nothing since the counters were reset: those of
    /// iterators (not of cursors), [`Db::range`](crate::Db::range) and
    /// [`Db::prefix`](crate::Db::prefix).
    pub empty_scans: u64,
    /// Blocks that such a scan would read without range filters.
    pub blocks: f64,
    /// The share of these blocks that it would read with the recommended ones.
    pub share: f64,
    /// Bytes of the present range filters.
    pub bytes_now: u64,
    /// Bytes of the recommended ones: those in which a byte saves as many reads as the last one in
    /// the filters of keys.
    pub bytes: u64,
    /// The levels that get none because it is not known what one would deny there: their keys could
    /// not be read, for this reason.
    pub unknown: Vec<(usize, String)>,
    /// The present policy with the recommended range filters.
    pub policy: FilterPolicy,
}

impl fmt::Display for RangeAdvice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { empty_scans, blocks, share, bytes_now, bytes, unknown, policy } = self;
        write!(
            f,
            "ranges: {empty_scans} scans found nothing, and read {blocks:.2} blocks each without "
        )?;
        write!(f, "range filters; ")?;
        match bytes {
            0 if !unknown.is_empty() => write!(f, "none is advised"),
            0 => write!(f, "a byte saves more reads in the filters of keys than it would there"),
            _ => write!(
                f,
                "{policy} would save {:.1}% of these reads, for {} ({} now)",
                100.0 * (1.0 - share),
                words::amount(*bytes),
                words::amount(*bytes_now)
            ),
        }?;
        for (level, why) in unknown {
            write!(
                f,
                "; L{level} gets none, as its keys could not be read: verify the store ({why})"
            )?;
        }
        Ok(())
    }
}

impl Engine {
    pub(crate) fn filter_advice(&self, options: &AdviceOptions) -> Result<FilterAdvice> {
        self.access.opener().check()?;
        solve::advice(&seen::Seen::of(self), options)
    }
}

impl fmt::Display for FilterAdvice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.levels.is_empty() {
            return f.write_str(&self.summary());
        }
        writeln!(
            f,
            "{:>5} {:>7} {:>11} {:>9} {:>9} {:>14} {:>14} {:>11} {:>11} {:>10} {:>10}",
            "level",
            "tables",
            "keys",
            "in vain",
            "hits",
            "filter",
            "advised",
            "KiB",
            "advised",
            "wasted",
            "advised"
        )?;
        for level in &self.levels {
            writeln!(
                f,
                "{:>5} {:>7} {:>11} {:>9.4} {:>9.4} {:>14} {:>14} {:>11.1} {:>11.1} {:>10.3e} {:>10.3e}",
                format!("L{}", level.level),
                level.tables,
                level.keys,
                level.in_vain,
                level.hits,
                level.filter_now,
                level.filter.to_string(),
                level.now.bytes as f64 / 1024.0,
                level.advised.bytes as f64 / 1024.0,
                level.now.wasted_reads,
                level.advised.wasted_reads
            )?;
        }
        for level in &self.levels {
            writeln!(f, "L{}: {}", level.level, level.reason)?;
        }
        f.write_str(&self.summary())?;
        self.ranges.as_ref().map_or(Ok(()), |ranges| write!(f, "\n{ranges}"))
    }
}
