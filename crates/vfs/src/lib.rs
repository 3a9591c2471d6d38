//! File access. Only this crate opens, maps or syncs files.
//!
//! * [`Vfs`], [`WriteFile`], [`ReadFile`] and [`FileLock`]: the interface. A file is created once,
//!   appended to, synced, and from then on only read: no byte that a reader can see is ever
//!   changed. An obsolete file may be recycled: overwritten under a new name
//!   ([`Vfs::create_over`]). This is refused while it is open, or if it has a second name.
//! * [`DiskVfs`]: files on disk.
//!
//! Every error has its path in its text, and the system's error as its source (see [`PathError`]
//! and [`os_error`]). All implementations run one conformance suite (crate `trommel-sim`, which has
//! file systems for tests).

#![deny(unsafe_code)]

mod disk;
mod error;
mod input;
mod layer;
mod machine;
mod process;

use std::ffi::OsString;
use std::fmt::Debug;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;

pub use disk::{DirectHandle, DiskVfs};
pub use error::{PathError, is_out_of_handles, os_error, path_of, wrap, wrap_to};
pub use input::FileInput;
pub use layer::Layer;
pub use machine::{advise_huge_pages, memory_bytes, open_file_limit, usable_memory_bytes};
pub use process::{OpenFlag, OpenFlagRef};

/// The access method for a finished file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Access {
    /// `pread` through the page cache.
    #[default]
    Buffered,
    /// A read-only map of the whole file.
    Mapped,
    /// `O_DIRECT`: bypasses the page cache. Any offset and length may be read.
    Direct,
}

/// One entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirEntry {
    /// The last component of its path.
    pub name: OsString,
    /// Its length in bytes (0 for anything but a regular file).
    pub bytes: u64,
    /// Whether it is a regular file.
    pub is_file: bool,
    /// Whether it is a directory itself, not a symbolic link to one.
    pub is_dir: bool,
}

/// A file system, or a fake of one.
pub trait Vfs: Debug + Send + Sync {
    /// Creates a file that must not exist yet, for appending.
    ///
    /// Its directory entry is durable only after [`Vfs::sync_dir`].
    fn create(&self, path: &Path) -> io::Result<Box<dyn WriteFile>>;

    /// Whether [`Vfs::create_over`] saves anything.
    fn writes_over(&self) -> bool {
        false
    }

    /// Like [`Vfs::create`], but recycles the finished file `old`, which is removed, if possible,
    /// unless there was an error.
    ///
    /// If possible, the new file reuses the memory and space of the old one, which is overwritten:
    /// that saves much of the cost of a new file. After a crash, a new file that was not synced may
    /// hold bytes of the old one, but never all of them. There must be no later read of the old
    /// file.
    fn create_over(&self, old: &Path, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        self.remove(old)?;
        self.create(path)
    }

    /// Opens a finished file for reading. `InvalidInput` if it is not a regular file.
    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn ReadFile>>;

    /// Everything in `dir`, sorted by name: files, directories, and others.
    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>>;

    /// Renames a file, replacing the file `to` if it exists; atomic for concurrent readers. Does
    /// nothing if both are names of one file.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Adds a second name to a finished file.
    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Creates one directory, whose parent must exist. `AlreadyExists` if there is one.
    fn create_dir(&self, path: &Path) -> io::Result<()>;

    /// Removes an empty directory. `DirectoryNotEmpty` if it is not empty.
    fn remove_dir(&self, path: &Path) -> io::Result<()>;

    /// Makes the directory's entries (creations, renames, removals) durable.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;

    /// Makes all bytes of a finished file and its length durable, whoever wrote them. After a
    /// failure nothing may be assumed about those that were not durable before.
    ///
    /// The default implementation returns `Unsupported`, for file systems without such a call.
    fn sync_file(&self, path: &Path) -> io::Result<()> {
        Err(error::refuse(
            io::ErrorKind::Unsupported,
            "sync",
            path,
            "not supported for finished \
                                                                     files",
        ))
    }

    /// Takes an exclusive lock on `path`, creating the file if necessary. `WouldBlock` if another
    /// owner, in this process or another, holds it. Dropping the value releases the lock. The file
    /// must never be removed: a lock on its successor would allow a second owner.
    fn lock(&self, path: &Path) -> io::Result<Box<dyn FileLock>>;

    /// Takes a shared lock on the existing file `path`, which excludes an owner of [`Vfs::lock`].
    /// Creates and writes nothing: `NotFound` if there is no such file.
    fn lock_shared(&self, path: &Path) -> io::Result<Box<dyn FileLock>>;

    /// The current directory, to which relative paths refer; `None` if there is none, or it is
    /// unknown.
    fn working_dir(&self) -> Option<PathBuf> {
        None
    }

    /// The canonical path of `path`, which must exist: absolute, without symbolic links. `path`
    /// itself on file systems without these.
    fn real_path(&self, path: &Path) -> io::Result<PathBuf> {
        Ok(path.to_path_buf())
    }

    /// Bytes that may still be written to the file system of `dir`, if it reports this.
    fn free_bytes(&self, _dir: &Path) -> Option<u64> {
        None
    }

    /// The time of the wall clock, in milliseconds since 1970. It may jump, also backward.
    fn unix_millis(&self) -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }

    /// A random word, for the secret hash seed of a new store. By default it is SipHash of nothing,
    /// with the random keys of the standard library and a counter that differs at every call: as
    /// secret as the hashes of the standard library's maps.
    ///
    /// A file system that returns the same word each time makes runs repeat exactly, and the hashes
    /// of its stores public. With 0, stores have no seed.
    fn random_u64(&self) -> u64 {
        RandomState::new().build_hasher().finish()
    }

    /// The content of a file of at most `limit` bytes (`InvalidData` if it is longer).
    fn read(&self, path: &Path, limit: u64) -> io::Result<Vec<u8>> {
        whole(&*self.open(path, Access::Buffered)?, path, limit)
    }
}

/// The content of `file` at `path`: see [`Vfs::read`].
fn whole(file: &dyn ReadFile, path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let bytes = file.bytes();
    if bytes > limit {
        let text = format!("it has {bytes} bytes, and at most {limit} are valid");
        let found = io::Error::new(io::ErrorKind::InvalidData, text);
        return Err(wrap("read", path, found));
    }
    let mut buffer = vec![0; bytes as usize];
    file.read_at(0, &mut buffer)?;
    Ok(buffer)
}

/// A file that is being appended to.
pub trait WriteFile: Debug + Send + Sync {
    /// Appends all of `bytes`, or fails having appended any part of them (see
    /// [`bytes`](WriteFile::bytes)).
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Makes all appended bytes and the file's length durable. After a failure nothing may be
    /// assumed about the bytes since the last success, and the call must not be retried.
    fn sync(&mut self) -> io::Result<()>;

    /// Starts writeback of the appended bytes, which will be synced later. A hint: it guarantees
    /// nothing, waits for no device unless its queue is full, and nothing depends on it.
    /// Implemented for files on disk, on Linux.
    fn start_write_back(&mut self) {}

    /// Preallocates space for about `bytes` more bytes. Length and content do not change, and
    /// nothing depends on it. Implemented for files on disk, on Linux. `StorageFull` if there is
    /// not enough space: later appends may then fail.
    fn set_space_aside(&mut self, _bytes: u64) -> io::Result<()> {
        Ok(())
    }

    /// Writes zeros after the appended bytes, until the file has a length of `bytes`. For files
    /// with small appends, each of them synced: a sync of bytes that replace zeros need not write a
    /// new length. Readers, for example after a crash, may find these zeros or some of them; they
    /// do not count as appended. A hint: nothing depends on it. Implemented for files on disk. An
    /// error if the zeros could not be written, or not all.
    fn write_zeros_ahead(&mut self, _bytes: u64) -> io::Result<()> {
        Ok(())
    }

    /// Frees preallocated space, and truncates zeros written ahead, as nothing more will be
    /// appended. A hint, as above.
    fn give_space_back(&mut self) {}

    /// Bytes appended so far, including the part written by a failed call.
    fn bytes(&self) -> u64;
}

/// A finished file.
pub trait ReadFile: Debug + Send + Sync {
    /// Fills `buffer` from `offset`, continuing after short reads. `UnexpectedEof` if the file ends
    /// before that; another error if it does not, but the system returns no more of it.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()>;

    /// An access hint: `bytes` bytes from `offset` will be read soon, so that the system may start
    /// read-ahead. It returns at once, and nothing depends on it. Implemented for buffered reads of
    /// a disk.
    fn will_need(&self, _offset: u64, _bytes: usize) {}

    /// Whether each read goes to the device, without read-ahead by the system: reads then overlap
    /// only if [`read_at_once`] or several threads make them.
    fn is_direct(&self) -> bool {
        false
    }

    /// The handle by which [`read_at_once`] reads the file; `None` if it cannot.
    fn direct_handle(&self) -> Option<DirectHandle<'_>> {
        None
    }

    /// The file's length when it was opened, in bytes.
    fn bytes(&self) -> u64;

    /// The file's bytes, if it was opened with [`Access::Mapped`] and could be mapped.
    fn mapped(&self) -> Option<&[u8]> {
        None
    }

    /// The same as a shared reference, which keeps the map alive.
    fn shared_map(&self) -> Option<SharedMap> {
        None
    }
}

/// The bytes of a finished file, mapped for as long as a clone of this lives.
#[derive(Debug, Clone)]
pub struct SharedMap(Bytes);

impl SharedMap {
    /// A map of the bytes of any owner.
    pub fn of(owner: impl AsRef<[u8]> + Send + 'static) -> Self {
        Self(Bytes::from_owner(owner))
    }
}

impl Deref for SharedMap {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

/// A range of a finished file, to be read together with others.
#[derive(Debug, Clone, Copy)]
pub struct Piece<'a> {
    /// The file.
    pub file: &'a dyn ReadFile,
    /// The offset of the range in bytes. Any alignment is allowed.
    pub offset: u64,
    /// Its length in bytes.
    pub bytes: usize,
}

/// A source of pieces to be read together, and the receiver of their bytes.
pub trait Pieces<'a> {
    /// The next piece, or `None` after the last. Earlier ones may already be in flight while it is
    /// determined.
    fn next(&mut self) -> Option<Piece<'a>>;

    /// Called once, when the first requests have been submitted and the device is busy. Not called
    /// if nothing is read.
    fn meanwhile(&mut self) {}

    /// Called for each piece that was read, in order of completion, with its index among the pieces
    /// and its bytes. Others may still be in flight.
    fn receive(&mut self, nth: usize, bytes: &[u8]);
}

/// Reads `pieces` in this thread, many at once: 128 of them, or a MiB, are submitted before the
/// first wait, and the next ones when all of these are completed.
///
/// Pieces that are not received were not read. The caller must read them by [`ReadFile::read_at`],
/// which returns the error if there is one. This may be all of them, and `next` may have further
/// ones. Only files on disk that were opened with [`Access::Direct`] are read this way, on Linux,
/// if the system allows it.
pub fn read_at_once<'a>(pieces: &mut dyn Pieces<'a>) {
    disk::read_at_once(pieces);
}

/// A held lock; dropping it releases it.
pub trait FileLock: Debug + Send + Sync {
    /// Whether the path still names the locked file. If not, it was removed or replaced, and
    /// another owner may have locked its successor. `true` if that is unknown.
    fn is_in_place(&self) -> bool {
        true
    }
}
