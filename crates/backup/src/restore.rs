//! Making a store of a backup.
//!
//! 1. The directory must be new or empty. What is made in it is taken back if anything fails.
//! 2. Every content is hashed while it is written, and every file synced.
//! 3. `CURRENT` is written last, when all others are durable under their names: a directory in
//!    which a restore was cut short is no store, and is not mistaken for one.
//! 4. The store is opened read-only and verified as a store: what was backed up was in order, or
//!    it would not be here.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use trommel::vfs::{DiskVfs, Vfs};
use trommel::{Db, Options, VerifyReport};

use crate::error::{Damage, Error, Result};
use crate::manifest::{Backup, BackupFile};
use crate::progress::{Progress, Step};
use crate::repository::Repository;
use crate::scratch::failed;

/// The file that makes a directory a store.
const LAST: &str = "CURRENT";

/// What [`Repository::restore`] did.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Restored {
    /// The backup.
    pub backup: Backup,
    /// What verifying the store found in order.
    pub verified: VerifyReport,
}

impl Repository {
    /// Makes `dir`, which must be new or empty, a store that holds what backup `id` holds.
    ///
    /// # Errors
    /// [`Error::Damaged`] names what is damaged or missing; [`Error::NoSuchBackup`];
    /// [`Error::NotEmpty`]; [`Error::Store`] if the store does not verify. Whatever the error,
    /// nothing stays in `dir`.
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
        let backup = self.backup(id)?;
        let mut unfinished = Unfinished::claim(Arc::clone(&vfs), dir.as_ref())?;
        let (last, others): (Vec<_>, Vec<_>) =
            backup.files.iter().partition(|file| file.path == LAST);
        {
            let _step = Step::begin(progress, "restoring", backup.bytes());
            for files in [others, last] {
                for file in files {
                    self.restore_file(&mut unfinished, id, file, progress)?;
                }
                unfinished.sync()?;
            }
        }
        let verified = {
            let _step = Step::begin(progress, "verifying", 0);
            let options = Options::default().vfs(vfs);
            Db::open_read_only(dir, options)?.verify()?
        };
        unfinished.keep();
        Ok(Restored { backup, verified })
    }

    fn restore_file(
        &self,
        unfinished: &mut Unfinished,
        id: u64,
        file: &BackupFile,
        progress: &dyn Progress,
    ) -> Result<()> {
        let path = unfinished.add(&file.path);
        let created = unfinished.vfs.create(&path);
        let mut target = created.map_err(|source| failed(&path, "creating", source))?;
        let restored = self.read_blob(file.blob(), progress, |bytes| {
            target.append(bytes).map_err(|source| failed(&path, "writing", source))
        });
        match restored {
            Ok(()) => target.sync().map_err(|source| failed(&path, "making durable", source)),
            Err(Error::Damaged(damage)) => Err(self.needed(id, &file.path, damage)),
            Err(error) => Err(error),
        }
    }

    /// Damage to what backup `id` needs, unless the backup was deleted meanwhile.
    fn needed(&self, id: u64, path: &str, damage: Damage) -> Error {
        if let Err(gone @ Error::NoSuchBackup { .. }) = self.backup(id) {
            return gone;
        }
        let Damage { file, what } = damage;
        Error::damaged(file, format!("{what} (backup {id} needs it as {path})"))
    }
}

/// A directory being filled, which is emptied again if this is dropped before [`Self::keep`].
struct Unfinished {
    vfs: Arc<dyn Vfs>,
    dir: PathBuf,
    created: bool,
    files: Vec<PathBuf>,
}

impl Unfinished {
    fn claim(vfs: Arc<dyn Vfs>, dir: &Path) -> Result<Self> {
        let created = match vfs.create_dir(dir) {
            Ok(()) => true,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => false,
            Err(source) => return Err(failed(dir, "creating", source)),
        };
        match vfs.list(dir) {
            Ok(entries) if entries.is_empty() => {}
            Ok(_) => return Err(Error::NotEmpty { dir: dir.to_path_buf() }),
            Err(source) => return Err(failed(dir, "listing", source)),
        }
        Ok(Self { vfs, dir: dir.to_path_buf(), created, files: Vec::new() })
    }

    /// Notes a file that is about to be created.
    fn add(&mut self, name: &str) -> PathBuf {
        let path = self.dir.join(name);
        self.files.push(path.clone());
        path
    }

    /// Makes all names durable, that of the directory included.
    fn sync(&self) -> Result<()> {
        let above = self.dir.parent().filter(|above| !above.as_os_str().is_empty());
        for dir in [&self.dir, above.unwrap_or(Path::new("."))] {
            self.vfs.sync_dir(dir).map_err(|source| failed(dir, "making durable", source))?;
        }
        Ok(())
    }

    fn keep(mut self) {
        self.files.clear();
        self.created = false;
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        // In reverse, so that what is left over if this is cut short is no store. The error that
        // led here is the one worth telling.
        for path in self.files.iter().rev() {
            let _ = self.vfs.remove(path);
        }
        if self.created {
            let _ = self.vfs.remove_dir(&self.dir);
        }
    }
}
