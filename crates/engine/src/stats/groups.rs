//! The parts of [`Stats`](super::Stats).

use std::time::Duration;

use crate::background::BackgroundError;
use crate::job_counters::Stall;

/// Point lookups since the reset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct LookupStats {
    /// Keys looked up.
    pub gets: u64,
    /// Keys found.
    pub found: u64,
    /// Keys for which a memtable held a value or a tombstone, so that no table was searched.
    pub memtable_hits: u64,
    /// Data blocks read from files.
    pub block_reads: u64,
    /// Bytes of those blocks.
    pub block_read_bytes: u64,
    /// Data blocks found in the cache.
    pub cache_hits: u64,
}

/// Scans since the reset; each is counted at its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct ScanStats {
    /// Data blocks read from files.
    #[cfg_attr(feature = "serde", serde(rename = "scan_block_reads"))]
    pub block_reads: u64,
    /// Data blocks found in the cache.
    #[cfg_attr(feature = "serde", serde(rename = "scan_cache_hits"))]
    pub cache_hits: u64,
    /// Data blocks that were not read, as a range filter showed that they hold nothing of the
    /// scan's range.
    #[cfg_attr(feature = "serde", serde(rename = "scan_blocks_skipped"))]
    pub blocks_skipped: u64,
    /// Entries stepped over without yielding them: tombstones, and versions that are newer than the
    /// scan or hidden by a newer one. Many per entry yielded mean that scans spend their time on
    /// deleted or overwritten entries. Versions that a memtable with a hash table skips by itself
    /// are not counted.
    #[cfg_attr(feature = "serde", serde(rename = "scan_entries_skipped"))]
    pub entries_skipped: u64,
    /// Seeks that skipped all remaining versions of a key, after stepping over several.
    #[cfg_attr(feature = "serde", serde(rename = "scan_reseeks"))]
    pub reseeks: u64,
}

/// Prefix filters in scans and seeks since the reset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct PrefixStats {
    /// Filters probed whose answers are known to be right or wrong.
    #[cfg_attr(feature = "serde", serde(rename = "prefix_checked"))]
    pub checked: u64,
    /// Tables skipped because of those answers.
    #[cfg_attr(feature = "serde", serde(rename = "prefix_useful"))]
    pub useful: u64,
    /// Tables whose prefix filter could not be probed, because it was built with another extractor.
    #[cfg_attr(feature = "serde", serde(rename = "prefix_unused"))]
    pub unused: u64,
    /// How the prefix extractor violated its contract, if a violation was detected. It is then no
    /// longer used.
    #[cfg_attr(feature = "serde", serde(rename = "prefix_breach"))]
    pub breach: Option<&'static str>,
}

/// Writes since the reset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct WriteStats {
    /// Operations written.
    #[cfg_attr(feature = "serde", serde(rename = "writes"))]
    pub operations: u64,
    /// Bytes of keys and values written.
    pub user_bytes: u64,
    /// Groups of batches committed.
    pub commits: u64,
    /// Bytes written to the log.
    pub log_bytes: u64,
    /// Times the log was synced for writers.
    pub log_syncs: u64,
}

/// Flushes of memtables since the reset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct FlushStats {
    /// Memtables flushed.
    #[cfg_attr(feature = "serde", serde(rename = "flushes"))]
    pub count: u64,
    /// Bytes of the tables written.
    #[cfg_attr(feature = "serde", serde(rename = "flush_bytes"))]
    pub bytes: u64,
    /// Total time.
    #[cfg_attr(feature = "serde", serde(rename = "flush_time"))]
    pub time: Duration,
    /// Those running now: 0 or 1.
    #[cfg_attr(feature = "serde", serde(rename = "running_flushes"))]
    pub running: u64,
}

/// Compactions since the reset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct CompactionStats {
    /// Compactions that merged tables.
    #[cfg_attr(feature = "serde", serde(rename = "compactions"))]
    pub count: u64,
    /// Compactions in which more than one background thread took part.
    #[cfg_attr(feature = "serde", serde(rename = "shared_compactions"))]
    pub shared: u64,
    /// Compactions that only moved a table to a deeper level.
    pub trivial_moves: u64,
    /// Bytes read.
    #[cfg_attr(feature = "serde", serde(rename = "compaction_bytes_read"))]
    pub bytes_read: u64,
    /// Bytes written.
    #[cfg_attr(feature = "serde", serde(rename = "compaction_bytes_written"))]
    pub bytes_written: u64,
    /// Total time of compactions that merged tables; several may run at once, and the time of every
    /// thread that takes part counts.
    #[cfg_attr(feature = "serde", serde(rename = "compaction_time"))]
    pub time: Duration,
    /// Those running now.
    #[cfg_attr(feature = "serde", serde(rename = "running_compactions"))]
    pub running: u64,
    /// Entries that the [compaction filter](crate::CompactionFilter) has removed since the store
    /// was opened.
    pub filter_removed: u64,
    /// Entries that it has replaced.
    pub filter_replaced: u64,
    /// Its failures: panics, and values that are too long. The entries stayed.
    pub filter_failures: u64,
}

/// Rebuilds of filters since the reset: see [`Db::rebuild_filters`](crate::Db::rebuild_filters).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct RebuildStats {
    /// Tables whose filters were rebuilt.
    #[cfg_attr(feature = "serde", serde(rename = "filter_rebuilds"))]
    pub tables: u64,
    /// Bytes of tables read for that.
    #[cfg_attr(feature = "serde", serde(rename = "filter_rebuild_bytes_read"))]
    pub bytes_read: u64,
    /// Bytes of sidecars written.
    #[cfg_attr(feature = "serde", serde(rename = "filter_rebuild_bytes_written"))]
    pub bytes_written: u64,
    /// Total time of rebuilds; several may run at once.
    #[cfg_attr(feature = "serde", serde(rename = "filter_rebuild_time"))]
    pub time: Duration,
    /// Tables whose rebuild is queued or running now.
    #[cfg_attr(feature = "serde", serde(rename = "filter_rebuilds_queued"))]
    pub queued: u64,
}

/// Write stalls since the reset, by cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct StallStats {
    /// Memtables were waiting to be flushed.
    #[cfg_attr(feature = "serde", serde(rename = "stalled_by_memtables"))]
    pub memtables: Stall,
    /// Level 0 had too many runs.
    #[cfg_attr(feature = "serde", serde(rename = "stalled_by_level_0"))]
    pub level_0: Stall,
    /// There was too much compaction debt.
    #[cfg_attr(feature = "serde", serde(rename = "stalled_by_debt"))]
    pub debt: Stall,
}

/// Background work, and the writers that it has stalled.
#[derive(Debug, Clone, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct BackgroundStats {
    /// Flushes of memtables.
    #[cfg_attr(feature = "serde", serde(flatten))]
    pub flushes: FlushStats,
    /// Compactions.
    #[cfg_attr(feature = "serde", serde(flatten))]
    pub compactions: CompactionStats,
    /// Time within flushes and compactions for completing and writing filters, once their table had
    /// all its keys; since the reset.
    pub filter_time: Duration,
    /// Rebuilds of filters.
    #[cfg_attr(feature = "serde", serde(flatten))]
    pub filter_rebuilds: RebuildStats,
    /// Bytes of obsolete files that are kept for recycling: see
    /// [`WriteSettings::spare_file_bytes`](crate::settings::WriteSettings::spare_file_bytes).
    pub spare_file_bytes: u64,
    /// Bytes of compaction needed to bring the tree into shape.
    pub compaction_debt: u64,
    /// Range tombstones in the manifest: those of flushed memtables, until they have nothing left
    /// to delete. Overlapping ones are cut where others begin or end, and each part counts.
    pub range_tombstones: u64,
    /// Estimated bytes of the entries in tables that range tombstones delete, and of those that
    /// have expired ([`WriteSettings::ttl`](crate::settings::WriteSettings::ttl)). A table of which
    /// at least half is deleted is rewritten when there is no other work, once no snapshot sees
    /// these entries.
    pub deleted_bytes: u64,
    /// The first sequence number that has not expired; 0 if nothing has.
    pub expiry_horizon: u64,
    /// Bytes of background writes limited by
    /// [`CompactionSettings::background_bytes_per_second`](crate::settings::CompactionSettings::background_bytes_per_second):
    /// those that no caller was waiting for. Since the reset.
    pub rate_limited_bytes: u64,
    /// Write stalls.
    #[cfg_attr(feature = "serde", serde(flatten))]
    pub stalls: StallStats,
    /// The last failure of a flush, a compaction or a rebuild of filters to fit their budget, if
    /// one has failed since the store was opened. While [`BackgroundError::is_current`], the work
    /// keeps failing.
    #[cfg_attr(feature = "serde", serde(rename = "background_error"))]
    pub error: Option<BackgroundError>,
}

/// Obsolete logs that are kept for change feeds: see
/// [`WriteSettings::log_archive_bytes`](crate::settings::WriteSettings::log_archive_bytes).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct ArchiveStats {
    /// Archived logs.
    #[cfg_attr(feature = "serde", serde(rename = "archived_logs"))]
    pub logs: u64,
    /// Their bytes.
    #[cfg_attr(feature = "serde", serde(rename = "archived_log_bytes"))]
    pub bytes: u64,
    /// Archived logs removed since the counters were reset, as newer ones replaced them.
    #[cfg_attr(feature = "serde", serde(rename = "archived_logs_removed"))]
    pub removed: u64,
    /// Logs that could not be archived since the counters were reset: a feed that has not read them
    /// will find a gap.
    #[cfg_attr(feature = "serde", serde(rename = "logs_not_archived"))]
    pub failed: u64,
}

/// Filters of the current tables.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct FilterStats {
    /// Filters of current tables that cannot be used (corrupt, of a kind unknown to this version,
    /// or built by a policy that is not configured): the table's file number and the reason. Such a
    /// table passes every key.
    #[cfg_attr(feature = "serde", serde(rename = "unusable_filters"))]
    pub unusable: Vec<(u64, String)>,
    /// Filters and filter partitions that a lookup needed and that could not be held: they could
    /// not be pinned, and take more than half a shard of the block cache. The table passes every
    /// key instead. Each is counted once while its table stays open.
    #[cfg_attr(feature = "serde", serde(rename = "filters_not_held"))]
    pub not_held: u64,
    /// Filters and filter partitions built as [`FilterKind::Standard`](crate::FilterKind) since the
    /// reset, because no ribbon or fuse filter of their keys was found within the construction
    /// bounds. Random keys have one: these keys were chosen to have none.
    #[cfg_attr(feature = "serde", serde(rename = "filter_fallbacks"))]
    pub fallbacks: u64,
}
