//! A memtable of 16 MiB of either kind, keys of 16 and values of 256 bytes: inserts and gets at
//! random, a scan, which copies every entry and whose first cursor may sort, and inserts in turns
//! with scans of five entries. `cargo bench -- memtable`
#![allow(missing_docs, reason = "criterion makes a public function")]

use std::hint::black_box;
use std::sync::Arc;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use trommel_base::{Cursor, EntryKind, MAX_SEQNO};
use trommel_memtable::{ArenaPool, Memtable, MemtableKind};

const BYTES: usize = 16 << 20;
const KEYS: u64 = BYTES as u64 / (16 + 256 + 75);
const VALUE: [u8; 256] = [b'v'; 256];
/// Entries of a short scan.
const SCANNED: usize = 5;

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

fn filled(kind: MemtableKind, pool: &Arc<ArenaPool>, keys: &[[u8; 16]]) -> Arc<Memtable> {
    let memtable = Memtable::new(kind, pool);
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

/// Bytes of the entries read by a scan of five from the key before each new one.
fn in_turns(kind: MemtableKind, pool: &Arc<ArenaPool>, keys: &[[u8; 16]]) -> usize {
    let memtable = Arc::new(Memtable::new(kind, pool));
    let (mut before, mut bytes) = (&[0; 16], 0);
    for (seqno, key) in (0..).zip(keys) {
        memtable.insert(key, seqno, EntryKind::Put, &VALUE);
        let mut cursor = memtable.cursor();
        let Ok(()) = cursor.seek(before, MAX_SEQNO);
        for _ in 0..SCANNED {
            bytes += black_box(cursor.entry()).map_or(0, |entry| entry.value.len());
            let Ok(()) = cursor.next();
        }
        before = key;
    }
    bytes
}

fn memtable(criterion: &mut Criterion) {
    let keys: Vec<_> = (0..KEYS).map(key).collect();
    let pool = ArenaPool::new(BYTES);
    for kind in MemtableKind::ALL {
        let mut group = criterion.benchmark_group(format!("memtable {kind}"));
        group.throughput(Throughput::Elements(KEYS));
        group.bench_function("insert", |bencher| {
            bencher.iter_with_large_drop(|| filled(kind, &pool, &keys));
        });
        let full = filled(kind, &pool, &keys);
        group.bench_function("get", |bencher| {
            bencher.iter(|| {
                let found = keys.iter().rev().filter(|key| full.get(*key, MAX_SEQNO).is_some());
                assert_eq!(found.count(), keys.len());
            });
        });
        group.bench_function("first scan", |bencher| {
            let fresh = || filled(kind, &pool, &keys);
            bencher.iter_batched(fresh, |memtable| scanned(&memtable), BatchSize::PerIteration);
        });
        group.bench_function("scan", |bencher| bencher.iter(|| scanned(&full)));
        group.bench_function("insert and scan 5 in turns", |bencher| {
            bencher.iter(|| in_turns(kind, &pool, &keys));
        });
        group.finish();
    }
}

criterion_group! { name = benches; config = trommel_micro::short(2); targets = memtable }
criterion_main!(benches);
