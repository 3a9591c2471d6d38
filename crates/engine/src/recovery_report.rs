//! What recovery reports: what it found in a store's files, what it replayed, and what it left out.
//!
//! Returned by [`Db::recovery_report`](crate::Db::recovery_report). It knows neither recovery nor
//! the engine, so that repair and verification can use its types.

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
    /// Whether it had been closed in order.
    pub was_closed: bool,
    /// Batches replayed from the log.
    pub replayed_batches: u64,
    /// Bytes left out: of writes that were never acknowledged as durable, or (in a salvage open
    /// only) of damaged ones.
    pub dropped: Vec<DroppedBytes>,
    /// Files of a store that this one did not need when it was opened: left by a crash. They were
    /// removed, unless the store was opened read-only or something was dropped.
    pub orphans: Vec<PathBuf>,
    /// What is damaged or missing, as far as a degraded open saw it: it does not read tables.
    pub damage: Vec<Damage>,
    /// Why nothing is certain, if writes of unknown keys are lost; in a degraded open only.
    pub doubt: Option<String>,
    /// What was wrong with the file that records the store's options, if anything: it costs nothing
    /// else. Unless the store was opened read-only a corrupt one was replaced by the options of
    /// this opening; one of a newer version is left as it is.
    pub options: Option<Damage>,
}

/// Bytes at the end of a file that recovery left out.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DroppedBytes {
    /// The file.
    pub file: PathBuf,
    /// Where in the file they begin.
    pub offset: u64,
    /// How many there are.
    pub bytes: u64,
    /// Why they were left out, in words.
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
