//! Failures of commands, and their exit codes.
//!
//! 0 success; 1 an error; 2 wrong usage; 3 the key, or the backup, is not there; 4 a file of the
//! store, or of a backup, is corrupt; 5 the store, or the repository of backups, is in use
//! elsewhere; 6 the directory is not a store (or a repository), or has a newer version; 7 a
//! requested check did not pass; 130 interrupted. The codes are promised: scripts rely on them.

use std::fmt;
use std::io::{self, Write as _};

use crate::escape::visible;

pub(crate) const OK: u8 = 0;
const FAILED: u8 = 1;
const USAGE: u8 = 2;
const NOT_FOUND: u8 = 3;
const CORRUPTION: u8 = 4;
const LOCKED: u8 = 5;
const NOT_A_STORE: u8 = 6;
const CHECK_FAILED: u8 = 7;
pub(crate) const INTERRUPTED: u8 = 130;

/// Why a command failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// A run of the harness ended early.
    Run(trommel_harness::Error),
    /// An error of the store.
    Store(trommel::Error),
    /// An error of a repository of backups, or of the store to back up or restore.
    Backup(trommel_backup::Error),
    /// The results could not be written.
    Output(io::Error),
    /// The command is impossible as requested; the text describes a valid one.
    Usage(String),
    /// A requested key is not there.
    NotFound,
    /// Something else that was requested is not there; the text names it.
    NothingThere(String),
    /// A check found a fault; the text describes it.
    Check(String),
    /// Corruption was found and reported in detail; the text is a summary.
    Damaged(String),
    /// The user interrupted the command.
    Interrupted,
    /// A failure with additional text.
    And(Box<Failure>, String),
    /// A failure that has already been reported.
    Reported(Box<Failure>),
    /// Any other error; the text has the operation, the file, and the system's error.
    Other(String),
}

impl Failure {
    /// The exit code for scripts.
    pub(crate) fn code(&self) -> u8 {
        use trommel_harness::Error;
        match self {
            Self::Run(Error::Output(source)) | Self::Output(source) => output_code(source),
            Self::Run(Error::Usage(_)) | Self::Usage(_) => USAGE,
            Self::Run(Error::Interrupted) | Self::Interrupted => INTERRUPTED,
            Self::Run(Error::Store(source)) => source.downcast_ref().map_or(FAILED, store_code),
            Self::Store(error) => store_code(error),
            Self::Backup(error) => backup_code(error),
            Self::NotFound | Self::NothingThere(_) => NOT_FOUND,
            Self::Check(_) => CHECK_FAILED,
            Self::Damaged(_) => CORRUPTION,
            Self::And(failure, _) | Self::Reported(failure) => failure.code(),
            Self::Run(_) | Self::Other(_) => FAILED,
        }
    }

    /// Whether nothing more can be done: the reader of the results is gone, or the user interrupted
    /// the command.
    pub(crate) fn is_final(&self) -> bool {
        matches!(self, Self::Output(_) | Self::Interrupted)
    }

    /// The same failure with additional text.
    pub(crate) fn with(self, what: impl Into<String>) -> Self {
        Self::And(Box::new(self), what.into())
    }

    /// Whether a file of the store is corrupt.
    pub(crate) fn is_damage(&self) -> bool {
        self.code() == CORRUPTION
    }

    /// Whether a directory is not a store, or has a newer version.
    pub(crate) fn is_no_store(&self) -> bool {
        self.code() == NOT_A_STORE
    }

    /// Prints the message to standard error. If that is closed too, the exit code must suffice.
    pub(crate) fn say(&self) {
        if let Some(message) = self.message() {
            let mut error = io::stderr().lock();
            let lines: Vec<String> = message.split('\n').map(visible).collect();
            let _ = writeln!(error, "error: {}", lines.join("\n"));
        }
    }

    /// The message for standard error, if any.
    fn message(&self) -> Option<String> {
        let is_worth_saying = !matches!(self, Self::Reported(_)) && self.code() != OK;
        is_worth_saying.then(|| self.to_string())
    }
}

/// The reader of the output may have closed it on purpose: `trommel scan | head`.
fn output_code(source: &io::Error) -> u8 {
    if source.kind() == io::ErrorKind::BrokenPipe { OK } else { FAILED }
}

fn store_code(error: &trommel::Error) -> u8 {
    match error {
        trommel::Error::Corruption(_) | trommel::Error::InDoubt { .. } => CORRUPTION,
        trommel::Error::Locked { .. } => LOCKED,
        trommel::Error::NotAStore { .. }
        | trommel::Error::WrongFile { .. }
        | trommel::Error::Unsupported { .. } => NOT_A_STORE,
        _ if error.kind() == trommel::ErrorKind::Usage => USAGE,
        _ => FAILED,
    }
}

fn backup_code(error: &trommel_backup::Error) -> u8 {
    use trommel_backup::Error;
    match error {
        Error::Store(error) => store_code(error),
        Error::Damaged(_) => CORRUPTION,
        Error::NoSuchBackup { .. } => NOT_FOUND,
        Error::Busy { .. } => LOCKED,
        Error::NotARepository { .. } | Error::Unsupported { .. } => NOT_A_STORE,
        Error::Location { .. }
        | Error::NotEmpty { .. }
        | Error::SeveralStores { .. }
        | Error::Nested { .. } => USAGE,
        Error::Cancelled => INTERRUPTED,
        _ => FAILED,
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Run(error) => error.fmt(f),
            Self::Store(error) => error.fmt(f),
            Self::Backup(error) => error.fmt(f),
            Self::Output(error) => write!(f, "the results could not be written: {error}"),
            Self::NotFound => f.write_str("key not found"),
            Self::Interrupted => f.write_str("interrupted"),
            Self::Reported(failure) => failure.fmt(f),
            Self::And(failure, what) => write!(f, "{failure}; {what}"),
            Self::Usage(what)
            | Self::NothingThere(what)
            | Self::Check(what)
            | Self::Damaged(what)
            | Self::Other(what) => f.write_str(what),
        }
    }
}

impl From<trommel_harness::Error> for Failure {
    fn from(error: trommel_harness::Error) -> Self {
        Self::Run(error)
    }
}

impl From<trommel::Error> for Failure {
    fn from(error: trommel::Error) -> Self {
        Self::Store(error)
    }
}

impl From<trommel_backup::Error> for Failure {
    fn from(error: trommel_backup::Error) -> Self {
        Self::Backup(error)
    }
}

/// `?` converts only errors of writing results; for other files use [`Failure::Other`], which names
/// the file.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

#[cfg(test)]
mod tests {
    use trommel_harness::Error;

    use super::*;

    #[test]
    fn each_kind_of_failure_has_its_code() {
        let (dir, what) = (std::path::PathBuf::from("d"), String::new());
        for (error, expected) in [
            (trommel::Error::Locked { dir: dir.clone() }, 5),
            (trommel::Error::NotAStore { dir: dir.clone(), what: what.clone() }, 6),
            (trommel::Error::Unsupported { file: dir, what: what.clone() }, 6),
            (trommel::Error::InvalidOption { what: what.clone() }, 2),
        ] {
            assert_eq!(Failure::Store(error.clone()).code(), expected, "{error:?}");
            assert_eq!(Failure::Run(Error::Store(error.into())).code(), expected);
        }
        for (failure, expected) in [
            (Failure::Run(Error::Output(io::ErrorKind::BrokenPipe.into())), 0),
            (Failure::Output(io::ErrorKind::BrokenPipe.into()), 0),
            (Failure::Output(io::ErrorKind::StorageFull.into()), 1),
            (Failure::Run(Error::Usage(what.clone())), 2),
            (Failure::Run(Error::Interrupted), 130),
            (Failure::Run(Error::Store("of another store".into())), 1),
            (Failure::NotFound, 3),
            (Failure::NothingThere(what.clone()), 3),
            (Failure::Interrupted, 130),
            (Failure::Interrupted.with("3 were done"), 130),
            (Failure::Check(what.clone()), 7),
            (Failure::Damaged(what), 4),
        ] {
            assert_eq!(failure.code(), expected, "{failure:?}");
            assert_eq!(failure.message().is_none(), expected == 0, "{failure:?}");
        }
    }
}
