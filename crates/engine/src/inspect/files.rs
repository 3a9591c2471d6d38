//! The roles of the files of a directory.

use std::io;
use std::path::{Path, PathBuf};

use trommel_base::Corruption;
use trommel_vfs::{DirEntry, Vfs};

use super::manifest::Manifest;
use super::read_consistently;
use crate::error::{Error, Result};
use crate::files::LOCK;
use crate::manifest::state::ManifestState;
use crate::names::{CURRENT, CURRENT_TMP, Numbered, OPTIONS, OPTIONS_TMP};
use crate::options_file;

/// The role of a file in a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Role {
    /// `LOCK`, which is locked while the store is open.
    Lock,
    /// `CURRENT`, which names the current manifest.
    Current,
    /// `OPTIONS`, which records the options that shape the store.
    Options,
    /// `MANIFEST-n`.
    Manifest,
    /// `n.log`.
    Log,
    /// `n.archive`: an obsolete log, kept for change feeds.
    ArchivedLog,
    /// `n.sst`.
    Table,
    /// `n.flt`.
    FilterSidecar,
    /// `n.spare`: an obsolete log or table, kept to be recycled for a new table.
    Spare,
    /// `CURRENT.tmp` or `OPTIONS.tmp`, left by an interrupted change of the manifest or the
    /// options.
    Temporary,
    /// A foreign entry. It is never read and never removed.
    Foreign,
}

/// A file of a directory, or one that should be there.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct LiveFile {
    /// The file.
    pub path: PathBuf,
    /// Its role.
    pub role: Role,
    /// Its length in bytes; none if it is missing.
    pub bytes: Option<u64>,
    /// Whether the store needs it: the current manifest refers to it.
    pub live: bool,
    /// The problem with it as a file, if any: it is missing, or has the wrong length. Only the
    /// manifest and the options file are read.
    pub problem: Option<Error>,
}

/// Every file of the store in `dir`, by name, including missing ones that its manifest names.
///
/// In a store that is being written files may appear or disappear meanwhile.
///
/// # Errors
/// As [`Manifest::in_force`] and [`Manifest::info`].
pub fn live_files(vfs: &dyn Vfs, dir: &Path) -> Result<Vec<LiveFile>> {
    let is_torn = |files: &Vec<LiveFile>| files.iter().any(|f| f.live && f.bytes.is_none());
    read_consistently(vfs, dir, || live_files_once(vfs, dir), is_torn)
}

fn live_files_once(vfs: &dyn Vfs, dir: &Path) -> Result<Vec<LiveFile>> {
    let manifest = Manifest::in_force(vfs, dir)?;
    let (state, number) = (manifest.state()?, manifest.info()?.number);
    let listing = list(vfs, dir)?;
    let mut files: Vec<LiveFile> =
        listing.iter().map(|entry| live_file(dir, entry, &state, number)).collect();
    let mut needed: Vec<Numbered> = Vec::new();
    for (_, table) in state.version.tables() {
        needed.push(Numbered::Table(table.number));
        needed.extend(table.filters.sidecar.map(Numbered::FilterSidecar));
    }
    if state.log_number != 0 {
        needed.push(Numbered::Log(state.log_number));
    }
    for file in files.iter_mut().filter(|file| file.live && file.role == Role::Manifest) {
        file.problem = manifest.check().err();
    }
    let damaged = options_file::read(vfs, dir, &listing).err();
    for file in files.iter_mut().filter(|file| file.role == Role::Options) {
        file.problem.clone_from(&damaged);
    }
    for file in needed {
        let path = dir.join(file.name());
        if !files.iter().any(|there| there.path == path) {
            let role = role_of_numbered(file);
            let problem = Some(Corruption::new(&path, 0, "the file is missing").into());
            files.push(LiveFile { path, role, bytes: None, live: true, problem });
        }
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

/// The entries of `dir`.
pub(super) fn list(vfs: &dyn Vfs, dir: &Path) -> Result<Vec<DirEntry>> {
    vfs.list(dir).map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => {
            let what = "there is no such directory".to_owned();
            Error::NotAStore { dir: dir.to_path_buf(), what }
        }
        io::ErrorKind::NotADirectory => {
            let what = "it is a file; give the directory that it lies in".to_owned();
            Error::NotAStore { dir: dir.to_path_buf(), what }
        }
        _ => Error::io(dir, "listing", source),
    })
}

fn live_file(dir: &Path, entry: &DirEntry, state: &ManifestState, manifest: u64) -> LiveFile {
    let path = dir.join(&entry.name);
    let bytes = entry.is_file.then_some(entry.bytes);
    let numbered = Numbered::parse(&entry.name).filter(|_| entry.is_file);
    let mut problem = None;
    let (role, live) = match numbered {
        Some(file) => {
            let table = match file {
                Numbered::Table(n) => state.version.tables().find(|(_, table)| table.number == n),
                _ => None,
            };
            problem =
                table.filter(|(_, table)| table.file_bytes != entry.bytes).map(|(_, table)| {
                    let what = format!(
                        "it has {} bytes, and should have {}",
                        entry.bytes, table.file_bytes
                    );
                    Corruption::new(&path, 0, what).into()
                });
            (role_of_numbered(file), state.needs(file, Some(manifest)))
        }
        None => match entry.name.to_str() {
            Some(LOCK) => (Role::Lock, true),
            Some(CURRENT) => (Role::Current, true),
            Some(OPTIONS) => (Role::Options, true),
            Some(CURRENT_TMP | OPTIONS_TMP) => (Role::Temporary, false),
            _ => (Role::Foreign, false),
        },
    };
    LiveFile { path, role, bytes, live, problem }
}

fn role_of_numbered(file: Numbered) -> Role {
    match file {
        Numbered::Manifest(_) => Role::Manifest,
        Numbered::Log(_) => Role::Log,
        Numbered::ArchivedLog(_) => Role::ArchivedLog,
        Numbered::Table(_) => Role::Table,
        Numbered::FilterSidecar(_) => Role::FilterSidecar,
        Numbered::Spare(_) => Role::Spare,
    }
}
