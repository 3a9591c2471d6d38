//! The directory of a table's filter region: its parts, which are adjacent.
//!
//! A table with a single built-in filter of whole keys has no directory: the region is that
//! filter's block. Any other region is described by a field of the properties, one entry per part:
//!
//! ```text
//! role 1 | shape 1 | expected rate 8 | keys v | bytes v | top bytes v |
//! spec (v + bytes) | policy (v + bytes) | extractor (v + bytes)
//! ```
//!
//! (v: a varint.) An unknown policy or extractor is not an error: the reader ignores that part, and
//! answers "maybe" for every key. The same holds for an unknown role or shape of a later version:
//! the entry has the length to skip, and the other parts are queried as usual. No role occurs
//! twice.

use std::fmt;
use std::str::FromStr;

use trommel_base::Decoder;
use trommel_base::codec::{put_bytes, put_u64, put_varint};

const DAMAGED: &str = "the directory of filters makes no sense";

/// An entry of the directory.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Listed {
    /// A part that this version knows.
    Part(FilterPart),
    /// A part with a role or a shape that this version does not know.
    Later {
        /// Its stored bytes.
        bytes: u64,
    },
}

impl Listed {
    /// Stored bytes of the part.
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Self::Part(part) => part.bytes,
            Self::Later { bytes } => *bytes,
        }
    }
}

/// The input of a filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum FilterRole {
    /// Whole user keys.
    Keys = 0,
    /// The prefixes of the keys that have one.
    Prefixes = 1,
    /// Whole user keys, for queries of ranges.
    Ranges = 2,
}

impl FilterRole {
    const ALL: [Self; 3] = [Self::Keys, Self::Prefixes, Self::Ranges];
}

/// The partitioning of a filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
#[non_exhaustive]
pub enum FilterShape {
    /// One filter for the whole table.
    #[default]
    Whole = 0,
    /// Several filters, each for a range of keys, loaded independently.
    Partitioned = 1,
}

impl FilterShape {
    const ALL: [Self; 2] = [Self::Whole, Self::Partitioned];

    fn name(self) -> &'static str {
        match self {
            Self::Whole => "whole",
            Self::Partitioned => "partitioned",
        }
    }
}

impl fmt::Display for FilterShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for FilterShape {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let named = Self::ALL.into_iter().find(|shape| shape.name() == text);
        named.ok_or_else(|| format!("\"{text}\" is no shape of filters: give whole or partitioned"))
    }
}

/// One part of the filter region.
#[derive(Debug, Clone, PartialEq)]
pub struct FilterPart {
    /// The input of the filter.
    pub role: FilterRole,
    /// Its partitioning.
    pub shape: FilterShape,
    /// The expected false-positive rate, averaged over its partitions.
    pub expected_fpr: f64,
    /// Distinct keys or prefixes.
    pub keys: u64,
    /// Stored bytes, with frames and top index.
    pub bytes: u64,
    /// Of these, the index of the partitions, which follows them; 0 for a whole filter.
    pub top_bytes: u64,
    /// The requested filter, in the spec grammar; for a user-defined filter, in the policy's own
    /// words.
    pub spec: String,
    /// Name of the user-defined policy that can read it; empty for a built-in filter.
    pub policy: String,
    /// Name of the extractor of its prefixes; empty for whole keys.
    pub extractor: String,
}

impl FilterPart {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend([self.role as u8, self.shape as u8]);
        put_u64(out, self.expected_fpr.to_bits());
        put_varint(out, self.keys);
        put_varint(out, self.bytes);
        put_varint(out, self.top_bytes);
        put_bytes(out, self.spec.as_bytes());
        put_bytes(out, self.policy.as_bytes());
        put_bytes(out, self.extractor.as_bytes());
    }

    /// Decodes an entry after its role and shape.
    fn decode(role: FilterRole, shape: FilterShape, decoder: &mut Decoder<'_>) -> Option<Self> {
        let expected_fpr = f64::from_bits(decoder.u64()?);
        if !(0.0..=1.0).contains(&expected_fpr) {
            return None;
        }
        let (keys, bytes, top_bytes) = (decoder.varint()?, decoder.varint()?, decoder.varint()?);
        let has_top = shape != FilterShape::Whole;
        if top_bytes > bytes || has_top != (top_bytes > 0) {
            return None;
        }
        let (spec, policy, extractor) = (text(decoder)?, text(decoder)?, text(decoder)?);
        let part =
            Self { role, shape, expected_fpr, keys, bytes, top_bytes, spec, policy, extractor };
        Some(part)
    }
}

/// One entry, and the number of its role.
fn entry(decoder: &mut Decoder<'_>) -> Option<(u8, Listed)> {
    let (role, shape) = (decoder.u8()?, decoder.u8()?);
    let known_role = FilterRole::ALL.into_iter().find(|known| *known as u8 == role);
    let known_shape = FilterShape::ALL.into_iter().find(|known| *known as u8 == shape);
    let listed = match known_role.zip(known_shape) {
        Some((role, shape)) => Listed::Part(FilterPart::decode(role, shape, decoder)?),
        None => {
            let (_rate, _keys) = (decoder.u64()?, decoder.varint()?);
            let (bytes, _top_bytes) = (decoder.varint()?, decoder.varint()?);
            for _text in 0..3 {
                decoder.bytes(usize::MAX)?;
            }
            Listed::Later { bytes }
        }
    };
    Some((role, listed))
}

fn text(decoder: &mut Decoder<'_>) -> Option<String> {
    let bytes = decoder.bytes(usize::MAX)?;
    String::from_utf8(bytes.to_vec()).ok()
}

/// The directory of a region of these parts; empty if none is needed.
pub(crate) fn encode(parts: &[FilterPart]) -> Vec<u8> {
    if is_plain(parts) { Vec::new() } else { encode_whole(parts) }
}

/// The directory of a region of these parts, needed or not.
pub(crate) fn encode_whole(parts: &[FilterPart]) -> Vec<u8> {
    let mut out = Vec::new();
    put_varint(&mut out, parts.len() as u64);
    for part in parts {
        part.encode(&mut out);
    }
    out
}

/// Whether the region needs no directory: it is empty, or one built-in filter of whole keys.
fn is_plain(parts: &[FilterPart]) -> bool {
    match parts {
        [] => true,
        [only] => {
            only.role == FilterRole::Keys
                && only.shape == FilterShape::Whole
                && only.policy.is_empty()
        }
        _ => false,
    }
}

/// The parts of a region of `filter_bytes` bytes, in their order there, or the reason why the
/// directory is corrupt.
pub(crate) fn decode(directory: &[u8], filter_bytes: u64) -> Result<Vec<Listed>, &'static str> {
    let mut decoder = Decoder::new(directory);
    let count = decoder.varint().ok_or(DAMAGED)?;
    let (mut parts, mut roles) = (Vec::new(), Vec::new());
    let mut bytes = 0u64;
    for _ in 0..count {
        let (role, part) = entry(&mut decoder).ok_or(DAMAGED)?;
        if roles.contains(&role) {
            return Err("the directory of filters names a role twice");
        }
        bytes = bytes.checked_add(part.bytes()).ok_or(DAMAGED)?;
        roles.push(role);
        parts.push(part);
    }
    if !decoder.is_empty() || bytes != filter_bytes {
        return Err(DAMAGED);
    }
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(role: FilterRole, shape: FilterShape) -> FilterPart {
        FilterPart {
            role,
            shape,
            expected_fpr: 1.7e-5,
            keys: 1_000_000,
            bytes: 300,
            top_bytes: if shape == FilterShape::Whole { 0 } else { 40 },
            spec: "paired:23.4".into(),
            policy: String::new(),
            extractor: if role == FilterRole::Prefixes { "fixed:8".into() } else { String::new() },
        }
    }

    #[test]
    fn parts_round_trip() {
        let parts = [
            part(FilterRole::Keys, FilterShape::Partitioned),
            part(FilterRole::Prefixes, FilterShape::Whole),
        ];
        let directory = encode(&parts);
        assert!(decode(&directory, 601).is_err(), "the parts do not fill the region");
        assert_eq!(decode(&directory, 600), Ok(parts.map(Listed::Part).to_vec()));
    }

    #[test]
    fn a_plain_region_has_no_directory() {
        assert!(encode(&[]).is_empty());
        assert!(encode(&[part(FilterRole::Keys, FilterShape::Whole)]).is_empty());
        let custom =
            FilterPart { policy: "mine".into(), ..part(FilterRole::Keys, FilterShape::Whole) };
        assert!(!encode(&[custom]).is_empty());
    }

    #[test]
    fn unknown_parts_are_skipped() {
        let keys = part(FilterRole::Keys, FilterShape::Partitioned);
        let prefixes = part(FilterRole::Prefixes, FilterShape::Whole);
        let whole = encode(&[keys.clone(), prefixes.clone()]);
        // The second entry follows the number of parts and the first entry.
        let second = encode(std::slice::from_ref(&keys)).len();
        for (at, byte) in [(1, 3), (2, 3), (second, 7), (second + 1, 0xff)] {
            let mut later = whole.clone();
            later[at] = byte;
            let other = if at < second { &prefixes } else { &keys };
            let mut expected = vec![Listed::Part(other.clone()), Listed::Later { bytes: 300 }];
            if at < second {
                expected.reverse();
            }
            assert_eq!(decode(&later, 600), Ok(expected), "byte {at}");
            assert!(decode(&later, 601).is_err(), "the parts do not fill the region");
        }
        // No later version uses a role twice either.
        let mut twice = whole.clone();
        (twice[second], twice[second + 1]) = (0, 9);
        assert!(decode(&twice, 600).is_err());
    }

    #[test]
    fn a_role_that_occurs_twice_is_corruption() {
        let keys = part(FilterRole::Keys, FilterShape::Whole);
        assert!(decode(&encode(&[keys.clone(), keys]), 600).is_err());
    }

    #[test]
    fn any_bytes_are_a_directory_or_an_error() {
        let directory = encode(&[part(FilterRole::Prefixes, FilterShape::Partitioned)]);
        for at in 0..directory.len() {
            assert!(decode(&directory[..at], 300).is_err(), "cut at {at}");
            for bit in 0..8 {
                let mut flipped = directory.clone();
                flipped[at] ^= 1 << bit;
                let _ = decode(&flipped, 300);
            }
        }
        let mut many = Vec::new();
        put_varint(&mut many, u64::MAX);
        assert!(decode(&many, 0).is_err());
    }

    /// Each run makes 200,000 times `TROMMEL_SCALE` changes; for ten million:
    ///
    /// `TROMMEL_SCALE=50 cargo test -p trommel-sstable --lib changed_directories`
    #[test]
    fn changed_directories_fill_the_region_or_are_errors() {
        let scale = std::env::var("TROMMEL_SCALE").map_or(1, |scale| scale.parse().unwrap());
        let whole = encode(&[
            part(FilterRole::Keys, FilterShape::Partitioned),
            part(FilterRole::Prefixes, FilterShape::Partitioned),
        ]);
        let mut word = 1_u64;
        let mut below = |n: usize| {
            word = word.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            (word >> 33) as usize % n
        };
        let mut outcomes = [0_u64; 3];
        let executions = 200_000 * scale;
        for _ in 0..executions {
            let mut directory = whole.clone();
            for _ in 0..1 + below(3) {
                let at = below(directory.len());
                match below(4) {
                    0 => directory[at] ^= 1 << below(8),
                    1 => directory[at] = [0, 1, 2, 3, 0x7f, 0x80, 0xff][below(7)],
                    2 => directory.insert(at, below(256) as u8),
                    _ => drop(directory.remove(at)),
                }
            }
            let Ok(parts) = decode(&directory, 600) else {
                outcomes[0] += 1;
                continue;
            };
            assert_eq!(parts.iter().map(Listed::bytes).sum::<u64>(), 600);
            let known = |role| {
                let is = |listed: &&Listed| matches!(listed, Listed::Part(p) if p.role == role);
                parts.iter().filter(is).count()
            };
            assert!(known(FilterRole::Keys) <= 1 && known(FilterRole::Prefixes) <= 1);
            let has_later = parts.iter().any(|listed| matches!(listed, Listed::Later { .. }));
            outcomes[1 + usize::from(has_later)] += 1;
        }
        assert!(outcomes.iter().all(|count| count * 200 > executions), "{outcomes:?}");
    }
}
