//! The format of a sidecar: its head and its footer. `docs/format/sidecar.md` specifies the bytes;
//! a test keeps the two in agreement.
//!
//! ```text
//! head | filter region | directory | footer
//! ```
//!
//! Every block is framed as in a table. Its checksum is bound to the random ids of the table and of
//! the sidecar, so a block of another sidecar fails, even of the same table.

use trommel_base::codec::{put_u16, put_u32, put_u64};
use trommel_base::{Checksum, Decoder};

use crate::format::{BlockKind, Fault, place};

/// The first eight bytes of every sidecar.
pub const HEAD_MAGIC: [u8; 8] = *b"TromFlt\xf6";
/// The last eight bytes of every sidecar.
pub const FOOTER_MAGIC: [u8; 8] = *b"TromFlt\xf7";
/// The version this crate writes, and the only one it reads.
pub const VERSION: u16 = 1;
/// Length of the head in bytes.
pub const HEAD_BYTES: usize = 32;
/// Length of the footer in bytes.
pub const FOOTER_BYTES: usize = 72;

/// Feature bits that this build supports: none is defined yet.
const KNOWN_FEATURES: u64 = 0;

/// The footer of a sidecar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SidecarFooter {
    /// Random id of its table.
    pub table_id: u64,
    /// Random id of the sidecar.
    pub sidecar_id: u64,
    /// Distinct user keys of the table.
    pub keys: u64,
    /// Bytes of the table's data blocks.
    pub data_bytes: u64,
    /// Bytes of the filter region; 0 if the table is to have no filter.
    pub region_bytes: u64,
    /// Bytes of the directory block.
    pub directory_bytes: u64,
    /// Features that a reader must support.
    pub features: u64,
}

impl SidecarFooter {
    /// The id that the checksums of the sidecar's blocks are bound to.
    pub fn binding(&self) -> u64 {
        binding(self.table_id, self.sidecar_id)
    }

    /// The file's length according to its parts; `None` beyond 64 bits.
    pub fn file_bytes(&self) -> Option<u64> {
        let parts = [self.region_bytes, self.directory_bytes];
        parts.into_iter().try_fold((HEAD_BYTES + FOOTER_BYTES) as u64, u64::checked_add)
    }

    /// First byte of the filter region.
    pub fn region_offset(&self) -> u64 {
        HEAD_BYTES as u64
    }

    /// First byte of the directory. Meaningful for a decoded footer.
    pub fn directory_offset(&self) -> u64 {
        self.region_offset() + self.region_bytes
    }

    /// The head of the same file.
    pub fn head(&self) -> [u8; HEAD_BYTES] {
        let mut out = Vec::with_capacity(HEAD_BYTES);
        out.extend_from_slice(&HEAD_MAGIC);
        put_u64(&mut out, self.table_id);
        put_u64(&mut out, self.sidecar_id);
        put_u16(&mut out, VERSION);
        put_u16(&mut out, !VERSION);
        let sum = checksum(self.binding(), 0, HEAD_BYTES, VERSION, &out);
        put_u32(&mut out, sum);
        let mut head = [0; HEAD_BYTES];
        for (to, from) in head.iter_mut().zip(out) {
            *to = from;
        }
        head
    }

    /// Appends the footer, which starts at `offset` of its file.
    pub fn encode(&self, offset: u64, out: &mut Vec<u8>) {
        let start = out.len();
        for word in [
            self.table_id,
            self.sidecar_id,
            self.keys,
            self.data_bytes,
            self.region_bytes,
            self.directory_bytes,
            self.features,
        ] {
            put_u64(out, word);
        }
        let words = out.get(start..).unwrap_or_default();
        put_u32(out, checksum(self.binding(), offset, FOOTER_BYTES, VERSION, words));
        put_u16(out, VERSION);
        put_u16(out, !VERSION);
        out.extend_from_slice(&FOOTER_MAGIC);
    }

    /// Reads the footer from the last [`FOOTER_BYTES`] bytes of a file of `file_bytes` bytes.
    pub(super) fn decode(bytes: &[u8], file_bytes: u64) -> Result<Self, Fault> {
        const SHORT: Fault = Fault::Damaged("the sidecar is shorter than its head and footer");
        let offset = file_bytes.checked_sub(FOOTER_BYTES as u64).ok_or(SHORT)?;
        let (words, ends) = bytes.split_at_checked(FOOTER_BYTES - 16).ok_or(SHORT)?;
        let mut ends = Decoder::new(ends);
        let (sum, version) = (ends.u32().ok_or(SHORT)?, ends.u16().ok_or(SHORT)?);
        let complement = ends.u16().ok_or(SHORT)?;
        if ends.rest() != FOOTER_MAGIC {
            return Err(Fault::Damaged(
                "this is not the end of a filter sidecar (wrong magic bytes)",
            ));
        }
        if version != !complement {
            return Err(Fault::Damaged("the footer's version disagrees with its complement"));
        }
        if version != VERSION {
            return Err(Fault::Unsupported(
                "the sidecar is of a version that this build does not know; use a newer one",
            ));
        }
        let mut words = Decoder::new(words);
        let covered = words.rest();
        let mut word = || words.u64().ok_or(SHORT);
        let footer = Self {
            table_id: word()?,
            sidecar_id: word()?,
            keys: word()?,
            data_bytes: word()?,
            region_bytes: word()?,
            directory_bytes: word()?,
            features: word()?,
        };
        if checksum(footer.binding(), offset, FOOTER_BYTES, version, covered) != sum {
            return Err(Fault::Damaged("the sidecar's footer fails its checksum"));
        }
        if footer.features & !KNOWN_FEATURES != 0 {
            return Err(Fault::Unsupported(
                "the sidecar needs a feature that this build does not have; use a newer one",
            ));
        }
        if footer.file_bytes() != Some(file_bytes) {
            return Err(Fault::Damaged("the sidecar's parts do not add up to the file's length"));
        }
        Ok(footer)
    }
}

fn binding(table_id: u64, sidecar_id: u64) -> u64 {
    table_id ^ sidecar_id.rotate_left(32)
}

/// The checksum of the head or the footer, bound like a block's, and to the version as well.
fn checksum(binding: u64, offset: u64, stored: usize, version: u16, content: &[u8]) -> u32 {
    let place = place(binding, offset, BlockKind::Sidecar, stored as u64);
    Checksum::bound_to(&[place, u64::from(version)]).with(content).value()
}
