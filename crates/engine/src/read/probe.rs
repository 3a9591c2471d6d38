//! Searching one table for one key: its filter first, and its blocks only if the filter passes.

use std::sync::Arc;

use trommel_base::SeqNo;
use trommel_sstable::FilterLabel;
use trommel_sstable::{Found, ReadStats, Verdict, Wants};

use crate::counters::Shard;
use crate::engine::Engine;
use crate::error::Result;
use crate::options::Options;
use crate::space::is_marked;
use crate::version::{Candidates, Fence, Reader, TableFile};

/// Tables whose filters are prefetched before the first is probed. This many misses overlap, about
/// as many as a core can have outstanding.
const TOGETHER: usize = 8;

/// Tables whose filters are prefetched at first.
const FIRST_TOGETHER: usize = 4;

/// A lookup on its way through the tables; the key is hashed once.
pub(super) struct Lookup<'a> {
    engine: &'a Engine,
    key: &'a [u8],
    hash: u64,
    seqno: SeqNo,
    wants: Wants,
}

impl<'a> Lookup<'a> {
    pub(super) fn new(engine: &'a Engine, key: &'a [u8], seqno: SeqNo, wants: Wants) -> Self {
        Self { engine, key, hash: engine.files.hash_seed.hash(key), seqno, wants }
    }

    /// The newest visible version of the key in the tables of `candidates`.
    ///
    /// 1. The filter of the last level's table is prefetched before the other tables are found.
    /// 2. If the key is in the range of one table only, that table is searched at once.
    /// 3. Otherwise the filters of a few tables are prefetched before the first is probed, so that
    ///    their misses overlap: [`FIRST_TOGETHER`] at first, because the newest table may have the
    ///    key, then [`TOGETHER`] at a time.
    #[inline(always)]
    pub(super) fn search(
        &self,
        mut candidates: Candidates<'_>,
        tally: &mut Tally,
    ) -> Result<Option<Found>> {
        candidates.prefetch_deepest(self.hash);
        let mut places = [None; TOGETHER];
        let mut wanted = FIRST_TOGETHER;
        let mut found = None;
        loop {
            let tables = candidates.next(&mut places[..wanted]);
            if tables.len() > 1 {
                tables.iter().flatten().for_each(|table| table.prefetch(self.hash));
            }
            for table in tables.iter().flatten() {
                self.probe(table, tally, &mut found)?;
                if found.is_some() {
                    return Ok(found);
                }
            }
            if tables.len() < wanted {
                return Ok(None);
            }
            wanted = TOGETHER;
        }
    }

    /// Finds the newest visible version of the key in a table: probes its filter, and searches the
    /// table if the filter passes.
    ///
    /// The result goes to `found` rather than being returned: passing on a result of that size
    /// costs more than probing a filter in cache. Always inlined: lookups of one key, which do
    /// little else, would pay a fifth more for calls.
    #[inline(always)]
    pub(super) fn probe(
        &self,
        fence: &Fence,
        tally: &mut Tally,
        found: &mut Option<Found>,
    ) -> Result<()> {
        let table = self.engine.files.tables.reader(&fence.file)?;
        let verdict = table.filters().query(self.key, self.hash);
        table.filters().note_lines(fence.lines());
        if !verdict.maybe {
            self.refuse(fence, verdict, tally);
            return Ok(());
        }
        *found = self.look_up(fence, &table, verdict, tally)?;
        Ok(())
    }

    /// Notes a negative. It is not counted if a positive could not have been classified as false,
    /// or the measured rate would be too low.
    #[inline]
    fn refuse(&self, fence: &Fence, verdict: Verdict, tally: &mut Tally) {
        if is_decided(&fence.file, false, self.seqno) {
            tally.refuse(self.engine, fence.level, verdict);
        }
    }

    /// The newest visible version of the key in a table whose whole-key filter, if any, passes.
    #[inline(never)]
    fn look_up(
        &self,
        fence: &Fence,
        table: &Reader,
        mut verdict: Verdict,
        tally: &mut Tally,
    ) -> Result<Option<Found>> {
        let Fence { file, level, .. } = fence;
        let is_of_keys = verdict != Verdict::UNFILTERED;
        if !is_of_keys {
            verdict = self.engine.probe_prefix(table, self.key);
            if !verdict.maybe {
                self.refuse(fence, verdict, tally);
                return Ok(None);
            }
        }
        let found = table.look_up(self.key, self.hash, self.seqno, self.wants, &mut tally.reads)?;
        if found.is_some() {
            tally.hit = Some((*level, verdict.kind));
        } else if is_decided(file, false, self.seqno) {
            self.engine.count_maybe(*level, verdict, false);
            if is_of_keys {
                self.engine.statistics.counters.note_false_positive(
                    *level,
                    verdict.kind,
                    self.hash,
                    file.number,
                );
            }
        }
        Ok(found)
    }
}

/// Counts of one lookup, collected here so that the thread's shard is looked up once.
pub(super) struct Tally {
    refusals: [Refusal; REFUSALS],
    refused: usize,
    reads: ReadStats,
    /// Level and filter of the table that had the key.
    hit: Option<(usize, FilterLabel)>,
}

/// A filter that returned a negative.
#[derive(Clone, Copy)]
struct Refusal {
    expected: f64,
    kind: FilterLabel,
    level: u8,
}

/// Negatives collected before they are added to the shard.
const REFUSALS: usize = 8;

impl Tally {
    pub(super) fn new() -> Self {
        let Verdict { expected, kind, .. } = Verdict::UNFILTERED;
        let refusals = [Refusal { expected, kind, level: 0 }; REFUSALS];
        Self { refusals, refused: 0, reads: ReadStats::default(), hit: None }
    }

    /// The stored level of the table that had the key, until it is counted.
    #[inline]
    pub(super) fn level(&self) -> Option<usize> {
        self.hit.map(|(level, _)| level)
    }

    #[inline]
    fn refuse(&mut self, engine: &Engine, level: usize, verdict: Verdict) {
        if self.refused == REFUSALS {
            engine.statistics.counters.with(|shard| self.count_refusals(shard));
        }
        let Verdict { expected, kind, .. } = verdict;
        self.refusals[self.refused] = Refusal { expected, kind, level: level as u8 };
        self.refused += 1;
    }

    #[inline]
    fn count_refusals(&mut self, shard: &Shard) {
        for Refusal { expected, kind, level } in &self.refusals[..self.refused] {
            shard.filter(usize::from(*level), *kind).count_negatives(1, *expected);
        }
        self.refused = 0;
    }

    /// Adds everything to the thread's shard.
    #[inline]
    pub(super) fn count(&mut self, shard: &Shard) {
        self.count_refusals(shard);
        if let Some((level, kind)) = self.hit.take() {
            shard.filter(level, kind).true_positives.add(1);
        }
        count_reads(shard, &std::mem::take(&mut self.reads));
    }
}

/// Whether a filter's answer counts: a positive must be known to be true or false. If nothing was
/// found, the table may hold a version of the key that is too new to be seen.
#[inline]
pub(super) fn is_decided(file: &TableFile, found: bool, seqno: SeqNo) -> bool {
    found || file.max_seqno <= seqno
}

impl Engine {
    /// Probes the prefix filter of a table without a whole-key filter. If the prefix is there and
    /// the key is not, that counts as a false positive.
    pub(super) fn probe_prefix(&self, table: &Reader, key: &[u8]) -> Verdict {
        if table.filters().prefixes_part().is_none() {
            return Verdict::UNFILTERED;
        }
        let (options, of_keyspace) = (self.options.load(), self.keyspace_options(key));
        let options = of_keyspace.as_ref().unwrap_or(&options);
        let Some(extractor) = options.filtering.prefix_extractor.as_ref().or(table.stored_prefix())
        else {
            return Verdict::UNFILTERED;
        };
        let Some(prefix) = extractor.believed(key) else { return Verdict::UNFILTERED };
        let verdict = table.query_prefix(extractor, prefix, self.files.hash_seed.hash(prefix));
        verdict.unwrap_or_else(|| {
            self.statistics.counters.with(|shard| shard.prefix_unused.add(1));
            Verdict::UNFILTERED
        })
    }

    /// The options of the key's keyspace, if it is a named one.
    fn keyspace_options(&self, key: &[u8]) -> Option<Arc<Options>> {
        is_marked(key).then(|| self.options.for_key(key))
    }

    /// Counts the negatives of a filter.
    #[inline]
    pub(super) fn count_negatives(&self, level: usize, verdict: Verdict, keys: u64) {
        self.statistics.counters.with(|shard| {
            shard.filter(level, verdict.kind).count_negatives(keys, verdict.expected);
        });
    }

    /// Counts a key that a table had to be searched for.
    pub(super) fn count_maybe(&self, level: usize, verdict: Verdict, found: bool) {
        self.statistics.counters.with(|shard| {
            shard.filter(level, verdict.kind).count_maybe(found, verdict.expected);
        });
    }
}

/// Counts what lookups read.
#[inline]
pub(super) fn count_reads(shard: &Shard, stats: &ReadStats) {
    shard.block_reads.add(stats.block_reads);
    shard.block_read_bytes.add(stats.block_bytes);
    shard.cache_hits.add(stats.cache_hits);
}
