//! The format of a table: every constant, the frame around each block, and the footer.
//! `docs/format/sstable.md` specifies the bytes; a test keeps the two in agreement.
//!
//! A table is six regions without gaps, then the footer:
//!
//! ```text
//! data blocks | filter block | index leaves | top index | properties | extension | footer
//! ```
//!
//! Every block has the same frame: its payload, one byte for the compression, and a checksum over
//! both that is bound to the table's random id and to the block's offset, kind and length. A block
//! that was flipped, swapped, misplaced or left over from another table therefore fails its
//! checksum, whatever it holds.
//!
//! Invariants: integers are little-endian; no platform-sized integer is written; every byte of the
//! file is covered by exactly one checksum; a decoder accepts any bytes and returns a value or a
//! `Fault`, without a panic and without allocating more than the file's own length (or the bounded
//! raw size of a compressed block).

use std::path::Path;

use trommel_base::codec::{put_u16, put_u32, put_u64};
use trommel_base::{Checksum, Corruption, Decoder};

use crate::Error;

/// The last eight bytes of every table.
pub const MAGIC: [u8; 8] = *b"TromTbl\xf5";
/// The version this crate writes, and the only one it reads.
pub const VERSION: u16 = 1;
/// Length of the footer in bytes.
pub const FOOTER_BYTES: usize = 80;
/// Bytes after each block's payload: compression byte, checksum.
pub const FRAME_BYTES: usize = 5;
/// Bytes of the checksum at the frame's end.
pub(crate) const CHECKSUM_BYTES: usize = 4;
/// Entries from one key that is stored whole to the next.
pub const GROUP_ENTRIES: usize = 16;
/// Fixed part at the end of a data block: smallest trailer, count, trailer width, flags.
pub const BLOCK_TAIL_BYTES: usize = 12;
/// Most entries in one data block.
pub const MAX_BLOCK_ENTRIES: usize = 65_535;
/// Flag of a data block whose offsets take 4 bytes each, not 2.
pub const FLAG_WIDE_OFFSETS: u8 = 1;
/// Flag of a data block with padding between values and keys. It has one more value offset: the
/// start of the padding.
pub const FLAG_PADDED: u8 = 1 << 1;
/// Fixed part at the start of an index block: count, prefix length, zero, first offset.
pub const INDEX_HEADER_BYTES: usize = 16;
/// Bytes per separator in an index block, in addition to those after its first eight: word, stored
/// length, suffix length.
pub const INDEX_SLOT_BYTES: usize = 14;
/// Largest raw size of a compressed block, so that a few hostile bytes cannot cause an allocation
/// of gigabytes. Larger blocks (one large value each) are stored uncompressed.
pub const MAX_COMPRESSED_RAW_BYTES: usize = 64 << 20;

/// Feature bit: the index has two levels.
pub const FEATURE_TWO_LEVEL_INDEX: u64 = 1;
/// Feature bit: some block is compressed with LZ4.
pub const FEATURE_LZ4: u64 = 1 << 1;
/// Feature bit: some block is compressed with zstd.
pub const FEATURE_ZSTD: u64 = 1 << 2;
/// Feature bit, reserved: the table holds range tombstones.
pub const FEATURE_RANGE_DELETES: u64 = 1 << 3;
/// Feature bit: the table holds merge operands.
pub const FEATURE_MERGES: u64 = 1 << 4;
/// Feature bit, reserved: the filter region holds several filters, one per key range.
pub const FEATURE_PARTITIONED_FILTER: u64 = 1 << 5;

/// Feature bit: some data block is padded.
pub const FEATURE_PADDED: u64 = 1 << 6;

/// Feature bit: keys are hashed with the seed in the properties.
pub const FEATURE_HASH_SEED: u64 = 1 << 7;

/// The feature bits that this build supports.
const KNOWN_FEATURES: u64 = FEATURE_TWO_LEVEL_INDEX
    | FEATURE_LZ4
    | if cfg!(feature = "zstd") { FEATURE_ZSTD } else { 0 }
    | FEATURE_PADDED
    | FEATURE_MERGES
    | FEATURE_HASH_SEED;

/// The content of a block. The number is bound into its checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum BlockKind {
    /// Entries.
    Data = 1,
    /// The filter's bytes.
    Filter = 2,
    /// A leaf of a two-level index.
    IndexLeaf = 3,
    /// The whole index, or its upper level.
    IndexTop = 4,
    /// The properties.
    Properties = 5,
    /// The footer.
    Footer = 6,
    /// The index of a filter's partitions.
    FilterTop = 7,
    /// The parts of a filter sidecar other than its filters: head, directory, footer.
    Sidecar = 8,
}

/// Why bytes from a file could not be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The bytes are corrupt: no writer produces them.
    Damaged(&'static str),
    /// The bytes are from a writer with features that this build does not support.
    Unsupported(&'static str),
}

impl Fault {
    /// The error for this fault at `offset` of `file`.
    #[cold]
    pub(crate) fn at(self, file: &Path, offset: u64) -> Error {
        match self {
            Self::Damaged(what) => Error::Corruption(Corruption::new(file, offset, what)),
            Self::Unsupported(what) => {
                Error::Unsupported { file: file.to_path_buf(), what: what.into() }
            }
        }
    }
}

/// Location of a block: its first byte, and its length including the frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Handle {
    pub(crate) offset: u64,
    pub(crate) bytes: usize,
}

impl Handle {
    pub(crate) fn end(self) -> u64 {
        self.offset + self.bytes as u64
    }
}

/// The seed of a block's checksum. For one table, kind and length it differs at every offset; for
/// one offset it differs in every table.
#[inline]
pub fn place(table_id: u64, offset: u64, kind: BlockKind, stored_bytes: u64) -> u64 {
    let spread = offset.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (table_id ^ spread).wrapping_add(((kind as u64) << 56) | stored_bytes)
}

/// The checksum of a block. `content` is the payload and the compression byte; the stored block is
/// `content` and the four bytes of the checksum.
#[inline]
pub fn block_checksum(table_id: u64, offset: u64, kind: BlockKind, content: &[u8]) -> u32 {
    let stored_bytes = content.len() as u64 + 4;
    Checksum::bound_to(&[place(table_id, offset, kind, stored_bytes)]).with(content).value()
}

/// Completes the block whose payload is `out[start..]`: appends the compression byte and the
/// checksum. `offset` is the start of the block in its file.
pub(crate) fn seal(
    out: &mut Vec<u8>,
    start: usize,
    table_id: u64,
    offset: u64,
    kind: BlockKind,
    compression: u8,
) {
    let frame = frame(out.get(start..).unwrap_or_default(), table_id, offset, kind, compression);
    out.extend_from_slice(&frame);
}

/// The bytes after the payload of a block that starts at `offset`: the compression byte and the
/// checksum.
pub(crate) fn frame(
    payload: &[u8],
    table_id: u64,
    offset: u64,
    kind: BlockKind,
    compression: u8,
) -> [u8; FRAME_BYTES] {
    let place = place(table_id, offset, kind, (payload.len() + FRAME_BYTES) as u64);
    let sum = Checksum::bound_to(&[place]).with(payload).with(&[compression]).value();
    let [a, b, c, d] = sum.to_le_bytes();
    [compression, a, b, c, d]
}

pub(crate) const SHORT: Fault = Fault::Damaged("the block is shorter than its frame");

/// Verifies a stored block; returns its payload and compression byte.
#[inline]
pub(crate) fn unseal(
    stored: &[u8],
    table_id: u64,
    offset: u64,
    kind: BlockKind,
) -> Result<(&[u8], u8), Fault> {
    let (content, sum) = stored.split_last_chunk::<CHECKSUM_BYTES>().ok_or(SHORT)?;
    let is_intact = block_checksum(table_id, offset, kind, content) == u32::from_le_bytes(*sum);
    if !is_intact {
        return Err(Fault::Damaged("the block fails its checksum"));
    }
    frame_of(stored)
}

/// Payload and compression byte of a stored block. Does not verify the checksum.
#[inline]
pub(crate) fn frame_of(stored: &[u8]) -> Result<(&[u8], u8), Fault> {
    let (content, _) = stored.split_last_chunk::<CHECKSUM_BYTES>().ok_or(SHORT)?;
    let (compression, payload) = content.split_last().ok_or(SHORT)?;
    Ok((payload, *compression))
}

/// The footer: the lengths of the regions in file order, and the required features.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Footer {
    /// Random id of the table.
    pub table_id: u64,
    /// Bytes of all data blocks.
    pub data_bytes: u64,
    /// Bytes of the filter block; 0 without a filter.
    pub filter_bytes: u64,
    /// Bytes of all index leaves; 0 where the index has one level.
    pub leaves_bytes: u64,
    /// Bytes of the top index.
    pub index_bytes: u64,
    /// Bytes of the properties.
    pub properties_bytes: u64,
    /// Bytes of the extension region, which is reserved: 0 in this version.
    pub extension_bytes: u64,
    /// The features that a reader must support.
    pub features: u64,
}

impl Footer {
    /// The file's length according to the regions; `None` beyond 64 bits.
    pub fn file_bytes(&self) -> Option<u64> {
        let regions = [
            self.data_bytes,
            self.filter_bytes,
            self.leaves_bytes,
            self.index_bytes,
            self.properties_bytes,
            self.extension_bytes,
        ];
        regions.into_iter().try_fold(FOOTER_BYTES as u64, u64::checked_add)
    }

    /// First byte of the filter block. Meaningful for a decoded footer, like the other offsets.
    pub fn filter_offset(&self) -> u64 {
        self.data_bytes
    }

    /// First byte of the index leaves.
    pub fn leaves_offset(&self) -> u64 {
        self.filter_offset() + self.filter_bytes
    }

    /// First byte of the top index.
    pub fn index_offset(&self) -> u64 {
        self.leaves_offset() + self.leaves_bytes
    }

    /// First byte of the properties.
    pub fn properties_offset(&self) -> u64 {
        self.index_offset() + self.index_bytes
    }

    /// Whether the index has two levels.
    pub fn has_two_levels(&self) -> bool {
        self.features & FEATURE_TWO_LEVEL_INDEX != 0
    }

    /// Appends the footer, which starts at `offset` of its file.
    pub fn encode(&self, offset: u64, out: &mut Vec<u8>) {
        let start = out.len();
        for word in [
            self.table_id,
            self.data_bytes,
            self.filter_bytes,
            self.leaves_bytes,
            self.index_bytes,
            self.properties_bytes,
            self.extension_bytes,
            self.features,
        ] {
            put_u64(out, word);
        }
        let words = out.get(start..).unwrap_or_default();
        put_u32(out, footer_checksum(self.table_id, offset, VERSION, words));
        put_u16(out, VERSION);
        put_u16(out, !VERSION);
        out.extend_from_slice(&MAGIC);
    }

    /// Reads the footer from the last [`FOOTER_BYTES`] bytes of a file of `file_bytes` bytes.
    pub(crate) fn decode(bytes: &[u8], file_bytes: u64) -> Result<Self, Fault> {
        const SHORT: Fault = Fault::Damaged("the footer is cut short");
        let start = bytes.len().checked_sub(FOOTER_BYTES).ok_or(SHORT)?;
        let bytes = bytes.get(start..).ok_or(SHORT)?;
        let (words, ends) = bytes.split_at_checked(FOOTER_BYTES - 16).ok_or(SHORT)?;
        let mut ends = Decoder::new(ends);
        let (sum, version) = (ends.u32().ok_or(SHORT)?, ends.u16().ok_or(SHORT)?);
        let complement = ends.u16().ok_or(SHORT)?;
        if ends.rest() != MAGIC {
            return Err(Fault::Damaged("this is not the end of a table (wrong magic bytes)"));
        }
        if version != !complement {
            return Err(Fault::Damaged("the footer's version disagrees with its complement"));
        }
        if version != VERSION {
            return Err(Fault::Unsupported(
                "the table is of a version that this build does not know; use a newer one",
            ));
        }
        let mut words = Decoder::new(words);
        let covered = words.rest();
        let mut word = || words.u64().ok_or(SHORT);
        let footer = Self {
            table_id: word()?,
            data_bytes: word()?,
            filter_bytes: word()?,
            leaves_bytes: word()?,
            index_bytes: word()?,
            properties_bytes: word()?,
            extension_bytes: word()?,
            features: word()?,
        };
        let offset = file_bytes.checked_sub(FOOTER_BYTES as u64).ok_or(SHORT)?;
        if footer_checksum(footer.table_id, offset, version, covered) != sum {
            return Err(Fault::Damaged("the footer fails its checksum"));
        }
        footer.check(file_bytes)?;
        Ok(footer)
    }

    fn check(&self, file_bytes: u64) -> Result<(), Fault> {
        if self.features & !KNOWN_FEATURES != 0 {
            return Err(Fault::Unsupported(
                "the table needs a feature that this build does not have; use a newer one, or \
                 one with zstd",
            ));
        }
        if self.file_bytes() != Some(file_bytes) {
            return Err(Fault::Damaged("the footer's regions do not add up to the file's length"));
        }
        if self.extension_bytes != 0 {
            return Err(Fault::Damaged("the footer claims an extension without its feature bit"));
        }
        if (self.leaves_bytes != 0) != self.has_two_levels() {
            return Err(Fault::Damaged("the footer's index levels contradict each other"));
        }
        Ok(())
    }
}

/// The footer's checksum: over its eight words, bound like a block's, and to the version as well.
pub fn footer_checksum(table_id: u64, offset: u64, version: u16, words: &[u8]) -> u32 {
    let place = place(table_id, offset, BlockKind::Footer, FOOTER_BYTES as u64);
    Checksum::bound_to(&[place, u64::from(version)]).with(words).value()
}
