//! What other filters would have done: a trace of lookups, asked of filters built of a store's
//! keys.
//!
//! 1. The trace is read once to see that it is whole, and how much there is of it. If that does not
//!    fit the memory that it may take, it is replayed in parts: each has all lookups of its keys,
//!    which are told apart by their hashes.
//! 2. A part's lookups are sorted by key, those of one key together (`load`).
//! 3. The tables are read one after the other, in the order in which a lookup asks them. A lookup
//!    comes to a table if its key lies in the table's range and no newer table had it; the walk
//!    over the table's keys tells which are there. Of the keys' hashes the filter of each spec is
//!    built, as a flush or a merge would, and asked for those that come (`ask`).
//! 4. Where a filter lets a key pass that is not there, the lookups of that key would have read in
//!    vain. What that comes to is added up by spec and level, with its error (`sums`).
//!
//! So nothing is estimated: with all lookups in the trace, the counts are those of a store that has
//! the same tables with such filters. They are of whole filters of whole keys.
//!
//! The error is that of the mean over lookups, were they drawn anew from the same workload: from
//! the variance between keys, since the lookups of one key all pass or none does. It is never less
//! than the theory of the filters makes it, so that no count of zero passes for certainty.
//!
//! Memory: the part of the trace, the hashes of one table's keys, and one filter.
//! Called by `trommel tune replay`.

mod ask;
mod candidate;
mod load;
mod sums;
#[cfg(test)]
mod tests;

use std::path::Path;

use trommel::inspect::{ListedTable, Manifest};
use trommel::trace::TraceInfo;
use trommel::{Db, FilterSpec};

use self::ask::Replayer;
pub use self::candidate::Candidate;
use self::load::{Part, Survey};
use super::build::store_error;
use super::record::Estimate;
use crate::control::{Control, Unit};
use crate::error::Error;

/// What came of a replay.
#[derive(Debug, Clone, PartialEq)]
pub struct Replay {
    /// The trace.
    pub trace: TraceRead,
    /// What each spec comes to, in the order in which they were given.
    pub specs: Vec<Replayed>,
}

/// A trace that was read. All counts are of what was recorded, not scaled.
#[derive(Debug, Clone, PartialEq)]
pub struct TraceRead {
    /// What it says of itself.
    pub info: TraceInfo,
    /// Lookups in it.
    pub lookups: u64,
    /// Distinct keys of these.
    pub keys: u64,
    /// Lookups that found a value.
    pub found: u64,
    /// Lookups that were answered in memory, and asked no table.
    pub in_memory: u64,
    /// Whether it has no end, as its recording was not finished.
    pub is_cut_off: bool,
    /// Lookups that end on another level than they did when they were recorded, at least: where not
    /// none, the store has changed since.
    pub elsewhere: u64,
}

/// One spec's filters.
#[derive(Debug, Clone, PartialEq)]
pub struct Replayed {
    /// The filters, as they were asked for.
    pub filters: String,
    /// All levels together.
    pub all: ReplayedLevel,
    /// Each level that holds data, from the top.
    pub levels: Vec<ReplayedLevel>,
}

/// What a spec's filters of a level come to. Counts are scaled to all lookups, where the trace is a
/// sample.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ReplayedLevel {
    /// 0, or 1 for the first level below that holds data, and so on; none for all together.
    pub level: Option<usize>,
    /// Its tables.
    pub tables: u64,
    /// Their keys, each table's counted on its own.
    pub keys: u64,
    /// Bytes of the filters in memory.
    pub filter_bytes: u64,
    /// Lookups that came to such a table.
    pub probes: u64,
    /// Probes for a key that is in the table.
    pub true_positives: u64,
    /// Probes for a key that is not there, which the filter let pass: each a read wasted.
    pub false_positives: u64,
    /// Reads that a lookup wasted.
    pub wasted_reads: Estimate,
    /// The same by theory, for just the probes that were made.
    pub expected: f64,
}

impl ReplayedLevel {
    /// Bits of filter for a key.
    pub fn bits_per_key(&self) -> f64 {
        if self.keys > 0 { self.filter_bytes as f64 * 8.0 / self.keys as f64 } else { 0.0 }
    }
}

/// Asks the filters that `candidates` would give the tables of `db`, a store that nobody writes
/// meanwhile, for the lookups of the trace in the file `trace`. `memory` bounds what is held of the
/// trace, in bytes.
///
/// # Errors
/// What the store or the trace reports; [`Error::Usage`] for a candidate that has no filters for a
/// tree as it is, and for so little memory that the store would be read more than a thousand times;
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
    let load = |nth: u64| Part::load(&**db.vfs(), trace, nth, parts, control);
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

/// The tables in the order in which a lookup asks them.
fn tables(db: &Db) -> Result<Vec<ListedTable>, Error> {
    let manifest = Manifest::in_force(&**db.vfs(), db.dir()).and_then(|manifest| manifest.info());
    Ok(manifest.map_err(store_error)?.tables)
}
