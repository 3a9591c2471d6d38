//! The report of recovery: what it found in a store's files, what it replayed, and what it dropped.
//!
//! Returned by [`Db::recovery_report`](crate::Db::recovery_report). It depends neither on recovery
//! nor on the engine, so that repair and verification can use its types.

use std::fmt;
use std::path::PathBuf;

use crate::damage::Damage;
use crate::log::Dropped;

/// What opening a store found and did.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct RecoveryReport {
    /// Whether the store is new.
    pub created: bool,
    /// Whether it had been closed cleanly.
    pub was_closed: bool,
    /// Batches replayed from the log.
    pub replayed_batches: u64,
    /// Bytes dropped: of writes that were never acknowledged as durable, or (only with salvage) of
    /// corrupt ones.
    pub dropped: Vec<DroppedBytes>,
    /// Orphans: files that the store did not need when it was opened, left by a crash. They were
    /// removed, unless the store was opened read-only or bytes were dropped.
    pub orphans: Vec<PathBuf>,
    /// Corrupt or missing files, as far as a degraded open detects them; it does not read tables.
    pub damage: Vec<Damage>,
    /// Why every read is in doubt, if writes of unknown keys are lost; only with a degraded open.
    pub doubt: Option<String>,
    /// The problem with the options file, if there is one; nothing else is affected. Unless the
    /// store was opened read-only, a corrupt options file was replaced by the options of this open;
    /// one of a newer version was left unchanged.
    pub options: Option<Damage>,
}

/// Bytes at the end of a file that recovery dropped.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DroppedBytes {
    /// The file.
    pub file: PathBuf,
    /// Their offset in the file.
    pub offset: u64,
    /// Their number.
    pub bytes: u64,
    /// The reason, as text.
    pub reason: String,
}

impl From<&Dropped> for DroppedBytes {
    fn from(dropped: &Dropped) -> Self {
        Self {
            file: dropped.file.clone(),
            offset: dropped.offset,
            bytes: dropped.bytes,
            reason: dropped.reason.to_string(),
        }
    }
}

impl fmt::Display for DroppedBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, offset, bytes, reason } = self;
        write!(f, "{}: {bytes} bytes from byte {offset} on: {reason}", file.display())
    }
}
