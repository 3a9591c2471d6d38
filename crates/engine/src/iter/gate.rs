//! Which tables a walk over a range may pass over, because their filters of prefixes say so.
//!
//! 1. The range `from..to` lies within one prefix `p` if `from` has the prefix `p` and `to` is not
//!    behind the end of `p`, the first key behind all that begin with `p`. Then each of its keys
//!    begins with `p`: `p <= from <= key`, and `key` lies before the end of `p`. So by the third
//!    clause of the extractor's contract each has the prefix `p`, and a table whose filter does
//!    not hold `p` holds no key of the range, nor any version or tombstone of one.
//! 2. Any other range is passed over nowhere. That is so of a range whose first key has no prefix,
//!    whatever its other keys have, and of all without an upper end (but where `p` has none).
//! 3. The extractor is the one that is set; where none is, each table's own, if its name says all
//!    of it. A table whose filter another one made is not passed over, and is counted: by its
//!    name, or because the filter denies the prefix of the table's own first or last key.
//! 4. Each table is asked once in a walk. When the walk has looked for the first or the last key of
//!    the range in a table that said "maybe", it is known whether that was true. Where a walk
//!    begins in the middle it is not, and there a "no" is not counted either, or the rate that is
//!    measured would be too low.
//!
//! A walk with a gate yields all of its range, and of what lies outside any part: who walks must
//! not look there.

use std::sync::Arc;
use trommel_base::planted::{Bug, planted};

use trommel_base::SeqNo;
use trommel_sstable::Verdict;

use super::range::{Bounds, SharedBounds};
use crate::engine::Engine;
use crate::prefix::Prefix;
use crate::version::Reader;

/// What all tables of one walk are asked.
pub(crate) struct RangeGate {
    engine: Arc<Engine>,
    bounds: SharedBounds,
    /// The extractor that is set, and the prefix of the range by it.
    set: Option<(Prefix, Asked)>,
}

/// A prefix to ask filters for: the first bytes of the range's first key.
#[derive(Debug, Clone, Copy)]
struct Asked {
    len: usize,
    hash: u64,
}

impl RangeGate {
    /// The gate of a walk over `bounds`; none where every table must be walked.
    pub(crate) fn new(engine: &Arc<Engine>, bounds: &SharedBounds) -> Option<Arc<Self>> {
        let set = match engine.options.load().prefix_extractor.clone() {
            Some(extractor) => {
                let asked = one_prefix(bounds, &extractor)?;
                Some((extractor, asked))
            }
            None if bounds.from.is_empty() => return None,
            None => None,
        };
        Some(Arc::new(Self { engine: Arc::clone(engine), bounds: bounds.clone(), set }))
    }

    /// What `table` says of the range; `None` where it cannot be asked.
    fn ask(&self, table: &Reader) -> Option<Verdict> {
        table.filters().prefixes_part()?;
        let (extractor, Asked { len, hash }) = match &self.set {
            Some((extractor, asked)) => (extractor, *asked),
            None => {
                let stored = table.stored_prefix()?;
                (stored, one_prefix(&self.bounds, stored)?)
            }
        };
        let prefix = self.bounds.from.get(..len)?;
        let Some(verdict) = table.ask_prefix(extractor, prefix, hash) else {
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

/// The prefix of all keys within `bounds`, if they have one; step 1 of the module's head.
fn one_prefix(bounds: &Bounds, extractor: &Prefix) -> Option<Asked> {
    let prefix = extractor.believed(&bounds.from)?;
    let inside = match (&bounds.to, Bounds::prefix(prefix).to) {
        (_, None) => true,
        (None, Some(_)) => planted(Bug::PrefixFilterAskedBeyond),
        (Some(to), Some(end)) => *to <= end || planted(Bug::PrefixFilterAskedBeyond),
    };
    inside.then(|| Asked { len: prefix.len(), hash: trommel_filter::hash(prefix) })
}

/// What is known of one table.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Answer {
    /// It was not asked.
    None,
    /// It holds nothing of the range.
    No,
    /// It may, and whether it does has yet to be seen; with the number of its newest entry.
    Maybe(Verdict, SeqNo),
    /// It may, and all is counted.
    Settled,
}

/// The gate before the tables of one source.
pub(crate) struct TableGate {
    range: Arc<RangeGate>,
    level: usize,
    answers: Vec<Answer>,
    /// What said no since the walk last came to stand in a table.
    refused: Vec<(Verdict, SeqNo)>,
}

impl TableGate {
    /// A gate before so many tables of `level`.
    pub(crate) fn new(range: &Arc<RangeGate>, level: usize, tables: usize) -> Self {
        Self {
            range: Arc::clone(range),
            level,
            answers: vec![Answer::None; tables],
            refused: Vec::new(),
        }
    }

    /// Whether table `at` is known to hold nothing of the range.
    pub(crate) fn has_refused(&self, at: usize) -> bool {
        self.answers.get(at) == Some(&Answer::No)
    }

    /// Whether table `at`, whose newest entry has the number `newest`, may hold something of the
    /// range.
    pub(crate) fn admits(&mut self, at: usize, newest: SeqNo, table: &Reader) -> bool {
        let Some(answer) = self.answers.get_mut(at) else { return true };
        if *answer == Answer::None {
            *answer = match self.range.ask(table) {
                None => Answer::Settled,
                Some(verdict) if verdict.maybe => Answer::Maybe(verdict, newest),
                Some(verdict) => {
                    self.refused.push((verdict, newest));
                    Answer::No
                }
            };
        }
        *answer != Answer::No
    }

    /// Notes that a walk forward began at `key`, with versions up to `seqno`, and so stands on
    /// `found` in table `at`; or in none.
    pub(crate) fn found_from(
        &mut self,
        at: Option<usize>,
        key: &[u8],
        seqno: SeqNo,
        found: Option<&[u8]>,
    ) {
        let range = Arc::clone(&self.range);
        let from = &*range.bounds.from;
        // Else it may have begun behind newer versions of `key` itself.
        self.settle(at, found, |newest| *key < *from || *key == *from && newest <= seqno);
    }

    /// Notes that a walk backward began before `key` and so stands on `found` in table `at`; or in
    /// none.
    pub(crate) fn found_before(&mut self, at: Option<usize>, key: &[u8], found: Option<&[u8]>) {
        let all = self.range.bounds.ends_before(key);
        self.settle(at, found, |_| all);
    }

    /// Notes that a walk came to `found` in table `at`; or to the end.
    pub(crate) fn passed(&mut self, at: Option<usize>, found: Option<&[u8]>) {
        self.settle(at, found, |_| false);
    }

    /// A key within the range makes the "maybe" of table `at` true; another, or none, makes it
    /// false only if all of the range was looked at, of a table whose newest entry has such a
    /// number. Nor does a "no" count else.
    fn settle(&mut self, at: Option<usize>, found: Option<&[u8]>, all: impl Fn(SeqNo) -> bool) {
        for (verdict, newest) in self.refused.drain(..) {
            if all(newest) {
                self.range.count_refusal(self.level, verdict);
            }
        }
        let Some(answer) = at.and_then(|at| self.answers.get_mut(at)) else { return };
        let Answer::Maybe(verdict, newest) = *answer else { return };
        let is_true = found.is_some_and(|key| self.range.bounds.holds(key));
        if is_true || all(newest) {
            *answer = Answer::Settled;
            self.range.count_maybe(self.level, verdict, is_true);
        }
    }
}
