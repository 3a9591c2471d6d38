//! Synced writes: each is durable before its writer continues.
//!
//! 1, 4, 16 and 64 threads write single entries for the same time each, in a closed loop. A store
//! with group commit syncs once for all waiting writers; then the time of a write falls as threads
//! are added.

use std::time::{Duration, SystemTime};

use trommel_harness::record::Record;
use trommel_harness::{Load, Store, StoreError, Workload, WorkloadOptions};

use super::{Sizes, Study};
use crate::figures::{Figure, Group};
use crate::settings::Settings;
use crate::trial::{Trial, options, write};

const THREADS: [usize; 4] = [1, 4, 16, 64];
/// Keys drawn from.
const KEYS: u64 = 1_000_000;
/// Writes before the clock starts, so that logs and files exist.
const WARMING: u64 = 20;

pub(super) static STUDY: Study = Study {
    name: "sync",
    title: "Synced writes",
    about: "Threads write single entries of 16 + 256 bytes, each durable on the device before \
            its writer continues (`fdatasync` or the store's equivalent), for some seconds with \
            each number of threads. Microseconds are elapsed time divided by the writes of all \
            threads.",
    stores: &["trommel", "rocksdb-best", "rocksdb", "fjall", "lmdb", "redb"],
    sizes: &["sync-seconds"],
    tables: &[
        ("Microseconds a write, by threads", &TIMES),
        ("Syncs of the log per write, as the store counts them", &SYNCS),
        ("99 of 100 writes ended within so many microseconds, as their threads saw it", &SLOWEST),
    ],
    raced: &["Microseconds a write, by threads"],
    unequal: &[
        "Synced writes: RocksDB and Trommel count the syncs of their log themselves; fjall, LMDB \
         and redb do not, and their columns are empty. LMDB syncs its data, and writes its meta \
         page through a descriptor opened with O_DSYNC, which is a second sync.",
        "Synced writes: fjall, LMDB and redb commit one write at a time; they have no group \
         commit.",
    ],
    settings,
    run,
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

fn settings(_sizes: &Sizes) -> Settings {
    Settings { durable: true, counted: true, ..Settings::new(KEYS, 0) }
}

fn run(trial: &Trial<'_>) -> Result<(), StoreError> {
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
