//! One ceiling over all memory: the block cache gets what memtables, indexes, filters and the
//! building of new filters leave.
//!
//! What will be held is noted before it is held, what is no longer held after it has gone, and the
//! cache's capacity follows under one lock: at no moment do all parts exceed the ceiling. One
//! value of more than 256 KiB may, until its group is in the memtable; and where the ceiling is lowered
//! to less than a 32nd of what the cache had, the places of its blocks may, until their tables are closed.
//! Memtables that only cursors and ranges hold, since they were written out, are not counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use trommel_sstable::{BlockCache, FilterMemory};

use crate::sync::{Mutex, lock};

/// The part of the ceiling that filters may take while they are built: one in so many.
const CONSTRUCTION_PART: u64 = 8;
/// Steps in which that is noted: one in so many of the ceiling, within these bounds.
const STEPS_OF_CEILING: u64 = 1024;
const SMALLEST_STEP: u64 = 1 << 10;
const LARGEST_STEP: u64 = 256 << 10;

/// Who holds how much, and the limit over it.
#[derive(Debug)]
pub(crate) struct MemoryShares {
    blocks: Arc<BlockCache>,
    /// The ceiling; `u64::MAX` where there is none.
    limit: AtomicU64,
    /// What the cache gets where the ceiling allows it.
    cache_bytes: AtomicU64,
    /// Memtables, and what is kept for the next ones.
    memtables: AtomicU64,
    /// Indexes, pinned filters and the rest of open tables.
    tables: AtomicU64,
    /// Pinned filters among them.
    pinned_filters: AtomicU64,
    /// Most bytes that filters may pin.
    pinned_limit: AtomicU64,
    /// Filters that are being built, with the hashes they are built from.
    construction: AtomicU64,
    /// Filters and pieces of filters that found no place.
    filters_not_held: AtomicU64,
    /// Held while a part changes and the cache's capacity with it: of two changes at a time the
    /// older share must not be the one that stays.
    changing: Mutex<()>,
}

impl MemoryShares {
    /// Shares with nothing taken yet.
    pub(crate) fn new(blocks: Arc<BlockCache>, limit: Option<u64>, cache_bytes: u64) -> Arc<Self> {
        let shares = Self {
            blocks,
            limit: AtomicU64::new(u64::MAX),
            cache_bytes: AtomicU64::new(cache_bytes),
            memtables: AtomicU64::new(0),
            tables: AtomicU64::new(0),
            pinned_filters: AtomicU64::new(0),
            pinned_limit: AtomicU64::new(u64::MAX),
            construction: AtomicU64::new(0),
            filters_not_held: AtomicU64::new(0),
            changing: Mutex::default(),
        };
        shares.set_limits(limit, cache_bytes);
        Arc::new(shares)
    }

    /// Changes the ceiling and what the cache would get without it.
    pub(crate) fn set_limits(&self, limit: Option<u64>, cache_bytes: u64) {
        let _one_at_a_time = lock(&self.changing);
        self.limit.store(limit.unwrap_or(u64::MAX), Relaxed);
        self.cache_bytes.store(cache_bytes, Relaxed);
        self.blocks.set_capacity(self.cache_share());
    }

    /// Notes what memtables may take, at most.
    pub(crate) fn set_memtables(&self, bytes: u64) {
        if self.memtables.load(Relaxed) == bytes {
            return;
        }
        self.change(|| self.memtables.store(bytes, Relaxed));
    }

    /// Notes that a table was opened, or that an open one takes more.
    pub(crate) fn add_table(&self, bytes: u64) {
        self.change(|| {
            self.tables.fetch_add(bytes, Relaxed);
        });
    }

    /// Notes that a table was closed, or takes less.
    pub(crate) fn remove_table(&self, bytes: u64) {
        self.change(|| {
            self.tables.fetch_sub(bytes, Relaxed);
        });
    }

    /// Sets how much filters may pin; what is pinned already stays.
    pub(crate) fn set_pinned_limit(&self, bytes: u64) {
        self.pinned_limit.store(bytes, Relaxed);
    }

    /// Whether `bytes` more of filters may be pinned: if neither their own limit is passed, nor what
    /// all filters may hold, nor half of the ceiling by all that open tables hold. If so they are
    /// noted.
    pub(crate) fn pin_filter(&self, bytes: u64) -> bool {
        let fits = || {
            let sum = |held: &AtomicU64| held.load(Relaxed).saturating_add(bytes);
            sum(&self.pinned_filters) <= self.pinned_limit.load(Relaxed)
                && sum(&self.tables) <= self.limit.load(Relaxed) / 2
        };
        // A filter that does not fit asks at each of its uses: it must not meet others at the lock.
        if !fits() || !self.filters().admit(bytes) {
            return false;
        }
        let mut pinned = false;
        self.change(|| {
            pinned = fits();
            if pinned {
                self.pinned_filters.fetch_add(bytes, Relaxed);
                self.tables.fetch_add(bytes, Relaxed);
            }
        });
        if !pinned {
            self.filters().give_back(bytes);
        }
        pinned
    }

    /// Notes that a pinned filter has gone.
    pub(crate) fn unpin_filter(&self, bytes: u64) {
        self.change(|| {
            self.pinned_filters.fetch_sub(bytes, Relaxed);
            self.tables.fetch_sub(bytes, Relaxed);
        });
        self.filters().give_back(bytes);
    }

    /// What is held of filters, pinned and cached, and the most that may be.
    pub(crate) fn filters(&self) -> &FilterMemory {
        self.blocks.filters()
    }

    /// Notes that a filter, or a piece of one, can be held nowhere.
    pub(crate) fn note_filter_not_held(&self) {
        self.filters_not_held.fetch_add(1, Relaxed);
    }

    /// How often that was noted.
    pub(crate) fn filters_not_held(&self) -> u64 {
        self.filters_not_held.load(Relaxed)
    }

    /// Most bytes that filters may pin; none where only the ceiling stands against it.
    pub(crate) fn pinned_limit(&self) -> Option<u64> {
        Some(self.pinned_limit.load(Relaxed)).filter(|limit| *limit != u64::MAX)
    }

    /// Has the cache forget everything.
    pub(crate) fn empty_cache(&self) {
        let _one_at_a_time = lock(&self.changing);
        self.blocks.set_capacity(0);
        self.blocks.set_capacity(self.cache_share());
    }

    /// What filters that are being built take.
    pub(crate) fn construction(&self) -> u64 {
        self.construction.load(Relaxed)
    }

    /// What the filters of one table may take while they are built, where `jobs` build at once: an
    /// eighth of the ceiling for all of them.
    pub(crate) fn construction_share(&self, jobs: usize) -> u64 {
        self.limit.load(Relaxed) / CONSTRUCTION_PART / jobs.max(1) as u64
    }

    /// Whether there is a ceiling at all.
    #[inline]
    pub(crate) fn has_ceiling(&self) -> bool {
        self.limit.load(Relaxed) != u64::MAX
    }

    /// Whether open tables take so much that one should be closed: more than half of the ceiling.
    pub(crate) fn tables_are_heavy(&self) -> bool {
        self.tables.load(Relaxed) > self.limit.load(Relaxed) / 2
    }

    fn cache_share(&self) -> u64 {
        let parts = [&self.memtables, &self.tables, &self.construction];
        let taken = parts.iter().fold(0u64, |sum, part| sum.saturating_add(part.load(Relaxed)));
        let left = self.limit.load(Relaxed).saturating_sub(taken);
        left.min(self.cache_bytes.load(Relaxed))
    }

    /// Runs `read` while no part changes, so that what it adds up was true at one moment. It must
    /// not drop the last reference to a table, which is a change.
    pub(crate) fn at_one_moment<T>(&self, read: impl FnOnce() -> T) -> T {
        let _one_at_a_time = lock(&self.changing);
        read()
    }

    fn change(&self, part: impl FnOnce()) {
        let _one_at_a_time = lock(&self.changing);
        part();
        if self.has_ceiling() {
            self.blocks.set_capacity(self.cache_share());
        }
    }
}

/// Memory for the filters of one table that is being written, noted in steps.
#[derive(Debug)]
pub(crate) struct Construction {
    shares: Arc<MemoryShares>,
    noted: u64,
}

impl Construction {
    pub(crate) fn new(shares: &Arc<MemoryShares>) -> Self {
        Self { shares: Arc::clone(shares), noted: 0 }
    }

    /// Notes that `bytes` are held, or will be before the next call. They only grow.
    pub(crate) fn grow_to(&mut self, bytes: u64) {
        if bytes <= self.noted {
            return;
        }
        // Under a low ceiling, whole steps would be most of it.
        let ceiling = self.shares.limit.load(Relaxed);
        let step = (ceiling / STEPS_OF_CEILING).clamp(SMALLEST_STEP, LARGEST_STEP);
        let wanted = bytes.saturating_add(step - 1) / step * step;
        let more = wanted - self.noted;
        self.shares.change(|| {
            self.shares.construction.fetch_add(more, Relaxed);
        });
        self.noted = wanted;
    }
}

impl Drop for Construction {
    fn drop(&mut self) {
        let noted = self.noted;
        self.shares.change(|| {
            self.shares.construction.fetch_sub(noted, Relaxed);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_gets_what_the_others_leave() {
        let blocks = BlockCache::new(1000);
        let capacity = || blocks.stats().capacity_bytes;
        let shares = MemoryShares::new(Arc::clone(&blocks), Some(10_000), 9_000);
        assert_eq!(capacity(), 9_000);
        shares.set_memtables(3_000);
        assert_eq!(capacity(), 7_000);
        shares.add_table(4_000);
        assert_eq!(capacity(), 3_000);
        assert!(!shares.tables_are_heavy());
        shares.add_table(4_000);
        assert_eq!(capacity(), 0);
        assert!(shares.tables_are_heavy());
        shares.remove_table(8_000);
        shares.set_limits(None, 500);
        assert_eq!(capacity(), 500);
    }

    #[test]
    fn filters_are_pinned_up_to_their_limit_and_half_of_the_ceiling() {
        let blocks = BlockCache::new(1000);
        let shares = MemoryShares::new(Arc::clone(&blocks), Some(10_000), 10_000);
        assert_eq!(shares.pinned_limit(), None);
        shares.set_pinned_limit(3_000);
        assert!(shares.pin_filter(2_000));
        assert!(!shares.pin_filter(1_001), "beyond the filters' own limit");
        assert!(shares.pin_filter(1_000));
        assert_eq!(blocks.stats().capacity_bytes, 7_000);
        shares.set_pinned_limit(u64::MAX);
        shares.add_table(1_500);
        assert!(!shares.pin_filter(501), "beyond half of the ceiling");
        assert!(shares.pin_filter(500));
        shares.unpin_filter(3_500);
        shares.remove_table(1_500);
        assert_eq!(blocks.stats().capacity_bytes, 10_000);
    }

    #[test]
    fn the_cache_makes_room_for_filters_that_are_built() {
        let blocks = BlockCache::new(1000);
        let capacity = || blocks.stats().capacity_bytes;
        let shares = MemoryShares::new(Arc::clone(&blocks), Some(1 << 20), 1 << 20);
        let mut one = Construction::new(&shares);
        one.grow_to(1);
        assert_eq!(shares.construction(), 1 << 10, "a whole step");
        one.grow_to(1 << 10);
        assert_eq!(shares.construction(), 1 << 10);
        one.grow_to(100 << 10);
        let mut other = Construction::new(&shares);
        other.grow_to(28 << 10);
        assert_eq!(shares.construction(), 128 << 10);
        assert_eq!(capacity(), (1 << 20) - (128 << 10));
        drop(one);
        drop(other);
        assert_eq!((shares.construction(), capacity()), (0, 1 << 20));
        assert_eq!(shares.construction_share(2), 64 << 10);
        shares.set_limits(None, 500);
        let mut free = Construction::new(&shares);
        free.grow_to(1);
        assert_eq!((shares.construction(), capacity()), (256 << 10, 500));
    }

    #[test]
    fn of_two_changes_at_a_time_the_older_share_does_not_stay() {
        let blocks = BlockCache::new(1000);
        let shares = MemoryShares::new(Arc::clone(&blocks), Some(10_000), 10_000);
        let both = std::sync::Barrier::new(2);
        let race = |step| {
            for _ in 0..20_000 {
                both.wait();
                shares.add_table(step);
                both.wait();
                let taken = shares.tables.load(Relaxed);
                assert_eq!(blocks.stats().capacity_bytes, 10_000 - taken);
                both.wait();
                shares.remove_table(step);
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(|| race(1));
            race(30);
        });
    }
}
