//! Builds the store of a cell.
//!
//! A filled tree is built from the bottom, each level at its final distance from the last:
//! 1. The level's keys are written and flushed in two halves, with the filter that the policy has
//!    for the level's final number: during construction it is the topmost.
//! 2. Compactions are enabled, with a ratio of 2 and a base level of such a size that exactly the
//!    required number of levels is needed above the last: so level 0 is compacted into the right
//!    level, and no level exceeds its target. Then compactions are disabled again.
//! 3. The runs of level 0 are written last, oldest first, and stay.
//!
//! A budget has no fixed filter for a level: it applies from the first key on, and its result at
//! the end is measured.
//!
//! The writer thread flushes and compacts, so that the same cell makes the same tree. Keys are
//! numbers scattered over the whole range, so that each run covers nearly all of it; each store of
//! a cell has different keys. Record 0 is the oldest, and each is written once.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use trommel::{Compression, Db, FilterPolicy, Options};
use trommel_harness::{Control, Error, KeySpace, RepeatableDisk, Values, mix};

use super::cell::{Cell, read_mode};
use super::shape::{Grown, KEY_BYTES, Shape};

/// Operations between two checks of the stop.
pub(super) const STRIDE: u64 = 1024;
/// Bytes of a memtable, unless more is needed.
const WRITE_BUFFER: u64 = 64 << 20;
/// Smallest base level that a store accepts.
const LEAST_BASE: u64 = 1 << 10;
/// A limit of runs in level 0 that is never reached, so that no writer stalls.
const NO_STALL: usize = 1 << 20;

/// The keys of one store.
pub(super) struct Keys {
    space: KeySpace,
    first: u64,
}

impl Keys {
    /// The keys of store number `nth` of the cell.
    pub(super) fn new(cell: &Cell, nth: u64) -> Result<Self, Error> {
        let space = KeySpace::integers(cell.tree.keys(), KEY_BYTES)?;
        Ok(Self { space, first: mix(mix(cell.seed) ^ nth) })
    }

    /// The key space.
    pub(super) fn space(&self) -> &KeySpace {
        &self.space
    }

    /// Number of keys.
    pub(super) fn len(&self) -> u64 {
        self.space.len()
    }

    /// The number of a record's key.
    pub(super) fn number(&self, record: u64) -> u64 {
        mix(self.first.wrapping_add(record))
    }
}

/// The options of the cell's stores, for filling and for measuring.
pub(super) fn options(cell: &Cell) -> Options {
    let tree = &cell.tree;
    Options::default()
        .vfs(Arc::new(RepeatableDisk))
        .compression(Compression::None)
        .compaction(|c| c.table_bytes(tree.table_bytes).auto_compaction(false))
        .reads(|r| {
            r.block_bytes(usize::try_from(tree.block_bytes).unwrap_or(usize::MAX))
                .cache_bytes(cell.cache_bytes)
                .read_mode(read_mode(&cell.read_mode).unwrap_or_default())
        })
        .background_threads(0)
        .writes(|w| w.log(false))
}

/// Builds the store in `dir` and closes it.
///
/// # Errors
/// The store's errors, and [`Error::Interrupted`] if stopped.
pub(super) fn build(
    cell: &Cell,
    policy: &FilterPolicy,
    keys: &Keys,
    dir: &Path,
    control: Control<'_>,
) -> Result<(), Error> {
    let tree = &cell.tree;
    let buffer = match &tree.grown {
        Some(grown) => grown.write_buffer_bytes,
        // Twice the size of a run of level 0, which is one table.
        None => tree.l0.iter().map(|keys| 2 * tree.memory_of(*keys)).fold(WRITE_BUFFER, u64::max),
    };
    let options = options(cell)
        .opening(|o| o.create_if_missing(true).error_if_exists(true))
        .filters(policy.clone())
        .writes(|w| {
            w.write_buffer_bytes(usize::try_from(buffer.min(4 << 30)).unwrap_or(usize::MAX))
        })
        .compaction(|c| c.l0_slowdown(NO_STALL).l0_stop(2 * NO_STALL).debt_stop_bytes(u64::MAX));
    let db = Db::open(dir, options).map_err(store_error)?;
    let values = Values::new(usize::try_from(tree.value_bytes).unwrap_or(0), 0.5, cell.seed);
    let builder = Builder { db: &db, keys, values: &values, control };
    match &tree.grown {
        Some(grown) => builder.grow(grown)?,
        None => builder.fill(tree, policy)?,
    }
    db.close().map_err(store_error)
}

/// Converts an error of the store.
pub(super) fn store_error(error: trommel::Error) -> Error {
    Error::Store(error.into())
}

struct Builder<'a> {
    db: &'a Db,
    keys: &'a Keys,
    values: &'a Values,
    control: Control<'a>,
}

impl Builder<'_> {
    fn fill(&self, tree: &Shape, policy: &FilterPolicy) -> Result<(), Error> {
        let mut next = 0;
        for (height, &keys) in tree.levels.iter().rev().enumerate() {
            let level = tree.levels.len() - height;
            self.filter_for(policy, level, height == 0)?;
            for part in [next..next + keys / 2, next + keys / 2..next + keys] {
                self.write(part)?;
                self.db.flush().map_err(store_error)?;
            }
            self.merge(height)?;
            next += keys;
        }
        self.filter_for(policy, 0, false)?;
        for &keys in tree.l0.iter().rev() {
            self.write(next..next + keys)?;
            self.db.flush().map_err(store_error)?;
            next += keys;
        }
        Ok(())
    }

    /// Sets the filter of new tables to the policy's filter for a level.
    fn filter_for(&self, policy: &FilterPolicy, level: usize, is_last: bool) -> Result<(), Error> {
        if policy.to_string().contains("budget=") {
            return Ok(());
        }
        let spec = policy.for_level(level, is_last);
        self.db.set_filters(FilterPolicy::uniform(spec)).map_err(store_error)
    }

    /// Compacts level 0 into the level at this distance from the last.
    fn merge(&self, height: usize) -> Result<(), Error> {
        let levels = self.db.stats().levels;
        let below: u64 = levels.iter().filter(|at| at.level > 0).map(|at| at.bytes).sum();
        // With S bytes below, a base level of at least S / 2^(height + 1) bytes needs no further
        // level above this one, and one of less than S / 2^height needs this one: take the middle
        // of both.
        let base = ((below * 3) >> (height + 2)).max(LEAST_BASE);
        let steer = |options: Options| {
            options.compaction(|c| {
                c.auto_compaction(true).l0_trigger(1).level_ratio(2).base_level_bytes(base)
            })
        };
        self.db.set_options(steer).map_err(store_error)?;
        self.db.wait_idle().map_err(store_error)?;
        self.db
            .set_options(|options| options.compaction(|c| c.auto_compaction(false)))
            .map_err(store_error)
    }

    fn grow(&self, grown: &Grown) -> Result<(), Error> {
        let shape = |options: Options| {
            options.compaction(|c| {
                c.auto_compaction(true)
                    .l0_trigger(usize::try_from(grown.l0_trigger).unwrap_or(usize::MAX))
                    .level_ratio(grown.ratio)
                    .base_level_bytes(grown.base_level_bytes)
            })
        };
        self.db.set_options(shape).map_err(store_error)?;
        self.write(0..grown.keys)?;
        self.db.flush().map_err(store_error)?;
        self.db.wait_idle().map_err(store_error)
    }

    fn write(&self, records: Range<u64>) -> Result<(), Error> {
        let mut maker = self.keys.space().maker();
        let mut position = 0;
        for (nth, record) in (1..).zip(records) {
            let value = self.values.next(&mut position);
            self.db.put(maker.key(self.keys.number(record)), value).map_err(store_error)?;
            if nth % STRIDE == 0 {
                self.control.progress.advance(STRIDE);
                if self.control.stop.is_set() {
                    return Err(Error::Interrupted);
                }
            }
        }
        Ok(())
    }
}
