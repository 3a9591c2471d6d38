//! Checks that filters pass no more keys than they should, and raises an alarm if they do.
//!
//! A rate above the expected one proves nothing by itself: one absent key that is a false positive,
//! looked up a million times, produces any rate. What counts is the number of *distinct* keys that
//! pass. So for each false positive, and for nothing else in a lookup, the key's hash and the table
//! are recorded:
//!
//! 1. For each level and kind of filter, a *window* counts how often each key passed each table. It
//!    also holds what theory expected of all probes since the window began, repeated ones included
//!    ([`FilterCell`](crate::counters::FilterCell)). A full window becomes the previous one, and
//!    the next begins. Both are judged.
//! 2. Which keys pass is chance: a key looked up `m` times adds `m` with probability `f`, its
//!    filter's rate, so all keys together have the variance `sum m^2 f`. Not all the keys are
//!    known, but those that passed are a sample of them, each drawn with probability `f`: the sum
//!    of `m^2` over the sample estimates exactly that variance.
//! 3. Filters of the same size differ by chance, too ([`spread`]). If a table has the share `p` of
//!    all passes and its filters differ by `s`, that adds `(expected * p * s)^2`.
//! 4. The alarm is raised if passes exceed the expectation by [`ALARM`] standard deviations.
//!
//! For `d` distinct keys the sum is at most `sqrt(d)` deviations, whatever was expected, by step 2
//! and the Cauchy-Schwarz inequality. So no 36 keys raise an alarm, however hot they are.
//!
//! Only rates that are too high are detected. A rate that is too low is harmless, and cannot be
//! distinguished from a hot key that is denied, because negatives are not recorded.
//!
//! Invariants: a lookup without a false positive takes no lock and records nothing. At most
//! [`MOST`] keys are recorded for a level and kind in each of two windows: some 100 KiB, allocated
//! by the first record; later ones allocate nothing.
//!
//! Called by lookups (`read`) through the [`Counters`](crate::counters::Counters), which collect
//! the records of threads ([`passed`](crate::false_positives)), and by the filter report.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use trommel_filter::FilterKind;
use trommel_filter::theory::spread;
use trommel_sstable::{FilterFacts, FilterLabel};

use crate::filter_kinds::{ByKind, kind_index};

/// Standard deviations above the expectation at which an alarm is raised: chance exceeds it once in
/// a billion windows.
const ALARM: f64 = 6.0;
/// Keys of a window, counted for each table that they passed. This many reveal a rate 15% too high,
/// and just fill a map of 2,048 slots.
const MOST: usize = 1792;

/// How often each key passed each table.
#[derive(Debug, Default)]
struct Window {
    /// By the key's hash and the table's number.
    passed: HashMap<(u64, u64), u32>,
    /// The expectation of all earlier probes when the window began.
    began: f64,
}

/// The windows of one level and kind: the previous one is empty if there is none. Both are
/// allocated at once and kept.
#[derive(Debug, Default)]
struct Watch {
    open: Window,
    before: Window,
}

/// The windows of all levels and kinds.
#[derive(Debug, Default)]
pub(crate) struct Watches(BTreeMap<(usize, usize), Watch>);

impl Watches {
    /// Resets all windows; `expected` is the expectation since the store was opened.
    pub(crate) fn reset(&mut self, expected: &ByKind<f64>) {
        for (level, kinds) in expected.iter().enumerate() {
            for (kind, expected) in kinds.iter().enumerate() {
                let Watch { open, before } = self.0.entry((level, kind)).or_default();
                open.passed.clear();
                before.passed.clear();
                open.began = *expected;
            }
        }
    }

    /// Records that an absent key passed `table`. True if the window is full: then the next must
    /// [`begin`](Self::begin).
    pub(crate) fn note(&mut self, level: usize, kind: FilterLabel, hash: u64, table: u64) -> bool {
        let Watch { open, before } = self.0.entry((level, kind_index(kind))).or_default();
        if open.passed.capacity() == 0 {
            open.passed.reserve(MOST);
            before.passed.reserve(MOST);
        }
        let times = open.passed.entry((hash, table)).or_default();
        *times = times.saturating_add(1);
        open.passed.len() >= MOST
    }

    /// Begins the next window, if the open one is still full.
    pub(crate) fn begin(&mut self, level: usize, kind: FilterLabel, expected: &ByKind<f64>) {
        let kind = kind_index(kind);
        let Watch { open, before } = self.0.entry((level, kind)).or_default();
        if open.passed.len() >= MOST {
            std::mem::swap(open, before);
            open.passed.clear();
            open.began = expected[level][kind];
        }
    }

    /// Number of keys in the two windows of a level and the kind with this index, counted for each
    /// table that they passed.
    pub(crate) fn keys(&self, level: usize, kind: usize) -> u64 {
        let keys = |Watch { open, before }: &Watch| open.passed.len() + before.passed.len();
        self.0.get(&(level, kind)).map_or(0, keys) as u64
    }

    /// The evidence for a level and the kind with this index; `expected` is the expectation since
    /// the store was opened.
    pub(crate) fn evidence(&self, level: usize, kind: usize, expected: &ByKind<f64>) -> Evidence {
        let Some(Watch { open, before }) = self.0.get(&(level, kind)) else {
            return Evidence::default();
        };
        let began = if before.passed.is_empty() { open.began } else { before.began };
        let mut evidence =
            Evidence { expected: expected[level][kind] - began, ..Evidence::default() };
        for window in [before, open] {
            for ((_, table), times) in &window.passed {
                evidence.add(*table, u64::from(*times));
            }
        }
        evidence
    }
}

/// The recorded false positives.
#[derive(Debug, Clone, Default)]
pub(crate) struct Evidence {
    expected: f64,
    all: u64,
    distinct: u64,
    most_of_one: u64,
    /// The sum of the squares of how often each key passed.
    squares: f64,
    /// Number of distinct keys that passed each table.
    tables: BTreeMap<u64, u64>,
}

impl Evidence {
    fn add(&mut self, table: u64, times: u64) {
        self.all += times;
        self.distinct += 1;
        self.most_of_one = self.most_of_one.max(times);
        self.squares += (times as f64).powi(2);
        *self.tables.entry(table).or_default() += 1;
    }

    /// Adds the evidence of another level.
    pub(crate) fn join(&mut self, other: Self) {
        self.expected += other.expected;
        self.all += other.all;
        self.distinct += other.distinct;
        self.most_of_one = self.most_of_one.max(other.most_of_one);
        self.squares += other.squares;
        for (table, keys) in other.tables {
            *self.tables.entry(table).or_default() += keys;
        }
    }

    /// The verdict for tables with these filters; `None` if nothing passed, or no filters remain
    /// that could be the cause.
    pub(crate) fn judge(&self, filters: &BTreeMap<u64, FilterFacts>) -> Option<Conformance> {
        let spreads = filters.values().map(spread_of);
        let widest = spreads.max_by(f64::total_cmp)?;
        let (worst_table, its_keys) = self
            .tables
            .iter()
            .max_by_key(|(_, keys)| **keys)
            .map(|(table, keys)| (*table, *keys))?;
        let by_filters = self.tables.iter().map(|(table, keys)| {
            let share = *keys as f64 / self.distinct as f64;
            let spread = filters.get(table).map_or(widest, spread_of);
            (self.expected * share * spread).powi(2)
        });
        Some(Conformance {
            false_positives: self.all,
            distinct_keys: self.distinct,
            most_of_one_key: self.most_of_one,
            expected: self.expected,
            deviation: (self.squares + by_filters.sum::<f64>()).sqrt(),
            worst_table,
            keys_of_worst_table: its_keys,
        })
    }
}

/// How much filters like this one differ. User filters are assumed to differ like standard ones.
fn spread_of(facts: &FilterFacts) -> f64 {
    let FilterFacts { kind, keys, bits_stored, .. } = *facts;
    match kind {
        FilterLabel::BuiltIn(kind) if kind != FilterKind::None => spread(kind, keys, bits_stored),
        _ => spread(FilterKind::Standard, keys, bits_stored),
    }
}

/// The distinct false positives of the filters of one kind on one level, compared with the expected
/// number: the last few thousand since the counters were reset.
///
/// Only probes of whole-key filters count.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Conformance {
    /// False positives, counting repetitions.
    pub false_positives: u64,
    /// Distinct keys among them, counted for each table that they passed.
    pub distinct_keys: u64,
    /// How often the hottest of them passed one table.
    pub most_of_one_key: u64,
    /// What theory expected of the same probes.
    pub expected: f64,
    /// One standard deviation: repeated keys, and filters that differ by chance.
    pub deviation: f64,
    /// The table that the most distinct keys passed.
    pub worst_table: u64,
    /// Number of distinct keys that passed it.
    pub keys_of_worst_table: u64,
}

impl Conformance {
    /// By how many standard deviations the passes exceed the expectation; negative if there were
    /// fewer.
    pub fn excess(&self) -> f64 {
        (self.false_positives as f64 - self.expected) / self.deviation
    }

    /// Whether that is more than chance: 6 standard deviations.
    pub fn is_alarming(&self) -> bool {
        self.excess() > ALARM
    }
}

impl fmt::Display for Conformance {
    /// The evidence, in a sentence.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} false positives of {} distinct keys where {:.1} +- {:.1} are expected, {:+.1} standard \
             deviations; the hottest key was let pass {} times; table {} let {} of the keys pass",
            self.false_positives,
            self.distinct_keys,
            self.expected,
            self.deviation,
            self.excess(),
            self.most_of_one_key,
            self.worst_table,
            self.keys_of_worst_table
        )
    }
}

#[cfg(test)]
mod tests;
