//! Filters by themselves: what they cost to build and to ask, and how often they err.
//!
//! 1. A [`Fleet`] of filters is built, of about the same number of keys each, until they fill the
//!    memory that was asked for. That every key added is found is checked.
//! 2. Every filter is asked for keys that it does not hold, and its rate compared with the exact
//!    one that it announces. The error of the mean comes from the variance *between* filters: one
//!    filter of few keys differs from its expectation by some percent.
//! 3. Each [`Pattern`] of queries is timed, then timed again with everything done but the question
//!    itself (the *dry run*): the difference is the filter's own cost.
//!
//! The modes are those of RocksDB's `filter_bench`. Called by the program.

mod fleet;
mod queries;

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use trommel::filter::{FilterSpec, Kernel};
use trommel::wilson;

use crate::control::Control;
use crate::error::Error;
pub use fleet::Fleet;

/// Version of [`Cell`] as JSON.
pub const SCHEMA: u32 = 1;

/// What is measured of one kind of filter.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The filter.
    pub spec: FilterSpec,
    /// Keys of a filter, on average; at least 1.
    pub keys: u64,
    /// By which part the number of keys varies up and down, 0 to 1 (exclusive).
    pub vary: f64,
    /// Bytes of a key; at least [`MIN_KEY_BYTES`].
    pub key_bytes: usize,
    /// Bytes that all filters together take; at least one is built.
    pub memory_bytes: u64,
    /// Queries for the rate, and for each pattern that is timed.
    pub queries: u64,
    /// Keys asked of one filter at once, in the batched patterns; at least 1.
    pub batch: usize,
    /// Decides all keys and the order of queries.
    pub seed: u64,
    /// The instructions to ask with, if not the best there are.
    pub kernel: Option<Kernel>,
    /// Whether the net time holds that of hashing the key.
    pub net_includes_hashing: bool,
    /// What is timed.
    pub patterns: Vec<Pattern>,
}

/// Shortest key: the number of its filter and its own.
pub const MIN_KEY_BYTES: usize = 12;

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
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.mix.name(), self.access.name())
    }
}

/// How often filters erred.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Rate {
    /// Keys asked for that are not there.
    pub asked: u64,
    /// Answers "maybe" to them.
    pub false_positives: u64,
    /// The rate.
    pub measured: f64,
    /// Wilson's interval at 95% of the count.
    pub interval: (f64, f64),
    /// One standard error, from the variance between filters (that of the count for one filter).
    pub standard_error: f64,
    /// Of the filter that errs most often.
    pub worst: f64,
    /// Of the filter that errs most rarely.
    pub best: f64,
    /// The exact rate that the filters announce, averaged over them.
    pub expected: f64,
}

impl Rate {
    /// Standard errors between the rate measured and the one expected. Where hardly a false positive
    /// is expected, the error is that of the expected count.
    pub fn deviation(&self) -> f64 {
        let counted = (self.expected / self.asked.max(1) as f64).sqrt();
        (self.measured - self.expected) / self.standard_error.max(counted).max(f64::MIN_POSITIVE)
    }

    /// Whether the rate measured is worse than the one expected by more than chance explains: by
    /// four standard errors and by 2%.
    pub fn is_bad(&self) -> bool {
        self.deviation() > 4.0 && self.measured > 1.02 * self.expected
    }

    fn new(each: &[(u64, u64)], expected: f64) -> Self {
        let asked: u64 = each.iter().map(|(asked, _)| asked).sum();
        let hits: u64 = each.iter().map(|(_, hits)| hits).sum();
        let rates = || each.iter().map(|&(asked, hits)| hits as f64 / asked.max(1) as f64);
        let measured = hits as f64 / asked.max(1) as f64;
        let n = each.len() as f64;
        let between: f64 = rates().map(|rate| (rate - measured).powi(2)).sum();
        let standard_error = if each.len() > 1 {
            (between / (n - 1.0) / n).sqrt()
        } else {
            (measured * (1.0 - measured) / asked.max(1) as f64).sqrt()
        };
        Self {
            asked,
            false_positives: hits,
            measured,
            interval: wilson(hits, asked),
            standard_error,
            worst: rates().fold(0.0, f64::max),
            best: rates().fold(1.0, f64::min),
            expected,
        }
    }
}

/// What a pattern cost, in nanoseconds a query.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Timing {
    /// What was done.
    #[serde(flatten)]
    pub pattern: Pattern,
    /// All of it.
    pub gross_ns: f64,
    /// Without asking the filter.
    pub dry_ns: f64,
}

impl Timing {
    /// The filter's own cost.
    pub fn net_ns(&self) -> f64 {
        self.gross_ns - self.dry_ns
    }
}

/// What was measured of one kind of filter.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The filter, as a spec.
    pub spec: String,
    /// Its kind.
    pub kind: String,
    /// Bits per key asked for.
    pub bits: f64,
    /// Keys of a filter asked for, on average.
    pub average_keys: u64,
    /// Instructions the filters were asked with.
    pub kernel: String,
    /// Bytes of a key.
    pub key_bytes: usize,
    /// Filters built.
    pub filters: u64,
    /// Their keys, all together.
    pub keys: u64,
    /// Their bytes in memory, all together.
    pub memory_bytes: u64,
    /// Bits per key as stored, without headers.
    pub stored_bits: f64,
    /// Bits that a positive answer looks at, in the first filter.
    pub probes: u32,
    /// Nanoseconds a key to build, hashing included.
    pub build_ns: f64,
    /// Bytes a key that a builder holds until the filter is written.
    pub build_bytes: f64,
    /// How often they err.
    pub rate: Rate,
    /// What they cost to ask.
    pub timings: Vec<Timing>,
}

impl Cell {
    /// Bits per key that the measured rate is worth: no filter can do with less.
    pub fn best_possible_bits(&self) -> f64 {
        -self.rate.measured.log2()
    }

    /// Net nanoseconds a query of a pattern, if it was timed.
    pub fn net_ns(&self, access: Access, mix: Mix) -> Option<f64> {
        let pattern = Pattern { access, mix };
        self.timings.iter().find(|timing| timing.pattern == pattern).map(Timing::net_ns)
    }
}

/// Builds filters as `plan` says and measures them.
///
/// # Errors
/// [`Error::Usage`] if the plan cannot be done, [`Error::Interrupted`] if stopped, and
/// [`Error::Store`] if a filter denies a key that was added to it.
pub fn measure(plan: &Plan, control: Control<'_>) -> Result<Cell, Error> {
    let fleet = Fleet::build(plan, control)?;
    fleet.verify(control)?;
    let rate = queries::rate(&fleet, plan, control)?;
    let mut timings = Vec::new();
    for &pattern in &plan.patterns {
        timings.push(queries::time(&fleet, plan, pattern, control)?);
    }
    Ok(fleet.cell(plan, rate, timings))
}

/// Nanoseconds an operation.
fn nanoseconds(time: Duration, operations: u64) -> f64 {
    time.as_secs_f64() * 1e9 / operations.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::{Silent, Stop};

    fn plan(spec: &str) -> Plan {
        Plan {
            spec: spec.parse().unwrap(),
            keys: 2000,
            vary: 0.4,
            key_bytes: 24,
            memory_bytes: 200_000,
            queries: 400_000,
            batch: 8,
            seed: 42,
            kernel: None,
            net_includes_hashing: false,
            patterns: Pattern::all(),
        }
    }

    fn run(plan: &Plan) -> Result<Cell, Error> {
        measure(plan, Control { stop: &Stop::new(), progress: &Silent })
    }

    #[test]
    fn a_fleet_fills_its_memory_and_errs_as_it_says() {
        for spec in ["standard:10", "blocked:10", "paired:10", "ribbon:8"] {
            let cell = run(&plan(spec)).unwrap();
            assert!((200_000..220_000).contains(&cell.memory_bytes), "{cell:?}");
            let average = cell.keys as f64 / cell.filters as f64;
            assert!((1600.0..2400.0).contains(&average), "{average} keys a filter");
            assert!((cell.stored_bits / cell.bits - 1.0).abs() < 0.1, "{cell:?}");
            assert!(cell.rate.asked >= 400_000 && cell.rate.false_positives > 1000);
            assert!(cell.rate.deviation().abs() < 4.0, "{spec}: {:?}", cell.rate);
            assert!(!cell.rate.is_bad());
            assert!(cell.rate.best <= cell.rate.measured && cell.rate.measured <= cell.rate.worst);
            assert_eq!(cell.timings.len(), 18);
            assert!(cell.timings.iter().all(|timing| timing.gross_ns > 0.0));
            let line = serde_json::to_string(&cell).unwrap();
            assert_eq!(serde_json::from_str::<Cell>(&line).unwrap(), cell);
        }
    }

    #[test]
    fn one_filter_is_enough() {
        let mut plan = plan("paired:16");
        (plan.memory_bytes, plan.keys, plan.vary) = (1, 10, 0.0);
        let cell = run(&plan).unwrap();
        assert_eq!((cell.filters, cell.keys), (1, 10));
    }

    #[test]
    fn a_rate_that_is_too_high_is_bad_and_one_by_chance_is_not() {
        let each: Vec<(u64, u64)> = (0..40).map(|nth| (10_000, 95 + nth % 10)).collect();
        let rate = Rate::new(&each, 0.009_95);
        assert!((rate.measured - 0.009_95).abs() < 1e-9 && rate.deviation().abs() < 0.1);
        assert!(!rate.is_bad() && Rate::new(&each, 0.009).is_bad());
        assert!(!Rate::new(&[(1000, 1)], 1e-5).is_bad(), "one hit by chance");
    }

    #[test]
    fn what_cannot_be_done_is_explained() {
        let text = |change: fn(&mut Plan)| {
            let mut plan = plan("paired:10");
            change(&mut plan);
            run(&plan).unwrap_err().to_string()
        };
        assert!(text(|plan| plan.keys = 0).contains("at least one key"));
        assert!(text(|plan| plan.vary = 1.0).contains("below 1"));
        assert!(text(|plan| plan.key_bytes = 11).contains("at least 12 bytes"));
        assert!(text(|plan| plan.spec = FilterSpec::NONE).contains("none"));
    }

    #[test]
    fn a_stop_ends_it() {
        let stop = Stop::new();
        stop.set();
        let result = measure(&plan("paired:10"), Control { stop: &stop, progress: &Silent });
        assert!(matches!(result, Err(Error::Interrupted)));
    }
}
