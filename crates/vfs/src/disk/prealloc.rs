//! Space for a file's future content, preallocated.
//!
//! A file that grows by small appends allocates its blocks one by one, each with a search for free
//! space. A single preallocation (`fallocate`, without a change of the file's length) avoids that,
//! and the blocks are contiguous.

use std::fs::File;
use std::io;
use std::ops::Range;

/// The preallocated space of one file.
#[derive(Debug, Default)]
pub(super) struct Prealloc {
    /// The end of the preallocated space.
    end: u64,
    /// Whether the system refused, or does not support it.
    is_refused: bool,
}

impl Prealloc {
    /// Preallocates space for this range of `file`, which begins at its end. Does nothing if the
    /// system does not support it. `StorageFull` if there is not enough space.
    #[cfg(target_os = "linux")]
    pub(super) fn set(&mut self, file: &File, bytes: Range<u64>) -> io::Result<()> {
        use rustix::fs::{FallocateFlags, fallocate};
        use rustix::io::Errno;
        if self.is_refused || bytes.is_empty() {
            return Ok(());
        }
        let len = bytes.end - bytes.start;
        // Also on failure: a part may have been allocated.
        self.end = self.end.max(bytes.end);
        match fallocate(file, FallocateFlags::KEEP_SIZE, bytes.start, len) {
            Ok(()) | Err(Errno::INTR) => Ok(()),
            // Other files may need the remaining space.
            Err(error @ (Errno::NOSPC | Errno::DQUOT)) => {
                self.release(file, bytes.start);
                Err(error.into())
            }
            // The file system does not support it.
            Err(_) => {
                self.is_refused = true;
                self.release(file, bytes.start);
                Ok(())
            }
        }
    }

    /// Not available on this system.
    #[cfg(not(target_os = "linux"))]
    pub(super) fn set(&mut self, _file: &File, _bytes: Range<u64>) -> io::Result<()> {
        self.is_refused = true;
        Ok(())
    }

    /// Frees the space after the end of `file`, which has `bytes` bytes.
    pub(super) fn release(&mut self, file: &File, bytes: u64) {
        if std::mem::take(&mut self.end) > bytes {
            // Truncated to its own length: the system then frees the blocks after it. If this
            // fails, they stay.
            let _ = file.set_len(bytes);
        }
    }

    #[cfg(all(test, target_os = "linux"))]
    pub(super) fn is_refused(&self) -> bool {
        self.is_refused
    }
}
