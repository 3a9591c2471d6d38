//! Opening without room: how many bytes it needs, and how many there are.
//!
//! What the log holds is written anew before the log is let go of
//! (docs/decisions/0003-recovery-flushes.md), so that needs room for both. Without it the log is
//! kept, where that can be ([`kept`](super::kept)), and an opening needs the few bytes of its new
//! files.

use std::io;
use std::path::Path;
use std::sync::Arc;

use trommel_vfs::Vfs;

use crate::error::{Error, is_full};
use crate::manifest::state::ManifestState;
use crate::names::CURRENT;

/// Bytes in which file systems give out space, most of them.
const BLOCK_BYTES: u64 = 4 << 10;
/// How many ends of logs a manifest has room to state in what is reckoned for it.
const LOG_ENDS: u64 = 32;

/// What there was no room for.
#[derive(Clone, Copy)]
pub(super) enum Needed<'a> {
    /// The contents of logs of so many bytes, which have to be written anew.
    ForLogs(u64),
    /// The new log and the new manifest of a store in this state.
    ForNewFiles(&'a ManifestState),
}

impl Needed<'_> {
    fn text(&self) -> String {
        match self {
            Self::ForLogs(bytes) => {
                format!(
                    "opening writes the {bytes} bytes of the log anew before the log is removed"
                )
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

/// Whether `error` ended an opening of the store in `dir` for want of room, and before it changed
/// anything.
pub(super) fn is_short(error: &Error, dir: &Path) -> bool {
    let is_full = matches!(error, Error::Io { source, .. } if is_full(source));
    is_full && !may_be_in_force(error, dir)
}

/// `error`, which ended the opening of the store in `dir`. Where the disk was full it says how many
/// bytes are `needed`, and how many are free now.
pub(super) fn with_room(error: Error, vfs: &dyn Vfs, dir: &Path, needed: Needed<'_>) -> Error {
    let Error::Io { file, doing, source } = error else { return error };
    if !is_full(&source) {
        return Error::Io { file, doing, source };
    }
    let free = vfs.free_bytes(dir).map_or(String::new(), |free| format!(", and {free} are free"));
    let text = format!("{source}: {}{free}", needed.text());
    let source = Arc::new(io::Error::new(source.kind(), text));
    Error::Io { file, doing, source }
}

/// Whether what was about to be put in force in `dir` may be, in spite of `error`: once `CURRENT`
/// is touched nobody knows.
pub(super) fn may_be_in_force(error: &Error, dir: &Path) -> bool {
    matches!(error, Error::Io { file, .. } if *file == dir.join(CURRENT) || file == dir)
}
