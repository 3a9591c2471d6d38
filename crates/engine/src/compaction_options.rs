//! Parameters of compaction: sizes, triggers and the marks of back-pressure.

const KIB: u64 = 1 << 10;
const MIB: u64 = KIB << 10;
const GIB: u64 = MIB << 10;

/// Most tables' worth of bytes that one compaction grows to.
const JOB_TABLES: u64 = 25;
/// Most tables' worth of bytes of the level below its own that one table may overlap.
const GRANDPARENT_TABLES: u64 = 10;
/// A few runs of level 0 are compacted only if they overlap at most this many times their bytes in
/// the base level.
const FEW_RUNS_BELOW: u64 = 5;
/// Most tables' worth of bytes that a compaction of level 0 through the base level reads.
const THROUGH_TABLES: u64 = 16;
/// A small table has at most one in this many of a full table's bytes.
const SMALL_PART: u64 = 64;
/// A table of up to this many bytes is small even if it is a larger part of a full table, up to a
/// quarter.
const LEAST_SMALL_BYTES: u64 = 4 * KIB;
/// Most tables' worth of bytes that are rewritten in place at once: compactions into them wait
/// meanwhile.
const REWRITE_TABLES: u64 = 4;

/// Parameters of compaction; all may change on an open store.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct CompactionOptions {
    /// Runs in level 0 at which they are compacted into the base level, unless they are small
    /// together: see [`CompactionOptions::runs_due`] and [`CompactionOptions::few_runs`]; at least
    /// one.
    pub(crate) l0_trigger: usize,
    /// Whether to wait for more runs; false while a caller waits for the store to become idle, for
    /// which writers are not slowed.
    pub(crate) waits_for_runs: bool,
    /// Size of the last level at which a level is opened above it, half of the size for another
    /// level, and the smallest target of a level; at least 1.
    pub(crate) base_level_bytes: u64,
    /// How many times larger each level is than the one above it; at least 2.
    pub(crate) level_ratio: u64,
    /// Target size of an output table in bytes; at least 1.
    pub(crate) table_bytes: u64,
    /// Runs in level 0 above which writers are slowed.
    pub(crate) slow_runs: usize,
    /// Runs in level 0 at which writers stop; more than `slow_runs`.
    pub(crate) stop_runs: usize,
    /// Bytes of compaction debt above which writers are slowed.
    pub(crate) slow_debt_bytes: u64,
    /// Bytes of compaction debt at which writers stop; more than `slow_debt_bytes`.
    pub(crate) stop_debt_bytes: u64,
    /// Memtables that may wait for their flush; at least 1.
    pub(crate) max_frozen_memtables: usize,
    /// Bytes per second granted to writers where slowing starts.
    pub(crate) fastest_slowed_rate: u64,
    /// Bytes per second granted to writers just before they stop.
    pub(crate) slowest_rate: u64,
}

impl Default for CompactionOptions {
    fn default() -> Self {
        Self {
            l0_trigger: 4,
            waits_for_runs: true,
            base_level_bytes: 256 * MIB,
            level_ratio: 10,
            table_bytes: 64 * MIB,
            slow_runs: 12,
            stop_runs: 24,
            slow_debt_bytes: 32 * GIB,
            stop_debt_bytes: 64 * GIB,
            max_frozen_memtables: 4,
            fastest_slowed_rate: 256 * MIB,
            slowest_rate: MIB,
        }
    }
}

impl CompactionOptions {
    /// Number of runs at which level 0 is compacted, if they hold `bytes` and the target of the
    /// level that they are compacted into is `target` bytes.
    ///
    /// The compaction rewrites that level, however little the runs add. So while they hold clearly
    /// less than the target, it waits for up to a quarter more runs, but not for so many that
    /// writers are slowed, and for none if no more are expected.
    pub(crate) fn runs_due(&self, bytes: u64, target: u64) -> usize {
        let trigger = self.l0_trigger.max(1);
        if !self.waits_for_runs || bytes >= target.max(self.base_level_bytes) / 8 * 7 {
            return trigger;
        }
        (trigger + trigger / 4).min(self.slow_runs).max(trigger)
    }

    /// Number of runs of level 0 that are worth a cheap compaction if no more are expected and
    /// there is nothing else to do: half of the trigger, at least two. `None` while more are waited
    /// for.
    pub(crate) fn few_runs(&self) -> Option<usize> {
        (!self.waits_for_runs).then(|| self.l0_trigger.div_ceil(2).max(2))
    }

    /// Whether a compaction of `bytes` of level 0 into `below` bytes of the base level is cheap
    /// enough for a few runs.
    pub(crate) fn is_cheap(&self, bytes: u64, below: u64) -> bool {
        below <= bytes.saturating_mul(FEW_RUNS_BELOW)
    }

    /// Bytes up to which a table is small: several adjacent ones are merged into one.
    pub(crate) fn small_bytes(&self) -> u64 {
        (self.table_bytes / SMALL_PART).max(LEAST_SMALL_BYTES.min(self.table_bytes / 4))
    }

    /// Bytes that one rewrite in place may read, if it has more than one table.
    pub(crate) fn max_rewrite_bytes(&self) -> u64 {
        self.table_bytes.saturating_mul(REWRITE_TABLES)
    }

    /// Bytes that one compaction may grow to by choice; the tables it cannot do without may be
    /// more.
    pub(crate) fn max_job_bytes(&self) -> u64 {
        self.table_bytes.saturating_mul(JOB_TABLES)
    }

    /// Bytes that a compaction of level 0 through the base level may read: level 0 waits while it
    /// runs.
    pub(crate) fn max_through_bytes(&self) -> u64 {
        self.table_bytes.saturating_mul(THROUGH_TABLES)
    }

    /// Bytes of the level below its own that one table may overlap, so that its next compaction
    /// stays bounded.
    pub(crate) fn max_grandparent_bytes(&self) -> u64 {
        self.table_bytes.saturating_mul(GRANDPARENT_TABLES)
    }
}
