//! Where blocks go on their way to a file: appended in large strokes, each where it belongs.
//!
//! 1. What is encoded lies in the write buffer until that is full, then it is appended to the file.
//! 2. A part of filters is written piece by piece: each is framed, and is never copied but to the
//!    buffer.
//!
//! Shared by the builders of tables and of filter sidecars.

use std::path::{Path, PathBuf};
use trommel_base::planted::{Bug, planted};

use trommel_vfs::WriteFile;

use crate::filters::BuiltPart;
use crate::format::{BlockKind, FRAME_BYTES, frame};
use crate::{Error, FilterPart};

/// A write buffer that one huge value has made larger than this is not kept.
const KEEP_BUFFER_BYTES: usize = 4 << 20;
/// After so many bytes the system is told to begin to write them to the device.
const WRITE_BACK_BYTES: u64 = 1 << 20;

/// A file that is being written, and what does not lie in it yet.
#[derive(Debug)]
pub(crate) struct Sink {
    file: Box<dyn WriteFile>,
    path: PathBuf,
    /// What the checksums of all blocks are bound to.
    id: u64,
    /// What is encoded and not yet appended to the file.
    pub(crate) out: Vec<u8>,
    /// Bytes appended to the file.
    pub(crate) written: u64,
    /// What of that the system was told to begin to write to the device.
    written_back: u64,
    buffer_bytes: usize,
    /// Filters of another kind than was asked for, among those written.
    pub(crate) fallbacks: u64,
}

impl Sink {
    /// A sink into `file`, which `path` names in errors, with a buffer of so many bytes.
    pub(crate) fn new(file: Box<dyn WriteFile>, path: &Path, id: u64, buffer_bytes: usize) -> Self {
        Self {
            written: file.bytes(),
            written_back: file.bytes(),
            file,
            path: path.to_path_buf(),
            id,
            out: Vec::with_capacity(buffer_bytes),
            buffer_bytes,
            fallbacks: 0,
        }
    }

    /// What errors call the file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Where in the file the next encoded byte will lie.
    pub(crate) fn offset(&self) -> u64 {
        self.written + self.out.len() as u64
    }

    /// Appends to the file what belongs behind the write buffer, which is empty.
    fn append(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let appended = self.file.append(bytes);
        if !planted(Bug::TableWriteErrorIgnored) {
            appended.map_err(|source| Error::io(&self.path, source))?;
        }
        self.written += bytes.len() as u64;
        if self.written >= self.written_back + WRITE_BACK_BYTES {
            self.file.start_write_back();
            self.written_back = self.written;
        }
        Ok(())
    }

    /// Appends the write buffer to the file.
    pub(crate) fn flush(&mut self) -> Result<(), Error> {
        let mut out = std::mem::take(&mut self.out);
        let appended = self.append(&out);
        out.clear();
        self.out = out;
        appended?;
        if self.out.capacity() > KEEP_BUFFER_BYTES {
            self.out = Vec::with_capacity(self.buffer_bytes);
        }
        Ok(())
    }

    /// Makes durable what was appended.
    pub(crate) fn sync(&mut self) -> Result<(), Error> {
        self.file.sync().map_err(|source| Error::io(&self.path, source))
    }

    /// Writes a part of a filter region, and adds what it is to `parts`.
    pub(crate) fn write_part(
        &mut self,
        built: BuiltPart,
        parts: &mut Vec<FilterPart>,
    ) -> Result<(), Error> {
        let BuiltPart { mut part, pieces, top, fallbacks } = built;
        self.fallbacks += fallbacks;
        let first = self.offset();
        for piece in pieces {
            self.write_piece(&piece)?;
        }
        self.flush()?;
        if let Some(top) = top {
            part.top_bytes =
                top.finish_one(&mut self.out, self.id, first, self.written, BlockKind::FilterTop);
            self.flush()?;
        }
        part.bytes = self.written - first;
        parts.push(part);
        Ok(())
    }

    /// Writes a piece of a filter. It is not copied but to the write buffer, if that has room for
    /// it, and neither grows: the memory for filters is counted, and may be short.
    fn write_piece(&mut self, payload: &[u8]) -> Result<(), Error> {
        let frame = frame(payload, self.id, self.offset(), BlockKind::Filter, 0);
        let bytes = payload.len() + FRAME_BYTES;
        if self.out.len() + bytes > self.out.capacity() {
            self.flush()?;
        }
        if bytes <= self.out.capacity() {
            self.out.extend_from_slice(payload);
        } else {
            self.append(payload)?;
        }
        self.out.extend_from_slice(&frame);
        Ok(())
    }
}
