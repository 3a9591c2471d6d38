//! A directory for one run, removed when the run is over.
//!
//! A killed run leaves its directory. So each run that creates one removes those of dead runs next
//! to it:
//! 1. Each directory contains a marker file, which its process keeps locked. The lock ends with the
//!    process, however it dies, and unlike a process id it is never reused.
//! 2. The marker's text is written after it is locked: a marker without the text may still be in
//!    creation.
//! 3. A directory is removed if its name has our form, it is a directory and not a symbolic link,
//!    it belongs to this user, and its marker is a file with the text that no process has locked.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::error::Error;

/// How long to retry removing a directory in which files are still being created.
const REMOVE_FOR: Duration = Duration::from_secs(5);

/// The file that identifies the directory, and whose lock shows that the run is alive.
const MARKER: &str = "trommel-scratch";
const MARKER_TEXT: &[u8] = b"the scratch directory of a run of trommel\n";

/// The subdirectory for the run's files, next to the marker.
const DATA: &str = "data";

/// A new directory that is removed with its contents when this is dropped.
#[derive(Debug)]
pub struct ScratchDir {
    outer: PathBuf,
    path: PathBuf,
    /// The locked marker; none if files cannot be locked.
    _marker: Option<File>,
}

impl ScratchDir {
    /// Creates a directory in `parent`, which must exist, and removes those of killed runs.
    ///
    /// # Errors
    /// If the directory cannot be created.
    pub fn new(parent: &Path) -> Result<Self, Error> {
        remove_abandoned(parent);
        let process = std::process::id();
        for nth in 0_u64.. {
            let outer = parent.join(format!("trommel-{process}-{nth}"));
            match fs::create_dir(&outer) {
                Ok(()) => return Self::mark(outer),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(Error::io(outer, "creating directory", error)),
            }
        }
        unreachable!("some name below 2^64 is free")
    }

    /// Creates the marker and the subdirectory for the run's files.
    fn mark(outer: PathBuf) -> Result<Self, Error> {
        // Without a marker the directory of a killed run stays forever, which is no reason not to
        // run.
        let marked = File::create_new(outer.join(MARKER)).and_then(|mut marker| {
            marker.try_lock()?;
            marker.write_all(MARKER_TEXT)?;
            Ok(marker)
        });
        let scratch = Self { path: outer.join(DATA), outer, _marker: marked.ok() };
        let made = fs::create_dir(&scratch.path);
        made.map_err(|error| Error::io(&scratch.path, "creating directory", error))?;
        Ok(scratch)
    }

    /// The directory's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Free bytes of its file system, if known.
    pub fn free_bytes(&self) -> Option<u64> {
        let found = rustix::fs::statvfs(&self.path).ok()?;
        found.f_bavail.checked_mul(found.f_frsize)
    }

    /// Removes the directory now, and reports a failure.
    ///
    /// A store abandoned by a stop may still create files, so the removal is retried for a few
    /// seconds.
    ///
    /// # Errors
    /// If the directory still exists after that.
    pub fn remove(self) -> Result<(), Error> {
        self.remove_in_place()
    }

    fn remove_in_place(&self) -> Result<(), Error> {
        let start = Instant::now();
        loop {
            match fs::remove_dir_all(&self.outer) {
                Ok(()) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::NotFound && !self.outer.exists() => {
                    return Ok(());
                }
                Err(_) if start.elapsed() < REMOVE_FOR => sleep(Duration::from_millis(10)),
                Err(error) => return Err(Error::io(&self.outer, "removing", error)),
            }
        }
    }
}

impl Drop for ScratchDir {
    fn drop(&mut self) {
        // Callers that need the result call `remove`.
        let _ = self.remove_in_place();
    }
}

/// Removes the directories that killed runs left in `parent`. Those that cannot be removed stay.
fn remove_abandoned(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        let is_named = entry.file_name().to_str().is_some_and(is_name);
        if is_named && is_dir_of_ours(&entry.path()) {
            let path = entry.path();
            if let Some(_held) = abandoned(&path.join(MARKER)) {
                // This does not follow symbolic links.
                let _ = fs::remove_dir_all(&path);
            }
        }
    }
}

fn is_name(name: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let numbers = name.strip_prefix("trommel-").and_then(|numbers| numbers.split_once('-'));
    numbers.is_some_and(|(process, nth)| is_number(process) && is_number(nth))
}

fn is_dir_of_ours(path: &Path) -> bool {
    let found = fs::symlink_metadata(path);
    found.is_ok_and(|found| found.is_dir() && found.uid() == rustix::process::geteuid().as_raw())
}

/// The marker at `path`, locked, if the process that made it is dead.
#[expect(clippy::disallowed_methods, reason = "a lock needs the file itself; it is no store's")]
fn abandoned(path: &Path) -> Option<File> {
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    let flags = i32::try_from(flags.bits()).ok()?;
    let marker = OpenOptions::new().read(true).custom_flags(flags).open(path).ok()?;
    if !marker.metadata().ok()?.is_file() {
        return None;
    }
    marker.try_lock().ok()?;
    let mut text = Vec::new();
    (&marker).take(MARKER_TEXT.len() as u64 + 1).read_to_end(&mut text).ok()?;
    (text == MARKER_TEXT).then_some(marker)
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

    /// The directory of a killed run used to stay forever.
    #[test]
    fn only_directories_of_dead_runs_are_removed() {
        let parent = ScratchDir::new(&std::env::temp_dir()).unwrap();
        let at = |name: &str| parent.path().join(name);
        let left = |name: &str, text: &[u8]| {
            fs::create_dir_all(at(name).join(DATA)).unwrap();
            fs::write(at(name).join(MARKER), text).unwrap();
        };
        let alive = ScratchDir::new(parent.path()).unwrap();
        left("trommel-1-0", MARKER_TEXT);
        left("trommel-1-1", b"");
        left("trommel-1-2", b"another text");
        left("trommel-1", MARKER_TEXT);
        left("trommel-1-x", MARKER_TEXT);
        left("photos", MARKER_TEXT);
        fs::create_dir(at("trommel-2-0")).unwrap();
        std::os::unix::fs::symlink("photos", at("trommel-2-1")).unwrap();
        fs::create_dir(at("trommel-2-2")).unwrap();
        std::os::unix::fs::symlink("../photos/trommel-scratch", at("trommel-2-2").join(MARKER))
            .unwrap();
        std::os::unix::fs::symlink("../../photos", at("trommel-1-0").join("data/link")).unwrap();
        let listed = || {
            let names = fs::read_dir(parent.path()).unwrap();
            let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
            names.collect::<std::collections::BTreeSet<_>>()
        };
        let mut before = listed();
        ScratchDir::new(parent.path()).unwrap().remove().unwrap();
        assert!(before.remove("trommel-1-0"));
        assert_eq!(listed(), before);
        assert!(alive.path().is_dir() && at("photos").join(DATA).is_dir());
        assert!(at("photos").join(MARKER).is_file());
    }
}
