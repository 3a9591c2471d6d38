//! Real files.
//!
//! How system calls are used, and why:
//! 1. A file is created with `O_EXCL` and mode 0600 (directories 0700): never over another file,
//!    never readable by other users. The only overwritten files are those passed to
//!    [`Vfs::create_over`], which nobody has open. A file is only truncated to its written length.
//! 2. The last component of a path is never followed if it is a symbolic link (the store's own
//!    directory may be one).
//! 3. Files are opened with `O_NONBLOCK` and must then prove to be regular: a FIFO or a device in
//!    place of a file is an error, not a hang.
//! 4. Locks belong to the open file (`flock`): a second open in the same process is refused too,
//!    and closing another handle of the same file does not release the lock. After locking, the
//!    path must still name the locked inode; otherwise the file was replaced, and the lock is void.
//!    A forked child shares its parent's locks, and must not release them. Network file systems may
//!    not honor them.
//!
//! All handles are `O_CLOEXEC`.
//!
//! So it is on Unix systems ([`unix`]). Module `windows` says how Windows differs.

mod in_use;
mod map;
mod prealloc;
mod read;
mod recycle;
#[cfg(target_os = "linux")]
mod resident;
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod ring;
#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
mod ring {
    /// Not available on this system.
    pub(crate) fn read_at_once<'a>(_: &mut dyn crate::Pieces<'a>) {}
}
#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;
mod write;
mod write_back;

use std::fs::{File, TryLockError};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use self::read::DirectHandle;
pub(crate) use self::ring::read_at_once;
#[cfg(unix)]
use self::unix as system;
#[cfg(windows)]
use self::windows as system;
use crate::error::{refuse, wrap, wrap_to};
use crate::{Access, DirEntry, FileLock, ReadFile, Vfs, WriteFile};

/// What a file is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Opening {
    Read,
    /// To make it durable.
    Sync,
    /// To overwrite it.
    #[cfg_attr(windows, allow(dead_code, reason = "nothing is overwritten there"))]
    Overwrite,
    /// To lock it; it is created if there is none.
    Lock,
}

/// How often a lock file may be replaced while it is being locked before the attempt fails.
const LOCK_ATTEMPTS: usize = 16;

/// The operating system's files.
#[derive(Debug, Clone, Copy, Default)]
pub struct DiskVfs;

impl Vfs for DiskVfs {
    fn create(&self, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        let file = system::create_new(path).map_err(|error| wrap("create", path, error))?;
        let writer = write::Writer::new(file, path).map_err(|error| wrap("create", path, error))?;
        Ok(Box::new(writer))
    }

    fn writes_over(&self) -> bool {
        cfg!(target_os = "linux")
    }

    fn create_over(&self, old: &Path, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        match recycle::take(old, path) {
            Some(writer) => Ok(Box::new(writer)),
            None => self.create(path),
        }
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn ReadFile>> {
        let file = open_regular(path, Opening::Read, "open")?;
        read::reader(file, path, access).map_err(|error| wrap("open", path, error))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        let failed = |error| wrap("list", dir, error);
        let mut entries = Vec::new();
        for entry in std::fs::read_dir(dir).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name();
            // This is lstat: a symbolic link is not a regular file, whatever it points to.
            match entry.metadata() {
                Ok(found) if found.is_file() => {
                    let bytes = found.len();
                    entries.push(DirEntry { name, bytes, is_file: true, is_dir: false });
                }
                Ok(found) => {
                    let is_dir = found.is_dir();
                    entries.push(DirEntry { name, bytes: 0, is_file: false, is_dir });
                }
                // Removed during the listing.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(wrap("list", &entry.path(), error)),
            }
        }
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    fn free_bytes(&self, dir: &Path) -> Option<u64> {
        system::free_bytes(dir)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        system::rename(from, to).map_err(|error| wrap_to("rename", from, to, error))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        system::remove(path).map_err(|error| wrap("remove", path, error))
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        system::hard_link(from, to).map_err(|error| wrap_to("link", from, to, error))
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        system::create_dir(path).map_err(|error| wrap("create", path, error))
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        system::remove_dir(path).map_err(|error| wrap("remove", path, error))
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        system::sync_dir(dir).map_err(|error| wrap("sync", dir, error))
    }

    fn sync_file(&self, path: &Path) -> io::Result<()> {
        let file = open_regular(path, Opening::Sync, "sync")?;
        file.sync_data().map_err(|error| wrap("sync", path, error))
    }

    fn working_dir(&self) -> Option<PathBuf> {
        std::env::current_dir().ok()
    }

    fn real_path(&self, path: &Path) -> io::Result<PathBuf> {
        path.canonicalize().map_err(|error| wrap("find", path, error))
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        Ok(Box::new(lock_opened(path, || open_lock(path), File::try_lock)?))
    }

    fn lock_shared(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        let open = || open_regular(path, Opening::Read, "lock");
        Ok(Box::new(lock_opened(path, open, File::try_lock_shared)?))
    }
}

/// An open file with a `flock`.
///
/// The lock belongs to the open file, and a child process has a copy of that between fork and exec.
/// So closing this handle might not release it: it is unlocked explicitly.
#[derive(Debug)]
struct DiskLock {
    file: File,
    path: PathBuf,
}

impl FileLock for DiskLock {
    fn is_in_place(&self) -> bool {
        system::is_at(&self.file, &self.path).unwrap_or(true)
    }
}

impl Drop for DiskLock {
    fn drop(&mut self) {
        // If this fails, the lock ends with the last copy of the file.
        let _ = self.file.unlock();
    }
}

/// Opens a file that must be regular, without waiting for a FIFO's other end.
fn open_regular(path: &Path, opening: Opening, action: &'static str) -> io::Result<File> {
    let strange = || refuse(ErrorKind::InvalidInput, action, path, "not a regular file");
    let file = match system::open(path, opening) {
        Ok(file) => file,
        Err(error) if system::is_not_regular(&error) => return Err(strange()),
        Err(error) => return Err(wrap(action, path, error)),
    };
    let found = file.metadata().map_err(|error| wrap(action, path, error))?;
    if found.is_file() { Ok(file) } else { Err(strange()) }
}

/// Opens a lock file for writing, since some file systems cannot lock otherwise, or for reading if
/// the store is read-only.
fn open_lock(path: &Path) -> io::Result<File> {
    let opened = open_regular(path, Opening::Lock, "lock");
    match opened {
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem
            ) =>
        {
            open_regular(path, Opening::Read, "lock").map_err(|second| {
                // The cause is that it cannot be created, not that it is missing.
                if second.kind() == ErrorKind::NotFound { error } else { second }
            })
        }
        opened => opened,
    }
}

/// Locks the file that `open` returns, until it is the one that `path` names.
fn lock_opened(
    path: &Path,
    mut open: impl FnMut() -> io::Result<File>,
    take: impl Fn(&File) -> Result<(), TryLockError>,
) -> io::Result<DiskLock> {
    for _ in 0..LOCK_ATTEMPTS {
        let file = open()?;
        match take(&file) {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let why = "another owner holds the lock";
                return Err(refuse(ErrorKind::WouldBlock, "lock", path, why));
            }
            Err(TryLockError::Error(error)) => return Err(wrap("lock", path, error)),
        }
        if system::is_at(&file, path).map_err(|error| wrap("lock", path, error))? {
            return Ok(DiskLock { file, path: path.to_path_buf() });
        }
    }
    let why = "the file is being replaced again and again";
    Err(refuse(ErrorKind::WouldBlock, "lock", path, why))
}

#[cfg(test)]
mod tests;
