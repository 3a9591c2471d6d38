//! Traces: which keys were looked up, how often, and where each lookup ended.
//!
//! A trace and a store's own keys are all it takes to say what other filters would have done
//! (`trommel tune replay`). The format, and why it holds what it holds, is docs/format/trace.md.
//!
//! 1. [`Db::trace_lookups`](crate::Db::trace_lookups) has lookups recorded, all or a sample of
//!    them, until the [`LookupTrace`] is finished.
//! 2. A [`TraceWriter`] gathers lookups, sorts them by key when there are enough, and writes them
//!    as a block in which equal ones are counted.
//! 3. A [`TraceReader`] hands a block's lookups out once the block has passed its checksum and was
//!    found to hold what it should.
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
pub use record::LookupTrace;
pub(crate) use record::{TraceSlot, Traced};
pub use writer::TraceWriter;

/// Where a lookup ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Place {
    /// Nowhere: it went through all tables that may hold the key.
    Nowhere,
    /// In a memtable: no table was asked.
    Memory,
    /// In a table of this level, counted as reports do: 0, or 1 for the first level below that
    /// holds data, and so on.
    Level(u8),
}

/// How a lookup ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Outcome {
    /// Where.
    pub place: Place,
    /// Whether the key has a value there; if not, and it ended somewhere, the key was deleted.
    pub found: bool,
}

/// Lookups that are alike, as a trace holds them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TracedLookup<'a> {
    /// The key.
    pub key: &'a [u8],
    /// How they ended.
    pub outcome: Outcome,
    /// How many there were, one at least. A key may come again in another block.
    pub times: u64,
}

/// What a trace says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceInfo {
    /// [`Db::id`](crate::Db::id) of the store.
    pub store_id: u64,
    /// One lookup of so many was recorded, drawn at random; 1: all of them.
    pub sample: u64,
}

/// What a trace holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct TraceTotals {
    /// Lookups recorded.
    pub lookups: u64,
    /// Bytes of all blocks' payloads.
    pub bytes: u64,
}

/// How lookups are recorded.
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
    /// Records one lookup of so many, each drawn at random and by itself (1 to 2^32; default 1:
    /// all).
    #[must_use]
    pub fn sample(mut self, one_of: u64) -> Self {
        self.sample = one_of;
        self
    }

    /// Decides which lookups are drawn, where one thread looks up (default: random).
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }
}
