//! One workload on a number of threads.
//!
//! 1. Every thread gets a random stream of its own, decided by the load's seed and stream number.
//! 2. All start together at a barrier; each does its operations until done, stopped or failed.
//! 3. Their counts are added up; the first error wins.
//!
//! The loops read a clock for each operation only if latencies are asked for; else once before and
//! once after. An operation costs, besides the store: a draw, eight bytes of a key, a pointer.

use std::sync::{Barrier, Mutex, PoisonError};
use std::time::Instant;

use fastrand::Rng;

use crate::control::{Control, Stop};
use crate::error::Error;
use crate::histogram::Latencies;
use crate::keys::{KeyMaker, KeySpace, TAIL_BYTES_MAX};
use crate::measured::Measured;
use crate::store::{Direction, Operation, Store, StoreError};
use crate::values::Values;
use crate::workload::Workload;

/// Operations after which a thread says how far it is.
const PROGRESS_EVERY: u64 = 1024;

/// What a workload works with.
#[derive(Debug, Clone)]
pub struct Load<'a> {
    /// The keys written and asked for.
    pub keys: &'a KeySpace,
    /// The values written.
    pub values: &'a Values,
    /// Threads, at least 1.
    pub threads: usize,
    /// Operations of each thread. A scan ends sooner if the store does.
    pub operations: u64,
    /// Decides everything that is drawn, together with `stream`.
    pub seed: u64,
    /// Number of this workload in the run, so that no two draw the same.
    pub stream: u64,
    /// Operations in one write, and keys in one multi-get; at least 1.
    pub batch: usize,
    /// Entries a seek reads from its position.
    pub seek_nexts: u64,
    /// Random bytes behind a missing key, 1 to 8. One gives db_bench's key sizes; eight make
    /// missing keys distinct, so that every lookup is a draw of its own.
    pub tail_bytes: usize,
    /// Whether to keep the time of each operation.
    pub latencies: bool,
}

/// Runs `workload` on `store`. Only workloads that do operations are run here; others do nothing.
///
/// # Errors
/// The first that a thread met. A stop is none: the result says that it is partial.
pub fn measure(
    store: &dyn Store,
    workload: Workload,
    load: &Load<'_>,
    control: Control<'_>,
) -> Result<Measured, Error> {
    let threads = load.threads.max(1);
    let barrier = Barrier::new(threads);
    let failed = Stop::new();
    let total = Mutex::new((Measured::default(), None::<(Instant, Instant)>));
    let run = |thread: usize| -> Result<(), StoreError> {
        let mut worker = Worker::new(store, load, thread, control, &failed);
        barrier.wait();
        let result = worker.run(workload);
        if result.is_err() {
            failed.set();
        }
        let (part, start, end) = worker.finish(workload);
        let mut total = total.lock().unwrap_or_else(PoisonError::into_inner);
        total.0.merge(&part);
        let (first, last) = total.1.unwrap_or((start, end));
        total.1 = Some((first.min(start), last.max(end)));
        result
    };
    let results: Vec<_> = std::thread::scope(|scope| {
        let run = &run;
        let handles: Vec<_> = (0..threads).map(|thread| scope.spawn(move || run(thread))).collect();
        handles.into_iter().map(std::thread::ScopedJoinHandle::join).collect()
    });
    for result in results {
        result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
    }
    let (mut measured, span) = total.into_inner().unwrap_or_else(PoisonError::into_inner);
    measured.wall_time = span.map_or_else(Default::default, |(first, last)| last - first);
    Ok(measured)
}

/// One thread of a workload.
struct Worker<'a> {
    store: &'a dyn Store,
    load: &'a Load<'a>,
    control: Control<'a>,
    failed: &'a Stop,
    rng: Rng,
    keys: KeyMaker<'a>,
    value_position: usize,
    start: Instant,
    /// End of the last operation, when latencies are kept.
    last: Instant,
    latencies: Option<Latencies>,
    done: u64,
    asked: u64,
    found: u64,
    bytes: u64,
}

impl<'a> Worker<'a> {
    fn new(
        store: &'a dyn Store,
        load: &'a Load<'a>,
        thread: usize,
        control: Control<'a>,
        failed: &'a Stop,
    ) -> Self {
        let now = Instant::now();
        Self {
            store,
            load,
            control,
            failed,
            rng: Rng::with_seed(stream_seed(load.seed, load.stream, thread as u64)),
            keys: load.keys.maker(),
            value_position: 0,
            start: now,
            last: now,
            latencies: load.latencies.then(Latencies::new),
            done: 0,
            asked: 0,
            found: 0,
            bytes: 0,
        }
    }

    fn run(&mut self, workload: Workload) -> Result<(), StoreError> {
        // Threads start at different places of the value pool, and of a draw.
        self.value_position = self.rng.usize(..=1 << 10) * self.load.values.value_bytes();
        self.start = Instant::now();
        self.last = self.start;
        match workload {
            Workload::FillSeq => self.write(Order::Sequential),
            Workload::FillRandom | Workload::Overwrite => self.write(Order::Random),
            Workload::DeleteSeq => self.delete(Order::Sequential),
            Workload::DeleteRandom => self.delete(Order::Random),
            Workload::ReadRandom => self.read_random(),
            Workload::ReadMissing => self.read_missing(),
            Workload::MultiReadRandom => self.multi_read(),
            Workload::SeekRandom => self.seek_random(),
            Workload::ReadSeq => self.scan(Direction::Forward),
            Workload::ReadReverse => self.scan(Direction::Backward),
            _ => Ok(()),
        }
    }

    /// Whether another operation is to be done.
    #[inline]
    fn goes_on(&self) -> bool {
        self.done < self.load.operations && !self.stopped()
    }

    #[inline]
    fn stopped(&self) -> bool {
        self.control.stop.is_set() || self.failed.is_set()
    }

    /// Counts `operations` more as done, in one step of the store.
    #[inline]
    fn count(&mut self, operations: u64) {
        if let Some(latencies) = &mut self.latencies {
            let now = Instant::now();
            latencies.record(now - self.last);
            self.last = now;
        }
        let before = self.done;
        self.done += operations;
        if before / PROGRESS_EVERY != self.done / PROGRESS_EVERY {
            self.control.progress.advance(PROGRESS_EVERY);
        }
    }

    #[inline]
    fn draw(&mut self) -> u64 {
        self.rng.u64(..self.load.keys.len())
    }

    #[inline]
    fn index(&mut self, order: Order, nth: u64) -> u64 {
        match order {
            Order::Sequential => nth % self.load.keys.len(),
            Order::Random => self.draw(),
        }
    }

    fn write(&mut self, order: Order) -> Result<(), StoreError> {
        if self.load.batch > 1 {
            return self.write_batches(order, true);
        }
        let load = self.load;
        while self.goes_on() {
            let index = self.index(order, self.done);
            let value = load.values.next(&mut self.value_position);
            let key = self.keys.key(index);
            self.bytes += (key.len() + value.len()) as u64;
            self.store.put(key, value)?;
            self.count(1);
        }
        Ok(())
    }

    fn delete(&mut self, order: Order) -> Result<(), StoreError> {
        if self.load.batch > 1 {
            return self.write_batches(order, false);
        }
        while self.goes_on() {
            let index = self.index(order, self.done);
            self.store.delete(self.keys.key(index))?;
            self.count(1);
        }
        Ok(())
    }

    /// Puts, or else deletes, in batches.
    fn write_batches(&mut self, order: Order, puts: bool) -> Result<(), StoreError> {
        let load = self.load;
        let mut batch = KeyBatch::default();
        while self.goes_on() {
            self.fill_batch(&mut batch, order);
            let mut operations = Vec::with_capacity(load.batch);
            for key in batch.keys() {
                operations.push(if puts {
                    let value = load.values.next(&mut self.value_position);
                    self.bytes += (key.len() + value.len()) as u64;
                    Operation::Put { key, value }
                } else {
                    Operation::Delete { key }
                });
            }
            self.store.write(&operations)?;
            self.count(operations.len() as u64);
        }
        Ok(())
    }

    /// The next keys, as many as a batch holds and operations are left.
    fn fill_batch(&mut self, batch: &mut KeyBatch, order: Order) {
        batch.clear();
        let len = (self.load.batch as u64).min(self.load.operations - self.done);
        for nth in 0..len {
            let index = self.index(order, self.done + nth);
            batch.push(self.keys.key(index));
        }
    }

    fn read_random(&mut self) -> Result<(), StoreError> {
        while self.goes_on() {
            let index = self.draw();
            self.get(index, None)?;
        }
        Ok(())
    }

    fn read_missing(&mut self) -> Result<(), StoreError> {
        let tail_bytes = self.load.tail_bytes.clamp(1, TAIL_BYTES_MAX);
        while self.goes_on() {
            let index = self.draw();
            let tail = self.rng.u64(..).to_le_bytes();
            self.get(index, Some(&tail[..tail_bytes]))?;
        }
        Ok(())
    }

    #[inline]
    fn get(&mut self, index: u64, missing: Option<&[u8]>) -> Result<(), StoreError> {
        let key = match missing {
            None => self.keys.key(index),
            Some(tail) => self.keys.missing(index, tail),
        };
        let mut value_bytes = 0;
        if self.store.get(key, &mut |value| value_bytes = value.len())? {
            self.found += 1;
            self.bytes += (key.len() + value_bytes) as u64;
        }
        self.asked += 1;
        self.count(1);
        Ok(())
    }

    fn multi_read(&mut self) -> Result<(), StoreError> {
        let mut batch = KeyBatch::default();
        while self.goes_on() {
            self.fill_batch(&mut batch, Order::Random);
            let keys: Vec<&[u8]> = batch.keys().collect();
            let (mut found, mut bytes) = (0, 0);
            self.store.multi_get(&keys, &mut |at, value| {
                found += 1;
                bytes += (keys[at].len() + value.len()) as u64;
            })?;
            self.found += found;
            self.bytes += bytes;
            self.asked += keys.len() as u64;
            self.count(keys.len() as u64);
        }
        Ok(())
    }

    fn seek_random(&mut self) -> Result<(), StoreError> {
        while self.goes_on() {
            let index = self.draw();
            let key = self.keys.key(index);
            let (mut entries, mut bytes, mut exact) = (0, 0, false);
            let nexts = self.load.seek_nexts;
            self.store.scan(Some(key), Direction::Forward, &mut |found, value| {
                exact |= found == key;
                bytes += (found.len() + value.len()) as u64;
                entries += 1;
                // The entry sought is looked at in any case.
                entries <= nexts
            })?;
            self.found += u64::from(exact);
            self.bytes += bytes;
            self.asked += 1;
            self.count(1);
        }
        Ok(())
    }

    /// One operation an entry, as db_bench counts a scan.
    fn scan(&mut self, direction: Direction) -> Result<(), StoreError> {
        if self.load.operations == 0 {
            return Ok(());
        }
        let store = self.store;
        store.scan(None, direction, &mut |key, value| {
            self.bytes += (key.len() + value.len()) as u64;
            self.count(1);
            self.goes_on()
        })
    }

    fn finish(self, workload: Workload) -> (Measured, Instant, Instant) {
        let end = Instant::now();
        self.control.progress.advance(self.done % PROGRESS_EVERY);
        let looks_up = matches!(
            workload,
            Workload::ReadRandom
                | Workload::ReadMissing
                | Workload::MultiReadRandom
                | Workload::SeekRandom
        );
        let measured = Measured {
            operations: self.done,
            bytes: self.bytes,
            found: looks_up.then_some((self.found, self.asked)),
            thread_time: end - self.start,
            interrupted: self.stopped() && self.done < self.load.operations,
            latencies: self.latencies,
            ..Measured::default()
        };
        (measured, self.start, end)
    }
}

/// In what order keys are taken.
#[derive(Debug, Clone, Copy)]
enum Order {
    Sequential,
    Random,
}

/// Some keys at once.
#[derive(Debug, Default)]
struct KeyBatch {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl KeyBatch {
    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    fn push(&mut self, key: &[u8]) {
        self.bytes.extend_from_slice(key);
        self.ends.push(self.bytes.len());
    }

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        let starts = [0].into_iter().chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, end)| &self.bytes[start..*end])
    }
}

/// A seed that differs in about half its bits for any other thread, stream or seed (the finaliser
/// of splitmix64, applied to each in turn).
fn stream_seed(seed: u64, stream: u64, thread: u64) -> u64 {
    [stream, thread].into_iter().fold(mix(seed), |mixed, part| mix(mixed ^ part))
}

fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::Silent;
    use crate::map_store::MapStore;

    fn run(store: &dyn Store, workload: Workload, change: impl Fn(&mut Load<'_>)) -> Measured {
        let keys = KeySpace::integers(1000, 16).unwrap();
        let values = Values::new(100, 0.5, 1);
        let mut load = Load {
            keys: &keys,
            values: &values,
            threads: 1,
            operations: 1000,
            seed: 1,
            stream: workload as u64,
            batch: 1,
            seek_nexts: 0,
            tail_bytes: 1,
            latencies: false,
        };
        change(&mut load);
        let control = Control { stop: &Stop::new(), progress: &Silent };
        measure(store, workload, &load, control).unwrap()
    }

    #[test]
    fn every_workload_does_what_it_says() {
        let store = MapStore::default();
        let same = |_: &mut Load<'_>| {};
        let fill = run(&store, Workload::FillSeq, same);
        assert_eq!((fill.operations, fill.bytes, fill.found), (1000, 116_000, None));
        let read = run(&store, Workload::ReadRandom, same);
        assert_eq!((read.operations, read.bytes), (1000, 116_000));
        assert_eq!(read.found, Some((1000, 1000)));
        let missing = run(&store, Workload::ReadMissing, same);
        assert_eq!((missing.found, missing.bytes), (Some((0, 1000)), 0));
        let missing = run(&store, Workload::ReadMissing, |load| load.tail_bytes = 8);
        assert_eq!(missing.found, Some((0, 1000)));
        let scan = run(&store, Workload::ReadSeq, |load| load.operations = 5000);
        assert_eq!((scan.operations, scan.bytes, scan.found), (1000, 116_000, None));
        let scan = run(&store, Workload::ReadReverse, |load| load.operations = 10);
        assert_eq!(scan.operations, 10);
        let multi = run(&store, Workload::MultiReadRandom, |load| load.batch = 7);
        assert_eq!((multi.operations, multi.found), (1000, Some((1000, 1000))));
        let seek = run(&store, Workload::SeekRandom, |load| load.seek_nexts = 0);
        assert_eq!((seek.found, seek.bytes), (Some((1000, 1000)), 116_000));
        let delete = run(&store, Workload::DeleteSeq, |load| load.operations = 400);
        assert_eq!(delete.operations, 400);
        let read = run(&store, Workload::ReadSeq, same);
        assert_eq!(read.operations, 600);
        let delete = run(&store, Workload::DeleteSeq, |load| load.batch = 300);
        assert_eq!(delete.operations, 1000);
        assert_eq!(run(&store, Workload::ReadSeq, same).operations, 0);
    }

    #[test]
    fn draws_are_with_replacement_and_streams_differ() {
        let store = MapStore::default();
        run(&store, Workload::FillRandom, |_| {});
        let stored = run(&store, Workload::ReadSeq, |_| {}).operations;
        // 1000 draws of 1000 keys leave 1 - 1/e of them; sigma is about 10.
        assert!((580..=684).contains(&stored), "{stored}");
        let (found, asked) = run(&store, Workload::ReadRandom, |_| {}).found.unwrap();
        assert!(found < asked, "reads do not replay the writes' draws");
        let again = MapStore::default();
        run(&again, Workload::FillRandom, |load| load.batch = 13);
        assert_eq!(run(&again, Workload::ReadSeq, |_| {}).operations, stored, "the seed decides");
    }

    #[test]
    fn counts_of_all_threads_are_added_up() {
        let store = MapStore::default();
        run(&store, Workload::FillSeq, |_| {});
        let read = run(&store, Workload::ReadRandom, |load| {
            load.threads = 3;
            load.latencies = true;
        });
        assert_eq!((read.operations, read.found), (3000, Some((3000, 3000))));
        assert_eq!(read.latencies.unwrap().count(), 3000);
    }

    #[test]
    fn a_stop_leaves_a_partial_result() {
        let keys = KeySpace::integers(10, 16).unwrap();
        let values = Values::new(10, 0.5, 1);
        let load = Load {
            keys: &keys,
            values: &values,
            threads: 2,
            operations: u64::MAX,
            seed: 1,
            stream: 0,
            batch: 1,
            seek_nexts: 0,
            tail_bytes: 1,
            latencies: false,
        };
        let stop = Stop::new();
        let setter = {
            let stop = stop.clone();
            std::thread::spawn(move || {
                std::thread::sleep(std::time::Duration::from_millis(20));
                stop.set();
            })
        };
        let control = Control { stop: &stop, progress: &Silent };
        let store = MapStore::default();
        let partial = measure(&store, Workload::FillRandom, &load, control).unwrap();
        setter.join().unwrap();
        assert!(partial.interrupted && partial.operations > 0);
        assert!(partial.line("fillrandom").ends_with("(interrupted)"));
    }
}
