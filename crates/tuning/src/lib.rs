//! Computes the filter bits of each table from the shape of a tree. Pure arithmetic: no files, no
//! clocks, no store.
//!
//! An LSM tree's filters compete for memory. The last level has nine tenths of the keys, so a bit
//! per key costs most there. But a lookup of a missing key searches every level once: one level up,
//! the same read is saved for a tenth of the bytes. This crate computes the waste of given filters
//! ([`Cost`]), the filters with the least waste for a number of bytes ([`Solver`]), the value of
//! one more byte at that point ([`Price`]), and the filters to drop ([`to_drop`]).
//!
//! # The model
//! 1. A [`Tree`] is a list of sorted runs, newest first, of tables with keys and reach.
//! 2. A [`Workload`] is the share of lookups that miss, the distribution of the hits, and the cost
//!    of a wasted read on each level. A tree and a workload determine the weight of each table: the
//!    cost of its wasted reads without a filter.
//! 3. A filter of rate `f` reduces that to `weight * f`, and takes bytes. Rates and bytes are those
//!    of real filters ([`rate`], [`bytes`]).
//!
//! Not modeled: the block cache (except in the cost of a wasted read), hot keys that are absent,
//! the time to build filters, and the time to query them, which is reported ([`Cost::lines`]) but
//! not priced.
//!
//! # Reading order
//! `tree`, `workload`, `curve`, `cost`; then `menu`, `price`, `core`, `fill` and `solver`; `cached`
//! for many tables, `by_level` for policies with one filter per level; `held` for a live store.

#![forbid(unsafe_code)]

mod budget;
mod by_level;
mod cached;
mod core;
mod cost;
mod curve;
mod error;
mod fill;
mod held;
mod menu;
mod price;
mod ranges;
mod rules;
mod solver;
#[cfg(test)]
mod tests;
mod tree;
mod workload;

pub use budget::Budget;
pub use by_level::{ByLevel, LevelPlan, Visited};
pub use cost::Cost;
pub use curve::{bytes, rate};
pub use error::TuningError;
pub use held::{Held, to_drop};
pub use price::{Offer, Price};
pub use ranges::{RangeDemand, RangePlan};
pub use rules::{Rule, Rules};
pub use solver::{Plan, Solver};
pub use tree::{BASE_LEVEL_GROWTH, MEMTABLE_OVERHEAD, Run, Table, Tree};
pub use workload::{Visits, Workload};

/// The expected wasted reads of a lookup of a missing key, in all tables of a tree: the sum of the
/// probability that its key falls into a table's range, times the rate of that table's filter (1
/// without one).
///
/// If each run of the tree covers all keys, this is the sum of the runs' false positive rates
/// (Dayan, Athanassoulis, Idreos: "Monkey", SIGMOD 2017, equation 3). A run that covers only a part
/// of them, such as a level that has just begun to fill, wastes proportionally less.
///
/// ```
/// let halves = [(0.5, 0.02), (0.5, 0.04)];
/// let wasted = trommel_tuning::wasted_reads_per_miss(halves.into_iter().chain([(0.25, 0.04)]));
/// assert!((wasted - 0.04).abs() < 1e-12);
/// ```
pub fn wasted_reads_per_miss(reach_and_rate: impl IntoIterator<Item = (f64, f64)>) -> f64 {
    // Not `sum`, which returns -0 for no tables.
    reach_and_rate.into_iter().fold(0.0, |wasted, (reach, rate)| wasted + reach * rate)
}
