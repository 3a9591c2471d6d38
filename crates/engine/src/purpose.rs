//! The expected outputs of a job, as known before it writes the first table.
//!
//! Filters are chosen accordingly: [`output`](crate::output) passes the purpose to users' policies,
//! and [`budget`](crate::budget) plans with it.

use trommel_memtable::Memtable;

use crate::compaction::key_range::KeyBounds;
use crate::live_keys::KeyCount;
use crate::user_filters::FilterReason;
use crate::version::TableFile;

/// The part of a memtable for keyspaces that set their filters themselves.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct MemtableShare {
    /// Its keys, except for tombstones.
    pub(crate) keys: u64,
    /// The memory that its filters will take.
    pub(crate) bytes: u64,
}

/// The expected outputs of a job.
#[derive(Debug, Clone)]
pub(crate) struct Purpose {
    pub(crate) reason: FilterReason,
    /// Most keys of all of them together, except in keyspaces that set their filters themselves.
    pub(crate) keys: u64,
    /// Most tombstones among them.
    pub(crate) deletions: u64,
    /// The other keys of a memtable.
    pub(crate) own: MemtableShare,
    /// Expected keys of each.
    pub(crate) expected_keys: u64,
    /// The tables that they replace, by number, sorted.
    pub(crate) inputs: Vec<u64>,
    /// Their smallest and largest key, if known.
    pub(crate) span: Option<KeyBounds>,
}

impl Purpose {
    /// The purpose of a table for `memtable`.
    pub(crate) fn of_memtable(reason: FilterReason, memtable: &Memtable) -> Self {
        let keys = memtable.len() as u64;
        let deletions = memtable.deletions() as u64;
        // Other memtables count as runs over all keys.
        let is_mostly_deleted = KeyCount::new(keys, deletions).is_mostly_deleted();
        let ends = memtable.ends().filter(|_| is_mostly_deleted);
        let span = ends.map(|[smallest, largest]| KeyBounds { smallest, largest });
        let own = MemtableShare::default();
        Self { reason, keys, deletions, own, expected_keys: keys, inputs: Vec::new(), span }
    }

    /// Expected number of tables.
    pub(crate) fn tables(&self) -> u64 {
        self.keys.div_ceil(self.expected_keys.max(1)).max(1)
    }

    /// Whether they replace `table`.
    pub(crate) fn replaces(&self, table: &TableFile) -> bool {
        self.inputs.binary_search(&table.number).is_ok()
    }

    /// Its keys, except for tombstones.
    pub(crate) fn valued_keys(&self) -> u64 {
        self.keys.saturating_sub(self.deletions)
    }

    /// Keys of each, if divided evenly.
    pub(crate) fn keys_each(&self) -> u64 {
        self.keys.div_ceil(self.tables())
    }
}
