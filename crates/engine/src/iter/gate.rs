//! Skips tables in a range scan by their prefix filters, and blocks by range filters.
//!
//! 1. The range `from..to` is within one prefix `p` if `from` has the prefix `p` and `to` is not
//!    after the end of `p`, the first key after all those that begin with `p`. Then each of its
//!    keys begins with `p`: `p <= from <= key`, and `key` is before the end of `p`. So by the third
//!    clause of the extractor's contract each has the prefix `p`, and a table whose filter does not
//!    hold `p` holds no key of the range, nor any version or tombstone of one.
//! 2. Any other range skips no table. That includes a range whose first key has no prefix, even if
//!    its other keys do, and any range without an upper end (unless `p` has none).
//! 3. The extractor is the configured one; without one, each table's own, if its name defines it
//!    completely. A table whose filter was built with another extractor is not skipped, and is
//!    counted. Such a filter is recognized by the extractor's name, or by a "no" for the prefix of
//!    the table's own first or last key.
//! 4. Each table is probed once in a scan. Once the scan has searched an admitted table from the
//!    first or the last key of the range, its positive is known to be true or false. A scan that
//!    begins in the middle does not settle this, and then a negative is not counted either, or the
//!    measured rate would be too low.
//! 5. Range filters are queried by the cursors of tables, once for each block at an end of the
//!    range: [`LevelRange`] gives them the bounds and counts what they answer.
//!
//! A gated scan yields all of its range, and an arbitrary part of the keys outside it, which
//! callers must ignore.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use trommel_base::SeqNo;
use trommel_filter::HashSeed;
use trommel_sstable::{ScanRange, TableCursor, Verdict};

use crate::bounds::{Bounds, SharedBounds};
use crate::engine::Engine;
use crate::levels::LEVELS;
use crate::prefix::Prefix;
use crate::version::Reader;

/// The probe that is common to all tables of one scan.
pub(crate) struct RangeGate {
    engine: Arc<Engine>,
    bounds: SharedBounds,
    probe: Probe,
    /// Blocks that were skipped on each level, if cursors query range filters.
    skipped_blocks: Option<Box<[AtomicU64; LEVELS]>>,
    has_skipped: AtomicBool,
}

/// The prefix to probe filters for.
enum Probe {
    /// None: the range is not within one.
    Never,
    /// That of the configured extractor.
    Configured(Prefix, RangePrefix),
    /// That of each table's own extractor.
    Stored,
}

/// A prefix to probe filters for: the first bytes of the range's first key.
#[derive(Debug, Clone, Copy)]
struct RangePrefix {
    len: usize,
    hash: u64,
}

impl RangeGate {
    /// The gate of a scan over `bounds`; `None` if no table and no block can be skipped.
    #[inline]
    pub(crate) fn new(engine: &Arc<Engine>, bounds: &SharedBounds) -> Option<Arc<Self>> {
        let by_block = engine.files.tables.have_ranges() && bounds.to.is_some();
        let probe = match engine.options.extractor_for(&bounds.from) {
            Some(extractor) => {
                let prefix = one_prefix(bounds, &extractor, engine.files.hash_seed);
                prefix.map_or(Probe::Never, |prefix| Probe::Configured(extractor, prefix))
            }
            None if bounds.from.is_empty() => Probe::Never,
            None => Probe::Stored,
        };
        let is_needed = by_block || !matches!(probe, Probe::Never);
        is_needed.then(|| Self::made(engine, bounds, probe, by_block))
    }

    #[inline(never)]
    fn made(
        engine: &Arc<Engine>,
        bounds: &SharedBounds,
        probe: Probe,
        by_block: bool,
    ) -> Arc<Self> {
        Arc::new(Self {
            engine: Arc::clone(engine),
            bounds: bounds.clone(),
            probe,
            skipped_blocks: by_block.then(Box::default),
            has_skipped: AtomicBool::new(false),
        })
    }

    /// Whether `table` has filters that the scan queries.
    pub(crate) fn concerns(&self, table: &Reader) -> bool {
        let filters = table.filters();
        !matches!(self.probe, Probe::Never) && filters.prefixes_part().is_some()
            || self.skipped_blocks.is_some() && filters.have_ranges()
    }

    /// Blocks that range filters have made the scan skip on `level`.
    pub(super) fn skipped_blocks(&self, level: usize) -> u64 {
        self.skipped_on(level).map_or(0, |blocks| blocks.load(Ordering::Relaxed))
    }

    fn skipped_on(&self, level: usize) -> Option<&AtomicU64> {
        self.skipped_blocks.as_ref()?.get(level)
    }

    /// Whether a table or a block was skipped.
    pub(super) fn has_skipped(&self) -> bool {
        self.has_skipped.load(Ordering::Relaxed)
    }

    /// Probes the prefix filter of `table`; `None` if it has none that can be used.
    fn probe(&self, table: &Reader) -> Option<Verdict> {
        table.filters().prefixes_part()?;
        let (extractor, RangePrefix { len, hash }) = match &self.probe {
            Probe::Never => return None,
            Probe::Configured(extractor, range_prefix) => (extractor, *range_prefix),
            Probe::Stored => {
                let stored = table.stored_prefix()?;
                (stored, one_prefix(&self.bounds, stored, self.engine.files.hash_seed)?)
            }
        };
        let prefix = self.bounds.from.get(..len)?;
        let Some(verdict) = table.query_prefix(extractor, prefix, hash) else {
            self.engine.statistics.counters.with(|shard| shard.prefix_unused.add(1));
            return None;
        };
        Some(verdict)
    }

    fn count_refusal(&self, level: usize, verdict: Verdict) {
        self.engine.statistics.counters.with(|shard| {
            shard.prefix(level, verdict.kind).count_negatives(1, verdict.expected);
        });
    }

    fn count_maybe(&self, level: usize, verdict: Verdict, is_true: bool) {
        self.engine.statistics.counters.with(|shard| {
            shard.prefix(level, verdict.kind).count_maybe(is_true, verdict.expected);
        });
    }
}

/// The range of a scan for the tables of one level.
struct LevelRange {
    gate: Arc<RangeGate>,
    level: usize,
}

impl fmt::Debug for LevelRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LevelRange").field("bounds", &*self.gate.bounds).finish_non_exhaustive()
    }
}

impl ScanRange for LevelRange {
    fn from(&self) -> &[u8] {
        &self.gate.bounds.from
    }

    fn to(&self) -> Option<&[u8]> {
        self.gate.bounds.to.as_deref()
    }

    fn skipped(&self, expected: f64) {
        if let Some(blocks) = self.gate.skipped_on(self.level) {
            blocks.fetch_add(1, Ordering::Relaxed);
        }
        self.gate.has_skipped.store(true, Ordering::Relaxed);
        self.gate.engine.statistics.counters.with(|shard| {
            shard.ranges(self.level).count_negatives(1, expected);
        });
    }

    fn entered(&self, expected: f64, is_true: bool) {
        self.gate.engine.statistics.counters.with(|shard| {
            shard.ranges(self.level).count_maybe(is_true, expected);
        });
    }
}

/// The prefix of all keys within `bounds`, if they share one; step 1 of the module's head.
fn one_prefix(bounds: &Bounds, extractor: &Prefix, seed: HashSeed) -> Option<RangePrefix> {
    let prefix = extractor.believed(&bounds.from)?;
    let inside = match (&bounds.to, Bounds::prefix(prefix).to) {
        (_, None) => true,
        (None, Some(_)) => false,
        (Some(to), Some(end)) => *to <= end,
    };
    inside.then(|| RangePrefix { len: prefix.len(), hash: seed.hash(prefix) })
}

/// The knowledge of a scan about one table.
#[derive(Debug, Clone, Copy, PartialEq)]
enum TableAnswer {
    /// Its filter has not been probed.
    None,
    /// It holds no key of the range.
    No,
    /// It may hold keys of the range, not counted yet; with the sequence number of its newest
    /// entry.
    Maybe(Verdict, SeqNo),
    /// It may hold keys of the range, and everything is counted.
    Settled,
}

/// The gate of one source's tables.
pub(crate) struct TableGate {
    range: Arc<RangeGate>,
    level: usize,
    answers: Vec<TableAnswer>,
    /// Negatives since the scan was last positioned in a table.
    refused: Vec<(Verdict, SeqNo)>,
}

impl TableGate {
    /// A gate for `tables` tables of `level`.
    pub(crate) fn new(range: &Arc<RangeGate>, level: usize, tables: usize) -> Self {
        Self {
            range: Arc::clone(range),
            level,
            answers: vec![TableAnswer::None; tables],
            refused: Vec::new(),
        }
    }

    /// Lets a cursor over `table` skip blocks that hold nothing of the range.
    pub(crate) fn limit(&self, table: &Reader, cursor: &mut TableCursor) {
        if self.range.skipped_blocks.is_some() && table.filters().have_ranges() {
            let range = LevelRange { gate: Arc::clone(&self.range), level: self.level };
            table.gate(cursor, Arc::new(range));
        }
    }

    /// Whether table `at` is known to hold no key of the range.
    pub(crate) fn has_refused(&self, at: usize) -> bool {
        self.answers.get(at) == Some(&TableAnswer::No)
    }

    /// Whether table `at`, whose newest entry has sequence number `newest`, may hold keys of the
    /// range.
    pub(crate) fn admits(&mut self, at: usize, newest: SeqNo, table: &Reader) -> bool {
        let Some(answer) = self.answers.get_mut(at) else { return true };
        if *answer == TableAnswer::None {
            *answer = match self.range.probe(table) {
                None => TableAnswer::Settled,
                Some(verdict) if verdict.maybe => TableAnswer::Maybe(verdict, newest),
                Some(verdict) => {
                    self.range.has_skipped.store(true, Ordering::Relaxed);
                    self.refused.push((verdict, newest));
                    TableAnswer::No
                }
            };
        }
        *answer != TableAnswer::No
    }

    /// Records that a forward scan began at `key`, with versions up to `seqno`, and is positioned
    /// on `found` in table `at`, or off the end.
    pub(crate) fn found_from(
        &mut self,
        at: Option<usize>,
        key: &[u8],
        seqno: SeqNo,
        found: Option<&[u8]>,
    ) {
        let range = Arc::clone(&self.range);
        let from = &*range.bounds.from;
        // Otherwise it may have begun after newer versions of `key` itself.
        self.settle(at, found, |newest| *key < *from || *key == *from && newest <= seqno);
    }

    /// Records that a backward scan began before `key` and is positioned on `found` in table `at`,
    /// or off the end.
    pub(crate) fn found_before(&mut self, at: Option<usize>, key: &[u8], found: Option<&[u8]>) {
        let all = self.range.bounds.ends_before(key);
        self.settle(at, found, |_| all);
    }

    /// Records that a scan moved to `found` in table `at`, or off the end.
    pub(crate) fn passed(&mut self, at: Option<usize>, found: Option<&[u8]>) {
        self.settle(at, found, |_| false);
    }

    /// Counts the pending answers. A key within the range makes the positive of table `at` true.
    /// Any other key, or none, makes it false only if the whole range was searched, which `all`
    /// returns for a table with this newest sequence number. The same condition holds for counting
    /// a negative.
    fn settle(&mut self, at: Option<usize>, found: Option<&[u8]>, all: impl Fn(SeqNo) -> bool) {
        for (verdict, newest) in self.refused.drain(..) {
            if all(newest) {
                self.range.count_refusal(self.level, verdict);
            }
        }
        let Some(answer) = at.and_then(|at| self.answers.get_mut(at)) else { return };
        let TableAnswer::Maybe(verdict, newest) = *answer else { return };
        let is_true = found.is_some_and(|key| self.range.bounds.holds(key));
        if is_true || all(newest) {
            *answer = TableAnswer::Settled;
            self.range.count_maybe(self.level, verdict, is_true);
        }
    }
}
