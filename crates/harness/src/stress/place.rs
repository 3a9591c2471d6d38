//! The locations of a run's store and its expected state.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use trommel::vfs::{DiskVfs, Vfs};

use super::expected::EXPECTED_FILE;
use super::upkeep::remove_dir;
use crate::ScratchDir;
use crate::error::Error;

/// The file for the workers' standard error, in the directory of the expected state.
pub(super) const LOG_FILE: &str = "worker.log";
/// The directory of checkpoints, in the same directory.
pub(super) const CHECKPOINTS: &str = "checkpoints";

/// The directories of one run.
#[derive(Debug)]
pub struct Place {
    /// The directory of the store.
    pub(super) store: PathBuf,
    /// The directory of the expected state.
    pub(super) expected: PathBuf,
    /// Directories created here, outermost first.
    made: Vec<PathBuf>,
    scratch: Option<ScratchDir>,
}

impl Place {
    /// Uses `dir`, which is created if missing, and continues a run that was kept there. Without
    /// `dir`, uses a new directory in `temporary`. The expected state is in the same directory
    /// unless `expected` is given.
    ///
    /// # Errors
    /// If a directory cannot be created, or there is a store without an expected state.
    pub fn new(
        dir: Option<&Path>,
        expected: Option<&Path>,
        temporary: &Path,
    ) -> Result<Self, Error> {
        let scratch = dir.is_none().then(|| ScratchDir::new(temporary)).transpose()?;
        let dir = match (&scratch, dir) {
            (Some(scratch), _) => scratch.path(),
            (None, dir) => dir.unwrap_or(temporary),
        };
        let store = dir.join("store");
        let expected = expected.map_or_else(|| dir.join("expected"), Path::to_path_buf);
        if store.exists() && !expected.join(EXPECTED_FILE).exists() {
            return Err(Error::Usage(format!(
                "{} exists, but {} has no {EXPECTED_FILE} with its expected contents: name the \
                 directory of the expected state (--expected), or choose another --dir",
                store.display(),
                expected.display()
            )));
        }
        let mut made = Vec::new();
        for wanted in [dir, &expected] {
            let missing: Vec<&Path> = wanted
                .ancestors()
                .take_while(|dir| !dir.as_os_str().is_empty() && !dir.exists())
                .collect();
            fs::create_dir_all(wanted)
                .map_err(|error| Error::io(wanted, "creating directory", error))?;
            made.extend(missing.into_iter().rev().map(Path::to_path_buf));
        }
        Ok(Self { store, expected, made, scratch })
    }

    /// Removes everything that the run created.
    ///
    /// # Errors
    /// If something cannot be removed.
    pub fn remove(self) -> Result<(), Error> {
        remove_dir(&self.store)?;
        remove_dir(&self.expected.join(CHECKPOINTS))?;
        for name in [EXPECTED_FILE, LOG_FILE] {
            let file = self.expected.join(name);
            match DiskVfs.remove(&file) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(Error::io(file, "removing", error));
                }
                _ => {}
            }
        }
        for dir in self.made.iter().rev() {
            // Other files in it, created in the meantime, stay.
            let _ = DiskVfs.remove_dir(dir);
        }
        self.scratch.map_or(Ok(()), ScratchDir::remove)
    }

    /// Keeps everything that the run created; returns the final directories of the store and the
    /// expected state.
    ///
    /// # Errors
    /// If a temporary directory cannot be renamed to a permanent name.
    pub fn keep(self) -> Result<(PathBuf, PathBuf), Error> {
        let Some(scratch) = self.scratch else { return Ok((self.store, self.expected)) };
        let parent = scratch.path().parent().and_then(Path::parent).unwrap_or(Path::new("."));
        let name = |nth: u32| parent.join(format!("trommel-stress-{}-{nth}", std::process::id()));
        let kept = (0..).map(name).find(|dir| !dir.exists()).unwrap_or_default();
        DiskVfs
            .rename(scratch.path(), &kept)
            .map_err(|error| Error::io(&kept, "keeping", error))?;
        let at = |path: &Path| match path.strip_prefix(scratch.path()) {
            Ok(inner) => kept.join(inner),
            Err(_) => path.to_path_buf(),
        };
        Ok((at(&self.store), at(&self.expected)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_created_directories_are_removed() {
        let outer = ScratchDir::new(&std::env::temp_dir()).unwrap();
        let at = |name: &str| outer.path().join(name);
        let place = Place::new(Some(&at("a/b")), Some(&at("c")), outer.path()).unwrap();
        fs::create_dir(&place.store).unwrap();
        fs::write(place.expected.join(EXPECTED_FILE), "x").unwrap();
        fs::write(at("a/mine"), "x").unwrap();
        place.remove().unwrap();
        assert!(!at("a/b").exists() && !at("c").exists() && at("a/mine").exists());
        fs::create_dir_all(at("d/store")).unwrap();
        let refused = Place::new(Some(&at("d")), None, outer.path()).unwrap_err();
        assert!(matches!(refused, Error::Usage(_)), "{refused}");
    }

    #[test]
    fn a_temporary_place_can_be_kept() {
        let outer = ScratchDir::new(&std::env::temp_dir()).unwrap();
        let place = Place::new(None, None, outer.path()).unwrap();
        fs::create_dir(&place.store).unwrap();
        let (store, expected) = place.keep().unwrap();
        assert!(store.is_dir() && expected.is_dir() && store.starts_with(outer.path()));
        Place::new(None, None, outer.path()).unwrap().remove().unwrap();
        assert!(store.is_dir(), "it is no run's any more");
    }
}
