//! Finds a key in the files of a store, with the verdict of each filter on the way.
//!
//! 1. Read the current manifest.
//! 2. Search the logs that it needs, newest first: the contents of the memtables, now or after an
//!    open.
//! 3. Search the tables whose key range contains the key, in the order of a lookup: level 0 newest
//!    first, then one table of each deeper level. Each is searched for all versions, whatever the
//!    verdict of its filter, which is reported together with the truth.
//!
//! A store that is being written may move a key between files during the search, so everything is
//! read again if the manifest has changed at the end.

use std::ops::Bound;
use std::path::{Path, PathBuf};

use trommel_base::{EntryKind, MAX_SEQNO, SeqNo};
use trommel_filter::FilterKind;
use trommel_sstable::{FilterLabel, Filters, Verdict};
use trommel_vfs::Vfs;

use super::files::list;
use super::log::Log;
use super::manifest::Manifest;
use super::table::Table;
use super::{as_damage, read_consistently};
use crate::batch::BatchOp;
use crate::error::{Error, Result};
use crate::files::{log_path, table_path};
use crate::manifest::state::ManifestState;
use crate::names::Numbered;
use crate::prefix::Prefix;
use crate::version::TableFile;
use crate::version::logical_level;

/// The search for a key.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Trace {
    /// The logs that hold the key, and the tables whose key range contains it, in the order of a
    /// lookup: newest first.
    pub sightings: Vec<Sighting>,
    /// Files that could not be searched, or not in full.
    pub problems: Vec<Error>,
    /// Sequence number of the newest deletion of a range that holds the key, or the expiry horizon:
    /// versions with a lower one are gone.
    pub range_deleted: Option<SeqNo>,
}

/// A file that holds the key, or may hold it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Sighting {
    /// The file.
    pub path: PathBuf,
    /// The level of a table, as numbered in reports; `None` for a log.
    pub level: Option<usize>,
    /// The verdict of the table's filter on the key.
    pub filter: Answer,
    /// Whether it is from the prefix filter, which lookups query if there is no other.
    pub by_prefix: bool,
    /// Whether a lookup of the newest version reaches this file: no file before it holds the key.
    pub reached: bool,
    /// The versions it holds, newest first.
    pub versions: Vec<VersionAt>,
}

/// The verdict of a filter on a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Answer {
    /// No filter was queried: the file is a log, or a table without a usable filter.
    NotQueried,
    /// The key is not in the table: the read is saved.
    No,
    /// The key may be in the table: it is read, and the read is wasted if the key is not there.
    Maybe,
}

/// One version of the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct VersionAt {
    /// Its sequence number.
    pub seqno: SeqNo,
    /// Whether it sets or deletes.
    pub kind: EntryKind,
    /// Length of its value in bytes.
    pub value_bytes: u64,
    /// Offset of its block or record in the file.
    pub offset: u64,
}

impl Sighting {
    /// Whether a lookup of the newest version wastes a read of this file.
    pub fn is_wasted(&self) -> bool {
        self.reached && self.versions.is_empty() && self.filter != Answer::No
    }
}

impl Trace {
    /// The newest version of the key, if the store holds any.
    pub fn newest(&self) -> Option<&VersionAt> {
        self.sightings.iter().find_map(|sighting| sighting.versions.first())
    }

    fn add(&mut self, mut sighting: Sighting) {
        sighting.reached = self.newest().is_none();
        self.sightings.push(sighting);
    }
}

/// Every file of the store in `dir` that holds a version of `key`, or whose key range contains it.
///
/// # Errors
/// As [`Manifest::in_force`] and [`Manifest::info`]. Errors of logs and tables are returned in
/// [`Trace::problems`].
pub fn find(vfs: &dyn Vfs, dir: &Path, key: &[u8]) -> Result<Trace> {
    let (mut trace, _) =
        read_consistently(vfs, dir, || find_once(vfs, dir, key), |(_, is_whole)| !is_whole)?;
    trace.problems = trace.problems.into_iter().map(as_damage).collect();
    Ok(trace)
}

/// One attempt, and whether it saw a consistent state of the store: files are removed only after
/// the manifest has changed.
fn find_once(vfs: &dyn Vfs, dir: &Path, key: &[u8]) -> Result<(Trace, bool)> {
    let manifest = Manifest::in_force(vfs, dir)?;
    let state = manifest.state()?;
    let mut trace = Trace::default();
    trace.problems.extend(manifest.check().err());
    trace.range_deleted =
        Some(state.version.ranges.covering(key, MAX_SEQNO)).filter(|seqno| *seqno > 0);
    for number in logs(vfs, dir, &state)?.into_iter().rev() {
        let counted = state.log_ends.of(number).map_or(u64::MAX, |stated| stated.end);
        let Trace { problems, range_deleted, .. } = &mut trace;
        match in_log(vfs, &log_path(dir, number), counted, key, problems, range_deleted) {
            Ok(sighting) if sighting.versions.is_empty() => {}
            Ok(sighting) => trace.add(sighting),
            Err(error) => trace.problems.push(error),
        }
    }
    for (level, table) in state.version.tables().filter(|(_, table)| table.may_hold(key)) {
        let level = logical_level(&state.version, level).0;
        match in_table(vfs, dir, level, table, key) {
            Ok(sighting) => trace.add(sighting),
            Err(error) => trace.problems.push(error),
        }
    }
    let is_whole = Manifest::in_force(vfs, dir)?.is_unchanged_since(&manifest);
    Ok((trace, is_whole))
}

/// Whether `key` is in `from..to`.
fn is_in(key: &[u8], from: &[u8], to: Option<&[u8]>) -> bool {
    from <= key && to.is_none_or(|to| key < to)
}

/// The needed logs, oldest first.
fn logs(vfs: &dyn Vfs, dir: &Path, state: &ManifestState) -> Result<Vec<u64>> {
    let listing = list(vfs, dir)?;
    let numbers = listing.iter().filter_map(|entry| match Numbered::parse(&entry.name) {
        Some(Numbered::Log(number)) => Some(number),
        _ => None,
    });
    let mut logs: Vec<u64> = numbers.filter(|number| state.needs_log(*number)).collect();
    logs.sort_unstable();
    Ok(logs)
}

/// The versions in the first `counted` bytes of a log.
fn in_log(
    vfs: &dyn Vfs,
    path: &Path,
    counted: u64,
    key: &[u8],
    problems: &mut Vec<Error>,
    range_deleted: &mut Option<SeqNo>,
) -> Result<Sighting> {
    let log = Log::open(vfs, path)?;
    let mut versions = Vec::new();
    for batch in log.scan().take_while(|batch| batch.offset < counted) {
        for operation in batch.operations() {
            let operation = operation?;
            let (kind, value) = match operation.op {
                BatchOp::Put { key: put, value } if put == key => (EntryKind::Put, value),
                BatchOp::Delete { key: deleted } if deleted == key => (EntryKind::Delete, &[][..]),
                BatchOp::Merge { key: merged, operand } if merged == key => {
                    (EntryKind::Merge, operand)
                }
                BatchOp::DeleteRange { from, to } if is_in(key, from, to) => {
                    *range_deleted = (*range_deleted).max(Some(operation.seqno));
                    continue;
                }
                _ => continue,
            };
            let value_bytes = value.len() as u64;
            versions.push(VersionAt {
                seqno: operation.seqno,
                kind,
                value_bytes,
                offset: batch.offset,
            });
        }
    }
    versions.reverse();
    let counts = |error: &Error| !matches!(error, Error::Corruption(c) if c.offset >= counted);
    problems.extend(log.check().err().filter(counts));
    let path = path.to_path_buf();
    let filter = Answer::NotQueried;
    Ok(Sighting { path, level: None, filter, by_prefix: false, reached: false, versions })
}

fn in_table(
    vfs: &dyn Vfs,
    dir: &Path,
    level: usize,
    table: &TableFile,
    key: &[u8],
) -> Result<Sighting> {
    let path = table_path(dir, table.number);
    let opened = Table::open(vfs, &path)?.with_sidecar(vfs, table.filters.sidecar);
    let (verdict, by_prefix) = query(opened.reader()?.filters(), key);
    let filter = match verdict.kind {
        FilterLabel::BuiltIn(FilterKind::None) => Answer::NotQueried,
        _ if verdict.maybe => Answer::Maybe,
        _ => Answer::No,
    };
    let mut versions = Vec::new();
    for entry in opened.scan(Bound::Included(key), Bound::Included(key))? {
        let entry = entry?;
        versions.push(VersionAt {
            seqno: entry.seqno,
            kind: entry.kind,
            value_bytes: entry.value.len() as u64,
            offset: entry.block,
        });
    }
    Ok(Sighting { path, level: Some(level), filter, by_prefix, reached: false, versions })
}

/// The verdict of a table's filters on `key`, queried as by a lookup, and whether it is from the
/// prefix filter. Prefixes made by a closure are unknown here.
fn query(filters: &Filters, key: &[u8]) -> (Verdict, bool) {
    let verdict = filters.query(key, filters.hash_seed().hash(key));
    if verdict != Verdict::UNFILTERED {
        return (verdict, false);
    }
    let by_prefix = || {
        let extractor = &filters.prefixes_part()?.extractor;
        let maker = Prefix::stored(extractor)?;
        let prefix = maker.of(key)?;
        let hash = filters.hash_seed().hash(prefix);
        let verdict = filters.query_prefix(prefix, hash, extractor);
        (verdict != Verdict::UNFILTERED).then_some(verdict)
    };
    by_prefix().map_or((Verdict::UNFILTERED, false), |verdict| (verdict, true))
}
