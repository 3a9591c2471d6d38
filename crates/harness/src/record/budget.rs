//! The state of a filter budget after a workload.

use serde::{Deserialize, Serialize};
use trommel::{BudgetReport, DriftReason};

/// The state of a filter budget. All byte counts cover filters of whole keys and of prefixes.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct BudgetRecord {
    /// The budget, as in the filter policy.
    pub spec: String,
    /// Bytes of memory that filters may use.
    pub budget_bytes: u64,
    /// Bytes of the filters of all tables, as stored.
    pub built_bytes: u64,
    /// Bytes of filters in memory.
    pub resident_bytes: u64,
    /// Tables whose filters are neither in memory nor queried, because others are worth more.
    pub dropped_tables: u64,
    /// Tables whose filters differ from those that they would get now.
    pub drifted_tables: u64,
    /// Expected unnecessary reads per lookup.
    pub expected_wasted_reads: f64,
    /// The same, if every table had the filter that it would get now.
    pub planned_wasted_reads: f64,
}

impl BudgetRecord {
    pub(super) fn of(budget: &BudgetReport) -> Self {
        let drifted = budget.tables.iter().filter(|table| table.reason != DriftReason::AsPlanned);
        Self {
            spec: budget.spec.clone(),
            budget_bytes: budget.space.budget_bytes,
            built_bytes: budget.space.built_bytes,
            resident_bytes: budget.space.resident_bytes,
            dropped_tables: budget.space.dropped_tables,
            drifted_tables: drifted.count() as u64,
            expected_wasted_reads: budget.value.expected_wasted_reads,
            planned_wasted_reads: budget.value.planned_wasted_reads,
        }
    }
}
