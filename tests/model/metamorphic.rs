//! The same operations on sixteen stores with different options: the histories of their results are
//! equal, byte by byte.
//!
//! The stores are built as in [`crate::lean`], so each result is compared with the model as well;
//! in addition this shows that no result depends on an option. Every store takes each step before
//! any takes the next, and the digests of all results so far are compared after each step, so that
//! a difference is found where it begins. Options that [`SETS`] does not name are drawn separately
//! for each store and each of its opens.

use std::hash::Hasher;
use std::sync::Arc;

use trommel::vfs::Vfs;
use trommel::{Compression, Durability, FilterShape, Options, ReadMode, Verify};
use trommel_tests::settings::{cases, stride};

use crate::config::{Home, options};
use crate::iterators::Check;
use crate::lean::{self, Kind, Lean};
use crate::rng::Rng;
use crate::runner::{self, Play};
use crate::world::Work;

/// The fixed options of one of the stores.
#[derive(Debug, Clone, Copy)]
struct Set {
    read_mode: ReadMode,
    threads: usize,
    filters: &'static str,
    shape: FilterShape,
    compression: Compression,
    log: bool,
    durability: Durability,
    write_buffer: usize,
    block: usize,
    table: u64,
    cache: u64,
}

use Compression::{Lz4, None as Plain};
use Durability::{Os, Sync};
use FilterShape::{Partitioned, Whole};
use ReadMode::{Cached, Direct};

const MAPPED: ReadMode = ReadMode::Mapped(Verify::EachUse);

#[rustfmt::skip]
const SETS: [Set; 16] = [
    set(Cached, 0, "paired:12",    Whole,       Lz4,   true,  Os,   8,  256,   8,  64),
    set(MAPPED, 0, "none",         Whole,       Plain, true,  Os,   4,  64,    4,  0),
    set(Direct, 0, "standard:10",  Partitioned, Lz4,   true,  Os,   16, 512,   16, 16),
    set(Cached, 1, "budget=2KiB", Partitioned, Plain, true,  Os,   4,  128,   4,  4),
    set(MAPPED, 1, "ribbon:8",     Whole,       Lz4,   true,  Sync, 8,  256,   4,  64),
    set(Direct, 1, "paired:20",    Partitioned, Lz4,   false, Os,   24, 1024,  8,  0),
    set(Cached, 2, "standard:2",   Partitioned, Plain, true,  Os,   6,  64,    64, 1024),
    set(MAPPED, 2, "blocked:3.5",  Partitioned, Lz4,   false, Sync, 12, 4096,  4,  4),
    set(Direct, 2, "ribbon:6",     Partitioned, Plain, true,  Os,   10, 96,    6,  64),
    set(Cached, 3, "L0=none,L1-=paired:10", Whole, Lz4, true, Os,   8,  300,   8,  8),
    set(MAPPED, 4, "L0=paired:16,last=none", Partitioned, Plain, true, Os, 4, 200, 5, 64),
    set(Cached, 0, "L0-1=ribbon:7,last=standard:6", Partitioned, Lz4, false, Os, 64, 512, 32, 64),
    set(MAPPED, 0, "blocked:16",   Partitioned, Lz4,   true,  Sync, 5,  64,    4,  0),
    set(Direct, 4, "budget=8/key", Whole,       Plain, true,  Os,   4,  256,   4,  4),
    set(Cached, 0, "budget=12/key,kinds=standard|blocked", Partitioned, Lz4,   true,  Os,   256, 4096, 256, 1024),
    set(MAPPED, 0, "budget=6/key,misses=1", Partitioned, Plain, true,  Os,   7,  128,   12, 16),
];

/// A set; sizes of buffer, table and cache in KiB.
#[expect(clippy::too_many_arguments, reason = "a row of the table above")]
const fn set(
    read_mode: ReadMode,
    threads: usize,
    filters: &'static str,
    shape: FilterShape,
    compression: Compression,
    log: bool,
    durability: Durability,
    write_buffer: usize,
    block: usize,
    table: u64,
    cache: u64,
) -> Set {
    Set {
        read_mode,
        threads,
        filters,
        shape,
        compression,
        log,
        durability,
        write_buffer,
        block,
        table,
        cache,
    }
}

impl Set {
    fn options(self, rng: &mut Rng, home: Home, vfs: &Arc<dyn Vfs>) -> Options {
        options(rng, home, vfs)
            .reads(|r| {
                r.read_mode(self.read_mode).block_bytes(self.block).cache_bytes(self.cache << 10)
            })
            .background_threads(self.threads)
            .filters(self.filters.parse().expect("the policies are well formed"))
            .filtering(|f| f.filter_shape(self.shape))
            .compression(self.compression)
            .writes(|w| w.log(self.log).write_buffer_bytes(self.write_buffer << 10))
            .durability(self.durability)
            .compaction(|c| c.table_bytes(self.table << 10))
    }
}

/// Sixteen stores.
struct Many {
    stores: Vec<Lean>,
}

impl Play for Many {
    type Kind = Kind;
    const NAME: &'static str = "metamorphic";
    const OPERATIONS: usize = 4000;
    const EVENTFUL: u64 = 9;

    fn weights(rng: &mut Rng) -> Vec<(Kind, usize)> {
        // The result of a power failure differs between the stores. `set_options` would draw the
        // same for all: it would make the sets alike.
        let mut weights = lean::weights(rng);
        weights.retain(|(kind, _)| !matches!(kind, Kind::PowerCut | Kind::SetOptions));
        weights
    }

    fn begin(seed: u64, home: Home) -> Check<Self> {
        let store = |(at, set): (usize, Set)| {
            let choose = move |rng: &mut Rng, home: Home, vfs: &Arc<dyn Vfs>| {
                // The other options are drawn for each store separately.
                let mut own = Rng::new(rng.u64() ^ at as u64);
                set.options(&mut own, home, vfs)
            };
            Lean::with(seed, home, Box::new(choose)).map_err(|fault| format!("{set:?}: {fault}"))
        };
        let stores = SETS.into_iter().enumerate().map(store).collect::<Check<_>>()?;
        Ok(Self { stores })
    }

    fn apply(&mut self, kind: Kind, seed: u64) -> Check {
        let mut first = None;
        for (store, set) in self.stores.iter_mut().zip(SETS) {
            store.step(kind, seed).map_err(|fault| format!("{set:?}: {fault}"))?;
            let digest = store.history.finish();
            if *first.get_or_insert(digest) != digest {
                return Err(format!("{set:?} answers otherwise than {:?}", SETS[0]));
            }
        }
        Ok(())
    }

    fn finish(self) -> Check<Work> {
        let mut all = Work::default();
        for mut store in self.stores {
            store.end()?;
            all.add(&store.work);
        }
        Ok(all)
    }
}

/// Number of sequences in CI.
const SEQUENCES: u64 = 26;

const _: () = assert!(
    SEQUENCES * Many::OPERATIONS as u64 >= 100_000 && SETS.len() >= 16,
    "a hundred thousand operations under sixteen sets of options are promised"
);

/// The share of the seeds from which the sequences are drawn: one whose first sequences are short.
const SHARE: u64 = 8;

#[test]
fn no_option_changes_an_answer() {
    let home = Home::simulated(Cached, 0);
    // One alone need not be killed.
    let sequences = cases(SEQUENCES).div_ceil(stride() as u64).max(2);
    let all = runner::run_all::<Many>("no_option_changes_an_answer", SHARE, home, sequences);
    assert!(all.kills > 0, "{all:?}");
}

/// Runs the one sequence that the environment names; otherwise does nothing.
#[test]
fn replay() {
    runner::replay::<Many>();
}
