use std::sync::atomic::AtomicU64;

use super::*;
use crate::control::{Silent, Stop};
use crate::map_store::MapStore;
use crate::measured::Kind;

fn run(store: &dyn Store, workload: Workload, change: impl Fn(&mut Load<'_>)) -> Measured {
    let keys = KeySpace::integers(1000, 16).unwrap();
    let values = Values::new(100, 0.5, 1);
    let mut load = Load { seed: 1, stream: workload as u64, ..Load::new(&keys, &values) };
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
    let missing = run(&store, Workload::ReadMissing, |load| load.options.tail_bytes = 8);
    assert_eq!(missing.found, Some((0, 1000)));
    let scan = run(&store, Workload::ReadSeq, |load| load.operations = 5000);
    assert_eq!((scan.operations, scan.bytes, scan.found), (1000, 116_000, None));
    let scan = run(&store, Workload::ReadReverse, |load| load.operations = 10);
    assert_eq!(scan.operations, 10);
    let multi = run(&store, Workload::MultiReadRandom, |load| load.options.batch = 7);
    assert_eq!((multi.operations, multi.found), (1000, Some((1000, 1000))));
    let seek = run(&store, Workload::SeekRandom, |load| load.options.seek_nexts = 0);
    assert_eq!((seek.found, seek.bytes), (Some((1000, 1000)), 116_000));
    let delete = run(&store, Workload::DeleteSeq, |load| load.operations = 400);
    assert_eq!(delete.operations, 400);
    let read = run(&store, Workload::ReadSeq, same);
    assert_eq!(read.operations, 600);
    let delete = run(&store, Workload::DeleteSeq, |load| load.options.batch = 300);
    assert_eq!(delete.operations, 1000);
    assert_eq!(run(&store, Workload::ReadSeq, same).operations, 0);
}

#[test]
fn seeks_keep_to_prefixes() {
    let store = MapStore::default();
    run(&store, Workload::FillSeq, |_| {});
    let seek = |bytes, missing, backward| {
        run(&store, Workload::SeekRandom, |load| {
            (load.options.seek_nexts, load.options.backward) = (300, backward);
            load.options.prefixes = Some(PrefixSeeks { bytes, missing });
        })
    };
    // The prefix of a whole key matches that key; one of seven bytes matches at most 256.
    for backward in [false, true] {
        let whole = seek(16, false, backward);
        assert_eq!((whole.found, whole.bytes), (Some((1000, 1000)), 116_000));
        let some = seek(7, false, backward);
        assert_eq!(some.found, Some((1000, 1000)));
        assert!((100..=160).contains(&(some.bytes / 116_000)), "{} bytes", some.bytes);
        for bytes in [9, 16] {
            let missing = seek(bytes, true, backward);
            assert_eq!((missing.found, missing.bytes), (Some((0, 1000)), 0));
        }
    }
    let keys = KeySpace::integers(1000, 16).unwrap();
    let has = |bytes| keys.has_missing_prefixes(bytes);
    assert!(has(9) && has(16) && !has(8) && !has(17));
}

#[test]
fn draws_are_with_replacement_and_streams_differ() {
    let store = MapStore::default();
    run(&store, Workload::FillRandom, |_| {});
    let stored = run(&store, Workload::ReadSeq, |_| {}).operations;
    // 1000 draws of 1000 keys hit 1 - 1/e of them; sigma is about 10.
    assert!((580..=684).contains(&stored), "{stored}");
    let (found, lookups) = run(&store, Workload::ReadRandom, |_| {}).found.unwrap();
    assert!(found < lookups, "reads do not replay the writes' draws");
    let again = MapStore::default();
    run(&again, Workload::FillRandom, |load| load.options.batch = 13);
    assert_eq!(run(&again, Workload::ReadSeq, |_| {}).operations, stored, "the seed decides");
}

#[test]
fn counts_of_all_threads_are_added_up() {
    let store = MapStore::default();
    run(&store, Workload::FillSeq, |_| {});
    let read = run(&store, Workload::ReadRandom, |load| {
        load.threads = 3;
        load.options.latencies = true;
    });
    assert_eq!((read.operations, read.found), (3000, Some((3000, 3000))));
    assert_eq!(read.latencies.unwrap().count(), 3000);
}

#[test]
fn a_stop_leaves_a_partial_result() {
    let keys = KeySpace::integers(10, 16).unwrap();
    let values = Values::new(10, 0.5, 1);
    let load = Load { threads: 2, operations: u64::MAX, ..Load::new(&keys, &values) };
    let stop = Stop::new();
    let control = Control { stop: &stop, progress: &Silent };
    let store = HeldUp::default();
    let partial = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !store.moved.load(Relaxed) {
                std::thread::yield_now();
            }
            stop.set();
        });
        measure(&store, Workload::FillRandom, &load, control).unwrap()
    });
    assert!(partial.interrupted && partial.operations > 0);
    assert!(partial.line("fillrandom").ends_with("(interrupted)"));
}

#[test]
fn fills_of_every_sort_write_what_they_say() {
    let count = |store: &MapStore| run(store, Workload::ReadSeq, |_| {}).operations;
    for threads in [1, 3] {
        let store = MapStore::default();
        let unique = run(&store, Workload::FillUniqueRandom, |load| {
            load.threads = threads;
            load.operations = load.operations.div_ceil(threads as u64);
        });
        assert_eq!((unique.operations, count(&store)), (1000, 1000), "the threads share the keys");
    }
    let store = MapStore::default();
    let batches = run(&store, Workload::FillBatch, |load| {
        (load.options.batch, load.options.latencies) = (64, true);
    });
    assert_eq!((batches.operations, count(&store)), (1000, 1000));
    assert_eq!(batches.latencies.unwrap().count(), 16, "one time for each write of 64");
    let store = MapStore::default();
    let durable = run(&store, Workload::FillSync, |load| (load.operations, load.range) = (20, 10));
    assert_eq!(durable.operations, 20);
    assert!((2..=10).contains(&count(&store)), "keys are drawn from the range");
    assert_eq!(run(&store, Workload::Fill100K, |load| load.operations = 3).operations, 3);
}

#[test]
fn a_hot_range_and_iterators_are_read() {
    let store = MapStore::default();
    run(&store, Workload::FillSeq, |load| load.operations = 10);
    let hot = run(&store, Workload::ReadHot, |load| load.range = 10);
    assert_eq!(hot.found, Some((1000, 1000)));
    let all = run(&store, Workload::ReadRandom, |_| {}).found.unwrap();
    assert!(all.0 < 50, "{all:?}");
    let iterators = run(&store, Workload::NewIterator, |_| {});
    assert_eq!((iterators.operations, iterators.bytes, iterators.found), (1000, 0, None));
    let back = run(&store, Workload::SeekRandom, |load| {
        (load.range, load.options.backward, load.options.seek_nexts) = (10, true, 1000);
    });
    // From key n the scan reads the n keys before it and n itself: 5.5 on average.
    assert!(back.bytes > 4 * 116_000 && back.bytes < 7 * 116_000, "{}", back.bytes);
}

#[test]
fn mixed_workloads_count_each_thing_they_do() {
    let store = MapStore::default();
    run(&store, Workload::FillSeq, |_| {});
    let mixed = run(&store, Workload::ReadRandomWriteRandom, |load| {
        (load.options.read_percent, load.options.latencies, load.threads) = (70, true, 2);
    });
    assert_eq!((mixed.operations, mixed.bytes), (2000, 232_000));
    assert!(mixed.line("x").ends_with(" ( reads:1400 writes:600 total:2000 found:1400)"));
    let kinds: Vec<_> =
        mixed.latencies_by_kind.iter().map(|(kind, all)| (kind.name(), all.count())).collect();
    assert_eq!(kinds, [("read", 1400), ("write", 600)]);
    assert_eq!(mixed.latencies.unwrap().count(), 2000);
    let update = run(&store, Workload::UpdateRandom, |_| {});
    assert!(update.line("x").ends_with(" ( updates:1000 found:1000)"));
    assert_eq!(update.bytes, 2 * 116_000, "each is read and written");
}

#[test]
fn gets_before_puts_hit_at_the_requested_rate() {
    let store = MapStore::default();
    run(&store, Workload::FillSeq, |_| {});
    let stored = |store: &MapStore| {
        run(store, Workload::ReadSeq, |load| load.operations = u64::MAX).operations
    };
    let none = run(&store, Workload::GetThenPut, |load| load.options.hit_rate = 0.0);
    assert_eq!(none.found, Some((0, 1000)));
    assert_eq!(none.tally.of(Kind::Insert), 1000);
    assert_eq!(stored(&store), 2000, "no key is put twice");
    let half =
        run(&store, Workload::GetThenPut, |load| (load.options.hit_rate, load.stream) = (0.5, 99));
    let (found, _) = half.found.unwrap();
    // Five standard deviations of 1000 tosses of a coin.
    assert!((420..=580).contains(&found), "{found}");
    assert_eq!(stored(&store), 2000 + half.tally.of(Kind::Insert));
    assert!(half.line("x").ends_with(&format!("( gets:1000 found:{found} puts:{})", 1000 - found)));
    let all = run(&store, Workload::GetThenPut, |load| load.options.hit_rate = 1.0);
    assert_eq!(all.found, Some((1000, 1000)));
}

#[test]
fn a_background_thread_is_not_counted_among_the_readers() {
    for (workload, what) in [
        (Workload::ReadWhileWriting, "writes)"),
        (Workload::ReadWhileScanning, "entries scanned)"),
        (Workload::SeekRandomWhileWriting, "writes)"),
    ] {
        let store = HeldUp::default();
        run(&store, Workload::FillSeq, |load| load.operations = 500);
        // Without `waits` the readers might finish before the other thread starts.
        store.waits.store(true, Relaxed);
        store.moved.store(false, Relaxed);
        let read = run(&store, workload, |load| (load.threads, load.operations) = (2, 1000));
        assert_eq!(read.operations, 2000, "{workload}");
        let beside = read.beside.clone().unwrap();
        let count: u64 = beside.split(' ').nth(1).unwrap().parse().unwrap();
        assert!(beside.ends_with(what) && count > 0, "{beside}");
        assert!(read.line("x").ends_with(&beside));
    }
}

#[test]
fn the_ycsb_workloads_do_what_their_definitions_say() {
    let load = |store: &MapStore| run(store, Workload::YcsbLoad, |load| load.threads = 2);
    let near = |count: u64, percent: u64| count.abs_diff(percent * 40) <= 250;
    for (workload, expected) in [
        (Workload::YcsbA, [(Kind::Read, 50), (Kind::Update, 50)]),
        (Workload::YcsbB, [(Kind::Read, 95), (Kind::Update, 5)]),
        (Workload::YcsbC, [(Kind::Read, 100), (Kind::Update, 0)]),
        (Workload::YcsbD, [(Kind::Read, 95), (Kind::Insert, 5)]),
        (Workload::YcsbE, [(Kind::Scan, 95), (Kind::Insert, 5)]),
        (Workload::YcsbF, [(Kind::Read, 50), (Kind::ReadModifyWrite, 50)]),
    ] {
        let store = MapStore::default();
        assert_eq!(load(&store).operations, 1000);
        let keys = |store: &MapStore| {
            run(store, Workload::ReadSeq, |load| load.operations = u64::MAX).operations
        };
        assert_eq!(keys(&store), 1000);
        let records = Records::new(1000);
        let measured = {
            let (space, values) = (KeySpace::integers(1000, 16).unwrap(), Values::new(100, 0.5, 1));
            let load = Load {
                threads: 2,
                operations: 2000,
                records: Some(&records),
                ..Load::new(&space, &values)
            };
            let control = Control { stop: &Stop::new(), progress: &Silent };
            measure(&store, workload, &load, control).unwrap()
        };
        assert_eq!(measured.operations, 4000, "{workload}: a read-modify-write is one");
        for (kind, percent) in expected {
            assert!(near(measured.tally.of(kind), percent), "{workload} {kind:?}: {measured:?}");
        }
        let (found, lookups) = measured.found.unwrap();
        assert_eq!(found, lookups, "{workload} looks up stored records only");
        assert_eq!(keys(&store), 1000 + measured.tally.of(Kind::Insert), "{workload}");
    }
}

#[test]
fn scans_of_ycsb_are_of_one_to_a_hundred_entries() {
    let store = MapStore::default();
    run(&store, Workload::YcsbLoad, |_| {});
    let scans = run(&store, Workload::YcsbE, |_| {});
    let entries = (scans.bytes / 116).saturating_sub(scans.tally.of(Kind::Insert)) as f64;
    // 50.5 on average; a few are cut off at the end of the store.
    let mean = entries / scans.tally.of(Kind::Scan) as f64;
    assert!((43.0..54.0).contains(&mean), "{mean}");
}

/// A store whose reads can be delayed.
#[derive(Default)]
struct HeldUp {
    inner: MapStore,
    /// Makes the next get take long.
    is_slow: AtomicBool,
    /// Gets and seeks wait until an entry is put, or a scan starts at the first key.
    waits: AtomicBool,
    moved: AtomicBool,
    /// The store requests values that begin with their keys.
    marks: bool,
    batches: AtomicU64,
}

impl HeldUp {
    fn wait(&self) {
        if self.is_slow.swap(false, Relaxed) {
            std::thread::sleep(SLOW);
        }
        while self.waits.load(Relaxed) && !self.moved.load(Relaxed) {
            std::thread::yield_now();
        }
    }
}

const SLOW: Duration = Duration::from_millis(100);

impl Store for HeldUp {
    fn get(&self, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool, StoreError> {
        self.wait();
        self.inner.get(key, found)
    }
    fn put(&self, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        assert!(!self.marks || value.starts_with(key), "a value of another key");
        self.inner.put(key, value)?;
        self.moved.store(true, Relaxed);
        Ok(())
    }
    fn mark(&self) -> Option<crate::Mark> {
        self.marks.then_some(|key, value| value[..key.len()].copy_from_slice(key))
    }
    fn write(&self, operations: &[crate::Operation<'_>]) -> Result<(), StoreError> {
        self.batches.fetch_add(1, Relaxed);
        for operation in operations {
            if let crate::Operation::Put { key, value } = operation {
                assert!(!self.marks || value.starts_with(key), "a value of another key");
            }
        }
        self.inner.write(operations)
    }
    fn delete(&self, key: &[u8]) -> Result<(), StoreError> {
        self.inner.delete(key)
    }
    fn multi_get(
        &self,
        keys: &[&[u8]],
        found: &mut dyn FnMut(usize, &[u8]),
    ) -> Result<(), StoreError> {
        self.inner.multi_get(keys, found)
    }
    fn scan(
        &self,
        start: Option<&[u8]>,
        direction: crate::Direction,
        visit: crate::Visit<'_>,
    ) -> Result<(), StoreError> {
        if start.is_some() {
            self.wait();
        }
        self.inner.scan(start, direction, &mut |key, value| {
            let goes_on = visit(key, value);
            self.moved.fetch_or(start.is_none(), Relaxed);
            goes_on
        })
    }
    fn verify(&self) -> Result<String, StoreError> {
        self.inner.verify()
    }
    fn close(self: std::sync::Arc<Self>) -> Result<(), StoreError> {
        Ok(())
    }
}

#[test]
fn values_that_are_marked_ahead_stay_with_their_keys() {
    let fills = [
        (Workload::FillRandom, 1, 1),
        (Workload::FillRandom, 1, 13),
        (Workload::FillBatch, 1, 64),
        (Workload::FillSeq, 2, 1),
        (Workload::FillUniqueRandom, 2, 1),
        (Workload::YcsbLoad, 1, 1),
    ];
    let keys = |store: &HeldUp| {
        let mut keys = Vec::new();
        let mut keep = |key: &[u8], _: &[u8]| {
            keys.push(key.to_vec());
            true
        };
        store.inner.scan(None, crate::Direction::Forward, &mut keep).unwrap();
        keys
    };
    for (workload, threads, batch) in fills {
        let store = HeldUp { marks: true, ..HeldUp::default() };
        let measured =
            run(&store, workload, |load| (load.threads, load.options.batch) = (threads, batch));
        let puts = measured.tally.of(Kind::Write);
        assert!(puts > 0 && puts == measured.operations, "{workload}: {measured:?}");
        let batches = if batch > 1 { measured.operations.div_ceil(batch as u64) } else { 0 };
        assert_eq!(store.batches.load(Relaxed), batches, "{workload}");
        let fill = HeldUp::default();
        run(&fill, workload, |load| (load.threads, load.options.batch) = (threads, batch));
        assert_eq!(keys(&store), keys(&fill), "{workload}");
    }
}

/// Gets, of 200, that took at least half as long as the slow one.
fn slow_gets(rate: Option<f64>) -> u64 {
    let store = HeldUp { is_slow: true.into(), ..HeldUp::default() };
    let read = run(&store, Workload::ReadRandom, |load| {
        (load.operations, load.rate, load.options.latencies) = (200, rate, true);
    });
    assert_eq!(read.operations, 200);
    let latencies = read.latencies.unwrap();
    let within = (1..=200).filter(|nth| {
        let percent = f64::from(*nth) * 0.5 - 0.1;
        latencies.percentile(percent) < SLOW.as_micros() as f64 / 2.0
    });
    200 - within.count() as u64
}

#[test]
fn an_open_loop_measures_the_wait_after_a_slow_operation() {
    // A thousand a second: the gets due in the first 50 ms wait for 50 ms or more. How many more do
    // depends on the machine; fewer are impossible.
    assert!(slow_gets(Some(1000.0)) >= 50);
    assert!(slow_gets(None) < 50, "a closed loop sees the slow one, and few that were held up");
}

#[test]
fn a_rate_is_not_exceeded() {
    let store = MapStore::default();
    let start = Instant::now();
    let read = run(&store, Workload::ReadRandom, |load| {
        (load.operations, load.rate, load.threads) = (50, Some(1000.0), 2);
    });
    assert_eq!(read.operations, 100);
    assert!(start.elapsed() >= Duration::from_millis(98), "the last one begins after 99 ms");
}

#[test]
fn a_rate_that_is_not_sustained_is_reported() {
    let store = HeldUp { is_slow: true.into(), ..HeldUp::default() };
    let at = |rate| {
        run(&store, Workload::ReadRandom, |load| {
            (load.operations, load.rate, load.options.latencies) = (u64::MAX, Some(rate), true);
            load.duration = Some(SLOW / 2);
        })
    };
    let slow = at(10_000.0);
    assert!(slow.overdue > 0, "those that wait behind the slow one are due before the end");
    assert!(slow.line("readrandom").contains("rate not held: "), "{}", slow.line("readrandom"));
    assert_eq!(at(1.0).overdue, 0);
}

#[test]
fn time_ends_a_workload() {
    let store = MapStore::default();
    for rate in [None, Some(0.001)] {
        let read = run(&store, Workload::ReadRandom, |load| {
            (load.operations, load.rate) = (u64::MAX, rate);
            load.duration = Some(Duration::from_millis(300));
        });
        // A thread may begin later than the clock of the duration.
        assert!(read.time.wall >= Duration::from_millis(200) && !read.interrupted);
        assert!(read.operations > 0);
        let counted: u64 = read.series.iter().map(|point| point.1).sum();
        assert_eq!(counted, read.operations, "the series holds all of them");
    }
}
