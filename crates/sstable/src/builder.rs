//! Writes a table, front to back, in one pass.
//!
//! 1. Each entry is checked, hashed if its key is new, and encoded straight into the write buffer.
//! 2. A block that would outgrow its limit is closed: columns, compression where it pays, checksum,
//!    a separator for the index.
//! 3. A full write buffer is appended to the file.
//! 4. At the end: filter, index, properties, footer, sync.
//!
//! Invariants: entries come strictly in internal order; versions of one key may straddle blocks;
//! the filter sees each distinct user key once. After an error the file is of no use and the
//! builder must be dropped. Called by flush and compaction, which make the file's directory entry
//! durable themselves.

use std::path::Path;
use std::sync::Arc;
use trommel_base::planted::{Bug, planted};

use trommel_base::entry::pack_trailer;
use trommel_base::{EntryKind, MAX_KEY_BYTES, MAX_SEQNO, MAX_VALUE_BYTES, SeqNo, compare_keys};
use trommel_filter::FilterSpec;
use trommel_vfs::WriteFile;

use crate::block::{BlockBuilder, tag_of};
use crate::filters::{self, FiltersBuilder, UserBuild};
use crate::format::{
    BlockKind, FEATURE_PADDED, FEATURE_TWO_LEVEL_INDEX, FRAME_BYTES, Footer, seal,
};
use crate::index::{IndexBuilder, separator};
use crate::sink::Sink;
use crate::{
    Compression, Error, FilterLabel, FilterPlan, Properties, UserFilterBuilder, UserFilterReader,
};

/// The write buffer is appended to the file when it has grown beyond this many bytes, which lie in
/// a processor's second cache still. The system keeps a file in larger pages for larger writes, and
/// has less to do for each byte; writes that begin and end where the largest pages do cost more
/// again in a virtual machine, which gives those back to its host (docs/performance.md, Merges).
const WRITE_BYTES: usize = 512 << 10;
/// Bytes of a page, in which the system keeps and reads files.
const PAGE_BYTES: u64 = 4 << 10;
/// Padding is at most one part in so many of the data blocks.
const PADDED_PART: u64 = 8;
/// A block is not padded by so much or more.
const MUCH_PADDING: u64 = PAGE_BYTES / 2;
/// Bounds of [`TableOptions::block_bytes`].
const BLOCK_BYTES: (usize, usize) = (64, 16 << 20);
/// Bounds of [`TableOptions::index_leaf_bytes`].
const LEAF_BYTES: (usize, usize) = (64, 16 << 20);

/// How a table is built. How it is read is on disk.
#[derive(Debug, Clone)]
pub struct TableOptions {
    /// A random id, unlike that of any other table. Every checksum is bound to it, and the
    /// manifest records it.
    pub table_id: u64,
    /// Most bytes of a data block before compression, frame included and padding not (64 B to 16
    /// MiB; default 4 KiB). Only a single entry that is larger makes a larger block.
    pub block_bytes: usize,
    /// Whether data blocks that are stored as they are are padded to the end of a page of 4 KiB,
    /// where less than another block and half a page is left of that, and as long as padding is no
    /// more than an eighth of all (default no). So blocks of 4 KiB lie in one page each, unless
    /// entries are large or some are compressed.
    pub block_align: bool,
    /// How data blocks are compressed (default LZ4).
    pub compression: Compression,
    /// The filters (default none).
    pub filters: FilterPlan,
    /// An index of more than this many bytes gets two levels, with leaves of about this size
    /// (64 B to 16 MiB; default 32 KiB).
    pub index_leaf_bytes: usize,
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
        }
    }
}

/// What was built.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TableSummary {
    /// Length of the file.
    pub file_bytes: u64,
    /// Entries, tombstones included.
    pub entries: u64,
    /// Tombstones.
    pub deletions: u64,
    /// Distinct user keys.
    pub keys: u64,
    /// Smallest user key.
    pub smallest: Vec<u8>,
    /// Largest user key, itself in the table.
    pub largest: Vec<u8>,
    /// Smallest sequence number.
    pub min_seqno: SeqNo,
    /// Largest sequence number.
    pub max_seqno: SeqNo,
    /// Bytes of the filter block.
    pub filter_bytes: u64,
    /// Bytes of the index, both levels.
    pub index_bytes: u64,
    /// Bytes of the data blocks as they are stored.
    pub data_bytes: u64,
    /// Bytes of keys and values as they were added.
    pub raw_bytes: u64,
    /// Data blocks.
    pub blocks: u64,
    /// Why a user's filter was to be there and is not; the table has none then.
    pub filter_failure: Option<String>,
    /// Filters, and pieces of filters, of another kind than was asked for, as their keys could not
    /// be built into that.
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
    /// A filter of whole keys of a user's making.
    user: Option<UserBuild>,
    last_key: Vec<u8>,
    last_seqno: SeqNo,
    last_hash: u64,
    properties: Properties,
    /// Padding of all data blocks.
    padding_bytes: u64,
    /// About what the index of the blocks that are full will take in the file.
    index_bytes: u64,
    /// Why there is no filter of the user's, where there was to be one.
    filter_failure: Option<String>,
    features: u64,
    /// Lengths of data and filters, once both are written.
    regions: Option<(u64, u64)>,
    /// Reused for compressed payloads, and for separators.
    packed: Vec<u8>,
    separator: Vec<u8>,
}

impl TableBuilder {
    /// A builder that writes to `file`, which is new and empty. `path` names it in errors.
    pub fn new(file: Box<dyn WriteFile>, path: &Path, mut options: TableOptions) -> Self {
        options.block_bytes = options.block_bytes.clamp(BLOCK_BYTES.0, BLOCK_BYTES.1);
        options.index_leaf_bytes = options.index_leaf_bytes.clamp(LEAF_BYTES.0, LEAF_BYTES.1);
        let properties = Properties {
            min_seqno: MAX_SEQNO,
            block_bytes: options.block_bytes as u64,
            compression: options.compression.name().to_owned(),
            filter: options.filters.keys.to_string(),
            ..Properties::default()
        };
        let buffer_bytes = WRITE_BYTES + 2 * options.block_bytes;
        Self {
            sink: Sink::new(file, path, options.table_id, buffer_bytes),
            block: BlockBuilder::default(),
            index: IndexBuilder::default(),
            filters: FiltersBuilder::new(&options.filters),
            user: None,
            last_key: Vec::new(),
            last_seqno: 0,
            last_hash: 0,
            properties,
            padding_bytes: 0,
            index_bytes: 0,
            filter_failure: None,
            features: 0,
            regions: None,
            packed: Vec::new(),
            separator: Vec::new(),
            options,
        }
    }

    /// Has the filter of whole keys built by `builder`, whose filters `reader` reads. There must
    /// be no key yet, and no filter of whole keys in the options.
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

    /// Adds an entry, which must stand behind the last one in internal order.
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
        }
        if new_key {
            self.last_hash = trommel_filter::hash(key);
            if self.properties.entries > 0 || !planted(Bug::FilterMissesFirstKey) {
                self.filters.add(key, self.last_hash);
            }
            if let Some(user) = &mut self.user {
                user.add(key, self.last_hash);
            }
            self.properties.keys += 1;
            self.last_key.clear();
            self.last_key.extend_from_slice(key);
        }
        self.block.add(&mut self.sink.out, key, trailer, tag_of(self.last_hash), value);
        self.last_seqno = seqno;
        self.properties.entries += 1;
        self.properties.deletions += u64::from(kind == EntryKind::Delete);
        self.properties.raw_bytes += bytes as u64;
        self.properties.min_seqno = self.properties.min_seqno.min(seqno);
        self.properties.max_seqno = self.properties.max_seqno.max(seqno);
        Ok(())
    }

    /// Whether `key` is a new one.
    #[inline]
    fn check(&mut self, key: &[u8], seqno: SeqNo, value: &[u8]) -> Result<bool, Error> {
        if key.len() > MAX_KEY_BYTES || value.len() > MAX_VALUE_BYTES || seqno > MAX_SEQNO {
            return Err(self.reject("a key, value or sequence number is beyond its limit"));
        }
        if self.regions.is_some() {
            return Err(self.reject("the filters are written already"));
        }
        if self.properties.entries == 0 {
            self.properties.smallest = key.to_vec();
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

    /// Closes the current block; `next` is the first key of the next one.
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
        // A block is at most its limit or one entry long: far below 4 GiB.
        self.index.push(&self.separator, (self.sink.out.len() - start) as u32);
        self.filters.end_block(offset, self.sink.offset(), &self.separator);
        self.properties.blocks += 1;
        self.index_bytes = self.index.estimated_bytes() as u64;
        if self.sink.out.len() > WRITE_BYTES {
            self.sink.flush()?;
        }
        self.block.begin(self.sink.out.len());
        Ok(())
    }

    /// Pads the block that was finished to the end of a page, if that does not take too much.
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
        self.properties.entries
    }

    /// About how long the file would be if it were finished now, in bytes. Cheap enough to ask
    /// after every entry.
    #[inline]
    pub fn estimated_bytes(&self) -> u64 {
        self.sink.offset() + self.index_bytes + self.filters.estimated_bytes()
    }

    /// Bytes of memory that its filters take until they are written: the keys' hashes, and the
    /// filters beside them. Not quite as cheap to ask as the rest.
    pub fn filter_memory_bytes(&mut self) -> u64 {
        self.filters.memory_bytes() + self.user.as_mut().map_or(0, UserBuild::memory_bytes)
    }

    /// Bytes of memory that its index takes until it is written.
    pub fn index_memory_bytes(&self) -> u64 {
        self.index.memory_bytes() as u64
    }

    /// The key added last.
    pub fn last_key(&self) -> Option<&[u8]> {
        (self.properties.entries > 0).then_some(&self.last_key)
    }

    /// Writes what is missing and syncs the file. `engine_properties` are the caller's own bytes,
    /// given back by [`Properties::engine`].
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
        self.properties.min_seqno = self.properties.min_seqno.min(self.properties.max_seqno);
        self.properties.largest.clone_from(&self.last_key);
        self.properties.engine = engine_properties.to_vec();
        footer.properties_bytes = self.write_properties();
        let offset = self.sink.offset();
        footer.encode(offset, &mut self.sink.out);
        self.sink.flush()?;
        if !planted(Bug::TableNotSynced) {
            self.sink.sync()?;
        }
        Ok(self.summary(&footer))
    }

    /// Completes and writes the filters, which [`finish`](Self::finish) does otherwise: for who
    /// wants to know how long it takes. No entry may be added afterwards.
    pub fn finish_filters(&mut self) -> Result<(), Error> {
        self.end_data().map(|_| ())
    }

    /// Ends the data and writes the filters, if that was not done; the lengths of both regions.
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

    /// Writes the filter region and returns its length; 0 if there is no filter.
    fn write_filters(&mut self) -> Result<u64, Error> {
        let empty = FiltersBuilder::new(&FilterPlan::default());
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
        self.properties.filters = filters::encode_directory(&parts);
        Ok(self.sink.written - start)
    }

    fn write_index(&mut self, footer: &mut Footer) {
        let offset = self.sink.offset();
        let index = self.index.finish(
            &mut self.sink.out,
            self.options.table_id,
            offset,
            self.options.index_leaf_bytes,
        );
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
        let properties = self.properties;
        TableSummary {
            file_bytes: self.sink.written,
            entries: properties.entries,
            deletions: properties.deletions,
            keys: properties.keys,
            smallest: properties.smallest,
            largest: properties.largest,
            min_seqno: properties.min_seqno,
            max_seqno: properties.max_seqno,
            filter_bytes: footer.filter_bytes,
            index_bytes: footer.leaves_bytes + footer.index_bytes,
            data_bytes: footer.data_bytes,
            raw_bytes: properties.raw_bytes,
            blocks: properties.blocks,
            filter_failure: self.filter_failure,
            filter_fallbacks: self.sink.fallbacks,
        }
    }
}
