//! Opening where there is no room for what the logs hold: it stays in memory, and the logs stay
//! needed.
//!
//! 1. Files of this opening are removed, and what earlier ones left, which may be what takes the
//!    room.
//! 2. The logs are made durable. A process that was killed left them to the system, and the
//!    manifest is about to say up to where they count.
//! 3. They are replayed again, into one memtable, however large that becomes.
//! 4. The new log and the new manifest are a few bytes. The manifest names the same oldest log as
//!    before, and states where the logs end ([`LogEnd`](crate::log::LogEnd)), so that what was
//!    dropped stays dropped.
//!
//! The flush of that memtable lets go of all these logs at once. Until then each opening replays
//! them, and writes them to tables if it finds room.
//!
//! Not done in a salvage, which ends a log where damage begins, nor without a log to go on in.

use std::io;
use std::sync::Arc;
use trommel_base::planted::{Bug, planted};

use trommel_vfs::DirEntry;

use super::{Target, first_view, room};
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::files::log_path;
use crate::log::recover::Plan;
use crate::manifest::reader::Recovered;
use crate::sync::lock;

impl Engine {
    /// Replays the logs and puts what comes of that in force. `before` is what was in the
    /// directory.
    pub(super) fn take_over(
        &self,
        plan: &Plan,
        recovered: &Recovered,
        before: &[DirEntry],
    ) -> Result<()> {
        let mut opened = self.replay_to(Target::Tables, plan, recovered);
        let options = self.options.load();
        let holds_any = plan.records() > 0;
        let mut may_keep = options.log && !options.salvage && !options.read_only;
        if let Err(error) = &opened
            && may_keep
            && holds_any
            && room::is_short(error, &self.files.dir)
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
            if room::may_be_in_force(&error, &self.files.dir) {
                return error;
            }
            // The files of this opening are removed before it is said how many bytes are free.
            self.remove_new(before);
            let needed = match may_keep || !holds_any {
                true => room::Needed::ForNewFiles(&recovered.state),
                false => room::Needed::ForLogs(plan.bytes()),
            };
            room::with_room(error, &*self.files.vfs, &self.files.dir, needed)
        })
    }

    fn replay_to(&self, target: Target, plan: &Plan, recovered: &Recovered) -> Result<()> {
        let replayed = self.replay(plan, recovered.state.clone(), target)?;
        if planted(Bug::ReplayedLogsRemovedEarly) {
            let _ = self.files.vfs.remove(&log_path(&self.files.dir, plan.newest()));
        }
        self.put_in_force(plan, replayed)
    }

    /// Makes the logs durable; whether the file system can.
    fn sync_kept(&self, plan: &Plan) -> Result<bool> {
        for number in plan.logs() {
            let path = log_path(&self.files.dir, number);
            match self.files.vfs.sync_file(&path) {
                Err(source) if source.kind() == io::ErrorKind::Unsupported => return Ok(false),
                synced => synced.map_err(|source| Error::io(&path, "making durable", source))?,
            }
        }
        Ok(true)
    }

    /// Opens the store with its logs kept, for want of the room that `error` tells of.
    fn keep_logs(&self, plan: &Plan, recovered: &Recovered, error: &Error) -> Result<()> {
        if self.recovery.dropped.is_empty() {
            for orphan in &self.recovery.orphans {
                let _ = self.files.vfs.remove(orphan);
            }
        }
        let view = first_view(recovered, &self.memory.arenas);
        lock(&self.writes.leader).write_to(Arc::clone(&view.active));
        self.replace_view(|_| view);
        self.replay_to(Target::Memory, plan, recovered)?;
        crate::events::logs_kept(plan.bytes(), error);
        Ok(())
    }
}
