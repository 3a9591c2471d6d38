//! Several threads that write at once, with an unsynced log.
//!
//! 1, 2, 4 and 16 threads write single entries at random, with the same total number of writes, in
//! a closed loop; after each the store settles. A store with group commit makes one call for all
//! waiting writers, unless it loses more by letting them sleep.

use std::time::SystemTime;

use trommel_harness::{Load, Store, StoreError, Workload};

use super::{Sizes, Study};
use crate::figures::Figure;
use crate::settings::Settings;
use crate::trial::{Trial, write};

const THREADS: [usize; 4] = [1, 2, 4, 16];

pub(super) static STUDY: Study = Study {
    name: "writers",
    title: "Several writers",
    about: "Threads write single entries of 16 + 256 bytes at random, `--writers-writes` in \
            total with each number of threads. Each write is in the system's hands when it \
            returns, and not synced. The store becomes idle in between. Microseconds are elapsed \
            time divided by the writes of all threads.",
    stores: &["trommel", "rocksdb-best", "rocksdb", "fjall-best"],
    sizes: &["writers-writes"],
    tables: &[("Microseconds a write, by threads", &TIMES)],
    raced: &["Microseconds a write, by threads"],
    unequal: &[],
    settings,
    run,
};

const TIMES: [Figure; 4] = [
    Figure { title: "1", of: |group| group.per_operation(&title(1)) },
    Figure { title: "2", of: |group| group.per_operation(&title(2)) },
    Figure { title: "4", of: |group| group.per_operation(&title(4)) },
    Figure { title: "16", of: |group| group.per_operation(&title(16)) },
];

fn title(threads: usize) -> String {
    match threads {
        1 => Workload::FillRandom.name().into(),
        _ => format!("{} ({threads} threads)", Workload::FillRandom.name()),
    }
}

fn settings(sizes: &Sizes) -> Settings {
    Settings::new(sizes.writers_writes, 0)
}

fn run(trial: &Trial<'_>) -> Result<(), StoreError> {
    let store = trial.open(true)?;
    for (nth, threads) in THREADS.into_iter().enumerate() {
        let operations = trial.spec.settings.num / threads as u64;
        let load = Load { threads, operations, ..trial.load(nth as u64) };
        let start = SystemTime::now();
        let measured = trial.measure(&*store, Workload::FillRandom, &load)?;
        write(&trial.record(&title(threads), start, threads, &measured))?;
        store.settle()?;
    }
    store.close()
}
