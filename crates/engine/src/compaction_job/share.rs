//! A merge that idle workers take part in.
//!
//! 1. The keys of a merge (of one [stretch](super::stretches) of a large one) are divided into *pieces* of about
//!    an output table each: where tables of its deepest sorted input begin, or, where that divides more
//!    finely, by the index of its largest table. The worker whose merge it is goes through the pieces from the front; one that has nothing else to do
//!    takes some from the back, at most [`MOST_TAKEN`] at a time, and merges them into tables of its own.
//! 2. Pieces are given away only while somebody waits for the store to rest, or for a range to be
//!    compacted: else a thread that is free for the next flush is worth more, and so is a core for who
//!    writes.
//! 3. The owner ends where the first piece begins that was given away, waits for the helpers, and
//!    installs all tables together. Whatever fails fails the merge; tables that are not in force are removed.
//!
//! Where nobody helps the owner's tables are those of a merge that cannot be shared. All versions of a
//! key lie in one piece.
//!
//! Called by the worker that runs a plan, and by those that look for work.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::background::Background;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::purpose::Purpose;
use crate::sync::{Condvar, Mutex, lock, wait};
use crate::version::{TableFile, TableMeta, Version};

use super::stretches::Stretch;
use crate::compaction::key_range::total_bytes;
use crate::compaction::plan::Plan;

/// Most pieces that a helper takes at once: what it has begun nobody else can take.
const MOST_TAKEN: usize = 4;
/// Tables' worth of bytes from which on a merge is shared: a smaller one is soon done, and what is taken
/// of it ends in tables that are smaller than they need be.
const FEWEST_TABLES: u64 = 4;

/// A merge, and who does which of its pieces.
#[derive(Debug)]
pub(crate) struct SharedMerge {
    pub(crate) plan: Plan,
    pub(crate) purpose: Purpose,
    /// What the tables join that are written.
    pub(crate) version: Arc<Version>,
    /// Where it begins and where it ends, if it is a stretch of a larger one.
    from: Option<Box<[u8]>>,
    to: Option<Box<[u8]>>,
    /// Bytes at which its outputs end, where that is not what the options say.
    pub(crate) table_bytes: Option<u64>,
    /// The first keys of all pieces but the first, ascending.
    bounds: Vec<Box<[u8]>>,
    progress: Mutex<Progress>,
    /// Signalled when a helper has ended.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Progress {
    /// The piece that the owner is in.
    at: usize,
    /// The first piece that was given away, or how many there are.
    end: usize,
    /// Helpers that have not ended.
    helping: usize,
    /// No more pieces are given away.
    is_over: bool,
    merged: Vec<(usize, Merged)>,
    failure: Option<Error>,
}

/// Entries that a merge has read.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entries {
    /// Of the tables that leave the output level.
    pub(crate) replaced: u64,
    /// Of those above.
    pub(crate) above: u64,
}

impl Entries {
    /// Counts one.
    #[inline]
    pub(crate) fn count(&mut self, is_replaced: bool) {
        *(if is_replaced { &mut self.replaced } else { &mut self.above }) += 1;
    }

    /// Counts those too that another read.
    pub(crate) fn add(&mut self, other: Self) {
        self.replaced += other.replaced;
        self.above += other.above;
    }
}

/// What came of some pieces.
#[derive(Debug)]
pub(crate) struct Merged {
    /// Entries that were read.
    pub(crate) read: Entries,
    /// How long it took.
    pub(crate) time: Duration,
    /// The tables, in key order, all durable.
    pub(crate) tables: Vec<TableMeta>,
    /// Their files, which are to be removed unless the merge is installed.
    pub(crate) created: Vec<PathBuf>,
}

impl SharedMerge {
    /// The merge of a stretch, in which nobody takes part yet.
    pub(crate) fn new(stretch: Stretch, purpose: Purpose, version: Arc<Version>) -> Arc<Self> {
        let Stretch { plan, from, to, bounds, table_bytes } = stretch;
        let progress = Progress { end: bounds.len() + 1, ..Progress::default() };
        Arc::new(Self {
            plan,
            purpose,
            version,
            from,
            to,
            table_bytes,
            bounds,
            progress: Mutex::new(progress),
            changed: Condvar::new(),
        })
    }

    /// Where this piece begins, and the one before it ends; nothing where the first of the whole merge
    /// begins, or the last one ends.
    pub(crate) fn start(&self, piece: usize) -> Option<&[u8]> {
        let key = match piece.checked_sub(1) {
            None => self.from.as_ref(),
            Some(nth) if nth == self.bounds.len() => self.to.as_ref(),
            Some(nth) => self.bounds.get(nth),
        };
        key.map(|key| &**key)
    }

    /// Whether nothing of the merge is left when this is in force.
    pub(crate) fn is_last(&self) -> bool {
        self.to.is_none()
    }

    /// All pieces, for the owner.
    pub(crate) fn whole(&self) -> Range<usize> {
        0..self.bounds.len() + 1
    }

    /// Whether the owner, who has come to the end of piece `at`, is to go on with the next.
    pub(crate) fn go_on(&self, at: usize) -> bool {
        let mut progress = lock(&self.progress);
        let goes_on = at + 1 < progress.end;
        if goes_on {
            progress.at = at + 1;
        }
        goes_on
    }

    /// Half of the pieces that nobody has begun, the last ones, for a helper; it must tell how that
    /// [ended](Self::help_ended).
    pub(crate) fn take(&self) -> Option<Range<usize>> {
        let mut progress = lock(&self.progress);
        let left = progress.end - (progress.at + 1);
        if left == 0 || progress.is_over || progress.failure.is_some() {
            return None;
        }
        let end = progress.end;
        progress.end -= left.div_ceil(2).min(MOST_TAKEN);
        progress.helping += 1;
        Some(progress.end..end)
    }

    /// Notes how a helper ended that had taken the pieces from `first` on.
    pub(crate) fn help_ended(&self, first: usize, outcome: Result<Merged>) {
        let mut progress = lock(&self.progress);
        progress.helping -= 1;
        match outcome {
            Ok(merged) => progress.merged.push((first, merged)),
            Err(error) => {
                let _ = progress.failure.get_or_insert(error);
            }
        }
        self.changed.notify_all();
    }

    /// Whether all who take part may stop, as one has failed.
    pub(crate) fn check(&self) -> Result<()> {
        lock(&self.progress).failure.clone().map_or(Ok(()), Err)
    }

    /// Gives nothing away any more, waits for the helpers, and returns what they did in key order, and
    /// the first failure, of which `own` is the owner's.
    pub(crate) fn end(&self, own: Option<&Error>) -> (Vec<Merged>, Result<()>) {
        let mut progress = lock(&self.progress);
        progress.is_over = true;
        if let Some(error) = own {
            let _ = progress.failure.get_or_insert_with(|| error.clone());
        }
        while progress.helping > 0 {
            progress = wait(&self.changed, progress);
        }
        progress.merged.sort_unstable_by_key(|(first, _)| *first);
        let merged = progress.merged.drain(..).map(|(_, merged)| merged).collect();
        (merged, progress.failure.clone().map_or(Ok(()), Err))
    }
}

impl Engine {
    /// Where the pieces of the merge of `plan` begin, but for the first one; nowhere if it is too small to
    /// be shared.
    pub(crate) fn piece_bounds(&self, plan: &Plan) -> Result<Vec<Box<[u8]>>> {
        let table_bytes = self.options.load().table_bytes.max(1);
        let pieces = plan.input_bytes().div_ceil(table_bytes);
        if pieces < FEWEST_TABLES {
            return Ok(Vec::new());
        }
        let is_sorted = plan.level > 0;
        let runs = [Some(&plan.lower), Some(&plan.through), is_sorted.then_some(&plan.upper)];
        let run = runs.into_iter().flatten().find(|run| run.len() > 1);
        let by_tables = run.map_or_else(Vec::new, |run| beginnings(run, pieces));
        // With so many, no piece is much more than a table.
        if by_tables.len() as u64 + 1 >= pieces / 2 {
            return Ok(by_tables);
        }
        let Some(largest) = plan.tables().max_by_key(|table| table.file_bytes) else {
            return Ok(by_tables);
        };
        let parts = usize::try_from(pieces).unwrap_or(usize::MAX);
        let by_index = self.tables.reader(largest)?.dividing_keys(parts);
        let by_index: Vec<_> = by_index.into_iter().map(Vec::into_boxed_slice).collect();
        Ok(if by_index.len() > by_tables.len() { by_index } else { by_tables })
    }
}

/// Where tables of a sorted run begin that divide it into so many pieces, at most, of about the same
/// size.
pub(crate) fn beginnings(run: &[Arc<TableFile>], pieces: u64) -> Vec<Box<[u8]>> {
    let all = total_bytes(run);
    let each = all.div_ceil(pieces.max(1)).max(1);
    let mut bytes = 0;
    let mut begin = Vec::new();
    for table in run {
        if bytes >= each {
            begin.push(table.smallest.clone());
            bytes = 0;
        }
        bytes += table.file_bytes;
    }
    begin
}

/// A merge that workers are told of as long as this lives.
pub(crate) struct Offer<'a> {
    background: &'a Background,
    merge: &'a Arc<SharedMerge>,
}

impl<'a> Offer<'a> {
    pub(crate) fn new(background: &'a Background, merge: &'a Arc<SharedMerge>) -> Self {
        if !merge.bounds.is_empty() {
            let mut state = lock(&background.state);
            state.shared.push(Arc::clone(merge));
            // Who comes to wait later wakes the workers too.
            if state.is_waited_for() {
                background.notify();
            }
        }
        Self { background, merge }
    }
}

impl Drop for Offer<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.background.state);
        state.shared.retain(|other| !Arc::ptr_eq(other, self.merge));
    }
}

/// Tells of a helper that panicked, if this is dropped before its outcome is known.
pub(crate) struct Help<'a> {
    pub(crate) merge: &'a SharedMerge,
    pub(crate) first: usize,
    pub(crate) outcome: Option<Result<Merged>>,
}

impl Drop for Help<'_> {
    fn drop(&mut self) {
        let panicked = || Err(Error::internal("a thread that took part in a merge panicked"));
        self.merge.help_ended(self.first, self.outcome.take().unwrap_or_else(panicked));
    }
}
