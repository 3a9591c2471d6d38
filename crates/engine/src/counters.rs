//! Counters that do not slow what they count.
//!
//! Every thread that uses a store gets a [`Shard`] of its own, and is the only one to write to it:
//! an increment is a load, an add and a store to memory that no other core holds, without a locked
//! instruction. A report sums the shards. When a thread ends, its shard keeps its counts and is
//! handed to the next new thread. Writes are counted by the leader, in a shard of the leaders' own,
//! which they hold one at a time.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use trommel_filter::FilterKind;
use trommel_sstable::FilterLabel;

use crate::conformance::Evidence;
use crate::false_positives::{AlarmWindows, FalsePositive, PendingKeys};
use crate::filter_kinds::{ByKind, kind_index};
use crate::levels::LEVELS;
use crate::sync::quiet::{AtomicBool, AtomicU64, Mutex, StaticU64, lock};

/// A count with one writer.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    /// Adds `n`. Called by the shard's own thread only.
    #[inline]
    pub(crate) fn add(&self, n: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(n), Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// A sum of fractions with one writer.
#[derive(Debug, Default)]
pub(crate) struct Sum(AtomicU64);

impl Sum {
    #[inline]
    pub(crate) fn add(&self, x: f64) {
        self.0.store((f64::from_bits(self.0.load(Relaxed)) + x).to_bits(), Relaxed);
    }

    pub(crate) fn get(&self) -> f64 {
        f64::from_bits(self.0.load(Relaxed))
    }
}

/// The outcomes of the filters of one kind on one level.
#[derive(Debug, Default)]
pub(crate) struct FilterCell {
    /// Negatives.
    pub(crate) negatives: Count,
    /// Positives without an entry of the key in the table.
    pub(crate) false_positives: Count,
    /// Positives with an entry of the key in the table.
    pub(crate) true_positives: Count,
    /// The sum of the filters' expected rates, over all probes for keys that were not there.
    pub(crate) expected: Sum,
}

impl FilterCell {
    /// Counts negatives of filters with this expected rate.
    #[inline]
    pub(crate) fn count_negatives(&self, times: u64, expected: f64) {
        self.negatives.add(times);
        self.expected.add(expected * times as f64);
    }

    /// Counts a positive of such a filter, true or false.
    #[inline]
    pub(crate) fn count_maybe(&self, is_true: bool, expected: f64) {
        if is_true {
            self.true_positives.add(1);
        } else {
            self.false_positives.add(1);
            self.expected.add(expected);
        }
    }
}

macro_rules! shard {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// The counts of one thread.
        #[derive(Debug, Default)]
        #[repr(align(128))]
        pub(crate) struct Shard {
            $($(#[$doc])* pub(crate) $name: Count,)*
            filters: ByKind<FilterCell>,
            prefixes: ByKind<FilterCell>,
            ranges: [FilterCell; LEVELS],
            /// Blocks of each level that scans read which found nothing.
            pub(crate) empty_blocks: [Count; LEVELS],
            passed: Mutex<PendingKeys>,
            in_use: AtomicBool,
        }

        /// The counts of all threads together.
        #[derive(Debug, Clone, Default)]
        pub(crate) struct Totals {
            $(pub(crate) $name: u64,)*
            pub(crate) filters: ByKind<FilterTotals>,
            pub(crate) prefixes: ByKind<FilterTotals>,
            pub(crate) ranges: [FilterTotals; LEVELS],
            pub(crate) empty_blocks: [u64; LEVELS],
        }

        impl Totals {
            fn add(&mut self, shard: &Shard) {
                $(self.$name += shard.$name.get();)*
                for (sum, count) in self.empty_blocks.iter_mut().zip(&shard.empty_blocks) {
                    *sum += count.get();
                }
                let sums = self.filters.iter_mut().chain(&mut self.prefixes).flatten();
                let sums = sums.chain(&mut self.ranges);
                let cells = shard.filters.iter().chain(&shard.prefixes).flatten();
                let cells = cells.chain(&shard.ranges);
                for (sum, cell) in sums.zip(cells) {
                    sum.negatives += cell.negatives.get();
                    sum.false_positives += cell.false_positives.get();
                    sum.true_positives += cell.true_positives.get();
                    sum.expected += cell.expected.get();
                }
            }

            fn subtract(&mut self, earlier: &Self) {
                $(self.$name -= earlier.$name;)*
                for (sum, base) in self.empty_blocks.iter_mut().zip(&earlier.empty_blocks) {
                    *sum -= base;
                }
                let sums = self.filters.iter_mut().chain(&mut self.prefixes).flatten();
                let sums = sums.chain(&mut self.ranges);
                let bases = earlier.filters.iter().chain(&earlier.prefixes).flatten();
                let bases = bases.chain(&earlier.ranges);
                for (sum, base) in sums.zip(bases) {
                    sum.negatives -= base.negatives;
                    sum.false_positives -= base.false_positives;
                    sum.true_positives -= base.true_positives;
                    sum.expected -= base.expected;
                }
            }
        }
    };
}

shard! {
    /// Keys looked up.
    gets,
    /// Keys found.
    found,
    /// Keys for which a memtable held a value or a tombstone.
    memtable_hits,
    /// Data blocks read from files.
    block_reads,
    /// Bytes of those blocks.
    block_read_bytes,
    /// Data blocks found in the cache.
    cache_hits,
    /// Data blocks that scans read from files.
    scan_block_reads,
    /// Data blocks that scans found in the cache.
    scan_cache_hits,
    /// Entries that scans stepped over without yielding them.
    scan_skipped,
    /// Seeks by which scans skipped further versions of one key.
    scan_reseeks,
    /// Scans of a bounded range, by an iterator, that found nothing.
    empty_scans,
    /// Tables whose prefix filter could not be probed, because it was built with another extractor.
    prefix_unused,
    /// Operations written by users: those in the log, or in memory without a log.
    writes,
    /// Bytes of their keys and values.
    user_bytes,
    /// Groups of batches committed.
    commits,
    /// Bytes written to the log.
    log_bytes,
    /// Times the log was synced for a write.
    log_syncs,
}

impl Shard {
    /// Makes the calling thread the shard's owner, if it has none.
    pub(crate) fn claim(&self) -> bool {
        // Acquire: the last owner's counts are visible and can be added to.
        !self.in_use.swap(true, Acquire)
    }

    /// Releases the shard for another thread.
    pub(crate) fn release(&self) {
        self.in_use.store(false, Release);
    }

    /// Hands over the false positives.
    fn hand_over(&self, watched: &mut AlarmWindows) {
        let expected = |level, kind| self.filter(level, kind).expected.get();
        watched.take_over(&mut lock(&self.passed), expected);
    }

    #[inline]
    pub(crate) fn filter(&self, level: usize, kind: FilterLabel) -> &FilterCell {
        &self.filters[level][kind_index(kind)]
    }

    /// The counters of prefix filters in scans.
    #[inline]
    pub(crate) fn prefix(&self, level: usize, kind: FilterLabel) -> &FilterCell {
        &self.prefixes[level][kind_index(kind)]
    }

    /// The counters of range filters in scans.
    #[inline]
    pub(crate) fn ranges(&self, level: usize) -> &FilterCell {
        &self.ranges[level]
    }
}

/// The outcomes of the filters of one kind on one level, summed over threads.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct FilterTotals {
    pub(crate) negatives: u64,
    pub(crate) false_positives: u64,
    pub(crate) true_positives: u64,
    pub(crate) expected: f64,
}

impl FilterTotals {
    pub(crate) fn probes(&self) -> u64 {
        self.negatives + self.false_positives + self.true_positives
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.negatives += other.negatives;
        self.false_positives += other.false_positives;
        self.true_positives += other.true_positives;
        self.expected += other.expected;
    }
}

/// All shards of one store.
#[derive(Debug)]
pub(crate) struct Counters {
    id: u64,
    shards: Mutex<Vec<Arc<Shard>>>,
    baseline: Mutex<Totals>,
    watched: Mutex<AlarmWindows>,
}

/// The shards of the current thread, one for each store it uses.
struct OwnShards(Vec<(u64, Arc<Shard>)>);

impl Drop for OwnShards {
    fn drop(&mut self) {
        for (_, shard) in &self.0 {
            shard.release();
        }
    }
}

thread_local! {
    static OWN: RefCell<OwnShards> = const { RefCell::new(OwnShards(Vec::new())) };
}

static NEXT_ID: StaticU64 = StaticU64::new(1);

impl Counters {
    pub(crate) fn new() -> Self {
        Self {
            id: NEXT_ID.fetch_add(1, Relaxed),
            shards: Mutex::default(),
            baseline: Mutex::default(),
            watched: Mutex::default(),
        }
    }

    /// Calls `count` with the current thread's shard. Must not be nested.
    #[inline]
    pub(crate) fn with<T>(&self, count: impl FnOnce(&Shard) -> T) -> T {
        OWN.with_borrow_mut(|own| self.count(own, count))
    }

    #[inline]
    fn count<T>(&self, own: &mut OwnShards, count: impl FnOnce(&Shard) -> T) -> T {
        match own.0.iter().find(|(id, _)| *id == self.id) {
            Some((_, shard)) => count(shard),
            None => count(self.adopt(own)),
        }
    }

    /// As [`Counters::with`], for values that may be dropped during thread exit, when the thread's
    /// shards are gone.
    #[inline]
    pub(crate) fn with_at_the_end(&self, count: impl FnOnce(&Shard)) {
        let mut count = Some(count);
        let _ = OWN.try_with(|own| {
            if let Some(count) = count.take() {
                self.count(&mut own.borrow_mut(), count);
            }
        });
        if let Some(count) = count {
            self.count_without_thread(count);
        }
    }

    #[cold]
    fn count_without_thread(&self, count: impl FnOnce(&Shard)) {
        let shard = self.claim();
        count(&shard);
        shard.release();
    }

    #[cold]
    fn adopt<'a>(&self, own: &'a mut OwnShards) -> &'a Shard {
        // Shards of closed stores, which only this thread holds.
        own.0.retain(|(_, shard)| Arc::strong_count(shard) > 1);
        own.0.push((self.id, self.claim()));
        &own.0[own.0.len() - 1].1
    }

    /// A shard for a single writer: a thread, or the holder of a lock.
    pub(crate) fn claim(&self) -> Arc<Shard> {
        let mut shards = lock(&self.shards);
        let free = shards.iter().find(|shard| shard.claim());
        free.cloned().unwrap_or_else(|| {
            let shard = Arc::new(Shard::default());
            shard.claim();
            shards.push(Arc::clone(&shard));
            shard
        })
    }

    fn sum(&self) -> Totals {
        let mut totals = Totals::default();
        for shard in lock(&self.shards).iter() {
            totals.add(shard);
        }
        totals
    }

    /// The counts since the last reset.
    pub(crate) fn totals(&self) -> Totals {
        // Held during the sum: a reset in between would set a baseline above it.
        let baseline = lock(&self.baseline);
        let mut totals = self.sum();
        totals.subtract(&baseline);
        totals
    }

    /// Lookups that reached the tables since the store was opened, and those that ended in one: at
    /// a value or at a tombstone.
    pub(crate) fn lookups_since_open(&self) -> (u64, u64) {
        let totals = self.sum();
        let cells = totals.filters.iter().flatten();
        let ended: u64 = cells.map(|cell| cell.true_positives).sum();
        (totals.gets.saturating_sub(totals.memtable_hits).max(ended), ended)
    }

    /// Resets the counts.
    pub(crate) fn reset(&self) {
        let mut baseline = lock(&self.baseline);
        *baseline = self.sum();
        let mut watched = lock(&self.watched);
        lock(&self.shards).iter().for_each(|shard| shard.hand_over(&mut watched));
        watched.reset();
    }

    /// Records that the key with this hash was a false positive of the filter of `table`. The lock
    /// shared by all threads is taken only for one in [`BATCH`](crate::false_positives::BATCH), and
    /// for the first of a level and kind.
    pub(crate) fn note_false_positive(
        &self,
        level: usize,
        kind: FilterLabel,
        hash: u64,
        table: u64,
    ) {
        if kind == FilterKind::None {
            return;
        }
        let passed = FalsePositive { hash, table, level: level as u8, kind };
        self.with(|shard| {
            if lock(&shard.passed).push(passed) {
                shard.hand_over(&mut lock(&self.watched));
            }
        });
    }

    /// The recorded false positives of each level, by kind.
    pub(crate) fn evidence(&self) -> ByKind<Evidence> {
        self.of_windows(AlarmWindows::evidence)
    }

    /// The number of recorded false positives of each level, by kind.
    pub(crate) fn watched_keys(&self) -> ByKind<u64> {
        self.of_windows(AlarmWindows::watched_keys)
    }

    /// What `report` returns for the windows with the keys of all threads.
    fn of_windows<T>(&self, report: fn(&AlarmWindows) -> T) -> T {
        let mut watched = lock(&self.watched);
        lock(&self.shards).iter().for_each(|shard| shard.hand_over(&mut watched));
        report(&watched)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_all_threads_add_up_and_outlive_them() {
        let counters = Arc::new(Counters::new());
        for round in 1..=3 {
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        for _ in 0..1000 {
                            counters.with(|shard| {
                                shard.gets.add(1);
                                shard.filter(2, FilterKind::Paired.into()).expected.add(0.5);
                            });
                        }
                    });
                }
            });
            assert_eq!(counters.totals().gets, round * 4000);
        }
        let paired = counters.totals().filters[2][3];
        assert!((paired.expected - 6000.0).abs() < 1e-6);
        let shards = counters.shards.lock().unwrap().len();
        assert!(shards <= 12, "shards of ended threads are reused: {shards}");
        counters.reset();
        assert_eq!(counters.totals().gets, 0);
    }
}
