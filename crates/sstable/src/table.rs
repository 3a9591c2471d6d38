//! The reader of one table.
//!
//! Opening reads the footer, the index (its top, if it has two levels) and the properties into
//! owned memory: usually one `pread` of the file's last 64 KiB, and another for an index not
//! contained in it. Filters are read when they are first queried. A point read is then a search of
//! the index, one block, and one or two decoded entries. It does not query the filter: the engine
//! does so first, so that it can count the results.

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;

use trommel_base::{EntryKind, SeqNo, Slice};
use trommel_filter::HashSeed;
use trommel_vfs::{Access, ReadFile};

use crate::block::{Block, Layout, SharedBlock, prefetch_columns, tag_of};
use crate::block_slots::BlockLocation;
use crate::compression::is_raw;
use crate::format::{
    BlockKind, FEATURE_HASH_SEED, FOOTER_BYTES, Fault, Footer, Handle, frame_of, unseal,
};
use crate::index::{At, Index};
use crate::index_tree::IndexTree;
use crate::source::{ReadStats, Source};
use crate::verified::VerifiedBlocks;
use crate::{
    BlockCache, Error, FilterHost, Filters, Properties, ScanOptions, ScanRange, TableCursor,
};

/// Bytes that opening reads first, from the end of the file.
const TAIL_BYTES: u64 = 64 << 10;

/// A table's identity according to the manifest. A file with another identity is not that table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expected {
    /// Length of the file.
    pub file_bytes: u64,
    /// Random id of the table.
    pub table_id: u64,
}

impl Expected {
    /// The identity according to the file itself, for tools without a manifest.
    pub fn of_file(file: &dyn ReadFile, path: &Path) -> Result<Self, Error> {
        let footer = read_footer(file, path)?;
        Ok(Self { file_bytes: file.bytes(), table_id: footer.table_id })
    }
}

/// The footer of the table in `file`.
pub(crate) fn read_footer(file: &dyn ReadFile, path: &Path) -> Result<Footer, Error> {
    let file_bytes = file.bytes();
    let mut bytes = [0; FOOTER_BYTES];
    let offset = file_bytes.saturating_sub(FOOTER_BYTES as u64);
    let room = bytes.get_mut(..(file_bytes - offset) as usize).unwrap_or_default();
    file.read_at(offset, room).map_err(|source| Error::io(path, source))?;
    Footer::decode(room, file_bytes).map_err(|fault| fault.at(path, offset))
}

/// Configuration of an open table.
#[derive(Debug, Clone)]
pub struct TableConfig {
    /// The cache for verified blocks.
    pub cache: Arc<BlockCache>,
    /// How the file was opened. With [`Access::Mapped`] point reads search the map and copy values
    /// from it; otherwise they read through the cache.
    pub access: Access,
    /// Grants memory to filters. Without a host, filters stay in memory once they are read.
    pub filter_host: Option<Arc<dyn FilterHost>>,
}

/// The newest visible version of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Its sequence number.
    pub seqno: SeqNo,
    /// Whether it sets or deletes.
    pub kind: EntryKind,
    /// Its value: a view of the verified block, or a copy from the map; empty if it was not
    /// requested.
    pub value: Slice,
}

/// The parts of the found version that a lookup returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wants {
    /// All of it.
    Value,
    /// Only its presence: the value is neither read nor copied.
    Presence,
}

/// Memory of an open table, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TableMemory {
    /// The loaded part of the index.
    pub index: usize,
    /// The pinned filters.
    pub filter: usize,
    /// Everything else.
    pub other: usize,
}

/// An open table.
#[derive(Debug)]
pub struct Table {
    pub(crate) source: Arc<Source>,
    pub(crate) index: Arc<IndexTree>,
    pub(crate) footer: Footer,
    pub(crate) filters: Filters,
    properties: Properties,
    /// The blocks verified so far, for mapped tables that verify each block once: used by lookups,
    /// and by scans that trust it.
    pub(crate) verified: Option<Arc<VerifiedBlocks>>,
}

impl Table {
    /// Opens the table in `file`, which must be the `expected` one. `path` names it in errors.
    ///
    /// # Errors
    /// [`Error::Corruption`] if the length, id, footer, index or properties are not as expected;
    /// [`Error::Unsupported`] for a newer format; [`Error::Io`]. A corrupt or unknown filter is not
    /// an error: see [`Filters::state`].
    pub fn open(
        file: Arc<dyn ReadFile>,
        path: &Path,
        expected: Expected,
        config: &TableConfig,
    ) -> Result<Self, Error> {
        let file_bytes = file.bytes();
        if file_bytes != expected.file_bytes {
            let fault = Fault::Damaged("the file does not have the length it was written with");
            return Err(fault.at(path, file_bytes.min(expected.file_bytes)));
        }
        let mut source = Source {
            number: config.cache.number_table(),
            cache: Arc::clone(&config.cache),
            mapped: config.access == Access::Mapped && file.mapped().is_some(),
            file,
            path: path.to_path_buf(),
            table_id: expected.table_id,
            data_bytes: 0,
        };
        let tail = Tail::read(&source, file_bytes)?;
        let footer_at = file_bytes.saturating_sub(FOOTER_BYTES as u64);
        let footer =
            Footer::decode(&tail.bytes, file_bytes).map_err(|fault| fault.at(path, footer_at))?;
        if footer.table_id != expected.table_id {
            return Err(Fault::Damaged("this is another table").at(path, footer_at));
        }
        source.data_bytes = footer.data_bytes;
        let index = open_index(&source, &footer, &tail)?;
        let properties = open_properties(&source, &footer, &tail)?;
        let host = config.filter_host.clone();
        let (source, index) = (Arc::new(source), Arc::new(index.held_by(host.clone())));
        let reader = host.as_ref().and_then(|host| host.user_filters());
        let filters = Filters::open(&source, &footer, &properties, host, reader);
        Ok(Self { source, index, footer, filters, properties, verified: None })
    }

    /// Makes point reads from a map verify a block only on first use: later changes of the mapped
    /// file are not detected by its checksum. Scans do the same if they
    /// [trust](ScanOptions::trust_verified) that verification. Has no effect if reads use the
    /// cache, which holds only verified blocks.
    #[must_use]
    pub fn verifying_once(mut self) -> Self {
        let verified = || Arc::new(VerifiedBlocks::new(self.index.leaf_count(), self.index.host()));
        self.verified = self.source.mapped.then(verified);
        self
    }

    /// Its filters.
    #[inline]
    pub fn filters(&self) -> &Filters {
        &self.filters
    }

    /// The same table without its filters, for a scan of the whole table that must not load them.
    #[must_use]
    pub fn without_filters(&self) -> Self {
        Self {
            source: Arc::clone(&self.source),
            index: Arc::clone(&self.index),
            footer: self.footer,
            filters: self.filters.without_filters(),
            properties: self.properties.clone(),
            verified: self.verified.clone(),
        }
    }

    /// The table's properties.
    pub fn properties(&self) -> &Properties {
        &self.properties
    }

    /// The table's footer, with the bounds of its regions.
    pub fn footer(&self) -> &Footer {
        &self.footer
    }

    /// Length of the file.
    pub fn file_bytes(&self) -> u64 {
        self.source.file.bytes()
    }

    /// The file's path, as given to [`Table::open`].
    pub fn path(&self) -> &Path {
        &self.source.path
    }

    /// Current memory of the open table, without its cached blocks.
    pub fn memory_bytes(&self) -> TableMemory {
        let verified = self.verified.as_ref().map_or(0, |verified| verified.memory_bytes());
        TableMemory {
            index: self.index.memory_bytes() + verified,
            filter: self.filters.pinned_bytes() as usize,
            other: size_of::<Self>()
                + self.properties.heap_bytes()
                + size_of::<Source>()
                + self.source.path.capacity(),
        }
    }

    /// The seed with which its keys are hashed.
    #[inline]
    pub fn hash_seed(&self) -> HashSeed {
        self.filters.hash_seed()
    }

    /// The newest version of `key` with a sequence number of at most `seqno`. `hash` is the key's,
    /// with the table's [seed](Self::hash_seed). Does not query the filter.
    pub fn get(
        &self,
        key: &[u8],
        hash: u64,
        seqno: SeqNo,
        stats: &mut ReadStats,
    ) -> Result<Option<Found>, Error> {
        self.look_up(key, hash, seqno, Wants::Value, stats)
    }

    /// Like [`Table::get`], but returns only the parts in `wants`.
    ///
    /// # Errors
    /// As [`Table::get`].
    #[inline]
    pub fn look_up(
        &self,
        key: &[u8],
        hash: u64,
        seqno: SeqNo,
        wants: Wants,
        stats: &mut ReadStats,
    ) -> Result<Option<Found>, Error> {
        let place = self.index.find(key, &self.source, stats)?;
        self.get_from(place, key, hash, seqno, wants, stats)
    }

    /// Like [`Table::get`], where `place` is the first block that may hold the key.
    #[inline]
    fn get_from<'a>(
        &'a self,
        mut place: Option<(&'a Index, At)>,
        key: &[u8],
        hash: u64,
        seqno: SeqNo,
        wants: Wants,
        stats: &mut ReadStats,
    ) -> Result<Option<Found>, Error> {
        while let Some((leaf, at)) = place {
            let block = self.hold(self.index.locate(leaf, at), stats)?;
            if let Some(found) = block.get(self, key, hash, seqno, wants)? {
                return Ok(Some(found));
            }
            // Versions of one key may straddle blocks; the separator is then that key.
            if !leaf.separator_is(at.slot, key) {
                return Ok(None);
            }
            place = self.index.next(at, &self.source, stats)?;
        }
        Ok(None)
    }

    /// Like [`Table::get`], after a search of the first block that may hold the key has not found
    /// it.
    #[inline]
    pub(crate) fn get_after(
        &self,
        BlockLocation { leaf, at, .. }: BlockLocation<'_>,
        key: &[u8],
        hash: u64,
        seqno: SeqNo,
        stats: &mut ReadStats,
    ) -> Result<Option<Found>, Error> {
        if !leaf.separator_is(at.slot, key) {
            return Ok(None);
        }
        let place = self.index.next(at, &self.source, stats)?;
        self.get_from(place, key, hash, seqno, Wants::Value, stats)
    }

    /// A cursor over the table's entries.
    #[inline]
    pub fn cursor(&self, options: ScanOptions) -> TableCursor {
        TableCursor::new(&self.source, &self.index, self.verified.as_ref(), options)
    }

    /// If the table has a range filter, lets `cursor`, which was not moved yet, skip blocks
    /// that hold nothing of `range`: it yields all entries of the range, and an arbitrary part of
    /// the others. A search must begin in the range, and a movement to the first or last entry may
    /// be one to that of the range.
    #[cold]
    pub fn gate(&self, cursor: &mut TableCursor, range: Arc<dyn ScanRange>) {
        if let Some(ranges) = self.filters.ranges() {
            cursor.skip_blocks(ranges, range);
        }
    }

    /// Approximate bytes of data blocks before `key`. Reads an index leaf that is not in memory; if
    /// that fails, estimates from the leaf's position among all leaves.
    pub fn approximate_offset(&self, key: &[u8]) -> u64 {
        let mut stats = ReadStats::default();
        match self.index.find(key, &self.source, &mut stats) {
            Ok(Some((leaf, at))) => self.index.locate(leaf, at).handle.offset,
            Ok(None) => self.footer.data_bytes,
            Err(_) => {
                let (leaf, leaves) = (self.index.top().find(key), self.index.leaf_count());
                self.footer.data_bytes / leaves as u64 * leaf as u64
            }
        }
    }

    /// At most `parts` - 1 keys, ascending, that divide the table's entries into parts of about
    /// equal size, as precisely as the index in memory allows. Reads nothing.
    pub fn dividing_keys(&self, parts: usize) -> Vec<Vec<u8>> {
        let top = self.index.top();
        let parts = parts.clamp(1, top.len().max(1));
        let mut keys: Vec<_> =
            (1..parts).map(|part| top.separator(part * top.len() / parts - 1)).collect();
        // If versions of one key fill several blocks, their separators are all that key.
        keys.dedup();
        keys
    }

    /// Evicts the table's blocks from the cache, for a table that will not be read again. Reads
    /// nothing: if the index or the top index of a filter is not in memory, their blocks stay until
    /// the cache evicts them.
    pub fn evict(&self) {
        self.filters.evict();
        for leaf in self.index.loaded_leaves() {
            for handle in (0..leaf.len()).map_while(|slot| leaf.handle(slot)) {
                self.source.cache.remove(self.source.number, handle.offset);
            }
        }
    }

    /// A verified data block to search: from the map, the cache or the file.
    #[inline]
    fn hold(&self, location: BlockLocation<'_>, stats: &mut ReadStats) -> Result<Held<'_>, Error> {
        self.hold_after(location, stats, || {})
    }

    /// Like [`Table::hold`], but calls `before` before it reads the block from the file.
    #[inline]
    pub(crate) fn hold_after(
        &self,
        location: BlockLocation<'_>,
        stats: &mut ReadStats,
        before: impl FnOnce(),
    ) -> Result<Held<'_>, Error> {
        let handle = location.handle;
        if let Some(map) = self.source.map() {
            let stored = self.source.in_map(map, handle)?;
            let block = self
                .look_at(stored, location)
                .map_err(|fault| fault.at(&self.source.path, handle.offset))?;
            if let Some((payload, layout)) = block {
                stats.block_reads += 1;
                stats.block_bytes += handle.bytes as u64;
                return Ok(Held { handle, bytes: HeldBytes::Mapped(payload, layout) });
            }
        }
        let block = self.source.block_after(location, true, stats, before)?;
        Ok(Held::shared(handle, block))
    }

    /// The stored bytes of a mapped block, and whether it was verified before.
    #[inline]
    fn mapped(&self, location: BlockLocation<'_>) -> Option<(&[u8], bool)> {
        let stored = self.source.in_map(self.source.map()?, location.handle).ok()?;
        Some((stored, self.verified.as_ref().is_some_and(|known| known.has(location.at))))
    }

    /// Prefetches the memory that a search of a mapped block reads first. A block that must still
    /// be verified is not prefetched; its stored bytes are returned instead.
    #[inline]
    pub(crate) fn prefetch_search(&self, location: BlockLocation<'_>) -> Option<&[u8]> {
        let (stored, is_known) = self.mapped(location)?;
        if !is_known {
            return Some(stored);
        }
        prefetch_columns(stored);
        None
    }

    /// Prefetches the entry that a key of this hash may have, in a mapped block already verified.
    #[inline]
    pub(crate) fn prefetch_entry(&self, location: BlockLocation<'_>, hash: u64) {
        if let Some((stored, true)) = self.mapped(location)
            && let Ok((payload, _)) = frame_of(stored)
            && let Ok(layout) = Layout::parse(payload)
        {
            Block { payload, layout: &layout }.prefetch_entry(tag_of(hash));
        }
    }

    /// The payload of the mapped data block with these stored bytes, unless it is compressed.
    /// Verifies it, unless the table verifies once and the block was verified before.
    #[inline]
    fn look_at<'a>(
        &self,
        stored: &'a [u8],
        BlockLocation { leaf, at, handle, .. }: BlockLocation<'_>,
    ) -> Result<Option<(&'a [u8], Layout)>, Fault> {
        let known = self.verified.as_ref();
        let (payload, compression) = if known.is_some_and(|verified| verified.has(at)) {
            prefetch_columns(stored);
            frame_of(stored)?
        } else {
            let opened = unseal(stored, self.source.table_id, handle.offset, BlockKind::Data)?;
            if let Some(verified) = known {
                verified.note(at, leaf);
            }
            opened
        };
        if !is_raw(compression) {
            return Ok(None);
        }
        Ok(Some((payload, Layout::parse(payload)?)))
    }
}

/// A verified block while it is searched.
pub(crate) struct Held<'a> {
    pub(crate) handle: Handle,
    bytes: HeldBytes<'a>,
}

enum HeldBytes<'a> {
    Shared(SharedBlock),
    Mapped(&'a [u8], Layout),
}

impl Held<'_> {
    /// A shared block.
    pub(crate) fn shared(handle: Handle, block: SharedBlock) -> Self {
        Self { handle, bytes: HeldBytes::Shared(block) }
    }

    #[inline]
    pub(crate) fn get(
        &self,
        table: &Table,
        key: &[u8],
        hash: u64,
        seqno: SeqNo,
        wants: Wants,
    ) -> Result<Option<Found>, Error> {
        let block = match &self.bytes {
            HeldBytes::Shared(shared) => shared.view(),
            HeldBytes::Mapped(payload, layout) => Block { payload, layout },
        };
        let hit = block
            .get(key, tag_of(hash), seqno)
            .map_err(|fault| fault.at(&table.source.path, self.handle.offset))?;
        Ok(hit.map(|hit| {
            let value = match &self.bytes {
                _ if wants == Wants::Presence => Slice::default(),
                HeldBytes::Shared(shared) => {
                    let start = shared.start as usize + hit.value.start;
                    Slice::window(&shared.buffer, start, hit.value.len())
                }
                HeldBytes::Mapped(payload, _) => {
                    Slice::from(payload.get(hit.value).unwrap_or_default())
                }
            };
            Found { seqno: hit.seqno, kind: hit.kind, value }
        }))
    }
}

/// The end of the file, read with one `pread`.
pub(crate) struct Tail {
    bytes: Vec<u8>,
    offset: u64,
}

impl Tail {
    fn read(source: &Source, file_bytes: u64) -> Result<Self, Error> {
        let offset = file_bytes.saturating_sub(TAIL_BYTES);
        let mut bytes = vec![0; (file_bytes - offset) as usize];
        source.read_into(offset, &mut bytes)?;
        Ok(Self { bytes, offset })
    }

    /// The stored bytes of a meta block: from the tail if it holds them, otherwise from the file.
    pub(crate) fn block(
        &self,
        source: &Source,
        offset: u64,
        bytes: u64,
    ) -> Result<Cow<'_, [u8]>, Error> {
        // The footer's regions lie within the file, which was just opened. A file whose length does
        // not fit in memory could not have been opened.
        let start = offset.checked_sub(self.offset).and_then(|start| usize::try_from(start).ok());
        let here = start.and_then(|start| self.bytes.get(start..)?.get(..bytes as usize));
        if let Some(here) = here {
            return Ok(Cow::Borrowed(here));
        }
        let mut stored = vec![0; bytes as usize];
        source.read_into(offset, &mut stored)?;
        Ok(Cow::Owned(stored))
    }
}

fn open_index(source: &Source, footer: &Footer, tail: &Tail) -> Result<IndexTree, Error> {
    let offset = footer.index_offset();
    let stored = tail.block(source, offset, footer.index_bytes)?;
    let payload = source.open_plain(&stored, offset, BlockKind::IndexTop)?;
    IndexTree::decode(payload, footer).map_err(|fault| fault.at(&source.path, offset))
}

fn open_properties(source: &Source, footer: &Footer, tail: &Tail) -> Result<Properties, Error> {
    let offset = footer.properties_offset();
    let stored = tail.block(source, offset, footer.properties_bytes)?;
    let payload = source.open_plain(&stored, offset, BlockKind::Properties)?;
    let properties = Properties::decode(payload).and_then(|properties| {
        let has_seed = properties.hash_seed != HashSeed::NONE;
        match has_seed == (footer.features & FEATURE_HASH_SEED != 0) {
            true => Ok(properties),
            false => Err(Fault::Damaged("footer and properties disagree on the hash seed")),
        }
    });
    properties.map_err(|fault| fault.at(&source.path, offset))
}
