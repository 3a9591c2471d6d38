//! Asking one table for one key: its filter first, and its blocks only where that says "maybe".

use std::sync::Arc;

use trommel_base::SeqNo;
use trommel_sstable::{Found, ReadStats, Verdict};

use crate::engine::Engine;
use crate::error::Result;
use crate::version::{Reader, TableFile};

/// A key on its way through the tables, hashed once.
pub(super) struct Lookup<'a> {
    engine: &'a Engine,
    key: &'a [u8],
    hash: u64,
    seqno: SeqNo,
}

impl<'a> Lookup<'a> {
    pub(super) fn new(engine: &'a Engine, key: &'a [u8], seqno: SeqNo) -> Self {
        Self { engine, key, hash: trommel_filter::hash(key), seqno }
    }

    /// The newest visible version of the key in `file`, which lies in `level`.
    pub(super) fn probe(&self, level: usize, file: &Arc<TableFile>) -> Result<Option<Found>> {
        let table = self.engine.tables.reader(file)?;
        let mut verdict = table.filters().ask(self.key, self.hash, None);
        if verdict == Verdict::UNFILTERED {
            verdict = self.engine.ask_prefix(&table, self.key);
        }
        if !verdict.maybe {
            self.engine.count_negatives(level, verdict, 1);
            return Ok(None);
        }
        let mut stats = ReadStats::default();
        let found = table.get(self.key, self.hash, self.seqno, &mut stats)?;
        self.engine.count_reads(&stats);
        if is_decided(file, found.is_some(), self.seqno) {
            self.engine.count_maybe(level, verdict, found.is_some());
        }
        Ok(found)
    }
}

/// Whether a filter's "maybe" can be called true or false: where nothing was found, some version
/// of the key might be in the table and be too new to be seen.
pub(super) fn is_decided(file: &TableFile, found: bool, seqno: SeqNo) -> bool {
    found || file.max_seqno <= seqno
}

impl Engine {
    /// What a table without a filter of whole keys says of `key` by its filter of prefixes. Where
    /// the prefix is there and the key is not, that counts as a false positive.
    pub(super) fn ask_prefix(&self, table: &Reader, key: &[u8]) -> Verdict {
        let Some(part) = table.filters().prefixes_part() else { return Verdict::UNFILTERED };
        let options = self.options.load();
        let Some(extractor) = options.prefix_extractor.as_ref().or(table.stored_prefix()) else {
            return Verdict::UNFILTERED;
        };
        let Some(prefix) = extractor.believed(key) else { return Verdict::UNFILTERED };
        if part.extractor != extractor.name() {
            self.counters.with(|shard| shard.prefix_unused.add(1));
            return Verdict::UNFILTERED;
        }
        table.filters().ask_prefix(prefix, trommel_filter::hash(prefix), extractor.name())
    }

    /// Counts keys that a filter turned away.
    pub(super) fn count_negatives(&self, level: usize, verdict: Verdict, keys: u64) {
        self.counters.with(|shard| {
            let cell = shard.filter(level, verdict.kind);
            cell.negatives.add(keys);
            cell.expected.add(verdict.expected * keys as f64);
        });
    }

    /// Counts a key that a table had to be searched for.
    pub(super) fn count_maybe(&self, level: usize, verdict: Verdict, found: bool) {
        self.counters.with(|shard| {
            let cell = shard.filter(level, verdict.kind);
            if found {
                cell.true_positives.add(1);
            } else {
                cell.false_positives.add(1);
                cell.expected.add(verdict.expected);
            }
        });
    }

    /// Counts what a lookup read.
    pub(super) fn count_reads(&self, stats: &ReadStats) {
        self.counters.with(|shard| {
            shard.block_reads.add(stats.block_reads);
            shard.block_read_bytes.add(stats.block_bytes);
            shard.cache_hits.add(stats.cache_hits);
        });
    }
}
