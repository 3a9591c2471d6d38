//! The statistics of an open store.

use std::time::Instant;

use crate::background_trace::{BackgroundTraceSlot, Detail};
use crate::budget_history::BudgetHistory;
use crate::counters::Counters;
use crate::env;
use crate::job_counters::JobCounters;
use crate::latencies::{Latencies, TimedOperation};
use crate::trace::TraceSlot;

/// The counters and records of an open store.
#[derive(Debug)]
pub(crate) struct Statistics {
    /// Counters of reads and writes.
    pub(crate) counters: Counters,
    /// Counters of flushes, compactions and stalls.
    pub(crate) jobs: JobCounters,
    /// The times of operations, if they are measured.
    pub(crate) latencies: Latencies,
    /// The trace of lookups, while one is recorded.
    pub(crate) trace: TraceSlot,
    /// The trace of background work, while one is recorded.
    pub(crate) background_trace: BackgroundTraceSlot,
    /// Recent solutions of the filter budget.
    pub(crate) budget_history: BudgetHistory,
    /// What was published through the crate `metrics`.
    #[cfg(feature = "metrics")]
    pub(crate) publisher: crate::facade::Publisher,
}

impl Statistics {
    /// All counters at zero.
    pub(crate) fn new() -> Self {
        Self {
            counters: Counters::new(),
            jobs: JobCounters::default(),
            latencies: Latencies::default(),
            trace: TraceSlot::new(),
            background_trace: BackgroundTraceSlot::new(),
            budget_history: BudgetHistory::default(),
            #[cfg(feature = "metrics")]
            publisher: crate::facade::Publisher::default(),
        }
    }

    /// When work begins that is recorded at its end: now, if anything records it.
    #[inline]
    pub(crate) fn begin_work(&self) -> Option<Instant> {
        (self.latencies.is_on() || self.background_trace.is_on()).then(env::now)
    }

    /// Records the end of work of the calling thread that began at `start`, where that is wanted.
    pub(crate) fn end_work(
        &self,
        operation: TimedOperation,
        start: Option<Instant>,
        details: &[(&str, Detail<'_>)],
    ) {
        let Some(start) = start else { return };
        self.latencies.record(operation, env::now() - start);
        self.background_trace.add(operation.name(), start, details);
    }
}
