//! Experiments with filters and trees, and reports of the results.
//!
//! 1. [`tune`] builds stores for a grid of filters, trees and workloads, and compares their filters
//!    with the model; [`tune::replay`] replays a recorded trace of lookups against other filters.
//! 2. [`filter_bench`] measures filters by themselves, [`simulate`] a store of a given shape.
//! 3. [`compare`] decides whether one set of a bench's records is faster than another, by the tests
//!    in [`statistics`].
//! 4. [`report`] makes a page of any of these records.
//!
//! Invariants: nothing here writes to the standard streams (callers pass a writer), and the harness
//! does not know this crate. Called by the `trommel` program; the comparison with other stores uses
//! its reports.
#![forbid(unsafe_code)]

pub mod compare;
pub mod filter_bench;
#[cfg(test)]
mod format_tests;
pub mod report;
pub mod simulate;
pub mod statistics;
#[cfg(test)]
mod testing;
pub mod tune;
