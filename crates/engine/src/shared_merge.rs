//! A compaction divided into subranges, and which thread merges which of them.
//!
//! 1. Its owner goes through the subranges from the front; idle threads take some from the back.
//! 2. A thread that takes subranges must report the outcome. The owner waits for all helpers.
//!
//! This is the state that threads share, listed with the running jobs. How a compaction is divided
//! and merged: [`compaction_job`](crate::compaction_job).

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::compaction::plan::Plan;
use crate::error::{Error, Result};
use crate::purpose::Purpose;
use crate::sync::{Condvar, Mutex, lock, wait};
use crate::version::{TableMeta, Version};

/// Most subranges that a helper takes at once: no other thread can take them back.
const MOST_TAKEN: usize = 4;

/// A slice of a compaction, installed by itself.
#[derive(Debug)]
pub(crate) struct MergeSlice {
    /// The plan, whose output-level tables are only those of this slice.
    pub(crate) plan: Plan,
    /// The first key of the slice; `None` at the start of the compaction.
    pub(crate) from: Option<Box<[u8]>>,
    /// The first key after the slice; `None` in the last one.
    pub(crate) to: Option<Box<[u8]>>,
    /// The first keys of its subranges except the first, ascending.
    pub(crate) bounds: Vec<Box<[u8]>>,
    /// Size of its outputs in the last level, if it differs from the options.
    pub(crate) table_bytes: Option<u64>,
}

impl MergeSlice {
    /// A whole compaction, whose subranges after the first begin at `bounds`.
    pub(crate) fn whole(plan: Plan, bounds: Vec<Box<[u8]>>) -> Self {
        Self { plan, from: None, to: None, bounds, table_bytes: None }
    }
}

/// A compaction, and the assignment of its subranges.
#[derive(Debug)]
pub(crate) struct SharedMerge {
    pub(crate) plan: Plan,
    pub(crate) purpose: Purpose,
    /// The version that the outputs join.
    pub(crate) version: Arc<Version>,
    /// Its start and its end, if it is a slice of a larger one.
    from: Option<Box<[u8]>>,
    to: Option<Box<[u8]>>,
    /// Size of its outputs, if it differs from the options.
    pub(crate) table_bytes: Option<u64>,
    /// The first keys of all subranges except the first, ascending.
    bounds: Vec<Box<[u8]>>,
    progress: Mutex<MergeProgress>,
    /// Signalled when a helper has ended.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct MergeProgress {
    /// The subrange that the owner is in.
    at: usize,
    /// The first subrange that was given away, or the number of subranges.
    end: usize,
    /// Helpers that are still running.
    helping: usize,
    /// Whether no more subranges are given away.
    is_over: bool,
    merged: Vec<(usize, Merged)>,
    failure: Option<Error>,
}

/// Entries that a compaction has read.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entries {
    /// Entries read from the tables that leave the output level.
    pub(crate) replaced: u64,
    /// Entries read from the tables above.
    pub(crate) above: u64,
}

impl Entries {
    /// Counts one entry.
    #[inline]
    pub(crate) fn count(&mut self, is_replaced: bool) {
        *(if is_replaced { &mut self.replaced } else { &mut self.above }) += 1;
    }

    /// Adds the counts of another thread.
    pub(crate) fn add(&mut self, other: Self) {
        self.replaced += other.replaced;
        self.above += other.above;
    }
}

/// The outcome of some subranges.
#[derive(Debug)]
pub(crate) struct Merged {
    /// Entries that were read.
    pub(crate) read: Entries,
    /// How long it took.
    pub(crate) time: Duration,
    /// The tables, in key order, all durable.
    pub(crate) tables: Vec<TableMeta>,
    /// Their files, which are removed unless the compaction is installed.
    pub(crate) created: Vec<PathBuf>,
}

impl SharedMerge {
    /// The merge of a slice, without helpers yet.
    pub(crate) fn new(slice: MergeSlice, purpose: Purpose, version: Arc<Version>) -> Arc<Self> {
        let MergeSlice { plan, from, to, bounds, table_bytes } = slice;
        let progress = MergeProgress { end: bounds.len() + 1, ..MergeProgress::default() };
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

    /// The start of this subrange, which is the end of the one before; `None` at the start and the
    /// end of the whole compaction.
    pub(crate) fn start(&self, subrange: usize) -> Option<&[u8]> {
        let key = match subrange.checked_sub(1) {
            None => self.from.as_ref(),
            Some(nth) if nth == self.bounds.len() => self.to.as_ref(),
            Some(nth) => self.bounds.get(nth),
        };
        key.map(|key| &**key)
    }

    /// Whether this completes the compaction.
    pub(crate) fn is_last(&self) -> bool {
        self.to.is_none()
    }

    /// Whether there is more than one subrange.
    pub(crate) fn has_subranges(&self) -> bool {
        !self.bounds.is_empty()
    }

    /// All subranges, for the owner.
    pub(crate) fn whole(&self) -> Range<usize> {
        0..self.bounds.len() + 1
    }

    /// Whether the owner, at the end of subrange `at`, continues with the next.
    pub(crate) fn go_on(&self, at: usize) -> bool {
        let mut progress = lock(&self.progress);
        let goes_on = at + 1 < progress.end;
        if goes_on {
            progress.at = at + 1;
        }
        goes_on
    }

    /// Takes half of the subranges that have not begun, the last ones, for a helper, which must
    /// report the outcome to [`help_ended`](Self::help_ended).
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

    /// Records the outcome of a helper that had taken the subranges from `first` on.
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

    /// An error if one of the threads has failed, so that the others stop.
    pub(crate) fn check(&self) -> Result<()> {
        lock(&self.progress).failure.clone().map_or(Ok(()), Err)
    }

    /// Gives no more subranges away, waits for the helpers, and returns their outcomes in key
    /// order, and the first failure; `own` is the owner's.
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
