//! Overwriting (recycling) an old file in place of creating a new one.
//!
//! The old file's page cache and disk space are reused: neither has to be allocated, cleared, or
//! freed. For a file of 64 MiB that saves half of the CPU time of writing a new one, and all of the
//! time of removing the old one (measured in `docs/performance.md`).
//!
//! No reader may see the old file's bytes change:
//! 1. A file that is open in this process, or mapped, is not overwritten (module `in_use`).
//! 2. Nor is a file with a second name, which is a copy. Its names are counted after the old one
//!    was removed, so that it cannot be linked by that name in between.
//! 3. Nor is a file that another process of this program has open, such as one that inspects the
//!    store: readers hold a shared `flock` on the file, and an overwriter takes an exclusive one.
//!    On file systems without such locks, nothing is overwritten.
//!
//! Other programs that read the store's files, such as a copy program, must use a checkpoint
//! instead.
//!
//! The old file's last byte is cut off before anything is written, so that a reader that finds the
//! file under its new name before it is complete, as after a crash, does not take it for the old
//! one. The old bytes after the new ones are truncated before the first sync, or when the writer is
//! dropped.

use std::fs::File;
use std::io;
use std::path::Path;

use super::in_use::Claim;
use super::write::Writer;
use super::{Opening, open_regular, system};

/// A writer for `path` that overwrites `old`; `None` if that is not possible. In that case too,
/// `old` is removed, if possible.
pub(super) fn take(old: &Path, path: &Path) -> Option<Writer> {
    let taken = try_take(old, path).ok().flatten();
    if taken.is_none() {
        let _ = system::remove(old);
    }
    taken
}

fn try_take(old: &Path, path: &Path) -> io::Result<Option<Writer>> {
    let file = open_regular(old, Opening::Overwrite, "open")?;
    let Some(claim) = Claim::alone(&file)? else { return Ok(None) };
    // Held until the last copy of this file is closed, when it has been written.
    if file.try_lock().is_err() {
        return Ok(None);
    }
    rename_to_nothing(old, path)?;
    match file.metadata() {
        Ok(found) if system::has_one_name(&found) && cut_last_byte(&file, found.len()).is_ok() => {
            let bytes = found.len().saturating_sub(1);
            Ok(Some(Writer::over(file, path, bytes, claim)))
        }
        _ => {
            system::remove(path)?;
            Ok(None)
        }
    }
}

fn cut_last_byte(file: &File, bytes: u64) -> io::Result<()> {
    file.set_len(bytes.saturating_sub(1))
}

/// Renames `old` to `path`, which must not exist.
#[cfg(target_os = "linux")]
fn rename_to_nothing(old: &Path, path: &Path) -> io::Result<()> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    Ok(renameat_with(CWD, old, CWD, path, RenameFlags::NOREPLACE)?)
}

/// Not available on this system.
#[cfg(not(target_os = "linux"))]
fn rename_to_nothing(_old: &Path, _path: &Path) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}
