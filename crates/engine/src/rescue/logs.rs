//! The rest of the logs: what an open would replay, and the records after corruption.

use std::path::Path;

use trommel_base::{EntryKind, MAX_SEQNO, SeqNo};
use trommel_vfs::{DirEntry, Vfs};

use super::manifest::Chosen;
use crate::batch::{BatchOperations, OpKind};
use crate::damage::{Damage, KeySpan, Remedy};
use crate::error::{Error, Result};
use crate::files::log_path;
use crate::log::reader::LogImage;
use crate::log::recover::{self, Needed, ReplayPlan};
use crate::log::{DropReason, Dropped, FileKind, LogEnds, read_whole};
use crate::names::Numbered;
use crate::ranges::RangeTombstone;

/// One version of one key, from a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LoggedEntry {
    pub(crate) key: Vec<u8>,
    pub(crate) seqno: SeqNo,
    pub(crate) kind: EntryKind,
    pub(crate) value: Vec<u8>,
}

/// Operations from logs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct LoggedOperations {
    pub(crate) entries: Vec<LoggedEntry>,
    pub(crate) ranges: Vec<RangeTombstone>,
    /// Time marks, with their sequence numbers.
    pub(crate) marks: Vec<(SeqNo, u64)>,
    /// The last sequence number that an open would replay.
    pub(crate) last_seqno: SeqNo,
}

impl LoggedOperations {
    pub(crate) fn extend(&mut self, other: Self) {
        self.entries.extend(other.entries);
        self.ranges.extend(other.ranges);
        self.marks.extend(other.marks);
    }
}

/// The operations of one batch.
struct LoggedBatch {
    contents: LoggedOperations,
    operations: u64,
    last_seqno: SeqNo,
    keys: KeySpan,
}

/// The usable contents of the needed logs.
#[derive(Debug)]
pub(crate) struct LogsLeft {
    /// The plan for replaying everything before the first corruption.
    pub(crate) plan: ReplayPlan,
    /// The logs that were read.
    pub(crate) present: Vec<u64>,
    /// Corrupt and missing logs.
    pub(crate) damage: Vec<Damage>,
    /// Dropped bytes that a crash explains.
    pub(crate) torn: Vec<Dropped>,
    /// The ends of logs recorded in the manifest.
    ends: LogEnds,
}

impl LogsLeft {
    /// Why writes of unknown keys may be missing, if they may.
    pub(crate) fn doubt(&self) -> Option<String> {
        let first = self.damage.first()?;
        Some(format!(
            "{}: {}, and which keys were written behind that is unknown",
            first.file.display(),
            first.what
        ))
    }
}

/// Reads the logs of `dir` from `oldest` on (0: none is needed).
pub(crate) fn left(
    vfs: &dyn Vfs,
    dir: &Path,
    listing: &[DirEntry],
    chosen: &Chosen,
    oldest: u64,
) -> Result<LogsLeft> {
    let log = |entry: &DirEntry| match Numbered::parse(&entry.name)? {
        Numbered::Log(number) if entry.is_file && oldest != 0 && number >= oldest => {
            (!chosen.state.log_ends.ignores(number)).then_some(number)
        }
        _ => None,
    };
    let mut present: Vec<u64> = listing.iter().filter_map(log).collect();
    present.sort_unstable();
    let mut damage = Vec::new();
    let id = || {
        present.iter().find_map(|number| {
            let path = log_path(dir, *number);
            let bytes = read_whole(vfs, &path).ok()?;
            let image = LogImage::decode(bytes, &path, FileKind::Log, *number).ok()?;
            Some(image.summary().header?.store_id)
        })
    };
    let store_id = chosen.store_id.or_else(id).unwrap_or_default();
    loop {
        let needed = Needed {
            dir,
            store_id,
            oldest,
            present: &present,
            ends: &chosen.state.log_ends,
            closed: chosen.closed,
            salvage: true,
        };
        let mut plan = match recover::plan(vfs, &needed) {
            Ok(plan) => plan,
            Err(error) => {
                let found = Damage::of(&error, dir, Remedy::RestoreOrSalvage);
                let Some(at) = present.iter().position(|log| log_path(dir, *log) == found.file)
                else {
                    return Err(error);
                };
                // Treated as missing.
                present.remove(at);
                damage.push(found);
                continue;
            }
        };
        let torn = classify_dropped(&plan, &mut damage);
        damage.extend(cut(vfs, &mut plan, chosen.state.last_seqno)?);
        let ends = chosen.state.log_ends.clone();
        return Ok(LogsLeft { plan, present, damage, torn, ends });
    }
}

/// Adds to `damage` what the plan drops because of corruption; returns what a crash explains.
fn classify_dropped(plan: &ReplayPlan, damage: &mut Vec<Damage>) -> Vec<Dropped> {
    let mut torn = Vec::new();
    for dropped in plan.dropped() {
        match &dropped.reason {
            // An unreadable log is treated as missing, and was reported.
            DropReason::Damaged(missing)
                if damage.iter().any(|known: &Damage| known.file == missing.file) => {}
            DropReason::Damaged(corruption) => {
                let error = Error::from(corruption.clone());
                let found = Damage::of(&error, &dropped.file, Remedy::RestoreOrSalvage);
                damage.push(found.of_bytes(dropped.bytes));
            }
            DropReason::BehindTear if !damage.is_empty() => {
                let what = "it was written after what is lost of an earlier log";
                let remedy = Remedy::RestoreOrSalvage;
                let found = Damage::at(&dropped.file, dropped.offset, what, remedy);
                damage.push(found.of_bytes(dropped.bytes));
            }
            _ => torn.push(dropped.clone()),
        }
    }
    torn
}

/// Ends the plan before the first record that an open would reject, and reports that record.
fn cut(vfs: &dyn Vfs, plan: &mut ReplayPlan, mut last_seqno: SeqNo) -> Result<Option<Damage>> {
    let cut = plan.cut(vfs, |record| {
        let batch = operations(record.first_seqno, record.payload);
        let is_good = record.first_seqno > last_seqno && batch.is_some();
        last_seqno = batch.map_or(last_seqno, |batch| batch.last_seqno);
        is_good && last_seqno <= MAX_SEQNO
    })?;
    Ok(cut.map(|(file, offset)| {
        let what = "a record of the log is intact but holds no batch that can stand there";
        Damage::at(&file, offset, what, Remedy::RestoreOrSalvage)
    }))
}

/// A verifiable record after lost ones.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecordBeyond {
    /// The log.
    pub file: std::path::PathBuf,
    /// Its offset in the file.
    pub offset: u64,
    /// Writes in it.
    pub operations: u64,
    /// The smallest and the largest key that it writes.
    pub keys: KeySpan,
}

/// The entries of the logs.
#[derive(Debug, Default)]
pub(crate) struct LogEntries {
    /// The replayed operations.
    pub(crate) replayed: LoggedOperations,
    /// Number of replayed records.
    pub(crate) records: u64,
    /// Verifiable records after lost ones, with their operations.
    pub(crate) beyond: Vec<(RecordBeyond, LoggedOperations)>,
    /// Records without a valid batch.
    pub(crate) damage: Vec<Damage>,
}

/// Reads all records of the logs.
pub(crate) fn entries(vfs: &dyn Vfs, dir: &Path, left: LogsLeft) -> Result<LogEntries> {
    let LogsLeft { plan, present, ends, .. } = left;
    let mut found = LogEntries::default();
    let mut replayed = std::collections::HashSet::new();
    plan.replay(vfs, |number, record| {
        replayed.insert((number, record.offset));
        match operations(record.first_seqno, record.payload) {
            Some(batch) => {
                found.records += 1;
                found.replayed.last_seqno = batch.last_seqno;
                found.replayed.extend(batch.contents);
            }
            None => {
                let what = "a record of the log is intact but does not hold a batch";
                let path = log_path(dir, number);
                let damage = Damage::at(&path, record.offset, what, Remedy::RestoreOrSalvage);
                found.damage.push(damage.of_bytes(record.payload.len() as u64));
            }
        }
        Ok(())
    })?;
    for number in present {
        let path = log_path(dir, number);
        let mut bytes = read_whole(vfs, &path)?;
        bytes.truncate(ends.counted_bytes(number));
        let image = LogImage::decode(bytes, &path, FileKind::Log, number)?;
        let good = image.records().map(|r| (r.offset, r.first_seqno, r.payload.to_vec()));
        let behind = image.later_records();
        let behind = behind.into_iter().map(|r| (r.offset, r.first_seqno, r.payload));
        for (offset, first_seqno, payload) in good.chain(behind) {
            if replayed.contains(&(number, offset)) {
                continue;
            }
            let Some(batch) = operations(first_seqno, &payload) else { continue };
            let LoggedBatch { contents, operations, keys, .. } = batch;
            if operations > 0 {
                let record = RecordBeyond { file: path.clone(), offset, operations, keys };
                found.beyond.push((record, contents));
            }
        }
    }
    Ok(found)
}

/// The operations of a batch; `None` if the bytes are not a batch.
fn operations(first_seqno: SeqNo, payload: &[u8]) -> Option<LoggedBatch> {
    let mut batch = LoggedBatch {
        contents: LoggedOperations::default(),
        operations: 0,
        last_seqno: first_seqno.saturating_sub(1),
        keys: KeySpan::default(),
    };
    let mut keys: Vec<&[u8]> = Vec::new();
    for operation in BatchOperations::decode(payload)? {
        let operation = operation?;
        let seqno = first_seqno.checked_add(batch.operations)?;
        (batch.operations, batch.last_seqno) = (batch.operations + 1, seqno);
        if let Some(until) = operation.marked_time() {
            batch.contents.marks.push((seqno, until));
            continue;
        }
        keys.push(operation.key);
        match operation.kind.entry() {
            Some(kind) => batch.contents.entries.push(LoggedEntry {
                key: operation.key.to_vec(),
                seqno,
                kind,
                value: operation.value.to_vec(),
            }),
            None => {
                // Without an end, the range reaches beyond any key that can be named.
                if operation.kind == OpKind::RangeDelete {
                    keys.push(operation.value);
                }
                batch.contents.ranges.extend(operation.range_tombstone(seqno));
            }
        }
    }
    // Time marks write nothing.
    batch.operations -= batch.contents.marks.len() as u64;
    if let Some((first, last)) = keys.iter().min().zip(keys.iter().max()) {
        batch.keys = KeySpan::new(first, last);
    }
    Some(batch)
}
