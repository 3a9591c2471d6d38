//! Snapshots: the store as of one moment.

use std::sync::Arc;

use trommel_base::{SeqNo, Slice};

use crate::bounds::{Bounds, KeyRange};
use crate::error::Result;
use crate::fork::leak;
use crate::handle::Handle;
use crate::iter::range::{DbCursor, Range};
use crate::view::{ReadAt, View};

/// A read-only view of the store as of the moment it was taken.
///
/// Compactions keep what a snapshot can see, so a long-lived one costs disk space; only entries
/// that [expire](crate::settings::WriteSettings::ttl) go nevertheless. In a store with a
/// [compaction filter](crate::CompactionFilter) it keeps the files and memtables of its creation,
/// as an iterator does. It also keeps the store open, like a [`Db`](crate::Db); once the store is
/// closed by [`Db::close`](crate::Db::close), every read is
/// [`Error::Closed`](crate::Error::Closed). Cheap to take and to clone. Values read from it outlive
/// it; each that is kept keeps its block in memory, as with [`Db::get`](crate::Db::get).
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = trommel::Db::open(dir.path(), Default::default())?;
/// db.put("k", "before")?;
/// let snapshot = db.snapshot();
/// db.put("k", "after")?;
/// assert_eq!(snapshot.get("k")?.unwrap(), b"before"[..]);
/// # Ok::<(), trommel::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "it keeps its moment only as long as it is held"]
pub struct Snapshot {
    /// In a follower, or a store with a compaction filter: what it reads, which no compaction
    /// changes.
    view: Option<Arc<View>>,
    seqno: SeqNo,
    /// Last field: the view must be dropped before the store may close.
    store: Arc<Handle>,
}

impl Snapshot {
    pub(crate) fn take(store: &Arc<Handle>) -> Self {
        let snapshots = &store.engine.snapshots;
        let is_forked = store.engine.access.opener().is_forked();
        if store.engine.options.load().opening.follows && !is_forked {
            // The writer's compactions do not know of it. The moment is that of the view.
            let (view, seqno) = store.engine.view.hold(|view| (Arc::clone(view), snapshots.take()));
            return Self { view: Some(view), seqno, store: Arc::clone(store) };
        }
        let seqno = match is_forked {
            // No read is possible at it.
            true => snapshots.visible(),
            false => snapshots.take(),
        };
        // A compaction that began before the snapshot was registered may filter what it sees. Only
        // after that: the view holds all that is visible at it.
        let is_filtered = store.engine.options.load().compaction.compaction_filter.is_some();
        let view = is_filtered.then(|| store.engine.view.load_full());
        Self { view, seqno, store: Arc::clone(store) }
    }

    fn at(&self) -> Option<ReadAt<'_>> {
        Some(ReadAt { seqno: self.seqno, view: self.view.as_ref() })
    }

    pub(crate) fn store(&self) -> &Arc<Handle> {
        &self.store
    }

    /// Iterates over the entries within `bounds`.
    pub(crate) fn within(&self, bounds: Bounds) -> Range {
        self.store.range(bounds, self.at())
    }

    /// The newest sequence number visible to the snapshot.
    pub fn seqno(&self) -> SeqNo {
        self.seqno
    }

    /// Returns the value of `key`.
    ///
    /// # Errors
    /// As [`Db::get`](crate::Db::get).
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Slice>> {
        self.store.engine.get(key.as_ref(), self.at())
    }

    /// Whether `key` has a value.
    ///
    /// # Errors
    /// As [`Db::get`](crate::Db::get).
    pub fn contains_key(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.store.engine.contains(key.as_ref(), self.at())
    }

    /// Returns the values of `keys`, in their order.
    ///
    /// # Errors
    /// As [`Db::multi_get`](crate::Db::multi_get).
    pub fn multi_get<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Slice>>> {
        self.store.engine.multi_get(keys, self.at())
    }

    /// Iterates over all entries in key order.
    pub fn iter(&self) -> Range {
        self.within(Bounds::all())
    }

    /// Iterates over the entries with keys in `range`.
    pub fn range(&self, range: impl KeyRange) -> Range {
        self.within(Bounds::of(range))
    }

    /// Iterates over the entries with keys that begin with `prefix`.
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Range {
        self.within(Bounds::prefix(prefix.as_ref()))
    }

    /// Returns a cursor over all entries.
    ///
    /// # Errors
    /// As [`Db::cursor`](crate::Db::cursor).
    pub fn cursor(&self) -> Result<DbCursor> {
        self.store.cursor(Bounds::all(), self.at())
    }

    /// Returns a cursor over the entries with keys in `range`; see
    /// [`Db::cursor_in`](crate::Db::cursor_in).
    ///
    /// # Errors
    /// As [`Db::cursor`](crate::Db::cursor).
    pub fn cursor_in(&self, range: impl KeyRange) -> Result<DbCursor> {
        self.store.cursor(Bounds::of(range), self.at())
    }

    /// Returns a cursor over the entries with keys that begin with `prefix`.
    ///
    /// # Errors
    /// As [`Db::cursor`](crate::Db::cursor).
    pub fn prefix_cursor(&self, prefix: impl AsRef<[u8]>) -> Result<DbCursor> {
        self.store.cursor(Bounds::prefix(prefix.as_ref()), self.at())
    }
}

impl Clone for Snapshot {
    fn clone(&self) -> Self {
        if !self.store.engine.access.opener().is_forked() {
            self.store.engine.snapshots.take_again(self.seqno);
        }
        Self { view: self.view.clone(), seqno: self.seqno, store: Arc::clone(&self.store) }
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        match self.store.engine.access.opener().is_forked() {
            true => {
                self.view.iter().for_each(leak);
                leak(&self.store);
            }
            false => self.store.engine.release_snapshot(self.seqno),
        }
    }
}
