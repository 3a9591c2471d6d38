//! The program as a user meets it: what it prints, where, and with which exit code.
//!
//! Texts that are worth reading whole are kept in `tests/snapshots`; run the tests with
//! `TROMMEL_BLESS=1` to write them anew after a wanted change, and read the difference.
#![expect(clippy::unwrap_used, reason = "a helper of a test may panic as the test may")]

mod admin;
mod backups;
mod benching;
#[cfg(unix)]
mod book;
mod comparing;
mod data;
mod demo_and_bench;
mod files;
mod filter_benching;
mod keeping;
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
