//! The size and false positive rate of a filter: real bytes, and the closest fast approximation of
//! the exact rate.
//!
//! The bytes are those of the finished filter, including the header and rounding to cache lines
//! ([`FilterSpec::expected_bytes`]). The rate is a function of the bits per key that result from
//! these bytes, so that it includes the rounding:
//!
//! | kind | rate | error against the exact sum |
//! |---|---|---|
//! | standard | the limit of many keys | 1% off at 200 keys, 0.2% at 1,000 (up to 20 bits a key) |
//! | blocked | the exact sum below 4,096 keys, then the limit | 0.2% at 10 bits, 1% at 40 |
//! | paired | the limit of many keys | below 10 bits 1% off at 200 keys; at 23.4, 5% at 300 and 1% at 10,000 |
//! | ribbon, fuse | exact | |
//!
//! The exact sum of a small paired filter takes milliseconds for each new shape
//! ([`trommel_filter::theory`]), and a solver queries thousands of shapes. The limits of the
//! blocked and paired kinds are cached as a table of `ln f` at every 1/16 bit from 0.5 to 64, with
//! linear interpolation: less than 1 part in 1,000 off. The first query of a kind fills its table,
//! which takes about a tenth of a second.

use std::sync::OnceLock;

use trommel_filter::theory;
use trommel_filter::{FilterKind, FilterSpec};

/// Bytes of a finished filter without keys.
const HEADER_BYTES: u64 = 64;
/// Bits per key from which a filter hardly improves, as its hashes have 64 bits.
const MOST_BITS: f64 = 64.0;
/// Bits per key below which filters are not built.
const LEAST_BITS: f64 = 0.5;
/// Entries of a table for each bit.
const PER_BIT: f64 = 16.0;
/// Number of keys below which the rate of a blocked filter is summed exactly.
const FEW_KEYS: u64 = 4096;

/// More keys than any table has; further keys are ignored.
const MOST_KEYS: u64 = 1 << 48;

/// The false positive rate of a filter of `keys` keys: 1 without a filter, 0 without keys.
#[must_use]
pub fn rate(spec: FilterSpec, keys: u64) -> f64 {
    let keys = keys.min(MOST_KEYS);
    let is_exact = matches!(spec.kind(), FilterKind::None | FilterKind::Ribbon | FilterKind::Fuse);
    if keys == 0 || is_exact {
        return spec.expected_fpr(keys);
    }
    let body = spec.expected_bytes(keys).saturating_sub(HEADER_BYTES);
    let bits = (body as f64 * 8.0 / keys as f64).clamp(LEAST_BITS, MOST_BITS);
    match spec.kind() {
        FilterKind::Blocked if keys < FEW_KEYS => spec.expected_fpr(keys),
        FilterKind::Blocked => {
            static LIMITS: OnceLock<Vec<f64>> = OnceLock::new();
            limit(&LIMITS, FilterKind::Blocked, bits)
        }
        FilterKind::Paired => {
            static LIMITS: OnceLock<Vec<f64>> = OnceLock::new();
            limit(&LIMITS, FilterKind::Paired, bits)
        }
        kind => theory::best_fpr(kind, bits),
    }
}

/// Bytes of the finished filter of `keys` keys; a table without keys gets none.
#[must_use]
pub fn bytes(spec: FilterSpec, keys: u64) -> u64 {
    if keys == 0 { 0 } else { spec.expected_bytes(keys.min(MOST_KEYS)) }
}

/// The limit at `bits` bits per key, from a table that is filled on first use.
fn limit(table: &OnceLock<Vec<f64>>, kind: FilterKind, bits: f64) -> f64 {
    let logs = table.get_or_init(|| {
        let entries = ((MOST_BITS - LEAST_BITS) * PER_BIT) as u32;
        let bits = |entry: u32| LEAST_BITS + f64::from(entry) / PER_BIT;
        (0..=entries).map(|entry| theory::best_fpr(kind, bits(entry)).ln()).collect()
    });
    let place = (bits - LEAST_BITS) * PER_BIT;
    let entry = (place as usize).min(logs.len() - 2);
    let way = place - entry as f64;
    (logs[entry] + way * (logs[entry + 1] - logs[entry])).exp().min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(kind: FilterKind, bits: f64) -> FilterSpec {
        FilterSpec::new(kind, bits).unwrap()
    }

    #[test]
    fn rates_are_within_the_documented_error() {
        for (kind, keys, bits, most) in [
            (FilterKind::Standard, 200, 10.0, 0.01),
            (FilterKind::Standard, 1000, 20.0, 0.002),
            (FilterKind::Blocked, 100, 10.0, 1e-12),
            (FilterKind::Blocked, 5000, 10.0, 0.002),
            (FilterKind::Blocked, 5000, 40.0, 0.01),
            (FilterKind::Paired, 200, 10.0, 0.01),
            (FilterKind::Paired, 300, 23.4, 0.05),
            (FilterKind::Paired, 10_000, 23.4, 0.01),
            (FilterKind::Paired, 1_000_000, 10.3, 0.001),
            (FilterKind::Paired, 1_000_000, 33.03, 0.001),
            (FilterKind::Ribbon, 10_000, 20.0, 0.0),
            (FilterKind::Fuse, 10_000, 20.0, 0.0),
        ] {
            let spec = spec(kind, bits);
            let off = (rate(spec, keys) / spec.expected_fpr(keys) - 1.0).abs();
            assert!(off <= most, "{spec} of {keys} keys: {off}");
        }
    }

    #[test]
    fn no_filter_and_no_keys_have_no_bytes() {
        let filter = spec(FilterKind::Paired, 10.0);
        assert_eq!((rate(FilterSpec::NONE, 9), bytes(FilterSpec::NONE, 9)), (1.0, 0));
        assert_eq!((rate(filter, 0), bytes(filter, 0)), (0.0, 0));
        let empty = filter.builder().finish().len() as u64;
        assert_eq!(empty, HEADER_BYTES, "what the filter crate writes before the bits");
        for kind in FilterKind::ALL {
            for (keys, bits) in [(1, 0.5), (1, 64.0), (u64::MAX, 0.5), (u64::MAX, 64.0)] {
                let spec = spec(kind, bits);
                let rate = rate(spec, keys);
                assert!(rate > 0.0 && rate <= 1.0, "{spec} of {keys} keys: {rate}");
                assert!(bytes(spec, keys) > 64);
            }
        }
    }
}
