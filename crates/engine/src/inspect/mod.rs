//! Looking inside the files of a store: tables, logs, manifests, and what they say together.
//!
//! * [`Table`], [`Log`], [`Manifest`]: one file each, with `info` (what it says of itself), `check`
//!   (every byte), `scan` (what it holds) and `layout` (what lies where).
//! * [`find`]: every file of a store that holds a version of a key, and what each filter on the way
//!   says; [`properties`]: every table with what it and the manifest say of it; [`live_files`]:
//!   what each file of a directory is.
//!
//! Everything here reads through a [`Vfs`] and nothing else: it takes no lock, writes nothing, and
//! works on a store that is open elsewhere, was closed, was killed, or is damaged. A store that is
//! being written may change between two reads; what is read of one file is always consistent.
//! Bytes are decoded by the code that the store itself reads with, so a tool cannot see a file
//! differently than the store does. Any bytes end in an answer or an [`Error`], never in a panic.

mod files;
mod find;
mod log;
mod manifest;
mod properties;
mod table;

#[cfg(test)]
mod damage_tests;
#[cfg(test)]
mod tests;

use std::io;
use std::path::Path;
use std::sync::Arc;

use trommel_sstable::format::MAGIC;
use trommel_vfs::{Access, ReadFile, Vfs};

pub use files::{LiveFile, Role, live_files};
pub use find::{Answer, Sighting, Trace, VersionAt, find};
pub use log::{
    Ending, Log, LogBatch, LogCheck, LogInfo, LogOperation, LogSpan, LogSpanKind, Operations,
};
pub use manifest::{Edit, Manifest, ManifestCheck, ManifestInfo, Moment};
pub use properties::{StoreProperties, TableProperties, properties};
pub use table::{BlockSums, Entry, FilterInfo, Table, TableCheck, TableInfo, TableScan};
pub use trommel_base::{EntryKind, SeqNo};
pub use trommel_sstable::format::{BlockKind, Footer};
pub use trommel_sstable::{BlockContent, BlockInfo, FilterState, Properties};

pub use crate::version::TableMeta;

use crate::error::{Error, Result};
use crate::log::format::{LOG_MAGIC, MANIFEST_MAGIC};
use crate::manifest::names::Numbered;

/// What a file begins and ends with is enough to tell what it is; both are this long, in bytes.
const MAGIC_BYTES: usize = 8;

/// Opens the file at `path`, which is to be a `wanted`.
fn open(vfs: &dyn Vfs, path: &Path, wanted: Role) -> Result<Arc<dyn ReadFile>> {
    let file = vfs.open(path, Access::Buffered).map_err(|source| {
        if source.kind() == io::ErrorKind::InvalidInput {
            let is_dir = vfs.list(path).is_ok();
            return wrong(path, wanted, if is_dir { "a directory" } else { "no regular file" });
        }
        Error::io(path, "opening", source)
    })?;
    if named(path) == Some(wanted) {
        return Ok(file);
    }
    match magic_of(&*file).map_err(|source| Error::io(path, "reading", source))? {
        Some(found) if found == wanted => Ok(file),
        Some(Role::Table) => Err(wrong(path, wanted, "a table")),
        Some(Role::Log) => Err(wrong(path, wanted, "a log")),
        Some(_) => Err(wrong(path, wanted, "a manifest")),
        None if file.bytes() == 0 => Err(wrong(path, wanted, "empty")),
        None => Err(wrong(path, wanted, "something else, by its first and last bytes")),
    }
}

fn wrong(path: &Path, wanted: Role, found: &'static str) -> Error {
    let wanted = match wanted {
        Role::Table => "a table",
        Role::Log => "a log",
        _ => "a manifest",
    };
    Error::WrongFile { file: path.to_path_buf(), wanted, found }
}

/// What a file must be by its name, whatever is left of its bytes: `000007.sst` is a table.
fn named(path: &Path) -> Option<Role> {
    match Numbered::parse(path.file_name()?)? {
        Numbered::Table(_) => Some(Role::Table),
        Numbered::Log(_) => Some(Role::Log),
        Numbered::Manifest(_) => Some(Role::Manifest),
        Numbered::FilterSidecar(_) => None,
    }
}

/// The number in a file's name, if it is one of ours.
fn number_of(path: &Path) -> Option<u64> {
    Some(Numbered::parse(path.file_name()?)?.number())
}

/// What a file is by its bytes.
fn magic_of(file: &dyn ReadFile) -> io::Result<Option<Role>> {
    let mut bytes = [0; MAGIC_BYTES];
    let Some(last) = file.bytes().checked_sub(MAGIC_BYTES as u64) else { return Ok(None) };
    file.read_at(last, &mut bytes)?;
    if bytes == MAGIC {
        return Ok(Some(Role::Table));
    }
    file.read_at(0, &mut bytes)?;
    Ok(match bytes {
        LOG_MAGIC => Some(Role::Log),
        MANIFEST_MAGIC => Some(Role::Manifest),
        _ => None,
    })
}
