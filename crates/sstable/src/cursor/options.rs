//! How a scan over a table reads.

/// How a scan reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScanOptions {
    /// Whether blocks come from the cache and, as long as the scan is not reading ahead, stay in
    /// it (default true). False for compactions.
    pub fill_cache: bool,
    /// Most bytes read in one go (default 128 KiB).
    pub read_ahead_bytes: usize,
    /// Whether each entry is compared with the one before it on the way forward, so that a table
    /// in which they are out of order ends in an error (default false; true for compactions).
    pub check_order: bool,
    /// Whether a block that a lookup or such a scan has verified is not verified again (default
    /// false). It applies to blocks that are not compressed, in a map whose blocks lookups verify
    /// once ([`Table::verifying_once`](crate::Table::verifying_once)), if the scan fills the cache.
    pub trust_verified: bool,
}

impl Default for ScanOptions {
    fn default() -> Self {
        Self {
            fill_cache: true,
            read_ahead_bytes: 128 << 10,
            check_order: false,
            trust_verified: false,
        }
    }
}
