//! Checks, creates and locks the directory of a store.

use std::io;
use std::path::Path;

use trommel_filter::HashSeed;
use trommel_vfs::{DirEntry, FileLock, Vfs};

use crate::damage::NO_FILE;
use crate::dir_sync::parent;
use crate::env;
use crate::error::{Error, Result};
use crate::files::{LOCK, UNFINISHED, unfinished};
use crate::manifest::reader::Recovered;
use crate::manifest::state::ManifestState;
use crate::names::{CURRENT, CURRENT_TMP, Numbered, OPTIONS, OPTIONS_TMP};
use crate::options::Options;
use crate::options_file;
use crate::version::Version;

/// An error if `CURRENT.tmp` cannot be written, which would otherwise be detected only after
/// everything else.
pub(super) fn check_current_tmp(dir: &Path, listing: &[DirEntry]) -> Result<()> {
    match listing.iter().find(|entry| entry.name == CURRENT_TMP) {
        // Anything except a directory is replaced.
        Some(entry) if entry.is_dir => {
            let what = "it is a directory, and nothing of the store is in it: remove it";
            let source = io::Error::new(io::ErrorKind::IsADirectory, what);
            Err(Error::io(&dir.join(CURRENT_TMP), "replacing", source))
        }
        _ => Ok(()),
    }
}

fn not_a_store(dir: &Path, what: &str) -> Error {
    Error::NotAStore { dir: dir.to_path_buf(), what: what.to_owned() }
}

/// Creates `dir` if needed, and takes the lock.
pub(super) fn prepare_dir(
    vfs: &dyn Vfs,
    dir: &Path,
    options: &Options,
    unfinished: bool,
) -> Result<Option<Box<dyn FileLock>>> {
    match vfs.list(dir) {
        Ok(listing) if !unfinished && listing.iter().any(|e| e.name == UNFINISHED) => {
            if let Some(mark) = unfinished::find(vfs, dir, &listing)? {
                return Err(not_a_store(dir, &mark.to_string()));
            }
        }
        // A foreign directory must not even get a lock file.
        Ok(listing) if !listing.iter().any(is_ours) => {
            may_become_store(vfs, dir, &listing, options)?;
        }
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
            return Err(not_a_store(dir, "it, or something above it, is a file, not a directory"));
        }
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(Error::io(dir, "listing", error));
        }
        Err(_) if options.opening.read_only || !options.opening.create_if_missing => {
            return Err(not_a_store(dir, "there is no such directory, and none is to be created"));
        }
        Err(_) => create_dirs(vfs, dir)?,
    }
    let path = dir.join(LOCK);
    let held = if options.opening.read_only { vfs.lock_shared(&path) } else { vfs.lock(&path) };
    match held {
        Ok(held) => Ok(Some(held)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            Err(Error::Locked { dir: dir.to_path_buf() })
        }
        Err(error) if options.opening.read_only && error.kind() == io::ErrorKind::NotFound => {
            Ok(None)
        }
        Err(error) => {
            let is_no_file = |entry: &DirEntry| entry.name == LOCK && !entry.is_file;
            let stands_there = vfs.list(dir).is_ok_and(|entries| entries.iter().any(is_no_file));
            let error = match stands_there {
                true => io::Error::new(error.kind(), format!("{NO_FILE}: remove it")),
                false => error,
            };
            Err(Error::io(&path, "locking", error))
        }
    }
}

/// Makes the directory of a new store durable, even if another process created it: otherwise a
/// process that is killed right after creating it leaves a store that a power cut may remove with
/// all of its contents.
///
/// If this process may not read the parent directory, the creator of the store's directory must
/// have synced the parent. Directories further up are synced if possible.
pub(super) fn sync_ancestors(vfs: &dyn Vfs, dir: &Path) -> Result<()> {
    let Some(above) = parent(dir).filter(|above| *above != dir) else { return Ok(()) };
    match vfs.sync_dir(above) {
        Err(error) if error.kind() != io::ErrorKind::PermissionDenied => {
            return Err(Error::io(above, "making durable", error));
        }
        _ => {}
    }
    for further in above.ancestors().skip(1) {
        let further = if further.as_os_str().is_empty() { Path::new(".") } else { further };
        let _ = vfs.sync_dir(further);
    }
    Ok(())
}

/// Creates `dir` and its missing parents, durably.
fn create_dirs(vfs: &dyn Vfs, dir: &Path) -> Result<()> {
    let Some(parent) = parent(dir) else { return Ok(()) };
    match vfs.create_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            create_dirs(vfs, parent)?;
            vfs.create_dir(dir).map_err(|source| Error::io(dir, "creating", source))?;
        }
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(Error::io(dir, "creating", error));
        }
        _ => {}
    }
    vfs.sync_dir(parent).map_err(|source| Error::io(parent, "making durable", source))
}

/// Whether a store leaves such an entry.
fn is_ours(entry: &DirEntry) -> bool {
    let names = [LOCK, CURRENT, CURRENT_TMP, OPTIONS_TMP, UNFINISHED];
    let is_named = names.iter().any(|name| entry.name == *name);
    is_named || Numbered::parse(&entry.name).is_some()
}

/// Whether a new store may be created in `dir`, which has none.
fn may_become_store(
    vfs: &dyn Vfs,
    dir: &Path,
    listing: &[DirEntry],
    options: &Options,
) -> Result<()> {
    if options.opening.read_only || !options.opening.create_if_missing {
        return Err(not_a_store(dir, "it holds no CURRENT file, and no store is to be created"));
    }
    // The options file may have survived the loss of `CURRENT`.
    let is_options =
        |entry: &DirEntry| entry.name == OPTIONS && options_file::read(vfs, dir, listing).is_ok();
    let foreign = listing.iter().find(|entry| {
        let name = entry.name.to_string_lossy();
        !is_ours(entry) && !is_options(entry) && !name.starts_with('.') && name != "lost+found"
    });
    let Some(entry) = foreign else { return Ok(()) };
    let name = entry.name.to_string_lossy();
    let what = format!(
        "it holds other things (\"{name}\", for one); give an empty directory or a new one"
    );
    Err(not_a_store(dir, &what))
}

/// The state of a store that does not exist yet.
pub(super) fn new_store(
    vfs: &dyn Vfs,
    dir: &Path,
    listing: &[DirEntry],
    options: &Options,
) -> Result<Recovered> {
    may_become_store(vfs, dir, listing, options)?;
    let used = listing.iter().filter_map(|entry| Numbered::parse(&entry.name));
    let next_file_number = used.map(Numbered::number).max().map_or(1, |number| number + 1);
    let seed = HashSeed::new(vfs.random_u64());
    let hash_seed = Some(seed).filter(|seed| *seed != HashSeed::NONE);
    let version = Version { hash_seed, ..Version::default() };
    Ok(Recovered {
        state: ManifestState { next_file_number, version, ..ManifestState::default() },
        store_id: env::random_u64(),
        number: 0,
        tail_dropped: None,
        closed: true,
    })
}
