//! Nanoseconds per key of single gets and of multi-gets of 64 keys, on two trees in memory: one
//! with many runs in level 0, and one with many small tables in the last level.
//!
//! ```sh
//! cargo run --release -p trommel-harness --example lookups -- [KEYS] [RUNS] [READS] [ROUNDS] [ONLY] \
//!     [FILTERS] [timed]
//! ```
//! KEYS (default 2000000) is the number of keys in each tree; they have even numbers, so odd
//! numbers are absent. RUNS (default 12) is the number of runs in level 0. READS (default 1000000)
//! are made in each of ROUNDS (default 5); the best round counts. ONLY selects rows by the start of
//! their name, such as `deep` or `runs-missing`. FILTERS is a filter policy other than the default,
//! or `-`. With `timed`, the stores measure latencies.
//! Each round measures both kinds of get, so that their ratio holds even if the machine's speed
//! drifts.
//!
//! `benches/steps/run.sh` and `benches/claims/run.sh` count the instructions of [`gets`] and
//! [`multi_gets`].

#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a measuring program")]

mod common;

use std::sync::Arc;
use std::time::Instant;

use trommel::{Db, FilterPolicy, Options};
use trommel_sim::MemoryVfs;

use common::{key, scatter};

const BATCH: usize = 64;
const VALUE: [u8; 32] = [b'v'; 32];

fn options(filters: &FilterPolicy) -> Options {
    Options::default()
        .filters(filters.clone())
        .vfs(Arc::new(MemoryVfs::new()))
        .background_threads(0)
        .reads(|r| r.cache_bytes(1 << 30))
        .compaction(|c| c.auto_compaction(false))
        .writes(|w| w.write_buffer_bytes(1 << 30))
}

/// A store with all keys in `runs` runs of level 0.
fn tree_of_runs(keys: u64, runs: u64, filters: &FilterPolicy) -> Db {
    let db = Db::open("/runs", options(filters)).unwrap();
    for run in 0..runs {
        for number in (run..keys).step_by(runs as usize) {
            db.put(key(number * 2), VALUE).unwrap();
        }
        db.flush().unwrap();
    }
    db
}

/// A store with all keys in the last level, in tables of 2 MiB.
fn deep_tree(keys: u64, filters: &FilterPolicy) -> Db {
    let db = Db::open("/deep", options(filters).compaction(|c| c.table_bytes(2 << 20))).unwrap();
    for number in 0..keys {
        db.put(key(number * 2), VALUE).unwrap();
    }
    db.compact_range(..).unwrap();
    db
}

/// Random keys to look up, all present or all absent.
fn drawn(keys: u64, reads: usize, missing: bool) -> Vec<[u8; 16]> {
    let draw = |i| scatter(i ^ 0x5eed << 40) % keys * 2 + u64::from(missing);
    (0..reads as u64).map(|i| key(draw(i))).collect()
}

/// Looks up `keys` one by one and returns how many are found. A function of its own, so that a
/// profiler can attribute its instructions.
#[inline(never)]
fn gets(db: &Db, keys: &[[u8; 16]]) -> usize {
    keys.iter().filter(|key| db.get(key).unwrap().is_some()).count()
}

/// As [`gets`], with multi-gets.
#[inline(never)]
fn multi_gets(db: &Db, keys: &[[u8; 16]]) -> usize {
    let found = keys.chunks(BATCH).map(|keys| db.multi_get(keys).unwrap());
    found.map(|values| values.iter().flatten().count()).sum()
}

/// Nanoseconds per key.
fn timed(reads: usize, look_up: impl FnOnce() -> usize, expected: usize) -> f64 {
    let start = Instant::now();
    let found = look_up();
    let time = start.elapsed().as_nanos() as f64 / reads as f64;
    assert_eq!(found, expected);
    time
}

fn measure(name: &str, db: &Db, keys: &[[u8; 16]], missing: bool, rounds: usize) {
    let expected = if missing { 0 } else { keys.len() };
    // Warm the cache before measuring.
    let found = keys.iter().filter(|key| db.contains_key(key).unwrap()).count();
    assert_eq!(found, expected);
    let (mut single, mut many) = (f64::MAX, f64::MAX);
    for _ in 0..rounds {
        single = single.min(timed(keys.len(), || gets(db, keys), expected));
        many = many.min(timed(keys.len(), || multi_gets(db, keys), expected));
    }
    println!("{name:14} {single:>10.1} {many:>14.1} {:>8.2}", single / many);
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default: u64| {
        arguments.get(at).map_or(default, |text| text.parse().expect("a number"))
    };
    let (keys, runs) = (number(0, 2_000_000), number(1, 12).max(1));
    let reads = number(2, 1_000_000) as usize;
    let rounds = number(3, 5).max(1) as usize;
    let only = arguments.get(4).map_or("", String::as_str);
    let filters = arguments.get(5).filter(|text| *text != "-");
    let filters = filters.map_or_else(FilterPolicy::default, |text| {
        text.parse().unwrap_or_else(|error| panic!("{error}"))
    });
    println!("{keys} keys, {runs} runs, {reads} reads, ns a key");
    println!("{:14} {:>10} {:>14} {:>8}", "", "get", "multi_get(64)", "ratio");
    for tree in ["runs", "deep"] {
        let rows = [("present", false), ("missing", true)].map(|(what, missing)| {
            let name = format!("{tree}-{what}");
            name.starts_with(only).then_some((name, missing))
        });
        if rows.iter().all(Option::is_none) {
            continue;
        }
        let db = match tree {
            "runs" => tree_of_runs(keys, runs, &filters),
            _ => deep_tree(keys, &filters),
        };
        db.measure_latencies(arguments.get(6).is_some_and(|text| text == "timed"));
        for (name, missing) in rows.into_iter().flatten() {
            measure(&name, &db, &drawn(keys, reads, missing), missing, rounds);
        }
    }
}
