//! Keyspaces: the handles through which they are read and written.
//!
//! A keyspace is a range of the tree ([`space`](crate::space)), so everything else of the store is
//! shared: the log, the sequence numbers, the memtables, snapshots, compactions. A handle maps keys
//! and ranges to physical ones, and calls the same functions as a [`Db`] for the default keyspace.
//!
//! * [`catalog`]: creating, listing and dropping keyspaces.
//! * [`views`]: a keyspace of a batch, a snapshot or a transaction.

mod catalog;
#[cfg(test)]
mod mapping_tests;
#[cfg(test)]
mod operator_tests;
#[cfg(test)]
mod tests;
mod views;

use std::path::Path;
use std::sync::Arc;

use trommel_base::{SeqNo, Slice};

pub use views::{KeyspaceBatch, KeyspaceSnapshot, KeyspaceTransaction};

use crate::batch::OpKind;
use crate::bounds::{Bounds, KeyRange};
use crate::db::Db;
use crate::error::Result;
use crate::handle::Handle;
use crate::healthy::Healthy;
use crate::ingest::IngestBatch;
use crate::iter::range::{DbCursor, Range};
use crate::keyspaces::{KeyspaceOptions, KeyspaceState, Part};
use crate::options::WriteOptions;
use crate::read::Explanation;
use crate::sorted_load::LoadReport;

/// A named keyspace of a store: a sorted map with its own keys, which shares everything else with
/// the store. Clones share it, and it keeps the store open, like a [`Db`].
///
/// Keys have at most 65,527 bytes, 8 less than those of the default keyspace. Batches, snapshots
/// and transactions span keyspaces: [`WriteBatch::keyspace`](crate::WriteBatch::keyspace),
/// [`Snapshot::keyspace`](crate::Snapshot::keyspace),
/// [`Transaction::keyspace`](crate::Transaction::keyspace).
///
/// Once it is dropped ([`Db::drop_keyspace`]), reads as of now and writes return
/// [`Error::KeyspaceDropped`](crate::Error::KeyspaceDropped).
///
/// ```
/// use trommel::{Db, KeyspaceOptions, Options};
/// # let dir = tempfile::tempdir().unwrap();
/// let db = Db::open(dir.path(), Options::default())?;
/// let users = db.keyspace("users", KeyspaceOptions::new())?;
/// let orders = db.keyspace("orders", KeyspaceOptions::new())?;
/// users.put("1", "Ada")?;
/// orders.put("1", "a drum")?;
/// assert_eq!(users.get("1")?.unwrap(), b"Ada");
/// assert_eq!(orders.iter().count(), 1);
/// assert_eq!(db.get("1")?, None); // the default keyspace is another one
/// # Ok::<(), trommel::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Keyspace {
    state: Arc<KeyspaceState>,
    /// Last field: it may close the store.
    handle: Arc<Handle>,
}

impl Db {
    /// Opens the keyspace of this name, and creates it if there is none. `options` are its options
    /// from now on; a store that was opened read-only keeps the recorded ones. A merge operator
    /// cannot change. Creating a keyspace is a single small write, with the durability of the
    /// store.
    ///
    /// Creating the first keyspace makes the store unreadable for versions of Trommel without
    /// keyspaces, and rewrites the default keyspace's keys that begin with `FF FF FF FF`, whose
    /// time to live thus begins again.
    ///
    /// # Errors
    /// [`Error::InvalidOption`](crate::Error::InvalidOption) if the name is empty or longer than
    /// 255 bytes, if an option is out of bounds, or if it is the first keyspace and the default one
    /// has more than 64 MiB of entries whose keys begin with `FF FF FF FF`;
    /// [`Error::OtherMergeOperator`](crate::Error::OtherMergeOperator) if the keyspace has another
    /// merge operator than `options`, or if `options` lack its merge operator and that is not one
    /// of [`Merge`](crate::Merge); as [`Db::put`] and [`Db::get`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// use trommel::KeyspaceOptions;
    /// let users = db.keyspace("users", KeyspaceOptions::new())?;
    /// users.put("1", "Ada")?;
    /// assert_eq!(db.keyspace("users", KeyspaceOptions::new())?.get("1")?.unwrap(), b"Ada");
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn keyspace(&self, name: impl AsRef<str>, options: KeyspaceOptions) -> Result<Keyspace> {
        let state = self.handle().make_keyspace(name.as_ref(), options)?;
        Ok(Keyspace { state, handle: Arc::clone(self.handle()) })
    }

    /// Opens the keyspace of this name with the options that it has; `None` if there is none.
    ///
    /// # Errors
    /// As [`Db::get`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// assert!(db.open_keyspace("users")?.is_none());
    /// db.keyspace("users", Default::default())?;
    /// assert_eq!(db.open_keyspace("users")?.unwrap().name(), "users");
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn open_keyspace(&self, name: impl AsRef<str>) -> Result<Option<Keyspace>> {
        let state = self.handle().find_keyspace(name.as_ref())?;
        Ok(state.map(|state| Keyspace { state, handle: Arc::clone(self.handle()) }))
    }

    /// The names of all keyspaces except the default one, which has no name, in order.
    ///
    /// # Errors
    /// As [`Db::get`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// db.keyspace("users", Default::default())?;
    /// db.keyspace("orders", Default::default())?;
    /// assert_eq!(db.list_keyspaces()?, ["orders", "users"]);
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn list_keyspaces(&self) -> Result<Vec<String>> {
        self.handle().keyspace_names()
    }

    /// Drops the keyspace of this name with all its entries; returns whether there was one. This is
    /// a single write, whatever the keyspace holds, and is synced if its entries expire;
    /// compactions remove the entries. Snapshots, iterators and cursors that are open keep what
    /// they see.
    ///
    /// # Errors
    /// As [`Db::put`] and [`Db::get`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// use trommel::Error;
    /// let drafts = db.keyspace("drafts", Default::default())?;
    /// drafts.put("1", "Dear Ada")?;
    /// assert!(db.drop_keyspace("drafts")?);
    /// assert!(matches!(drafts.get("1"), Err(Error::KeyspaceDropped { .. })));
    /// assert_eq!(db.keyspace("drafts", Default::default())?.get("1")?, None); // a new one
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn drop_keyspace(&self, name: impl AsRef<str>) -> Result<bool> {
        self.handle().drop_keyspace(name.as_ref())
    }
}

impl Keyspace {
    fn part(&self) -> Part<'_> {
        Part::Keyspace(&self.state)
    }

    /// Its number in the store.
    pub(crate) fn id(&self) -> u32 {
        self.state.id
    }

    /// Its name.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// assert_eq!(db.keyspace("users", Default::default())?.name(), "users");
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn name(&self) -> &str {
        &self.state.name
    }

    /// The options in which it differs from its store.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// use trommel::{Compression, KeyspaceOptions};
    /// let raw = KeyspaceOptions::new().compression(Compression::None);
    /// let raw = db.keyspace("raw", raw)?;
    /// assert_eq!(raw.options().settings(), [("compression", "none".to_owned())]);
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn options(&self) -> KeyspaceOptions {
        self.handle.engine.options.keyspaces.own_options(self.state.id)
    }

    /// Sets `key` to `value`: as [`Db::put`].
    ///
    /// # Errors
    /// As [`Db::put`], with a limit of 65,527 bytes for a key, and
    /// [`Error::KeyspaceDropped`](crate::Error::KeyspaceDropped); the same holds for the other
    /// writes.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// let users = db.keyspace("users", Default::default())?;
    /// users.put("1", "Ada")?;
    /// assert_eq!(users.get("1")?.unwrap(), b"Ada");
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<SeqNo> {
        self.put_with(key, value, WriteOptions::default())
    }

    /// As [`Keyspace::put`], with write options.
    ///
    /// # Errors
    /// As [`Keyspace::put`].
    pub fn put_with(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        options: WriteOptions,
    ) -> Result<SeqNo> {
        let (key, value) = (key.as_ref(), value.as_ref());
        self.handle.engine.write_in(self.part(), OpKind::Put, key, value, options)
    }

    /// Merges `operand` into `key`, by the merge operator of the keyspace
    /// ([`KeyspaceOptions::merge_operator`]), or else of the store: as [`Db::merge`].
    ///
    /// # Errors
    /// As [`Keyspace::put`] and [`Db::merge`].
    ///
    /// ```
    /// use trommel::{Db, Merge, Options};
    /// # let dir = tempfile::tempdir().unwrap();
    /// let options = Options::default().writes(|w| w.merge_operator(Merge::counter()));
    /// let db = Db::open(dir.path(), options)?;
    /// let visits = db.keyspace("visits", Default::default())?;
    /// visits.merge("page 1", 1_u64.to_le_bytes())?;
    /// visits.merge("page 1", 1_u64.to_le_bytes())?;
    /// assert_eq!(visits.get("page 1")?.unwrap(), 2_u64.to_le_bytes());
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn merge(&self, key: impl AsRef<[u8]>, operand: impl AsRef<[u8]>) -> Result<SeqNo> {
        self.merge_with(key, operand, WriteOptions::default())
    }

    /// As [`Keyspace::merge`], with write options.
    ///
    /// # Errors
    /// As [`Keyspace::merge`].
    pub fn merge_with(
        &self,
        key: impl AsRef<[u8]>,
        operand: impl AsRef<[u8]>,
        options: WriteOptions,
    ) -> Result<SeqNo> {
        let (key, operand) = (key.as_ref(), operand.as_ref());
        self.handle.engine.write_in(self.part(), OpKind::Merge, key, operand, options)
    }

    /// Deletes `key`, whether or not it exists: as [`Db::delete`].
    ///
    /// # Errors
    /// As [`Keyspace::put`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// let users = db.keyspace("users", Default::default())?;
    /// users.put("1", "Ada")?;
    /// users.delete("1")?;
    /// assert!(!users.contains_key("1")?);
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<SeqNo> {
        self.delete_with(key, WriteOptions::default())
    }

    /// As [`Keyspace::delete`], with write options.
    ///
    /// # Errors
    /// As [`Keyspace::put`].
    pub fn delete_with(&self, key: impl AsRef<[u8]>, options: WriteOptions) -> Result<SeqNo> {
        self.handle.engine.write_in(self.part(), OpKind::Delete, key.as_ref(), &[], options)
    }

    /// Deletes all its keys in `range`: as [`Db::delete_range`].
    ///
    /// # Errors
    /// As [`Keyspace::put`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// let users = db.keyspace("users", Default::default())?;
    /// db.put("1", "here")?;
    /// users.put("1", "Ada")?;
    /// users.delete_range(..)?;
    /// assert!(!users.contains_key("1")? && db.contains_key("1")?);
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn delete_range(&self, range: impl KeyRange) -> Result<SeqNo> {
        self.delete_range_with(range, WriteOptions::default())
    }

    /// As [`Keyspace::delete_range`], with write options.
    ///
    /// # Errors
    /// As [`Keyspace::put`].
    pub fn delete_range_with(&self, range: impl KeyRange, options: WriteOptions) -> Result<SeqNo> {
        self.handle.engine.delete_range_in(self.part(), Bounds::of(range), options)
    }

    /// Loads files into the keyspace, atomically: as [`Db::ingest`].
    ///
    /// # Errors
    /// As [`Db::ingest`], with a limit of 65,527 bytes for a key, and
    /// [`Error::KeyspaceDropped`](crate::Error::KeyspaceDropped).
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let (file, store) = (dir.path().join("users.table"), dir.path().join("data"));
    /// use trommel::{Db, Options, TableWriter};
    /// let mut writer = TableWriter::create(&file, &Options::default())?;
    /// writer.put("1", "Ada")?;
    /// writer.finish()?;
    /// let db = Db::open(&store, Options::default())?;
    /// let users = db.keyspace("users", Default::default())?;
    /// users.ingest([&file])?;
    /// assert_eq!(users.get("1")?.unwrap(), b"Ada");
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn ingest<P: AsRef<Path>>(&self, files: impl IntoIterator<Item = P>) -> Result<LoadReport> {
        let mut batch = IngestBatch::new();
        files.into_iter().for_each(|file| _ = batch.add_to(self, file));
        self.handle.engine.ingest(&batch)
    }

    /// Returns the value of `key`: as [`Db::get`].
    ///
    /// # Errors
    /// As [`Db::get`], and [`Error::KeyspaceDropped`](crate::Error::KeyspaceDropped); the same
    /// holds for the other reads.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// let users = db.keyspace("users", Default::default())?;
    /// users.put("1", "Ada")?;
    /// assert_eq!(users.get("1")?.unwrap(), b"Ada");
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Slice>> {
        self.handle.engine.get_in(self.part(), key.as_ref(), None)
    }

    /// Looks up `key`, and returns what that took: as [`Db::explain`].
    ///
    /// # Errors
    /// As [`Keyspace::get`].
    pub fn explain(&self, key: impl AsRef<[u8]>) -> Result<Explanation> {
        self.handle.engine.explain_in(self.part(), key.as_ref())
    }

    /// Whether `key` has a value: as [`Db::contains_key`].
    ///
    /// # Errors
    /// As [`Keyspace::get`].
    pub fn contains_key(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.handle.engine.contains_in(self.part(), key.as_ref(), None)
    }

    /// Returns the values of `keys`, in their order, all as of one moment: as [`Db::multi_get`].
    ///
    /// # Errors
    /// As [`Keyspace::get`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// let users = db.keyspace("users", Default::default())?;
    /// users.put("1", "Ada")?;
    /// assert_eq!(users.multi_get(&["1", "2"])?, [Some("Ada".into()), None]);
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn multi_get<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Slice>>> {
        self.handle.engine.multi_get_in(self.part(), keys, None)
    }

    /// Sets `key` to `value` unless it has a value; returns whether it was set: as
    /// [`Db::insert_if_absent`].
    ///
    /// # Errors
    /// As [`Keyspace::get`] and [`Keyspace::put`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// let users = db.keyspace("users", Default::default())?;
    /// assert!(users.insert_if_absent("1", "Ada")? && !users.insert_if_absent("1", "Grace")?);
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn insert_if_absent(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<bool> {
        self.insert_if_absent_with(key, value, WriteOptions::default())
    }

    /// As [`Keyspace::insert_if_absent`], with write options.
    ///
    /// # Errors
    /// As [`Keyspace::get`] and [`Keyspace::put`].
    pub fn insert_if_absent_with(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        options: WriteOptions,
    ) -> Result<bool> {
        self.compare_and_set_with(key, None, Some(value.as_ref()), options)
    }

    /// Sets `key` to `new` (`None` deletes it) if its value is `expected` (`None`: no value);
    /// returns whether it was set: as [`Db::compare_and_set`].
    ///
    /// # Errors
    /// As [`Keyspace::get`] and [`Keyspace::put`].
    pub fn compare_and_set(
        &self,
        key: impl AsRef<[u8]>,
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
    ) -> Result<bool> {
        self.compare_and_set_with(key, expected, new, WriteOptions::default())
    }

    /// As [`Keyspace::compare_and_set`], with write options.
    ///
    /// # Errors
    /// As [`Keyspace::get`] and [`Keyspace::put`].
    pub fn compare_and_set_with(
        &self,
        key: impl AsRef<[u8]>,
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
        options: WriteOptions,
    ) -> Result<bool> {
        let (engine, key) = (&self.handle.engine, key.as_ref());
        engine.compare_and_set_in(self.part(), key, expected, new, options)
    }

    /// Iterates over all its entries in key order, as of now: as [`Db::iter`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// let users = db.keyspace("users", Default::default())?;
    /// users.put("1", "Ada")?;
    /// let (key, value) = users.iter().next_back().unwrap()?;
    /// assert_eq!((&*key, &*value), (&b"1"[..], &b"Ada"[..]));
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn iter(&self) -> Range {
        self.handle.range(self.part(), Bounds::all(), None)
    }

    /// Iterates over its entries with keys in `range`, as of now.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// let users = db.keyspace("users", Default::default())?;
    /// users.put("1", "Ada")?;
    /// assert_eq!((users.range("0".."2").count(), users.range("2"..).count()), (1, 0));
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn range(&self, range: impl KeyRange) -> Range {
        self.handle.range(self.part(), Bounds::of(range), None)
    }

    /// Iterates over its entries with keys that begin with `prefix`, as of now.
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Range {
        self.handle.range(self.part(), Bounds::prefix(prefix.as_ref()), None)
    }

    /// Returns a cursor over all its entries, as of now: as [`Db::cursor`].
    ///
    /// # Errors
    /// As [`Keyspace::get`].
    pub fn cursor(&self) -> Result<DbCursor> {
        self.handle.cursor(self.part(), Bounds::all(), None)
    }

    /// Returns a cursor over its entries with keys in `range`: as [`Db::cursor_in`].
    ///
    /// # Errors
    /// As [`Keyspace::get`].
    pub fn cursor_in(&self, range: impl KeyRange) -> Result<DbCursor> {
        self.handle.cursor(self.part(), Bounds::of(range), None)
    }

    /// Returns a cursor over its entries with keys that begin with `prefix`.
    ///
    /// # Errors
    /// As [`Keyspace::get`].
    pub fn prefix_cursor(&self, prefix: impl AsRef<[u8]>) -> Result<DbCursor> {
        self.handle.cursor(self.part(), Bounds::prefix(prefix.as_ref()), None)
    }

    /// Returns its intact entries with keys in `range`: as [`Db::healthy`].
    ///
    /// # Errors
    /// As [`Db::healthy`] and [`Keyspace::get`].
    pub fn healthy(&self, range: impl KeyRange) -> Result<Healthy> {
        self.handle.healthy(self.part(), Bounds::of(range))
    }

    /// Estimates the bytes of table files that hold its keys in `range`: as
    /// [`Db::approximate_bytes`].
    ///
    /// # Errors
    /// As [`Keyspace::get`].
    pub fn approximate_bytes(&self, range: impl KeyRange) -> Result<u64> {
        let engine = &self.handle.engine;
        engine.approximate_bytes(&engine.bounds_in(self.part(), Bounds::of(range))?)
    }

    /// Compacts its keys in `range`: as [`Db::compact_range`].
    ///
    /// # Errors
    /// As [`Db::compact_range`] and [`Keyspace::get`].
    pub fn compact_range(&self, range: impl KeyRange) -> Result<()> {
        let engine = &self.handle.engine;
        let bounds = engine.bounds_in(self.part(), Bounds::of(range))?;
        engine.compact(&bounds.from, bounds.to.as_deref())
    }
}
