//! The public iterators: a [`Range`], double-ended, and a [`DbCursor`], which can be moved
//! anywhere.

use trommel_base::{Slice, SliceBuffer};

use super::visible::VisibleCursor;
use crate::bounds::{Bounds, SharedBounds};
use crate::error::{Error, Result};
use crate::fork::Opener;
use crate::space::{KeyBuffer, Space};

/// Makes the cursors of the two ends of a [`Range`].
pub(crate) type MakeCursor = Box<dyn Fn() -> Result<VisibleCursor> + Send>;

/// An end of a range: its cursor, created on first use, on the entry yielded last.
type End = Option<VisibleCursor>;

/// An iterator over the entries of a range as of one moment, in key order, from both ends.
///
/// It owns everything that it reads from, so it can outlive its handle and move to another thread.
/// It sees the store as of its creation, and keeps the files and memtables that it reads, and the
/// store, open until it is dropped. After an error it yields nothing more. Once the store is closed
/// by [`Db::close`](crate::Db::close), the next entry is [`Error::Closed`](crate::Error::Closed).
///
/// # What is copied, and what kept entries keep
/// A key is assembled from its block, so it is a copy; the memory of a key above 30 bytes is reused
/// for the next one if the key was dropped by then. A value above 30 bytes is a slice of its block.
/// So a loop that reads entries and drops them allocates nothing per entry, while **every value
/// that is kept keeps its block** (4 KiB by default) in memory, beyond the block cache's limit and
/// not counted by [`Stats`](crate::Stats): keep [`Slice::detached`] or a `Vec` instead.
/// [`DbCursor::visit`] lends keys and values without copies or reference counts, and is the fastest
/// way to scan many entries.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = trommel::Db::open(dir.path(), Default::default())?;
/// # db.put("a", "1")?;
/// let mut kept = Vec::new();
/// for entry in db.iter() {
///     let (_, value) = entry?;
///     kept.push(value.detached()); // holds the value, and not its block
/// }
/// # Ok::<(), trommel::Error>(())
/// ```
#[must_use = "it reads nothing until it is advanced"]
pub struct Range {
    /// In physical keys.
    bounds: SharedBounds,
    space: Space,
    make_cursor: MakeCursor,
    front: End,
    back: End,
    /// Buffers for long keys, and for values that cannot be shared.
    keys: SliceBuffer,
    values: SliceBuffer,
    done: bool,
    opener: Opener,
}

impl Range {
    /// The entries of a keyspace that is stored in this way, within these bounds of physical keys.
    pub(crate) fn new(
        bounds: SharedBounds,
        space: Space,
        make_cursor: MakeCursor,
        opener: Opener,
    ) -> Self {
        let done = bounds.ends_before(&bounds.from);
        let (keys, values) = <(SliceBuffer, SliceBuffer)>::default();
        Self { bounds, space, make_cursor, front: None, back: None, keys, values, done, opener }
    }

    fn step_front(&mut self) -> Result<Option<(Slice, Slice)>> {
        let cursor = match &mut self.front {
            Some(cursor) => {
                cursor.next()?;
                cursor
            }
            none => {
                self.opener.check()?;
                let cursor = none.insert((self.make_cursor)()?);
                cursor.seek(&self.bounds.from)?;
                if self.back.is_none() {
                    cursor.count_if_empty();
                }
                cursor
            }
        };
        let Some(key) = cursor.key() else { return Ok(None) };
        let met = self.back.as_ref().and_then(VisibleCursor::key).is_some_and(|last| *key >= *last);
        if met || self.bounds.ends_before(key) {
            return Ok(None);
        }
        let key = self.keys.copied(self.space.strip(key));
        Ok(Some((key, cursor.value_in(&mut self.values))))
    }

    fn step_back(&mut self) -> Result<Option<(Slice, Slice)>> {
        let cursor = match &mut self.back {
            Some(cursor) => {
                cursor.prev()?;
                cursor
            }
            none => {
                self.opener.check()?;
                let cursor = none.insert((self.make_cursor)()?);
                match &self.bounds.to {
                    Some(to) => cursor.seek_before(to)?,
                    None => cursor.seek_to_last()?,
                }
                if self.front.is_none() {
                    cursor.count_if_empty();
                }
                cursor
            }
        };
        let Some(key) = cursor.key() else { return Ok(None) };
        let met =
            self.front.as_ref().and_then(VisibleCursor::key).is_some_and(|last| *key <= *last);
        if met || *key < *self.bounds.from {
            return Ok(None);
        }
        let key = self.keys.copied(self.space.strip(key));
        Ok(Some((key, cursor.value_in(&mut self.values))))
    }

    fn finish(&mut self, step: Result<Option<(Slice, Slice)>>) -> Option<Result<(Slice, Slice)>> {
        if !matches!(step, Ok(Some(_))) {
            self.done = true;
        }
        step.transpose()
    }
}

impl Drop for Range {
    fn drop(&mut self) {
        if self.opener.is_forked() {
            let nothing: MakeCursor = Box::new(|| Err(Error::Forked));
            std::mem::forget(std::mem::replace(&mut self.make_cursor, nothing));
        }
    }
}

impl Iterator for Range {
    type Item = Result<(Slice, Slice)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let step = self.step_front();
        self.finish(step)
    }
}

impl DoubleEndedIterator for Range {
    fn next_back(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let step = self.step_back();
        self.finish(step)
    }
}

impl std::iter::FusedIterator for Range {}

impl std::fmt::Debug for Range {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Range").field("bounds", &self.bounds).finish_non_exhaustive()
    }
}

/// A cursor over the entries of the store as of one moment, which can be moved anywhere.
///
/// A new cursor is off the end, where [`DbCursor::key`] is `None`. So is a cursor after a movement
/// that fails, or that leaves the range of a bounded cursor
/// ([`Db::cursor_in`](crate::Db::cursor_in)).
///
/// It keeps the store open until it is dropped, like a [`Db`](crate::Db). Once the store is closed
/// by [`Db::close`](crate::Db::close), every movement is [`Error::Closed`](crate::Error::Closed).
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = trommel::Db::open(dir.path(), Default::default())?;
/// for key in ["a", "c", "e"] {
///     db.put(key, "")?;
/// }
/// let mut cursor = db.cursor()?;
/// cursor.seek(b"b")?;
/// assert_eq!(cursor.key(), Some(&b"c"[..]));
/// cursor.prev()?;
/// assert_eq!(cursor.key(), Some(&b"a"[..]));
/// # Ok::<(), trommel::Error>(())
/// ```
#[must_use = "it reads nothing until it is advanced"]
pub struct DbCursor {
    cursor: VisibleCursor,
    /// In physical keys.
    bounds: SharedBounds,
    /// Always true if the keyspace is stored with headers.
    is_bounded: bool,
    space: Space,
}

impl DbCursor {
    /// A cursor over a keyspace that is stored in this way, within these bounds of physical keys;
    /// `cursor` may lack entries outside them.
    pub(crate) fn new(cursor: VisibleCursor, bounds: SharedBounds, space: Space) -> Self {
        let is_bounded = !bounds.are_all();
        Self { cursor, bounds, is_bounded, space }
    }

    /// Moves to the first entry.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// for key in ["a", "c", "e"] {
    ///     db.put(key, "")?;
    /// }
    /// let mut cursor = db.cursor()?;
    /// cursor.seek_to_first()?;
    /// assert_eq!(cursor.key(), Some(&b"a"[..]));
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn seek_to_first(&mut self) -> Result<()> {
        self.cursor.seek(&self.bounds.from)?;
        self.stay_within()
    }

    /// Moves to the last entry.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// for key in ["a", "c", "e"] {
    ///     db.put(key, "")?;
    /// }
    /// let mut cursor = db.cursor()?;
    /// cursor.seek_to_last()?;
    /// assert_eq!(cursor.key(), Some(&b"e"[..]));
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn seek_to_last(&mut self) -> Result<()> {
        match &self.bounds.to {
            Some(to) => self.cursor.seek_before(to)?,
            None => self.cursor.seek_to_last()?,
        }
        self.stay_within()
    }

    /// Moves to the first entry whose key is `key` or larger.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// for key in ["a", "c", "e"] {
    ///     db.put(key, "")?;
    /// }
    /// let mut cursor = db.cursor()?;
    /// cursor.seek("b")?;
    /// assert_eq!(cursor.key(), Some(&b"c"[..]));
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn seek(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        match self.space {
            Space::Plain => self.cursor.seek(key.as_ref().max(&*self.bounds.from))?,
            space => {
                let mut buffer = KeyBuffer::default();
                let key = space.key_in(key.as_ref(), &mut buffer);
                self.cursor.seek(key.max(&*self.bounds.from))?;
            }
        }
        self.stay_within()
    }

    /// Moves to the last entry whose key is `key` or smaller.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// for key in ["a", "c", "e"] {
    ///     db.put(key, "")?;
    /// }
    /// let mut cursor = db.cursor()?;
    /// cursor.seek_for_prev("d")?;
    /// assert_eq!(cursor.key(), Some(&b"c"[..]));
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn seek_for_prev(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        let end = Bounds::after(&self.space.key(key.as_ref()));
        if self.bounds.ends_before(&end) {
            return self.seek_to_last();
        }
        self.cursor.seek_before(&end)?;
        self.stay_within()
    }

    /// Moves to the next entry; does nothing off the end.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// for key in ["a", "c", "e"] {
    ///     db.put(key, "")?;
    /// }
    /// let mut cursor = db.cursor()?;
    /// cursor.seek("c")?;
    /// cursor.next()?;
    /// assert_eq!(cursor.key(), Some(&b"e"[..]));
    /// # Ok::<(), trommel::Error>(())
    /// ```
    #[expect(clippy::should_implement_trait, reason = "a cursor moves, it does not yield")]
    #[inline]
    pub fn next(&mut self) -> Result<()> {
        self.cursor.next()?;
        self.stay_within()
    }

    /// Moves to the previous entry; does nothing off the end.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// for key in ["a", "c", "e"] {
    ///     db.put(key, "")?;
    /// }
    /// let mut cursor = db.cursor()?;
    /// cursor.seek("c")?;
    /// cursor.prev()?;
    /// assert_eq!(cursor.key(), Some(&b"a"[..]));
    /// # Ok::<(), trommel::Error>(())
    /// ```
    #[inline]
    pub fn prev(&mut self) -> Result<()> {
        self.cursor.prev()?;
        self.stay_within()
    }

    /// Lends the entries from the current one to the last to `visit`, in key order, until it
    /// returns false; the cursor is then on that entry, otherwise off the end. The cheapest way to
    /// scan many entries: adjacent entries of one table are lent without a cursor step.
    ///
    /// # Errors
    /// As [`DbCursor::next`]. Entries visited before the error are valid, but not all. Closing the
    /// store ends the visit at the end of a block.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// for (key, value) in [("a", "1"), ("b", "22"), ("c", "333")] {
    ///     db.put(key, value)?;
    /// }
    /// let mut cursor = db.cursor()?;
    /// cursor.seek("b")?;
    /// let mut bytes = 0;
    /// cursor.visit(|key, value| {
    ///     bytes += key.len() + value.len();
    ///     true
    /// })?;
    /// assert_eq!(bytes, 7);
    /// assert_eq!(cursor.key(), None);
    /// # Ok::<(), trommel::Error>(())
    /// ```
    #[inline]
    pub fn visit(&mut self, mut visit: impl FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        if !self.is_bounded {
            return self.cursor.visit(visit);
        }
        let (bounds, space) = (&self.bounds, self.space);
        self.cursor
            .visit(|key, value| !bounds.ends_before(key) && visit(space.strip(key), value))?;
        self.stay_within()
    }

    /// As [`DbCursor::visit`], in reverse key order to the first entry.
    ///
    /// # Errors
    /// As [`DbCursor::prev`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// for key in ["a", "c", "e"] {
    ///     db.put(key, "")?;
    /// }
    /// let mut cursor = db.cursor()?;
    /// cursor.seek_to_last()?;
    /// let mut keys = Vec::new();
    /// cursor.visit_back(|key, _| {
    ///     keys.extend_from_slice(key);
    ///     true
    /// })?;
    /// assert_eq!(keys, b"eca");
    /// # Ok::<(), trommel::Error>(())
    /// ```
    #[inline]
    pub fn visit_back(&mut self, mut visit: impl FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        if !self.is_bounded {
            return self.cursor.visit_back(visit);
        }
        let (from, space) = (&*self.bounds.from, self.space);
        self.cursor.visit_back(|key, value| *from <= *key && visit(space.strip(key), value))?;
        self.stay_within()
    }

    #[inline]
    fn stay_within(&mut self) -> Result<()> {
        if self.is_bounded && self.cursor.key().is_some_and(|key| !self.bounds.holds(key)) {
            self.cursor.leave();
        }
        Ok(())
    }

    /// Whether the cursor is on an entry.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// for key in ["a", "c", "e"] {
    ///     db.put(key, "")?;
    /// }
    /// let mut cursor = db.cursor()?;
    /// assert!(!cursor.valid());
    /// cursor.seek_to_last()?;
    /// assert!(cursor.valid());
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn valid(&self) -> bool {
        self.cursor.key().is_some()
    }

    /// The current key.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// for key in ["a", "c", "e"] {
    ///     db.put(key, "")?;
    /// }
    /// let mut cursor = db.cursor()?;
    /// assert_eq!(cursor.key(), None);
    /// cursor.seek_to_first()?;
    /// assert_eq!(cursor.key(), Some(&b"a"[..]));
    /// # Ok::<(), trommel::Error>(())
    /// ```
    #[inline]
    pub fn key(&self) -> Option<&[u8]> {
        self.cursor.key().map(|key| self.space.strip(key))
    }

    /// The current key and value, both borrowed until the cursor moves: nothing is copied or
    /// reference-counted. To scan many entries, [`DbCursor::visit`] is cheaper still.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// db.put("a", "1")?;
    /// db.put("b", "22")?;
    /// let mut cursor = db.cursor()?;
    /// cursor.seek_to_first()?;
    /// let mut bytes = 0;
    /// while let Some((key, value)) = cursor.entry() {
    ///     bytes += key.len() + value.len();
    ///     cursor.next()?;
    /// }
    /// assert_eq!(bytes, 5);
    /// # Ok::<(), trommel::Error>(())
    /// ```
    #[inline(always)]
    pub fn entry(&self) -> Option<(&[u8], &[u8])> {
        self.cursor.entry().map(|(key, value)| (self.space.strip(key), value))
    }

    /// The current value, which may be kept. A long one keeps its block in memory:
    /// [`Slice::detached`] copies it out.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// db.put("a", "1")?;
    /// let mut cursor = db.cursor()?;
    /// cursor.seek_to_first()?;
    /// let kept = cursor.value();
    /// cursor.next()?;
    /// assert_eq!(kept.unwrap(), b"1");
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn value(&self) -> Option<Slice> {
        self.valid().then(|| self.cursor.value())
    }
}

impl std::fmt::Debug for DbCursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DbCursor").field("key", &self.key()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Bound;

    use super::*;

    #[test]
    fn a_prefix_ends_where_the_next_begins() {
        let to = |prefix: &[u8]| Bounds::prefix(prefix).to;
        assert_eq!(to(b"ab"), Some(b"ac".to_vec()));
        assert_eq!(to(b"a\xff\xff"), Some(b"b".to_vec()));
        assert_eq!(to(b"\xff\xff"), None);
        assert_eq!(to(b""), None);
    }

    #[test]
    fn every_rust_range_has_its_bounds() {
        let of = |range: (Bound<&[u8]>, Bound<&[u8]>)| {
            let bounds = Bounds::of(range);
            (bounds.from, bounds.to)
        };
        use Bound::{Excluded, Included, Unbounded};
        assert_eq!(of((Included(b"a"), Excluded(b"b"))), (b"a".to_vec(), Some(b"b".to_vec())));
        assert_eq!(of((Excluded(b"a"), Included(b"b"))), (b"a\0".to_vec(), Some(b"b\0".to_vec())));
        assert_eq!(of((Unbounded, Unbounded)), (vec![], None));
    }
}
