//! Small stores for scenarios.

use std::sync::Arc;

use trommel::{Db, Options, Slice};
use trommel_sim::{Policy, SimDisk};

const DIR: &str = "/store";

/// Options of a store on `disk` whose memtable is full after one write.
pub(crate) fn options(disk: &SimDisk) -> Options {
    Options::default()
        .vfs(Arc::new(disk.clone()))
        .writes(|w| w.write_buffer_bytes(4 << 10))
        .reads(|r| r.cache_bytes(64 << 10))
        .background_threads(1)
}

pub(crate) fn open(options: Options) -> Db {
    Db::open(DIR, options).unwrap()
}

/// The store after a power failure at this point that keeps only what was synced. No other thread
/// runs before the disk is copied.
pub(crate) fn after_power_cut(disk: &SimDisk) -> Db {
    let left = disk.crash(Policy::SYNCED, 0).disk();
    open(options(&left).background_threads(0))
}

/// The number in a value; 0 if there is none.
pub(crate) fn number(value: Option<Slice>) -> u64 {
    value.map_or(0, |value| u64::from_le_bytes(value[..8].try_into().unwrap()))
}
