//! Reads a log with one record in memory at a time, for logs too large to be kept in memory.
//!
//! This works only for an intact log, one that ends with its last record or with an end marker. For
//! any other log, [`LogImage`](super::reader::LogImage) decides what happened, from all of its
//! bytes.

use std::ops::ControlFlow;
use std::path::Path;

use trommel_base::Decoder;
use trommel_vfs::ReadFile;

use super::format::{
    AHEAD_BYTES, END_PAYLOAD_BYTES, FILE_HEADER_BYTES, KIND_DATA, KIND_END, RECORD_HEADER_BYTES,
    RECORD_TRAILER,
};
use super::framing::{Binding, FileHeader, FileKind, RecordHeader};
use super::reader::{LogProgress, Record, Summary, Verdict};
use super::{LONGEST_BYTES, mask};
use crate::error::Error;

/// Bytes per read, unless a record is longer.
const WINDOW_BYTES: u64 = 1 << 20;

/// Passes the records of log `number`, in `file` at `path`, to `take` until that breaks. Returns
/// the summary of the log; `None` if it is not intact, or if `take` broke.
pub(super) fn read_records(
    file: &dyn ReadFile,
    path: &Path,
    number: u64,
    take: &mut dyn FnMut(Record<'_>) -> Result<ControlFlow<()>, Error>,
) -> Result<Option<Summary>, Error> {
    let file_bytes = file.bytes();
    let head_bytes = FILE_HEADER_BYTES as u64;
    if !(head_bytes..=LONGEST_BYTES).contains(&file_bytes) {
        return Ok(None);
    }
    let mut window = FileWindow::new(file, path);
    let end = match file_bytes.is_multiple_of(AHEAD_BYTES) {
        true => window.end_before_zeros(file_bytes)?.max(head_bytes),
        false => file_bytes,
    };
    let head = window.get(0, head_bytes, end)?;
    let Ok(header) = FileHeader::decode(head, FileKind::Log, number) else { return Ok(None) };
    let binding = Binding::new(&header);
    let mut progress = LogProgress::new(&header);
    let mut at = head_bytes;
    let verdict = loop {
        if at == end {
            break Verdict::Clean;
        }
        if end - at < RECORD_HEADER_BYTES as u64 {
            return Ok(None);
        }
        let head = window.get(at, RECORD_HEADER_BYTES as u64, end)?;
        let Some(record) = RecordHeader::decode(head, &binding, at) else { return Ok(None) };
        if record.record_bytes() > end - at || progress.refusal(&record, at).is_some() {
            return Ok(None);
        }
        let bytes = window.get(at, record.record_bytes(), end)?;
        let Some((payload, [RECORD_TRAILER])) =
            bytes[RECORD_HEADER_BYTES..].split_at_mut_checked(record.payload_bytes as usize)
        else {
            return Ok(None);
        };
        if record.payload_checksum != binding.at(at).with(payload).value() {
            return Ok(None);
        }
        let next = at + record.record_bytes();
        match record.kind {
            KIND_DATA => {
                mask::apply(payload, binding.salt(), at, record.mask);
                let record = Record { offset: at, first_seqno: record.first_seqno, payload };
                if take(record)?.is_break() {
                    return Ok(None);
                }
            }
            KIND_END if record.mask == 0 && payload.len() == END_PAYLOAD_BYTES && next == end => {
                progress.accept(&record);
                let next = Decoder::new(payload).u64().unwrap_or_default();
                break Verdict::Ended { next };
            }
            _ => return Ok(None),
        }
        progress.accept(&record);
        at = next;
    };
    Ok(Some(progress.summary(header, end, file_bytes, verdict)))
}

/// The part of a file in memory.
pub(super) struct FileWindow<'a> {
    file: &'a dyn ReadFile,
    path: &'a Path,
    /// Its offset in the file.
    from: u64,
    bytes: Vec<u8>,
}

impl<'a> FileWindow<'a> {
    /// An empty window of `file`, which is at `path`.
    pub(super) fn new(file: &'a dyn ReadFile, path: &'a Path) -> Self {
        Self { file, path, from: 0, bytes: Vec::new() }
    }

    /// The `count` bytes from `at`, which end at or before `end`.
    pub(super) fn get(&mut self, at: u64, count: u64, end: u64) -> Result<&mut [u8], Error> {
        let is_there = at >= self.from && at + count <= self.from + self.bytes.len() as u64;
        if !is_there {
            self.bytes.clear();
            let wanted = count.max(WINDOW_BYTES.min(end - at)) as usize;
            self.bytes.try_reserve_exact(wanted).map_err(|_| super::too_large(self.path))?;
            self.bytes.resize(wanted, 0);
            self.bytes.shrink_to(WINDOW_BYTES as usize);
            self.from = at;
            self.file.read_at(at, &mut self.bytes).map_err(Error::on(self.path))?;
        }
        let start = (at - self.from) as usize;
        Ok(&mut self.bytes[start..start + count as usize])
    }

    /// The start of the trailing zeros of the file of `file_bytes` bytes.
    fn end_before_zeros(&mut self, file_bytes: u64) -> Result<u64, Error> {
        let mut end = file_bytes;
        while end > 0 {
            let from = end.saturating_sub(WINDOW_BYTES);
            let bytes = self.get(from, end - from, end)?;
            if let Some(last) = bytes.iter().rposition(|byte| *byte != 0) {
                return Ok(from + last as u64 + 1);
            }
            end = from;
        }
        Ok(0)
    }
}
