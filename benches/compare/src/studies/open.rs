//! Opening a store of many tables.
//!
//! 1. Fill a store with small tables, so that it has many; settle, flush, close.
//! 2. With its files in the page cache: open, look up one key, close; several times.
//! 3. The same with its files dropped from the page cache each time.

use std::time::{Duration, Instant, SystemTime};

use trommel_harness::{Latencies, Load, Measured, MeasuredTime, Store, StoreError, Workload};

use super::{Sizes, Study};
use crate::figures::{Figure, Group};
use crate::process::{self, drop_page_cache, warm_page_cache};
use crate::settings::Settings;
use crate::trial::{Trial, write};

/// Maximum bytes of a table: so far above 2 MiB that most have as much even if compactions cut
/// tables short.
const TABLE_BYTES: u64 = (2 << 20) + (3 << 18);
const VALUE_BYTES: usize = 1024;
/// Approximate bytes of an entry in a table besides key and value.
const ENTRY_MORE_BYTES: u64 = 8;
/// Fraction of the tables to add, since those at the ends of compactions, and of a level above, are
/// small.
const MORE: f64 = 0.5;
const WARM_OPENS: u32 = 7;
const COLD_OPENS: u32 = 3;

const TABLE_BYTES_MIN: u64 = 2 << 20;

const TABLES: &str = "tables";
/// Files of at least [`TABLE_BYTES_MIN`].
const LARGE: &str = "large tables";
const WARM: [&str; 2] = ["open (warm)", "first get (warm)"];
const COLD: [&str; 2] = ["open (cold)", "first get (cold)"];

pub(super) static STUDY: Study = Study {
    name: "open",
    title: "Opening a store of many tables",
    about: "A store is filled in random order with distinct keys and values of 1 KiB, its tables \
            held to 2.75 MiB at most; it settles, is written out and closed. Then it is opened, one \
            key is looked up, and it is closed again: seven times with its files in the page cache \
            (warm), and three times with its files dropped from it (cold; directories and inodes \
            stay in memory). Each figure is the median of these.",
    stores: &["trommel", "trommel-mapped", "rocksdb-best", "rocksdb", "fjall", "lmdb", "redb"],
    sizes: &["open-tables"],
    tables: &[
        (
            "The store",
            &[
                Figure { title: "tables", of: tables },
                Figure { title: "files of 2 MiB or more", of: large_tables },
                Figure { title: "MiB a table", of: mebibytes_a_table },
            ],
        ),
        (
            "Milliseconds",
            &[
                Figure { title: "open, warm", of: warm_open },
                Figure { title: "first get, warm", of: |group| millis(group, WARM[1]) },
                Figure { title: "open, cold", of: |group| millis(group, COLD[0]) },
                Figure { title: "first get, cold", of: |group| millis(group, COLD[1]) },
            ],
        ),
    ],
    raced: &["Milliseconds"],
    unequal: &[
        "Opening: RocksDB opens every table and reads its footer, properties, index and filter then \
         (max_open_files is -1); fjall does as it does by default; Trommel checks that each table \
         is there and has its size, and reads the rest at first use, so its first get reads what \
         RocksDB's does not have to. LMDB and redb have one file.",
        "Opening: the fill of fjall 3.1.13 does not always come to an end here: its writer waits for fewer runs in \
         level 0, and both of its workers for work. Where it is missing above it was ended by hand after eight minutes, \
         and others that are missing were not selected.",
    ],
    settings,
    run,
};

fn tables(group: &Group<'_>) -> Option<f64> {
    let levels = group.find(TABLES)?.state.levels.as_ref()?;
    Some(levels.iter().map(|level| level.tables).sum::<u64>() as f64)
}

fn large_tables(group: &Group<'_>) -> Option<f64> {
    Some(group.find(LARGE)?.results.operations as f64)
}

fn mebibytes_a_table(group: &Group<'_>) -> Option<f64> {
    let levels = group.find(TABLES)?.state.levels.as_ref()?;
    let bytes = levels.iter().map(|level| level.bytes).sum::<u64>();
    Some(bytes as f64 / 1_048_576.0 / tables(group)?).filter(|size| *size > 0.0)
}

fn millis(group: &Group<'_>, workload: &str) -> Option<f64> {
    Some(group.find(workload)?.results.latency_ns.as_ref()?.p50 as f64 / 1e6)
}

fn warm_open(group: &Group<'_>) -> Option<f64> {
    millis(group, WARM[0])
}

fn settings(sizes: &Sizes) -> Settings {
    let bytes = sizes.open_tables as f64 * (1.0 + MORE) * TABLE_BYTES as f64;
    let base = Settings::new(0, 0);
    let entry_bytes = (base.key_bytes + VALUE_BYTES) as u64 + ENTRY_MORE_BYTES;
    Settings {
        num: bytes as u64 / entry_bytes,
        value_bytes: VALUE_BYTES,
        table_bytes: TABLE_BYTES,
        ..base
    }
}

fn run(trial: &Trial<'_>) -> Result<(), StoreError> {
    trial.fill_distinct(TABLES)?;
    let files = process::files(&trial.spec.dir)?.into_iter().map(|(_, bytes)| bytes);
    let large: Vec<_> = files.filter(|bytes| *bytes >= TABLE_BYTES_MIN).collect();
    trial.disk(LARGE, large.len() as u64, large.iter().sum())?;
    warm_page_cache(&trial.spec.dir)?;
    opens(trial, WARM, WARM_OPENS, false)?;
    opens(trial, COLD, COLD_OPENS, true)
}

/// Opens, looks up a key and closes, `count` times; writes the times of the first two.
fn opens(
    trial: &Trial<'_>,
    titles: [&str; 2],
    count: u32,
    is_cold: bool,
) -> Result<(), StoreError> {
    let start = SystemTime::now();
    let (mut opened, mut got) = (Times::default(), Times::default());
    for nth in 0..count {
        if is_cold {
            drop_page_cache(&trial.spec.dir)?;
        }
        let clock = Instant::now();
        let store = trial.open(false)?;
        opened.add(clock.elapsed());
        let one = Load { operations: 1, ..trial.load(1 + u64::from(nth)) };
        let measured = trial.measure(&*store, Workload::ReadRandom, &one)?;
        if measured.found != Some((1, 1)) {
            return Err("a key that was written is not there".into());
        }
        got.add(measured.time.threads);
        store.close()?;
    }
    for (title, times) in titles.into_iter().zip([opened, got]) {
        write(&trial.record(title, start, 1, &times.measured()))?;
    }
    Ok(())
}

/// Times of an operation that is done a few times.
#[derive(Default)]
pub(super) struct Times {
    latencies: Latencies,
    sum: Duration,
}

impl Times {
    pub(super) fn add(&mut self, time: Duration) {
        self.latencies.record(time);
        self.sum += time;
    }

    pub(super) fn measured(self) -> Measured {
        Measured {
            operations: self.latencies.count(),
            time: MeasuredTime::of_one_thread(self.sum),
            latencies: Some(self.latencies),
            ..Measured::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_enough_data_for_the_requested_tables() {
        let sizes = Sizes { open_tables: 100, ..Sizes::quick() };
        let settings = settings(&sizes);
        assert!(settings.user_bytes() > 100 * TABLE_BYTES);
        assert!(settings.user_bytes() < 155 * TABLE_BYTES);
    }
}
