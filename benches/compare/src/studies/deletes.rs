//! The cost of deletes, and of reads over what they leave behind.
//!
//! 1. *Queue*, in a new store: append at the tail, look at the head, delete it. The first steps are
//!    recorded by themselves, and all of them if there is time.
//! 2. *Keys one by one*: fill, delete all but every [`KEPT`]th key in order, seek to each of the
//!    deleted parts twice, forward and backward. Delete the rest, rest for ten seconds, look at
//!    the files.
//! 3. *Ranges*: fill half of the keys, scan, and start again with all keys; delete the other half,
//!    scan; delete the rest, rest for ten seconds, look at the files.
//!
//! Between the steps the store is removed, and everything that is read is compared with what must
//! be there.

use std::fs;
use std::ops::Range;
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};

use trommel_harness::{
    Direction, Latencies, Measured, MeasuredTime, Operation, Store, StoreError, mix,
};

use super::{Sizes, Study};
use crate::checked::Checked;
use crate::figures::{Figure, Group};
use crate::process;
use crate::settings::Settings;
use crate::trial::{Trial, write};

/// One key of this many is kept when keys are deleted one by one.
const KEPT: u64 = 1000;
/// Time without any call before the files are looked at.
const REST: Duration = Duration::from_secs(10);
/// Steps of the queue that are recorded by themselves.
const FIRST_STEPS: [(u64, &str); 2] =
    [(1_000, "queue, 1,000 steps"), (100_000, "queue, 100,000 steps")];
/// All steps of the queue, and as many as there was time for.
const ALL_STEPS: &str = "queue, all steps";
const DONE_STEPS: &str = "queue, steps done";

const DELETE: &str = "delete one by one";
const SEEKS: [[&str; 2]; 2] =
    [["seek, first", "seek, later"], ["reverse, first", "reverse, later"]];
const FULL: [&str; 2] = ["disk, full (keys)", "disk, full (ranges)"];
const RESTED: [&str; 2] = ["disk, rested (keys)", "disk, rested (ranges)"];

const DELETE_RANGE: &str = "delete range";
const SCAN_HALF: &str = "scan of half";
const SCAN_DELETED: [&str; 2] = ["scan after deletion", "scan after deletion, later"];

pub(super) static STUDY: Study = Study {
    name: "deletes",
    title: "Deleting, and reading afterwards",
    about: "Queue: a key is appended at the tail of a new store, the first key is read, and \
            deleted, `--deletes-steps` times, or until `--deletes-seconds` are over. Keys: of a \
            store of `--deletes-keys` keys, all but every thousandth are deleted in their order, in \
            a call each (LMDB and redb: a thousand in a transaction); then each of the parts \
            without keys is seeked into, at random, once and once more, forward and backward. \
            Ranges: in another store of as many keys, the first half is deleted in one call, and \
            everything is scanned twice, and so is a store that was filled with the other half \
            alone. Disk: the files ten seconds after the rest was deleted too, without a call in \
            between, as a part of their size when all keys were there.",
    stores: &[
        "trommel",
        "trommel-mapped",
        "trommel-skiplist",
        "rocksdb-best",
        "fjall",
        "lmdb",
        "redb",
    ],
    sizes: &["deletes-steps", "deletes-seconds", "deletes-keys"],
    tables: &[
        (
            "Queue, microseconds a step",
            &[
                Figure { title: "1,000 steps", of: |group| group.per_operation(FIRST_STEPS[0].1) },
                Figure { title: "p99.9", of: |group| p999(group, FIRST_STEPS[0].1) },
                Figure { title: "100,000", of: |group| group.per_operation(FIRST_STEPS[1].1) },
                Figure { title: "p99.9 ", of: |group| p999(group, FIRST_STEPS[1].1) },
                Figure { title: "all", of: |group| group.per_operation(ALL_STEPS) },
                Figure { title: "p99.9  ", of: |group| p999(group, ALL_STEPS) },
            ],
        ),
        ("Queue, steps in the time", &[Figure { title: "steps", of: steps }]),
        (
            "Keys one by one, microseconds",
            &[
                Figure { title: "delete", of: |group| group.per_operation(DELETE) },
                Figure { title: "first seeks, longest", of: |group| longest(group, SEEKS[0][0]) },
                Figure { title: "first seeks", of: |group| group.per_operation(SEEKS[0][0]) },
                Figure { title: "later seeks", of: |group| group.per_operation(SEEKS[0][1]) },
                Figure { title: "reverse, longest", of: |group| longest(group, SEEKS[1][0]) },
                Figure { title: "reverse, later", of: |group| group.per_operation(SEEKS[1][1]) },
            ],
        ),
        (
            "Half of the keys as a range",
            &[
                Figure { title: "call, ms", of: call },
                Figure {
                    title: "scan of half, us a key",
                    of: |group| group.per_operation(SCAN_HALF),
                },
                Figure {
                    title: "scan after deletion",
                    of: |group| group.per_operation(SCAN_DELETED[0]),
                },
                Figure { title: "once more", of: |group| group.per_operation(SCAN_DELETED[1]) },
            ],
        ),
        (
            "Disk after ten seconds of rest, percent of the full store",
            &[
                Figure { title: "deleted by key", of: |group| left(group, 0) },
                Figure { title: "deleted by range", of: |group| left(group, 1) },
            ],
        ),
    ],
    raced: &["Queue, microseconds a step", "Keys one by one, microseconds"],
    unequal: &[
        "Deleting: RocksDB marks tables for compaction in which half of 10,000 entries in a row are \
         tombstones (CompactOnDeletionCollector), as its documentation advises; it has a bound on \
         the tombstones that a seek passes too, with which the seek fails, so it is not set. A \
         queue that remembers its head could seek there instead of to the first key: none does.",
        "Deleting a range: RocksDB writes a range tombstone (DeleteRange). fjall has no such call: \
         its keys are scanned and removed in batches of 1,000. LMDB and redb delete the keys of a \
         range in one transaction. The files of LMDB and redb never shrink by themselves: free \
         pages are used again.",
    ],
    settings,
    run,
};

fn steps(group: &Group<'_>) -> Option<f64> {
    Some(group.find(DONE_STEPS)?.results.operations as f64)
}

fn p999(group: &Group<'_>, workload: &str) -> Option<f64> {
    Some(group.find(workload)?.results.latency_ns.as_ref()?.p999 as f64 / 1e3)
}

fn longest(group: &Group<'_>, workload: &str) -> Option<f64> {
    Some(group.find(workload)?.results.latency_ns.as_ref()?.max as f64 / 1e3)
}

fn call(group: &Group<'_>) -> Option<f64> {
    Some(group.find(DELETE_RANGE)?.results.wall_seconds * 1e3)
}

fn left(group: &Group<'_>, way: usize) -> Option<f64> {
    let bytes = |workload: &str| Some(group.find(workload)?.results.bytes as f64);
    Some(100.0 * bytes(RESTED[way])? / bytes(FULL[way])?.max(1.0))
}

fn settings(sizes: &Sizes) -> Settings {
    Settings { deletes: true, ..Settings::new((sizes.deletes_keys / KEPT).max(1) * KEPT, 0) }
}

fn run(trial: &Trial<'_>) -> Result<(), StoreError> {
    queue(trial)?;
    remove(trial)?;
    one_by_one(trial)?;
    remove(trial)?;
    ranges(trial)
}

/// Removes the closed store.
fn remove(trial: &Trial<'_>) -> Result<(), StoreError> {
    Ok(fs::remove_dir_all(&trial.spec.dir)?)
}

/// A value buffer, and the puts that use it.
struct Writer<'a> {
    store: &'a Checked,
    value: Vec<u8>,
}

impl<'a> Writer<'a> {
    fn new(trial: &Trial<'_>, store: &'a Checked) -> Self {
        let mut position = 0;
        Self { store, value: trial.load(0).values.next(&mut position).to_vec() }
    }

    fn put(&mut self, key: &[u8]) -> Result<(), StoreError> {
        if let Some(mark) = self.store.mark() {
            mark(key, &mut self.value);
        }
        self.store.put(key, &self.value)
    }
}

fn queue(trial: &Trial<'_>) -> Result<(), StoreError> {
    let sizes = &trial.spec.sizes;
    let (all, limit) = (sizes.deletes_steps, Duration::from_secs_f64(sizes.deletes_seconds));
    let store = trial.open(true)?;
    let mut writer = Writer::new(trial, &store);
    let load = trial.load(0);
    let (mut tail, mut head) = (load.keys.maker(), load.keys.maker());
    let (start, clock, mut times) = (SystemTime::now(), Instant::now(), Latencies::default());
    let mut done = 0;
    while done < all && clock.elapsed() < limit {
        let step = Instant::now();
        writer.put(tail.key(done))?;
        let expected = head.key(done);
        let mut is_right = false;
        store.scan(None, Direction::Forward, &mut |key, _| {
            is_right = key == expected;
            false
        })?;
        store.delete(expected)?;
        times.record(step.elapsed());
        if !is_right {
            return Err("the first key of the queue is not its head".into());
        }
        done += 1;
        let of_first = FIRST_STEPS.iter().find(|(steps, _)| *steps == done);
        if let Some((_, title)) = of_first {
            write(&trial.record(title, start, 1, &taken(&times, clock.elapsed())))?;
        }
        if done == all {
            write(&trial.record(ALL_STEPS, start, 1, &taken(&times, clock.elapsed())))?;
        }
    }
    write(&trial.record(DONE_STEPS, start, 1, &taken(&times, clock.elapsed())))?;
    store.close()
}

fn one_by_one(trial: &Trial<'_>) -> Result<(), StoreError> {
    trial.fill_distinct("fill (keys)")?;
    disk(trial, FULL[0])?;
    let num = trial.spec.settings.num;
    let store = trial.open(false)?;
    let (start, clock) = (SystemTime::now(), Instant::now());
    let deleted = delete(trial, &store, (0..num).filter(|index| index % KEPT != 0))?;
    write(&trial.record(DELETE, start, 1, &one_time(deleted, clock.elapsed())))?;
    for (titles, direction) in SEEKS.into_iter().zip([Direction::Forward, Direction::Backward]) {
        for (nth, title) in titles.into_iter().enumerate() {
            seeks(trial, &store, title, direction, nth as u64)?;
        }
    }
    delete(trial, &store, (0..num).step_by(KEPT as usize))?;
    rest(trial, &store, RESTED[0])?;
    store.close()
}

/// Deletes keys in a call each, or many in a transaction; returns their number.
fn delete(
    trial: &Trial<'_>,
    store: &Checked,
    indexes: impl Iterator<Item = u64>,
) -> Result<u64, StoreError> {
    let load = trial.load(0);
    let (mut maker, mut deleted, mut keys) = (load.keys.maker(), 0, Vec::new());
    for index in indexes {
        deleted += 1;
        let key = maker.key(index);
        if !trial.contender.batches {
            store.delete(key)?;
            continue;
        }
        keys.push(key.to_vec());
        if keys.len() == trial.spec.settings.batch {
            delete_batch(store, &keys)?;
            keys.clear();
        }
    }
    delete_batch(store, &keys)?;
    Ok(deleted)
}

fn delete_batch(store: &Checked, keys: &[Vec<u8>]) -> Result<(), StoreError> {
    let operations: Vec<_> = keys.iter().map(|key| Operation::Delete { key }).collect();
    if operations.is_empty() { Ok(()) } else { store.write(&operations) }
}

/// Seeks once into each part between two keys, in random order and at random places. The seek
/// into the last one going forward, and into the first going backward, ends at another part's
/// key or finds none.
fn seeks(
    trial: &Trial<'_>,
    store: &Checked,
    title: &str,
    direction: Direction,
    stream: u64,
) -> Result<(), StoreError> {
    let num = trial.spec.settings.num;
    let parts = num.div_ceil(KEPT);
    let mut order: Vec<u64> = (0..parts).collect();
    order.sort_by_key(|part| mix(mix(stream) ^ part));
    let load = trial.load(0);
    let (mut from, mut to) = (load.keys.maker(), load.keys.maker());
    let (start, mut times) = (SystemTime::now(), Latencies::default());
    let mut sum = Duration::ZERO;
    for part in order {
        let index = (part * KEPT + 1 + mix(part ^ stream << 32) % (KEPT - 1)).min(num - 1);
        let wanted = match direction {
            Direction::Forward => Some((part + 1) * KEPT).filter(|index| *index < num),
            Direction::Backward => Some(part * KEPT),
        };
        let key = from.key(index);
        let mut found = None;
        let clock = Instant::now();
        store.scan(Some(key), direction, &mut |key, _| {
            found = Some(key.to_vec());
            false
        })?;
        let time = clock.elapsed();
        times.record(time);
        sum += time;
        if found.as_deref() != wanted.map(|index| to.key(index).to_vec()).as_deref() {
            return Err(
                format!("{title}: a seek to key {index} did not end where it should").into()
            );
        }
    }
    write(&trial.record(title, start, 1, &taken(&times, sum)))
}

fn ranges(trial: &Trial<'_>) -> Result<(), StoreError> {
    let num = trial.spec.settings.num;
    let store = trial.open(true)?;
    fill(trial, &store, num / 2..num)?;
    scan(trial, &store, None)?;
    scan(trial, &store, Some(SCAN_HALF))?;
    store.close()?;
    remove(trial)?;

    let store = trial.open(true)?;
    fill(trial, &store, 0..num)?;
    disk(trial, FULL[1])?;
    let load = trial.load(0);
    let (mut from, mut to) = (load.keys.maker(), load.keys.maker());
    store.scan(None, Direction::Forward, &mut |_, _| true)?;
    let (start, clock) = (SystemTime::now(), Instant::now());
    store.delete_range(from.key(0), to.key(num / 2))?;
    write(&trial.record(DELETE_RANGE, start, 1, &one_time(1, clock.elapsed())))?;
    for title in SCAN_DELETED {
        scan(trial, &store, Some(title))?;
    }
    store.delete_range(from.key(0), to.key(num))?;
    store.scan(None, Direction::Forward, &mut |_, _| false)?;
    rest(trial, &store, RESTED[1])?;
    store.close()
}

/// Puts these keys in random order, in batches where they are quicker; settles, flushes, settles.
fn fill(trial: &Trial<'_>, store: &Checked, indexes: Range<u64>) -> Result<(), StoreError> {
    let load = trial.load(0);
    let mut maker = load.keys.maker();
    let mut order: Vec<u64> = indexes.collect();
    order.sort_by_key(|index| mix(*index));
    let mut writer = Writer::new(trial, store);
    let batch = if trial.contender.batches { trial.spec.settings.batch } else { 1 };
    for indexes in order.chunks(batch) {
        if let [index] = indexes {
            writer.put(maker.key(*index))?;
            continue;
        }
        let keys: Vec<_> = indexes.iter().map(|index| maker.key(*index).to_vec()).collect();
        let value = &writer.value;
        let puts: Vec<_> = keys.iter().map(|key| Operation::Put { key, value }).collect();
        store.write(&puts)?;
    }
    store.settle()?;
    store.flush()?;
    store.settle()
}

/// Scans everything, which must be the second half of the keys; writes a record under `title`.
fn scan(trial: &Trial<'_>, store: &Checked, title: Option<&str>) -> Result<(), StoreError> {
    let num = trial.spec.settings.num;
    let (start, clock, mut entries) = (SystemTime::now(), Instant::now(), 0);
    store.scan(None, Direction::Forward, &mut |_, _| {
        entries += 1;
        true
    })?;
    let time = clock.elapsed();
    if entries != num - num / 2 {
        return Err(format!("a scan found {entries} keys of {}", num - num / 2).into());
    }
    title.map_or(Ok(()), |title| write(&trial.record(title, start, 1, &one_time(entries, time))))
}

/// Checks that nothing is left, rests, and writes the size of the files.
fn rest(trial: &Trial<'_>, store: &Checked, title: &str) -> Result<(), StoreError> {
    let mut is_empty = true;
    store.scan(None, Direction::Forward, &mut |_, _| {
        is_empty = false;
        false
    })?;
    if !is_empty {
        return Err("a key was deleted and is there".into());
    }
    sleep(REST);
    disk(trial, title)
}

fn disk(trial: &Trial<'_>, title: &str) -> Result<(), StoreError> {
    let files = process::files(&trial.spec.dir)?;
    trial.disk(title, files.len() as u64, files.iter().map(|(_, bytes)| bytes).sum())
}

fn taken(times: &Latencies, time: Duration) -> Measured {
    Measured { latencies: Some(times.clone()), ..one_time(times.count(), time) }
}

fn one_time(operations: u64, time: Duration) -> Measured {
    Measured { operations, time: MeasuredTime::of_one_thread(time), ..Measured::default() }
}
