//! Synced writes: each is durable before its writer continues.
//!
//! 1, 4, 16 and 64 threads write single entries for the same time each, in a closed loop. A store
//! with group commit syncs once for all waiting writers; then the time of a write falls as threads
//! are added.

use std::time::{Duration, SystemTime};

use trommel_harness::record::Record;
use trommel_harness::{Load, Store, StoreError, Workload, WorkloadOptions};

use super::{Sheet, Sizes};
use crate::figures::{Figure, Group, Results};
use crate::settings::Settings;
use crate::trial::{Trial, options, write};
use crate::verdict::{Verdict, beside};

const THREADS: [usize; 4] = [1, 4, 16, 64];
/// Keys drawn from.
const KEYS: u64 = 1_000_000;
/// Writes before the clock starts, so that logs and files exist.
const WARMING: u64 = 20;
/// Maximum number of syncs per write, as a multiple of one for all threads.
const SYNCS_PER_GROUP: f64 = 2.0;

/// What bounds the syncs per write.
const GROUPS: &str = "a group is who came while the one before was synced, and who of that comes again before \
    its sync begins; all of it must be woken, on two cores";
/// What bounds the time of a write.
const BOUND: &str = "the device: a thread by itself waits for one sync a write in either store";

pub(super) static SHEET: Sheet = Sheet {
    name: "sync",
    title: "Synced writes",
    about: "Threads write single entries of 16 + 256 bytes, each on the device before its writer \
            goes on (`fdatasync` or what the store has for it), for some seconds with each number \
            of threads. Microseconds are time on the wall divided by the writes of all threads.",
    stores: &["trommel", "rocksdb-best", "rocksdb", "fjall", "lmdb", "redb"],
    sizes: &["sync-seconds"],
    tables: &[
        ("Microseconds a write, by threads", &TIMES),
        ("Syncs of the log per write, as the store counts them", &SYNCS),
        ("99 of 100 writes ended within so many microseconds, as their threads saw it", &SLOWEST),
    ],
    raced: &["Microseconds a write, by threads"],
    verdicts,
    ahead: "a thread by itself waits for one sync a write with either store, of a log that is seldom found longer than before",
    unequal: &[
        "Synced writes: RocksDB and Trommel count their log's syncs themselves; fjall, LMDB and \
         redb do not, and their columns are empty. LMDB syncs its data and writes its meta page \
         through a descriptor opened with O_DSYNC, which is a second one.",
        "Synced writes: fjall, LMDB and redb commit one write at a time; they have no group \
         commit.",
    ],
};

const TIMES: [Figure; 4] = [
    Figure { title: "1", of: |group| group.per_operation(&title(1)) },
    Figure { title: "4", of: |group| group.per_operation(&title(4)) },
    Figure { title: "16", of: |group| group.per_operation(&title(16)) },
    Figure { title: "64", of: |group| group.per_operation(&title(64)) },
];

const SYNCS: [Figure; 4] = [
    Figure { title: "1", of: |group| syncs(group, 1) },
    Figure { title: "4", of: |group| syncs(group, 4) },
    Figure { title: "16", of: |group| syncs(group, 16) },
    Figure { title: "64", of: |group| syncs(group, 64) },
];

const SLOWEST: [Figure; 4] = [
    Figure { title: "1", of: |group| slowest(group, 1) },
    Figure { title: "4", of: |group| slowest(group, 4) },
    Figure { title: "16", of: |group| slowest(group, 16) },
    Figure { title: "64", of: |group| slowest(group, 64) },
];

fn title(threads: usize) -> String {
    match threads {
        1 => Workload::FillSync.name().into(),
        _ => format!("{} ({threads} threads)", Workload::FillSync.name()),
    }
}

fn syncs(group: &Group<'_>, threads: usize) -> Option<f64> {
    let record = group.find(&title(threads))?;
    Some(record.state.io.as_ref()?.log_syncs? as f64 / record.results.operations.max(1) as f64)
}

fn slowest(group: &Group<'_>, threads: usize) -> Option<f64> {
    Some(group.find(&title(threads))?.results.latency_ns.as_ref()?.p99 as f64 / 1e3)
}

pub(super) fn settings(_sizes: &Sizes) -> Settings {
    Settings { durable: true, counted: true, ..Settings::new(KEYS, 0) }
}

pub(super) fn run(trial: &Trial<'_>) -> Result<(), StoreError> {
    let store = trial.open(true)?;
    let warming = Load { operations: WARMING, ..trial.load(0) };
    trial.measure(&*store, Workload::FillSync, &warming)?;
    for (nth, threads) in THREADS.into_iter().enumerate() {
        let load = Load {
            threads,
            operations: u64::MAX,
            duration: Some(Duration::from_secs_f64(trial.spec.sizes.sync_seconds)),
            options: WorkloadOptions { latencies: true, ..options() },
            ..trial.load(1 + nth as u64)
        };
        let (before, start) = (store.state(), SystemTime::now());
        let measured = trial.measure(&*store, Workload::FillSync, &load)?;
        let record = trial.record(&title(threads), start, threads, &measured);
        write(&Record { state: store.state().since(&before), ..record })?;
    }
    store.close()
}

fn verdicts(results: &Results, num: u64) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    for ((figure, syncs), threads) in TIMES.iter().zip(&SYNCS).zip(THREADS) {
        let what = format!("synced writes, {threads} threads, us a write");
        let beside = beside(results, num, &what, figure, &["rocksdb"], 1.0);
        let bound = if threads == 1 { BOUND } else { GROUPS };
        verdicts.extend(beside.map(|verdict| verdict.bounded_by(bound)));
        if let Some(ours) = results.figure(num, "trommel", syncs) {
            let what = format!("synced writes, {threads} threads, syncs per write");
            let limit = SYNCS_PER_GROUP / threads as f64;
            verdicts.push(Verdict::at_most(&what, ours.median, limit).bounded_by(GROUPS));
        }
    }
    verdicts
}
