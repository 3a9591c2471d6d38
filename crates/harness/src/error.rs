//! Why a run ended early.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// The error of a store, of any type.
pub type StoreError = Box<dyn std::error::Error + Send + Sync>;

/// Why a run ended early.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The error of a store.
    Store(StoreError),
    /// A result could not be written.
    Output(io::Error),
    /// A file or directory of the run (not of the store) could not be used.
    Io {
        /// The file or directory.
        file: PathBuf,
        /// The operation that failed.
        doing: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// The run is impossible as requested; the text describes a valid one.
    Usage(String),
    /// [`Stop`](crate::Stop) was set; the results up to then have been printed.
    Interrupted,
}

impl Error {
    /// Of a file or directory of the run.
    pub fn io(file: impl Into<PathBuf>, doing: &'static str, source: io::Error) -> Self {
        Self::Io { file: file.into(), doing, source }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store(error) => error.fmt(f),
            Self::Output(error) => write!(f, "the results could not be written: {error}"),
            Self::Io { file, doing, source } => {
                write!(f, "{doing} {} failed: {source}", file.display())
            }
            Self::Usage(what) => f.write_str(what),
            Self::Interrupted => {
                f.write_str("interrupted; the measurements so far are printed above")
            }
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Store(error) => Some(&**error),
            Self::Output(source) | Self::Io { source, .. } => Some(source),
            Self::Usage(_) | Self::Interrupted => None,
        }
    }
}

impl From<StoreError> for Error {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}
