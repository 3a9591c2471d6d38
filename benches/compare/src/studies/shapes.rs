//! Keys and values of other shapes than random keys with values of 256 bytes.
//!
//! For each shape: put all entries into a new store, flush, wait until it is idle; read all of it
//! twice without a clock; measure.
//!
//! 1. *Large values*: of 4, 16 and 64 KiB, put in random order; gets.
//! 2. *In order*: keys put in their order, timed until the store is idle; a full scan.
//! 3. *Versions*: a record's number and the complement of a version's number, twenty versions of
//!    each record, put version by version; the newest version of a record, by a seek.
//! 4. *Graph*: the numbers of two vertices for each edge, twenty edges of each vertex, put in
//!    random order; all edges of a vertex.
//! 5. *Long keys*: of 120 bytes with the first 100 in common, put in random order; a seek with ten
//!    entries, and a full scan.

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use trommel_harness::{Direction, Measured, MeasuredTime, Operation, Store, StoreError, mix};

use super::{Sizes, Study};
use crate::checked::Checked;
use crate::figures::Figure;
use crate::settings::Settings;
use crate::trial::{Trial, write};

/// Versions of a record, and edges of a vertex.
const EACH: u64 = 20;
/// Bytes of values that are not large.
const SMALL: usize = 100;
/// Keys of a shape for each measured get or seek.
const KEYS_PER_READ: u64 = 5;
/// Entries of a seek.
const SEEK_ENTRIES: usize = 10;

const LARGE: [(&str, usize); 3] =
    [("get of 4 KiB", 4 << 10), ("get of 16 KiB", 16 << 10), ("get of 64 KiB", 64 << 10)];
const FILL: &str = "fill in order until idle";
const SCAN: &str = "scan of keys put in order";
const NEWEST: &str = "newest of 20 versions";
const EDGES: &str = "20 edges of a vertex";
const LONG_SEEK: &str = "seek+10, keys of 120 bytes";
const LONG_SCAN: &str = "scan, keys of 120 bytes";

pub(super) static STUDY: Study = Study {
    name: "shapes",
    title: "Keys and values of other shapes",
    about: "New stores of `--shapes-keys` entries with values of 100 bytes, and of `--shapes-mib` \
            MiB of large values; each is filled, flushed and idle, and then read twice before it is \
            measured, so that all of it is in memory. Newest: a seek to the first of twenty versions \
            of a record, whose keys are the record's number and the complement of the version's, \
            put version by version. Edges: keys are two numbers; a scan of the twenty with the same \
            first one. Keys of 120 bytes have the first 100 in common.",
    stores: &["trommel", "trommel-mapped", "rocksdb-best", "rocksdb-mmap", "fjall", "lmdb-best"],
    sizes: &["shapes-keys", "shapes-mib"],
    tables: &[
        ("Microseconds a get of a large value", &GETS),
        ("Microseconds a read, and of scans and fills an entry", &READS),
    ],
    raced: &[
        "Microseconds a get of a large value",
        "Microseconds a read, and of scans and fills an entry",
    ],
    unequal: &[
        "Shapes: LMDB commits a thousand puts at once, the others each by itself; lmdb-best \
         keeps a transaction for reads. None copies a large value for its caller, who reads \
         both of its ends.",
    ],
    settings,
    run,
};

const GETS: [Figure; 3] = [
    Figure { title: "4 KiB", of: |group| group.per_operation(LARGE[0].0) },
    Figure { title: "16 KiB", of: |group| group.per_operation(LARGE[1].0) },
    Figure { title: "64 KiB", of: |group| group.per_operation(LARGE[2].0) },
];

const READS: [Figure; 6] = [
    Figure { title: "in order: fill until idle", of: |group| group.per_operation(FILL) },
    Figure { title: "scan", of: |group| group.per_operation(SCAN) },
    Figure { title: "newest of 20 versions", of: |group| group.per_operation(NEWEST) },
    Figure { title: "20 edges", of: |group| group.per_operation(EDGES) },
    Figure { title: "120-byte keys: seek+10", of: |group| group.per_operation(LONG_SEEK) },
    Figure { title: "scan ", of: |group| group.per_operation(LONG_SCAN) },
];

fn settings(sizes: &Sizes) -> Settings {
    Settings { value_bytes: SMALL, ..Settings::new(sizes.shapes_keys, 0) }
}

fn run(trial: &Trial<'_>) -> Result<(), StoreError> {
    large_values(trial)?;
    in_order(trial)?;
    let settings = trial.spec.settings;
    newest(trial, &settings)?;
    edges(trial, &settings)?;
    long_keys(trial, &Settings { key_bytes: 120, ..settings })
}

/// A key of two numbers.
fn pair(first: u64, second: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&first.to_be_bytes());
    key[8..].copy_from_slice(&second.to_be_bytes());
    key
}

/// The numbers below `num`, in random order.
fn shuffled(num: u64) -> Vec<u64> {
    let mut numbers: Vec<u64> = (0..num).collect();
    numbers.sort_by_key(|n| mix(*n));
    numbers
}

/// A new store with these keys, idle and read twice.
fn filled<K: AsRef<[u8]>>(
    trial: &Trial<'_>,
    settings: &Settings,
    keys: impl Iterator<Item = K>,
) -> Result<Arc<Checked>, StoreError> {
    let store = trial.open_with(settings, true)?;
    put_all(trial, &store, settings, keys)?;
    for _ in 0..2 {
        let found = scan_all(&store)?;
        if found != settings.num {
            return Err(format!("a scan found {found} keys of {}", settings.num).into());
        }
    }
    Ok(store)
}

fn put_all<K: AsRef<[u8]>>(
    trial: &Trial<'_>,
    store: &Checked,
    settings: &Settings,
    keys: impl Iterator<Item = K>,
) -> Result<(), StoreError> {
    let values = trial.values_of(settings.value_bytes);
    let (mut position, mut batch) = (0, Vec::new());
    let most = if trial.contender.batches { settings.batch } else { 1 };
    let mut commit = |batch: &[K]| {
        let operations: Vec<_> = batch
            .iter()
            .map(|key| Operation::Put { key: key.as_ref(), value: values.next(&mut position) })
            .collect();
        match operations[..] {
            [Operation::Put { key, value }] => store.put(key, value),
            _ => store.write(&operations),
        }
    };
    for key in keys {
        batch.push(key);
        if batch.len() >= most {
            commit(&batch)?;
            batch.clear();
        }
    }
    commit(&batch)?;
    store.flush()?;
    store.settle()
}

fn scan_all(store: &Checked) -> Result<u64, StoreError> {
    let mut keys = 0;
    store.scan(None, Direction::Forward, &mut |_, _| {
        keys += 1;
        true
    })?;
    Ok(keys)
}

/// Times `work`, and records it as this many operations.
fn timed(
    trial: &Trial<'_>,
    title: &str,
    operations: u64,
    work: impl FnOnce() -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let (start, clock) = (SystemTime::now(), Instant::now());
    work()?;
    let time = MeasuredTime::of_one_thread(clock.elapsed());
    let measured = Measured { operations, time, ..Measured::default() };
    write(&trial.record(title, start, 1, &measured))
}

/// Ends a part: closes its store and removes the files.
fn end(trial: &Trial<'_>, store: Arc<Checked>) -> Result<(), StoreError> {
    store.close()?;
    crate::run::remove(&trial.spec.dir)
}

fn large_values(trial: &Trial<'_>) -> Result<(), StoreError> {
    for (title, value_bytes) in LARGE {
        let num = (trial.spec.sizes.shapes_mib << 20) / value_bytes as u64;
        let settings = Settings { num, value_bytes, ..trial.spec.settings };
        let store = filled(trial, &settings, shuffled(num).into_iter().map(|n| pair(n, 0)))?;
        let gets = || (0..num * 4).map(|n| pair(mix(n) % num, 0));
        let get_all = || {
            gets().try_for_each(|key| match store.get(&key, &mut |_| {})? {
                true => Ok(()),
                false => Err(format!("key {key:02x?} is not found").into()),
            })
        };
        get_all()?;
        timed(trial, title, num * 4, get_all)?;
        end(trial, store)?;
    }
    Ok(())
}

fn in_order(trial: &Trial<'_>) -> Result<(), StoreError> {
    let settings = &trial.spec.settings;
    let store = trial.open_with(settings, true)?;
    let keys = (0..settings.num).map(|n| pair(n, 0));
    timed(trial, FILL, settings.num, || put_all(trial, &store, settings, keys))?;
    for _ in 0..2 {
        scan_all(&store)?;
    }
    timed_scan(trial, SCAN, &store, settings.num)?;
    end(trial, store)
}

fn timed_scan(trial: &Trial<'_>, title: &str, store: &Checked, num: u64) -> Result<(), StoreError> {
    timed(trial, title, num, || match scan_all(store)? {
        found if found == num => Ok(()),
        found => Err(format!("a scan found {found} keys of {num}").into()),
    })
}

/// Times reads of `entries` from keys that `from` makes of numbers drawn below `below`. The first
/// must have the first eight bytes of that key if `is_exact`.
fn timed_reads<K: AsRef<[u8]>>(
    trial: &Trial<'_>,
    title: &str,
    store: &Checked,
    (below, entries, is_exact): (u64, usize, bool),
    from: impl Fn(u64) -> K,
) -> Result<(), StoreError> {
    let reads = trial.spec.settings.num / KEYS_PER_READ;
    let read = |n: u64| {
        let (key, mut seen, mut is_right) = (from(mix(n) % below), 0, true);
        store.scan(Some(key.as_ref()), Direction::Forward, &mut |found, _| {
            seen += 1;
            is_right &= !is_exact || found[..8] == key.as_ref()[..8];
            seen < entries
        })?;
        let is_complete = !is_exact || seen == entries;
        match is_right && is_complete {
            true => Ok(()),
            false => Err(StoreError::from("a read found other entries than those put")),
        }
    };
    (reads..2 * reads).try_for_each(read)?;
    timed(trial, title, reads, || (0..reads).try_for_each(read))
}

fn newest(trial: &Trial<'_>, settings: &Settings) -> Result<(), StoreError> {
    let records = (settings.num / EACH).max(1);
    let settings = Settings { num: records * EACH, ..*settings };
    let order = shuffled(records);
    let keys = (0..EACH).flat_map(|version| order.iter().map(move |n| pair(*n, !version)));
    let store = filled(trial, &settings, keys)?;
    timed_reads(trial, NEWEST, &store, (records, 1, true), |n| pair(n, 0))?;
    end(trial, store)
}

fn edges(trial: &Trial<'_>, settings: &Settings) -> Result<(), StoreError> {
    let vertices = (settings.num / EACH).max(1);
    let settings = Settings { num: vertices * EACH, ..*settings };
    let keys = shuffled(settings.num).into_iter().map(|n| pair(n / EACH, mix(n)));
    let store = filled(trial, &settings, keys)?;
    timed_reads(trial, EDGES, &store, (vertices, EACH as usize, true), |n| pair(n, 0))?;
    end(trial, store)
}

fn long_keys(trial: &Trial<'_>, settings: &Settings) -> Result<(), StoreError> {
    let key = |n: u64| {
        let mut key = [b'k'; 120];
        key[100..108].copy_from_slice(&n.to_be_bytes());
        key
    };
    let num = settings.num;
    let store = filled(trial, settings, shuffled(num).into_iter().map(key))?;
    timed_reads(trial, LONG_SEEK, &store, (num, SEEK_ENTRIES, false), key)?;
    timed_scan(trial, LONG_SCAN, &store, num)?;
    end(trial, store)
}
