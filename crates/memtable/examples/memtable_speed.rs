//! Times inserts, gets, scans and the drop of a memtable, and the sort by its first cursor.
//!
//! ```sh
//! cargo run --release -p trommel-memtable --example memtable_speed -- [MiB] [key-prefix]
//! ```
//! 16-byte decimal keys (after `key-prefix`, if one is given) in random order, 256-byte values, as
//! many as fill the given size (default 16 and 64 MiB), one thread; a scan copies every key and
//! value. Each line is one round. Compare a figure only with its neighbors, since the machine's own
//! speed varies.

#![expect(clippy::print_stdout, reason = "it prints what it measured")]

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use trommel_base::{Cursor, EntryKind, MAX_SEQNO};
use trommel_memtable::{ArenaPool, Memtable};

const VALUE: [u8; 256] = [b'v'; 256];
const ROUNDS: usize = 5;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let sizes = arguments.next().and_then(|size| size.parse().ok());
    let prefix = arguments.next().unwrap_or_default();
    for mib in sizes.map_or(vec![16, 64], |size| vec![size]) {
        let keys = Keys::filling(&prefix, mib << 20);
        let gets = keys.shuffled();
        println!("{mib} MiB: {} keys like {}", keys.count(), keys.bytes[..keys.len].escape_ascii());
        println!(
            "{:30} {:>8} {:>8} {:>8} {:>8} {:>8}",
            "ns per operation", "insert", "get", "sort", "next", "drop"
        );
        let pool = ArenaPool::new(mib << 20);
        for _ in 0..ROUNDS {
            memtable("Memtable", &keys, &gets, Memtable::new(&pool));
            let told = Memtable::with_common_prefix(&pool, prefix.as_bytes());
            memtable("Memtable, prefix known", &keys, &gets, told);
        }
    }
}

/// Distinct keys of one length, stored contiguously.
struct Keys {
    bytes: Vec<u8>,
    len: usize,
}

impl Keys {
    /// As many as fill `bytes` with their values and nodes, in random order.
    fn filling(prefix: &str, bytes: usize) -> Self {
        let len = prefix.len() + 16;
        let count = bytes / (len + VALUE.len() + 75);
        let key = |n| format!("{prefix}{:016}", scattered(n) % 10_000_000_000_000_000);
        Self { bytes: (1..=count as u64).flat_map(|n| key(n).into_bytes()).collect(), len }
    }

    /// The same keys in another random order.
    fn shuffled(&self) -> Self {
        let mut keys: Vec<_> = self.iter().enumerate().collect();
        keys.sort_by_key(|(n, _)| scattered(*n as u64));
        Self { bytes: keys.into_iter().flat_map(|(_, key)| key.to_vec()).collect(), len: self.len }
    }

    fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.bytes.chunks(self.len)
    }

    fn count(&self) -> usize {
        self.bytes.len() / self.len
    }
}

/// A number without pattern for each `n` (the finalizer of SplitMix64).
fn scattered(n: u64) -> u64 {
    let mut z = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn per_op(start: Instant, operations: usize) -> f64 {
    start.elapsed().as_nanos() as f64 / operations as f64
}

fn memtable(name: &str, keys: &Keys, gets: &Keys, memtable: Memtable) {
    let start = Instant::now();
    let memtable = Arc::new(memtable);
    for (seqno, key) in keys.iter().enumerate() {
        memtable.insert(key, seqno as u64, EntryKind::Put, &VALUE);
    }
    let insert = per_op(start, keys.count());
    let start = Instant::now();
    for key in gets.iter() {
        let found = memtable.get(key, MAX_SEQNO).map(|entry| entry.value[0]);
        assert!(black_box(found).is_some(), "every key is there");
    }
    let get = per_op(start, keys.count());
    let mut copied = Vec::new();
    let start = Instant::now();
    let mut cursor = memtable.cursor();
    let sort = per_op(start, keys.count());
    let start = Instant::now();
    let Ok(()) = cursor.seek_to_first();
    while let Some(entry) = cursor.entry() {
        copied.clear();
        copied.extend_from_slice(entry.key);
        copied.extend_from_slice(entry.value);
        black_box(&copied);
        let Ok(()) = cursor.next();
    }
    let next = per_op(start, keys.count());
    drop(cursor);
    let bytes = memtable.memory_bytes() / keys.count();
    let start = Instant::now();
    drop(memtable);
    let freed = per_op(start, keys.count());
    let name = format!("{name}, {bytes} B");
    println!("{name:30} {insert:8.0} {get:8.0} {sort:8.0} {next:8.0} {freed:8.0}");
}
