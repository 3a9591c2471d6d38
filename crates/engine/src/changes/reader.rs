//! Reads the batches of a store's logs in order of their sequence numbers, without gaps.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::atomic::Ordering;

use trommel_base::{Corruption, SeqNo};

use crate::batch::BatchOperations;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::files::{archived_log_path, list, log_path};
use crate::log::FileKind;
use crate::log::reader::Record;
use crate::log::tail::{LogTail, TakenRecord};
use crate::log_archive::archived;
use crate::retry::retried;

/// Bytes of batches after which a call of [`BatchReader::read`] returns.
const MOST_BYTES: usize = 1 << 20;

/// A batch from a log.
#[derive(Debug, Clone)]
pub(super) struct FoundBatch {
    pub(super) first_seqno: SeqNo,
    pub(super) last_seqno: SeqNo,
    /// As in the log.
    pub(super) encoded: Vec<u8>,
}

/// Why a call of [`BatchReader::read`] returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReadEnd {
    /// Everything that was wanted has been read.
    CaughtUp,
    /// Enough was read for one call.
    Enough,
    /// The numbers from the next one up to this one, exclusively, are in no log.
    Gap { oldest: SeqNo },
}

/// Why reading of one log stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LogStop {
    /// For this reason, which ends the call.
    Call(ReadEnd),
    /// At its end, or at its end for now.
    End,
    /// The log was removed.
    Gone,
}

/// The logs of a store at a moment.
#[derive(Debug)]
struct PresentLogs {
    /// Those that the store needs.
    needed: BTreeSet<u64>,
    /// The lengths of the archived ones, by number.
    archived: BTreeMap<u64, u64>,
}

/// How far the logs of a store were read.
#[derive(Debug)]
pub(super) struct BatchReader {
    /// The last sequence number that has been read, or skipped.
    seqno: SeqNo,
    /// The log that is read now.
    tail: Option<LogTail>,
    /// The log, and the offset in it, up to which everything read is durable.
    durable_to: (u64, u64),
}

impl PresentLogs {
    fn of(engine: &Engine) -> Result<Self> {
        // The needed logs are listed first: an archived log has its second name before it leaves
        // the view.
        let view = engine.view.load_full();
        let needed = view.memtables().flat_map(|memtable| memtable.logs()).filter(|log| *log != 0);
        let needed = needed.collect();
        let listing = list(&*engine.files.vfs, &engine.files.dir)?;
        Ok(Self { needed, archived: archived(&listing) })
    }

    /// All, oldest first.
    fn numbers(&self) -> BTreeSet<u64> {
        self.needed.iter().chain(self.archived.keys()).copied().collect()
    }

    /// The log after this one.
    fn after(&self, number: u64) -> Option<u64> {
        self.numbers().range(number + 1..).next().copied()
    }

    fn tail(&self, engine: &Engine, number: u64) -> LogTail {
        let path = match self.archived.contains_key(&number) {
            true => archived_log_path(&engine.files.dir, number),
            false => log_path(&engine.files.dir, number),
        };
        // The end of a log without an end marker follows from its own bytes.
        LogTail::new(path, FileKind::Log, number, None)
    }
}

impl BatchReader {
    /// Begins after this sequence number.
    pub(super) fn after(seqno: SeqNo) -> Self {
        Self { seqno, tail: None, durable_to: (0, 0) }
    }

    /// The last sequence number that was read.
    pub(super) fn seqno(&self) -> SeqNo {
        self.seqno
    }

    /// Adds the next batches to `found`, none of which is newer than `visible`. All batches up to
    /// that number are in the logs, if they ever were.
    pub(super) fn read(
        &mut self,
        engine: &Engine,
        visible: SeqNo,
        found: &mut Vec<FoundBatch>,
    ) -> Result<ReadEnd> {
        // The log after the current one. If it existed before the current one was read to its end,
        // the current one is complete.
        let mut next = None;
        let mut room = MOST_BYTES;
        while self.seqno < visible {
            if self.tail.is_none() {
                let logs = PresentLogs::of(engine)?;
                self.tail = self.first_log(engine, &logs)?;
            }
            let Some(number) = self.tail.as_ref().map(LogTail::number) else {
                return Ok(ReadEnd::Gap { oldest: visible + 1 });
            };
            let stop = retried(|| self.read_log(engine, visible, &mut room, found)).1?;
            match (stop, next.take()) {
                (LogStop::Call(end), _) => return Ok(end),
                (LogStop::End, Some(tail)) => self.tail = Some(tail),
                (LogStop::End | LogStop::Gone, _) => {
                    let logs = PresentLogs::of(engine)?;
                    let Some(after) = logs.after(number).map(|after| logs.tail(engine, after))
                    else {
                        return Ok(ReadEnd::Gap { oldest: visible + 1 });
                    };
                    match stop == LogStop::Gone {
                        true => self.tail = Some(after),
                        false => next = Some(after),
                    }
                }
            }
        }
        Ok(ReadEnd::CaughtUp)
    }

    /// The last log whose first batch is a wanted one or an earlier one; the oldest log if there is
    /// none.
    fn first_log(&self, engine: &Engine, logs: &PresentLogs) -> Result<Option<LogTail>> {
        let mut oldest = None;
        for number in logs.numbers().into_iter().rev() {
            let first = retried(|| match first_seqno(engine, logs.tail(engine, number)) {
                Err(error) if is_missing(&error) => Ok(None),
                found => found,
            });
            oldest = Some(number);
            if first.1?.is_some_and(|first| first <= self.seqno + 1) {
                break;
            }
        }
        Ok(oldest.map(|number| logs.tail(engine, number)))
    }

    /// Reads the current log on, for as long as there is room for batches.
    fn read_log(
        &mut self,
        engine: &Engine,
        visible: SeqNo,
        room: &mut usize,
        found: &mut Vec<FoundBatch>,
    ) -> Result<LogStop> {
        let Some(tail) = &mut self.tail else { return Ok(LogStop::Gone) };
        let (path, mut stop) = (tail.path().to_path_buf(), LogStop::End);
        let seqno = &mut self.seqno;
        let read = tail.read(&*engine.files.vfs, &mut |record| {
            let operations = count(&record).ok_or_else(|| no_batch(&path, record.offset))?;
            let last_seqno = record.first_seqno + operations.max(1) - 1;
            if last_seqno <= *seqno {
                return Ok(TakenRecord::Taken);
            }
            if record.first_seqno > *seqno + 1 {
                stop = LogStop::Call(ReadEnd::Gap { oldest: record.first_seqno });
                return Ok(TakenRecord::Left);
            }
            let (first_seqno, encoded) = (record.first_seqno, record.payload.to_vec());
            *room = room.saturating_sub(encoded.len());
            found.push(FoundBatch { first_seqno, last_seqno, encoded });
            *seqno = last_seqno;
            if last_seqno >= visible {
                // What follows may be half written.
                stop = LogStop::Call(ReadEnd::CaughtUp);
                return Ok(TakenRecord::Last);
            }
            if *room == 0 {
                stop = LogStop::Call(ReadEnd::Enough);
                return Ok(TakenRecord::Last);
            }
            Ok(TakenRecord::Taken)
        });
        match read {
            Ok(_) => Ok(stop),
            Err(error) if is_missing(&error) => {
                // The log has become obsolete. It may have been archived, and then removed from the
                // archive.
                let archived = archived_log_path(&engine.files.dir, tail.number());
                let was_archived = path == archived;
                tail.rename(archived);
                if was_archived {
                    Ok(LogStop::Gone)
                } else {
                    self.read_log(engine, visible, room, found)
                }
            }
            Err(error) => Err(error),
        }
    }

    /// Makes everything durable that was read.
    pub(super) fn make_durable(&mut self, engine: &Engine) -> Result<()> {
        let Some(tail) = &self.tail else { return Ok(()) };
        let (number, end) = (tail.number(), tail.end());
        if self.durable_to < (number, end) {
            sync_up_to(engine, self.seqno, self.durable_to.0..=number)?;
            self.durable_to = (number, end);
        }
        Ok(())
    }
}

/// Makes the logs with these numbers durable, unless everything up to `seqno` is known to be
/// durable. Archived logs are durable, and so are tables.
pub(super) fn sync_up_to(
    engine: &Engine,
    seqno: SeqNo,
    numbers: RangeInclusive<u64>,
) -> Result<()> {
    if engine.writes.synced.load(Ordering::Acquire) >= seqno {
        return Ok(());
    }
    let view = engine.view.load_full();
    let logs = view.memtables().flat_map(|memtable| memtable.logs());
    for log in logs.filter(|log| numbers.contains(log)).collect::<BTreeSet<_>>() {
        sync(engine, &log_path(&engine.files.dir, log))?;
    }
    // After a failed sync, another one may succeed without having made anything durable.
    engine.access.check_unpoisoned()
}

/// Makes a log durable. A missing log has become obsolete: its contents are in tables, which are
/// durable.
fn sync(engine: &Engine, path: &Path) -> Result<()> {
    let Err(source) = engine.files.vfs.sync_file(path) else { return Ok(()) };
    if matches!(source.kind(), ErrorKind::NotFound | ErrorKind::Unsupported) {
        return Ok(());
    }
    let error = Error::io(path, "making durable", source);
    let is_owner = engine.access.check_writable().is_ok();
    Err(if is_owner { engine.poison(error) } else { error })
}

/// The sequence number of the first record of a log, if it has any.
fn first_seqno(engine: &Engine, mut tail: LogTail) -> Result<Option<SeqNo>> {
    let mut first = None;
    tail.read(&*engine.files.vfs, &mut |record| {
        first = Some(record.first_seqno);
        Ok(TakenRecord::Left)
    })?;
    Ok(first)
}

/// Number of operations of a batch; `None` if the record does not hold one.
fn count(record: &Record<'_>) -> Option<u64> {
    let mut operations = BatchOperations::decode(record.payload)?;
    operations.try_fold(0, |count, operation| operation.map(|_| count + 1))
}

fn no_batch(path: &Path, offset: u64) -> Error {
    Corruption::new(path, offset, "a record of the log is intact but does not hold a batch").into()
}

fn is_missing(error: &Error) -> bool {
    matches!(error, Error::Io { source, .. } if source.kind() == ErrorKind::NotFound)
}
