//! A memtable of 16 MiB, keys of 16 and values of 256 bytes: inserts and gets at random, and a
//! scan, which copies every entry and whose first cursor sorts. `cargo bench -- memtable`
#![allow(missing_docs, reason = "criterion makes a public function")]

use std::hint::black_box;
use std::sync::Arc;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use trommel_base::{Cursor, EntryKind, MAX_SEQNO};
use trommel_memtable::{ArenaPool, Memtable};

const BYTES: usize = 16 << 20;
const KEYS: u64 = BYTES as u64 / (16 + 256 + 75);
const VALUE: [u8; 256] = [b'v'; 256];

/// Key `number`: 16 digits, scattered (the finishing steps of SplitMix64).
fn key(number: u64) -> [u8; 16] {
    let mut z = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    let mut key = [0; 16];
    for (nth, byte) in key.iter_mut().enumerate() {
        *byte = b"0123456789abcdef"[(z >> (60 - 4 * nth)) as usize & 15];
    }
    key
}

fn filled(pool: &Arc<ArenaPool>, keys: &[[u8; 16]]) -> Arc<Memtable> {
    let memtable = Memtable::new(pool);
    for (seqno, key) in (0..).zip(keys) {
        memtable.insert(key, seqno, EntryKind::Put, &VALUE);
    }
    Arc::new(memtable)
}

/// Bytes of all entries.
fn scanned(memtable: &Arc<Memtable>) -> usize {
    let (mut cursor, mut copied, mut bytes) = (memtable.cursor(), Vec::new(), 0);
    let Ok(()) = cursor.seek_to_first();
    while let Some(entry) = cursor.entry() {
        copied.clear();
        copied.extend_from_slice(entry.key);
        copied.extend_from_slice(entry.value);
        bytes += black_box(&copied).len();
        let Ok(()) = cursor.next();
    }
    bytes
}

fn memtable(criterion: &mut Criterion) {
    let keys: Vec<_> = (0..KEYS).map(key).collect();
    let pool = ArenaPool::new(BYTES);
    let mut group = criterion.benchmark_group("memtable");
    group.throughput(Throughput::Elements(KEYS));
    group.bench_function("insert", |bencher| {
        bencher.iter_with_large_drop(|| filled(&pool, &keys));
    });
    let full = filled(&pool, &keys);
    group.bench_function("get", |bencher| {
        bencher.iter(|| {
            let found = keys.iter().rev().filter(|key| full.get(*key, MAX_SEQNO).is_some());
            assert_eq!(found.count(), keys.len());
        });
    });
    group.bench_function("first scan", |bencher| {
        let fresh = || filled(&pool, &keys);
        bencher.iter_batched(fresh, |memtable| scanned(&memtable), BatchSize::PerIteration);
    });
    group.bench_function("scan", |bencher| bencher.iter(|| scanned(&full)));
    group.finish();
}

criterion_group! { name = benches; config = trommel_micro::short(2); targets = memtable }
criterion_main!(benches);
