//! The handle to a store.

mod merging;

use std::path::Path;
use std::sync::Arc;

use trommel_base::{SeqNo, Slice};
use trommel_vfs::Vfs;

use crate::advice::{AdviceOptions, FilterAdvice};
use crate::batch::{OpKind, WriteBatch};
use crate::bounds::{Bounds, KeyRange};
use crate::destroy::{DestroyReport, destroy};
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::filter_policy::FilterPolicy;
use crate::handle::Handle;
use crate::healthy::Healthy;
use crate::ingest::IngestBatch;
use crate::iter::range::{DbCursor, Range};
use crate::keyspaces::Part;
use crate::lookup_trace::LookupTrace;
use crate::names;
use crate::options::Degraded;
use crate::options::{Options, WriteOptions};
use crate::read::Explanation;
use crate::rebuild::{FilterRebuildPlan, RebuildOptions};
use crate::rebuild_queue::FilterRebuildReport;
use crate::recovery_report::RecoveryReport;
use crate::report::FilterReport;
use crate::snapshot::Snapshot;
use crate::sorted_load::LoadReport;
use crate::stats::Stats;
use crate::trace::TraceOptions;
use crate::transaction::Transaction;
use crate::verify::{VerifyReport, verify_store};

/// A handle to an open store. Clones share the store.
///
/// A [`Snapshot`], [`Range`] or [`DbCursor`] keeps the store open like a handle: the store closes
/// when the last of them is dropped. [`Db::close`] closes it at once, regardless of what is still
/// held; every later read or write through any of them fails with [`Error::Closed`].
///
/// A store belongs to the process that opened it. In a forked child, fallible calls return
/// [`Error::Forked`] at once and the others return what an empty store would. Dropping the handle,
/// or anything read from it, neither blocks nor touches a file there.
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
    pub(crate) handle: Arc<Handle>,
}

impl Db {
    /// Opens the store in `dir`, creating it if the directory is missing or empty. The options that
    /// shape the store are recorded there, for programs that open it later: see
    /// [`Options::load_latest`].
    ///
    /// # Errors
    /// [`Error::Locked`] if it is already open elsewhere; [`Error::NotAStore`] if the directory
    /// holds other files; [`Error::Corruption`] if a file is corrupt, which leaves the directory
    /// untouched; [`Error::Unsupported`] if it was written by a newer version.
    ///
    /// ```
    /// use trommel::{Db, Options};
    /// # let dir = tempfile::tempdir().unwrap();
    /// let options = Options::default().reads(|r| r.cache_bytes(64 << 20));
    /// let db = Db::open(dir.path(), options)?;
    /// assert!(Db::open(dir.path(), Options::default()).is_err()); // one handle at a time: clone it
    /// db.put("a", "1")?;
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn open(dir: impl AsRef<Path>, options: Options) -> Result<Self> {
        Self::start(dir.as_ref(), options, false)
    }

    /// As [`Db::open`], for a directory that a repair has not finished.
    pub(crate) fn open_unfinished(dir: &Path, options: Options) -> Result<Self> {
        Self::start(dir, options, true)
    }

    fn start(dir: &Path, options: Options, unfinished: bool) -> Result<Self> {
        let db = Self::of(Engine::open(dir, options, unfinished)?);
        // Before any job that writes tables: tables have the options of their keyspaces.
        db.handle.open_catalog();
        db.engine().start_workers();
        Ok(db)
    }

    /// The first handle to an opened store.
    pub(crate) fn of(engine: Arc<Engine>) -> Self {
        Self { handle: Arc::new(Handle::new(engine)) }
    }

    /// Opens the store in `dir` without writing anything. Several processes may open it read-only
    /// at once, but not while another process has it open for writing: the second to open it gets
    /// [`Error::Locked`]. To read while the store is being written, use [`Db::open_follower`]. The
    /// contents of the log are read into memory.
    ///
    /// # Errors
    /// As [`Db::open`]; also [`Error::NotAStore`] if the directory is missing or empty.
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
        Self::open(dir, options.opening(|o| o.read_only(true)))
    }

    /// Opens the corrupt store in `dir` to read its intact data; see
    /// [`OpenSettings::degraded`](crate::settings::OpenSettings::degraded). [`Db::recovery_report`]
    /// lists the corruption found.
    ///
    /// # Errors
    /// As [`Db::open_read_only`], except that corrupt tables and logs are accepted, and so is a
    /// manifest that is corrupt after its first record. [`Error::Corruption`] if no manifest can be
    /// read (a repair needs none); [`Error::Locked`] or [`Error::Io`] if `LOCK` exists and cannot
    /// be locked; [`Error::NotAStore`] if a repair was interrupted.
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
        Self::open(dir, options.opening(|o| o.degraded(degraded)))
    }

    /// Returns the entries with keys in `range`, skipping all corrupt data. Reads the tables of the
    /// range once to find the corruption, and then yields every entry that can be read.
    /// [`Healthy::damage`] and [`Healthy::in_doubt`] report what was skipped.
    ///
    /// # Errors
    /// [`Error::InDoubt`] if nothing is certain; errors of the file system.
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
        self.handle.healthy(Part::Default, Bounds::of(range))
    }

    /// Removes the store in `dir`, and `dir` itself unless it holds other files. Only the file
    /// system of `options` is used.
    ///
    /// # Errors
    /// [`Error::Locked`] if it is open; [`Error::NotAStore`] if `dir` holds no file of a store, is
    /// a symbolic link, or is `.` or ends in `..`. Nothing is removed in these cases.
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

    pub(crate) fn handle(&self) -> &Arc<Handle> {
        &self.handle
    }

    /// The store's directory, as passed to open.
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

    /// The random number drawn when the store was created. A checkpoint has a different one,
    /// because the two stores diverge.
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

    /// The store's table files by name, each with the random number drawn when the table was
    /// written. Tables are immutable and their checksums are bound to that number, so two files
    /// with the same number and length are the same table, in any directory.
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

    /// Sets `key` to `value`. Returns the sequence number of the write: every later snapshot has a
    /// [`seqno`](Snapshot::seqno) at least as large.
    ///
    /// # Errors
    /// [`Error::KeyTooLong`] above 65,535 bytes, [`Error::ValueTooLong`] above 1 GiB,
    /// [`Error::ReadOnly`], [`Error::Closed`], and [`Error::Stalled`] if the flushes or compactions
    /// that the write waits for keep failing (see
    /// [`WriteSettings::stall_timeout`](crate::settings::WriteSettings::stall_timeout)): nothing
    /// was changed. After an error of the file system, the write may or may not be there when the
    /// store is next opened; until then further writes fail with [`Error::Poisoned`].
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

    /// As [`Db::put`], with write options.
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
        let (key, value) = (key.as_ref(), value.as_ref());
        self.engine().write_in(Part::Default, OpKind::Put, key, value, options)
    }

    /// Deletes `key`, whether or not it exists. Returns the sequence number of the deletion.
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

    /// As [`Db::delete`], with write options.
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
        self.engine().write_in(Part::Default, OpKind::Delete, key.as_ref(), &[], options)
    }

    /// Deletes all keys in `range`, whether or not there are any. Returns the sequence number of
    /// the deletion.
    ///
    /// It takes the time of one write, whatever the number of keys. Open snapshots and iterators
    /// keep what they see. Compactions remove the entries; a table that holds no others is removed
    /// without being read. If the range is empty, or ends before it starts, nothing is written, and
    /// the newest sequence number visible to reads is returned.
    ///
    /// # Errors
    /// As [`Db::put`]; each bound of the range has the limit of a key.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// for key in ["a", "b", "c"] {
    ///     db.put(key, "1")?;
    /// }
    /// db.delete_range("b"..)?;
    /// assert_eq!(db.iter().count(), 1);
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn delete_range(&self, range: impl KeyRange) -> Result<SeqNo> {
        self.delete_range_with(range, WriteOptions::default())
    }

    /// As [`Db::delete_range`], with write options.
    ///
    /// # Errors
    /// As [`Db::delete_range`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// use trommel::WriteOptions;
    /// db.put("key", "value")?;
    /// db.delete_range_with(.., WriteOptions::sync())?; // on the device when it returns
    /// assert_eq!(db.get("key")?, None);
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn delete_range_with(&self, range: impl KeyRange, options: WriteOptions) -> Result<SeqNo> {
        self.engine().delete_range_in(Part::Default, Bounds::of(range), options)
    }

    /// Writes a batch atomically, for readers and across crashes. A batch passed by reference can
    /// be cleared and reused. Returns the sequence number of its last operation; the others have
    /// the numbers right before it. An empty batch takes no number and returns the newest one
    /// visible to reads.
    ///
    /// # Errors
    /// As [`Db::put`], and [`Error::BatchTooLarge`]. If the size of a key, a value or the batch is
    /// refused, nothing of the batch is written, and [`WriteBatch::check`] names the operation. If
    /// the batch has conditions, [`Error::Conflict`] if one does not hold, and the errors of
    /// [`Db::get`].
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

    /// As [`Db::write`], with write options.
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
        self.engine().write_batch(batch.as_ref(), options)
    }

    /// Loads entries whose keys are in strictly ascending order, atomically: they are written to
    /// tables once, past the log and the memtable, and become visible together, durably, when the
    /// call returns. Existing keys are overwritten. Several times as fast as ordinary writes, which
    /// write each entry two or more times.
    ///
    /// Each table joins the deepest level such that no table in that level or above overlaps it, or
    /// else level 0. Keys that overlap those of the store cause compactions later, as any write
    /// does. Readers and writers continue meanwhile, except that writers wait at the end, while the
    /// memtables are flushed. The load waits for running compactions. One load runs at a time. An
    /// error of `entries` ends the load, and is returned. Tables that compactions replace meanwhile
    /// stay on disk until it ends.
    ///
    /// # Errors
    /// As [`Db::flush`]; [`Error::Unsorted`], [`Error::KeyTooLong`] and [`Error::ValueTooLong`]. In
    /// each case nothing was loaded, except after an error of the file system during the last step:
    /// then it is unknown until the store is opened again.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// let sorted = (0..10_000_u32).map(|number| Ok((number.to_be_bytes(), "value")));
    /// let report = db.load_sorted(sorted)?;
    /// assert_eq!((report.entries, report.tables), (10_000, 1));
    /// assert_eq!(db.get(7_u32.to_be_bytes())?.unwrap(), b"value");
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn load_sorted<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        entries: impl IntoIterator<Item = Result<(K, V)>>,
    ) -> Result<LoadReport> {
        self.engine().load_sorted(entries)
    }

    /// Loads files that [`TableWriter`](crate::TableWriter) wrote, atomically: their entries become
    /// visible together, durably, when the call returns, and existing keys are overwritten. As
    /// [`Db::load_sorted`], but the entries may be in any number of files, in any order; the files
    /// may have been written elsewhere, and in parallel.
    ///
    /// Every byte of the files is read and verified, and each entry written once, to tables of the
    /// store. The files stay as they are; remove them when they are no longer needed. Levels,
    /// compactions, readers and writers are affected as by [`Db::load_sorted`].
    ///
    /// # Errors
    /// As [`Db::load_sorted`]. [`Error::Corruption`] with file and offset, [`Error::WrongFile`] if
    /// a file is not one of [`TableWriter`](crate::TableWriter), [`Error::Unsupported`] if a newer
    /// version wrote it; [`Error::FilesOverlap`]. In each case nothing was loaded.
    ///
    /// ```
    /// use trommel::{Options, TableWriter};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path().join("data"), Default::default())?;
    /// let files = ["a.table", "b.table"].map(|name| dir.path().join(name));
    /// for (file, key) in files.iter().zip(["apple", "banana"]) {
    ///     let mut writer = TableWriter::create(file, &Options::default())?;
    ///     writer.put(key, "fruit")?;
    ///     writer.finish()?;
    /// }
    /// assert_eq!(db.ingest(&files)?.entries, 2);
    /// assert!(db.contains_key("apple")? && db.contains_key("banana")?);
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn ingest<P: AsRef<Path>>(&self, files: impl IntoIterator<Item = P>) -> Result<LoadReport> {
        let mut batch = IngestBatch::new();
        files.into_iter().for_each(|file| _ = batch.add(file));
        self.ingest_batch(&batch)
    }

    /// As [`Db::ingest`], with files for several keyspaces, which are loaded together: see
    /// [`IngestBatch`].
    ///
    /// # Errors
    /// As [`Db::ingest`], and [`Error::KeyspaceDropped`].
    ///
    /// ```
    /// use trommel::{IngestBatch, Options, TableWriter};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path().join("data"), Default::default())?;
    /// let file = dir.path().join("fruit.table");
    /// let mut writer = TableWriter::create(&file, &Options::default())?;
    /// writer.put("apple", "red")?;
    /// writer.finish()?;
    /// let copies = db.keyspace("copies", Default::default())?;
    /// db.ingest_batch(IngestBatch::new().add(&file).add_to(&copies, &file))?;
    /// assert!(db.contains_key("apple")? && copies.contains_key("apple")?);
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn ingest_batch(&self, batch: &IngestBatch) -> Result<LoadReport> {
        self.engine().ingest(batch)
    }

    /// Returns the value of `key`. A value above 30 bytes shares the memory of its block (4 KiB by
    /// default), which is held as long as the value is: for long-lived values use
    /// [`Slice::detached`] or a `Vec`. Values from a memtable or a map are copied instead.
    ///
    /// # Errors
    /// [`Error::Corruption`], [`Error::Io`] or [`Error::Unsupported`] if a table that may hold the
    /// key is corrupt, cannot be read, or needs a newer version; [`Error::Closed`];
    /// [`Error::InDoubt`] if the store was opened
    /// [degraded](crate::settings::OpenSettings::degraded) and nothing is certain.
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
        self.engine().get_in(Part::Default, key.as_ref(), None)
    }

    /// Whether `key` has a value. Costs as much as [`Db::get`] without decoding or copying the
    /// value; its block is still read, because one checksum covers the whole block.
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
        self.engine().contains_in(Part::Default, key.as_ref(), None)
    }

    /// Returns the values of `keys`, in their order, all as of one moment. Filters are probed in
    /// batches, no block is read twice, and reads from the device overlap.
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
        self.engine().multi_get_in(Part::Default, keys, None)
    }

    /// Sets `key` to `value` unless it has a value; returns whether it was set. Atomic.
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

    /// As [`Db::insert_if_absent`], with write options.
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

    /// Sets `key` to `new` (`None` deletes it) if its value is `expected` (`None`: no value);
    /// returns whether it was set. Atomic, and a batch of one operation and one condition: see
    /// [`WriteBatch::expect_value`].
    ///
    /// # Errors
    /// As [`Db::get`] and [`Db::put`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// db.put("counter", "1")?;
    /// assert!(db.compare_and_set("counter", Some(b"1"), Some(b"2"))?);
    /// assert!(!db.compare_and_set("counter", Some(b"1"), Some(b"3"))?); // lost the race
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

    /// As [`Db::compare_and_set`], with write options. If nothing is set, nothing is synced.
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
        self.engine().compare_and_set_in(Part::Default, key.as_ref(), expected, new, options)
    }

    /// Runs `body` in a transaction and commits it: everything that it reads and writes through the
    /// [`Transaction`] takes effect at once, as if nothing else had run meanwhile. Returns what
    /// `body` returns.
    ///
    /// If another write has changed a key or range that it has read, nothing is written, and `body`
    /// runs again, up to 1,000 times: it should have no effects other than through the transaction.
    /// Each conflict means that another write has succeeded. If `body` returns an error, nothing is
    /// written.
    ///
    /// # Errors
    /// The error of `body`; those of [`Transaction::commit`]. [`Error::Conflict`] only after the
    /// last attempt.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// let visits = db.transaction(|tx| {
    ///     let before = tx.get("visits")?.map_or(0, |value| value.len());
    ///     tx.put("visits", vec![b'|'; before + 1])?;
    ///     Ok(before + 1)
    /// })?;
    /// assert_eq!(visits, 1);
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn transaction<T>(&self, body: impl FnMut(&Transaction) -> Result<T>) -> Result<T> {
        self.transaction_with(WriteOptions::default(), body)
    }

    /// As [`Db::transaction`], with write options for the commit.
    ///
    /// # Errors
    /// As [`Db::transaction`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// use trommel::WriteOptions;
    /// db.transaction_with(WriteOptions::sync(), |tx| tx.put("key", "value"))?;
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn transaction_with<T>(
        &self,
        options: WriteOptions,
        body: impl FnMut(&Transaction) -> Result<T>,
    ) -> Result<T> {
        Transaction::run(&self.handle, options, body)
    }

    /// Begins a transaction, which reads the store as of now. Commit it with
    /// [`Transaction::commit`]; [`Db::transaction`] commits by itself, and retries after a
    /// conflict.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// let transaction = db.begin();
    /// let total: usize = transaction.iter().count();
    /// transaction.put("total", format!("{total}"))?;
    /// transaction.commit()?;
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn begin(&self) -> Transaction {
        Transaction::begin(&self.handle)
    }

    /// Takes a snapshot of the store, which stays readable as long as the snapshot is held.
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

    /// Iterates over all entries in key order, as of now. [`Range`] describes the memory that
    /// retained keys and values hold.
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
        self.handle.range(Part::Default, Bounds::all(), None)
    }

    /// Iterates over the entries with keys in `range`, as of now.
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
        self.handle.range(Part::Default, Bounds::of(range), None)
    }

    /// Iterates over the entries with keys that begin with `prefix`, as of now.
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
        self.handle.range(Part::Default, Bounds::prefix(prefix.as_ref()), None)
    }

    /// Returns a cursor over all entries, as of now. It can be moved to any key.
    ///
    /// # Errors
    /// As [`Db::get`]. Later reads of the cursor can fail in the same ways.
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
        self.handle.cursor(Part::Default, Bounds::all(), None)
    }

    /// Returns a cursor over the entries with keys in `range`, as of now. It never leaves the
    /// range. If the range lies within one prefix of
    /// [`FilterSettings::prefix_extractor`](crate::settings::FilterSettings::prefix_extractor),
    /// tables without the prefix are skipped; a cursor over all entries never skips tables.
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
        self.handle.cursor(Part::Default, Bounds::of(range), None)
    }

    /// As [`Db::cursor_in`], for the entries with keys that begin with `prefix`.
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
        self.handle.cursor(Part::Default, Bounds::prefix(prefix.as_ref()), None)
    }

    /// Flushes the memtables to tables and waits for that to finish.
    ///
    /// # Errors
    /// [`Error::ReadOnly`], [`Error::Closed`] or [`Error::Poisoned`]; errors of the file system,
    /// whose [`Error::kind`] shows whether to retry or to reopen the store.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// db.put("key", "value")?;
    /// db.flush()?;
    /// assert_eq!(db.stats().background.flushes.count, 1);
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn flush(&self) -> Result<()> {
        self.engine().flush()
    }

    /// Makes every write so far durable.
    ///
    /// # Errors
    /// As [`Db::flush`]. If the log cannot be synced, writes are refused until the store is
    /// reopened.
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

    /// Compacts the keys in `range`, as written so far, down to the last level, and waits for that
    /// to finish. Versions that no reader can see are dropped.
    ///
    /// # Errors
    /// As [`Db::flush`], or the error of a compaction: [`Error::Corruption`] if a table is corrupt.
    /// Keys that were not compacted stay as they were.
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
        let bounds = self.engine().bounds_in(Part::Default, Bounds::of(range))?;
        self.engine().compact(&bounds.from, bounds.to.as_deref())
    }

    /// As [`Db::compact_range`], for all keys of all keyspaces.
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

    /// Waits until all memtables are flushed, no compaction is running or needed, and no filter
    /// rebuild is pending. Paused compactions are not waited for. Memory kept for future memtables
    /// is freed.
    ///
    /// If there is nothing else to do while a caller waits, level 0 is compacted at half of
    /// [`CompactionSettings::l0_trigger`](crate::settings::CompactionSettings::l0_trigger) runs (at
    /// least two) instead of all of it, provided that the overlapping tables of the base level hold
    /// at most five times the bytes. Calling this after every flush can therefore cost up to six
    /// bytes written per byte moved down. With concurrent writers, the call may wait as long as
    /// they write.
    ///
    /// # Errors
    /// [`Error::Closed`] or [`Error::Poisoned`], or the error of a flush, compaction or rebuild. A
    /// read-only store is always idle.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// db.put("a", "1")?;
    /// db.flush()?;
    /// db.wait_idle()?;
    /// assert_eq!(db.stats().background.compaction_debt, 0);
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn wait_idle(&self) -> Result<()> {
        self.engine().wait_idle()
    }

    /// Pauses compactions and automatic filter rebuilds (`fit-budget`), and waits for running ones
    /// to finish. Calls nest: each needs its own [`Db::resume_compaction`].
    ///
    /// Writers are not stalled by the compactions left undone. [`Db::compact_range`] waits until
    /// compactions are resumed. Flushes continue, [`Db::rebuild_filters`] still works, and
    /// [`Db::wait_idle`] still rebuilds filters that exceed their budget and waits for that.
    ///
    /// # Errors
    /// [`Error::Closed`] or [`Error::Poisoned`], or the error of a flush; compactions are then not
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

    /// Undoes one [`Db::pause_compaction`].
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

    /// Reads every byte of every file, checks every checksum and the order of keys, and probes each
    /// table's filter with every key of the table.
    ///
    /// # Errors
    /// The first corruption found: [`Error::Corruption`] names the file and offset.
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

    /// As [`Db::verify`], but continues after corruption and lists all of it in
    /// [`VerifyReport::damage`].
    ///
    /// # Errors
    /// [`Error::Closed`]; errors of the file system that do not concern a particular file, such as
    /// running out of file handles.
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

    /// Reads every byte of every file of the store in `dir`, which must not be open for writing,
    /// and lists all corruption, even if the store could not be opened. Writes nothing, not even a
    /// lock file: without a `LOCK` file, writers cannot be kept out during the check. Only the file
    /// system and the prefix extractor of `options` are used.
    ///
    /// # Errors
    /// [`Error::Locked`] if the store is open for writing, or was opened during the check;
    /// [`Error::NotAStore`]; [`Error::Io`] if the directory cannot be read, or the lock file exists
    /// and cannot be locked. Corruption is reported, not returned as an error.
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

    /// Creates an independent copy of the store, as of now, in `dir`, which must be missing or
    /// empty. Tables are hard-linked if both directories are on the same file system.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] if `dir` is not empty or its parent directory is missing; as
    /// [`Db::flush`]. A partial copy is removed.
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

    /// Estimates the bytes of table files that hold the keys in `range`. Memtables are not counted.
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
        self.engine().approximate_bytes(&self.engine().bounds_in(Part::Default, Bounds::of(range))?)
    }

    /// Changes options of the open store. Options that cannot change while it is open keep their
    /// value, whatever `change` sets: [`vfs`](Options::vfs), [`environment`](Options::environment),
    /// [`read_mode`](crate::settings::ReadSettings::read_mode),
    /// [`log`](crate::settings::WriteSettings::log),
    /// [`background_threads`](Options::background_threads),
    /// [`max_open_files`](crate::settings::ReadSettings::max_open_files), and the options for
    /// opening ([`create_if_missing`](crate::settings::OpenSettings::create_if_missing),
    /// [`error_if_exists`](crate::settings::OpenSettings::error_if_exists),
    /// [`read_only`](crate::settings::OpenSettings::read_only),
    /// [`salvage`](crate::settings::OpenSettings::salvage),
    /// [`degraded`](crate::settings::OpenSettings::degraded)).
    ///
    /// # Errors
    /// In all cases nothing changes. [`Error::InvalidOption`](crate::Error::InvalidOption) if an
    /// option is out of bounds, or [`user_filters`](crate::settings::FilterSettings::user_filters)
    /// is a different policy; errors of the file system if an option that shapes the store
    /// ([`Options::load_latest`]) cannot be recorded.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// let limit = Some(32 << 20);
    /// db.set_options(|o| o.compaction(|c| c.background_bytes_per_second(limit)))?;
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn set_options(&self, change: impl FnOnce(Options) -> Options) -> Result<()> {
        self.engine().set_options(change)
    }

    /// Changes the filters of new tables. Existing tables keep theirs until
    /// [`Db::rebuild_filters`].
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

    /// Returns what [`Db::rebuild_filters`] would do now, and its cost. Reads only what opening the
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

    /// Rebuilds the filters of tables whose filters are corrupt or differ from what the current
    /// policy would build for them now, and waits for that to finish. Data is read, never written:
    /// the new filters go to sidecar files, which take precedence over the filters in the tables
    /// and are removed with their tables. The old filter is used until the new one is installed,
    /// even across a crash.
    ///
    /// Runs in the background when there is no other work, within the memory that
    /// [`Options::memory_limit`] leaves for building.
    /// [`CompactionSettings::background_bytes_per_second`](crate::settings::CompactionSettings::background_bytes_per_second)
    /// does not apply, because the caller waits. Closing the store stops it, between tables or
    /// within one. Tables whose filters are not used
    /// ([`FilterSettings::filters_on_last_level`](crate::settings::FilterSettings::filters_on_last_level))
    /// are skipped.
    ///
    /// # Errors
    /// The first error of any table; tables finished before keep their new filters. A corrupt table
    /// or a full disk fails only this call.
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

    /// Reports the last filter rebuild since the store was opened: one requested by a caller, or
    /// the store's own `fit-budget`, which makes filters fit their budget. A `fit-budget` is also
    /// reported while it runs: tables that could not be read, with their retries, and those given
    /// up. `None` if there was no rebuild.
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

    /// The current options.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// db.set_options(|options| options.compaction(|c| c.level_ratio(8)))?;
    /// let as_opened = db.options();
    /// # drop(as_opened);
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn options(&self) -> Options {
        (*self.engine().options.load_full()).clone()
    }

    /// Why the store's options file does not match the current options, if it does not: it could
    /// not be written or read, or a newer version wrote it. No data depends on the file; it is
    /// rewritten when options change, and when the store is next opened.
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

    /// Statistics of the store: what it has done and what it holds.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// db.put("key", "value")?;
    /// db.get("key")?;
    /// let stats = db.stats();
    /// assert_eq!((stats.writes.operations, stats.lookups.gets, stats.lookups.found), (1, 1, 1));
    /// println!("{stats}");
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn stats(&self) -> Stats {
        self.engine().stats()
    }

    /// Reports what each level's filters did since the counters were reset, and what theory
    /// predicts.
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

    /// Looks up `key`, and returns what that took: the memtables and tables that were reached, the
    /// verdict of each filter with its expected rate of false positives, the blocks that were read
    /// or found in the cache, and the time of each step. It changes no statistics.
    ///
    /// # Errors
    /// As [`Db::get`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// db.put("a", "1")?;
    /// let explanation = db.explain("a")?;
    /// for step in &explanation.steps {
    ///     println!("{:?}: {:?} in {:?}", step.place, step.outcome, step.time);
    /// }
    /// assert_eq!(explanation.value_bytes, Some(1));
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn explain(&self, key: impl AsRef<[u8]>) -> Result<Explanation> {
        self.engine().explain_in(Part::Default, key.as_ref())
    }

    /// [`Db::stats`], the counts of filters and the histograms of [`Db::latencies`] as OpenMetrics
    /// text, for Prometheus and compatible systems to scrape: serve it as
    /// `application/openmetrics-text; version=1.0.0`. All names begin with `trommel_`, and all
    /// samples have the label `store`, the name given here, which distinguishes the stores of a
    /// process. Each store has a text, and a path, of its own.
    ///
    /// Levels have their numbers in the tree: 0 for the newest tables, 6 for the deepest level, and
    /// the levels above it as they fill. [`Db::stats`] and reports skip the empty ones. Filters of
    /// a level are counted by kind. The rate of false positives, and the one that theory expects of
    /// the same probes, are those counters, and `trommel_filter_expected_false_positives_total`,
    /// divided by negatives and false positives together.
    ///
    /// No table is opened for it. It takes longer with more tables, above all in level 0.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// db.get("b")?;
    /// assert!(db.openmetrics("users").contains("\ntrommel_gets_total{store=\"users\"} 1\n"));
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn openmetrics(&self, store: &str) -> String {
        crate::openmetrics::text(&self.engine().metric_families(None), store)
    }

    /// Recommends filters for each level, from the lookups since the counters were reset, for the
    /// bytes that the filters take now. Needs at least
    /// [`LOOKUPS_FOR_ADVICE`](crate::LOOKUPS_FOR_ADVICE) lookups that reached tables. Reset the
    /// counters after the filters, the tree or the lookups have changed. Takes a few milliseconds,
    /// and changes nothing.
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
    /// As [`Db::filter_advice_with`], for valid options.
    pub fn filter_advice(&self) -> Result<FilterAdvice> {
        self.filter_advice_with(&AdviceOptions::default())
    }

    /// As [`Db::filter_advice`], for another budget or another share of misses.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] if the share of misses is not from 0 to 1, or the cost of a read is
    /// out of bounds.
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

    /// Resets every counter of [`Db::stats`]: lookups, writes, filters, flushes, compactions and
    /// stalls.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// db.get("key")?;
    /// db.reset_stats();
    /// assert_eq!(db.stats().lookups.gets, 0);
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn reset_stats(&self) {
        if !self.engine().access.opener().is_forked() {
            self.engine().reset_stats();
        }
    }

    /// Records lookups (single and `multi_get`, also through snapshots) to a new file at `path`
    /// until the trace is finished; see [`trace`](crate::trace). The file contains the keys looked
    /// up. Takes less than 1 MiB of memory. An error of the file never fails a lookup.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] if another trace is being recorded, `path` is in the store's
    /// directory, or the sample is out of bounds; [`Error::Io`] if the file exists or cannot be
    /// created.
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

    /// Reports what opening the store found and did.
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

    /// Closes the store for all clones of the handle and all snapshots, ranges and cursors, and
    /// returns the errors that a drop would swallow. All writes are then durable. A running flush
    /// is finished first; running compactions are abandoned and redone after the next open. Call
    /// [`Db::wait_idle`] first to finish them.
    ///
    /// # Errors
    /// [`Error::Poisoned`] if an earlier write failed, or a flush or compaction met a corrupt file;
    /// errors of the file system. The store is closed in any case.
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

impl LookupTrace {
    /// Continues with `db`, which is the same store reopened. The lookups of the earlier handle, if
    /// it is still open, are no longer recorded.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] if it is another store, or if a trace of `db` is already being
    /// recorded.
    ///
    /// ```
    /// use trommel::trace::TraceOptions;
    /// # let dir = tempfile::tempdir().unwrap();
    /// let (store, file) = (dir.path().join("store"), dir.path().join("lookups.trace"));
    /// let db = trommel::Db::open(&store, Default::default())?;
    /// let trace = db.trace_lookups(&file, TraceOptions::default())?;
    /// db.close()?;
    /// let db = trommel::Db::open(&store, Default::default())?;
    /// trace.go_on(&db)?;
    /// db.get("apple")?;
    /// assert_eq!(trace.finish()?.lookups, 1);
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn go_on(&self, db: &Db) -> Result<()> {
        self.resume(db.engine())
    }
}
