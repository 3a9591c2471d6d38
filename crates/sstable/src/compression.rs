//! Compression of a block's payload: none, LZ4, or zstd (feature `zstd`).
//!
//! A compressed payload is the raw length in 4 bytes, then the compressed bytes. The declared
//! length is checked against the most that the bytes can decompress to before anything is
//! allocated, and decompression must fill it exactly.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use trommel_base::Decoder;
use trommel_base::codec::put_u32;

use crate::format::{FEATURE_LZ4, Fault, MAX_COMPRESSED_RAW_BYTES};

const NONE: u8 = 0;
const LZ4: u8 = 1;
const ZSTD: u8 = 2;

/// Most raw bytes that one byte of LZ4 can expand to.
const LZ4_MAX_RATIO: usize = 255;
/// Length of the raw-length field.
const RAW_LENGTH_BYTES: usize = 4;

/// Compression of the data blocks of a new table. A block is stored compressed only if that saves
/// at least an eighth of it, so incompressible data costs no decompression.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Compression {
    /// No compression.
    None,
    /// LZ4 blocks: cheap to write, nearly free to read.
    #[default]
    Lz4,
    /// Zstandard at this level (1 to 19).
    #[cfg(feature = "zstd")]
    Zstd(u8),
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            #[cfg(feature = "zstd")]
            Self::Zstd(level) => write!(f, "zstd({level})"),
            _ => f.pad(self.name()),
        }
    }
}

impl FromStr for Compression {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        #[cfg(feature = "zstd")]
        if let Some(level) = text.strip_prefix("zstd(").and_then(|rest| rest.strip_suffix(')')) {
            return Ok(Self::Zstd(level.parse().map_err(|_| format!("\"{level}\" is no level"))?));
        }
        match text {
            "none" => Ok(Self::None),
            "lz4" => Ok(Self::Lz4),
            _ => Err("a compression that this program does not know".to_owned()),
        }
    }
}

impl Compression {
    /// The name stored in the table's properties.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Lz4 => "lz4",
            #[cfg(feature = "zstd")]
            Self::Zstd(_) => "zstd",
        }
    }

    /// Compresses `raw` into `out` (cleared first). Returns the block's compression byte and the
    /// feature bit that a reader needs, or `None` if compression does not pay.
    pub(crate) fn compress(self, raw: &[u8], out: &mut Vec<u8>) -> Option<(u8, u64)> {
        if self == Self::None || raw.len() > MAX_COMPRESSED_RAW_BYTES {
            return None;
        }
        out.clear();
        put_u32(out, u32::try_from(raw.len()).ok()?);
        let (number, feature) = match self {
            Self::None => return None,
            Self::Lz4 => {
                let bound = lz4_flex::block::get_maximum_output_size(raw.len());
                out.resize(RAW_LENGTH_BYTES + bound, 0);
                let room = out.get_mut(RAW_LENGTH_BYTES..)?;
                let bytes = lz4_flex::block::compress_into(raw, room).ok()?;
                out.truncate(RAW_LENGTH_BYTES + bytes);
                (LZ4, FEATURE_LZ4)
            }
            #[cfg(feature = "zstd")]
            Self::Zstd(level) => {
                out.extend(zstd::bulk::compress(raw, i32::from(level)).ok()?);
                (ZSTD, crate::format::FEATURE_ZSTD)
            }
        };
        (out.len() <= raw.len() - raw.len() / 8).then_some((number, feature))
    }
}

/// The name for a valid compression byte.
pub(crate) fn name_of(number: u8) -> &'static str {
    match number {
        LZ4 => "lz4",
        ZSTD => "zstd",
        _ => "none",
    }
}

/// Whether a block with this compression byte is uncompressed.
#[inline]
pub(crate) fn is_raw(number: u8) -> bool {
    number == NONE
}

/// Decompresses a payload into a buffer of its own.
pub(crate) fn decompress(payload: &[u8], number: u8) -> Result<Arc<[u8]>, Fault> {
    const DAMAGED: Fault = Fault::Damaged("a compressed block does not decompress");
    let mut decoder = Decoder::new(payload);
    let raw_bytes = decoder.u32().ok_or(DAMAGED)? as usize;
    let packed = decoder.rest();
    let possible = match number {
        LZ4 => packed.len().saturating_mul(LZ4_MAX_RATIO),
        ZSTD if cfg!(feature = "zstd") => usize::MAX,
        _ => return Err(Fault::Unsupported("a block's compression is not known to this build")),
    };
    if raw_bytes > possible.min(MAX_COMPRESSED_RAW_BYTES) {
        return Err(Fault::Damaged("a compressed block declares an impossible length"));
    }
    let mut raw = zeroed(raw_bytes);
    let room = Arc::get_mut(&mut raw).ok_or(DAMAGED)?;
    let written = match number {
        #[cfg(feature = "zstd")]
        ZSTD => zstd::bulk::decompress_to_buffer(packed, room).ok(),
        _ => lz4_flex::block::decompress_into(packed, room).ok(),
    };
    if written != Some(raw_bytes) {
        return Err(DAMAGED);
    }
    Ok(raw)
}

/// A buffer of zeros with no other owner, in one allocation.
pub(crate) fn zeroed(bytes: usize) -> Arc<[u8]> {
    std::iter::repeat_n(0, bytes).collect()
}
