//! Inspection of a store's files: tables, logs, manifests, and their relations.
//!
//! * [`Table`], [`Sidecar`], [`Log`], [`Manifest`]: one file each, with `info` (its metadata),
//!   `check` (every byte), `scan` (its contents) and `layout` (its byte ranges).
//! * [`find`]: every file of a store that holds a version of a key, with the verdict of each filter
//!   on the way; [`properties`]: every table with its own metadata and the manifest's record;
//!   [`live_files`]: the role of each file of a directory.
//!
//! Everything here reads through a [`Vfs`] only: it takes no lock, writes nothing, and works on a
//! store that is open elsewhere, was closed, was killed, or is corrupt. A store that is being
//! written may change between two reads; the data read from one file is always consistent. Bytes
//! are decoded by the code that the store itself uses, so a tool cannot interpret a file
//! differently from the store. Any bytes lead to a result or an [`Error`], never to a panic.

mod files;
mod find;
mod log;
mod manifest;
mod properties;
mod sidecar;
mod table;

#[cfg(test)]
mod damage_tests;
#[cfg(test)]
mod tests;

use std::io;
use std::path::Path;
use std::sync::Arc;

use trommel_base::Corruption;
use trommel_sstable::format::MAGIC;
use trommel_sstable::sidecar::format::FOOTER_MAGIC;
use trommel_vfs::{Access, DirEntry, ReadFile, Vfs};

pub use files::{LiveFile, Role, live_files};
pub use find::{Answer, Sighting, Trace, VersionAt, find};
pub use log::{
    Ending, Log, LogBatch, LogCheck, LogInfo, LogOperation, LogSpan, LogSpanKind, LoggedCounts,
    Operations,
};
pub use manifest::{
    Edit, ListedTable, Manifest, ManifestCheck, ManifestContents, ManifestInfo, Moment,
};
pub use properties::{StoreProperties, TableProperties, properties};
pub use sidecar::{Sidecar, SidecarInfo};
pub use table::{BlockSums, Entry, FilterInfo, PrefixFilterInfo, Table, TableInfo, TableScan};
pub use trommel_base::{EntryKind, SeqNo};
pub use trommel_sstable::format::{BlockKind, Footer};
pub use trommel_sstable::{BlockContent, BlockInfo, FilterPart, FilterState, Properties, Verified};

pub use crate::expiry::TimeMark;
pub use crate::log::LogEnd;
pub use crate::ranges::RangeTombstone;
pub use crate::version::{FilterMeta, TableMeta};

use crate::error::{Error, Result};
use crate::log::format::{LOG_MAGIC, MANIFEST_MAGIC};
use crate::names::Numbered;

/// Most attempts at reading a store whose files disappear during the reading.
const ATTEMPTS: usize = 10_000;

/// Length of the magic bytes at the start and the end of files, which identify their kind.
const MAGIC_BYTES: usize = 8;

/// Opens the file at `path`, which should be a `wanted`.
fn open(vfs: &dyn Vfs, path: &Path, wanted: Role) -> Result<Arc<dyn ReadFile>> {
    let file = vfs.open(path, Access::Buffered).map_err(|source| {
        if source.kind() == io::ErrorKind::InvalidInput {
            let is_dir = vfs.list(path).is_ok();
            return wrong(
                path,
                wanted,
                if is_dir { "it is a directory" } else { "it is no regular file" },
            );
        }
        Error::io(path, "opening", source)
    })?;
    if named(path) == Some(wanted) {
        return Ok(file);
    }
    match magic_of(&*file).map_err(|source| Error::io(path, "reading", source))? {
        Some(found) if found == wanted => Ok(file),
        Some(Role::Table) => Err(wrong(path, wanted, "it is a table")),
        Some(Role::FilterSidecar) => Err(wrong(path, wanted, "it is a filter sidecar")),
        Some(Role::Log) => Err(wrong(path, wanted, "it is a log")),
        Some(_) => Err(wrong(path, wanted, "it is a manifest")),
        None if file.bytes() == 0 => Err(wrong(path, wanted, "it is empty")),
        None => Err(wrong(path, wanted, "it neither begins nor ends like one")),
    }
}

fn wrong(path: &Path, wanted: Role, found: &'static str) -> Error {
    let wanted = match wanted {
        Role::Table => "a table",
        Role::FilterSidecar => "a filter sidecar",
        Role::Log => "a log",
        _ => "a manifest",
    };
    Error::WrongFile { file: path.to_path_buf(), wanted, found }
}

/// Reads several files of the store in `dir`, which may be written meanwhile. If a file named by
/// another one is missing (as `is_torn` of the result or an error shows), and the manifest has
/// changed in the meantime, reads again: a file counts as missing only if it is missing while the
/// manifest stays the same.
fn read_consistently<T>(
    vfs: &dyn Vfs,
    dir: &Path,
    read: impl Fn() -> Result<T>,
    is_torn: impl Fn(&T) -> bool,
) -> Result<T> {
    let mut before = manifests(vfs, dir);
    for _ in 1..ATTEMPTS {
        let outcome = read();
        let torn = match &outcome {
            Ok(found) => is_torn(found),
            Err(error) => is_missing(error),
        };
        let after = manifests(vfs, dir);
        if !torn || after == before {
            return outcome;
        }
        before = after;
    }
    read()
}

/// The manifests in `dir` and their lengths, which change with every change of the live files.
fn manifests(vfs: &dyn Vfs, dir: &Path) -> Vec<(u64, u64)> {
    let listing = vfs.list(dir).unwrap_or_default();
    let manifest = |entry: &DirEntry| match Numbered::parse(&entry.name)? {
        Numbered::Manifest(number) => Some((number, entry.bytes)),
        _ => None,
    };
    listing.iter().filter_map(manifest).collect()
}

fn is_missing(error: &Error) -> bool {
    matches!(error, Error::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
}

/// A missing file that the manifest names is corruption, not a mistake of the caller.
fn as_damage(error: Error) -> Error {
    match error {
        Error::Io { file, .. } if is_missing(&error) => {
            Corruption::new(&file, 0, "the file is missing, and the manifest names it").into()
        }
        other => other,
    }
}

/// The role of a file by its name, whatever its contents: `000007.sst` is a table.
fn named(path: &Path) -> Option<Role> {
    match Numbered::parse(path.file_name()?)? {
        Numbered::Table(_) => Some(Role::Table),
        Numbered::Log(_) | Numbered::ArchivedLog(_) => Some(Role::Log),
        Numbered::Manifest(_) => Some(Role::Manifest),
        Numbered::FilterSidecar(_) => Some(Role::FilterSidecar),
        // The file's contents decide.
        Numbered::Spare(_) => None,
    }
}

/// The number in a file's name, if it is one of ours.
fn number_of(path: &Path) -> Option<u64> {
    Some(Numbered::parse(path.file_name()?)?.number())
}

/// The role of a file by its contents.
fn magic_of(file: &dyn ReadFile) -> io::Result<Option<Role>> {
    let mut bytes = [0; MAGIC_BYTES];
    let Some(last) = file.bytes().checked_sub(MAGIC_BYTES as u64) else { return Ok(None) };
    file.read_at(last, &mut bytes)?;
    if bytes == MAGIC {
        return Ok(Some(Role::Table));
    }
    if bytes == FOOTER_MAGIC {
        return Ok(Some(Role::FilterSidecar));
    }
    file.read_at(0, &mut bytes)?;
    Ok(match bytes {
        LOG_MAGIC => Some(Role::Log),
        MANIFEST_MAGIC => Some(Role::Manifest),
        _ => None,
    })
}
