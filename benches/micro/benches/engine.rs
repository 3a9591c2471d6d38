//! A store of 500,000 entries of 16 + 100 bytes on a file system in memory, compacted: single puts
//! and batches, gets of present and absent keys, multi-gets of 64, and scans of ten entries and of
//! all; increments. `cargo bench -- engine`
#![allow(missing_docs, clippy::unwrap_used, reason = "criterion makes a public function")]

#[path = "../../../crates/harness/examples/common/mod.rs"]
mod common;

use std::sync::Arc;

use criterion::{BatchSize, Bencher, Criterion, Throughput, criterion_group, criterion_main};
use trommel::{Db, Merge, Options, WriteBatch};
use trommel_sim::MemoryVfs;

use common::{key, scatter};

const KEYS: u64 = 500_000;
const LOOKUPS: u64 = 6400;
const WRITES: u64 = 10_000;
const BATCH: usize = 100;
const VALUE: [u8; 100] = [b'v'; 100];

fn store(path: &str) -> Db {
    let options = Options::default().vfs(Arc::new(MemoryVfs::new())).background_threads(0);
    Db::open(path, options.writes(|w| w.write_buffer_bytes(256 << 20))).unwrap()
}

fn writes(criterion: &mut Criterion) {
    let keys: Vec<_> = (0..WRITES).map(key).collect();
    let mut group = criterion.benchmark_group("engine");
    group.throughput(Throughput::Elements(WRITES));
    let put = |db: &Db| {
        for key in &keys {
            db.put(key, VALUE).unwrap();
        }
    };
    let put_batches = |db: &Db| {
        for keys in keys.chunks(BATCH) {
            let mut batch = WriteBatch::new();
            for key in keys {
                batch.put(key, VALUE);
            }
            db.write(batch).unwrap();
        }
    };
    let setup = || store("/writes");
    group.bench_function("put", |bencher| {
        bencher.iter_batched_ref(setup, |db| put(db), BatchSize::PerIteration);
    });
    group.bench_function("put, batches of 100", |bencher| {
        bencher.iter_batched_ref(setup, |db| put_batches(db), BatchSize::PerIteration);
    });
    group.finish();
}

fn reads(criterion: &mut Criterion) {
    let db = store("/reads");
    for number in 0..KEYS {
        db.put(key(number * 2), VALUE).unwrap();
    }
    db.compact_range(..).unwrap();
    let drawn = |missing: u64| -> Vec<_> {
        (0..LOOKUPS).map(|nth| key(scatter(nth ^ 0x5eed << 40) % KEYS * 2 + missing)).collect()
    };
    let (present, missing) = (drawn(0), drawn(1));
    let gets = |keys: &[[u8; 16]]| keys.iter().filter(|key| db.get(key).unwrap().is_some()).count();
    assert_eq!((gets(&present), gets(&missing)), (LOOKUPS as usize, 0));
    let multi_gets = |keys: &[[u8; 16]]| {
        let found = keys.chunks(64).map(|keys| db.multi_get(keys).unwrap());
        found.map(|values| values.iter().flatten().count()).sum::<usize>()
    };
    let seeks = |keys: &[[u8; 16]]| {
        keys.iter().map(|key| db.range(&key[..]..).take(10).map(Result::unwrap).count()).sum()
    };
    let mut group = criterion.benchmark_group("engine");
    group.throughput(Throughput::Elements(LOOKUPS));
    let mut bench = |name, of: &dyn Fn() -> usize| {
        group.bench_function(name, |bencher| bencher.iter(of));
    };
    bench("get", &|| gets(&present));
    bench("get, missing", &|| gets(&missing));
    bench("multi-get of 64", &|| multi_gets(&present));
    bench("multi-get of 64, missing", &|| multi_gets(&missing));
    bench("seek and read 10", &|| seeks(&present));
    group.throughput(Throughput::Elements(KEYS));
    group.bench_function("scan", |bencher| {
        bencher.iter(|| assert_eq!(db.iter().map(Result::unwrap).count(), KEYS as usize));
    });
    group.finish();
}

/// Adds one to counters of a compacted store: by a merge, and by a get and a put of the same key.
fn increments(criterion: &mut Criterion) {
    let db = |path: &str| {
        let options = Options::default().vfs(Arc::new(MemoryVfs::new())).background_threads(0);
        let options = options.writes(|w| w.write_buffer_bytes(256 << 20));
        let db = Db::open(path, options.writes(|w| w.merge_operator(Merge::counter()))).unwrap();
        for number in 0..KEYS {
            db.put(key(number), 0_u64.to_le_bytes()).unwrap();
        }
        db.compact_range(..).unwrap();
        db
    };
    let keys: Vec<_> = (0..WRITES).map(|nth| key(scatter(nth ^ 0x5eed << 40) % KEYS)).collect();
    let merge = |db: &Db| {
        for key in &keys {
            db.merge(key, 1_u64.to_le_bytes()).unwrap();
        }
    };
    let get_and_put = |db: &Db| {
        for key in &keys {
            let before = db.get(key).unwrap().unwrap();
            let before = u64::from_le_bytes((*before).try_into().unwrap());
            db.put(key, (before + 1).to_le_bytes()).unwrap();
        }
    };
    let mut group = criterion.benchmark_group("engine");
    group.throughput(Throughput::Elements(WRITES));
    let bench = |bencher: &mut Bencher<'_>, path: &str, increment: &dyn Fn(&Db)| {
        let db = db(path);
        // Compacted each time, so that no round finds the keys of another in memory.
        bencher.iter_batched(|| db.compact_range(..).unwrap(), |()| increment(&db), PER_ITERATION);
    };
    group.bench_function("increment by merge", |bencher| bench(bencher, "/merges", &merge));
    group.bench_function("increment by get and put", |bencher| {
        bench(bencher, "/puts", &get_and_put);
    });
    group.finish();
}

const PER_ITERATION: BatchSize = BatchSize::PerIteration;

criterion_group! {
    name = benches;
    config = trommel_micro::short(2);
    targets = writes, reads, increments
}
criterion_main!(benches);
