//! `UNFINISHED`: the mark of a store that a repair has not finished writing; it names the store
//! under repair.
//!
//! ```text
//! repair of "/data/shop"
//! crc32 c6b0d538
//! ```
//!
//! The mark is durable before anything else is written to the directory, and is removed when
//! everything is complete. So a store whose repair was interrupted has a valid mark; any other file
//! of that name is foreign, and must not make a store permanently unusable.

use std::fmt;
use std::path::Path;

use trommel_base::Checksum;
use trommel_vfs::{DirEntry, Vfs};

use super::UNFINISHED;
use crate::error::{Error, Result};

/// Upper bound for the length of a mark, in bytes: a path has at most 4 KiB, and escapes lengthen
/// it.
const MAX_BYTES: u64 = 64 << 10;

/// The contents of a file `UNFINISHED`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum UnfinishedMark {
    /// A repair of this store, which was interrupted, or is running.
    Repair(String),
    /// Something else is in its place.
    Foreign,
}

impl UnfinishedMark {
    /// Whether a repair wrote it.
    pub(crate) fn is_ours(&self) -> bool {
        matches!(self, Self::Repair(_))
    }
}

impl fmt::Display for UnfinishedMark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Repair(source) => write!(
                f,
                "a repair of {source} into it was cut short; remove the directory and repair again"
            ),
            Self::Foreign => write!(
                f,
                "something named {UNFINISHED} stands in it that no repair wrote; what else is there \
                 may be whole: move that away, and verify the store"
            ),
        }
    }
}

/// The text of the mark for a repair of `source`.
pub(crate) fn text(source: &Path) -> String {
    text_of(&format!("{source:?}"))
}

fn text_of(source: &str) -> String {
    let line = format!("repair of {source}\n");
    let checksum = Checksum::bound_to(&[]).with(line.as_bytes()).value();
    format!("{line}crc32 {checksum:08x}\n")
}

/// The mark in `dir`, whose entries are `listing`, if there is one.
///
/// # Errors
/// If the file cannot be read.
pub(crate) fn find(
    vfs: &dyn Vfs,
    dir: &Path,
    listing: &[DirEntry],
) -> Result<Option<UnfinishedMark>> {
    let Some(entry) = listing.iter().find(|entry| entry.name == UNFINISHED) else {
        return Ok(None);
    };
    if !entry.is_file || entry.bytes > MAX_BYTES {
        return Ok(Some(UnfinishedMark::Foreign));
    }
    let path = dir.join(UNFINISHED);
    let bytes = vfs.read(&path, MAX_BYTES).map_err(Error::on(&path))?;
    Ok(Some(parse(&bytes).map_or(UnfinishedMark::Foreign, UnfinishedMark::Repair)))
}

fn parse(bytes: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(bytes).ok()?;
    let source = text.strip_prefix("repair of ")?.split_once('\n')?.0;
    (text_of(source) == text).then(|| source.to_owned())
}
