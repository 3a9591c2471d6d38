//! The options a sequence opens its store with: tiny, so that a few thousand operations fill many
//! memtables, tables and levels, and different at every opening.

use std::sync::Arc;

use trommel::vfs::Vfs;
use trommel::{Compression, Durability, Options, ReadMode};

use crate::rng::Rng;

/// What a test fixes of its sequences' options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Home {
    /// Whether the files lie on the disk, or in memory.
    pub(crate) on_disk: bool,
    /// The read mode of three openings in four.
    pub(crate) read_mode: ReadMode,
    /// The number of background threads of three openings in four.
    pub(crate) threads: usize,
}

impl Home {
    pub(crate) const fn memory(read_mode: ReadMode, threads: usize) -> Self {
        Self { on_disk: false, read_mode, threads }
    }

    pub(crate) const fn disk(read_mode: ReadMode, threads: usize) -> Self {
        Self { on_disk: true, read_mode, threads }
    }

    /// A word for it on a command line.
    pub(crate) fn name(self) -> String {
        let files = if self.on_disk { "disk" } else { "memory" };
        format!("{files}-{:?}-{}", self.read_mode, self.threads).to_lowercase()
    }

    /// The home of this name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        let modes = [ReadMode::Cached, ReadMode::Mapped, ReadMode::Direct];
        let homes = modes.into_iter().flat_map(|mode| {
            (0..3).flat_map(move |threads| [Self::memory(mode, threads), Self::disk(mode, threads)])
        });
        homes.into_iter().find(|home| home.name() == name)
    }
}

/// One spec of every kind, and policies that tell levels apart.
pub(crate) const FILTERS: [&str; 12] = [
    "none",
    "standard:10",
    "blocked:10",
    "paired:10",
    "paired:23.4",
    "standard:2",
    "blocked:3.5",
    "paired:fpr=1e-3",
    "L0=paired:20,L1-=blocked:12.5,last=none",
    "L0=none,L1=standard:6,L2-=paired:8",
    "L0-1=blocked:4,last=standard:16",
    "L1-=paired:16",
];

/// Options of a store that flushes and compacts all the time.
pub(crate) fn options(rng: &mut Rng, home: Home, vfs: &Arc<dyn Vfs>) -> Options {
    let read_mode = if rng.once_in(4) {
        *rng.pick(&[ReadMode::Cached, ReadMode::Mapped, ReadMode::Direct])
    } else {
        home.read_mode
    };
    let threads = if rng.once_in(4) { rng.below(3) } else { home.threads };
    let durability = if rng.once_in(20) { Durability::Sync } else { Durability::Os };
    let options = Options::default()
        .vfs(Arc::clone(vfs))
        .read_mode(read_mode)
        .background_threads(threads)
        .durability(durability)
        .log(!rng.once_in(5))
        .max_open_files(*rng.pick(&[16, 16, 40, 1000]));
    let options = if rng.once_in(6) {
        options.memory_limit(rng.within(64, 512) as u64 * 1024)
    } else {
        options
    };
    live_options(rng, options)
}

/// Changes what may change on a live store.
pub(crate) fn live_options(rng: &mut Rng, options: Options) -> Options {
    let trigger = rng.within(1, 4);
    let slowdown = trigger + rng.within(1, 8);
    options
        .filters(rng.pick(&FILTERS).parse().expect("the policies are well formed"))
        .compression(*rng.pick(&[Compression::None, Compression::Lz4]))
        // With 4 KiB, each write fills a memtable.
        .write_buffer_bytes(*rng.pick(&[4, 6, 8, 8, 10, 12, 16, 24]) << 10)
        .max_frozen_memtables(rng.within(1, 4))
        .block_bytes(rng.within(64, 512))
        .table_bytes(rng.within(4, 16) as u64 * 1024)
        .base_level_bytes(rng.within(16, 64) as u64 * 1024)
        .level_ratio(rng.within(2, 10) as u32)
        .l0_trigger(trigger)
        .l0_slowdown(slowdown)
        .l0_stop(slowdown + rng.within(1, 12))
        .cache_bytes(*rng.pick(&[0, 4 << 10, 64 << 10]))
        .auto_compaction(!rng.once_in(10))
}
