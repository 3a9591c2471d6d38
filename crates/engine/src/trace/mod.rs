//! Traces: which keys were looked up, how often, and where each lookup ended.
//!
//! A trace and the store's keys are enough to compute what other filters would have done (see
//! `trommel tune replay`). The format and its rationale are in docs/format/trace.md.
//!
//! 1. [`Db::trace_lookups`](crate::Db::trace_lookups) records lookups, all or a sample of them,
//!    until the [`LookupTrace`](crate::LookupTrace) is finished.
//! 2. A [`TraceWriter`] collects lookups, sorts them by key when there are enough, and writes them
//!    as a block in which equal ones are counted.
//! 3. A [`TraceReader`] yields a block's lookups after the block has passed its checksum and its
//!    contents were validated.
//!
//! ```
//! use trommel::trace::{Outcome, Place, TraceOptions, TraceReader};
//! # let dir = tempfile::tempdir().unwrap();
//! # let (store, file) = (dir.path().join("store"), dir.path().join("lookups.trace"));
//! let db = trommel::Db::open(&store, Default::default())?;
//! db.put("apple", "red")?;
//! db.flush()?;
//! let trace = db.trace_lookups(&file, TraceOptions::default())?;
//! db.get("apple")?;
//! db.get("plum")?;
//! assert_eq!(trace.finish()?.lookups, 2);
//!
//! let mut reader = TraceReader::open(&**db.vfs(), &file)?;
//! assert_eq!(reader.info().store_id, db.id());
//! let apple = reader.next_lookup()?.unwrap();
//! assert_eq!((apple.key, apple.times), (&b"apple"[..], 1));
//! assert_eq!(apple.outcome, Outcome { place: Place::Level(0), found: true });
//! let plum = reader.next_lookup()?.unwrap();
//! assert_eq!(plum.outcome, Outcome { place: Place::Nowhere, found: false });
//! assert!(reader.next_lookup()?.is_none());
//! # Ok::<(), trommel::Error>(())
//! ```

mod format;
mod reader;
mod record;
mod sample;
mod writer;

#[cfg(test)]
mod tests;

pub use format::{MAGIC, MAX_TIMES};
pub use reader::TraceReader;
pub(crate) use record::{TraceRecorder, TraceSlot};
pub use writer::TraceWriter;

/// Where a lookup ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Place {
    /// Nowhere: all tables that may hold the key were searched.
    Nowhere,
    /// In a memtable: no table was searched.
    Memory,
    /// In a table of this level, numbered as in reports: 0, or 1 for the first level below that
    /// holds data, and so on.
    Level(u8),
}

/// The outcome of a lookup.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Outcome {
    /// Where it ended.
    pub place: Place,
    /// Whether the key has a value there; if not, and it ended somewhere, the key was deleted.
    pub found: bool,
}

/// Equal lookups, as stored in a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TracedLookup<'a> {
    /// The key.
    pub key: &'a [u8],
    /// Their outcome.
    pub outcome: Outcome,
    /// Their number, at least one. A key may recur in another block.
    pub times: u64,
}

/// The description of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceInfo {
    /// [`Db::id`](crate::Db::id) of the store.
    pub store_id: u64,
    /// The sampling interval: one lookup of this many was recorded, at random; 1: all of them.
    pub sample: u64,
}

/// The contents of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct TraceTotals {
    /// Lookups recorded.
    pub lookups: u64,
    /// Bytes of all blocks' payloads.
    pub bytes: u64,
}

/// Options for recording lookups.
#[derive(Debug, Clone, Copy)]
pub struct TraceOptions {
    sample: u64,
    seed: Option<u64>,
}

impl Default for TraceOptions {
    /// All lookups.
    fn default() -> Self {
        Self { sample: 1, seed: None }
    }
}

impl TraceOptions {
    /// Records one lookup of `one_of`, each drawn at random and independently (1 to 2^32; default
    /// 1: all).
    #[must_use]
    pub fn sample(mut self, one_of: u64) -> Self {
        self.sample = one_of;
        self
    }

    /// The seed of the sample, for lookups by a single thread (default: random).
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }
}
