//! The constants of traces, which are [framed](crate::framed), and the contents of a block.
//! Specified in docs/format/trace.md.

use std::cmp::Ordering;

use trommel_base::codec::{put_bytes, put_u64, put_varint};
use trommel_base::{Decoder, MAX_KEY_BYTES};

use super::{Outcome, Place, TraceInfo, TracedLookup};
use crate::framed::Form;

/// The first bytes of a trace. (The high bit, name and line ends detect transfers that change
/// bytes.)
pub const MAGIC: [u8; 8] = [0x89, b'T', b'R', b'T', b'R', b'C', 0x0d, 0x0a];
/// Most lookups that one entry counts.
pub const MAX_TIMES: u64 = 1 << 48;
/// The current version.
pub(super) const VERSION: u32 = 1;
/// The framed form of a trace.
pub(super) const FORM: Form =
    Form { magic: MAGIC, version: VERSION, features: 0, name: "trace of lookups" };
/// A block of lookups.
pub(super) const KIND_LOOKUPS: u32 = 1;
/// The trace's description: the first frame.
pub(super) const KIND_ABOUT: u32 = 3;
/// Bytes of that frame's payload.
pub(super) const ABOUT_BYTES: usize = 16;
/// A block is closed once it has this many bytes of keys,
pub(super) const BLOCK_KEY_BYTES: usize = 256 << 10;
/// or this many lookups.
pub(super) const BLOCK_LOOKUPS: usize = 16 << 10;
/// Largest payload: a nearly full block of keys and the longest key, and 14 bytes for each.
pub(super) const MAX_PAYLOAD_BYTES: u64 =
    (BLOCK_KEY_BYTES + MAX_KEY_BYTES + BLOCK_LOOKUPS * 14) as u64;
/// Largest sampling interval.
pub(super) const MAX_SAMPLE: u64 = 1 << 32;

/// The first outcome byte of a level.
const FIRST_LEVEL: u8 = 2;
/// The deepest level.
const DEEPEST: u8 = 6;
/// Set if the key has a value.
const FOUND: u8 = 0x80;

impl TraceInfo {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(ABOUT_BYTES);
        put_u64(&mut bytes, self.store_id);
        put_u64(&mut bytes, self.sample);
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = Decoder::new(bytes);
        let info = Self { store_id: fields.u64()?, sample: fields.u64()? };
        ((1..=MAX_SAMPLE).contains(&info.sample) && fields.is_empty()).then_some(info)
    }
}

impl Outcome {
    /// Its byte; `None` for an impossible outcome or level.
    pub(super) fn encode(self) -> Option<u8> {
        let found = if self.found { FOUND } else { 0 };
        match self.place {
            Place::Nowhere if self.found => None,
            Place::Nowhere => Some(0),
            Place::Memory => Some(1 | found),
            Place::Level(level) if level <= DEEPEST => Some((FIRST_LEVEL + level) | found),
            Place::Level(_) => None,
        }
    }

    pub(super) fn decode(byte: u8) -> Option<Self> {
        let place = match byte & !FOUND {
            0 => Place::Nowhere,
            1 => Place::Memory,
            other => Place::Level(other - FIRST_LEVEL),
        };
        let outcome = Self { place, found: byte & FOUND != 0 };
        outcome.encode().map(|_| outcome)
    }
}

/// Appends lookups of `key`; `last` is the previous key of the block.
pub(super) fn put_lookup(out: &mut Vec<u8>, last: &[u8], key: &[u8], outcome: u8, times: u64) {
    let shared = last.iter().zip(key).take_while(|(a, b)| a == b).count();
    put_varint(out, shared as u64);
    put_bytes(out, &key[shared..]);
    out.push(outcome);
    put_varint(out, times);
}

/// Iterates over the payload of a block, which may be arbitrary bytes.
#[derive(Debug, Clone, Default)]
pub(super) struct BlockLookups {
    /// The last lookup's key, and its outcome's byte.
    key: Vec<u8>,
    outcome: Option<u8>,
}

impl BlockLookups {
    /// Decodes the next lookup from `rest`; `None` if no writer wrote it. Reads no more than the
    /// entry, whatever length its key claims.
    pub(super) fn next(&mut self, rest: &mut Decoder<'_>) -> Option<TracedLookup<'_>> {
        let shared = rest.length(self.key.len())?;
        let suffix = rest.bytes(MAX_KEY_BYTES - shared)?;
        let (byte, times) = (rest.u8()?, rest.varint()?);
        let outcome = Outcome::decode(byte)?;
        let order = match self.outcome {
            None => Ordering::Greater,
            Some(last) => suffix.cmp(&self.key[shared..]).then(byte.cmp(&last)),
        };
        if order.is_le() || !(1..=MAX_TIMES).contains(&times) {
            return None;
        }
        self.key.truncate(shared);
        self.key.extend_from_slice(suffix);
        self.outcome = Some(byte);
        Some(TracedLookup { key: &self.key, outcome, times })
    }

    /// Restarts before the first lookup.
    pub(super) fn restart(&mut self) {
        self.key.clear();
        self.outcome = None;
    }
}

/// Whether a payload is a run of entries, in order, whose counts sum to `lookups`.
pub(super) fn is_whole(payload: &[u8], lookups: u64) -> bool {
    let (mut rest, mut entries) = (Decoder::new(payload), BlockLookups::default());
    let mut sum = 0_u64;
    while !rest.is_empty() {
        let Some(lookup) = entries.next(&mut rest) else { return false };
        let Some(more) = sum.checked_add(lookup.times) else { return false };
        sum = more;
    }
    sum == lookups
}
