//! A read-only map of a finished file: with `resident.rs` and `ring.rs` the `unsafe` around files.
//!
//! Safety argument. A map is a `&[u8]` over memory that the kernel fills from the file, so two things
//! must hold while it lives: its bytes do not change, and they stay there.
//!
//! 1. Inside this process nothing changes them: [`WriteFile`](crate::WriteFile) can only append, and
//!    a file is only ever created anew (`O_EXCL`), so no call of this crate overwrites or truncates a
//!    byte that was once written. The map covers the length at opening; later appends lie behind it.
//!    Renaming and unlinking leave the inode, and with it the map, alone.
//! 2. Other processes of this program are kept out by the store's lock.
//! 3. A stranger who overwrites or truncates the file under a map breaks 1 from outside. Truncation,
//!    like an I/O error or a hole on a full disk, then raises `SIGBUS`; nothing is ever *written*
//!    through a map, so no data is harmed. This weaker promise is why a map is never the default, why
//!    readers check checksums at least once, and why they look at each byte within bounds and take any for possible.

#![allow(unsafe_code)]

use std::fs::File;
use std::io;

use memmap2::{Advice, Mmap, MmapOptions};

/// Maps the first `bytes` of `file`.
pub(super) fn map(file: &File, bytes: usize) -> io::Result<Mmap> {
    // SAFETY: the file is a finished regular file that no code of this process can overwrite or
    // truncate, and that the store's lock keeps from others; see the argument at the module's head.
    let map = unsafe { MmapOptions::new().len(bytes).map(file) }?;
    // Point reads gain nothing from read-ahead. A kernel that refuses the advice reads correctly all
    // the same.
    let _ = map.advise(Advice::Random);
    Ok(map)
}
