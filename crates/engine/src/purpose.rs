//! What a job that writes tables knows of them before it has written the first.
//!
//! Filters are chosen by it: [`output`](crate::output) hands it to users' policies, and
//! [`budget`](crate::budget) plans by it.

use trommel_memtable::Memtable;

use crate::compaction::key_range::KeyRange;
use crate::user_filters::FilterReason;
use crate::version::TableFile;

/// What a job tells of the tables that it writes.
#[derive(Debug, Clone)]
pub(crate) struct Purpose {
    pub(crate) reason: FilterReason,
    /// Keys that all of them have, at most.
    pub(crate) keys: u64,
    /// Keys that each is expected to have.
    pub(crate) expected_keys: u64,
    /// The tables that they will replace, by number, sorted.
    pub(crate) inputs: Vec<u64>,
    /// Their smallest and largest key, if that is known.
    pub(crate) span: Option<KeyRange>,
}

impl Purpose {
    /// That of a table that is to hold `memtable`.
    pub(crate) fn of_memtable(reason: FilterReason, memtable: &Memtable) -> Self {
        let keys = memtable.len() as u64;
        Self { reason, keys, expected_keys: keys, inputs: Vec::new(), span: None }
    }

    /// How many tables to expect.
    pub(crate) fn tables(&self) -> u64 {
        self.keys.div_ceil(self.expected_keys.max(1)).max(1)
    }

    /// Whether they replace `table`.
    pub(crate) fn replaces(&self, table: &TableFile) -> bool {
        self.inputs.binary_search(&table.number).is_ok()
    }

    /// Keys of each, if they share them evenly.
    pub(crate) fn keys_each(&self) -> u64 {
        self.keys.div_ceil(self.tables())
    }
}
