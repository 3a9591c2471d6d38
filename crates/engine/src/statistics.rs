//! What an open store counts and records of its own work.

use crate::budget_history::BudgetHistory;
use crate::counters::Counters;
use crate::job_counters::JobCounters;
use crate::trace::TraceSlot;

/// What an open store counts and records of its own work.
#[derive(Debug)]
pub(crate) struct Statistics {
    /// Of reads and writes.
    pub(crate) counters: Counters,
    /// Of flushes, compactions and stalls.
    pub(crate) jobs: JobCounters,
    /// The trace of lookups, while one is recorded.
    pub(crate) trace: TraceSlot,
    /// What the filter budget was solved to.
    pub(crate) budget_history: BudgetHistory,
}

impl Statistics {
    /// Nothing has happened yet.
    pub(crate) fn new() -> Self {
        Self {
            counters: Counters::new(),
            jobs: JobCounters::default(),
            trace: TraceSlot::new(),
            budget_history: BudgetHistory::default(),
        }
    }
}
