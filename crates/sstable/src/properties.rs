//! A table's metadata.
//!
//! Stored as fields of tag, length and bytes, with ascending tags, each at most once. A reader
//! skips unknown tags; whatever a reader must know is a feature bit in the footer instead.

use trommel_base::codec::{put_bytes, put_varint};
use trommel_base::{Decoder, MAX_SEQNO, SeqNo};
use trommel_filter::HashSeed;

use crate::format::Fault;

/// The contents of a table.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TableContents {
    /// Entries, tombstones included.
    pub entries: u64,
    /// Tombstones.
    pub deletions: u64,
    /// Distinct user keys.
    pub keys: u64,
    /// Smallest user key; empty for an empty table.
    pub smallest: Vec<u8>,
    /// Largest user key in the table.
    pub largest: Vec<u8>,
    /// Smallest sequence number.
    pub min_seqno: SeqNo,
    /// Largest sequence number.
    pub max_seqno: SeqNo,
    /// Data blocks.
    pub blocks: u64,
    /// Bytes of keys and values as they were added.
    pub raw_bytes: u64,
}

/// Facts about a table, and opaque bytes of the engine.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Properties {
    /// The contents of the table.
    pub contents: TableContents,
    /// Target size of a data block in bytes, before compression.
    pub block_bytes: u64,
    /// The compression requested for data blocks.
    pub compression: String,
    /// The requested filter, in the spec grammar.
    pub filter: String,
    /// Opaque bytes of the engine.
    pub engine: Vec<u8>,
    /// The directory of the filter region; empty if the region is one filter of whole keys, or
    /// empty.
    pub filters: Vec<u8>,
    /// The seed with which keys and prefixes are hashed for the filters and the tags of entries. A
    /// secret.
    pub hash_seed: HashSeed,
}

const ENTRIES: u64 = 1;
const DELETIONS: u64 = 2;
const KEYS: u64 = 3;
const SMALLEST: u64 = 4;
const LARGEST: u64 = 5;
const MIN_SEQNO: u64 = 6;
const MAX_SEQNO_TAG: u64 = 7;
const BLOCKS: u64 = 8;
const RAW_BYTES: u64 = 9;
const BLOCK_BYTES: u64 = 10;
const COMPRESSION: u64 = 11;
const FILTER: u64 = 12;
const ENGINE: u64 = 13;
/// Omitted when empty, unlike the fields before it.
const FILTERS: u64 = 14;
/// Omitted without a seed.
const HASH_SEED: u64 = 15;

const DAMAGED: Fault = Fault::Damaged("the properties make no sense");

impl Properties {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let mut number = Vec::new();
        for (tag, value) in [
            (ENTRIES, self.contents.entries),
            (DELETIONS, self.contents.deletions),
            (KEYS, self.contents.keys),
        ] {
            put_number(out, &mut number, tag, value);
        }
        put_field(out, SMALLEST, &self.contents.smallest);
        put_field(out, LARGEST, &self.contents.largest);
        for (tag, value) in [
            (MIN_SEQNO, self.contents.min_seqno),
            (MAX_SEQNO_TAG, self.contents.max_seqno),
            (BLOCKS, self.contents.blocks),
            (RAW_BYTES, self.contents.raw_bytes),
            (BLOCK_BYTES, self.block_bytes),
        ] {
            put_number(out, &mut number, tag, value);
        }
        put_field(out, COMPRESSION, self.compression.as_bytes());
        put_field(out, FILTER, self.filter.as_bytes());
        put_field(out, ENGINE, &self.engine);
        if !self.filters.is_empty() {
            put_field(out, FILTERS, &self.filters);
        }
        if self.hash_seed != HashSeed::NONE {
            put_field(out, HASH_SEED, &self.hash_seed.word().to_le_bytes());
        }
    }

    pub(crate) fn decode(payload: &[u8]) -> Result<Self, Fault> {
        let mut properties = Self::default();
        let mut decoder = Decoder::new(payload);
        let mut previous = 0;
        let mut seen = 0u64;
        while !decoder.is_empty() {
            let tag = decoder.varint().ok_or(DAMAGED)?;
            let bytes = decoder.bytes(usize::MAX).ok_or(DAMAGED)?;
            if tag <= previous {
                return Err(DAMAGED);
            }
            previous = tag;
            if properties.set(tag, bytes)? {
                seen |= 1 << tag;
            }
        }
        let all = (1 << (ENGINE + 1)) - (1 << ENTRIES);
        let complete = seen & all == all;
        if !complete || !properties.is_plausible() {
            return Err(DAMAGED);
        }
        Ok(properties)
    }

    /// Sets one field. Returns whether this version knows the tag.
    fn set(&mut self, tag: u64, bytes: &[u8]) -> Result<bool, Fault> {
        match tag {
            ENTRIES => self.contents.entries = number(bytes)?,
            DELETIONS => self.contents.deletions = number(bytes)?,
            KEYS => self.contents.keys = number(bytes)?,
            SMALLEST => self.contents.smallest = bytes.to_vec(),
            LARGEST => self.contents.largest = bytes.to_vec(),
            MIN_SEQNO => self.contents.min_seqno = number(bytes)?,
            MAX_SEQNO_TAG => self.contents.max_seqno = number(bytes)?,
            BLOCKS => self.contents.blocks = number(bytes)?,
            RAW_BYTES => self.contents.raw_bytes = number(bytes)?,
            BLOCK_BYTES => self.block_bytes = number(bytes)?,
            COMPRESSION => self.compression = text(bytes)?,
            FILTER => self.filter = text(bytes)?,
            ENGINE => self.engine = bytes.to_vec(),
            FILTERS => self.filters = bytes.to_vec(),
            HASH_SEED => self.hash_seed = seed(bytes)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn is_plausible(&self) -> bool {
        self.contents.deletions <= self.contents.entries
            && self.contents.keys <= self.contents.entries
            && self.contents.blocks <= self.contents.entries
            && self.contents.smallest <= self.contents.largest
            && self.contents.min_seqno <= self.contents.max_seqno
            && self.contents.max_seqno <= MAX_SEQNO
    }

    /// Heap memory in use, in bytes.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.contents.smallest.capacity()
            + self.contents.largest.capacity()
            + self.compression.capacity()
            + self.filter.capacity()
            + self.engine.capacity()
            + self.filters.capacity()
    }
}

fn put_field(out: &mut Vec<u8>, tag: u64, bytes: &[u8]) {
    put_varint(out, tag);
    put_bytes(out, bytes);
}

fn put_number(out: &mut Vec<u8>, scratch: &mut Vec<u8>, tag: u64, value: u64) {
    scratch.clear();
    put_varint(scratch, value);
    put_field(out, tag, scratch);
}

fn number(bytes: &[u8]) -> Result<u64, Fault> {
    let mut decoder = Decoder::new(bytes);
    decoder.varint().filter(|_| decoder.is_empty()).ok_or(DAMAGED)
}

/// Decodes a seed, which is stored only if there is one.
fn seed(bytes: &[u8]) -> Result<HashSeed, Fault> {
    let word = bytes.try_into().map(u64::from_le_bytes).map_err(|_| DAMAGED)?;
    Some(HashSeed::new(word)).filter(|seed| *seed != HashSeed::NONE).ok_or(DAMAGED)
}

fn text(bytes: &[u8]) -> Result<String, Fault> {
    String::from_utf8(bytes.to_vec()).map_err(|_| DAMAGED)
}
