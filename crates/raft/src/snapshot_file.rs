//! The file of a snapshot, as openraft sends and receives it.
//!
//! It is read and written through the store's file system, within the calls: a chunk is a few
//! hundred KiB of a file that was just written, or a buffered write.

use std::io::{self, SeekFrom};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncSeek, AsyncWrite, ReadBuf};
use trommel::vfs::{Access, ReadFile, Vfs, WriteFile};

use crate::lease::Lease;

/// Bytes that are copied at once.
const COPIED_BYTES: usize = 1 << 20;

/// A snapshot's file: openraft's `SnapshotData`. One that is being received is written without
/// holes, and removed unless it is installed; any other one is read.
#[derive(Debug)]
pub struct SnapshotFile {
    content: Content,
    /// The offset of the next byte to be read or written.
    position: u64,
}

#[derive(Debug)]
enum Content {
    Complete(Arc<dyn ReadFile>),
    Received(ReceivedFile),
}

/// A file that is being received. It is removed when it is dropped.
#[derive(Debug)]
pub(crate) struct ReceivedFile {
    vfs: Arc<dyn Vfs>,
    path: PathBuf,
    number: u64,
    file: Box<dyn WriteFile>,
    is_kept: bool,
    /// Until it is removed, no other open of the node can use its name.
    _lease: Lease,
}

impl ReceivedFile {
    /// Begins the file with this number.
    pub(crate) fn create(
        vfs: &Arc<dyn Vfs>,
        path: PathBuf,
        number: u64,
        lease: Lease,
    ) -> io::Result<Self> {
        let file = vfs.create(&path)?;
        Ok(Self { vfs: Arc::clone(vfs), path, number, file, is_kept: false, _lease: lease })
    }

    /// Appends what it does not have of `bytes`, which begin at `offset`. openraft sends a chunk
    /// again if it got no reply, and begins anew if that fails, with the same bytes: they have the
    /// same id, and checksums that are verified before the file is installed.
    fn write(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        if offset == 0 && self.file.bytes() > 0 {
            self.vfs.remove(&self.path)?;
            self.file = self.vfs.create(&self.path)?;
        }
        let Some(known) = self.file.bytes().checked_sub(offset) else {
            return Err(refuse("a snapshot is received without holes"));
        };
        let known = usize::try_from(known).unwrap_or(usize::MAX);
        match bytes.get(known..) {
            Some(new) => self.file.append(new),
            None => Ok(()),
        }
    }

    /// Makes its bytes and its name durable, and returns its path.
    pub(crate) fn complete(&mut self) -> io::Result<&Path> {
        self.file.sync()?;
        if let Some(dir) = self.path.parent() {
            self.vfs.sync_dir(dir)?;
        }
        Ok(&self.path)
    }

    /// Its number.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Does not remove it.
    pub(crate) fn keep(mut self) {
        self.is_kept = true;
    }
}

impl Drop for ReceivedFile {
    fn drop(&mut self) {
        if !self.is_kept {
            // The next open removes it otherwise.
            let _ = self.vfs.remove(&self.path);
        }
    }
}

impl SnapshotFile {
    /// A file to be received.
    pub(crate) fn new(received: ReceivedFile) -> Self {
        Self { content: Content::Received(received), position: 0 }
    }

    /// Opens a complete file.
    pub(crate) fn open(vfs: &dyn Vfs, path: &Path) -> io::Result<Self> {
        let file = vfs.open(path, Access::Buffered)?;
        Ok(Self { content: Content::Complete(file), position: 0 })
    }

    /// The file as it was received; one that was not is copied to a new file.
    pub(crate) fn received(
        self,
        create: impl FnOnce() -> io::Result<ReceivedFile>,
    ) -> io::Result<ReceivedFile> {
        let source = match self.content {
            Content::Received(received) => return Ok(received),
            Content::Complete(file) => file,
        };
        let mut copy = create()?;
        let mut buffer = vec![0; COPIED_BYTES];
        while copy.file.bytes() < source.bytes() {
            let from = copy.file.bytes();
            let rest = usize::try_from(source.bytes() - from).unwrap_or(usize::MAX);
            let part = &mut buffer[..rest.min(COPIED_BYTES)];
            source.read_at(from, part)?;
            copy.file.append(part)?;
        }
        Ok(copy)
    }

    fn bytes(&self) -> u64 {
        match &self.content {
            Content::Complete(file) => file.bytes(),
            Content::Received(received) => received.file.bytes(),
        }
    }

    /// Reads what fits into `buffer`, which is nothing at the end of the file.
    fn read(&mut self, buffer: &mut ReadBuf<'_>) -> io::Result<()> {
        let rest = self.bytes().saturating_sub(self.position);
        let Content::Complete(file) = &self.content else {
            return Err(refuse("this snapshot is still being received"));
        };
        let count = buffer.remaining().min(usize::try_from(rest).unwrap_or(usize::MAX));
        file.read_at(self.position, buffer.initialize_unfilled_to(count))?;
        buffer.advance(count);
        self.position += count as u64;
        Ok(())
    }

    /// Writes all of `bytes`.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Content::Received(received) = &mut self.content else {
            return Err(refuse("this snapshot is complete"));
        };
        received.write(self.position, bytes)?;
        self.position += bytes.len() as u64;
        Ok(bytes.len())
    }
}

fn refuse(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

impl AsyncRead for SnapshotFile {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Poll::Ready(self.read(buffer))
    }
}

impl AsyncWrite for SnapshotFile {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Poll::Ready(self.write(bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl AsyncSeek for SnapshotFile {
    fn start_seek(mut self: Pin<&mut Self>, to: SeekFrom) -> io::Result<()> {
        let position = match to {
            SeekFrom::Start(offset) => Some(offset),
            SeekFrom::End(offset) => self.bytes().checked_add_signed(offset),
            SeekFrom::Current(offset) => self.position.checked_add_signed(offset),
        };
        self.position = position.ok_or_else(|| refuse("no file has this offset"))?;
        Ok(())
    }

    fn poll_complete(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<u64>> {
        Poll::Ready(Ok(self.position))
    }
}
