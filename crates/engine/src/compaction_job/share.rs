//! A merge that idle workers take part in.
//!
//! 1. The keys of a merge (of one [stretch](super::stretches) of a large one) are divided into
//!    *pieces* of about an output table each: where tables of its deepest sorted input begin, or,
//!    where that divides more finely, by the index of its largest table. The worker whose merge it
//!    is goes through the pieces from the front; one that has nothing else to do takes some from
//!    the back, a few at a time, and merges them into tables of its own.
//! 2. Pieces are given away only while somebody waits for the store to rest, or for a range to be
//!    compacted: else a thread that is free for the next flush is worth more, and so is a core for
//!    who writes.
//! 3. The owner ends where the first piece begins that was given away, waits for the helpers, and
//!    installs all tables together. Whatever fails fails the merge; tables that are not in force
//!    are removed.
//!
//! Where nobody helps the owner's tables are those of a merge that cannot be shared. All versions
//! of a key lie in one piece.
//!
//! Called by the worker that runs a plan, and by those that look for work.

use std::sync::Arc;

use crate::background::Background;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::shared_merge::{Merged, SharedMerge};
use crate::sync::lock;
use crate::version::TableFile;

use crate::compaction::key_range::total_bytes;
use crate::compaction::plan::Plan;

/// Tables' worth of bytes from which on a merge is shared: a smaller one is soon done, and what is
/// taken of it ends in tables that are smaller than they need be.
const FEWEST_TABLES: u64 = 4;

impl Engine {
    /// Where the pieces of the merge of `plan` begin, but for the first one; nowhere if it is too
    /// small to be shared.
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
        let by_index = self.files.tables.reader(largest)?.dividing_keys(parts);
        let by_index: Vec<_> = by_index.into_iter().map(Vec::into_boxed_slice).collect();
        Ok(if by_index.len() > by_tables.len() { by_index } else { by_tables })
    }
}

/// Where tables of a sorted run begin that divide it into so many pieces, at most, of about the
/// same size.
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
        if merge.has_pieces() {
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
