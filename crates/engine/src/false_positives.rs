//! False positives, on their way from the threads of lookups to the alarm.
//!
//! A false positive must not wait for another thread's, or weak filters would serialize all
//! threads. So:
//!
//! 1. Each thread keeps its own keys ([`PendingKeys`]), under a lock that other threads take only
//!    for a report.
//! 2. When it has [`BATCH`] of them, or the first of a level and kind, it hands them over to the
//!    windows of the alarm ([`AlarmWindows`]), under the one shared lock. A report, or a reset,
//!    collects the keys of all threads.
//! 3. The keys come with the expectation of the thread's probes since its last hand-over, each
//!    key's part with the key. So a thread always holds back keys and their expectation together,
//!    and a window that begins in between gets consistent parts of both.
//!
//! Invariant: the expectation in the windows covers exactly the probes whose keys were handed over.
//!
//! Locks: `watched`, then the list of shards, then a shard's keys. Called by
//! [`Counters`](crate::counters::Counters).

use trommel_filter::FilterKind;
use trommel_sstable::FilterLabel;

use crate::conformance::{Evidence, Watches};
use crate::filter_kinds::{ByKind, KINDS, kind_index};
use crate::levels::LEVELS;

/// Keys that a thread collects before it hands them over.
pub(crate) const BATCH: usize = 64;

/// [`PendingKeys`] has a bit for each kind.
const _: () = assert!(KINDS.len() <= u8::BITS as usize);

/// A false positive.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FalsePositive {
    pub(crate) hash: u64,
    pub(crate) table: u64,
    pub(crate) level: u8,
    pub(crate) kind: FilterLabel,
}

/// The keys of one thread that are not handed over yet.
#[derive(Debug)]
pub(crate) struct PendingKeys {
    keys: [FalsePositive; BATCH],
    count: usize,
    /// A bit for each kind with a key that was handed over, by level.
    known: [u8; LEVELS],
    /// The expectation of the thread's probes at its last hand-over.
    handed_over: ByKind<f64>,
}

impl Default for PendingKeys {
    fn default() -> Self {
        let none = FalsePositive {
            hash: 0,
            table: 0,
            level: 0,
            kind: FilterLabel::BuiltIn(FilterKind::None),
        };
        Self {
            keys: [none; BATCH],
            count: 0,
            known: [0; LEVELS],
            handed_over: <ByKind<f64>>::default(),
        }
    }
}

impl PendingKeys {
    /// Adds a key. True if the list is full, so that all must be handed over, or if the key is the
    /// first of its level and kind: its window, which is allocated only once, is then allocated
    /// early.
    #[inline]
    pub(crate) fn push(&mut self, key: FalsePositive) -> bool {
        let (known, bit) = (&mut self.known[usize::from(key.level)], 1 << kind_index(key.kind));
        let is_first = *known & bit == 0;
        *known |= bit;
        if let Some(place) = self.keys.get_mut(self.count) {
            *place = key;
            self.count += 1;
        }
        is_first || self.count >= BATCH
    }
}

/// The windows of the alarm, and the expectation of the probes that they cover.
#[derive(Debug, Default)]
pub(crate) struct AlarmWindows {
    watches: Watches,
    expected: ByKind<f64>,
}

impl AlarmWindows {
    /// Takes over the keys of a thread; `expected` is the expectation of its probes, by level and
    /// kind.
    pub(crate) fn take_over(
        &mut self,
        passed: &mut PendingKeys,
        expected: impl Fn(usize, FilterLabel) -> f64,
    ) {
        let PendingKeys { keys, count, handed_over, .. } = passed;
        let keys = &keys[..std::mem::take(count)];
        let mut parts = <ByKind<f64>>::default();
        for FalsePositive { level, kind, .. } in keys {
            parts[usize::from(*level)][kind_index(*kind)] += 1.0;
        }
        for (level, cells) in parts.iter_mut().enumerate() {
            for (nth, part) in cells.iter_mut().enumerate() {
                let expected = expected(level, KINDS[nth]);
                let news = expected - std::mem::replace(&mut handed_over[level][nth], expected);
                if *part > 0.0 {
                    *part = news / *part;
                } else {
                    self.expected[level][nth] += news;
                }
            }
        }
        for FalsePositive { hash, table, level, kind } in keys {
            let (level, nth) = (usize::from(*level), kind_index(*kind));
            self.expected[level][nth] += parts[level][nth];
            if self.watches.note(level, *kind, *hash, *table) {
                self.watches.begin(level, *kind, &self.expected);
            }
        }
    }

    /// Resets the windows, without what was handed over.
    pub(crate) fn reset(&mut self) {
        self.watches.reset(&self.expected);
    }

    /// The evidence handed over, by level and kind.
    pub(crate) fn evidence(&self) -> ByKind<Evidence> {
        let of = |level, kind| self.watches.evidence(level, kind, &self.expected);
        std::array::from_fn(|level| std::array::from_fn(|kind| of(level, kind)))
    }

    /// The number of keys in the windows, by level and kind.
    pub(crate) fn watched_keys(&self) -> ByKind<u64> {
        let of = |level, kind| self.watches.keys(level, kind);
        std::array::from_fn(|level| std::array::from_fn(|kind| of(level, kind)))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use trommel_sstable::FilterFacts;

    use crate::counters::Counters;

    use super::*;

    const LEVEL: usize = 2;

    /// The verdict on tables 0 to 3: how many keys passed, and the expectation of the same probes.
    fn verdict(counters: &Counters) -> Option<(u64, f64)> {
        let facts = FilterFacts { keys: 1000, bits_stored: 10.0, ..FilterFacts::NONE };
        let filters: BTreeMap<u64, FilterFacts> = (0..4).map(|table| (table, facts)).collect();
        let kind = kind_index(FilterKind::Paired.into());
        let judged = counters.evidence()[LEVEL][kind].judge(&filters)?;
        Some((judged.false_positives, judged.expected))
    }

    /// In every thread one of two probes passes, as expected. So at any time, however many windows
    /// have come and gone, passes and expectation are equal, except for keys about to be recorded.
    #[test]
    fn keys_and_their_expectation_stay_together() {
        let counters = Counters::new();
        let kind = FilterKind::Paired.into();
        let is_even = |threads: f64| {
            let (passed, expected) = verdict(&counters).unwrap_or_default();
            assert!((passed as f64 - expected).abs() <= threads, "{passed}, {expected} expected");
        };
        // So that windows do not begin with a batch.
        counters.with(|shard| shard.filter(LEVEL, kind).count_maybe(false, 1.0));
        counters.note_false_positive(LEVEL, kind, u64::MAX, 0);
        is_even(0.0);
        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                let counters = &counters;
                scope.spawn(move || {
                    for nth in 0..20_000 {
                        counters.with(|shard| {
                            let cell = shard.filter(LEVEL, kind);
                            cell.count_negatives(1, 0.5);
                            cell.count_maybe(false, 0.5);
                        });
                        counters.note_false_positive(LEVEL, kind, nth << 2 | thread, thread);
                        if nth == 10_000 {
                            counters.note_false_positive(
                                LEVEL,
                                FilterKind::None.into(),
                                nth,
                                thread,
                            );
                        }
                    }
                });
            }
            (0..50).for_each(|_| is_even(4.0));
        });
        is_even(1e-6);
        assert!(verdict(&counters).unwrap().0 > 1000);
        counters.reset();
        assert_eq!(verdict(&counters), None);
        counters.with(|shard| shard.filter(LEVEL, kind).count_maybe(false, 0.25));
        counters.note_false_positive(LEVEL, kind, 7, 3);
        assert_eq!(verdict(&counters), Some((1, 0.25)));
    }
}
