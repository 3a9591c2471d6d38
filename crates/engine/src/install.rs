//! Installing the outcome of a job: the only place that replaces the version.
//!
//! 1. The new version is computed from the current one, which only the holder of the manifest lock
//!    changes.
//! 2. The lock file must still be the one that was locked; otherwise another process may have
//!    changed the store, and the store is poisoned.
//! 3. Range tombstones with nothing left to delete are dropped, once they are half of all. The edit
//!    also records the expiry horizon and the time marks.
//! 4. The edit is appended to the manifest and synced. From here on the change is made. If this
//!    step fails, it is unknown whether the change was made: the store is poisoned and no file is
//!    removed.
//! 5. The view and the registry of running jobs are replaced under one lock, so that the planner
//!    never sees one without the other.
//! 6. Tables that left the version become obsolete: they are removed once the last reader is gone.
//!    So are filter sidecars that were replaced.
//! 7. The filters that may be held in memory are determined again for the new version, and so are
//!    the bytes of each table that range tombstones delete.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use trommel_base::SeqNo;

use crate::compaction::in_progress::JobStep;
use crate::compaction::shape::debt;
use crate::compaction::upkeep::dead_from;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::expiry::TimeMarks;
use crate::manifest::active::ActiveManifest;
use crate::manifest::edit::VersionEdit;
use crate::manifest::state::ManifestState;
use crate::names;
use crate::ranges::{RangeMap, Readers};
use crate::sync::lock;
use crate::version::{Fences, TableFile, Version};
use crate::view::{LoggedMemtable, View};

impl Engine {
    /// Installs `edit`. A job takes a `step` with it, and the memtable `flushed` is replaced by the
    /// table that the edit adds.
    pub(crate) fn install(
        &self,
        edit: VersionEdit,
        step: Option<JobStep>,
        flushed: Option<&Arc<LoggedMemtable>>,
    ) -> Result<()> {
        self.install_beside(edit, step, |view| {
            (Arc::clone(&view.active), without(&view.frozen, flushed))
        })
    }

    /// As [`Engine::install`], together with the active and the frozen `memtables` of the new view.
    pub(crate) fn install_beside(
        &self,
        mut edit: VersionEdit,
        step: Option<JobStep>,
        memtables: impl FnOnce(&View) -> (Arc<LoggedMemtable>, Vec<Arc<LoggedMemtable>>),
    ) -> Result<()> {
        let mut manifest = lock(&self.files.manifest);
        let active = manifest.as_mut().ok_or_else(|| self.without_manifest())?;
        self.check_lock()?;
        edit.next_file_number = Some(self.files.next_file_number.load(Ordering::Relaxed));
        edit.time_marks = self.changed_time_marks(&active.version().time_marks);
        self.drop_spent_ranges(active, &mut edit)?;
        let before = self.version();
        let appended = self.append_edit(active, &edit).map_err(|error| self.poison(error));
        let after = Arc::new(appended?);
        let fences = Arc::new(Fences::of(&after));
        self.note_backlog(&after);
        {
            let mut state = lock(&self.background.state);
            self.replace_view(|view| {
                let (active, frozen) = memtables(view);
                let (version, fences) = (Arc::clone(&after), Arc::clone(&fences));
                View::new(active, frozen, version, fences)
            });
            match step {
                None => {}
                Some(JobStep::Ends(id)) => state.busy.finish(id),
                Some(JobStep::GoesOn(id)) => {
                    state.busy.keep(id, edit.added.iter().map(|(_, table)| table.number));
                }
            }
        }
        // A flush only adds.
        if !edit.removed.is_empty() {
            self.retire_missing(&before, &after);
            self.forget_useless_gaps();
        }
        self.settle_filters(&after);
        drop(manifest);
        self.estimate_deleted();
        Ok(())
    }

    /// Forgets the gaps in which no table has tombstones, unless a memtable may have tombstones
    /// there, or scans may pass expired entries there.
    fn forget_useless_gaps(&self) {
        if self.memory.gaps.is_empty() {
            return;
        }
        let view = self.view.load();
        let are_in_memory = view.memtables().any(|logged| logged.has_many_tombstones());
        if are_in_memory || !view.version.ranges.horizons().are_none() {
            return;
        }
        let with_tombstones = view.version.tables().filter(|(_, table)| table.deletions > 0);
        let mut tables: Vec<_> =
            with_tombstones.map(|(_, table)| (&*table.smallest, &*table.largest)).collect();
        tables.sort_unstable();
        // The largest key of the tables up to each one.
        let mut furthest: &[u8] = &[];
        let reach: Vec<_> = tables
            .iter()
            .map(|(_, largest)| {
                furthest = furthest.max(largest);
                furthest
            })
            .collect();
        self.memory.gaps.retain(|gap| {
            let begins_before =
                |table: &(&[u8], &[u8])| gap.to.as_deref().is_none_or(|to| table.0 < to);
            let before = tables.partition_point(begins_before);
            before.checked_sub(1).is_some_and(|last| reach[last] >= &*gap.from)
        });
        self.account_ranges();
    }

    /// The time marks and the expiry horizon, if they are not those that the manifest holds.
    fn changed_time_marks(&self, recorded: &TimeMarks) -> Option<Arc<TimeMarks>> {
        let marks = self.snapshots.expiry.marks(|| self.snapshots.visible());
        (marks != *recorded).then(|| Arc::new(marks))
    }

    /// Records the expiry since the last version edit, if a compaction could free space by it:
    /// compactions use the horizon in the manifest.
    pub(crate) fn record_expired(&self) -> Result<()> {
        let horizons = self.snapshots.horizons();
        if horizons.are_none() {
            return Ok(());
        }
        let due = self.version().half_expires_at();
        let has_expired = |(id, half): (&u32, &SeqNo)| match id {
            0 => horizons.of_default() >= *half,
            _ => horizons.before_id(*id) >= *half,
        };
        if due.iter().any(has_expired) { self.record_horizon() } else { Ok(()) }
    }

    /// Records all expiry since the last version edit.
    pub(crate) fn record_horizon(&self) -> Result<()> {
        let horizons = self.snapshots.horizons();
        let is_recorded = horizons.are_none() || *horizons == *self.version().ranges.horizons();
        // Nothing is installed in a store that was closed or poisoned.
        if is_recorded || self.access.check_writable().is_err() {
            return Ok(());
        }
        self.install(VersionEdit::default(), None, None)
    }

    /// Adds to `edit` the removal of range tombstones with nothing left to delete, and of those
    /// that newer ones cover for every reader, if they are half of all: then each is written to the
    /// manifest a bounded number of times.
    ///
    /// The entries that they deleted are in no table, nor in a running compaction, whose inputs are
    /// in the version. Entries that are not flushed yet are newer.
    fn drop_spent_ranges(&self, manifest: &ActiveManifest, edit: &mut VersionEdit) -> Result<()> {
        let has_ranges = manifest.version().ranges.tombstone_count() > 0;
        let is_spent_by_this = has_ranges && !edit.removed.is_empty();
        if !is_spent_by_this && edit.ranges.is_empty() {
            return Ok(());
        }
        let after = manifest.version().apply(edit).map_err(|error| Error::internal(error.0))?;
        let readers = Readers::at(self.snapshots.live());
        let needed = RangeMap::new(after.needed_ranges(), &readers);
        if 2 * needed.tombstone_count() <= after.ranges.tombstone_count() {
            edit.ranges = needed.tombstones().collect();
            edit.replaces_ranges = true;
        }
        Ok(())
    }

    /// Makes `edit` durable in the manifest; returns the resulting version. A manifest that has
    /// grown long is replaced by a new one.
    fn append_edit(&self, manifest: &mut ActiveManifest, edit: &VersionEdit) -> Result<Version> {
        let state = manifest.state().apply(edit).map_err(|e| Error::internal(e.0))?;
        if manifest.should_roll() {
            let old = manifest.number();
            let begun = || {
                let number = self.files.new_file_number();
                let next_file_number = number + 1;
                self.create_manifest(number, ManifestState { next_file_number, ..state.clone() })
            };
            *manifest = begun().or_else(|error| {
                if !error.is_out_of_handles() {
                    return Err(error);
                }
                // With a new number: the first may have been installed already, or exist partially.
                self.files.tables.release_handles();
                begun()
            })?;
            self.files.deletion_queue.add(self.files.dir.join(names::manifest(old)));
        } else {
            manifest.append(edit, state)?;
        }
        Ok(manifest.version().clone())
    }

    /// Writes manifest `number` with this state and makes it current.
    pub(crate) fn create_manifest(
        &self,
        number: u64,
        state: ManifestState,
    ) -> Result<ActiveManifest> {
        ActiveManifest::create(
            &*self.files.vfs,
            &self.files.dir,
            number,
            self.files.store_id,
            state,
        )
    }

    /// Records the backlog of `version`, which is about to become current.
    pub(crate) fn note_backlog(&self, version: &Version) {
        let debt = debt(version, &self.options.load().planner());
        self.backlog.set_debt(debt);
        self.backlog.set_dead_from(dead_from(version));
    }

    /// Why there is no manifest to write to.
    pub(crate) fn without_manifest(&self) -> Error {
        self.access.check_writable().err().unwrap_or(Error::Closed)
    }

    fn retire_missing(&self, before: &Version, after: &Version) {
        let kept: HashMap<u64, &Arc<TableFile>> =
            after.tables().map(|(_, table)| (table.number, table)).collect();
        for (_, table) in before.tables() {
            match kept.get(&table.number) {
                None => {
                    self.files.tables.forget_unusable(table.number);
                    table.retire(&self.files.dir, &self.files.deletion_queue);
                }
                Some(same) if same.filters.sidecar == table.filters.sidecar => continue,
                Some(_) => table.give_way(&self.files.dir, &self.files.deletion_queue),
            }
            self.forget_filters(table);
        }
    }
}

fn without(
    frozen: &[Arc<LoggedMemtable>],
    flushed: Option<&Arc<LoggedMemtable>>,
) -> Vec<Arc<LoggedMemtable>> {
    let stays = |other: &&Arc<LoggedMemtable>| !flushed.is_some_and(|f| Arc::ptr_eq(f, other));
    frozen.iter().filter(stays).cloned().collect()
}
