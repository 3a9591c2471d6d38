//! The system calls of Unix.

use std::fs::{File, Metadata, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, retry_on_intr};

use super::Opening;

pub(super) use std::os::unix::fs::FileExt;

const FILE_MODE: Mode = Mode::RUSR.union(Mode::WUSR);
const DIR_MODE: Mode = Mode::RWXU;
const ALWAYS: OFlags = OFlags::CLOEXEC.union(OFlags::NOFOLLOW).union(OFlags::NOCTTY);

fn open_file(path: &Path, flags: OFlags) -> io::Result<File> {
    let opened = retry_on_intr(|| rustix::fs::open(path, flags | ALWAYS, FILE_MODE));
    Ok(File::from(opened?))
}

/// Creates a file that must not exist, for writing.
pub(super) fn create_new(path: &Path) -> io::Result<File> {
    open_file(path, OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL)
}

/// Opens a file, without waiting for a FIFO's other end.
pub(super) fn open(path: &Path, opening: Opening) -> io::Result<File> {
    let flags = match opening {
        Opening::Read | Opening::Sync => OFlags::RDONLY,
        Opening::Overwrite => OFlags::WRONLY,
        Opening::Lock => OFlags::RDWR | OFlags::CREATE,
    };
    open_file(path, flags | OFlags::NONBLOCK)
}

/// Whether a file cannot be opened because it is not regular: a symbolic link; a socket or a device
/// without a driver; a directory opened for writing.
pub(super) fn is_not_regular(error: &io::Error) -> bool {
    let strange = [Errno::LOOP, Errno::NXIO, Errno::NODEV, Errno::ISDIR];
    strange.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

pub(super) fn rename(from: &Path, to: &Path) -> io::Result<()> {
    Ok(rustix::fs::rename(from, to)?)
}

pub(super) fn remove(path: &Path) -> io::Result<()> {
    Ok(rustix::fs::unlink(path)?)
}

pub(super) fn hard_link(from: &Path, to: &Path) -> io::Result<()> {
    Ok(rustix::fs::link(from, to)?)
}

pub(super) fn create_dir(path: &Path) -> io::Result<()> {
    Ok(rustix::fs::mkdir(path, DIR_MODE)?)
}

pub(super) fn remove_dir(path: &Path) -> io::Result<()> {
    Ok(rustix::fs::rmdir(path)?)
}

pub(super) fn sync_dir(dir: &Path) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = retry_on_intr(|| rustix::fs::open(dir, flags, Mode::empty()));
    File::from(opened?).sync_all()
}

pub(super) fn free_bytes(dir: &Path) -> Option<u64> {
    let found = retry_on_intr(|| rustix::fs::statvfs(dir)).ok()?;
    Some(found.f_bavail.saturating_mul(found.f_frsize))
}

/// A file's device and inode number.
pub(super) fn id(found: &Metadata) -> (u64, u64) {
    (found.dev(), found.ino())
}

pub(super) fn has_one_name(found: &Metadata) -> bool {
    found.nlink() == 1
}

/// Keeps other processes of this program from overwriting a file that is read.
pub(super) fn share(file: &File) -> Result<(), TryLockError> {
    file.try_lock_shared()
}

/// Whether `path` names the open file.
pub(super) fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let ours = file.metadata()?;
    match std::fs::symlink_metadata(path) {
        Ok(there) => Ok(id(&there) == id(&ours)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}
