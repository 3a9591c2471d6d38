//! Reads a log or manifest to which its writer may still append, from where the last call ended.
//!
//! 1. The file is opened again at each call, because an open file reports its length as of the
//!    opening; its header must be the one that was read before.
//! 2. Records are verified as in any log. The first bytes that are not a good record are the end
//!    for now if they may be an incomplete append: the file ends inside the record, or nothing but
//!    preallocated zeros follows.
//! 3. Otherwise the whole file decides, as in a recovery ([`LogImage`]): a torn end is the end for
//!    now, and the next call begins with the same record. Corruption is an error; but the record
//!    may have been read while it was being written, so the caller tries again before reporting it.
//!
//! Called by followers, which hold no lock on the store, and by change feeds.

use std::path::{Path, PathBuf};

use trommel_base::{Corruption, Decoder};
use trommel_vfs::{Access, Vfs};

use super::ends::LogEnd;
use super::format::{
    AHEAD_BYTES, END_PAYLOAD_BYTES, FILE_HEADER_BYTES, KIND_DATA, KIND_END, RECORD_HEADER_BYTES,
    RECORD_MAGIC, RECORD_TRAILER,
};
use super::framing::{Binding, FileHeader, FileKind, HeaderError, RecordHeader};
use super::reader::{LogImage, LogProgress, Record, Verdict};
use super::stream::FileWindow;
use super::{mask, read_all};
use crate::error::Error;

/// Receives the records of a file, in order.
pub(crate) type TakeRecord<'a> = dyn FnMut(Record<'_>) -> Result<TakenRecord, Error> + 'a;

/// The outcome of passing a record on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TakenRecord {
    /// It was taken: read on.
    Taken,
    /// It was taken, and no further one is wanted by this call.
    Last,
    /// It is passed again at the next call.
    Left,
}

/// A log or manifest, and how far it was read.
#[derive(Debug)]
pub(crate) struct LogTail {
    path: PathBuf,
    kind: FileKind,
    number: u64,
    /// The end that the manifest records, if it does.
    stated: Option<LogEnd>,
    start: Option<Start>,
    /// End of the records read so far.
    at: u64,
    /// The next file, once an end was found; 0 if there is none.
    next: Option<u64>,
    /// The position and the length of the file for which `at` was found to be the end for now.
    judged: Option<(u64, u64)>,
}

/// The state once the file header has been read.
#[derive(Debug)]
struct Start {
    header: FileHeader,
    binding: Binding,
    progress: LogProgress,
}

/// Why reading stopped.
enum TailStop {
    /// At the end of the file, at its end marker, or inside a record that is being appended.
    End,
    /// At bytes that are not a good record.
    NoRecord,
    /// Because no further record is wanted.
    Enough,
}

impl LogTail {
    /// File `number` at `path`, of which nothing was read. `stated` is its end, if the manifest
    /// records it.
    pub(crate) fn new(path: PathBuf, kind: FileKind, number: u64, stated: Option<LogEnd>) -> Self {
        let at = FILE_HEADER_BYTES as u64;
        Self { path, kind, number, stated, start: None, at, next: None, judged: None }
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Its header, once it was read.
    pub(crate) fn header(&self) -> Option<FileHeader> {
        self.start.as_ref().map(|start| start.header)
    }

    /// Whether the manifest records where it ends.
    pub(crate) fn has_stated_end(&self) -> bool {
        self.stated.is_some()
    }

    /// End of the records read so far, in bytes.
    pub(crate) fn end(&self) -> u64 {
        self.at
    }

    /// The same file under another name.
    pub(crate) fn rename(&mut self, path: PathBuf) {
        self.path = path;
    }

    /// Passes the records since the last call to `take`. Returns the number of the next file if
    /// this one has ended, 0 if no file follows; `None` if it has not, or `take` wants no more.
    ///
    /// # Errors
    /// [`Error::Io`] if the file is missing or cannot be read; [`Error::Corruption`]; the error of
    /// `take`, to which its record is passed again at the next call.
    pub(crate) fn read(
        &mut self,
        vfs: &dyn Vfs,
        take: &mut TakeRecord<'_>,
    ) -> Result<Option<u64>, Error> {
        while self.next.is_none() {
            let path = self.path.clone();
            let file = vfs.open(&path, Access::Buffered).map_err(Error::on(&path))?;
            let mut window = FileWindow::new(&*file, &path);
            let length = file.bytes().min(self.stated.map_or(u64::MAX, |stated| stated.end));
            self.begin(&mut window, length)?;
            match self.read_records(&mut window, length, take)? {
                TailStop::End => break,
                TailStop::Enough => return Ok(None),
                TailStop::NoRecord if self.judged == Some((self.at, length)) => break,
                TailStop::NoRecord if self.are_zeros(&mut window, length)? => {
                    self.judged = Some((self.at, length));
                    break;
                }
                TailStop::NoRecord => self.judge(vfs, length)?,
            }
        }
        match self.stated {
            Some(LogEnd { end, .. }) if self.next.is_none() => {
                let what = format!("the manifest says that the log was written up to byte {end}");
                Err(Corruption::new(&self.path, self.at, what).into())
            }
            _ => Ok(self.next),
        }
    }

    /// Checks that the file at the path is the one that was read before.
    pub(crate) fn check_header(&mut self, vfs: &dyn Vfs) -> Result<(), Error> {
        let path = self.path.clone();
        let file = vfs.open(&path, Access::Buffered).map_err(Error::on(&path))?;
        self.begin(&mut FileWindow::new(&*file, &path), file.bytes())
    }

    /// Reads the file header, which must be the same each time.
    fn begin(&mut self, window: &mut FileWindow<'_>, length: u64) -> Result<(), Error> {
        let head_bytes = FILE_HEADER_BYTES as u64;
        let damaged = |what| Error::from(Corruption::new(&self.path, 0, what));
        if length < head_bytes {
            return Err(damaged("the file header is cut short"));
        }
        let head = window.get(0, head_bytes, head_bytes)?;
        let header =
            FileHeader::decode(head, self.kind, self.number).map_err(|error| match error {
                HeaderError::Damaged(what) => damaged(what),
                HeaderError::Unsupported(what) => {
                    Error::Unsupported { file: self.path.clone(), what }
                }
            })?;
        match &self.start {
            Some(start) if start.header == header => Ok(()),
            Some(_) => Err(damaged("it is not the file that it was before")),
            None => {
                let (binding, progress) = (Binding::new(&header), LogProgress::new(&header));
                self.start = Some(Start { header, binding, progress });
                Ok(())
            }
        }
    }

    /// Passes the good records from the current position on to `take`.
    fn read_records(
        &mut self,
        window: &mut FileWindow<'_>,
        length: u64,
        take: &mut TakeRecord<'_>,
    ) -> Result<TailStop, Error> {
        let Some(Start { binding, progress, .. }) = &mut self.start else {
            return Ok(TailStop::End);
        };
        loop {
            let at = self.at;
            if let Some(stated) = self.stated.filter(|stated| stated.end == at) {
                self.next = Some(stated.next);
                return Ok(TailStop::End);
            }
            let left = length.saturating_sub(at);
            if left < RECORD_HEADER_BYTES as u64 {
                let is_begun = left == 0 || window.get(at, left, length)?[0] == RECORD_MAGIC;
                return Ok(if is_begun { TailStop::End } else { TailStop::NoRecord });
            }
            let head = window.get(at, RECORD_HEADER_BYTES as u64, length)?;
            let Some(record) = RecordHeader::decode(head, binding, at) else {
                return Ok(TailStop::NoRecord);
            };
            if record.record_bytes() > left {
                return Ok(TailStop::End);
            }
            let bytes = window.get(at, record.record_bytes(), length)?;
            let Some((payload, [RECORD_TRAILER])) =
                bytes[RECORD_HEADER_BYTES..].split_at_mut_checked(record.payload_bytes as usize)
            else {
                return Ok(TailStop::NoRecord);
            };
            if record.payload_checksum != binding.at(at).with(payload).value() {
                return Ok(TailStop::NoRecord);
            }
            if let Some(what) = progress.refusal(&record, at) {
                return Err(Corruption::new(&self.path, at, what).into());
            }
            let taken = match record.kind {
                KIND_DATA => {
                    mask::apply(payload, binding.salt(), at, record.mask);
                    take(Record { offset: at, first_seqno: record.first_seqno, payload })?
                }
                KIND_END if record.mask == 0 && payload.len() == END_PAYLOAD_BYTES => {
                    // A manifest that states this end may name another log after it.
                    let end = at + record.record_bytes();
                    let stated = self.stated.filter(|stated| stated.end == end);
                    let marked = Decoder::new(payload).u64();
                    self.next = stated.map(|stated| stated.next).or(marked);
                    return Ok(TailStop::End);
                }
                KIND_END => {
                    let what = "the end marker has another length";
                    return Err(Corruption::new(&self.path, at, what).into());
                }
                kind => {
                    let what = format!("the record at byte {at} is of kind {kind}");
                    return Err(Error::Unsupported { file: self.path.clone(), what });
                }
            };
            if taken != TakenRecord::Left {
                progress.accept(&record);
                self.at += record.record_bytes();
            }
            if taken != TakenRecord::Taken {
                return Ok(TailStop::Enough);
            }
        }
    }

    /// Whether only preallocated zeros follow.
    fn are_zeros(&self, window: &mut FileWindow<'_>, length: u64) -> Result<bool, Error> {
        if self.kind != FileKind::Log || !length.is_multiple_of(AHEAD_BYTES) {
            return Ok(false);
        }
        let mut at = self.at;
        while at < length {
            let count = (length - at).min(AHEAD_BYTES);
            if window.get(at, count, length)?.iter().any(|byte| *byte != 0) {
                return Ok(false);
            }
            at += count;
        }
        Ok(true)
    }

    /// Decides whether bytes that are not a good record are the end for now, in a file that had
    /// `length` bytes.
    fn judge(&mut self, vfs: &dyn Vfs, length: u64) -> Result<(), Error> {
        let file = vfs.open(&self.path, Access::Buffered).map_err(Error::on(&self.path))?;
        let mut bytes = read_all(&*file, &self.path)?;
        let counted = self.stated.map_or(u64::MAX, |stated| stated.end);
        bytes.truncate(usize::try_from(counted).unwrap_or(usize::MAX));
        let image = LogImage::decode(bytes, &self.path, self.kind, self.number)?;
        let summary = image.summary();
        // Otherwise the record is complete now.
        if summary.end <= self.at {
            if let Verdict::Damaged(corruption) = &summary.verdict {
                return Err(corruption.clone().into());
            }
            self.judged = Some((self.at, length));
        }
        Ok(())
    }
}
