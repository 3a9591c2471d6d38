//! The log archive: obsolete logs that are kept for [change feeds](crate::changes).
//!
//! 1. Before the manifest stops needing a log, the log is synced and gets a second name
//!    (`n.archive`), durably. So it has a name at every moment, and a feed finds it after any
//!    crash. Recovery, verification and repair use only the first name, which is removed as usual.
//! 2. The archive keeps the last logs that together have at least as many bytes as it is set to;
//!    older ones are removed. A reader that has such a log open can still read it.
//! 3. If the process has no file handle left for a log, tables are closed and the attempt is
//!    repeated. A sync that fails for this reason has not opened the file, so nothing was synced.
//! 4. Nothing else depends on the archive. If a log cannot be archived, a feed finds the gap in the
//!    sequence numbers, and reports it. Only a directory that cannot be synced makes the store
//!    refuse writes when it needs its next file, as always.
//!
//! Called by flushes, and when a store is opened.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use trommel_vfs::{Access, DirEntry, Vfs};

use crate::error::{Error, Result};
use crate::files::held::HeldLock;
use crate::files::{archived_log_path, log_path};
use crate::names::Numbered;
use crate::sync::{AtomicU64, Mutex, lock};
use crate::version::TableCache;

/// A log counts as at least this many bytes, so that the number of files is bounded too.
const LEAST_BYTES: u64 = 64 << 10;

/// The archived logs of a store that is open for writing.
#[derive(Debug)]
pub(crate) struct LogArchive {
    vfs: Arc<dyn Vfs>,
    dir: PathBuf,
    /// Whether the directory is still ours.
    lock: Arc<HeldLock>,
    /// The minimum bytes that are kept; 0 if nothing is archived.
    wanted: AtomicU64,
    /// Their lengths in bytes, by number.
    logs: Mutex<BTreeMap<u64, u64>>,
    /// Logs removed since the counters were reset.
    removed: AtomicU64,
    /// Logs that could not be archived since then.
    failed: AtomicU64,
}

/// What an archive holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ArchiveCounts {
    pub(crate) logs: u64,
    pub(crate) bytes: u64,
    pub(crate) removed: u64,
    pub(crate) failed: u64,
}

/// The numbers and lengths of the archived logs in a directory with these entries.
pub(crate) fn archived(listing: &[DirEntry]) -> BTreeMap<u64, u64> {
    let number = |entry: &DirEntry| match Numbered::parse(&entry.name)? {
        Numbered::ArchivedLog(number) if entry.is_file => Some((number, entry.bytes)),
        _ => None,
    };
    listing.iter().filter_map(number).collect()
}

impl LogArchive {
    /// The archive of the store in `dir`, in which nothing is known to be archived yet.
    pub(crate) fn new(vfs: Arc<dyn Vfs>, dir: PathBuf, lock: Arc<HeldLock>) -> Self {
        Self {
            vfs,
            dir,
            lock,
            wanted: AtomicU64::new(0),
            logs: Mutex::default(),
            removed: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        }
    }

    /// Adds the archived logs of earlier opens, which are among the entries of the directory.
    pub(crate) fn find(&self, listing: &[DirEntry]) {
        lock(&self.logs).append(&mut archived(listing));
    }

    /// Sets the minimum bytes that are kept; 0 archives nothing. [`LogArchive::shrink`] removes
    /// logs that are no longer wanted.
    pub(crate) fn keep_bytes(&self, bytes: u64) {
        self.wanted.store(bytes, Ordering::Relaxed);
    }

    /// Whether logs are archived.
    pub(crate) fn is_on(&self) -> bool {
        self.wanted.load(Ordering::Relaxed) > 0
    }

    /// Archives these logs, oldest first, which are complete and about to become obsolete.
    pub(crate) fn add(&self, numbers: impl IntoIterator<Item = u64>, tables: &TableCache) {
        if !self.is_on() {
            return;
        }
        let mut added = Vec::new();
        for number in numbers {
            match self.link(number, tables) {
                Ok(bytes) => added.push((number, bytes)),
                Err(error) => self.note_failure(number, &error),
            }
        }
        if added.is_empty() {
            return;
        }
        let synced = tables.with_handles(|| self.vfs.sync_dir(&self.dir));
        if let Err(error) = synced.map_err(Error::on(&self.dir)) {
            // The names exist, but may be lost in a crash.
            added.iter().for_each(|(number, _)| self.note_failure(*number, &error));
        }
        lock(&self.logs).extend(added);
    }

    /// Makes a log durable, and gives it its second name. Returns its length in bytes.
    fn link(&self, number: u64, tables: &TableCache) -> Result<u64> {
        let (from, to) = (log_path(&self.dir, number), archived_log_path(&self.dir, number));
        let opened = tables.with_handles(|| self.vfs.open(&from, Access::Buffered));
        let bytes = opened.map_err(Error::on(&from))?.bytes();
        let synced = tables.with_handles(|| self.vfs.sync_file(&from));
        synced.map_err(|source| Error::io(&from, "making durable", source))?;
        match self.vfs.hard_link(&from, &to) {
            // Created by an attempt that was interrupted: numbers are not used twice.
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(bytes),
            linked => linked.map(|()| bytes).map_err(Error::on(&to)),
        }
    }

    fn note_failure(&self, number: u64, error: &Error) {
        self.failed.fetch_add(1, Ordering::Relaxed);
        crate::events::log_not_archived(number, error);
    }

    /// Removes the oldest logs that are not needed to keep the wanted bytes. Those that cannot be
    /// removed now are removed when the store is next opened.
    pub(crate) fn shrink(&self) {
        let wanted = self.wanted.load(Ordering::Relaxed);
        if !self.lock.is_held() {
            return;
        }
        let mut gone = Vec::new();
        let mut logs = lock(&self.logs);
        let mut rest: u64 = logs.values().map(|bytes| LEAST_BYTES.max(*bytes)).sum();
        while let Some(oldest) = logs.first_entry() {
            rest -= LEAST_BYTES.max(*oldest.get());
            if rest < wanted {
                break;
            }
            gone.push(oldest.remove_entry().0);
        }
        drop(logs);
        for number in gone {
            let _ = self.vfs.remove(&archived_log_path(&self.dir, number));
            self.removed.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Resets the counts of removed and failed logs.
    pub(crate) fn reset_counts(&self) {
        self.removed.store(0, Ordering::Relaxed);
        self.failed.store(0, Ordering::Relaxed);
    }

    /// The counts of archived, removed and failed logs.
    pub(crate) fn counts(&self) -> ArchiveCounts {
        let logs = lock(&self.logs);
        ArchiveCounts {
            logs: logs.len() as u64,
            bytes: logs.values().sum(),
            removed: self.removed.load(Ordering::Relaxed),
            failed: self.failed.load(Ordering::Relaxed),
        }
    }
}
