//! Random options: every open of the store draws new ones.

use std::time::Duration;

use fastrand::Rng;
use serde::{Deserialize, Serialize};
use trommel::{
    Compression, Durability, FilterPolicy, FilterResidency, FilterShape, MemtableKind, Options,
    Prefix, ReadMode,
};

/// The scale of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Profile {
    /// A few thousand keys, buffers of kilobytes: many events in little time.
    Tiny,
    /// A hundred thousand keys, buffers of about a megabyte.
    Default,
    /// Two million keys, and options near the store's defaults.
    Big,
}

/// The sizes of a profile.
#[derive(Debug, Clone, Copy)]
pub struct Sizes {
    /// Number of keys.
    pub keys: u32,
    /// Minimum and maximum bytes of values.
    pub values: (u32, u32),
    /// [`Options::memory_limit`] of the store.
    pub memory_limit: u64,
    /// Maximum bytes of a memtable.
    pub write_buffer: u64,
    /// Maximum of
    /// [`ReadSettings::max_open_files`](trommel::settings::ReadSettings::max_open_files).
    pub open_files: u64,
    /// Time limit of one operation.
    pub longest: Duration,
}

impl Profile {
    /// The profile's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tiny => "tiny",
            Self::Default => "default",
            Self::Big => "big",
        }
    }

    /// The profile's sizes.
    pub fn sizes(self) -> Sizes {
        let (keys, values, memory_limit, write_buffer, open_files, longest) = match self {
            Self::Tiny => (2_000, (16, 200), 8 << 20, 256 << 10, 64, 60),
            Self::Default => (100_000, (16, 1 << 10), 128 << 20, 4 << 20, 256, 60),
            Self::Big => (2_000_000, (16, 4 << 10), 1 << 30, 64 << 20, 1000, 600),
        };
        let longest = Duration::from_secs(longest);
        Sizes { keys, values, memory_limit, write_buffer, open_files, longest }
    }
}

const FILTERS: [&str; 12] = [
    "none",
    "standard:10",
    "standard:fpr=0.01",
    "blocked:12.5",
    "blocked:8",
    "paired:16",
    "paired:23.4",
    "ribbon:10",
    "ribbon:fpr=0.001",
    "L0=paired:20,L1-=blocked:12",
    "L0=blocked:10,L1-=ribbon:10,last=none",
    "L0=none,L1=standard:10,last=paired:8",
];
/// Budgets, generous and tight, in bits and in bytes.
const BUDGETS: [&str; 5] = [
    "budget=12/key",
    "budget=6/key,kinds=paired|blocked,misses=0.8",
    "budget=16KiB,misses=1",
    "budget=256KiB,kinds=ribbon|standard,L0=4..24",
    "budget=2/key,last=..6",
];
const PREFIXES: [&str; 4] = ["until:/", "fixed:9", "fixed:6", "fixed:40"];

/// A random element.
pub(super) fn pick<'a, T>(rng: &mut Rng, from: &'a [T]) -> &'a T {
    &from[rng.usize(..from.len())]
}

/// The bounds of random options.
#[derive(Debug, Clone)]
pub(super) struct Draw {
    pub(super) sizes: Sizes,
    /// [`Options::memory_limit`], where the options set one.
    pub(super) memory_limit: u64,
    /// The filters of every draw, if fixed.
    pub(super) filters: Option<FilterPolicy>,
}

/// A random policy without a budget.
fn specs(rng: &mut Rng) -> FilterPolicy {
    pick(rng, &FILTERS).parse().expect("the policies above are well formed")
}

/// A random number between `low` and `high`, uniform in magnitude.
fn size(rng: &mut Rng, low: u64, high: u64) -> u64 {
    let (low, high) = (low as f64, high.max(low) as f64);
    (low * (high / low).powf(rng.f64())) as u64
}

impl Draw {
    /// A random filter policy; one in four is a budget.
    pub(super) fn filters(&self, rng: &mut Rng) -> FilterPolicy {
        let drawn = if rng.u8(..4) == 0 {
            pick(rng, &BUDGETS).parse().expect("the budgets above are well formed")
        } else {
            specs(rng)
        };
        self.filters.clone().unwrap_or(drawn)
    }

    /// Changes options that can change on a live store.
    pub(super) fn change(&self, rng: &mut Rng, options: Options) -> Options {
        let (sizes, limit) = (self.sizes, self.memory_limit);
        let buffer = sizes.write_buffer;
        let prefix = (rng.u8(..2) == 0).then(|| {
            pick(rng, &PREFIXES).parse::<Prefix>().expect("the prefixes above are well formed")
        });
        let has_prefix = prefix.is_some();
        let shapes = [FilterShape::Whole, FilterShape::Partitioned];
        let trigger = rng.usize(2..6);
        let slowdown = trigger + rng.usize(4..12);
        let options = options
            .filters(self.filters(rng))
            .filtering(|f| {
                f.filter_shape(*pick(rng, &shapes))
                    .filter_partition_bytes(size(rng, 256, 64 << 10) as usize)
                    .filters_on_last_level(rng.u8(..4) > 0)
                    .filter_residency(*pick(
                        rng,
                        &[
                            FilterResidency::Pinned,
                            FilterResidency::Cached,
                            FilterResidency::PinnedLevel0,
                        ],
                    ))
                    .prefix_filters((rng.u8(..3) == 0).then(|| specs(rng)))
                    .whole_key_filters(!has_prefix || rng.u8(..3) > 0)
                    .prefix_extractor(prefix)
            })
            .durability(*pick(
                rng,
                &[Durability::Os, Durability::Os, Durability::Os, Durability::Sync],
            ))
            .writes(|w| {
                w.write_buffer_bytes(size(rng, buffer / 16, buffer) as usize)
                    .memtable(*pick(rng, &MemtableKind::ALL))
                    .max_frozen_memtables(rng.usize(1..5))
            })
            .reads(|r| r.block_bytes(size(rng, 256, 32 << 10) as usize))
            .compression(*pick(rng, &[Compression::None, Compression::Lz4]))
            .reads(|r| r.cache_bytes(size(rng, 64 << 10, limit)))
            .compaction(|c| c.table_bytes(size(rng, buffer / 16, buffer)))
            .writes(|w| w.spare_file_bytes(*pick(rng, &[0, buffer, 1 << 30])))
            .compaction(|c| {
                c.base_level_bytes(size(rng, buffer / 4, buffer * 4))
                    .level_ratio(rng.u32(3..12))
                    .l0_trigger(trigger)
                    .l0_slowdown(slowdown)
                    .l0_stop(slowdown + rng.usize(4..12))
            });
        // Slow enough to matter, but fast enough for progress.
        let slow = (8 << 20).max(u64::from(sizes.keys) << 6);
        let rate = (rng.u8(..6) == 0).then(|| size(rng, slow, slow * 8));
        options
            .compaction(|c| c.background_bytes_per_second(rate))
            .reads(|r| r.block_align(rng.bool()).sorted_view(rng.u8(..4) > 0))
    }

    /// The options of the next open.
    pub(super) fn options(&self, rng: &mut Rng) -> Options {
        let options = self.change(rng, Options::default());
        // Without background threads the store works on its callers' threads.
        let threads = *pick(rng, &[0, 1, 2, 2, 3, 4]);
        let options = options
            .reads(|r| {
                r.read_mode(*pick(rng, &ReadMode::ALL)).max_open_files(size(
                    rng,
                    16,
                    self.sizes.open_files,
                ) as usize)
            })
            .background_threads(threads);
        // A store must also work without a limit; the cache still bounds its memory.
        if rng.u8(..4) > 0 { options.memory_limit(self.memory_limit) } else { options }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ScratchDir;

    #[test]
    fn whatever_is_drawn_can_be_opened() {
        let scratch = ScratchDir::new(&std::env::temp_dir()).unwrap();
        let mut rng = Rng::with_seed(1);
        for profile in [Profile::Tiny, Profile::Default, Profile::Big] {
            let sizes = profile.sizes();
            let draw = Draw { sizes, memory_limit: sizes.memory_limit, filters: None };
            for _ in 0..30 {
                let options = draw.options(&mut rng);
                let db = trommel::Db::open(scratch.path().join("db"), options).unwrap();
                db.put("a", "b").unwrap();
                db.set_options(|o| draw.change(&mut rng, o)).unwrap();
                db.close().unwrap();
            }
        }
    }
}
