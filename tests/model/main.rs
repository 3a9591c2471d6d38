//! The store against a model, under threads, and its filter report against theory.
//!
//! * [`sequences`]: random operations, compared one by one with a `BTreeMap`.
//! * [`lean`]: the same with cheaper steps and many more of them, including kills and power
//!   failures.
//! * [`metamorphic`]: the same operations under sixteen sets of options, with the same results.
//! * [`threads`]: what writers and readers on real threads may see of each other.
//! * [`many`]: multi-gets against single gets.
//! * [`liveness`]: nobody waits forever, and memory and handles stay within their limits.
//! * [`stalled`]: repeated failures of background work are reported, and writers do not wait
//!   forever.
//! * [`held`]: objects that keep a store open, and errors after it is closed.
//! * [`panics`]: a background thread panics, and every caller gets an error.
//! * [`sizes`]: inputs that are too large are rejected before a byte is written.
//! * [`gaps`]: deletions of ranges with concurrent readers, and gaps that scans learn.
//! * [`live_keys`]: filters of tombstones, sized by the live keys around them.
//! * [`read_errors`]: a read error is never the end of a scan.
//! * [`skipping`]: scans skip tombstones and old versions in few steps.
//! * [`ranges`]: deleted ranges, for conditional writes, open iterators and copies of the store.
//! * [`compaction_filter`]: what compaction filters are called for, and what they leave.
//! * [`merges`]: merge operators beside failures, expiry, transactions and compactions.
//! * [`expiry`]: entries that expire, against a model in which each version has a time.
//! * [`followers`]: followers beside a writer, against a model and under threads.
//! * [`changes`]: change feeds, whose consumers are killed and resumed.
//! * [`loads`]: sorted entries loaded past the log.
//! * [`ingests`]: files of sorted entries, written outside a store.
//! * [`keyspaces`]: several keyspaces, against a map for each.
//! * [`isolation`]: histories of transactions, checked for every anomaly.
//! * [`prefixes`]: the benefit of filters of prefixes, and that they never hide an entry.
//! * [`range_filters`]: the benefit of range filters, against theory.
//! * [`user_filters`]: user-defined policies, and filters that are stored and not used.
//! * [`cuts`]: partitioned filters, against theory and against the limit on pinned bytes.
//! * [`cut_stores`]: partitioned filters of keys and prefixes, some partitions lost.
//! * [`memtables`]: memtables of both kinds.
//! * [`budget`]: filters within a budget, and its benefit.
//! * [`regressions`]: bugs found here and in other stores, with the table of historic bugs.
//! * [`report`]: the filter report, against the requested filters and against theory.
//!
//! A failing sequence prints the command that plays it again, and a shorter one that still fails.
//! The longest runs play a 32nd of the promised sequences, the others a quarter; with
//! `TROMMEL_LANES=ci` four times as many. `TROMMEL_SCALE=n` plays n times as many as promised, and
//! `TROMMEL_FIRST_SEED=n` starts elsewhere.

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "all of it is tests: they fail by panics and print how to play them again"
)]

mod adversary;
mod budget;
mod changes;
mod compaction_filter;
mod config;
mod cut_stores;
mod cuts;
mod environments;
mod expiry;
mod filter_fallbacks;
mod followers;
mod gaps;
mod held;
mod ingests;
mod isolation;
mod iterators;
mod keys;
mod keyspaces;
mod lean;
mod live_keys;
mod liveness;
mod loads;
mod many;
mod memtables;
mod merges;
mod metamorphic;
mod panics;
mod prefixes;
mod range_filters;
mod ranges;
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
mod world;

/// Stores in memory allocate and free a lot, which is faster than with the C library's allocator.
#[cfg(test)]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
