//! The handle to a store.

use std::path::Path;
use std::sync::Arc;

use trommel_base::{EntryKind, SeqNo, Slice};
use trommel_vfs::Vfs;

use crate::advice::{AdviceOptions, FilterAdvice};
use crate::batch::{Batch, WriteBatch};
use crate::destroy::{DestroyReport, destroy};
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::filter_policy::FilterPolicy;
use crate::handle::Handle;
use crate::healthy::Healthy;
use crate::iter::range::{Bounds, DbCursor, KeyRange, Range};
use crate::names;
use crate::options::Degraded;
use crate::options::{Options, WriteOptions};
use crate::rebuild::{FilterRebuildPlan, RebuildOptions};
use crate::rebuild_queue::FilterRebuildReport;
use crate::recovery_report::RecoveryReport;
use crate::report::FilterReport;
use crate::snapshot::Snapshot;
use crate::stats::Stats;
use crate::trace::{LookupTrace, TraceOptions};
use crate::verify::{VerifyReport, verify_store};

/// A handle to an open store, which clones share.
///
/// A [`Snapshot`], [`Range`] or [`DbCursor`] keeps the store open as a handle does: it is closed
/// when the last of all these is dropped. [`Db::close`] closes it at once, whatever is held: from
/// then on every read and write of any of them is [`Error::Closed`].
///
/// It belongs to the process that opened it. In a forked child each call that can fail returns
/// [`Error::Forked`] at once, the others return what an empty store would, and dropping it, or what
/// was read from it, waits for nothing and touches no file.
///
/// ```
/// use trommel::{Db, Options};
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("data");
/// let db = Db::open(&path, Options::default())?;
/// db.put("apple", "red")?;
/// db.put("pear", "green")?;
/// assert_eq!(db.get("apple")?.unwrap(), b"red"[..]);
/// assert_eq!(db.get("plum")?, None);
/// let keys: Vec<_> = db.iter().map(|entry| Ok(entry?.0)).collect::<trommel::Result<_>>()?;
/// assert_eq!(keys, [b"apple".as_slice(), b"pear".as_slice()]);
/// db.close()?;
/// # Ok::<(), trommel::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Db {
    handle: Arc<Handle>,
}

impl Options {
    /// Opens a store with these options; the same as [`Db::open`].
    ///
    /// # Errors
    /// Those of [`Db::open`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// let db = trommel::Options::default().cache_bytes(64 << 20).open(dir.path())?;
    /// db.put("a", "1")?;
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn open(self, dir: impl AsRef<Path>) -> Result<Db> {
        Db::open(dir, self)
    }
}

impl Db {
    /// Opens the store in `dir`, creating it if the directory is missing or empty. The options that
    /// shape it are recorded there, for programs that open it later: see [`Options::load_latest`].
    ///
    /// # Errors
    /// [`Error::Locked`] where it is open elsewhere; [`Error::NotAStore`] where the directory
    /// holds other things; [`Error::Corruption`] where a file is damaged, which leaves the
    /// directory untouched; [`Error::Unsupported`] where it was written by a newer version.
    ///
    /// ```
    /// use trommel::{Db, Options};
    /// # let dir = tempfile::tempdir().unwrap();
    /// let options = Options::default().cache_bytes(64 << 20);
    /// let db = Db::open(dir.path(), options)?;
    /// assert!(Db::open(dir.path(), Options::default()).is_err()); // one handle at a time: clone it
    /// db.put("a", "1")?;
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn open(dir: impl AsRef<Path>, options: Options) -> Result<Self> {
        Self::start(dir.as_ref(), options, false)
    }

    /// As [`Db::open`], of a directory that a repair is filling.
    pub(crate) fn open_unfinished(dir: &Path, options: Options) -> Result<Self> {
        Self::start(dir, options, true)
    }

    fn start(dir: &Path, options: Options, unfinished: bool) -> Result<Self> {
        let engine = Engine::open(dir, options, unfinished)?;
        engine.start_workers();
        Ok(Self { handle: Arc::new(Handle::new(engine)) })
    }

    /// Opens the store in `dir` without writing anything. Several processes may do so at once,
    /// but not beside one that writes: whoever comes second gets [`Error::Locked`]. To read beside
    /// a writer, read a [`checkpoint`](Db::checkpoint) that it makes. What the log holds is read
    /// into memory.
    ///
    /// # Errors
    /// As [`Db::open`]; [`Error::NotAStore`] also where the directory is missing or empty.
    ///
    /// ```
    /// # use trommel::{Db, Error, Options};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # Db::open(dir.path(), Options::default())?.put("a", "1")?;
    /// let db = Db::open_read_only(dir.path(), Options::default())?;
    /// assert_eq!(db.get("a")?.unwrap(), b"1");
    /// assert!(matches!(db.put("b", "2"), Err(Error::ReadOnly)));
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn open_read_only(dir: impl AsRef<Path>, options: Options) -> Result<Self> {
        Self::open(dir, options.read_only(true))
    }

    /// Opens the damaged store in `dir` to read what is healthy; see [`Options::degraded`]. What is
    /// damaged stands in [`Db::recovery_report`].
    ///
    /// # Errors
    /// As a read-only open, but for damage of tables and logs, and of a manifest behind its first
    /// record. So where no manifest can be read at all ([`Error::Corruption`]: a repair needs
    /// none), where `LOCK` is there and cannot be locked, and where a repair was cut short
    /// ([`Error::NotAStore`]).
    ///
    /// ```
    /// # use trommel::{Db, Degraded, Options};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # Db::open(dir.path(), Options::default())?.put("a", "1")?;
    /// let db = Db::open_degraded(dir.path(), Options::default(), Degraded::Certain)?;
    /// assert!(db.recovery_report().damage.is_empty());
    /// let healthy = db.healthy(..)?;
    /// assert_eq!(healthy.in_doubt(), []);
    /// assert_eq!(healthy.count(), 1);
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn open_degraded(
        dir: impl AsRef<Path>,
        options: Options,
        degraded: Degraded,
    ) -> Result<Self> {
        Self::open(dir, options.degraded(degraded))
    }

    /// The entries whose keys lie in `range`, around all that is damaged: reads the tables of the
    /// range once to find that, and then yields every entry that can be had. What is passed over is
    /// told by [`Healthy::damage`] and [`Healthy::in_doubt`].
    ///
    /// # Errors
    /// [`Error::InDoubt`] where nothing is certain; errors of the file system.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// db.put("a", "1")?;
    /// let mut healthy = db.healthy(..)?;
    /// assert_eq!(healthy.next().unwrap()?.0, b"a");
    /// assert!(healthy.damage().is_empty());
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn healthy(&self, range: impl KeyRange) -> Result<Healthy> {
        self.handle.healthy(&Bounds::of(range))
    }

    /// Removes the store in `dir`, and `dir` itself unless other things lie in it. Of `options`
    /// only the file system counts.
    ///
    /// # Errors
    /// [`Error::Locked`] where it is open; [`Error::NotAStore`] where `dir` holds no file of a
    /// store, is a symbolic link, or ends in `..` or is `.`. Nothing was removed then.
    ///
    /// ```
    /// # use trommel::{Db, Options};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let path = dir.path().join("data");
    /// Db::open(&path, Options::default())?.close()?;
    /// Db::destroy(&path, &Options::default())?;
    /// assert!(!path.exists());
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn destroy(dir: impl AsRef<Path>, options: &Options) -> Result<DestroyReport> {
        destroy(dir.as_ref(), options)
    }

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.handle.engine
    }

    /// The directory that the store was opened in, as it was given.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// assert_eq!(db.dir(), dir.path());
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn dir(&self) -> &Path {
        &self.engine().files.dir
    }

    /// The random number that the store was given when it was created. A checkpoint of it has
    /// another one, for the two go their own ways.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path().join("store"), Default::default())?;
    /// let copy = dir.path().join("copy");
    /// db.checkpoint(&copy)?;
    /// assert_ne!(trommel::Db::open(&copy, Default::default())?.id(), db.id());
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn id(&self) -> u64 {
        self.engine().files.store_id
    }

    /// The store's table files by name, each with the random number that was drawn when it was
    /// written. A table is never changed, and its checksums are bound to that number, so two
    /// files of the same number and length are the same table, wherever they lie.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// db.put("a", "1")?;
    /// db.flush()?;
    /// let tables = db.table_ids();
    /// assert!(tables.len() == 1 && tables[0].0.ends_with(".sst"));
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn table_ids(&self) -> Vec<(String, u64)> {
        let version = self.engine().version();
        let tables = version.tables();
        tables.map(|(_, table)| (names::table(table.number), table.table_id)).collect()
    }

    /// The file system that holds the store.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// let names = db.vfs().list(db.dir()).unwrap();
    /// assert!(names.iter().any(|entry| entry.name == "CURRENT"));
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn vfs(&self) -> &Arc<dyn Vfs> {
        &self.engine().files.vfs
    }

    /// Sets `key` to `value`. Returns the sequence number of the write: snapshots from then on have
    /// a [`seqno`](Snapshot::seqno) that is not below it.
    ///
    /// # Errors
    /// [`Error::KeyTooLong`] above 65,535 bytes, [`Error::ValueTooLong`] above 1 GiB: nothing was
    /// changed; nor with [`Error::ReadOnly`] and [`Error::Closed`], nor with [`Error::Stalled`],
    /// where flushes or compactions that it waits for go on failing: see
    /// [`Options::stall_timeout`]. After an error of the file system the write may or may not be
    /// there once the store is opened again, and until then writes are refused:
    /// [`Error::Poisoned`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// db.put("key", "value")?;
    /// let seqno = db.put("key", "newer")?;
    /// assert_eq!(db.get("key")?.unwrap(), b"newer");
    /// assert_eq!(seqno, 2);
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<SeqNo> {
        self.put_with(key, value, WriteOptions::default())
    }

    /// As [`Db::put`], with options of its own.
    ///
    /// # Errors
    /// As [`Db::put`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// # use trommel::WriteOptions;
    /// db.put_with("key", "value", WriteOptions::sync())?; // on the device when this returns
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn put_with(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        options: WriteOptions,
    ) -> Result<SeqNo> {
        let batch = Batch::one(EntryKind::Put, key.as_ref(), value.as_ref())?;
        self.engine().write(batch, options)
    }

    /// Deletes `key`, whether or not it is there. Returns the sequence number of the deletion.
    ///
    /// # Errors
    /// As [`Db::put`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// db.put("key", "value")?;
    /// db.delete("key")?;
    /// db.delete("never there")?;
    /// assert_eq!(db.get("key")?, None);
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<SeqNo> {
        self.delete_with(key, WriteOptions::default())
    }

    /// As [`Db::delete`], with options of its own.
    ///
    /// # Errors
    /// As [`Db::put`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// use trommel::WriteOptions;
    /// db.put("key", "value")?;
    /// db.delete_with("key", WriteOptions::sync())?; // on the device when it returns
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn delete_with(&self, key: impl AsRef<[u8]>, options: WriteOptions) -> Result<SeqNo> {
        let batch = Batch::one(EntryKind::Delete, key.as_ref(), &[])?;
        self.engine().write(batch, options)
    }

    /// Writes a batch: all of it or nothing, for readers as for crashes. One that is lent can be
    /// cleared and filled again. Returns the sequence number of its last operation; the others have
    /// those right before it. An empty batch takes no number, and returns the last one that reads
    /// see.
    ///
    /// # Errors
    /// As [`Db::put`], if any key or value is too long; and [`Error::BatchTooLarge`]. Then nothing
    /// of the batch is written; [`WriteBatch::check`] names the operation.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// let mut batch = trommel::WriteBatch::new();
    /// for part in [["a", "b"], ["c", "d"]] {
    ///     batch.clear();
    ///     for key in part {
    ///         batch.put(key, "1");
    ///     }
    ///     db.write(&batch)?;
    /// }
    /// assert_eq!(db.iter().count(), 4);
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn write(&self, batch: impl AsRef<WriteBatch>) -> Result<SeqNo> {
        self.write_with(batch, WriteOptions::default())
    }

    /// As [`Db::write`], with options of its own.
    ///
    /// # Errors
    /// As [`Db::write`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// # use trommel::{WriteBatch, WriteOptions};
    /// let mut batch = WriteBatch::new();
    /// batch.put("from", "90").put("to", "110");
    /// let seqno = db.write_with(batch, WriteOptions::sync())?;
    /// assert_eq!(seqno, 2); // of the last operation
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn write_with(
        &self,
        batch: impl AsRef<WriteBatch>,
        options: WriteOptions,
    ) -> Result<SeqNo> {
        self.engine().write(Batch::Sealed(batch.as_ref().seal()?), options)
    }

    /// The value of `key`. One above 30 bytes shares the memory of its block (4 KiB by default),
    /// which stays for as long as the value is held: to keep values for long, keep
    /// [`Slice::detached`] or a `Vec`.
    ///
    /// # Errors
    /// [`Error::Corruption`], [`Error::Io`] or [`Error::Unsupported`] where a table that may hold
    /// the key is damaged, cannot be read, or needs a newer version; [`Error::Closed`];
    /// [`Error::InDoubt`] where the store was opened [degraded](Options::degraded) and nothing is
    /// certain.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// db.put("key", "value")?;
    /// assert_eq!(db.get("key")?.unwrap(), b"value");
    /// assert_eq!(db.get("no key")?, None);
    /// let kept = db.get("key")?.map(|value| value.detached()); // for a long time
    /// let owned: Option<Vec<u8>> = db.get("key")?.map(Vec::from);
    /// # assert_eq!(kept.as_deref(), owned.as_deref());
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Slice>> {
        self.engine().get(key.as_ref(), None)
    }

    /// Whether `key` has a value. Costs what [`Db::get`] costs up to the value, which is neither
    /// looked at nor copied; its block is read, for one checksum covers it.
    ///
    /// # Errors
    /// As [`Db::get`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// db.put("key", "value")?;
    /// assert!(db.contains_key("key")? && !db.contains_key("no key")?);
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn contains_key(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.engine().contains(key.as_ref(), None)
    }

    /// The values of `keys`, in their order, all at one moment. Filters are asked in batches, no
    /// block is read twice, and where blocks come from the device their reads overlap.
    ///
    /// # Errors
    /// As [`Db::get`], if any of the keys cannot be looked up.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// db.put("a", "1")?;
    /// db.put("c", "3")?;
    /// let values = db.multi_get(&["a", "b", "c"])?;
    /// assert_eq!(values[0].as_deref(), Some(&b"1"[..]));
    /// assert_eq!(values[1], None);
    /// assert_eq!(values[2].as_deref(), Some(&b"3"[..]));
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn multi_get<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Slice>>> {
        self.engine().multi_get(keys, None)
    }

    /// Sets `key` to `value` unless it has a value; true if it was set. Atomic.
    ///
    /// # Errors
    /// As [`Db::get`] and [`Db::put`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// assert!(db.insert_if_absent("user:1", "Ada")?);
    /// assert!(!db.insert_if_absent("user:1", "somebody else")?);
    /// assert_eq!(db.get("user:1")?.unwrap(), b"Ada");
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn insert_if_absent(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<bool> {
        self.insert_if_absent_with(key, value, WriteOptions::default())
    }

    /// As [`Db::insert_if_absent`], with options of its own.
    ///
    /// # Errors
    /// As [`Db::get`] and [`Db::put`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// use trommel::WriteOptions;
    /// assert!(db.insert_if_absent_with("lock", "me", WriteOptions::sync())?);
    /// assert!(!db.insert_if_absent_with("lock", "somebody else", WriteOptions::sync())?);
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn insert_if_absent_with(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        options: WriteOptions,
    ) -> Result<bool> {
        self.compare_and_set_with(key, None, Some(value.as_ref()), options)
    }

    /// Sets `key` to `new` (`None` deletes it) if its value is `expected` (`None`: if it has none);
    /// true if it was. Atomic. Nobody else writes while it looks, so that it shares its commit, and
    /// where it is to be durable its sync, with no other write.
    ///
    /// # Errors
    /// As [`Db::get`] and [`Db::put`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// db.put("counter", "1")?;
    /// assert!(db.compare_and_set("counter", Some(b"1"), Some(b"2"))?);
    /// assert!(!db.compare_and_set("counter", Some(b"1"), Some(b"3"))?); // somebody was faster
    /// assert!(db.compare_and_set("counter", Some(b"2"), None)?); // deletes it
    /// assert_eq!(db.get("counter")?, None);
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn compare_and_set(
        &self,
        key: impl AsRef<[u8]>,
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
    ) -> Result<bool> {
        self.compare_and_set_with(key, expected, new, WriteOptions::default())
    }

    /// As [`Db::compare_and_set`], with options of its own: what it sets is as durable as they ask.
    /// Where nothing is set, nothing is synced.
    ///
    /// # Errors
    /// As [`Db::get`] and [`Db::put`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// use trommel::WriteOptions;
    /// db.put("counter", "1")?;
    /// assert!(db.compare_and_set_with("counter", Some(b"1"), Some(b"2"), WriteOptions::sync())?);
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn compare_and_set_with(
        &self,
        key: impl AsRef<[u8]>,
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
        options: WriteOptions,
    ) -> Result<bool> {
        let key = key.as_ref();
        let batch = match new {
            Some(value) => Batch::one(EntryKind::Put, key, value)?,
            None => Batch::one(EntryKind::Delete, key, &[])?,
        };
        self.engine().write_if(options, || {
            let is_expected = match expected {
                None => !self.engine().contains(key, None)?,
                expected => self.engine().get(key, None)?.as_deref() == expected,
            };
            Ok(is_expected.then_some(batch))
        })
    }

    /// The store as it is now, kept readable for as long as the snapshot is held.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// db.put("key", "before")?;
    /// let snapshot = db.snapshot();
    /// db.put("key", "after")?;
    /// assert_eq!(snapshot.get("key")?.unwrap(), b"before");
    /// assert_eq!(db.get("key")?.unwrap(), b"after");
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::take(&self.handle)
    }

    /// All entries, in key order, as they are now. See [`Range`] for what keys and values cost that
    /// are kept.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// db.put("b", "2")?;
    /// db.put("a", "1")?;
    /// for entry in db.iter() {
    ///     let (key, value) = entry?;
    ///     println!("{} = {}", key.escape_ascii(), value.escape_ascii());
    /// }
    /// let (last, _) = db.iter().next_back().unwrap()?;
    /// assert_eq!(last, b"b");
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn iter(&self) -> Range {
        self.handle.range(Bounds::all(), None)
    }

    /// The entries whose keys lie in `range`, as they are now.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// for key in ["a", "b", "c"] {
    ///     db.put(key, "")?;
    /// }
    /// let newest_first = db.range("a"..="b").rev();
    /// let keys: Vec<_> = newest_first.map(|entry| Ok(entry?.0)).collect::<trommel::Result<_>>()?;
    /// assert_eq!(keys, [b"b", b"a"]);
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn range(&self, range: impl KeyRange) -> Range {
        self.handle.range(Bounds::of(range), None)
    }

    /// The entries whose keys begin with `prefix`, as they are now.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// for key in ["user:1", "user:2", "zebra"] {
    ///     db.put(key, "")?;
    /// }
    /// assert_eq!(db.prefix("user:").count(), 2);
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Range {
        self.handle.range(Bounds::prefix(prefix.as_ref()), None)
    }

    /// A cursor over the entries as they are now, which can be moved anywhere.
    ///
    /// # Errors
    /// As [`Db::get`]. What it reads later fails in the same ways.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// db.put("a", "1")?;
    /// db.put("c", "3")?;
    /// let mut cursor = db.cursor()?;
    /// cursor.seek("b")?;
    /// assert_eq!(cursor.entry(), Some((&b"c"[..], &b"3"[..])));
    /// cursor.prev()?;
    /// assert_eq!(cursor.key(), Some(&b"a"[..]));
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn cursor(&self) -> Result<DbCursor> {
        self.handle.cursor(Bounds::all(), None)
    }

    /// A cursor over the entries whose keys lie in `range`, as they are now: whatever it is told,
    /// it stays within. Where the range lies within one prefix of
    /// [`Options::prefix_extractor`], it passes over tables that do not hold the prefix; seeks of a
    /// cursor over all entries never do.
    ///
    /// # Errors
    /// As [`Db::cursor`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// for key in ["a", "b", "c", "d"] {
    ///     db.put(key, "")?;
    /// }
    /// let mut cursor = db.cursor_in("b".."d")?;
    /// cursor.seek("a")?;
    /// assert_eq!(cursor.key(), Some(&b"b"[..]));
    /// cursor.prev()?;
    /// assert!(!cursor.valid());
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn cursor_in(&self, range: impl KeyRange) -> Result<DbCursor> {
        self.handle.cursor(Bounds::of(range), None)
    }

    /// As [`Db::cursor_in`], over the entries whose keys begin with `prefix`.
    ///
    /// # Errors
    /// As [`Db::cursor`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// for key in ["a", "user:1", "user:2", "zebra"] {
    ///     db.put(key, "")?;
    /// }
    /// let mut cursor = db.prefix_cursor("user:")?;
    /// cursor.seek_to_last()?;
    /// assert_eq!(cursor.key(), Some(&b"user:2"[..]));
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn prefix_cursor(&self, prefix: impl AsRef<[u8]>) -> Result<DbCursor> {
        self.handle.cursor(Bounds::prefix(prefix.as_ref()), None)
    }

    /// Writes what is in memory out to tables, and waits until that is done.
    ///
    /// # Errors
    /// [`Error::ReadOnly`], [`Error::Closed`] or [`Error::Poisoned`]; errors of the file system, of
    /// which [`Error::kind`] tells whether to try again or to open the store anew.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// db.put("key", "value")?;
    /// db.flush()?;
    /// assert_eq!(db.stats().flushes, 1);
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn flush(&self) -> Result<()> {
        self.engine().flush()
    }

    /// Makes every write so far durable.
    ///
    /// # Errors
    /// As [`Db::flush`]. Where the log cannot be made durable, writes are refused until the store
    /// is opened again.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// for number in 0..1000_u32 {
    ///     db.put(number.to_be_bytes(), "value")?;
    /// }
    /// db.sync()?; // all of them, with one call to the device
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn sync(&self) -> Result<()> {
        self.engine().sync()
    }

    /// Compacts the keys in `range` down to the last level, as they were written so far, dropping
    /// all that nobody can see any more; waits until that is done.
    ///
    /// # Errors
    /// As [`Db::flush`], or what a compaction ended with: [`Error::Corruption`] where a table is
    /// damaged. What was not compacted stays as it was.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// db.put("user:1", "Ada")?;
    /// db.delete("user:1")?;
    /// db.compact_range("user:".."user;")?;
    /// assert_eq!(db.approximate_bytes(..)?, 0);
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn compact_range(&self, range: impl KeyRange) -> Result<()> {
        let bounds = Bounds::of(range);
        self.engine().compact(&bounds.from, bounds.to.as_deref())
    }

    /// As [`Db::compact_range`], for all keys.
    ///
    /// # Errors
    /// As [`Db::compact_range`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// db.put("a", "1")?;
    /// db.compact_all()?;
    /// assert_eq!(db.stats().levels.len(), 1);
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn compact_all(&self) -> Result<()> {
        self.engine().compact(&[], None)
    }

    /// Waits until no memtable waits to be written out, no compaction runs or is needed, and no
    /// filter waits to be rebuilt. For compactions that are paused it does not wait. Memory that
    /// was kept for memtables is given back.
    ///
    /// While somebody waits and nothing else is to be done, runs of level 0 are merged from half of
    /// [`Options::l0_trigger`](crate::Options::l0_trigger) on (two at least) if they find at most
    /// five times their bytes in the base level, and otherwise from that many on. Who calls this
    /// after each flush has up to six bytes written so for each that is moved down; who calls it
    /// while others write may wait for as long as they do.
    ///
    /// # Errors
    /// [`Error::Closed`] or [`Error::Poisoned`], or what a flush, a compaction or a rebuild ended
    /// with. A read-only store is idle.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// db.put("a", "1")?;
    /// db.flush()?;
    /// db.wait_idle()?;
    /// assert_eq!(db.stats().compaction_debt, 0);
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn wait_idle(&self) -> Result<()> {
        self.engine().wait_idle()
    }

    /// Lets no compaction start until [`Db::resume_compaction`] was called as often, nor rebuilds
    /// of filters that nobody asked for (`fit-budget`); waits for those that run. Writers are not
    /// held up by what then stays undone; who asks for a compaction ([`Db::compact_range`]) waits
    /// until it may start. Memtables are written out all the same, [`Db::rebuild_filters`] does
    /// what it is asked for, and [`Db::wait_idle`] has filters that are more than their budget
    /// rebuilt, and waits for that.
    ///
    /// # Errors
    /// [`Error::Closed`] or [`Error::Poisoned`], or what a flush ended with: then nothing is
    /// paused.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// db.pause_compaction()?;
    /// for number in 0..1000_u32 {
    ///     db.put(number.to_be_bytes(), "value")?; // not disturbed by compactions
    /// }
    /// db.resume_compaction();
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn pause_compaction(&self) -> Result<()> {
        self.engine().pause_compaction()
    }

    /// Takes back one [`Db::pause_compaction`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// db.pause_compaction()?;
    /// db.pause_compaction()?;
    /// db.resume_compaction(); // paused once still
    /// db.resume_compaction();
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn resume_compaction(&self) {
        self.engine().resume_compaction();
    }

    /// Reads every byte of every file, checks every checksum and order, and asks every table's
    /// filter for every key of the table.
    ///
    /// # Errors
    /// The first damage found: [`Error::Corruption`] names file and offset.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// db.put("a", "1")?;
    /// db.flush()?;
    /// let report = db.verify()?;
    /// assert!(report.damage.is_empty());
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn verify(&self) -> Result<VerifyReport> {
        self.engine().verify()
    }

    /// As [`Db::verify`], and goes on behind damage: all of it is listed in
    /// [`VerifyReport::damage`].
    ///
    /// # Errors
    /// [`Error::Closed`]; errors of the file system that say nothing about a file, as where file
    /// handles are short.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// db.put("a", "1")?;
    /// db.flush()?;
    /// let report = db.verify_all()?;
    /// assert!(report.is_sound(), "{report}");
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn verify_all(&self) -> Result<VerifyReport> {
        self.engine().verify_all()
    }

    /// Reads every byte of every file of the store in `dir`, which nobody may be writing, and lists
    /// all that is damaged, whether or not it could be opened. Writes nothing, not even a lock
    /// file: where there is none, nobody can be kept out meanwhile. Of `options` the file system
    /// and the prefix extractor count.
    ///
    /// # Errors
    /// [`Error::Locked`] where somebody writes it, or came to while it was read;
    /// [`Error::NotAStore`]; [`Error::Io`] where the directory cannot be read, or the lock file is
    /// there and cannot be locked. Damage is no error, but listed.
    ///
    /// ```
    /// # use trommel::{Db, Options};
    /// # let dir = tempfile::tempdir().unwrap();
    /// Db::open(dir.path(), Options::default())?.close()?;
    /// let report = Db::verify_dir(dir.path(), &Options::default())?;
    /// assert!(report.damage.is_empty());
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn verify_dir(dir: impl AsRef<Path>, options: &Options) -> Result<VerifyReport> {
        verify_store(dir.as_ref(), options)
    }

    /// Makes `dir`, which is created, or is there and empty, a store of its own that holds what
    /// this one holds now. Its tables are hard links where both lie on one file system.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] where `dir` is not empty, or the directory that it is to lie in is
    /// missing; as [`Db::flush`]. What was begun is removed.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// # use trommel::{Db, Options};
    /// # let copy = dir.path().join("copy");
    /// # let db = { drop(db); Db::open(dir.path().join("data"), Options::default())? };
    /// db.put("key", "before")?;
    /// db.checkpoint(&copy)?;
    /// db.put("key", "after")?;
    /// let copy = Db::open(&copy, Options::default())?; // a store of its own
    /// assert_eq!(copy.get("key")?.unwrap(), b"before");
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn checkpoint(&self, dir: impl AsRef<Path>) -> Result<()> {
        self.engine().checkpoint(dir.as_ref())
    }

    /// About how many bytes of files hold the keys in `range`, without what is in memory.
    ///
    /// # Errors
    /// As [`Db::get`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// for number in 0..1000_u32 {
    ///     db.put(number.to_be_bytes(), "value")?;
    /// }
    /// db.flush()?;
    /// let half = db.approximate_bytes(..500_u32.to_be_bytes())?;
    /// assert!(half > 0 && half < db.approximate_bytes(..)?);
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn approximate_bytes(&self, range: impl KeyRange) -> Result<u64> {
        self.engine().approximate_bytes(&Bounds::of(range))
    }

    /// Changes options of the live store. What cannot change while it is open stays as it is,
    /// whatever `change` says of it: [`vfs`](Options::vfs), [`environment`](Options::environment),
    /// [`read_mode`](Options::read_mode), [`log`](Options::log),
    /// [`background_threads`](Options::background_threads),
    /// [`max_open_files`](Options::max_open_files), and how the store was opened
    /// ([`create_if_missing`](Options::create_if_missing),
    /// [`error_if_exists`](Options::error_if_exists), [`read_only`](Options::read_only),
    /// [`salvage`](Options::salvage), [`degraded`](Options::degraded)).
    ///
    /// # Errors
    /// [`Error::InvalidOption`](crate::Error::InvalidOption), and nothing changes, where an option
    /// is out of its bounds, or [`user_filters`](Options::user_filters) is another policy; errors
    /// of the file system, and nothing changes, where an option that shapes the store
    /// ([`Options::load_latest`]) cannot be recorded.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// db.set_options(|options| options.background_bytes_per_second(Some(32 << 20)))?;
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn set_options(&self, change: impl FnOnce(Options) -> Options) -> Result<()> {
        self.engine().set_options(change)
    }

    /// Changes which filters new tables get; tables that exist keep theirs, until
    /// [`Db::rebuild_filters`] gives them others.
    ///
    /// # Errors
    /// As [`Db::set_options`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// db.set_filters("L0=paired:20,L1-=ribbon:10".parse()?)?;
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn set_filters(&self, filters: FilterPolicy) -> Result<()> {
        self.set_options(|options| options.filters(filters))
    }

    /// What [`Db::rebuild_filters`] would do now, and at which cost. Reads nothing but what opening
    /// tables reads.
    ///
    /// # Errors
    /// As [`Db::get`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// # use trommel::RebuildOptions;
    /// let plan = db.filter_rebuild_plan(&RebuildOptions::default())?;
    /// assert!(plan.tables.is_empty()); // there are no tables yet
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn filter_rebuild_plan(&self, options: &RebuildOptions) -> Result<FilterRebuildPlan> {
        self.engine().rebuild_plan(options)
    }

    /// Gives the tables that have other filters than the policy in force would build for them now
    /// (or damaged ones) filters of that policy, and waits until that is done. Data is read, and
    /// never written: the new filters lie in files of their own, which stand before those in the
    /// tables, and go with their tables. What was there before serves until the new filter is in
    /// force, after a crash too.
    ///
    /// Done in the background, when nothing else is to be done there, within what
    /// [`Options::memory_limit`] leaves for building, and not held to
    /// [`Options::background_bytes_per_second`], as the caller waits; closing the store ends it,
    /// between tables or within one. Tables in which filters are not used
    /// ([`Options::filters_on_last_level`]) are left alone.
    ///
    /// # Errors
    /// The first thing that went wrong with any table; what was done before stays. A damaged table
    /// is an error of this call alone, and so is a full disk.
    ///
    /// ```
    /// # use trommel::{Db, RebuildOptions};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = Db::open(dir.path(), Default::default())?;
    /// db.put("a", "1")?;
    /// db.flush()?;
    /// db.set_filters("paired:20".parse()?)?;
    /// let plan = db.filter_rebuild_plan(&RebuildOptions::default())?;
    /// assert_eq!((plan.tables.len(), plan.keys), (1, 1));
    /// let report = db.rebuild_filters(&RebuildOptions::default())?;
    /// assert_eq!(report.rebuilt, 1);
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn rebuild_filters(&self, options: &RebuildOptions) -> Result<FilterRebuildReport> {
        self.engine().rebuild_filters(options)
    }

    /// What the last rebuild of filters did since the store was opened: one that a caller asked
    /// for, or the store's own, `fit-budget`, which makes filters fit their budget. Of the latter
    /// also while it is under way: how often a table could not be read and waits to be tried again,
    /// and which were given up. None where there was no rebuild.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// use trommel::RebuildOptions;
    /// assert!(db.last_filter_rebuild().is_none());
    /// db.rebuild_filters(&RebuildOptions::default())?;
    /// assert_eq!(db.last_filter_rebuild().unwrap().rebuilt, 0); // there was no table
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn last_filter_rebuild(&self) -> Option<FilterRebuildReport> {
        self.engine().last_rebuild()
    }

    /// The options in force.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// db.set_options(|options| options.level_ratio(8))?;
    /// let as_opened = db.options();
    /// # drop(as_opened);
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn options(&self) -> Options {
        (*self.engine().options.load_full()).clone()
    }

    /// Why the file that records the store's options does not say those in force, if it does not:
    /// it could not be written or read, or a newer version wrote it. No data depends on that; it is
    /// written again when options change, and when the store is next opened.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// assert!(db.options_fault().is_none());
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn options_fault(&self) -> Option<Error> {
        self.engine().options_fault()
    }

    /// What the store has done and what it holds.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// db.put("key", "value")?;
    /// db.get("key")?;
    /// let stats = db.stats();
    /// assert_eq!((stats.writes, stats.gets, stats.found), (1, 1, 1));
    /// println!("{stats}");
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn stats(&self) -> Stats {
        self.engine().stats()
    }

    /// What each level's filters did since the counters were reset, beside what theory predicts.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// db.put("a", "1")?;
    /// db.flush()?;
    /// db.get("b")?;
    /// println!("{}", db.filter_report());
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn filter_report(&self) -> FilterReport {
        self.engine().filter_report()
    }

    /// Which filters the levels should have, by what the lookups since the counters were reset were
    /// seen to do: for the bytes that the filters take now. There is none before so many as
    /// [`LOOKUPS_FOR_ADVICE`](crate::LOOKUPS_FOR_ADVICE) came to tables; reset the counters after
    /// the filters, the tree or the lookups have changed. Takes some milliseconds, and changes
    /// nothing.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// # for key in 0..1000 { db.put(format!("{key:04}"), "value")?; }
    /// # db.flush()?;
    /// for key in 0..20_000 {
    ///     db.get(format!("{:04}x", key % 1000))?;
    /// }
    /// let advice = db.filter_advice()?;
    /// println!("{advice}");
    /// if advice.verdict == trommel::AdviceVerdict::Change
    ///     && let Some(policy) = advice.policy
    /// {
    ///     db.set_filters(policy)?;
    /// }
    /// # Ok::<(), trommel::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Db::filter_advice_with`], for options that are sound.
    pub fn filter_advice(&self) -> Result<FilterAdvice> {
        self.filter_advice_with(&AdviceOptions::default())
    }

    /// The same for another budget or another share of misses.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] where the share of misses is not from 0 to 1, or a read's cost is
    /// out of its bounds.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// use trommel::AdviceOptions;
    /// # for key in 0..1000 { db.put(format!("{key:04}"), "value")?; }
    /// # db.flush()?;
    /// let half = AdviceOptions::new().misses(0.5);
    /// println!("{}", db.filter_advice_with(&half)?);
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn filter_advice_with(&self, options: &AdviceOptions) -> Result<FilterAdvice> {
        self.engine().filter_advice(options)
    }

    /// Starts every counter of [`Db::stats`] anew: of lookups, writes, filters, flushes,
    /// compactions and stalls.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// db.get("key")?;
    /// db.reset_stats();
    /// assert_eq!(db.stats().gets, 0);
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn reset_stats(&self) {
        if !self.engine().access.opener().is_forked() {
            self.engine().reset_stats();
        }
    }

    /// Records lookups (single ones and those of `multi_get`, of snapshots too) to a new file at
    /// `path`, until the trace is finished: what [`trace`](crate::trace) is for. The file holds
    /// their keys. Memory for it stays below a MiB, and whatever befalls the file, lookups go on.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] where another trace is being recorded, `path` lies in the store's
    /// directory, or the sample is out of its bounds; [`Error::Io`] where the file is there or
    /// cannot be created.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path().join("store"), Default::default())?;
    /// use trommel::trace::TraceOptions;
    /// let file = dir.path().join("lookups.trace");
    /// let trace = db.trace_lookups(&file, TraceOptions::default().sample(1))?;
    /// db.get("key")?;
    /// assert_eq!(trace.finish()?.lookups, 1);
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn trace_lookups(
        &self,
        path: impl AsRef<Path>,
        options: TraceOptions,
    ) -> Result<LookupTrace> {
        self.engine().trace_lookups(path.as_ref(), options)
    }

    /// What opening the store found and did.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// let report = db.recovery_report();
    /// assert!(report.dropped.is_empty() && report.damage.is_empty());
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn recovery_report(&self) -> &RecoveryReport {
        &self.engine().recovery
    }

    /// Closes the store, for all clones of the handle and all snapshots, ranges and cursors, and
    /// returns what dropping the last of them would have to swallow. Everything written is then
    /// durable. A flush that runs is finished first; compactions are given up, and done anew by
    /// whoever opens the store: call [`Db::wait_idle`] before to have them done.
    ///
    /// # Errors
    /// [`Error::Poisoned`] where an earlier write failed, or a flush or compaction met a damaged
    /// file; errors of the file system. The store is closed all the same.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// db.put("key", "value")?;
    /// db.close()?; // dropping the last clone closes it as well, and cannot return an error
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn close(self) -> Result<()> {
        self.handle.close()
    }
}
