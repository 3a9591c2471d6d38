//! Incremental install: a large compaction in *slices* of its keys, each installed as soon as it is
//! merged.
//!
//! 1. A compaction is divided at the starts of tables of its output level, into slices of some
//!    tables' worth of inputs. The outputs of a slice replace the tables of the output level that
//!    it has read. The replaced tables are queued for deletion, unless readers hold them, and the
//!    queue is swept before the next slice begins.
//! 2. The inputs from levels above stay until the last slice is installed. Meanwhile they duplicate
//!    the outputs: the same entries with the same sequence numbers, in a level that is searched
//!    first. So a reader, an open after a crash, or another compaction of them finds the same
//!    entries.
//! 3. No other job may take the outputs of an unfinished compaction
//!    ([`in_progress`](crate::compaction::in_progress)).
//!
//! If filters have a budget, a compaction is one slice: the filters of the outputs and of the
//! remaining inputs together would exceed it. The same holds in a store with a merge operator:
//! operands that are folded in the outputs must not be in the inputs any more.
//!
//! A slice pins the version it begins with: files that another compaction replaces meanwhile are
//! deleted when the slice ends.
//!
//! Besides its inputs, a compaction needs space for the data that it moves down from above, and for
//! one slice, not for its whole output. An abandoned compaction leaves the slices it has installed,
//! and all inputs from above.
//!
//! Called by the worker that runs a plan.

use crate::engine::Engine;
use crate::error::Result;
use crate::options::Options;
use crate::shared_merge::MergeSlice;

use super::share::beginnings;
use crate::compaction::key_range::total_bytes;
use crate::compaction::plan::Plan;

/// Fewest tables' worth of inputs of a slice: each slice costs a sync of the manifest and of the
/// directory.
const SLICE_TABLES: u64 = 2;

/// Most threads for which a slice is sized to hold a table's worth each: with more, large
/// compactions would not be divided.
const MOST_SHARING: u64 = 4;

/// A compaction is divided if its inputs have at least this many tables' worth of bytes: each slice
/// ends in a partial table.
const FEWEST_TABLES: u64 = 8;

/// Most slices of a compaction: each slice seeks in, and reads ahead, all inputs once.
const MOST_SLICES: u64 = 64;

/// How much larger than its even share of a slice a table may be: the slice's size is an estimate.
const SLACK: f64 = 1.125;

/// The table size that divides a slice of `bytes` evenly, as near to `table_bytes` as possible: a
/// remainder would make a small table at the end of each slice. From 0.75 to 1.7 times
/// `table_bytes`: the data merged into a small slice may be far more than its share.
pub(crate) fn even(bytes: f64, table_bytes: u64) -> u64 {
    let tables = (bytes / table_bytes as f64).round().max(1.0);
    ((bytes / tables * SLACK).ceil() as u64).max(table_bytes / 4 * 3)
}

/// Least bytes of inputs of a slice: idle workers should find something to do in it, and all inputs
/// are read ahead again in each.
pub(crate) fn least_bytes(options: &Options) -> u64 {
    let threads = options.background_threads as u64;
    let tables = SLICE_TABLES.max(threads.min(MOST_SHARING));
    options
        .compaction
        .table_bytes
        .saturating_mul(tables)
        .max(options.writes.write_buffer_bytes as u64 / 4)
}

/// Divides a compaction by key into slices of at least `slice_bytes` of inputs each.
pub(crate) fn divide(
    mut plan: Plan,
    bounds: &[Box<[u8]>],
    slice_bytes: u64,
    table_bytes: u64,
) -> Vec<MergeSlice> {
    let input_bytes = plan.input_bytes();
    let count = (input_bytes / slice_bytes.max(1)).min(MOST_SLICES);
    let cuts = beginnings(plan.replaced(), count);
    if cuts.is_empty() {
        return vec![MergeSlice::whole(plan, bounds.to_vec())];
    }
    let mut tables = std::mem::take(plan.replaced_mut());
    let mut grandparents = std::mem::take(&mut plan.grandparents);
    let all = total_bytes(&tables).max(1) as f64;
    let mut from: Option<Box<[u8]>> = None;
    let mut slices = Vec::with_capacity(cuts.len() + 1);
    for to in cuts.into_iter().map(Some).chain([None]) {
        let is_mine = |key: &[u8]| to.as_deref().is_none_or(|to| *key < *to);
        let is_passed = |key: &[u8]| from.as_deref().is_some_and(|from| *key <= *from);
        let mut plan = plan.clone();
        let later = tables.split_off(tables.partition_point(|table| is_mine(&table.smallest)));
        *plan.replaced_mut() = std::mem::replace(&mut tables, later);
        let ends_before = |key: &[u8]| from.as_deref().is_some_and(|from| *key < *from);
        grandparents.drain(..grandparents.partition_point(|table| ends_before(&table.largest)));
        let meets = grandparents.iter().take_while(|table| is_mine(&table.smallest));
        plan.grandparents = meets.cloned().collect();
        let share = total_bytes(plan.replaced()) as f64 / all;
        let table_bytes = Some(even(input_bytes as f64 * share, table_bytes.max(1)));
        let inside = bounds.iter().skip_while(|key| is_passed(key)).take_while(|key| is_mine(key));
        let bounds = inside.cloned().collect();
        slices.push(MergeSlice { plan, from, to: to.clone(), bounds, table_bytes });
        from = to;
    }
    slices
}

impl Engine {
    /// The slices of the compaction of `plan`, by key.
    pub(crate) fn slices(&self, plan: Plan) -> Result<Vec<MergeSlice>> {
        let options = self.options.load();
        // Without a second thread it cannot be shared.
        let is_shared = options.background_threads > 1;
        let bounds = if is_shared { self.subrange_bounds(&plan)? } else { Vec::new() };
        let is_small =
            plan.input_bytes() < options.compaction.table_bytes.saturating_mul(FEWEST_TABLES);
        let has_operands =
            options.writes.merge_operator.is_some() || self.version().may_hold_operands();
        if is_small || has_operands || options.filters.budget().is_some() {
            return Ok(vec![MergeSlice::whole(plan, bounds)]);
        }
        Ok(divide(plan, &bounds, least_bytes(&options), options.compaction.table_bytes))
    }
}
