//! Measures range filters: the blocks that scans of empty ranges read with them, for keys and
//! queries of several kinds, and the time of scans whose blocks come from the device.
//!
//! ```sh
//! cargo run --release -p trommel-tests --example range_filter -- [DIR] [FILE]
//! ```
//! DIR (default: the working directory) is where the stores are put, in a directory that is removed
//! at the end. FILE has keys, one a line. Prints tables in Markdown.
//!
//! Each store has ten runs, which are not compacted. Half of the keys of each kind are written, and
//! the others are what is missing.

#![expect(clippy::print_stdout, reason = "it prints what it measured")]
#![expect(clippy::unwrap_used, reason = "a measuring program")]

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use trommel::{Db, Options, ReadMode};

type Key = Vec<u8>;

const RUNS: usize = 10;
/// Keys of numbers in each run.
const RUN_KEYS: usize = 60_000;
/// The numbers of keys are below this.
const NUMBERS: u64 = 1_000_000_000_000;
/// Ranges scanned for each figure.
const SCANS: usize = 20_000;
/// The first has no range filter.
const FILTERS: [&str; 6] = ["none", "infix:4", "infix:6", "infix:8", "infix:10", "infix:14"];

/// A pseudo-random number for each `n` (the finaliser of SplitMix64).
fn scattered(n: u64) -> u64 {
    let mut z = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn decimal(number: u64) -> Key {
    format!("user{number:012}").into_bytes()
}

fn binary(number: u64) -> Key {
    (number * (u64::MAX / NUMBERS)).swap_bytes().to_le_bytes().to_vec()
}

/// Numbers in a thousand clusters, dense in the middle of each.
fn clustered(n: u64) -> u64 {
    let center = scattered(scattered(n) % 1000) % NUMBERS;
    let offset = (0..4).map(|i| scattered(n * 4 + i) % 50_000_000).sum::<u64>();
    (center + offset) % NUMBERS
}

/// A tenant of a thousand, and one of its minutes: keys of several fields.
fn tenants(number: u64) -> Key {
    let (tenant, minute) = (number / 1_000_000_000, number % 1_000_000_000 / 694);
    let (day, hour, minute) = (minute / 1440 % 1000, minute / 60 % 24, minute % 60);
    format!("t{tenant:06}/{day:03}T{hour:02}:{minute:02}").into_bytes()
}

/// Keys in a pseudo-random order, all different.
struct Keys {
    name: &'static str,
    keys: Vec<Key>,
    shape: Option<fn(u64) -> Key>,
}

impl Keys {
    fn numbers(name: &'static str, shape: fn(u64) -> Key, number: fn(u64) -> u64) -> Self {
        let numbers = (0..2 * (RUNS * RUN_KEYS) as u64).map(number);
        let mut seen = HashSet::new();
        let keys = numbers.map(shape).filter(|key| seen.insert(key.clone())).collect();
        Self { name, keys, shape: Some(shape) }
    }

    fn lines(file: &str) -> Self {
        let text = std::fs::read(file).unwrap();
        let lines: HashSet<&[u8]> = text.split(|b| *b == b'\n').filter(|l| !l.is_empty()).collect();
        let mut keys: Vec<Key> = lines.into_iter().map(<[u8]>::to_vec).collect();
        keys.sort();
        let mut order: Vec<usize> = (0..keys.len()).collect();
        order.sort_by_key(|n| scattered(*n as u64));
        Self { name: "lines", keys: order.iter().map(|n| keys[*n].clone()).collect(), shape: None }
    }

    fn present(&self) -> &[Key] {
        &self.keys[..self.keys.len() / 2]
    }

    fn missing(&self) -> &[Key] {
        &self.keys[self.keys.len() / 2..]
    }

    fn store(&self, dir: &Path, ranges: &str, options: Options) -> Db {
        let filters = format!("paired:12,ranges={ranges}").parse().unwrap();
        let options = options
            .background_threads(0)
            .writes(|w| w.log(false).write_buffer_bytes(1 << 30))
            .compaction(|c| c.auto_compaction(false))
            .filters(filters);
        let _ = std::fs::remove_dir_all(dir);
        let db = Db::open(dir, options).unwrap();
        for run in self.present().chunks(self.present().len().div_ceil(RUNS)) {
            for key in run {
                db.put(key, [b'v'; 100]).unwrap();
            }
            db.flush().unwrap();
        }
        db
    }

    /// Ranges of each kind of query.
    fn queries(&self) -> Vec<(&'static str, Vec<(Key, Key)>)> {
        let after = |key: &Key, byte: u8| [key.as_slice(), &[byte]].concat();
        let missing = self.missing().iter().take(SCANS);
        let mut all = vec![
            ("a missing key", missing.clone().map(|key| (key.clone(), after(key, 0))).collect()),
            (
                "what begins with a missing key",
                missing.map(|k| (k.clone(), after(k, 255))).collect(),
            ),
        ];
        if let Some(shape) = self.shape {
            let mean = NUMBERS / (RUNS * RUN_KEYS) as u64;
            for (name, width) in
                [("mean distance / 100", mean / 100), ("mean distance / 4", mean / 4)]
            {
                let range = |n: usize| {
                    let from = scattered(n as u64 + 77) % (NUMBERS - width);
                    (shape(from), shape(from + width))
                };
                all.push((name, (0..SCANS).map(range).collect()));
            }
        }
        let present = self.present().iter().take(SCANS);
        all.push(("next to a key", present.map(|key| (after(key, 0), after(key, 1))).collect()));
        all
    }
}

/// Blocks that scans read which found nothing, and their number.
fn empty_scans(db: &Db, ranges: &[(Key, Key)]) -> (u64, u64) {
    let (mut blocks, mut scans) = (0, 0);
    for (from, to) in ranges {
        let reads = || {
            let stats = db.stats().scans;
            stats.block_reads + stats.cache_hits
        };
        let before = reads();
        if db.range(from..to).next().is_none() {
            blocks += reads() - before;
            scans += 1;
        }
    }
    (blocks, scans)
}

fn rates(all: &[Keys], dir: &Path) {
    println!("| keys | empty ranges | blocks | {} |", FILTERS[1..].join(" | "));
    println!("|---|---|---:|{}", "---:|".repeat(FILTERS.len() - 1));
    for keys in all {
        let queries = keys.queries();
        let mut figures = vec![Vec::new(); queries.len()];
        let mut stored = Vec::new();
        for filter in FILTERS {
            let db = keys.store(dir, filter, Options::default());
            for (figure, (_, ranges)) in figures.iter_mut().zip(&queries) {
                figure.push(empty_scans(&db, ranges));
            }
            stored.extend(db.filter_report().ranges.first().map(|level| level.bits_stored));
        }
        for (figure, (name, _)) in figures.iter().zip(&queries) {
            let (without, scans) = figure[0];
            let share = |(blocks, _): &(u64, u64)| {
                format!("{:.2}%", 100.0 * *blocks as f64 / without as f64)
            };
            let shares: Vec<String> = figure[1..].iter().map(share).collect();
            let each = without as f64 / scans.max(1) as f64;
            println!("| {} | {name} | {each:.2} | {} |", keys.name, shares.join(" | "));
        }
        let bits: Vec<String> = stored.iter().map(|bits| format!("{bits:.2}")).collect();
        println!("| {} | *bits per key stored* | | {} |", keys.name, bits.join(" | "));
    }
}

/// Microseconds of a scan of each range.
fn timed(db: &Db, ranges: &[(Key, Key)]) -> f64 {
    let start = Instant::now();
    for (from, to) in ranges {
        std::hint::black_box(db.range(from..to).next());
    }
    start.elapsed().max(Duration::from_nanos(1)).as_secs_f64() * 1e6 / ranges.len() as f64
}

fn times(keys: &Keys, dir: &Path) {
    let queries = keys.queries();
    let empty = &queries[2].1[..4_000];
    let present: Vec<(Key, Key)> = keys.present()[..4_000]
        .iter()
        .map(|key| (key.clone(), [key.as_slice(), &[0]].concat()))
        .collect();
    println!("\n| blocks come from | scans of | without | with infix:6 | |");
    println!("|---|---|---:|---:|---:|");
    let device = Options::default().reads(|r| r.cache_bytes(0).read_mode(ReadMode::Direct));
    let memory = Options::default().reads(|r| r.cache_bytes(1 << 30));
    for (name, options) in [("the device", device), ("the cache", memory)] {
        let [without, with] = ["none", "infix:6"].map(|filter| {
            let db = keys.store(dir, filter, options.clone());
            // Indexes and filters are read first.
            timed(&db, &queries[3].1[4_000..8_000]);
            timed(&db, &present);
            [timed(&db, empty), timed(&db, &present)]
        });
        for (i, what) in ["an empty range", "one key"].into_iter().enumerate() {
            let (a, b) = (without[i], with[i]);
            println!("| {name} | {what} | {a:.1} us | {b:.1} us | {:.2}x |", a / b);
        }
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let dir =
        PathBuf::from(arguments.next().unwrap_or_else(|| ".".to_owned())).join("range-filter");
    let random: fn(u64) -> u64 = |n| scattered(n) % NUMBERS;
    let mut all = vec![
        Keys::numbers("random, decimal", decimal, random),
        Keys::numbers("random, binary", binary, random),
        Keys::numbers("clustered, decimal", decimal, clustered),
        Keys::numbers("tenant and minute", tenants, random),
    ];
    all.extend(arguments.next().map(|file| Keys::lines(&file)));
    rates(&all, &dir);
    times(&all[0], &dir);
    let _ = std::fs::remove_dir_all(&dir);
}
