//! The expected cost and savings of a tree's filters.

use std::collections::BTreeMap;

use trommel_filter::FilterSpec;
use trommel_filter::theory::TouchedLines;

use crate::curve;
use crate::error::TuningError;
use crate::tree::{Table, Tree};
use crate::workload::{Visits, Workload};

/// The expected effect of filters, per lookup on average.
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
    /// The same, weighted by the cost of a wasted read of their level.
    pub wasted_cost: f64,
    /// Bytes of all filters.
    pub filter_bytes: u64,
    /// Filters queried.
    pub filters_queried: f64,
    /// Cache lines touched in them: [`TouchedLines`].
    pub lines: f64,
}

impl Cost {
    /// The cost of `filters`, one for each table of `tree` in its order.
    ///
    /// # Errors
    /// The number of filters is not the number of tables.
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

    /// The cost of each level alone, from the top: together they are [`Cost::of`].
    ///
    /// # Errors
    /// The number of filters is not the number of tables.
    pub fn by_level(
        tree: &Tree,
        workload: &Workload,
        filters: &[FilterSpec],
    ) -> Result<BTreeMap<usize, Self>, TuningError> {
        let visits = workload.visits(tree);
        if visits.len() != filters.len() {
            return Err(TuningError::Count { tables: visits.len(), given: filters.len() });
        }
        let mut levels: BTreeMap<usize, Self> = BTreeMap::new();
        for (((level, table), visits), &spec) in tree.tables().zip(&visits).zip(filters) {
            levels.entry(level).or_default().join(&Self::table(table, visits, spec));
        }
        Ok(levels)
    }

    /// The total, for one filter per table.
    pub(crate) fn sum(tree: &Tree, visits: &[Visits], filters: &[FilterSpec]) -> Self {
        let mut cost = Self::default();
        for (((_, table), visits), &spec) in tree.tables().zip(visits).zip(filters) {
            cost.join(&Self::table(table, visits, spec));
        }
        cost
    }

    /// The cost of the filter of a table (or of a group of equal tables) with these visits.
    pub(crate) fn table(table: &Table, visits: &Visits, spec: FilterSpec) -> Self {
        let rate = if table.keys == 0 { 1.0 } else { curve::rate(spec, table.keys) };
        let filter_bytes = curve::bytes(spec, table.keys).saturating_mul(table.alike);
        Self::of_filter(spec, filter_bytes, rate, visits)
    }

    /// The cost of an existing filter of this size and rate, with these visits. The cost of
    /// querying it follows from `spec`.
    #[must_use]
    pub fn of_filter(spec: FilterSpec, filter_bytes: u64, rate: f64, visits: &Visits) -> Self {
        let mut cost = Self {
            wasted_reads: visits.in_vain * rate,
            wasted_cost: visits.weight() * rate,
            filter_bytes,
            ..Self::default()
        };
        if spec != FilterSpec::NONE {
            let passing = visits.hits + visits.in_vain * rate;
            let lines = TouchedLines::of(spec.kind(), spec.bits_per_key());
            cost.filters_queried = visits.hits + visits.in_vain;
            cost.lines = passing * lines.present + visits.in_vain * (1.0 - rate) * lines.absent;
        }
        cost
    }

    /// Adds the cost of other filters.
    pub fn join(&mut self, other: &Self) {
        self.wasted_reads += other.wasted_reads;
        self.wasted_cost += other.wasted_cost;
        self.filter_bytes = self.filter_bytes.saturating_add(other.filter_bytes);
        self.filters_queried += other.filters_queried;
        self.lines += other.lines;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Run;

    #[test]
    fn levels_add_up_to_the_whole() {
        let runs = vec![Run::whole(0, 1000), Run::whole(0, 900), Run::whole(1, 20_000)];
        let tree = Tree::new(runs).unwrap();
        let workload = Workload::new(0.3).unwrap();
        let filters = ["paired:20", "blocked:8", "none"].map(|spec| spec.parse().unwrap());
        let whole = Cost::of(&tree, &workload, &filters).unwrap();
        let levels = Cost::by_level(&tree, &workload, &filters).unwrap();
        assert_eq!(levels.keys().copied().collect::<Vec<_>>(), [0, 1]);
        assert!(levels[&0].wasted_reads < 0.1 && levels[&1].wasted_reads > 0.29, "{levels:?}");
        assert_eq!((levels[&1].filter_bytes, levels[&1].lines), (0, 0.0));
        assert_eq!(levels[&0].filter_bytes, whole.filter_bytes);
        for part in [
            |cost: &Cost| cost.wasted_reads,
            |cost: &Cost| cost.wasted_cost,
            |cost: &Cost| cost.filters_queried,
            |cost: &Cost| cost.lines,
        ] {
            let sum: f64 = levels.values().map(part).sum();
            assert!((sum - part(&whole)).abs() < 1e-12, "{levels:?} {whole:?}");
        }
        assert!(Cost::by_level(&tree, &workload, &filters[1..]).is_err());
    }
}
