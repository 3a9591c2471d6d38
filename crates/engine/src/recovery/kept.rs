//! Opening without disk space for the contents of the logs: they stay in memory, and the logs stay
//! needed.
//!
//! 1. Remove the files of this open and the orphans of earlier ones, which may be what fills the
//!    disk.
//! 2. Make the logs durable. A killed process left them in the page cache, and the manifest is
//!    about to record their ends.
//! 3. Replay them again, into a single memtable, however large it becomes.
//! 4. Write the new log and the new manifest, which take a few bytes. The manifest names the same
//!    oldest log as before, and records the ends of the logs ([`LogEnd`](crate::log::LogEnd)), so
//!    that dropped bytes stay dropped.
//!
//! The flush of that memtable makes all these logs obsolete at once. Until then each open replays
//! them, and flushes them to tables if it finds space.
//!
//! Logs are not kept with salvage, which ends a log at the first corruption, nor without a new log
//! to continue in.

use std::io;
use std::sync::Arc;

use trommel_vfs::DirEntry;

use super::{ReplayTarget, disk_space, first_view};
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::files::log_path;
use crate::log::recover::ReplayPlan;
use crate::manifest::reader::Recovered;
use crate::sync::lock;

impl Engine {
    /// Replays the logs and installs the result. `before` is the listing of the directory from
    /// before the open.
    pub(super) fn take_over(
        &self,
        plan: &ReplayPlan,
        recovered: &Recovered,
        before: &[DirEntry],
    ) -> Result<()> {
        let mut opened = self.replay_to(ReplayTarget::Tables, plan, recovered);
        let options = self.options.load();
        let holds_any = plan.records() > 0;
        let mut may_keep =
            options.writes.log && !options.opening.salvage && !options.opening.read_only;
        if let Err(error) = &opened
            && may_keep
            && holds_any
            && disk_space::is_short(error, &self.files.dir)
        {
            let error = error.clone();
            self.remove_new(before);
            match self.sync_kept(plan) {
                Ok(true) => opened = self.keep_logs(plan, recovered, &error),
                Ok(false) => may_keep = false,
                Err(failed) => opened = Err(failed),
            }
        }
        opened.map_err(|error| {
            if disk_space::may_be_installed(&error, &self.files.dir) {
                return error;
            }
            // Removes the files of this open before free space is reported.
            self.remove_new(before);
            let needed = match may_keep || !holds_any {
                true => disk_space::SpaceNeeded::ForNewFiles(&recovered.state),
                false => disk_space::SpaceNeeded::ForLogs(plan.bytes()),
            };
            disk_space::with_room(error, &*self.files.vfs, &self.files.dir, needed)
        })
    }

    fn replay_to(
        &self,
        target: ReplayTarget,
        plan: &ReplayPlan,
        recovered: &Recovered,
    ) -> Result<()> {
        let replayed = self.replay(plan, recovered.state.clone(), target)?;
        self.install_opened(plan, replayed)
    }

    /// Makes the logs durable. Returns whether the file system supports that.
    fn sync_kept(&self, plan: &ReplayPlan) -> Result<bool> {
        for number in plan.logs() {
            let path = log_path(&self.files.dir, number);
            match self.files.vfs.sync_file(&path) {
                Err(source) if source.kind() == io::ErrorKind::Unsupported => return Ok(false),
                synced => synced.map_err(|source| Error::io(&path, "making durable", source))?,
            }
        }
        Ok(true)
    }

    /// Opens the store with its logs kept, for lack of the space that `error` reports.
    fn keep_logs(&self, plan: &ReplayPlan, recovered: &Recovered, error: &Error) -> Result<()> {
        if self.recovery.dropped.is_empty() {
            for orphan in &self.recovery.orphans {
                let _ = self.files.vfs.remove(orphan);
            }
        }
        let kind = self.options.load().writes.memtable;
        let view = first_view(recovered, kind, &self.memory.arenas);
        lock(&self.writes.leader).write_to(Arc::clone(&view.active));
        self.replace_view(|_| view);
        self.replay_to(ReplayTarget::Memory, plan, recovered)?;
        crate::events::logs_kept(plan.bytes(), error);
        Ok(())
    }
}
