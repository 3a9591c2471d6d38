//! Bloom-type filters: a set of keys that answers "certainly not" or "maybe", and never denies a
//! key it holds.

#![forbid(unsafe_code)]

mod block;
mod blocked;
mod builder;
mod filter;
mod format;
mod mix;
mod paired;
mod probe;
mod spec;
mod standard;
pub mod theory;

pub use builder::FilterBuilder;
pub use filter::Filter;
pub use format::DecodeError;
pub use spec::{FilterKind, FilterSpec, ParseSpecError};

/// The hash of a key that every filter uses: XXH3 with 64 bits and seed 0. It is part of the format:
/// a filter stored today is asked with the same hash tomorrow.
///
/// ```
/// assert_eq!(trommel_filter::hash(b""), 0x2d06_8005_38d3_94c2);
/// ```
#[inline]
#[must_use]
pub fn hash(key: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(key)
}
