//! Errors that name their file.
//!
//! The system reports "No such file or directory" without the path. Every error of this crate is an
//! [`io::Error`] of the original kind around a [`PathError`], which prints the action and the path,
//! and whose source is the original error.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// An I/O error with its action and path.
///
/// Found inside the [`io::Error`]s of this crate by [`io::Error::get_ref`] and a downcast.
#[derive(Debug)]
pub struct PathError {
    action: &'static str,
    path: PathBuf,
    to: Option<PathBuf>,
    source: io::Error,
}

impl PathError {
    /// The path of the failed action; for a rename or a link, the old name.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The original error's number, if it is a system error.
    pub fn os_error(&self) -> Option<i32> {
        self.source.raw_os_error()
    }
}

impl fmt::Display for PathError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {} {}", self.action, self.path.display())?;
        if let Some(to) = &self.to {
            write!(f, " to {}", to.display())?;
        }
        write!(f, ": {}", self.source)
    }
}

impl Error for PathError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.source)
    }
}

/// Whether the process, or the system, has no file handle left.
pub fn is_out_of_handles(error: &io::Error) -> bool {
    #[cfg(unix)]
    let numbers =
        [rustix::io::Errno::MFILE, rustix::io::Errno::NFILE].map(rustix::io::Errno::raw_os_error);
    // ERROR_TOO_MANY_OPEN_FILES.
    #[cfg(not(unix))]
    let numbers = [4];
    os_error(error).is_some_and(|number| numbers.contains(&number))
}

/// The path that an error of this crate names.
pub fn path_of(error: &io::Error) -> Option<&Path> {
    error.get_ref()?.downcast_ref::<PathError>().map(PathError::path)
}

/// The operating system's error number of `error`, whether or not it is wrapped in a [`PathError`].
pub fn os_error(error: &io::Error) -> Option<i32> {
    let wrapped = || error.get_ref()?.downcast_ref::<PathError>()?.os_error();
    error.raw_os_error().or_else(wrapped)
}

/// An error of an implementation of [`Vfs`](crate::Vfs): "cannot `action` `path`: `source`".
pub fn wrap(action: &'static str, path: &Path, source: impl Into<io::Error>) -> io::Error {
    wrap_pair(action, path, None, source.into())
}

/// The same with two paths: "cannot `action` `from` to `to`: `source`".
pub fn wrap_to(
    action: &'static str,
    from: &Path,
    to: &Path,
    source: impl Into<io::Error>,
) -> io::Error {
    wrap_pair(action, from, Some(to.to_path_buf()), source.into())
}

fn wrap_pair(
    action: &'static str,
    path: &Path,
    to: Option<PathBuf>,
    source: io::Error,
) -> io::Error {
    io::Error::new(source.kind(), PathError { action, path: path.to_path_buf(), to, source })
}

/// An error that this crate detected itself.
pub(crate) fn refuse(
    kind: io::ErrorKind,
    action: &'static str,
    path: &Path,
    why: &'static str,
) -> io::Error {
    wrap(action, path, io::Error::new(kind, why))
}

/// The bounds check of every reader: `offset..offset + length` must be inside the file.
pub(crate) fn check_range(path: &Path, bytes: u64, offset: u64, length: usize) -> io::Result<()> {
    match offset.checked_add(length as u64) {
        Some(end) if end <= bytes => Ok(()),
        _ => Err(end_of_file(path)),
    }
}

/// The message for a read that ended although its file does not: the system, or the device, failed.
/// The file may be intact.
pub(crate) const SHORT_READ: &str = "the system returned fewer bytes than the file has";

/// The error for a read up to `end` that ended early, in a file that is `bytes` long now: if it is
/// shorter than `end`, it is corrupt; otherwise it is not.
pub(crate) fn ended_early(path: &Path, bytes: io::Result<u64>, end: u64) -> io::Error {
    match bytes {
        Ok(bytes) if bytes < end => end_of_file(path),
        Ok(_) => refuse(io::ErrorKind::Other, "read", path, SHORT_READ),
        Err(error) => wrap("read", path, error),
    }
}

/// The file ends before the requested bytes.
pub(crate) fn end_of_file(path: &Path) -> io::Error {
    let why = "the file ends before the requested bytes";
    refuse(io::ErrorKind::UnexpectedEof, "read", path, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrapped_error_names_the_path_and_keeps_kind_and_number() {
        let error = wrap("create", Path::new("a/b.log"), io::Error::from_raw_os_error(28));
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert_eq!(error.raw_os_error(), None);
        assert_eq!(os_error(&error), Some(28));
        assert_eq!(os_error(&io::Error::from_raw_os_error(5)), Some(5));
        assert_eq!(os_error(&io::Error::other("no number")), None);
        let text = error.to_string();
        assert!(text.starts_with("cannot create a/b.log: No space left"), "{text}");
        let source = error.source().expect("the original error");
        assert!(source.downcast_ref::<io::Error>().is_some_and(|e| e.raw_os_error() == Some(28)));
    }

    #[test]
    fn a_range_past_the_end_is_refused_without_overflow() {
        let path = Path::new("x");
        assert!(check_range(path, 10, 0, 10).is_ok());
        assert!(check_range(path, 10, 10, 0).is_ok());
        for (offset, length) in [(0, 11), (10, 1), (11, 0), (u64::MAX, 1), (u64::MAX, usize::MAX)] {
            let error = check_range(path, 10, offset, length).expect_err("out of range");
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        }
    }
}
