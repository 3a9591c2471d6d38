//! The store itself: the state that handles, snapshots and background threads share.
//!
//! Locks, in the order in which they may be taken: `leader` (the head of the write queue),
//! `manifest` (installing a version), `background.state` (running jobs), the view's lock (replacing
//! the view). Readers take none of them.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use crate::access::Access;
use crate::background::Background;
use crate::backlog::BacklogCounts;
use crate::current::CurrentOptions;
use crate::error::{Error, Result};
use crate::recovery_report::RecoveryReport;
use crate::snapshots::Snapshots;
use crate::statistics::Statistics;
use crate::store_files::StoreFiles;
use crate::store_memory::StoreMemory;
use crate::version::Version;
use crate::view::{CurrentView, LoggedMemtable, View};
use crate::write_queue::WritePath;

/// An open store.
#[derive(Debug)]
pub(crate) struct Engine {
    // Constant after opening.
    pub(crate) recovery: RecoveryReport,
    /// A weak reference to itself, for the files it writes.
    pub(crate) own: Weak<Engine>,

    // Replaced as a whole.
    pub(crate) options: CurrentOptions,
    pub(crate) view: CurrentView,

    pub(crate) access: Access,
    pub(crate) files: StoreFiles,
    pub(crate) memory: StoreMemory,
    pub(crate) statistics: Statistics,
    pub(crate) writes: WritePath,
    pub(crate) snapshots: Snapshots,
    pub(crate) background: Background,
    pub(crate) backlog: BacklogCounts,
}

impl Engine {
    /// Poisons the store and fails if another process may write to the store too: see
    /// [`Access::check_lock`]. Called before the manifest or a new log is written.
    pub(crate) fn check_lock(&self) -> Result<()> {
        self.access.check_lock().map_err(|error| self.poison(error))
    }

    /// Refuses all writes from now on, because of `error`, which is returned.
    ///
    /// Called if something that should be durable may not be. Nothing acknowledged later may depend
    /// on it, so nothing is acknowledged later.
    pub(crate) fn poison(&self, error: Error) -> Error {
        if self.refuse_writes(&error) {
            crate::events::poisoned(&error);
        }
        self.background.wake();
        error
    }

    /// As [`Engine::poison`], but reports nothing and leaves the background threads alone: for
    /// callers that hold their state. Returns whether this was the first error.
    pub(crate) fn refuse_writes(&self, error: &Error) -> bool {
        let is_first = self.access.refuse_writes(error);
        // Waiters for publication check for poisoning too.
        self.writes.publication.notify();
        is_first
    }

    /// Replaces the view by `change` applied to it.
    pub(crate) fn replace_view(&self, change: impl FnOnce(&View) -> View) {
        self.view.replace(change, |view| {
            self.backlog.set_view(view.frozen.len(), view.version.levels[0].len());
            self.account_memtables();
            self.account_ranges();
        });
    }

    /// Bytes of the range tombstones of tables, and of the gaps that scans remember.
    pub(crate) fn deleted_range_bytes(&self) -> u64 {
        let tombstones = self.view.load().version.ranges.memory_bytes();
        (tombstones + self.memory.gaps.memory_bytes()) as u64
    }

    /// Updates the memory accounted for [`deleted_range_bytes`](Self::deleted_range_bytes).
    pub(crate) fn account_ranges(&self) {
        self.memory.shares.set_ranges(self.deleted_range_bytes());
    }

    /// The current version.
    pub(crate) fn version(&self) -> Arc<Version> {
        Arc::clone(&self.view.load().version)
    }

    /// Updates the memtables' share of memory: the frozen ones, a full active one with the chunk
    /// that fills it, and the memory kept for the next one.
    pub(crate) fn account_memtables(&self) {
        let view = self.view.load();
        let held = |logged: &Arc<LoggedMemtable>| logged.memory_bytes();
        let frozen: u64 = view.frozen.iter().map(held).sum();
        if self.memory.shares.is_shared() {
            return self.account_shared(frozen, held(&view.active));
        }
        let limit = self.options.load().memtable_limit();
        // A chunk is about as large as all chunks before it, up to the largest.
        let full = limit + limit.min(trommel_memtable::LARGEST_CHUNK as u64);
        // Memory of dropped memtables may come back at any time, so the limit on kept memory is
        // counted.
        self.memory.shares.set_memtables(frozen + full.max(held(&view.active)) + limit, 0);
    }

    /// As [`Engine::account_memtables`], under a ceiling shared with other stores: the active
    /// memtable counts with its current bytes and the next chunk, so that a store without writes
    /// leaves the rest to others. If the active ones of all stores exceed their share, the largest
    /// is frozen.
    fn account_shared(&self, frozen: u64, active: u64) {
        let next = active.min(trommel_memtable::LARGEST_CHUNK as u64);
        let kept = self.options.load().arena_limit() as u64;
        self.memory.shares.set_memtables(frozen + active + next + kept, active);
        if self.memory.shares.active_memtables_are_heavy() && !self.background.relieve() {
            // A store without threads freezes its own memtable, unless that is too small for a
            // table.
            let is_worth_it = active >= self.options.load().memtable_limit() / 4;
            self.writes.freeze_soon.store(is_worth_it, Ordering::Relaxed);
        }
    }
}
