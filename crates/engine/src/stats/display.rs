//! Statistics as text.

use std::fmt;

use super::{LevelStats, MemoryStats, Stats};

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
        )?;
        match self.deleted_ranges {
            0 => Ok(()),
            bytes => write!(f, ", {:.1} deleted ranges", mib(bytes)),
        }
    }
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / 1_048_576.0
}

impl Stats {
    /// Writes the archived logs, if there are any.
    fn show_archive(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.archive.logs == 0 {
            return Ok(());
        }
        let (logs, bytes) = (self.archive.logs, mib(self.archive.bytes));
        writeln!(f, "archived: {logs} logs, {bytes:.1} MiB, {} removed", self.archive.removed)
    }

    /// Writes what scans did, if there is anything to report.
    fn show_scans(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.prefixes.checked + self.prefixes.unused > 0 {
            writeln!(
                f,
                "scans: {} filters of prefixes queried, {} tables passed over, {} not used",
                self.prefixes.checked, self.prefixes.useful, self.prefixes.unused
            )?;
        }
        if self.scans.entries_skipped > 0 {
            writeln!(
                f,
                "scans: {} entries skipped, {} seeks past versions of a key",
                self.scans.entries_skipped, self.scans.reseeks
            )?;
        }
        if self.scans.sorted_views > 0 {
            let (count, bytes) = (self.scans.sorted_views, self.scans.sorted_view_bytes);
            writeln!(f, "scans: {count} sorted views built, {:.1} MiB in memory", mib(bytes))?;
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
            self.writes.operations,
            mib(self.writes.user_bytes),
            mib(self.writes.log_bytes),
            mib(self.background.flushes.bytes),
            self.background.flushes.count,
            mib(self.background.compactions.bytes_written),
            self.background.compactions.count,
            self.background.compactions.trivial_moves
        )?;
        writeln!(
            f,
            "read: {} lookups, {} found, {} blocks from files, {} from the cache",
            self.lookups.gets,
            self.lookups.found,
            self.lookups.block_reads,
            self.lookups.cache_hits
        )?;
        self.show_scans(f)?;
        if self.filters.not_held > 0 || !self.filters.unusable.is_empty() {
            let unusable = self.filters.unusable.len();
            writeln!(
                f,
                "filters: {unusable} cannot be used, {} find no room",
                self.filters.not_held
            )?;
        }
        if self.filters.fallbacks > 0 {
            let count = self.filters.fallbacks;
            writeln!(f, "filters: {count} built as standard ones, for their keys have no ribbon")?;
        }
        let rebuilds = &self.background.filter_rebuilds;
        if rebuilds.tables + rebuilds.queued > 0 {
            writeln!(
                f,
                "filters rebuilt: {} tables, {:.1} MiB read, {:.1} MiB written, {} tables wait",
                rebuilds.tables,
                mib(rebuilds.bytes_read),
                mib(rebuilds.bytes_written),
                rebuilds.queued
            )?;
        }
        if self.background.range_tombstones > 0 || self.background.deleted_bytes > 0 {
            writeln!(
                f,
                "deleted ranges: {} tombstones, {:.1} MiB of tables are deleted",
                self.background.range_tombstones,
                mib(self.background.deleted_bytes)
            )?;
        }
        self.show_archive(f)?;
        if let Some(error) = &self.background.error {
            writeln!(f, "background: {error}")?;
        }
        write!(
            f,
            "stalls: {:?} for memtables, {:?} for level 0, {:?} for compaction debt",
            self.background.stalls.memtables.total,
            self.background.stalls.level_0.total,
            self.background.stalls.debt.total
        )
    }
}
