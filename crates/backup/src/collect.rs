//! Deleting backups, and the contents that no backup needs any more.
//!
//! 1. Take the right to collect, which nobody has while backups are being made, nor the other way
//!    round: a backup that is being made relies on contents that nothing refers to yet.
//! 2. Delete the manifests, durably: a manifest never outlives what it refers to.
//! 3. Read all that are left, and delete the contents that none refers to. If one cannot be read
//!    nobody knows what it needs, and all contents stay until it is deleted too.

use std::collections::{BTreeMap, HashSet};

use crate::error::{Damage, Error, Result};
use crate::format::{BLOBS, Blob, manifest_name};
use crate::manifest::BackupFile;
use crate::progress::{Progress, Step};
use crate::repository::Repository;
use crate::target::{Hold, Purpose};

/// What deleting backups did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Deleted {
    /// The backups that are gone, ascending.
    pub backups: Vec<u64>,
    /// Contents that are gone.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The unreadable manifests because of which all contents were kept.
    pub kept_for: Vec<Damage>,
}

impl Repository {
    /// Deletes backup `id`, readable or not, and what only it needed.
    ///
    /// # Errors
    /// [`Error::NoSuchBackup`]; [`Error::Busy`] if a backup is being made.
    pub fn delete(&self, id: u64, progress: &dyn Progress) -> Result<Deleted> {
        let hold = self.lock(Purpose::Collect)?;
        if !self.ids()?.contains(&id) {
            return Err(Error::NoSuchBackup { repository: self.target.place(), id });
        }
        self.delete_and_collect(vec![id], &*hold, progress)
    }

    /// Deletes all but the newest `keep` backups of each store, and what only they needed. With no
    /// backup to delete it still deletes the contents that an unfinished backup left.
    ///
    /// # Errors
    /// [`Error::Damaged`] if a manifest cannot be read, so that nobody knows of which store it is:
    /// nothing was deleted then. [`Error::Busy`] if a backup is being made.
    pub fn purge(&self, keep: u64, progress: &dyn Progress) -> Result<Deleted> {
        let hold = self.lock(Purpose::Collect)?;
        let mut kept: BTreeMap<String, u64> = BTreeMap::new();
        let mut ids = Vec::new();
        for id in self.ids()?.into_iter().rev() {
            let newer = kept.entry(self.backup(id)?.store).or_default();
            if *newer < keep {
                *newer += 1;
            } else {
                ids.push(id);
            }
        }
        ids.reverse();
        self.delete_and_collect(ids, &*hold, progress)
    }

    fn delete_and_collect(
        &self,
        ids: Vec<u64>,
        hold: &dyn Hold,
        progress: &dyn Progress,
    ) -> Result<Deleted> {
        for &id in &ids {
            self.confirm(hold)?;
            self.delete_object(&manifest_name(id))?;
        }
        self.settle()?;
        let mut done = Deleted { backups: ids, ..Deleted::default() };
        let mut needed = HashSet::new();
        for listed in self.list()? {
            match listed.backup {
                Ok(backup) => needed.extend(backup.files.iter().map(BackupFile::blob)),
                Err(damage) => done.kept_for.push(damage),
            }
        }
        if done.kept_for.is_empty() {
            self.collect(&needed, hold, &mut done, progress)?;
        }
        Ok(done)
    }

    /// Deletes the contents that are not needed.
    fn collect(
        &self,
        needed: &HashSet<Blob>,
        hold: &dyn Hold,
        done: &mut Deleted,
        progress: &dyn Progress,
    ) -> Result<()> {
        let mut garbage = self.list_folder(BLOBS)?;
        // What has no name of ours is somebody else's.
        garbage.retain(|(name, _)| Blob::parse(name).is_some_and(|blob| !needed.contains(&blob)));
        let total = garbage.iter().map(|(_, bytes)| bytes).sum();
        let _step = Step::begin(progress, "deleting", total);
        for (name, bytes) in garbage {
            if progress.is_cancelled() {
                return Err(Error::Cancelled);
            }
            self.confirm(hold)?;
            self.delete_object(&format!("{BLOBS}/{name}"))?;
            progress.advance(bytes);
            done.files += 1;
            done.bytes += bytes;
        }
        self.settle()
    }
}
