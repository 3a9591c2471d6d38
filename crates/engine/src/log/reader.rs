//! Decodes the bytes of one log or manifest into records and a verdict.
//!
//! [`LogImage::decode`] verifies records from the front: header checksum, payload checksum,
//! trailer, the predecessor's checksum, strictly increasing sequence numbers. It stops at the end
//! of the file (`Clean`), at an end marker that is the last thing in it (`Ended`), or at the first
//! offset X without a good record. There it must decide what happened.
//!
//! **Torn** is the effect of a power cut on bytes that were appended and not synced: the file is
//! shorter, or any of the unsynced sectors (or the unsynced part of the sector in which the synced
//! bytes end) reads as zeros. The verdict is `Torn` if and only if
//!
//! 1. the file ends inside the record at X: it is too short for the header (and its first byte is a
//!    record's), or the header is good and the payload does not fit; or
//! 2. for some aligned 512-byte sector that overlaps the record at X (only its header, if that is
//!    bad and the length therefore unknown), all bytes from X or the sector's start, whichever is
//!    later, to the sector's end or the file's are zero;
//!
//! and no good record header after X states `durable_to` > X.
//!
//! *No legal tear is reported as corruption.* The synced bytes end at S, the end of a record, and
//! everything before S is good, so X >= S. The record at X is bad because the file was cut inside
//! it (case 1; the rest of its header is intact or zero, and zeros are case 2) or because an
//! overlapping sector was zeroed from S or its own start on, which includes the bytes of case 2. (A
//! sector may also have reached the disk between two appends: its zeros then begin at the end of a
//! record at or before X.) If the header was hit, a sector that overlaps the header was. No record
//! after X can state `durable_to` > X, since the bytes at X were never synced while the writer
//! lived.
//!
//! *No flipped bit is reported as a tear.* A file with one flipped bit has its old length, so case
//! 1 would need a valid header whose payload does not fit, which was never written, or a cut
//! header, likewise. Every zero run of case 2 contains, as written, the first byte of a record (at
//! X), or its last one, or a sector wholly inside the record with eight non-zero bytes
//! ([`mask`](super::mask)): at least five set bits, which one flip does not clear. In general, four
//! flipped bits in one record are always reported as corruption, if the checksum detects them.
//!
//! *Preallocated zeros*, which the [`writer`](super::writer) writes after the appended bytes, are
//! not part of a log: if its length is a multiple of 64 KiB, it is read as if it ended with its
//! last non-zero byte. That is the last byte of a record, or it lies in a record whose append was
//! cut short, or after which bytes were lost: a file without preallocated zeros may be left in each
//! of these states too. A flipped bit cannot make a record's last byte zero.
//!
//! *An I/O error is never a tear*: all bytes are read before anything is decided.
//!
//! A tear in the file header follows the same rule: header and directory entry are durable before
//! the first record is appended ([`writer`](super::writer)), so only a file of at most 64 bytes can
//! be torn there.
//!
//! Everything else that is not a good record is corruption. [`recover`](super::recover) decides
//! what a verdict means in a sequence of logs.

use std::path::Path;

use trommel_base::{Corruption, Decoder};

use super::format::{
    AHEAD_BYTES, END_PAYLOAD_BYTES, FILE_HEADER_BYTES, KIND_DATA, KIND_END, RECORD_HEADER_BYTES,
    RECORD_MAGIC, RECORD_TRAILER, SECTOR_BYTES,
};
use super::framing::{Binding, FileHeader, FileKind, HeaderError, RecordHeader};
use super::mask;
use crate::error::Error;

/// How a file ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// With an end marker, which names the next log (0: none).
    Ended {
        /// The number of the next log.
        next: u64,
    },
    /// At the end of a record, as after a killed process.
    Clean,
    /// Inside a record torn by a power cut.
    Torn(TearReason),
    /// In bytes that no power cut explains.
    Damaged(Corruption),
}

/// The evidence of a tear.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TearReason {
    /// The file ends inside a record's (or its own) header.
    CutHeader,
    /// The file ends inside a record's payload.
    CutPayload,
    /// A sector of the record reads as zeros.
    ZeroSector,
}

/// The result of decoding one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Summary {
    /// The file header, unless the file was torn in it.
    pub(crate) header: Option<FileHeader>,
    /// End of the good records (and the end marker).
    pub(crate) end: u64,
    /// Length of the file.
    pub(crate) file_bytes: u64,
    /// Of these, preallocated zeros at the end.
    pub(crate) zeros_ahead: u64,
    /// Good records before `end`, without the end marker.
    pub(crate) records: u64,
    /// First sequence numbers of the first and the last of them.
    pub(crate) seqnos: Option<(u64, u64)>,
    /// Good record headers after `end`.
    pub(crate) later_records: u64,
    /// Whether any record, before or after `end`, states that all earlier files are durable.
    pub(crate) claims_durable: bool,
    /// How the file ends.
    pub(crate) verdict: Verdict,
}

/// One good record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Record<'a> {
    /// Its offset in the file.
    pub(crate) offset: u64,
    /// Its first sequence number; in a manifest, its ordinal.
    pub(crate) first_seqno: u64,
    /// The payload as appended.
    pub(crate) payload: &'a [u8],
}

/// A file in memory, verified.
#[derive(Debug)]
pub(crate) struct LogImage {
    /// The file, with the payloads of good records unmasked.
    bytes: Vec<u8>,
    summary: Summary,
}

impl LogImage {
    /// Verifies `bytes`, the whole of file `number` at `path`. The only error is `Unsupported`;
    /// corruption is a verdict.
    pub(crate) fn decode(
        mut bytes: Vec<u8>,
        path: &Path,
        kind: FileKind,
        number: u64,
    ) -> Result<Self, Error> {
        let header = match FileHeader::decode(&bytes, kind, number) {
            Ok(header) => header,
            Err(HeaderError::Unsupported(what)) => {
                return Err(Error::Unsupported { file: path.to_path_buf(), what });
            }
            Err(HeaderError::Damaged(what)) => {
                let verdict = match tear_in_file_header(&bytes, kind) {
                    Some(reason) => Verdict::Torn(reason),
                    None => Verdict::Damaged(Corruption::new(path, 0, what)),
                };
                return Ok(Self { summary: Summary::without_header(&bytes, verdict), bytes });
            }
        };
        let file_bytes = bytes.len() as u64;
        if kind == FileKind::Log {
            trim_zeros(&mut bytes);
        }
        let mut scan = Scan::new(bytes, path, &header);
        let verdict = loop {
            match scan.step()? {
                ReadStep::Record => {}
                ReadStep::Stop(verdict) => break verdict,
            }
        };
        Ok(scan.finish(header, verdict, file_bytes))
    }

    /// The result of decoding.
    pub(crate) fn summary(&self) -> &Summary {
        &self.summary
    }

    /// The stored bytes after the last good record, and their offset.
    pub(super) fn rest(&self) -> (u64, &[u8]) {
        let rest = usize::try_from(self.summary.end).ok().and_then(|end| self.bytes.get(end..));
        (self.summary.end, rest.unwrap_or_default())
    }

    /// The good records, in order.
    pub(crate) fn records(&self) -> impl Iterator<Item = Record<'_>> {
        let mut offset = FILE_HEADER_BYTES;
        std::iter::from_fn(move || {
            let (record, next) = self.record_at(offset)?;
            offset = next;
            Some(record)
        })
    }

    /// The verified record at `offset`, and the offset of the next one.
    fn record_at(&self, offset: usize) -> Option<(Record<'_>, usize)> {
        if offset as u64 >= self.summary.end {
            return None;
        }
        let mut decoder = Decoder::new(self.bytes.get(offset..)?);
        decoder.u8()?;
        let kind = decoder.u8()?;
        decoder.u16()?;
        let payload_bytes = decoder.u32()? as usize;
        let first_seqno = decoder.u64()?;
        if kind != KIND_DATA {
            return None;
        }
        let start = offset + RECORD_HEADER_BYTES;
        let payload = self.bytes.get(start..)?.get(..payload_bytes)?;
        let record = Record { offset: offset as u64, first_seqno, payload };
        Some((record, start + payload_bytes + 1))
    }
}

impl Summary {
    fn without_header(bytes: &[u8], verdict: Verdict) -> Self {
        Self {
            header: None,
            end: 0,
            file_bytes: bytes.len() as u64,
            zeros_ahead: 0,
            records: 0,
            seqnos: None,
            later_records: 0,
            claims_durable: false,
            verdict,
        }
    }

    /// Length of the file without preallocated zeros.
    pub(crate) fn written_bytes(&self) -> u64 {
        self.file_bytes - self.zeros_ahead
    }

    /// Whether the file has any bytes after its header.
    pub(crate) fn has_content(&self) -> bool {
        self.written_bytes() > FILE_HEADER_BYTES as u64
    }
}

/// Whether a power cut explains a bad file header.
fn tear_in_file_header(bytes: &[u8], kind: FileKind) -> Option<TearReason> {
    if bytes.len() > FILE_HEADER_BYTES {
        return None;
    }
    if bytes.iter().all(|byte| *byte == 0) {
        return Some(TearReason::ZeroSector);
    }
    let magic = kind.magic();
    let seen = bytes.len().min(magic.len());
    let cut = bytes.len() < FILE_HEADER_BYTES && bytes[..seen] == magic[..seen];
    cut.then_some(TearReason::CutHeader)
}

/// Removes preallocated zeros from the bytes of a log with an intact file header.
fn trim_zeros(bytes: &mut Vec<u8>) {
    if (bytes.len() as u64).is_multiple_of(AHEAD_BYTES) {
        let zeros = bytes.iter().rev().take_while(|byte| **byte == 0).count();
        bytes.truncate((bytes.len() - zeros).max(FILE_HEADER_BYTES));
    }
}

enum ReadStep {
    Record,
    Stop(Verdict),
}

/// An iteration over the records of one file.
struct Scan<'a> {
    bytes: Vec<u8>,
    path: &'a Path,
    binding: Binding,
    /// Offset of the next record.
    at: usize,
    progress: LogProgress,
}

/// State of the verification after the good records so far.
#[derive(Debug)]
pub(super) struct LogProgress {
    /// The predecessor checksum expected in the next record.
    chain: u32,
    records: u64,
    seqnos: Option<(u64, u64)>,
    max_durable_to: u64,
}

impl LogProgress {
    /// The state at the start of a file with this header.
    pub(super) fn new(header: &FileHeader) -> Self {
        Self { chain: header.chain_start(), records: 0, seqnos: None, max_durable_to: 0 }
    }

    /// Why the intact record at `offset` does not fit its predecessors, if it does not.
    pub(super) fn refusal(&self, header: &RecordHeader, offset: u64) -> Option<&'static str> {
        if header.predecessor != self.chain {
            return Some("the record before this one was another");
        }
        if header.durable_to > offset {
            return Some("the record claims what was not yet written");
        }
        let last_seqno = self.seqnos.map_or(0, |(_, last)| last);
        let is_late = header.kind == KIND_DATA && header.first_seqno <= last_seqno;
        is_late.then_some("the sequence numbers do not increase")
    }

    /// Records the fields of a fitting record.
    pub(super) fn accept(&mut self, header: &RecordHeader) {
        self.max_durable_to = self.max_durable_to.max(header.durable_to);
        if header.kind == KIND_DATA {
            let first = self.seqnos.map_or(header.first_seqno, |(first, _)| first);
            self.seqnos = Some((first, header.first_seqno));
            self.chain = header.payload_checksum;
            self.records += 1;
        }
    }

    /// The summary of an intact file of `file_bytes`, whose records end at `end`.
    pub(super) fn summary(
        &self,
        header: FileHeader,
        end: u64,
        file_bytes: u64,
        verdict: Verdict,
    ) -> Summary {
        Summary {
            header: Some(header),
            end,
            file_bytes,
            zeros_ahead: file_bytes - end,
            records: self.records,
            seqnos: self.seqnos,
            later_records: 0,
            claims_durable: self.max_durable_to > 0,
            verdict,
        }
    }
}

impl<'a> Scan<'a> {
    fn new(bytes: Vec<u8>, path: &'a Path, header: &FileHeader) -> Self {
        Self {
            bytes,
            path,
            binding: Binding::new(header),
            at: FILE_HEADER_BYTES,
            progress: LogProgress::new(header),
        }
    }

    /// Accepts one good record, or decides why there is none.
    fn step(&mut self) -> Result<ReadStep, Error> {
        let rest = &self.bytes[self.at..];
        if rest.is_empty() {
            return Ok(ReadStep::Stop(Verdict::Clean));
        }
        let offset = self.at as u64;
        let Some(header) = RecordHeader::decode(rest, &self.binding, offset) else {
            let verdict = match self.tear_in_header() {
                Some(reason) => Verdict::Torn(reason),
                None => self.damaged("there is no intact record header"),
            };
            return Ok(ReadStep::Stop(verdict));
        };
        let payload_end = RECORD_HEADER_BYTES + header.payload_bytes as usize;
        let payload = rest.get(RECORD_HEADER_BYTES..payload_end);
        let (Some(payload), Some(trailer)) = (payload, rest.get(payload_end)) else {
            return Ok(ReadStep::Stop(Verdict::Torn(TearReason::CutPayload)));
        };
        let is_whole = *trailer == RECORD_TRAILER
            && header.payload_checksum == self.binding.at(offset).with(payload).value();
        if !is_whole {
            let verdict = match self.zero_sector(header.record_bytes() as usize) {
                true => Verdict::Torn(TearReason::ZeroSector),
                false => self.damaged("the record fails its checksum"),
            };
            return Ok(ReadStep::Stop(verdict));
        }
        self.take(&header, payload_end)
    }

    /// Accepts the verified record at `self.at`, if it fits its predecessors.
    fn take(&mut self, header: &RecordHeader, payload_end: usize) -> Result<ReadStep, Error> {
        if let Some(what) = self.progress.refusal(header, self.at as u64) {
            return Ok(ReadStep::Stop(self.damaged(what)));
        }
        self.progress.accept(header);
        match header.kind {
            KIND_DATA => {
                let (start, end) = (self.at + RECORD_HEADER_BYTES, self.at + payload_end);
                let offset = self.at as u64;
                mask::apply(&mut self.bytes[start..end], self.binding.salt(), offset, header.mask);
                self.at = end + 1;
                Ok(ReadStep::Record)
            }
            KIND_END if header.mask != 0 => {
                Ok(ReadStep::Stop(self.damaged("an end marker is never masked")))
            }
            KIND_END => Ok(ReadStep::Stop(self.take_end(payload_end))),
            kind => {
                let what = format!("the record at byte {} is of kind {kind}", self.at);
                Err(Error::Unsupported { file: self.path.to_path_buf(), what })
            }
        }
    }

    fn take_end(&mut self, payload_end: usize) -> Verdict {
        let payload = &self.bytes[self.at + RECORD_HEADER_BYTES..self.at + payload_end];
        if payload.len() != END_PAYLOAD_BYTES {
            return self.damaged("the end marker has another length");
        }
        let Some(next) = Decoder::new(payload).u64() else {
            return self.damaged("the end marker has another length");
        };
        let end = self.at + payload_end + 1;
        if end != self.bytes.len() {
            return self.damaged("there are bytes behind the end marker");
        }
        self.at = end;
        Verdict::Ended { next }
    }

    fn damaged(&self, what: &'static str) -> Verdict {
        Verdict::Damaged(Corruption::new(self.path, self.at as u64, what))
    }

    /// Whether a power cut explains the bad header at `self.at`.
    fn tear_in_header(&self) -> Option<TearReason> {
        if self.zero_sector(RECORD_HEADER_BYTES) {
            return Some(TearReason::ZeroSector);
        }
        let rest = &self.bytes[self.at..];
        let cut = rest.len() < RECORD_HEADER_BYTES && rest.first() == Some(&RECORD_MAGIC);
        cut.then_some(TearReason::CutHeader)
    }

    /// Whether a sector that overlaps the `length` bytes at `self.at` is zero, from there or from
    /// its start to its end or the file's.
    fn zero_sector(&self, length: usize) -> bool {
        let sector_bytes = SECTOR_BYTES as usize;
        let end = (self.at + length).min(self.bytes.len());
        let mut from = self.at;
        while from < end {
            let sector_end = (from / sector_bytes + 1) * sector_bytes;
            let run = &self.bytes[from..sector_end.min(self.bytes.len())];
            if run.iter().all(|byte| *byte == 0) {
                return true;
            }
            from = sector_end;
        }
        false
    }

    /// Searches for good record headers after `self.at`, and builds the result.
    fn finish(mut self, header: FileHeader, verdict: Verdict, file_bytes: u64) -> LogImage {
        let behind = match &verdict {
            Verdict::Clean | Verdict::Ended { .. } => LaterHeaders::default(),
            Verdict::Torn(_) | Verdict::Damaged(_) => self.search(),
        };
        let at = self.at as u64;
        let verdict = match verdict {
            Verdict::Torn(_) if behind.max_durable_to > at => {
                let durable_to = behind.max_durable_to;
                let text = format!(
                    "the bytes here are gone, yet a record behind them shows that the file was \
                     synced up to byte {durable_to}"
                );
                Verdict::Damaged(Corruption::new(self.path, at, text))
            }
            other => other,
        };
        let whole = self.progress.summary(header, at, file_bytes, verdict);
        let summary = Summary {
            zeros_ahead: file_bytes - self.bytes.len() as u64,
            later_records: behind.records,
            claims_durable: whole.claims_durable || behind.max_durable_to > 0,
            ..whole
        };
        LogImage { bytes: std::mem::take(&mut self.bytes), summary }
    }

    fn search(&self) -> LaterHeaders {
        let mut behind = LaterHeaders::default();
        let mut from = self.at + 1;
        while let Some(rest) = self.bytes.get(from..) {
            let Some(skip) = rest.iter().position(|byte| *byte == RECORD_MAGIC) else { break };
            let at = from + skip;
            let offset = at as u64;
            if let Some(header) = RecordHeader::decode(&self.bytes[at..], &self.binding, offset)
                && header.durable_to <= offset
            {
                behind.records += u64::from(header.kind == KIND_DATA);
                behind.max_durable_to = behind.max_durable_to.max(header.durable_to);
            }
            from = at + 1;
        }
        behind
    }
}

/// Fields of the good record headers after the last good record.
#[derive(Debug, Default)]
struct LaterHeaders {
    records: u64,
    max_durable_to: u64,
}
