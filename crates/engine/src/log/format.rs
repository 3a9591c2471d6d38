//! The constants of log and manifest files, tied to `docs/format/log.md` and
//! `docs/format/manifest.md` by a test. Little-endian throughout.

/// First bytes of a log. The high bit and the line ends catch a transfer as text.
pub(crate) const LOG_MAGIC: [u8; 8] = *b"\x89TRLOG\r\n";
/// First bytes of a manifest.
pub(crate) const MANIFEST_MAGIC: [u8; 8] = *b"\x89TRMAN\r\n";
/// Version of the framing, in the file header.
pub(crate) const FORMAT_VERSION: u32 = 1;
/// Required-feature bits this version understands: none are assigned yet.
pub(crate) const KNOWN_FEATURES: u64 = 0;

/// Length of the file header, in bytes.
pub(crate) const FILE_HEADER_BYTES: usize = 64;
/// Offset of the file header's checksum, which covers all bytes before it.
pub(crate) const FILE_CHECKSUM_AT: usize = 60;

/// First byte of a record: five bits set, so that no single flip makes it zero.
pub(crate) const RECORD_MAGIC: u8 = 0xd3;
/// Last byte of a record: five bits set, for the same reason.
pub(crate) const RECORD_TRAILER: u8 = 0xb5;
/// Length of a record's header, in bytes.
pub(crate) const RECORD_HEADER_BYTES: usize = 36;
/// Offset of the record header's checksum, which covers all bytes before it.
pub(crate) const RECORD_CHECKSUM_AT: usize = 32;
/// Bytes of header and trailer, in addition to the payload.
pub(crate) const RECORD_OVERHEAD_BYTES: usize = RECORD_HEADER_BYTES + 1;
/// Longest payload, in bytes.
pub(crate) const MAX_PAYLOAD_BYTES: u64 = u32::MAX as u64;

/// Kind of a record that carries a batch (in a log) or an edit (in a manifest).
pub(crate) const KIND_DATA: u8 = 1;
/// Kind of the end marker: the file has no further records.
pub(crate) const KIND_END: u8 = 2;
/// Payload of an end marker: the number of the next log, or 0.
pub(crate) const END_PAYLOAD_BYTES: usize = 8;

/// The length of a log with preallocated zeros is a multiple of this, in bytes.
pub(crate) const AHEAD_BYTES: u64 = 64 << 10;

/// Unit of data loss on a disk, in bytes.
pub(crate) const SECTOR_BYTES: u64 = 512;
/// Fewest non-zero bytes in a sector wholly inside one record.
pub(crate) const SECTOR_MIN_NONZERO: usize = 8;
