//! Asking one table for one key: its filter first, and its blocks only where that says "maybe".

use std::sync::Arc;

use trommel_base::SeqNo;
use trommel_sstable::FilterLabel;
use trommel_sstable::{Found, ReadStats, Verdict};

use crate::counters::Shard;
use crate::engine::Engine;
use crate::error::Result;
use crate::version::{Reader, TableFile};

/// Tables whose filters are asked for before the first of them is asked: so many misses overlap.
///
/// Each takes one of the few slots in which a thread notes what it reads without a shared write
/// (eight in `arc-swap`); the view takes another.
pub(super) const TOGETHER: usize = 6;

/// Of these, the tables that a single lookup prepares first. To prepare one costs about as many
/// instructions as to ask it.
const FIRST_TOGETHER: usize = 2;

/// A table that is about to be asked.
struct Prepared<'a> {
    level: usize,
    file: &'a Arc<TableFile>,
    /// Its reader, if it was open.
    reader: Option<Reader>,
}

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

    /// The newest visible version of the key in the tables of `candidates`: each with its level,
    /// newest first. A few at a time: the filters of all of them are on their way to the processor
    /// before the first is asked. Few at first, for the newest table may have the key.
    #[inline]
    pub(super) fn search<'t>(
        &self,
        mut candidates: impl Iterator<Item = (usize, &'t Arc<TableFile>)>,
        tally: &mut Tally,
    ) -> Result<Option<Found>> {
        let mut together = FIRST_TOGETHER;
        loop {
            let mut tables = [const { None }; TOGETHER];
            let mut count = 0;
            while count < together
                && let Some((level, file)) = candidates.next()
            {
                tables[count] = Some(self.prepare(level, file));
                count += 1;
            }
            for table in tables[..count].iter().flatten() {
                let found = self.probe(table, tally)?;
                if found.is_some() {
                    return Ok(found);
                }
            }
            if count < together {
                return Ok(None);
            }
            together = TOGETHER;
        }
    }

    /// Asks for what the filter of `file`, which lies in `level`, looks at first. Opens nothing: it
    /// may not be needed.
    #[inline]
    fn prepare<'t>(&self, level: usize, file: &'t Arc<TableFile>) -> Prepared<'t> {
        let reader = self.engine.tables.reader_if_open(file);
        if let Some(table) = &reader {
            table.filters().prefetch(self.hash);
        }
        Prepared { level, file, reader }
    }

    /// The newest visible version of the key in a table.
    #[inline]
    fn probe(&self, table: &Prepared<'_>, tally: &mut Tally) -> Result<Option<Found>> {
        let Prepared { level, file, reader } = table;
        let opened;
        let table = match reader {
            Some(table) => table,
            None => {
                opened = self.engine.tables.reader(file)?;
                &opened
            }
        };
        let mut verdict = table.filters().ask(self.key, self.hash);
        if verdict == Verdict::UNFILTERED {
            verdict = self.engine.ask_prefix(table, self.key);
        }
        if !verdict.maybe {
            tally.refuse(self.engine, *level, verdict);
            return Ok(None);
        }
        let found = table.get(self.key, self.hash, self.seqno, &mut tally.reads)?;
        if found.is_some() {
            tally.hit = Some((*level, verdict.kind));
        } else if is_decided(file, false, self.seqno) {
            self.engine.count_maybe(*level, verdict, false);
        }
        Ok(found)
    }
}

/// What one lookup has to count: kept here, so that the thread's counts are looked up once.
pub(super) struct Tally {
    /// Filters that turned the key away, and their levels.
    refusals: [(usize, Verdict); REFUSALS],
    refused: usize,
    reads: ReadStats,
    /// Level and filter of the table that had the key.
    hit: Option<(usize, FilterLabel)>,
}

/// Filters that turn a key away before they are counted.
const REFUSALS: usize = 8;

impl Tally {
    pub(super) fn new() -> Self {
        let refusals = [(0, Verdict::UNFILTERED); REFUSALS];
        Self { refusals, refused: 0, reads: ReadStats::default(), hit: None }
    }

    #[inline]
    fn refuse(&mut self, engine: &Engine, level: usize, verdict: Verdict) {
        if self.refused == REFUSALS {
            engine.counters.with(|shard| self.count_refusals(shard));
        }
        self.refusals[self.refused] = (level, verdict);
        self.refused += 1;
    }

    #[inline]
    fn count_refusals(&mut self, shard: &Shard) {
        for (level, verdict) in &self.refusals[..self.refused] {
            shard.filter(*level, verdict.kind).count_negatives(1, verdict.expected);
        }
        self.refused = 0;
    }

    /// Adds everything to the thread's counts.
    #[inline]
    pub(super) fn count(&mut self, shard: &Shard) {
        self.count_refusals(shard);
        if let Some((level, kind)) = self.hit.take() {
            shard.filter(level, kind).true_positives.add(1);
        }
        count_reads(shard, &std::mem::take(&mut self.reads));
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
        if table.filters().prefixes_part().is_none() {
            return Verdict::UNFILTERED;
        }
        let options = self.options.load();
        let Some(extractor) = options.prefix_extractor.as_ref().or(table.stored_prefix()) else {
            return Verdict::UNFILTERED;
        };
        let Some(prefix) = extractor.believed(key) else { return Verdict::UNFILTERED };
        let verdict = table.ask_prefix(extractor, prefix, trommel_filter::hash(prefix));
        verdict.unwrap_or_else(|| {
            self.counters.with(|shard| shard.prefix_unused.add(1));
            Verdict::UNFILTERED
        })
    }

    /// Counts keys that a filter turned away.
    #[inline]
    pub(super) fn count_negatives(&self, level: usize, verdict: Verdict, keys: u64) {
        self.counters.with(|shard| {
            shard.filter(level, verdict.kind).count_negatives(keys, verdict.expected);
        });
    }

    /// Counts a key that a table had to be searched for.
    pub(super) fn count_maybe(&self, level: usize, verdict: Verdict, found: bool) {
        self.counters.with(|shard| {
            shard.filter(level, verdict.kind).count_maybe(found, verdict.expected);
        });
    }

    /// Counts what lookups read.
    pub(super) fn count_reads(&self, stats: &ReadStats) {
        self.counters.with(|shard| count_reads(shard, stats));
    }
}

#[inline]
fn count_reads(shard: &Shard, stats: &ReadStats) {
    shard.block_reads.add(stats.block_reads);
    shard.block_read_bytes.add(stats.block_bytes);
    shard.cache_hits.add(stats.cache_hits);
}
