//! Optimistic transactions: many reads and writes as one serializable operation.
//!
//! 1. A transaction reads from a snapshot, with its own writes, which nothing else sees, on top. It
//!    notes which keys and ranges it has read (module `reads`).
//! 2. Its commit is a batch with the condition that none of them was written since the snapshot
//!    (module `write::conditional`). So everything that it has read still holds at its position in
//!    the order of commits, as if it had run there at once.
//! 3. A transaction that has written nothing needs no check: it ran at the moment of its snapshot.
//!
//! Invariants: nothing is visible or logged before the commit, and nothing is locked. The snapshot
//! is held until the commit has been decided, so that compactions leave a trace of each later
//! change.

mod merging;
mod range;
mod reads;
#[cfg(test)]
mod tests;
mod writes;

use std::borrow::Cow;
use std::sync::Arc;

use trommel_base::{SeqNo, Slice};

pub use range::TransactionRange;

use crate::batch::{Batch, OpKind, add_once};
use crate::bounds::{Bounds, KeyRange};
use crate::conflict::{Conflict, Expected};
use crate::error::{Error, Result};
use crate::handle::Handle;
use crate::keyspaces::{KeyspaceState, Part};
use crate::options::WriteOptions;
use crate::snapshot::Snapshot;
use crate::space::{KeyBuffer, MARKER, Space, is_marked};
use crate::sync::{Mutex, MutexGuard, lock, thread};
use crate::view::Since;
use reads::TrackedReads;
use writes::{OwnValue, OwnWrites};

/// How often [`Db::transaction`](crate::Db::transaction) runs its closure at most. Each time that
/// one transaction fails, another has committed.
const ATTEMPTS: usize = 1000;

/// Reads and writes that take effect together, as if nothing else had run meanwhile, or not at all.
///
/// Reads see the store as of [`Db::begin`](crate::Db::begin), and the transaction's own writes.
/// Nothing else sees those writes before [`Transaction::commit`], which fails with
/// [`Error::Conflict`](crate::Error::Conflict) if another write has changed any key or range that
/// the transaction has read, including keys that were missing and ranges that were empty. Nothing
/// is written then. Writes alone never conflict. Dropping a transaction rolls it back.
///
/// It locks nothing, and never waits for another transaction. Like a [`Snapshot`], it keeps the
/// store open, and the data that it can read on disk. Its writes and the keys that it has read are
/// in memory until it ends; beyond 4 MiB of keys that were read, adjacent keys are merged into
/// ranges, and a write between them then counts as a conflict.
///
/// [`Db::transaction`](crate::Db::transaction) begins, commits and retries by itself.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = trommel::Db::open(dir.path(), Default::default())?;
/// db.put("stock", "1")?;
/// let order = db.begin();
/// assert_eq!(order.get("stock")?.unwrap(), b"1");
/// order.put("stock", "0")?;
/// db.put("stock", "7")?; // another write comes first
/// assert!(matches!(order.commit(), Err(trommel::Error::Conflict(_))));
/// assert_eq!(db.get("stock")?.unwrap(), b"7");
/// # Ok::<(), trommel::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "dropping it rolls it back"]
pub struct Transaction {
    snapshot: Snapshot,
    /// How the default keyspace is stored as of the snapshot. All keys below are physical.
    default: Space,
    since: Since,
    state: Mutex<TransactionState>,
}

/// The reads and writes of a transaction so far.
#[derive(Debug, Default)]
struct TransactionState {
    reads: TrackedReads,
    writes: OwnWrites,
    /// Whether the reads are checked even if it writes nothing.
    is_for_update: bool,
    /// The named keyspaces that it has written to.
    keyspaces: Vec<Arc<KeyspaceState>>,
    /// Whether any of its reads and writes would be on other physical keys if the default keyspace
    /// were stored differently.
    depends_on_store: bool,
}

impl Transaction {
    pub(crate) fn begin(store: &Arc<Handle>) -> Self {
        // Before the snapshot is taken: see `View::since`.
        let view = store.engine.view.load();
        let snapshot = Snapshot::take(store);
        let since = view.since(snapshot.seqno(), &store.engine.snapshots);
        let default = store.engine.options.keyspaces.default_at(snapshot.seqno());
        Self { snapshot, default, since, state: Mutex::default() }
    }

    pub(crate) fn store(&self) -> &Arc<Handle> {
        self.snapshot.store()
    }

    /// How the default keyspace is stored, for an operation on this key of it.
    #[inline]
    fn default_for(&self, key: &[u8]) -> Space {
        if is_marked(key) {
            self.note_dependence();
        }
        self.default
    }

    /// As [`default_for`](Self::default_for), for an operation on this range.
    fn default_for_range(&self, bounds: &Bounds, is_write: bool) -> Space {
        let is_to_marked = bounds.to.as_ref().map_or(is_write, |to| is_marked(to));
        if is_marked(&bounds.from) || is_to_marked {
            self.note_dependence();
        }
        self.default
    }

    #[cold]
    fn note_dependence(&self) {
        if !self.is_forked() {
            lock(&self.state).depends_on_store = true;
        }
    }

    /// The reads and writes of the transaction so far; an error if the store was closed, or in a
    /// forked child, where the lock may be held forever.
    fn state(&self) -> Result<MutexGuard<'_, TransactionState>> {
        self.snapshot.store().engine.access.check_open()?;
        Ok(lock(&self.state))
    }

    /// Whether the caller runs in a forked child, where nothing has an effect.
    fn is_forked(&self) -> bool {
        self.snapshot.store().engine.access.opener().is_forked()
    }

    /// Runs `body` in a transaction and commits it, and repeats that after each conflict.
    pub(crate) fn run<T>(
        store: &Arc<Handle>,
        options: WriteOptions,
        mut body: impl FnMut(&Self) -> Result<T>,
    ) -> Result<T> {
        let mut attempt = 1;
        loop {
            let transaction = Self::begin(store);
            let value = body(&transaction)?;
            match transaction.commit_with(options) {
                Err(Error::Conflict(_)) if attempt < ATTEMPTS => {
                    attempt += 1;
                    thread::yield_now();
                }
                committed => return committed.map(|_| value),
            }
        }
    }

    /// The sequence number as of which it reads.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// let seqno = db.put("key", "value")?;
    /// assert_eq!(db.begin().seqno(), seqno);
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn seqno(&self) -> SeqNo {
        self.snapshot.seqno()
    }

    /// Returns the value of `key`. Memory is held as by [`Db::get`](crate::Db::get).
    ///
    /// # Errors
    /// As [`Db::get`](crate::Db::get).
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// let transaction = db.begin();
    /// transaction.put("key", "own")?;
    /// assert_eq!(transaction.get("key")?.unwrap(), b"own");
    /// assert_eq!(db.get("key")?, None);
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Slice>> {
        let key = key.as_ref();
        self.get_in(self.default_for(key), key)
    }

    /// The value of `key` in a keyspace that is stored in this way.
    pub(crate) fn get_in(&self, space: Space, key: &[u8]) -> Result<Option<Slice>> {
        let mut buffer = KeyBuffer::default();
        let key = space.key_in(key, &mut buffer);
        match self.read_own(key)? {
            Some(own) => Ok(own),
            None => self.store().engine.get(key, self.snapshot.at()),
        }
    }

    /// Whether `key` has a value.
    ///
    /// # Errors
    /// As [`Db::get`](crate::Db::get).
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// let transaction = db.begin();
    /// transaction.put("key", "own")?;
    /// assert!(transaction.contains_key("key")? && !transaction.contains_key("none")?);
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn contains_key(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        let key = key.as_ref();
        self.contains_in(self.default_for(key), key)
    }

    /// Whether `key` has a value, in a keyspace that is stored in this way.
    pub(crate) fn contains_in(&self, space: Space, key: &[u8]) -> Result<bool> {
        let mut buffer = KeyBuffer::default();
        let key = space.key_in(key, &mut buffer);
        match self.read_own(key)? {
            Some(own) => Ok(own.is_some()),
            None => self.store().engine.contains(key, self.snapshot.at()),
        }
    }

    /// As [`Transaction::get`], and the commit fails if another write has changed the key since the
    /// transaction began, even if the transaction itself writes nothing, or had written the key
    /// before. (After [`Transaction::get`], a transaction that writes nothing never fails, and
    /// reading a key that it has written itself does not count as a read of the store.)
    ///
    /// # Errors
    /// As [`Db::get`](crate::Db::get).
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// let transaction = db.begin();
    /// transaction.get_for_update("leader")?;
    /// db.put("leader", "another")?;
    /// assert!(matches!(transaction.commit(), Err(trommel::Error::Conflict(_))));
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn get_for_update(&self, key: impl AsRef<[u8]>) -> Result<Option<Slice>> {
        let key = key.as_ref();
        self.get_for_update_in(self.default_for(key), key)
    }

    /// As [`get_in`](Self::get_in), for [`get_for_update`](Self::get_for_update).
    pub(crate) fn get_for_update_in(&self, space: Space, key: &[u8]) -> Result<Option<Slice>> {
        let mut state = self.state()?;
        state.is_for_update = true;
        state.reads.add_key(&space.key(key));
        drop(state);
        self.get_in(space, key)
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
    /// let transaction = db.begin();
    /// transaction.put("b", "2")?;
    /// let values = transaction.multi_get(&["a", "b", "c"])?;
    /// assert_eq!(values.iter().flatten().count(), 2);
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn multi_get<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Slice>>> {
        let default = keys.iter().map(|key| self.default_for(key.as_ref())).last();
        self.multi_get_in(default.unwrap_or(self.default), keys)
    }

    /// The values of `keys` in a keyspace that is stored in this way.
    pub(crate) fn multi_get_in<K: AsRef<[u8]>>(
        &self,
        space: Space,
        keys: &[K],
    ) -> Result<Vec<Option<Slice>>> {
        let keys: Vec<_> = keys.iter().map(|key| space.key(key.as_ref())).collect();
        let own: Result<Vec<_>> = keys.iter().map(|key| self.read_own(key)).collect();
        let own = own?;
        let unwritten = keys.iter().zip(&own).filter(|(_, own)| own.is_none());
        let unwritten: Vec<_> = unwritten.map(|(key, _)| key).collect();
        let stored = self.store().engine.multi_get(&unwritten, self.snapshot.at())?;
        let mut stored = stored.into_iter();
        let value = |own: Option<_>| own.unwrap_or_else(|| stored.next().flatten());
        Ok(own.into_iter().map(value).collect())
    }

    /// The own value of a key that it has written; notes that other keys are read.
    fn read_own(&self, key: &[u8]) -> Result<Option<Option<Slice>>> {
        let mut state = self.state()?;
        match state.writes.get(key) {
            None => state.reads.add_key(key),
            Some(OwnValue::Set(own)) => return Ok(Some(own.map(Slice::from))),
            Some(OwnValue::Merged { .. }) => return self.read_merged(state, key).map(Some),
        }
        Ok(None)
    }

    /// Iterates over all entries: see [`Transaction::range`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// let transaction = db.begin();
    /// transaction.put("a", "1")?;
    /// assert_eq!(transaction.iter().count(), 1);
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn iter(&self) -> TransactionRange<'_> {
        self.within(Bounds::all())
    }

    /// Iterates over the entries with keys in `range`, its own writes included, in both directions.
    /// The part that was iterated over counts as read, and so do the gaps between its keys: a key
    /// that another write adds there is a conflict.
    ///
    /// The transaction may write while it iterates; the iterator sees writes ahead of it.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// db.put("job/1", "waiting")?;
    /// db.put("job/2", "waiting")?;
    /// let transaction = db.begin();
    /// for job in transaction.range("job/".."job0") {
    ///     transaction.put(job?.0, "running")?;
    /// }
    /// db.put("job/3", "waiting")?; // would have been running
    /// assert!(matches!(transaction.commit(), Err(trommel::Error::Conflict(_))));
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn range(&self, range: impl KeyRange) -> TransactionRange<'_> {
        self.within(Bounds::of(range))
    }

    /// Iterates over the entries with keys that begin with `prefix`: see [`Transaction::range`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// db.put("user:1", "Ada")?;
    /// let transaction = db.begin();
    /// transaction.put("user:2", "Grace")?;
    /// let (last, _) = transaction.prefix("user:").next_back().unwrap()?;
    /// assert_eq!(last, b"user:2");
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> TransactionRange<'_> {
        self.within(Bounds::prefix(prefix.as_ref()))
    }

    fn within(&self, bounds: Bounds) -> TransactionRange<'_> {
        self.within_in(self.default_for_range(&bounds, false), bounds)
    }

    /// The entries within `bounds` of a keyspace that is stored in this way.
    pub(crate) fn within_in(&self, space: Space, bounds: Bounds) -> TransactionRange<'_> {
        let bounds = space.bounds(bounds);
        let stored = self.snapshot.within(Part::Whole, bounds.clone());
        TransactionRange::new(self, space, bounds, stored)
    }

    /// Sets `key` to `value`.
    ///
    /// # Errors
    /// [`Error::KeyTooLong`] above 65,535 bytes, [`Error::ValueTooLong`] above 1 GiB;
    /// [`Error::Closed`] and [`Error::Forked`] as for [`Db::get`](crate::Db::get).
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// let transaction = db.begin();
    /// transaction.put("key", "value")?;
    /// transaction.commit()?;
    /// assert_eq!(db.get("key")?.unwrap(), b"value");
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        let key = key.as_ref();
        self.put_in(None, self.default_for(key), key, value.as_ref())
    }

    /// Sets `key` in a keyspace that is stored in this way, and which is noted if it is named.
    pub(crate) fn put_in(
        &self,
        keyspace: Option<&Arc<KeyspaceState>>,
        space: Space,
        key: &[u8],
        value: &[u8],
    ) -> Result<()> {
        let key = space.key(key);
        Batch::one(OpKind::Put, &key, value)?;
        let mut state = self.state()?;
        state.note(keyspace);
        state.writes.set(&key, Some(value.to_vec()));
        Ok(())
    }

    /// Deletes `key`, whether or not it exists.
    ///
    /// # Errors
    /// As [`Transaction::put`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// db.put("key", "value")?;
    /// let transaction = db.begin();
    /// transaction.delete("key")?;
    /// assert_eq!(transaction.get("key")?, None);
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<()> {
        let key = key.as_ref();
        self.delete_in(None, self.default_for(key), key)
    }

    /// As [`put_in`](Self::put_in), for a deletion.
    pub(crate) fn delete_in(
        &self,
        keyspace: Option<&Arc<KeyspaceState>>,
        space: Space,
        key: &[u8],
    ) -> Result<()> {
        let key = space.key(key);
        Batch::one(OpKind::Delete, &key, &[])?;
        let mut state = self.state()?;
        state.note(keyspace);
        state.writes.set(&key, None);
        Ok(())
    }

    /// Deletes all keys in `range`: those that the transaction has written, and those that are
    /// there when it commits, read or not.
    ///
    /// # Errors
    /// As [`Transaction::put`], if a bound is too long.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// let transaction = db.begin();
    /// transaction.delete_range("a".."c")?;
    /// db.put("b", "2")?;
    /// transaction.commit()?; // it has not read the range
    /// assert_eq!(db.get("b")?, None);
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn delete_range(&self, range: impl KeyRange) -> Result<()> {
        let bounds = Bounds::of(range);
        self.delete_range_in(None, self.default_for_range(&bounds, true), bounds)
    }

    /// As [`put_in`](Self::put_in), for the deletion of a range.
    pub(crate) fn delete_range_in(
        &self,
        keyspace: Option<&Arc<KeyspaceState>>,
        space: Space,
        bounds: Bounds,
    ) -> Result<()> {
        let bounds = space.bounds(bounds);
        Batch::check_range(&bounds)?;
        let mut state = self.state()?;
        state.note(keyspace);
        state.writes.delete_range(&bounds);
        Ok(())
    }

    /// Sets a savepoint, to which [`Transaction::rollback_to_savepoint`] returns.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// let transaction = db.begin();
    /// transaction.put("kept", "1")?;
    /// transaction.set_savepoint();
    /// transaction.put("dropped", "2")?;
    /// transaction.rollback_to_savepoint()?;
    /// transaction.commit()?;
    /// assert!(db.contains_key("kept")? && !db.contains_key("dropped")?);
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn set_savepoint(&self) {
        if !self.is_forked() {
            lock(&self.state).writes.set_savepoint();
        }
    }

    /// Undoes all writes since the last savepoint, and removes that savepoint. Keys read since then
    /// still count as read.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] if there is no savepoint; [`Error::Closed`] and [`Error::Forked`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// let transaction = db.begin();
    /// assert!(transaction.rollback_to_savepoint().is_err());
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn rollback_to_savepoint(&self) -> Result<()> {
        if self.state()?.writes.roll_back() {
            return Ok(());
        }
        Err(Error::option("the transaction has no savepoint: call set_savepoint first"))
    }

    /// Undoes all writes and removes all savepoints. The transaction can be used further; in the
    /// closure of [`Db::transaction`](crate::Db::transaction) it is the way to write nothing
    /// without an error. Dropping a transaction has the same effect.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// let sold = db.transaction(|tx| {
    ///     tx.put("sold", "1")?;
    ///     let in_stock = tx.contains_key("stock")?;
    ///     if !in_stock {
    ///         tx.rollback();
    ///     }
    ///     Ok(in_stock)
    /// })?;
    /// assert!(!sold && !db.contains_key("sold")?);
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn rollback(&self) {
        if !self.is_forked() {
            lock(&self.state).writes = OwnWrites::default();
        }
    }

    /// Commits: all writes become visible together, and durable together or not at all. Returns the
    /// sequence number of the last one; of a transaction without writes,
    /// [`Transaction::seqno`], and nothing is checked or waited for (unless
    /// [`Transaction::get_for_update`] was called).
    ///
    /// # Errors
    /// [`Error::Conflict`] if another write has changed a key or range that was read: nothing was
    /// written, and the transaction can be run again. [`Error::BatchTooLarge`], and those of
    /// [`Db::put`](crate::Db::put) and [`Db::get`](crate::Db::get).
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// let transaction = db.begin();
    /// transaction.put("a", "1")?;
    /// transaction.put("b", "2")?;
    /// assert_eq!(transaction.commit()?, 2);
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn commit(self) -> Result<SeqNo> {
        self.commit_with(WriteOptions::default())
    }

    /// As [`Transaction::commit`], with write options.
    ///
    /// # Errors
    /// As [`Transaction::commit`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// use trommel::WriteOptions;
    /// let transaction = db.begin();
    /// transaction.put("key", "value")?;
    /// transaction.commit_with(WriteOptions::sync())?; // on the device when it returns
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn commit_with(self, options: WriteOptions) -> Result<SeqNo> {
        let state = std::mem::take(&mut *self.state()?);
        if state.writes.is_empty() && !state.is_for_update {
            return Ok(self.seqno());
        }
        let engine = &self.store().engine;
        self.commit_state(state, options).map_err(|error| engine.name_conflict(error))
    }

    fn commit_state(&self, state: TransactionState, options: WriteOptions) -> Result<SeqNo> {
        let engine = &self.store().engine;
        if engine.statistics.latencies.samples() {
            return engine.timed_write(|| self.commit_state(state, options));
        }
        let _entered = engine.enter_all(state.keyspaces.iter().map(|keyspace| &**keyspace))?;
        // Once the keys are mapped, they stay so.
        let may_change = state.depends_on_store && self.default == Space::Plain;
        let mapping = may_change.then(|| engine.options.keyspaces.default_for_write());
        if mapping.as_ref().is_some_and(|(_, default)| *default != self.default) {
            // Creating the first named keyspace has moved keys that the transaction has read, or is
            // to write.
            return Err(Conflict::new(&MARKER, Expected::Unchanged).into());
        }
        let batch = state.writes.into_batch();
        engine.prepare_for_operands(&batch)?;
        let (sealed, conditions) = (Batch::Sealed(batch.seal()?), state.reads.into_conditions());
        if conditions.is_empty() {
            return engine.write(sealed, options);
        }
        engine.write_if(sealed, Cow::Owned(conditions), Some(self.since.clone()), options)
    }
}

impl TransactionState {
    /// Records that the transaction writes to this keyspace, if it is a named one.
    fn note(&mut self, keyspace: Option<&Arc<KeyspaceState>>) {
        keyspace.into_iter().for_each(|keyspace| add_once(&mut self.keyspaces, keyspace));
    }

    /// Whether this physical key is one of a named keyspace that it has written to.
    fn is_in_keyspace(&self, key: &[u8]) -> bool {
        self.keyspaces.iter().any(|keyspace| keyspace.space().holds(key))
    }
}
