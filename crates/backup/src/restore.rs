//! Restores a backup as a new store.
//!
//! 1. The directory must be new or empty, or hold the leftovers of an interrupted restore, which
//!    are removed: a folder `.restoring`, no `CURRENT`, and nothing else but files of a store. Its
//!    `LOCK` is held throughout.
//! 2. Every content is hashed while it is written to `.restoring`, and every file is synced.
//! 3. Every file is read back and compared with its hash, and the store in `.restoring` is opened
//!    read-only and verified.
//! 4. The files are moved to the directory; `CURRENT` is moved last, when all others are durable
//!    under their names. So the directory becomes a store only after all of it was verified.
//! 5. On any failure the files are removed. If the caller requested to keep damaged files
//!    ([`Repository::restore_damaged`]), damage is not a failure: the files are moved to the
//!    directory as they are, and the damage is reported.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use trommel::vfs::{Access, DirEntry, DiskVfs, FileLock, Vfs};
use trommel::{Db, Options, VerifyReport};

use crate::content::{FileContent, Stopped, Watched};
use crate::create::explain;
use crate::error::{Damage, Error, Result};
use crate::format::LOCK;
use crate::manifest::{Backup, BackupFile};
use crate::progress::{Progress, Step};
use crate::repository::Repository;
use crate::scratch::{failed, is_plain};

/// The file that makes a directory a store.
const LAST: &str = "CURRENT";
/// The folder within the directory in which the store is built.
pub(crate) const RESTORING: &str = ".restoring";

/// The result of [`Repository::restore`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Restored {
    /// The backup.
    pub backup: Backup,
    /// The report of the store's verification; `None` if there is damage.
    pub verified: Option<VerifyReport>,
    /// All damage: none, except from [`Repository::restore_damaged`].
    pub damages: Vec<Damage>,
}

impl Repository {
    /// Restores backup `id` into `dir`, which must be new or empty. The new store has its own ID.
    /// The leftovers of an interrupted restore are removed first.
    ///
    /// # Errors
    /// [`Error::Damaged`] names what is corrupt or missing; [`Error::NoSuchBackup`];
    /// [`Error::NotEmpty`]; [`Error::Store`] if the store does not verify; [`Error::Busy`] if
    /// another restore is running there. After any error, nothing is left in `dir`.
    pub fn restore(
        &self,
        id: u64,
        dir: impl AsRef<Path>,
        progress: &dyn Progress,
    ) -> Result<Restored> {
        self.restore_on(Arc::new(DiskVfs), id, dir, progress)
    }

    /// As [`Repository::restore`], on another file system.
    pub fn restore_on(
        &self,
        vfs: Arc<dyn Vfs>,
        id: u64,
        dir: impl AsRef<Path>,
        progress: &dyn Progress,
    ) -> Result<Restored> {
        RunningRestore { repository: self, vfs, progress, keeps_damage: false }
            .restore(id, dir.as_ref())
    }

    /// As [`Repository::restore_on`], for a backup without an intact copy: corrupt files are kept
    /// as they are, missing ones as empty files, and [`Restored::damages`] names them all. Every
    /// answer of such a store is correct; reads of the damaged part are errors.
    ///
    /// # Errors
    /// As [`Repository::restore`], except for damage to contents.
    pub fn restore_damaged(
        &self,
        vfs: Arc<dyn Vfs>,
        id: u64,
        dir: impl AsRef<Path>,
        progress: &dyn Progress,
    ) -> Result<Restored> {
        RunningRestore { repository: self, vfs, progress, keeps_damage: true }
            .restore(id, dir.as_ref())
    }

    /// Reports damage to a content that backup `id` needs, unless the backup was deleted meanwhile.
    fn needed(&self, id: u64, path: &str, damage: Damage) -> Error {
        if let Err(gone @ Error::NoSuchBackup { .. }) = self.backup(id) {
            return gone;
        }
        let Damage { file, what } = damage;
        Error::damaged(file, format!("{what} (backup {id} needs it as {path})"))
    }
}

/// A restore in progress.
struct RunningRestore<'a> {
    repository: &'a Repository,
    vfs: Arc<dyn Vfs>,
    progress: &'a dyn Progress,
    keeps_damage: bool,
}

impl RunningRestore<'_> {
    fn restore(&self, id: u64, dir: &Path) -> Result<Restored> {
        let backup = self.repository.backup(id)?;
        let unfinished = Unfinished::claim(Arc::clone(&self.vfs), dir)?;
        let mut damages = Vec::new();
        {
            let _step = Step::begin(self.progress, "restoring", backup.bytes());
            for file in &backup.files {
                let copied = self.copy(&unfinished, id, file);
                self.admit(copied, &unfinished, &mut damages)?;
            }
            unfinished.sync(&unfinished.folder)?;
        }
        let verified = {
            let _step = Step::begin(self.progress, "verifying", backup.bytes());
            for file in backup.files.iter().filter(|_| damages.is_empty()) {
                self.read_back(&unfinished, file)?;
            }
            let verified = unfinished.verify();
            self.admit(verified, &unfinished, &mut damages)?
        };
        unfinished.put_in_place(&backup.files)?;
        let verified = verified.filter(|_| damages.is_empty());
        Ok(Restored { backup, verified, damages })
    }

    /// Records damage if the caller keeps it.
    fn admit<T>(
        &self,
        outcome: Result<T>,
        unfinished: &Unfinished,
        damages: &mut Vec<Damage>,
    ) -> Result<Option<T>> {
        match outcome {
            Ok(found) => Ok(Some(found)),
            Err(Error::Damaged(damage)) if self.keeps_damage => {
                damages.push(damage);
                Ok(None)
            }
            Err(Error::Store(trommel::Error::Corruption(found))) if self.keeps_damage => {
                let what = format!("at byte {}: {}", found.offset, found.what);
                damages.push(Damage { file: unfinished.final_path(&found.file), what });
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn copy(&self, unfinished: &Unfinished, id: u64, file: &BackupFile) -> Result<()> {
        let path = unfinished.folder.join(&file.path);
        let created = unfinished.vfs.create(&path);
        let mut target = created.map_err(|source| failed(&path, "creating", source))?;
        let copied = self.repository.read_blob(file.blob(), self.progress, |bytes| {
            target.append(bytes).map_err(|source| failed(&path, "writing", source))
        });
        if matches!(copied, Ok(()) | Err(Error::Damaged(_))) {
            target.sync().map_err(|source| failed(&path, "making durable", source))?;
        }
        copied.map_err(|error| match error {
            Error::Damaged(damage) => self.repository.needed(id, &file.path, damage),
            error => error,
        })
    }

    /// Checks that the file system returns the bytes that were written.
    fn read_back(&self, unfinished: &Unfinished, file: &BackupFile) -> Result<()> {
        let path = unfinished.folder.join(&file.path);
        let opened = unfinished.vfs.open(&path, Access::Buffered);
        let mut content =
            FileContent::new(opened.map_err(|source| failed(&path, "opening", source))?);
        let read = Watched::new(&mut content, Some(file.blob()), self.progress).drain(|_| Ok(()));
        read.map(drop).map_err(|source| {
            explain(source, |source| match Stopped::find(&source) {
                Some(Stopped::Mismatch(what)) => Error::damaged(
                    path.display().to_string(),
                    format!(
                        "it was just written, and reads back differently ({what}): this disk or \
                         machine is faulty; restore elsewhere"
                    ),
                ),
                _ => failed(&path, "reading back", source),
            })
        })
    }
}

/// A directory being filled. It is emptied again if this is dropped before [`Self::put_in_place`].
struct Unfinished {
    vfs: Arc<dyn Vfs>,
    dir: PathBuf,
    /// The folder in which files are written.
    folder: PathBuf,
    is_new: bool,
    /// Whether the store is in place.
    is_done: bool,
    lock: Option<Box<dyn FileLock>>,
}

impl Unfinished {
    fn claim(vfs: Arc<dyn Vfs>, dir: &Path) -> Result<Self> {
        let is_new = match vfs.create_dir(dir) {
            Ok(()) => true,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => false,
            Err(source) => return Err(failed(dir, "creating", source)),
        };
        // Nothing is created among foreign files, not even a lock.
        check_vacant(&*vfs, dir)?;
        let path = dir.join(LOCK);
        let lock = vfs.lock(&path).map_err(|source| match source.kind() {
            io::ErrorKind::WouldBlock => Error::Busy {
                repository: dir.display().to_string(),
                what: "another backup is being restored there".into(),
            },
            _ => failed(&path, "locking", source),
        })?;
        check_vacant(&*vfs, dir)?;
        let (dir, folder) = (dir.to_path_buf(), dir.join(RESTORING));
        let claimed = Self { vfs, dir, folder, is_new, is_done: false, lock: Some(lock) };
        claimed.remove_all().map_err(|source| failed(&claimed.dir, "emptying", source))?;
        let created = claimed.vfs.create_dir(&claimed.folder);
        created.map_err(|source| failed(&claimed.folder, "creating", source))?;
        // This folder identifies an interrupted restore, so it is created first.
        claimed.sync(&claimed.dir)?;
        let above = claimed.dir.parent().filter(|above| !above.as_os_str().is_empty());
        claimed.sync(above.unwrap_or(Path::new(".")))?;
        Ok(claimed)
    }

    fn sync(&self, dir: &Path) -> Result<()> {
        self.vfs.sync_dir(dir).map_err(|source| failed(dir, "making durable", source))
    }

    /// The final path of a file in the folder.
    fn final_path(&self, path: &Path) -> String {
        let moved = path.strip_prefix(&self.folder).map(|name| self.dir.join(name));
        moved.as_deref().unwrap_or(path).display().to_string()
    }

    fn verify(&self) -> Result<VerifyReport> {
        let options = Options::default().vfs(Arc::clone(&self.vfs));
        Ok(Db::open_read_only(&self.folder, options)?.verify()?)
    }

    /// Moves the files to the directory, `CURRENT` last.
    fn put_in_place(mut self, files: &[BackupFile]) -> Result<()> {
        let (last, others): (Vec<_>, Vec<_>) = files.iter().partition(|file| file.path == LAST);
        for files in [others, last] {
            for file in files {
                let (from, to) = (self.folder.join(&file.path), self.dir.join(&file.path));
                let moved = self.vfs.rename(&from, &to);
                moved.map_err(|source| failed(&to, "moving into place", source))?;
            }
            self.sync(&self.dir)?;
        }
        self.is_done = true;
        // Empty now; harmless if it stays.
        let _ = self.vfs.remove_dir(&self.folder);
        Ok(())
    }

    /// Removes everything but the lock: `CURRENT` first and the folder last, so that an
    /// interruption leaves no store, and leftovers that are recognized.
    fn remove_all(&self) -> io::Result<()> {
        let current = self.dir.join(LAST);
        match self.vfs.remove(&current) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            removed => removed?,
        }
        let is_there = |entry: &DirEntry| entry.name == RESTORING;
        let has_folder = self.vfs.list(&self.dir)?.iter().any(is_there);
        for dir in [Some(&self.dir), has_folder.then_some(&self.folder)].into_iter().flatten() {
            for entry in self.vfs.list(dir)?.iter().filter(|entry| is_plain(entry)) {
                if *dir == self.folder || entry.name != LOCK {
                    self.vfs.remove(&dir.join(&entry.name))?;
                }
            }
        }
        if has_folder {
            self.vfs.remove_dir(&self.folder)?;
        }
        Ok(())
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if self.is_done {
            return;
        }
        // The original error is the one to report; the next restore removes the leftovers.
        if self.remove_all().is_ok() {
            let _ = self.vfs.remove(&self.dir.join(LOCK));
            if self.is_new {
                let _ = self.vfs.remove_dir(&self.dir);
            }
        }
        self.lock = None;
    }
}

/// Checks that `dir` is empty, except for the leftovers of an interrupted restore.
///
/// # Errors
/// [`Error::NotEmpty`] if it is not.
fn check_vacant(vfs: &dyn Vfs, dir: &Path) -> Result<()> {
    let list = |dir: &Path| vfs.list(dir).map_err(|source| failed(dir, "listing", source));
    let entries = list(dir)?;
    let is_vacant = if entries.iter().any(|entry| entry.is_dir && entry.name == RESTORING) {
        let is_ours = |entry: &DirEntry| is_plain(entry) && entry.name != LAST;
        entries.iter().all(|entry| is_ours(entry) || entry.is_dir && entry.name == RESTORING)
            && list(&dir.join(RESTORING))?.iter().all(is_plain)
    } else {
        entries.iter().all(|entry| entry.is_file && entry.bytes == 0 && entry.name == LOCK)
    };
    if is_vacant { Ok(()) } else { Err(Error::NotEmpty { dir: dir.to_path_buf() }) }
}
