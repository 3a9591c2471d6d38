//! Data larger than the store's cache.
//!
//! 1. Fill a store, settle, flush, close; drop its files from the page cache; open it with a cache
//!    for a part of its data.
//! 2. Read at random until the cache is full; then, counted, present and absent keys.

use std::time::SystemTime;

use trommel_harness::record::Record;
use trommel_harness::{Load, Store, StoreError, Workload};

use super::{Sizes, Study};
use crate::figures::{Figure, Group};
use crate::process::drop_page_cache;
use crate::settings::Settings;
use crate::stores::{ALIGNED, DIRECT_ALIGNED, MAPPED_ALIGNED};
use crate::trial::{Trial, write};

/// Size of the data as a multiple of the cache.
const DATA_PER_CACHE: u64 = 5;
/// Lookups of missing keys per lookup of a present one: they read next to nothing, and their few
/// reads must be enough to count.
const MISSING_PER_PRESENT: u64 = 40;

const PRESENT: &str = "get, present";
const MISSING: &str = "get, missing";
const OWN_FILTERS: &str = "trommel-direct-own";
const EQUAL: &str = "trommel-direct";
const DIVIDED: &str = "trommel-direct-divided";

pub(super) static STUDY: Study = Study {
    name: "beyond",
    title: "More data than the cache holds",
    about: "A store of `--beyond-keys` distinct keys of 16 bytes with values of 256 gets a cache of \
            a fifth of that. Its files are dropped from the page cache; it is opened and read at \
            random until its cache is full; then keys that are there, and keys that are not. \
            \"direct\" reads past the page cache (O_DIRECT), so what is not in the store's cache \
            comes from the device. The other modes keep what they read in the page cache, which is \
            not limited here: they show what memory beyond the cache is worth, not a machine \
            without it. A block counts as read wherever it was found; expected are, of a key that \
            is there, its own block and as many more as the filters' theory says. Filters have ten \
            bits a key in every level, as the others' have; trommel-direct-divided spends at most \
            as many in all, more of them in small levels, and trommel-direct-own has the filters \
            that Trommel has by default. \"aligned\": blocks lie in pages of their \
            own (block_align).",
    stores: &[
        EQUAL,
        DIVIDED,
        OWN_FILTERS,
        DIRECT_ALIGNED,
        "trommel",
        ALIGNED,
        "trommel-mapped",
        MAPPED_ALIGNED,
        "rocksdb-direct",
        "rocksdb-best",
        "rocksdb-mmap",
        "lmdb",
        "lmdb-best",
    ],
    sizes: &["beyond-keys", "beyond-reads"],
    tables: &[("Microseconds a lookup", &TIMES), ("Data blocks a lookup", &BLOCKS)],
    raced: &["Microseconds a lookup"],
    unequal: &[
        "Beyond the cache: RocksDB's cache also counts its blocks' own memory, Trommel's what they \
         hold; indexes and filters are outside of both caches. RocksDB counts blocks by its \
         statistics, which are on for this and cost it some time.",
    ],
    settings,
    run,
};

const TIMES: [Figure; 2] = [
    Figure { title: "present", of: |group| group.per_operation(PRESENT) },
    Figure { title: "missing", of: |group| group.per_operation(MISSING) },
];

const BLOCKS: [Figure; 6] = [
    Figure { title: "present", of: present_blocks },
    Figure { title: "present, expected", of: |group| Some(1.0 + expected_waste(group, PRESENT)?) },
    Figure { title: "of them from files", of: from_files },
    Figure { title: "missing", of: missing_blocks },
    Figure { title: "missing, expected", of: |group| expected_waste(group, MISSING) },
    WASTE_TO_EXPECTED,
];
const WASTE_TO_EXPECTED: Figure = Figure { title: "measured to expected", of: waste_ratio };

fn per_lookup(group: &Group<'_>, workload: &str, with_hits: bool) -> Option<f64> {
    let record = group.find(workload)?;
    let io = record.state.io.as_ref()?;
    let hits = if with_hits { io.cache_hits? } else { 0 };
    Some((io.block_reads? + hits) as f64 / record.operations.max(1) as f64)
}

fn present_blocks(group: &Group<'_>) -> Option<f64> {
    per_lookup(group, PRESENT, true)
}

fn from_files(group: &Group<'_>) -> Option<f64> {
    per_lookup(group, PRESENT, false)
}

fn missing_blocks(group: &Group<'_>) -> Option<f64> {
    per_lookup(group, MISSING, true)
}

/// Wasted reads per lookup that the filters' theory expects.
fn expected_waste(group: &Group<'_>, workload: &str) -> Option<f64> {
    let record = group.find(workload)?;
    let filters = record.state.filters.as_ref()?;
    let expected = filters.iter().map(|filter| {
        let misses = filter.negatives + filter.false_positives;
        filter.expected_rate.unwrap_or_default() * misses as f64
    });
    let sum: f64 = expected.sum();
    (sum > 0.0).then(|| sum / record.operations.max(1) as f64)
}

fn waste_ratio(group: &Group<'_>) -> Option<f64> {
    Some(missing_blocks(group)? / expected_waste(group, MISSING)?)
}

fn settings(sizes: &Sizes) -> Settings {
    let settings = Settings::new(sizes.beyond_keys, sizes.beyond_reads);
    let cache_bytes = settings.user_bytes() / DATA_PER_CACHE;
    Settings { cache_bytes, counted: true, ..settings }
}

fn run(trial: &Trial<'_>) -> Result<(), StoreError> {
    trial.fill_distinct("fill")?;
    drop_page_cache(&trial.spec.dir)?;
    let settings = &trial.spec.settings;
    let store = trial.open(false)?;
    // Twice as many reads as the cache has blocks leave it full.
    let warming = 2 * settings.cache_bytes / settings.block_bytes;
    let warming = Load { operations: warming.min(settings.reads), ..trial.load(1) };
    trial.measure(&*store, Workload::ReadRandom, &warming)?;
    let rows = [
        (PRESENT, Workload::ReadRandom, settings.reads),
        (MISSING, Workload::ReadMissing, settings.reads * MISSING_PER_PRESENT),
    ];
    for (nth, (title, workload, operations)) in rows.into_iter().enumerate() {
        let load = Load { operations, ..trial.load(2 + nth as u64) };
        let (before, start) = (store.state(), SystemTime::now());
        let measured = trial.measure(&*store, workload, &load)?;
        let record = trial.record(title, start, 1, &measured);
        write(&Record { state: store.state().since(&before), ..record })?;
    }
    store.close()
}
