//! The options with which a sequence opens its store: tiny, so that a few thousand operations fill
//! many memtables, tables and levels, and different at every open.

use std::sync::{Arc, LazyLock};

use tempfile::TempDir;
use trommel::vfs::{DiskVfs, Vfs};
use trommel::{
    Compression, Durability, FilterPolicy, FilterResidency, FilterShape, MemtableKind, Options,
    Prefix, RangeSpec, ReadMode,
};
use trommel_sim::{MemoryVfs, SimDisk};
use trommel_tests::scratch::scratch;

use crate::rng::Rng;

/// The location of the files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Files {
    Memory,
    Disk,
    /// On a disk that loses unsynced writes in a power failure.
    Simulated,
}

/// The options that a test fixes for its sequences.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Home {
    pub(crate) files: Files,
    /// The read mode of three opens in four.
    pub(crate) read_mode: ReadMode,
    /// The number of background threads of three opens in four.
    pub(crate) threads: usize,
}

impl Home {
    pub(crate) const fn memory(read_mode: ReadMode, threads: usize) -> Self {
        Self { files: Files::Memory, read_mode, threads }
    }

    pub(crate) const fn disk(read_mode: ReadMode, threads: usize) -> Self {
        Self { files: Files::Disk, read_mode, threads }
    }

    pub(crate) const fn simulated(read_mode: ReadMode, threads: usize) -> Self {
        Self { files: Files::Simulated, read_mode, threads }
    }

    /// A new file system.
    pub(crate) fn vfs(self) -> Arc<dyn Vfs> {
        match self.files {
            Files::Memory => Arc::new(MemoryVfs::new()),
            Files::Disk => Arc::new(DiskVfs),
            Files::Simulated => Arc::new(SimDisk::new()),
        }
    }

    /// A new directory for its files, if they have one. On a disk if they are read directly, which
    /// not all systems can do in memory.
    pub(crate) fn directory(self) -> Option<TempDir> {
        (self.files == Files::Disk).then(|| match self.read_mode {
            ReadMode::Direct => tempfile::tempdir().expect("a temporary directory"),
            _ => scratch(),
        })
    }

    /// Its name on a command line.
    pub(crate) fn name(self) -> String {
        format!("{:?}-{}-{}", self.files, self.read_mode, self.threads).to_lowercase()
    }

    /// The home of this name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        let modes = ReadMode::ALL;
        let homes = modes.into_iter().flat_map(|mode| {
            (0..3).flat_map(move |threads| {
                [Files::Memory, Files::Disk, Files::Simulated].map(|files| Self {
                    files,
                    read_mode: mode,
                    threads,
                })
            })
        });
        homes.into_iter().find(|home| home.name() == name)
    }
}

/// One spec of every kind, and policies that differ by level.
const FILTERS: [&str; 12] = [
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

/// One of the policies. Finding the bits for a rate takes long, so they are parsed only once.
pub(crate) fn policy(rng: &mut Rng) -> FilterPolicy {
    static ALL: LazyLock<Vec<FilterPolicy>> = LazyLock::new(|| {
        FILTERS.iter().map(|text| text.parse().expect("the policies are well formed")).collect()
    });
    rng.pick(&ALL).clone()
}

/// Budgets in bits and bytes, generous and tight, of one kind and of several.
const BUDGETS: [&str; 5] = [
    "budget=10/key",
    "budget=5/key,kinds=blocked|standard,misses=0.9",
    "budget=3KiB,misses=1",
    "budget=600,L0=4..20",
    "budget=0",
];

/// A budget, once in four; drawn from a copy of the random stream, so that the stream does not
/// depend on it.
fn budget(rng: &Rng) -> Option<FilterPolicy> {
    static ALL: LazyLock<Vec<FilterPolicy>> = LazyLock::new(|| {
        BUDGETS.iter().map(|text| text.parse().expect("the budgets are well formed")).collect()
    });
    let mut aside = rng.clone();
    aside.once_in(4).then(|| aside.pick(&ALL).clone())
}

/// Range filters on some levels, half of the time; drawn from a copy of the random stream, as
/// a budget is.
fn with_ranges(rng: &Rng, policy: FilterPolicy) -> FilterPolicy {
    let mut aside = rng.clone();
    if aside.once_in(2) {
        return policy;
    }
    let spec = RangeSpec::new(*aside.pick(&[3.0, 6.0, 9.5, 20.0])).expect("it is in range");
    policy.ranges_on_levels(*aside.pick(&[0, 0, 1]).., spec)
}

/// A kind of memtable; drawn from a copy of the random stream, as a budget is.
fn memtable(rng: &Rng) -> MemtableKind {
    *rng.clone().pick(&MemtableKind::ALL)
}

/// Extractors of every kind, and none. Keys consist of random bytes and of digits; some begin with
/// long shared runs, some with 0xff.
fn extractor(rng: &mut Rng) -> Option<Prefix> {
    let text = match rng.below(8) {
        0 | 1 => return None,
        // The first byte is the length of the prefix: everything that determines it is in the
        // prefix.
        2 => {
            let by_first = |key: &[u8]| Some(usize::from(key.first()? % 4) + 1);
            let within = move |key: &[u8]| by_first(key).filter(|len| *len <= key.len());
            return Some(Prefix::custom("by first", within));
        }
        3 => return Some(Prefix::custom("all alike", |_| Some(0))),
        4 => "until:0",
        5 => "until:0,2",
        6 => "fixed:1",
        _ => rng.pick(&["fixed:2", "fixed:3", "fixed:17", "until:\\xff"]),
    };
    Some(text.parse().expect("it is well formed"))
}

/// Options of a store that flushes and compacts all the time.
pub(crate) fn options(rng: &mut Rng, home: Home, vfs: &Arc<dyn Vfs>) -> Options {
    let read_mode = if rng.once_in(4) { *rng.pick(&ReadMode::ALL) } else { home.read_mode };
    let threads = if rng.once_in(4) { rng.below(3) } else { home.threads };
    let durability = if rng.once_in(20) { Durability::Sync } else { Durability::Os };
    let options = Options::default()
        .vfs(Arc::clone(vfs))
        .reads(|r| r.read_mode(read_mode))
        .background_threads(threads)
        .durability(durability)
        .writes(|w| w.log(!rng.once_in(5)))
        .reads(|r| r.max_open_files(*rng.pick(&[16, 16, 40, 1000])));
    let options = if rng.once_in(6) {
        options.memory_limit(rng.within(64, 512) as u64 * 1024)
    } else {
        options
    };
    live_options(rng, options)
}

/// Changes options that can change on a live store.
pub(crate) fn live_options(rng: &mut Rng, options: Options) -> Options {
    let trigger = rng.within(1, 4);
    let slowdown = trigger + rng.within(1, 8);
    let extractor = extractor(rng);
    let has_extractor = extractor.is_some();
    let prefix_filters = rng.once_in(2).then(|| policy(rng));
    let whole_keys = !has_extractor || rng.once_in(2);
    let (budget, filters) = (budget(rng), policy(rng));
    let filters = with_ranges(rng, budget.unwrap_or(filters));
    let block_bytes = rng.within(64, 512);
    options
        .filtering(|f| {
            f.prefix_extractor(extractor)
                .prefix_filters(prefix_filters)
                .whole_key_filters(whole_keys)
        })
        .filters(filters)
        .filtering(|f| {
            f.filter_shape(*rng.pick(&[FilterShape::Whole, FilterShape::Partitioned]))
                .filter_partition_bytes(*rng.pick(&[256, 1024, 32 << 10]))
                .filter_residency(*rng.pick(&[
                    FilterResidency::Pinned,
                    FilterResidency::Cached,
                    FilterResidency::PinnedLevel0,
                ]))
                .pinned_filter_bytes(*rng.pick(&[None, None, Some(0), Some(2000)]))
        })
        .compression(*rng.pick(&[Compression::None, Compression::Lz4]))
        // With 4 KiB, each write fills a memtable.
        .writes(|w| {
            let memtable = memtable(rng);
            w.write_buffer_bytes(*rng.pick(&[4, 6, 8, 8, 10, 12, 16, 24]) << 10)
                .memtable(memtable)
                .max_frozen_memtables(rng.within(1, 4))
        })
        .reads(|r| r.block_bytes(block_bytes).block_align(block_bytes.is_multiple_of(2)))
        .compaction(|c| {
            c.table_bytes(rng.within(4, 16) as u64 * 1024)
                .base_level_bytes(rng.within(16, 64) as u64 * 1024)
                .level_ratio(rng.within(2, 10) as u32)
                .l0_trigger(trigger)
                .l0_slowdown(slowdown)
                .l0_stop(slowdown + rng.within(1, 12))
        })
        .reads(|r| r.cache_bytes(*rng.pick(&[0, 4 << 10, 64 << 10])))
        .compaction(|c| c.auto_compaction(!rng.once_in(10)))
}
