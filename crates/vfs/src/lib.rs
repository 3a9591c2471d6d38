//! Files and nothing else. Nothing but this crate opens a file, maps one, or syncs.
//!
//! * [`Vfs`], [`WriteFile`], [`ReadFile`] and [`FileLock`]: the seam. A file is created once,
//!   appended to, synced, and from then on only read: no byte that somebody can read is ever
//!   changed. A file that nobody needs any more may be written over under a new name
//!   ([`Vfs::create_over`]), which is refused while anybody has it open, or it has a second name.
//! * [`DiskVfs`]: the real thing.
//! * [`MemoryVfs`]: the same behaviour in memory, for tests.
//! * [`SimDisk`]: a disk whose power can be cut at any moment, and whose calls can be made to fail.
//!
//! Every error carries its path in its text; what the system said is kept behind it (see
//! [`PathError`] and [`os_error`]). All implementations run one conformance suite.

#![deny(unsafe_code)]

mod content;
mod disk;
mod error;
mod input;
mod layer;
mod machine;
mod memory;
mod process;
mod sim;
mod tree;

#[cfg(test)]
mod conformance;

use std::ffi::OsString;
use std::fmt::Debug;
use std::io;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

pub use disk::{DirectHandle, DiskVfs};
pub use error::{PathError, is_out_of_handles, os_error, path_of};
pub use input::FileInput;
pub use layer::Layer;
pub use machine::{advise_huge_pages, memory_bytes, open_file_limit, usable_memory_bytes};
pub use memory::MemoryVfs;
pub use process::{OpenFlag, OpenFlagRef};
pub use sim::{
    Data, Entries, Failure, Fault, Image, Loss, Op, OpKind, Policy, Replay, SECTOR_BYTES, SimDisk,
};

/// How a finished file is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Access {
    /// `pread` through the page cache.
    #[default]
    Buffered,
    /// A read-only map of the whole file.
    Mapped,
    /// `O_DIRECT`: past the page cache. Any offset and length may be asked for.
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
    /// Whether it is a directory itself, and no symbolic link to one.
    pub is_dir: bool,
}

/// A file system, or something that behaves like one.
pub trait Vfs: Debug + Send + Sync {
    /// Creates a file that must not exist yet, for appending.
    ///
    /// Its directory entry is durable only after [`Vfs::sync_dir`].
    fn create(&self, path: &Path) -> io::Result<Box<dyn WriteFile>>;

    /// Whether [`Vfs::create_over`] spares anything.
    fn writes_over(&self) -> bool {
        false
    }

    /// As [`Vfs::create`], in the place of the finished file `old`, which is removed, if it can be,
    /// unless there was an error.
    ///
    /// Where it can the file system gives the new file what memory and space the old one has, which
    /// is then written over: that spares much of what a new file costs. Bytes of the old one may be
    /// found in it after a crash, where it was not synced, but never all of them. Nobody may want
    /// to read the old file any more.
    fn create_over(&self, old: &Path, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        self.remove(old)?;
        self.create(path)
    }

    /// Opens a finished file for reading. `InvalidInput` if it is not a regular file.
    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn ReadFile>>;

    /// Everything in `dir`, sorted by name: files, folders, and whatever else lies there.
    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>>;

    /// Renames a file, replacing the file `to` if it exists; atomic for whoever looks on. Does
    /// nothing if both are names of one file.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Gives a finished file a second name.
    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Creates one directory, whose parent must exist. `AlreadyExists` if there is one.
    fn create_dir(&self, path: &Path) -> io::Result<()>;

    /// Removes an empty directory. `DirectoryNotEmpty` if something lies in it.
    fn remove_dir(&self, path: &Path) -> io::Result<()>;

    /// Makes the directory's entries (creations, renames, removals) durable.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;

    /// Makes all bytes of a finished file and its length durable, whoever wrote them. After a
    /// failure nothing may be assumed of those that were not durable before.
    ///
    /// `Unsupported` where the file system has no such call, which is what it says unless it is
    /// implemented.
    fn sync_file(&self, path: &Path) -> io::Result<()> {
        Err(error::refuse(io::ErrorKind::Unsupported, "sync", path, "no finished file can be"))
    }

    /// Takes an exclusive lock on `path`, creating the file if need be. `WouldBlock` if another
    /// owner, in this process or another, holds it. Released when the value is dropped. The file
    /// must never be removed: whoever locks its successor would be a second owner.
    fn lock(&self, path: &Path) -> io::Result<Box<dyn FileLock>>;

    /// Takes a lock on the existing file `path` that others may share, but no owner of
    /// [`Vfs::lock`]. Creates and writes nothing: `NotFound` if there is no such file.
    fn lock_shared(&self, path: &Path) -> io::Result<Box<dyn FileLock>>;

    /// The directory at which relative paths begin now; `None` where there is no such thing, or it
    /// cannot be told.
    fn working_dir(&self) -> Option<PathBuf> {
        None
    }

    /// The one path of what lies at `path`, which is there: absolute, through no symbolic link.
    /// `path` itself where there is no such thing.
    fn real_path(&self, path: &Path) -> io::Result<PathBuf> {
        Ok(path.to_path_buf())
    }

    /// Bytes that may still be written to the file system of `dir`, where it says.
    fn free_bytes(&self, _dir: &Path) -> Option<u64> {
        None
    }

    /// The whole of a file that is at most `limit` bytes long (`InvalidData` if it is longer).
    fn read(&self, path: &Path, limit: u64) -> io::Result<Vec<u8>> {
        whole(&*self.open(path, Access::Buffered)?, path, limit)
    }
}

/// All of `file`, which lies at `path`: see [`Vfs::read`].
fn whole(file: &dyn ReadFile, path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let bytes = file.bytes();
    if bytes > limit {
        let text = format!("it has {bytes} bytes, more than the {limit} that make sense");
        let found = io::Error::new(io::ErrorKind::InvalidData, text);
        return Err(error::wrap("read", path, found));
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
    /// assumed of the bytes since the last success, and the call must not be tried again.
    fn sync(&mut self) -> io::Result<()>;

    /// Says that what was appended will be synced, so that the system may begin to write it to the
    /// device meanwhile. A hint: it promises nothing, waits for no device unless its queue is full,
    /// and nothing depends on it. Files of a disk heed it, on Linux.
    fn start_write_back(&mut self) {}

    /// Says that about `bytes` bytes more will be appended, so that the system may set space for
    /// them aside. Length and content stay as they are, and nothing depends on it. Files of a disk
    /// heed it, on Linux. `StorageFull` if there is not so much: what is appended then may find no
    /// room.
    fn set_space_aside(&mut self, _bytes: u64) -> io::Result<()> {
        Ok(())
    }

    /// Says that little will be appended at a time, and synced each time, so that zeros may be put
    /// behind what was appended, until the file has a length of `bytes`. To make durable what then
    /// takes their place, the system need not write down a new length. Who reads the file, after a
    /// crash for example, may find these zeros or some of them; they do not count as appended. A
    /// hint all the same: nothing depends on it. Files of a disk heed it. An error if the zeros
    /// could not be written, or not all.
    fn write_zeros_ahead(&mut self, _bytes: u64) -> io::Result<()> {
        Ok(())
    }

    /// Says that nothing more will be appended, so that space set aside may be given back, and
    /// zeros written ahead cut off. A hint, as above.
    fn give_space_back(&mut self) {}

    /// Bytes appended so far, those of a failed call's beginning included.
    fn bytes(&self) -> u64;
}

/// A finished file.
pub trait ReadFile: Debug + Send + Sync {
    /// Fills `buffer` from `offset`, carrying on after short reads; `UnexpectedEof` if the file
    /// ends before that, and another error if it does not, but the system gives no more of it.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()>;

    /// Says that `bytes` bytes from `offset` are about to be read, so that the system may begin to
    /// fetch them meanwhile. A hint: it returns at once, and nothing depends on it. Buffered reads
    /// of a disk heed it.
    fn will_need(&self, _offset: u64, _bytes: usize) {}

    /// Whether each read is one of the device, for which the system fetches nothing ahead: reads
    /// then overlap only if [`read_at_once`] or several threads make them.
    fn is_direct(&self) -> bool {
        false
    }

    /// What [`read_at_once`] reads the file by. None where it does not read it.
    fn direct_handle(&self) -> Option<DirectHandle<'_>> {
        None
    }

    /// The file's length when it was opened, in bytes.
    fn bytes(&self) -> u64;

    /// The file's bytes, where it was opened with [`Access::Mapped`] and could be mapped.
    fn mapped(&self) -> Option<&[u8]> {
        None
    }

    /// The same, for as long as somebody keeps it.
    fn shared_map(&self) -> Option<SharedMap> {
        None
    }
}

/// The bytes of a finished file, mapped for as long as a clone of this lives.
#[derive(Debug, Clone)]
pub struct SharedMap(Bytes);

impl SharedMap {
    /// Of these bytes, wherever they are kept.
    pub(crate) fn of(owner: impl AsRef<[u8]> + Send + 'static) -> Self {
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

/// A stretch of a finished file, to be read at once with others.
#[derive(Debug, Clone, Copy)]
pub struct Piece<'a> {
    /// The file.
    pub file: &'a dyn ReadFile,
    /// Where the piece begins, in bytes from the file's beginning. Any place will do.
    pub offset: u64,
    /// Its length in bytes.
    pub bytes: usize,
}

/// Pieces of files that are read at once, and who is given what is read of them.
pub trait Pieces<'a> {
    /// The next piece; none behind the last. Those before it may already be on their way, so that
    /// what it takes to find it costs no time.
    fn next(&mut self) -> Option<Piece<'a>>;

    /// Called once, when the device was asked for the first pieces, which it takes its time for.
    /// Not called if none are read.
    fn meanwhile(&mut self) {}

    /// Called for each piece that was read, in the order in which they come, with its place among
    /// the pieces and its bytes. Others may still be on their way.
    fn receive(&mut self, nth: usize, bytes: &[u8]);
}

/// Reads `pieces` at once, in this thread: the device is asked for 128 of them, or a MiB, before
/// the first is waited for, and for the next ones when all of these have come.
///
/// What is not received was not read, and is to be read by [`ReadFile::read_at`], which says what
/// is wrong if something is. That may be all of them, and there may be next ones still: files are
/// read so if they are a disk's and were opened with [`Access::Direct`], on Linux, where the system
/// allows it.
pub fn read_at_once<'a>(pieces: &mut dyn Pieces<'a>) {
    disk::read_at_once(pieces);
}

/// A held lock; dropping it releases it.
pub trait FileLock: Debug + Send + Sync {
    /// Whether the path still names the file that is locked. If not, somebody removed or replaced
    /// it, and another owner may have locked its successor. `true` where that cannot be told.
    fn is_in_place(&self) -> bool {
        true
    }
}
