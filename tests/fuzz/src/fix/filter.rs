//! Filters (`docs/format/filter.md`).

use super::set;

/// Offset of the checksum.
const CHECKSUM_AT: usize = 56;

/// Fixes the checksum of the filter in `bytes`.
pub(crate) fn filter(bytes: &mut [u8]) {
    let Some((before, rest)) = bytes.split_at_checked(CHECKSUM_AT) else { return };
    let Some((_, behind)) = rest.split_first_chunk::<8>() else { return };
    let sum = trommel_filter::hash(&[before, behind].concat());
    set(bytes, CHECKSUM_AT, &sum.to_le_bytes());
}
