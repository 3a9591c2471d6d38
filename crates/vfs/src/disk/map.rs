//! A read-only map of a finished file: with `resident.rs` and `ring.rs` the `unsafe` around files.
//!
//! Safety argument. A map is a `&[u8]` over memory that the kernel fills from the file, so two
//! things must hold while it lives: its bytes do not change, and they stay there.
//!
//! 1. Inside this process nothing changes them: [`WriteFile`](crate::WriteFile) can only append,
//!    and a file is created anew (`O_EXCL`), or written over by
//!    [`create_over`](crate::Vfs::create_over). That claims the file in [`in_use`](super::in_use),
//!    which it refuses while anybody has the file open; a map's claim outlives the map, and a file
//!    that is claimed to be written over is not mapped. So no call of this crate overwrites or
//!    truncates a byte that a map shows. The map covers the length at opening; later appends lie
//!    behind it. Renaming and unlinking leave the inode, and with it the map, alone.
//! 2. Other processes of this program are kept out by the store's lock. A second name of a file, by
//!    which they may map it in another store, keeps it from being written over, and whoever gave it
//!    one does not ask for that later.
//! 3. A stranger who overwrites or truncates the file under a map breaks 1 from outside.
//!    Truncation, like an I/O error or a hole on a full disk, then raises `SIGBUS`; nothing is ever
//!    *written* through a map, so no data is harmed. This weaker promise is why a map is never the
//!    default, why readers check checksums at least once, and why they look at each byte within
//!    bounds and take any for possible.

#![allow(unsafe_code)]

use std::fs::File;
use std::io;

use memmap2::{Advice, Mmap, MmapOptions};

/// Maps the first `bytes` of `file`.
pub(super) fn map(file: &File, bytes: usize) -> io::Result<Mmap> {
    // SAFETY: the file is a finished regular file that no code of this process overwrites or
    // truncates while its claim lives, and that the store's lock keeps from others; see the
    // argument at the module's head.
    let map = unsafe { MmapOptions::new().len(bytes).map(file) }?;
    // Point reads gain nothing from read-ahead. A kernel that refuses the advice reads correctly
    // all the same.
    let _ = map.advise(Advice::Random);
    Ok(map)
}
