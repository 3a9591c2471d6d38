//! Whether an open store may be read and written.
//!
//! 1. Reads fail once the store is closed, and in a degraded store in which nothing is certain.
//! 2. Writes fail after the first failure that may have left something acknowledged not durable:
//!    the store is then *poisoned*, and stays readable.
//! 3. A forked child may neither read nor write, whatever the state.
//!
//! Every call of a handle begins with one of these checks. A write first checks only for a fork;
//! the leader of its group checks the rest.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use trommel_vfs::OpenFlag;

use crate::error::{Error, Result};
use crate::files::LOCK;
use crate::files::held::HeldLock;
use crate::fork::Opener;
use crate::sync::point;

/// The state that decides whether a store may be read and written.
#[derive(Debug)]
pub(crate) struct Access {
    opener: Opener,
    /// The flag that `opener` reads.
    open_flag: OpenFlag,
    read_only: bool,
    /// The error of refused reads: the store was closed, or nothing in it is certain.
    refusal: OnceLock<Error>,
    /// The failure after which writes are refused.
    poison: OnceLock<Arc<Error>>,
    lock_path: PathBuf,
    /// Released when the store is closed.
    lock: Arc<HeldLock>,
}

impl Access {
    /// Access to the store in `dir`, which this process has just opened and locked.
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

    /// The error of a write, if it would be refused.
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

    /// An error if the store is poisoned.
    pub(crate) fn check_unpoisoned(&self) -> Result<()> {
        self.poisoned().map_or(Ok(()), |first| Err(Error::Poisoned { first }))
    }

    /// Whether reads are refused: see [`Access::check_open`].
    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        self.opener.is_closed()
    }

    /// An error if the store was closed, if nothing in it is certain, or if another process opened
    /// it.
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

    /// Refuses reads with this error from now on, unless they are already refused.
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

    /// Whether the store is poisoned.
    #[inline]
    pub(crate) fn is_poisoned(&self) -> bool {
        self.poison.get().is_some()
    }

    /// Poisons the store with `error`; returns whether it was the first to do so.
    pub(crate) fn refuse_writes(&self, error: &Error) -> bool {
        point();
        self.poison.set(Arc::new(error.clone())).is_ok()
    }

    /// An error if the lock file is no longer the one that was locked: it was removed or replaced,
    /// so another process may write to the store too. Accesses the directory, so it is not for hot
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

    /// Whether the files of a failed job may be removed. If it is unknown whether the manifest
    /// names them, they stay: the next open knows which files are referenced. They also stay if the
    /// directory may be another owner's.
    pub(crate) fn may_remove(&self) -> bool {
        !self.is_poisoned() && self.lock.is_held()
    }

    /// Releases the lock, at the end.
    pub(crate) fn release_lock(&self) {
        self.lock.give_back();
    }
}
