//! The shape of the tree, and when it is compacted.

use std::sync::Arc;

use crate::compaction_filter::{CompactionFilter, UserCompactionFilter};
use crate::error::{Error, Result};
use crate::options::table::settings;

settings! {
    /// The shape of the tree, and when it is compacted: see
    /// [`Options::compaction`](crate::Options::compaction).
    CompactionSettings {
        /// Bytes at which a compaction starts a new table. In the last level the tables of a large
        /// compaction share what it writes evenly, and may have up to 1.7 times as many.
        table_bytes: u64 = 64 << 20, 1 << 10..=1 << 40;
        /// Size in bytes of the deepest level at which a level is added above it; the topmost of
        /// several may reach twice that size before one is added above it.
        base_level_bytes: u64 = 256 << 20, 1 << 10..=1 << 50;
        /// How many times larger each level is than the one above.
        level_ratio: u32 = 10, 2..=100;
        /// Runs in level 0 that start a compaction. Up to a quarter more are waited for where they
        /// hold less than seven eighths of what the level below may hold
        /// ([`base_level_bytes`](Self::base_level_bytes), where it is the deepest) and no writer is
        /// slowed by it. While a caller waits for the store to rest
        /// ([`Db::wait_idle`](crate::Db::wait_idle)), half as many (rounded up, at least two) are
        /// enough where the base level holds at most five times their bytes in their range, and no
        /// more than this are waited for elsewhere.
        l0_trigger: usize = 4, 1..=1000;
        /// Runs in level 0 above which writers are slowed, [`l0_trigger`](Self::l0_trigger) or
        /// more.
        l0_slowdown: usize = 12;
        /// Runs in level 0 at which writers wait, [`l0_slowdown`](Self::l0_slowdown) or more.
        l0_stop: usize = 24;
        /// Bytes of pending compaction at which writers wait; they are slowed from half of it. It
        /// bounds deep levels where the level-0 triggers do not, and slows a bulk load noticeably
        /// when it takes effect.
        debt_stop_bytes: u64 = 64 << 30, 1 << 10..;
        /// Bytes per second that flushes, compactions and rebuilds of filters may write. Work that
        /// a caller waits for is not limited: opening, closing, [`Db::flush`](crate::Db::flush),
        /// [`Db::wait_idle`](crate::Db::wait_idle), and writers that are slowed or stopped among
        /// them.
        /// [`BackgroundStats::rate_limited_bytes`](crate::BackgroundStats::rate_limited_bytes)
        /// counts what the limit was applied to.
        background_bytes_per_second: Option<u64> = None, 4 << 10..;
        /// Code of the program that keeps, removes or replaces entries while they are compacted.
        /// It stays while the store is open. While there is one, each snapshot keeps the files and
        /// memtables of its creation, as an iterator does.
        compaction_filter(Arc<dyn CompactionFilter> => UserCompactionFilter::chosen):
            Option<UserCompactionFilter> = None;
        /// Whether compactions start by themselves.
        auto_compaction: bool = true;
    }
}

impl CompactionSettings {
    /// Checks what the settings demand of each other: a default may be too small for what was set.
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
