//! Evicts a store's files from the page cache, so that reads come from the device.
//!
//! 1. The store is closed, so that all its data is in its files.
//! 2. Each file is synced: the kernel keeps dirty pages.
//! 3. Each file's pages are dropped (`posix_fadvise`, `POSIX_FADV_DONTNEED`). This is only advice:
//!    a page that another process maps stays. Read permission on the files is enough.
//!
//! Files in memory (tmpfs, ramfs) cannot be evicted.

use std::path::Path;
#[cfg(target_os = "linux")]
use std::{fs, path::PathBuf};

#[cfg(target_os = "linux")]
use rustix::fs::{Advice, Mode, OFlags};

use crate::error::Error;

/// `f_type` of file systems that live in the page cache; see statfs(2).
#[cfg(target_os = "linux")]
const TMPFS: u64 = 0x0102_1994;
#[cfg(target_os = "linux")]
const RAMFS: u64 = 0x8584_58f6;

/// The result of an eviction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Eviction {
    /// All pages that could be dropped were.
    Dropped,
    /// The files are in memory.
    InMemory,
}

/// Drops all files in `dir` from the page cache.
///
/// # Errors
/// If a file cannot be opened, synced or advised about.
#[cfg(target_os = "linux")]
pub(crate) fn drop_files(dir: &Path) -> Result<Eviction, Error> {
    let failed = |doing| {
        let dir = dir.to_path_buf();
        move |error: rustix::io::Errno| Error::io(dir, doing, error.into())
    };
    let kind = rustix::fs::statfs(dir).map_err(failed("examining the file system of"))?.f_type;
    if [TMPFS, RAMFS].contains(&u64::from(kind.cast_unsigned() as u32)) {
        return Ok(Eviction::InMemory);
    }
    for file in files_in(dir)? {
        drop_file(&file)?;
    }
    Ok(Eviction::Dropped)
}

/// Always fails: implemented for Linux only.
///
/// # Errors
/// Always.
#[cfg(not(target_os = "linux"))]
pub(crate) fn drop_files(_dir: &Path) -> Result<Eviction, Error> {
    Err(Error::Usage("--cold needs Linux: elsewhere the page cache cannot be controlled".into()))
}

#[cfg(target_os = "linux")]
fn files_in(dir: &Path) -> Result<Vec<PathBuf>, Error> {
    let failed = |error| Error::io(dir, "reading directory", error);
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if entry.file_type().map_err(failed)?.is_file() {
            files.push(entry.path());
        }
    }
    Ok(files)
}

#[cfg(target_os = "linux")]
fn drop_file(file: &Path) -> Result<(), Error> {
    let failed = |doing| move |error: rustix::io::Errno| Error::io(file, doing, error.into());
    let handle = rustix::fs::open(file, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
        .map_err(failed("opening"))?;
    rustix::fs::fdatasync(&handle).map_err(failed("syncing"))?;
    rustix::fs::fadvise(&handle, 0, None, Advice::DontNeed)
        .map_err(failed("dropping from the page cache"))
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use crate::scratch::ScratchDir;

    #[test]
    fn files_are_dropped_and_keep_their_content() {
        let scratch = ScratchDir::new(&std::env::temp_dir()).unwrap();
        let file = scratch.path().join("file");
        fs::write(&file, vec![7; 1 << 20]).unwrap();
        fs::create_dir(scratch.path().join("directory")).unwrap();
        let outcome = drop_files(scratch.path()).unwrap();
        assert!(matches!(outcome, Eviction::Dropped | Eviction::InMemory));
        assert_eq!(fs::read(&file).unwrap(), vec![7; 1 << 20]);
        let error = drop_files(&scratch.path().join("absent")).unwrap_err().to_string();
        assert!(error.contains("absent"), "{error}");
    }
}
