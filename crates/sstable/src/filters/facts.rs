//! The facts of a filter for reports.

use trommel_filter::FilterKind;

use crate::verdict::FilterLabel;

/// Facts about a table's filter of whole keys, or of prefixes if it has no other.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FilterFacts {
    /// Its kind; [`FilterKind::None`] if there is no filter to query.
    pub kind: FilterLabel,
    /// Bits per key requested.
    pub bits_requested: f64,
    /// Bits per key stored.
    pub bits_stored: f64,
    /// Distinct keys or prefixes.
    pub keys: u64,
    /// Whether it is a filter of prefixes.
    pub is_of_prefixes: bool,
    /// Whether it is of a fallback kind, as its keys did not fit the requested kind. Always false
    /// for a partitioned filter, whose partitions may differ in that.
    pub is_fallback: bool,
    /// Bits read for a positive answer.
    pub probes: u32,
    /// Its theoretical false-positive rate.
    pub expected: f64,
    /// Bytes of memory if fully loaded.
    pub bytes: u64,
    /// Whether it can be queried. A whole filter that can be held nowhere answers "maybe" for every
    /// key; in a partitioned one, that applies to each partition separately.
    pub is_held: bool,
}

impl FilterFacts {
    /// The facts of a table without a filter.
    pub const NONE: Self = Self {
        kind: FilterLabel::BuiltIn(FilterKind::None),
        bits_requested: 0.0,
        bits_stored: 0.0,
        keys: 0,
        is_of_prefixes: false,
        is_fallback: false,
        probes: 0,
        expected: 1.0,
        bytes: 0,
        is_held: false,
    };
}
