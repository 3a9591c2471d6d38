//! Orphans: files that an open finds or makes and the store does not need.
//!
//! A file that the current manifest does not name was left by a crash, a failed open, a store that
//! refused writes, or a removal that failed.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use trommel_vfs::DirEntry;

use crate::engine::Engine;
use crate::manifest::active::ActiveManifest;
use crate::manifest::reader::Recovered;
use crate::names::{CURRENT_TMP, Numbered, OPTIONS_TMP};
use crate::sync::lock;

/// Our files that the recovered state does not name.
pub(super) fn orphans(dir: &Path, listing: &[DirEntry], recovered: &Recovered) -> Vec<PathBuf> {
    let is_orphan = |entry: &&DirEntry| match Numbered::parse(&entry.name) {
        _ if !entry.is_file => false,
        None => entry.name == CURRENT_TMP || entry.name == OPTIONS_TMP,
        Some(file) => !recovered.state.needs(file, Some(recovered.number)),
    };
    listing.iter().filter(is_orphan).map(|entry| dir.join(&entry.name)).collect()
}

impl Engine {
    /// Removes the files of a failed open, which the current manifest does not name, so that
    /// retries do not accumulate them. `before` is the listing from before the open.
    pub(super) fn remove_new(&self, before: &[DirEntry]) {
        if self.options.load().opening.read_only {
            return;
        }
        let Ok(now) = self.files.vfs.list(&self.files.dir) else { return };
        let is_new = |entry: &&DirEntry| {
            let is_ours = Numbered::parse(&entry.name).is_some() || entry.name == CURRENT_TMP;
            is_ours && entry.is_file && before.iter().all(|old| old.name != entry.name)
        };
        for entry in now.iter().filter(is_new) {
            let _ = self.files.vfs.remove(&self.files.dir.join(&entry.name));
        }
    }

    /// Removes our files that the store does not need. Not called if bytes were dropped: these
    /// files may be all that is left of them.
    pub(super) fn remove_leftovers(&self, listing: &[DirEntry]) {
        let view = self.view.load();
        let tables: HashSet<u64> = view.version.tables().map(|(_, table)| table.number).collect();
        let manifest = lock(&self.files.manifest).as_ref().map(ActiveManifest::number);
        for entry in listing.iter().filter(|entry| entry.is_file) {
            let needed = match Numbered::parse(&entry.name) {
                None => true,
                Some(Numbered::Table(number)) => tables.contains(&number),
                Some(Numbered::Log(number)) => {
                    let active = &view.active;
                    number >= active.log_number || active.earlier_logs.contains(&number)
                }
                Some(Numbered::Manifest(number)) => Some(number) == manifest,
                // The archive removes its own files.
                Some(Numbered::ArchivedLog(_)) => true,
                Some(Numbered::Spare(_)) => false,
                Some(Numbered::FilterSidecar(number)) => {
                    view.version.tables().any(|(_, table)| table.filters.sidecar == Some(number))
                }
            };
            if !needed {
                self.files.deletion_queue.add(self.files.dir.join(&entry.name));
            }
        }
        // No file is recyclable yet, so the store is at rest.
        self.rest();
    }
}
