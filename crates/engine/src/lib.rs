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
//! # Start here
//! [`Db`] is the handle: [`Db::open`] opens or creates a store, [`Options`] says how, [`Db::close`]
//! ends it. Keys and values are bytes, at most [`MAX_KEY_BYTES`] and [`MAX_VALUE_BYTES`] long; keys
//! are ordered as bytes are.
//!
//! # Reading
//! [`Db::get`], [`Db::multi_get`] and [`Db::contains_key`] look keys up; [`Db::iter`],
//! [`Db::range`] and [`Db::prefix`] return a [`Range`], an iterator from both ends, over any
//! [`KeyRange`]; a [`DbCursor`] can be moved anywhere, and lends what it stands on. A [`Snapshot`]
//! reads the store as it was at one moment. What is read is a [`Slice`], which shares the memory of
//! its block: its page says what a kept one keeps.
//!
//! # Writing
//! [`Db::put`] and [`Db::delete`] write one key; a [`WriteBatch`] of [`BatchOp`]s is written as
//! one, or not at all; a [`RefusedOperation`] is what keeps one from being written.
//! [`Db::insert_if_absent`] and [`Db::compare_and_set`] look first. Writes return a [`SeqNo`], and
//! last as [`Durability`] says, for the store or with [`WriteOptions`].
//!
//! # Filters
//! A [`FilterPolicy`] of [`FilterSpec`]s says which [`FilterKind`] each level gets, a
//! [`FilterShape`] how it is cut, a [`FilterResidency`] where it is kept; a [`Prefix`] makes
//! filters that scans use. A [`FilterReport`] says what they did, a [`BudgetReport`] what their
//! bytes are worth, [`FilterAdvice`] what to have instead, and [`Db::rebuild_filters`] gives it to
//! tables that exist. A [`UserFilterPolicy`] brings filters of your own, and [`Conformance`] tests
//! them. The modules [`filter`] and [`tuning`] hold the filters and the arithmetic behind a budget.
//!
//! # Operations
//! [`Stats`] counts; [`Db::checkpoint`] copies; [`VerifyReport`], [`RecoveryReport`],
//! [`RepairReport`] and [`Damage`] say what was found; [`Degraded`] and [`Healthy`] read what is
//! left of a damaged store. The modules [`inspect`], [`dump`] and [`trace`] read single files, move
//! entries, and record lookups; [`vfs`] is the file system beneath.
//!
//! # Errors
//! [`Error`] says what went wrong and where, [`Error::kind`] what to do about it.
//!
//! # Features
//! None is on by default. `zstd`: blocks compressed with zstd, which compiles C. `tracing`: what
//! happens in the background, and writers that have to wait, as events of the crate `tracing`.
//! `serde`: [`Stats`] and its parts can be serialized.

#![forbid(unsafe_code)]

mod access;
mod advice;
mod background;
mod backlog;
mod batch;
mod budget;
mod budget_history;
mod compaction;
mod compaction_job;
mod compaction_options;
mod conformance;
mod counters;
mod current;
mod damage;
mod db;
mod destroy;
mod dir_sync;
pub mod dump;
mod engine;
mod env;
mod environment;
mod error;
mod events;
mod files;
mod filter_kinds;
mod filter_policy;
mod flush;
mod fork;
mod framed;
mod handle;
mod healthy;
#[cfg(test)]
mod hostile_tests;
pub mod inspect;
mod install;
mod iter;
mod job_counters;
mod jobs;
mod levels;
mod limiter;
mod log;
mod lookup_trace;
mod maintenance;
mod manifest;
mod memory;
#[cfg(all(test, trommel_loom))]
mod models;
mod names;
mod options;
mod options_file;
mod options_record;
mod output;
mod passed;
mod prefix;
mod purpose;
mod reach;
mod read;
mod read_mode;
mod rebuild;
mod rebuild_queue;
mod recovery;
mod recovery_report;
mod repair;
mod report;
mod rescue;
mod shared_merge;
mod snapshot;
mod snapshots;
mod statistics;
mod stats;
mod store_files;
mod store_memory;
mod sync;
pub mod trace;
mod user_filters;
mod verify;
mod version;
mod view;
mod workers;
mod write;
mod write_queue;

pub use advice::{
    AdviceOptions, AdviceVerdict, FilterAdvice, FilterFigures, LOOKUPS_FOR_ADVICE, LevelAdvice,
};
pub use background::BackgroundError;
pub use batch::{BatchIter, BatchOp, MAX_BATCH_BYTES, RefusedOperation, WriteBatch};
pub use budget::{BudgetReport, DriftReason, LevelDrift, TableDrift};
pub use conformance::Conformance;
pub use damage::{Damage, KeySpan, Remedy};
pub use db::Db;
pub use destroy::DestroyReport;
pub use environment::{Environment, EnvironmentBuilder, EnvironmentStats};
pub use error::{BackgroundJob, Error, ErrorKind, Result};
pub use filter_policy::FilterPolicy;
pub use healthy::Healthy;
pub use iter::range::{DbCursor, KeyRange, Range};
pub use job_counters::Stall;
pub use options::{
    Compression, Degraded, Durability, FilterResidency, FilterShape, Options, WriteOptions,
};
pub use options_file::{IgnoredOption, LatestOptions};
pub use prefix::Prefix;
pub use read_mode::ReadMode;
pub use rebuild::{FilterRebuildPlan, RebuildOptions, TableRebuild};
pub use rebuild_queue::FilterRebuildReport;
pub use recovery_report::{DroppedBytes, RecoveryReport};
pub use repair::{RepairOptions, RepairReport};
pub use report::{FilterLevel, FilterReport, wilson};
pub use rescue::RecordBeyond;
pub use snapshot::Snapshot;
pub use stats::{LevelStats, MemoryStats, Stats};
pub use trommel_base::{Corruption, MAX_KEY_BYTES, MAX_VALUE_BYTES, SeqNo, Slice};
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
