//! Options of a scan over a table.

/// Options of a scan over a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScanOptions {
    /// Whether blocks are read through the cache, and inserted into it until the scan reads ahead
    /// (default true). False for compactions.
    pub fill_cache: bool,
    /// Most bytes per read (default 128 KiB).
    pub read_ahead_bytes: usize,
    /// Whether each entry is compared with the previous one going forward, so that entries out of
    /// order cause an error (default false; true for compactions).
    pub check_order: bool,
    /// Whether a block that a lookup or another such scan has verified is not verified again
    /// (default false). Applies to uncompressed blocks in a map whose blocks lookups verify once
    /// ([`Table::verifying_once`](crate::Table::verifying_once)), if the scan fills the cache.
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
