//! A range filter: whether a block of sorted keys may hold a key between two bounds.
//!
//! A sorted file is divided into blocks, and its index holds a *separator* for each: the keys of a
//! block lie between the separator before it and its own. The reader of a range filter passes these
//! two, so that the filter itself stores only where the keys are in between.
//!
//! 1. The bytes that the two separators share are dropped from each key. The next sixteen are its
//!    *infix*.
//! 2. The infix is mapped to a number by the code of [`code`]: an order-preserving code with the
//!    frequencies of bytes in these keys and in single positions of them, so that decimal digits
//!    and fields of fixed width spread as evenly as random bytes.
//! 3. The position of that number between those of the separators selects one of the *cells* of the
//!    block, of which each has the same number: `keys * 2^(bits - 2) / blocks`.
//! 4. The occupied cells of all blocks are one sorted list of numbers, stored in two bits and
//!    `log2(cells / keys)` bits each ([`elias_fano`]).
//! 5. A query maps both bounds to cells like keys, and finds out whether a cell from the first to
//!    the last is occupied.
//!
//! Every step is monotone, so a key between two bounds is in a cell between theirs: the answer "no"
//! is always correct. An empty range is answered "maybe" if it ends in the cell of a neighbouring
//! key. For keys that spread evenly within their block, that is the share of occupied cells,
//! however long the range is, about `2^(2 - bits)`. Keys may also crowd in few cells of their
//! block: the rate that the filter states includes that ([`rate`]). A "maybe" is certain for a
//! range that begins or ends within a cell's width of a key: a filter of any kind that
//! distinguishes keys so close takes more bits.
//!
//! Sources: infixes between sampled keys are those of Diva (Eslami and others, "Diva: Dynamic Range
//! Filter for Var-Length Keys and Queries", VLDB 2025), whose samples are here the separators of an
//! index that exists anyway; the sorted list is that of Elias and Fano, as in SNARF (Vaidya and
//! others, VLDB 2022) and Grafite (Costa and others, SIGMOD 2024).

mod builder;
mod code;
mod elias_fano;
mod rate;
mod spec;
#[cfg(test)]
mod tests;

use crate::DecodeError;
use crate::format::{HEADER_BYTES, array, checksum};

pub use builder::RangeFilterBuilder;
use code::{Code, infix};
use elias_fano::Sorted;
pub use spec::RangeSpec;

/// The first four bytes of every range filter.
const MAGIC: [u8; 4] = *b"TrRf";
/// Number and version of the family.
const FAMILY: (u8, u8) = (1, 1);
/// Offset of the checksum.
const CHECKSUM_AT: usize = crate::format::CHECKSUM_AT;
/// Most cells of a filter.
const MOST_CELLS: u64 = 1 << 48;

/// The bounds of the keys of one block: none is before `first`, and none is after `last`.
#[derive(Debug, Clone, Copy)]
pub struct BlockEnds<'a> {
    /// The separator before the block, or the first key of all.
    pub first: &'a [u8],
    /// The separator after the block.
    pub last: &'a [u8],
}

impl BlockEnds<'_> {
    /// Length of the bytes that all keys of the block begin with.
    #[inline]
    fn shared(&self) -> usize {
        self.first.iter().zip(self.last).take_while(|(a, b)| a == b).count()
    }
}

/// Where the keys of a number of blocks are.
///
/// ```
/// use trommel_filter::{BlockEnds, RangeFilter, RangeSpec};
///
/// let key = |n: u32| format!("{n:06}").into_bytes();
/// let mut builder = "infix:10".parse::<RangeSpec>()?.builder();
/// (0..100).for_each(|n| builder.add(&key(n * 7919)));
/// let (first, last) = (key(0), key(99 * 7919));
/// let ends = BlockEnds { first: &first, last: &last };
/// builder.end_block(ends);
/// let filter = RangeFilter::decode(&builder.finish())?;
///
/// assert!(filter.may_hold(0, ends, &key(7919), Some(&key(7920))));
/// assert!(!filter.may_hold(0, ends, &key(10_000), Some(&key(12_000))));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct RangeFilter {
    header: RangeHeader,
    code: Code,
    occupied: Sorted,
}

/// The decoded header.
#[derive(Debug, Clone, Copy, PartialEq)]
struct RangeHeader {
    millibits: u32,
    blocks: u32,
    keys: u64,
    /// Occupied cells.
    occupied: u64,
    /// Cells of each block.
    cells: u64,
    /// Bits of an occupied cell's number that are stored as they are.
    low_bits: u8,
    expected_fpr: f64,
}

impl RangeHeader {
    fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4..7].copy_from_slice(&[FAMILY.0, FAMILY.1, self.low_bits]);
        bytes[8..12].copy_from_slice(&self.millibits.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.blocks.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.keys.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.occupied.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.cells.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.expected_fpr.to_bits().to_le_bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8; HEADER_BYTES]) -> Result<Self, DecodeError> {
        let (family, version) = (bytes[4], bytes[5]);
        if (family, version) != FAMILY || bytes[7] != 0 || bytes[48..CHECKSUM_AT] != [0; 8] {
            return Err(DecodeError::Unknown { family, version, flags: u16::from(bytes[7]) });
        }
        let header = Self {
            low_bits: bytes[6],
            millibits: u32::from_le_bytes(array(bytes, 8)),
            blocks: u32::from_le_bytes(array(bytes, 12)),
            keys: u64::from_le_bytes(array(bytes, 16)),
            occupied: u64::from_le_bytes(array(bytes, 24)),
            cells: u64::from_le_bytes(array(bytes, 32)),
            expected_fpr: f64::from_bits(u64::from_le_bytes(array(bytes, 40))),
        };
        header.check()?;
        Ok(header)
    }

    /// Rejects headers that no builder writes.
    fn check(&self) -> Result<(), DecodeError> {
        let what = if !spec::MILLIBITS.contains(&self.millibits) {
            "its bits per key are out of range"
        } else if self.all_cells().is_none_or(|all| all > MOST_CELLS || self.occupied > all) {
            "its number of cells is out of range"
        } else if self.occupied > self.keys || (self.keys == 0) != (self.occupied == 0) {
            "its numbers of cells and keys contradict each other"
        } else if self.low_bits >= 48 {
            "its cells have too many low bits"
        } else if !(0.0..=1.0).contains(&self.expected_fpr) {
            "its expected rate is not a probability"
        } else {
            return Ok(());
        };
        Err(DecodeError::Damaged { what })
    }

    /// Cells of all blocks.
    fn all_cells(&self) -> Option<u64> {
        u64::from(self.blocks).checked_mul(self.cells)
    }
}

impl RangeFilter {
    /// Validates and decodes the output of [`RangeFilterBuilder::finish`]. Allocates no more than
    /// [`most_memory_bytes`](Self::most_memory_bytes) of the length of `bytes`.
    ///
    /// # Errors
    /// [`DecodeError::Damaged`] if the bytes are not a valid filter, [`DecodeError::Unknown`] if a
    /// later version wrote them. In both cases continue without the filter: treat every range as
    /// possibly not empty.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let damaged = |what| DecodeError::Damaged { what };
        let Some((head, body)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
            return Err(damaged("it is shorter than its header"));
        };
        if head[..4] != MAGIC {
            return Err(damaged("it does not start with the magic number of a range filter"));
        }
        if checksum(&head[..CHECKSUM_AT], body) != u64::from_le_bytes(array(head, CHECKSUM_AT)) {
            return Err(damaged("its checksum does not match"));
        }
        let header = RangeHeader::from_bytes(head)?;
        let (code, words) =
            Code::decode(body).ok_or(damaged("its frequencies of bytes make no sense"))?;
        let all = header.all_cells().unwrap_or_default();
        let occupied = Sorted::decode(words, header.occupied, all, header.low_bits)
            .ok_or(damaged("its list of cells makes no sense"))?;
        Ok(Self { header, code, occupied })
    }

    /// Whether block `block`, whose keys lie between these `ends`, may hold a key from `from` to
    /// before `to` (to the last key, if that is `None`): always true if it does. The blocks are
    /// counted from 0 in the order of [`RangeFilterBuilder::end_block`], and `ends` must be those
    /// passed there. True for a block that the filter does not know.
    pub fn may_hold(
        &self,
        block: usize,
        ends: BlockEnds<'_>,
        from: &[u8],
        to: Option<&[u8]>,
    ) -> bool {
        if block >= self.header.blocks as usize {
            return true;
        }
        if *from > *ends.last || to.is_some_and(|to| to <= from || *to <= *ends.first) {
            return false;
        }
        let scale = Scale::new(&self.code, ends, self.header.cells);
        let first = if *from <= *ends.first { 0 } else { scale.cell_of(&self.code, from) };
        let last = match to {
            Some(to) if *to <= *ends.last => scale.cell_of(&self.code, to),
            _ => self.header.cells.saturating_sub(1),
        };
        let before = block as u64 * self.header.cells;
        self.occupied.has_any(before + first, before + last)
    }

    /// Number of blocks.
    pub fn blocks(&self) -> usize {
        self.header.blocks as usize
    }

    /// Keys that were added.
    pub fn keys(&self) -> u64 {
        self.header.keys
    }

    /// The expected rate of "maybe" for ranges of one missing key, if that is like the present
    /// ones, as if some of the keys had been left out: the share of keys that have their cell in
    /// common with another one. At least the share of occupied cells, which is the rate for ranges
    /// that are spread evenly. It says nothing of longer empty ranges: where keys and ranges are
    /// spread evenly their rate is the same, elsewhere it may be lower or higher.
    pub fn expected_fpr(&self) -> f64 {
        self.header.expected_fpr
    }

    /// Bits per key requested when the filter was built.
    pub fn requested_bits_per_key(&self) -> f64 {
        f64::from(self.header.millibits) / 1000.0
    }

    /// Bytes of memory held by the filter.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.code.heap_bytes() + self.occupied.heap_bytes()
    }

    /// Most bytes of memory that a filter of `stored` bytes takes.
    pub fn most_memory_bytes(stored: usize) -> usize {
        size_of::<Self>()
            + code::most_heap_bytes(stored)
            + stored
            + elias_fano::most_hint_bytes(stored)
    }

    /// The expected rate in the header of a filter that was just
    /// [finished](RangeFilterBuilder::finish), without the checks of [`decode`](Self::decode); 1 if
    /// the bytes are not a filter.
    pub fn peek_expected_fpr(finished: &[u8]) -> f64 {
        let head = finished.first_chunk::<HEADER_BYTES>();
        head.map_or(1.0, |head| f64::from_bits(u64::from_le_bytes(array(head, 40))))
    }
}

/// The cells of one block.
struct Scale {
    /// Where infixes begin: after the bytes that its keys share.
    at: usize,
    /// The numbers of its ends.
    first: u64,
    span: f64,
    cells: u64,
}

impl Scale {
    fn new(code: &Code, ends: BlockEnds<'_>, cells: u64) -> Self {
        let at = ends.shared();
        Self::of_infixes(code, at, [infix(ends.first, at), infix(ends.last, at)], cells)
    }

    fn of_infixes(code: &Code, at: usize, ends: [u128; 2], cells: u64) -> Self {
        let [first, last] = ends.map(|end| code.number(end, at));
        Self { at, first, span: last.saturating_sub(first) as f64, cells }
    }

    /// The cell of a key between the ends of the block.
    #[inline]
    fn cell_of(&self, code: &Code, key: &[u8]) -> u64 {
        self.cell(code.number(infix(key, self.at), self.at))
    }

    /// The cell of a number. Each operation on the floating-point numbers is rounded correctly, and
    /// so monotone, and the same on every machine.
    #[inline]
    fn cell(&self, number: u64) -> u64 {
        if self.span == 0.0 {
            return 0;
        }
        let share = number.saturating_sub(self.first) as f64 / self.span;
        ((share * self.cells as f64) as u64).min(self.cells.saturating_sub(1))
    }
}
