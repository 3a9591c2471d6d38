//! Errors of the table format, classified by what the caller can do next.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fmt, io};

use trommel_base::Corruption;

/// Why a table could not be written or read.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Error {
    /// The file system returned an error: retry, or check the disk.
    Io {
        /// The file being read or written.
        file: PathBuf,
        /// The error of the file system.
        source: Arc<io::Error>,
    },
    /// The file is corrupt: restore it.
    Corruption(Corruption),
    /// The file uses a feature that this build does not support: upgrade.
    Unsupported {
        /// The file.
        file: PathBuf,
        /// The unsupported feature.
        what: Cow<'static, str>,
    },
    /// A table cannot hold the entry: it is out of order, or beyond the limits on keys and values.
    /// Nothing of it was written, and the table under construction must be discarded.
    Rejected {
        /// The file being written.
        file: PathBuf,
        /// Why the entry was rejected.
        what: &'static str,
    },
}

impl Error {
    pub(crate) fn io(file: &Path, source: io::Error) -> Self {
        Self::Io { file: file.to_path_buf(), source: Arc::new(source) }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { file, source } => write!(f, "{}: {source}", file.display()),
            Self::Corruption(corruption) => corruption.fmt(f),
            Self::Unsupported { file, what } => write!(f, "{}: {what}", file.display()),
            Self::Rejected { file, what } => {
                write!(f, "{} cannot take an entry: {what}", file.display())
            }
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(&**source),
            Self::Corruption(corruption) => Some(corruption),
            Self::Unsupported { .. } | Self::Rejected { .. } => None,
        }
    }
}
