//! Writes a table, front to back, in one pass.
//!
//! 1. Check each entry, hash its key if the key is new, and encode it straight into the write
//!    buffer.
//! 2. Close a block that would outgrow its limit: columns, compression if it pays, checksum, a
//!    separator for the index.
//! 3. Append a full write buffer to the file.
//! 4. At the end: filter, index, properties, footer, sync.
//!
//! Invariants: entries arrive strictly in internal order; versions of one key may straddle blocks;
//! the filter sees each distinct user key once. After an error the file is unusable and the builder
//! must be dropped. Called by flush and compaction, which make the file's directory entry durable
//! themselves.

use std::path::Path;
use std::sync::Arc;

use trommel_base::entry::pack_trailer;
use trommel_base::{EntryKind, MAX_KEY_BYTES, MAX_SEQNO, MAX_VALUE_BYTES, SeqNo, compare_keys};
use trommel_filter::{FilterSpec, HashSeed};
use trommel_vfs::WriteFile;

use crate::block::{BlockBuilder, tag_of};
use crate::filters::{self, FiltersBuilder, UserBuild};
use crate::format::{
    BlockKind, FEATURE_HASH_SEED, FEATURE_MERGES, FEATURE_PADDED, FEATURE_TWO_LEVEL_INDEX,
    FRAME_BYTES, Footer, seal,
};
use crate::index::{IndexBuilder, separator};
use crate::sink::Sink;
use crate::{
    Compression, Error, FilterLabel, FilterPlan, FilterRole, Properties, TableContents,
    UserFilterBuilder, UserFilterReader,
};

/// The write buffer is appended to the file when it exceeds this many bytes, which still fit in a
/// processor's second-level cache. Larger writes get larger pages in the page cache, and cost the
/// kernel less per byte. But writes that are aligned to the largest pages cost more in a virtual
/// machine that returns such pages to its host (docs/performance.md, Merges).
const WRITE_BYTES: usize = 512 << 10;
/// Size of a page, the unit of the page cache.
const PAGE_BYTES: u64 = 4 << 10;
/// Padding is at most this fraction of the data blocks: 1/8.
const PADDED_PART: u64 = 8;
/// A block is padded by less than this many bytes.
const MUCH_PADDING: u64 = PAGE_BYTES / 2;
/// Bounds of [`TableOptions::block_bytes`].
const BLOCK_BYTES: (usize, usize) = (64, 16 << 20);
/// Bounds of [`TableOptions::index_leaf_bytes`].
const LEAF_BYTES: (usize, usize) = (64, 16 << 20);

/// Options for building a table. Reading needs none of them: the file records the chosen ones.
#[derive(Debug, Clone)]
pub struct TableOptions {
    /// A random id, unique among all tables. Every checksum is bound to it, and the manifest
    /// records it.
    pub table_id: u64,
    /// Largest data block in bytes before compression, with its frame but without padding (64 B to
    /// 16 MiB; default 4 KiB). Only a block of a single larger entry exceeds it.
    pub block_bytes: usize,
    /// Whether uncompressed data blocks are padded to the end of a page of 4 KiB (default no). A
    /// block is padded only if less than another block and less than half a page is left of the
    /// page, and while padding is at most an eighth of all data. Blocks of 4 KiB then occupy one
    /// page each, unless entries are large or some blocks are compressed.
    pub block_align: bool,
    /// Compression of data blocks (default LZ4).
    pub compression: Compression,
    /// The filters (default none).
    pub filters: FilterPlan,
    /// An index larger than this many bytes gets two levels, with leaves of about this size (64 B
    /// to 16 MiB; default 32 KiB).
    pub index_leaf_bytes: usize,
    /// The seed with which keys are hashed (default none). Should be random and secret, so that
    /// keys cannot be chosen by their hashes, and the same for all tables of a store, so that a
    /// lookup hashes its key once.
    pub hash_seed: HashSeed,
}

impl TableOptions {
    /// The defaults, for a table with this random id.
    pub fn new(table_id: u64) -> Self {
        Self {
            table_id,
            block_bytes: 4096,
            block_align: false,
            compression: Compression::default(),
            filters: FilterPlan::default(),
            index_leaf_bytes: 32 << 10,
            hash_seed: HashSeed::NONE,
        }
    }
}

/// Summary of a finished table.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TableSummary {
    /// Length of the file.
    pub file_bytes: u64,
    /// The contents of the table.
    pub contents: TableContents,
    /// Bytes of the filter block.
    pub filter_bytes: u64,
    /// Of these, the range filter.
    pub range_bytes: u64,
    /// Bytes of the index, both levels.
    pub index_bytes: u64,
    /// Bytes of the data blocks as stored.
    pub data_bytes: u64,
    /// Why a user-defined filter could not be built. The table then has no filter of whole keys.
    pub filter_failure: Option<String>,
    /// Filters and filter partitions of a fallback kind, as their keys did not fit the requested
    /// kind.
    pub filter_fallbacks: u64,
}

/// Builds one table.
#[derive(Debug)]
pub struct TableBuilder {
    sink: Sink,
    options: TableOptions,
    block: BlockBuilder,
    index: IndexBuilder,
    filters: FiltersBuilder,
    /// The user-defined filter of whole keys.
    user: Option<UserBuild>,
    last_key: Vec<u8>,
    last_seqno: SeqNo,
    last_hash: u64,
    properties: Properties,
    /// Padding of all data blocks.
    padding_bytes: u64,
    /// Estimated size in the file of the index of all full blocks.
    index_bytes: u64,
    /// Stored bytes of the range filter, once it is written.
    range_bytes: u64,
    /// Why the user-defined filter could not be built, if it failed.
    filter_failure: Option<String>,
    features: u64,
    /// Lengths of data and filter region, once both are written.
    regions: Option<(u64, u64)>,
    /// Scratch buffers for compressed payloads and separators.
    packed: Vec<u8>,
    separator: Vec<u8>,
}

impl TableBuilder {
    /// A builder that writes to `file`, which must be new and empty. `path` names it in errors.
    pub fn new(file: Box<dyn WriteFile>, path: &Path, mut options: TableOptions) -> Self {
        options.block_bytes = options.block_bytes.clamp(BLOCK_BYTES.0, BLOCK_BYTES.1);
        options.index_leaf_bytes = options.index_leaf_bytes.clamp(LEAF_BYTES.0, LEAF_BYTES.1);
        let properties = Properties {
            contents: TableContents { min_seqno: MAX_SEQNO, ..TableContents::default() },
            block_bytes: options.block_bytes as u64,
            compression: options.compression.name().to_owned(),
            filter: options.filters.keys.to_string(),
            hash_seed: options.hash_seed,
            ..Properties::default()
        };
        let buffer_bytes = WRITE_BYTES + 2 * options.block_bytes;
        Self {
            sink: Sink::new(file, path, options.table_id, buffer_bytes),
            block: BlockBuilder::default(),
            index: IndexBuilder::new(options.index_leaf_bytes),
            filters: FiltersBuilder::new(&options.filters, options.hash_seed),
            user: None,
            last_key: Vec::new(),
            last_seqno: 0,
            last_hash: 0,
            properties,
            padding_bytes: 0,
            index_bytes: 0,
            range_bytes: 0,
            filter_failure: None,
            features: if options.hash_seed == HashSeed::NONE { 0 } else { FEATURE_HASH_SEED },
            regions: None,
            packed: Vec::new(),
            separator: Vec::new(),
            options,
        }
    }

    /// Builds the filter of whole keys with `builder`; `reader` reads the filters it makes. Must be
    /// called before the first key, and without a filter of whole keys in the options.
    #[must_use]
    pub fn with_user_filter(
        mut self,
        reader: Arc<dyn UserFilterReader>,
        builder: Box<dyn UserFilterBuilder>,
    ) -> Self {
        self.properties.filter = FilterLabel::User.name().to_owned();
        self.user = Some(UserBuild::new(reader, builder));
        self
    }

    /// Adds an entry, which must follow the last one in internal order.
    ///
    /// # Errors
    /// [`Error::Rejected`] for an entry out of order or beyond the limits; [`Error::Io`].
    #[inline]
    pub fn add(
        &mut self,
        key: &[u8],
        seqno: SeqNo,
        kind: EntryKind,
        value: &[u8],
    ) -> Result<(), Error> {
        let new_key = self.check(key, seqno, value)?;
        let trailer = pack_trailer(seqno, kind);
        let limit = self.options.block_bytes - FRAME_BYTES;
        let bytes = key.len() + value.len();
        if !self.block.is_empty() && !self.block.has_room(&self.sink.out, bytes, trailer, limit) {
            self.finish_block(Some(key))?;
            if !new_key {
                self.filters.add_again(key);
            }
        }
        if new_key {
            self.last_hash = self.options.hash_seed.hash(key);
            self.filters.add(key, self.last_hash);
            if let Some(user) = &mut self.user {
                user.add(key, self.last_hash);
            }
            self.properties.contents.keys += 1;
            self.last_key.clear();
            self.last_key.extend_from_slice(key);
        }
        self.block.add(&mut self.sink.out, key, trailer, tag_of(self.last_hash), value);
        self.last_seqno = seqno;
        self.properties.contents.entries += 1;
        match kind {
            EntryKind::Put => {}
            EntryKind::Delete => self.properties.contents.deletions += 1,
            EntryKind::Merge => self.features |= FEATURE_MERGES,
        }
        self.properties.contents.raw_bytes += bytes as u64;
        self.properties.contents.min_seqno = self.properties.contents.min_seqno.min(seqno);
        self.properties.contents.max_seqno = self.properties.contents.max_seqno.max(seqno);
        Ok(())
    }

    /// Checks an entry. Returns whether `key` differs from the last one.
    #[inline]
    fn check(&mut self, key: &[u8], seqno: SeqNo, value: &[u8]) -> Result<bool, Error> {
        if key.len() > MAX_KEY_BYTES || value.len() > MAX_VALUE_BYTES || seqno > MAX_SEQNO {
            return Err(self.reject("a key, value or sequence number is beyond its limit"));
        }
        if self.regions.is_some() {
            return Err(self.reject("the filters are written already"));
        }
        if self.properties.contents.entries == 0 {
            self.properties.contents.smallest = key.to_vec();
            return Ok(true);
        }
        match compare_keys(&self.last_key, key) {
            std::cmp::Ordering::Less => Ok(true),
            std::cmp::Ordering::Equal if seqno < self.last_seqno => Ok(false),
            _ => Err(self.reject("it is not behind the last one in internal order")),
        }
    }

    #[cold]
    fn reject(&self, what: &'static str) -> Error {
        Error::Rejected { file: self.sink.path().to_path_buf(), what }
    }

    /// Closes the current block; `next` is the first key of the next block.
    fn finish_block(&mut self, next: Option<&[u8]>) -> Result<(), Error> {
        let start = self.block.start();
        self.block.finish(&mut self.sink.out);
        let mut compression = 0;
        if let Some((number, feature)) =
            self.options.compression.compress(&self.sink.out[start..], &mut self.packed)
        {
            self.sink.out.truncate(start);
            self.sink.out.extend_from_slice(&self.packed);
            compression = number;
            self.features |= feature;
        } else if self.options.block_align && next.is_some() {
            self.pad_block();
        }
        let offset = self.sink.written + start as u64;
        seal(
            &mut self.sink.out,
            start,
            self.options.table_id,
            offset,
            BlockKind::Data,
            compression,
        );
        separator(&self.last_key, next, &mut self.separator);
        // A block is bounded by its limit or by one entry: far below 4 GiB.
        if self.index.push(&self.separator, (self.sink.out.len() - start) as u32) {
            self.filters.end_leaf();
        }
        self.filters.end_block(&self.separator);
        self.properties.contents.blocks += 1;
        self.index_bytes = self.index.estimated_bytes() as u64;
        if self.sink.out.len() > WRITE_BYTES {
            self.sink.flush()?;
        }
        self.block.begin(self.sink.out.len());
        Ok(())
    }

    /// Pads the finished block to the end of a page, if that needs little padding.
    fn pad_block(&mut self) {
        let end = self.sink.offset() + FRAME_BYTES as u64;
        let page_end = end.next_multiple_of(PAGE_BYTES);
        let padding = page_end - end;
        let is_little = padding < MUCH_PADDING.min(self.options.block_bytes as u64)
            && PADDED_PART * (self.padding_bytes + padding) <= page_end;
        if is_little && self.block.pad(&mut self.sink.out, padding as usize) {
            self.padding_bytes += padding;
            self.features |= FEATURE_PADDED;
        }
    }

    /// Entries added so far.
    pub fn entries(&self) -> u64 {
        self.properties.contents.entries
    }

    /// Estimated length of the file if it were finished now, in bytes. Cheap enough to call after
    /// every entry.
    #[inline]
    pub fn estimated_bytes(&self) -> u64 {
        self.sink.offset() + self.index_bytes + self.filters.estimated_bytes()
    }

    /// Memory in bytes of the filters until they are written: the hashes of keys, and the filters
    /// themselves. Not quite as cheap as the other getters.
    pub fn filter_memory_bytes(&mut self) -> u64 {
        self.filters.memory_bytes() + self.user.as_mut().map_or(0, UserBuild::memory_bytes)
    }

    /// Memory in bytes of the index until it is written.
    pub fn index_memory_bytes(&self) -> u64 {
        self.index.memory_bytes() as u64
    }

    /// The last key added.
    pub fn last_key(&self) -> Option<&[u8]> {
        (self.properties.contents.entries > 0).then_some(&self.last_key)
    }

    /// Writes the remaining regions and syncs the file. `engine_properties` are opaque bytes of the
    /// caller, returned by [`Properties::engine`].
    pub fn finish(mut self, engine_properties: &[u8]) -> Result<TableSummary, Error> {
        let (data_bytes, filter_bytes) = self.end_data()?;
        let mut footer = Footer {
            table_id: self.options.table_id,
            data_bytes,
            filter_bytes,
            leaves_bytes: 0,
            index_bytes: 0,
            properties_bytes: 0,
            extension_bytes: 0,
            features: self.features,
        };
        self.write_index(&mut footer);
        self.properties.contents.min_seqno =
            self.properties.contents.min_seqno.min(self.properties.contents.max_seqno);
        self.properties.contents.largest.clone_from(&self.last_key);
        self.properties.engine = engine_properties.to_vec();
        footer.properties_bytes = self.write_properties();
        let offset = self.sink.offset();
        footer.encode(offset, &mut self.sink.out);
        self.sink.flush()?;
        self.sink.sync()?;
        Ok(self.summary(&footer))
    }

    /// The contents so far; the largest key is not recorded before the end.
    pub fn contents(&self) -> &TableContents {
        &self.properties.contents
    }

    /// Changes the size of the filter of whole keys, which must not be written yet, to that of
    /// `spec`. Ignored if `spec` is of another kind, or if the filter is partitioned, as its
    /// partitions are built while keys arrive.
    pub fn resize_filter(&mut self, spec: FilterSpec) {
        if self.user.is_none() {
            self.properties.filter = self.filters.resize(spec).to_string();
        }
    }

    /// Completes and writes the filters, so that the caller can time this step; otherwise
    /// [`finish`](Self::finish) does it. No entry may be added afterwards.
    pub fn finish_filters(&mut self) -> Result<(), Error> {
        self.end_data().map(|_| ())
    }

    /// Ends the data and writes the filters, unless already done. Returns the lengths of both
    /// regions.
    fn end_data(&mut self) -> Result<(u64, u64), Error> {
        if let Some(regions) = self.regions {
            return Ok(regions);
        }
        if !self.block.is_empty() {
            self.finish_block(None)?;
        }
        let data_bytes = self.sink.offset();
        let filter_bytes = self.write_filters()?;
        Ok(*self.regions.insert((data_bytes, filter_bytes)))
    }

    /// Writes the filter region. Returns its length: 0 without a filter.
    fn write_filters(&mut self) -> Result<u64, Error> {
        let empty = FiltersBuilder::new(&FilterPlan::default(), self.options.hash_seed);
        let filters = std::mem::replace(&mut self.filters, empty);
        self.sink.flush()?;
        let start = self.sink.written;
        let mut parts = Vec::new();
        match self.user.take().map(UserBuild::finish) {
            Some(Ok(built)) => self.sink.write_part(built, &mut parts)?,
            Some(Err(why)) => {
                self.properties.filter = FilterSpec::NONE.to_string();
                self.filter_failure = Some(why);
            }
            None => {}
        }
        filters.finish(|built| self.sink.write_part(built, &mut parts))?;
        let of_ranges = parts.iter().filter(|part| part.role == FilterRole::Ranges);
        self.range_bytes = of_ranges.map(|part| part.bytes).sum();
        self.properties.filters = filters::encode_directory(&parts);
        Ok(self.sink.written - start)
    }

    fn write_index(&mut self, footer: &mut Footer) {
        let offset = self.sink.offset();
        let index = self.index.finish(&mut self.sink.out, self.options.table_id, offset);
        (footer.leaves_bytes, footer.index_bytes) = (index.leaves, index.top);
        if index.leaves > 0 {
            footer.features |= FEATURE_TWO_LEVEL_INDEX;
        }
    }

    fn write_properties(&mut self) -> u64 {
        let start = self.sink.out.len();
        let offset = self.sink.written + start as u64;
        self.properties.encode(&mut self.sink.out);
        let id = self.options.table_id;
        seal(&mut self.sink.out, start, id, offset, BlockKind::Properties, 0);
        (self.sink.out.len() - start) as u64
    }

    fn summary(self, footer: &Footer) -> TableSummary {
        TableSummary {
            file_bytes: self.sink.written,
            contents: self.properties.contents,
            filter_bytes: footer.filter_bytes,
            range_bytes: self.range_bytes,
            index_bytes: footer.leaves_bytes + footer.index_bytes,
            data_bytes: footer.data_bytes,
            filter_failure: self.filter_failure,
            filter_fallbacks: self.sink.fallbacks,
        }
    }
}
