//! Nanoseconds per entry of scans in both directions, and per seek with ten steps, on two trees in
//! memory: one with many runs in level 0, and one with many small tables in the last level.
//!
//! ```sh
//! cargo run --release -p trommel-harness --example scans -- [KEYS] [RUNS] [SEEKS] [ROUNDS] [ONLY] \
//!     [MODE]
//! ```
//! KEYS (default 1000000) keys of 16 bytes with values of 256 bytes are in each tree. RUNS (default
//! 4) is the number of runs in level 0. SEEKS (default 100000) are made in each of ROUNDS (default
//! 5); the best round counts. ONLY selects one tree, `runs` or `deep`. MODE is `cached` (default:
//! all blocks are in the cache), `sorted` (that, and there is a sorted view), `read` (the cache has
//! no room for any) or `mapped`.
//!
//! The loop reads each entry's key, and the first and last byte of its value.
//! `benches/steps/run.sh` counts the instructions of the functions whose names end in `_scan`.

#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a measuring program")]

mod common;

use std::sync::Arc;
use std::time::Instant;

use trommel::{Compression, Db, DbCursor, Options, ReadMode, Slice, Verify};
use trommel_sim::MemoryVfs;

use common::{key, scatter};

const VALUE_BYTES: usize = 256;
/// Steps after a seek.
const STEPS: usize = 10;

/// A store of `keys` keys: in `runs` runs of level 0, or, if 0, in the last level in tables of 2
/// MiB.
fn tree(keys: u64, runs: u64, mode: &str) -> Db {
    let read_mode =
        if mode == "mapped" { ReadMode::Mapped(Verify::EachUse) } else { ReadMode::Cached };
    let is_cached = matches!(mode, "cached" | "sorted");
    let cache_bytes = if is_cached { 4 << 30 } else { 0 };
    let options = Options::default()
        .vfs(Arc::new(MemoryVfs::new()))
        .reads(|r| r.read_mode(read_mode).cache_bytes(cache_bytes).sorted_view(mode == "sorted"))
        .compression(Compression::None)
        .background_threads(0)
        .compaction(|c| c.auto_compaction(false).table_bytes(2 << 20))
        .writes(|w| w.write_buffer_bytes(1 << 30));
    let db = Db::open("/scans", options).unwrap();
    for run in 0..runs.max(1) {
        for number in (run..keys).step_by(runs.max(1) as usize) {
            db.put(key(number), [number as u8; VALUE_BYTES]).unwrap();
        }
        db.flush().unwrap();
    }
    if runs == 0 {
        db.compact_range(..).unwrap();
    }
    if is_cached {
        assert!((0..keys).all(|number| db.contains_key(key(number)).unwrap()));
    }
    if mode == "sorted" {
        sort(&db, keys);
    }
    db
}

/// Seeks so often that a sorted view is worth its cost, and has it made.
fn sort(db: &Db, keys: u64) {
    let mut cursor = db.cursor().unwrap();
    (0..keys).for_each(|number| cursor.seek(key(number)).unwrap());
    drop(cursor);
    let start = Instant::now();
    db.wait_idle().unwrap();
    let (time, bytes) = (start.elapsed(), db.stats().scans.sorted_view_bytes);
    assert!(bytes > 0, "there is a sorted view");
    let per_key = |all: f64| all / keys as f64;
    let (time, bytes) = (per_key(time.as_nanos() as f64), per_key(bytes as f64));
    println!("sorted view: {time:.1} ns and {bytes:.2} bytes a key");
}

/// A digest of an entry, so that the reads are not optimized away.
fn seen(key: &[u8], value: &[u8]) -> u64 {
    u64::from(key[15]) + u64::from(value[0]) + u64::from(value[VALUE_BYTES - 1])
}

#[inline(always)]
fn seen_by(cursor: &DbCursor) -> Option<u64> {
    cursor.entry().map(|(key, value)| seen(key, value))
}

/// The number of entries and the digest over them. Each scan is a function of its own, so that a
/// profiler can attribute its instructions.
type Scanned = (u64, u64);

#[inline(never)]
fn cursor_forward_scan(db: &Db) -> Scanned {
    let mut cursor = db.cursor().unwrap();
    let mut scanned = (0, 0);
    cursor.seek_to_first().unwrap();
    while let Some(seen) = seen_by(&cursor) {
        scanned = (scanned.0 + 1, scanned.1 + seen);
        cursor.next().unwrap();
    }
    scanned
}

#[inline(never)]
fn cursor_backward_scan(db: &Db) -> Scanned {
    let mut cursor = db.cursor().unwrap();
    let mut scanned = (0, 0);
    cursor.seek_to_last().unwrap();
    while let Some(seen) = seen_by(&cursor) {
        scanned = (scanned.0 + 1, scanned.1 + seen);
        cursor.prev().unwrap();
    }
    scanned
}

#[inline(never)]
fn visit_forward_scan(db: &Db) -> Scanned {
    let mut cursor = db.cursor().unwrap();
    let mut scanned = (0, 0);
    cursor.seek_to_first().unwrap();
    let visited = cursor.visit(|key, value| {
        scanned = (scanned.0 + 1, scanned.1 + seen(key, value));
        true
    });
    visited.unwrap();
    scanned
}

#[inline(never)]
fn visit_backward_scan(db: &Db) -> Scanned {
    let mut cursor = db.cursor().unwrap();
    let mut scanned = (0, 0);
    cursor.seek_to_last().unwrap();
    let visited = cursor.visit_back(|key, value| {
        scanned = (scanned.0 + 1, scanned.1 + seen(key, value));
        true
    });
    visited.unwrap();
    scanned
}

#[inline(never)]
fn range_forward_scan(db: &Db) -> Scanned {
    ranged(db.range(..))
}

#[inline(never)]
fn range_backward_scan(db: &Db) -> Scanned {
    ranged(db.range(..).rev())
}

fn ranged(entries: impl Iterator<Item = trommel::Result<(Slice, Slice)>>) -> Scanned {
    let mut scanned = (0, 0);
    for entry in entries {
        let (key, value) = entry.unwrap();
        scanned = (scanned.0 + 1, scanned.1 + seen(&key, &value));
    }
    scanned
}

#[inline(never)]
fn seek_forward_scan(db: &Db, keys: &[[u8; 16]]) -> Scanned {
    let mut scanned = (0, 0);
    for key in keys {
        let mut cursor = db.cursor().unwrap();
        cursor.seek(key).unwrap();
        for _ in 0..STEPS {
            scanned.1 += seen_by(&cursor).unwrap_or_default();
            cursor.next().unwrap();
        }
        scanned.0 += 1;
    }
    scanned
}

#[inline(never)]
fn seek_backward_scan(db: &Db, keys: &[[u8; 16]]) -> Scanned {
    let mut scanned = (0, 0);
    for key in keys {
        let mut cursor = db.cursor().unwrap();
        cursor.seek_for_prev(key).unwrap();
        for _ in 0..STEPS {
            scanned.1 += seen_by(&cursor).unwrap_or_default();
            cursor.prev().unwrap();
        }
        scanned.0 += 1;
    }
    scanned
}

/// As `seek_forward_scan`, by a visit, which is what `trommel bench` measures.
#[inline(never)]
fn seek_visit_scan(db: &Db, keys: &[[u8; 16]]) -> Scanned {
    let mut scanned = (0, 0);
    for key in keys {
        let mut cursor = db.cursor().unwrap();
        cursor.seek(key).unwrap();
        let mut visited = 0;
        let outcome = cursor.visit(|key, value| {
            (visited, scanned.1) = (visited + 1, scanned.1 + seen(key, value));
            visited < STEPS
        });
        outcome.unwrap();
        scanned.0 += 1;
    }
    scanned
}

/// The least of `rounds` times, in nanoseconds per entry or seek, after an uncounted warm-up.
fn measure(name: &str, rounds: usize, expected: u64, mut scan: impl FnMut() -> Scanned) {
    let mut best = f64::MAX;
    for round in 0..=rounds {
        let start = Instant::now();
        let scanned = scan();
        let time = start.elapsed().as_nanos() as f64 / expected as f64;
        assert_eq!(scanned.0, expected);
        if round > 0 {
            best = best.min(time);
        }
    }
    println!("{name:24} {best:>10.1}");
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default: u64| {
        arguments.get(at).map_or(default, |text| text.parse().expect("a number"))
    };
    let (keys, runs) = (number(0, 1_000_000), number(1, 4).max(1));
    let (seeks, rounds) = (number(2, 100_000), number(3, 5) as usize);
    let only = arguments.get(4).map_or("", String::as_str);
    let mode = arguments.get(5).map_or("cached", String::as_str);
    println!("{keys} keys, {runs} runs, {seeks} seeks, ns an entry or a seek");
    let sought: Vec<_> = (0..seeks).map(|i| key(scatter(i ^ 0x5eed << 40) % keys)).collect();
    for (name, runs) in [("runs", runs), ("deep", 0)] {
        if !name.starts_with(only) {
            continue;
        }
        let db = tree(keys, runs, mode);
        let row = |what: &str, expected, scan: &dyn Fn() -> Scanned| {
            measure(&format!("{name}-{what}"), rounds, expected, scan);
        };
        row("cursor-forward", keys, &|| cursor_forward_scan(&db));
        row("cursor-backward", keys, &|| cursor_backward_scan(&db));
        row("visit-forward", keys, &|| visit_forward_scan(&db));
        row("visit-backward", keys, &|| visit_backward_scan(&db));
        row("range-forward", keys, &|| range_forward_scan(&db));
        row("range-backward", keys, &|| range_backward_scan(&db));
        row("seek-forward", seeks, &|| seek_forward_scan(&db, &sought));
        row("seek-backward", seeks, &|| seek_backward_scan(&db, &sought));
        row("seek-visit", seeks, &|| seek_visit_scan(&db, &sought));
    }
}
