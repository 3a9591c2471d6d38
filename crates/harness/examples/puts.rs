//! Nanoseconds per put of random keys into a memtable, with and without the log, singly and in
//! batches, on a file system in memory: the cost that the store adds to the system's write.
//!
//! ```sh
//! cargo run --release -p trommel-harness --example puts -- [KEYS] [ROUNDS] [MODE]
//! ```
//! KEYS (default 200000) keys of 16 bytes with values of 256 bytes are put in each of ROUNDS
//! (default 5) into a fresh store, after as many uncounted puts. MODE is `log` (default), `nolog`,
//! or `batch`: 100 keys per write, with the log. Nothing is flushed or compacted.
//!
//! `benches/steps/run.sh` counts the instructions of the functions whose names end in `_puts`.

#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a measuring program")]

mod common;

use std::sync::Arc;
use std::time::Instant;

use trommel::{Db, Options, WriteBatch};
use trommel_sim::MemoryVfs;

use common::{key, scatter};

const VALUE: [u8; 256] = [b'v'; 256];
/// Keys in a batch.
const BATCH: usize = 100;

fn store(log: bool) -> Db {
    let options = Options::default()
        .vfs(Arc::new(MemoryVfs::new()))
        .writes(|w| w.log(log).write_buffer_bytes(1 << 30))
        .background_threads(0);
    Db::open("/puts", options).unwrap()
}

#[inline(never)]
fn single_puts(db: &Db, keys: &[[u8; 16]]) {
    for key in keys {
        db.put(key, VALUE).unwrap();
    }
}

#[inline(never)]
fn batched_puts(db: &Db, keys: &[[u8; 16]]) {
    for keys in keys.chunks(BATCH) {
        let mut batch = WriteBatch::new();
        for key in keys {
            batch.put(key, VALUE);
        }
        db.write(batch).unwrap();
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let keys: u64 = arguments.next().map_or(200_000, |keys| keys.parse().unwrap());
    let rounds: usize = arguments.next().map_or(5, |rounds| rounds.parse().unwrap());
    let mode = arguments.next().unwrap_or_else(|| "log".to_owned());
    let puts = if mode == "batch" { batched_puts } else { single_puts };
    let drawn: Vec<_> = (0..2 * keys).map(|n| key(scatter(n))).collect();
    let (before, counted) = drawn.split_at(keys as usize);
    for _ in 0..rounds {
        let db = store(mode != "nolog");
        puts(&db, before);
        let start = Instant::now();
        puts(&db, counted);
        println!("{mode}: {:.0} ns a put", start.elapsed().as_nanos() as f64 / keys as f64);
    }
}
