//! Many keys in one call, against one call for each.
//!
//! 1. Fill a store, settle, flush, close.
//! 2. Warm: files in the page cache, store opened, its cache filled by reads; then single gets and
//!    multi-gets of random keys.
//! 3. Cold: files dropped from the page cache, store opened; a few gets load indexes and filters;
//!    then gets. The same again for multi-gets of other keys.

use std::time::SystemTime;

use trommel_harness::{Load, Store, StoreError, Workload, WorkloadOptions};

use super::{Sizes, Study};
use crate::figures::{Figure, Group};
use crate::process::{drop_page_cache, warm_page_cache};
use crate::settings::Settings;
use crate::trial::{Trial, options, write};

/// Keys in a call.
const KEYS: usize = 64;
/// Gets that load indexes and filters before cold reads are measured.
const TOUCHES: u64 = 128;
/// Warm reads for each cold one.
const WARM_READS: u64 = 25;
/// Reads before warm ones are measured, as a multiple of the keys.
const WARMING: u64 = 1;

const TITLES: [[&str; 2]; 2] =
    [["get (warm)", "multi-get (warm)"], ["get (cold)", "multi-get (cold)"]];
const WORKLOADS: [Workload; 2] = [Workload::ReadRandom, Workload::MultiReadRandom];

pub(super) static STUDY: Study = Study {
    name: "multiget",
    title: "64 keys in a call, beside 64 calls",
    about: "A store of `--many-keys` distinct keys of 16 bytes with values of 256 is read at \
            random, with single gets and with multi-gets of 64 keys; every key is present. Warm: \
            all of it is in the store's cache (mapped: in the page cache). Cold: the files are \
            dropped from the page cache, and the store is reopened, before each of the two; 128 \
            gets, which are not measured, load indexes and filters. Microseconds per key.",
    stores: &[
        "trommel",
        "trommel-mapped",
        "trommel-direct",
        "rocksdb-best",
        "rocksdb-mmap",
        "rocksdb-direct",
        "rocksdb",
    ],
    sizes: &["many-keys", "many-reads"],
    tables: &[
        (
            "Microseconds a key",
            &[
                Figure { title: TITLES[0][0], of: |group| group.per_operation(TITLES[0][0]) },
                Figure { title: TITLES[0][1], of: |group| group.per_operation(TITLES[0][1]) },
                Figure { title: TITLES[1][0], of: |group| group.per_operation(TITLES[1][0]) },
                Figure { title: TITLES[1][1], of: |group| group.per_operation(TITLES[1][1]) },
            ],
        ),
        (
            "Keys a second of multi-gets, as multiples of those of the same store's gets",
            &[Figure { title: "warm", of: warm }, Figure { title: "cold", of: cold }],
        ),
    ],
    raced: &["Microseconds a key"],
    unequal: &[
        "Multi-get: RocksDB overlaps the reads of one call if it was built with io_uring, which \
         this build was not.",
    ],
    settings,
    run,
};

fn times(group: &Group<'_>, titles: [&str; 2]) -> Option<f64> {
    Some(group.per_operation(titles[0])? / group.per_operation(titles[1])?)
}

fn warm(group: &Group<'_>) -> Option<f64> {
    times(group, TITLES[0])
}

fn cold(group: &Group<'_>) -> Option<f64> {
    times(group, TITLES[1])
}

fn settings(sizes: &Sizes) -> Settings {
    Settings { multi_get: KEYS, ..Settings::new(sizes.many_keys, sizes.many_reads) }
}

fn run(trial: &Trial<'_>) -> Result<(), StoreError> {
    trial.fill_distinct("fill")?;
    let settings = &trial.spec.settings;
    warm_page_cache(&trial.spec.dir)?;
    let store = trial.open(false)?;
    let warming = Load { operations: settings.num * WARMING, ..trial.load(1) };
    trial.measure(&*store, Workload::ReadRandom, &warming)?;
    for (nth, workload) in WORKLOADS.into_iter().enumerate() {
        let reads = settings.reads * WARM_READS;
        reads_of(trial, &*store, workload, TITLES[0][nth], reads, 2 + nth as u64)?;
    }
    store.close()?;
    for (nth, workload) in WORKLOADS.into_iter().enumerate() {
        drop_page_cache(&trial.spec.dir)?;
        let store = trial.open(false)?;
        let touches = Load { operations: TOUCHES, ..trial.load(4) };
        trial.measure(&*store, Workload::ReadRandom, &touches)?;
        reads_of(trial, &*store, workload, TITLES[1][nth], settings.reads, 5 + nth as u64)?;
        store.close()?;
    }
    Ok(())
}

fn reads_of(
    trial: &Trial<'_>,
    store: &dyn Store,
    workload: Workload,
    title: &str,
    reads: u64,
    stream: u64,
) -> Result<(), StoreError> {
    let options = WorkloadOptions { batch: KEYS, ..options() };
    let load = Load { operations: reads, options, ..trial.load(stream) };
    let start = SystemTime::now();
    let measured = trial.measure(store, workload, &load)?;
    write(&trial.record(title, start, 1, &measured))
}
