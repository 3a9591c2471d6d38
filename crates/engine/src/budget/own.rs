//! Filters that keyspaces set for themselves: no budget chooses them, but they count towards it.

use std::collections::HashSet;
use std::sync::Arc;

use trommel_base::{Cursor as _, EntryKind, MAX_SEQNO};
use trommel_memtable::Memtable;
use trommel_sstable::FILTER_OVERHEAD_BYTES;

use super::shape::held_bytes;
use crate::engine::Engine;
use crate::error::Result;
use crate::purpose::Purpose;
use crate::space::{MARKER, id_of, is_marked};
use crate::version::{TableFile, Version, logical_level};

/// The tables with such filters.
#[derive(Debug, Default)]
pub(super) struct OwnFilters {
    /// Their file numbers.
    tables: HashSet<u64>,
    /// Their keys, and those about to be written to such tables, except for tombstones.
    pub(super) keys: u64,
    /// The memory that their filters take, if all are held.
    pub(super) bytes: u64,
}

impl OwnFilters {
    pub(super) fn has(&self, table: &TableFile) -> bool {
        self.tables.contains(&table.number)
    }
}

impl Engine {
    /// Whether `table` is of keyspaces that set their filters themselves.
    pub(crate) fn has_own_filters(&self, table: &TableFile) -> bool {
        is_marked(&table.smallest)
            && self.options.for_key(&table.smallest).filters.budget().is_none()
    }

    /// All such tables of `version`.
    pub(super) fn own_filters(&self, version: &Version) -> OwnFilters {
        let mut own = OwnFilters::default();
        let filters_last = self.options.load().filtering.filters_on_last_level;
        for (level, table) in version.tables().filter(|(_, table)| self.has_own_filters(table)) {
            own.tables.insert(table.number);
            own.keys += table.valued_keys();
            if filters_last || !logical_level(version, level).1 {
                own.bytes += held_bytes(table);
            }
        }
        own
    }

    /// Divides the purpose of a flush of `memtable` into the keys whose filters a budget chooses,
    /// and those of keyspaces that set their filters themselves.
    pub(crate) fn divided(
        &self,
        mut purpose: Purpose,
        memtable: &Arc<Memtable>,
    ) -> Result<Purpose> {
        let has_budget = self.options.load().filters.budget().is_some();
        if !has_budget || !self.options.keyspaces.has_tables_of_own() {
            return Ok(purpose);
        }
        let mut cursor = memtable.cursor();
        cursor.seek(&MARKER, MAX_SEQNO)?;
        // The last keyspace, and the bits that each of its keys takes, if it sets its filters
        // itself.
        let (mut id, mut own_bits, mut bits) = (None, None, 0.0);
        while let Some(entry) = cursor.entry() {
            if id != id_of(entry.key) {
                id = id_of(entry.key);
                let filters = &self.options.for_key(entry.key).filters;
                let is_own = filters.budget().is_none();
                let of_ranges = filters.ranges_for_level(0, false).bits_per_key();
                let all_bits = filters.for_level(0, false).bits_per_key() + of_ranges;
                own_bits = is_own.then_some(all_bits);
            }
            if let Some(own_bits) = own_bits {
                let is_valued = entry.kind != EntryKind::Delete;
                purpose.keys = purpose.keys.saturating_sub(1);
                purpose.deletions = purpose.deletions.saturating_sub(u64::from(!is_valued));
                purpose.own.keys += u64::from(is_valued);
                bits += own_bits;
            }
            cursor.next()?;
        }
        if bits > 0.0 {
            purpose.own.bytes = (bits / 8.0) as u64 + FILTER_OVERHEAD_BYTES;
        }
        Ok(purpose)
    }
}
