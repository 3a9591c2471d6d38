//! What steers compaction: sizes, triggers and the marks of back-pressure.

const KIB: u64 = 1 << 10;
const MIB: u64 = KIB << 10;
const GIB: u64 = MIB << 10;

/// How many tables' worth of bytes one merge may read.
const JOB_TABLES: u64 = 25;
/// How many tables' worth of bytes of the level below its own one table may overlap.
const GRANDPARENT_TABLES: u64 = 10;
/// How many times the bytes of a few runs of level 0 their merge may find in the base level.
const FEW_RUNS_BELOW: u64 = 5;
/// How many tables' worth of bytes a merge of level 0 through the base level may read.
const THROUGH_TABLES: u64 = 16;
/// One in how many of a table's bytes a small table has at most.
const SMALL_PART: u64 = 64;
/// Bytes that a small table may have where that part is less, but no more than a quarter of a
/// table.
const LEAST_SMALL_BYTES: u64 = 4 * KIB;
/// Tables' worth of bytes that are rewritten in place at once: what is merged into them waits
/// meanwhile.
const REWRITE_TABLES: u64 = 4;

/// What steers compaction; all of it may change on a live store.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct CompactionOptions {
    /// Runs in level 0 from which on they are merged into the base level, unless they are small
    /// together: see [`CompactionOptions::runs_due`] and [`CompactionOptions::few_runs`]; at least
    /// one.
    pub(crate) l0_trigger: usize,
    /// Whether more runs may be waited for; not while somebody waits for the store to rest, for
    /// which writers are not slowed.
    pub(crate) waits_for_runs: bool,
    /// Bytes that the last level may hold before a level is opened above it, half of what another
    /// may, and the smallest target of a level; at least 1.
    pub(crate) base_level_bytes: u64,
    /// How many times larger each level is than the one above it; at least 2.
    pub(crate) level_ratio: u64,
    /// Bytes at which an output table is closed; at least 1.
    pub(crate) table_bytes: u64,
    /// Runs in level 0 from which on writers are slowed.
    pub(crate) slow_runs: usize,
    /// Runs in level 0 at which writers stop; more than `slow_runs`.
    pub(crate) stop_runs: usize,
    /// Bytes of compaction debt from which on writers are slowed.
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
    /// Runs from which on level 0 is merged, where they hold `bytes` together and the level that
    /// they are merged into may hold `target` bytes.
    ///
    /// The merge writes what that level holds anew, however little they bring. So while they bring
    /// clearly less than it may hold, up to a quarter more of them are waited for, but none for
    /// which a writer would be slowed, and none where no more are expected.
    pub(crate) fn runs_due(&self, bytes: u64, target: u64) -> usize {
        let trigger = self.l0_trigger.max(1);
        if !self.waits_for_runs || bytes >= target.max(self.base_level_bytes) / 8 * 7 {
            return trigger;
        }
        (trigger + trigger / 4).min(self.slow_runs).max(trigger)
    }

    /// How many runs of level 0 are worth a merge where no more are expected, nothing else is to be
    /// done and the merge is cheap: half of the trigger, two at least. `None` where more are waited
    /// for.
    pub(crate) fn few_runs(&self) -> Option<usize> {
        (!self.waits_for_runs).then(|| self.l0_trigger.div_ceil(2).max(2))
    }

    /// Whether `bytes` of level 0 may be merged into `below` bytes of the base level though they
    /// are few.
    pub(crate) fn is_cheap(&self, bytes: u64, below: u64) -> bool {
        below <= bytes.saturating_mul(FEW_RUNS_BELOW)
    }

    /// Bytes up to which a table is small: many of these, side by side, are merged into one.
    pub(crate) fn small_bytes(&self) -> u64 {
        (self.table_bytes / SMALL_PART).max(LEAST_SMALL_BYTES.min(self.table_bytes / 4))
    }

    /// Bytes that one rewrite in place may read, of more tables than one.
    pub(crate) fn max_rewrite_bytes(&self) -> u64 {
        self.table_bytes.saturating_mul(REWRITE_TABLES)
    }

    /// Bytes that one merge may grow to by choice; the tables it cannot do without may be more.
    pub(crate) fn max_job_bytes(&self) -> u64 {
        self.table_bytes.saturating_mul(JOB_TABLES)
    }

    /// Bytes that a merge of level 0 through the base level may read: while it runs, level 0 waits.
    pub(crate) fn max_through_bytes(&self) -> u64 {
        self.table_bytes.saturating_mul(THROUGH_TABLES)
    }

    /// Bytes of the level below its own that one table may overlap, so that its own next merge
    /// stays bounded.
    pub(crate) fn max_grandparent_bytes(&self) -> u64 {
        self.table_bytes.saturating_mul(GRANDPARENT_TABLES)
    }
}
