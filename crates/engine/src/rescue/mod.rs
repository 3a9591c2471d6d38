//! Rescue of the rest of a corrupt store: which manifest to trust, which parts of which tables are
//! readable, and what is unknowable.
//!
//! * [`manifest`]: the choice of a manifest when `CURRENT`, or the one it names, is corrupt.
//! * [`table`]: all corruption of one table, with the affected keys.
//! * [`keyspaces`]: the catalog of keyspaces, or its remains.
//! * [`logs`]: the usable contents of the logs, and the records after corruption.
//! * [`degraded`]: an open that tolerates corruption.
//! * [`doubt`]: the keys whose newest version may be lost.
//! * [`newest`]: the newest remaining state of each key.
//! * [`sources`]: one ordered iteration over everything that is left.
//! * [`watched`]: prevents shortages of the process from being taken for lost files.
//!
//! Nothing here writes, or depends on the engine. `verify` lists the corruption, a degraded open
//! tolerates it, [`healthy`](crate::healthy) iterates over the readable entries, and
//! [`repair`](crate::repair) copies the rest to a new store.

pub(crate) mod degraded;
pub(crate) mod doubt;
pub(crate) mod keyspaces;
pub(crate) mod logs;
pub(crate) mod manifest;
pub(crate) mod newest;
pub(crate) mod sources;
pub(crate) mod table;
pub(crate) mod watched;

pub use logs::RecordBeyond;
