//! Filters of 10 bits per key by kind: building them, and probing them for present and absent keys,
//! alone and 64 at once. `cargo bench -- filter`
#![allow(missing_docs, clippy::unwrap_used, reason = "criterion makes a public function")]

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use trommel_filter::{Filter, FilterKind, FilterSpec, hash};

/// More than caches hold, so that a probe waits for memory as in a large store.
const KEYS: u64 = 4_000_000;
const BUILT_KEYS: u64 = 100_000;
const PROBES: u64 = 64 * 1000;

fn built(kind: &str, keys: u64) -> Vec<u8> {
    let spec: FilterSpec = format!("{kind}:10").parse().unwrap();
    let mut builder = spec.builder();
    (0..keys).for_each(|key| builder.add(&key.to_le_bytes()));
    builder.finish()
}

fn build(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("filter/build");
    group.throughput(Throughput::Elements(BUILT_KEYS));
    for kind in FilterKind::ALL.map(FilterKind::name) {
        group.bench_function(kind, |bencher| bencher.iter(|| built(kind, BUILT_KEYS)));
    }
    group.finish();
}

fn probe(criterion: &mut Criterion) {
    let step = KEYS / PROBES;
    let hashes = |first: u64| -> Vec<u64> {
        let keys = (0..PROBES).map(|nth| first + nth.wrapping_mul(0x9e37_79b9) % PROBES * step);
        keys.map(|key| hash(&key.to_le_bytes())).collect()
    };
    let (present, absent) = (hashes(0), hashes(KEYS));
    let mut group = criterion.benchmark_group("filter/probe");
    group.throughput(Throughput::Elements(PROBES));
    for kind in FilterKind::ALL.map(FilterKind::name) {
        let filter = Filter::decode(built(kind, KEYS)).unwrap();
        for (name, hashes) in [("present", &present), ("absent", &absent)] {
            let passed = || hashes.iter().filter(|hash| filter.may_contain_hash(**hash)).count();
            group.bench_function(BenchmarkId::new(name, kind), |bencher| bencher.iter(passed));
        }
        let mut answers = [false; 64];
        group.bench_function(BenchmarkId::new("absent, batched", kind), |bencher| {
            bencher.iter(|| {
                for hashes in absent.chunks(64) {
                    filter.may_contain_many(black_box(hashes), &mut answers);
                    black_box(&answers);
                }
            });
        });
    }
    group.finish();
}

criterion_group! { name = benches; config = trommel_micro::short(1); targets = build, probe }
criterion_main!(benches);
