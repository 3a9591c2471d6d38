//! One table of a version: what the manifest knows of it.

use std::ops::Deref;

/// What the manifest records of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TableMeta {
    /// Its file number: the file is `<number>.sst`.
    pub(crate) number: u64,
    /// The random id its blocks are bound to.
    pub(crate) table_id: u64,
    /// Exact length of the file.
    pub(crate) file_bytes: u64,
    /// Smallest user key.
    pub(crate) smallest: Box<[u8]>,
    /// Largest user key, itself in the table.
    pub(crate) largest: Box<[u8]>,
    /// Lowest sequence number.
    pub(crate) min_seqno: u64,
    /// Highest sequence number.
    pub(crate) max_seqno: u64,
    /// Entries, tombstones and older versions included.
    pub(crate) entries: u64,
    /// Tombstones among them.
    pub(crate) deletions: u64,
    /// Distinct user keys.
    pub(crate) keys: u64,
    /// Stored bytes of its filter.
    pub(crate) filter_bytes: u64,
    /// Level it was built for, which a trivial move does not change.
    pub(crate) built_for: u8,
    /// Number of the sidecar file whose filter replaces the table's own, if there is one.
    pub(crate) filter_sidecar: Option<u64>,
}

impl TableMeta {
    /// Whether some key between `smallest` and `largest`, both included, may be in the table.
    pub(crate) fn overlaps(&self, smallest: &[u8], largest: &[u8]) -> bool {
        *self.smallest <= *largest && *smallest <= *self.largest
    }
}

/// A table of the store, shared by all versions that hold it.
#[derive(Debug)]
pub(crate) struct TableFile {
    meta: TableMeta,
}

impl TableFile {
    /// A table that nothing has been read from yet.
    pub(crate) fn new(meta: TableMeta) -> Self {
        Self { meta }
    }

    /// What the manifest records of it.
    pub(crate) fn meta(&self) -> &TableMeta {
        &self.meta
    }
}

impl Deref for TableFile {
    type Target = TableMeta;

    fn deref(&self) -> &TableMeta {
        &self.meta
    }
}
