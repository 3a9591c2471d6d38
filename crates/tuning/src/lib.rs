//! The shape of a tree in, filter bits per table out. Pure arithmetic: no files, no clocks, no
//! store.
//!
//! An LSM tree's filters compete for memory. The last level has nine tenths of the keys, so that a
//! bit per key costs most there, yet a lookup of a missing key goes through every level once: the
//! same read is saved for a tenth of the bytes one level up. This crate says what given filters
//! waste ([`Cost`]), which filters waste least for a number of bytes ([`Solver`]), what a byte is
//! worth then ([`Price`]), which filters to do without ([`to_drop`]), and the shape of trees that
//! are not there ([`Shape`]).
//!
//! # The model
//! 1. A [`Tree`] is a list of sorted runs, newest first, of tables with keys and reach.
//! 2. A [`Workload`] says how many lookups miss, where the others find their keys, and what a
//!    wasted read costs on each level. Of both follows the weight of each table: what its reads in
//!    vain cost, had it no filter.
//! 3. A filter of rate `f` makes that `weight * f`, and takes bytes. Rates and bytes are those of
//!    real filters ([`rate`], [`bytes`]).
//!
//! What is not modelled: the block cache (but in what a wasted read is said to cost), hot keys that
//! are not there, the time to build filters, and the time to ask them, which is told
//! ([`Cost::lines`]) and not priced.
//!
//! # Reading order
//! `tree`, `workload`, `curve`, `cost`; then `menu`, `price`, `core`, `fill` and `solver`; `kept`
//! for many tables, `by_level` for policies that say one filter for a level; `held` for a store
//! that lives, `shape` for one that is not there.

#![forbid(unsafe_code)]

mod budget;
mod by_level;
mod core;
mod cost;
mod curve;
mod error;
mod fill;
mod held;
mod kept;
mod menu;
mod price;
mod rules;
mod shape;
mod solver;
#[cfg(test)]
mod tests;
mod tree;
mod workload;

pub use budget::Budget;
pub use by_level::{ByLevel, LevelPlan, Visited};
pub use cost::Cost;
pub use curve::{Lines, bytes, rate};
pub use error::TuningError;
pub use held::{Held, to_drop};
pub use price::{Offer, Price};
pub use rules::{Rule, Rules};
pub use shape::{BASE_LEVEL_GROWTH, MEMTABLE_OVERHEAD, Shape};
pub use solver::{Plan, Solver};
pub use tree::{Run, Table, Tree};
pub use workload::{Visits, Workload};

/// Reads that a lookup of a missing key is expected to waste, in all tables of a tree: the sum of
/// how likely its key falls into a table's range, times the rate of that table's filter (1 without
/// one).
///
/// Where each run of the tree covers all keys, this is the sum of the runs' false-positive rates
/// (Dayan, Athanassoulis, Idreos: "Monkey", SIGMOD 2017, equation 3). A run that covers only a
/// part of them, as a level does that has just begun to fill, wastes as much less.
///
/// ```
/// let halves = [(0.5, 0.02), (0.5, 0.04)];
/// let wasted = trommel_tuning::wasted_reads_per_miss(halves.into_iter().chain([(0.25, 0.04)]));
/// assert!((wasted - 0.04).abs() < 1e-12);
/// ```
pub fn wasted_reads_per_miss(reach_and_rate: impl IntoIterator<Item = (f64, f64)>) -> f64 {
    // Not `sum`, which makes -0 of no tables.
    reach_and_rate.into_iter().fold(0.0, |wasted, (reach, rate)| wasted + reach * rate)
}
