//! Statistics: what a store has done and what it holds.

use std::fmt;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use crate::background::BackgroundError;
use crate::compaction::pressure::Cause;
use crate::counters::FilterTotals;
use crate::engine::Engine;
use crate::job_counters::Stall;
use crate::levels::LEVELS;
use crate::prefix::Prefix;
use crate::version::logical_level;

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
    /// Most bytes of filters that may be in memory if [`Options::filters`](crate::Options::filters)
    /// is a budget: never less than is held. A lowered budget takes effect once the excess has left
    /// memory, when the lookups probing it have ended.
    pub filter_budget: Option<u64>,
    /// Filters in the block cache; also counted there.
    pub cached_filters: u64,
    /// Most bytes of filters that may be pinned, below level 0; `None` if there is no limit.
    pub pinned_filter_limit: Option<u64>,
    /// Indexes of open tables.
    pub index: u64,
    /// Other memory of open tables.
    pub other: u64,
    /// Filters, with the hashes they are built from, and indexes of tables being written.
    pub construction: u64,
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
    }
}

/// What a store has done since it was opened (or since its counters were reset, where stated), and
/// what it holds now.
#[derive(Debug, Clone, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Stats {
    /// Levels that hold data, from the top.
    pub levels: Vec<LevelStats>,
    /// Memory use by component.
    pub memory: MemoryStats,
    /// Keys looked up since the reset.
    pub gets: u64,
    /// Keys found since the reset.
    pub found: u64,
    /// Keys for which a memtable held a value or a tombstone since the reset, so that no table was
    /// searched.
    pub memtable_hits: u64,
    /// Data blocks that point lookups read from files since the reset.
    pub block_reads: u64,
    /// Bytes of those blocks.
    pub block_read_bytes: u64,
    /// Data blocks that point lookups found in the cache since the reset.
    pub cache_hits: u64,
    /// Data blocks that scans read from files since the reset; each scan is counted at its end.
    pub scan_block_reads: u64,
    /// Data blocks that scans found in the cache since the reset.
    pub scan_cache_hits: u64,
    /// Entries that scans stepped over without yielding them since the reset: tombstones, and
    /// versions that are newer than the scan or hidden by a newer one. Many per entry yielded mean
    /// that scans spend their time on deleted or overwritten entries. Counted at the end of each
    /// scan.
    pub scan_entries_skipped: u64,
    /// Seeks by which scans since the reset skipped all remaining versions of a key, after stepping
    /// over several. Counted at the end of each scan.
    pub scan_reseeks: u64,
    /// Prefix filters probed by scans and seeks since the reset whose answers are known to be right
    /// or wrong.
    pub prefix_checked: u64,
    /// Tables skipped since the reset because of those answers.
    pub prefix_useful: u64,
    /// Tables since the reset whose prefix filter could not be probed, because another extractor
    /// made it.
    pub prefix_unused: u64,
    /// How the prefix extractor broke its contract, if it was seen to: it is not used any more.
    pub prefix_breach: Option<&'static str>,
    /// Operations written since the reset.
    pub writes: u64,
    /// Bytes of keys and values written since the reset.
    pub user_bytes: u64,
    /// Groups of batches committed since the reset.
    pub commits: u64,
    /// Bytes written to the log since the reset.
    pub log_bytes: u64,
    /// Times the log was synced for writers since the reset.
    pub log_syncs: u64,
    /// Memtables flushed.
    pub flushes: u64,
    /// Bytes of the tables written by flushes.
    pub flush_bytes: u64,
    /// Total time of flushes.
    pub flush_time: Duration,
    /// Compactions that merged tables.
    pub compactions: u64,
    /// Compactions in which more than one background thread took part.
    pub shared_compactions: u64,
    /// Compactions that only moved a table to a deeper level.
    pub trivial_moves: u64,
    /// Bytes that compactions read.
    pub compaction_bytes_read: u64,
    /// Bytes that compactions wrote.
    pub compaction_bytes_written: u64,
    /// Total time of compactions that merged tables; several may run at once, and the time of every
    /// thread that takes part counts.
    pub compaction_time: Duration,
    /// Time within flushes and compactions for completing and writing filters, once their table had
    /// all its keys.
    pub filter_time: Duration,
    /// Tables whose filters were rebuilt: see [`Db::rebuild_filters`](crate::Db::rebuild_filters).
    pub filter_rebuilds: u64,
    /// Bytes of tables read for that.
    pub filter_rebuild_bytes_read: u64,
    /// Bytes of sidecars written.
    pub filter_rebuild_bytes_written: u64,
    /// Total time of rebuilds; several may run at once.
    pub filter_rebuild_time: Duration,
    /// Tables whose rebuild is queued or running.
    pub filter_rebuilds_queued: u64,
    /// Bytes of obsolete files that are kept for recycling: see
    /// [`WriteSettings::spare_file_bytes`](crate::settings::WriteSettings::spare_file_bytes).
    pub spare_file_bytes: u64,
    /// Bytes of compaction needed to bring the tree into shape.
    pub compaction_debt: u64,
    /// Bytes of background writes limited by
    /// [`CompactionSettings::background_bytes_per_second`](crate::settings::CompactionSettings::background_bytes_per_second):
    /// those that no caller was waiting for.
    pub rate_limited_bytes: u64,
    /// Write stalls because memtables were waiting to be flushed.
    pub stalled_by_memtables: Stall,
    /// Write stalls because level 0 had too many runs.
    pub stalled_by_level_0: Stall,
    /// Write stalls because of compaction debt.
    pub stalled_by_debt: Stall,
    /// The last failure of a flush, a compaction or a rebuild of filters to fit their budget, if
    /// one has failed since the store was opened. While [`BackgroundError::is_current`], the work
    /// keeps failing.
    pub background_error: Option<BackgroundError>,
    /// Open tables.
    pub open_tables: usize,
    /// Filters of current tables that cannot be used (corrupt, of a kind unknown to this version,
    /// or built by a policy that is not configured): the table's file number and the reason. Such a
    /// table passes every key.
    pub unusable_filters: Vec<(u64, String)>,
    /// Filters and filter partitions that a lookup needed and that could not be held: they could
    /// not be pinned, and take more than half a shard of the block cache. The table passes every
    /// key instead. Each is counted once while its table stays open.
    pub filters_not_held: u64,
    /// Filters and filter partitions built as [`FilterKind::Standard`](crate::FilterKind) since the
    /// store was opened, because their keys have no ribbon within the construction bounds. Random
    /// keys have one: these keys were chosen to have none.
    pub filter_fallbacks: u64,
    /// The newest sequence number visible to reads.
    pub last_seqno: u64,
}

impl Engine {
    /// Resets every counter of [`Stats`].
    pub(crate) fn reset_stats(&self) {
        self.statistics.counters.reset();
        self.statistics.jobs.reset();
        self.background.limiter.reset_limited_bytes();
    }

    pub(crate) fn stats(&self) -> Stats {
        if self.access.opener().is_forked() {
            return Stats::default();
        }
        let totals = self.statistics.counters.totals();
        let (jobs, options) = (&self.statistics.jobs, self.options.load());
        Stats {
            levels: self.level_stats(),
            memory: self.memory_stats(),
            gets: totals.gets,
            found: totals.found,
            memtable_hits: totals.memtable_hits,
            block_reads: totals.block_reads,
            block_read_bytes: totals.block_read_bytes,
            cache_hits: totals.cache_hits,
            scan_block_reads: totals.scan_block_reads,
            scan_cache_hits: totals.scan_cache_hits,
            scan_entries_skipped: totals.scan_skipped,
            scan_reseeks: totals.scan_reseeks,
            prefix_checked: totals.prefixes.iter().flatten().map(FilterTotals::probes).sum(),
            prefix_useful: totals.prefixes.iter().flatten().map(|cell| cell.negatives).sum(),
            prefix_unused: totals.prefix_unused,
            prefix_breach: options.filtering.prefix_extractor.as_ref().and_then(Prefix::breach),
            writes: totals.writes,
            user_bytes: totals.user_bytes,
            commits: totals.commits,
            log_bytes: totals.log_bytes,
            log_syncs: totals.log_syncs,
            flushes: jobs.flushes.load(Relaxed),
            flush_bytes: jobs.flush_bytes.load(Relaxed),
            flush_time: Duration::from_nanos(jobs.flush_nanos.load(Relaxed)),
            compactions: jobs.compactions.load(Relaxed),
            shared_compactions: jobs.shared_compactions.load(Relaxed),
            trivial_moves: jobs.trivial_moves.load(Relaxed),
            compaction_bytes_read: jobs.compaction_bytes_read.load(Relaxed),
            compaction_bytes_written: jobs.compaction_bytes_written.load(Relaxed),
            compaction_time: Duration::from_nanos(jobs.compaction_nanos.load(Relaxed)),
            filter_time: Duration::from_nanos(jobs.filter_nanos.load(Relaxed)),
            filter_rebuilds: jobs.rebuilds.load(Relaxed),
            filter_rebuild_bytes_read: jobs.rebuild_bytes_read.load(Relaxed),
            filter_rebuild_bytes_written: jobs.rebuild_bytes_written.load(Relaxed),
            filter_rebuild_time: Duration::from_nanos(jobs.rebuild_nanos.load(Relaxed)),
            filter_rebuilds_queued: self.queued_rebuilds(),
            spare_file_bytes: self.files.deletion_queue.spare_bytes(),
            compaction_debt: self.backlog.debt(),
            rate_limited_bytes: self.background.limiter.limited_bytes(),
            stalled_by_memtables: jobs.stall(Cause::Memtables),
            stalled_by_level_0: jobs.stall(Cause::Level0),
            stalled_by_debt: jobs.stall(Cause::Debt),
            background_error: self.background_error(),
            open_tables: self.files.tables.open_tables(),
            unusable_filters: self.files.tables.unusable_filters(&self.version()),
            filters_not_held: self.memory.shares.filters_not_held(),
            filter_fallbacks: jobs.filter_fallbacks.load(Relaxed),
            last_seqno: self.snapshots.visible(),
        }
    }

    fn level_stats(&self) -> Vec<LevelStats> {
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
                level.filter_bytes += table.built_bytes();
            }
            levels.push(level);
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

/// One line, in MiB.
impl fmt::Display for MemoryStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:.1} memtables, {:.1} kept for memtables, {:.1} block cache ({:.1} of it filters), \
             {:.1} filters",
            mib(self.memtables),
            mib(self.idle_arenas),
            mib(self.block_cache),
            mib(self.cached_filters),
            mib(self.filters)
        )?;
        if let Some(limit) = self.pinned_filter_limit {
            write!(f, " (at most {:.1})", mib(limit))?;
        }
        write!(
            f,
            ", {:.1} index, {:.1} other, {:.1} building filters",
            mib(self.index),
            mib(self.other),
            mib(self.construction)
        )
    }
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / 1_048_576.0
}

impl Stats {
    /// Writes what scans did, if there is anything to report.
    fn show_scans(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.prefix_checked + self.prefix_unused > 0 {
            writeln!(
                f,
                "scans: {} filters of prefixes asked, {} tables passed over, {} not used",
                self.prefix_checked, self.prefix_useful, self.prefix_unused
            )?;
        }
        if self.scan_entries_skipped > 0 {
            writeln!(
                f,
                "scans: {} entries skipped, {} seeks past versions of a key",
                self.scan_entries_skipped, self.scan_reseeks
            )?;
        }
        Ok(())
    }
}

fn write_levels(f: &mut fmt::Formatter<'_>, levels: &[LevelStats]) -> fmt::Result {
    writeln!(
        f,
        "{:>5} {:>7} {:>12} {:>12} {:>12}",
        "level", "tables", "MiB", "entries", "filter KiB"
    )?;
    for level in levels {
        writeln!(
            f,
            "{:>5} {:>7} {:>12.1} {:>12} {:>12.1}",
            format!("L{}", level.level),
            level.tables,
            mib(level.bytes),
            level.entries,
            level.filter_bytes as f64 / 1024.0
        )?;
    }
    Ok(())
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_levels(f, &self.levels)?;
        writeln!(f, "memory MiB: {}", self.memory)?;
        writeln!(
            f,
            "written: {} operations, {:.1} MiB by users, {:.1} MiB log, {:.1} MiB in {} flushes, \
             {:.1} MiB in {} compactions, {} moves",
            self.writes,
            mib(self.user_bytes),
            mib(self.log_bytes),
            mib(self.flush_bytes),
            self.flushes,
            mib(self.compaction_bytes_written),
            self.compactions,
            self.trivial_moves
        )?;
        writeln!(
            f,
            "read: {} lookups, {} found, {} blocks from files, {} from the cache",
            self.gets, self.found, self.block_reads, self.cache_hits
        )?;
        self.show_scans(f)?;
        if self.filters_not_held > 0 || !self.unusable_filters.is_empty() {
            let unusable = self.unusable_filters.len();
            writeln!(
                f,
                "filters: {unusable} cannot be used, {} find no room",
                self.filters_not_held
            )?;
        }
        if self.filter_fallbacks > 0 {
            let count = self.filter_fallbacks;
            writeln!(f, "filters: {count} built as standard ones, for their keys have no ribbon")?;
        }
        if self.filter_rebuilds + self.filter_rebuilds_queued > 0 {
            writeln!(
                f,
                "filters rebuilt: {} tables, {:.1} MiB read, {:.1} MiB written, {} tables wait",
                self.filter_rebuilds,
                mib(self.filter_rebuild_bytes_read),
                mib(self.filter_rebuild_bytes_written),
                self.filter_rebuilds_queued
            )?;
        }
        if let Some(error) = &self.background_error {
            writeln!(f, "background: {error}")?;
        }
        write!(
            f,
            "stalls: {:?} for memtables, {:?} for level 0, {:?} for compaction debt",
            self.stalled_by_memtables.total,
            self.stalled_by_level_0.total,
            self.stalled_by_debt.total
        )
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use trommel_sim::MemoryVfs;

    use super::Stats;
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
        assert!(before.flushes > 0 && before.compactions > 0, "{before:?}");
        db.reset_stats();
        let now = db.stats();
        let held = Stats {
            levels: now.levels.clone(),
            memory: now.memory,
            spare_file_bytes: now.spare_file_bytes,
            compaction_debt: now.compaction_debt,
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
}
