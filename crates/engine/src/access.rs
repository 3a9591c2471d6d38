//! Whether an open store may be read and written.
//!
//! 1. Reads end when the store is closed, and in a degraded opening in which nothing is certain.
//! 2. Writes end with the first failure after which something that was acknowledged may not be
//!    durable: the store is *poisoned* then, and stays readable.
//! 3. A forked child may do neither, whatever the state.
//!
//! Every call of a handle begins with one of the checks here.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use trommel_vfs::OpenFlag;

use crate::error::{Error, Result};
use crate::files::LOCK;
use crate::files::held::HeldLock;
use crate::fork::Opener;
use crate::sync::point;

/// What decides whether a store may be read and written.
#[derive(Debug)]
pub(crate) struct Access {
    opener: Opener,
    /// What `opener` reads.
    open_flag: OpenFlag,
    read_only: bool,
    /// What reads are refused with: the store was closed, or nothing in it is certain.
    refusal: OnceLock<Error>,
    /// The failure after which writes are refused.
    poison: OnceLock<Arc<Error>>,
    lock_path: PathBuf,
    /// Released when the store is closed.
    lock: Arc<HeldLock>,
}

impl Access {
    /// To the store in `dir`, which this process has just opened and locked.
    pub(crate) fn new(dir: &Path, lock: Arc<HeldLock>, read_only: bool) -> Self {
        let open_flag = OpenFlag::new();
        Self {
            opener: Opener::of(&open_flag),
            open_flag,
            read_only,
            refusal: OnceLock::new(),
            poison: OnceLock::new(),
            lock_path: dir.join(LOCK),
            lock,
        }
    }

    /// The process that opened the store.
    #[inline]
    pub(crate) fn opener(&self) -> Opener {
        self.opener
    }

    /// Why a write would be refused, if it would.
    #[inline]
    pub(crate) fn check_writable(&self) -> Result<()> {
        point();
        if self.is_closed() || self.read_only || self.poison.get().is_some() {
            return self.refuse_write();
        }
        Ok(())
    }

    #[cold]
    fn refuse_write(&self) -> Result<()> {
        self.opener.check()?;
        self.check_unpoisoned()?;
        if self.read_only {
            return Err(Error::ReadOnly);
        }
        self.check_open()
    }

    /// An error after a failure by which all writing ends.
    pub(crate) fn check_unpoisoned(&self) -> Result<()> {
        self.poisoned().map_or(Ok(()), |first| Err(Error::Poisoned { first }))
    }

    /// Whether reads are refused: see [`Access::check_open`].
    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        self.opener.is_closed()
    }

    /// An error if the store was closed, if nothing that it holds is certain, or if another process
    /// opened it.
    #[inline]
    pub(crate) fn check_open(&self) -> Result<()> {
        point();
        if self.is_closed() { self.refuse_read() } else { Ok(()) }
    }

    #[cold]
    fn refuse_read(&self) -> Result<()> {
        self.opener.check()?;
        self.refusal.get().map_or(Ok(()), |error| Err(error.clone()))
    }

    /// Refuses reads from now on, with this error, if they are not refused already.
    pub(crate) fn refuse_reads(&self, error: Error) {
        let _ = self.refusal.set(error);
        self.open_flag.close();
    }

    /// Whether reads were refused by [`Access::refuse_reads`].
    pub(crate) fn refuses_reads(&self) -> bool {
        self.refusal.get().is_some()
    }

    /// The failure after which writes are refused, if there was one.
    pub(crate) fn poisoned(&self) -> Option<Arc<Error>> {
        point();
        self.poison.get().cloned()
    }

    /// Whether there was such a failure.
    #[inline]
    pub(crate) fn is_poisoned(&self) -> bool {
        self.poison.get().is_some()
    }

    /// Refuses writes from now on, because of `error`; whether it was the first to do so.
    pub(crate) fn refuse_writes(&self, error: &Error) -> bool {
        point();
        self.poison.set(Arc::new(error.clone())).is_ok()
    }

    /// An error if the lock file is no longer the one that was locked: somebody removed or replaced
    /// it, so another process may write to the store too. Looks at the directory, so not for hot
    /// paths.
    pub(crate) fn check_lock(&self) -> Result<()> {
        if !self.lock.is_lost() {
            return Ok(());
        }
        let why = "it was removed or replaced while the store was open, so another process may have \
                   written to the store: close it everywhere, verify it, and never remove its LOCK";
        let source = std::io::Error::other(why);
        Err(Error::io(&self.lock_path, "keeping the lock on", source))
    }

    /// Gives the lock back, at the end.
    pub(crate) fn release_lock(&self) {
        self.lock.give_back();
    }
}
