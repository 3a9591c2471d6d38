//! Statistics: what a store has done and what it holds.

mod display;
mod groups;

use crate::compaction::pressure::Cause;
use crate::counters::FilterTotals;
use crate::engine::Engine;
use crate::job_counters::JobCounter;
use crate::levels::LEVELS;
use crate::log_archive::ArchiveCounts;
use crate::prefix::Prefix;
use crate::version::logical_level;
pub use groups::{
    ArchiveStats, BackgroundStats, CompactionStats, FilterStats, FlushStats, LookupStats,
    PrefixStats, RebuildStats, ScanStats, StallStats, WriteStats,
};

/// One level that holds data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct LevelStats {
    /// 0, or 1 for the first level below that holds data, and so on.
    pub level: usize,
    /// Its tables.
    pub tables: u64,
    /// Bytes of its files; sidecars count without header and footer.
    pub bytes: u64,
    /// Its entries, including tombstones and older versions.
    pub entries: u64,
    /// Tombstones among them.
    pub deletions: u64,
    /// Distinct keys of its entries, counted separately for each table.
    pub keys: u64,
    /// Keys among them that range tombstones delete, estimated from bytes.
    pub deleted_keys: u64,
    /// Bytes of its filters, as stored.
    pub filter_bytes: u64,
}

/// Memory use of the store, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct MemoryStats {
    /// Memtables, active and frozen, including their nodes.
    pub memtables: u64,
    /// Memory of dropped memtables that is kept for the active one.
    pub idle_arenas: u64,
    /// Blocks in the cache.
    pub block_cache: u64,
    /// Filters pinned by open tables.
    pub filters: u64,
    /// All filters in memory: pinned, in the block cache, or of tables held only by iterators.
    /// Filters of current tables are also counted in the other parts.
    pub held_filters: u64,
    /// Limit on the bytes of filters in memory if [`Options::filters`](crate::Options::filters) is
    /// a budget: never less than is held. A lowered budget takes effect once the excess has left
    /// memory, when the lookups probing it have ended.
    pub filter_budget: Option<u64>,
    /// Filters in the block cache; also counted there.
    pub cached_filters: u64,
    /// Limit on the bytes of pinned filters below level 0; `None` if there is none.
    pub pinned_filter_limit: Option<u64>,
    /// Indexes of open tables.
    pub index: u64,
    /// Other memory of open tables.
    pub other: u64,
    /// Filters, with the hashes they are built from, and indexes of tables being written.
    pub construction: u64,
    /// Range tombstones of tables, and the gaps without live keys that scans remember. Range
    /// tombstones of memtables count as memtables.
    pub deleted_ranges: u64,
}

impl MemoryStats {
    /// The sum of all parts.
    pub fn total(&self) -> u64 {
        self.memtables
            + self.idle_arenas
            + self.block_cache
            + self.filters
            + self.index
            + self.other
            + self.construction
            + self.deleted_ranges
    }
}

/// What a store holds now, and what it has done since it was opened (or, if stated, since its
/// counters were reset).
#[derive(Debug, Clone, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Stats {
    /// Levels that hold data, from the top.
    pub levels: Vec<LevelStats>,
    /// Memory use by component.
    pub memory: MemoryStats,
    /// Point lookups.
    #[cfg_attr(feature = "serde", serde(flatten))]
    pub lookups: LookupStats,
    /// Scans.
    #[cfg_attr(feature = "serde", serde(flatten))]
    pub scans: ScanStats,
    /// Prefix filters.
    #[cfg_attr(feature = "serde", serde(flatten))]
    pub prefixes: PrefixStats,
    /// Writes.
    #[cfg_attr(feature = "serde", serde(flatten))]
    pub writes: WriteStats,
    /// Background work.
    #[cfg_attr(feature = "serde", serde(flatten))]
    pub background: BackgroundStats,
    /// Archived logs.
    #[cfg_attr(feature = "serde", serde(flatten))]
    pub archive: ArchiveStats,
    /// Open tables.
    pub open_tables: usize,
    /// Filters of the current tables.
    #[cfg_attr(feature = "serde", serde(flatten))]
    pub filters: FilterStats,
    /// The newest sequence number visible to reads.
    pub last_seqno: u64,
}

impl Engine {
    /// Resets every counter of [`Stats`].
    pub(crate) fn reset_stats(&self) {
        let reset = || {
            self.statistics.counters.reset();
            self.statistics.jobs.reset();
            self.statistics.latencies.reset();
            self.background.limiter.reset_limited_bytes();
            self.files.archive.reset_counts();
        };
        #[cfg(feature = "metrics")]
        self.statistics.publisher.restart(reset);
        #[cfg(not(feature = "metrics"))]
        reset();
    }

    pub(crate) fn stats(&self) -> Stats {
        if self.access.opener().is_forked() {
            return Stats::default();
        }
        let totals = self.statistics.counters.totals();
        let cells = || totals.prefixes.iter().flatten();
        let extractor = self.options.load().filtering.prefix_extractor.clone();
        Stats {
            levels: self.level_stats().into_iter().map(|(_, level)| level).collect(),
            memory: self.memory_stats(),
            lookups: LookupStats {
                gets: totals.gets,
                found: totals.found,
                memtable_hits: totals.memtable_hits,
                block_reads: totals.block_reads,
                block_read_bytes: totals.block_read_bytes,
                cache_hits: totals.cache_hits,
            },
            scans: ScanStats {
                block_reads: totals.scan_block_reads,
                cache_hits: totals.scan_cache_hits,
                blocks_skipped: totals.ranges.iter().map(|cell| cell.negatives).sum(),
                entries_skipped: totals.scan_skipped,
                reseeks: totals.scan_reseeks,
            },
            prefixes: PrefixStats {
                checked: cells().map(FilterTotals::probes).sum(),
                useful: cells().map(|cell| cell.negatives).sum(),
                unused: totals.prefix_unused,
                breach: extractor.as_ref().and_then(Prefix::breach),
            },
            writes: WriteStats {
                operations: totals.writes,
                user_bytes: totals.user_bytes,
                commits: totals.commits,
                log_bytes: totals.log_bytes,
                log_syncs: totals.log_syncs,
            },
            background: self.background_stats(),
            archive: self.archive_stats(),
            open_tables: self.files.tables.open_tables(),
            filters: FilterStats {
                unusable: self.files.tables.unusable_filters(&self.version()),
                not_held: self.memory.shares.filters_not_held(),
                fallbacks: self.statistics.jobs.get(JobCounter::FilterFallbacks),
            },
            last_seqno: self.snapshots.visible(),
        }
    }

    fn background_stats(&self) -> BackgroundStats {
        let (jobs, version) = (&self.statistics.jobs, self.version());
        let (is_flushing, compacting) = self.background.running_jobs();
        let filter = self.options.load().compaction.compaction_filter.clone();
        let (filter_removed, filter_replaced, filter_failures) =
            filter.map_or((0, 0, 0), |filter| filter.counts());
        BackgroundStats {
            flushes: FlushStats {
                count: jobs.get(JobCounter::Flushes),
                bytes: jobs.get(JobCounter::FlushBytes),
                time: jobs.time(JobCounter::FlushTime),
                running: u64::from(is_flushing),
            },
            compactions: CompactionStats {
                count: jobs.get(JobCounter::Compactions),
                shared: jobs.get(JobCounter::SharedCompactions),
                trivial_moves: jobs.get(JobCounter::TrivialMoves),
                bytes_read: jobs.get(JobCounter::CompactionBytesRead),
                bytes_written: jobs.get(JobCounter::CompactionBytesWritten),
                time: jobs.time(JobCounter::CompactionTime),
                running: compacting as u64,
                filter_removed,
                filter_replaced,
                filter_failures,
            },
            filter_time: jobs.time(JobCounter::FilterTime),
            filter_rebuilds: RebuildStats {
                tables: jobs.get(JobCounter::Rebuilds),
                bytes_read: jobs.get(JobCounter::RebuildBytesRead),
                bytes_written: jobs.get(JobCounter::RebuildBytesWritten),
                time: jobs.time(JobCounter::RebuildTime),
                queued: self.queued_rebuilds(),
            },
            spare_file_bytes: self.files.deletion_queue.spare_bytes(),
            compaction_debt: self.backlog.debt(),
            range_tombstones: version.ranges.len() as u64,
            deleted_bytes: version.tables().map(|(_, table)| table.deleted_bytes()).sum(),
            expiry_horizon: self.snapshots.horizon(),
            rate_limited_bytes: self.background.limiter.limited_bytes(),
            stalls: StallStats {
                memtables: jobs.stall(Cause::Memtables),
                level_0: jobs.stall(Cause::Level0),
                debt: jobs.stall(Cause::Debt),
            },
            error: self.background_error(),
        }
    }

    fn archive_stats(&self) -> ArchiveStats {
        let ArchiveCounts { logs, bytes, removed, failed } = self.files.archive.counts();
        ArchiveStats { logs, bytes, removed, failed }
    }

    /// The levels that hold data, each after its number in the tree.
    pub(crate) fn level_stats(&self) -> Vec<(usize, LevelStats)> {
        let version = self.version();
        let mut levels = Vec::new();
        for physical in (0..LEVELS).filter(|level| !version.levels[*level].is_empty()) {
            let mut level =
                LevelStats { level: logical_level(&version, physical).0, ..LevelStats::default() };
            for table in &version.levels[physical] {
                level.tables += 1;
                level.bytes += table.file_bytes + table.sidecar_bytes();
                level.entries += table.entries;
                level.deletions += table.deletions;
                level.keys += table.keys;
                level.deleted_keys += table.deleted_keys();
                level.filter_bytes += table.built_bytes();
            }
            levels.push((physical, level));
        }
        levels
    }

    fn memory_stats(&self) -> MemoryStats {
        // The references outlive the computation: the last reference to a table closes it.
        let (memory, _view, _readers) = self.memory.shares.at_one_moment(|| {
            let view = self.view.load_full();
            let (cache, filters) =
                (self.memory.blocks.stats(), self.memory.shares.filters().seen());
            let mut memory = MemoryStats {
                cached_filters: filters.cached,
                held_filters: filters.held,
                filter_budget: Some(filters.limit).filter(|limit| *limit != u64::MAX),
                pinned_filter_limit: self.memory.shares.pinned_limit(),
                memtables: view.memtable_bytes() as u64,
                idle_arenas: self.memory.arenas.idle_bytes() as u64,
                block_cache: cache.used_bytes,
                construction: self.memory.shares.construction(),
                deleted_ranges: self.deleted_range_bytes(),
                ..MemoryStats::default()
            };
            let readers: Vec<_> =
                view.version.tables().filter_map(|(_, table)| table.open_reader()).collect();
            for open in &readers {
                let table = open.table().memory_bytes();
                memory.filters += table.filter as u64;
                memory.index += table.index as u64;
                memory.other += table.other as u64;
            }
            (memory, view, readers)
        });
        memory
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use trommel_sim::MemoryVfs;

    use super::{BackgroundStats, Stats};
    use crate::{Db, Options};

    /// Regression: a reset left out the counters of flushes and compactions.
    #[test]
    fn a_reset_clears_every_counter() {
        let options = Options::default()
            .vfs(Arc::new(MemoryVfs::new()))
            .compaction(|c| c.background_bytes_per_second(Some(1 << 30)));
        let db = Db::open("db", options).unwrap();
        db.put("key", "value").unwrap();
        db.flush().unwrap();
        db.compact_all().unwrap();
        db.get("key").unwrap();
        db.wait_idle().unwrap();
        let before = db.stats();
        let jobs = &before.background;
        assert!(jobs.flushes.count > 0 && jobs.compactions.count > 0, "{before:?}");
        db.reset_stats();
        let now = db.stats();
        let held = Stats {
            levels: now.levels.clone(),
            memory: now.memory,
            background: BackgroundStats {
                spare_file_bytes: now.background.spare_file_bytes,
                compaction_debt: now.background.compaction_debt,
                ..BackgroundStats::default()
            },
            open_tables: now.open_tables,
            last_seqno: now.last_seqno,
            ..Stats::default()
        };
        assert_eq!(format!("{now:?}"), format!("{held:?}"));
    }

    #[cfg(feature = "serde")]
    #[test]
    fn stats_are_written_field_by_field() {
        let db = Db::open("db", Options::default().vfs(Arc::new(MemoryVfs::new()))).unwrap();
        db.put("key", "value").unwrap();
        db.flush().unwrap();
        let stats = serde_json::to_value(db.stats()).unwrap();
        assert_eq!((&stats["writes"], &stats["levels"][0]["entries"]), (&1.into(), &1.into()));
        assert_eq!(stats["stalled_by_level_0"]["times"], 0);
        assert!(stats["memory"]["memtables"].is_u64(), "{stats}");
    }

    /// The groups of [`Stats`] do not appear in JSON: its field names and their order are older
    /// than the groups.
    #[cfg(feature = "serde")]
    #[test]
    fn fields_are_written_in_one_flat_order() {
        let names = [
            "levels",
            "memory",
            "gets",
            "found",
            "memtable_hits",
            "block_reads",
            "block_read_bytes",
            "cache_hits",
            "scan_block_reads",
            "scan_cache_hits",
            "scan_blocks_skipped",
            "scan_entries_skipped",
            "scan_reseeks",
            "prefix_checked",
            "prefix_useful",
            "prefix_unused",
            "prefix_breach",
            "writes",
            "user_bytes",
            "commits",
            "log_bytes",
            "log_syncs",
            "flushes",
            "flush_bytes",
            "flush_time",
            "running_flushes",
            "compactions",
            "shared_compactions",
            "trivial_moves",
            "compaction_bytes_read",
            "compaction_bytes_written",
            "compaction_time",
            "running_compactions",
            "filter_removed",
            "filter_replaced",
            "filter_failures",
            "filter_time",
            "filter_rebuilds",
            "filter_rebuild_bytes_read",
            "filter_rebuild_bytes_written",
            "filter_rebuild_time",
            "filter_rebuilds_queued",
            "spare_file_bytes",
            "compaction_debt",
            "range_tombstones",
            "deleted_bytes",
            "expiry_horizon",
            "rate_limited_bytes",
            "stalled_by_memtables",
            "stalled_by_level_0",
            "stalled_by_debt",
            "background_error",
            "archived_logs",
            "archived_log_bytes",
            "archived_logs_removed",
            "logs_not_archived",
            "open_tables",
            "unusable_filters",
            "filters_not_held",
            "filter_fallbacks",
            "last_seqno",
        ];
        let text = serde_json::to_string(&Stats::default()).unwrap();
        let places: Vec<_> = names.iter().map(|name| text.find(&format!("\"{name}\":"))).collect();
        assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{places:?} in {text}");
        let fields = serde_json::to_value(Stats::default()).unwrap();
        assert_eq!(fields.as_object().map(serde_json::Map::len), Some(names.len()));
    }
}
