//! Bloom filters that say exactly how often they err.
//!
//! A filter stands for a set of keys. Asked for a key, it says "certainly not" or "maybe": it never
//! denies a key that was added, and says "maybe" to a key that was not with a small probability,
//! its *rate* of false positives. It takes a few bits per key, whatever the size of the keys. A
//! store that keeps one in memory for each of its files need not open a file that says no.
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
//! | bits per key | standard | blocked | paired | ribbon |
//! |---|---|---|---|---|
//! | 10 | 1/122 | 1/103 | 1/110 | 1/870 |
//! | 16 | 1/2,180 | 1/1,185 | 1/1,869 | 1/51,100 |
//! | 23.4 | 1/76,300 | 1/15,600 | 1/59,700 | 1/8,270,000 |
//! | 28 | 1/694,000 | 1/62,400 | 1/496,000 | 1/180,000,000 |
//! | cache lines, absent key | 2.7 on average | 1 | hardly more than 1 | 3 on average |
//! | cache lines, present key | one per probe | 1 | 2 | one for two columns, and one more |
//!
//! [`FilterKind::Paired`] is the one to take unless most questions are for keys that are there, or
//! fewer than ten bits per key are to be spent; then it is [`FilterKind::Blocked`].
//! [`FilterKind::Ribbon`] is for where memory is everything: it takes 30% fewer bits for the same
//! rate. [`FilterKind::Standard`] is there for comparison. Up to about a hundred keys, all are
//! rounded up to the same few cache lines.
//!
//! The table is what [`theory`] computes:
//!
//! ```
//! use trommel_filter::{FilterKind, theory::best_fpr};
//!
//! let rate = |kind, bits| format!("{:.3e}", best_fpr(kind, bits));
//! assert_eq!(rate(FilterKind::Standard, 23.4), "1.311e-5");
//! assert_eq!(rate(FilterKind::Blocked, 28.0), "1.603e-5");
//! assert_eq!(rate(FilterKind::Paired, 23.4), "1.674e-5");
//! assert_eq!(rate(FilterKind::Ribbon, 16.0), "1.958e-5");
//! ```
//!
//! How each kind works is told at the head of its source file: idea, algorithm, mathematics, costs
//! and sources.
//!
//! What shipped filters measure, at 8 to 40 bits per key and 1 to 10,000,000 keys, stands beside
//! theory in [`RATES.md`], with the command that measures it; what they cost in instructions and
//! bytes in [`COSTS.md`].
//!
//! [`RATES.md`]: https://github.com/trommel-db/trommel/blob/main/crates/filter/RATES.md
//! [`COSTS.md`]: https://github.com/trommel-db/trommel/blob/main/crates/filter/COSTS.md
//!
//! # Hashes
//!
//! A filter sees a key only as its 64-bit [`hash`]. Who asks many filters for one key hashes once
//! and uses [`Filter::may_contain_hash`]; who has many keys for one filter uses
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
//! The hash has no secret: who can choose keys can choose keys that a filter takes for others. That
//! costs time, never a wrong answer from a store that looks when a filter says "maybe". Nor does it
//! cost more than linear time to build: keys of which no ribbon can be made within its bounds
//! become a standard filter, which says so ([`Filter::peek_kind`]).
//!
//! # Trust
//!
//! [`Filter::decode`] takes any bytes. It checks the checksum, every field and, for the paired
//! kind, the pair table; what fails is a [`DecodeError`]. Whatever a header claims, no more memory
//! is taken than there are bytes. Ten million damaged and forged filters, and as many groups of
//! small ones, were opened and asked without a panic (`tests/bounds/fuzz.rs`). The expected rate in
//! the header is the sum of the theory (of keys that were chosen so that it does not hold, what the
//! filter's own bits let pass), to the floating-point digits of the machine that built the filter;
//! only the share of a large paired filter's last batch is interpolated between sums, which moves
//! the rate by 2e-5 of itself at 28 bits per key, 2e-4 at 40 and 1e-3 at 64.
//!
//! This crate knows no files and no levels, starts no thread, and depends on nothing but the hash.
//! Its unsafe code is that of the vector kernels: calls, one of them through a pointer, of
//! functions that are compiled for instructions which the processor was asked for; two conversions
//! of a register to an array; one instruction written by hand; and a prefetch.

mod block;
mod blocked;
mod builder;
#[cfg(test)]
mod crafted_tests;
mod filled;
mod filter;
mod format;
mod kernel;
mod kind;
mod lines;
mod mix;
mod paired;
mod partition;
mod plan;
#[cfg(test)]
mod rate_tests;
mod ribbon;
mod size;
mod small;
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
pub use size::FilterSize;
pub use small::{SmallFilters, SmallFiltersBuilder};
pub use spec::{FilterSpec, ParseSpecError};

/// The hash of a key that every filter uses: XXH3 with 64 bits and seed 0. It is part of the
/// format: a filter stored today is asked with the same hash tomorrow.
///
/// ```
/// assert_eq!(trommel_filter::hash(b""), 0x2d06_8005_38d3_94c2);
/// ```
#[inline]
#[must_use]
pub fn hash(key: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(key)
}

/// The examples of `README.md`.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
