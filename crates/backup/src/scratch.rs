//! The checkpoint of a store that a backup copies.
//!
//! It is a directory *inside* the store's directory: on the same file system wherever that is
//! mounted, so that its tables are hard links, and with a hidden name, so that the store ignores
//! it.
//!
//! 1. A backup has the store open, so only other threads of this process can create a checkpoint of
//!    it at the same time. They wait for each other until the checkpoint is locked.
//! 2. A directory of such a name that is not locked was left by a process that died. It is removed,
//!    file by file, and only if it holds nothing but files of a store.
//! 3. It is removed when the backup is done or has failed.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use trommel::inspect::{Sidecar, Table};
use trommel::vfs::{DirEntry, FileLock, Vfs};
use trommel::{Corruption, Db, Options};

use crate::error::{Error, Result};
use crate::format::{LOCK, is_store_file};

/// The prefix of the names of such directories. 16 hexadecimal digits follow.
pub(crate) const PREFIX: &str = ".backup-";

/// Held from the creation of a checkpoint's directory until it is locked.
static MAKING: Mutex<()> = Mutex::new(());

/// A checkpoint that is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct Checkpoint {
    vfs: Arc<dyn Vfs>,
    dir: PathBuf,
    table_ids: HashMap<String, u64>,
    lock: Option<Box<dyn FileLock>>,
}

impl Checkpoint {
    pub(crate) fn take(db: &Db) -> Result<Self> {
        let _one_at_a_time = MAKING.lock().unwrap_or_else(PoisonError::into_inner);
        let vfs = Arc::clone(db.vfs());
        // The store's path is resolved as of its open; a checkpoint's path is relative to the
        // current directory.
        let real = vfs.real_path(db.dir());
        let store = real.map_err(|source| failed(db.dir(), "looking for", source))?;
        remove_leftovers(&*vfs, &store);
        let dir = store.join(format!("{PREFIX}{:016x}", number()));
        let mut checkpoint = Self { vfs, dir, table_ids: HashMap::new(), lock: None };
        db.checkpoint(&checkpoint.dir)?;
        checkpoint.table_ids = {
            let options = Options::default().vfs(Arc::clone(db.vfs()));
            Db::open_read_only(&checkpoint.dir, options)?.table_ids().into_iter().collect()
        };
        let path = checkpoint.dir.join(LOCK);
        let lock = checkpoint.vfs.lock(&path);
        checkpoint.lock = Some(lock.map_err(|source| failed(&path, "locking", source))?);
        Ok(checkpoint)
    }

    /// Its files, sorted by name.
    pub(crate) fn files(&self) -> Result<Vec<DirEntry>> {
        let listed = self.vfs.list(&self.dir);
        let mut files = listed.map_err(|source| failed(&self.dir, "listing", source))?;
        files.retain(|file| file.is_file && file.name != LOCK);
        Ok(files)
    }

    /// The random ID that a table of this name got when it was written.
    pub(crate) fn table_id(&self, name: &str) -> Option<u64> {
        self.table_ids.get(name).copied()
    }

    /// Reads and verifies every byte of a table or a filter sidecar; other files were just written,
    /// and are not checked.
    ///
    /// # Errors
    /// Corruption, with the path of the table in the store, as the checkpoint is deleted when the
    /// error is read.
    pub(crate) fn check_file(&self, name: &str) -> Result<()> {
        let path = self.path(name);
        let check = || -> trommel::Result<()> {
            let Some(id) = self.table_id(name) else {
                let is_sidecar = path.extension().is_some_and(|extension| extension == "flt");
                return if is_sidecar { Sidecar::open(&*self.vfs, &path)?.check() } else { Ok(()) };
            };
            let table = Table::open(&*self.vfs, &path)?;
            if table.info()?.footer.table_id != id {
                let what = "it is not the table that the store's manifest names";
                return Err(Corruption::new(&path, 0, what).into());
            }
            table.check().map(drop)
        };
        check().map_err(|error| match error {
            trommel::Error::Corruption(Corruption { offset, what, .. }) => {
                let file = self.dir.parent().unwrap_or(&self.dir).join(name);
                let what = format!("{what}, so no backup was made; existing ones are unchanged");
                Error::Store(Corruption::new(&file, offset, what).into())
            }
            error => Error::Store(error),
        })
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    pub(crate) fn vfs(&self) -> &dyn Vfs {
        &*self.vfs
    }
}

impl Drop for Checkpoint {
    fn drop(&mut self) {
        // The next backup removes leftovers.
        let _ = remove(&*self.vfs, &self.dir);
        self.lock = None;
    }
}

/// An error on a file of the store.
pub(crate) fn failed(path: &Path, doing: &'static str, source: io::Error) -> Error {
    Error::target(path.display().to_string(), doing, source)
}

/// A random number, unique to a checkpoint.
pub(crate) fn number() -> u64 {
    use std::hash::{BuildHasher as _, RandomState};
    RandomState::new().hash_one(std::process::id())
}

fn is_ours(entry: &DirEntry) -> bool {
    let digits = entry.name.to_str().and_then(|name| name.strip_prefix(PREFIX));
    let is_number = |digits: &str| {
        digits.len() == 16
            && digits.bytes().all(|c| c.is_ascii_digit() || (b'a'..=b'f').contains(&c))
    };
    // A symbolic link of such a name is not followed: it may be an attack.
    entry.is_dir && digits.is_some_and(is_number)
}

/// Removes leftovers of dead backups of the store.
fn remove_leftovers(vfs: &dyn Vfs, store: &Path) {
    for entry in vfs.list(store).unwrap_or_default().iter().filter(|entry| is_ours(entry)) {
        let dir = store.join(&entry.name);
        // Not even a lock file is created among foreign files.
        if !is_removable(vfs, &dir) {
            continue;
        }
        if let Ok(_lock) = vfs.lock(&dir.join(LOCK)) {
            // Leftovers that cannot be removed only cost space.
            let _ = remove(vfs, &dir);
        }
    }
}

/// Whether a directory holds nothing but files of a store.
fn is_removable(vfs: &dyn Vfs, dir: &Path) -> bool {
    vfs.list(dir).is_ok_and(|entries| entries.iter().all(is_plain))
}

/// Whether an entry is a file of a store.
pub(crate) fn is_plain(entry: &DirEntry) -> bool {
    entry.is_file && entry.name.to_str().is_some_and(is_store_file)
}

/// Removes a directory of files of a store.
fn remove(vfs: &dyn Vfs, dir: &Path) -> io::Result<()> {
    if !is_removable(vfs, dir) {
        return Err(io::ErrorKind::DirectoryNotEmpty.into());
    }
    for entry in vfs.list(dir)? {
        vfs.remove(&dir.join(entry.name))?;
    }
    vfs.remove_dir(dir)
}
