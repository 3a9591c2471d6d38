//! The operations in the log.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use crate::tree::{Inode, Place};

/// A kind of call to the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum OpKind {
    /// Creating a file.
    Create,
    /// Opening a file for reading.
    Open,
    /// Reading from an open file (reads through a map are not calls).
    Read,
    /// Listing a directory.
    List,
    /// Appending to a file.
    Append,
    /// Making a file's bytes durable.
    Sync,
    /// Renaming a file.
    Rename,
    /// Removing a file or an empty directory.
    Remove,
    /// Giving a file a second name.
    HardLink,
    /// Creating a directory.
    CreateDir,
    /// Making a directory's entries durable.
    SyncDir,
    /// Locking a file.
    Lock,
    /// A mark set by a test; not a call.
    Mark,
}

impl OpKind {
    pub(super) const COUNT: usize = Self::Mark as usize + 1;

    /// Whether such a call can change the content of the disk, or its durability.
    pub fn is_write(self) -> bool {
        !matches!(self, Self::Open | Self::Read | Self::List | Self::Mark)
    }
}

/// One operation: a call that changed something, or a mark.
#[derive(Debug, Clone)]
pub struct Op {
    kind: OpKind,
    path: Arc<Path>,
    to: Option<Arc<Path>>,
    pub(super) change: Change,
}

/// The effect of an operation, by inode, since names may have changed later. `Over`: a file that is
/// overwritten, under a new name.
#[derive(Debug, Clone)]
pub(super) enum Change {
    NewFile {
        place: Place,
        inode: Inode,
    },
    NewDir {
        place: Place,
        inode: Inode,
    },
    Over {
        from: Place,
        to: Place,
        inode: Inode,
    },
    Append {
        inode: Inode,
        start: u64,
        bytes: Arc<[u8]>,
    },
    /// The preallocated zeros now end here.
    Zeros {
        inode: Inode,
        to: u64,
    },
    Sync {
        inode: Inode,
        synced: Synced,
    },
    Rename {
        from: Place,
        to: Place,
        inode: Inode,
    },
    Remove {
        place: Place,
    },
    Link {
        place: Place,
        inode: Inode,
    },
    SyncDir {
        inode: Inode,
        synced: Synced,
    },
    Mark(u64),
}

/// The result of a sync.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Synced {
    /// All is durable.
    Durable,
    /// Nothing was done: a lying sync, or nothing could be tried. A later sync covers it.
    Not,
    /// An error was reported, and the dirty data was dropped: a later sync will report success
    /// without having written it.
    Failed,
}

impl Op {
    pub(super) fn new(kind: OpKind, path: &Path, to: Option<&Path>, change: Change) -> Self {
        Self { kind, path: Arc::from(path), to: to.map(Arc::from), change }
    }

    pub(super) fn mark(number: u64) -> Self {
        Self::new(OpKind::Mark, Path::new(""), None, Change::Mark(number))
    }

    /// The kind of the call.
    pub fn kind(&self) -> OpKind {
        self.kind
    }

    /// The path of the call; empty for a mark.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl fmt::Display for Op {
    /// One line, such as `Append db/000001.log 0..120`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {}", self.kind, self.path.display())?;
        if let Some(to) = &self.to {
            write!(f, " -> {}", to.display())?;
        }
        match &self.change {
            Change::Append { start, bytes, .. } => {
                write!(f, " {start}..{}", start + bytes.len() as u64)
            }
            Change::Zeros { to, .. } => write!(f, " (zeros to {to})"),
            Change::Sync { synced, .. } | Change::SyncDir { synced, .. }
                if *synced != Synced::Durable =>
            {
                write!(f, " ({synced:?})")
            }
            Change::Mark(number) => write!(f, "{number}"),
            _ => Ok(()),
        }
    }
}
