//! One table.

use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use trommel_base::{Cursor as _, CursorHints, EntryKind, SeqNo, Slice};
use trommel_sstable::format::{BlockKind, Footer, VERSION};
use trommel_sstable::{
    BlockCache, BlockInfo, Expected, FilterLabel, FilterState, Properties, ScanOptions,
    TableConfig, TableCursor, Verified, layout,
};
use trommel_vfs::{Access, ReadFile, Vfs};

use super::files::Role;
use super::manifest::{ListedTable, Manifest, listed};
use super::sidecar::Sidecar;
use crate::error::Result;
use crate::files::sidecar_path;
use crate::prefix::Prefix;

/// Cache for the blocks of one inspected table.
const CACHE_BYTES: u64 = 1 << 20;

/// A table's file.
#[derive(Debug)]
pub struct Table {
    path: PathBuf,
    file: Arc<dyn ReadFile>,
    /// Its open sidecar, or why it cannot be opened.
    sidecar: Option<std::result::Result<Sidecar, String>>,
}

/// The metadata of a table.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct TableInfo {
    /// The file.
    pub path: PathBuf,
    /// Its length in bytes.
    pub file_bytes: u64,
    /// Version of the format.
    pub format_version: u16,
    /// The table's random id, the lengths of the regions, the required features.
    pub footer: Footer,
    /// The properties of its entries.
    pub properties: Properties,
    /// The filter.
    pub filter: FilterInfo,
}

/// A table's filter.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct FilterInfo {
    /// Whether it can be queried, and if not, why.
    pub state: FilterState,
    /// Its kind; [`FilterKind::None`](crate::FilterKind::None) if it cannot be queried.
    pub kind: FilterLabel,
    /// Bits per key requested.
    pub bits_requested: f64,
    /// Bits per key stored.
    pub bits_stored: f64,
    /// Keys in it.
    pub keys: u64,
    /// Bits read for a positive answer.
    pub probes: u32,
    /// The theoretical false-positive rate; 1 if it cannot be queried.
    pub expected_rate: f64,
    /// The prefix filter, if there is one that can be queried.
    pub prefixes: Option<PrefixFilterInfo>,
}

/// A table's filter of prefixes.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct PrefixFilterInfo {
    /// The name of the extractor of the prefixes; see [`Prefix`].
    pub extractor: String,
    /// Its kind.
    pub kind: FilterLabel,
    /// Bits per prefix requested.
    pub bits_requested: f64,
    /// Prefixes in it.
    pub prefixes: u64,
    /// Its stored bytes.
    pub bytes: u64,
    /// The theoretical false-positive rate.
    pub expected_rate: f64,
}

/// Sums over the data blocks of a table. Lengths are in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct BlockSums {
    /// Readable data blocks.
    pub blocks: u64,
    /// Unreadable blocks of any kind.
    pub damaged: u64,
    /// Data blocks stored compressed.
    pub compressed: u64,
    /// The smallest data block as stored.
    pub smallest: u64,
    /// The largest data block as stored.
    pub largest: u64,
    /// Data blocks as stored, with frames.
    pub stored_bytes: u64,
    /// Data blocks after decompression.
    pub raw_bytes: u64,
    /// Keys, without shared prefixes.
    pub key_bytes: u64,
    /// Values.
    pub value_bytes: u64,
}

/// One version of one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: Slice,
    /// Its sequence number.
    pub seqno: SeqNo,
    /// Whether it sets or deletes.
    pub kind: EntryKind,
    /// The value; empty for a tombstone.
    pub value: Slice,
    /// Offset of its block in the file.
    pub block: u64,
}

impl Table {
    /// Opens the table at `path`. Reads nothing yet, except the first and last bytes of a file
    /// without a table's name.
    ///
    /// # Errors
    /// [`crate::Error::WrongFile`] for something else;
    /// [`crate::Error::Io`].
    pub fn open(vfs: &dyn Vfs, path: &Path) -> Result<Self> {
        let file = super::open(vfs, path, Role::Table)?;
        Ok(Self { path: path.to_path_buf(), file, sidecar: None })
    }

    /// The same table, querying this filter sidecar of the same directory, as in the store that
    /// lists it.
    #[must_use]
    pub(super) fn with_sidecar(self, vfs: &dyn Vfs, sidecar: Option<u64>) -> Self {
        let dir = self.path.parent().unwrap_or(Path::new(""));
        let sidecar = sidecar.map(|number| Sidecar::open(vfs, &sidecar_path(dir, number)));
        Self { sidecar: sidecar.map(|opened| opened.map_err(|error| error.to_string())), ..self }
    }

    /// The metadata of the table: its footer, properties and filter.
    ///
    /// # Errors
    /// [`crate::Error::Corruption`] if one of these, except the filter, or the index is corrupt;
    /// [`crate::Error::Unsupported`] for a newer format.
    pub fn info(&self) -> Result<TableInfo> {
        let table = self.reader()?;
        Ok(TableInfo {
            path: self.path.clone(),
            file_bytes: table.file_bytes(),
            format_version: VERSION,
            footer: *table.footer(),
            properties: table.properties().clone(),
            filter: FilterInfo::of(&table)?,
        })
    }

    /// Reads every byte and checks everything that can be checked: checksums, the order of entries,
    /// properties, every key against the filter.
    ///
    /// # Errors
    /// The first corruption found.
    pub fn check(&self) -> Result<Verified> {
        let table = self.reader()?;
        let prefixes = table.filters().own().prefixes_part();
        let prefix = prefixes.and_then(|part| Prefix::stored(&part.extractor));
        Ok(table.verify_with(prefix.map(|prefix| prefix.extractor()))?)
    }

    /// The entries between two keys, in order: keys ascending, versions of one key newest first.
    ///
    /// # Errors
    /// As [`Table::info`]; a corrupt block ends the scan with an error.
    pub fn scan(&self, from: Bound<&[u8]>, to: Bound<&[u8]>) -> Result<TableScan> {
        let options = ScanOptions { fill_cache: false, check_order: true, ..Default::default() };
        let mut cursor = self.reader()?.cursor(options);
        match from {
            Bound::Unbounded => cursor.seek_to_first()?,
            Bound::Included(key) => cursor.seek(key, SeqNo::MAX)?,
            Bound::Excluded(key) => {
                cursor.seek(key, 0)?;
                while cursor.entry().is_some_and(|entry| entry.key == key) {
                    cursor.next()?;
                }
            }
        }
        Ok(TableScan { cursor, to: to.map(<[u8]>::to_vec), started: false, done: false })
    }

    /// Every block in file order, corrupt ones with the reason.
    ///
    /// # Errors
    /// If the footer is corrupt, so that the rest cannot be located.
    pub fn layout(&self) -> Result<Vec<BlockInfo>> {
        Ok(layout(&self.file, &self.path)?)
    }

    /// The manifest's record of the table, if it is in a store that lists it.
    pub fn listed(&self, vfs: &dyn Vfs) -> Option<ListedTable> {
        let expected = Expected::of_file(&*self.file, &self.path).ok()?;
        let dir = self.path.parent().filter(|dir| !dir.as_os_str().is_empty());
        let state = Manifest::in_force(vfs, dir.unwrap_or(Path::new("."))).ok()?.state().ok()?;
        listed(&state.version).find(|table| table.meta.table_id == expected.table_id)
    }

    pub(super) fn reader(&self) -> Result<Arc<trommel_sstable::Table>> {
        let expected = Expected::of_file(&*self.file, &self.path)?;
        let cache = BlockCache::new(CACHE_BYTES);
        let config = TableConfig { cache, access: Access::Buffered, filter_host: None };
        let file = Arc::clone(&self.file);
        let mut table = trommel_sstable::Table::open(file, &self.path, expected, &config)?;
        let taken = match &self.sidecar {
            None => Ok(()),
            Some(Ok(sidecar)) => sidecar.apply_to(&mut table).map_err(|error| error.to_string()),
            Some(Err(why)) => Err(why.clone()),
        };
        if let Err(why) = taken {
            table.miss_sidecar(&why);
        }
        Ok(Arc::new(table))
    }
}

impl FilterInfo {
    fn of(table: &trommel_sstable::Table) -> Result<Self> {
        let facts = table.filters().facts();
        Ok(Self {
            state: table.filters().check()?.clone(),
            kind: facts.kind,
            bits_requested: facts.bits_requested,
            bits_stored: facts.bits_stored,
            keys: facts.keys,
            probes: facts.probes,
            expected_rate: facts.expected,
            prefixes: table.filters().prefixes_part().map(|part| {
                let facts = table.filters().prefix_facts();
                PrefixFilterInfo {
                    extractor: part.extractor.clone(),
                    kind: facts.kind,
                    bits_requested: facts.bits_requested,
                    prefixes: facts.keys,
                    bytes: part.bytes,
                    expected_rate: facts.expected,
                }
            }),
        })
    }
}

impl BlockSums {
    /// Sums up the result of [`Table::layout`].
    pub fn of(layout: &[BlockInfo]) -> Self {
        let mut sums = Self { smallest: u64::MAX, ..Self::default() };
        for block in layout {
            match &block.content {
                Err(_) => sums.damaged += 1,
                Ok(content) if block.kind == BlockKind::Data => {
                    sums.blocks += 1;
                    sums.compressed += u64::from(content.compression != "none");
                    sums.smallest = sums.smallest.min(block.bytes);
                    sums.largest = sums.largest.max(block.bytes);
                    sums.stored_bytes += block.bytes;
                    sums.raw_bytes += content.raw_bytes;
                    sums.key_bytes += content.key_bytes;
                    sums.value_bytes += content.value_bytes;
                }
                Ok(_) => {}
            }
        }
        sums.smallest = sums.smallest.min(sums.largest);
        sums
    }
}

/// Entries of a table, in order; ends after the first error.
#[derive(Debug)]
pub struct TableScan {
    cursor: TableCursor,
    to: Bound<Vec<u8>>,
    started: bool,
    done: bool,
}

impl Iterator for TableScan {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        if std::mem::replace(&mut self.started, true)
            && let Err(error) = self.cursor.next()
        {
            self.done = true;
            return Some(Err(error.into()));
        }
        let current = self.cursor.entry().filter(|entry| match &self.to {
            Bound::Unbounded => true,
            Bound::Included(to) => entry.key <= &**to,
            Bound::Excluded(to) => entry.key < &**to,
        });
        self.done = current.is_none();
        current.map(|entry| {
            Ok(Entry {
                key: entry.key.into(),
                seqno: entry.seqno,
                kind: entry.kind,
                value: self.cursor.value(),
                block: self.cursor.block_offset(),
            })
        })
    }
}
