//! Reading a finished file, in one of three ways.
//!
//! A mapped file keeps no file handle: the map outlives it, and handles are scarce. If the map is
//! refused, or the file system does not support `O_DIRECT`, reads are buffered: the bytes are the
//! same.

use std::cell::RefCell;
use std::fs::{File, TryLockError};
use std::io::{self, ErrorKind};
#[cfg(target_os = "linux")]
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use memmap2::Mmap;
use rustix::io::Errno;

use super::in_use::Claim;
use super::map::map;
#[cfg(target_os = "linux")]
use super::resident::is_in_memory;
use super::system::{self, FileExt};
use crate::error::{check_range, end_of_file, ended_early, os_error, wrap};
use crate::{Access, ReadFile, SharedMap};

/// The alignment that `O_DIRECT` requires of offsets, lengths and addresses, in bytes. Devices
/// require 512 or 4096.
pub(super) const ALIGN: usize = 4096;

/// Shortest range of a map, in bytes, that is checked for residency before it is advised: the
/// advice costs the system time for each page, even if all are in memory.
#[cfg(target_os = "linux")]
const ASKED_BYTES: usize = 32 << 10;

/// Longest single `O_DIRECT` read, in bytes; longer ranges take several.
const DIRECT_BYTES: usize = 1 << 20;

/// A reader for `file`.
pub(super) fn reader(file: File, path: &Path, access: Access) -> io::Result<Arc<dyn ReadFile>> {
    // The claim comes first: from then on the file does not become shorter.
    let (claim, may_be_mapped) = Claim::shared(&file)?;
    // The same for other processes.
    let locked = system::share(&file);
    let (path, bytes) = (path.to_path_buf(), file.metadata()?.len());
    match locked {
        // Another process is overwriting it, so it is not a file of a store. (An empty file may be
        // a lock file.)
        Err(TryLockError::WouldBlock) if may_be_mapped && bytes > 0 => {
            return Err(io::Error::new(ErrorKind::NotFound, "it is being overwritten"));
        }
        // A writer in this process holds the lock; or the file system has no such locks, and
        // nothing is overwritten there.
        _ => {}
    }
    match access {
        Access::Buffered => {}
        Access::Mapped => {
            // Mapping an empty file is an error.
            let length = usize::try_from(bytes).ok().filter(|&length| length > 0 && may_be_mapped);
            if let Some(Ok(map)) = length.map(|length| map(&file, length)) {
                let map = Arc::new(Mapped { map, _claim: claim });
                return Ok(Arc::new(MappedFile { map, shared: OnceLock::new(), path }));
            }
        }
        Access::Direct => {
            if set_direct(&file, true).is_ok() {
                return Ok(Arc::new(DirectFile {
                    file: BufferedFile { file, path, bytes, _claim: claim },
                }));
            }
        }
    }
    Ok(Arc::new(BufferedFile { file, path, bytes, _claim: claim }))
}

#[derive(Debug)]
struct BufferedFile {
    file: File,
    path: PathBuf,
    bytes: u64,
    _claim: Claim,
}

impl BufferedFile {
    /// The error of a failed read up to `end`.
    fn failure(&self, error: io::Error, end: u64) -> io::Error {
        match error.kind() {
            ErrorKind::UnexpectedEof => {
                let bytes = self.file.metadata().map(|found| found.len());
                ended_early(&self.path, bytes, end)
            }
            _ => wrap("read", &self.path, error),
        }
    }
}

impl ReadFile for BufferedFile {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        check_range(&self.path, self.bytes, offset, buffer.len())?;
        // Continues after short reads and interrupts.
        let read = self.file.read_exact_at(buffer, offset);
        read.map_err(|error| self.failure(error, offset + buffer.len() as u64))
    }

    #[cfg(target_os = "linux")]
    fn will_need(&self, offset: u64, bytes: usize) {
        use rustix::fs::{Advice, fadvise};
        let _ = fadvise(&self.file, offset, NonZeroU64::new(bytes as u64), Advice::WillNeed);
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// A map, and the claim that keeps the file from being overwritten while it lives.
#[derive(Debug)]
struct Mapped {
    map: Mmap,
    _claim: Claim,
}

#[derive(Debug)]
struct MappedFile {
    map: Arc<Mapped>,
    /// The shared form of the map, once requested.
    shared: OnceLock<SharedMap>,
    path: PathBuf,
}

/// A reference to a map.
struct Shared(Arc<Mapped>);

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        &self.0.map
    }
}

impl ReadFile for MappedFile {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        check_range(&self.path, self.bytes(), offset, buffer.len())?;
        // In range, so the offset fits a `usize`.
        let start = offset as usize;
        let found = self.map.map.get(start..start + buffer.len());
        buffer.copy_from_slice(found.ok_or_else(|| end_of_file(&self.path))?);
        Ok(())
    }

    #[cfg(target_os = "linux")]
    fn will_need(&self, offset: u64, bytes: usize) {
        let end = offset.saturating_add(bytes as u64);
        if end > self.bytes() {
            return;
        }
        let start = offset as usize;
        if bytes < ASKED_BYTES || !is_in_memory(&self.map.map, start..start + bytes) {
            let _ = self.map.map.advise_range(memmap2::Advice::WillNeed, start, bytes);
        }
    }

    fn bytes(&self) -> u64 {
        self.map.map.len() as u64
    }

    fn mapped(&self) -> Option<&[u8]> {
        Some(&self.map.map)
    }

    fn shared_map(&self) -> Option<SharedMap> {
        let shared = || SharedMap::of(Shared(Arc::clone(&self.map)));
        Some(self.shared.get_or_init(shared).clone())
    }
}

/// A file of the disk that was opened with [`Access::Direct`], for
/// [`read_at_once`](crate::read_at_once).
#[derive(Debug, Clone, Copy)]
pub struct DirectHandle<'a> {
    #[cfg_attr(
        not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))),
        allow(dead_code, reason = "read only where io_uring exists")
    )]
    pub(super) file: &'a File,
}

/// A file opened with `O_DIRECT`.
#[derive(Debug)]
struct DirectFile {
    file: BufferedFile,
}

impl ReadFile for DirectFile {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let BufferedFile { file, path, bytes, .. } = &self.file;
        check_range(path, *bytes, offset, buffer.len())?;
        let mut offset = offset;
        let end = offset + buffer.len() as u64;
        let mut rest = buffer;
        while !rest.is_empty() {
            let lead = (offset % ALIGN as u64) as usize;
            let (piece, after) = rest.split_at_mut(rest.len().min(DIRECT_BYTES - lead));
            let done: io::Result<()> =
                with_aligned((lead + piece.len()).next_multiple_of(ALIGN), |space| {
                    let read = |space: &mut [u8], start| file.read_at(space, start);
                    read_aligned(read, offset - lead as u64, space, lead + piece.len())?;
                    piece.copy_from_slice(&space[lead..lead + piece.len()]);
                    Ok(())
                });
            match done {
                Ok(()) => {}
                // Accepted at open and refused now (a coarser alignment, or another file system in
                // between): from now on this handle reads through the page cache, which accepts any
                // alignment.
                Err(error) if os_error(&error) == Some(Errno::INVAL.raw_os_error()) => {
                    set_direct(file, false).map_err(|error| wrap("read", path, error))?;
                    let read = file.read_exact_at(piece, offset);
                    read.map_err(|error| self.file.failure(error, end))?;
                }
                Err(error) => return Err(self.file.failure(error, end)),
            }
            offset += piece.len() as u64;
            rest = after;
        }
        Ok(())
    }

    fn is_direct(&self) -> bool {
        true
    }

    fn direct_handle(&self) -> Option<DirectHandle<'_>> {
        Some(DirectHandle { file: &self.file.file })
    }

    fn bytes(&self) -> u64 {
        self.file.bytes
    }
}

/// Fills at least the first `wanted` bytes of `space` by calls of `read` with a part of it and an
/// offset in the file. The address of `space`, its length and `start` are multiples of [`ALIGN`].
fn read_aligned(
    mut read: impl FnMut(&mut [u8], u64) -> io::Result<usize>,
    start: u64,
    space: &mut [u8],
    wanted: usize,
) -> io::Result<()> {
    let mut filled = 0;
    while filled < wanted {
        match read(&mut space[filled..], start + filled as u64) {
            Ok(read) if filled + read >= wanted => return Ok(()),
            Ok(read) => {
                // A short read continues at the last aligned offset; a read without progress is the
                // end.
                let next = (filled + read) / ALIGN * ALIGN;
                if next <= filled {
                    return Err(ErrorKind::UnexpectedEof.into());
                }
                filled = next;
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Passes this thread's buffer to `work`: `length` bytes from an address that is a multiple of
/// [`ALIGN`].
fn with_aligned<T>(length: usize, work: impl FnOnce(&mut [u8]) -> T) -> T {
    thread_local! {
        static SPACE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    }
    SPACE.with_borrow_mut(|space| {
        if space.len() < length + ALIGN {
            *space = vec![0; length + ALIGN];
        }
        let address = space.as_ptr().addr();
        let start = address.next_multiple_of(ALIGN) - address;
        work(&mut space[start..start + length])
    })
}

/// Switches `O_DIRECT` on or off; an error if the file system does not support it.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn set_direct(file: &File, direct: bool) -> io::Result<()> {
    let mut flags = rustix::fs::fcntl_getfl(file)?;
    flags.set(rustix::fs::OFlags::DIRECT, direct);
    Ok(rustix::fs::fcntl_setfl(file, flags)?)
}

/// No known `O_DIRECT` on this system.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn set_direct(_file: &File, _direct: bool) -> io::Result<()> {
    Err(ErrorKind::Unsupported.into())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::io::Write;

    use rustix::fs::{OFlags, fcntl_getfl};

    use super::*;

    /// Misaligned reads would be refused, and then silently become buffered ones.
    #[test]
    fn direct_reads_at_any_offset_stay_direct() {
        let mut file = tempfile::tempfile().expect("a place for temporary files");
        let bytes: Vec<u8> = (0..3_000_000_u32).map(|i| (i % 251) as u8).collect();
        file.write_all(&bytes).expect("room for it");
        if set_direct(&file, true).is_err() {
            return;
        }
        let (path, bytes_in_it) = (PathBuf::from("unnamed"), bytes.len() as u64);
        let (claim, _) = Claim::shared(&file).expect("an open file");
        let file = BufferedFile { file, path, bytes: bytes_in_it, _claim: claim };
        let file = DirectFile { file };
        for (start, end) in
            [(0, 1), (1, 5000), (4095, 4097), (77, 2_500_000), (2_999_999, 3_000_000)]
        {
            let mut buffer = vec![0; end - start];
            file.read_at(start as u64, &mut buffer).expect("inside the file");
            assert!(buffer == bytes[start..end], "{start}..{end}");
            let flags = fcntl_getfl(&file.file.file).expect("an open file");
            assert!(flags.contains(OFlags::DIRECT), "{start}..{end} fell back");
        }
    }

    /// Whatever the size of the short reads, and with interrupts in between.
    #[test]
    fn short_and_interrupted_reads_are_carried_on_with() {
        let bytes: Vec<u8> = (0..5 * ALIGN as u32 + 700).map(|i| (i % 251) as u8).collect();
        for most in (ALIGN..6 * ALIGN).step_by(512) {
            let mut calls = 0;
            let mut read = |space: &mut [u8], start: u64| {
                calls += 1;
                if calls % 3 == 2 {
                    return Err(ErrorKind::Interrupted.into());
                }
                let rest = &bytes[start as usize..];
                let given = most.min(rest.len()).min(space.len());
                space[..given].copy_from_slice(&rest[..given]);
                Ok(given)
            };
            let mut space = vec![0; 6 * ALIGN];
            read_aligned(&mut read, 0, &mut space, bytes.len()).expect("all of it is there");
            assert!(space.starts_with(&bytes), "{most} bytes at a time");
            // There is not one more byte, and the read does not wait for it.
            let error =
                read_aligned(&mut read, 0, &mut space, bytes.len() + 1).expect_err("the end");
            assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
        }
    }

    #[test]
    fn lent_buffers_lie_on_the_grid_and_stay_small() {
        for length in [ALIGN, DIRECT_BYTES, ALIGN, 2 * ALIGN] {
            with_aligned(length, |space| {
                assert_eq!((space.len(), space.as_ptr().addr() % ALIGN), (length, 0));
            });
        }
    }
}
