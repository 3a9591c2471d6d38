//! Chooses the filters that are rebuilt smaller, so that all built filters fit the budget again.
//!
//! 1. Each table is compared with its choice at the current price, as in the report. Its excess may
//!    go.
//! 2. If that is not enough, because tables with less than planned stay as they are, the price is
//!    raised until it is.
//! 3. If no price is enough, because the minimum sizes exceed the limit, tables lose their filters
//!    altogether, starting with those worth least. So the limit can always be met.
//! 4. Among the tables with too much, those that lose least per byte are taken first, and no more
//!    of them than necessary, with a little headroom.
//!
//! The tables wait in the queue of the store's own rebuilds
//! ([`rebuild_queue`](crate::rebuild_queue)), which is refilled with each version. Each rebuild
//! takes at least one part in 64 from its table's filters, or all of them (`rebuild/job.rs`): so
//! the rebuilds come to an end, whatever the expected sizes.

use std::sync::Arc;

use trommel_filter::FilterSpec;
use trommel_sstable::FILTER_OVERHEAD_BYTES;
use trommel_tuning::{Held, Price, Solver, bytes, rate, to_drop};

use super::{MOST_STEPS, Terms, raised};
use crate::engine::Engine;
use crate::rebuild_queue::{Aim, Waiting};
use crate::version::logical_level;
use crate::version::{TableFile, Version};

/// A filter is not rebuilt to save only one part in this many.
pub(crate) const LEAST_GAIN: u64 = 64;
/// Once rebuilds are necessary, one part in this many of the budget is left free.
const ROOM: u64 = 32;

/// A table whose filters count, and the choice for it.
struct Candidate<'a> {
    level: usize,
    table: &'a Arc<TableFile>,
    held: Held,
    /// Whether its filters are no longer probed, for lack of room.
    is_dropped: bool,
    to: FilterSpec,
    /// Approximate bytes of memory that `to` takes; as many as now, if the filter stays.
    takes: u64,
}

impl Candidate<'_> {
    fn stays(&self) -> bool {
        self.takes == self.held.bytes
    }

    /// Wasted reads added per byte saved.
    fn loss(&self) -> f64 {
        let rate_now = if self.is_dropped { 1.0 } else { self.held.rate };
        let lost = self.held.weight * (rate(self.to, self.table.keys) - rate_now);
        lost / self.held.bytes.saturating_sub(self.takes).max(1) as f64
    }
}

impl Engine {
    /// The tables whose filters are to be rebuilt so that all take at most `limit` bytes; `held`
    /// are the filters of `version`, of which `dropped` are no longer probed.
    pub(super) fn to_fit(
        &self,
        version: &Version,
        terms: &Terms,
        held: &[Held],
        dropped: &[usize],
        limit: u64,
    ) -> Vec<Waiting> {
        let built_for_planned = self.statistics.budget_history.built_for_planned();
        let ranges = self.planned_ranges();
        let last = version.tables().last().map_or(0, |(level, _)| logical_level(version, level).0);
        let tables = version.tables().zip(held).enumerate();
        let mut candidates: Vec<Candidate<'_>> = tables
            .filter(|(_, (_, held))| held.bytes > 0)
            .map(|(nth, ((physical, table), held))| Candidate {
                level: logical_level(version, physical).0,
                table,
                held: *held,
                is_dropped: dropped.contains(&nth),
                to: FilterSpec::NONE,
                takes: held.bytes,
            })
            .collect();
        for step in 0..MOST_STEPS {
            let Ok(usual) = raised(terms.offer.price(), step) else { break };
            for it in &mut candidates {
                let price = if step > 0 { usual } else { terms.offer.of(it.table.number) };
                let of_ranges = ranges.bytes(it.level, it.level == last, it.table.keys);
                aim(it, &terms.solver, price, (built_for_planned, of_ranges));
            }
            let all: u64 = candidates.iter().map(|it| it.takes).sum();
            if all <= limit || usual.per_byte().is_infinite() {
                break;
            }
        }
        let left: Vec<Held> =
            candidates.iter().map(|it| Held { bytes: it.takes, ..it.held }).collect();
        for nth in to_drop(&left, limit) {
            if let Some(gone) = candidates.get_mut(nth) {
                (gone.to, gone.takes) = (FilterSpec::NONE, 0);
            }
        }
        let all: u64 = candidates.iter().map(|it| it.held.bytes).sum();
        enough(candidates, all.saturating_sub(limit - limit / ROOM))
    }
}

/// Sets the target of the candidate to the best choice at `price`, if that is smaller than its
/// filter.
fn aim(
    it: &mut Candidate<'_>,
    solver: &Solver,
    price: Price,
    (built_for_planned, of_ranges): (f64, u64),
) {
    let keys = it.table.keys;
    it.to = solver.choose_near(it.level, keys, it.held.weight, price);
    let takes = match (bytes(it.to, keys), of_ranges) {
        (0, 0) => 0,
        (planned, _) => {
            (planned as f64 * built_for_planned) as u64 + of_ranges + FILTER_OVERHEAD_BYTES
        }
    };
    let is_less = takes + takes / LEAST_GAIN * 2 < it.held.bytes;
    it.takes = if is_less { takes } else { it.held.bytes };
}

/// The candidates that lose least per byte, until `bytes` are saved.
fn enough(mut candidates: Vec<Candidate<'_>>, bytes: u64) -> Vec<Waiting> {
    candidates.retain(|it| !it.stays());
    candidates.sort_by(|a, b| a.loss().total_cmp(&b.loss()));
    let mut gone = 0;
    let mut waiting = Vec::new();
    for it in candidates {
        if gone >= bytes {
            break;
        }
        gone += it.held.bytes - it.takes;
        let aim = Aim::Budget { spec: it.to, sidecar: it.table.filters.sidecar };
        waiting.push(Waiting { table: it.table.number, aim });
    }
    waiting
}
