//! Ingesting files that a [`TableWriter`](crate::TableWriter) wrote: a sorted load
//! ([`sorted_load`](crate::sorted_load)) whose entries are in files.
//!
//! 1. Each file is opened: its properties must be those of such a file, and its keys may overlap
//!    those of no other file for the same keyspace.
//! 2. One file after another is verified and copied at once: each entry is written to a table of
//!    the store as soon as its block was verified. The checks at the end of each file complete, and
//!    any error is found, before anything refers to these tables.
//! 3. They are installed like those of any load.
//!
//! Files are copied, not linked: in a table of the store, entries have a sequence number, keys have
//! the header of their keyspace, and hashes and filters the secret seed of the store. Files are
//! neither changed nor removed.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use trommel_base::{Corruption, EntryKind, EntryRef};
use trommel_sstable::{BlockCache, Expected, Table, TableConfig};
use trommel_vfs::Access;

use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::keyspaces::KeyspaceState;
use crate::levels::LEVELS;
use crate::sorted_load::{LoadReport, SortedLoad, SortedTables};
use crate::space::{KeyBuffer, Space};
use crate::table_writer::{OF_NO_STORE, SEQNO};

/// Files to be ingested together, each for a keyspace:
/// [`Db::ingest_batch`](crate::Db::ingest_batch).
///
/// ```
/// use trommel::{Db, IngestBatch, Options, TableWriter};
/// # let dir = tempfile::tempdir().unwrap();
/// # let (users_file, names_file) = (dir.path().join("users.table"), dir.path().join("names.table"));
/// # let db = Db::open(dir.path().join("data"), Options::default())?;
/// let names = db.keyspace("names", Default::default())?;
/// # let mut writer = TableWriter::create(&users_file, &Options::default())?;
/// # writer.put("1", "Ada")?;
/// # writer.finish()?;
/// # let mut writer = TableWriter::create(&names_file, &Options::default())?;
/// # writer.put("Ada", "1")?;
/// # writer.finish()?;
/// let mut batch = IngestBatch::new();
/// batch.add(&users_file).add_to(&names, &names_file);
/// db.ingest_batch(&batch)?;
/// assert_eq!(db.get("1")?.unwrap(), b"Ada");
/// assert_eq!(names.get("Ada")?.unwrap(), b"1");
/// # Ok::<(), trommel::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct IngestBatch {
    files: Vec<(Option<Arc<KeyspaceState>>, PathBuf)>,
}

impl IngestBatch {
    /// No files.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a file for the default keyspace.
    pub fn add(&mut self, file: impl AsRef<Path>) -> &mut Self {
        self.push(None, file.as_ref())
    }

    pub(crate) fn push(&mut self, keyspace: Option<Arc<KeyspaceState>>, file: &Path) -> &mut Self {
        self.files.push((keyspace, file.to_path_buf()));
        self
    }

    /// The keyspaces except the default one, each once.
    fn keyspaces(&self) -> Vec<&KeyspaceState> {
        let mut all: Vec<&KeyspaceState> =
            self.files.iter().filter_map(|(keyspace, _)| keyspace.as_deref()).collect();
        all.sort_by_key(|state| state.id);
        all.dedup_by_key(|state| state.id);
        all
    }
}

/// A file of a batch.
struct IngestFile {
    path: PathBuf,
    /// How its keys are stored.
    space: Space,
    /// The identity of the table, as found when the file was first opened.
    expected: Expected,
    entries: u64,
    /// The smallest and the largest of its physical keys, unless it is empty.
    range: Option<(Vec<u8>, Vec<u8>)>,
}

impl IngestFile {
    /// The level that a table of its keys would be added to now.
    fn level(&self, load: &SortedLoad<'_>) -> usize {
        let range = self.range.as_ref();
        range.map_or(LEVELS - 1, |(smallest, largest)| load.level_of(smallest, largest))
    }

    /// The level that a table of the keys between this file and the next one would be added to.
    fn gap(&self, next: &Self, load: &SortedLoad<'_>) -> usize {
        let range = self.range.as_ref().zip(next.range.as_ref());
        range.map_or(LEVELS - 1, |((_, end), (start, _))| load.level_of(end, start))
    }
}

impl Engine {
    /// Loads the entries of all files of the batch, atomically and durably.
    pub(crate) fn ingest(&self, batch: &IngestBatch) -> Result<LoadReport> {
        self.access.check_writable()?;
        for (keyspace, _) in &batch.files {
            let Some(state) = keyspace else { continue };
            self.options.keyspaces.check_own(state)?;
            state.check_live()?;
        }
        let load = SortedLoad::begin(self)?;
        let look = |(keyspace, path): &(Option<Arc<KeyspaceState>>, PathBuf)| {
            let space = keyspace.as_ref().map_or(load.default_space, |state| state.space());
            self.look_at(path, space)
        };
        let mut files = batch.files.iter().map(look).collect::<Result<Vec<_>>>()?;
        files.sort_by(|a, b| a.range.cmp(&b.range));
        check_apart(&files)?;
        let levels: Vec<_> = files.iter().map(|file| file.level(&load)).collect();
        let entries = files.iter().fold(0, |all: u64, file| all.saturating_add(file.entries));
        let mut tables = load.begin_tables(entries);
        let mut last: Option<(&IngestFile, usize)> = None;
        for (file, level) in files.iter().zip(levels) {
            // A table with the keys of both would have to be above tables that overlap only one of
            // them, or the gap between them.
            if last.is_some_and(|(before, last)| level != last || before.gap(file, &load) < level) {
                tables.end_table()?;
            }
            last = Some((file, level));
            self.copy_in(file, &mut tables)?;
        }
        if entries == 0 {
            return Ok(load.of_nothing());
        }
        load.install(tables, &batch.keyspaces())
    }

    /// Reads the properties of a file.
    fn look_at(&self, path: &Path, space: Space) -> Result<IngestFile> {
        // A relative path refers to the current working directory, not to that at open.
        let here = self.files.vfs.working_dir().map(|here| here.join(path));
        let path = here.as_deref().unwrap_or(path);
        let (table, expected) = self.open_outside(path, None)?;
        let properties = table.properties();
        check_writer(path, &properties.engine)?;
        let contents = &properties.contents;
        let physical = |key: &[u8]| space.key(key).into_owned();
        let range = (physical(&contents.smallest), physical(&contents.largest));
        Ok(IngestFile {
            path: path.to_path_buf(),
            space,
            expected,
            entries: contents.entries,
            range: (contents.entries > 0).then_some(range),
        })
    }

    /// Opens a table that is no file of the store.
    fn open_outside(&self, path: &Path, expected: Option<Expected>) -> Result<(Table, Expected)> {
        let vfs = &self.files.vfs;
        let file = self.files.tables.with_handles(|| vfs.open(path, Access::Buffered));
        let file = file.map_err(|error| Error::io(path, "opening", error))?;
        let expected = match expected {
            Some(expected) => expected,
            None => Expected::of_file(&*file, path)?,
        };
        let cache = BlockCache::new(0);
        let config = TableConfig { cache, access: Access::Buffered, filter_host: None };
        Ok((Table::open(file, path, expected, &config)?, expected))
    }

    /// Verifies all of a file, and adds its entries to the tables.
    fn copy_in(&self, file: &IngestFile, tables: &mut SortedTables<'_>) -> Result<()> {
        let (table, _) = self.open_outside(&file.path, Some(file.expected))?;
        let mut buffer = KeyBuffer::default();
        table.verify_each(|EntryRef { key, seqno, kind, value }| {
            if (kind, seqno) != (EntryKind::Put, SEQNO) {
                let what = "an entry is not one that TableWriter writes";
                return Err(Corruption::new(&file.path, 0, what).into());
            }
            let added = tables.add(file.space.key_in(key, &mut buffer), value);
            added.map_err(|error| match error {
                Error::Unsorted { .. } => {
                    let what = "its keys are not those that its properties state";
                    Corruption::new(&file.path, 0, what).into()
                }
                error => error,
            })
        })?;
        Ok(())
    }
}

/// Refuses a table that no [`TableWriter`](crate::TableWriter) of a known version wrote.
fn check_writer(path: &Path, property: &[u8]) -> Result<()> {
    if property == OF_NO_STORE {
        return Ok(());
    }
    let file = path.to_path_buf();
    Err(match property {
        [] => Error::WrongFile {
            file,
            wanted: "a file for ingesting",
            found: "it is a table of a store; TableWriter, or trommel write-table, writes such \
                    files",
        },
        _ => Error::Unsupported { file, what: "a newer version wrote it, for ingesting".into() },
    })
}

/// Refuses files, in order of their keys, if two of them overlap.
fn check_apart(files: &[IngestFile]) -> Result<()> {
    for pair in files.windows(2) {
        let [first, second] = pair else { continue };
        if let (Some((_, end)), Some((start, _))) = (&first.range, &second.range)
            && end >= start
        {
            let (first, second) = (first.path.clone(), second.path.clone());
            return Err(Error::FilesOverlap { first, second });
        }
    }
    Ok(())
}
