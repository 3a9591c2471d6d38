//! The probability that a lookup of a missing key reaches a table: the share of the store's keys
//! within the table's key range, if missing keys are distributed like existing ones.
//!
//! 1. All keys of a table within the range count.
//! 2. Of a table partly in the range, the share of its data blocks within the range counts.
//!
//! A run that covers all keys is reached by every lookup; a level that has just begun to fill
//! covers only a part, and many missing keys are outside it.
//!
//! Called by the filter report.

use std::sync::Arc;

use crate::engine::Engine;
use crate::error::Result;
use crate::levels::LEVELS;
use crate::version::{TableFile, Version};

impl Engine {
    /// The share, 0 to 1, of the keys in `version`'s tables that are in the key range of `file`.
    pub(crate) fn reach(&self, version: &Version, file: &TableFile) -> f64 {
        let (smallest, largest) = (&file.smallest, &file.largest);
        let all: u64 = version.tables().map(|(_, table)| table.keys).sum();
        let inside: f64 = (0..LEVELS)
            .flat_map(|level| version.overlapping(level, smallest, largest))
            // A table that cannot be read counts as inside.
            .map(|other| self.keys_within(&other, file).unwrap_or(other.keys as f64))
            .sum();
        if all == 0 { 0.0 } else { (inside / all as f64).min(1.0) }
    }

    /// Approximate number of keys of `file` in the key range of `other`, which it overlaps.
    fn keys_within(&self, file: &Arc<TableFile>, other: &TableFile) -> Result<f64> {
        let starts_inside = other.smallest <= file.smallest;
        let ends_inside = file.largest <= other.largest;
        if starts_inside && ends_inside {
            return Ok(file.keys as f64);
        }
        let table = self.files.tables.reader(file)?;
        let end = table.approximate_offset(&file.largest).max(1) as f64;
        let from = if starts_inside { 0 } else { table.approximate_offset(&other.smallest) };
        let to = if ends_inside { end } else { table.approximate_offset(&other.largest) as f64 };
        Ok(file.keys as f64 * ((to - from as f64) / end).clamp(0.0, 1.0))
    }
}
