//! Removal of a whole store.
//!
//! 1. Reject a name that could not be removed at the end: a symbolic link, or one that ends in
//!    `..`.
//! 2. Take the lock, so that no process has the store open.
//! 3. Remove the files that only a store leaves, `CURRENT` last: until it is gone, an interrupted
//!    removal leaves a plainly corrupt store and can be repeated.
//! 4. If nothing else is in the directory, remove the lock and the directory too.
//!
//! If other files are left, the lock file stays: a process that waits for it must not acquire a
//! lock on a file that later openers no longer see.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use trommel_vfs::{DirEntry, Vfs};

use crate::dir_sync::parent;
use crate::error::{Error, Result};
use crate::files::{LOCK, UNFINISHED, list};
use crate::names::{CURRENT, CURRENT_TMP, Numbered, OPTIONS, OPTIONS_TMP};
use crate::options::Options;

/// The result of [`Db::destroy`](crate::Db::destroy).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct DestroyReport {
    /// Files removed.
    pub files: u64,
    /// Bytes of these files.
    pub bytes: u64,
    /// Names of foreign entries in the directory, which were left, and so was the directory. Empty
    /// if the directory was removed.
    pub left: Vec<OsString>,
}

/// Removes the store in `dir`.
pub(crate) fn destroy(dir: &Path, options: &Options) -> Result<DestroyReport> {
    let vfs = &*options.vfs;
    // Without a trailing dot or slash, with which a directory cannot be removed.
    let dir = &*dir.components().collect::<PathBuf>();
    let listing = match vfs.list(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(not_a_store(dir, "there is no such directory"));
        }
        listing => listing.map_err(|source| Error::io(dir, "listing", source))?,
    };
    if !listing.iter().any(is_of_store) {
        return Err(not_a_store(dir, "it holds no file of a store"));
    }
    may_be_removed(vfs, dir)?;
    let lock = dir.join(LOCK);
    let held = match vfs.lock(&lock) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            return Err(Error::Locked { dir: dir.to_path_buf() });
        }
        held => held.map_err(|source| Error::io(&lock, "locking", source))?,
    };
    let mut report = DestroyReport::default();
    // Listed again, as the store may have changed before the lock was taken.
    let listing = list(vfs, dir)?;
    let (mut ours, others): (Vec<&DirEntry>, Vec<&DirEntry>) = listing
        .iter()
        .filter(|entry| entry.name != LOCK)
        .partition(|entry| is_of_store(entry) || is_record(entry));
    ours.sort_by_key(|entry| entry.name == CURRENT);
    for entry in ours {
        let path = dir.join(&entry.name);
        vfs.remove(&path).map_err(|source| Error::io(&path, "removing", source))?;
        report.files += 1;
        report.bytes += entry.bytes;
    }
    report.left = others.iter().map(|entry| entry.name.clone()).collect();
    if report.left.is_empty() {
        vfs.remove(&lock).map_err(|source| Error::io(&lock, "removing", source))?;
        report.files += 1;
        vfs.remove_dir(dir).map_err(|source| Error::io(dir, "removing", source))?;
    }
    drop(held);
    Ok(report)
}

/// Whether `dir`, which can be listed, is not a symbolic link and ends in a name.
fn may_be_removed(vfs: &dyn Vfs, dir: &Path) -> Result<()> {
    let (Some(name), Some(parent)) = (dir.file_name(), parent(dir)) else {
        return Err(not_a_store(
            dir,
            "it is no name that can be removed: give the directory's own",
        ));
    };
    let beside = list(vfs, parent)?;
    match beside.iter().find(|entry| entry.name == name) {
        Some(entry) if !entry.is_dir => {
            Err(not_a_store(dir, "it is a symbolic link: give the directory that it points to"))
        }
        _ => Ok(()),
    }
}

/// Whether only a store leaves such an entry; a lock file alone does not make a store.
fn is_of_store(entry: &DirEntry) -> bool {
    let is_named = [CURRENT, CURRENT_TMP, UNFINISHED].iter().any(|name| entry.name == *name);
    entry.is_file && (is_named || Numbered::parse(&entry.name).is_some())
}

/// Whether it is an options file. Others may have a file of that name, so it alone does not make a
/// store.
fn is_record(entry: &DirEntry) -> bool {
    entry.is_file && [OPTIONS, OPTIONS_TMP].iter().any(|name| entry.name == *name)
}

fn not_a_store(dir: &Path, what: &str) -> Error {
    Error::NotAStore { dir: dir.to_path_buf(), what: what.to_owned() }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use trommel_sim::MemoryVfs;

    use super::*;
    use crate::Db;

    fn store() -> (Arc<MemoryVfs>, Options) {
        let vfs = Arc::new(MemoryVfs::new());
        let options = Options::default().vfs(Arc::<MemoryVfs>::clone(&vfs));
        let db = Db::open("s", options.clone()).unwrap();
        db.put("a", "1").unwrap();
        db.flush().unwrap();
        db.put("b", "2").unwrap();
        db.close().unwrap();
        (vfs, options)
    }

    fn write(vfs: &MemoryVfs, path: &str) {
        vfs.create(Path::new(path)).unwrap().append(b"mine").unwrap();
    }

    #[test]
    fn a_store_is_removed_with_its_directory() {
        let (vfs, options) = store();
        let report = Db::destroy("s", &options).unwrap();
        assert!(report.files >= 5 && report.bytes > 0 && report.left.is_empty(), "{report:?}");
        assert_eq!(vfs.list(Path::new("s")).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn foreign_files_are_left_and_reported() {
        let (vfs, options) = store();
        for name in ["s/notes.txt", "s/7.sst", "s/000099.log.bak"] {
            write(&vfs, name);
        }
        let report = Db::destroy("s", &options).unwrap();
        assert_eq!(report.left, ["000099.log.bak", "7.sst", "notes.txt"]);
        let names = |entries: Vec<DirEntry>| -> Vec<OsString> {
            entries.into_iter().map(|entry| entry.name).collect()
        };
        let left = names(vfs.list(Path::new("s")).unwrap());
        assert_eq!(left, ["000099.log.bak", "7.sst", "LOCK", "notes.txt"]);
        assert!(matches!(Db::destroy("s", &options), Err(Error::NotAStore { .. })));
    }

    #[test]
    fn an_open_store_and_a_foreign_directory_are_rejected() {
        let (vfs, options) = store();
        let db = Db::open_read_only("s", options.clone()).unwrap();
        assert!(matches!(Db::destroy("s", &options), Err(Error::Locked { .. })));
        assert_eq!(db.get("a").unwrap().as_deref(), Some(&b"1"[..]));
        drop(db);
        vfs.create_dir(Path::new("photos")).unwrap();
        write(&vfs, "photos/cat.jpg");
        write(&vfs, "photos/OPTIONS");
        for dir in ["photos", "absent"] {
            let refused = Db::destroy(dir, &options);
            assert!(matches!(refused, Err(Error::NotAStore { .. })), "{dir}: {refused:?}");
        }
        assert_eq!(vfs.list(Path::new("photos")).unwrap().len(), 2);
    }
}
