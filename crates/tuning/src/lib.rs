//! The shape of a tree in, expected costs out. Pure arithmetic: no files, no clocks, no store.
//!
//! A *run* is a sorted sequence of tables that do not overlap: each table of level 0 on its own,
//! each deeper level as a whole. A lookup that finds nothing asks every run, and in a run the one
//! table whose key range holds the key.

#![forbid(unsafe_code)]

/// One table of a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Table {
    /// Its distinct keys.
    pub keys: u64,
    /// Its filter's false-positive rate, 0 to 1; 1 without a filter.
    pub fpr: f64,
}

/// Tables of which a lookup asks at most one.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Run {
    /// Its tables, in any order.
    pub tables: Vec<Table>,
}

impl Run {
    /// The rate at which the run lets a missing key pass, keys being missed where keys are: each
    /// table counts by its share of the run's keys. 0 for a run without keys.
    pub fn fpr(&self) -> f64 {
        let keys: u64 = self.tables.iter().map(|table| table.keys).sum();
        if keys == 0 {
            return 0.0;
        }
        let passed: f64 = self.tables.iter().map(|table| table.keys as f64 * table.fpr).sum();
        passed / keys as f64
    }
}

/// Reads that a lookup of a missing key is expected to waste: the sum of the runs' rates
/// (Dayan, Athanassoulis, Idreos: "Monkey", SIGMOD 2017, equation 3).
///
/// ```
/// use trommel_tuning::{Run, Table, wasted_reads_per_miss};
/// let run = |fpr| Run { tables: vec![Table { keys: 1000, fpr }] };
/// assert_eq!(wasted_reads_per_miss(&[run(0.01), run(0.02)]), 0.03);
/// ```
pub fn wasted_reads_per_miss(runs: &[Run]) -> f64 {
    runs.iter().map(Run::fpr).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_count_by_their_keys() {
        let run =
            Run { tables: vec![Table { keys: 300, fpr: 0.01 }, Table { keys: 100, fpr: 0.05 }] };
        assert!((run.fpr() - 0.02).abs() < 1e-12);
        assert_eq!(Run::default().fpr(), 0.0);
        assert_eq!(Run { tables: vec![Table { keys: 0, fpr: 1.0 }] }.fpr(), 0.0);
    }
}
