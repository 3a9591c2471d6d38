//! Loads of entries that are sorted already, past the log and the memtable.

use std::path::Path;

use trommel_harness::{KeySpace, StoreError, Values};

/// Entries in ascending order of their keys.
#[derive(Clone, Copy)]
pub(crate) struct SortedEntries<'a> {
    pub(crate) keys: &'a KeySpace,
    pub(crate) values: &'a Values,
}

impl SortedEntries<'_> {
    /// Calls `add` with each entry.
    pub(super) fn each<E>(
        self,
        mut add: impl FnMut(&[u8], &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let (mut maker, mut position) = (self.keys.maker(), 0);
        (0..self.keys.len()).try_for_each(|n| add(maker.key(n), self.values.next(&mut position)))
    }
}

/// A store that takes sorted entries, and files of them.
pub(crate) trait Loads {
    /// Loads entries without a file; whether the store can.
    fn load(&self, entries: SortedEntries<'_>) -> Result<bool, StoreError>;

    /// Writes entries to a file outside of the store.
    fn write_file(&self, file: &Path, entries: SortedEntries<'_>) -> Result<(), StoreError>;

    /// Takes in such a file, durably. It may take the file itself.
    fn ingest(&self, file: &Path) -> Result<(), StoreError>;

    /// Number of entries found in the store.
    fn count(&self) -> Result<u64, StoreError>;
}
