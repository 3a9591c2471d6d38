//! What a tree's filters are expected to cost and to save.

use trommel_filter::FilterSpec;

use crate::curve::{self, Lines};
use crate::error::TuningError;
use crate::tree::Tree;
use crate::workload::{Visits, Workload};

/// What filters are expected to do, of one lookup on average.
///
/// ```
/// use trommel_tuning::{Cost, Run, Tree, Workload};
/// let tree = Tree::new(vec![Run::whole(0, 100_000), Run::whole(1, 1_000_000)])?;
/// let filters = ["paired:10".parse()?, "none".parse()?];
/// let cost = Cost::of(&tree, &Workload::new(1.0)?, &filters)?;
/// // One read of the unfiltered run, and one in 110 of the other.
/// assert!((cost.wasted_reads - 1.009).abs() < 1e-3);
/// assert!((cost.filter_bytes as f64 / 125_000.0 - 1.0).abs() < 0.01);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[non_exhaustive]
pub struct Cost {
    /// Tables read that do not have the key.
    pub wasted_reads: f64,
    /// The same, each at what a wasted read of its level costs.
    pub wasted_cost: f64,
    /// Bytes of all filters.
    pub filter_bytes: u64,
    /// Filters asked.
    pub filters_asked: f64,
    /// Cache lines touched in them: [`Lines`].
    pub lines: f64,
}

impl Cost {
    /// The cost of `filters`, one for each table of `tree` in its order.
    ///
    /// # Errors
    /// There are not as many filters as tables.
    pub fn of(
        tree: &Tree,
        workload: &Workload,
        filters: &[FilterSpec],
    ) -> Result<Self, TuningError> {
        let visits = workload.visits(tree);
        if visits.len() != filters.len() {
            return Err(TuningError::Count { tables: visits.len(), given: filters.len() });
        }
        Ok(Self::sum(tree, &visits, filters))
    }

    /// The same, where there is one of each for every table.
    pub(crate) fn sum(tree: &Tree, visits: &[Visits], filters: &[FilterSpec]) -> Self {
        let mut cost = Self::default();
        for (((_, table), visits), &spec) in tree.tables().zip(visits).zip(filters) {
            let rate = if table.keys == 0 { 1.0 } else { curve::rate(spec, table.keys) };
            let bytes = curve::bytes(spec, table.keys).saturating_mul(table.alike);
            cost.wasted_reads += visits.in_vain * rate;
            cost.wasted_cost += visits.weight() * rate;
            cost.filter_bytes = cost.filter_bytes.saturating_add(bytes);
            if spec != FilterSpec::NONE {
                let passing = visits.hits + visits.in_vain * rate;
                let lines = Lines::of(spec);
                cost.filters_asked += visits.hits + visits.in_vain;
                cost.lines += passing * lines.present;
                cost.lines += visits.in_vain * (1.0 - rate) * lines.absent;
            }
        }
        cost
    }
}
