//! Trommel: an embedded, ordered key-value store whose every SSTable probe is gated by a filter.
#![forbid(unsafe_code)]

mod version;
