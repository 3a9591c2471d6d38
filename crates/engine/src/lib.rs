//! Trommel: an embedded, ordered key-value store with a filter in front of every SSTable.
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
//! [`Db`] is the handle: [`Db::open`] opens or creates a store with [`Options`] (its groups are
//! in [`settings`]), and [`Db::close`] closes it. Keys and values are bytes, of at most
//! [`MAX_KEY_BYTES`] and [`MAX_VALUE_BYTES`]; keys are ordered bytewise.
//!
//! # Reading
//! [`Db::get`], [`Db::multi_get`] and [`Db::contains_key`] look up keys. [`Db::iter`],
//! [`Db::range`] and [`Db::prefix`] return a [`Range`], a double-ended iterator over a
//! [`KeyRange`]. A [`DbCursor`] can be moved to any key and lends its current entry. A [`Snapshot`]
//! reads the store as of one moment. Reads return a [`Slice`], which shares the memory of its
//! block; its page describes how much memory a long-lived one holds.
//!
//! A [`Follower`] reads a store that another process writes: [`Db::open_follower`].
//! [`FollowerStats`] counts its reads of the store's files.
//!
//! # Writing
//! [`Db::put`] and [`Db::delete`] write one key, and [`Db::merge`] changes its value by a
//! [`MergeOperator`], without reading it. [`Merge`] provides built-in operators, such as a counter
//! and a set, whose value is read as [`SetItems`] (or is an [`InvalidSet`]). A [`MergeFailure`]
//! with its [`MergeCause`] reports an operator that failed. A [`WriteBatch`] of [`BatchOp`]s is
//! written atomically; a [`RefusedOperation`] is an operation that makes it unwritable.
//! [`Db::insert_if_absent`], [`Db::compare_and_set`] and batches with conditions
//! ([`WriteBatch::expect_absent`]) write conditionally. A [`Transaction`] makes any number of reads
//! and writes one atomic operation: [`Db::transaction`]. If another write prevents one of these, a
//! [`Conflict`] names the key and what was [`Expected`] of it. A [`TransactionRange`] iterates in a
//! transaction. Writes return a [`SeqNo`]; their [`Durability`] is set for the store or by
//! [`WriteOptions`].
//!
//! # Loading
//! [`Db::load_sorted`] writes sorted entries to tables directly. A [`TableWriter`] writes them to
//! files outside any store, each described by a [`WrittenTable`], and [`Db::ingest`] loads such
//! files; an [`IngestBatch`] holds files for several keyspaces. A [`LoadReport`] describes what was
//! loaded.
//!
//! # Keyspaces
//! A [`Keyspace`] is a sorted map of its own in the same store: [`Db::keyspace`], with
//! [`KeyspaceOptions`]. A [`KeyspaceBatch`], [`KeyspaceSnapshot`] and [`KeyspaceTransaction`] are
//! its part of a batch, a snapshot and a transaction.
//!
//! # Filters
//! A [`FilterPolicy`] of [`FilterSpec`]s chooses the [`FilterKind`] of each level, [`FilterShape`]
//! sets its partitioning, and [`FilterResidency`] where it is held in memory; a [`Prefix`] adds
//! filters for scans. A [`FilterReport`] shows what the filters did, a [`BudgetReport`] what their
//! bytes are worth, and [`FilterAdvice`] which filters would serve better; [`Db::rebuild_filters`]
//! applies a new policy to existing tables. A [`UserFilterPolicy`] provides filters of your own,
//! and [`Conformance`] tests them. The modules [`filter`] and [`tuning`] hold the filters and the
//! arithmetic of budgets.
//!
//! # Operations
//! [`Stats`] holds the counters, and [`LatencyStats`] the times of each [`TimedOperation`], of one
//! in [`LATENCY_SAMPLE`]; a [`BackgroundTrace`] shows background work as a time line, and a
//! [`MetricsFile`] has the metrics for other processes. [`Db::checkpoint`] copies the store;
//! [`VerifyReport`], [`RecoveryReport`], [`RepairReport`] and [`Damage`] report corruption;
//! [`Degraded`] and [`Healthy`] read the intact data of a corrupt store. The modules [`inspect`],
//! [`dump`] and [`trace`] read single files, move entries, and record lookups; [`vfs`] is the
//! interface to the file system.
//!
//! # Errors
//! An [`Error`] describes what went wrong and where; [`Error::kind`] returns what to do about it.
//!
//! # Features
//! None is on by default. `zstd`: block compression with zstd, which compiles C. `tracing`:
//! background work and write stalls as events of the crate `tracing`. `serde`: [`Stats`] and its
//! parts can be serialized. `metrics`: [`Stats`] through the crate `metrics`.

#![forbid(unsafe_code)]

mod access;
mod advice;
mod ascending;
mod background;
mod background_trace;
mod backlog;
mod batch;
mod bounds;
mod budget;
mod budget_history;
mod changes;
mod compaction;
mod compaction_filter;
mod compaction_job;
mod compaction_options;
mod conflict;
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
mod expiry;
#[cfg(feature = "metrics")]
mod facade;
mod false_positives;
mod families;
mod files;
mod filter_kinds;
mod filter_policy;
mod flush;
mod folding;
mod follow;
mod fork;
mod framed;
mod handle;
mod healthy;
#[cfg(test)]
mod hostile_tests;
mod ingest;
pub mod inspect;
mod install;
mod iter;
mod job_counters;
mod jobs;
mod keyspace;
mod keyspace_stats;
mod keyspaces;
mod latencies;
mod levels;
mod limiter;
mod live_keys;
mod log;
mod log_archive;
mod lookup_trace;
mod maintenance;
mod manifest;
mod memory;
mod merge_failure;
mod merge_operator;
mod metric_family;
#[cfg(all(test, trommel_loom))]
mod models;
mod names;
mod openmetrics;
mod options;
mod options_file;
mod options_record;
mod output;
mod prefix;
mod purpose;
mod ranges;
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
mod retry;
mod shared_merge;
mod snapshot;
mod snapshots;
mod sorted_load;
mod space;
mod statistics;
mod stats;
mod store_files;
mod store_memory;
mod sync;
mod table_writer;
mod timer;
pub mod trace;
mod transaction;
mod user_filters;
mod verify;
mod version;
mod view;
mod watch;
mod workers;
mod write;
mod write_queue;

pub use advice::{
    AdviceOptions, AdviceVerdict, FilterAdvice, FilterFigures, LOOKUPS_FOR_ADVICE, LevelAdvice,
    RangeAdvice,
};
pub use background::BackgroundError;
pub use background_trace::BackgroundTrace;
pub use batch::{BatchIter, BatchOp, MAX_BATCH_BYTES, RefusedOperation, WriteBatch};
pub use bounds::KeyRange;
pub use budget::{BudgetReport, BudgetSpace, BudgetValue, DriftReason, LevelDrift, TableDrift};
pub use changes::{ChangedBatch, ChangedKeyspace, ChangedOp, Changes};
pub use compaction_filter::{CompactionContext, CompactionFilter, FilterDecision};
pub use conflict::{Conflict, Expected};
pub use conformance::Conformance;
pub use damage::{Damage, KeySpan, Remedy};
pub use db::Db;
pub use destroy::DestroyReport;
pub use environment::{Environment, EnvironmentBuilder, EnvironmentStats};
pub use error::{BackgroundJob, Error, ErrorKind, Result};
pub use filter_policy::FilterPolicy;
pub use follow::{Follower, FollowerStats};
pub use healthy::Healthy;
pub use ingest::IngestBatch;
pub use iter::range::{DbCursor, Range};
pub use job_counters::Stall;
pub use keyspace::{Keyspace, KeyspaceBatch, KeyspaceSnapshot, KeyspaceTransaction};
pub use keyspace_stats::KeyspaceStats;
pub use keyspaces::KeyspaceOptions;
pub use latencies::{LATENCY_SAMPLE, LatencyStats, TimedOperation};
pub use lookup_trace::LookupTrace;
pub use merge_failure::{MergeCause, MergeFailure};
pub use merge_operator::{InvalidSet, Merge, MergeOperator, SetItems};
pub use options::{
    Compression, Degraded, Durability, FilterResidency, FilterShape, Options, WriteOptions,
};
pub use options_file::{IgnoredOption, LatestOptions};
pub use prefix::Prefix;
pub use read::{ExplainedFilter, ExplainedOutcome, ExplainedPlace, ExplainedStep, Explanation};
pub use read_mode::{ReadMode, Verify};
pub use rebuild::{FilterRebuildPlan, RebuildOptions, TableRebuild};
pub use rebuild_queue::FilterRebuildReport;
pub use recovery_report::{DroppedBytes, RecoveryReport};
pub use repair::{RepairOptions, RepairReport, Saved};
pub use report::{FilterCounts, FilterLevel, FilterRates, FilterReport, wilson};
pub use rescue::RecordBeyond;
pub use snapshot::Snapshot;
pub use sorted_load::LoadReport;
pub use stats::{
    ArchiveStats, BackgroundStats, CompactionStats, FilterStats, FlushStats, LevelStats,
    LookupStats, MemoryStats, PrefixStats, RebuildStats, ScanStats, StallStats, Stats, WriteStats,
};
pub use table_writer::{TableWriter, WrittenTable};
pub use transaction::{Transaction, TransactionRange};
pub use trommel_base::{Corruption, MAX_KEY_BYTES, MAX_VALUE_BYTES, SeqNo, Slice};
pub use trommel_filter as filter;
pub use trommel_filter::{FilterKind, FilterSpec, RangeSpec};
pub use trommel_memtable::MemtableKind;
pub use trommel_sstable::{FilterLabel, UserFilter, UserFilterBuilder};
pub use trommel_tuning as tuning;
pub use trommel_vfs as vfs;
pub use user_filters::{FilterChoice, FilterContext, FilterReason, PolicyReport, UserFilterPolicy};
pub use verify::VerifyReport;
pub use watch::MetricsFile;

/// The groups of [`Options`], which its closures change.
pub mod settings {
    pub use crate::options::{
        CompactionSettings, FilterSettings, OpenSettings, ReadSettings, WriteSettings,
    };
}

/// The README's example, compiled and run as a doc test.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
