//! A single finding of corruption in a store, and its remedy.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use trommel_base::Corruption;

use crate::error::Error;

/// Reported if something other than a regular file has the name of a file.
pub(crate) const NO_FILE: &str = "it is no regular file";

/// The consequence of a [`Damage`], and therefore what to do about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Remedy {
    /// Entries cannot be read or trusted: restore the store from a backup, or repair it into a new
    /// directory.
    RestoreOrRepair,
    /// Opening is refused until a decision about the writes after the corruption: restore the
    /// store, or salvage or repair it, which keeps the part before.
    RestoreOrSalvage,
    /// Nothing is lost: rebuild the filters, or compact.
    Compact,
    /// Nothing is lost: remove the obstacle.
    Remove,
    /// It was written by a newer version: use that one.
    Upgrade,
    /// Nothing is known to be lost, but this user has no permission to read it: grant it.
    AllowReading,
    /// A repair into the directory was interrupted: remove the directory, and repair again.
    RepairAgain,
    /// Nothing is lost: the next open for writing rewrites it.
    Reopen,
}

impl Remedy {
    /// A word for scripts: `restore_or_repair`, `restore_or_salvage`, `compact`, `remove`,
    /// `upgrade`, `allow_reading`, `repair_again`, `reopen`.
    pub fn name(self) -> &'static str {
        match self {
            Self::RestoreOrRepair => "restore_or_repair",
            Self::RestoreOrSalvage => "restore_or_salvage",
            Self::Compact => "compact",
            Self::Remove => "remove",
            Self::Upgrade => "upgrade",
            Self::AllowReading => "allow_reading",
            Self::RepairAgain => "repair_again",
            Self::Reopen => "reopen",
        }
    }

    /// Whether the corrupt part is unreadable now, so that a repair must do without it.
    pub(crate) fn is_for_lost(self) -> bool {
        !matches!(self, Self::Compact | Self::Remove | Self::Reopen)
    }
}

impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::RestoreOrRepair => "restore the store from a backup, or trommel repair it",
            Self::RestoreOrSalvage => {
                "restore the store from a backup, or trommel repair it, which keeps everything \
                 before the damage"
            }
            Self::Compact => "nothing is lost; trommel rebuild-filters (or compact) rewrites it",
            Self::Remove => "nothing is lost; remove the file or directory in its place",
            Self::Upgrade => "use the newer version of trommel that wrote it",
            Self::AllowReading => "let this user read it, and try again",
            Self::RepairAgain => "remove this directory, and repair the damaged store again",
            Self::Reopen => {
                "no data is lost; the next command that writes records its options again: give those \
                 that the store should have"
            }
        })
    }
}

/// A range of keys, both ends included.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct KeySpan {
    /// The smallest key.
    pub first: Vec<u8>,
    /// The largest key.
    pub last: Vec<u8>,
}

impl KeySpan {
    pub(crate) fn new(first: &[u8], last: &[u8]) -> Self {
        Self { first: first.to_vec(), last: last.to_vec() }
    }

    /// Whether the range contains `key`.
    pub fn holds(&self, key: &[u8]) -> bool {
        *self.first <= *key && *key <= *self.last
    }
}

/// A single finding of corruption in a store.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Damage {
    /// The file.
    pub file: PathBuf,
    /// Its offset in the file; 0 if it concerns the whole file.
    pub offset: u64,
    /// Bytes that it makes unusable; 0 if that is unknown.
    pub bytes: u64,
    /// A description of what is wrong.
    pub what: String,
    /// What to do about it.
    pub remedy: Remedy,
    /// The keys that may be affected, if known; `None` if nothing is lost or the keys are
    /// unknowable.
    pub keys: Option<KeySpan>,
}

impl Damage {
    /// The damage described by `error`, found in `file`.
    pub(crate) fn of(error: &Error, file: &Path, remedy: Remedy) -> Self {
        let remedy = match error {
            Error::Unsupported { .. } => Remedy::Upgrade,
            Error::Io { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
                Remedy::AllowReading
            }
            _ => remedy,
        };
        let (file, offset, what) = match error {
            Error::Corruption(damage) => {
                (damage.file.clone(), damage.offset, damage.what.to_string())
            }
            Error::Unsupported { file, what } => (file.clone(), 0, what.clone()),
            Error::Io { file, source, .. } => (file.clone(), 0, source.to_string()),
            other => (file.to_path_buf(), 0, other.to_string()),
        };
        Self { file, offset, bytes: 0, what, remedy, keys: None }
    }

    pub(crate) fn at(file: &Path, offset: u64, what: impl Into<String>, remedy: Remedy) -> Self {
        Self { file: file.to_path_buf(), offset, bytes: 0, what: what.into(), remedy, keys: None }
    }

    /// The error of a call that is affected.
    pub(crate) fn as_error(&self) -> Error {
        Corruption::new(&self.file, self.offset, self.what.clone()).into()
    }

    pub(crate) fn of_bytes(mut self, bytes: u64) -> Self {
        self.bytes = bytes;
        self
    }

    pub(crate) fn costing(mut self, keys: KeySpan) -> Self {
        self.keys = Some(keys);
        self
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, offset, what, remedy, .. } = self;
        write!(f, "{} is damaged at byte {offset}: {what} ({remedy})", file.display())
    }
}
