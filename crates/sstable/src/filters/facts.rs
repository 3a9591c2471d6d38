//! What reports tell about a filter.

use trommel_filter::FilterKind;

use crate::verdict::FilterLabel;

/// Facts about a table's filter of whole keys; of prefixes, where it has no other.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FilterFacts {
    /// Its kind; [`FilterKind::None`] where there is none to query.
    pub kind: FilterLabel,
    /// Bits per key requested.
    pub bits_asked: f64,
    /// Bits per key stored.
    pub bits_stored: f64,
    /// Distinct keys in it, or prefixes.
    pub keys: u64,
    /// Whether it is of prefixes.
    pub is_of_prefixes: bool,
    /// Whether it is of another kind than was requested, as its keys could not be built into that.
    /// Always false for a partitioned filter, whose partitions may differ in that.
    pub is_fallback: bool,
    /// Bits that a positive answer reads.
    pub probes: u32,
    /// Its exact expected rate.
    pub expected: f64,
    /// Bytes of memory, were it loaded whole.
    pub bytes: u64,
    /// Whether it can be queried. A whole filter that can be held nowhere answers "maybe" to every
    /// key; of a partitioned one that holds for each partition by itself.
    pub is_held: bool,
}

impl FilterFacts {
    /// Those of no filter.
    pub const NONE: Self = Self {
        kind: FilterLabel::Own(FilterKind::None),
        bits_asked: 0.0,
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
