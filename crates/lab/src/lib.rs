//! Experiments with filters and trees, and reports of what was measured.
//!
//! 1. [`tune`] builds stores for a grid of filters, trees and workloads, and compares their filters
//!    with the model; [`tune::replay`] runs a recorded trace against other filters.
//! 2. [`filter_bench`] measures filters by themselves, [`simulate`] a store of a given shape.
//! 3. [`compare`] decides whether one set of a bench's records is faster than another, and
//!    [`statistics`] is what it decides by.
//! 4. [`report`] draws a page of any of these records.
//!
//! Invariants: nothing here writes to the standard streams (callers pass a writer), and the harness
//! knows nothing of this crate.
//! Called by the `trommel` program, and its pages by the comparison with other stores.
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
