//! The tail latencies of reads and writes while a store is filled at a steady rate.
//!
//! 1. Fill a store, settle.
//! 2. One thread writes as fast as it can, another reads at its own steady rate, for as long as the
//!    later measurement: the peak.
//! 3. Settle. The same, but the writer has a steady rate: 80% of the peak of [`CALIBRATES`], which
//!    the run passes to all later contenders. Latencies count from when an operation was due, not
//!    from when it could start.

use std::time::{Duration, SystemTime};

use trommel_harness::record::Record;
use trommel_harness::{Load, Measured, Store, StoreError, Workload, WorkloadOptions};

use super::{Sizes, Study};
use crate::figures::{Figure, Group};
use crate::settings::Settings;
use crate::trial::{Trial, options, write};

/// The contender whose peak determines the pace of the others.
pub(crate) const CALIBRATES: &str = "rocksdb-best";
/// The record of the peak.
pub(crate) const PEAK: &str = "writes at peak";
/// Fraction of the peak at which all write.
pub(crate) const PART: f64 = 0.8;

const WRITES: &str = "writes, paced";
const READS: &str = "reads, paced";
/// A paced part ends after this multiple of its time, finished or not.
const LATE: u32 = 2;
/// Reads per second of the reader.
const READS_PER_SECOND: f64 = 2000.0;

pub(crate) static STUDY: Study = Study {
    name: "tails",
    title: "The slowest reads and writes of a steady fill",
    about: "A store of `--tails-keys` keys is overwritten at random by one thread at a steady \
            rate, 80% of the rate that rocksdb-best reached on such a store at full speed in the \
            same time, while another thread reads 2,000 keys a second; both for \
            `--tails-seconds`. Times count from the moment when an operation was due. The first \
            store of each round is rocksdb-best, whose peak sets the rate; the others follow in \
            varying order.",
    stores: &["rocksdb-best", "trommel", "trommel-mapped", "trommel-skiplist", "rocksdb", "fjall"],
    sizes: &["tails-keys", "tails-seconds", "tails-rate"],
    tables: &[
        ("Rates", &RATES),
        ("Reads during the fill, microseconds", &READ_TIMES),
        ("Writes under compaction, microseconds", &WRITE_TIMES),
    ],
    raced: &["Reads during the fill, microseconds", "Writes under compaction, microseconds"],
    unequal: &[
        "Tails: writer, reader and two background threads share the cores of the machine; if \
         there are two, a thread may wait for a core as long as for the store.",
        "Tails: LMDB and redb are left out, as their single commits do not reach the rate.",
    ],
    settings,
    run,
};

const RATES: [Figure; 3] = [
    Figure { title: "peak, writes/s", of: |group| rate(group, PEAK) },
    Figure { title: "paced, writes/s", of: |group| rate(group, WRITES) },
    Figure { title: "of those due, done in time, %", of: |group| held(group) },
];

const READ_TIMES: [Figure; 4] = [
    Figure { title: "p50", of: |group| times(group, READS, 0) },
    Figure { title: "p99", of: |group| times(group, READS, 1) },
    Figure { title: "p99.9", of: |group| times(group, READS, 2) },
    Figure { title: "max", of: |group| times(group, READS, 3) },
];

const WRITE_TIMES: [Figure; 4] = [
    Figure { title: "p50", of: |group| times(group, WRITES, 0) },
    Figure { title: "p99", of: |group| times(group, WRITES, 1) },
    Figure { title: "p99.9", of: |group| times(group, WRITES, 2) },
    Figure { title: "max", of: |group| times(group, WRITES, 3) },
];

fn rate(group: &Group<'_>, workload: &str) -> Option<f64> {
    Some(group.find(workload)?.operations_per_second())
}

/// Percentage of the due writes that were done when the time was over.
fn held(group: &Group<'_>) -> Option<f64> {
    let record = group.find(WRITES)?;
    let due = record.settings.get("tails-rate")?.as_f64()?;
    Some((record.operations_per_second() / due * 100.0).min(100.0))
}

/// The median, 99%, 99.9% and maximum, in microseconds.
fn times(group: &Group<'_>, workload: &str, which: usize) -> Option<f64> {
    let times = group.find(workload)?.results.latency_ns.as_ref()?;
    let nanos = [times.p50, times.p99, times.p999, times.max];
    Some(*nanos.get(which)? as f64 / 1e3)
}

fn settings(sizes: &Sizes) -> Settings {
    Settings::new(sizes.tails_keys, 0)
}

fn run(trial: &Trial<'_>) -> Result<(), StoreError> {
    let sizes = &trial.spec.sizes;
    let store = trial.open(true)?;
    let fill = Load { operations: trial.spec.settings.num, ..trial.load(0) };
    trial.measure(&*store, Workload::FillUniqueRandom, &fill)?;
    store.settle()?;
    let (start, seconds) = (SystemTime::now(), sizes.tails_seconds);
    // For as long as the later measurement: no store has to sustain the rate of a burst.
    let (peak, _) = both(trial, &*store, None, seconds, 1)?;
    write(&trial.record(PEAK, start, 1, &unfound(peak.clone())))?;
    store.settle()?;
    let rate = sizes.tails_rate.unwrap_or(peak.operations_per_second() * PART);
    let write_as = |title: &str, start, measured: Measured| {
        let mut record: Record = trial.record(title, start, 1, &unfound(measured));
        record.settings.insert("tails-rate".into(), rate.into());
        write(&record)
    };
    let start = SystemTime::now();
    let (writes, reads) = both(trial, &*store, Some(rate), seconds, 3)?;
    write_as(WRITES, start, writes)?;
    write_as(READS, start, reads)?;
    store.close()
}

/// Without the number of keys found, which depends on the number of reads.
fn unfound(measured: Measured) -> Measured {
    Measured { found: None, ..measured }
}

/// Runs a thread that writes, at this rate or as fast as it can, and one that reads; returns their
/// results.
fn both(
    trial: &Trial<'_>,
    store: &dyn Store,
    rate: Option<f64>,
    seconds: f64,
    stream: u64,
) -> Result<(Measured, Measured), StoreError> {
    let time = Duration::from_secs_f64(seconds);
    let paced = |rate: Option<f64>, stream| Load {
        operations: rate.map_or(u64::MAX, |rate| (rate * seconds).ceil() as u64),
        duration: Some(rate.map_or(time, |_| time * LATE)),
        rate,
        options: WorkloadOptions { latencies: true, ..options() },
        ..trial.load(stream)
    };
    let (writes, reads) = (paced(rate, stream), paced(Some(READS_PER_SECOND), stream + 1));
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            trial.measure(store, Workload::ReadRandom, &reads).map_err(|error| error.to_string())
        });
        let written = trial.measure(store, Workload::Overwrite, &writes)?;
        let read = reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        Ok((written, read))
    })
}
