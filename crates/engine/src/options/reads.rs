//! How blocks are laid out, read and cached.

use crate::memory::default_cache_bytes;
use crate::options::table::settings;
use crate::read_mode::ReadMode;

/// Bytes of the block cache; where none were set, what the machine allows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CacheBytes(Option<u64>);

impl CacheBytes {
    pub(super) fn of(bytes: u64) -> Self {
        Self(Some(bytes))
    }

    fn an_eighth_of_memory() -> Self {
        Self(None)
    }

    /// Looks at the machine where none were set.
    pub(crate) fn get(self) -> u64 {
        self.0.unwrap_or_else(default_cache_bytes)
    }
}

settings! {
    /// How blocks are laid out, read and cached: see [`Options::reads`](crate::Options::reads).
    ReadSettings {
        /// How table blocks reach memory.
        read_mode: ReadMode = ReadMode::Cached;
        /// Bytes of the block cache. Unless set, they are an eighth of the memory that the process
        /// may use, at most 1 GiB: of the machine's memory, or of less where a control group,
        /// `RLIMIT_AS` or `RLIMIT_DATA` limits it.
        cache_bytes(u64 => CacheBytes::of): CacheBytes = CacheBytes::an_eighth_of_memory();
        /// Most table files that are open; never more than half of what the process may have open
        /// (`ulimit -n`), less some for logs and new tables. A store of more tables reopens them
        /// again and again, and no longer finds the blocks of a closed table in its block cache.
        max_open_files: usize = 1000, 16..;
        /// Bytes of a table block before compression.
        block_bytes: usize = 4 << 10, 64..=1 << 20;
        /// Whether table blocks are padded to the end of a page of 4 KiB: for stores without
        /// [`compression`](crate::Options::compression), as a compressed block is not padded.
        /// Blocks of 4 KiB, or a multiple, then lie in as few pages as they fill, otherwise in one
        /// more: that many a read of one that is not in memory takes from the device, and leaves in
        /// the page cache. Padding takes about half an entry of each block, 3 to 5% of the data
        /// with values of 256 B, and at most an eighth of what is then written: where entries are
        /// large some blocks go without. For data larger than memory.
        block_align: bool = false;
    }
}
