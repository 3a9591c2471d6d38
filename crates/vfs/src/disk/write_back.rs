//! Starts writeback to the device before anyone waits for it.

#![allow(unsafe_code)]

use std::fs::File;
use std::ops::Range;

/// Starts writing `bytes` of `file` to the device. The following sync reports the result, including
/// errors: this is a hint.
#[cfg(target_os = "linux")]
pub(super) fn start(file: &File, bytes: Range<u64>) {
    use std::os::fd::AsRawFd;
    let (Ok(from), Ok(len)) = (i64::try_from(bytes.start), i64::try_from(bytes.end - bytes.start))
    else {
        return;
    };
    // A length of zero would mean everything from there on.
    if len == 0 {
        return;
    }
    // SAFETY: the call takes no pointer, and the file is open while it is borrowed.
    unsafe { libc::sync_file_range(file.as_raw_fd(), from, len, libc::SYNC_FILE_RANGE_WRITE) };
}

/// Not available on this system.
#[cfg(not(target_os = "linux"))]
pub(super) fn start(_file: &File, _bytes: Range<u64>) {}
