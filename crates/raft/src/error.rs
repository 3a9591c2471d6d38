//! What can fail, and how openraft learns of it: as a
//! [`StorageError`](openraft::StorageError), after which it stops the node.

use std::fmt;
use std::io;
use std::path::PathBuf;

use openraft::AnyError;

/// Why the store of a Raft node failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// An operation of the store.
    Store(trommel::Error),
    /// An operation on a snapshot's file, whose error names it.
    Snapshot(io::Error),
    /// A value cannot be written as MessagePack.
    Encode {
        /// What it is.
        what: &'static str,
        /// Why not.
        source: rmp_serde::encode::Error,
    },
    /// Bytes in the store are not what this program would have written: they are of a program with
    /// other types.
    Decode {
        /// What they were to be.
        what: &'static str,
        /// Why they are not.
        source: rmp_serde::decode::Error,
    },
    /// A node's name is empty or has a dot, so that its keyspaces could be those of another node.
    InvalidName {
        /// The name.
        name: String,
    },
    /// The node is open: a part of it was not dropped.
    InUse {
        /// The directory of its snapshots, which holds the lock.
        snapshots: PathBuf,
    },
    /// The runtime or the state machine ended before the work was done.
    Interrupted,
}

/// The result of a call of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// The error as openraft carries it: its text, and those of its sources.
    pub(crate) fn any(&self) -> AnyError {
        AnyError::new(self)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store(error) => error.fmt(f),
            Self::Snapshot(error) => error.fmt(f),
            Self::Encode { what, source } => write!(f, "{what} cannot be encoded: {source}"),
            Self::Decode { what, source } => write!(
                f,
                "{what} in the store cannot be decoded: {source}; open it with the types it was \
                 written with"
            ),
            Self::InvalidName { name } => {
                write!(f, "{name:?} cannot be the name of a node: give it one without a dot")
            }
            Self::InUse { snapshots } => write!(
                f,
                "the node with the snapshots in {} is in use: drop all of its parts first, and \
                 openraft's Raft, whose tasks may outlast its shutdown",
                snapshots.display()
            ),
            Self::Interrupted => {
                f.write_str("the runtime or the state machine ended before the work was done")
            }
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Store(error) => error.source(),
            Self::Snapshot(error) => error.get_ref().and_then(|inner| inner.source()),
            Self::Encode { source, .. } => Some(source),
            Self::Decode { source, .. } => Some(source),
            Self::InvalidName { .. } | Self::InUse { .. } | Self::Interrupted => None,
        }
    }
}

impl From<trommel::Error> for Error {
    fn from(error: trommel::Error) -> Self {
        Self::Store(error)
    }
}
