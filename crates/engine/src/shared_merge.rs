//! A merge in pieces, and which thread does which of them.
//!
//! 1. Its owner goes through the pieces from the front; a thread that has nothing else to do takes
//!    some from the back.
//! 2. Whoever takes pieces must report how that ended. The owner waits for all of them.
//!
//! Here is the state that threads share, with the list of running jobs. What a piece is, and how it
//! is merged: [`compaction_job`](crate::compaction_job).

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::compaction::plan::Plan;
use crate::error::{Error, Result};
use crate::purpose::Purpose;
use crate::sync::{Condvar, Mutex, lock, wait};
use crate::version::{TableMeta, Version};

/// Most pieces that a helper takes at once: what it has begun nobody else can take.
const MOST_TAKEN: usize = 4;

/// A part of a merge that is put in force by itself.
#[derive(Debug)]
pub(crate) struct Stretch {
    /// The merge, of whose output level only the tables of this stretch are left.
    pub(crate) plan: Plan,
    /// The first key of the stretch; nothing where the merge begins.
    pub(crate) from: Option<Box<[u8]>>,
    /// The first key behind it; nothing in the last one.
    pub(crate) to: Option<Box<[u8]>>,
    /// The first keys of its pieces but the first, ascending.
    pub(crate) bounds: Vec<Box<[u8]>>,
    /// Bytes at which its outputs end in the last level, where that is not what the options say.
    pub(crate) table_bytes: Option<u64>,
}

impl Stretch {
    /// All of a merge, in pieces that begin at `bounds`, but for the first one.
    pub(crate) fn whole(plan: Plan, bounds: Vec<Box<[u8]>>) -> Self {
        Self { plan, from: None, to: None, bounds, table_bytes: None }
    }
}

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

    /// Where this piece begins, and the one before it ends; nothing where the first of the whole
    /// merge begins, or the last one ends.
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

    /// Whether there is a piece for another.
    pub(crate) fn has_pieces(&self) -> bool {
        !self.bounds.is_empty()
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

    /// Gives nothing away any more, waits for the helpers, and returns what they did in key order,
    /// and the first failure, of which `own` is the owner's.
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
