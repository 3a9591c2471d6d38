//! Whether filters let no more pass than they should, and an alarm where they do.
//!
//! A rate above the expected one proves nothing by itself: one absent key that its filter happens
//! to let pass, asked for a million times, makes any rate. What counts is how many *distinct* keys
//! pass. So of each false positive, and of nothing else on the way of a lookup, the key's hash and
//! the table are noted:
//!
//! 1. For each level and kind of filter a *window* counts how often each key was let pass by each
//!    table. Beside it stands what theory expected of all probes since the window began, repeated
//!    ones included ([`FilterCell`](crate::counters::FilterCell)). A window that is full is kept as
//!    the one before, and the next begins. What is judged are both.
//! 2. Which keys pass is chance: a key asked for `m` times adds `m` with the chance `f` of its
//!    filter, so all keys together have the variance `sum m^2 f`. Which keys those are is not
//!    known, but those that did pass are a sample of them, each drawn with the chance `f`: the sum
//!    of `m^2` over these estimates just that variance.
//! 3. Filters of the same size differ by chance, too ([`spread`]). If the share `p` of what passed
//!    was let pass by a table whose filters differ by `s`, that adds `(expected * p * s)^2`.
//! 4. The alarm is raised where more passed than was expected by [`ALARM`] standard deviations.
//!
//! Of `d` distinct keys the sum is at most `sqrt(d)` deviations, whatever was expected, by step 2
//! and the inequality of Cauchy and Schwarz. So no 36 keys raise an alarm, however hot they are.
//!
//! Only rates that are too high are looked for. One that is too low does no harm, and cannot be
//! told from a hot key that is denied: what is denied is not noted.
//!
//! Invariants: a lookup that no filter lets pass in vain takes no lock and notes nothing. At most
//! [`MOST`] keys are noted for a level and kind in each of two windows: some 100 KiB, which the
//! first that is noted takes; from then on none takes memory.
//!
//! Called by lookups (`read`) through the [`Counters`](crate::counters::Counters), which gather
//! what threads note ([`passed`](crate::passed)), and by the filter report.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use trommel_filter::FilterKind;
use trommel_filter::theory::spread;
use trommel_sstable::{FilterFacts, FilterLabel};

use crate::filter_kinds::{ByKind, kind_index};

/// Standard deviations beyond what is expected at which an alarm is raised: chance goes beyond once
/// in a thousand million windows.
const ALARM: f64 = 6.0;
/// Keys of a window, one for each table that let it pass. Of so many a rate 15% too high is seen;
/// and they just fill a map of 2,048 places.
const MOST: usize = 1792;

/// How often each key was let pass by each table.
#[derive(Debug, Default)]
struct Window {
    /// By the key's hash and the table's number.
    passed: HashMap<(u64, u64), u32>,
    /// What theory had expected when it began, of all that was ever asked.
    began: f64,
}

/// The windows of one level and kind: the one before is empty if there is none. Both take their
/// memory at once and keep it.
#[derive(Debug, Default)]
struct Watch {
    open: Window,
    before: Window,
}

/// The windows of all levels and kinds.
#[derive(Debug, Default)]
pub(crate) struct Watches(BTreeMap<(usize, usize), Watch>);

impl Watches {
    /// Begins anew; `expected` is what was expected since the store was opened.
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

    /// Notes that `table` let an absent key pass. True if the window is full: then the next has to
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

    /// Begins the next window, if the open one is full still.
    pub(crate) fn begin(&mut self, level: usize, kind: FilterLabel, expected: &ByKind<f64>) {
        let kind = kind_index(kind);
        let Watch { open, before } = self.0.entry((level, kind)).or_default();
        if open.passed.len() >= MOST {
            std::mem::swap(open, before);
            open.passed.clear();
            open.began = expected[level][kind];
        }
    }

    /// What was noted of a level and the kind of this place; `expected` is what was expected
    /// since the store was opened.
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

/// What was let pass in vain.
#[derive(Debug, Clone, Default)]
pub(crate) struct Evidence {
    expected: f64,
    all: u64,
    distinct: u64,
    most_of_one: u64,
    /// The sum of the squares of how often each key passed.
    squares: f64,
    /// How many distinct keys each table let pass.
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

    /// Adds what was noted of another level.
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

    /// What it comes to, where the tables that are there have these filters; none where nothing was
    /// let pass, or no filters are left that could be blamed.
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

/// How much filters like this one differ. Those of a user are taken to differ as standard ones do.
fn spread_of(facts: &FilterFacts) -> f64 {
    let FilterFacts { kind, keys, bits_stored, .. } = *facts;
    match kind {
        FilterLabel::Own(kind) if kind != FilterKind::None => spread(kind, keys, bits_stored),
        _ => spread(FilterKind::Standard, keys, bits_stored),
    }
}

/// What distinct keys passed in vain the filters of one kind on one level, beside what was to be
/// expected: of the last few thousand since the counters were reset.
///
/// Only lookups of whole keys count.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Conformance {
    /// Absent keys that were let pass, each as often as it was.
    pub false_positives: u64,
    /// Distinct ones among them, for each table that let them pass.
    pub distinct_keys: u64,
    /// How often the hottest of them was let pass by one table.
    pub most_of_one_key: u64,
    /// What theory expected of the same probes.
    pub expected: f64,
    /// One standard deviation: keys that repeat their luck, and filters that differ by chance.
    pub deviation: f64,
    /// The table that let the most distinct keys pass.
    pub worst_table: u64,
    /// How many it let pass.
    pub keys_of_worst_table: u64,
}

impl Conformance {
    /// By how many standard deviations more passed than was expected; negative where fewer did.
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
