//! Encoding of one file header and one record: pure functions, total for any bytes.
//!
//! A record is `header | payload | trailer byte`. The header has a checksum of its own, so a
//! flipped length is never mistaken for a file that ends early. It holds the checksum of the
//! payload as stored and that of the previous record. All checksums are bound to the file's random
//! salt, the file's number and the record's offset, so bytes of this or another log inside a value
//! never look like a record.
//!
//! Called by the writer, the reader and the search for records after corruption. The layout is
//! specified in `docs/format/log.md`.

use trommel_base::codec::{put_u32, put_u64};
use trommel_base::{Checksum, Decoder};

use super::format::{
    FILE_CHECKSUM_AT, FILE_HEADER_BYTES, FORMAT_VERSION, KNOWN_FEATURES, LOG_MAGIC, MANIFEST_MAGIC,
    RECORD_CHECKSUM_AT, RECORD_HEADER_BYTES, RECORD_MAGIC, RECORD_OVERHEAD_BYTES,
};

/// Bytes of a record's offset in the input of its checksums.
pub(super) const OFFSET_BYTES: usize = size_of::<u64>();

/// The two kinds of framed files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileKind {
    /// Batches.
    Log,
    /// Version edits.
    Manifest,
}

impl FileKind {
    /// First bytes of such a file.
    pub(crate) fn magic(self) -> [u8; 8] {
        match self {
            Self::Log => LOG_MAGIC,
            Self::Manifest => MANIFEST_MAGIC,
        }
    }
}

/// The contents of a file header, the first 64 bytes of a log or manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileHeader {
    /// Log or manifest.
    pub(crate) kind: FileKind,
    /// The file's number, also in its name.
    pub(crate) number: u64,
    /// Random; every checksum in the file is bound to it.
    pub(crate) salt: u64,
    /// The random id of the store that the file belongs to.
    pub(crate) store_id: u64,
    /// Number of the log written before this one, 0 for the first (and in manifests).
    pub(crate) previous: u64,
}

/// Why bytes are not the expected file header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum HeaderError {
    /// They fail the checksum, or no writer writes them.
    Damaged(&'static str),
    /// They are intact, but use features of a later version.
    Unsupported(String),
}

impl FileHeader {
    /// The header as stored.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(FILE_HEADER_BYTES);
        out.extend_from_slice(&self.kind.magic());
        put_u32(&mut out, FORMAT_VERSION);
        put_u32(&mut out, 0);
        put_u64(&mut out, 0);
        put_u64(&mut out, self.number);
        put_u64(&mut out, self.salt);
        put_u64(&mut out, self.store_id);
        put_u64(&mut out, self.previous);
        put_u32(&mut out, 0);
        let checksum = file_checksum(&out);
        put_u32(&mut out, checksum);
        out
    }

    /// Decodes and checks the header of file `number`.
    pub(crate) fn decode(bytes: &[u8], kind: FileKind, number: u64) -> Result<Self, HeaderError> {
        let damaged = HeaderError::Damaged;
        let fields = Self::fields(bytes).ok_or(damaged("the file header is cut short"))?;
        if fields.magic != kind.magic() {
            return Err(damaged("the file does not begin like one of its kind"));
        }
        if !fields.checksum_holds {
            return Err(damaged("the file header fails its checksum"));
        }
        if fields.version != FORMAT_VERSION {
            let text = format!("format version {}, not {FORMAT_VERSION}", fields.version);
            return Err(HeaderError::Unsupported(text));
        }
        if fields.features & !KNOWN_FEATURES != 0 {
            let unknown = fields.features & !KNOWN_FEATURES;
            return Err(HeaderError::Unsupported(format!("required features {unknown:#x}")));
        }
        if fields.reserved != (0, 0) {
            return Err(damaged("the file header's reserved bytes are not zero"));
        }
        if fields.header.number != number {
            return Err(damaged("the file header holds another file's number"));
        }
        Ok(Self { kind, ..fields.header })
    }

    /// The number in the header, verified or not.
    pub(crate) fn number_in(bytes: &[u8]) -> Option<u64> {
        Self::fields(bytes).map(|fields| fields.header.number)
    }

    fn fields(bytes: &[u8]) -> Option<RawHeader> {
        let (head, _) = bytes.split_first_chunk::<FILE_HEADER_BYTES>()?;
        let mut decoder = Decoder::new(head);
        let magic = *decoder.take(8)?.first_chunk::<8>()?;
        let (version, first_reserved) = (decoder.u32()?, decoder.u32()?);
        let features = decoder.u64()?;
        let header = Self {
            kind: FileKind::Log,
            number: decoder.u64()?,
            salt: decoder.u64()?,
            store_id: decoder.u64()?,
            previous: decoder.u64()?,
        };
        let reserved = (first_reserved, decoder.u32()?);
        let covered = head.get(..FILE_CHECKSUM_AT)?;
        let checksum_holds = decoder.u32()? == file_checksum(covered);
        Some(RawHeader { magic, version, features, reserved, header, checksum_holds })
    }

    /// The predecessor checksum of the first record: the header's checksum.
    pub(crate) fn chain_start(&self) -> u32 {
        file_checksum(&self.encode()[..FILE_CHECKSUM_AT])
    }
}

/// The checksum of a file header with the bytes `covered`.
pub(crate) fn file_checksum(covered: &[u8]) -> u32 {
    Checksum::bound_to(&[]).with(covered).value()
}

/// The unverified fields of a file header.
struct RawHeader {
    magic: [u8; 8],
    version: u32,
    features: u64,
    reserved: (u32, u32),
    header: FileHeader,
    checksum_holds: bool,
}

/// The values that the checksums of one file are bound to.
#[derive(Debug, Clone)]
pub(crate) struct Binding {
    salt: u64,
    base: Checksum,
}

impl Binding {
    /// Binds to the file with this header.
    pub(crate) fn new(header: &FileHeader) -> Self {
        Self { salt: header.salt, base: Checksum::bound_to(&[header.salt, header.number]) }
    }

    /// The file's salt.
    pub(crate) fn salt(&self) -> u64 {
        self.salt
    }

    /// The initial checksum of the record at `offset`, before any of its bytes.
    pub(crate) fn at(&self, offset: u64) -> Checksum {
        self.base.clone().with(&offset.to_le_bytes())
    }

    /// The checksum of a record's offset and bytes: as [`Binding::at`], in one call.
    pub(crate) fn checksum(&self, offset_and_bytes: &[u8]) -> u32 {
        self.base.clone().with(offset_and_bytes).value()
    }
}

/// The header of one record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RecordHeader {
    /// [`KIND_DATA`](super::format::KIND_DATA), [`KIND_END`](super::format::KIND_END), or a kind
    /// of a later version.
    pub(crate) kind: u8,
    /// The keystream that the payload is masked with; 0 for none.
    pub(crate) mask: u16,
    /// Length of the payload.
    pub(crate) payload_bytes: u32,
    /// First sequence number of the batch; in a manifest, the ordinal of the edit.
    pub(crate) first_seqno: u64,
    /// Bytes of this file known to be synced when the record was written; 0 unless all earlier
    /// files were known to be synced or no longer needed.
    pub(crate) durable_to: u64,
    /// Payload checksum of the record before this one.
    pub(crate) predecessor: u32,
    /// Checksum of the payload as stored.
    pub(crate) payload_checksum: u32,
}

impl RecordHeader {
    /// The stored header of the record at `offset`.
    pub(crate) fn encode(&self, binding: &Binding, offset: u64) -> [u8; RECORD_HEADER_BYTES] {
        let mut bound = [0; OFFSET_BYTES + RECORD_CHECKSUM_AT];
        bound[..OFFSET_BYTES].copy_from_slice(&offset.to_le_bytes());
        let out = &mut bound[OFFSET_BYTES..];
        out[0] = RECORD_MAGIC;
        out[1] = self.kind;
        out[2..4].copy_from_slice(&self.mask.to_le_bytes());
        out[4..8].copy_from_slice(&self.payload_bytes.to_le_bytes());
        out[8..16].copy_from_slice(&self.first_seqno.to_le_bytes());
        out[16..24].copy_from_slice(&self.durable_to.to_le_bytes());
        out[24..28].copy_from_slice(&self.predecessor.to_le_bytes());
        out[28..32].copy_from_slice(&self.payload_checksum.to_le_bytes());
        let mut stored = [0; RECORD_HEADER_BYTES];
        stored[..RECORD_CHECKSUM_AT].copy_from_slice(out);
        stored[RECORD_CHECKSUM_AT..].copy_from_slice(&binding.checksum(&bound).to_le_bytes());
        stored
    }

    /// Decodes the header at the start of `bytes`, which are at `offset`; `None` if it is invalid.
    /// Does not check the payload.
    pub(crate) fn decode(bytes: &[u8], binding: &Binding, offset: u64) -> Option<Self> {
        let (head, _) = bytes.split_first_chunk::<RECORD_HEADER_BYTES>()?;
        let covered = head.get(..RECORD_CHECKSUM_AT)?;
        let mut decoder = Decoder::new(head);
        if decoder.u8()? != RECORD_MAGIC {
            return None;
        }
        let header = Self {
            kind: decoder.u8()?,
            mask: decoder.u16()?,
            payload_bytes: decoder.u32()?,
            first_seqno: decoder.u64()?,
            durable_to: decoder.u64()?,
            predecessor: decoder.u32()?,
            payload_checksum: decoder.u32()?,
        };
        (decoder.u32()? == binding.at(offset).with(covered).value()).then_some(header)
    }

    /// Length of the whole record, in bytes.
    pub(crate) fn record_bytes(&self) -> u64 {
        u64::from(self.payload_bytes) + RECORD_OVERHEAD_BYTES as u64
    }
}
