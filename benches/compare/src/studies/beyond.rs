//! Data larger than the store's cache.
//!
//! 1. Fill a store, settle, flush, close; drop its files from the page cache; open it with a cache
//!    for a part of its data.
//! 2. Read at random until the cache is full; then, counted, present and absent keys.

use std::time::SystemTime;

use trommel_harness::record::Record;
use trommel_harness::{Load, Store, StoreError, Workload};

use super::{Sheet, Sizes};
use crate::figures::{Figure, Group, Results};
use crate::process::drop_page_cache;
use crate::settings::Settings;
use crate::stores::{ALIGNED, DIRECT_ALIGNED, MAPPED_ALIGNED};
use crate::trial::{Trial, write};
use crate::verdict::{Verdict, beside};

/// Size of the data as a multiple of the cache.
const DATA_PER_CACHE: u64 = 5;
/// Lookups of missing keys per lookup of a present one: they read next to nothing, and their few
/// reads must be enough to count.
const MISSING_PER_PRESENT: u64 = 40;
/// The targets: the deviation of wasted reads from theory, and at most 1.01 blocks read for a
/// present key.
const WASTE_TOLERANCE: f64 = 0.05;
const VAIN_OF_HUNDRED_MAX: f64 = 1.0;

/// What bounds the latter.
const PRESENT_BOUND: &str = "a filter's false positives in the runs above the one that has the key: ten bits a \
    key in every level are to have this many by theory (the column beside it), as many in all, divided among the levels \
    (trommel-direct-divided), hardly any";

const PRESENT: &str = "get, present";
const MISSING: &str = "get, missing";
const OWN_FILTERS: &str = "trommel-direct-own";
const EQUAL: &str = "trommel-direct";
const DIVIDED: &str = "trommel-direct-divided";

pub(super) static SHEET: Sheet = Sheet {
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
    verdicts,
    ahead: "LMDB reads its pages in the page cache, which holds all of them here; direct reads pass that by",
    unequal: &[
        "Beyond the cache: RocksDB's cache also counts its blocks' own memory, Trommel's what they \
         hold; indexes and filters are outside of both caches. RocksDB counts blocks by its \
         statistics, which are on for this and cost it some time.",
    ],
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
    let hits = if with_hits { io.lookups.cache_hits? } else { 0 };
    Some((io.lookups.block_reads? + hits) as f64 / record.results.operations.max(1) as f64)
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
        let misses = filter.counts.negatives + filter.counts.false_positives;
        filter.rates.expected.unwrap_or_default() * misses as f64
    });
    let sum: f64 = expected.sum();
    (sum > 0.0).then(|| sum / record.results.operations.max(1) as f64)
}

fn waste_ratio(group: &Group<'_>) -> Option<f64> {
    Some(missing_blocks(group)? / expected_waste(group, MISSING)?)
}

pub(super) fn settings(sizes: &Sizes) -> Settings {
    let settings = Settings::new(sizes.beyond_keys, sizes.beyond_reads);
    let cache_bytes = settings.user_bytes() / DATA_PER_CACHE;
    Settings { cache_bytes, counted: true, ..settings }
}

pub(super) fn run(trial: &Trial<'_>) -> Result<(), StoreError> {
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

fn verdicts(results: &Results, num: u64) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    for name in [EQUAL, DIVIDED, OWN_FILTERS, DIRECT_ALIGNED] {
        let median = |figure: &Figure| results.figure(num, name, figure).map(|is| is.median);
        if let Some(is) = median(&WASTE_TO_EXPECTED) {
            let what = format!("missing keys, {name}, distance from the expected wasted reads");
            verdicts.push(Verdict::at_most(&what, (is - 1.0).abs(), WASTE_TOLERANCE));
        }
        if let Some(is) = median(&BLOCKS[0]) {
            let what = format!("present keys, {name}, blocks in vain of a hundred lookups");
            let verdict = Verdict::at_most(&what, (is - 1.0) * 100.0, VAIN_OF_HUNDRED_MAX);
            verdicts.push(verdict.bounded_by(PRESENT_BOUND));
        }
    }
    for figure in &TIMES {
        let what = format!("direct reads, {} keys, us", figure.title);
        // With the same bits per key in every level, or as many in all; blocks are not aligned.
        for ours in [EQUAL, DIVIDED] {
            let direct = |name: &str| name == ours || name == "rocksdb-direct";
            verdicts.extend(beside(&results.only(direct), num, &what, figure, &["rocksdb"], 1.0));
        }
    }
    verdicts
}
