//! The state that a sequence of edits adds up to, and the application of an edit.
//!
//! An edit is applied atomically, and only if the result keeps the invariants of a [`Version`]. An
//! edit from a manifest that breaks them is corruption; a new edit that does is a bug of the
//! engine, detected before a byte of it is on disk.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::edit::{OperatorsEdit, VersionEdit};
use crate::expiry::TimeMarks;
use crate::levels::LEVELS;
use crate::log::LogEnds;
use crate::names::Numbered;
use crate::ranges::RangeSet;
use crate::version::{TableFile, TableMeta, Version};

/// Why an edit does not fit the version it is applied to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct InvalidEdit(pub(crate) String);

/// The contents of a manifest.
#[derive(Debug, Clone, Default)]
pub(crate) struct ManifestState {
    /// The tables.
    pub(crate) version: Version,
    /// No file has this number or a higher one.
    pub(crate) next_file_number: u64,
    /// Highest sequence number in the tables.
    pub(crate) last_seqno: u64,
    /// The oldest log still needed, 0 for none.
    pub(crate) log_number: u64,
    /// Ends of needed logs without an end marker.
    pub(crate) log_ends: LogEnds,
}

impl ManifestState {
    /// Whether log `number` may hold writes that are in no table.
    pub(crate) fn needs_log(&self, number: u64) -> bool {
        self.log_number != 0 && number >= self.log_number && !self.log_ends.ignores(number)
    }

    /// Whether the store needs this file, if `manifest` is the number of its manifest.
    pub(crate) fn needs(&self, file: Numbered, manifest: Option<u64>) -> bool {
        match file {
            Numbered::Manifest(number) => Some(number) == manifest,
            Numbered::Log(number) => self.needs_log(number),
            Numbered::Table(number) => {
                self.version.tables().any(|(_, table)| table.number == number)
            }
            Numbered::FilterSidecar(number) => {
                self.version.tables().any(|(_, table)| table.filters.sidecar == Some(number))
            }
            Numbered::ArchivedLog(_) => true,
            Numbered::Spare(_) => false,
        }
    }

    /// The state after `edit`.
    pub(crate) fn apply(&self, edit: &VersionEdit) -> Result<Self, InvalidEdit> {
        let next_file_number = edit.next_file_number.unwrap_or(self.next_file_number);
        let last_seqno = edit.last_seqno.unwrap_or(self.last_seqno);
        let log_number = edit.log_number.unwrap_or(self.log_number);
        if next_file_number < self.next_file_number {
            return Err(invalid("the next file number goes down"));
        }
        if last_seqno < self.last_seqno {
            return Err(invalid("the last sequence number goes down"));
        }
        if log_number != 0 && log_number < self.log_number {
            return Err(invalid("the oldest needed log goes back"));
        }
        let numbers = edit
            .added
            .iter()
            .flat_map(|(_, table)| std::iter::once(table.number).chain(table.filters.sidecar));
        let logs = edit.log_ends.iter().map(|end| end.next).chain([log_number]);
        if let Some(number) = numbers.chain(logs).find(|n| *n >= next_file_number.max(1)) {
            return Err(invalid(&format!("file {number} is above the next file number")));
        }
        let version = self.version.apply(edit)?;
        let log_ends = self.log_ends_after(edit, log_number)?;
        Ok(Self { version, next_file_number, last_seqno, log_number, log_ends })
    }

    fn log_ends_after(&self, edit: &VersionEdit, oldest: u64) -> Result<LogEnds, InvalidEdit> {
        let mut log_ends = self.log_ends.clone();
        for end in &edit.log_ends {
            if !log_ends.add(*end) {
                return Err(invalid(&format!("the end of log {} is stated twice", end.number)));
            }
        }
        log_ends.forget_before(oldest);
        Ok(log_ends)
    }

    /// A single edit that creates this state.
    pub(crate) fn snapshot(&self) -> VersionEdit {
        let tables = self.version.tables();
        VersionEdit {
            added: tables.map(|(level, table)| (level as u8, table.meta().clone())).collect(),
            removed: Vec::new(),
            next_file_number: Some(self.next_file_number),
            last_seqno: Some(self.last_seqno),
            log_number: Some(self.log_number),
            log_ends: self.log_ends.iter().collect(),
            ranges: self.version.ranges.tombstones().collect(),
            replaces_ranges: false,
            time_marks: (*self.version.time_marks != TimeMarks::default())
                .then(|| Arc::clone(&self.version.time_marks)),
            catalog_salt: self.version.catalog_salt,
            operators: OperatorsEdit {
                of_store: self.version.merge_operator.clone(),
                of_keyspaces: self.version.has_keyspace_operators,
            },
            hash_seed: self.version.hash_seed,
        }
    }
}

impl Version {
    /// The tables after `edit`. A table that is removed and added again (moved to another level)
    /// stays the same [`TableFile`], with its open reader. If its metadata changes too (another
    /// sidecar), it gets a successor.
    pub(crate) fn apply(&self, edit: &VersionEdit) -> Result<Self, InvalidEdit> {
        let mut next = self.clone();
        let mut removed = HashMap::new();
        let mut touched = [false; LEVELS];
        for (level, number) in &edit.removed {
            let run = next.run(*level)?;
            let found = run.iter().position(|table| table.number == *number);
            let Some(at) = found else {
                return Err(invalid(&format!("level {level} has no table {number} to remove")));
            };
            removed.insert(*number, run.remove(at));
        }
        next.check_new_numbers(edit)?;
        for (level, meta) in &edit.added {
            let table = match removed.get(&meta.number) {
                Some(table) if *table.meta() == *meta => Arc::clone(table),
                Some(table) => Arc::new(table.successor(meta.clone())),
                None => Arc::new(TableFile::new(meta.clone())),
            };
            next.run(*level)?.push(table);
            touched[usize::from(*level)] = true;
        }
        if edit.replaces_ranges {
            next.ranges = RangeSet::default();
            next.ranges.set_horizons(self.ranges.horizons());
        }
        if !edit.ranges.is_empty() {
            // What no reader needs is left out before an edit is written.
            next.ranges = next.ranges.with_all(edit.ranges.clone());
            if next.ranges.is_full() {
                return Err(invalid("too many range tombstones overlap"));
            }
        }
        if let Some(marks) = &edit.time_marks {
            if !marks.follow(&next.time_marks) {
                return Err(invalid("an expiry horizon goes down"));
            }
            next.time_marks = Arc::clone(marks);
            next.ranges.set_horizons(&marks.horizons());
        }
        next.catalog_salt = edit.catalog_salt.or(next.catalog_salt);
        next.has_keyspace_operators |= edit.operators.of_keyspaces;
        next.hash_seed = match (next.hash_seed, edit.hash_seed) {
            (Some(recorded), Some(seed)) if recorded != seed => {
                return Err(invalid("the hash seed changes"));
            }
            (recorded, seed) => recorded.or(seed),
        };
        if let Some(name) = &edit.operators.of_store {
            if next.merge_operator.as_ref().is_some_and(|recorded| recorded != name) {
                return Err(invalid("the merge operator changes"));
            }
            next.merge_operator = Some(Arc::clone(name));
        }
        for (level, run) in next.levels.iter_mut().enumerate().filter(|(level, _)| touched[*level])
        {
            match level {
                0 => order_level_zero(run)?,
                _ => order_sorted_level(level, run)?,
            }
        }
        Ok(next)
    }

    fn run(&mut self, level: u8) -> Result<&mut Vec<Arc<TableFile>>, InvalidEdit> {
        let run = self.levels.get_mut(usize::from(level));
        run.ok_or_else(|| invalid(&format!("there is no level {level}")))
    }

    fn check_new_numbers(&self, edit: &VersionEdit) -> Result<(), InvalidEdit> {
        let mut new = HashSet::new();
        if let Some((_, twice)) = edit.added.iter().find(|(_, table)| !new.insert(table.number)) {
            return Err(invalid(&format!("table {} is added twice", twice.number)));
        }
        match self.tables().find(|(_, table)| new.contains(&table.number)) {
            Some((_, table)) => Err(invalid(&format!("table {} is already there", table.number))),
            None => Ok(()),
        }
    }
}

fn invalid(what: &str) -> InvalidEdit {
    InvalidEdit(what.to_owned())
}

/// Newest first. Two tables with common keys must not interleave in time, as no order of them would
/// be right.
fn order_level_zero(run: &mut [Arc<TableFile>]) -> Result<(), InvalidEdit> {
    run.sort_by_key(|table| std::cmp::Reverse((table.max_seqno, table.number)));
    let mut lowest = u64::MAX;
    for (index, table) in run.iter().enumerate() {
        if table.max_seqno >= lowest {
            let interleaves = |newer: &&Arc<TableFile>| {
                newer.min_seqno <= table.max_seqno
                    && newer.overlaps(&table.smallest, &table.largest)
            };
            if let Some(newer) = run[..index].iter().find(interleaves) {
                let (a, b) = (newer.number, table.number);
                return Err(invalid(&format!("tables {a} and {b} of level 0 interleave in time")));
            }
        }
        lowest = lowest.min(table.min_seqno);
    }
    Ok(())
}

/// By key, and disjoint.
fn order_sorted_level(level: usize, run: &mut [Arc<TableFile>]) -> Result<(), InvalidEdit> {
    run.sort_by(|a, b| key_range(a).cmp(&key_range(b)));
    for pair in run.windows(2) {
        if let [a, b] = pair
            && a.largest >= b.smallest
        {
            let (a, b) = (a.number, b.number);
            return Err(invalid(&format!("tables {a} and {b} of level {level} overlap")));
        }
    }
    Ok(())
}

fn key_range(table: &TableMeta) -> (&[u8], &[u8]) {
    (&table.smallest, &table.largest)
}
