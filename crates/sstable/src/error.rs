//! What can go wrong with a table, by what the caller can do next.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fmt, io};

use trommel_base::Corruption;

/// Why a table could not be written or read.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Error {
    /// The file system refused: try again, or look at the disk.
    Io {
        /// The file being read or written.
        file: PathBuf,
        /// What the file system said.
        source: Arc<io::Error>,
    },
    /// The file is damaged: restore it.
    Corruption(Corruption),
    /// The file was written by something that knows more than this build: upgrade.
    Unsupported {
        /// The file.
        file: PathBuf,
        /// What is not known.
        what: Cow<'static, str>,
    },
    /// An entry that no table can hold: out of order, or beyond the limits on keys and values.
    /// Nothing of it was written; the table being built is of no use any more.
    Rejected {
        /// The file being written.
        file: PathBuf,
        /// What is wrong with the entry.
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
