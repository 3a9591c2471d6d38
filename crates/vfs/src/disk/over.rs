//! A new file in the place of an old one, which is written over.
//!
//! The system's memory for the old file's bytes is kept, and so is its space on the disk: neither
//! has to be looked for again, cleared, or given back. Of a file of 64 MiB that is half of what
//! writing a new one takes the processor, and all that removing the old one does (measured in
//! `docs/performance.md`).
//!
//! Nobody may see the old file's bytes change:
//! 1. A file that is open in this process, or mapped, is not written over (module `in_use`).
//! 2. Nor is one with a second name, which is somebody's copy. Its names are counted when it has
//!    lost the old one, so that nobody can give it another one by that in between.
//! 3. Nor one that another process has open through this program, as one that inspects the store
//!    does: whoever reads a file holds a shared `flock` on it, and whoever writes over one takes it
//!    alone. Where the file system has no such locks, nothing is written over.
//!
//! Others that read the store's files, such as a program that copies them, must ask for a
//! checkpoint instead.
//!
//! Its last byte is cut off first, so that whoever finds it by its new name before it is written,
//! as after a crash, does not take it for the whole file that it was.
//!
//! What was written is cut off behind its end before it is synced first, or when its writer is
//! dropped.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::OFlags;

use super::in_use::Claim;
use super::open_regular;
use super::write::Writer;

/// A writer for `path` in the place of `old`; none where that cannot be written over. `old` is gone
/// then all the same, if it could be removed.
pub(super) fn take(old: &Path, path: &Path) -> Option<Writer> {
    let taken = try_take(old, path).ok().flatten();
    if taken.is_none() {
        let _ = rustix::fs::unlink(old);
    }
    taken
}

fn try_take(old: &Path, path: &Path) -> io::Result<Option<Writer>> {
    let file = open_regular(old, OFlags::WRONLY, "open")?;
    let Some(claim) = Claim::alone(&file)? else { return Ok(None) };
    // Until the last copy of this file is closed, which is when it is written.
    if file.try_lock().is_err() {
        return Ok(None);
    }
    rename_to_nothing(old, path)?;
    match file.metadata() {
        Ok(found) if found.nlink() == 1 && cut_last_byte(&file, found.len()).is_ok() => {
            let bytes = found.len().saturating_sub(1);
            Ok(Some(Writer::over(file, path, bytes, claim)))
        }
        _ => {
            rustix::fs::unlink(path)?;
            Ok(None)
        }
    }
}

fn cut_last_byte(file: &File, bytes: u64) -> io::Result<()> {
    file.set_len(bytes.saturating_sub(1))
}

/// Renames `old` to `path`, where there must be nothing.
#[cfg(target_os = "linux")]
fn rename_to_nothing(old: &Path, path: &Path) -> io::Result<()> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    Ok(renameat_with(CWD, old, CWD, path, RenameFlags::NOREPLACE)?)
}

/// There is no such call.
#[cfg(not(target_os = "linux"))]
fn rename_to_nothing(_old: &Path, _path: &Path) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}
