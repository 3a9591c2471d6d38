//! One table.

use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use trommel_base::{Cursor as _, CursorHints, EntryKind, SeqNo, Slice};
use trommel_sstable::format::{BlockKind, Footer, VERSION};
use trommel_sstable::{
    BlockCache, BlockInfo, Expected, FilterLabel, FilterState, Properties, ScanOptions,
    TableConfig, TableCursor, layout,
};
use trommel_vfs::{Access, ReadFile, Vfs};

use super::files::Role;
use super::manifest::{ListedTable, Manifest, listed};
use super::sidecar::Sidecar;
use crate::error::Result;
use crate::files::sidecar_path;
use crate::prefix::Prefix;

/// Bytes of blocks that one inspected table keeps: looking at a file is not worth more.
const CACHE_BYTES: u64 = 1 << 20;

/// A table's file.
#[derive(Debug)]
pub struct Table {
    path: PathBuf,
    file: Arc<dyn ReadFile>,
    /// Its sidecar, opened, or why it cannot be.
    sidecar: Option<std::result::Result<Sidecar, String>>,
}

/// What a table says of itself.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct TableInfo {
    /// The file.
    pub path: PathBuf,
    /// Its length in bytes.
    pub file_bytes: u64,
    /// Version of the format.
    pub format_version: u16,
    /// The table's random id, the bytes of each part of the file, what a reader must know.
    pub footer: Footer,
    /// What is said of the entries.
    pub properties: Properties,
    /// The filter.
    pub filter: FilterInfo,
}

/// A table's filter.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct FilterInfo {
    /// Whether it can be asked, and why not.
    pub state: FilterState,
    /// Its kind; [`FilterKind::None`](crate::FilterKind::None) where it cannot be asked.
    pub kind: FilterLabel,
    /// Bits per key asked for.
    pub bits_asked: f64,
    /// Bits per key stored.
    pub bits_stored: f64,
    /// Keys in it.
    pub keys: u64,
    /// Bits that a positive answer looks at.
    pub probes: u32,
    /// The rate of false positives that theory predicts; 1 where it cannot be asked.
    pub expected_rate: f64,
    /// The filter of prefixes, if there is one that can be asked.
    pub prefixes: Option<PrefixFilterInfo>,
}

/// A table's filter of prefixes.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct PrefixFilterInfo {
    /// The name of the extractor that made the prefixes; see [`Prefix`].
    pub extractor: String,
    /// Its kind.
    pub kind: FilterLabel,
    /// Bits per prefix asked for.
    pub bits_asked: f64,
    /// Prefixes in it.
    pub prefixes: u64,
    /// Its stored bytes.
    pub bytes: u64,
    /// The rate of false positives that theory predicts.
    pub expected_rate: f64,
}

/// What [`Table::check`] read and found in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct TableCheck {
    /// Bytes of the file: all of it.
    pub bytes: u64,
    /// Entries.
    pub entries: u64,
    /// Distinct keys, each of which the filter let pass.
    pub keys: u64,
    /// Whether there is a filter that was not asked: of a kind that this version does not know, or
    /// made by a user's policy, which is never here.
    pub foreign_filter: bool,
}

/// The data blocks of a table added up. Lengths are in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct BlockSums {
    /// Data blocks that could be read.
    pub blocks: u64,
    /// Blocks of any kind that could not.
    pub damaged: u64,
    /// Data blocks that are stored compressed.
    pub compressed: u64,
    /// The smallest data block as stored.
    pub smallest: u64,
    /// The largest data block as stored.
    pub largest: u64,
    /// Data blocks as stored, frames included.
    pub stored_bytes: u64,
    /// Data blocks decompressed.
    pub raw_bytes: u64,
    /// Keys, without what they share with others.
    pub key_bytes: u64,
    /// Values.
    pub value_bytes: u64,
}

/// One version of one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: Slice,
    /// When it was written.
    pub seqno: SeqNo,
    /// Whether it sets or deletes.
    pub kind: EntryKind,
    /// The value; empty for a tombstone.
    pub value: Slice,
    /// Where the block that holds it begins in the file.
    pub block: u64,
}

impl Table {
    /// Opens the table at `path`. Reads nothing yet but, for a file that is not named as a table
    /// is, its first and last bytes.
    ///
    /// # Errors
    /// [`crate::Error::WrongFile`] for something else;
    /// [`crate::Error::Io`].
    pub fn open(vfs: &dyn Vfs, path: &Path) -> Result<Self> {
        let file = super::open(vfs, path, Role::Table)?;
        Ok(Self { path: path.to_path_buf(), file, sidecar: None })
    }

    /// The same table, asked through this filter sidecar beside it, as the store that lists it asks
    /// it.
    #[must_use]
    pub(super) fn beside(self, vfs: &dyn Vfs, sidecar: Option<u64>) -> Self {
        let dir = self.path.parent().unwrap_or(Path::new(""));
        let sidecar = sidecar.map(|number| Sidecar::open(vfs, &sidecar_path(dir, number)));
        Self { sidecar: sidecar.map(|opened| opened.map_err(|error| error.to_string())), ..self }
    }

    /// What the table says of itself: its footer, properties and filter.
    ///
    /// # Errors
    /// [`crate::Error::Corruption`] if one of these or the index is damaged, but
    /// for the filter; [`crate::Error::Unsupported`] for a newer format.
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

    /// Reads every byte and checks all that can be: checksums, the order of entries, properties,
    /// every key against the filter.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn check(&self) -> Result<TableCheck> {
        let table = self.reader()?;
        let prefixes = table.filters().own().prefixes_part();
        let prefix = prefixes.and_then(|part| Prefix::stored(&part.extractor));
        let verified = table.verify_with(prefix.map(|prefix| prefix.extractor()))?;
        Ok(TableCheck {
            bytes: verified.bytes,
            entries: verified.entries,
            keys: verified.keys,
            foreign_filter: verified.foreign_filter,
        })
    }

    /// The entries between two keys, in order: keys ascending, versions of one key newest first.
    ///
    /// # Errors
    /// As [`Table::info`]; a damaged block ends the scan with an error.
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

    /// Every block in file order, damaged ones with the reason.
    ///
    /// # Errors
    /// If the footer is damaged, for then nothing is known of the rest.
    pub fn layout(&self) -> Result<Vec<BlockInfo>> {
        Ok(layout(&self.file, &self.path)?)
    }

    /// What the manifest says of the table, if it lies in a store that lists it.
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
            Some(Ok(sidecar)) => {
                sidecar.stand_before(&mut table).map_err(|error| error.to_string())
            }
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
            bits_asked: facts.bits_asked,
            bits_stored: facts.bits_stored,
            keys: facts.keys,
            probes: facts.probes,
            expected_rate: facts.expected,
            prefixes: table.filters().prefixes_part().map(|part| {
                let facts = table.filters().prefix_facts();
                PrefixFilterInfo {
                    extractor: part.extractor.clone(),
                    kind: facts.kind,
                    bits_asked: facts.bits_asked,
                    prefixes: facts.keys,
                    bytes: part.bytes,
                    expected_rate: facts.expected,
                }
            }),
        })
    }
}

impl BlockSums {
    /// Adds up what [`Table::layout`] gave.
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

/// Entries of a table, in order; ends behind the first error.
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
        let standing = self.cursor.entry().filter(|entry| match &self.to {
            Bound::Unbounded => true,
            Bound::Included(to) => entry.key <= &**to,
            Bound::Excluded(to) => entry.key < &**to,
        });
        self.done = standing.is_none();
        standing.map(|entry| {
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
