//! Evaluates other filters: replays a trace of lookups against filters built from a store's keys.
//!
//! 1. The trace is read once to check that it is complete, and to measure it. If it exceeds its
//!    memory limit, it is replayed in parts: each part has all lookups of its keys, and keys are
//!    assigned to parts by hash.
//! 2. A part's lookups are sorted by key, and those of one key merged (`load`).
//! 3. The tables are read one after another, in the order in which a lookup queries them. A lookup
//!    reaches a table if its key is in the table's range and no newer table had it; iterating over
//!    the table's keys shows which are present. From the keys' hashes each spec's filter is built,
//!    as a flush or a compaction would, and queried for the lookups that reach it (`query`).
//! 4. If a filter has a false positive for a key, all lookups of that key waste a read. The wasted
//!    reads are added up by spec and level, with their error (`sums`).
//!
//! So nothing is estimated: if the trace has all lookups, the counts are those of a store that has
//! the same tables with such filters. They are for whole filters of whole keys.
//!
//! The error is that of the mean over lookups, if they were drawn anew from the same workload: from
//! the variance between keys, since the lookups of one key are either all false positives or none.
//! It is never less than theory predicts for the filters, so that a count of zero does not imply
//! certainty.
//!
//! Memory: the part of the trace, the hashes of one table's keys, and one filter. Called by
//! `trommel tune replay`.

mod candidate;
mod load;
mod query;
mod sums;
#[cfg(test)]
mod tests;

use std::path::Path;

use trommel::inspect::{ListedTable, Manifest};
use trommel::trace::TraceInfo;
use trommel::{Db, FilterSpec};
use trommel_harness::{Control, Error, Unit};

pub use self::candidate::Candidate;
use self::load::{Survey, TracePart};
use self::query::Replayer;
use super::build::store_error;
use super::record::Estimate;

/// The result of a replay.
#[derive(Debug, Clone, PartialEq)]
pub struct Replay {
    /// The trace.
    pub trace: TraceRead,
    /// The results of the specs, in the given order.
    pub specs: Vec<Replayed>,
}

/// A trace that was read. All counts are of recorded lookups, not scaled.
#[derive(Debug, Clone, PartialEq)]
pub struct TraceRead {
    /// The trace's header.
    pub info: TraceInfo,
    /// Number of lookups.
    pub lookups: u64,
    /// Number of distinct keys.
    pub keys: u64,
    /// Number of lookups that found a value.
    pub found: u64,
    /// Number of lookups that memory answered, without reaching a table.
    pub in_memory: u64,
    /// Whether the trace is truncated, because its recording was not finished.
    pub is_cut_off: bool,
    /// Lower bound of the lookups that now end on another level than when they were recorded. If
    /// not 0, the store has changed since.
    pub elsewhere: u64,
}

/// The results of one spec.
#[derive(Debug, Clone, PartialEq)]
pub struct Replayed {
    /// The filters, as requested.
    pub filters: String,
    /// All levels together.
    pub all: ReplayedLevel,
    /// Each level that holds data, from the top.
    pub levels: Vec<ReplayedLevel>,
}

/// The results of a spec on a level. Counts are scaled to all lookups if the trace is a sample.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ReplayedLevel {
    /// 0, or 1 for the first level below level 0 that holds data, and so on; none for all together.
    pub level: Option<usize>,
    /// Number of tables.
    pub tables: u64,
    /// Number of keys, counted per table.
    pub keys: u64,
    /// Bytes of the filters in memory.
    pub filter_bytes: u64,
    /// Lookups that reached such a table.
    pub probes: u64,
    /// Probes for a key that is in the table.
    pub true_positives: u64,
    /// False positives: each wastes a read.
    pub false_positives: u64,
    /// Wasted reads per lookup.
    pub wasted_reads: Estimate,
    /// The same by theory, for exactly the probes that were made.
    pub expected: f64,
}

impl ReplayedLevel {
    /// Bits of filters per key.
    pub fn bits_per_key(&self) -> f64 {
        if self.keys > 0 { self.filter_bytes as f64 * 8.0 / self.keys as f64 } else { 0.0 }
    }
}

/// Builds the filters that `candidates` give the tables of `db`, and queries them with the lookups
/// of the trace in the file `trace`. Nobody may write to `db` meanwhile. `memory` bounds the bytes
/// of the trace held in memory.
///
/// # Errors
/// Any error of the store or the trace; [`Error::Usage`] for a candidate that has no filters for
/// the tree, or if `memory` is so small that the store would be read more than a thousand times;
/// [`Error::Interrupted`] if stopped.
pub fn replay(
    db: &Db,
    trace: &Path,
    candidates: &[Candidate],
    memory: u64,
    control: Control<'_>,
) -> Result<Replay, Error> {
    let survey = Survey::of(&**db.vfs(), trace)?;
    let tables = tables(db)?;
    let parts = survey.parts(memory, candidates.len())?;
    let load = |nth: u64| TracePart::load(&**db.vfs(), trace, nth, parts, control);
    let first = load(0)?;
    let filters = candidates.iter().map(|one| one.filters(&tables, &survey, &first));
    let filters: Vec<Vec<FilterSpec>> = filters.collect::<Result<_, _>>()?;
    let entries = tables.iter().fold(0_u64, |sum, table| sum.saturating_add(table.meta.entries));
    control.progress.begin("replaying", entries.saturating_mul(parts), Unit::Entries);
    let mut replayer = Replayer::new(db, &tables, &filters, control);
    let result = replayer
        .replay(first, true)
        .and_then(|()| (1..parts).try_for_each(|nth| replayer.replay(load(nth)?, false)));
    control.progress.end();
    result?;
    Ok(replayer.report(&survey, candidates))
}

/// The tables in the order in which a lookup queries them.
fn tables(db: &Db) -> Result<Vec<ListedTable>, Error> {
    let manifest = Manifest::in_force(&**db.vfs(), db.dir()).and_then(|manifest| manifest.info());
    Ok(manifest.map_err(store_error)?.contents.tables)
}
