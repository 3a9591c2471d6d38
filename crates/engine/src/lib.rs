//! Trommel: an embedded, ordered key-value store whose every SSTable probe is gated by a filter.
#![forbid(unsafe_code)]

#[cfg_attr(not(test), expect(dead_code, reason = "wired in by the next commit"))]
mod compaction;
#[cfg_attr(not(test), expect(dead_code, reason = "wired in by the next commit"))]
mod iter;
#[cfg_attr(not(test), expect(dead_code, reason = "wired in by the next commit"))]
mod log;
#[cfg_attr(not(test), expect(dead_code, reason = "wired in by the next commit"))]
mod manifest;
mod version;
