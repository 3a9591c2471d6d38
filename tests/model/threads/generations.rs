//! Checks whether the observations of keys with one writer each fit into one order:
//! linearizability, in time linear in the history.
//!
//! The writer of a key gives it the generations 1, 2, 3 and so on; generation 0 is the key before
//! its first write. A shared clock is read before each call and after it, so that of two calls one
//! is known to precede the other, or to overlap it.
//!
//! 1. Starts and ends of all calls are processed in the order of the clock.
//! 2. A write that starts raises what has *begun* for its key; one that ends raises the *floor*.
//! 3. A read records the floor of its keys when it starts.
//! 4. When it ends, the least generation at or above that floor that it can have seen must have
//!    begun. That generation is the new floor if it is higher: later reads see at least this
//!    generation.
//!
//! For one key this is exact: a history passes if and only if it is linearizable. Reads that only
//! report a missing key match several generations; the least of them constrains the others least.
//! Across keys, reads of all keys at one point in time must form a chain: of any two, one is not
//! older than the other in any key.

use std::fmt::Write as _;
use std::ops::Range;

/// At every multiple of this generation the keys with odd numbers are deleted instead of put.
pub(super) const REMOVAL: u32 = 8;

/// Whether the key is absent in this generation.
pub(super) fn is_removal(key: usize, generation: u32) -> bool {
    generation == 0 || key % 2 == 1 && generation.is_multiple_of(REMOVAL)
}

/// The effect of a call on a key, or its observation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fact {
    Wrote(u32),
    Saw(u32),
    /// There was no entry.
    Missing,
    /// There was an entry, of unknown generation.
    There,
}

impl Fact {
    /// The least generation at or above `floor` that matches this fact.
    fn least(self, key: usize, floor: u32) -> Option<u32> {
        match self {
            Self::Wrote(generation) => Some(generation),
            Self::Saw(generation) => {
                (generation >= floor && !is_removal(key, generation)).then_some(generation)
            }
            Self::Missing if key % 2 == 1 => Some(floor.next_multiple_of(REMOVAL)),
            Self::Missing => (floor == 0).then_some(0),
            Self::There => Some(floor + u32::from(is_removal(key, floor))),
        }
    }
}

/// One call, or several reads at one point in time.
#[derive(Debug)]
struct Moment {
    what: &'static str,
    start: u64,
    end: u64,
    facts: Range<usize>,
}

/// The calls of one thread.
#[derive(Debug, Default)]
pub(super) struct History {
    moments: Vec<Moment>,
    facts: Vec<(usize, Fact)>,
}

impl History {
    /// Adds an effect or an observation between the two times of the clock.
    pub(super) fn add(
        &mut self,
        what: &'static str,
        (start, end): (u64, u64),
        facts: impl IntoIterator<Item = (usize, Fact)>,
    ) {
        let first = self.facts.len();
        self.facts.extend(facts);
        self.moments.push(Moment { what, start, end, facts: first..self.facts.len() });
    }

    fn facts(&self, moment: &Moment) -> &[(usize, Fact)] {
        &self.facts[moment.facts.clone()]
    }
}

/// The knowledge about all keys at the end of the histories.
#[derive(Debug)]
pub(super) struct Checker {
    begun: Vec<u32>,
    floor: Vec<u32>,
}

impl Checker {
    /// For this many keys, none of which was ever written.
    pub(super) fn new(keys: usize) -> Self {
        Self { begun: vec![0; keys], floor: vec![0; keys] }
    }

    /// Checks whether the threads' histories, all of which start after earlier ones ended, fit into
    /// one order; if not, describes the violation and the calls around it.
    pub(super) fn check(&mut self, threads: &[History]) -> Result<(), String> {
        let mut floors: Vec<Vec<u32>> =
            threads.iter().map(|history| vec![0; history.facts.len()]).collect();
        for (thread, at, is_end) in in_order(threads) {
            let moment = &threads[thread].moments[at];
            for index in moment.facts.clone() {
                let (key, fact) = threads[thread].facts[index];
                match (fact, is_end) {
                    (Fact::Wrote(generation), false) => {
                        assert_eq!(generation, self.begun[key] + 1, "the writer counts");
                        self.begun[key] = generation;
                    }
                    (_, false) => floors[thread][index] = self.floor[key],
                    (_, true) => {
                        let floor = floors[thread][index];
                        let least = fact.least(key, floor);
                        let Some(least) = least.filter(|least| *least <= self.begun[key]) else {
                            let begun = self.begun[key];
                            return Err(format!(
                                "key {key}: {fact:?}, but {floor} was there before and {begun} \
                                 had begun\n{}",
                                around(threads, key, moment)
                            ));
                        };
                        self.floor[key] = self.floor[key].max(least);
                    }
                }
            }
        }
        chain(threads, self.begun.len())
    }
}

/// Starts and ends (true) of all moments, each as thread and index, in the order of the clock.
fn in_order(threads: &[History]) -> impl Iterator<Item = (usize, usize, bool)> {
    let moments = || threads.iter().flat_map(|history| &history.moments);
    let first = moments().map(|moment| moment.start).min().unwrap_or(0);
    let last = moments().map(|moment| moment.end).max().unwrap_or(0);
    let mut slots = vec![None; (last - first + 1) as usize];
    for (thread, history) in threads.iter().enumerate() {
        for (at, moment) in history.moments.iter().enumerate() {
            for (time, is_end) in [(moment.start, false), (moment.end, true)] {
                let before = slots[(time - first) as usize].replace((thread, at, is_end));
                assert_eq!(before, None, "the clock never shows the same time twice");
            }
        }
    }
    slots.into_iter().flatten()
}

/// The part of the history of a key around a moment.
fn around(threads: &[History], key: usize, moment: &Moment) -> String {
    const MARGIN: u64 = 60;
    let mut near = Vec::new();
    for (thread, history) in threads.iter().enumerate() {
        for other in &history.moments {
            let is_near =
                other.end + MARGIN >= moment.start && other.start <= moment.end + MARGIN / 4;
            let facts = history.facts(other).iter().filter(|(of, _)| *of == key);
            near.extend(facts.filter(|_| is_near).map(|(_, fact)| (thread, other, *fact)));
        }
    }
    near.sort_by_key(|(_, other, _)| other.start);
    let mut text = String::new();
    for (thread, other, fact) in near {
        let mark = if std::ptr::eq(other, moment) { "  <--" } else { "" };
        let (start, end, what) = (other.start, other.end, other.what);
        let _ = writeln!(text, "  {start:>9}..{end:<9} thread {thread} {what}: {fact:?}{mark}");
    }
    text
}

/// Checks that the moments that observed all keys with even numbers form a chain.
fn chain(threads: &[History], keys: usize) -> Result<(), String> {
    let mut views: Vec<(u64, Vec<u32>, &Moment)> = Vec::new();
    for history in threads {
        for moment in history.moments.iter().filter(|moment| moment.facts.len() >= keys) {
            let mut view = vec![None; keys.div_ceil(2)];
            for (key, fact) in history.facts(moment).iter().filter(|(key, _)| key % 2 == 0) {
                view[key / 2] = match fact {
                    Fact::Saw(generation) => Some(*generation),
                    Fact::Missing => Some(0),
                    _ => None,
                };
            }
            if let Some(view) = view.into_iter().collect::<Option<Vec<u32>>>() {
                let sum = view.iter().copied().map(u64::from).sum();
                views.push((sum, view, moment));
            }
        }
    }
    views.sort_by_key(|(sum, _, _)| *sum);
    for pair in views.windows(2) {
        let [(_, older, first), (_, newer, second)] = pair else { continue };
        let behind = older.iter().zip(newer).position(|(older, newer)| older > newer);
        if let Some(at) = behind {
            return Err(format!(
                "two moments, neither of them the older one, for example in key {}:\n  \
                 {}..{} {}: {older:?}\n  {}..{} {}: {newer:?}",
                2 * at,
                first.start,
                first.end,
                first.what,
                second.start,
                second.end,
                second.what
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One fact about one key at a time, each as thread, start, end, key, fact.
    fn verdict(calls: &[(usize, u64, u64, usize, Fact)]) -> Result<(), String> {
        let mut threads: Vec<History> = (0..3).map(|_| History::default()).collect();
        for (thread, start, end, key, fact) in calls {
            threads[*thread].add("call", (*start, *end), [(*key, *fact)]);
        }
        Checker::new(4).check(&threads)
    }

    use Fact::{Missing, Saw, There, Wrote};

    #[test]
    fn right_histories_pass() {
        let right: [&[_]; 5] = [
            // Sequential.
            &[(0, 0, 1, 0, Wrote(1)), (1, 2, 3, 0, Saw(1)), (2, 4, 5, 0, There)],
            // During the write, before and after its effect.
            &[(0, 0, 9, 0, Wrote(1)), (1, 1, 2, 0, Missing), (1, 3, 4, 0, Saw(1))],
            // Two overlapping reads may take effect in the opposite order of their ends.
            &[(0, 0, 9, 0, Wrote(1)), (1, 1, 4, 0, Saw(1)), (2, 2, 5, 0, Missing)],
            // A read that overlaps two writes may see any of three generations.
            &[(0, 1, 2, 0, Wrote(1)), (0, 3, 4, 0, Wrote(2)), (1, 0, 5, 0, Saw(1))],
            // Keys are independent.
            &[(0, 0, 1, 0, Wrote(1)), (1, 2, 3, 1, Missing), (1, 4, 5, 2, Missing)],
        ];
        for calls in right {
            verdict(calls).unwrap();
        }
    }

    #[test]
    fn wrong_histories_do_not() {
        let wrong: [&[_]; 6] = [
            // A stale read: the write was acknowledged before it began.
            &[(0, 0, 1, 0, Wrote(1)), (0, 2, 3, 0, Wrote(2)), (1, 4, 5, 0, Saw(1))],
            &[(0, 0, 1, 0, Wrote(1)), (1, 2, 3, 0, Missing)],
            // Back in time: another reader had already returned it.
            &[(0, 0, 9, 0, Wrote(1)), (1, 1, 2, 0, Saw(1)), (2, 3, 4, 0, Missing)],
            &[(0, 0, 9, 0, Wrote(1)), (1, 1, 2, 0, There), (2, 3, 4, 0, Missing)],
            // A read of a value that was never written.
            &[(0, 0, 1, 0, Wrote(1)), (1, 2, 3, 0, Saw(2))],
            // A read of a value that is written only later.
            &[(1, 0, 1, 0, Saw(1)), (0, 2, 3, 0, Wrote(1))],
        ];
        for calls in wrong {
            let reported = verdict(calls).unwrap_err();
            assert!(reported.contains("<--") && reported.contains("key 0"), "{reported}");
        }
    }

    #[test]
    fn a_deleted_key_may_be_missing_and_only_then() {
        let write = |generation: u32| {
            let start = u64::from(generation) * 10;
            (0, start, start + 1, 1, Wrote(generation))
        };
        let upto = |last: u32, fact| {
            let mut calls: Vec<_> = (1..=last).map(write).collect();
            calls.push((1, 1_000, 1_001, 1, fact));
            verdict(&calls)
        };
        upto(REMOVAL, Missing).unwrap();
        upto(REMOVAL, There).unwrap_err();
        upto(REMOVAL, Saw(REMOVAL)).unwrap_err();
        upto(REMOVAL - 1, Missing).unwrap_err();
        upto(REMOVAL + 1, Missing).unwrap_err();
        upto(REMOVAL + 1, There).unwrap();
    }

    #[test]
    fn moments_that_contradict_each_other_do_not_pass() {
        let mut threads: Vec<History> = (0..3).map(|_| History::default()).collect();
        threads[0].add("put", (0, 8), [(0, Wrote(1))]);
        threads[1].add("put", (1, 9), [(2, Wrote(1))]);
        let all = |first, third| [(0, first), (1, Missing), (2, third), (3, Missing)];
        threads[2].add("scan", (2, 3), all(Missing, Missing));
        threads[0].add("scan", (10, 11), all(Saw(1), Saw(1)));
        Checker::new(4).check(&threads).unwrap();
        // Each of the two is right for each key, but no order contains both.
        threads[1].add("scan", (4, 7), all(Saw(1), Missing));
        threads[2].add("scan", (5, 6), all(Missing, Saw(1)));
        let reported = Checker::new(4).check(&threads).unwrap_err();
        assert!(reported.contains("neither of them the older one"), "{reported}");
    }
}
