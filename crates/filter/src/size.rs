//! How large a filter is: bits, probes and bytes from a number of keys, and from the rate that they
//! are to have.
//!
//! A filter of few keys is larger than its bits per key say: it has whole cache lines of 64 bytes,
//! one at least, which a read of memory brings in any case; and a ribbon has its shards' entries
//! beside, and a block of 128 slots at least. Its rate is that of the bits that it has.

use crate::block::BLOCK_BITS;
use crate::format::HEADER_BYTES;
use crate::kind::{FilterKind, MAX_MILLIBITS, MIN_MILLIBITS};
use crate::plan::Plan;
use crate::ribbon;
use crate::spec::{FilterSpec, ParseSpecError};

/// What a filter of so many keys is.
///
/// ```
/// use trommel_filter::{FilterKind, FilterSpec};
///
/// // A million keys at one in a hundred: the textbook's m = 9.59 n, and k = 7 probes.
/// let spec = FilterSpec::for_keys(FilterKind::Standard, 1_000_000, 0.01)?;
/// let size = spec.size(1_000_000);
/// assert_eq!((size.bits, size.probes, size.bytes), (9_593_344, 7, 1_199_232));
///
/// // Ten keys of ten bits are no 100 bits, as in the textbook's example, but a cache line.
/// let size = "standard:10".parse::<FilterSpec>()?.size(10);
/// assert_eq!((size.bits, size.bytes), (512, 64 + 64));
/// assert!(size.expected_fpr < 1e-9);
/// # Ok::<(), trommel_filter::ParseSpecError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct FilterSize {
    /// Bits that are stored: the textbook's m. Whole cache lines.
    pub bits: u64,
    /// Bits that a positive answer looks at, the textbook's k; for a ribbon, the most columns of an
    /// equation.
    pub probes: u32,
    /// Bytes of the finished filter, its header of 64 bytes included.
    pub bytes: u64,
    /// The bits that are stored, for each key; 0 without keys.
    pub bits_per_key: f64,
    /// The exact expected rate of false positives, as [`FilterSpec::expected_fpr`] has it.
    pub expected_fpr: f64,
}

impl FilterSpec {
    /// What a filter of `keys` distinct keys is: all 0 for [`FilterKind::None`], but a rate of 1.
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
            _ => plan.probes,
        };
        let bits_per_key = if keys == 0 { 0.0 } else { bits as f64 / keys as f64 };
        FilterSize { bits, probes, bytes, bits_per_key, expected_fpr }
    }

    /// The fewest bits per key, to a thousandth, with which a filter of exactly `keys` keys has a
    /// rate of `rate` or better. ([`with_fpr`](Self::with_fpr) is for many keys.)
    ///
    /// # Errors
    /// As for [`with_fpr`](Self::with_fpr).
    pub fn for_keys(kind: FilterKind, keys: u64, rate: f64) -> Result<Self, ParseSpecError> {
        let at = |millibits: u32| Self::new(kind, f64::from(millibits) / 1000.0);
        let (mut low, mut high) = (MIN_MILLIBITS, MAX_MILLIBITS);
        if !(rate > 0.0 && rate < 1.0) || at(high)?.expected_fpr(keys) > rate {
            // It has the words for what is no rate, and for a rate that is out of reach.
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

    const KINDS: [FilterKind; 4] =
        [FilterKind::Standard, FilterKind::Blocked, FilterKind::Paired, FilterKind::Ribbon];

    /// What is said is what a builder builds, for few keys too.
    #[test]
    fn a_size_is_that_of_the_filter_that_is_built() {
        for kind in KINDS {
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

    /// "--fpr 0.01: 0.5000 bits", of which no filter of ten keys has so few.
    #[test]
    fn the_filter_for_a_rate_has_that_rate_and_none_with_fewer_bits_has() {
        for kind in KINDS {
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
