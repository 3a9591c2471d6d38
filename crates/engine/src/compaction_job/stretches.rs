//! A large merge in *stretches* of its keys, each put in force as soon as it is merged.
//!
//! 1. A merge is divided where tables of its output level begin, into stretches of some tables'
//!    worth of inputs. What a stretch writes takes the place of the tables of the output level that
//!    it has read, and those leave the disk before the next stretch begins.
//! 2. The inputs from levels above stay until the last stretch is in force. Meanwhile they say once
//!    more what the outputs say: the same entries with the same sequence numbers, in a level that
//!    is asked first. So whoever reads, opens the store after a crash or merges them anew finds
//!    what was there.
//! 3. Nobody else may take the outputs of a merge that goes on
//!    ([`in_progress`](crate::compaction::in_progress)).
//!
//! Where filters have a budget a merge is one stretch: those of outputs and of inputs that stay
//! would not fit it together.
//!
//! A stretch pins the version it begins with: what another merge replaces meanwhile leaves the disk
//! when it ends.
//!
//! Beside its inputs a merge needs room for what it brings down from above, and for a stretch; not
//! for all that it writes. One that is given up leaves what it has put in force, and all that it
//! was to bring down.
//!
//! Called by the worker that runs a plan.

use crate::engine::Engine;
use crate::error::Result;
use crate::options::Options;
use crate::shared_merge::Stretch;

use super::share::beginnings;
use crate::compaction::key_range::total_bytes;
use crate::compaction::plan::Plan;

/// Tables' worth of inputs of a stretch, at least: each costs a sync of the manifest and of the
/// directory.
const STRETCH_TABLES: u64 = 2;

/// Threads that find a table's worth of a stretch each, at most: with more of them large merges
/// would be one.
const MOST_SHARING: u64 = 4;

/// Tables' worth of inputs from which on a merge is divided: each stretch ends a table early.
const FEWEST_TABLES: u64 = 8;

/// Most stretches of a merge: each of its inputs is sought in, and read ahead, once in each.
const MOST_STRETCHES: u64 = 64;

/// How much larger than its share of a stretch a table may be: how many bytes there are is an
/// estimate.
const SLACK: f64 = 1.125;

/// The size of tables that hold a stretch of so many bytes evenly, as near to `table_bytes` as can
/// be: what is left over would make a small table at the end of each. From 0.75 to 1.7 times as
/// much: what is merged into a small stretch may be far more than its share.
pub(crate) fn even(bytes: f64, table_bytes: u64) -> u64 {
    let tables = (bytes / table_bytes as f64).round().max(1.0);
    ((bytes / tables * SLACK).ceil() as u64).max(table_bytes / 4 * 3)
}

/// Bytes of inputs of a stretch, at least: idle workers are to find something of it to do, and all
/// inputs are read ahead anew in each.
pub(crate) fn least_bytes(options: &Options) -> u64 {
    let threads = options.background_threads as u64;
    let tables = STRETCH_TABLES.max(threads.min(MOST_SHARING));
    options.table_bytes.saturating_mul(tables).max(options.write_buffer_bytes as u64 / 4)
}

/// Divides a merge into stretches with at least so many bytes of inputs each, by key.
pub(crate) fn divide(
    mut plan: Plan,
    bounds: &[Box<[u8]>],
    stretch_bytes: u64,
    table_bytes: u64,
) -> Vec<Stretch> {
    let input_bytes = plan.input_bytes();
    let count = (input_bytes / stretch_bytes.max(1)).min(MOST_STRETCHES);
    let cuts = beginnings(plan.replaced(), count);
    if cuts.is_empty() {
        return vec![Stretch::whole(plan, bounds.to_vec())];
    }
    let mut tables = std::mem::take(plan.replaced_mut());
    let mut grandparents = std::mem::take(&mut plan.grandparents);
    let all = total_bytes(&tables).max(1) as f64;
    let mut from: Option<Box<[u8]>> = None;
    let mut stretches = Vec::with_capacity(cuts.len() + 1);
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
        stretches.push(Stretch { plan, from, to: to.clone(), bounds, table_bytes });
        from = to;
    }
    stretches
}

impl Engine {
    /// The stretches of the merge of `plan`, by key.
    pub(crate) fn stretches(&self, plan: Plan) -> Result<Vec<Stretch>> {
        let options = self.options.load();
        // Without a second thread there is nobody to share it with.
        let is_shared = options.background_threads > 1;
        let bounds = if is_shared { self.piece_bounds(&plan)? } else { Vec::new() };
        let is_small = plan.input_bytes() < options.table_bytes.saturating_mul(FEWEST_TABLES);
        if is_small || options.filters.budget().is_some() {
            return Ok(vec![Stretch::whole(plan, bounds)]);
        }
        Ok(divide(plan, &bounds, least_bytes(&options), options.table_bytes))
    }
}
