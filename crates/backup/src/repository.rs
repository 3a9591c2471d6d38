//! Repositories: their marker, their contents, and how these are read.

use std::collections::{BTreeSet, HashSet};
use std::fmt;
use std::io::{self, Read as _};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::error::{Damage, Error, Result};
use crate::format::{
    BACKUPS, BLOBS, Blob, FORMAT, MANIFEST_LIMIT, MARKER, MARKER_LIMIT, VERSION, manifest_name,
    parse_manifest_name,
};
use crate::manifest::{Backup, Refused};
use crate::target::{Hold, Purpose, Target};

/// A repository of backups. See the [crate's page](crate) for an example.
///
/// Clones are the same repository.
#[derive(Debug, Clone)]
pub struct Repository {
    pub(crate) target: Arc<dyn Target>,
}

/// One backup of a repository, readable or not.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Listed {
    /// Its ID.
    pub id: u64,
    /// Its manifest, or the damage to it.
    pub backup: Result<Backup, Damage>,
}

#[derive(Serialize, Deserialize)]
struct Marker {
    format: String,
    version: u32,
}

impl Repository {
    /// The repository in `target`.
    ///
    /// # Errors
    /// [`Error::NotARepository`] if there is none, [`Error::Unsupported`] if a newer version wrote
    /// it.
    pub fn open(target: Arc<dyn Target>) -> Result<Self> {
        let repository = Self { target };
        if repository.check_marker()? {
            return Ok(repository);
        }
        let what = format!(
            "it has no file {MARKER} (`trommel backup create` creates a repository in a new or \
             empty location)"
        );
        Err(Error::NotARepository { place: repository.target.place(), what })
    }

    /// The repository in `target`, which is created if the target is empty.
    ///
    /// # Errors
    /// [`Error::NotARepository`] if it contains anything else.
    pub fn open_or_create(target: Arc<dyn Target>) -> Result<Self> {
        let repository = Self { target };
        if repository.check_marker()? {
            return Ok(repository);
        }
        let place = repository.target.place();
        let failed = |source| Error::target(place.clone(), "creating a repository in", source);
        if !repository.target.found().map_err(failed)? {
            let what = "it is not empty, and a repository is only created in a new or empty \
                        location";
            return Err(Error::NotARepository { place, what: what.into() });
        }
        let _hold = repository.lock(Purpose::Add)?;
        repository.target.settle().map_err(failed)?;
        let marker = Marker { format: FORMAT.into(), version: VERSION };
        let text = serde_json::to_string(&marker).expect("a text and a number") + "\n";
        // A concurrent creator writes the same marker.
        repository.target.put_new(MARKER, text.as_bytes()).map_err(failed)?;
        repository.check_marker()?;
        Ok(repository)
    }

    /// Whether the marker exists and is valid.
    fn check_marker(&self) -> Result<bool> {
        let Some(bytes) = self.read(MARKER, MARKER_LIMIT)? else { return Ok(false) };
        let file = self.file(MARKER);
        match serde_json::from_slice::<Marker>(&bytes) {
            Ok(marker) if marker.format == FORMAT && marker.version == VERSION => Ok(true),
            Ok(marker) if marker.format == FORMAT => {
                let what = format!("the repository has the format version {}", marker.version);
                Err(Error::Unsupported { file, what })
            }
            _ => {
                let (place, what) =
                    (self.target.place(), format!("{file} is not the marker of one"));
                Err(Error::NotARepository { place, what })
            }
        }
    }

    /// All backups, oldest first. Each manifest is read and checked; the contents are not (see
    /// [`Repository::verify`]).
    pub fn list(&self) -> Result<Vec<Listed>> {
        let mut all = Vec::new();
        for id in self.ids()? {
            match self.backup(id) {
                Ok(backup) => all.push(Listed { id, backup: Ok(backup) }),
                Err(Error::Damaged(damage)) => all.push(Listed { id, backup: Err(damage) }),
                // Deleted since it was listed.
                Err(Error::NoSuchBackup { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(all)
    }

    /// The ID of the newest backup of `store` (16 hexadecimal digits), or, without one, of the only
    /// store with backups here. A backup with an unreadable manifest may be of any store, and
    /// counts.
    ///
    /// # Errors
    /// [`Error::SeveralStores`] if no store is named and there are backups of several, so that
    /// another store's data is never restored by accident.
    pub fn latest(&self, store: Option<&str>) -> Result<Option<u64>> {
        let mut stores = BTreeSet::new();
        let mut latest = None;
        for listed in self.list()? {
            match listed.backup {
                Ok(backup) if store.is_some_and(|store| store != backup.store) => {}
                Ok(backup) => {
                    stores.insert(backup.store);
                    latest = Some(listed.id);
                }
                Err(_) => latest = Some(listed.id),
            }
        }
        if stores.len() > 1 {
            let stores = stores.into_iter().collect();
            return Err(Error::SeveralStores { repository: self.target.place(), stores });
        }
        Ok(latest)
    }

    /// The manifest of backup `id`.
    ///
    /// # Errors
    /// [`Error::NoSuchBackup`]; [`Error::Damaged`] if its manifest is corrupt.
    pub fn backup(&self, id: u64) -> Result<Backup> {
        let name = manifest_name(id);
        let Some(bytes) = self.read(&name, MANIFEST_LIMIT)? else {
            return Err(Error::NoSuchBackup { repository: self.target.place(), id });
        };
        let file = self.file(&name);
        Backup::decode(id, &bytes).map_err(|refused| match refused {
            Refused::Damaged(what) => Error::damaged(file, format!("{what} (backup {id})")),
            Refused::Unsupported(what) => Error::Unsupported { file, what },
        })
    }

    /// The IDs of all backups, ascending.
    pub(crate) fn ids(&self) -> Result<Vec<u64>> {
        let entries = self.list_folder(BACKUPS)?;
        let ids = entries.into_iter().filter_map(|(name, _)| parse_manifest_name(&name));
        let mut ids: Vec<u64> = ids.collect();
        ids.sort_unstable();
        Ok(ids)
    }

    /// The stored contents whose length is correct.
    pub(crate) fn blobs(&self) -> Result<HashSet<Blob>> {
        let entries = self.list_folder(BLOBS)?.into_iter();
        let parse =
            |(name, bytes): (String, u64)| Blob::parse(&name).filter(|blob| blob.bytes == bytes);
        Ok(entries.filter_map(parse).collect())
    }

    pub(crate) fn list_folder(&self, folder: &str) -> Result<Vec<(String, u64)>> {
        let failed = |source| Error::target(self.file(folder), "listing", source);
        self.target.list(folder).map_err(failed)
    }

    /// Acquires the right to write.
    pub(crate) fn lock(&self, purpose: Purpose) -> Result<Box<dyn Hold>> {
        self.target.lock(purpose).map_err(|source| match source.kind() {
            io::ErrorKind::WouldBlock => {
                Error::Busy { repository: self.target.place(), what: source.to_string() }
            }
            _ => Error::target(self.target.place(), "locking", source),
        })
    }

    pub(crate) fn confirm(&self, hold: &dyn Hold) -> Result<()> {
        let failed = |source| Error::target(self.target.place(), "keeping the lock of", source);
        hold.confirm().map_err(failed)
    }

    pub(crate) fn settle(&self) -> Result<()> {
        let failed = |source| Error::target(self.target.place(), "making durable", source);
        self.target.settle().map_err(failed)
    }

    pub(crate) fn delete_object(&self, name: &str) -> Result<()> {
        let failed = |source| Error::target(self.file(name), "deleting", source);
        self.target.delete(name).map_err(failed)
    }

    /// A small object, if it exists.
    fn read(&self, name: &str, limit: u64) -> Result<Option<Vec<u8>>> {
        let failed = |source| Error::target(self.file(name), "reading", source);
        let (content, length) = match self.target.get(name) {
            Ok(found) => found,
            Err(error) if is_absent(&error) => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        if length > limit {
            let what = format!("it has {length} bytes, and at most {limit} are valid");
            return Err(Error::damaged(self.file(name), what));
        }
        let mut bytes = Vec::new();
        content.take(limit).read_to_end(&mut bytes).map_err(failed)?;
        Ok(Some(bytes))
    }

    /// An object's path or URL.
    pub(crate) fn file(&self, name: &str) -> String {
        format!("{}/{name}", self.target.place().trim_end_matches('/'))
    }
}

/// Whether an error means that there is no such object.
pub(crate) fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

impl fmt::Display for Repository {
    /// The path or URL of the repository.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.target.place())
    }
}
