//! The bytes of range filters, which a budget pays for first.
//!
//! 1. Of a new table they are planned: as many as keys that spread evenly take, times the share of
//!    these that the range filters built last took.
//! 2. Of a table that was opened they are known from the directory of its filters, whatever the
//!    policy was when it was built. Until then they are taken for those of a new one.

use std::sync::Arc;

use crate::engine::Engine;
use crate::options::Options;
use crate::version::TableFile;

/// The range filters of the policy.
pub(super) struct PlannedRanges {
    options: Arc<Options>,
    built_for_planned: f64,
}

impl Engine {
    pub(super) fn planned_ranges(&self) -> PlannedRanges {
        let built_for_planned = self.statistics.budget_history.ranges_built_for_planned();
        PlannedRanges { options: Arc::clone(&self.options.load()), built_for_planned }
    }
}

impl PlannedRanges {
    /// Bytes of the range filter of a table of `keys` keys.
    pub(super) fn bytes(&self, level: usize, is_last: bool, keys: u64) -> u64 {
        let expected = self.options.range_bytes(level, is_last, keys);
        (expected as f64 * self.built_for_planned) as u64
    }

    /// Bytes of the range filter of an existing table.
    pub(super) fn built_bytes(&self, table: &TableFile, is_last: bool) -> u64 {
        let planned = || self.bytes(table.filters.built_for.into(), is_last, table.keys);
        table.range_bytes().unwrap_or_else(planned)
    }
}
