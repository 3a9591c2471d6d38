//! A repository in a directory.
//!
//! 1. One writer at a time: it holds the lock on the file `LOCK`, which the system releases when
//!    the writer dies. Files in `tmp` with our names at the time the lock is acquired therefore
//!    have no owner, and are removed.
//! 2. An object is written to a file in `tmp`, synced, and renamed: under its name it is complete,
//!    or absent.
//! 3. A content is durable once its folder is synced. [`Directory::settle`] syncs all folders, and
//!    so also the contents of a writer that was killed before it could. A small object is durable
//!    when [`Directory::put_new`] returns.
//! 4. After a failed sync of a folder nothing more is written: the system may have dropped the
//!    dirty data, and a second sync would report success.
//!
//! All I/O goes through [`trommel::vfs`], so that tests can cut the power.

use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use trommel::vfs::{Access, DiskVfs, FileLock, Vfs};

use crate::content::{CHUNK_BYTES, FileContent};
use crate::format::{BACKUPS, BLOBS, LOCK, UNFINISHED, is_unfinished_name, unfinished_name};
use crate::target::{Hold, Purpose, Target};

const FOLDERS: [&str; 3] = [BLOBS, BACKUPS, UNFINISHED];

/// A directory that holds, or will hold, a repository.
#[derive(Debug)]
pub struct Directory {
    vfs: Arc<dyn Vfs>,
    root: PathBuf,
    /// Set when a folder could not be synced.
    is_unsafe: AtomicBool,
    /// Held from the check that a name is free until it is taken.
    naming: Mutex<()>,
}

impl Directory {
    /// The directory `root` on disk. Nothing is created yet.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self::on(Arc::new(DiskVfs), root)
    }

    /// The directory `root` of another file system.
    pub fn on(vfs: Arc<dyn Vfs>, root: impl Into<PathBuf>) -> Self {
        let (is_unsafe, naming) = (AtomicBool::new(false), Mutex::default());
        Self { vfs, root: root.into(), is_unsafe, naming }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    fn check_safe(&self) -> io::Result<()> {
        if self.is_unsafe.load(Ordering::Relaxed) {
            return Err(io::Error::other(
                "an earlier write could not be made durable, so nothing more is written: fix the \
                 disk, and open the repository again",
            ));
        }
        Ok(())
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.check_safe()?;
        self.vfs.sync_dir(dir).inspect_err(|error| {
            // Without permission nothing was attempted, so nothing was lost.
            let is_tried = error.kind() != ErrorKind::PermissionDenied;
            self.is_unsafe.fetch_or(is_tried, Ordering::Relaxed);
        })
    }

    /// Syncs the parent directory, if it exists and this process may sync it. Otherwise, syncing it
    /// was up to the creator of the directory.
    fn sync_above(&self) -> io::Result<()> {
        let above = match self.root.parent() {
            None => return Ok(()),
            Some(above) if above.as_os_str().is_empty() => Path::new("."),
            Some(above) => above,
        };
        match self.sync_dir(above) {
            Err(error) if error.kind() == ErrorKind::PermissionDenied => Ok(()),
            outcome => outcome,
        }
    }

    /// Whether the directory, which exists, contains at most the beginnings of a repository.
    fn is_vacant(&self) -> io::Result<bool> {
        for entry in self.vfs.list(&self.root)? {
            let name = entry.name.to_str().unwrap_or_default();
            let is_ours = if entry.is_file {
                name == LOCK
            } else {
                FOLDERS.contains(&name)
                    && (name == UNFINISHED || self.vfs.list(&self.path(name))?.is_empty())
            };
            if !is_ours && name != "lost+found" {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        match self.vfs.create_dir(dir) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
            outcome => outcome,
        }
    }

    /// Removes leftovers of dead writers in `tmp`: only our own names, and never through a symbolic
    /// link, so that a user with write access here cannot have files deleted elsewhere.
    fn remove_unfinished(&self) -> io::Result<()> {
        let entries = self.vfs.list(&self.root)?;
        let folder = self.path(UNFINISHED);
        match entries.into_iter().find(|entry| entry.name == UNFINISHED) {
            None => return self.create_dir(&folder),
            Some(entry) if entry.is_dir => {}
            Some(_) => {
                let what = format!(
                    "{} is not a directory (a symbolic link?), so nothing is written or removed \
                     there: remove it, or replace it with a directory",
                    folder.display()
                );
                return Err(io::Error::new(ErrorKind::NotADirectory, what));
            }
        }
        for entry in self.vfs.list(&folder)? {
            if entry.is_file && entry.name.to_str().is_some_and(is_unfinished_name) {
                self.vfs.remove(&folder.join(entry.name))?;
            }
        }
        Ok(())
    }

    /// Writes a file in `tmp`, durable except for its name; removes it on failure.
    fn write(&self, name: &str, content: &mut dyn Read) -> io::Result<PathBuf> {
        self.check_safe()?;
        let path = self.path(UNFINISHED).join(unfinished_name(name));
        let mut file = self.vfs.create(&path)?;
        let mut buffer = vec![0; CHUNK_BYTES];
        let mut copy = || loop {
            match content.read(&mut buffer)? {
                0 => return file.sync(),
                bytes => file.append(&buffer[..bytes])?,
            }
        };
        if let Err(error) = copy() {
            // If this fails, the next writer removes it.
            let _ = self.vfs.remove(&path);
            return Err(error);
        }
        Ok(path)
    }
}

#[derive(Debug)]
struct Locked {
    _lock: Box<dyn FileLock>,
}

impl Hold for Locked {
    fn confirm(&self) -> io::Result<()> {
        Ok(())
    }
}

impl Target for Directory {
    fn place(&self) -> String {
        self.root.display().to_string()
    }

    fn directory(&self) -> Option<&Path> {
        Some(&self.root)
    }

    fn found(&self) -> io::Result<bool> {
        self.create_dir(&self.root)?;
        if !self.is_vacant()? {
            return Ok(false);
        }
        for folder in FOLDERS {
            self.create_dir(&self.path(folder))?;
        }
        Ok(true)
    }

    fn lock(&self, _: Purpose) -> io::Result<Box<dyn Hold>> {
        self.check_safe()?;
        let lock = self.vfs.lock(&self.path(LOCK)).map_err(|error| match error.kind() {
            ErrorKind::WouldBlock => io::Error::new(
                ErrorKind::WouldBlock,
                "another backup is being made or deleted there",
            ),
            _ => error,
        })?;
        self.remove_unfinished()?;
        Ok(Box::new(Locked { _lock: lock }))
    }

    fn put(&self, name: &str, _: u64, content: &mut dyn Read) -> io::Result<()> {
        let written = self.write(name, content)?;
        self.vfs.rename(&written, &self.path(name))
    }

    fn put_new(&self, name: &str, mut content: &[u8]) -> io::Result<bool> {
        let one_at_a_time = self.naming.lock().unwrap_or_else(PoisonError::into_inner);
        if self.exists(name)? {
            return Ok(false);
        }
        let (written, path) = (self.write(name, &mut content)?, self.path(name));
        self.vfs.rename(&written, &path)?;
        self.sync_dir(path.parent().unwrap_or(&self.root))?;
        drop(one_at_a_time);
        Ok(true)
    }

    fn settle(&self) -> io::Result<()> {
        for folder in [BLOBS, BACKUPS] {
            self.sync_dir(&self.path(folder))?;
        }
        self.sync_dir(&self.root)?;
        self.sync_above()
    }

    fn get(&self, name: &str) -> io::Result<(Box<dyn Read + '_>, u64)> {
        let file = self.vfs.open(&self.path(name), Access::Buffered)?;
        let bytes = file.bytes();
        Ok((Box::new(FileContent::new(file)), bytes))
    }

    fn list(&self, folder: &str) -> io::Result<Vec<(String, u64)>> {
        let entries = match self.vfs.list(&self.path(folder)) {
            Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
            entries => entries?,
        };
        let files = entries.into_iter().filter(|entry| entry.is_file);
        Ok(files.filter_map(|entry| Some((entry.name.into_string().ok()?, entry.bytes))).collect())
    }

    fn delete(&self, name: &str) -> io::Result<()> {
        self.check_safe()?;
        match self.vfs.remove(&self.path(name)) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            outcome => outcome,
        }
    }
}
