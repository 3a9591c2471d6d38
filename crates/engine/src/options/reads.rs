//! How blocks are laid out, read and cached.

use crate::memory::default_cache_bytes;
use crate::options::table::settings;
use crate::read_mode::ReadMode;

/// Capacity of the block cache in bytes, or the machine's default if it was not set.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CacheBytes(Option<u64>);

impl CacheBytes {
    pub(super) fn of(bytes: u64) -> Self {
        Self(Some(bytes))
    }

    fn an_eighth_of_memory() -> Self {
        Self(None)
    }

    /// The capacity that was set, or else one determined from the machine's memory.
    pub(crate) fn get(self) -> u64 {
        self.0.unwrap_or_else(default_cache_bytes)
    }
}

settings! {
    /// How blocks are laid out, read and cached: see [`Options::reads`](crate::Options::reads).
    ReadSettings {
        /// How blocks are read from tables.
        read_mode: ReadMode = ReadMode::Cached;
        /// Capacity of the block cache, in bytes. The default is an eighth of the memory that the
        /// process may use, at most 1 GiB. That memory is the machine's, or less if a control
        /// group, `RLIMIT_AS` or `RLIMIT_DATA` limits it.
        cache_bytes(u64 => CacheBytes::of): CacheBytes = CacheBytes::an_eighth_of_memory();
        /// Maximum number of open tables; never more than half of the process's limit on open files
        /// (`ulimit -n`), less some for logs and new tables. A store with more tables closes and
        /// reopens them, and the cached blocks of a closed table are not found again.
        max_open_files: usize = 1000, 16..;
        /// Size of a data block before compression, in bytes: the unit of reading and verifying.
        block_bytes: usize = 4 << 10, 64..=1 << 20;
        /// Whether data blocks are padded to a page boundary of 4 KiB, for stores without
        /// [`compression`](crate::Options::compression): a compressed block is not padded. A block
        /// of 4 KiB is then on one page instead of two, so that an uncached read takes half as much
        /// from the device and leaves half as much in the page cache. Padding takes about half an
        /// entry per block, 3 to 5% of the data with values of 256 bytes, and never more than an
        /// eighth of the bytes written: with large entries some blocks are not padded. Useful for
        /// data larger than memory.
        block_align: bool = false;
    }
}
