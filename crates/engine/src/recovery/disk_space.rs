//! Opening without disk space: how many bytes it needs, and how many are free.
//!
//! The contents of the log are rewritten before the log is removed
//! (docs/decisions/0003-recovery-flushes.md), which needs space for both. Without it the log is
//! kept, if possible ([`kept`](super::kept)), and an open needs only the few bytes of its new
//! files.

use std::io;
use std::path::Path;
use std::sync::Arc;

use trommel_vfs::Vfs;

use crate::error::{Error, is_full};
use crate::manifest::state::ManifestState;
use crate::names::CURRENT;

/// Allocation unit of most file systems, in bytes.
const BLOCK_BYTES: u64 = 4 << 10;
/// Ends of logs that the estimate for a manifest allows for.
const LOG_ENDS: u64 = 32;

/// What needed the missing space.
#[derive(Clone, Copy)]
pub(super) enum SpaceNeeded<'a> {
    /// The contents of logs of this many bytes, which must be rewritten.
    ForLogs(u64),
    /// The new log and the new manifest of a store in this state.
    ForNewFiles(&'a ManifestState),
}

impl SpaceNeeded<'_> {
    fn text(&self) -> String {
        match self {
            Self::ForLogs(bytes) => {
                format!("opening rewrites the {bytes} bytes of the log before the log is removed")
            }
            Self::ForNewFiles(state) => {
                let manifest = state.snapshot().encode().len() as u64 + 32 * LOG_ENDS;
                // A log and `CURRENT` are smaller than a block.
                let bytes = (manifest.div_ceil(BLOCK_BYTES) + 2) * BLOCK_BYTES;
                format!("opening needs {bytes} bytes for a new log and a new manifest")
            }
        }
    }
}

/// Whether `error` ended the open of the store in `dir` for lack of space, before it changed
/// anything.
pub(super) fn is_short(error: &Error, dir: &Path) -> bool {
    let is_full = matches!(error, Error::Io { source, .. } if is_full(source));
    is_full && !may_be_installed(error, dir)
}

/// Extends `error`, which ended the open of the store in `dir`: for a full disk, adds how many
/// bytes are `needed` and how many are free now.
pub(super) fn with_room(error: Error, vfs: &dyn Vfs, dir: &Path, needed: SpaceNeeded<'_>) -> Error {
    let Error::Io { file, doing, source } = error else { return error };
    if !is_full(&source) {
        return Error::Io { file, doing, source };
    }
    let free = vfs.free_bytes(dir).map_or(String::new(), |free| format!(", and {free} are free"));
    let text = format!("{source}: {}{free}", needed.text());
    let source = Arc::new(io::Error::new(source.kind(), text));
    Error::Io { file, doing, source }
}

/// Whether the new manifest may be installed in `dir` in spite of `error`: after an error on
/// `CURRENT` this is unknown.
pub(super) fn may_be_installed(error: &Error, dir: &Path) -> bool {
    matches!(error, Error::Io { file, .. } if *file == dir.join(CURRENT) || file == dir)
}
