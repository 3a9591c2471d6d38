//! The same ratios with criterion, which stores its measurements and reports changes: `cargo bench
//! --manifest-path benches/filters/Cargo.toml [-- NAME]`.
//!
//! * `build`: 100,000 and 1,000,000 hashes.
//! * `query_in_cache`: filters of 100,000 keys; `query_out_of_cache`: of 50,000,000.
//! * `batched`: the latter queried one by one, dependently or independently, and in batches.
//!
//! Every iteration is [`QUESTIONS`] queries (or one build); times are those of the whole loop,
//! without a dry run subtracted.
#![allow(missing_docs, reason = "criterion's macro makes a public function")]

use std::hint::black_box;
use std::time::Duration;

use criterion::measurement::WallTime;
use criterion::{
    BenchmarkGroup, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main,
};
use trommel_filter::{FilterKind, Kernel};
use trommel_filters::contestant::{Built, Contestant, Pages, Ready, decode};
use trommel_filters::keys;
use trommel_filters::loops::{MODES, Mode, Pattern, Side, Timed, mode_name};

const BITS: [f64; 2] = [10.0, 23.4];
const SMALL: u64 = 100_000;
const HUGE: u64 = 50_000_000;
const QUESTIONS: usize = 100_000;
/// Number of sets of queries that successive iterations use: so many that none is still in a cache
/// when it is used again.
const SETS: u64 = 16;

const BLOCKED: Contestant = Contestant::Ours(FilterKind::Blocked);
const PAIRED: Contestant = Contestant::Ours(FilterKind::Paired);
const COMPARED: [Contestant; 4] = [BLOCKED, PAIRED, Contestant::Fastbloom, Contestant::SplitBlock];

fn build(criterion: &mut Criterion) {
    for keys in [SMALL, 1_000_000] {
        let mut group = criterion.benchmark_group(format!("build/{keys}"));
        group.throughput(Throughput::Elements(keys)).sample_size(20);
        let hashes = keys::present(keys);
        for bits in BITS {
            for contestant in COMPARED {
                group.bench_function(BenchmarkId::new(contestant.to_string(), bits), |bencher| {
                    bencher.iter(|| drop(black_box(contestant.build(bits, &hashes))));
                });
            }
        }
        group.finish();
    }
}

/// The filters of a contestant to query, with their names: one for each vector kernel.
fn variants(
    contestant: Contestant,
    bits: f64,
    hashes: &[u64],
    pages: Pages,
) -> Vec<(String, Ready)> {
    match contestant.build(bits, hashes).expect("a size for all") {
        Built::Ready(ready) => vec![(contestant.to_string(), ready)],
        Built::Stored(bytes) => {
            let kernels = Kernel::available().filter(|kernel| *kernel != Kernel::Scalar);
            let decoded = |kernel| decode(&bytes, kernel, pages).expect("what was just built");
            kernels.map(|kernel| (format!("{contestant}_{kernel}"), decoded(kernel))).collect()
        }
    }
}

fn ask(group: &mut BenchmarkGroup<'_, WallTime>, name: &str, ready: &Ready, keys: u64, mode: Mode) {
    let (side, pattern) = mode;
    let questions = |set| match side {
        Side::Negative => keys::absent(set, QUESTIONS),
        Side::Positive => keys::drawn(keys, set, QUESTIONS),
    };
    let sets: Vec<Vec<u64>> = (0..SETS).map(questions).collect();
    let mut next = sets.iter().cycle();
    group.bench_function(BenchmarkId::new(name, mode_name(mode)), |bencher| {
        bencher.iter_custom(|times| {
            let sets = next.by_ref().take(times as usize);
            sets.map(|hashes| ready.with(Timed(pattern, hashes)).0).sum::<Duration>()
        });
    });
}

fn query(criterion: &mut Criterion, name: &str, keys: u64, modes: &[Mode], who: &[Contestant]) {
    let hashes = keys::present(keys);
    for bits in BITS {
        let mut group = criterion.benchmark_group(format!("{name}/{bits}"));
        group.throughput(Throughput::Elements(QUESTIONS as u64)).sample_size(20);
        group.measurement_time(Duration::from_secs(2)).warm_up_time(Duration::from_millis(500));
        for &contestant in who {
            for (name, ready) in variants(contestant, bits, &hashes, Pages::Small) {
                for &mode in modes {
                    ask(&mut group, &name, &ready, keys, mode);
                }
            }
        }
        group.finish();
    }
}

fn query_in_cache(criterion: &mut Criterion) {
    query(criterion, "query_in_cache", SMALL, &MODES[..2], &COMPARED);
}

fn query_out_of_cache(criterion: &mut Criterion) {
    query(criterion, "query_out_of_cache", HUGE, &MODES[..4], &COMPARED);
}

fn batched(criterion: &mut Criterion) {
    let modes = [Pattern::Dependent, Pattern::Independent, Pattern::Batched];
    query(
        criterion,
        "batched",
        HUGE,
        &modes.map(|pattern| (Side::Negative, pattern)),
        &[BLOCKED, PAIRED],
    );
}

criterion_group!(speed, build, query_in_cache, query_out_of_cache, batched);
criterion_main!(speed);
