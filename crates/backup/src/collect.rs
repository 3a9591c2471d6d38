//! Deletes backups, and contents that no backup needs any more.
//!
//! 1. Acquire the right to collect. It excludes the right to add, because a backup in progress
//!    relies on contents that no manifest names yet.
//! 2. Delete the manifests, durably: a manifest never outlives its contents.
//! 3. Read the remaining manifests, and delete the contents that none of them names. If one cannot
//!    be read, its contents are unknown, and all contents stay until it is deleted too.

use std::collections::{BTreeMap, HashSet};

use crate::error::{Damage, Error, Result};
use crate::format::{BLOBS, Blob, manifest_name};
use crate::manifest::BackupFile;
use crate::progress::{Progress, Step};
use crate::repository::Repository;
use crate::target::{Hold, Purpose};

/// The result of [`Repository::delete`] and [`Repository::purge`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Deleted {
    /// The IDs of deleted backups, ascending.
    pub backups: Vec<u64>,
    /// Deleted contents.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Unreadable manifests: the reason why all contents were kept.
    pub kept_for: Vec<Damage>,
}

impl Repository {
    /// Deletes backup `id`, readable or not, and the contents that only it needs.
    ///
    /// # Errors
    /// [`Error::NoSuchBackup`]; [`Error::Busy`] if a backup is being created.
    pub fn delete(&self, id: u64, progress: &dyn Progress) -> Result<Deleted> {
        let hold = self.lock(Purpose::Collect)?;
        if !self.ids()?.contains(&id) {
            return Err(Error::NoSuchBackup { repository: self.target.place(), id });
        }
        self.delete_and_collect(vec![id], &*hold, progress)
    }

    /// Deletes all but the newest `keep` backups of each store, and the contents that only they
    /// need. It also deletes the contents of unfinished backups, even if there is no backup to
    /// delete.
    ///
    /// # Errors
    /// [`Error::Damaged`] if a manifest cannot be read, so that its store is unknown: nothing was
    /// deleted then. [`Error::Busy`] if a backup is being created.
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
        // Foreign files stay.
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
