//! Compares Trommel's filters with those of other crates, and measures ratios between its own.
//!
//! 1. [`contestant`] names every filter, builds it from hashes and queries it, each through its own
//!    crate's interface for hashed keys.
//! 2. [`plan`] determines what is measured together: a [`plan::Group`] is a number of keys, and a
//!    size or a rate for all contestants.
//! 3. [`measure`] measures a group, round by round with the contestants in turn, into
//!    [`cell::Cell`]s.
//! 4. [`goals`] compares some ratios of these with their targets; [`page`] and [`plots`] present
//!    everything.
//!
//! Invariants: all contestants of a group get the same hashes in the same order and the same
//! queries by the same loops, compiled separately for each of them; a false negative is an error,
//! not a figure. Called by this package's program and test.

pub mod barrier;
pub mod cell;
pub mod contestant;
pub mod goals;
pub mod keys;
pub mod loops;
pub mod measure;
pub mod memory;
pub mod page;
pub mod plan;
pub mod plots;
pub mod theory;
