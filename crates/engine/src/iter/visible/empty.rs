//! Counts scans that find nothing, for advice on range filters.

use super::VisibleCursor;

impl VisibleCursor {
    /// After the first movement of a scan of a range with an end, from one of its ends: counts it
    /// if it has found nothing.
    #[inline]
    pub(crate) fn count_if_empty(&self) {
        let is_outside = |key| !self.bounds.holds(key);
        if self.bounds.to.is_some() && self.key().is_none_or(is_outside) {
            self.count_empty();
        }
    }

    /// Counts a scan that has found nothing, unless it has passed deleted entries: with those, its
    /// blocks hold something of the range.
    #[cold]
    fn count_empty(&self) {
        if self.skipped + self.merge.skipped_in_visits() > 0 {
            return;
        }
        self.store.engine.statistics.counters.with(|shard| {
            shard.empty_scans.add(1);
            for (level, blocks) in shard.empty_blocks.iter().enumerate() {
                blocks.add(self.gap.gate().map_or(0, |gate| gate.skipped_blocks(level)));
            }
            for source in self.merge.sources() {
                let read = source.read_stats();
                if let Some(blocks) = source.level().and_then(|level| shard.empty_blocks.get(level))
                {
                    blocks.add(read.block_reads + read.cache_hits);
                }
            }
        });
    }
}
