//! One log: its batches of operations, and its end. A manifest has the same framing, so [`Ending`]
//! and [`LogSpan`] serve both.

use std::path::{Path, PathBuf};

use trommel_base::{Corruption, SeqNo};
use trommel_vfs::{ReadFile, Vfs};

use super::files::Role;
use crate::batch::{self, BatchOp};
use crate::error::Result;
use crate::log::format::{
    END_PAYLOAD_BYTES, FILE_HEADER_BYTES, FORMAT_VERSION, RECORD_OVERHEAD_BYTES,
};
use crate::log::reader::{LogImage, Record, Summary, Verdict};
use crate::log::{DropReason, FileHeader, FileKind, read_all};

/// A log, read and verified.
#[derive(Debug)]
pub struct Log {
    framed: Framed,
}

/// The metadata of a log.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct LogInfo {
    /// The file.
    pub path: PathBuf,
    /// Its length in bytes.
    pub file_bytes: u64,
    /// Version of the format.
    pub format_version: u32,
    /// The number in its header.
    pub number: u64,
    /// Random; every checksum in the file is bound to it.
    pub salt: u64,
    /// The random id of its store.
    pub store_id: u64,
    /// The log written before this one; 0 for none.
    pub previous: u64,
    /// Counts of its batches and operations.
    pub written: LoggedCounts,
    /// The first and the last sequence number; none without operations.
    pub seqnos: Option<(SeqNo, SeqNo)>,
    /// How it ends.
    pub ending: Ending,
}

/// Counts of a log's batches and operations.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LoggedCounts {
    /// Batches.
    pub batches: u64,
    /// Operations that set a key.
    pub puts: u64,
    /// Operations that delete a key.
    pub deletes: u64,
    /// Operations that merge an operand into a key.
    pub merges: u64,
    /// Deletions of ranges.
    pub range_deletes: u64,
}

/// How a log or manifest ends.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ending {
    /// With an end marker: it was finished in order.
    Marked {
        /// The number of the next log, 0 for none.
        next: u64,
    },
    /// At the end of a record: it is being written, or its writer was killed.
    Open,
    /// Inside a record that was not synced, as after a power cut (or during a write).
    Torn {
        /// End of the last good record.
        offset: u64,
        /// Bytes after it, which an open of the store drops.
        bytes: u64,
        /// Readable record headers among them.
        records: u64,
        /// The evidence of the tear.
        what: String,
    },
    /// In bytes that no power cut explains.
    Damaged(Corruption),
}

/// The result of [`Log::check`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogCheck {
    /// Bytes of the file.
    pub bytes: u64,
    /// Batches.
    pub batches: u64,
    /// Operations in them.
    pub operations: u64,
    /// How it ends. A torn end is not corruption, as a crash explains it.
    pub ending: Ending,
}

/// A batch: operations written atomically.
#[derive(Debug, Clone, Copy)]
pub struct LogBatch<'a> {
    /// Offset of its record in the file.
    pub offset: u64,
    /// Length of the record in bytes.
    pub bytes: u64,
    /// Sequence number of its first operation; the others follow consecutively.
    pub first_seqno: SeqNo,
    path: &'a Path,
    payload: &'a [u8],
}

/// One operation of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogOperation<'a> {
    /// Its sequence number.
    pub seqno: SeqNo,
    /// The operation; never [`BatchOp::Refused`].
    pub op: BatchOp<'a>,
}

/// One range of a log or manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogSpan {
    /// Its first byte.
    pub offset: u64,
    /// Its length in bytes.
    pub bytes: u64,
    /// Its content.
    pub kind: LogSpanKind,
    /// The first sequence number of a batch, the ordinal of an edit; otherwise none.
    pub seqno: Option<u64>,
}

/// The content of a range of a log or manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum LogSpanKind {
    /// The file header.
    Header,
    /// A record: a batch, or an edit.
    Record,
    /// The end marker.
    EndMarker,
    /// The rest of an unsynced append.
    Torn,
    /// Bytes after corruption, of unknown meaning.
    Damaged,
    /// Zeros that a store with frequent syncs preallocates.
    ZerosAhead,
}

impl Log {
    /// Reads the whole log at `path` into memory.
    ///
    /// # Errors
    /// [`crate::Error::WrongFile`] for something else, [`crate::Error::Unsupported`] for a newer
    /// format, [`crate::Error::Io`]. Corruption is not an error here: see [`LogInfo::ending`].
    pub fn open(vfs: &dyn Vfs, path: &Path) -> Result<Self> {
        let file = super::open(vfs, path, Role::Log)?;
        Ok(Self { framed: Framed::read(&*file, path, FileKind::Log)? })
    }

    /// The metadata of the log.
    ///
    /// # Errors
    /// [`crate::Error::Corruption`] if its header, or a batch with a valid checksum, is invalid.
    pub fn info(&self) -> Result<LogInfo> {
        let header = self.framed.header()?;
        let mut info = LogInfo {
            path: self.framed.path.clone(),
            file_bytes: self.framed.summary().file_bytes,
            format_version: FORMAT_VERSION,
            number: header.number,
            salt: header.salt,
            store_id: header.store_id,
            previous: header.previous,
            written: LoggedCounts::default(),
            seqnos: None,
            ending: self.framed.ending(),
        };
        for batch in self.scan() {
            info.written.batches += 1;
            for operation in batch.operations() {
                let operation = operation?;
                match operation.op {
                    BatchOp::Put { .. } => info.written.puts += 1,
                    BatchOp::Delete { .. } => info.written.deletes += 1,
                    BatchOp::Merge { .. } => info.written.merges += 1,
                    BatchOp::DeleteRange { .. } => info.written.range_deletes += 1,
                    BatchOp::TimeMark { .. } | BatchOp::Refused(_) => {}
                }
                let first = info.seqnos.map_or(operation.seqno, |(first, _)| first);
                info.seqnos = Some((first, operation.seqno));
            }
        }
        Ok(info)
    }

    /// Checks every byte: checksums, the chain of records, sequence numbers, every operation, and
    /// that a file with a log's name has the number it was created with.
    ///
    /// # Errors
    /// [`crate::Error::Corruption`] for the first corruption found. A torn end is not an error.
    pub fn check(&self) -> Result<LogCheck> {
        self.framed.check()?;
        let (mut operations, mut expected) = (0, 0);
        for batch in self.scan() {
            if batch.first_seqno < expected {
                let what = "a batch has sequence numbers of the one before it";
                return Err(Corruption::new(&self.framed.path, batch.offset, what).into());
            }
            for operation in batch.operations() {
                expected = operation?.seqno + 1;
                operations += 1;
            }
        }
        let summary = self.framed.summary();
        Ok(LogCheck {
            bytes: summary.file_bytes,
            batches: summary.records,
            operations,
            ending: self.framed.ending(),
        })
    }

    /// The good batches, oldest first.
    pub fn scan(&self) -> impl Iterator<Item = LogBatch<'_>> {
        self.framed.image.records().map(|record| LogBatch {
            offset: record.offset,
            bytes: record_bytes(&record),
            first_seqno: record.first_seqno,
            path: &self.framed.path,
            payload: record.payload,
        })
    }

    /// Every range of the file, in order and without gaps.
    pub fn layout(&self) -> Vec<LogSpan> {
        self.framed.layout()
    }

    /// How it ends.
    pub fn ending(&self) -> Ending {
        self.framed.ending()
    }
}

impl<'a> LogBatch<'a> {
    /// The operations in the order in which they were written; ends after the first error.
    pub fn operations(&self) -> Operations<'a> {
        Operations {
            decoded: batch::BatchOperations::decode(self.payload),
            path: self.path,
            offset: self.offset,
            next: self.first_seqno,
            done: false,
        }
    }
}

/// The operations of a batch.
#[derive(Debug, Clone)]
pub struct Operations<'a> {
    decoded: Option<batch::BatchOperations<'a>>,
    path: &'a Path,
    offset: u64,
    next: SeqNo,
    done: bool,
}

impl<'a> Iterator for Operations<'a> {
    type Item = Result<LogOperation<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let seqno = self.next;
        let operation = match &mut self.decoded {
            Some(decoded) => decoded.next()?,
            None => None,
        };
        let next = seqno.checked_add(1);
        let (Some(operation), Some(next)) = (operation, next) else {
            self.done = true;
            let what = "the record's checksum is right, and it is no batch";
            return Some(Err(Corruption::new(self.path, self.offset, what).into()));
        };
        self.next = next;
        Some(Ok(LogOperation { seqno, op: operation.into() }))
    }
}

/// A log or manifest in memory.
#[derive(Debug)]
pub(super) struct Framed {
    pub(super) path: PathBuf,
    pub(super) image: LogImage,
}

impl Framed {
    /// Reads and verifies `file`, assuming the number in its own header.
    pub(super) fn read(file: &dyn ReadFile, path: &Path, kind: FileKind) -> Result<Self> {
        let bytes = read_all(file, path)?;
        let number = FileHeader::number_in(&bytes).or(super::number_of(path)).unwrap_or(0);
        let image = LogImage::decode(bytes, path, kind, number)?;
        Ok(Self { path: path.to_path_buf(), image })
    }

    pub(super) fn summary(&self) -> &Summary {
        self.image.summary()
    }

    /// The file header.
    pub(super) fn header(&self) -> Result<FileHeader> {
        self.summary().header.ok_or_else(|| match &self.summary().verdict {
            Verdict::Damaged(damage) => damage.clone().into(),
            _ => {
                let what = "the file header is cut short, so nothing was ever written behind it";
                Corruption::new(&self.path, 0, what).into()
            }
        })
    }

    /// The corruption of the file, if any.
    pub(super) fn check(&self) -> Result<()> {
        if let Verdict::Damaged(damage) = &self.summary().verdict {
            return Err(damage.clone().into());
        }
        let header = self.summary().header;
        match (header, super::number_of(&self.path)) {
            (Some(header), Some(named)) if header.number != named => {
                let what =
                    format!("it is named as file {named}, and was written as {}", header.number);
                Err(Corruption::new(&self.path, 0, what).into())
            }
            _ => Ok(()),
        }
    }

    pub(super) fn ending(&self) -> Ending {
        let summary = self.summary();
        match &summary.verdict {
            Verdict::Ended { next } => Ending::Marked { next: *next },
            Verdict::Clean => Ending::Open,
            Verdict::Torn(reason) => Ending::Torn {
                offset: summary.end,
                bytes: summary.written_bytes() - summary.end,
                records: summary.later_records,
                what: DropReason::Torn(*reason).to_string(),
            },
            Verdict::Damaged(damage) => Ending::Damaged(damage.clone()),
        }
    }

    pub(super) fn layout(&self) -> Vec<LogSpan> {
        let summary = self.summary();
        let mut spans = Vec::new();
        if summary.header.is_some() {
            let bytes = FILE_HEADER_BYTES as u64;
            spans.push(LogSpan { offset: 0, bytes, kind: LogSpanKind::Header, seqno: None });
        }
        spans.extend(self.image.records().map(|record| LogSpan {
            offset: record.offset,
            bytes: record_bytes(&record),
            kind: LogSpanKind::Record,
            seqno: Some(record.first_seqno),
        }));
        let marker = (RECORD_OVERHEAD_BYTES + END_PAYLOAD_BYTES) as u64;
        let written = summary.written_bytes();
        let behind = written - summary.end;
        let (offset, bytes, kind) = match &summary.verdict {
            Verdict::Ended { .. } => (summary.end - marker, marker, LogSpanKind::EndMarker),
            Verdict::Clean => (summary.end, 0, LogSpanKind::ZerosAhead),
            Verdict::Torn(_) => (summary.end, behind, LogSpanKind::Torn),
            Verdict::Damaged(_) => (summary.end, behind, LogSpanKind::Damaged),
        };
        let ahead = (written, summary.zeros_ahead, LogSpanKind::ZerosAhead);
        let rest = [(offset, bytes, kind), ahead].into_iter().filter(|(_, bytes, _)| *bytes > 0);
        spans.extend(rest.map(|(offset, bytes, kind)| LogSpan {
            offset,
            bytes,
            kind,
            seqno: None,
        }));
        spans
    }
}

/// Length of the whole record.
pub(super) fn record_bytes(record: &Record<'_>) -> u64 {
    (record.payload.len() + RECORD_OVERHEAD_BYTES) as u64
}
