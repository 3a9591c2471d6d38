//! What a budget of filters remembers between jobs: how much was built of what was planned, and how
//! many sidecars were lost.
//!
//! The engine holds it. Jobs that write tables add to it, and [`budget`](crate::budget) plans by
//! it.

use trommel_filter::FilterSpec;
use trommel_tuning::bytes;

use crate::sync::quiet::AtomicU64;
use crate::sync::{Mutex, lock};

/// Bytes of filters after which older ones count half in what is built beyond the plan.
const MEMORY_OF_BUILT: f64 = (64 << 20) as f64;

/// What the budget remembers between jobs.
#[derive(Debug, Default)]
pub(crate) struct BudgetHistory {
    /// How many sidecars had been lost when filters were settled.
    pub(crate) losses: AtomicU64,
    built: Mutex<Built>,
}

/// Bytes that filters were planned to take, and that they took, as those of prefixes and what
/// cutting costs come on top of the plan; and how large what is flushed was.
#[derive(Debug, Default)]
struct Built {
    planned: f64,
    built: f64,
    /// Keys of the last runs of level 0.
    run_keys: u64,
}

impl BudgetHistory {
    /// Notes that a filter of `spec` for `keys` keys was planned, and that all filters of its table
    /// take `built` bytes.
    pub(crate) fn note_built(&self, spec: FilterSpec, keys: u64, built: u64) {
        let planned = bytes(spec, keys);
        if planned == 0 {
            return;
        }
        let mut sums = lock(&self.built);
        if sums.planned > MEMORY_OF_BUILT {
            sums.planned /= 2.0;
            sums.built /= 2.0;
        }
        sums.planned += planned as f64;
        sums.built += built as f64;
    }

    /// Notes that a run of so many keys is written to level 0. One that is much smaller than usual
    /// says little of the next.
    pub(crate) fn note_run(&self, keys: u64) {
        let mut known = lock(&self.built);
        known.run_keys = keys.max(known.run_keys / 4 * 3);
    }

    /// Keys of the last runs of level 0.
    pub(crate) fn run_keys(&self) -> u64 {
        lock(&self.built).run_keys
    }

    /// How many bytes are built for each that is planned.
    pub(crate) fn built_for_planned(&self) -> f64 {
        let sums = lock(&self.built);
        if sums.planned > 0.0 { (sums.built / sums.planned).clamp(0.1, 10.0) } else { 1.0 }
    }
}
