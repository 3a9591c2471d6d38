//! A closed range of user keys, as tables and compactions span them.

use std::sync::Arc;

use crate::version::TableFile;

/// All keys from `smallest` to `largest`, both included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeyBounds {
    pub(crate) smallest: Box<[u8]>,
    pub(crate) largest: Box<[u8]>,
}

impl KeyBounds {
    /// The smallest range that holds all `tables`; `None` if there are none.
    pub(crate) fn hull<'a>(tables: impl IntoIterator<Item = &'a Arc<TableFile>>) -> Option<Self> {
        let mut tables = tables.into_iter();
        let first = tables.next()?;
        let (mut smallest, mut largest) = (&first.smallest, &first.largest);
        for table in tables {
            smallest = smallest.min(&table.smallest);
            largest = largest.max(&table.largest);
        }
        Some(Self { smallest: smallest.clone(), largest: largest.clone() })
    }
}

/// Bytes of `tables`.
pub(crate) fn total_bytes<'a>(tables: impl IntoIterator<Item = &'a Arc<TableFile>>) -> u64 {
    tables.into_iter().fold(0, |sum: u64, table| sum.saturating_add(table.file_bytes))
}
