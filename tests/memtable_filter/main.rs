//! Measures whether a filter in front of a memtable would pay: a get of a memtable, and a probe of
//! a filter of its keys.
//!
//! ```sh
//! cargo run --release -p trommel-tests --example memtable_filter -- [KEYS] [SPEC] [ROUNDS]
//! ```
//! KEYS (default 400000) 16-byte keys with values of 100 bytes are in a memtable, and in a filter
//! of SPEC (default `blocked:10`). Each of ROUNDS (default 5) prints the nanoseconds per key of
//! inserting into either, and of querying either for present and absent keys, in another order than
//! that of the inserts. "Both" is a get with the filter in front of the memtable.

#![expect(clippy::print_stdout, reason = "it prints what it measured")]
#![expect(clippy::unwrap_used, reason = "a measuring program")]

use std::hint::black_box;
use std::time::Instant;

use trommel_base::{EntryKind, MAX_SEQNO};
use trommel_filter::{Filter, FilterSpec};
use trommel_memtable::{ArenaPool, Memtable, MemtableKind};

const VALUE: [u8; 100] = [b'v'; 100];

/// A pseudo-random number for each `n` (the finaliser of SplitMix64).
fn scattered(n: u64) -> u64 {
    let mut z = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn key(number: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&scattered(number).to_le_bytes());
    key[8..].copy_from_slice(&number.to_le_bytes());
    key
}

/// `count` keys from number `first` on, in an order of their own.
fn shuffled(first: u64, count: u64) -> Vec<[u8; 16]> {
    let mut numbers: Vec<u64> = (first..first + count).collect();
    numbers.sort_unstable_by_key(|number| scattered(!number));
    numbers.into_iter().map(key).collect()
}

/// Nanoseconds per key of `query`, and the number of positive answers.
fn queried(keys: &[[u8; 16]], query: impl Fn(&[u8]) -> bool) -> (f64, usize) {
    let start = Instant::now();
    let yes = keys.iter().filter(|key| black_box(query(&key[..]))).count();
    (start.elapsed().as_nanos() as f64 / keys.len() as f64, yes)
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let count: u64 = arguments.next().map_or(400_000, |keys| keys.parse().unwrap());
    let spec = arguments.next().unwrap_or_else(|| "blocked:10".to_owned());
    let spec: FilterSpec = spec.parse().unwrap();
    let rounds: usize = arguments.next().map_or(5, |rounds| rounds.parse().unwrap());

    let written: Vec<[u8; 16]> = (0..count).map(key).collect();
    let (present, absent) = (shuffled(0, count), shuffled(1 << 40, count));
    println!("{count} keys, {spec}; ns a key");
    println!(
        "{:>8} {:>8} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}",
        "insert", "add", "present", "absent", "filter +", "filter -", "both +", "both -"
    );
    let pool = ArenaPool::new(256 << 20);
    for _ in 0..rounds {
        let first = Memtable::new(MemtableKind::Hash, &pool);
        written.iter().for_each(|key| first.insert(key, 0, EntryKind::Put, &VALUE));
        // As in a store: each memtable is sized for as many entries as the one before.
        let memtable = Memtable::following(MemtableKind::Hash, &pool, &first);
        drop(first);
        let start = Instant::now();
        for (seqno, key) in written.iter().enumerate() {
            memtable.insert(key, seqno as u64, EntryKind::Put, &VALUE);
        }
        let insert = start.elapsed().as_nanos() as f64 / count as f64;
        let start = Instant::now();
        let mut builder = spec.builder();
        written.iter().for_each(|key| builder.add(key));
        let filter = Filter::decode(builder.finish()).unwrap();
        let add = start.elapsed().as_nanos() as f64 / count as f64;
        let get = |key: &[u8]| memtable.get(key, MAX_SEQNO).is_some();
        let probe = |key: &[u8]| filter.may_contain(key);
        let filtered = |key: &[u8]| probe(key) && get(key);
        let all = count as usize;
        let (present_get, found) = queried(&present, get);
        let (absent_get, none) = queried(&absent, get);
        assert_eq!((found, none), (all, 0), "every key is there, and no other");
        let (present_probe, passed) = queried(&present, probe);
        assert_eq!(passed, all, "a filter never denies a key that it holds");
        let (absent_probe, _) = queried(&absent, probe);
        let (present_filtered, _) = queried(&present, filtered);
        let (absent_filtered, _) = queried(&absent, filtered);
        println!(
            "{insert:8.0} {add:8.0} {present_get:9.1} {absent_get:9.1} {present_probe:9.1} \
             {absent_probe:9.1} {present_filtered:9.1} {absent_filtered:9.1}"
        );
    }
}
