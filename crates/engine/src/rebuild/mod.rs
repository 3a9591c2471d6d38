//! Rebuilding filters without rewriting data: the cost, and the request.
//!
//! 1. A table needs a rebuild if the filters that answer for it are not what the current policy
//!    would build for its level now, or are corrupt ([`Engine::rebuild_of`]). [`choose_filters`]
//!    decides what would be built, as for new tables.
//! 2. If the table's own filters are the wanted ones, its sidecar is dropped; otherwise one is
//!    written ([`job`]), and a manifest edit names it.
//! 3. A request is a queue of tables ([`rebuild_queue`](crate::rebuild_queue)). Background threads
//!    take one at a time when there is no other work. Compactions do not take a table being
//!    rebuilt, nor the other way round.
//!
//! Invariants: a table's data is never written. After any failure, the old filters still answer.
//! Called by `Db::rebuild_filters` and `Db::filter_rebuild_plan`.

mod job;

#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use trommel_filter::{FilterSpec, RangeSpec};
use trommel_sstable::{
    FilterPart, FilterPlan, FilterRole, FilterShape, FilterState, Filters, UserFilterReader as _,
    contained,
};

use crate::background::{BackgroundState, Concern};
use crate::budget::Planned;
use crate::compaction::key_range::KeyBounds;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::limiter::AwaitedWork;
use crate::live_keys::{Filtered, sized_for_live};
use crate::output::{UserFilterBuild, choose_filters};
use crate::purpose::{MemtableShare, Purpose};
use crate::rebuild_queue::{FilterRebuildReport, Rebuild};
use crate::sync::lock;
use crate::user_filters::FilterReason;
use crate::version::logical_level;
use crate::version::{FilterMeta, Keeping, TableFile, TableMeta, Version};

/// Approximate bytes of a sidecar in addition to its filters.
const SIDECAR_BYTES: u64 = 200;

/// Relative difference between a filter's bits and the budget's current choice that is tolerated.
const NEAR: f64 = 0.1;

/// The tables that [`Db::rebuild_filters`](crate::Db::rebuild_filters) considers. Default: all.
#[derive(Debug, Clone, Default)]
pub struct RebuildOptions {
    levels: Option<BTreeSet<usize>>,
    tables: Option<BTreeSet<u64>>,
}

impl RebuildOptions {
    /// Only tables of these levels, numbered as in reports: 0, or 1 for the first level below that
    /// holds data, and so on.
    #[must_use]
    pub fn levels(mut self, levels: impl IntoIterator<Item = usize>) -> Self {
        self.levels = Some(levels.into_iter().collect());
        self
    }

    /// Only the tables with these file numbers.
    #[must_use]
    pub fn tables(mut self, tables: impl IntoIterator<Item = u64>) -> Self {
        self.tables = Some(tables.into_iter().collect());
        self
    }

    fn wants(&self, level: usize, table: u64) -> bool {
        self.levels.as_ref().is_none_or(|levels| levels.contains(&level))
            && self.tables.as_ref().is_none_or(|tables| tables.contains(&table))
    }
}

/// The cost of rebuilding one table's filters.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TableRebuild {
    /// The table's file number.
    pub table: u64,
    /// Its level as in reports: 0, or 1 for the first level below that holds data, and so on.
    pub level: usize,
    /// Its current filters: the spec of each, or `none`.
    pub from: String,
    /// Its new filters.
    pub to: String,
    /// Distinct keys to be read; 0 if nothing has to be read.
    pub keys: u64,
    /// Bytes of the table to be read for them.
    pub bytes_read: u64,
    /// Approximate bytes to be written; the size of a user's filter is unknown.
    pub bytes_written: u64,
}

/// What [`Db::rebuild_filters`](crate::Db::rebuild_filters) would do now.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct FilterRebuildPlan {
    /// The tables whose filters are not what the policy would build.
    pub tables: Vec<TableRebuild>,
    /// Distinct keys to be read, counted separately for each table.
    pub keys: u64,
    /// Bytes to be read.
    pub bytes_read: u64,
    /// Approximate bytes to be written.
    pub bytes_written: u64,
}

/// The task for a table.
enum RebuildTask {
    /// None: it has the wanted filters.
    Keep,
    /// Drop its sidecar: its own filters are the wanted ones.
    Drop,
    /// Build a sidecar with these filters.
    Build(FilterPlan, Option<UserFilterBuild>),
}

impl Engine {
    /// What would be rebuilt, and the cost.
    pub(crate) fn rebuild_plan(&self, options: &RebuildOptions) -> Result<FilterRebuildPlan> {
        self.access.check_open()?;
        let version = self.version();
        let planned = self.planned_by_budget(&version, |level, table| options.wants(level, table));
        let mut plan = FilterRebuildPlan::default();
        for (physical, table) in version.tables() {
            let level = logical_level(&version, physical).0;
            if !options.wants(level, table.number) {
                continue;
            }
            let Some(cost) = self.rebuild_cost(&version, physical, table, planned.as_ref())? else {
                continue;
            };
            plan.keys += cost.keys;
            plan.bytes_read += cost.bytes_read;
            plan.bytes_written += cost.bytes_written;
            plan.tables.push(cost);
        }
        Ok(plan)
    }

    fn rebuild_cost(
        &self,
        version: &Version,
        physical: usize,
        table: &Arc<TableFile>,
        planned: Option<&Planned>,
    ) -> Result<Option<TableRebuild>> {
        let task = self.rebuild_of(version, physical, table, planned)?;
        let reader = self.files.tables.reader(table)?;
        let mut cost = TableRebuild {
            table: table.number,
            level: logical_level(version, physical).0,
            from: words(reader.filters().stored_parts()),
            to: String::new(),
            keys: 0,
            bytes_read: 0,
            bytes_written: 0,
        };
        match task {
            RebuildTask::Keep => return Ok(None),
            RebuildTask::Drop => cost.to = words(reader.filters().own().stored_parts()),
            RebuildTask::Build(filters, user) => {
                cost.to = words_of(&filters, user.as_ref());
                cost.bytes_written = SIDECAR_BYTES + filters.expected_bytes(table.keys);
                if filters.has_any() || user.is_some() {
                    cost.keys = table.keys;
                    let footer = reader.footer();
                    cost.bytes_read = footer.data_bytes + footer.leaves_bytes;
                }
                drop_builder(user);
            }
        }
        Ok(Some(cost))
    }

    /// The task for `table` in level `physical` of `version`; `planned` is the budget's choice for
    /// it.
    fn rebuild_of(
        &self,
        version: &Version,
        physical: usize,
        table: &Arc<TableFile>,
        planned: Option<&Planned>,
    ) -> Result<RebuildTask> {
        // Neither held nor wanted: whatever it has costs nothing.
        if table.keeping() == Keeping::NotInLastLevel {
            return Ok(RebuildTask::Keep);
        }
        let (level, is_last) = logical_level(version, physical);
        let purpose = purpose_of(table);
        let options = self.options.for_key(&table.smallest);
        let is_budgeted = options.filters.budget().is_some();
        let reader = self.files.tables.reader(table)?;
        let filters = reader.filters();
        let planned = planned.and_then(|planned| planned.get(&table.number)).copied();
        // A keyspace may have filters of its own.
        let planned = planned.filter(|_| is_budgeted);
        if planned.is_none() && is_budgeted {
            return Ok(RebuildTask::Keep);
        }
        let is_dropped = table.keeping() == Keeping::NotInBudget;
        // Its kind is not known, but its size is: close to the planned size is good enough.
        if let Some(spec) = planned.filter(|_| is_dropped)
            && near(table.built_bytes() as f64, trommel_tuning::bytes(spec, table.keys) as f64)
        {
            return Ok(RebuildTask::Keep);
        }
        let by_budget = planned.map(|spec| as_it_is(spec, filters));
        let (mut wanted, user) = choose_filters(&options, level, is_last, &purpose, by_budget);
        let is_ruled = by_budget.is_none() && options.filtering.user_filters.is_none();
        if is_ruled && wanted.shape == FilterShape::Whole {
            wanted.keys = sized_for_live(wanted.keys, version, Filtered::of(table));
        }
        if is_dropped {
            return Ok(RebuildTask::Build(wanted, user));
        }
        let serves = |filters: &Filters| {
            let is_sound = !matches!(filters.state(), FilterState::Damaged(_));
            is_sound && is_like(&wanted, user.as_ref(), filters)
        };
        let task = match table.filters.sidecar {
            None if serves(filters) => RebuildTask::Keep,
            Some(_) if filters.are_beside() && serves(filters) => RebuildTask::Keep,
            Some(_) if serves(filters.own()) => RebuildTask::Drop,
            _ => return Ok(RebuildTask::Build(wanted, user)),
        };
        drop_builder(user);
        Ok(task)
    }

    /// The task that makes `table` fit the budget, with `spec` for its whole-key filter.
    fn fit_of(
        &self,
        version: &Version,
        physical: usize,
        table: &Arc<TableFile>,
        spec: FilterSpec,
    ) -> RebuildTask {
        let options = self.options.for_key(&table.smallest);
        if options.filters.budget().is_none() || table.built_bytes() == 0 {
            return RebuildTask::Keep;
        }
        let (level, is_last) = logical_level(version, physical);
        let by_budget = Some(spec);
        let (wanted, user) =
            choose_filters(&options, level, is_last, &purpose_of(table), by_budget);
        RebuildTask::Build(wanted, user)
    }

    /// Rebuilds the filters of the tables that need it, and waits for that to finish.
    pub(crate) fn rebuild_filters(&self, options: &RebuildOptions) -> Result<FilterRebuildReport> {
        self.access.check_writable()?;
        self.rebuild_tables(self.tables_to_rebuild(options))
    }

    /// Queues these tables, and waits until all are done.
    fn rebuild_tables(&self, tables: VecDeque<u64>) -> Result<FilterRebuildReport> {
        let awaited = self.background.limiter.awaits(AwaitedWork::All);
        let ticket = {
            let mut state = lock(&self.background.state);
            let ticket = state.ticket();
            state.requests.rebuilds.push(Rebuild::new(ticket, tables));
            self.background.notify();
            ticket
        };
        let is_over = |state: &BackgroundState| {
            state.requests.rebuilds.iter().all(|it| !it.is(ticket) || it.is_over())
        };
        let waited = self.wait_for_state(&awaited, Concern::Poison, |_, state| is_over(state));
        let mut state = lock(&self.background.state);
        let at = state.requests.rebuilds.iter().position(|it| it.is(ticket));
        let rebuild = at.map(|at| state.requests.rebuilds.swap_remove(at));
        if let Some(rebuild) = &rebuild {
            state.requests.last_rebuild = Some(rebuild.report().clone());
        }
        drop(state);
        self.sweep();
        // Wakes the worker that manages recycled files.
        self.background.wake();
        waited?;
        rebuild.map_or_else(|| Err(Error::internal("a rebuild was lost")), Rebuild::outcome)
    }

    /// The report of the last rebuild that was requested or processed a table.
    pub(crate) fn last_rebuild(&self) -> Option<FilterRebuildReport> {
        self.access.opener().check().ok()?;
        lock(&self.background.state).requests.last_rebuild.clone()
    }

    /// The numbers of the tables that need a rebuild, and of those that cannot be opened: such a
    /// table's error is reported when its turn comes, and does not prevent the turns of others.
    fn tables_to_rebuild(&self, options: &RebuildOptions) -> VecDeque<u64> {
        let version = self.version();
        let planned = self.planned_by_budget(&version, |level, table| options.wants(level, table));
        let wants = |(physical, table): &(usize, &Arc<TableFile>)| {
            if !options.wants(logical_level(&version, *physical).0, table.number) {
                return false;
            }
            match self.rebuild_of(&version, *physical, table, planned.as_ref()) {
                Ok(RebuildTask::Keep) => false,
                Ok(RebuildTask::Build(_, user)) => {
                    drop_builder(user);
                    true
                }
                Ok(RebuildTask::Drop) | Err(_) => true,
            }
        };
        version.tables().filter(wants).map(|(_, table)| table.number).collect()
    }

    /// Tables whose filter rebuilds are queued or running.
    pub(crate) fn queued_rebuilds(&self) -> u64 {
        let state = lock(&self.background.state);
        state
            .requests
            .rebuilds
            .iter()
            .chain([&state.requests.fit_budget])
            .map(Rebuild::tables)
            .sum()
    }
}

/// The budget's choice is never exactly the same twice, so a stored whole-key filter close to
/// `spec` is good enough.
fn as_it_is(spec: FilterSpec, filters: &Filters) -> FilterSpec {
    let stored = filters.stored_parts().find(|part| part.role == FilterRole::Keys);
    let stored = stored.and_then(|part| part.spec.parse::<FilterSpec>().ok());
    let is_near = |stored: &FilterSpec| {
        let (bits, wanted) = (stored.bits_per_key(), spec.bits_per_key());
        stored.kind() == spec.kind() && near(bits, wanted)
    };
    stored.filter(is_near).unwrap_or(spec)
}

fn near(size: f64, wanted: f64) -> bool {
    (size - wanted).abs() <= wanted * NEAR
}

fn purpose_of(table: &Arc<TableFile>) -> Purpose {
    Purpose {
        reason: FilterReason::Rebuild,
        keys: table.keys,
        deletions: table.deletions,
        own: MemtableShare::default(),
        expected_keys: table.keys,
        inputs: vec![table.number],
        span: KeyBounds::hull([table]),
    }
}

/// Whether `filters` are what would be built.
fn is_like(wanted: &FilterPlan, user: Option<&UserFilterBuild>, filters: &Filters) -> bool {
    let Some((policy, _)) = user else { return wanted.would_build(filters.stored_parts()) };
    let is_users = |part: &&FilterPart| !part.policy.is_empty();
    let mut of_users = filters.stored_parts().filter(is_users);
    // It is unknown what a policy would build from the keys now, so the filter that it has built
    // stays.
    let is_its = of_users.next().is_some_and(|part| part.policy == policy.name());
    is_its && wanted.would_build(filters.stored_parts().filter(|part| !is_users(part)))
}

/// The metadata of the table with filters of `bytes` bytes in `sidecar`.
fn with_filters(meta: &TableMeta, level: usize, sidecar: Option<u64>, bytes: u64) -> TableMeta {
    let filters = FilterMeta { bytes, built_for: level as u8, sidecar };
    TableMeta { filters, ..meta.clone() }
}

/// Drops a user's builder that will not be finished.
fn drop_builder(user: Option<UserFilterBuild>) {
    let Some((policy, builder)) = user else { return };
    if let Err(why) = contained(|| drop(builder)) {
        policy.failed(&format!("when it was dropped: {why}"));
    }
}

/// The specs of stored filters.
fn words<'a>(parts: impl Iterator<Item = &'a FilterPart>) -> String {
    let word = |part: &FilterPart| match (&*part.policy, &*part.extractor) {
        ("", "") if part.role == FilterRole::Ranges => part.spec.clone(),
        ("", "") => format!("{}{}", part.spec, shape_word(part.shape)),
        ("", maker) => format!("{} of {maker}{}", part.spec, shape_word(part.shape)),
        (policy, _) => format!("{policy:?}"),
    };
    joined(&parts.map(word).collect::<Vec<_>>())
}

/// The specs of filters to be built.
fn words_of(plan: &FilterPlan, user: Option<&UserFilterBuild>) -> String {
    let shape = shape_word(plan.shape);
    let mut words: Vec<String> =
        user.iter().map(|(policy, _)| format!("{:?}", policy.name())).collect();
    words.extend(plan.parts().map(|(spec, maker)| match maker {
        None => format!("{spec}{shape}"),
        Some(maker) => format!("{spec} of {maker}{shape}"),
    }));
    words.extend((plan.ranges != RangeSpec::NONE).then(|| plan.ranges.to_string()));
    joined(&words)
}

fn shape_word(shape: FilterShape) -> &'static str {
    match shape {
        FilterShape::Partitioned => " (partitioned)",
        _ => "",
    }
}

fn joined(words: &[String]) -> String {
    if words.is_empty() { "none".to_owned() } else { words.join(", ") }
}
