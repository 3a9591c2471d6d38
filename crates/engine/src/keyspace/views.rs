//! One keyspace of a batch, a snapshot or a transaction.

use std::path::Path;
use std::sync::Arc;

use trommel_base::Slice;

use super::Keyspace;
use crate::batch::{Condition, OpKind, WriteBatch};
use crate::bounds::{Bounds, KeyRange};
use crate::error::Result;
use crate::ingest::IngestBatch;
use crate::iter::range::{DbCursor, Range};
use crate::keyspaces::{KeyspaceState, Part};
use crate::snapshot::Snapshot;
use crate::space::{KeyBuffer, Space};
use crate::transaction::{Transaction, TransactionRange};

/// The operations and conditions of a [`WriteBatch`] on one keyspace: see
/// [`WriteBatch::keyspace`].
#[derive(Debug)]
pub struct KeyspaceBatch<'a> {
    batch: &'a mut WriteBatch,
    space: Space,
}

impl WriteBatch {
    /// Adds operations on a keyspace. They take effect together with all others of the batch. The
    /// batch is written by [`Db::write`](crate::Db::write) of the same store, which fails with
    /// [`Error::KeyspaceDropped`](crate::Error::KeyspaceDropped) if the keyspace was dropped.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// let users = db.keyspace("users", Default::default())?;
    /// let names = db.keyspace("names", Default::default())?;
    /// let mut batch = trommel::WriteBatch::new();
    /// batch.keyspace(&users).put("1", "Ada");
    /// batch.keyspace(&names).expect_absent("Ada").put("Ada", "1");
    /// db.write(batch)?;
    /// assert!(users.contains_key("1")? && names.contains_key("Ada")?);
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn keyspace(&mut self, keyspace: &Keyspace) -> KeyspaceBatch<'_> {
        self.add_keyspace(&keyspace.state);
        KeyspaceBatch { batch: self, space: keyspace.state.space() }
    }
}

impl IngestBatch {
    /// Adds a file for a keyspace of the store that ingests the batch.
    pub fn add_to(&mut self, keyspace: &Keyspace, file: impl AsRef<Path>) -> &mut Self {
        self.push(Some(Arc::clone(&keyspace.state)), file.as_ref())
    }
}

impl KeyspaceBatch<'_> {
    fn push(&mut self, kind: OpKind, key: &[u8], value: &[u8]) -> &mut Self {
        let mut buffer = KeyBuffer::default();
        self.batch.push_physical(kind, self.space.key_in(key, &mut buffer), value);
        self
    }

    /// Sets `key` to `value`: as [`WriteBatch::put`].
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> &mut Self {
        self.push(OpKind::Put, key.as_ref(), value.as_ref())
    }

    /// Merges `operand` into `key`: as [`WriteBatch::merge`].
    pub fn merge(&mut self, key: impl AsRef<[u8]>, operand: impl AsRef<[u8]>) -> &mut Self {
        self.push(OpKind::Merge, key.as_ref(), operand.as_ref())
    }

    /// Deletes `key`, whether or not it exists.
    pub fn delete(&mut self, key: impl AsRef<[u8]>) -> &mut Self {
        self.push(OpKind::Delete, key.as_ref(), &[])
    }

    /// Deletes all keys in `range`: as [`WriteBatch::delete_range`].
    pub fn delete_range(&mut self, range: impl KeyRange) -> &mut Self {
        self.batch.push_physical_range(&self.space.bounds(Bounds::of(range)));
        self
    }

    /// Nothing of the batch is written if `key` has a value: as [`WriteBatch::expect_absent`].
    pub fn expect_absent(&mut self, key: impl AsRef<[u8]>) -> &mut Self {
        self.batch.push_condition(Condition::of(&self.space.key(key.as_ref()), None));
        self
    }

    /// Nothing of the batch is written unless `key` has this value: as
    /// [`WriteBatch::expect_value`].
    pub fn expect_value(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> &mut Self {
        let key = self.space.key(key.as_ref());
        self.batch.push_condition(Condition::of(&key, Some(value.as_ref())));
        self
    }
}

/// A keyspace as of the moment of a [`Snapshot`], which it holds: see [`Snapshot::keyspace`].
#[derive(Debug, Clone)]
#[must_use = "it keeps its moment only as long as it is held"]
pub struct KeyspaceSnapshot {
    state: Arc<KeyspaceState>,
    snapshot: Snapshot,
}

impl Snapshot {
    /// The keyspace as of the moment of the snapshot. It is empty if it was created later, and
    /// stays whole if it is dropped later.
    ///
    /// # Errors
    /// [`Error::KeyspaceDropped`](crate::Error::KeyspaceDropped) if it was dropped before;
    /// [`Error::InvalidOption`](crate::Error::InvalidOption) if it is a keyspace of another store.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// let users = db.keyspace("users", Default::default())?;
    /// users.put("1", "Ada")?;
    /// let before = db.snapshot().keyspace(&users)?;
    /// db.drop_keyspace("users")?;
    /// assert_eq!(before.get("1")?.unwrap(), b"Ada");
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn keyspace(&self, keyspace: &Keyspace) -> Result<KeyspaceSnapshot> {
        let state = Arc::clone(&keyspace.state);
        self.store().engine.options.keyspaces.check_own(&state)?;
        state.check_at(self.seqno())?;
        Ok(KeyspaceSnapshot { state, snapshot: self.clone() })
    }
}

impl KeyspaceSnapshot {
    fn part(&self) -> Part<'_> {
        Part::Keyspace(&self.state)
    }

    /// Returns the value of `key`.
    ///
    /// # Errors
    /// As [`Db::get`](crate::Db::get).
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Slice>> {
        self.snapshot.store().engine.get_in(self.part(), key.as_ref(), self.snapshot.at())
    }

    /// Whether `key` has a value.
    ///
    /// # Errors
    /// As [`Db::get`](crate::Db::get).
    pub fn contains_key(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.snapshot.store().engine.contains_in(self.part(), key.as_ref(), self.snapshot.at())
    }

    /// Returns the values of `keys`, in their order.
    ///
    /// # Errors
    /// As [`Db::multi_get`](crate::Db::multi_get).
    pub fn multi_get<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Slice>>> {
        self.snapshot.store().engine.multi_get_in(self.part(), keys, self.snapshot.at())
    }

    /// Iterates over all entries in key order.
    pub fn iter(&self) -> Range {
        self.snapshot.within(self.part(), Bounds::all())
    }

    /// Iterates over the entries with keys in `range`.
    pub fn range(&self, range: impl KeyRange) -> Range {
        self.snapshot.within(self.part(), Bounds::of(range))
    }

    /// Iterates over the entries with keys that begin with `prefix`.
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Range {
        self.snapshot.within(self.part(), Bounds::prefix(prefix.as_ref()))
    }

    /// Returns a cursor over the entries with keys in `range`; `..` is all of them.
    ///
    /// # Errors
    /// As [`Db::cursor`](crate::Db::cursor).
    pub fn cursor_in(&self, range: impl KeyRange) -> Result<DbCursor> {
        self.snapshot.store().cursor(self.part(), Bounds::of(range), self.snapshot.at())
    }
}

/// The reads and writes of a [`Transaction`] in one keyspace: see [`Transaction::keyspace`].
#[derive(Debug, Clone, Copy)]
pub struct KeyspaceTransaction<'a> {
    transaction: &'a Transaction,
    state: &'a Arc<KeyspaceState>,
}

impl Transaction {
    /// The keyspace in this transaction: reads and writes there are part of the transaction.
    ///
    /// # Errors
    /// [`Error::KeyspaceDropped`](crate::Error::KeyspaceDropped) if it was dropped before the
    /// transaction began; a later drop fails the commit.
    /// [`Error::InvalidOption`](crate::Error::InvalidOption) if it is a keyspace of another store.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// let stock = db.keyspace("stock", Default::default())?;
    /// let orders = db.keyspace("orders", Default::default())?;
    /// stock.put("drum", "2")?;
    /// db.transaction(|tx| {
    ///     let (stock, orders) = (tx.keyspace(&stock)?, tx.keyspace(&orders)?);
    ///     if stock.get("drum")?.is_some_and(|left| left == b"2") {
    ///         stock.put("drum", "1")?;
    ///         orders.put("1", "drum")?;
    ///     }
    ///     Ok(())
    /// })?;
    /// assert_eq!((&*stock.get("drum")?.unwrap(), orders.iter().count()), (&b"1"[..], 1));
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn keyspace<'a>(&'a self, keyspace: &'a Keyspace) -> Result<KeyspaceTransaction<'a>> {
        let state = &keyspace.state;
        self.store().engine.options.keyspaces.check_own(state)?;
        state.check_at(self.seqno())?;
        Ok(KeyspaceTransaction { transaction: self, state })
    }
}

impl<'a> KeyspaceTransaction<'a> {
    /// Returns the value of `key`: as [`Transaction::get`].
    ///
    /// # Errors
    /// As [`Db::get`](crate::Db::get).
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Slice>> {
        self.transaction.get_in(self.state.space(), key.as_ref())
    }

    /// Whether `key` has a value.
    ///
    /// # Errors
    /// As [`Db::get`](crate::Db::get).
    pub fn contains_key(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.transaction.contains_in(self.state.space(), key.as_ref())
    }

    /// As [`Transaction::get_for_update`].
    ///
    /// # Errors
    /// As [`Db::get`](crate::Db::get).
    pub fn get_for_update(&self, key: impl AsRef<[u8]>) -> Result<Option<Slice>> {
        self.transaction.get_for_update_in(self.state.space(), key.as_ref())
    }

    /// Returns the values of `keys`, in their order.
    ///
    /// # Errors
    /// As [`Db::multi_get`](crate::Db::multi_get).
    pub fn multi_get<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Slice>>> {
        self.transaction.multi_get_in(self.state.space(), keys)
    }

    /// Iterates over all entries: see [`Transaction::range`].
    pub fn iter(&self) -> TransactionRange<'a> {
        self.transaction.within_in(self.state.space(), Bounds::all())
    }

    /// Iterates over the entries with keys in `range`: as [`Transaction::range`].
    pub fn range(&self, range: impl KeyRange) -> TransactionRange<'a> {
        self.transaction.within_in(self.state.space(), Bounds::of(range))
    }

    /// Iterates over the entries with keys that begin with `prefix`: see [`Transaction::range`].
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> TransactionRange<'a> {
        self.transaction.within_in(self.state.space(), Bounds::prefix(prefix.as_ref()))
    }

    /// Sets `key` to `value`: as [`Transaction::put`].
    ///
    /// # Errors
    /// As [`Transaction::put`], with a limit of 65,527 bytes for a key.
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        let (key, value) = (key.as_ref(), value.as_ref());
        self.transaction.put_in(Some(self.state), self.state.space(), key, value)
    }

    /// Merges `operand` into `key`: as [`Transaction::merge`].
    ///
    /// # Errors
    /// As [`Transaction::merge`], with a limit of 65,527 bytes for a key.
    pub fn merge(&self, key: impl AsRef<[u8]>, operand: impl AsRef<[u8]>) -> Result<()> {
        let (key, operand) = (key.as_ref(), operand.as_ref());
        self.transaction.merge_in(Some(self.state), self.state.space(), key, operand)
    }

    /// Deletes `key`, whether or not it exists.
    ///
    /// # Errors
    /// As [`KeyspaceTransaction::put`].
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<()> {
        self.transaction.delete_in(Some(self.state), self.state.space(), key.as_ref())
    }

    /// Deletes all keys in `range`: as [`Transaction::delete_range`].
    ///
    /// # Errors
    /// As [`KeyspaceTransaction::put`], if a bound is too long.
    pub fn delete_range(&self, range: impl KeyRange) -> Result<()> {
        let space = self.state.space();
        self.transaction.delete_range_in(Some(self.state), space, Bounds::of(range))
    }
}
