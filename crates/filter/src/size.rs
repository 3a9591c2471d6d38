//! The size of a filter: bits, probes and bytes for a number of keys or a target rate.
//!
//! A filter of few keys is larger than its bits per key suggest. It has at least one whole cache
//! line of 64 bytes, which a memory read fetches in any case. A ribbon also stores an entry per
//! shard, and has at least one block of 128 slots; a fuse filter takes more bits per key, the fewer
//! keys there are. The rate is that of the actual bits.

use crate::block::BLOCK_BITS;
use crate::format::HEADER_BYTES;
use crate::fuse_shape::Shape;
use crate::kind::{FilterKind, MAX_MILLIBITS, MIN_MILLIBITS};
use crate::plan::Plan;
use crate::ribbon;
use crate::spec::{FilterSpec, ParseSpecError};

/// The size of a filter of a given number of keys.
///
/// ```
/// use trommel_filter::{FilterKind, FilterSpec};
///
/// // A million keys at one in a hundred: the textbook's m = 9.59 n, and k = 7 probes.
/// let spec = FilterSpec::for_keys(FilterKind::Standard, 1_000_000, 0.01)?;
/// let size = spec.size(1_000_000);
/// assert_eq!((size.bits, size.probes, size.bytes), (9_593_344, 7, 1_199_232));
///
/// // Ten keys of ten bits take a whole cache line, not 100 bits as in the textbook's example.
/// let size = "standard:10".parse::<FilterSpec>()?.size(10);
/// assert_eq!((size.bits, size.bytes), (512, 64 + 64));
/// assert!(size.expected_fpr < 1e-9);
/// # Ok::<(), trommel_filter::ParseSpecError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct FilterSize {
    /// Stored bits: the textbook's m. Whole cache lines.
    pub bits: u64,
    /// Bits that a positive query tests, the textbook's k; for a ribbon and a fuse filter, the most
    /// bits in which a key is compared.
    pub probes: u32,
    /// Bytes of the finished filter, including its header of 64 bytes.
    pub bytes: u64,
    /// Stored bits per key; 0 without keys.
    pub bits_per_key: f64,
    /// The exact expected false positive rate, equal to [`FilterSpec::expected_fpr`].
    pub expected_fpr: f64,
}

impl FilterSpec {
    /// The size of a filter of `keys` distinct keys. For [`FilterKind::None`] all fields are 0,
    /// except a rate of 1.
    #[must_use]
    pub fn size(&self, keys: u64) -> FilterSize {
        let expected_fpr = self.expected_fpr(keys);
        if self.kind() == FilterKind::None {
            return FilterSize { bits: 0, probes: 0, bytes: 0, bits_per_key: 0.0, expected_fpr };
        }
        let plan = Plan::new(*self, keys);
        let bytes = self.expected_bytes(keys);
        let bits = bytes.saturating_sub(HEADER_BYTES as u64).saturating_mul(8);
        debug_assert_eq!(bits, plan.blocks.saturating_mul(BLOCK_BITS));
        let probes = match self.kind() {
            FilterKind::Ribbon => ribbon::expected_columns(keys, self.millibits()),
            FilterKind::Fuse => Shape::of(keys, self.millibits()).most_bits(),
            FilterKind::None | FilterKind::Standard | FilterKind::Blocked | FilterKind::Paired => {
                plan.probes
            }
        };
        let bits_per_key = if keys == 0 { 0.0 } else { bits as f64 / keys as f64 };
        FilterSize { bits, probes, bytes, bits_per_key, expected_fpr }
    }

    /// The fewest bits per key, to a thousandth, with which a filter of exactly `keys` keys has a
    /// rate of at most `rate`. ([`with_fpr`](Self::with_fpr) is for many keys.)
    ///
    /// # Errors
    /// Like [`with_fpr`](Self::with_fpr).
    pub fn for_keys(kind: FilterKind, keys: u64, rate: f64) -> Result<Self, ParseSpecError> {
        let at = |millibits: u32| Self::new(kind, f64::from(millibits) / 1000.0);
        let (mut low, mut high) = (MIN_MILLIBITS, MAX_MILLIBITS);
        if !(rate > 0.0 && rate < 1.0) || at(high)?.expected_fpr(keys) > rate {
            // `with_fpr` has the error for an invalid rate or an unreachable one.
            return Self::with_fpr(kind, rate)
                .and_then(|_| Err(ParseSpecError::out_of_reach(kind, keys, rate)));
        }
        while low < high {
            let middle = low.midpoint(high);
            if at(middle)?.expected_fpr(keys) > rate {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        at(high)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Filter;
    use crate::mix::remix;

    /// The computed size is that of the built filter, for few keys too.
    #[test]
    fn the_size_matches_the_built_filter() {
        for kind in FilterKind::ALL {
            for bits in [0.5, 4.0, 10.0, 23.4, 60.0] {
                for keys in [0, 1, 2, 10, 100, 1000, 10_000] {
                    let spec = FilterSpec::new(kind, bits).unwrap();
                    let mut builder = spec.builder();
                    (0..keys).for_each(|key| builder.add_hash(remix(key)));
                    let bytes = builder.finish();
                    let size = spec.size(keys);
                    assert_eq!(bytes.len() as u64, size.bytes, "{spec}, {keys} keys");
                    let filter = Filter::decode(bytes).unwrap();
                    assert_eq!(filter.bits_per_key(), size.bits_per_key, "{spec}, {keys} keys");
                    assert_eq!(filter.expected_fpr(), size.expected_fpr, "{spec}, {keys} keys");
                    if keys > 0 {
                        assert_eq!(filter.probes(), size.probes.max(1), "{spec}, {keys} keys");
                    }
                }
            }
        }
    }

    /// "--fpr 0.01: 0.5000 bits" was reported for ten keys, a size that no filter of ten keys has.
    #[test]
    fn the_filter_for_a_rate_is_the_smallest_that_reaches_it() {
        for kind in FilterKind::ALL {
            for (keys, rate) in [(1, 0.5), (10, 0.01), (100, 1e-3), (1000, 1e-5), (100_000, 0.03)] {
                let spec = FilterSpec::for_keys(kind, keys, rate).unwrap();
                let size = spec.size(keys);
                assert!(size.expected_fpr <= rate, "{spec}, {keys} keys: {size:?}");
                let less = FilterSpec::new(kind, spec.bits_per_key() - 0.001);
                let less = less.map(|less| less.size(keys));
                assert!(less.is_err() || less.is_ok_and(|less| less.expected_fpr > rate), "{spec}");
            }
        }
        for rate in [0.0, 1.0, -1.0, f64::NAN, 1e-30] {
            assert!(FilterSpec::for_keys(FilterKind::Paired, 1000, rate).is_err(), "{rate}");
        }
        assert_eq!(FilterSpec::NONE.size(10).expected_fpr, 1.0);
        assert!(FilterSpec::for_keys(FilterKind::None, 10, 0.1).is_err());
    }
}
