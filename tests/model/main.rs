//! The store against a model, under threads, and its filter report against theory.
//!
//! * [`sequences`]: random operations, compared one by one with a `BTreeMap`.
//! * [`lean`]: the same with cheaper steps and many more of them, kills and power cuts among them.
//! * [`metamorphic`]: the same operations under sixteen sets of options, with the same answers.
//! * [`threads`]: what writers and readers on real threads may see of each other.
//! * [`many`]: many keys at once, against one by one.
//! * [`liveness`]: nobody waits for ever, and memory and handles stay within their limits.
//! * [`stalled`]: background work that goes on failing is reported, and writers do not wait for it
//!   for ever.
//! * [`held`]: what is held of a store keeps it open, and what is closed answers no more.
//! * [`panics`]: a background thread panics, and everybody is told.
//! * [`sizes`]: what is too large is refused before a byte is written.
//! * [`read_errors`]: a read that fails is never the end of a scan.
//! * [`skipping`]: tombstones and versions that scans have to skip take few steps.
//! * [`prefixes`]: what filters of prefixes save, and that they never cost an entry.
//! * [`user_filters`]: policies that users bring, and filters that are stored and not used.
//! * [`cuts`]: filters in pieces, against theory and against the limit on what is pinned.
//! * [`cut_stores`]: filters of keys and prefixes, both in pieces, some of them lost.
//! * [`budget`]: filters within a budget, and what that saves.
//! * [`regressions`]: what was found, here and in other stores, with the table of historic bugs.
//! * [`report`]: what the filter report says, against what was asked and against theory.
//!
//! A failing sequence prints the command that plays it again, and a shorter one that still fails.
//! The longest runs take a quarter of the sequences that are promised; `TROMMEL_SCALE=n` takes n
//! times as many as promised, `TROMMEL_FIRST_SEED=n` starts elsewhere.

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "all of it is tests: they fail by panics and print how to play them again"
)]

mod budget;
mod config;
mod cut_stores;
mod cuts;
mod environments;
mod filter_fallbacks;
mod held;
mod keys;
mod lean;
mod liveness;
mod many;
mod metamorphic;
mod panics;
mod prefixes;
mod read_errors;
mod rebuilds;
mod regressions;
mod report;
mod rng;
mod runner;
mod sequences;
mod sizes;
mod skipping;
mod stalled;
mod threads;
mod user_filters;
mod walks;
mod world;

/// Stores in memory take and give back much of it, which this does in less time than the C library.
#[cfg(test)]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
