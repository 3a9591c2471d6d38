//! The encoding of a filter: a 64-byte header and a body of 64-byte blocks. The page
//! `docs/format/filter.md` describes every byte. This file holds its constants, and only this file
//! reads or writes them. Golden files tie the two together.
//!
//! 1. The checksum is verified first. It covers every byte but its own, and has the same offset in
//!    all families and versions, so that corruption is distinguished from a filter of a later
//!    version.
//! 2. Then family, version and flags: unknown ones are [`DecodeError::Unknown`].
//! 3. Then the parameters: a value that no builder writes is corruption, even if the checksum is
//!    right.
//!
//! Nothing is allocated before the length of the input has been compared with the header, and then
//! at most that length.

use alloc::vec::Vec;
use core::fmt;
use core::mem::MaybeUninit;

use xxhash_rust::xxh3::Xxh3;

use crate::block::{BLOCK_BYTES, Block};
use crate::kind::{FilterKind, MAX_MILLIBITS, MIN_MILLIBITS};

/// The first four bytes of every filter.
pub(crate) const MAGIC: [u8; 4] = *b"TrFl";
/// Bytes of the header; the body starts here.
pub(crate) const HEADER_BYTES: usize = 64;
/// Offset of the checksum: the last eight bytes of the header.
pub(crate) const CHECKSUM_AT: usize = 56;
/// Bytes that are read at a time: whole blocks, on the stack.
const TURN_BYTES: usize = 64 * BLOCK_BYTES;
/// The most probes that a filter can have.
pub(crate) const MAX_PROBES: u32 = 64;

/// The identification of a family in bytes 4 to 6.
struct Family {
    kind: FilterKind,
    number: u8,
    /// The version that this code writes, and the only one that it reads.
    version: u8,
    /// `log2` of the blocks of a full batch of the paired family.
    batch_log2: u8,
}

impl Family {
    /// The family of a kind, which must not be [`FilterKind::None`].
    fn of(kind: FilterKind) -> Self {
        let (number, version, batch_log2) = match kind {
            FilterKind::None => unreachable!("a spec of no filter builds none"),
            FilterKind::Standard => (1, 1, 0),
            FilterKind::Blocked => (2, 2, 0),
            FilterKind::Paired => (3, 2, 7),
            FilterKind::Ribbon => (4, 1, 0),
            FilterKind::Fuse => (5, 1, 0),
        };
        Self { kind, number, version, batch_log2 }
    }

    /// All families.
    fn all() -> impl Iterator<Item = Self> {
        FilterKind::ALL.into_iter().map(Self::of)
    }
}

/// Why bytes are not a filter. Without the filter, treat every query as a "maybe": a reader that
/// continues without it loses time, never a key.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum DecodeError {
    /// No builder wrote these bytes.
    Damaged {
        /// Completes the sentence "the filter is damaged: ...".
        what: &'static str,
    },
    /// The bytes are intact, but of a family, version or option that this version of the crate does
    /// not know.
    Unknown {
        /// The family's number.
        family: u8,
        /// The family's version.
        version: u8,
        /// The option bits.
        flags: u16,
    },
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Damaged { what } => write!(f, "the filter is damaged: {what}"),
            Self::Unknown { family, version, flags } => write!(
                f,
                "the filter is of a kind this version does not know \
                 (family {family}, version {version}, flags {flags:#06x})"
            ),
        }
    }
}

impl core::error::Error for DecodeError {}

/// The decoded header.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Header {
    pub(crate) kind: FilterKind,
    pub(crate) probes: u32,
    pub(crate) millibits: u32,
    pub(crate) blocks: u64,
    pub(crate) keys: u64,
    pub(crate) expected_fpr: f64,
}

/// The expected rate in a header, unvalidated.
pub(crate) fn peek_expected_fpr(bytes: &[u8]) -> Option<f64> {
    let field = bytes.get(32..40)?.try_into().ok()?;
    Some(f64::from_bits(u64::from_le_bytes(field)))
}

/// The kind in a header, unvalidated; `None` if no family has that number.
pub(crate) fn peek_kind(bytes: &[u8]) -> Option<FilterKind> {
    let number = *bytes.get(4)?;
    Family::all().find(|family| family.number == number).map(|family| family.kind)
}

impl Header {
    fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let family = Family::of(self.kind);
        let mut bytes = [0; HEADER_BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4..7].copy_from_slice(&[family.number, family.version, family.batch_log2]);
        bytes[7] = self.probes as u8;
        bytes[12..16].copy_from_slice(&self.millibits.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.blocks.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.keys.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.expected_fpr.to_bits().to_le_bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8; HEADER_BYTES]) -> Result<Self, DecodeError> {
        let (family, version) = (bytes[4], bytes[5]);
        let flags = u16::from_le_bytes(array(bytes, 8));
        let unknown = DecodeError::Unknown { family, version, flags };
        let known = |known: &Family| {
            [known.number, known.version, known.batch_log2] == bytes[4..7] && flags == 0
        };
        let kind = Family::all().find(known).ok_or(unknown.clone())?.kind;
        if bytes[10..12] != [0; 2] || bytes[40..CHECKSUM_AT] != [0; 16] {
            return Err(unknown);
        }
        let header = Self {
            kind,
            probes: u32::from(bytes[7]),
            millibits: u32::from_le_bytes(array(bytes, 12)),
            blocks: u64::from_le_bytes(array(bytes, 16)),
            keys: u64::from_le_bytes(array(bytes, 24)),
            expected_fpr: f64::from_bits(u64::from_le_bytes(array(bytes, 32))),
        };
        header.check()?;
        Ok(header)
    }

    /// Rejects headers that no builder writes.
    fn check(&self) -> Result<(), DecodeError> {
        let even =
            self.probes.is_multiple_of(2) && (self.blocks < 2 || self.blocks.is_multiple_of(2));
        let what = if !(1..=MAX_PROBES).contains(&self.probes) {
            "its number of probes is out of range"
        } else if !(MIN_MILLIBITS..=MAX_MILLIBITS).contains(&self.millibits) {
            "its bits per key are out of range"
        } else if (self.blocks == 0) != (self.keys == 0) {
            "its numbers of blocks and keys contradict each other"
        } else if !(0.0..=1.0).contains(&self.expected_fpr) {
            "its expected rate is not a probability"
        } else if self.kind == FilterKind::Paired && !even {
            "it is paired, but its number of blocks or probes is odd"
        } else {
            return Ok(());
        };
        Err(DecodeError::Damaged { what })
    }
}

/// `N` bytes of a header from offset `at`. Both are constants within the header.
pub(crate) fn array<const N: usize, const HEADER: usize>(
    bytes: &[u8; HEADER],
    at: usize,
) -> [u8; N] {
    core::array::from_fn(|i| bytes[at + i])
}

/// XXH3 over the header up to the checksum, and over the body.
pub(crate) fn checksum(header: &[u8], body: &[u8]) -> u64 {
    let mut hasher = Xxh3::new();
    hasher.update(header);
    hasher.update(body);
    hasher.digest()
}

/// The encoded filter.
pub(crate) fn encode(header: Header, blocks: &[Block]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER_BYTES + blocks.len() * BLOCK_BYTES);
    bytes.extend_from_slice(&header.to_bytes());
    for block in blocks {
        bytes.extend_from_slice(&block.to_le_bytes());
    }
    let sum = checksum(&bytes[..CHECKSUM_AT], &bytes[HEADER_BYTES..]);
    bytes[CHECKSUM_AT..HEADER_BYTES].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// Like [`read`], from memory.
pub(crate) fn decode(
    bytes: &[u8],
    prepare: impl FnOnce(&mut [MaybeUninit<Block>]),
) -> Result<(Header, Vec<Block>), DecodeError> {
    let mut left = bytes;
    let fill = |turn: &mut [u8]| {
        let (first, rest) = left.split_at_checked(turn.len()).ok_or(())?;
        turn.copy_from_slice(first);
        left = rest;
        Ok::<(), ()>(())
    };
    let read = read(fill, bytes.len(), prepare);
    read.unwrap_or(Err(DecodeError::Damaged { what: "it is truncated" }))
}

/// Reads the header and blocks of a filter of `bytes` bytes, which `fill` fetches in turn. Checks
/// specific to one family (a pair table, the shape of shards) are left to that family.
///
/// `prepare` gets the memory for the blocks before anything is written to it.
pub(crate) fn read<E>(
    mut fill: impl FnMut(&mut [u8]) -> Result<(), E>,
    bytes: usize,
    prepare: impl FnOnce(&mut [MaybeUninit<Block>]),
) -> Result<Result<(Header, Vec<Block>), DecodeError>, E> {
    let damaged = |what| Ok(Err(DecodeError::Damaged { what }));
    let Some(mut left) = bytes.checked_sub(HEADER_BYTES) else {
        return damaged("it is shorter than its header");
    };
    let mut head = [0; HEADER_BYTES];
    fill(&mut head)?;
    if head[..4] != MAGIC {
        return damaged("it does not start with the magic number of a filter");
    }
    // Not yet validated: it only determines whether the rest is worth storing.
    let blocks = u64::from_le_bytes(array(&head, 16));
    let fits = blocks.checked_mul(BLOCK_BYTES as u64) == Some(left as u64);
    let mut body = Vec::with_capacity(if fits { left / BLOCK_BYTES } else { 0 });
    prepare(body.spare_capacity_mut());
    let mut hasher = Xxh3::new();
    hasher.update(&head[..CHECKSUM_AT]);
    let mut turn = [0; TURN_BYTES];
    while left > 0 {
        let turn = &mut turn[..left.min(TURN_BYTES)];
        fill(turn)?;
        hasher.update(turn);
        if fits {
            body.extend(turn.as_chunks().0.iter().map(Block::from_le_bytes));
        }
        left -= turn.len();
    }
    if hasher.digest() != u64::from_le_bytes(array(&head, CHECKSUM_AT)) {
        return damaged("its checksum does not match");
    }
    Ok(Header::from_bytes(&head).and_then(|header| match fits {
        true => Ok((header, body)),
        false => Err(DecodeError::Damaged { what: "its length does not match its header" }),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Filter;

    fn filter() -> Vec<u8> {
        let mut builder = crate::FilterSpec::new(FilterKind::Paired, 10.0).unwrap().builder();
        (0..500_u32).for_each(|n| builder.add(&n.to_le_bytes()));
        builder.finish()
    }

    /// A modified filter with a valid checksum.
    fn forged(change: impl FnOnce(&mut Vec<u8>)) -> Result<Filter, DecodeError> {
        reforged(filter(), change)
    }

    fn reforged(
        mut bytes: Vec<u8>,
        change: impl FnOnce(&mut Vec<u8>),
    ) -> Result<Filter, DecodeError> {
        change(&mut bytes);
        let sum = checksum(&bytes[..CHECKSUM_AT], &bytes[HEADER_BYTES..]);
        bytes[CHECKSUM_AT..HEADER_BYTES].copy_from_slice(&sum.to_le_bytes());
        Filter::decode(bytes)
    }

    fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
        bytes[at..at + value.len()].copy_from_slice(value);
    }

    #[test]
    fn a_filter_of_a_later_version_is_unknown_not_damaged() {
        assert!(forged(|_| ()).is_ok());
        for (at, value) in
            [(4, 5), (4, 0), (4, 255), (5, 1), (5, 3), (5, 0), (6, 5), (8, 1), (9, 128)]
                .into_iter()
                .chain((10..12).chain(40..56).map(|at| (at, 1)))
        {
            let error = forged(|bytes| bytes[at] = value).unwrap_err();
            assert!(matches!(error, DecodeError::Unknown { .. }), "byte {at}: {error}");
        }
        let error = forged(|bytes| put(bytes, 4, &[9, 3, 7, 8, 1, 2])).unwrap_err();
        assert_eq!(error, DecodeError::Unknown { family: 9, version: 3, flags: 0x0201 });
        assert_eq!(
            error.to_string(),
            "the filter is of a kind this version does not know (family 9, version 3, flags 0x0201)"
        );
    }

    #[test]
    fn values_that_no_builder_writes_are_damage_despite_a_right_checksum() {
        let cases: [(usize, &[u8], &str); 15] = [
            (0, b"X", "start"),
            (7, &[0], "probes"),
            (7, &[65], "probes"),
            (7, &[7], "odd"),
            (12, &[0; 4], "bits per key"),
            (12, &[0xff; 4], "bits per key"),
            (16, &[0; 8], "contradict"),
            (16, &[9], "odd"),
            (16, &[8], "length"),
            (16, &[12], "length"),
            (16, &[0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff], "length"),
            (24, &[0; 8], "contradict"),
            (32, &f64::NAN.to_bits().to_le_bytes(), "probability"),
            (32, &(-0.5_f64).to_bits().to_le_bytes(), "probability"),
            (32, &1.5_f64.to_bits().to_le_bytes(), "probability"),
        ];
        for (at, value, what) in cases {
            let error = forged(|bytes| put(bytes, at, value)).unwrap_err();
            assert!(matches!(error, DecodeError::Damaged { .. }), "{error}");
            assert!(error.to_string().contains(what), "bytes at {at}: {error}");
        }
    }

    #[test]
    fn a_wrong_pair_is_damage() {
        let blocks = (filter().len() - HEADER_BYTES) / BLOCK_BYTES;
        assert_eq!(blocks, 10);
        for block in 0..blocks {
            let at = HEADER_BYTES + block * BLOCK_BYTES;
            for partner in 0..128 {
                let known = filter()[at] & 127;
                let answer = forged(|bytes| bytes[at] = bytes[at] & 128 | partner);
                assert_eq!(answer.is_ok(), partner == known, "block {block}, partner {partner}");
            }
        }
        // A block that is its own partner, and pairs that form a ring.
        let alone = |bytes: &mut Vec<u8>| bytes[HEADER_BYTES] &= 128;
        assert!(forged(alone).is_err());
        let ring = |bytes: &mut Vec<u8>| {
            for block in 0..blocks {
                let at = HEADER_BYTES + block * BLOCK_BYTES;
                bytes[at] = bytes[at] & 128 | ((block + 1) % blocks) as u8;
            }
        };
        assert!(forged(ring).is_err());
    }

    #[test]
    fn random_bytes_with_a_right_checksum_never_panic() {
        let mut word = 1_u64;
        let mut random = || {
            word = word.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            (word >> 33) as u32
        };
        let (whole, mut opened) = (filter(), 0);
        for _ in 0..200_000 {
            let answer = reforged(whole.clone(), |bytes| {
                for _ in 0..1 + random() % 3 {
                    let at = 4 + random() as usize % 60;
                    bytes[at] = random() as u8;
                }
                if random() % 4 == 0 {
                    bytes.truncate(HEADER_BYTES + random() as usize % 640);
                }
            });
            if let Ok(filter) = answer {
                opened += 1;
                for _ in 0..4 {
                    filter.may_contain_hash(u64::from(random()) << 32 | u64::from(random()));
                }
            }
        }
        assert!(opened > 100, "some changes leave a filter");
    }
}
