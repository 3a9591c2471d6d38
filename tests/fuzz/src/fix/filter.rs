//! Filters, whole ones and groups of small ones (`docs/format/filter.md`, `sstable.md`).

use super::set;

/// Offset of the checksum in a whole filter, and in a group of small ones.
const WHOLE_AT: usize = 56;
const GROUP_AT: usize = 40;

/// Fixes the checksum of the filter, or group of filters, in `bytes`.
pub(crate) fn filter(bytes: &mut [u8]) {
    let at = if bytes.starts_with(b"TrFs") { GROUP_AT } else { WHOLE_AT };
    let Some((before, rest)) = bytes.split_at_checked(at) else { return };
    let Some((_, behind)) = rest.split_first_chunk::<8>() else { return };
    let sum = trommel_filter::hash(&[before, behind].concat());
    set(bytes, at, &sum.to_le_bytes());
}
