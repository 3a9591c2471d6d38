//! All filters: how each is built from hashes, and queried.
//!
//! Trommel's filters are built into the bytes that a table stores, including a checksum, and
//! decoded for queries; the others can be queried once they are built. fastbloom and sbbf-rs need
//! the number of keys in advance, xorf needs all hashes at once and iterates over them repeatedly;
//! Trommel's builders take one hash at a time and store them.

use std::fmt;

use fastbloom::BloomFilter;
use trommel_filter::{Filter, FilterKind, FilterSpec, Kernel};
use trommel_vfs::advise_huge_pages;
use xorf::{BinaryFuse8, BinaryFuse16, BinaryFuse32, Filter as _};

use crate::loops::Queried;
use crate::theory::split_block_rate;

/// Bits of a binary fuse filter's fingerprints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Width {
    /// One false positive in 256 queries.
    Eight,
    /// One in 65,536.
    Sixteen,
    /// One in 4,294,967,296.
    ThirtyTwo,
}

impl Width {
    /// The number of bits.
    pub fn bits(self) -> u32 {
        match self {
            Self::Eight => 8,
            Self::Sixteen => 16,
            Self::ThirtyTwo => 32,
        }
    }
}

/// A kind of filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Contestant {
    /// One of Trommel's.
    Ours(FilterKind),
    /// fastbloom's: a standard Bloom filter with double hashing.
    Fastbloom,
    /// sbbf-rs's: a split block Bloom filter, eight probes in 32 bytes, with AVX2 if available.
    SplitBlock,
    /// xorf's binary fuse filter. Its size follows from its fingerprints.
    Fuse(Width),
}

impl Contestant {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Ours(FilterKind::Standard),
        Self::Ours(FilterKind::Blocked),
        Self::Ours(FilterKind::Paired),
        Self::Ours(FilterKind::Ribbon),
        Self::Fastbloom,
        Self::SplitBlock,
        Self::Fuse(Width::Eight),
        Self::Fuse(Width::Sixteen),
        Self::Fuse(Width::ThirtyTwo),
    ];

    /// Whether it is Trommel's.
    pub fn is_ours(self) -> bool {
        matches!(self, Self::Ours(_))
    }

    /// Whether there is a choice of vector instructions for queries.
    pub fn has_kernels(self) -> bool {
        matches!(self, Self::Ours(FilterKind::Blocked | FilterKind::Paired))
    }

    /// Builds a filter of these hashes, all distinct, with `bits` bits per key (which a fuse filter
    /// ignores).
    ///
    /// # Errors
    /// Any error of the contestant.
    pub fn build(self, bits: f64, hashes: &[u64]) -> Result<Built, String> {
        let bytes = (bits * hashes.len() as f64 / 8.0).ceil() as usize;
        let said = |error: &str| format!("{self}: {error}");
        Ok(match self {
            Self::Ours(kind) => {
                let spec = FilterSpec::new(kind, bits).map_err(|error| said(&error.to_string()))?;
                let mut builder = spec.builder();
                for &hash in hashes {
                    builder.add_hash(hash);
                }
                Built::Stored(builder.finish())
            }
            Self::Fastbloom => {
                let builder = BloomFilter::with_num_bits(bytes.max(1) * 8);
                let mut filter = builder.expected_items(hashes.len());
                for &hash in hashes {
                    filter.insert_hash(hash);
                }
                Built::Ready(Ready::Fastbloom(filter))
            }
            Self::SplitBlock => {
                // Eight bits per key, with as many keys as bytes: so any size is possible.
                let mut filter = sbbf_rs_safe::Filter::new(8, bytes);
                for &hash in hashes {
                    filter.insert_hash(hash);
                }
                Built::Ready(Ready::SplitBlock(filter))
            }
            Self::Fuse(width) => Built::Ready(match width {
                Width::Eight => Ready::Fuse8(BinaryFuse8::try_from(hashes).map_err(said)?),
                Width::Sixteen => Ready::Fuse16(BinaryFuse16::try_from(hashes).map_err(said)?),
                Width::ThirtyTwo => Ready::Fuse32(BinaryFuse32::try_from(hashes).map_err(said)?),
            }),
        })
    }
}

impl fmt::Display for Contestant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Ours(kind) => kind.name(),
            Self::Fastbloom => "fastbloom",
            Self::SplitBlock => "sbbf-rs",
            Self::Fuse(Width::Eight) => "xorf BinaryFuse8",
            Self::Fuse(Width::Sixteen) => "xorf BinaryFuse16",
            Self::Fuse(Width::ThirtyTwo) => "xorf BinaryFuse32",
        })
    }
}

/// The result of a build.
pub enum Built {
    /// Bytes to store.
    Stored(Vec<u8>),
    /// A filter ready for queries.
    Ready(Ready),
}

/// The pages of a filter of Trommel's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Pages {
    /// The system's default: 4 KiB, unless configured otherwise.
    Small,
    /// Huge pages were requested.
    Huge,
}

/// A filter ready for queries.
pub enum Ready {
    /// Trommel's.
    Ours(Filter),
    /// fastbloom's.
    Fastbloom(BloomFilter),
    /// sbbf-rs's.
    SplitBlock(sbbf_rs_safe::Filter),
    /// xorf's, with 8 bits.
    Fuse8(BinaryFuse8),
    /// xorf's, with 16 bits.
    Fuse16(BinaryFuse16),
    /// xorf's, with 32 bits.
    Fuse32(BinaryFuse32),
}

/// Decodes a filter of Trommel's onto such pages, with `kernel` for queries.
///
/// # Errors
/// If the bytes are not a valid filter.
pub fn decode(bytes: &[u8], kernel: Kernel, pages: Pages) -> Result<Ready, String> {
    let decoded = match pages {
        Pages::Small => Filter::decode(bytes),
        Pages::Huge => Filter::decode_into(bytes, advise_huge_pages),
    };
    let filter = decoded.map_err(|error| error.to_string())?;
    Ok(Ready::Ours(filter.with_kernel(kernel)))
}

/// Expands the same code for each kind of filter.
macro_rules! each {
    ($ready:expr, $filter:ident => $result:expr) => {
        match $ready {
            Ready::Ours($filter) => $result,
            Ready::Fastbloom($filter) => $result,
            Ready::SplitBlock($filter) => $result,
            Ready::Fuse8($filter) => $result,
            Ready::Fuse16($filter) => $result,
            Ready::Fuse32($filter) => $result,
        }
    };
}

impl Ready {
    /// Runs `ask` on the filter, in a loop that is compiled for its kind; returns its answer.
    pub fn with<A: crate::loops::Ask>(&self, ask: A) -> A::Answer {
        each!(self, filter => ask.ask(filter))
    }

    /// Bits of the filter itself, without headers.
    pub fn bits(&self) -> u64 {
        match self {
            Self::Ours(filter) => (filter.bits_per_key() * filter.keys() as f64).round() as u64,
            Self::Fastbloom(filter) => filter.num_bits() as u64,
            Self::SplitBlock(filter) => filter.as_bytes().len() as u64 * 8,
            Self::Fuse8(filter) => filter.len() as u64 * 8,
            Self::Fuse16(filter) => filter.len() as u64 * 16,
            Self::Fuse32(filter) => filter.len() as u64 * 32,
        }
    }

    /// The expected rate with `keys` keys.
    pub fn expected_rate(&self, keys: u64) -> f64 {
        match self {
            Self::Ours(filter) => filter.expected_fpr(),
            Self::Fastbloom(filter) => filter.expected_false_pos(keys as usize),
            Self::SplitBlock(_) => split_block_rate(keys, self.bits() / 256),
            Self::Fuse8(_) => (-8.0_f64).exp2(),
            Self::Fuse16(_) => (-16.0_f64).exp2(),
            Self::Fuse32(_) => (-32.0_f64).exp2(),
        }
    }
}

impl Queried for Filter {
    #[inline]
    fn holds(&self, hash: u64) -> bool {
        self.may_contain_hash(hash)
    }

    #[inline]
    fn holds_many(&self, hashes: &[u64], answers: &mut [bool]) {
        self.may_contain_many(hashes, answers);
    }
}

impl Queried for BloomFilter {
    #[inline]
    fn holds(&self, hash: u64) -> bool {
        self.contains_hash(hash)
    }
}

impl Queried for sbbf_rs_safe::Filter {
    #[inline]
    fn holds(&self, hash: u64) -> bool {
        self.contains_hash(hash)
    }
}

macro_rules! fuse {
    ($($name:ident),*) => {
        $(impl Queried for $name {
            #[inline]
            fn holds(&self, hash: u64) -> bool {
                self.contains(&hash)
            }
        })*
    };
}

fuse!(BinaryFuse8, BinaryFuse16, BinaryFuse32);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys;

    #[test]
    fn each_has_the_size_it_is_given() {
        let hashes = keys::present(40_000);
        for contestant in Contestant::ALL {
            let ready = match contestant.build(12.5, &hashes).unwrap() {
                Built::Ready(ready) => ready,
                Built::Stored(bytes) => decode(&bytes, Kernel::Scalar, Pages::Huge).unwrap(),
            };
            let bits = ready.bits() as f64 / 40_000.0;
            if let Contestant::Fuse(width) = contestant {
                assert!((1.1..1.4).contains(&(bits / f64::from(width.bits()))), "{bits}");
            } else {
                let near =
                    if contestant == Contestant::Ours(FilterKind::Ribbon) { 0.6 } else { 0.1 };
                assert!((bits - 12.5).abs() < near, "{contestant}: {bits}");
            }
        }
    }
}
