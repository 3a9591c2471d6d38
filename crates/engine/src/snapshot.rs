//! The store as it was at one moment.

use std::sync::Arc;

use trommel_base::{SeqNo, Slice};

use crate::engine::Engine;
use crate::error::Result;
use crate::fork::leak;
use crate::iter::range::{Bounds, DbCursor, KeyRange, Range};

/// The store as it was when the snapshot was taken, for as long as it is held.
///
/// Compactions keep what a snapshot can see, so one that is held for long costs disk space.
/// Cheap to take and to clone.
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
    engine: Arc<Engine>,
    seqno: SeqNo,
}

impl Snapshot {
    pub(crate) fn take(engine: &Arc<Engine>) -> Self {
        let seqno = match engine.opener.is_forked() {
            // Nothing can be read at it.
            true => engine.snapshots.visible(),
            false => engine.snapshots.take(),
        };
        Self { engine: Arc::clone(engine), seqno }
    }

    /// The last sequence number it sees.
    pub fn seqno(&self) -> SeqNo {
        self.seqno
    }

    /// The value of `key`.
    ///
    /// # Errors
    /// As [`Db::get`](crate::Db::get).
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Slice>> {
        self.engine.get(key.as_ref(), Some(self.seqno))
    }

    /// Whether `key` has a value.
    ///
    /// # Errors
    /// As [`Db::get`](crate::Db::get).
    pub fn contains_key(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        Ok(self.get(key)?.is_some())
    }

    /// The values of `keys`, in their order.
    ///
    /// # Errors
    /// As [`Db::multi_get`](crate::Db::multi_get).
    pub fn multi_get<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Slice>>> {
        self.engine.multi_get(keys, Some(self.seqno))
    }

    /// All entries, in key order.
    pub fn iter(&self) -> Range {
        self.engine.range(Bounds::all(), Some(self.seqno))
    }

    /// The entries whose keys lie in `range`.
    pub fn range(&self, range: impl KeyRange) -> Range {
        self.engine.range(Bounds::of(range), Some(self.seqno))
    }

    /// The entries whose keys begin with `prefix`.
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Range {
        self.engine.range(Bounds::prefix(prefix.as_ref()), Some(self.seqno))
    }

    /// A cursor that can be moved anywhere.
    ///
    /// # Errors
    /// As [`Db::cursor`](crate::Db::cursor).
    pub fn cursor(&self) -> Result<DbCursor> {
        self.engine.cursor(Bounds::all(), Some(self.seqno))
    }

    /// A cursor that stays within `range`; see [`Db::cursor_in`](crate::Db::cursor_in).
    ///
    /// # Errors
    /// As [`Db::cursor`](crate::Db::cursor).
    pub fn cursor_in(&self, range: impl KeyRange) -> Result<DbCursor> {
        self.engine.cursor(Bounds::of(range), Some(self.seqno))
    }

    /// A cursor that stays among the keys that begin with `prefix`.
    ///
    /// # Errors
    /// As [`Db::cursor`](crate::Db::cursor).
    pub fn prefix_cursor(&self, prefix: impl AsRef<[u8]>) -> Result<DbCursor> {
        self.engine.cursor(Bounds::prefix(prefix.as_ref()), Some(self.seqno))
    }
}

impl Clone for Snapshot {
    fn clone(&self) -> Self {
        if !self.engine.opener.is_forked() {
            self.engine.snapshots.take_again(self.seqno);
        }
        Self { engine: Arc::clone(&self.engine), seqno: self.seqno }
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        match self.engine.opener.is_forked() {
            true => leak(&self.engine),
            false => self.engine.snapshots.release(self.seqno),
        }
    }
}
