//! The constants of dumps, and their two small structures. The page is docs/format/dump.md.

use trommel_base::codec::{put_u32, put_u64};
use trommel_base::{Checksum, Decoder, MAX_KEY_BYTES, MAX_VALUE_BYTES};

/// The first bytes of a dump. (High bit, name and line ends find transfers that change bytes.)
pub const MAGIC: [u8; 8] = [0x89, b'T', b'R', b'D', b'M', b'P', 0x0d, 0x0a];
/// The version that is written.
pub(super) const VERSION: u32 = 1;
/// Feature bits that this version knows.
pub(super) const KNOWN_FEATURES: u64 = 0;
/// Bytes of the header.
pub(super) const HEADER_BYTES: usize = 36;
/// Bytes of a head: that of a block, or the end.
pub(super) const HEAD_BYTES: usize = 24;
/// Bytes of the checksum behind a block's payload.
pub(super) const CHECKSUM_BYTES: usize = 4;
/// A block.
pub(super) const KIND_BLOCK: u32 = 1;
/// The end.
pub(super) const KIND_END: u32 = 2;
/// A block is closed once its payload has so many bytes.
pub(super) const BLOCK_BYTES: usize = 64 << 10;
/// No payload has more: a nearly full block, and the longest entry.
pub(super) const MAX_PAYLOAD_BYTES: u64 =
    (BLOCK_BYTES + MAX_KEY_BYTES + MAX_VALUE_BYTES + 16) as u64;

/// What stands at the beginning of a dump.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) version: u32,
    pub(super) features: u64,
    /// Random; all checksums of the dump are bound to it.
    pub(super) id: u64,
}

impl Header {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        put_u32(&mut bytes, self.version);
        put_u32(&mut bytes, 0);
        put_u64(&mut bytes, self.features);
        put_u64(&mut bytes, self.id);
        let check = Checksum::bound_to(&[]).with(&bytes).value();
        put_u32(&mut bytes, check);
        bytes
    }

    /// The header, unless its checksum does not fit. The magic is the caller's to compare.
    pub(super) fn decode(bytes: &[u8; HEADER_BYTES]) -> Option<Self> {
        let (content, check) = bytes.split_at(HEADER_BYTES - CHECKSUM_BYTES);
        let mut fields = Decoder::new(&content[MAGIC.len()..]);
        let (version, zero) = (fields.u32()?, fields.u32()?);
        let header = Self { version, features: fields.u64()?, id: fields.u64()? };
        let expected = Checksum::bound_to(&[]).with(content).value();
        (Decoder::new(check).u32()? == expected && zero == 0).then_some(header)
    }
}

/// What stands before a block's payload, or ends the dump.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) kind: u32,
    /// Entries of the block, or of the whole dump.
    pub(super) entries: u64,
    /// Bytes of the payload, or of all payloads.
    pub(super) bytes: u64,
}

impl Head {
    pub(super) fn encode(&self, id: u64, offset: u64) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEAD_BYTES);
        put_u32(&mut bytes, self.kind);
        put_u64(&mut bytes, self.entries);
        put_u64(&mut bytes, self.bytes);
        let check = checksum(id, offset, &bytes);
        put_u32(&mut bytes, check);
        bytes
    }

    /// The head that stands at `offset` of dump `id`, unless its checksum does not fit.
    pub(super) fn decode(bytes: &[u8; HEAD_BYTES], id: u64, offset: u64) -> Option<Self> {
        let (content, check) = bytes.split_at(HEAD_BYTES - CHECKSUM_BYTES);
        let mut fields = Decoder::new(content);
        let head = Self { kind: fields.u32()?, entries: fields.u64()?, bytes: fields.u64()? };
        (Decoder::new(check).u32()? == checksum(id, offset, content)).then_some(head)
    }
}

/// The checksum of `content`, which stands at `offset` of dump `id`.
pub(super) fn checksum(id: u64, offset: u64, content: &[u8]) -> u32 {
    Checksum::bound_to(&[id, offset]).with(content).value()
}
