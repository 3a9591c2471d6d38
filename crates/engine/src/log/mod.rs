//! The write-ahead log: batches framed one by one, and the reader that tells a torn tail from
//! damage.
//!
//! * [`format`]: the constants; the page is `docs/format/log.md`.
//! * [`framing`]: one file header, one record; [`mask`]: the sector rule.
//! * [`writer`]: appends groups of records, keeps the book of what is durable.
//! * [`reader`]: the bytes of one file into records and a verdict.
//! * [`recover`]: all logs that the manifest needs into what is replayed and what is dropped.
//!
//! The manifest is framed the same way and uses the writer and the reader of this module. Nothing
//! here knows what a batch holds.

pub(crate) mod format;
pub(crate) mod framing;
mod mask;
pub(crate) mod reader;
pub(crate) mod recover;
pub(crate) mod writer;

#[cfg(test)]
mod golden_tests;
#[cfg(test)]
mod recover_tests;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use trommel_base::Corruption;
use trommel_vfs::{Access, Vfs};

pub(crate) use framing::{FileHeader, FileKind};
pub(crate) use recover::{DropReason, Dropped};
pub(crate) use writer::LogWriter;

/// What goes wrong with a log or a manifest.
#[derive(Debug, Clone)]
pub(crate) enum Error {
    /// The operating system refused.
    Io {
        /// The file concerned.
        file: PathBuf,
        /// Its reason, which names the file.
        source: Arc<io::Error>,
    },
    /// Bytes that fail their checksum, that no writer could have written, or that are missing.
    Corruption(Corruption),
    /// Intact, and beyond this version.
    Unsupported {
        /// The file concerned.
        file: PathBuf,
        /// What it asks for.
        what: String,
    },
}

impl Error {
    /// For `map_err`: an I/O error on `file`.
    pub(crate) fn io(file: &Path) -> impl FnOnce(io::Error) -> Self + '_ {
        |source| Self::Io { file: file.to_path_buf(), source: Arc::new(source) }
    }
}

impl From<Corruption> for Error {
    fn from(corruption: Corruption) -> Self {
        Self::Corruption(corruption)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { source, .. } => source.fmt(f),
            Self::Corruption(corruption) => corruption.fmt(f),
            Self::Unsupported { file, what } => {
                write!(f, "{} needs a newer version of Trommel: {what}", file.display())
            }
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source),
            Self::Corruption(corruption) => Some(corruption),
            Self::Unsupported { .. } => None,
        }
    }
}

/// The whole of a file, its memory asked for and not demanded.
pub(crate) fn read_whole(vfs: &dyn Vfs, path: &Path) -> Result<Vec<u8>, Error> {
    let file = vfs.open(path, Access::Buffered).map_err(Error::io(path))?;
    let too_large = || {
        let text = format!("{} does not fit into memory", path.display());
        Error::io(path)(io::Error::new(io::ErrorKind::OutOfMemory, text))
    };
    let length = usize::try_from(file.bytes()).map_err(|_| too_large())?;
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(length).map_err(|_| too_large())?;
    bytes.resize(length, 0);
    file.read_at(0, &mut bytes).map_err(Error::io(path))?;
    Ok(bytes)
}
