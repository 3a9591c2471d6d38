//! Streams of contents that are hashed, counted and compared with their expected hash and length.

use std::fmt;
use std::io::{self, Read};
use std::sync::Arc;

use sha2::{Digest as _, Sha256};
use trommel::vfs::ReadFile;

use crate::format::Blob;
use crate::progress::Progress;

/// Bytes held in memory at a time.
pub(crate) const CHUNK_BYTES: usize = 1 << 20;

/// The hash of `bytes`.
pub(crate) fn sha256(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

/// A finished file, read from its first byte to its last.
pub(crate) struct FileContent {
    file: Arc<dyn ReadFile>,
    offset: u64,
}

impl FileContent {
    pub(crate) fn new(file: Arc<dyn ReadFile>) -> Self {
        Self { file, offset: 0 }
    }
}

impl Read for FileContent {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.file.bytes() - self.offset;
        let bytes = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
        self.file.read_at(self.offset, &mut buffer[..bytes])?;
        self.offset += bytes as u64;
        Ok(bytes)
    }
}

/// Why a [`Watched`] content stopped before its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Stopped {
    /// Its hash or length differs from the expected one.
    Mismatch(String),
    /// The caller cancelled.
    Cancelled,
}

impl Stopped {
    /// The cause of `error`, if it came from a [`Watched`] content.
    pub(crate) fn find(error: &io::Error) -> Option<&Self> {
        error.get_ref()?.downcast_ref()
    }
}

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mismatch(what) => f.write_str(what),
            Self::Cancelled => f.write_str("interrupted"),
        }
    }
}

impl std::error::Error for Stopped {}

/// A content that is hashed and counted as it is read. If its hash and length are known in advance,
/// its end is reached only if they match; otherwise reading fails with [`Stopped::Mismatch`].
pub(crate) struct Watched<'a> {
    content: &'a mut dyn Read,
    expected: Option<Blob>,
    progress: &'a dyn Progress,
    hash: Sha256,
    bytes: u64,
}

impl<'a> Watched<'a> {
    pub(crate) fn new(
        content: &'a mut dyn Read,
        expected: Option<Blob>,
        progress: &'a dyn Progress,
    ) -> Self {
        Self { content, expected, progress, hash: Sha256::new(), bytes: 0 }
    }

    fn found(&self) -> Blob {
        Blob { sha256: self.hash.clone().finalize().into(), bytes: self.bytes }
    }

    /// Reads to the end and passes the bytes to `sink`.
    pub(crate) fn drain<E: From<io::Error>>(
        mut self,
        mut sink: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<Blob, E> {
        let mut buffer = vec![0; CHUNK_BYTES];
        loop {
            match self.read(&mut buffer)? {
                0 => return Ok(self.found()),
                bytes => sink(&buffer[..bytes])?,
            }
        }
    }

    /// Describes how the bytes read so far differ from the expected content, if they do.
    fn mismatch(&self, is_whole: bool) -> Option<String> {
        let expected = self.expected?;
        if self.bytes > expected.bytes {
            return Some(format!("it is longer than the expected {} bytes", expected.bytes));
        }
        if is_whole && self.bytes < expected.bytes {
            let (found, wanted) = (self.bytes, expected.bytes);
            return Some(format!("it ends after {found} of its {wanted} bytes"));
        }
        (is_whole && self.found() != expected)
            .then(|| "its SHA-256 is not the expected one".to_owned())
    }
}

impl Read for Watched<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.progress.is_cancelled() {
            return Err(io::Error::other(Stopped::Cancelled));
        }
        let read = self.content.read(buffer)?;
        self.hash.update(&buffer[..read]);
        self.bytes += read as u64;
        self.progress.advance(read as u64);
        match self.mismatch(read == 0 && !buffer.is_empty()) {
            Some(what) => Err(io::Error::new(io::ErrorKind::InvalidData, Stopped::Mismatch(what))),
            None => Ok(read),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, expected: Blob) -> Result<Blob, Stopped> {
        let mut content = text.as_bytes();
        Watched::new(&mut content, Some(expected), &())
            .drain(|_| Ok(()))
            .map_err(|error: io::Error| Stopped::find(&error).unwrap().clone())
    }

    #[test]
    fn a_different_content_is_a_mismatch() {
        let expected = Blob { sha256: sha256(b"abc"), bytes: 3 };
        assert_eq!(read("abc", expected), Ok(expected));
        for (text, what) in [("abd", "SHA-256"), ("ab", "ends after 2"), ("abcd", "longer")] {
            let Err(Stopped::Mismatch(found)) = read(text, expected) else { panic!("{text}") };
            assert!(found.contains(what), "{found}");
        }
    }
}
