//! One ceiling for all memory: the block cache gets what memtables, indexes, filters, the
//! construction of new filters and deleted ranges leave.
//!
//! Memory is accounted before it is allocated and until after it is freed, and the cache's capacity
//! follows under one lock, so at no moment do all parts exceed the ceiling. Three exceptions: a
//! single value of more than 256 KiB, until its group is in the memtable; deleted ranges, which
//! count once they exist; and, if the ceiling is lowered to less than a 32nd of the cache's bytes,
//! the slots of its blocks, until their tables are closed. Memtables that only cursors and ranges
//! still hold after their flush are not counted.
//!
//! The stores of an environment share one ceiling. Each store's memory counts there too, with its
//! memtables by their current size rather than the size they may reach. If the active ones together
//! exceed an eighth of the ceiling, the largest is flushed; while all memtables exceed half of it,
//! writers are slowed.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{self, Relaxed};

use trommel_sstable::{BlockCache, FilterMemory};

use crate::sync::{Mutex, lock};

/// Largest default size of the block cache, in bytes.
const LARGEST_DEFAULT_CACHE: u64 = 1 << 30;
/// Its size if the machine's memory is unknown.
const SMALLEST_DEFAULT_CACHE: u64 = 64 << 20;

/// Default bytes of a block cache.
pub(crate) fn default_cache_bytes() -> u64 {
    trommel_vfs::usable_memory_bytes()
        .map_or(SMALLEST_DEFAULT_CACHE, |bytes| (bytes / 8).min(LARGEST_DEFAULT_CACHE))
}

/// Most bytes of filters that may be pinned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PinnedLimits {
    /// For filters of tables that were written for level 0.
    pub(crate) level_0: u64,
    /// For filters of other tables.
    pub(crate) below: u64,
}

/// One part in this many of the ceiling is for filters under construction.
const CONSTRUCTION_PART: u64 = 8;
/// If active memtables exceed one part in this many of a shared ceiling, the largest is frozen.
const ACTIVE_PART: u64 = 8;
/// Step of accounting construction memory: one part in this many of the ceiling, within these
/// bounds.
const STEPS_OF_CEILING: u64 = 1024;
const SMALLEST_STEP: u64 = 1 << 10;
const LARGEST_STEP: u64 = 256 << 10;

/// The memory of all stores that share one ceiling, and its limit. A standalone store has its own.
#[derive(Debug)]
pub(crate) struct Ceiling {
    blocks: Arc<BlockCache>,
    /// The ceiling; `u64::MAX` if there is none.
    limit: AtomicU64,
    /// Bytes of the cache if the ceiling allows it.
    cache_bytes: AtomicU64,
    /// Memtables, and memory kept for the next ones.
    memtables: AtomicU64,
    /// Active memtables among them, if stores share the ceiling.
    active: AtomicU64,
    /// Indexes, pinned filters and other memory of open tables.
    tables: AtomicU64,
    /// Filters under construction, with the hashes they are built from.
    construction: AtomicU64,
    /// Range tombstones of tables, and the gaps that scans remember.
    ranges: AtomicU64,
    /// Held while a part and the cache's capacity change: of two concurrent changes, the older
    /// capacity must not win.
    changing: Mutex<()>,
}

impl Ceiling {
    /// A ceiling with nothing held.
    pub(crate) fn new(blocks: Arc<BlockCache>, limit: Option<u64>, cache_bytes: u64) -> Arc<Self> {
        let ceiling = Self {
            blocks,
            limit: AtomicU64::new(u64::MAX),
            cache_bytes: AtomicU64::new(cache_bytes),
            memtables: AtomicU64::new(0),
            active: AtomicU64::new(0),
            tables: AtomicU64::new(0),
            construction: AtomicU64::new(0),
            ranges: AtomicU64::new(0),
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
        let parts = [&self.memtables, &self.tables, &self.construction, &self.ranges];
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

    /// Bytes by which the active memtables together exceed their share, an eighth of the ceiling,
    /// at which the largest is frozen.
    pub(crate) fn excess_of_active(&self) -> u64 {
        self.active.load(Relaxed).saturating_sub(self.limit.load(Relaxed) / ACTIVE_PART)
    }

    /// The memory held now.
    pub(crate) fn held(&self) -> HeldMemory {
        let _one_at_a_time = lock(&self.changing);
        let cache = self.blocks.stats();
        HeldMemory {
            memtables: self.memtables.load(Relaxed),
            tables: self.tables.load(Relaxed) + self.ranges.load(Relaxed),
            construction: self.construction.load(Relaxed),
            cache: cache.used_bytes,
            cache_capacity: cache.capacity_bytes,
        }
    }
}

/// Bytes held under a ceiling.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct HeldMemory {
    pub(crate) memtables: u64,
    pub(crate) tables: u64,
    pub(crate) construction: u64,
    pub(crate) cache: u64,
    pub(crate) cache_capacity: u64,
}

/// The memory of one store, and its ceiling.
#[derive(Debug)]
pub(crate) struct MemoryShares {
    blocks: Arc<BlockCache>,
    ceiling: Arc<Ceiling>,
    /// Whether other stores may share the ceiling.
    is_shared: bool,
    /// Memtables, and memory kept for the next ones.
    memtables: AtomicU64,
    /// The active memtable, if the ceiling is shared.
    active: AtomicU64,
    /// Pinned filters.
    pinned_filters: AtomicU64,
    /// Most bytes of pinned filters.
    pinned_limit: AtomicU64,
    /// Most bytes of pinned filters of level 0.
    pinned_limit_of_level_0: AtomicU64,
    /// Filters under construction, with the hashes they are built from.
    construction: AtomicU64,
    /// Range tombstones of tables, and the gaps that scans remember.
    ranges: AtomicU64,
    /// Filters and filter partitions that could not be held.
    filters_not_held: AtomicU64,
}

impl MemoryShares {
    /// Shares of a store with its own ceiling, all zero.
    pub(crate) fn new(blocks: Arc<BlockCache>, limit: Option<u64>, cache_bytes: u64) -> Arc<Self> {
        let ceiling = Ceiling::new(Arc::clone(&blocks), limit, cache_bytes);
        Self::under(ceiling, blocks, false)
    }

    /// Shares of a store under a shared ceiling.
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
            ranges: AtomicU64::new(0),
            filters_not_held: AtomicU64::new(0),
        })
    }

    /// Changes the ceiling, and the cache's size without it, unless they are shared.
    pub(crate) fn set_limits(&self, limit: Option<u64>, cache_bytes: u64) {
        if !self.is_shared {
            self.ceiling.set_limits(limit, cache_bytes);
        }
    }

    /// Whether other stores may share the ceiling.
    pub(crate) fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// Sets the most bytes that memtables may take, and the bytes of the active one.
    pub(crate) fn set_memtables(&self, bytes: u64, active: u64) {
        if self.memtables.load(Relaxed) == bytes && self.active.load(Relaxed) == active {
            return;
        }
        self.ceiling.change(|| {
            replace(&self.memtables, &self.ceiling.memtables, bytes);
            replace(&self.active, &self.ceiling.active, active);
        });
    }

    /// Sets the bytes of the range tombstones of tables, and of the gaps that scans remember.
    pub(crate) fn set_ranges(&self, bytes: u64) {
        if self.ranges.load(Relaxed) != bytes {
            self.ceiling.change(|| replace(&self.ranges, &self.ceiling.ranges, bytes));
        }
    }

    /// Whether the largest of all active memtables must be frozen.
    pub(crate) fn active_memtables_are_heavy(&self) -> bool {
        self.is_shared && self.ceiling.excess_of_active() > 0
    }

    /// Bytes by which the active memtables exceed their share.
    pub(crate) fn excess_of_active(&self) -> u64 {
        self.ceiling.excess_of_active()
    }

    /// Whether memtables of all stores exceed half of the ceiling, so that writers are slowed.
    #[inline]
    pub(crate) fn memtables_are_heavy(&self) -> bool {
        self.is_shared
            && self.ceiling.memtables.load(Relaxed) > self.ceiling.limit.load(Relaxed) / 2
    }

    /// Accounts for a table that was opened, or grew.
    pub(crate) fn add_table(&self, bytes: u64) {
        self.ceiling.change(|| {
            self.ceiling.tables.fetch_add(bytes, Relaxed);
        });
    }

    /// Accounts for a table that was closed, or shrank.
    pub(crate) fn remove_table(&self, bytes: u64) {
        self.ceiling.change(|| {
            self.ceiling.tables.fetch_sub(bytes, Relaxed);
        });
    }

    /// Sets the limits of pinned filters; filters already pinned stay.
    pub(crate) fn set_pinned_limits(&self, PinnedLimits { level_0, below }: PinnedLimits) {
        self.pinned_limit.store(below, Relaxed);
        self.pinned_limit_of_level_0.store(level_0, Relaxed);
    }

    /// Accounts for `bytes` more of pinned filters, if they exceed neither their own limit, nor the
    /// filter memory, nor (with all memory of open tables) half of the ceiling; returns whether
    /// they may be pinned.
    pub(crate) fn pin_filter(&self, bytes: u64, is_of_level_0: bool) -> bool {
        let limit = if is_of_level_0 { &self.pinned_limit_of_level_0 } else { &self.pinned_limit };
        let fits = || {
            let sum = |held: &AtomicU64| held.load(Relaxed).saturating_add(bytes);
            sum(&self.pinned_filters) <= limit.load(Relaxed)
                && sum(&self.ceiling.tables) <= self.ceiling.limit.load(Relaxed) / 2
        };
        // A filter that does not fit gets here at each use, so it must not contend for the lock.
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

    /// Accounts for an unpinned filter.
    pub(crate) fn unpin_filter(&self, bytes: u64) {
        self.ceiling.change(|| {
            self.pinned_filters.fetch_sub(bytes, Relaxed);
            self.ceiling.tables.fetch_sub(bytes, Relaxed);
        });
        self.filters().give_back(bytes);
    }

    /// The accounting of all filters, pinned and cached, and its limit.
    pub(crate) fn filters(&self) -> &FilterMemory {
        self.blocks.filters()
    }

    /// Counts a filter, or partition, that could not be held.
    pub(crate) fn note_filter_not_held(&self) {
        self.filters_not_held.fetch_add(1, Relaxed);
    }

    /// The number of filters counted so.
    pub(crate) fn filters_not_held(&self) -> u64 {
        self.filters_not_held.load(Relaxed)
    }

    /// Most bytes of pinned filters, below level 0; `None` if only the ceiling limits them.
    pub(crate) fn pinned_limit(&self) -> Option<u64> {
        Some(self.pinned_limit.load(Relaxed)).filter(|limit| *limit != u64::MAX)
    }

    /// Removes this store's blocks from the cache.
    pub(crate) fn empty_cache(&self) {
        self.blocks.forget_own();
    }

    /// Bytes of filters and indexes of tables being written.
    pub(crate) fn construction(&self) -> u64 {
        self.construction.load(Relaxed)
    }

    /// Bytes that the filters and the index of one table may take while it is written, with `jobs`
    /// concurrent writers: an eighth of the ceiling for all of them.
    pub(crate) fn construction_share(&self, jobs: usize) -> u64 {
        self.ceiling.limit.load(Relaxed) / CONSTRUCTION_PART / jobs.max(1) as u64
    }

    /// Whether there is a ceiling.
    #[inline]
    pub(crate) fn has_ceiling(&self) -> bool {
        self.ceiling.has_limit()
    }

    /// Whether open tables exceed half of the ceiling, so that one should be closed.
    pub(crate) fn tables_are_heavy(&self) -> bool {
        self.ceiling.tables.load(Relaxed) > self.ceiling.limit.load(Relaxed) / 2
    }

    /// Runs `read` while no part changes, so that its sums are consistent. It must not drop the
    /// last reference to a table, which is a change.
    pub(crate) fn at_one_moment<T>(&self, read: impl FnOnce() -> T) -> T {
        let _one_at_a_time = lock(&self.ceiling.changing);
        read()
    }

    /// Changes the bytes of filters under construction.
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
        self.set_ranges(0);
    }
}

/// Replaces a store's bytes by `bytes`, and changes those of all stores accordingly.
fn replace(own: &AtomicU64, of_all: &AtomicU64, bytes: u64) {
    let before = own.swap(bytes, Relaxed);
    of_all.fetch_add(bytes.wrapping_sub(before), Relaxed);
}

/// Memory for the filters and the index of one table being written, accounted in steps.
#[derive(Debug)]
pub(crate) struct Construction {
    shares: Arc<MemoryShares>,
    noted: u64,
}

impl Construction {
    pub(crate) fn new(shares: &Arc<MemoryShares>) -> Self {
        Self { shares: Arc::clone(shares), noted: 0 }
    }

    /// Accounts for `bytes`, which are held, or will be before the next call. They only grow.
    pub(crate) fn grow_to(&mut self, bytes: u64) {
        if bytes <= self.noted {
            return;
        }
        // Under a low ceiling, a fixed step would be most of it.
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
        // The limits are the environment's.
        one.set_limits(None, 0);
        assert_eq!(ceiling.held().cache_capacity, 6 << 10);
        drop((construction, one, other));
        assert_eq!(ceiling.held().cache_capacity, 16 << 10);
    }
}
