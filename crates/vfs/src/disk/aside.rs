//! Space for what a file will hold, set aside before it is written.
//!
//! A file that grows by small appends is given its blocks one by one, each with a look at how much
//! there is left. Blocks set aside in one piece (`fallocate`, without a change of the file's
//! length) spare that, and lie together.

use std::fs::File;
use std::io;
use std::ops::Range;

/// What was set aside for one file.
#[derive(Debug, Default)]
pub(super) struct Aside {
    /// Up to where there is space.
    end: u64,
    /// Whether the system said that it cannot, or will not.
    is_refused: bool,
}

impl Aside {
    /// Sets space aside for these bytes of `file`, the first behind its end; nothing where the
    /// system refuses. `StorageFull` if there is not so much.
    #[cfg(target_os = "linux")]
    pub(super) fn set(&mut self, file: &File, bytes: Range<u64>) -> io::Result<()> {
        use rustix::fs::{FallocateFlags, fallocate};
        use rustix::io::Errno;
        if self.is_refused || bytes.is_empty() {
            return Ok(());
        }
        let len = bytes.end - bytes.start;
        // Also where it fails: a part of it may be there then.
        self.end = self.end.max(bytes.end);
        match fallocate(file, FallocateFlags::KEEP_SIZE, bytes.start, len) {
            Ok(()) | Err(Errno::INTR) => Ok(()),
            // Others may need what is left.
            Err(error @ (Errno::NOSPC | Errno::DQUOT)) => {
                self.give_back(file, bytes.start);
                Err(error.into())
            }
            // A file system without such a thing.
            Err(_) => {
                self.is_refused = true;
                self.give_back(file, bytes.start);
                Ok(())
            }
        }
    }

    /// There is no such call.
    #[cfg(not(target_os = "linux"))]
    pub(super) fn set(&mut self, _file: &File, _bytes: Range<u64>) -> io::Result<()> {
        self.is_refused = true;
        Ok(())
    }

    /// Gives back what lies behind the end of `file`, which has so many bytes.
    pub(super) fn give_back(&mut self, file: &File, bytes: u64) {
        if std::mem::take(&mut self.end) > bytes {
            // To its own length: the system then frees the blocks behind it. What fails leaves them
            // there.
            let _ = file.set_len(bytes);
        }
    }

    #[cfg(all(test, target_os = "linux"))]
    pub(super) fn is_refused(&self) -> bool {
        self.is_refused
    }
}
