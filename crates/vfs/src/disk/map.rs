//! A read-only map of a finished file: with `resident.rs` and `ring.rs` the `unsafe` code for
//! files.
//!
//! Safety argument. A map is a `&[u8]` over memory that the kernel fills from the file, so two
//! conditions must hold while it lives: its bytes do not change, and they stay mapped to the file.
//!
//! 1. No code of this process changes them: [`WriteFile`](crate::WriteFile) can only append, and a
//!    file is created anew (`O_EXCL`), or overwritten by [`create_over`](crate::Vfs::create_over).
//!    That claims the file in [`in_use`](super::in_use), which refuses while the file is open; a
//!    map's claim outlives the map, and a file that is claimed for overwriting is not mapped. So no
//!    call of this crate overwrites or truncates a byte of a map. The map covers the length at
//!    opening; later appends are after it. Renaming and unlinking do not affect the inode, nor the
//!    map.
//! 2. The store's lock excludes other processes of this program. A second name of a file, by which
//!    they may map it in another store, keeps it from being overwritten, and the process that
//!    created that name does not request an overwrite later.
//! 3. Another program that overwrites or truncates the file under a map violates 1. Truncation,
//!    like an I/O error or a hole on a full disk, then raises `SIGBUS`; nothing is ever *written*
//!    through a map, so no data is harmed. This weaker guarantee is why a map is never the default,
//!    why readers verify checksums at least once, and why they check bounds for each access and
//!    accept any byte value.

#![allow(unsafe_code)]

use std::fs::File;
use std::io;

use memmap2::Mmap;

/// Maps the first `bytes` of `file`.
#[cfg(unix)]
pub(super) fn map(file: &File, bytes: usize) -> io::Result<Mmap> {
    // SAFETY: the file is a finished regular file that no code of this process overwrites or
    // truncates while its claim lives, and that the store's lock protects from other processes; see
    // the argument at the module's head.
    let map = unsafe { memmap2::MmapOptions::new().len(bytes).map(file) }?;
    // Point reads gain nothing from read-ahead. If the kernel refuses the advice, reads are still
    // correct.
    let _ = map.advise(memmap2::Advice::Random);
    Ok(map)
}

/// Not on this system, where a mapped file could not be removed.
#[cfg(not(unix))]
pub(super) fn map(_file: &File, _bytes: usize) -> io::Result<Mmap> {
    Err(io::ErrorKind::Unsupported.into())
}
