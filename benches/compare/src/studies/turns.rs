//! Writes and short scans in turns: what was just written is scanned at once.
//!
//! 1. *Fresh*: in a new store, a put of a key drawn at random, then a scan of five entries from
//!    another such key, as many times as there are keys.
//! 2. *Settled*: flush, settle; the same once more.
//! 3. *Overwritten*: in a new store, each key is put ten times; then all are scanned, twice.

use std::fs;
use std::time::{Duration, Instant, SystemTime};

use trommel_harness::{Direction, Latencies, Measured, MeasuredTime, Store, StoreError, mix};

use super::{Sizes, Study};
use crate::checked::Checked;
use crate::figures::{Figure, Group};
use crate::settings::Settings;
use crate::trial::{Trial, write};

/// Entries of a scan.
const SCANNED: usize = 5;
/// How often each key is put before all are scanned.
const VERSIONS: u64 = 10;

/// Puts and scans of the two parts.
const PUTS: [&str; 2] = ["put in turns, fresh", "put in turns, settled"];
const SCANS: [&str; 2] = ["scan in turns, fresh", "scan in turns, settled"];
const OVERWRITTEN: [&str; 2] = ["scan of overwritten keys", "scan of overwritten keys, later"];

pub(super) static STUDY: Study = Study {
    name: "turns",
    title: "Writes and short scans in turns",
    about: "One thread puts a random key and scans five entries from another, in turns, \
            `--turns-keys` times: in a new store, and again once that is flushed and idle. \
            Overwritten: in another new store each of half as many keys is put ten times, then all \
            are scanned, twice; per key.",
    stores: &["trommel", "trommel-skiplist", "rocksdb-best", "fjall", "lmdb", "lmdb-best", "redb"],
    sizes: &["turns-keys"],
    tables: &[
        ("A put and a scan of five, microseconds", &TURNS),
        ("A scan of keys overwritten ten times, microseconds a key", &SCAN),
    ],
    raced: &[
        "A put and a scan of five, microseconds",
        "A scan of keys overwritten ten times, microseconds a key",
    ],
    unequal: &[
        "Turns: every put is a commit of its own, also for LMDB and redb; none syncs. lmdb \
         opens a transaction for each scan; lmdb-best keeps one while nothing is written.",
    ],
    settings,
    run,
};

const TURNS: [Figure; 6] = [
    Figure { title: "fresh", of: |group| turn(group, 0) },
    Figure { title: "put, p99.9", of: |group| p999(group, PUTS[0]) },
    Figure { title: "scan, p99.9", of: |group| p999(group, SCANS[0]) },
    Figure { title: "settled", of: |group| turn(group, 1) },
    Figure { title: "put, p99.9 ", of: |group| p999(group, PUTS[1]) },
    Figure { title: "scan, p99.9 ", of: |group| p999(group, SCANS[1]) },
];

const SCAN: [Figure; 2] = [
    Figure { title: "at once", of: |group| group.per_operation(OVERWRITTEN[0]) },
    Figure { title: "again", of: |group| group.per_operation(OVERWRITTEN[1]) },
];

/// Microseconds of a put and a scan together.
fn turn(group: &Group<'_>, part: usize) -> Option<f64> {
    Some(group.per_operation(PUTS[part])? + group.per_operation(SCANS[part])?)
}

fn p999(group: &Group<'_>, workload: &str) -> Option<f64> {
    Some(group.find(workload)?.results.latency_ns.as_ref()?.p999 as f64 / 1e3)
}

fn settings(sizes: &Sizes) -> Settings {
    Settings { batch: 1, ..Settings::new(sizes.turns_keys, 0) }
}

fn run(trial: &Trial<'_>) -> Result<(), StoreError> {
    let store = trial.open(true)?;
    turns(trial, &store, 0)?;
    store.flush()?;
    store.settle()?;
    turns(trial, &store, 1)?;
    store.close()?;
    fs::remove_dir_all(&trial.spec.dir)?;
    overwritten(trial)
}

/// Puts a key with a value of this trial.
fn put(store: &Checked, key: &[u8], value: &mut [u8]) -> Result<(), StoreError> {
    if let Some(mark) = store.mark() {
        mark(key, value);
    }
    store.put(key, value)
}

/// The times of one kind of call.
#[derive(Default)]
struct Times {
    sum: Duration,
    each: Latencies,
}

impl Times {
    fn add(&mut self, time: Duration) {
        self.sum += time;
        self.each.record(time);
    }

    fn measured(self) -> Measured {
        let operations = self.each.count();
        Measured { latencies: Some(self.each), ..one_time(operations, self.sum) }
    }
}

fn one_time(operations: u64, time: Duration) -> Measured {
    Measured { operations, time: MeasuredTime::of_one_thread(time), ..Measured::default() }
}

fn turns(trial: &Trial<'_>, store: &Checked, part: usize) -> Result<(), StoreError> {
    let (num, load, mut position) = (trial.spec.settings.num, trial.load(0), 0);
    let mut value = load.values.next(&mut position).to_vec();
    let (mut maker, mut from) = (load.keys.maker(), load.keys.maker());
    let (mut puts, mut scans, start) = (Times::default(), Times::default(), SystemTime::now());
    for n in 0..num {
        let drawn = mix(n ^ mix(part as u64));
        let (key, from) = (maker.key(drawn % num), from.key(mix(drawn) % num));
        let clock = Instant::now();
        put(store, key, &mut value)?;
        puts.add(clock.elapsed());
        let (clock, mut seen) = (Instant::now(), 0);
        store.scan(Some(from), Direction::Forward, &mut |_, _| {
            seen += 1;
            seen < SCANNED
        })?;
        scans.add(clock.elapsed());
    }
    write(&trial.record(PUTS[part], start, 1, &puts.measured()))?;
    write(&trial.record(SCANS[part], start, 1, &scans.measured()))
}

fn overwritten(trial: &Trial<'_>) -> Result<(), StoreError> {
    let (num, load, mut position) = (trial.spec.settings.num / 2, trial.load(0), 0);
    let mut value = load.values.next(&mut position).to_vec();
    let mut maker = load.keys.maker();
    let store = trial.open(true)?;
    for _ in 0..VERSIONS {
        for n in 0..num {
            put(&store, maker.key(n), &mut value)?;
        }
    }
    for title in OVERWRITTEN {
        let (start, clock, mut keys) = (SystemTime::now(), Instant::now(), 0);
        store.scan(None, Direction::Forward, &mut |_, _| {
            keys += 1;
            true
        })?;
        let time = clock.elapsed();
        if keys != num {
            return Err(format!("a scan found {keys} keys of {num}").into());
        }
        write(&trial.record(title, start, 1, &one_time(keys, time)))?;
    }
    store.close()
}
