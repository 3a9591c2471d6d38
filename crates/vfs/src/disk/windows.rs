//! Windows, by the standard library. It is compiled, but was never run.
//!
//! * *Locks* are mandatory, of `LockFileEx`: they belong to the handle, so a second open in the
//!   same process is refused, and end with it. Only `LOCK` is locked. Its owner opens it without
//!   `FILE_SHARE_DELETE`, so while it is open nobody renames or removes it, and the path names it.
//!   A shared lock is of a handle that shares deletion: it does not prevent that. Files of data are
//!   not locked, because that would keep others from reading or appending.
//! * *No file is overwritten* (recycled): no rename here refuses to replace. So the files in use
//!   need not be distinguished.
//! * *No file is mapped*: a mapped file cannot be removed. Reads are buffered instead.
//! * *Renames* replace the target atomically. *Removals* of open files succeed, since all handles
//!   but that of the owner of `LOCK` share deletion; the name is gone at once on NTFS.
//! * *Directories* are synced by flushing a handle of the directory. A permission that is denied
//!   counts as success, as NTFS journals its names; any other error is returned.
//! * Symbolic links are opened as such, and then are not regular files.
//! * Permissions of new files are those that the directory bequeaths.

#![allow(clippy::disallowed_methods, reason = "this is the crate that opens files")]

use std::fs::{File, Metadata, OpenOptions, TryLockError};
use std::io::{self, ErrorKind};
use std::os::windows::fs::OpenOptionsExt;
use std::path::Path;

use super::Opening;

const FILE_FLAG_OPEN_REPARSE_POINT: u32 = 0x0020_0000;
const FILE_FLAG_BACKUP_SEMANTICS: u32 = 0x0200_0000;
const FILE_SHARE_READ_AND_WRITE: u32 = 0x0000_0003;

/// Reads and writes at an offset, as `std::os::unix::fs::FileExt` has them. They move the position
/// of the handle, which nothing else uses.
pub(super) trait FileExt {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize>;

    fn read_exact_at(&self, mut buffer: &mut [u8], mut offset: u64) -> io::Result<()> {
        while !buffer.is_empty() {
            match self.read_at(buffer, offset) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(read) => {
                    buffer = buffer.get_mut(read..).unwrap_or_default();
                    offset += read as u64;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl FileExt for File {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        std::os::windows::fs::FileExt::seek_read(self, buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        std::os::windows::fs::FileExt::seek_write(self, bytes, offset)
    }
}

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.custom_flags(FILE_FLAG_OPEN_REPARSE_POINT);
    options
}

/// Creates a file that must not exist, for writing.
pub(super) fn create_new(path: &Path) -> io::Result<File> {
    options().write(true).create_new(true).open(path)
}

/// Opens a file.
pub(super) fn open(path: &Path, opening: Opening) -> io::Result<File> {
    let mut options = options();
    match opening {
        Opening::Read => options.read(true),
        // A handle is flushed only if it can write.
        Opening::Sync | Opening::Overwrite => options.write(true),
        Opening::Lock => {
            options.share_mode(FILE_SHARE_READ_AND_WRITE);
            options.read(true).write(true).create(true).truncate(false)
        }
    };
    options.open(path)
}

/// Whether a file cannot be opened because it is not regular. A directory is a permission that is
/// denied.
pub(super) fn is_not_regular(_error: &io::Error) -> bool {
    false
}

pub(super) fn rename(from: &Path, to: &Path) -> io::Result<()> {
    std::fs::rename(from, to)
}

pub(super) fn remove(path: &Path) -> io::Result<()> {
    std::fs::remove_file(path)
}

pub(super) fn hard_link(from: &Path, to: &Path) -> io::Result<()> {
    std::fs::hard_link(from, to)
}

pub(super) fn create_dir(path: &Path) -> io::Result<()> {
    std::fs::create_dir(path)
}

pub(super) fn remove_dir(path: &Path) -> io::Result<()> {
    std::fs::remove_dir(path)
}

pub(super) fn sync_dir(dir: &Path) -> io::Result<()> {
    let opened = OpenOptions::new().write(true).custom_flags(FILE_FLAG_BACKUP_SEMANTICS).open(dir);
    match opened.and_then(|dir| dir.sync_all()) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Ok(()),
        synced => synced,
    }
}

/// Not determined on this system.
pub(super) fn free_bytes(_dir: &Path) -> Option<u64> {
    None
}

/// The same for all files.
pub(super) fn id(_found: &Metadata) -> (u64, u64) {
    (0, 0)
}

/// Not determined on this system.
pub(super) fn has_one_name(_found: &Metadata) -> bool {
    false
}

/// Nothing is overwritten, so nothing is locked.
pub(super) fn share(_file: &File) -> Result<(), TryLockError> {
    Ok(())
}

/// Whether `path` names the open lock file: its owner's cannot be renamed or removed, and that of a
/// shared lock is not checked.
pub(super) fn is_at(_file: &File, _path: &Path) -> io::Result<bool> {
    Ok(true)
}
