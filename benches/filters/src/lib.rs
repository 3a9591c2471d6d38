//! Trommel's filters beside those of other crates, and the ratios between its own.
//!
//! 1. [`contestant`] names every filter, builds it from hashes and asks it, each through its own
//!    crate's entry for keys that are hashed already.
//! 2. [`plan`] says what is measured together: a [`plan::Group`] is a number of keys, and a size or
//!    a rate that all contestants are given.
//! 3. [`measure`] measures a group, round by round with the contestants in turn, into
//!    [`cell::Cell`]s.
//! 4. [`goals`] holds some ratios of these against what they should be; [`page`] and [`plots`] show
//!    everything.
//!
//! Invariants: all contestants of a group get the same hashes in the same order and are asked the
//! same questions by the same loops, compiled anew for each of them; a filter that denies a key it
//! was given is an error, not a figure. Called by this package's program, test and benches.

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
