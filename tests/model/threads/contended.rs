//! Few keys that all threads write, delete, insert and set, and the search for an order that
//! explains all results.
//!
//! Threads go from window to window together. In each they make a few calls on each of its keys;
//! after all windows, each key is read once more, which gives its initial value in its next window.

use std::sync::{Arc, Barrier};

use trommel::{Db, Slice};
use trommel_tests::counters::Counters;
use trommel_tests::settings::{first_seed, rounds};

use super::linearizable::{Clock, callers};
use super::moments::upkeep;
use super::orders::{Call, Step, Value, fit};
use super::{memory, number, seeded, tiny, value};
use crate::rng::Rng;

/// Number of keys in one window.
const KEYS: usize = 3;
/// Number of windows between two checks.
const WINDOWS: usize = 100;
/// Number of checks of one store.
const ROUNDS: usize = 50;
/// Maximum number of calls on one key in one window, including the last read.
const CALLS: usize = 20;

fn seen(found: Option<Slice>) -> Value {
    found.map_or(0, |value| number(&value) as Value)
}

/// The bytes of a value; none for absence.
fn bytes(of: Value) -> Option<Vec<u8>> {
    (of != 0).then(|| value(u64::from(of)))
}

struct Caller<'a> {
    db: &'a Db,
    clock: &'a Clock,
    barrier: &'a Barrier,
    thread: usize,
    callers: usize,
    next: Value,
    rng: Rng,
}

impl Caller<'_> {
    /// A value that nobody else writes.
    fn fresh(&mut self) -> Value {
        self.next += self.callers as Value;
        self.next
    }

    /// Makes a call; `known` is this thread's latest knowledge of the key.
    fn step(&mut self, key: &str, known: &mut Value) -> Step {
        let db = self.db;
        match self.rng.below(12) {
            0 | 1 => {
                let new = self.fresh();
                db.put(key, value(u64::from(new))).unwrap();
                *known = new;
                Step::Put(new)
            }
            2 => {
                db.delete(key).unwrap();
                *known = 0;
                Step::Delete
            }
            3 => Step::Contains(db.contains_key(key).unwrap()),
            4 | 5 => {
                let new = self.fresh();
                let inserted = db.insert_if_absent(key, value(u64::from(new))).unwrap();
                *known = if inserted { new } else { *known };
                Step::Insert(new, inserted)
            }
            6..10 => {
                let new = if self.rng.once_in(4) { 0 } else { self.fresh() };
                let (expected, to) = (bytes(*known), bytes(new));
                let set = db.compare_and_set(key, expected.as_deref(), to.as_deref()).unwrap();
                let step = Step::Set(*known, new, set);
                *known = if set { new } else { *known };
                step
            }
            _ => {
                *known = seen(db.get(key).unwrap());
                Step::Get(*known)
            }
        }
    }

    /// Runs all windows of a round; returns the calls of each key.
    fn run(mut self) -> (Vec<Vec<Call>>, Value) {
        let each = (CALLS - 1) / self.callers;
        let mut calls = vec![Vec::new(); WINDOWS * KEYS];
        for window in 0..WINDOWS {
            let keys: Vec<String> = (0..KEYS).map(|key| name(window * KEYS + key)).collect();
            let mut known = [0; KEYS];
            // The same for all threads, so that they collide.
            let shared = &mut Rng::new(window as u64);
            let mut order: Vec<usize> = (0..each * KEYS).map(|at| at % KEYS).collect();
            for at in (1..order.len()).rev() {
                order.swap(at, shared.below(at + 1));
            }
            if self.rng.once_in(200) {
                upkeep(self.db, &mut self.rng);
            }
            self.barrier.wait();
            for key in order {
                let start = self.clock.now();
                let step = self.step(&keys[key], &mut known[key]);
                let end = self.clock.now();
                calls[window * KEYS + key].push(Call { thread: self.thread, start, end, step });
            }
        }
        (calls, self.next)
    }
}

fn name(key: usize) -> String {
    format!("contended/{key:04}")
}

/// The counters of one store.
#[derive(Default)]
struct Tally {
    calls: u64,
    windows: u64,
    overlaps: u64,
    set: u64,
    refused: u64,
    flushes: u64,
}

/// Checks that each window of the round has an order; the last value of each key is the first of
/// its next window.
fn judge(calls: &[Vec<Call>], values: &mut [Value], tally: &mut Tally) {
    for (key, calls) in calls.iter().enumerate() {
        let mut in_time = calls.clone();
        in_time.sort_by_key(|call| call.start);
        assert!(
            fit(&in_time, values[key]),
            "no order explains the calls of {}, which was {} before: {in_time:#?}",
            name(key),
            values[key]
        );
        let Some(Call { step: Step::Get(last), .. }) = in_time.last() else {
            unreachable!("the last call is a read")
        };
        values[key] = *last;
        tally.windows += 1;
        tally.calls += calls.len() as u64;
        tally.overlaps +=
            in_time.windows(2).filter(|pair| pair[1].start < pair[0].end).count() as u64;
        for call in calls {
            match call.step {
                Step::Set(_, _, true) | Step::Insert(_, true) => tally.set += 1,
                Step::Set(_, _, false) | Step::Insert(_, false) => tally.refused += 1,
                _ => {}
            }
        }
    }
}

fn one_store(seed: u64, callers: usize) -> Tally {
    let options = tiny(memory()).background_threads(1 + seed as usize % 2);
    let db = Db::open("/contended", options.writes(|w| w.write_buffer_bytes(8 << 10))).unwrap();
    let (clock, barrier) = (Arc::new(Clock::default()), Barrier::new(callers));
    let mut values: Vec<Value> = vec![0; WINDOWS * KEYS];
    let mut next: Vec<Value> = (0..callers as Value).collect();
    let mut tally = Tally::default();
    for round in 0..ROUNDS {
        let mut calls = vec![Vec::new(); WINDOWS * KEYS];
        std::thread::scope(|scope| {
            let (db, clock, barrier) = (&db, &clock, &barrier);
            let threads: Vec<_> = (0..callers)
                .map(|thread| {
                    let rng = Rng::new(seed << 16 | (round << 8 | thread) as u64);
                    let next = next[thread];
                    let caller = Caller { db, clock, barrier, thread, callers, next, rng };
                    scope.spawn(move || caller.run())
                })
                .collect();
            for (thread, caller) in threads.into_iter().enumerate() {
                let (made, last) = caller.join().expect("no thread panics");
                calls.iter_mut().zip(made).for_each(|(all, made)| all.extend(made));
                next[thread] = last;
            }
        });
        for (key, calls) in calls.iter_mut().enumerate() {
            let start = clock.now();
            let step = Step::Get(seen(db.get(name(key)).unwrap()));
            calls.push(Call { thread: callers, start, end: clock.now(), step });
        }
        judge(&calls, &mut values, &mut tally);
    }
    let stats = db.stats();
    assert!(stats.background.flushes.count > 50, "too quiet: {stats}");
    tally.flushes = stats.background.flushes.count;
    db.close().unwrap();
    tally
}

#[test]
fn every_window_has_an_order() {
    let mut counters = Counters::new("model/contended");
    let callers = callers();
    for seed in first_seed()..first_seed() + rounds(6) {
        let tally = seeded(seed, move || one_store(seed, callers));
        counters.add("stores", 1);
        counters.add("calls", tally.calls);
        counters.add("windows", tally.windows);
        counters.add("calls.overlapping", tally.overlaps);
        counters.add("conditions.held", tally.set);
        counters.add("conditions.failed", tally.refused);
        counters.add("flushes", tally.flushes);
    }
    assert!(counters.get("calls.overlapping") > 0, "the threads never met");
    counters.finish();
}
