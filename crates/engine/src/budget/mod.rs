//! A memory budget for filters, which is spent where a byte saves most, and enforced.
//!
//! 1. Before a job writes tables, the price of a byte is solved for the tree as it will be after
//!    the job, with its upper levels full and level 0 half full ([`TreeShape`]). Each table of the
//!    job gets the filter that is worth most at that price. So tables written one after the other,
//!    by any job, share the budget as if all had been chosen together. Among identical tables some
//!    get more, as far as the bytes go ([`Offer`]).
//! 2. Existing tables have filters that were chosen for an earlier tree, so the new total may
//!    exceed the budget. Then either the job pays a higher price, or other filters are no longer
//!    held, whichever wastes fewer reads ([`Engine::choose_by_budget`]).
//! 3. Whenever a version is installed, the limit of filter memory is set again. If all built
//!    filters exceed it, those worth least per byte are neither held nor probed
//!    ([`Engine::settle_filters`]): their tables pass every key.
//! 4. These filters, and others larger than they would be chosen now, are then rebuilt smaller in
//!    the background ([`fit`]) until all built filters fit.
//! 5. Filters of tables that have left the version are dropped as well: only scans still read those
//!    tables, and scans do without their filters. A scan does not keep a table's filters.
//!
//! Invariant: filters in memory, pinned and cached, never exceed the current budget, whatever is
//! read ([`FilterMemory`](trommel_sstable::FilterMemory) counts before it allocates). If the budget
//! falls, because keys are compacted away or options change, nothing beyond the new one is admitted
//! from then on. It takes effect once the reads that were probing a dropped filter have ended;
//! `set_options` and `wait_idle` wait for them. Long readers of a table (scans, compactions,
//! rebuilds and `verify`) hold none of its filters. Built filters exceed the budget only while the
//! rebuild that makes them fit is queued; `wait_idle` waits for it. If a table's sidecar is
//! unusable, the filters that replace it are counted.
//!
//! Range filters count as well: the policy sets them beside the budget, their bytes are taken
//! off first, and the filters of keys share the rest.
//!
//! Filters that keyspaces set for themselves count, but are neither chosen nor made smaller here:
//! their bytes are taken off first, and the other tables share the rest ([`own`]).
//!
//! A filter that is too small is not rebuilt just because there is room again: a rebuild costs
//! reads now, to save reads that may never come. Compactions and `rebuild_filters` enlarge it;
//! [`BudgetReport::tables`] lists what each table should have.
//!
//! Nothing here runs in a lookup. A price is solved in the thread of the job that needs it, for
//! levels rather than tables, from menus that the process keeps.
//!
//! Called by [`Outputs`](crate::output::Outputs), by `install`, `set_options` and the filter
//! report.

mod fit;
mod own;
mod ranges;
mod report;
mod shape;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use trommel_filter::{FilterKind, FilterSpec};
use trommel_sstable::FILTER_OVERHEAD_BYTES;
use trommel_tuning::{Held, Offer, Price, Solver, TuningError, Workload, bytes, rate, to_drop};

pub(crate) use fit::LEAST_GAIN;
use own::OwnFilters;
use ranges::PlannedRanges;
pub(crate) use report::Reads;
pub use report::{BudgetReport, BudgetSpace, BudgetValue, DriftReason, LevelDrift, TableDrift};
use shape::{Outlook, TreeShape, held_bytes};

use crate::compaction::in_progress::InProgress;
use crate::compaction::shape::Shape;
use crate::engine::Engine;
use crate::env;
use crate::filter_policy::FilterBudget;
use crate::levels::LEVELS;
use crate::purpose::Purpose;
use crate::rebuild_queue::Waiting;
use crate::sync::lock;
use crate::user_filters::FilterReason;
use crate::version::logical_level;
use crate::version::{Keeping, TableFile, Version};

/// Lookups that must have reached tables before their miss rate is used.
const ENOUGH_LOOKUPS: u64 = 10_000;
/// The assumed miss rate until enough lookups were seen.
const USUAL_MISSES: f64 = 0.5;
/// The lowest miss rate planned for from measurements: a store with only hits so far may miss
/// tomorrow.
const FEWEST_MISSES: f64 = 0.01;
/// One in this many bytes of the budget is held in reserve, because the size built is never exactly
/// the size planned: doing without one filter costs far more reads than making all filters smaller
/// by as much.
const RESERVE: u64 = 200;
/// Most times a job's price is raised if its filters do not fit: at first by the 64th root of 2,
/// which takes a 50th of a bit from each key, then by growing factors.
const MOST_STEPS: i32 = 48;

/// Longest wait for reads that are probing dropped filters, and the polling interval.
const LONGEST_FALL: Duration = Duration::from_secs(1);
const POLL_INTERVAL: Duration = Duration::from_micros(200);

/// The budget's choice for each table, by file number.
pub(crate) type Planned = HashMap<u64, FilterSpec>;

/// The miss rate that is planned for: the share of lookups that no table ends. A lookup that ends
/// at a tombstone finds nothing either, but does not continue in older tables.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Misses {
    pub(crate) share: f64,
    /// Lookups in which it was measured; `None` if it was configured or assumed.
    pub(crate) seen_in: Option<u64>,
}

impl Engine {
    /// The miss rate: as configured, or as measured since the store was opened.
    pub(crate) fn misses(&self, budget: &FilterBudget) -> Misses {
        if let Some(share) = budget.misses() {
            return Misses { share, seen_in: None };
        }
        let (lookups, ended) = self.statistics.counters.lookups_since_open();
        if lookups < ENOUGH_LOOKUPS {
            return Misses { share: USUAL_MISSES, seen_in: None };
        }
        // Rounded to hundredths, so that the price does not move with each lookup.
        let share = lookups.saturating_sub(ended) as f64 / lookups as f64;
        let share = ((share * 100.0).round() / 100.0).clamp(FEWEST_MISSES, 1.0);
        Misses { share, seen_in: Some(lookups) }
    }

    /// The facts about the tree in addition to its tables.
    fn outlook(&self, version: &Version, own: OwnFilters) -> Outlook {
        let options = self.options.load();
        let (mut runs, mut full) = (0, [0; LEVELS]);
        let keys = version.valued_keys().saturating_sub(own.keys);
        if options.compaction.auto_compaction {
            runs = options.compaction.l0_trigger as u64 / 2;
            let bytes: u64 = version.tables().map(|(_, table)| table.file_bytes).sum();
            let for_byte = keys as f64 / bytes.max(1) as f64;
            let shape = Shape::of(version, &InProgress::default(), &options.planner());
            for (full, target) in full.iter_mut().zip(shape.targets).take(LEVELS - 1) {
                *full = (target as f64 * for_byte) as u64;
            }
        }
        let (filters_last, run_keys) =
            (options.filtering.filters_on_last_level, self.statistics.budget_history.run_keys());
        Outlook { filters_last, runs, run_keys, keys, full, own }
    }

    /// The terms for choosing filters of a tree of this shape.
    fn terms(&self, budget: &FilterBudget, shape: &TreeShape) -> Result<Terms, TuningError> {
        self.terms_with(budget, shape, 0)
    }

    /// As [`terms`](Self::terms), with a budget larger by `more` bytes.
    fn terms_with(
        &self,
        budget: &FilterBudget,
        shape: &TreeShape,
        more: u64,
    ) -> Result<Terms, TuningError> {
        let misses = self.misses(budget);
        let workload = Workload::new(misses.share)?;
        let filters_last = self.options.load().filtering.filters_on_last_level;
        let solver = Solver::new(budget.rules(shape.last, filters_last));
        let all = budget.budget().bytes(shape.planned_keys + shape.own.keys).saturating_add(more);
        let of_ranges = shape.range_bytes(&self.planned_ranges());
        let all = all.saturating_sub(shape.own.bytes + of_ranges);
        let beside = all / RESERVE + shape.planned_tables * FILTER_OVERHEAD_BYTES;
        let in_filters = all.saturating_sub(beside) as f64;
        let planned = (in_filters / self.statistics.budget_history.built_for_planned()) as u64;
        let offer = match solver.offer(shape.tree(), &workload, planned) {
            // Use the minimum that the floors allow.
            Err(TuningError::BelowFloors { .. }) => Offer::flat(Price::new(f64::INFINITY)?),
            offer => offer?,
        };
        Ok(Terms { solver, workload, offer, misses })
    }

    /// Chooses the whole-key filters of the tables that a job writes to physical `level` of
    /// `version`.
    pub(crate) fn choose_by_budget(
        &self,
        budget: &FilterBudget,
        version: &Version,
        level: usize,
        purpose: &Purpose,
    ) -> BudgetChoice {
        let choice = self.try_to_choose(budget, version, level, purpose);
        choice.unwrap_or(BudgetChoice::same(FilterSpec::NONE))
    }

    fn try_to_choose(
        &self,
        budget: &FilterBudget,
        version: &Version,
        level: usize,
        purpose: &Purpose,
    ) -> Result<BudgetChoice, TuningError> {
        // The size of a load does not predict the size of the next runs.
        if level == 0 && purpose.reason != FilterReason::Load {
            self.statistics.budget_history.note_run(purpose.keys);
        }
        let mut own = self.own_filters(version);
        own.keys += purpose.own.keys;
        own.bytes += purpose.own.bytes;
        let shape = TreeShape::after(version, level, purpose, self.outlook(version, own))?;
        let Terms { solver, workload, offer, .. } = self.terms(budget, &shape)?;
        let (keys, (level, weight)) = (purpose.keys_each(), shape.job(&workload));
        let limit = budget.budget().bytes(shape.keys + shape.own.keys);
        let ranges = self.planned_ranges();
        let is_last = level > 0 && level == shape.last;
        let of_ranges = purpose.tables() * ranges.bytes(level, is_last, keys);
        let limit = limit.saturating_sub(shape.own.bytes + of_ranges);
        let built_for_planned = self.statistics.budget_history.built_for_planned();
        let takes = |spec: FilterSpec| {
            let each = bytes(spec, keys) as f64 * built_for_planned + FILTER_OVERHEAD_BYTES as f64;
            if spec == FilterSpec::NONE { 0 } else { (each * purpose.tables() as f64) as u64 }
        };
        let at = |price| solver.choose_near(level, keys, weight, price);
        let choice = BudgetChoice { offer, usual: at(offer.price()), larger: at(offer.lower()) };
        let room = limit.saturating_sub(shape.bytes_that_stay);
        let more = takes(choice.larger).saturating_sub(takes(choice.usual));
        if takes(choice.usual) + (more as f64 * offer.share()).ceil() as u64 <= room {
            return Ok(choice);
        }
        let first = choice.usual;
        if takes(first) <= room {
            return Ok(BudgetChoice::same(first));
        }
        let stays = |(_, table): &(usize, &Arc<TableFile>)| !purpose.replaces(table);
        let staying = version.tables().filter(stays).zip(shape.weights(&workload));
        let chosen = staying.filter(|((_, table), _)| !shape.own.has(table));
        let held: Vec<Held> = chosen
            .map(|((physical, table), w)| {
                let is_last = logical_level(version, physical).1;
                held(budget, &ranges, is_last, table, w)
            })
            .collect();
        // The reads wasted by a choice and by the filters dropped for it.
        let wasted = |spec: FilterSpec| {
            let Some(left) = limit.checked_sub(takes(spec)) else { return f64::INFINITY };
            let gone = to_drop(&held, left);
            let gone = gone.iter().filter_map(|nth| held.get(*nth));
            let by_others: f64 = gone.map(|held| held.weight * (1.0 - held.rate)).sum();
            weight * purpose.tables() as f64 * rate(spec, keys) + by_others
        };
        let mut best = (wasted(first), first);
        for step in 1..MOST_STEPS {
            let spec = solver.choose_near(level, keys, weight, raised(offer.price(), step)?);
            let wasted = wasted(spec);
            if wasted < best.0 {
                best = (wasted, spec);
            }
            // No filter has to be dropped for it: higher prices waste more.
            if takes(spec) <= room {
                break;
            }
        }
        Ok(BudgetChoice::same(best.1))
    }

    /// Decides which filters of `version` are held and probed: by the options for the last level,
    /// and by the budget. Sets the memory limit of filters, and queues rebuilds of those that are
    /// too large. Once the store is open, the manifest lock must be held, so that the decision is
    /// for the current version.
    pub(crate) fn settle_filters(&self, version: &Version) {
        let losses = self.files.tables.look_for_damage(version);
        self.statistics.budget_history.losses.store(losses, Relaxed);
        let options = self.options.load();
        let limit = options.filters.budget_bytes(version.valued_keys()).unwrap_or(u64::MAX);
        // From now on nothing beyond the limit is admitted; a lower limit takes effect once the
        // excess has been released.
        let filters = self.memory.shares.filters();
        filters.set_limit(limit);
        let budget = options.filters.budget();
        let excess = budget.map(|budget| self.excess(budget, version, limit));
        let Excess { dropped, waiting } = excess.unwrap_or_default();
        for (level, run) in version.levels.iter().enumerate() {
            let without =
                !options.filtering.filters_on_last_level && logical_level(version, level).1;
            for table in run {
                let keeping = match (without, dropped.contains(&table.number)) {
                    (true, _) => Keeping::NotInLastLevel,
                    (false, true) => Keeping::NotInBudget,
                    (false, false) => Keeping::Held,
                };
                self.files.tables.keep_filters(table, keeping);
            }
        }
        if budget.is_some() {
            // Tables that left the version while there was no budget.
            self.files.tables.retired().iter().for_each(|table| self.forget_filters(table));
        }
        // Partitioned filters take more than their stored bytes, so they were undercounted above,
        // and partitions of tables closed since may be in the cache.
        self.files.tables.close_until(|| filters.is_kept());
        if !filters.is_kept() {
            self.memory.shares.empty_cache();
        }
        self.queue_to_fit(waiting);
    }

    /// Waits until the filters held are within the last limit, when the reads that were probing
    /// dropped filters have ended. A read that takes longer than [`LONGEST_FALL`] is not waited
    /// for, because it may be waiting for the caller; the limit then takes effect when it ends.
    pub(crate) fn wait_for_limit(&self) {
        let end = env::now() + LONGEST_FALL;
        while !self.memory.shares.filters().is_kept() && env::now() < end {
            env::sleep(POLL_INTERVAL);
        }
    }

    /// Settles again if tables' own filters were found to replace lost sidecars, which have other
    /// sizes; returns whether any were.
    pub(crate) fn settle_losses(&self) -> bool {
        if self.options.load().filters.budget().is_none()
            || self.files.tables.look_for_damage(&self.version())
                == self.statistics.budget_history.losses.load(Relaxed)
        {
            return false;
        }
        let _no_install = lock(&self.files.manifest);
        self.settle_filters(&self.version());
        true
    }

    /// Replaces the tables queued to have their filters rebuilt for the budget.
    fn queue_to_fit(&self, waiting: Vec<Waiting>) {
        let is_refused = self.access.check_writable().is_err();
        let waiting = if is_refused { Vec::new() } else { waiting };
        let mut state = lock(&self.background.state);
        if waiting.is_empty() && state.requests.fit_budget.is_over() {
            return;
        }
        if state.requests.fit_budget.is_over() {
            crate::events::budget_exceeded(waiting.len());
        }
        state.requests.fit_budget.refill(waiting);
        self.background.notify();
    }

    /// Drops the filters of a table that left the version, if a budget counts them.
    pub(crate) fn forget_filters(&self, table: &Arc<TableFile>) {
        if self.options.load().filters.budget().is_some() {
            // Once the table is closed, its entries in the cache cannot be found.
            if let Some(open) = table.open_reader() {
                open.table().evict();
            }
            self.files.tables.keep_filters(table, Keeping::NotInBudget);
        }
    }

    /// The filters of `version` that exceed `limit`.
    fn excess(&self, budget: &FilterBudget, version: &Version, limit: u64) -> Excess {
        let filters_last = self.options.load().filtering.filters_on_last_level;
        let counts = |level| filters_last || !logical_level(version, level).1;
        let levels = version.levels.iter().enumerate().filter(|(level, _)| counts(*level));
        let all: u64 = levels.flat_map(|(_, run)| run).map(|table| held_bytes(table)).sum();
        if all <= limit {
            return Excess::default();
        }
        let own = self.own_filters(version);
        let shape = TreeShape::of(version, self.outlook(version, own));
        let Ok((shape, terms)) = shape.and_then(|shape| {
            let terms = self.terms(budget, &shape)?;
            Ok((shape, terms))
        }) else {
            return Excess::default();
        };
        let weights = shape.weights(&terms.workload);
        let ranges = self.planned_ranges();
        let held = version.tables().zip(weights).map(|((level, table), weight)| {
            let is_last = logical_level(version, level).1;
            let held = held(budget, &ranges, is_last, table, weight);
            let is_chosen = counts(level) && !shape.own.has(table);
            Held { bytes: if is_chosen { held_bytes(table) } else { 0 }, ..held }
        });
        let held: Vec<Held> = held.collect();
        let numbers: Vec<u64> = version.tables().map(|(_, table)| table.number).collect();
        let limit = limit.saturating_sub(shape.own.bytes);
        let dropped = to_drop(&held, limit);
        let waiting = self.to_fit(version, &terms, &held, &dropped, limit);
        let dropped = dropped.into_iter().filter_map(|nth| numbers.get(nth).copied()).collect();
        Excess { dropped, waiting }
    }

    /// The choice for each wanted table of `version`, by level and file number, if it were written
    /// again now; `None` without a budget.
    pub(crate) fn planned_by_budget(
        &self,
        version: &Version,
        wants: impl Fn(usize, u64) -> bool,
    ) -> Option<Planned> {
        let options = self.options.load();
        let budget = options.filters.budget()?;
        let own = self.own_filters(version);
        let shape = TreeShape::of(version, self.outlook(version, own)).ok()?;
        let terms = self.terms(budget, &shape).ok()?;
        let weighted = version.tables().zip(shape.weights(&terms.workload));
        let planned = weighted.filter_map(|((physical, table), weight)| {
            let level = logical_level(version, physical).0;
            wants(level, table.number).then(|| {
                let price = terms.offer.of(table.number);
                (table.number, terms.solver.choose_near(level, table.keys, weight, price))
            })
        });
        Some(planned.collect())
    }
}

/// The built filters that exceed the budget.
#[derive(Default)]
struct Excess {
    /// Tables whose filters are not held.
    dropped: HashSet<u64>,
    /// Tables to be rebuilt, so that all filters may be held again.
    waiting: Vec<Waiting>,
}

/// The `step`th price above `price`.
fn raised(price: Price, step: i32) -> Result<Price, TuningError> {
    Price::new(price.per_byte() * (f64::from(step * step) / 64.0).exp2())
}

/// The choice for the tables of a job.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BudgetChoice {
    offer: Offer,
    usual: FilterSpec,
    /// For the tables that are offered a lower price.
    larger: FilterSpec,
}

impl BudgetChoice {
    fn same(spec: FilterSpec) -> Self {
        Self { offer: Offer::flat(Price::FREE), usual: spec, larger: spec }
    }

    /// The filter of the table with this file number.
    pub(crate) fn of(&self, number: u64) -> FilterSpec {
        if self.offer.is_lower_for(number) { self.larger } else { self.usual }
    }
}

/// The terms of a choice of filters.
struct Terms {
    solver: Solver,
    workload: Workload,
    offer: Offer,
    misses: Misses,
}

/// The filter of `table`, whose wasted reads would cost `weight` without it. The manifest does not
/// record its kind, so its rate is estimated from its bytes.
fn held(
    budget: &FilterBudget,
    ranges: &PlannedRanges,
    is_last: bool,
    table: &TableFile,
    weight: f64,
) -> Held {
    let of_keys = table.built_bytes().saturating_sub(ranges.built_bytes(table, is_last));
    let bits = of_keys as f64 * 8.0 / table.keys.max(1) as f64;
    let kind = budget.kinds().first().copied().unwrap_or(FilterKind::Paired);
    let spec = FilterSpec::new(kind, bits.min(64.0));
    let rate = spec.map_or(1.0, |spec| rate(spec, table.keys));
    let is_wanted = table.keeping() != Keeping::NotInLastLevel;
    Held { weight, bytes: if is_wanted { held_bytes(table) } else { 0 }, rate }
}
