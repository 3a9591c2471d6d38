//! Every filter that takes part: how it is built from hashes, and how it is asked.
//!
//! Trommel's filters are built into the bytes that a table stores, checksum included, and decoded
//! to be asked; the others are ready to be asked once they are built. fastbloom and sbbf-rs must be
//! told the number of keys beforehand, xorf is given all hashes at once and walks them repeatedly;
//! Trommel's builders are given hash by hash and hold them themselves.

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
    /// Errs once in 256 questions.
    Eight,
    /// Errs once in 65,536.
    Sixteen,
    /// Errs once in 4,294,967,296.
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
    /// sbbf-rs's: a split block Bloom filter, eight probes in 32 bytes, with AVX2 where it is.
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

    /// Whether it is asked with vector instructions that can be chosen.
    pub fn has_kernels(self) -> bool {
        matches!(self, Self::Ours(FilterKind::Blocked | FilterKind::Paired))
    }

    /// Builds a filter of these hashes, no two alike, in `bits` bits per key (which a fuse filter
    /// does not heed).
    ///
    /// # Errors
    /// What the contestant says against it.
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
                // Eight bits a key, for as many keys as there shall be bytes: any size can be had.
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

/// What a contestant's build ends with.
pub enum Built {
    /// Bytes to be stored.
    Stored(Vec<u8>),
    /// A filter to be asked.
    Ready(Ready),
}

/// The pages that a filter of Trommel's lies on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Pages {
    /// Whatever the system gives: 4 KiB, unless it is told otherwise.
    Small,
    /// Huge ones were asked for.
    Huge,
}

/// A filter that can be asked.
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

/// Decodes a filter of Trommel's onto such pages, to be asked with `kernel`.
///
/// # Errors
/// If these bytes are no filter.
pub fn decode(bytes: &[u8], kernel: Kernel, pages: Pages) -> Result<Ready, String> {
    let decoded = match pages {
        Pages::Small => Filter::decode(bytes),
        Pages::Huge => Filter::decode_into(bytes, advise_huge_pages),
    };
    let filter = decoded.map_err(|error| error.to_string())?;
    Ok(Ready::Ours(filter.with_kernel(kernel)))
}

/// Does the same with whichever filter it is, each in code of its own.
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
    /// Asks for all hashes as `ask` does, in a loop that is compiled for this filter; what it
    /// returns.
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

    /// The rate that it is expected to have with `keys` keys.
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
