//! A directory for one run, gone when the run is over.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::error::Error;

/// How long to go on removing a directory in which something still creates files.
const REMOVE_FOR: Duration = Duration::from_secs(5);

/// A new directory that is removed, with all that is in it, when this is dropped.
#[derive(Debug)]
pub struct ScratchDir {
    path: PathBuf,
}

impl ScratchDir {
    /// A new directory in `parent`, which must exist.
    ///
    /// # Errors
    /// If it cannot be created.
    pub fn new(parent: &Path) -> Result<Self, Error> {
        let process = std::process::id();
        for nth in 0_u64.. {
            let path = parent.join(format!("trommel-{process}-{nth}"));
            match fs::create_dir(&path) {
                Ok(()) => return Ok(Self { path }),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(Error::io(path, "creating directory", error)),
            }
        }
        unreachable!("some name below 2^64 is free")
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes that may still be written to the file system that holds it, if that can be told.
    pub fn free_bytes(&self) -> Option<u64> {
        let found = rustix::fs::statvfs(&self.path).ok()?;
        found.f_bavail.checked_mul(found.f_frsize)
    }

    /// Removes it now, and reports if that fails.
    ///
    /// A store that was left behind by a stop may still create files: removing is repeated for a
    /// few seconds.
    ///
    /// # Errors
    /// If it is still there after that.
    pub fn remove(self) -> Result<(), Error> {
        self.remove_in_place()
    }

    fn remove_in_place(&self) -> Result<(), Error> {
        let start = Instant::now();
        loop {
            match fs::remove_dir_all(&self.path) {
                Ok(()) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::NotFound && !self.path.exists() => {
                    return Ok(());
                }
                Err(_) if start.elapsed() < REMOVE_FOR => sleep(Duration::from_millis(10)),
                Err(error) => return Err(Error::io(&self.path, "removing", error)),
            }
        }
    }
}

impl Drop for ScratchDir {
    fn drop(&mut self) {
        // Whoever wants to know calls `remove`.
        let _ = self.remove_in_place();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_with_all_that_is_in_it() {
        let outer = ScratchDir::new(&std::env::temp_dir()).unwrap();
        let inner = ScratchDir::new(outer.path()).unwrap();
        let second = ScratchDir::new(outer.path()).unwrap();
        assert_ne!(inner.path(), second.path());
        assert!(inner.free_bytes().is_some());
        fs::write(inner.path().join("file"), b"x").unwrap();
        let (outer_path, inner_path) = (outer.path().to_path_buf(), inner.path().to_path_buf());
        inner.remove().unwrap();
        assert!(!inner_path.exists());
        drop(outer);
        assert!(!outer_path.exists());
    }

    #[test]
    fn a_parent_that_does_not_exist_is_named() {
        let error = ScratchDir::new(Path::new("/no/such/parent")).unwrap_err().to_string();
        assert!(error.starts_with("creating directory /no/such/parent/trommel-"), "{error}");
    }
}
