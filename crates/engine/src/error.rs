//! Errors, grouped by what the caller can do next.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use trommel_base::{Corruption, SeqNo};
use trommel_vfs::Vfs;

use crate::conflict::Conflict;
use crate::merge_failure::MergeFailure;
use crate::names;

/// The result of almost every call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What a caller can do about an [`Error`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Try again later or elsewhere: the store and its data are intact.
    Retry,
    /// Fix the call: an argument or option is invalid; nothing was changed.
    Usage,
    /// Close the store, fix what the message names (a full or failing disk), and open it again.
    Reopen,
    /// A file is corrupt: restore it from a backup, or salvage what can be read.
    RestoreData,
    /// The files were written by a newer version: use that one.
    Upgrade,
}

/// Why a call failed. Clones share their source.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused an operation on a file.
    Io {
        /// The file or directory.
        file: PathBuf,
        /// The operation that failed.
        doing: &'static str,
        /// The operating system's error.
        source: Arc<io::Error>,
    },
    /// A file is corrupt.
    Corruption(Corruption),
    /// A file needs a feature that this version does not have.
    Unsupported {
        /// The file.
        file: PathBuf,
        /// The feature that it needs.
        what: String,
    },
    /// Another owner has the store open.
    Locked {
        /// The store's directory.
        dir: PathBuf,
    },
    /// The directory holds other files, and no store.
    NotAStore {
        /// The directory.
        dir: PathBuf,
        /// A description of what was found or is missing.
        what: String,
    },
    /// A file is not of the expected kind.
    WrongFile {
        /// The file.
        file: PathBuf,
        /// The expected kind.
        wanted: &'static str,
        /// Why it is not: what it is instead, or what is wrong with it.
        found: &'static str,
    },
    /// An option is invalid, or a path given for a new file or directory cannot be used.
    InvalidOption {
        /// Which option is wrong, why, and what is allowed.
        what: String,
    },
    /// A key is longer than 65,535 bytes.
    KeyTooLong {
        /// Its length in bytes.
        bytes: usize,
    },
    /// A value is longer than 1 GiB.
    ValueTooLong {
        /// Its length in bytes.
        bytes: usize,
    },
    /// Entries to be loaded are not in strictly ascending order of their keys.
    Unsorted {
        /// Position of the first entry whose key is not above the one before it, from 0 on.
        position: u64,
    },
    /// Two files to be ingested together, into one keyspace, may hold the same keys. Nothing was
    /// ingested.
    FilesOverlap {
        /// The file that begins first.
        first: PathBuf,
        /// The file that begins before that one ends.
        second: PathBuf,
    },
    /// A batch is larger than its limit.
    BatchTooLarge {
        /// Its encoded size in bytes.
        bytes: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// Some writes were lost and their keys are unknown, so any value may be stale.
    InDoubt {
        /// The store's directory.
        dir: PathBuf,
        /// A description of the lost writes.
        what: String,
    },
    /// The directory no longer holds the store that a follower was opened on, or holds an earlier
    /// state of that store. The data that the follower has read stays readable.
    Replaced {
        /// The store's directory.
        dir: PathBuf,
        /// A description of what was found instead.
        what: String,
    },
    /// The store was opened read-only, or by a follower.
    ReadOnly,
    /// The store was closed.
    Closed,
    /// The handle was opened by another process and inherited by a fork: see [`Db`](crate::Db).
    /// Nothing was done.
    Forked,
    /// The flushes or compactions that the write waited for kept failing for as long as
    /// [`WriteSettings::stall_timeout`](crate::settings::WriteSettings::stall_timeout) allows. The
    /// write was neither logged nor made visible. The failed work is retried in the background;
    /// once it succeeds, writes succeed again.
    Stalled {
        /// The work that it waited for.
        job: BackgroundJob,
        /// Consecutive failed attempts.
        failures: u64,
        /// The error of the last attempt.
        source: Arc<Error>,
    },
    /// Another write prevented a conditional write or the commit of a transaction, and nothing was
    /// written. Read again and retry, as [`Db::transaction`](crate::Db::transaction) does.
    Conflict(Conflict),
    /// The keyspace was dropped: it is gone for reads as of now and for writes. Earlier snapshots,
    /// iterators and cursors still see what it held.
    KeyspaceDropped {
        /// Its name.
        name: String,
    },
    /// The merge operands of a key cannot be applied, or no operand can be written: the merge
    /// operator failed, or the store was opened without one.
    Merge(Box<MergeFailure>),
    /// The store, or a keyspace, holds operands of another merge operator, or may. Nothing was
    /// changed.
    OtherMergeOperator {
        /// The store's directory.
        dir: PathBuf,
        /// The name of the keyspace, if it is one that has an operator of its own, or was to have.
        keyspace: Option<String>,
        /// The name of the operator whose operands it holds.
        recorded: String,
        /// The name of the operator that it was to be opened with; empty for a keyspace that was
        /// to be opened without its operator.
        given: String,
    },
    /// Changes that a feed ([`Db::changes_since`](crate::Db::changes_since)) was to yield are not
    /// in the logs, or no longer: their logs were removed, or they were loaded
    /// ([`Db::load_sorted`](crate::Db::load_sorted)). The feed has skipped none of them.
    ChangesMissing {
        /// The sequence number after which changes are missing.
        after: SeqNo,
        /// The oldest sequence number after it from which the feed can continue: that of a change,
        /// or of the next write. `changes_since(oldest - 1)` continues there.
        oldest: SeqNo,
    },
    /// A feed was to begin after a sequence number that the store does not have: the number is from
    /// another store, or this store is an earlier state, from a backup, a salvage or a repair.
    ChangesAhead {
        /// The sequence number after which the feed was to begin.
        after: SeqNo,
        /// The newest sequence number of the store.
        newest: SeqNo,
    },
    /// A bug: an invariant does not hold. The data on disk is unchanged.
    Internal {
        /// Which invariant.
        what: String,
    },
    /// An earlier write failed, or a flush or compaction met a corrupt file. Later writes are
    /// refused; reads still work. Reopening the store clears this, unless a file has to be repaired
    /// first: see [`Error::kind`].
    Poisoned {
        /// The first failure.
        first: Arc<Error>,
    },
}

impl Error {
    /// What the caller can do next.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Locked { .. } | Self::Stalled { .. } | Self::Conflict(_) => ErrorKind::Retry,
            Self::Io { .. } if self.is_shortage() => ErrorKind::Retry,
            Self::Io { source, .. } => match source.kind() {
                io::ErrorKind::AlreadyExists => ErrorKind::Usage,
                io::ErrorKind::NotFound => ErrorKind::RestoreData,
                _ => ErrorKind::Reopen,
            },
            Self::Poisoned { first } => match first.kind() {
                lasting @ (ErrorKind::RestoreData | ErrorKind::Upgrade) => lasting,
                _ => ErrorKind::Reopen,
            },
            Self::Closed | Self::Forked | Self::Internal { .. } | Self::Replaced { .. } => {
                ErrorKind::Reopen
            }
            Self::Corruption(_) | Self::InDoubt { .. } => ErrorKind::RestoreData,
            Self::Unsupported { .. } => ErrorKind::Upgrade,
            Self::NotAStore { .. }
            | Self::WrongFile { .. }
            | Self::InvalidOption { .. }
            | Self::KeyTooLong { .. }
            | Self::ValueTooLong { .. }
            | Self::BatchTooLarge { .. }
            | Self::KeyspaceDropped { .. }
            | Self::Merge(_)
            | Self::OtherMergeOperator { .. }
            | Self::Unsorted { .. }
            | Self::ChangesMissing { .. }
            | Self::ChangesAhead { .. }
            | Self::FilesOverlap { .. }
            | Self::ReadOnly => ErrorKind::Usage,
        }
    }

    pub(crate) fn io(file: &Path, doing: &'static str, source: io::Error) -> Self {
        Self::Io { file: file.to_path_buf(), doing, source: Arc::new(source) }
    }

    /// For `map_err`, where the file layer's error already names the operation.
    pub(crate) fn on(file: &Path) -> impl FnOnce(io::Error) -> Self + '_ {
        |source| Self::io(file, "reading or writing", source)
    }

    /// The error for a new file or directory at `path` that could not be created: because its
    /// parent directory is missing, or for another reason.
    pub(crate) fn creating(vfs: &dyn Vfs, path: &Path, source: io::Error) -> Self {
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let is_missing = |parent| {
            let listed = vfs.list(parent);
            listed.is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
        };
        if source.kind() == io::ErrorKind::NotFound && parent.is_some_and(is_missing) {
            return Self::option(format!(
                "{} cannot be made: the directory that it is to lie in is not there; make that first",
                path.display()
            ));
        }
        Self::io(path, "creating", source)
    }

    /// The error for a new directory `dir` that is not empty.
    pub(crate) fn not_empty(dir: &Path) -> Self {
        Self::option(format!("{} is not empty: name a new directory", dir.display()))
    }

    pub(crate) fn internal(what: impl Into<String>) -> Self {
        Self::Internal { what: what.into() }
    }

    pub(crate) fn option(what: impl Into<String>) -> Self {
        Self::InvalidOption { what: what.into() }
    }

    /// Whether the process ran out of file handles.
    pub(crate) fn is_out_of_handles(&self) -> bool {
        matches!(self, Self::Io { source, .. } if trommel_vfs::is_out_of_handles(source))
    }

    /// Whether a file that was to be created already exists, so that another writer owns it.
    pub(crate) fn is_already_there(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == io::ErrorKind::AlreadyExists)
    }

    /// Whether a resource ran out that may become available again: disk space, file handles,
    /// address space.
    pub(crate) fn is_shortage(&self) -> bool {
        match self {
            Self::Io { source, .. } => {
                is_full(source) || is_out_of_memory(source) || self.is_out_of_handles()
            }
            _ => false,
        }
    }
}

/// Whether the file system is full, or this user's quota is.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Whether the process cannot get more memory, to map a file or to start a thread.
fn is_out_of_memory(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::OutOfMemory | io::ErrorKind::WouldBlock)
}

/// What to do about a file system error, if that is clear.
fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        _ if is_full(error) => {
            " (free some space; if writes are refused afterwards, open the store again. A read-only \
             open needs no space)"
        }
        io::ErrorKind::PermissionDenied => " (the process needs read and write permission there)",
        io::ErrorKind::ReadOnlyFilesystem => {
            " (open the store read-only, or put it on a file system that can be written to)"
        }
        _ if is_out_of_memory(error) => {
            " (raise the limits on memory, address space or threads, `ulimit -v` and `ulimit -u`, or lower \
             ReadSettings::cache_bytes and Options::background_threads)"
        }
        _ if trommel_vfs::is_out_of_handles(error) => {
            " (raise the limit on open files, `ulimit -n`, or lower ReadSettings::max_open_files)"
        }
        _ => "",
    }
}

/// What to do about a corrupt file. Files of one backup belong together.
fn rescue(file: &Path) -> &'static str {
    match file.extension().and_then(|extension| extension.to_str()) {
        Some("archive") => {
            "only change feeds read it: begin one after it; removing it loses nothing else"
        }
        Some("log") => {
            "restore the store from a backup, or trommel repair it into a new one; or open it with \
             the option salvage (trommel flush --salvage), which keeps everything before the damage \
             and reports what it drops"
        }
        Some("flt") => {
            "nothing is lost: the table answers without it; trommel rebuild-filters rewrites it"
        }
        Some("sst") => {
            "restore the store from a backup, or trommel repair it; all other data can still be \
             read, with --degraded if the store does not open"
        }
        _ if is_manifest(file) => {
            "restore the store from a backup, or trommel repair it, which finds what it can without"
        }
        _ => "write it again, or use an older one",
    }
}

/// Whether the file is, by its name, part of the manifest.
fn is_manifest(file: &Path) -> bool {
    let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name == names::CURRENT || name.starts_with("MANIFEST-")
}

/// Formats a file system error.
fn write_io(
    f: &mut fmt::Formatter<'_>,
    file: &Path,
    doing: &str,
    source: &io::Error,
) -> fmt::Result {
    // The file layer names the file; an error from elsewhere does not.
    if trommel_vfs::path_of(source).is_some() {
        write!(f, "{source}")?;
    } else {
        write!(f, "{doing} {}: {source}", file.display())?;
    }
    f.write_str(remedy(source))
}

fn write_poisoned(
    f: &mut fmt::Formatter<'_>,
    kind: ErrorKind,
    first: &impl fmt::Display,
) -> fmt::Result {
    match kind {
        ErrorKind::Reopen => write!(
            f,
            "an earlier write failed, so writes are refused until the store is opened again \
             (reads go on): {first}"
        ),
        _ => write!(
            f,
            "a flush or compaction could not go on, so writes are refused until that is mended \
             (reads go on): {first}"
        ),
    }
}

fn write_in_doubt(f: &mut fmt::Formatter<'_>, dir: &Path, what: &str) -> fmt::Result {
    write!(
        f,
        "nothing in {} is certain: {what} (restore the store from a backup, repair it, or \
         read its last intact state: Degraded::LastIntact, --degraded=last-intact)",
        dir.display()
    )
}

fn write_replaced(f: &mut fmt::Formatter<'_>, dir: &Path, what: &str) -> fmt::Result {
    write!(
        f,
        "{} is not the store that was followed any more: {what} (what was read of it stays \
         readable; open the follower again)",
        dir.display()
    )
}

fn write_other_operator(
    f: &mut fmt::Formatter<'_>,
    (dir, keyspace): (&Path, Option<&String>),
    recorded: &str,
    given: &str,
) -> fmt::Result {
    let dir = dir.display();
    match keyspace {
        None => write!(
            f,
            "{dir} holds operands of the merge operator {recorded:?}, and was to be opened with \
             {given:?}: open it with the former, or without one"
        ),
        Some(name) if given.is_empty() => write!(
            f,
            "the keyspace \"{name}\" of {dir} has the merge operator {recorded:?}, and was to be \
             opened without it: give it in KeyspaceOptions::merge_operator, or use \
             Db::open_keyspace, with which only merged keys cannot be read"
        ),
        Some(name) => write!(
            f,
            "the keyspace \"{name}\" of {dir} may hold operands of the merge operator \
             {recorded:?}, and was to be opened with {given:?}: open it with the former, or copy \
             its entries to a new keyspace"
        ),
    }
}

fn write_unsorted(f: &mut fmt::Formatter<'_>, position: u64) -> fmt::Result {
    write!(
        f,
        "entry {position} of those to be loaded has a key that is not above the one before \
         it: sort them, without duplicates"
    )
}

fn write_missing(f: &mut fmt::Formatter<'_>, after: SeqNo, oldest: SeqNo) -> fmt::Result {
    write!(
        f,
        "changes after sequence number {after} are not in the logs, which have those from {oldest} \
         on: read the store as of a snapshot, and continue the feed after its sequence number \
         (WriteSettings::log_archive_bytes keeps more; sorted loads are in no log)"
    )
}

fn write_ahead(f: &mut fmt::Formatter<'_>, after: SeqNo, newest: SeqNo) -> fmt::Result {
    write!(
        f,
        "there is no change {after}, as the newest is {newest}: the store is another one, or an \
         earlier state of it; read it as of a snapshot, and begin a feed after its sequence number"
    )
}

fn write_overlap(f: &mut fmt::Formatter<'_>, first: &Path, second: &Path) -> fmt::Result {
    write!(
        f,
        "{} and {} overlap: the second begins before the first ends. Ingest them one after the \
         other, the newer one last; nothing was ingested",
        first.display(),
        second.display()
    )
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { file, doing, source } => write_io(f, file, doing, source),
            Self::Corruption(damage) => write!(f, "{damage} ({})", rescue(&damage.file)),
            Self::Unsupported { file, what } => {
                write!(f, "{} cannot be read by this version of trommel: {what}", file.display())
            }
            Self::Locked { dir } => write!(
                f,
                "{} is open elsewhere: close it in the other process (or drop the other handle \
                 in this one), then try again. One may write, or several read; to read beside a \
                 writer, follow it (Db::open_follower, --follow)",
                dir.display()
            ),
            Self::NotAStore { dir, what } => write!(f, "{} is not a store: {what}", dir.display()),
            Self::WrongFile { file, wanted, found } => {
                write!(f, "{} is not {wanted}: {found}", file.display())
            }
            Self::InvalidOption { what } => f.write_str(what),
            Self::KeyTooLong { bytes } => {
                write!(f, "a key of {bytes} bytes is too long: at most 65535 bytes")
            }
            Self::ValueTooLong { bytes } => {
                write!(f, "a value of {bytes} bytes is too long: at most 1 GiB (1073741824 bytes)")
            }
            Self::BatchTooLarge { bytes, limit } => write!(
                f,
                "a batch of {bytes} bytes is too large: at most {limit} bytes; write it in parts"
            ),
            Self::Unsorted { position } => write_unsorted(f, *position),
            Self::FilesOverlap { first, second } => write_overlap(f, first, second),
            Self::InDoubt { dir, what } => write_in_doubt(f, dir, what),
            Self::Replaced { dir, what } => write_replaced(f, dir, what),
            Self::ReadOnly => {
                f.write_str("the store was opened read-only: open it for writing to do this")
            }
            Self::Closed => f.write_str("the store is closed: open it again"),
            Self::Forked => f.write_str(
                "the store was opened by another process, which this one was forked from: open it again here, once \
                 that one has closed it (or fork before it is opened)",
            ),
            Self::Stalled { job, failures, source } => write!(
                f,
                "the write waits for a {job} that goes on failing ({failures} times in a row, tried again by \
                 itself): {source}"
            ),
            Self::Conflict(conflict) => write!(f, "{conflict}: nothing was written; try again"),
            Self::KeyspaceDropped { name } => write!(
                f,
                "the keyspace \"{name}\" was dropped: Db::keyspace makes a new one of this name"
            ),
            Self::Merge(failure) => failure.fmt(f),
            Self::OtherMergeOperator { dir, keyspace, recorded, given } => {
                write_other_operator(f, (dir, keyspace.as_ref()), recorded, given)
            }
            Self::ChangesMissing { after, oldest } => write_missing(f, *after, *oldest),
            Self::ChangesAhead { after, newest } => write_ahead(f, *after, *newest),
            Self::Internal { what } => {
                write!(
                    f,
                    "an internal error: {what} (open the store again, and please report this)"
                )
            }
            Self::Poisoned { first } => write_poisoned(f, self.kind(), first),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source),
            Self::Corruption(damage) => Some(damage),
            Self::Poisoned { first } => Some(first),
            Self::Stalled { source, .. } => Some(source),
            _ => None,
        }
    }
}

impl From<Corruption> for Error {
    fn from(damage: Corruption) -> Self {
        Self::Corruption(damage)
    }
}

impl From<Conflict> for Error {
    fn from(conflict: Conflict) -> Self {
        Self::Conflict(conflict)
    }
}

impl From<trommel_sstable::Error> for Error {
    fn from(error: trommel_sstable::Error) -> Self {
        use trommel_sstable::Error as Table;
        match error {
            Table::Io { file, source } => Self::Io { file, doing: "reading or writing", source },
            Table::Corruption(damage) => Self::Corruption(damage),
            Table::Unsupported { file, what } => Self::Unsupported { file, what: what.into() },
            rejected => Self::internal(rejected.to_string()),
        }
    }
}

impl From<std::convert::Infallible> for Error {
    fn from(never: std::convert::Infallible) -> Self {
        match never {}
    }
}

/// A kind of background work that can fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub enum BackgroundJob {
    /// Writing a memtable to a table.
    Flush,
    /// Merging tables, or moving one to a deeper level.
    Compaction,
    /// Rebuilding filters to fit their budget.
    FilterRebuild,
}

impl fmt::Display for BackgroundJob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Flush => "flush",
            Self::Compaction => "compaction",
            Self::FilterRebuild => "filter rebuild",
        })
    }
}
