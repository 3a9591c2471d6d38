//! The shape of a tree: the tables that a lookup may have to search.
//!
//! A tree is a list of sorted *runs*, newest first. A lookup searches them in this order, in each
//! only the table whose range contains its key, and stops at the first that has the key. Level 0 of
//! a store is several runs of one table each; a deeper level is one run of many tables.

use crate::error::{TuningError, within};

/// Approximate bytes that an entry takes in a memtable in addition to key and value: its node,
/// links and number.
pub const MEMTABLE_OVERHEAD: u64 = 56;
/// How many times the base level's bytes a level other than the deepest may have to hold before one
/// is opened above it.
pub const BASE_LEVEL_GROWTH: u64 = 2;

/// A table, or several equal ones in one run that get the same filter.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Table {
    /// Distinct keys of one such table.
    pub keys: u64,
    /// Bytes of its data.
    pub bytes: u64,
    /// The probability that a lookup's key falls into its key range, 0 to 1.
    pub reach: f64,
    /// The number of such tables.
    pub alike: u64,
}

/// Tables with disjoint key ranges.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    /// 0, or 1 for the first level below that holds data, and so on.
    pub level: usize,
    /// Its tables, in any order.
    pub tables: Vec<Table>,
}

impl Run {
    /// A run of one table, which covers all keys.
    #[must_use]
    pub fn whole(level: usize, keys: u64) -> Self {
        Self { level, tables: vec![Table { keys, bytes: 0, reach: 1.0, alike: 1 }] }
    }

    /// Keys of all its tables.
    #[must_use]
    pub fn keys(&self) -> u64 {
        let keys = self.tables.iter().map(|table| table.keys.saturating_mul(table.alike));
        keys.fold(0, u64::saturating_add)
    }
}

/// Sorted runs, newest first.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Tree {
    runs: Vec<Run>,
}

impl Tree {
    /// A tree of these runs, newest first.
    ///
    /// # Errors
    /// The reach of a table is not from 0 to 1.
    pub fn new(runs: Vec<Run>) -> Result<Self, TuningError> {
        for table in runs.iter().flat_map(|run| &run.tables) {
            within("the reach of a table", table.reach, (0.0, 1.0), "0 to 1")?;
        }
        Ok(Self { runs })
    }

    /// The runs, newest first.
    #[must_use]
    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// All tables with their levels, run after run: the order of every list of filters in this
    /// crate.
    pub fn tables(&self) -> impl Iterator<Item = (usize, &Table)> {
        self.runs.iter().flat_map(|run| run.tables.iter().map(|table| (run.level, table)))
    }

    /// Keys of all tables. A key in two tables counts twice, since two filters hold it.
    #[must_use]
    pub fn keys(&self) -> u64 {
        self.runs.iter().map(Run::keys).fold(0, u64::saturating_add)
    }

    /// Bytes of data of all tables.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let bytes = self.tables().map(|(_, table)| table.bytes.saturating_mul(table.alike));
        bytes.fold(0, u64::saturating_add)
    }
}
