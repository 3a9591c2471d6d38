//! Decides which records of the needed logs are replayed, and which are dropped.
//!
//! All logs are read and verified before any record is replayed ([`plan`]), so that a failed open
//! has changed nothing; [`ReplayPlan::replay`] then passes the records on.
//!
//! 1. The oldest needed log must exist; each later one must name its predecessor in its header, and
//!    an end marker must name its successor. (A log is created durably before its predecessor's end
//!    marker is written and before anything refers to it, so no power cut loses one.) A missing log
//!    is `Corruption`.
//! 2. The logs are checked oldest first. An `Ended` log is complete. The recovered state ends at
//!    the first log that is `Torn`, or that ends without an end marker although a later one has
//!    content: the state is the prefix up to there.
//! 3. Everything after it is dropped and reported, including all later logs. But if a record in a
//!    later log states that all earlier logs were durable when it was written, the tear is not
//!    legal: `Corruption`.
//! 4. A corrupt log is `Corruption`, wherever it is: no power cut leaves one. So is a log without a
//!    file header, if the manifest or an end marker names the log: the header was durable before
//!    that. A log whose end the manifest records ([`ends`](super::ends)) ends there as with an end
//!    marker, whatever follows. It was durable up to there, so no tear is legal in it. A log that
//!    names no predecessor and is not the oldest is ignored: it repeats the contents of others, for
//!    a manifest that was never installed.
//! 5. Sequence numbers increase strictly over all replayed logs.
//! 6. If the manifest records that the store was closed (`closed`), the last log ends in an end
//!    marker without a successor: that was durable before the manifest recorded it, and nothing was
//!    appended afterwards. So no tear is legal in a closed store. (An interrupted recovery may have
//!    left logs without content after it.)
//!
//! With `salvage`, corruption ends the state as a tear does, and is reported with its cause; the
//! prefix before the first corruption is kept.
//!
//! The same logs give the same plan however often recovery is started and interrupted, because it
//! writes nothing. The caller must not append a record to a new log before the manifest either
//! needs only newer logs, as the replayed records are in tables, or records the ends of these logs
//! ([`ReplayPlan::ends`]).

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use trommel_base::Corruption;
use trommel_vfs::{Access, ReadFile, Vfs};

use super::ends::{LogEnd, LogEnds};
use super::framing::FileKind;
use super::read_all;
use super::reader::{LogImage, Record, Summary, TearReason, Verdict};
use super::stream;
use crate::error::Error;
use crate::names;

/// Bytes of verified logs kept in memory between planning and replay. Other logs are read twice, an
/// intact one record by record.
const KEPT_BYTES: u64 = 8 << 20;

/// The state of the manifest and the directory concerning logs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Needed<'a> {
    /// The store's directory.
    pub(crate) dir: &'a Path,
    /// The store's id, which every log repeats.
    pub(crate) store_id: u64,
    /// The oldest log with entries that are in no table; 0 if there is none, and all logs are
    /// ignored.
    pub(crate) oldest: u64,
    /// The logs in the directory, in any order, older ones included.
    pub(crate) present: &'a [u64],
    /// The ends of logs without an end marker, as recorded in the manifest.
    pub(crate) ends: &'a LogEnds,
    /// Whether the manifest records that the store was closed.
    pub(crate) closed: bool,
    /// Whether to keep the prefix before corruption instead of failing.
    pub(crate) salvage: bool,
}

/// Bytes at the end of a file that recovery drops.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Dropped {
    pub(crate) file: PathBuf,
    /// Their offset in the file.
    pub(crate) offset: u64,
    /// Their number; 0 if a file ends too early.
    pub(crate) bytes: u64,
    /// Records among them with a readable header.
    pub(crate) records: u64,
    /// Why they are dropped.
    pub(crate) reason: DropReason,
}

/// Why recovery drops bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DropReason {
    /// They are the rest of an unsynced append after a power cut.
    Torn(TearReason),
    /// The file ends without an end marker, although a later log has content.
    NoEndMarker,
    /// They were written after bytes of an earlier log that were lost in a power cut.
    BehindTear,
    /// They are corrupt; only a salvage drops such bytes.
    Damaged(Corruption),
}

impl fmt::Display for DropReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Torn(TearReason::CutHeader | TearReason::CutPayload) => {
                "an append that was not synced was cut short"
            }
            Self::Torn(TearReason::ZeroSector) => {
                "an append that was not synced lost a sector, which reads as zeros"
            }
            Self::NoEndMarker => "the end of an earlier log was not synced and is lost",
            Self::BehindTear => "written after something that was not synced and is lost",
            Self::Damaged(corruption) => return corruption.fmt(f),
        })
    }
}

impl fmt::Display for Dropped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, offset, bytes, records, reason } = self;
        write!(
            f,
            "{}: dropped {bytes} bytes from byte {offset} on, {records} readable records among \
             them: {reason}",
            file.display()
        )
    }
}

/// The logs to replay.
#[derive(Debug)]
pub(crate) struct ReplayPlan {
    replayed: Vec<Planned>,
    dropped: Vec<Dropped>,
    newest: u64,
    /// The log and the offset of the first record that is not replayed, if the plan was cut.
    until: Option<(u64, u64)>,
}

/// One log of a plan.
#[derive(Debug)]
struct Planned {
    number: u64,
    path: PathBuf,
    /// The result of decoding it, up to its recorded end if there is one.
    summary: Summary,
    stated: Option<LogEnd>,
    /// The decoded log, if it was kept in memory.
    image: Option<LogImage>,
}

/// A file limited to its first bytes.
#[derive(Debug)]
struct TruncatedFile {
    file: Arc<dyn ReadFile>,
    bytes: u64,
}

impl ReadFile for TruncatedFile {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.file.read_at(offset, buffer)
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Planned {
    /// Whether log `number` is the recorded successor, given that its header names `previous` as
    /// its predecessor. The predecessor may be an ignored log.
    fn is_followed_by(&self, number: u64, previous: u64) -> bool {
        let follows = self.stated.is_some_and(|stated| stated.next == number);
        follows && (self.number..number).contains(&previous)
    }

    /// Passes its records to `take` until that breaks. Returns whether it did.
    fn each_record(
        &self,
        vfs: &dyn Vfs,
        take: &mut dyn FnMut(Record<'_>) -> Result<ControlFlow<()>, Error>,
    ) -> Result<ControlFlow<()>, Error> {
        let changed = || {
            let what = "the log changed while it was being recovered";
            Err(Corruption::new(&self.path, 0, what).into())
        };
        let is_whole = matches!(self.summary.verdict, Verdict::Clean | Verdict::Ended { .. });
        if self.image.is_none() && is_whole {
            let file = open(vfs, &self.path, self.stated)?;
            let mut ended = ControlFlow::Continue(());
            let summary = stream::read_records(&*file, &self.path, self.number, &mut |record| {
                ended = take(record)?;
                Ok(ended)
            })?;
            let summary =
                summary.map(|summary| with_recorded_end(summary, self.stated, &self.path));
            let is_same = ended.is_break() || summary.as_ref() == Some(&self.summary);
            return if is_same { Ok(ended) } else { changed() };
        }
        let read;
        let image = match &self.image {
            Some(image) => image,
            None => {
                read = LogImage::decode(
                    read_all(&*open(vfs, &self.path, self.stated)?, &self.path)?,
                    &self.path,
                    FileKind::Log,
                    self.number,
                )?;
                &read
            }
        };
        if with_recorded_end(image.summary().clone(), self.stated, &self.path) != self.summary {
            return changed();
        }
        for record in image.records() {
            if take(record)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }
}

/// Reads and verifies the needed logs, and decides which records are replayed. Writes nothing.
pub(crate) fn plan(vfs: &dyn Vfs, needed: &Needed<'_>) -> Result<ReplayPlan, Error> {
    let mut logs = read_logs(vfs, needed)?;
    let newest = logs.last().map_or(needed.oldest, |log| log.number);
    let (keep, dropped) = match first_break(&logs, needed) {
        None => (logs.len(), Vec::new()),
        Some(Break { reason: DropReason::Damaged(corruption), .. }) if !needed.salvage => {
            return Err(corruption.into());
        }
        Some(found) => (found.keep, dropped(&logs, &found)),
    };
    logs.truncate(keep);
    Ok(ReplayPlan { replayed: logs, dropped, newest, until: None })
}

impl ReplayPlan {
    /// Passes every record to `take`, with its log's number, oldest first.
    pub(crate) fn replay(
        &self,
        vfs: &dyn Vfs,
        mut take: impl FnMut(u64, Record<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let until = self.until;
        for log in &self.replayed {
            let ended = log.each_record(vfs, &mut |record| {
                if until == Some((log.number, record.offset)) {
                    return Ok(ControlFlow::Break(()));
                }
                take(log.number, record)?;
                Ok(ControlFlow::Continue(()))
            })?;
            if ended.is_break() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Ends the plan before the first record rejected by `is_good`. Returns the record's log and
    /// offset.
    pub(crate) fn cut(
        &mut self,
        vfs: &dyn Vfs,
        mut is_good: impl FnMut(Record<'_>) -> bool,
    ) -> Result<Option<(PathBuf, u64)>, Error> {
        for log in &self.replayed {
            let mut bad = None;
            let _ = log.each_record(vfs, &mut |record| {
                let offset = record.offset;
                if is_good(record) {
                    return Ok(ControlFlow::Continue(()));
                }
                bad = Some(offset);
                Ok(ControlFlow::Break(()))
            })?;
            if let Some(offset) = bad {
                self.until = Some((log.number, offset));
                return Ok(Some((log.path.clone(), offset)));
            }
        }
        Ok(None)
    }

    /// The dropped bytes, oldest first. Empty for a store that lost nothing.
    pub(crate) fn dropped(&self) -> &[Dropped] {
        &self.dropped
    }

    /// The newest log, replayed or not, which the next one names as its predecessor.
    pub(crate) fn newest(&self) -> u64 {
        self.newest
    }

    /// The replayed logs, oldest first, except one without a header.
    pub(crate) fn logs(&self) -> impl DoubleEndedIterator<Item = u64> {
        self.headed().map(|log| log.number)
    }

    /// The replayed logs that hold records, oldest first.
    pub(crate) fn filled_logs(&self) -> impl Iterator<Item = u64> {
        self.replayed.iter().filter(|log| log.summary.records > 0).map(|log| log.number)
    }

    fn headed(&self) -> impl DoubleEndedIterator<Item = &Planned> {
        self.replayed.iter().filter(|log| log.summary.header.is_some())
    }

    /// The ends that the manifest must record in addition if these logs stay needed and log `next`
    /// follows them.
    pub(crate) fn ends(&self, next: u64) -> impl Iterator<Item = LogEnd> {
        let successors = self.logs().skip(1).chain([next]);
        let open = self
            .headed()
            .zip(successors)
            .filter(|(log, next)| log.summary.verdict != Verdict::Ended { next: *next });
        open.map(|(log, next)| LogEnd { number: log.number, end: log.summary.end, next })
    }

    /// Bytes of the replayed logs.
    pub(crate) fn bytes(&self) -> u64 {
        self.replayed.iter().map(|log| log.summary.end).sum()
    }

    /// Records to replay.
    pub(crate) fn records(&self) -> u64 {
        self.replayed.iter().map(|log| log.summary.records).sum()
    }
}

fn read_logs(vfs: &dyn Vfs, needed: &Needed<'_>) -> Result<Vec<Planned>, Error> {
    let is_needed = |number: &u64| {
        needed.oldest != 0 && *number >= needed.oldest && !needed.ends.ignores(*number)
    };
    let numbers: BTreeSet<u64> = needed.present.iter().copied().filter(is_needed).collect();
    let mut kept = 0;
    let read = |number| {
        let path = needed.dir.join(names::log(number));
        let stated = needed.ends.of(number);
        let file = open(vfs, &path, stated)?;
        let is_kept = kept + file.bytes() <= KEPT_BYTES;
        if !is_kept {
            let none = &mut |_: Record<'_>| Ok(ControlFlow::Continue(()));
            if let Some(summary) = stream::read_records(&*file, &path, number, none)? {
                let summary = with_recorded_end(summary, stated, &path);
                return Ok(Planned { number, path, summary, stated, image: None });
            }
        }
        let image = LogImage::decode(read_all(&*file, &path)?, &path, FileKind::Log, number)?;
        let summary = with_recorded_end(image.summary().clone(), stated, &path);
        kept += if is_kept { summary.file_bytes } else { 0 };
        Ok(Planned { number, path, summary, stated, image: is_kept.then_some(image) })
    };
    let is_left_over = |log: &Planned| {
        let header = log.summary.header.filter(|_| log.number != needed.oldest);
        header.is_some_and(|header| header.previous == 0 && header.store_id == needed.store_id)
    };
    let logs: Result<Vec<Planned>, Error> = numbers.into_iter().map(read).collect();
    Ok(logs?.into_iter().filter(|log| !is_left_over(log)).collect())
}

/// Opens the log at `path`, limited to its recorded end if there is one.
fn open(vfs: &dyn Vfs, path: &Path, stated: Option<LogEnd>) -> Result<Arc<dyn ReadFile>, Error> {
    let file = vfs.open(path, Access::Buffered).map_err(Error::on(path))?;
    let bytes = stated.map_or(u64::MAX, |stated| stated.end);
    Ok(if bytes < file.bytes() { Arc::new(TruncatedFile { file, bytes }) } else { file })
}

/// Adjusts the summary of the log at `path` to its recorded end, if there is one: it ends there as
/// with an end marker. It was durable up to there before the manifest recorded the end.
fn with_recorded_end(mut summary: Summary, stated: Option<LogEnd>, path: &Path) -> Summary {
    let Some(LogEnd { end, next, .. }) = stated else { return summary };
    summary.verdict = match summary.verdict {
        Verdict::Clean | Verdict::Ended { .. } if summary.end == end => Verdict::Ended { next },
        Verdict::Damaged(corruption) => Verdict::Damaged(corruption),
        _ => {
            let what = format!(
                "the log was durable up to byte {end}, as the manifest says, and is not any more"
            );
            Verdict::Damaged(Corruption::new(path, summary.end, what))
        }
    };
    summary
}

/// The point where the replayed state ends early.
struct Break {
    /// Number of logs that are replayed, the last of them perhaps in part.
    keep: usize,
    reason: DropReason,
}

impl Break {
    fn damaged(keep: usize, corruption: Corruption) -> Option<Self> {
        Some(Self { keep, reason: DropReason::Damaged(corruption) })
    }
}

fn first_break(logs: &[Planned], needed: &Needed<'_>) -> Option<Break> {
    if needed.oldest != 0 && logs.first().is_none_or(|log| log.number != needed.oldest) {
        return Break::damaged(0, missing(needed.dir, needed.oldest));
    }
    let mut last_seqno = 0;
    for (index, log) in logs.iter().enumerate() {
        if let Some(corruption) = misplaced(&logs[..index], log, needed) {
            return Break::damaged(index, corruption);
        }
        if log.summary.seqnos.is_some_and(|(first, _)| first <= last_seqno) {
            let what = "its first sequence number is not above those of earlier logs";
            return Break::damaged(index, Corruption::new(&log.path, 0, what));
        }
        if let Some(found) = break_in(logs, index, needed) {
            return Some(found);
        }
        last_seqno = log.summary.seqnos.map_or(last_seqno, |(_, last)| last);
    }
    None
}

/// Why the header of `log` contradicts its position after `earlier`, if it does.
fn misplaced(earlier: &[Planned], log: &Planned, needed: &Needed<'_>) -> Option<Corruption> {
    let header = log.summary.header?;
    if header.store_id != needed.store_id {
        return Some(Corruption::new(&log.path, 0, "the log belongs to another store"));
    }
    let fits = match earlier.last() {
        Some(before) => {
            let previous = header.previous;
            previous == before.number || before.is_followed_by(log.number, previous)
        }
        None => header.previous < log.number,
    };
    if fits {
        return None;
    }
    let is_out_of_order = header.previous < needed.oldest
        || header.previous >= log.number
        || earlier.iter().any(|before| before.number == header.previous);
    Some(match is_out_of_order {
        true => Corruption::new(&log.path, 0, "the log was not written after the one before it"),
        false => missing(needed.dir, header.previous),
    })
}

fn missing(dir: &Path, number: u64) -> Corruption {
    let what = "the log is missing, and holds writes that no table holds";
    Corruption::new(&dir.join(names::log(number)), 0, what)
}

/// Whether and why the state ends in the log at `index`.
fn break_in(logs: &[Planned], index: usize, needed: &Needed<'_>) -> Option<Break> {
    let (log, later) = (&logs[index], &logs[index + 1..]);
    let keep = index + 1;
    let summary = &log.summary;
    let is_last = |log: &Planned| log.summary.verdict == Verdict::Ended { next: 0 };
    let was_whole = needed.closed && !logs[..index].iter().any(is_last);
    let reason = match &summary.verdict {
        Verdict::Damaged(corruption) => DropReason::Damaged(corruption.clone()),
        Verdict::Ended { next } => {
            let found = *next == 0 || later.first().is_some_and(|log| log.number == *next);
            return if found { None } else { Break::damaged(keep, missing(needed.dir, *next)) };
        }
        Verdict::Clean if !was_whole && !later.iter().any(|log| log.summary.has_content()) => {
            return None;
        }
        Verdict::Clean | Verdict::Torn(_) if was_whole => {
            let what = "the log was whole when the store was closed; now its end is gone";
            DropReason::Damaged(Corruption::new(&log.path, summary.end, what))
        }
        Verdict::Clean => DropReason::NoEndMarker,
        Verdict::Torn(_) if summary.header.is_none() && is_named(logs, index) => {
            let what = "the head of the log is gone, which was durable before anything named it";
            DropReason::Damaged(Corruption::new(&log.path, 0, what))
        }
        Verdict::Torn(reason) => DropReason::Torn(*reason),
    };
    let contradicted = matches!(reason, DropReason::Torn(_) | DropReason::NoEndMarker);
    let contradiction = if contradicted { contradiction(logs, index, needed) } else { None };
    Some(Break { keep, reason: contradiction.map_or(reason, DropReason::Damaged) })
}

/// Whether the manifest, or the end marker of its predecessor, names the log at `index`. (The end
/// marker of a closed store names none: a log after it was only being created.)
fn is_named(logs: &[Planned], index: usize) -> bool {
    let before = index.checked_sub(1).map(|before| &logs[before].summary.verdict);
    let number = logs[index].number;
    before.is_none_or(|verdict| matches!(verdict, Verdict::Ended { next } if *next == number))
}

/// Evidence in later logs that the end of the one at `index` is corrupt, not torn; or corruption of
/// those logs that no power cut explains.
fn contradiction(logs: &[Planned], index: usize, needed: &Needed<'_>) -> Option<Corruption> {
    let (log, later) = (&logs[index], index + 1..logs.len());
    if let Some(claim) = logs[later.clone()].iter().find(|log| log.summary.claims_durable) {
        let claim = claim.path.display();
        let text = format!("the end of this log is gone, yet {claim} shows that it was synced");
        return Some(Corruption::new(&log.path, log.summary.end, text));
    }
    later.into_iter().find_map(|at| match &logs[at].summary.verdict {
        Verdict::Damaged(corruption) => Some(corruption.clone()),
        _ => misplaced(&logs[..at], &logs[at], needed),
    })
}

/// The bytes dropped because of `found`.
fn dropped(logs: &[Planned], found: &Break) -> Vec<Dropped> {
    let (kept, behind) = logs.split_at(found.keep);
    let reason = found.reason.clone();
    let mut all = Vec::new();
    if let DropReason::Damaged(corruption) = &found.reason
        && kept.last().is_none_or(|log| log.path != corruption.file)
    {
        let (file, offset) = (corruption.file.clone(), corruption.offset);
        all.push(Dropped { file, offset, bytes: 0, records: 0, reason });
    } else if let Some(log) = kept.last() {
        all.push(Dropped {
            file: log.path.clone(),
            offset: log.summary.end,
            bytes: log.summary.written_bytes() - log.summary.end,
            records: log.summary.later_records,
            reason,
        });
    }
    all.extend(behind.iter().filter(|log| log.summary.has_content()).map(|log| Dropped {
        file: log.path.clone(),
        offset: 0,
        bytes: log.summary.written_bytes(),
        records: log.summary.records + log.summary.later_records,
        reason: DropReason::BehindTear,
    }));
    all
}
