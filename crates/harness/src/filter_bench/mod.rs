//! Filters by themselves: what they cost to build and to ask, and how often they err.
//!
//! 1. A fleet of filters is built, of about the same number of keys each, until they fill the
//!    memory that was asked for; the tables of theory, which a process makes once, are there
//!    before the clock starts. Filters lie on huge pages where the store would ask for them, if
//!    that is not turned off. That every key added is found is checked.
//! 2. Every filter is asked for keys that it does not hold, and its rate compared with the exact
//!    one that it announces. The error of the mean comes from the variance *between* filters: one
//!    filter of few keys differs from its expectation by some percent.
//! 3. Each [`Pattern`] of queries is timed, then timed again with everything done but the question
//!    itself (the *dry run*): the difference is the filter's own cost.
//! 4. [`record`] is a measurement in a file; [`report`](crate::report) draws charts of many.
//!
//! The modes are those of RocksDB's `filter_bench`. Called by the program.

mod cell;
mod fleet;
mod queries;
mod rate;
pub mod record;

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use trommel::filter::{FilterKind, FilterSpec, Kernel};

use crate::control::Control;
use crate::error::Error;
pub use cell::{Cell, Timing};
use fleet::Fleet;
pub use rate::Rate;

/// What is measured of one kind of filter.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The filter.
    pub spec: FilterSpec,
    /// Keys of a filter, on average; at least 1.
    pub keys: u64,
    /// By which part the number of keys varies up and down, 0 to 1 (exclusive).
    pub vary: f64,
    /// How keys look.
    pub shape: Shape,
    /// How many filters are built; one at least.
    pub until: Until,
    /// Keys asked for that are not there, of all filters together, for the rate.
    pub rate_queries: u64,
    /// Queries of each pattern that is timed.
    pub queries: u64,
    /// Keys asked of one filter at once, in the batched patterns; at least 1.
    pub batch: usize,
    /// Decides all keys and the order of queries.
    pub seed: u64,
    /// The instructions to ask with, if not the best there are.
    pub kernel: Option<Kernel>,
    /// Whether huge pages are asked for under large filters, as the store does.
    pub huge_pages: bool,
    /// Whether the net time holds that of hashing the key.
    pub net_includes_hashing: bool,
    /// What is timed.
    pub patterns: Vec<Pattern>,
}

impl Plan {
    /// Refuses what cannot be done here, and says why.
    ///
    /// # Errors
    /// [`Error::Usage`].
    pub fn check(&self) -> Result<(), Error> {
        fleet::check(self)
    }
}

/// Whether filters of this kind can be asked with more than one kind of instructions.
pub fn has_kernels(kind: FilterKind) -> bool {
    matches!(kind, FilterKind::Blocked | FilterKind::Paired)
}

/// Where to end building filters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// When they take so many bytes of memory together.
    Bytes(u64),
    /// When they hold so many keys together.
    Keys(u64),
}

/// How keys look. Each has the number of its filter, its own, and zeros.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Bytes of a key, on average; [`MIN_KEY_BYTES`] to [`MAX_KEY_BYTES`], 2 more if it varies.
    pub bytes: usize,
    /// Whether keys begin at all addresses, or at multiples of 4 only.
    pub vary_alignment: bool,
    /// The size varies by up to 2 bytes, and changes after 2 to this number of keys; from 30 on it
    /// never does.
    pub vary_size_log2: u32,
}

impl Shape {
    /// Whether keys differ in size.
    pub fn varies_in_size(self) -> bool {
        self.vary_size_log2 < 30
    }
}

/// Shortest key: the number of its filter and its own.
pub const MIN_KEY_BYTES: usize = 12;
/// Longest key.
pub const MAX_KEY_BYTES: usize = 1 << 16;
/// Most keys in a batch.
pub const MAX_BATCH: usize = 1 << 16;

/// Which filters are asked, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Access {
    /// One filter, one key at a time.
    Single,
    /// A batch of keys to one filter, another filter for each batch; asked together.
    BatchedPrepared,
    /// The same, asked one by one.
    BatchedUnprepared,
    /// Another filter for each key.
    Random,
    /// Half of the keys to one filter of a hundred.
    SkewedHalfInOne,
    /// Four of five keys to one filter of five.
    SkewedEightyInTwenty,
}

impl Access {
    /// Every way, in the order of reports.
    pub const ALL: [Self; 6] = [
        Self::Single,
        Self::BatchedPrepared,
        Self::BatchedUnprepared,
        Self::Random,
        Self::SkewedHalfInOne,
        Self::SkewedEightyInTwenty,
    ];

    /// Whether keys come in batches.
    pub fn is_batched(self) -> bool {
        matches!(self, Self::BatchedPrepared | Self::BatchedUnprepared)
    }

    /// As `filter_bench` calls it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Single => "Single filter",
            Self::BatchedPrepared => "Batched, prepared",
            Self::BatchedUnprepared => "Batched, unprepared",
            Self::Random => "Random filter",
            Self::SkewedHalfInOne => "Skewed 50% in 1%",
            Self::SkewedEightyInTwenty => "Skewed 80% in 20%",
        }
    }
}

/// Which keys are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mix {
    /// Half are there.
    Mixed,
    /// 95% are there.
    Inside,
    /// 95% are not there.
    Outside,
}

impl Mix {
    /// Every mix, in the order of reports.
    pub const ALL: [Self; 3] = [Self::Mixed, Self::Inside, Self::Outside];

    /// Of 256 keys, how many are there.
    fn inside_of_256(self) -> u8 {
        match self {
            Self::Mixed => 128,
            Self::Inside => 243,
            Self::Outside => 13,
        }
    }

    /// As `filter_bench` calls it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mixed => "Mixed inside/outside queries",
            Self::Inside => "Inside queries (mostly)",
            Self::Outside => "Outside queries (mostly)",
        }
    }
}

/// A way to ask and the keys asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pattern {
    /// Which filters are asked, and how.
    pub access: Access,
    /// Which keys.
    pub mix: Mix,
}

impl Pattern {
    /// Every pattern, mix by mix.
    pub fn all() -> Vec<Self> {
        let of = |mix| Access::ALL.map(|access| Self { access, mix });
        Mix::ALL.into_iter().flat_map(of).collect()
    }
}

impl fmt::Display for Pattern {
    /// In few words, for a progress bar.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mix = match self.mix {
            Mix::Mixed => "mixed",
            Mix::Inside => "inside",
            Mix::Outside => "outside",
        };
        let access = match self.access {
            Access::Single => "single",
            Access::BatchedPrepared => "batched",
            Access::BatchedUnprepared => "one by one",
            Access::Random => "random",
            Access::SkewedHalfInOne => "50% in 1%",
            Access::SkewedEightyInTwenty => "80% in 20%",
        };
        write!(f, "{mix}, {access}")
    }
}

/// What has just been measured.
#[derive(Debug, Clone, Copy)]
pub enum Told<'a> {
    /// The filters are built.
    Built(&'a Cell),
    /// They deny no key of theirs, and how often they err is known.
    Rated(&'a Cell, &'a Rate),
    /// A pattern is timed.
    Timed(&'a Timing),
}

/// Builds filters as `plan` says and measures them; `tell` is told each part as it is known. If it
/// is stopped once the filters are built, what is known until then is returned.
///
/// # Errors
/// [`Error::Usage`] if the plan cannot be done, [`Error::Interrupted`] if stopped while building,
/// [`Error::Store`] if a filter denies a key that was added to it, and what `tell` returns.
pub fn measure(
    plan: &Plan,
    control: Control<'_>,
    tell: &mut dyn FnMut(Told<'_>) -> Result<(), Error>,
) -> Result<Cell, Error> {
    let fleet = Fleet::build(plan, control)?;
    let mut cell = fleet.cell(plan);
    tell(Told::Built(&cell))?;
    if fleet.verify(plan, control)? {
        cell.rate = queries::rate(&fleet, plan, control);
        if let Some(rate) = &cell.rate {
            tell(Told::Rated(&cell, rate))?;
        }
        for &pattern in &plan.patterns {
            let Some(timing) = queries::time(&fleet, plan, pattern, control) else { break };
            tell(Told::Timed(&timing))?;
            cell.timings.push(timing);
        }
    }
    cell.interrupted = control.stop.is_set();
    Ok(cell)
}

/// Nanoseconds an operation.
fn nanoseconds(time: Duration, operations: u64) -> f64 {
    time.as_secs_f64() * 1e9 / operations.max(1) as f64
}

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
