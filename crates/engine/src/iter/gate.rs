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
//! 4. Each table is asked once in a walk. When the walk has looked for the first or the last key
//!    of the range in a table that said "maybe", it is known whether that was true.
//!
//! A walk with a gate yields all of its range, and of what lies outside any part: who walks must
//! not look there.

use std::sync::Arc;
use trommel_base::planted::{Bug, planted};

use trommel_sstable::Verdict;

use super::range::Bounds;
use crate::engine::Engine;
use crate::prefix::Prefix;
use crate::version::Reader;

/// What all tables of one walk are asked.
pub(crate) struct RangeGate {
    engine: Arc<Engine>,
    bounds: Bounds,
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
    pub(crate) fn new(engine: &Arc<Engine>, bounds: &Bounds) -> Option<Arc<Self>> {
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
    fn ask(&self, level: usize, table: &Reader) -> Option<Verdict> {
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
            self.engine.counters.with(|shard| shard.prefix_unused.add(1));
            return None;
        };
        if !verdict.maybe {
            self.engine.counters.with(|shard| {
                shard.prefix(level, verdict.kind).count_negatives(1, verdict.expected);
            });
        }
        Some(verdict)
    }

    fn count_maybe(&self, level: usize, verdict: Verdict, is_true: bool) {
        self.engine.counters.with(|shard| {
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
    /// It may, and whether it does has yet to be seen.
    Maybe(Verdict),
    /// It may, and all is counted.
    Settled,
}

/// The gate before the tables of one source.
pub(crate) struct TableGate {
    range: Arc<RangeGate>,
    level: usize,
    answers: Vec<Answer>,
}

impl TableGate {
    /// A gate before so many tables of `level`.
    pub(crate) fn new(range: &Arc<RangeGate>, level: usize, tables: usize) -> Self {
        Self { range: Arc::clone(range), level, answers: vec![Answer::None; tables] }
    }

    /// Whether table `at` is known to hold nothing of the range.
    pub(crate) fn has_refused(&self, at: usize) -> bool {
        self.answers.get(at) == Some(&Answer::No)
    }

    /// Whether table `at` may hold something of the range.
    pub(crate) fn admits(&mut self, at: usize, table: &Reader) -> bool {
        let Some(answer) = self.answers.get_mut(at) else { return true };
        if *answer == Answer::None {
            *answer = match self.range.ask(self.level, table) {
                None => Answer::Settled,
                Some(verdict) if verdict.maybe => Answer::Maybe(verdict),
                Some(_) => Answer::No,
            };
        }
        *answer != Answer::No
    }

    /// Notes that a walk forward in table `at` begins at `key`, and so stands on `found`.
    /// `skipped`: whether it may have begun behind newer versions of `key` itself.
    pub(crate) fn found_from(
        &mut self,
        at: usize,
        key: &[u8],
        skipped: bool,
        found: Option<&[u8]>,
    ) {
        let from = &*self.range.bounds.from;
        self.settle(at, found, *key < *from || *key == *from && !skipped);
    }

    /// Notes that a walk backward in table `at` begins before `key` and so stands on `found`.
    pub(crate) fn found_before(&mut self, at: usize, key: &[u8], found: Option<&[u8]>) {
        let all = self.range.bounds.ends_before(key);
        self.settle(at, found, all);
    }

    /// Notes that a walk came to `found` in table `at`.
    pub(crate) fn passed(&mut self, at: usize, found: Option<&[u8]>) {
        self.settle(at, found, false);
    }

    /// A key within the range makes the "maybe" true; another, or none, makes it false only if
    /// all of the range was looked at.
    fn settle(&mut self, at: usize, found: Option<&[u8]>, all: bool) {
        let Some(Answer::Maybe(verdict)) = self.answers.get(at).copied() else { return };
        let is_true = found.is_some_and(|key| self.range.bounds.holds(key));
        if is_true || all {
            self.range.count_maybe(self.level, verdict, is_true);
            self.answers[at] = Answer::Settled;
        }
    }
}
