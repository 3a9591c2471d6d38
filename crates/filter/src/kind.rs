//! The kinds of filters, and the range of their sizes.

use std::fmt;

/// The fewest thousandths of a bit per key: half a bit.
pub(crate) const MIN_MILLIBITS: u32 = 500;
/// The most thousandths of a bit per key: 64 bits.
pub(crate) const MAX_MILLIBITS: u32 = 64_000;

/// The kind of a filter; the file format calls it a family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum FilterKind {
    /// No filter: no bytes, no probe.
    None,
    /// One bit array; the best rate of a Bloom filter, and a cache miss per probe.
    Standard,
    /// One cache line per key; the fastest kind, and the worst rate from about 16 bits per key.
    Blocked,
    /// Two cache lines per key, chosen so that all pairs are equally full; close to standard in
    /// rate and to blocked in speed.
    Paired,
    /// A solved system of equations; some 30% smaller than any Bloom filter of the same rate, and
    /// several times slower to build and to query.
    Ribbon,
    /// A table of small values, three for each key; some 20% smaller than any Bloom filter of the
    /// same rate, and three cache lines to query.
    Fuse,
}

impl FilterKind {
    /// The kind's name in a spec.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Standard => "standard",
            Self::Blocked => "blocked",
            Self::Paired => "paired",
            Self::Ribbon => "ribbon",
            Self::Fuse => "fuse",
        }
    }
}

impl fmt::Display for FilterKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
