//! Injected failures: which call, when, how, and with what effect.

use std::fmt;
use std::io::{self, ErrorKind};
use std::path::Path;

use rustix::io::Errno;

use super::op::OpKind;

/// The error that the system reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Failure {
    /// `EIO`: the device failed.
    Io,
    /// `ENOSPC`: the disk is full.
    NoSpace,
    /// `EDQUOT`: the user's share of the disk is full.
    QuotaExceeded,
    /// `EMFILE`: this process has no file handles left.
    TooManyOpenFiles,
    /// `ENFILE`: the whole system has no file handles left.
    TooManySystemFiles,
    /// `ENOMEM`: no memory.
    NoMemory,
    /// `EACCES`: not allowed.
    PermissionDenied,
    /// `EROFS`: the file system has become read-only.
    ReadOnly,
    /// `ENOENT`: the file was removed.
    NotFound,
    /// `EINTR`: a signal interrupted the call, and it was not retried.
    Interrupted,
    /// `ENOLCK`: the file system has no locks, or none left.
    NoLocks,
    /// Not a system error: the file ends early, like a truncated one.
    EndOfFile,
    /// Not a system error: the system returned fewer bytes than requested, and no more on a retry,
    /// although the file has them.
    ShortRead,
}

impl Failure {
    pub(super) fn error(self) -> io::Error {
        let number = match self {
            Self::EndOfFile => return ErrorKind::UnexpectedEof.into(),
            Self::ShortRead => {
                return io::Error::other("the system returned fewer bytes than the file has");
            }
            Self::Io => Errno::IO,
            Self::NoSpace => Errno::NOSPC,
            Self::QuotaExceeded => Errno::DQUOT,
            Self::TooManyOpenFiles => Errno::MFILE,
            Self::TooManySystemFiles => Errno::NFILE,
            Self::NoMemory => Errno::NOMEM,
            Self::PermissionDenied => Errno::ACCESS,
            Self::ReadOnly => Errno::ROFS,
            Self::NotFound => Errno::NOENT,
            Self::Interrupted => Errno::INTR,
            Self::NoLocks => Errno::NOLCK,
        };
        number.into()
    }
}

impl fmt::Display for Failure {
    /// The system's name of the error, such as `EIO`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Io => "EIO",
            Self::NoSpace => "ENOSPC",
            Self::QuotaExceeded => "EDQUOT",
            Self::TooManyOpenFiles => "EMFILE",
            Self::TooManySystemFiles => "ENFILE",
            Self::NoMemory => "ENOMEM",
            Self::PermissionDenied => "EACCES",
            Self::ReadOnly => "EROFS",
            Self::NotFound => "ENOENT",
            Self::Interrupted => "EINTR",
            Self::NoLocks => "ENOLCK",
            Self::EndOfFile => "EOF",
            Self::ShortRead => "SHORT",
        })
    }
}

/// A planned failure of calls to a [`SimDisk`](super::SimDisk).
///
/// It matches calls by kind and name, lets the first few of them pass, and then fails one, or all
/// that follow. A failed call has no effect by default. A failed [`Sync`](OpKind::Sync) or
/// [`SyncDir`](OpKind::SyncDir) also drops its data for later syncs: they succeed without having
/// written it.
///
/// ```
/// use trommel_sim::{Failure, Fault, OpKind, SimDisk};
/// let disk = SimDisk::new();
/// // The third sync of a log fails with EIO.
/// disk.inject(Fault::new(Failure::Io).on(OpKind::Sync).named(".log").after(2));
/// // From the tenth call on the disk is dead.
/// disk.inject(Fault::new(Failure::Io).after(9).lasting());
/// ```
#[derive(Debug, Clone)]
pub struct Fault {
    failure: Failure,
    effect: Effect,
    /// Empty for all.
    kinds: Vec<OpKind>,
    writes_only: bool,
    name: String,
    pass: u64,
    lasting: bool,
    spent: bool,
}

/// The effect of a call despite its failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    Nothing,
    /// The first bytes of an append, or of a read.
    Part(usize),
    /// All of an append except its last bytes.
    AllBut(usize),
    Whole,
    /// Nothing, but success is reported.
    Lie,
}

/// The result of a call.
#[derive(Debug, Clone, Copy)]
pub(super) struct Outcome {
    pub(super) effect: Effect,
    pub(super) failure: Failure,
}

impl Outcome {
    pub(super) fn error(&self) -> io::Error {
        self.failure.error()
    }

    pub(super) fn is_out_of_handles(&self) -> bool {
        matches!(self.failure, Failure::TooManyOpenFiles | Failure::TooManySystemFiles)
    }
}

impl Fault {
    /// Fails the next call, of whatever kind and name.
    pub fn new(failure: Failure) -> Self {
        Self {
            failure,
            effect: Effect::Nothing,
            kinds: Vec::new(),
            writes_only: false,
            name: String::new(),
            pass: 0,
            lasting: false,
            spent: false,
        }
    }

    /// The next sync of a file or of a directory does nothing and reports success. Later ones cover
    /// it.
    pub fn lying_sync() -> Self {
        let fault = Self { effect: Effect::Lie, ..Self::new(Failure::Io) };
        fault.on(OpKind::Sync).on(OpKind::SyncDir)
    }

    /// The next read ends after (at most) this many bytes, as if the file did
    /// ([`Failure::EndOfFile`]).
    pub fn end_of_file(bytes: usize) -> Self {
        let fault = Self { effect: Effect::Part(bytes), ..Self::new(Failure::EndOfFile) };
        fault.on(OpKind::Read)
    }

    /// The next read ends after (at most) this many bytes, although the file continues
    /// ([`Failure::ShortRead`]). (A short read that can be continued is not a failure, and never
    /// reaches the caller.)
    pub fn short_read(bytes: usize) -> Self {
        let fault = Self { effect: Effect::Part(bytes), ..Self::new(Failure::ShortRead) };
        fault.on(OpKind::Read)
    }

    /// Matches only calls of this kind; if repeated, of any of these kinds.
    pub fn on(mut self, kind: OpKind) -> Self {
        self.kinds.push(kind);
        self
    }

    /// Matches only calls that write ([`OpKind::is_write`]).
    pub fn on_writes(mut self) -> Self {
        self.writes_only = true;
        self
    }

    /// Matches only calls on a path whose last component contains `part`; of two paths, either may.
    pub fn named(mut self, part: &str) -> Self {
        self.name = part.to_string();
        self
    }

    /// Lets this many matching calls pass first.
    pub fn after(mut self, calls: u64) -> Self {
        self.pass = calls;
        self
    }

    /// The number of matching calls that pass first.
    pub fn let_pass(&self) -> u64 {
        self.pass
    }

    /// Fails all later matching calls, not just one.
    pub fn lasting(mut self) -> Self {
        self.lasting = true;
        self
    }

    /// An append writes (at most) this many bytes before it fails. No effect on other calls.
    pub fn writing_part(mut self, bytes: usize) -> Self {
        self.effect = Effect::Part(bytes);
        self
    }

    /// An append writes all but this many bytes before it fails. No effect on other calls.
    pub fn writing_all_but(mut self, bytes: usize) -> Self {
        self.effect = Effect::AllBut(bytes);
        self
    }

    /// The call takes full effect, and then reports the failure. No effect on reads.
    pub fn after_the_fact(mut self) -> Self {
        self.effect = Effect::Whole;
        self
    }

    /// Whether this call fails; counts it if it matches.
    pub(super) fn check(
        &mut self,
        kind: OpKind,
        path: &Path,
        to: Option<&Path>,
    ) -> Option<Outcome> {
        let named = |path: &Path| {
            let name = path.file_name().unwrap_or_default();
            name.to_string_lossy().contains(&self.name)
        };
        let matches = (self.kinds.is_empty() || self.kinds.contains(&kind))
            && (kind.is_write() || !self.writes_only)
            && (named(path) || to.is_some_and(named));
        if !matches || self.spent {
            return None;
        }
        if self.pass > 0 {
            self.pass -= 1;
            return None;
        }
        self.spent = !self.lasting;
        Some(Outcome { effect: self.effect, failure: self.failure })
    }

    pub(super) fn is_spent(&self) -> bool {
        self.spent
    }
}
