//! YCSB's core workloads A to F, as implemented in the harness.
//!
//! Load, settle; then A, B, C, F, D and E in this order on the one store, as YCSB's own page
//! advises: the last two insert.

use std::time::SystemTime;

use trommel_harness::{Load, Records, Store, StoreError, Workload};

use super::{Sizes, Study};
use crate::figures::Figure;
use crate::settings::Settings;
use crate::trial::{Trial, write};

const ORDER: [Workload; 6] = [
    Workload::YcsbA,
    Workload::YcsbB,
    Workload::YcsbC,
    Workload::YcsbF,
    Workload::YcsbD,
    Workload::YcsbE,
];
/// Operations of the other workloads per operation of E, whose scans read fifty entries on average.
const OPERATIONS_PER_SCAN: u64 = 5;

pub(super) static STUDY: Study = Study {
    name: "ycsb",
    title: "YCSB A to F",
    about: "One thread, `--ycsb-records` records of 16 + 256 bytes, `--ycsb-operations` operations \
            of each workload (a fifth of it for E). A: half reads, half updates. B: 95% reads, 5% \
            updates. C: reads. D: 95% reads of the latest, 5% inserts. E: 95% scans of 1 to 100 \
            entries, 5% inserts. F: half reads, half read-modify-writes. Records are drawn by a \
            scrambled Zipfian distribution (0.99), in D by how late they came. Done in the order A, \
            B, C, F, D, E.",
    stores: &[
        "trommel",
        "trommel-mapped",
        "trommel-skiplist",
        "rocksdb-best",
        "rocksdb-mmap",
        "rocksdb",
        "fjall",
        "fjall-best",
        "lmdb",
        "lmdb-best",
        "redb",
    ],
    sizes: &["ycsb-records", "ycsb-operations"],
    tables: &[("Microseconds an operation", &FIGURES)],
    raced: &["Microseconds an operation"],
    unequal: &["YCSB: every write is a commit of its own, also for LMDB and redb, which the main \
         measurement fills in batches; neither syncs. lmdb opens a transaction for each read; \
         lmdb-best keeps one while nothing is written."],
    settings,
    run,
};

const FIGURES: [Figure; 7] = [
    Figure { title: "load", of: |group| group.per_operation(Workload::YcsbLoad.name()) },
    Figure { title: "A", of: |group| group.per_operation(Workload::YcsbA.name()) },
    Figure { title: "B", of: |group| group.per_operation(Workload::YcsbB.name()) },
    Figure { title: "C", of: |group| group.per_operation(Workload::YcsbC.name()) },
    Figure { title: "D", of: |group| group.per_operation(Workload::YcsbD.name()) },
    Figure { title: "E", of: |group| group.per_operation(Workload::YcsbE.name()) },
    Figure { title: "F", of: |group| group.per_operation(Workload::YcsbF.name()) },
];

fn settings(sizes: &Sizes) -> Settings {
    Settings { batch: 1, ..Settings::new(sizes.ycsb_records, sizes.ycsb_operations) }
}

fn run(trial: &Trial<'_>) -> Result<(), StoreError> {
    let settings = &trial.spec.settings;
    let store = trial.open(true)?;
    let records = Records::new(settings.num);
    let load = Load { records: Some(&records), operations: settings.num, ..trial.load(0) };
    let one = |workload: Workload, load: &Load<'_>| {
        let start = SystemTime::now();
        let measured = trial.measure(&*store, workload, load)?;
        write(&trial.record(workload.name(), start, 1, &measured))
    };
    one(Workload::YcsbLoad, &load)?;
    store.settle()?;
    for (nth, workload) in ORDER.into_iter().enumerate() {
        let is_scan = workload == Workload::YcsbE;
        let operations = settings.reads / if is_scan { OPERATIONS_PER_SCAN } else { 1 };
        one(workload, &Load { operations, stream: 1 + nth as u64, ..load.clone() })?;
    }
    store.close()
}
