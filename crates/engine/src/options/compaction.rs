//! The shape of the tree, and when it is compacted.

use std::sync::Arc;

use crate::compaction_filter::{CompactionFilter, UserCompactionFilter};
use crate::error::{Error, Result};
use crate::options::table::settings;

settings! {
    /// The shape of the tree, and when it is compacted: see
    /// [`Options::compaction`](crate::Options::compaction).
    CompactionSettings {
        /// Size, in bytes, at which a compaction ends a table and starts the next. In the last
        /// level, the tables of a large compaction share its output evenly, and may be up to 1.7
        /// times as large.
        table_bytes: u64 = 64 << 20, 1 << 10..=1 << 40;
        /// Size, in bytes, from which the deepest level needs another above it; twice that for the
        /// topmost of several.
        base_level_bytes: u64 = 256 << 20, 1 << 10..=1 << 50;
        /// Size ratio of each level to the one above.
        level_ratio: u32 = 10, 2..=100;
        /// Number of runs in level 0 that starts a compaction. While the runs hold less than seven
        /// eighths of the base level's target size ([`base_level_bytes`](Self::base_level_bytes),
        /// if that level is the deepest), compaction waits for up to a quarter more runs, but not
        /// for so many that writers are slowed. While a caller waits for the store to become idle
        /// ([`Db::wait_idle`](crate::Db::wait_idle)), compaction does not wait for more, and half
        /// of this number (rounded up, at least two) is enough if the base level holds at most five
        /// times the bytes of those runs in their range.
        l0_trigger: usize = 4, 1..=1000;
        /// Number of runs in level 0 above which writers are slowed,
        /// [`l0_trigger`](Self::l0_trigger) or more.
        l0_slowdown: usize = 12;
        /// Number of runs in level 0 at which writers stop, [`l0_slowdown`](Self::l0_slowdown) or
        /// more.
        l0_stop: usize = 24;
        /// Compaction debt, in bytes, at which writers stop; they are slowed from half of it on. It
        /// bounds the backlog of the deep levels, to which the limits on level 0 do not apply. A
        /// higher value lets a bulk load run ahead for longer, into a tree that is slower to read.
        debt_stop_bytes: u64 = 64 << 30, 1 << 10..;
        /// Limit, in bytes per second, on the writes of flushes, compactions and filter rebuilds.
        /// It applies only to work that no caller waits for: opening, closing,
        /// [`Db::flush`](crate::Db::flush), [`Db::wait_idle`](crate::Db::wait_idle), or a writer
        /// that is slowed or stopped, makes the work that it waits for run at full speed.
        /// [`BackgroundStats::rate_limited_bytes`](crate::BackgroundStats::rate_limited_bytes)
        /// counts the bytes that were limited.
        background_bytes_per_second: Option<u64> = None, 4 << 10..;
        /// User code that keeps, removes or replaces entries while they are compacted. It cannot
        /// change while the store is open. With a filter, each snapshot keeps the files and
        /// memtables of its creation, as an iterator does.
        compaction_filter(Arc<dyn CompactionFilter> => UserCompactionFilter::chosen):
            Option<UserCompactionFilter> = None;
        /// Whether compactions start automatically. If false, level 0 grows until a manual
        /// compaction ([`Db::compact_range`](crate::Db::compact_range)), and does not slow writers.
        auto_compaction: bool = true;
    }
}

impl CompactionSettings {
    /// Checks the constraints between settings: a default may conflict with a setting.
    pub(super) fn check(&self) -> Result<()> {
        let in_order = |name: &str, value: usize, least_name: &str, least: usize| match () {
            () if value >= least => Ok(()),
            () => Err(Error::option(format!(
                "{name} is {value} and {least_name} is {least}: {name} must be at least \
                 {least_name}, so set both"
            ))),
        };
        in_order("l0_slowdown", self.l0_slowdown, "l0_trigger", self.l0_trigger)?;
        in_order("l0_stop", self.l0_stop, "l0_slowdown", self.l0_slowdown)?;
        self.compaction_filter.as_ref().map_or(Ok(()), UserCompactionFilter::check)
    }
}
