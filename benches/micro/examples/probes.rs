//! Nanoseconds per probe of a filter: for present keys, for absent ones, and for 64 absent ones at
//! once.
//!
//! ```sh
//! cargo run --release -p trommel-micro --example probes -- [KEYS] [SPEC] [ROUNDS]
//! ```
//! A filter of SPEC (default `paired:10`) for KEYS (default 1000000) keys is queried by hash, like
//! a table's filter, in each of ROUNDS (default 5); the fastest is printed.
//!
//! `benches/steps/run.sh` counts the instructions of the functions whose names end in `_probes`.

#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a measuring program")]

use std::time::Instant;

use trommel_filter::{Filter, FilterSpec, hash};

/// Keys per batched query.
const BATCH: usize = 64;

#[inline(never)]
fn single_probes(filter: &Filter, hashes: &[u64]) -> usize {
    hashes.iter().filter(|hash| filter.may_contain_hash(**hash)).count()
}

#[inline(never)]
fn batched_probes(filter: &Filter, hashes: &[u64]) -> usize {
    let mut answers = [false; BATCH];
    let mut passed = 0;
    for hashes in hashes.chunks(BATCH) {
        let answers = &mut answers[..hashes.len()];
        filter.may_contain_many(hashes, answers);
        passed += answers.iter().filter(|maybe| **maybe).count();
    }
    passed
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let keys: u64 = arguments.next().map_or(1_000_000, |keys| keys.parse().unwrap());
    let spec = arguments.next().unwrap_or_else(|| "paired:10".to_owned());
    let rounds: usize = arguments.next().map_or(5, |rounds| rounds.parse().unwrap());

    let mut builder = spec.parse::<FilterSpec>().unwrap().builder();
    let key = |number: u64| number.to_le_bytes();
    (0..keys).for_each(|number| builder.add(&key(number)));
    let filter = Filter::decode(builder.finish()).unwrap();
    let present: Vec<u64> = (0..keys).map(|number| hash(&key(number))).collect();
    let absent: Vec<u64> = (keys..2 * keys).map(|number| hash(&key(number))).collect();

    type Probes = fn(&Filter, &[u64]) -> usize;
    let rows: [(&str, Probes, &[u64]); 3] = [
        ("present", single_probes, &present),
        ("absent", single_probes, &absent),
        ("absent, 64 at once", batched_probes, &absent),
    ];
    for (row, probes, hashes) in rows {
        let once = || {
            let start = Instant::now();
            let passed = probes(&filter, hashes);
            (start.elapsed().as_secs_f64() * 1e9 / keys as f64, passed)
        };
        let (nanos, passed) =
            (0..rounds).map(|_| once()).min_by(|a, b| a.0.total_cmp(&b.0)).unwrap();
        println!("{row:<20} {nanos:7.1} ns  {passed} of {keys} pass");
    }
}
