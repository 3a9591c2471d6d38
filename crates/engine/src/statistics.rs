//! The statistics of an open store.

use crate::budget_history::BudgetHistory;
use crate::counters::Counters;
use crate::job_counters::JobCounters;
use crate::trace::TraceSlot;

/// The counters and records of an open store.
#[derive(Debug)]
pub(crate) struct Statistics {
    /// Counters of reads and writes.
    pub(crate) counters: Counters,
    /// Counters of flushes, compactions and stalls.
    pub(crate) jobs: JobCounters,
    /// The trace of lookups, while one is recorded.
    pub(crate) trace: TraceSlot,
    /// Recent solutions of the filter budget.
    pub(crate) budget_history: BudgetHistory,
}

impl Statistics {
    /// All counters at zero.
    pub(crate) fn new() -> Self {
        Self {
            counters: Counters::new(),
            jobs: JobCounters::default(),
            trace: TraceSlot::new(),
            budget_history: BudgetHistory::default(),
        }
    }
}
