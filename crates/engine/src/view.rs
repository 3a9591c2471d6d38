//! The view: the memtables and the version that a read uses, as one immutable value. It is replaced
//! as a whole when a memtable is frozen or a version is installed; a reader that loaded it keeps
//! what it needs alive.

use std::sync::Arc;

use trommel_base::{EntryRef, SeqNo};
use trommel_memtable::Memtable;

use crate::sync::{Guard, Mutex, Swap, lock};
use crate::version::{Candidates, Fences, Version};

/// A memtable, and the log that holds its writes.
#[derive(Debug)]
pub(crate) struct LoggedMemtable {
    pub(crate) memtable: Arc<Memtable>,
    /// Number of the log that its writes go to.
    pub(crate) log_number: u64,
    /// Earlier logs that hold writes of this memtable, oldest first: at open there was no space to
    /// write them to tables.
    pub(crate) earlier_logs: Vec<u64>,
}

impl LoggedMemtable {
    /// Number of the oldest log that holds a write of this memtable.
    pub(crate) fn oldest_log(&self) -> u64 {
        self.earlier_logs.first().copied().unwrap_or(self.log_number)
    }
}

/// The sources of every read, newest first: active memtable, frozen memtables, version.
#[derive(Debug, Clone)]
pub(crate) struct View {
    pub(crate) active: Arc<LoggedMemtable>,
    /// Full memtables waiting to be flushed, newest first.
    pub(crate) frozen: Vec<Arc<LoggedMemtable>>,
    pub(crate) version: Arc<Version>,
    /// The fences of `version`.
    pub(crate) fences: Arc<Fences>,
}

/// The current view.
#[derive(Debug)]
pub(crate) struct CurrentView {
    current: Swap<View>,
    /// Held while it is replaced.
    change: Mutex<()>,
}

impl CurrentView {
    pub(crate) fn new(view: View) -> Self {
        Self { current: Swap::new(Arc::new(view)), change: Mutex::default() }
    }

    /// The view, for as long as the guard lives.
    #[inline]
    pub(crate) fn load(&self) -> Guard<Arc<View>> {
        self.current.load()
    }

    /// The view, as an owned reference.
    pub(crate) fn load_full(&self) -> Arc<View> {
        self.current.load_full()
    }

    /// Replaces the view by `change` applied to it, and passes the new one to `installed` before
    /// another replaces it.
    pub(crate) fn replace(
        &self,
        change: impl FnOnce(&View) -> View,
        installed: impl FnOnce(&View),
    ) {
        let _one_at_a_time = lock(&self.change);
        let changed = Arc::new(change(&self.current.load()));
        self.current.store(Arc::clone(&changed));
        installed(&changed);
    }
}

impl View {
    /// All memtables, newest first.
    pub(crate) fn memtables(&self) -> impl Iterator<Item = &Arc<LoggedMemtable>> {
        std::iter::once(&self.active).chain(&self.frozen)
    }

    /// The newest version of `key` in memory that is not newer than `seqno`.
    #[inline]
    pub(crate) fn get_in_memory(&self, key: &[u8], seqno: SeqNo) -> Option<EntryRef<'_>> {
        self.memtables().find_map(|logged| logged.memtable.get(key, seqno))
    }

    /// The tables that may hold `key`, newest first.
    #[inline]
    pub(crate) fn tables_for<'a>(&'a self, key: &'a [u8]) -> Candidates<'a> {
        self.fences.candidates(key)
    }

    /// Bytes of all memtables.
    pub(crate) fn memtable_bytes(&self) -> usize {
        self.memtables().map(|logged| logged.memtable.memory_bytes()).sum()
    }
}
