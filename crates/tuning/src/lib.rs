//! The shape of a tree in, expected costs out. Pure arithmetic: no files, no clocks, no store.

#![forbid(unsafe_code)]

/// One table, as a lookup that finds nothing meets it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Table {
    /// How likely the lookup's key falls into the table's key range, 0 to 1.
    pub reach: f64,
    /// How likely the table's filter then lets it pass, 0 to 1; 1 without a filter.
    pub fpr: f64,
}

/// Reads that a lookup of a missing key is expected to waste, in all tables of a tree.
///
/// Where each run of the tree covers all keys, this is the sum of the runs' false-positive rates
/// (Dayan, Athanassoulis, Idreos: "Monkey", SIGMOD 2017, equation 3). A run that covers only a
/// part of them, as a level does that has just begun to fill, wastes as much less.
///
/// ```
/// use trommel_tuning::{Table, wasted_reads_per_miss};
/// let halves = [Table { reach: 0.5, fpr: 0.02 }, Table { reach: 0.5, fpr: 0.04 }];
/// let partial = Table { reach: 0.25, fpr: 0.04 };
/// let wasted = wasted_reads_per_miss(halves.into_iter().chain([partial]));
/// assert!((wasted - 0.04).abs() < 1e-12);
/// ```
pub fn wasted_reads_per_miss(tables: impl IntoIterator<Item = Table>) -> f64 {
    // Not `sum`, which makes -0 of no tables.
    tables.into_iter().fold(0.0, |wasted, table| wasted + table.reach * table.fpr)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unfiltered_tables_waste_every_read_that_reaches_them() {
        let whole = Table { reach: 1.0, fpr: 1.0 };
        assert_eq!(wasted_reads_per_miss([whole; 5]), 5.0);
        assert!(wasted_reads_per_miss([]).is_sign_positive(), "an empty tree prints as 0");
        assert_eq!(wasted_reads_per_miss([Table { reach: 0.0, fpr: 1.0 }]), 0.0);
    }
}
