//! Appends records to one file and tracks how much is durable.
//!
//! 1. [`LogWriter::create`] writes the file header and makes header and directory entry durable
//!    *before* any record is appended. So a file with bytes of a record and no valid header is
//!    corrupt, not torn.
//! 2. [`LogWriter::push`] encodes a record in place into a reused buffer; [`LogWriter::commit`]
//!    appends all pushed records to the file in one call, for a whole group of writers.
//! 3. Each record states how much of the file was synced when it was pushed (`durable_to`), and so
//!    proves later that a tear before that point is not legal.
//! 4. If little is appended between syncs, [`LogWriter::sync`] preallocates zeros after the end of
//!    a log. A sync of a file with an unchanged length need not write the length to the device,
//!    which takes a separate write on most file systems. The reader recognizes these zeros by the
//!    file's length.
//! 5. [`LogWriter::finish`] appends the end marker, which names the next log. The order of a
//!    rotation is: create the next log, finish this one, append to the next one.
//!
//! Invariant: after the first failed append or sync nothing is written or synced again; every later
//! call returns that first error.
//!
//! Called by the write path of the engine, and by the manifest's writer.

use std::io;
use std::path::{Path, PathBuf};

use trommel_vfs::{Vfs, WriteFile};

use super::format::{
    AHEAD_BYTES, KIND_DATA, KIND_END, MAX_PAYLOAD_BYTES, RECORD_HEADER_BYTES,
    RECORD_OVERHEAD_BYTES, RECORD_TRAILER,
};
use super::framing::{Binding, FileHeader, FileKind, OFFSET_BYTES, RecordHeader};
use super::mask::mask_if_needed;
use crate::error::Error;

/// Bytes of space preallocated for a log at once: as many as it has, within these bounds.
const LEAST_SPACE: u64 = 64 << 10;
const MOST_SPACE: u64 = 4 << 20;

/// Most bytes of a small sync: preallocated zeros last for eight of them.
const SMALL_SYNC: u64 = AHEAD_BYTES / 8;
/// Number of consecutive small syncs after which zeros are preallocated. The sync of the file
/// header counts as one.
const STEADY: u32 = 4;

/// Capacity that the buffer retains between groups, in bytes.
const KEPT_BUFFER_BYTES: usize = 4 << 20;

/// Appends records to a new log or manifest.
#[derive(Debug)]
pub(crate) struct LogWriter {
    file: Box<dyn WriteFile>,
    path: PathBuf,
    binding: Binding,
    group: Pending,
    /// Length of the file, in bytes.
    end: u64,
    /// File length up to which space is preallocated.
    space_end: u64,
    /// File length up to which zeros were preallocated, or the maximum if none are wanted.
    zeros_end: u64,
    /// Consecutive small syncs.
    small_syncs: u32,
    /// Payload checksum of the last record.
    chain: u32,
    last_seqno: u64,
    synced: u64,
    previous_durable: bool,
    failed: Option<Error>,
}

/// Records pushed and not appended yet, in a reused buffer.
#[derive(Debug, Default)]
struct Pending {
    /// The records, followed by stale bytes to be overwritten.
    buffer: Vec<u8>,
    /// Length of the records, in bytes.
    len: usize,
}

impl Pending {
    /// A slice of `bytes` bytes after the current ones, with arbitrary contents.
    #[inline]
    fn room_for(&mut self, bytes: usize) -> &mut [u8] {
        let start = self.len;
        self.len += bytes;
        if self.buffer.len() < self.len {
            self.buffer.resize(self.len, 0);
        }
        &mut self.buffer[start..self.len]
    }

    fn records(&self) -> &[u8] {
        &self.buffer[..self.len]
    }

    #[inline]
    fn clear(&mut self) {
        self.len = 0;
        if self.buffer.capacity() > KEPT_BUFFER_BYTES {
            self.buffer.truncate(KEPT_BUFFER_BYTES);
            self.buffer.shrink_to(KEPT_BUFFER_BYTES);
        }
    }
}

impl LogWriter {
    /// Creates the file at `path`, which must not exist, and makes its header and its directory
    /// entry durable.
    pub(crate) fn create(vfs: &dyn Vfs, path: &Path, header: &FileHeader) -> Result<Self, Error> {
        let mut writer = Self::create_unsynced(vfs, path, header)?;
        writer.sync()?;
        let parent = path.parent().filter(|dir| !dir.as_os_str().is_empty());
        let dir = parent.unwrap_or(Path::new("."));
        vfs.sync_dir(dir).map_err(Error::on(dir))?;
        Ok(writer)
    }

    /// Like [`LogWriter::create`], for a file that nothing refers to before the caller has synced
    /// it and its directory.
    pub(crate) fn create_unsynced(
        vfs: &dyn Vfs,
        path: &Path,
        header: &FileHeader,
    ) -> Result<Self, Error> {
        let mut file = vfs.create(path).map_err(Error::on(path))?;
        file.append(&header.encode()).map_err(Error::on(path))?;
        Ok(Self {
            end: file.bytes(),
            // A manifest hardly grows.
            space_end: if header.kind == FileKind::Log { 0 } else { u64::MAX },
            zeros_end: if header.kind == FileKind::Log { 0 } else { u64::MAX },
            small_syncs: 0,
            file,
            path: path.to_path_buf(),
            binding: Binding::new(header),
            group: Pending::default(),
            chain: header.chain_start(),
            last_seqno: 0,
            synced: 0,
            previous_durable: false,
            failed: None,
        })
    }

    /// Records that every earlier log is synced or no longer needed. Until then records claim
    /// nothing as durable, not even bytes of this file.
    pub(crate) fn set_previous_durable(&mut self) {
        self.previous_durable = true;
    }

    /// Adds a record with the concatenation of `parts` to the group.
    ///
    /// Sequence numbers increase strictly from record to record (asserted).
    pub(crate) fn push(&mut self, first_seqno: u64, parts: &[&[u8]]) -> Result<(), Error> {
        assert!(first_seqno > self.last_seqno, "records are numbered upwards");
        self.push_kind(KIND_DATA, first_seqno, parts)
    }

    fn push_kind(&mut self, kind: u8, first_seqno: u64, parts: &[&[u8]]) -> Result<(), Error> {
        self.check()?;
        let payload_bytes: usize = parts.iter().map(|part| part.len()).sum();
        if payload_bytes as u64 > MAX_PAYLOAD_BYTES {
            return Err(self.too_long());
        }
        let (offset, durable_to) = (self.bytes(), self.durable_to());
        let record = self.group.room_for(payload_bytes + RECORD_OVERHEAD_BYTES);
        let (trailer, headed) = record.split_last_mut().expect("a record has its overhead");
        *trailer = RECORD_TRAILER;
        let payload = &mut headed[RECORD_HEADER_BYTES..];
        let mut left = &mut *payload;
        for part in parts {
            let (own, behind) = left.split_at_mut(part.len());
            own.copy_from_slice(part);
            left = behind;
        }
        let mask = mask_if_needed(payload, self.binding.salt(), offset);
        // The checksum covers offset and payload. The offset is placed before the payload, in the
        // header's last bytes, until it is computed.
        let bound = &mut headed[RECORD_HEADER_BYTES - OFFSET_BYTES..];
        bound[..OFFSET_BYTES].copy_from_slice(&offset.to_le_bytes());
        let header = RecordHeader {
            kind,
            mask,
            payload_bytes: payload_bytes as u32,
            first_seqno,
            durable_to,
            predecessor: self.chain,
            payload_checksum: self.binding.checksum(bound),
        };
        headed[..RECORD_HEADER_BYTES].copy_from_slice(&header.encode(&self.binding, offset));
        self.chain = header.payload_checksum;
        self.last_seqno = first_seqno;
        Ok(())
    }

    #[cold]
    fn too_long(&self) -> Error {
        let text = format!("a record for {} is above 4 GiB", self.path.display());
        Error::on(&self.path)(io::Error::new(io::ErrorKind::InvalidInput, text))
    }

    /// Appends the group to the file in one call. It then survives a killed process.
    pub(crate) fn commit(&mut self) -> Result<(), Error> {
        self.check()?;
        if self.group.len == 0 {
            return Ok(());
        }
        if self.bytes() > self.space_end {
            self.preallocate();
        }
        let appended = self.file.append(self.group.records());
        self.end = self.file.bytes();
        self.group.clear();
        self.keep_first_error(appended)
    }

    #[cold]
    fn preallocate(&mut self) {
        let more = self.group.len as u64 + self.end.clamp(LEAST_SPACE, MOST_SPACE);
        // A failure is ignored: the append reports a full disk. The next attempt is made only after
        // as many bytes again; otherwise each commit on a nearly full disk would try in vain.
        let _ = self.file.set_space_aside(more);
        self.space_end = self.end + more;
    }

    /// [`LogWriter::push`] and [`LogWriter::commit`].
    pub(crate) fn append(&mut self, first_seqno: u64, parts: &[&[u8]]) -> Result<(), Error> {
        self.push(first_seqno, parts)?;
        self.commit()
    }

    /// Makes all committed records durable.
    pub(crate) fn sync(&mut self) -> Result<(), Error> {
        self.check()?;
        let bytes = self.file.bytes();
        if bytes == self.synced {
            return Ok(());
        }
        self.small_syncs = if bytes - self.synced <= SMALL_SYNC { self.small_syncs + 1 } else { 0 };
        if self.small_syncs >= STEADY && bytes > self.zeros_end {
            self.write_zeros_ahead(bytes);
        }
        let synced = self.file.sync();
        self.keep_first_error(synced)?;
        self.synced = bytes;
        Ok(())
    }

    #[cold]
    fn write_zeros_ahead(&mut self, bytes: u64) {
        self.zeros_end = (bytes + 1).next_multiple_of(AHEAD_BYTES);
        // A failure is ignored: there may still be space for records. The next attempt is made
        // after as many bytes again.
        let _ = self.file.write_zeros_ahead(self.zeros_end);
    }

    /// Appends the end marker, which names the `next` log, already created (0: there is none, the
    /// store is being closed). Does not sync. Nothing may be appended afterwards.
    pub(crate) fn finish(&mut self, next: u64) -> Result<(), Error> {
        self.push_kind(KIND_END, self.last_seqno, &[&next.to_le_bytes()])?;
        self.commit()?;
        // The file may stay for long: until the store is opened, or while a full disk prevents
        // flushes.
        self.file.give_space_back();
        self.zeros_end = u64::MAX;
        Ok(())
    }

    /// The `durable_to` of the next record.
    pub(crate) fn durable_to(&self) -> u64 {
        if self.previous_durable { self.synced } else { 0 }
    }

    /// Length of the file and the pending group, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.end + self.group.len as u64
    }

    #[inline]
    fn check(&self) -> Result<(), Error> {
        match &self.failed {
            None => Ok(()),
            Some(first) => Err(first.clone()),
        }
    }

    #[inline]
    fn keep_first_error(&mut self, result: io::Result<()>) -> Result<(), Error> {
        result.map_err(|error| self.keep_error(error))
    }

    #[cold]
    fn keep_error(&mut self, error: io::Error) -> Error {
        let error = Error::on(&self.path)(error);
        self.failed = Some(error.clone());
        error
    }
}
