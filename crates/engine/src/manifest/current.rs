//! `CURRENT`: the name of the current manifest, and a checksum of that line.
//!
//! ```text
//! MANIFEST-000007
//! crc32 c6b0d538
//! ```
//!
//! The text for a number is unique, and a file that differs from it in any byte is corrupt. It is
//! written to `CURRENT.tmp`, synced, renamed to `CURRENT`, and the directory is synced, so a crash
//! leaves the old text or the new one.

use std::io;
use std::path::Path;

use trommel_base::{Checksum, Corruption};
use trommel_vfs::{DirEntry, Vfs};

use crate::error::Error;
use crate::log::format::FILE_HEADER_BYTES;
use crate::names::{self, CURRENT, CURRENT_TMP, Numbered};

/// Upper bound for the length of `CURRENT`, in bytes.
const MAX_CURRENT_BYTES: u64 = 128;

/// The current manifest, according to a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Current {
    /// The manifest with this number.
    Manifest(u64),
    /// There never was one: the directory has no `CURRENT`, nor any file that a store with a
    /// `CURRENT` leaves. (A store whose creation was interrupted is in this state.)
    Never,
}

/// The text of `CURRENT` for manifest `number`.
pub(crate) fn text(number: u64) -> String {
    let line = format!("{}\n", names::manifest(number));
    let checksum = Checksum::bound_to(&[]).with(line.as_bytes()).value();
    format!("{line}crc32 {checksum:08x}\n")
}

/// Installs manifest `number`, which must be durable, as the current one.
pub(crate) fn install(vfs: &dyn Vfs, dir: &Path, number: u64) -> Result<(), Error> {
    let (path, temporary) = (dir.join(CURRENT), dir.join(CURRENT_TMP));
    match vfs.remove(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(Error::on(&temporary)(error));
        }
        _ => {}
    }
    let mut file = vfs.create(&temporary).map_err(Error::on(&temporary))?;
    file.append(text(number).as_bytes()).map_err(Error::on(&temporary))?;
    file.sync().map_err(Error::on(&temporary))?;
    drop(file);
    vfs.rename(&temporary, &path).map_err(Error::on(&path))?;
    vfs.sync_dir(dir).map_err(Error::on(dir))
}

/// The current manifest of `dir`, whose entries are `listing`.
///
/// A missing `CURRENT` is `Corruption` if the directory holds a table, or a log with content: a
/// store has a `CURRENT` before it writes either. If it was installed while the directory was
/// listed, the listing may lack it nevertheless, so `CURRENT` is looked up once more.
pub(crate) fn find(vfs: &dyn Vfs, dir: &Path, listing: &[DirEntry]) -> Result<Current, Error> {
    let path = dir.join(CURRENT);
    if listing.iter().any(|entry| entry.name == CURRENT) {
        return read(vfs, dir).map(Current::Manifest);
    }
    let was_in_use = |entry: &DirEntry| match Numbered::parse(&entry.name) {
        Some(
            Numbered::Table(_)
            | Numbered::FilterSidecar(_)
            | Numbered::ArchivedLog(_)
            | Numbered::Spare(_),
        ) => true,
        Some(Numbered::Log(_)) => entry.bytes > FILE_HEADER_BYTES as u64,
        Some(Numbered::Manifest(_)) | None => false,
    };
    if !listing.iter().any(was_in_use) {
        return Ok(Current::Never);
    }
    match read(vfs, dir) {
        Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            Err(Corruption::new(&path, 0, MISSING).into())
        }
        number => number.map(Current::Manifest),
    }
}

/// The number of the manifest that `CURRENT` in `dir` names.
pub(crate) fn read(vfs: &dyn Vfs, dir: &Path) -> Result<u64, Error> {
    let path = dir.join(CURRENT);
    let bytes = match vfs.read(&path, MAX_CURRENT_BYTES) {
        Err(error) if error.kind() == io::ErrorKind::InvalidData => Vec::new(),
        other => other.map_err(Error::on(&path))?,
    };
    parse(&bytes).ok_or_else(|| Corruption::new(&path, 0, DAMAGED).into())
}

const DAMAGED: &str = "it is not the name of a manifest with its checksum; the current manifest \
                       is normally the one with the highest number, but only a backup or a repair \
                       can tell";
const MISSING: &str = "it is missing, although there are tables or logs";

/// The number in `bytes`, if they are exactly the text for it.
pub(crate) fn parse(bytes: &[u8]) -> Option<u64> {
    let text_read = std::str::from_utf8(bytes).ok()?;
    let (name, _) = text_read.split_once('\n')?;
    match Numbered::parse(name.as_ref())? {
        Numbered::Manifest(number) => (text(number) == text_read).then_some(number),
        _ => None,
    }
}
