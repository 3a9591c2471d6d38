//! Trommel: an embedded, ordered key-value store whose every SSTable probe is gated by a filter.
//!
//! ```
//! use trommel::{Db, Options, WriteBatch, WriteOptions};
//! # let dir = tempfile::tempdir().unwrap();
//! # let path = dir.path().join("data");
//! let options = Options::default().filters("L0=paired:20,L1-=blocked:12.5,last=none".parse()?);
//! let db = Db::open(&path, options)?;
//! db.put(b"k", b"v")?;
//! assert_eq!(db.get(b"k")?.as_deref(), Some(&b"v"[..]));
//!
//! let mut batch = WriteBatch::new();
//! batch.put(b"a", b"1").delete(b"k");
//! db.write_with(batch, WriteOptions::sync())?; // atomic, and on the device
//!
//! let snapshot = db.snapshot();
//! db.put(b"b", b"2")?;
//! for entry in snapshot.range("a".."z") {
//!     let (key, value) = entry?;
//!     assert_eq!((&*key, &*value), (&b"a"[..], &b"1"[..]));
//! }
//! db.close()?;
//! # Ok::<(), trommel::Error>(())
//! ```
//!
//! # Features
//! None is on by default. `zstd`: blocks compressed with zstd, which compiles C. `tracing`: what happens in the
//! background, and writers that have to wait, as events of the crate `tracing`.
//!
//! # Map
//! [`Db`] is the handle. A lookup goes `Db::get`, `Engine::get` (`read/get.rs`), `Lookup::probe`
//! (`read/probe.rs`), `Filter::may_contain_hash` (crate `trommel-filter`). A write goes `Db::put`,
//! `Engine::write` (`write/commit.rs`), the log and the memtable. `docs/architecture.md` has the
//! whole map.

#![forbid(unsafe_code)]

mod advice;
mod background;
mod batch;
mod budget;
mod compaction;
mod conformance;
mod counters;
mod current;
mod db;
mod destroy;
mod dir_sync;
pub mod dump;
mod engine;
mod env;
mod error;
mod events;
mod files;
mod filter_policy;
mod flush;
mod fork;
mod framed;
#[cfg(test)]
mod hostile_tests;
pub mod inspect;
mod install;
mod iter;
mod limiter;
mod log;
mod maintenance;
mod manifest;
mod memory;
#[cfg(all(test, trommel_loom))]
mod models;
mod options;
mod output;
mod passed;
mod prefix;
mod reach;
mod read;
mod rebuild;
mod recovery;
mod report;
mod rescue;
mod snapshot;
mod snapshots;
mod stats;
mod sync;
pub mod trace;
mod user_filters;
mod verify;
mod version;
mod view;
mod write;

pub use advice::{
    AdviceOptions, AdviceVerdict, FilterAdvice, FilterFigures, LOOKUPS_FOR_ADVICE, LevelAdvice,
};
pub use background::{BackgroundError, BackgroundJob};
pub use batch::{MAX_BATCH_BYTES, WriteBatch};
pub use budget::{BudgetReport, DriftReason, LevelDrift, TableDrift};
pub use conformance::Conformance;
pub use db::Db;
pub use destroy::DestroyReport;
pub use error::{Error, ErrorKind, Result};
pub use filter_policy::FilterPolicy;
pub use iter::range::{DbCursor, KeyRange, Range};
pub use options::{
    Compression, Durability, FilterResidency, FilterShape, Options, ReadMode, WriteOptions,
};
pub use prefix::Prefix;
pub use rebuild::{FilterRebuildPlan, FilterRebuildReport, RebuildOptions, TableRebuild};
pub use recovery::{DroppedBytes, RecoveryReport};
pub use report::{FilterLevel, FilterReport, wilson};
pub use rescue::{
    Damage, Degraded, Healthy, KeySpan, RecordBeyond, Remedy, RepairOptions, RepairReport,
};
pub use snapshot::Snapshot;
pub use stats::{LevelStats, MemoryStats, Stall, Stats};
pub use trommel_base::{Corruption, MAX_KEY_BYTES, MAX_VALUE_BYTES, Slice};
pub use trommel_filter as filter;
pub use trommel_filter::{FilterKind, FilterSpec};
pub use trommel_sstable::{FilterLabel, UserFilter, UserFilterBuilder};
pub use trommel_tuning as tuning;
pub use trommel_vfs as vfs;
pub use user_filters::{FilterChoice, FilterContext, FilterReason, PolicyReport, UserFilterPolicy};
pub use verify::VerifyReport;

/// The README's example, compiled and run with the other examples.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
