//! Values that the engine computes from several settings.

use trommel_filter::FilterSpec;
use trommel_sstable::FilterPlan;

use crate::compaction_options::CompactionOptions;
use crate::memory::PinnedLimits;
use crate::options::{FilterResidency, Options};

impl Options {
    /// The options with which a store is opened: with no more threads than the environment has, and
    /// read-only if the store may be corrupt.
    pub(crate) fn in_effect(mut self) -> Self {
        self.opening.read_only |= self.opening.degraded.is_some();
        let most = self.environment.as_ref().map_or(usize::MAX, |it| it.workers().most());
        self.background_threads = self.background_threads.min(most);
        self
    }

    /// Bytes per second that background threads may write. Without threads, callers do that work,
    /// and there is no limit.
    pub(crate) fn background_limit(&self) -> Option<u64> {
        self.compaction.background_bytes_per_second.filter(|_| self.background_threads > 0)
    }

    /// Most bytes of filters that may be pinned.
    pub(crate) fn pinned_limits(&self) -> PinnedLimits {
        let most = self.filtering.pinned_filter_bytes.unwrap_or(u64::MAX);
        let (level_0, below) = match self.filtering.filter_residency {
            FilterResidency::Pinned => (most, most),
            FilterResidency::PinnedLevel0 => (most, 0),
            FilterResidency::Cached => (0, 0),
        };
        PinnedLimits { level_0, below }
    }

    /// Bytes of obsolete logs that are kept; 0 without a log.
    pub(crate) fn archive_bytes(&self) -> u64 {
        if self.writes.log { self.writes.log_archive_bytes } else { 0 }
    }

    /// Bytes at which a memtable is full. Under the memory limit of an environment, at most a
    /// sixteenth of that limit: if the memtables of all stores take too much, the largest is
    /// flushed. Under the store's own memory limit, all memtables together get a quarter of it,
    /// including frozen ones and the memory kept for the next one.
    pub(crate) fn memtable_limit(&self) -> u64 {
        let buffer = self.writes.write_buffer_bytes as u64;
        if let Some(environment) = &self.environment {
            return environment.memory_limit().map_or(buffer, |limit| buffer.min(limit / 16));
        }
        let memtables = self.writes.max_frozen_memtables as u64 + 2;
        self.memory_limit.map_or(buffer, |limit| buffer.min(limit / 4 / memtables))
    }

    /// Bytes of memtable memory, in use or free, up to which freed memory is kept for later
    /// memtables: one memtable. Under the memory limit of an environment none is kept, because
    /// other stores may need it.
    pub(crate) fn arena_limit(&self) -> usize {
        if self.environment.as_ref().is_some_and(|shared| shared.memory_limit().is_some()) {
            return 0;
        }
        self.memtable_limit() as usize
    }

    /// The filters of a table built for `level`: see `FilterPolicy::for_level`; under a budget,
    /// those of `by_budget`.
    pub(crate) fn filter_plan(
        &self,
        level: usize,
        is_last: bool,
        by_budget: Option<FilterSpec>,
    ) -> FilterPlan {
        let keys = by_budget.unwrap_or_else(|| self.filters.for_level(level, is_last));
        let settings = &self.filtering;
        let prefixes = settings.prefix_filters.as_ref();
        let prefixes = prefixes.map_or(keys, |filters| filters.for_level(level, is_last));
        let extractor = settings.prefix_extractor.as_ref();
        let extractor = extractor.filter(|prefix| prefix.breach().is_none());
        FilterPlan {
            keys: if settings.whole_key_filters { keys } else { FilterSpec::NONE },
            prefixes: extractor.map(|prefix| (prefixes, prefix.extractor())),
            ranges: self.filters.ranges_for_level(level, is_last),
            shape: settings.filter_shape,
            partition_bytes: settings.filter_partition_bytes,
        }
    }

    /// About as many bytes as the range filter of a table of `keys` keys takes.
    pub(crate) fn range_bytes(&self, level: usize, is_last: bool, keys: u64) -> u64 {
        if is_last && !self.filtering.filters_on_last_level {
            return 0;
        }
        self.filters.ranges_for_level(level, is_last).expected_bytes(keys)
    }

    /// The options of the compaction planner.
    pub(crate) fn planner(&self) -> CompactionOptions {
        let shape = &self.compaction;
        CompactionOptions {
            l0_trigger: shape.l0_trigger,
            base_level_bytes: shape.base_level_bytes,
            level_ratio: u64::from(shape.level_ratio),
            table_bytes: shape.table_bytes,
            slow_runs: shape.l0_slowdown,
            stop_runs: shape.l0_stop,
            slow_debt_bytes: shape.debt_stop_bytes / 2,
            stop_debt_bytes: shape.debt_stop_bytes,
            max_frozen_memtables: self.writes.max_frozen_memtables,
            ..CompactionOptions::default()
        }
    }
}
