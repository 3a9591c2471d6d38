//! Keys with one writer each, read by all in every possible way: millions of calls that must fit
//! into one order.

use std::sync::atomic::{AtomicU64, Ordering};

use trommel::{Db, Range, Slice, Snapshot, WriteBatch};
use trommel_tests::counters::Counters;
use trommel_tests::settings::{first_seed, rounds, scale};

use super::generations::{Checker, Fact, History, is_removal};
use super::moments::upkeep;
use super::{memory, number, seeded, tiny, value};
use crate::rng::Rng;

/// Number of keys of one writer.
const KEYS: usize = 12;
/// Calls of one thread between two checks.
const CALLS: usize = 40_000;
/// Number of checks of one store.
const ROUNDS: usize = 2;

/// Number of threads; more in a soak.
pub(super) fn callers() -> usize {
    if scale() > 1 { 8 } else { 4 }
}

/// A clock that never returns the same time twice.
#[derive(Debug, Default)]
pub(super) struct Clock(AtomicU64);

impl Clock {
    pub(super) fn now(&self) -> u64 {
        self.0.fetch_add(1, Ordering::SeqCst)
    }
}

fn name(key: usize) -> String {
    // Keys of different writers alternate in key order.
    format!("key/{key:03}")
}

fn saw(found: Option<Slice>) -> Fact {
    found.map_or(Fact::Missing, |value| Fact::Saw(number(&value) as u32))
}

/// A snapshot that is read from time to time, and the values it returned.
struct Held {
    snapshot: Snapshot,
    taken: (u64, u64),
    shown: Vec<Option<Fact>>,
}

impl Held {
    fn note(&mut self, key: usize, fact: Fact) {
        let before = self.shown[key].replace(fact);
        assert!(before.is_none_or(|before| before == fact), "key {key}: {before:?}, then {fact:?}");
    }
}

struct Caller<'a> {
    db: &'a Db,
    clock: &'a Clock,
    keys: &'a [String],
    mine: std::ops::Range<usize>,
    written: Vec<u32>,
    rng: Rng,
    held: Option<Held>,
    history: History,
    facts: u64,
}

impl Caller<'_> {
    /// Makes a call and records its facts, with the time before and after it.
    fn call<T>(
        &mut self,
        what: &'static str,
        act: impl FnOnce(&Db) -> trommel::Result<T>,
        facts: impl FnOnce(T) -> Vec<(usize, Fact)>,
    ) {
        let start = self.clock.now();
        let outcome = act(self.db);
        let end = self.clock.now();
        let facts = facts(outcome.unwrap_or_else(|error| panic!("{what}: {error}")));
        self.facts += facts.len() as u64;
        self.history.add(what, (start, end), facts);
    }

    /// Writes the next generation of a key, or of several in one batch.
    fn write(&mut self) {
        let count = if self.rng.once_in(4) { self.rng.within(2, 4) } else { 1 };
        let first = self.rng.below(KEYS);
        let facts: Vec<(usize, Fact)> = (0..count)
            .map(|at| {
                let place = (first + at) % KEYS;
                self.written[place] += 1;
                (self.mine.start + place, Fact::Wrote(self.written[place]))
            })
            .collect();
        let mut batch = WriteBatch::new();
        for (key, fact) in &facts {
            let Fact::Wrote(generation) = *fact else { unreachable!("only writes") };
            match is_removal(*key, generation) {
                true => batch.delete(&self.keys[*key]),
                false => batch.put(&self.keys[*key], value(u64::from(generation))),
            };
        }
        self.call("write", |db| db.write(batch), |_| facts);
    }

    fn any(&mut self) -> usize {
        self.rng.below(self.keys.len())
    }

    /// All keys in a scan, whose point in time is that of the call.
    fn scan(&mut self) {
        let (count, backward) = (self.keys.len(), self.rng.once_in(2));
        let range: fn(&Db) -> Range = match self.rng.below(3) {
            0 => |db| db.iter(),
            1 => |db| db.prefix("key/"),
            _ => |db| db.range("key/".."key0"),
        };
        self.call("scan", |db| Ok(range(db)), |range| all(range, count, backward));
    }

    /// Takes a snapshot, reads the held one, or drops it.
    fn hold(&mut self) {
        let Some(mut held) = self.held.take() else {
            let start = self.clock.now();
            let snapshot = self.db.snapshot();
            let taken = (start, self.clock.now());
            self.held = Some(Held { snapshot, taken, shown: vec![None; self.keys.len()] });
            return;
        };
        match self.rng.below(16) {
            0 => return self.release(held),
            1 => {
                let backward = self.rng.once_in(2);
                for (key, fact) in all(held.snapshot.iter(), self.keys.len(), backward) {
                    held.note(key, fact);
                }
            }
            2 => {
                let found = held.snapshot.multi_get(self.keys).unwrap();
                found.into_iter().enumerate().for_each(|(key, found)| held.note(key, saw(found)));
            }
            _ => {
                let key = self.any();
                let found = held.snapshot.get(&self.keys[key]).unwrap();
                held.note(key, saw(found));
            }
        }
        self.held = Some(held);
    }

    /// Records the values of a snapshot, all at the point in time at which it was taken.
    fn release(&mut self, held: Held) {
        let shown = held.shown.into_iter().enumerate();
        let facts: Vec<_> = shown.filter_map(|(key, fact)| Some((key, fact?))).collect();
        self.facts += facts.len() as u64;
        self.history.add("snapshot", held.taken, facts);
    }

    fn run(mut self) -> (History, Vec<u32>, u64) {
        for _ in 0..CALLS {
            match self.rng.below(1_000) {
                0..250 => self.write(),
                250..650 => {
                    let key = self.any();
                    let name = &self.keys[key];
                    self.call("get", |db| db.get(name), |found| vec![(key, saw(found))]);
                }
                650..730 => {
                    let key = self.any();
                    let name = &self.keys[key];
                    let fact = |there| if there { Fact::There } else { Fact::Missing };
                    self.call(
                        "contains_key",
                        |db| db.contains_key(name),
                        |there| vec![(key, fact(there))],
                    );
                }
                730..820 => {
                    let first = self.any();
                    let last = (first + 6).min(self.keys.len());
                    let names = &self.keys[first..last];
                    self.call(
                        "multi_get",
                        |db| db.multi_get(names),
                        |found| (first..).zip(found.into_iter().map(saw)).collect(),
                    );
                }
                820..850 => self.scan(),
                850..999 => self.hold(),
                _ if self.rng.once_in(4) => upkeep(self.db, &mut self.rng),
                _ => std::thread::yield_now(),
            }
        }
        if let Some(held) = self.held.take() {
            self.release(held);
        }
        (self.history, self.written, self.facts)
    }
}

/// The facts about each key from a scan of all keys.
fn all(range: Range, keys: usize, backward: bool) -> Vec<(usize, Fact)> {
    let mut facts: Vec<_> = (0..keys).map(|key| (key, Fact::Missing)).collect();
    let mut note = |entry: trommel::Result<(Slice, Slice)>| {
        let (name, value) = entry.expect("a scan reads on");
        let key: usize = std::str::from_utf8(&name[4..]).unwrap().parse().unwrap();
        assert_eq!(facts[key].1, Fact::Missing, "key {key} twice in one scan");
        facts[key].1 = saw(Some(value));
    };
    match backward {
        true => range.rev().for_each(&mut note),
        false => range.for_each(&mut note),
    }
    facts
}

/// The counters of one store: calls, facts, flushes and compactions.
struct Tally {
    facts: u64,
    flushes: u64,
    compactions: u64,
}

fn one_store(seed: u64, callers: usize) -> Tally {
    let options = tiny(memory()).background_threads(1 + seed as usize % 2);
    let db = Db::open("/generations", options).unwrap();
    let clock = Clock::default();
    let keys: Vec<String> = (0..callers * KEYS).map(name).collect();
    let mut checker = Checker::new(keys.len());
    let mut written = vec![vec![0; KEYS]; callers];
    let mut facts = 0;
    for round in 0..ROUNDS {
        let done: Vec<_> = std::thread::scope(|scope| {
            let (db, clock, keys) = (&db, &clock, &keys);
            let threads: Vec<_> = (0..callers)
                .map(|thread| {
                    let caller = Caller {
                        db,
                        clock,
                        keys,
                        mine: thread * KEYS..(thread + 1) * KEYS,
                        written: std::mem::take(&mut written[thread]),
                        rng: Rng::new(seed << 16 | (round << 8 | thread) as u64),
                        held: None,
                        history: History::default(),
                        facts: 0,
                    };
                    scope.spawn(move || caller.run())
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().expect("no thread panics")).collect()
        });
        let mut histories = Vec::new();
        for (thread, (history, last, learnt)) in done.into_iter().enumerate() {
            histories.push(history);
            written[thread] = last;
            facts += learnt;
        }
        if let Err(why) = checker.check(&histories) {
            panic!("round {round}: {why}");
        }
    }
    let stats = db.stats();
    assert!(
        stats.background.flushes.count > 50 && stats.background.compactions.count > 20,
        "too quiet: {stats}"
    );
    db.close().unwrap();
    Tally {
        facts,
        flushes: stats.background.flushes.count,
        compactions: stats.background.compactions.count,
    }
}

#[test]
fn all_calls_fit_into_one_order() {
    let mut counters = Counters::new("model/linearizable");
    let callers = callers();
    for seed in first_seed()..first_seed() + rounds(8) {
        let tally = seeded(seed, move || one_store(seed, callers));
        counters.add("stores", 1);
        counters.add("calls", (callers * CALLS * ROUNDS) as u64);
        counters.add("facts", tally.facts);
        counters.add("flushes", tally.flushes);
        counters.add("compactions", tally.compactions);
    }
    counters.finish();
}
