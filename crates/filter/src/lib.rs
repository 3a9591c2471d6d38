//! Bloom filters with an exactly known false positive rate.
//!
//! A filter represents a set of keys. For each key it answers "certainly not" or "maybe". It never
//! denies a key that was added; for any other key it answers "maybe" with a small probability, its
//! *false positive rate*. It takes a few bits per key, whatever the size of the keys. A store that
//! keeps a filter in memory for each of its files need not open a file whose filter denies the key.
//!
//! ```
//! use trommel_filter::{Filter, FilterSpec};
//!
//! let spec: FilterSpec = "paired:16".parse()?; // which kind, and 16 bits per key
//! let mut builder = spec.builder();
//! for n in 0..50_000 {
//!     builder.add(format!("user:{n}").as_bytes());
//! }
//! let bytes = builder.finish(); // self-describing, with a checksum: store it anywhere
//!
//! let filter = Filter::decode(bytes)?; // any bytes give a filter or an error
//! assert!(filter.may_contain(b"user:31415"));
//!
//! let absent = 1_000_000;
//! let mistaken =
//!     (0..absent).filter(|n| filter.may_contain(format!("item:{n}").as_bytes())).count();
//! let expected = filter.expected_fpr() * absent as f64; // about 531
//! assert!((0.8..1.2).contains(&(mistaken as f64 / expected)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Which kind
//!
//! | bits per key | standard | blocked | paired | fuse | ribbon |
//! |---|---|---|---|---|---|
//! | 10 | 1/122 | 1/103 | 1/110 | 1/461 | 1/870 |
//! | 16 | 1/2,180 | 1/1,185 | 1/1,869 | 1/18,400 | 1/51,100 |
//! | 23.4 | 1/76,300 | 1/15,600 | 1/59,700 | 1/1,750,000 | 1/8,270,000 |
//! | 28 | 1/694,000 | 1/62,400 | 1/496,000 | 1/30,200,000 | 1/180,000,000 |
//! | cache lines, absent key | 2.7 on average | 1 | hardly more than 1 | 3 at once | 3 on average |
//! | cache lines, present key | one per probe | 1 | 2 | 3 at once | one for two columns, and one more |
//!
//! Use [`FilterKind::Paired`] unless most queries are for present keys or the budget is below ten
//! bits per key; then use [`FilterKind::Blocked`]. [`FilterKind::Fuse`] takes 20% fewer bits for
//! the same rate, or has a far lower rate at the same bits, from some ten thousand keys on; it is
//! built in twice the time. [`FilterKind::Ribbon`] suits stores in which memory is scarce: it takes
//! 30% fewer bits, and several times as long. [`FilterKind::Standard`] is
//! provided for comparison. Filters of up to about a hundred keys are all rounded up to the same
//! few cache lines.
//!
//! The table is computed by [`theory`]:
//!
//! ```
//! use trommel_filter::{FilterKind, theory::best_fpr};
//!
//! let rate = |kind, bits| format!("{:.3e}", best_fpr(kind, bits));
//! assert_eq!(rate(FilterKind::Standard, 23.4), "1.311e-5");
//! assert_eq!(rate(FilterKind::Blocked, 28.0), "1.603e-5");
//! assert_eq!(rate(FilterKind::Paired, 23.4), "1.674e-5");
//! assert_eq!(rate(FilterKind::Fuse, 16.0), "5.425e-5");
//! assert_eq!(rate(FilterKind::Ribbon, 16.0), "1.958e-5");
//! ```
//!
//! The head of each kind's source file describes the idea, algorithm, mathematics, costs and
//! sources.
//!
//! [`RATES.md`] compares the measured rates of the shipped filters with theory, at 8 to 40 bits per
//! key and 1 to 10,000,000 keys, with the command that measures them. [`COSTS.md`] gives their
//! costs in instructions and bytes.
//!
//! [`RATES.md`]: https://github.com/trommel-db/trommel/blob/main/crates/filter/RATES.md
//! [`COSTS.md`]: https://github.com/trommel-db/trommel/blob/main/crates/filter/COSTS.md
//!
//! # Hashes
//!
//! A filter sees a key only as its 64-bit [`hash`]. To query many filters for one key, hash once
//! and use [`Filter::may_contain_hash`]; to query one filter for many keys, use
//! [`Filter::may_contain_many`], which overlaps their cache misses:
//!
//! ```
//! # use trommel_filter::{Filter, FilterSpec, hash};
//! # let spec: FilterSpec = "paired:fpr=1e-6".parse()?;
//! let mut builder = spec.builder();
//! builder.add_hash(hash(b"amber"));
//! builder.add_hash(hash(b"basalt"));
//! let filter = Filter::decode(builder.finish())?;
//!
//! let hashes = [hash(b"amber"), hash(b"chalk"), hash(b"basalt")];
//! let mut answers = [false; 3];
//! filter.may_contain_many(&hashes, &mut answers);
//! assert_eq!(answers, [true, false, true]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`hash`] has no secret: an adversary who chooses keys can choose false positives. That costs
//! time, but never causes a wrong answer from a store that checks the file after a "maybe".
//! [`HashSeed`] hashes with a secret, which the program stores beside the filter.
//! Building also stays linear in time: if a ribbon or a fuse filter cannot be built from the keys
//! within its bounds, they become a standard filter, and the filter states that kind
//! ([`Filter::peek_kind`]).
//!
//! # Trust
//!
//! [`Filter::decode`] accepts arbitrary bytes. It checks the checksum, every field and, for the
//! paired kind, the pair table; a failed check is a [`DecodeError`]. Whatever a header claims, it
//! allocates no more memory than there are bytes. Ten million corrupted and forged filters, and as
//! many groups of small ones, were decoded and queried without a panic (`tests/bounds/fuzz.rs`).
//! The expected rate in the header is the exact sum of the theory (for chosen keys outside of the
//! theory, the rate of the filter's own bits), to the floating-point precision of the machine that
//! built the filter. Only the share of a large paired filter's last batch is interpolated between
//! sums, which changes the rate by a relative 2e-5 at 28 bits per key, 2e-4 at 40 and 1e-3 at 64.
//!
//! This crate knows no files and no levels, starts no thread, and depends only on the hash. Its
//! unsafe code is in the kernels: calls (one of them through a pointer) of functions compiled for
//! instructions whose support was detected at run time; two conversions of a register to an array;
//! one instruction in inline assembly; an unaligned read within a slice whose length was just
//! compared; and a prefetch.

#![cfg_attr(not(feature = "std"), no_std)]

extern crate alloc;

#[cfg(not(any(feature = "std", feature = "libm")))]
compile_error!("without the feature `std`, trommel-filter needs the feature `libm`");

mod block;
mod blocked;
mod builder;
#[cfg(test)]
mod crafted_tests;
mod filled;
mod filter;
#[cfg(not(feature = "std"))]
mod float;
mod format;
mod fuse;
mod fuse_shape;
mod kernel;
mod kind;
mod lines;
mod mix;
mod once;
mod paired;
mod partition;
mod plan;
mod range;
#[cfg(test)]
mod rate_tests;
mod ribbon;
mod seed;
mod size;
mod spec;
mod standard;
pub mod theory;

pub use block::Block;
pub use builder::FilterBuilder;
pub use filter::Filter;
pub use format::DecodeError;
pub use kernel::{Kernel, UnknownKernel, prefetch_at, prefetch_into_second};
pub use kind::FilterKind;
pub use lines::FilterLines;
pub use range::{BlockEnds, RangeFilter, RangeFilterBuilder, RangeSpec};
pub use seed::HashSeed;
pub use size::FilterSize;
pub use spec::{FilterSpec, ParseSpecError};

/// The hash of a key without a secret: XXH3 with 64 bits and seed 0. It is part of the
/// format: a filter stored today will be queried with the same hash in later versions.
///
/// ```
/// assert_eq!(trommel_filter::hash(b""), 0x2d06_8005_38d3_94c2);
/// ```
#[inline]
#[must_use]
pub fn hash(key: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(key)
}

/// The examples in `README.md`.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
