//! Errors, by what the caller can do next.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// The result of almost every call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A corrupt or missing object of a repository.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Damage {
    /// The object: a path or a URL.
    pub file: String,
    /// What is wrong with it, and which backup needs it.
    pub what: String,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.file, self.what)
    }
}

/// Why a call failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// An error of the store, or a restored store did not verify.
    Store(trommel::Error),
    /// An error of the repository's file system, network or service.
    Target {
        /// The object or location: a path or a URL.
        file: String,
        /// The operation.
        doing: &'static str,
        /// The cause.
        source: io::Error,
    },
    /// A manifest or a content is corrupt or missing.
    Damaged(Damage),
    /// There is no backup with this ID.
    NoSuchBackup {
        /// The repository.
        repository: String,
        /// The requested ID.
        id: u64,
    },
    /// The location is not a repository.
    NotARepository {
        /// The location: a path or a URL.
        place: String,
        /// What was found, or is missing.
        what: String,
    },
    /// The object was written by a newer version.
    Unsupported {
        /// The object.
        file: String,
        /// What it needs.
        what: String,
    },
    /// Another process or thread is writing to the repository.
    Busy {
        /// The repository.
        repository: String,
        /// What it is doing.
        what: String,
    },
    /// The location cannot be parsed, or this build does not support it.
    Location {
        /// What is wrong with it, and what is valid.
        what: String,
    },
    /// The latest backup was requested, but there are backups of several stores.
    SeveralStores {
        /// The repository.
        repository: String,
        /// Their IDs, ascending.
        stores: Vec<String>,
    },
    /// The repository is inside the store, or the store inside the repository.
    Nested {
        /// What is wrong, and what is valid.
        what: String,
    },
    /// The directory to restore into is not empty.
    NotEmpty {
        /// The directory.
        dir: PathBuf,
    },
    /// Cancelled by [`Progress::is_cancelled`](crate::Progress::is_cancelled).
    Cancelled,
}

impl Error {
    pub(crate) fn target(file: impl Into<String>, doing: &'static str, source: io::Error) -> Self {
        Self::Target { file: file.into(), doing, source }
    }

    pub(crate) fn damaged(file: impl Into<String>, what: impl Into<String>) -> Self {
        Self::Damaged(Damage { file: file.into(), what: what.into() })
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store(error) => error.fmt(f),
            Self::Target { file, doing, source } => {
                // Errors of the file layer include the path; others do not.
                if trommel::vfs::path_of(source).is_some() {
                    source.fmt(f)
                } else {
                    write!(f, "{doing} {file}: {source}")
                }
            }
            Self::Damaged(damage) => damage.fmt(f),
            Self::NoSuchBackup { repository, id } => write!(
                f,
                "{repository} has no backup {id} (`trommel backup list` shows those it has)"
            ),
            Self::NotARepository { place, what } => {
                write!(f, "{place} is not a backup repository: {what}")
            }
            Self::Unsupported { file, what } => {
                write!(f, "{file} needs a newer version of trommel: {what}")
            }
            Self::Busy { repository, what } => {
                write!(f, "{repository} is in use: {what}; try again when that is done")
            }
            Self::SeveralStores { repository, stores } => write!(
                f,
                "{repository} holds backups of the stores {}: name one of them with --store, or a \
                 backup by its number (`trommel backup list` shows them)",
                stores.join(", ")
            ),
            Self::Location { what } | Self::Nested { what } => f.write_str(what),
            Self::NotEmpty { dir } => write!(
                f,
                "{} is not empty: a backup is restored into a new or empty directory",
                dir.display()
            ),
            Self::Cancelled => f.write_str("interrupted"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Store(error) => Some(error),
            Self::Target { source, .. } => Some(source),
            _ => None,
        }
    }
}

impl From<trommel::Error> for Error {
    fn from(error: trommel::Error) -> Self {
        Self::Store(error)
    }
}
