//! Loading entries that are sorted already.
//!
//! 1. *Put*: in a new store, all entries are put in the order of their keys; flush, settle.
//! 2. *Loaded*: in another, they are loaded from an iterator.
//! 3. *Written*: a file of them is written outside of any store.
//! 4. *Ingested*: a third new store takes that file. Its entries are counted.

use std::time::{Instant, SystemTime};

use trommel_harness::record::{Amplification, Record, State};
use trommel_harness::{Measured, MeasuredTime, Store, StoreError, Workload};

use super::{Sizes, Study};
use crate::figures::{Figure, Group};
use crate::process;
use crate::settings::Settings;
use crate::trial::{Trial, write};

const PUT: &str = "put in order";
const LOADED: &str = "loaded";
const WRITTEN: &str = "written to a file";
const INGESTED: &str = "ingested";

pub(super) static STUDY: Study = Study {
    name: "loads",
    title: "Loading what is sorted",
    about: "`--loads-keys` entries, in the order of their keys, go into a new store in three ways. \
            They are put one by one, until the store is flushed and idle; loaded from an iterator; \
            and written to a file outside of the store, which is then ingested. RocksDB takes the \
            file itself (move_files); Trommel copies it. Loads and ingests are durable at the end, \
            and the ingested entries are counted.",
    stores: &["trommel", "rocksdb-best"],
    sizes: &["loads-keys"],
    tables: &[
        (
            "Microseconds an entry",
            &[
                Figure { title: PUT, of: |group| group.per_operation(PUT) },
                Figure { title: LOADED, of: |group| group.per_operation(LOADED) },
                Figure { title: WRITTEN, of: |group| group.per_operation(WRITTEN) },
                Figure { title: INGESTED, of: |group| group.per_operation(INGESTED) },
                Figure { title: "written and ingested", of: both },
            ],
        ),
        (
            "Bytes written per byte of keys and values",
            &[
                Figure { title: PUT, of: |group| amplification(group, PUT) },
                Figure { title: LOADED, of: |group| amplification(group, LOADED) },
                Figure { title: WRITTEN, of: |group| amplification(group, WRITTEN) },
                Figure { title: INGESTED, of: |group| amplification(group, INGESTED) },
            ],
        ),
    ],
    raced: &["Microseconds an entry"],
    unequal: &[
        "Loads: RocksDB has no load from an iterator. Its file has its filter already, and becomes \
         a table of the store as it is, of any size; Trommel verifies each block, and writes tables \
         of its own size, with filters of the store's hash seed.",
    ],
    settings,
    run,
};

fn both(group: &Group<'_>) -> Option<f64> {
    Some(group.per_operation(WRITTEN)? + group.per_operation(INGESTED)?)
}

fn amplification(group: &Group<'_>, name: &str) -> Option<f64> {
    group.find(name)?.state.amplification.as_ref()?.write
}

fn settings(sizes: &Sizes) -> Settings {
    Settings::new(sizes.loads_keys, 0)
}

fn run(trial: &Trial<'_>) -> Result<(), StoreError> {
    let (dir, settings) = (&trial.spec.dir, &trial.spec.settings);
    step(trial, PUT, || {
        let store = trial.open(true)?;
        trial.measure(&*store, Workload::FillSeq, &trial.filling())?;
        store.flush()?;
        store.settle()?;
        store.close().map(|()| true)
    })?;
    crate::run::remove(dir)?;

    let entries = trial.sorted_entries();
    let store = trial.contender.open_for_loads(dir, settings)?;
    if step(trial, LOADED, || store.load(entries))? {
        check(store.count()?, settings.num)?;
    }
    drop(store);
    crate::run::remove(dir)?;

    let file = dir.with_extension("loaded");
    let store = trial.contender.open_for_loads(dir, settings)?;
    step(trial, WRITTEN, || store.write_file(&file, entries).map(|()| true))?;
    step(trial, INGESTED, || store.ingest(&file).map(|()| true))?;
    check(store.count()?, settings.num)?;
    match std::fs::remove_file(&file) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}

fn check(count: u64, expected: u64) -> Result<(), StoreError> {
    if count == expected {
        return Ok(());
    }
    Err(format!("{count} entries of {expected} are found").into())
}

/// Times `work`, which handles all entries, and counts the bytes that it writes; unless the store
/// cannot do it, which `work` then returns, as this does.
fn step(
    trial: &Trial<'_>,
    name: &str,
    work: impl FnOnce() -> Result<bool, StoreError>,
) -> Result<bool, StoreError> {
    let written = process::written_bytes();
    let (start, clock) = (SystemTime::now(), Instant::now());
    if !work()? {
        return Ok(false);
    }
    let time = MeasuredTime::of_one_thread(clock.elapsed());
    let settings = &trial.spec.settings;
    let measured = Measured { operations: settings.num, time, ..Measured::default() };
    let bytes = process::written_bytes().zip(written).map(|(now, before)| now - before);
    let state = State {
        amplification: bytes.map(|bytes| Amplification {
            write: Some(bytes as f64 / settings.user_bytes() as f64),
            ..Amplification::default()
        }),
        ..State::default()
    };
    write(&Record { state, ..trial.record(name, start, 1, &measured) })?;
    Ok(true)
}
