//! The store against a model, under threads, and its filter report against theory.
//!
//! * [`sequences`]: random operations, compared one by one with a `BTreeMap`.
//! * [`threads`]: what writers and readers on real threads may see of each other.
//! * [`many`]: many keys at once, against one by one.
//! * [`liveness`]: nobody waits for ever, and memory and handles stay within their limits.
//! * [`prefixes`]: what filters of prefixes save, and that they never cost an entry.
//! * [`user_filters`]: policies that users bring, and filters that are stored and not used.
//! * [`cuts`]: filters in pieces, against theory and against the limit on what is pinned.
//! * [`cut_stores`]: filters of keys and prefixes, both in pieces, some of them lost.
//! * [`report`]: what the filter report says, against what was asked and against theory.
//!
//! A failing sequence prints the command that plays it again. `TROMMEL_SCALE=n` makes the runs n
//! times as long (1 is the size for every change; 20 takes about an hour).

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "all of it is tests: they fail by panics and print how to play them again"
)]

mod config;
mod cut_stores;
mod cuts;
mod keys;
mod liveness;
mod many;
mod prefixes;
mod regressions;
mod report;
mod rng;
mod runner;
mod sequences;
mod threads;
mod user_filters;
mod walks;
mod world;

/// How many times as long as usual the tests run.
pub(crate) fn scale() -> u64 {
    let scale = std::env::var("TROMMEL_SCALE").ok();
    scale.map_or(1, |text| text.parse().expect("TROMMEL_SCALE is a whole number"))
}
