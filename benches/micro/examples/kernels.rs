//! The cost of one query and of one key, kernel by kernel: the program behind
//! `docs/measurements/kernels.md`.
//!
//! ```text
//! kernels SPEC KERNEL KEYS CASE [ROUNDS]
//! ```
//!
//! `CASE` is `absent`, `present` (queries one by one), `absent-dependent`, `present-dependent`
//! (each query waits for the previous answer), `absent-many`, `present-many` (all at once), `build`
//! or `decode`. It prints the shortest time of any slice of 4,096 queries (of a whole build, of a
//! whole decode), which other programs disturb least. To count instructions, run it under callgrind
//! and collect in the function `measured` only.
#![allow(clippy::print_stdout, reason = "the figure is the output")]

use std::error::Error;
use std::hint::black_box;
use std::time::{Duration, Instant};

use trommel_filter::{Filter, FilterBuilder, FilterSpec, Kernel};

/// Queries per timed slice.
const SLICE: usize = 4096;
/// The most queries in one round.
const QUERIES: usize = 1 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [spec, kernel, keys, case, rest @ ..] = &args[..] else {
        return Err("usage: kernels SPEC KERNEL KEYS CASE [ROUNDS]".into());
    };
    let spec: FilterSpec = spec.parse()?;
    let keys: u64 = keys.parse()?;
    let rounds: u64 = rest.first().map_or(Ok(1), |rounds| rounds.parse())?;
    if case == "build" {
        let builders = (0..rounds).map(|_| builder(spec, keys));
        let shortest = builders.map(|builder| timed(|| measured(|| builder.finish()))).min();
        return report(shortest, keys, "key");
    }
    let bytes = builder(spec, keys).finish();
    if case == "decode" {
        let shortest = (0..rounds).map(|_| timed(|| decode(&bytes))).min();
        return report(shortest, bytes.len() as u64, "byte");
    }
    let filter = Filter::decode(bytes)?.with_kernel(kernel.parse::<Kernel>()?);
    let is_present = case.starts_with("present");
    let hashes = queries(keys, is_present);
    let mut answers = vec![false; SLICE];
    let mut query = |hashes: &[u64]| match case.split_once('-') {
        Some((_, "many")) => timed(|| query_many(&filter, hashes, &mut answers)),
        Some((_, "dependent")) => timed(|| query_dependent(&filter, hashes)),
        _ => timed(|| query_each(&filter, hashes)),
    };
    let slices = (0..rounds).flat_map(|_| hashes.chunks_exact(SLICE));
    report(slices.map(&mut query).min(), SLICE as u64, "query")
}

/// Hashes of present or absent keys, in random order.
fn queries(keys: u64, is_present: bool) -> Vec<u64> {
    let first = if is_present { 0 } else { keys };
    let nth = |n: usize| {
        let n = trommel_filter::hash(&(!n as u64).to_le_bytes()) % keys;
        hash_of(first + n)
    };
    (0..QUERIES).map(nth).collect()
}

fn hash_of(key: u64) -> u64 {
    trommel_filter::hash(&key.to_le_bytes())
}

fn timed<T>(work: impl FnOnce() -> T) -> Duration {
    let start = Instant::now();
    black_box(work());
    start.elapsed()
}

fn report(shortest: Option<Duration>, things: u64, thing: &str) -> Result<(), Box<dyn Error>> {
    let shortest = shortest.ok_or("nothing was measured")?;
    println!("{:.3} ns a {thing}", shortest.as_nanos() as f64 / things as f64);
    Ok(())
}

fn builder(spec: FilterSpec, keys: u64) -> FilterBuilder {
    let mut builder = spec.builder();
    (0..keys).for_each(|key| builder.add_hash(hash_of(key)));
    builder
}

fn decode(bytes: &[u8]) -> bool {
    measured(|| Filter::decode(bytes).is_ok())
}

fn query_each(filter: &Filter, hashes: &[u64]) -> usize {
    measured(|| hashes.iter().filter(|hash| filter.may_contain_hash(**hash)).count())
}

fn query_dependent(filter: &Filter, hashes: &[u64]) -> u64 {
    measured(|| {
        hashes.iter().fold(0, |last, &hash| {
            // Depends on the last answer, whichever it is, and changes nothing.
            let next = hash ^ black_box(last) >> 1;
            u64::from(black_box(filter.may_contain_hash(next)))
        })
    })
}

fn query_many(filter: &Filter, hashes: &[u64], answers: &mut [bool]) -> bool {
    measured(|| filter.may_contain_many(hashes, answers));
    answers[0]
}

/// The function in which instructions are counted.
#[inline(never)]
fn measured<T>(work: impl FnOnce() -> T) -> T {
    work()
}
