//! The probability that a lookup of a missing key reaches a table: the share of the store's live
//! keys within the table's key range, if missing keys are distributed like live ones.
//!
//! 1. All keys of a table within the range count, as far as they are alive ([`KeyCount`]).
//! 2. Of a table partly in the range, the share of its data blocks within the range counts; if the
//!    table is closed and must not be opened, or cannot be, the share is interpolated from its
//!    first and last key.
//!
//! A run that covers all keys is reached by every lookup; a level that has just begun to fill
//! covers only a part, and many missing keys are outside it.
//!
//! Called by the filter report, the advice and metrics.

use std::sync::Arc;

use crate::levels::LEVELS;
use crate::live_keys::{KeyCount, part_before};
use crate::version::{TableCache, TableFile, Version};

/// The reach of the tables of a version.
pub(crate) struct Reach<'a> {
    version: &'a Version,
    /// Opens closed tables, unless they are to stay closed.
    tables: Option<&'a TableCache>,
    /// The live keys of all tables.
    all: f64,
}

impl<'a> Reach<'a> {
    pub(crate) fn of(version: &'a Version, tables: Option<&'a TableCache>) -> Self {
        let all = version.tables().map(|(_, table)| KeyCount::of(table));
        let all = all.fold(KeyCount::default(), KeyCount::plus).live();
        Self { version, tables, all }
    }

    /// The share, 0 to 1, of the live keys that are in the key range of `file`.
    pub(crate) fn share(&self, file: &TableFile) -> f64 {
        let (smallest, largest) = (&file.smallest, &file.largest);
        let inside = (0..LEVELS)
            .flat_map(|level| self.version.overlapping(level, smallest, largest))
            .map(|other| KeyCount::of(&other).times(self.part_within(&other, file)))
            .fold(KeyCount::default(), KeyCount::plus)
            .live();
        if self.all == 0.0 { 0.0 } else { (inside / self.all).min(1.0) }
    }

    /// Approximate fraction of the keys of `file` in the key range of `other`, which it overlaps.
    fn part_within(&self, file: &Arc<TableFile>, other: &TableFile) -> f64 {
        let starts_inside = other.smallest <= file.smallest;
        let ends_inside = file.largest <= other.largest;
        if starts_inside && ends_inside {
            return 1.0;
        }
        let table = match self.tables {
            Some(tables) => tables.reader(file).ok().map(|reader| Arc::clone(&reader)),
            None => file.open_reader().map(|reader| Arc::clone(reader.table())),
        };
        let Some(table) = table else {
            let before = |key: &[u8]| part_before(&file.smallest, &file.largest, key);
            return before(&other.largest) - before(&other.smallest);
        };
        let end = table.approximate_offset(&file.largest).max(1) as f64;
        let from = if starts_inside { 0 } else { table.approximate_offset(&other.smallest) };
        let to = if ends_inside { end } else { table.approximate_offset(&other.largest) as f64 };
        ((to - from as f64) / end).clamp(0.0, 1.0)
    }
}
