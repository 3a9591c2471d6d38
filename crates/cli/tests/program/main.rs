//! The program from a user's view: its output, its streams and its exit codes.
//!
//! Outputs worth reading in full are kept in `tests/snapshots`; after an intended change, run the
//! tests with `TROMMEL_BLESS=1` to rewrite them, and read the diff.
#![expect(clippy::unwrap_used, reason = "a helper of a test may panic as the test may")]

mod admin;
mod backups;
mod benching;
#[cfg(unix)]
mod book;
mod changes;
mod comparing;
mod data;
mod demo_and_bench;
mod files;
mod filter_benching;
mod keeping;
mod keyspaces;
mod load_and_dump;
mod odd;
mod repeating;
mod replaying;
mod reporting;
#[cfg(unix)]
mod rescuing;
mod shell;
mod simulating;
mod stressing;
mod support;
mod tuning;
mod usage;
mod watching;
