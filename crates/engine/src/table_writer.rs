//! Writing table files outside a store, to be ingested by any store.
//!
//! 1. The entries of a file have the sequence number 0 and no hash seed: both belong to a store,
//!    and the file belongs to none. So it has no filters either.
//! 2. Keys are user keys, whatever keyspace they are ingested into.
//! 3. Its properties mark it as such a file ([`OF_NO_STORE`]). A table of a store is never
//!    ingested: it may have deletions, and sequence numbers of another store.
//!
//! The file is complete once its footer is written; without that nothing reads it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use trommel_base::{EntryKind, SeqNo};
use trommel_sstable::{TableBuilder, TableOptions};
use trommel_vfs::{OpenFlag, Vfs};

use crate::ascending::AscendingKeys;
use crate::dir_sync::{DirSync, parent};
use crate::env;
use crate::error::{Error, Result};
use crate::fork::Opener;
use crate::names::Numbered;
use crate::options::Options;

/// The engine's property of a table outside any store, with its version.
pub(crate) const OF_NO_STORE: [u8; 1] = [1];

/// The sequence number of all entries of such a table.
pub(crate) const SEQNO: SeqNo = 0;

/// Writes a table file that any store can ingest: [`Db::ingest`](crate::Db::ingest). Stores, and
/// programs without one, can write many at once.
///
/// The index of the file is in memory until the file is finished: some 7 MiB for each GiB of
/// entries with 16-byte keys in blocks of 4 KiB, and up to twice that while it grows. So write
/// several files of a few GiB rather than a very large one.
///
/// A file that is not [finished](Self::finish) is removed when the writer is dropped. A writer that
/// a forked child inherits does nothing: see [`Db`](crate::Db).
///
/// ```
/// use trommel::{Db, Options, TableWriter};
/// # let dir = tempfile::tempdir().unwrap();
/// # let (file, store) = (dir.path().join("numbers.table"), dir.path().join("data"));
/// let options = Options::default();
/// let mut writer = TableWriter::create(&file, &options)?;
/// for number in 0..10_000_u32 {
///     writer.put(number.to_be_bytes(), "value")?;
/// }
/// assert_eq!(writer.finish()?.entries, 10_000);
///
/// let db = Db::open(&store, options)?;
/// db.ingest([&file])?;
/// assert_eq!(db.get(7_u32.to_be_bytes())?.unwrap(), b"value");
/// # Ok::<(), trommel::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "its file is removed unless it is finished"]
pub struct TableWriter {
    vfs: Arc<dyn Vfs>,
    path: PathBuf,
    /// The builder, or the error after which the file is unusable.
    builder: Result<TableBuilder>,
    keys: AscendingKeys,
    is_finished: bool,
    /// The flag of the process that created the writer.
    open_flag: OpenFlag,
}

/// A file that a [`TableWriter`] has written.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct WrittenTable {
    /// Its entries.
    pub entries: u64,
    /// Its length in bytes.
    pub bytes: u64,
}

impl TableWriter {
    /// Begins the file at `path`, which must not exist. `options` are those that shape the blocks
    /// of a table: compression, `block_bytes`, `block_align`; and the file system. A store writes
    /// ingested entries with its own options, so these only determine how large the file is.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] if an option is out of bounds, if the directory is missing, or if
    /// the name is one that a store gives to its own files, such as `000007.sst`; [`Error::Io`].
    pub fn create(path: impl AsRef<Path>, options: &Options) -> Result<Self> {
        let path = path.as_ref();
        options.check()?;
        if path.file_name().and_then(Numbered::parse).is_some() {
            return Err(Error::option(format!(
                "{} is a name of a file of a store, which may replace or remove it: name it \
                 otherwise, with the extension table",
                path.display()
            )));
        }
        let vfs: Arc<dyn Vfs> =
            Arc::new(DirSync::new(Arc::clone(&options.vfs), path, Arc::default()));
        let file = vfs.create(path).map_err(|error| Error::creating(&*vfs, path, error))?;
        let table = table_options(options, env::random_u64());
        Ok(Self {
            builder: Ok(TableBuilder::new(file, path, table)),
            path: path.to_path_buf(),
            vfs,
            keys: AscendingKeys::default(),
            is_finished: false,
            open_flag: OpenFlag::new(),
        })
    }

    /// Adds an entry, whose key must be above the one before.
    ///
    /// # Errors
    /// [`Error::Unsorted`], [`Error::KeyTooLong`] and [`Error::ValueTooLong`]: the entry is not
    /// added, and others can be. [`Error::Io`], which later calls return again. [`Error::Forked`]
    /// in a forked child.
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        let (key, value) = (key.as_ref(), value.as_ref());
        self.check_owner()?;
        let builder = self.builder.as_mut().map_err(|error| error.clone())?;
        self.keys.check(key, value)?;
        if let Err(error) = builder.add(key, SEQNO, EntryKind::Put, value) {
            let error = Error::from(error);
            self.builder = Err(error.clone());
            return Err(error);
        }
        self.keys.accept(key);
        Ok(())
    }

    /// Approximate bytes of the file so far.
    pub fn bytes(&self) -> u64 {
        self.builder.as_ref().map_or(0, TableBuilder::estimated_bytes)
    }

    /// Completes the file, durably. A file without entries can be ingested, too.
    ///
    /// # Errors
    /// [`Error::Io`], also that of an earlier call; no file is left then. [`Error::Forked`] in a
    /// forked child.
    pub fn finish(mut self) -> Result<WrittenTable> {
        self.check_owner()?;
        let builder = std::mem::replace(&mut self.builder, Err(Error::Closed))?;
        let built = builder.finish(&OF_NO_STORE)?;
        if let Some(dir) = parent(&self.path) {
            self.vfs.sync_dir(dir).map_err(|error| Error::io(dir, "making durable", error))?;
        }
        self.is_finished = true;
        Ok(WrittenTable { entries: self.keys.count, bytes: built.file_bytes })
    }

    /// Refuses a writer that a forked child has inherited.
    fn check_owner(&self) -> Result<()> {
        Opener::of(&self.open_flag).check()
    }
}

/// How the table with this random id is written.
fn table_options(options: &Options, table_id: u64) -> TableOptions {
    TableOptions {
        block_bytes: options.reads.block_bytes,
        block_align: options.reads.block_align,
        compression: options.compression,
        ..TableOptions::new(table_id)
    }
}

impl Drop for TableWriter {
    fn drop(&mut self) {
        if self.is_finished || self.check_owner().is_err() {
            return;
        }
        self.builder = Err(Error::Closed);
        let _ = self.vfs.remove(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use trommel_sim::MemoryVfs;

    use super::*;
    use crate::Db;

    const GOLDEN: &[u8] = include_bytes!("testdata/v1.table");

    fn entries() -> impl Iterator<Item = (String, String)> {
        (0..40).map(|n| (format!("key {n:02}").repeat(2), format!("value {n} ").repeat(n)))
    }

    /// The file of version 1, with an id that is not random.
    fn written() -> Vec<u8> {
        let (vfs, path) = (MemoryVfs::new(), Path::new("x.table"));
        let options = Options::default().vfs(Arc::new(vfs.clone())).reads(|r| r.block_bytes(1024));
        let mut writer = TableWriter::create(path, &options).unwrap();
        vfs.remove(path).unwrap();
        let file = vfs.create(path).unwrap();
        let table = table_options(&options, 0x7472_6f6d_6d65_6c21);
        writer.builder = Ok(TableBuilder::new(file, path, table));
        for (key, value) in entries() {
            writer.put(key, value).unwrap();
        }
        writer.finish().unwrap();
        vfs.read(path, 1 << 20).unwrap()
    }

    /// `TROMMEL_REFREEZE=1` rewrites the file, which is allowed only before the first release.
    #[test]
    fn files_of_version_1_are_still_written_and_ingested() {
        if std::env::var_os("TROMMEL_REFREEZE").is_some() {
            let file = concat!(env!("CARGO_MANIFEST_DIR"), "/src/testdata/v1.table");
            std::fs::write(file, written()).unwrap();
            return;
        }
        assert_eq!(written(), GOLDEN, "the format has changed: see docs/format/sstable.md");
        let vfs = MemoryVfs::new();
        vfs.create(Path::new("x.table")).unwrap().append(GOLDEN).unwrap();
        let db = Db::open("db", Options::default().vfs(Arc::new(vfs))).unwrap();
        db.ingest(["x.table"]).unwrap();
        let found = db.iter().map(|entry| entry.unwrap());
        let found: Vec<_> = found.map(|(key, value)| (key.to_vec(), value.to_vec())).collect();
        let expected: Vec<_> =
            entries().map(|(key, value)| (key.into_bytes(), value.into_bytes())).collect();
        assert_eq!(found, expected);
    }

    /// An I/O error makes the file unusable, and later calls return it again.
    #[test]
    fn an_error_of_the_disk_stays() {
        use trommel_sim::{Failure, Fault, OpKind, SimDisk};
        let disk = SimDisk::new();
        let options = Options::default().vfs(Arc::new(disk.clone()));
        let mut writer = TableWriter::create("x.table", &options).unwrap();
        disk.inject(Fault::new(Failure::NoSpace).on(OpKind::Append));
        let failed = (0..u32::MAX).find_map(|n| writer.put(format!("{n:010}"), [7; 9000]).err());
        let failed = failed.unwrap().to_string();
        assert_eq!(writer.put("z", "").unwrap_err().to_string(), failed);
        assert_eq!(writer.finish().unwrap_err().to_string(), failed);
        assert!(disk.list(Path::new(".")).unwrap().is_empty(), "the file is removed");
    }
}
