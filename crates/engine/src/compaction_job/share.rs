//! Subcompactions: idle workers take part in a compaction.
//!
//! 1. The keys of a compaction (or of one [slice](super::slices) of a large one) are divided
//!    into *subranges* of about an output table each: at the starts of the tables of its deepest
//!    sorted input, or, if that divides more finely, by the index of its largest table. The worker
//!    that owns the compaction goes through the subranges from the front. A worker without other
//!    work takes some from the back, a few at a time, and merges them into tables of its own.
//! 2. Subranges are given away only while a caller waits for the store to become idle, or for a
//!    range to be compacted. Otherwise a thread that is free for the next flush is worth more, and
//!    so is a core for writers.
//! 3. The owner ends at the first subrange that was given away, waits for the helpers, and installs
//!    all tables together. Any failure fails the compaction; tables that are not installed are
//!    removed.
//!
//! Without helpers, the owner writes the same tables as a compaction that cannot be shared. All
//! versions of a key are in one subrange.
//!
//! Called by the worker that runs a plan, and by workers looking for work.

use std::sync::Arc;

use crate::background::Background;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::shared_merge::{Merged, SharedMerge};
use crate::sync::lock;
use crate::version::TableFile;

use crate::compaction::key_range::total_bytes;
use crate::compaction::plan::Plan;

/// A compaction is shared if its inputs have at least this many tables' worth of bytes: a smaller
/// one is soon done, and helpers would leave tables that are smaller than necessary.
const FEWEST_TABLES: u64 = 4;

impl Engine {
    /// The starts of the subranges of `plan`'s compaction, except the first; empty if it is too
    /// small to be shared.
    pub(crate) fn subrange_bounds(&self, plan: &Plan) -> Result<Vec<Box<[u8]>>> {
        let table_bytes = self.options.load().compaction.table_bytes.max(1);
        let subranges = plan.input_bytes().div_ceil(table_bytes);
        if subranges < FEWEST_TABLES {
            return Ok(Vec::new());
        }
        let is_sorted = plan.level > 0;
        let runs = [Some(&plan.lower), Some(&plan.through), is_sorted.then_some(&plan.upper)];
        let run = runs.into_iter().flatten().find(|run| run.len() > 1);
        let by_tables = run.map_or_else(Vec::new, |run| beginnings(run, subranges));
        // With this many, no subrange is much more than a table.
        if by_tables.len() as u64 + 1 >= subranges / 2 {
            return Ok(by_tables);
        }
        let Some(largest) = plan.tables().max_by_key(|table| table.file_bytes) else {
            return Ok(by_tables);
        };
        let parts = usize::try_from(subranges).unwrap_or(usize::MAX);
        let by_index = self.files.tables.reader(largest)?.dividing_keys(parts);
        let by_index: Vec<_> = by_index.into_iter().map(Vec::into_boxed_slice).collect();
        Ok(if by_index.len() > by_tables.len() { by_index } else { by_tables })
    }
}

/// The starts of tables that divide a sorted run into at most this many subranges of about the same
/// size.
pub(crate) fn beginnings(run: &[Arc<TableFile>], subranges: u64) -> Vec<Box<[u8]>> {
    let all = total_bytes(run);
    let each = all.div_ceil(subranges.max(1)).max(1);
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

/// Offers a compaction to workers until it is dropped.
pub(crate) struct Offer<'a> {
    background: &'a Background,
    merge: &'a Arc<SharedMerge>,
}

impl<'a> Offer<'a> {
    pub(crate) fn new(background: &'a Background, merge: &'a Arc<SharedMerge>) -> Self {
        if merge.has_subranges() {
            let mut state = lock(&background.state);
            state.shared.push(Arc::clone(merge));
            // A caller that starts to wait later wakes the workers too.
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

/// Reports that a helper panicked, if it is dropped without an outcome.
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
