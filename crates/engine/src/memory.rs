//! One ceiling over all memory: the block cache gets what memtables, indexes, filters and the
//! building of new filters leave.
//!
//! What will be held is noted before it is held, what is no longer held after it has gone, and the
//! cache's capacity follows under one lock: at no moment do all parts exceed the ceiling. One value
//! of more than 256 KiB may, until its group is in the memtable; and where the ceiling is lowered
//! to less than a 32nd of what the cache had, the places of its blocks may, until their tables are
//! closed. Memtables that only cursors and ranges hold, since they were written out, are not
//! counted.
//!
//! Stores of one environment are under one ceiling. What each holds counts there too, and its
//! memtables by what they take rather than by what they may come to take. Where the active ones
//! take more than an eighth of the ceiling together, the largest is written out; while all take
//! more than half, writers are slowed.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{self, Relaxed};

use trommel_sstable::{BlockCache, FilterMemory};

use crate::sync::{Mutex, lock};

/// Largest default size of the block cache, in bytes.
const LARGEST_DEFAULT_CACHE: u64 = 1 << 30;
/// Its size where the machine does not say how much memory it has.
const SMALLEST_DEFAULT_CACHE: u64 = 64 << 20;

/// Bytes of a block cache, where nobody says.
pub(crate) fn default_cache_bytes() -> u64 {
    trommel_vfs::usable_memory_bytes()
        .map_or(SMALLEST_DEFAULT_CACHE, |bytes| (bytes / 8).min(LARGEST_DEFAULT_CACHE))
}

/// Most bytes of filters that may be pinned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PinnedLimits {
    /// While the filter is of a table that was written for level 0.
    pub(crate) level_0: u64,
    /// While it is of another.
    pub(crate) below: u64,
}

/// The part of the ceiling that filters may take while they are built: one in so many.
const CONSTRUCTION_PART: u64 = 8;
/// The part of a shared ceiling beyond which the largest active memtable is written out: one in so
/// many.
const ACTIVE_PART: u64 = 8;
/// Steps in which that is noted: one in so many of the ceiling, within these bounds.
const STEPS_OF_CEILING: u64 = 1024;
const SMALLEST_STEP: u64 = 1 << 10;
const LARGEST_STEP: u64 = 256 << 10;

/// What all stores hold that share one ceiling, and the limit over it. A store by itself has one of
/// its own.
#[derive(Debug)]
pub(crate) struct Ceiling {
    blocks: Arc<BlockCache>,
    /// The ceiling; `u64::MAX` where there is none.
    limit: AtomicU64,
    /// What the cache gets where the ceiling allows it.
    cache_bytes: AtomicU64,
    /// Memtables, and what is kept for the next ones.
    memtables: AtomicU64,
    /// Active memtables among them, where stores share the ceiling.
    active: AtomicU64,
    /// Indexes, pinned filters and the rest of open tables.
    tables: AtomicU64,
    /// Filters that are being built, with the hashes they are built from.
    construction: AtomicU64,
    /// Held while a part changes and the cache's capacity with it: of two changes at a time the
    /// older share must not be the one that stays.
    changing: Mutex<()>,
}

impl Ceiling {
    /// A ceiling under which nothing is held yet.
    pub(crate) fn new(blocks: Arc<BlockCache>, limit: Option<u64>, cache_bytes: u64) -> Arc<Self> {
        let ceiling = Self {
            blocks,
            limit: AtomicU64::new(u64::MAX),
            cache_bytes: AtomicU64::new(cache_bytes),
            memtables: AtomicU64::new(0),
            active: AtomicU64::new(0),
            tables: AtomicU64::new(0),
            construction: AtomicU64::new(0),
            changing: Mutex::default(),
        };
        ceiling.set_limits(limit, cache_bytes);
        Arc::new(ceiling)
    }

    fn set_limits(&self, limit: Option<u64>, cache_bytes: u64) {
        let _one_at_a_time = lock(&self.changing);
        self.limit.store(limit.unwrap_or(u64::MAX), Relaxed);
        self.cache_bytes.store(cache_bytes, Relaxed);
        self.blocks.set_capacity(self.cache_share());
    }

    fn cache_share(&self) -> u64 {
        let parts = [&self.memtables, &self.tables, &self.construction];
        let taken = parts.iter().fold(0u64, |sum, part| sum.saturating_add(part.load(Relaxed)));
        let left = self.limit.load(Relaxed).saturating_sub(taken);
        left.min(self.cache_bytes.load(Relaxed))
    }

    fn has_limit(&self) -> bool {
        self.limit.load(Relaxed) != u64::MAX
    }

    fn change(&self, part: impl FnOnce()) {
        let _one_at_a_time = lock(&self.changing);
        part();
        if self.has_limit() {
            self.blocks.set_capacity(self.cache_share());
        }
    }

    /// Bytes by which active memtables together are more than they may be before the largest of
    /// them is to be written out: an eighth of the ceiling.
    pub(crate) fn excess_of_active(&self) -> u64 {
        self.active.load(Relaxed).saturating_sub(self.limit.load(Relaxed) / ACTIVE_PART)
    }

    /// What is held now.
    pub(crate) fn held(&self) -> Held {
        let _one_at_a_time = lock(&self.changing);
        let cache = self.blocks.stats();
        Held {
            memtables: self.memtables.load(Relaxed),
            tables: self.tables.load(Relaxed),
            construction: self.construction.load(Relaxed),
            cache: cache.used_bytes,
            cache_capacity: cache.capacity_bytes,
        }
    }
}

/// Bytes that are held under a ceiling.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Held {
    pub(crate) memtables: u64,
    pub(crate) tables: u64,
    pub(crate) construction: u64,
    pub(crate) cache: u64,
    pub(crate) cache_capacity: u64,
}

/// What one store holds, and the ceiling that it holds it under.
#[derive(Debug)]
pub(crate) struct MemoryShares {
    blocks: Arc<BlockCache>,
    ceiling: Arc<Ceiling>,
    /// Whether other stores may be under the ceiling.
    is_shared: bool,
    /// Memtables, and what is kept for the next ones.
    memtables: AtomicU64,
    /// The active memtable, where the ceiling is shared.
    active: AtomicU64,
    /// Pinned filters.
    pinned_filters: AtomicU64,
    /// Most bytes that filters may pin.
    pinned_limit: AtomicU64,
    /// The same for filters of level 0.
    pinned_limit_of_level_0: AtomicU64,
    /// Filters that are being built, with the hashes they are built from.
    construction: AtomicU64,
    /// Filters and pieces of filters that found no place.
    filters_not_held: AtomicU64,
}

impl MemoryShares {
    /// Shares of a store that has a ceiling of its own, with nothing taken yet.
    pub(crate) fn new(blocks: Arc<BlockCache>, limit: Option<u64>, cache_bytes: u64) -> Arc<Self> {
        let ceiling = Ceiling::new(Arc::clone(&blocks), limit, cache_bytes);
        Self::under(ceiling, blocks, false)
    }

    /// Shares of a store under a ceiling that others share.
    pub(crate) fn shared(ceiling: Arc<Ceiling>, blocks: Arc<BlockCache>) -> Arc<Self> {
        Self::under(ceiling, blocks, true)
    }

    fn under(ceiling: Arc<Ceiling>, blocks: Arc<BlockCache>, is_shared: bool) -> Arc<Self> {
        Arc::new(Self {
            blocks,
            ceiling,
            is_shared,
            memtables: AtomicU64::new(0),
            active: AtomicU64::new(0),
            pinned_filters: AtomicU64::new(0),
            pinned_limit: AtomicU64::new(u64::MAX),
            pinned_limit_of_level_0: AtomicU64::new(u64::MAX),
            construction: AtomicU64::new(0),
            filters_not_held: AtomicU64::new(0),
        })
    }

    /// Changes the ceiling and what the cache would get without it, unless others share them.
    pub(crate) fn set_limits(&self, limit: Option<u64>, cache_bytes: u64) {
        if !self.is_shared {
            self.ceiling.set_limits(limit, cache_bytes);
        }
    }

    /// Whether other stores may be under the ceiling.
    pub(crate) fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// Notes what memtables may take, at most, and what the active one takes.
    pub(crate) fn set_memtables(&self, bytes: u64, active: u64) {
        if self.memtables.load(Relaxed) == bytes && self.active.load(Relaxed) == active {
            return;
        }
        let replace = |own: &AtomicU64, of_all: &AtomicU64, bytes: u64| {
            let before = own.swap(bytes, Relaxed);
            of_all.fetch_add(bytes.wrapping_sub(before), Relaxed);
        };
        self.ceiling.change(|| {
            replace(&self.memtables, &self.ceiling.memtables, bytes);
            replace(&self.active, &self.ceiling.active, active);
        });
    }

    /// Whether the largest of all active memtables is to be written out.
    pub(crate) fn active_memtables_are_heavy(&self) -> bool {
        self.is_shared && self.ceiling.excess_of_active() > 0
    }

    /// Bytes by which they take more than they may before the largest is written out.
    pub(crate) fn excess_of_active(&self) -> u64 {
        self.ceiling.excess_of_active()
    }

    /// Whether memtables of all stores take so much that writers are slowed: more than half of the
    /// ceiling.
    #[inline]
    pub(crate) fn memtables_are_heavy(&self) -> bool {
        self.is_shared
            && self.ceiling.memtables.load(Relaxed) > self.ceiling.limit.load(Relaxed) / 2
    }

    /// Notes that a table was opened, or that an open one takes more.
    pub(crate) fn add_table(&self, bytes: u64) {
        self.ceiling.change(|| {
            self.ceiling.tables.fetch_add(bytes, Relaxed);
        });
    }

    /// Notes that a table was closed, or takes less.
    pub(crate) fn remove_table(&self, bytes: u64) {
        self.ceiling.change(|| {
            self.ceiling.tables.fetch_sub(bytes, Relaxed);
        });
    }

    /// Sets how much filters may pin; what is pinned already stays.
    pub(crate) fn set_pinned_limits(&self, PinnedLimits { level_0, below }: PinnedLimits) {
        self.pinned_limit.store(below, Relaxed);
        self.pinned_limit_of_level_0.store(level_0, Relaxed);
    }

    /// Whether `bytes` more of filters may be pinned: if neither their own limit is passed, nor
    /// what all filters may hold, nor half of the ceiling by all that open tables hold. If so they
    /// are noted.
    pub(crate) fn pin_filter(&self, bytes: u64, is_of_level_0: bool) -> bool {
        let limit = if is_of_level_0 { &self.pinned_limit_of_level_0 } else { &self.pinned_limit };
        let fits = || {
            let sum = |held: &AtomicU64| held.load(Relaxed).saturating_add(bytes);
            sum(&self.pinned_filters) <= limit.load(Relaxed)
                && sum(&self.ceiling.tables) <= self.ceiling.limit.load(Relaxed) / 2
        };
        // A filter that does not fit asks at each of its uses: it must not meet others at the lock.
        if !fits() || !self.filters().admit(bytes) {
            return false;
        }
        let mut pinned = false;
        self.ceiling.change(|| {
            pinned = fits();
            if pinned {
                self.pinned_filters.fetch_add(bytes, Relaxed);
                self.ceiling.tables.fetch_add(bytes, Relaxed);
            }
        });
        if !pinned {
            self.filters().give_back(bytes);
        }
        pinned
    }

    /// Notes that a pinned filter has gone.
    pub(crate) fn unpin_filter(&self, bytes: u64) {
        self.ceiling.change(|| {
            self.pinned_filters.fetch_sub(bytes, Relaxed);
            self.ceiling.tables.fetch_sub(bytes, Relaxed);
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

    /// Most bytes that filters may pin, below level 0; none where only the ceiling stands against
    /// it.
    pub(crate) fn pinned_limit(&self) -> Option<u64> {
        Some(self.pinned_limit.load(Relaxed)).filter(|limit| *limit != u64::MAX)
    }

    /// Has the cache forget everything of this store.
    pub(crate) fn empty_cache(&self) {
        self.blocks.forget_own();
    }

    /// What filters and indexes of tables that are being written take.
    pub(crate) fn construction(&self) -> u64 {
        self.construction.load(Relaxed)
    }

    /// What the filters and the index of one table may take while it is written, where `jobs` write
    /// at once: an eighth of the ceiling for all of them.
    pub(crate) fn construction_share(&self, jobs: usize) -> u64 {
        self.ceiling.limit.load(Relaxed) / CONSTRUCTION_PART / jobs.max(1) as u64
    }

    /// Whether there is a ceiling at all.
    #[inline]
    pub(crate) fn has_ceiling(&self) -> bool {
        self.ceiling.has_limit()
    }

    /// Whether open tables take so much that one should be closed: more than half of the ceiling.
    pub(crate) fn tables_are_heavy(&self) -> bool {
        self.ceiling.tables.load(Relaxed) > self.ceiling.limit.load(Relaxed) / 2
    }

    /// Runs `read` while no part changes, so that what it adds up was true at one moment. It must
    /// not drop the last reference to a table, which is a change.
    pub(crate) fn at_one_moment<T>(&self, read: impl FnOnce() -> T) -> T {
        let _one_at_a_time = lock(&self.ceiling.changing);
        read()
    }

    /// Notes that filters that are being built take so much more, or less.
    fn change_construction(&self, by: u64, change: impl Fn(&AtomicU64, u64, Ordering) -> u64) {
        self.ceiling.change(|| {
            change(&self.construction, by, Relaxed);
            change(&self.ceiling.construction, by, Relaxed);
        });
    }
}

impl Drop for MemoryShares {
    fn drop(&mut self) {
        self.set_memtables(0, 0);
    }
}

/// Memory for the filters and the index of one table that is being written, noted in steps.
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
        let ceiling = self.shares.ceiling.limit.load(Relaxed);
        let step = (ceiling / STEPS_OF_CEILING).clamp(SMALLEST_STEP, LARGEST_STEP);
        let wanted = bytes.saturating_add(step - 1) / step * step;
        let more = wanted - self.noted;
        self.shares.change_construction(more, AtomicU64::fetch_add);
        self.noted = wanted;
    }
}

impl Drop for Construction {
    fn drop(&mut self) {
        self.shares.change_construction(self.noted, AtomicU64::fetch_sub);
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
        shares.set_memtables(3_000, 0);
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
        let limits = |level_0, below| shares.set_pinned_limits(PinnedLimits { level_0, below });
        limits(3_000, 0);
        assert!(!shares.pin_filter(1, false) && shares.pin_filter(1, true), "of level 0 alone");
        shares.unpin_filter(1);
        limits(3_000, 3_000);
        assert!(shares.pin_filter(2_000, false));
        assert!(!shares.pin_filter(1_001, true), "beyond the filters' own limit");
        assert!(shares.pin_filter(1_000, true));
        assert_eq!(blocks.stats().capacity_bytes, 7_000);
        limits(u64::MAX, u64::MAX);
        shares.add_table(1_500);
        assert!(!shares.pin_filter(501, false), "beyond half of the ceiling");
        assert!(shares.pin_filter(500, false));
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
                let taken = shares.ceiling.tables.load(Relaxed);
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

    #[test]
    fn stores_under_one_ceiling_share_it() {
        let blocks = BlockCache::new(16 << 10);
        let ceiling = Ceiling::new(Arc::clone(&blocks), Some(16 << 10), 16 << 10);
        let [one, other] =
            [(); 2].map(|()| MemoryShares::shared(Arc::clone(&ceiling), blocks.share()));
        one.set_memtables(1 << 10, 1 << 10);
        other.set_memtables(1 << 10, 1 << 10);
        assert_eq!(ceiling.held().cache_capacity, 14 << 10);
        assert!(!one.active_memtables_are_heavy(), "an eighth");
        other.set_memtables(2 << 10, 1100);
        assert_eq!((one.active_memtables_are_heavy(), one.excess_of_active()), (true, 76));
        assert!(!one.memtables_are_heavy());
        other.set_memtables(8 << 10, 0);
        assert!(one.memtables_are_heavy() && !one.active_memtables_are_heavy());
        other.add_table(9 << 10);
        assert!(one.tables_are_heavy() && !one.pin_filter(1, false), "of all stores");
        assert_eq!(ceiling.held().cache_capacity, 0);
        other.remove_table(9 << 10);
        let mut construction = Construction::new(&one);
        construction.grow_to(1 << 10);
        assert_eq!((one.construction(), other.construction()), (1 << 10, 0));
        // The limits are those of the environment.
        one.set_limits(None, 0);
        assert_eq!(ceiling.held().cache_capacity, 6 << 10);
        drop((construction, one, other));
        assert_eq!(ceiling.held().cache_capacity, 16 << 10);
    }
}
