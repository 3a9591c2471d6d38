//! The data that a filter budget keeps between jobs: the ratio of built to planned bytes, and the
//! number of lost sidecars.
//!
//! The engine holds it. Jobs that write tables update it, and [`budget`](crate::budget) plans with
//! it.

use trommel_filter::FilterSpec;
use trommel_tuning::bytes;

use crate::sync::quiet::AtomicU64;
use crate::sync::{Mutex, lock};

/// Decay of the ratio of built to planned bytes: after this many bytes, older bytes count half.
const MEMORY_OF_BUILT: f64 = (64 << 20) as f64;

/// The data that the budget keeps between jobs.
#[derive(Debug, Default)]
pub(crate) struct BudgetHistory {
    /// Lost sidecars when filters were last settled.
    pub(crate) losses: AtomicU64,
    built: Mutex<Built>,
}

/// Planned and built bytes of filters, and the size of flushed runs.
#[derive(Debug, Default)]
struct Built {
    /// Of filters of keys: prefix filters and the overhead of partitioning come on top of the plan.
    keys: Ratio,
    /// Of range filters, which take less where keys crowd.
    ranges: Ratio,
    /// Keys of the last runs of level 0.
    run_keys: u64,
}

/// Sums of planned and built bytes.
#[derive(Debug, Default)]
struct Ratio {
    planned: f64,
    built: f64,
}

impl Ratio {
    fn note(&mut self, planned: u64, built: u64) {
        if planned == 0 {
            return;
        }
        if self.planned > MEMORY_OF_BUILT {
            self.planned /= 2.0;
            self.built /= 2.0;
        }
        self.planned += planned as f64;
        self.built += built as f64;
    }

    /// Bytes built per byte planned.
    fn value(&self) -> f64 {
        if self.planned > 0.0 { (self.built / self.planned).clamp(0.1, 10.0) } else { 1.0 }
    }
}

impl BudgetHistory {
    /// Records that a filter of `spec` for `keys` keys was planned, and that all filters of its
    /// table, except the range filter, take `built` bytes.
    pub(crate) fn note_built(&self, spec: FilterSpec, keys: u64, built: u64) {
        lock(&self.built).keys.note(bytes(spec, keys), built);
    }

    /// Records that a range filter that was expected to take `planned` bytes takes `built`.
    pub(crate) fn note_ranges(&self, planned: u64, built: u64) {
        lock(&self.built).ranges.note(planned, built);
    }

    /// Records that a run of `keys` keys is written to level 0. A run much smaller than usual is no
    /// indication of the size of the next.
    pub(crate) fn note_run(&self, keys: u64) {
        let mut known = lock(&self.built);
        known.run_keys = keys.max(known.run_keys / 4 * 3);
    }

    /// Keys of the last runs of level 0.
    pub(crate) fn run_keys(&self) -> u64 {
        lock(&self.built).run_keys
    }

    /// Bytes built per byte planned, of filters of keys.
    pub(crate) fn built_for_planned(&self) -> f64 {
        lock(&self.built).keys.value()
    }

    /// Bytes built per byte planned, of range filters.
    pub(crate) fn ranges_built_for_planned(&self) -> f64 {
        lock(&self.built).ranges.value()
    }
}
