//! Snapshots: the store as of one moment.

use std::sync::Arc;

use trommel_base::{SeqNo, Slice};

use crate::bounds::{Bounds, KeyRange};
use crate::error::Result;
use crate::fork::leak;
use crate::handle::Handle;
use crate::iter::range::{DbCursor, Range};
use crate::keyspaces::Part;
use crate::view::{ReadAt, View};

/// A read-only view of the store as of the moment it was taken.
///
/// Compactions keep what a snapshot can see, so a long-lived one costs disk space; only entries
/// that [expire](crate::settings::WriteSettings::ttl) are removed nevertheless. In a store with a
/// [compaction filter](crate::CompactionFilter), a snapshot keeps the files and memtables of its
/// creation, as an iterator does. It also keeps the store open, like a [`Db`](crate::Db); once the
/// store is closed by [`Db::close`](crate::Db::close), every read is
/// [`Error::Closed`](crate::Error::Closed). Cheap to take and to clone. Values read from it outlive
/// it, and each value that is kept keeps its block in memory, as with [`Db::get`](crate::Db::get).
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
    /// In a follower, or in a store with a compaction filter: the view that it reads, which no
    /// compaction changes.
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
            // The writer's compactions do not respect this snapshot, so it holds the view. Its
            // sequence number belongs to that view.
            let (view, seqno) = store.engine.view.hold(|view| (Arc::clone(view), snapshots.take()));
            return Self { view: Some(view), seqno, store: Arc::clone(store) };
        }
        let seqno = match is_forked {
            // Every read of this snapshot fails.
            true => snapshots.visible(),
            false => snapshots.take(),
        };
        // A compaction that began before the snapshot was registered may filter what it sees. The
        // view is loaded after the registration, so it holds everything visible to the snapshot.
        let is_filtered = store.engine.options.load().compaction.compaction_filter.is_some();
        let view = is_filtered.then(|| store.engine.view.load_full());
        Self { view, seqno, store: Arc::clone(store) }
    }

    /// The sequence number and the view that reads of the snapshot use.
    pub(crate) fn at(&self) -> Option<ReadAt<'_>> {
        Some(ReadAt { seqno: self.seqno, view: self.view.as_ref() })
    }

    pub(crate) fn store(&self) -> &Arc<Handle> {
        &self.store
    }

    /// Iterates over the entries of this part within `bounds`.
    pub(crate) fn within(&self, part: Part<'_>, bounds: Bounds) -> Range {
        self.store.range(part, bounds, self.at())
    }

    /// The newest sequence number visible to the snapshot.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// let seqno = db.put("key", "value")?;
    /// assert_eq!(db.snapshot().seqno(), seqno);
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn seqno(&self) -> SeqNo {
        self.seqno
    }

    /// Returns the value of `key`.
    ///
    /// # Errors
    /// As [`Db::get`](crate::Db::get).
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// let snapshot = db.snapshot();
    /// db.put("key", "later")?;
    /// assert_eq!(snapshot.get("key")?, None);
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Slice>> {
        self.store.engine.get_in(Part::Default, key.as_ref(), self.at())
    }

    /// Whether `key` has a value.
    ///
    /// # Errors
    /// As [`Db::get`](crate::Db::get).
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// db.put("key", "value")?;
    /// let snapshot = db.snapshot();
    /// db.delete("key")?;
    /// assert!(snapshot.contains_key("key")?);
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn contains_key(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.store.engine.contains_in(Part::Default, key.as_ref(), self.at())
    }

    /// Returns the values of `keys`, in their order.
    ///
    /// # Errors
    /// As [`Db::multi_get`](crate::Db::multi_get).
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// db.put("a", "1")?;
    /// let values = db.snapshot().multi_get(&["a", "b"])?;
    /// assert_eq!((values[0].as_deref(), values[1].as_deref()), (Some(&b"1"[..]), None));
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn multi_get<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Slice>>> {
        self.store.engine.multi_get_in(Part::Default, keys, self.at())
    }

    /// Iterates over all entries in key order.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// db.put("a", "1")?;
    /// let snapshot = db.snapshot();
    /// db.put("b", "2")?;
    /// assert_eq!(snapshot.iter().count(), 1);
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn iter(&self) -> Range {
        self.within(Part::Default, Bounds::all())
    }

    /// Iterates over the entries with keys in `range`.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// for key in ["a", "b", "c"] {
    ///     db.put(key, "")?;
    /// }
    /// let (last, _) = db.snapshot().range("a".."c").next_back().unwrap()?;
    /// assert_eq!(last, b"b");
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn range(&self, range: impl KeyRange) -> Range {
        self.within(Part::Default, Bounds::of(range))
    }

    /// Iterates over the entries with keys that begin with `prefix`.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// db.put("user:1", "Ada")?;
    /// db.put("vote:1", "yes")?;
    /// assert_eq!(db.snapshot().prefix("user:").count(), 1);
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Range {
        self.within(Part::Default, Bounds::prefix(prefix.as_ref()))
    }

    /// Returns a cursor over all entries.
    ///
    /// # Errors
    /// As [`Db::cursor`](crate::Db::cursor).
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// db.put("a", "1")?;
    /// let mut cursor = db.snapshot().cursor()?; // outlives the snapshot
    /// cursor.seek_to_last()?;
    /// assert_eq!(cursor.key(), Some(&b"a"[..]));
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn cursor(&self) -> Result<DbCursor> {
        self.store.cursor(Part::Default, Bounds::all(), self.at())
    }

    /// Returns a cursor over the entries with keys in `range`; see
    /// [`Db::cursor_in`](crate::Db::cursor_in).
    ///
    /// # Errors
    /// As [`Db::cursor`](crate::Db::cursor).
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// for key in ["a", "b", "c"] {
    ///     db.put(key, "")?;
    /// }
    /// let mut cursor = db.snapshot().cursor_in(.."b")?;
    /// cursor.seek_to_last()?;
    /// assert_eq!(cursor.key(), Some(&b"a"[..]));
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn cursor_in(&self, range: impl KeyRange) -> Result<DbCursor> {
        self.store.cursor(Part::Default, Bounds::of(range), self.at())
    }

    /// Returns a cursor over the entries with keys that begin with `prefix`.
    ///
    /// # Errors
    /// As [`Db::cursor`](crate::Db::cursor).
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// db.put("user:1", "Ada")?;
    /// let mut cursor = db.snapshot().prefix_cursor("user:")?;
    /// cursor.seek_to_first()?;
    /// assert_eq!(cursor.entry(), Some((&b"user:1"[..], &b"Ada"[..])));
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn prefix_cursor(&self, prefix: impl AsRef<[u8]>) -> Result<DbCursor> {
        self.store.cursor(Part::Default, Bounds::prefix(prefix.as_ref()), self.at())
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
