//! Benchmarks filters by themselves: build cost, query cost and false-positive rate.
//!
//! 1. A fleet of filters, of about the same number of keys each, is built until it fills the
//!    requested memory. The theory's tables, computed once per process, are ready before the clock
//!    starts. Filters are on huge pages where the store would request them, unless that is turned
//!    off. Every key added is checked to be found.
//! 2. Every filter is queried for absent keys, and its rate is compared with the exact one that it
//!    announces. The error of the mean comes from the variance *between* filters: one filter of few
//!    keys differs from its expectation by some percent.
//! 3. Each [`Pattern`] of queries is timed, then timed again without the filter query (the *dry
//!    run*): the difference is the filter's own cost.
//! 4. [`record`] stores a measurement in a file; [`report`](crate::report) draws charts of many.
//!
//! Called by the program.

mod cell;
mod fleet;
mod queries;
mod rate;
pub mod record;

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use trommel::filter::{FilterSpec, Kernel};
use trommel_harness::{Control, Error};

pub use cell::{BuiltFilters, FilterCell, FilterSetup, Timing};
use fleet::Fleet;
pub use rate::Rate;

/// The numbers of queries in a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueryCounts {
    /// Queries for absent keys, over all filters together, that measure the rate.
    pub for_rate: u64,
    /// Queries in each timed pattern.
    pub per_pattern: u64,
    /// Keys in each batched query of one filter; at least 1.
    pub batch: usize,
}

/// The plan of a measurement of one kind of filter.
#[derive(Debug, Clone)]
pub struct FilterBenchPlan {
    /// The filter.
    pub spec: FilterSpec,
    /// Average number of keys in a filter; at least 1.
    pub keys: u64,
    /// Fraction by which the number of keys varies up and down, 0 to 1 (exclusive).
    pub vary: f64,
    /// Bytes of a key; [`MIN_KEY_BYTES`] to [`MAX_KEY_BYTES`].
    pub key_bytes: usize,
    /// When to stop building filters; at least one is built.
    pub until: Until,
    /// The numbers of queries.
    pub queries: QueryCounts,
    /// Seed of all keys and of the order of queries.
    pub seed: u64,
    /// The instruction set for queries, if not the best available.
    pub kernel: Option<Kernel>,
    /// Whether to request huge pages for large filters, as the store does.
    pub huge_pages: bool,
    /// The patterns to time.
    pub patterns: Vec<Pattern>,
}

impl FilterBenchPlan {
    /// Rejects a plan that cannot be run here, with the reason.
    ///
    /// # Errors
    /// [`Error::Usage`].
    pub fn check(&self) -> Result<(), Error> {
        fleet::check(self)
    }
}

/// When to stop building filters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// When they use this many bytes of memory together.
    Bytes(u64),
    /// When they hold this many keys together.
    Keys(u64),
}

/// Shortest key: the filter's number and the key's.
pub const MIN_KEY_BYTES: usize = 12;
/// Longest key.
pub const MAX_KEY_BYTES: usize = 1 << 16;
/// Largest number of keys in a batch.
pub const MAX_BATCH: usize = 1 << 16;

/// The access pattern of queries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Access {
    /// One filter, one key at a time.
    Single,
    /// A batch of keys to one filter in one query, another filter for each batch.
    Batched,
    /// Another filter for each key.
    Random,
}

impl Access {
    /// All access patterns, in the order of reports.
    pub const ALL: [Self; 3] = [Self::Single, Self::Batched, Self::Random];

    /// In reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Single => "single",
            Self::Batched => "batched",
            Self::Random => "random",
        }
    }
}

/// The mix of present and absent keys in queries; the processor cannot guess the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mix {
    /// 95% of the keys are present.
    Inside,
    /// 95% are absent.
    Outside,
}

impl Mix {
    /// Both mixes, in the order of reports.
    pub const ALL: [Self; 2] = [Self::Outside, Self::Inside];

    /// Number of present keys among 256.
    fn inside_of_256(self) -> u8 {
        match self {
            Self::Inside => 243,
            Self::Outside => 13,
        }
    }

    /// In reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Inside => "inside",
            Self::Outside => "outside",
        }
    }
}

/// An access pattern and a mix of keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pattern {
    /// The access pattern.
    pub access: Access,
    /// The mix of keys.
    pub mix: Mix,
}

impl Pattern {
    /// All patterns, mix by mix.
    pub fn all() -> Vec<Self> {
        let of = |mix| Access::ALL.map(|access| Self { access, mix });
        Mix::ALL.into_iter().flat_map(of).collect()
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", self.mix.name(), self.access.name())
    }
}

/// Builds filters according to `plan` and measures them. If stopped once the filters are built,
/// returns the results up to then.
///
/// # Errors
/// [`Error::Usage`] if the plan cannot be run, [`Error::Interrupted`] if stopped while building,
/// and [`Error::Store`] if a filter has a false negative.
pub fn measure(plan: &FilterBenchPlan, control: Control<'_>) -> Result<FilterCell, Error> {
    let fleet = Fleet::build(plan, control)?;
    let mut cell = fleet.cell(plan);
    if fleet.verify(plan, control)? {
        cell.rate = queries::rate(&fleet, plan, control);
        for &pattern in &plan.patterns {
            let Some(timing) = queries::time(&fleet, plan, pattern, control) else { break };
            cell.timings.push(timing);
        }
    }
    cell.interrupted = control.stop.is_set();
    Ok(cell)
}

/// Nanoseconds per operation.
fn nanoseconds(time: Duration, operations: u64) -> f64 {
    time.as_secs_f64() * 1e9 / operations.max(1) as f64
}

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
