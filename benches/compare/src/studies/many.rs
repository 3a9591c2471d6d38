//! Many keys in one call, against one call for each.
//!
//! 1. Fill a store, settle, flush, close.
//! 2. Warm: files in the page cache, store opened, its cache filled by reads; then single gets and
//!    multi-gets of random keys.
//! 3. Cold: files dropped from the page cache, store opened; a few gets load indexes and filters;
//!    then gets. The same again for multi-gets of other keys.

use std::time::SystemTime;

use trommel_harness::{Load, Store, StoreError, Workload, WorkloadOptions};

use super::{Sheet, Sizes};
use crate::figures::{Figure, Group, Results};
use crate::process::{drop_page_cache, warm_page_cache};
use crate::settings::Settings;
use crate::stores::{ALIGNED, DIRECT_ALIGNED, MAPPED_ALIGNED};
use crate::trial::{Trial, options, write};
use crate::verdict::Verdict;

/// Keys in a call.
const KEYS: usize = 64;
/// Gets that load indexes and filters before cold reads are measured.
const TOUCHES: u64 = 128;
/// Warm reads for each cold one.
const WARM_READS: u64 = 25;
/// Reads before warm ones are measured, as a multiple of the keys.
const WARMING: u64 = 1;

/// The targets, as the ratio of keys per second of multi-gets to those of gets.
const WARM_TIMES: f64 = 2.0;
const COLD_TIMES: f64 = 4.0;

/// What bounds them, and what was tried.
const WARM_BOUND: &str = "where each use of a block is verified, some 0.2 us of a key are its 4 KiB \
    through the checksum, and more in a get, which waits for them; what a key waits for in memory is asked \
    for ahead, of sixteen keys: the place of a block in the cache, then its count of references and its \
    columns, or in a map its page, then its lines while the blocks before are verified";
const COLD_BOUND: &str = "the device: with 64 reads of 4 KiB under way it took 21 to 26 us for each on \
    one machine, with one 70 to 91, whoever asked for them (io_submit with O_DIRECT), so that less than \
    four times was to be had there; on another it answers n reads that it has at once after some 55 + 12.5 n \
    us, all at the end, and one alone in 45 to 55; files are told of the blocks of 64 keys at once, over all \
    tables of a run; reads past the page cache are handed to the system in one call (io_uring), or made by up \
    to 32 threads where it takes none; a block that lies in two pages is a read of 8 KiB, of which 64 at once took \
    14.5 us each and one alone 56 (fio), 3.9 times; where each lies in a page of its own (\"aligned\") a get out of \
    a map needs one page and not two, so that it gains more by that than calls of 64 do";

const TITLES: [[&str; 2]; 2] =
    [["get (warm)", "multi-get (warm)"], ["get (cold)", "multi-get (cold)"]];
const WORKLOADS: [Workload; 2] = [Workload::ReadRandom, Workload::MultiReadRandom];

pub(super) static SHEET: Sheet = Sheet {
    name: "multiget",
    title: "64 keys in a call, beside 64 calls",
    about: "A store of `--many-keys` distinct keys of 16 bytes with values of 256 is read at random, \
            every key being there: with single gets, and with multi-gets of 64 keys. Warm: all of \
            it is in the store's cache (mapped: in the page cache). Cold: the files are dropped \
            from the page cache and the store opened anew before each of the two; 128 gets bring \
            indexes and filters in, which are not measured. \"aligned\": blocks lie in pages of their own \
            (block_align). Microseconds a key.",
    stores: &[
        "trommel",
        "trommel-mapped",
        "trommel-direct",
        ALIGNED,
        MAPPED_ALIGNED,
        DIRECT_ALIGNED,
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
    verdicts,
    ahead: "",
    unequal: &[
        "Multi-get: RocksDB overlaps reads of one call where it was built with io_uring, which \
         this build is not.",
    ],
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

pub(super) fn settings(sizes: &Sizes) -> Settings {
    Settings { multi_get: KEYS, ..Settings::new(sizes.many_keys, sizes.many_reads) }
}

pub(super) fn run(trial: &Trial<'_>) -> Result<(), StoreError> {
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

fn verdicts(results: &Results, num: u64) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    for name in results.names(num).into_iter().filter(|name| name.starts_with("trommel")) {
        for (what, of, limit, bound) in [
            ("warm", warm as fn(&Group<'_>) -> _, WARM_TIMES, WARM_BOUND),
            ("cold", cold, COLD_TIMES, COLD_BOUND),
        ] {
            let Some(is) = results.figure(num, name, &Figure { title: "", of }) else { continue };
            let what = format!("multi-get of 64, {name}, {what}, times the keys of gets");
            verdicts.push(Verdict::at_least(&what, is.median, limit).bounded_by(bound));
        }
    }
    verdicts
}
