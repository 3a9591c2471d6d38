//! Buffered output of blocks to a file.
//!
//! 1. Encoded bytes collect in the write buffer, which is appended to the file when full.
//! 2. A part of the filters is written partition by partition: each is framed, and copied at most
//!    once, into the write buffer.
//!
//! Shared by the builders of tables and of filter sidecars.

use std::path::{Path, PathBuf};

use trommel_vfs::WriteFile;

use crate::filters::BuiltPart;
use crate::format::{BlockKind, FRAME_BYTES, frame};
use crate::{Error, FilterPart};

/// A write buffer that grew beyond this for one huge value is not kept.
const KEEP_BUFFER_BYTES: usize = 4 << 20;
/// Interval in bytes at which write-back to the device is started.
const WRITE_BACK_BYTES: u64 = 1 << 20;

/// A file under construction and the bytes not yet appended to it.
#[derive(Debug)]
pub(crate) struct Sink {
    file: Box<dyn WriteFile>,
    path: PathBuf,
    /// The id that the checksums of all blocks are bound to.
    id: u64,
    /// Encoded bytes not yet appended to the file.
    pub(crate) out: Vec<u8>,
    /// Bytes appended to the file.
    pub(crate) written: u64,
    /// Bytes whose write-back was started.
    written_back: u64,
    buffer_bytes: usize,
    /// Filters written with a fallback kind.
    pub(crate) fallbacks: u64,
}

impl Sink {
    /// A sink that appends to `file`, with a buffer of `buffer_bytes`. `path` names the file in
    /// errors.
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

    /// The file's path in errors.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// File offset of the next encoded byte.
    pub(crate) fn offset(&self) -> u64 {
        self.written + self.out.len() as u64
    }

    /// Appends `bytes` to the file. The write buffer must be empty.
    fn append(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.file.append(bytes).map_err(|source| Error::io(&self.path, source))?;
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

    /// Makes the appended bytes durable.
    pub(crate) fn sync(&mut self) -> Result<(), Error> {
        self.file.sync().map_err(|source| Error::io(&self.path, source))
    }

    /// Writes a part of a filter region and adds its description to `parts`.
    pub(crate) fn write_part(
        &mut self,
        built: BuiltPart,
        parts: &mut Vec<FilterPart>,
    ) -> Result<(), Error> {
        let BuiltPart { mut part, partitions, top, fallbacks } = built;
        self.fallbacks += fallbacks;
        let first = self.offset();
        for partition in partitions {
            self.write_partition(&partition)?;
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

    /// Writes a filter partition. Copies it only if the write buffer has room for it, and grows
    /// neither buffer: memory for filters is budgeted and may be short.
    fn write_partition(&mut self, payload: &[u8]) -> Result<(), Error> {
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
