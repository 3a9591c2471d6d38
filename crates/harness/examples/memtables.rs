//! Memtables of both kinds side by side, in a whole store on a file system in memory: fills, puts
//! in turns with scans of five entries, a queue, and a scan of keys that were overwritten.
//!
//! ```sh
//! cargo run --release -p trommel-harness --example memtables -- [KEYS] [ROUNDS]
//! ```
//! KEYS (default 100000) keys of 16 bytes have values of 100 bytes. In each of ROUNDS (default 5)
//! each kind runs each part in a fresh store, and the kinds take turns. Printed are microseconds
//! per operation: the mean, and the 99.9th percentile of each kind of call. Nothing is flushed.
//!
//! * *fill*: puts of random keys.
//! * *turns*: a put of a random key, then a scan of five entries from another random key.
//! * *queue*: a put at the tail, a scan of the first entry, its deletion; a tenth of the steps.
//! * *overwritten*: a scan of all keys, each of which was put ten times; per key.

#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a measuring program")]

mod common;

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use trommel::{Db, MemtableKind, Options};
use trommel_sim::MemoryVfs;

use common::{key, scatter};

const VALUE: [u8; 100] = [b'v'; 100];
/// Entries of a short scan.
const SCANNED: usize = 5;
/// Versions of each key that is overwritten.
const VERSIONS: u64 = 10;

/// The times of one kind of call.
#[derive(Default)]
struct Times(Vec<Duration>);

impl Times {
    fn time<T>(&mut self, call: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let outcome = call();
        self.0.push(start.elapsed());
        outcome
    }

    /// The mean and the 99.9th percentile, in microseconds.
    fn text(&mut self) -> String {
        self.0.sort_unstable();
        let sum: Duration = self.0.iter().sum();
        let mean = sum.as_secs_f64() * 1e6 / self.0.len().max(1) as f64;
        let slow = self.0.get(self.0.len() * 999 / 1000).copied().unwrap_or_default();
        format!("{mean:.2} (p99.9 {:.1})", slow.as_secs_f64() * 1e6)
    }
}

fn store(kind: MemtableKind) -> Db {
    let options = Options::default()
        .vfs(Arc::new(MemoryVfs::new()))
        .writes(|w| w.write_buffer_bytes(2 << 30).memtable(kind))
        .background_threads(0);
    Db::open("/memtables", options).unwrap()
}

/// Reads up to `count` entries from `from` on.
fn scan(db: &Db, from: &[u8], count: usize) {
    for entry in db.range(from..).take(count) {
        black_box(entry.unwrap());
    }
}

fn fill(kind: MemtableKind, keys: u64) -> String {
    let (db, mut puts) = (store(kind), Times::default());
    for n in 0..keys {
        puts.time(|| db.put(key(scatter(n)), VALUE).unwrap());
    }
    format!("put {}", puts.text())
}

fn turns(kind: MemtableKind, keys: u64) -> String {
    let (db, mut puts, mut scans) = (store(kind), Times::default(), Times::default());
    for n in 0..keys {
        puts.time(|| db.put(key(scatter(n)), VALUE).unwrap());
        scans.time(|| scan(&db, &key(scatter(keys + n)), SCANNED));
    }
    format!("put {}, scan {}", puts.text(), scans.text())
}

fn queue(kind: MemtableKind, keys: u64) -> String {
    let (db, mut steps) = (store(kind), Times::default());
    for n in 0..keys / 10 {
        steps.time(|| {
            db.put(format!("{n:016}"), VALUE).unwrap();
            let (head, _) = db.iter().next().unwrap().unwrap();
            db.delete(head).unwrap();
        });
    }
    format!("step {}", steps.text())
}

fn overwritten(kind: MemtableKind, keys: u64) -> String {
    let db = store(kind);
    for _ in 0..VERSIONS {
        for n in 0..keys / VERSIONS {
            db.put(key(n), VALUE).unwrap();
        }
    }
    let mut texts = Vec::new();
    for _ in 0..2 {
        let start = Instant::now();
        let count = db.iter().filter(|entry| black_box(entry).is_ok()).count();
        texts.push(format!("{:.3}", start.elapsed().as_secs_f64() * 1e6 / count as f64));
    }
    format!("scan {}", texts.join(", again "))
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let keys: u64 = arguments.next().map_or(100_000, |keys| keys.parse().unwrap());
    let rounds: usize = arguments.next().map_or(5, |rounds| rounds.parse().unwrap());
    type Part = fn(MemtableKind, u64) -> String;
    let parts: [(&str, Part); 4] =
        [("fill", fill), ("turns", turns), ("queue", queue), ("overwritten", overwritten)];
    for _ in 0..rounds {
        for (name, part) in parts {
            for kind in MemtableKind::ALL {
                println!("{name:<12} {kind:<9} {}", part(kind, keys));
            }
        }
    }
}
