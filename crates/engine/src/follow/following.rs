//! Catching up with the owner of a store.
//!
//! 1. `CURRENT` names the manifest. If it is another one than before, the owner has begun a new
//!    one, perhaps in another process: it is read from the start. Otherwise its new edits are read.
//! 2. The logs are read from the oldest that the manifest needs on, each to its end marker, which
//!    names the next one, and the last to its end for now. Each log has a memtable of its own, so
//!    that a memtable is dropped once the manifest names a table with its contents. If new records
//!    were found, the manifest is read again: sorted entries may have been loaded into tables
//!    ([`sorted_load`](crate::sorted_load)) before the last batches.
//! 3. Every table of the version is opened, and stays open as long as a reader may need it.
//! 4. The newest sequence number is published, and then the view replaced.
//!
//! *Never older.* A write that was acknowledged before the call began is in a table of the
//! manifest, which is read later, or in a log that this manifest needs, and its bytes are complete.
//! The contents of logs that a newer manifest no longer needs are in its tables, including later
//! writes to the same logs that were not read.
//!
//! *One moment.* A log holds a batch in one record, and a memtable is read only up to the published
//! sequence number. A reader loads its view before that number, and each view holds a prefix of all
//! batches. It is published *before* the view is replaced: the tables of the new version may have
//! dropped versions that a reader as of an earlier moment needs, because the owner's compactions do
//! not know the readers here. For the same reason a snapshot keeps its view.
//!
//! *Files vanish.* The owner may remove a file between the reading of the manifest and the opening
//! of that file, and a record or an edit may be read while it is being written. So after a missing
//! file or corruption the call is tried again, from step 1; it is an error only if it persists.

use std::path::Path;
use std::sync::Arc;

use trommel_base::{Corruption, SeqNo};
use trommel_memtable::Memtable;
use trommel_vfs::Vfs;

use super::manifest::FollowedManifest;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::files::log_path;
use crate::log::FileKind;
use crate::log::tail::{LogTail, TakenRecord};
use crate::manifest::current;
use crate::manifest::state::ManifestState;
use crate::recovery::recorded_operator;
use crate::retry::retried;
use crate::space::{CATALOG_ID, Space, header};
use crate::version::{Fences, Version};
use crate::view::{LoggedMemtable, ReadAt, View};

/// The state of a store, as far as it has been read.
#[derive(Debug)]
pub(super) struct Following {
    manifest: FollowedManifest,
    /// The logs that the manifest needs, oldest first.
    logs: Vec<FollowedLog>,
    /// The newest sequence number that was read, or that of a time mark with which a manifest
    /// began.
    last_seqno: SeqNo,
    /// The state from which the current view was made; `None` if it was made before anything was
    /// read.
    installed: Option<Installed>,
    /// Batches read from logs.
    pub(super) batches: u64,
    /// Calls that were tried again.
    pub(super) retries: u64,
}

/// The state of a manifest, and the first and last log.
type Installed = ((u64, u64), Option<(u64, u64)>);

/// A log, and the memtable that holds the records read from it.
#[derive(Debug)]
struct FollowedLog {
    tail: LogTail,
    memtable: Arc<LoggedMemtable>,
    /// The highest sequence number in it; until it has any, that of the earlier writes.
    last_seqno: SeqNo,
}

/// Reads the current manifest of `dir`.
pub(super) fn read_manifest(vfs: &dyn Vfs, dir: &Path) -> Result<FollowedManifest> {
    retried(|| FollowedManifest::open(vfs, dir, current::read(vfs, dir)?)).1
}

impl Following {
    /// The state after only `manifest` was read.
    pub(super) fn new(manifest: FollowedManifest) -> Self {
        let last_seqno = newest_of_tables(&manifest.state);
        Self { manifest, logs: Vec::new(), last_seqno, installed: None, batches: 0, retries: 0 }
    }

    /// The tables of the store.
    pub(super) fn version(&self) -> &Version {
        &self.manifest.state.version
    }

    /// The number of the manifest, and that of its edits read so far.
    pub(super) fn position(&self) -> (u64, u64) {
        self.manifest.position()
    }

    /// Whether the owner has closed the store.
    pub(super) fn is_closed(&self) -> bool {
        self.manifest.is_closed
    }

    /// Makes everything visible that was durable when the call was made. Returns the newest
    /// visible sequence number.
    pub(super) fn catch_up(&mut self, engine: &Engine) -> Result<SeqNo> {
        let (failed, outcome) = retried(|| self.try_to_catch_up(engine));
        self.retries += u64::from(failed);
        outcome
    }

    fn try_to_catch_up(&mut self, engine: &Engine) -> Result<SeqNo> {
        self.read_manifest(engine)?;
        loop {
            let (manifest, batches) = (self.position().0, self.batches);
            self.read_logs(engine)?;
            if self.batches == batches {
                break;
            }
            // Entries may have been loaded into tables before the batches that were read.
            self.read_manifest(engine)?;
            if self.position().0 == manifest {
                self.drop_flushed_logs();
                break;
            }
        }
        for (_, table) in self.version().tables() {
            engine.files.tables.keep_open(table)?;
        }
        self.install(engine)
    }

    fn read_manifest(&mut self, engine: &Engine) -> Result<()> {
        let (vfs, dir) = (&*engine.files.vfs, &*engine.files.dir);
        let number = current::read(vfs, dir).map_err(|error| match error {
            Error::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
                replaced(dir, "its CURRENT is missing, so it was destroyed or moved away")
            }
            other => other,
        })?;
        if number == self.manifest.position().0 {
            self.manifest.read(vfs).map_err(|error| {
                // The first manifest of every store has the same number.
                match FollowedManifest::open(vfs, dir, number) {
                    Ok(other) if other.store_id != self.manifest.store_id => another_store(dir),
                    _ => error,
                }
            })?;
        } else {
            let mut next = FollowedManifest::open(vfs, dir, number)?;
            if next.store_id != self.manifest.store_id {
                return Err(another_store(dir));
            }
            next.take_over(&self.manifest.state.version);
            if !next.state.log_ends.is_empty() {
                // The owner has recorded the ends of logs that may already have been read beyond
                // them.
                self.logs.clear();
            }
            self.last_seqno = newest_of_tables(&next.state);
            self.manifest = next;
        }
        let state = &self.manifest.state;
        // Its newer marks and horizons do not count here: they may be those of writes that have not
        // been read yet.
        self.last_seqno = self.last_seqno.max(state.last_seqno);
        engine.snapshots.expiry.learn(&state.version.time_marks);
        Ok(())
    }

    /// Drops the logs whose contents are in tables of the manifest.
    fn drop_flushed_logs(&mut self) {
        let oldest = self.manifest.state.log_number;
        match self.logs.iter().position(|log| log.tail.number() == oldest) {
            Some(at) => drop(self.logs.drain(..at)),
            None => self.logs.clear(),
        }
    }

    /// Reads the logs that the manifest needs to their ends.
    fn read_logs(&mut self, engine: &Engine) -> Result<()> {
        self.drop_flushed_logs();
        let oldest = self.manifest.state.log_number;
        if oldest == 0 {
            return Ok(());
        }
        if self.logs.is_empty() {
            self.begin_log(engine, oldest, self.manifest.state.last_seqno);
        }
        let mut at = 0;
        while let Some(FollowedLog { tail, memtable, last_seqno }) = self.logs.get_mut(at) {
            let number = tail.number();
            let ended = tail.read(&*engine.files.vfs, &mut |record| {
                *last_seqno = engine.replay_batch(memtable, number, &record, *last_seqno)?;
                self.batches += 1;
                Ok(TakenRecord::Taken)
            })?;
            let last_seqno = *last_seqno;
            self.last_seqno = self.last_seqno.max(last_seqno);
            self.check_header(at)?;
            at += 1;
            let next = ended.filter(|next| *next != 0);
            if let Some(next) = next.filter(|_| at == self.logs.len()) {
                self.begin_log(engine, next, last_seqno);
            }
        }
        Ok(())
    }

    /// Begins to read log `number`, after everything up to `last_seqno`.
    fn begin_log(&mut self, engine: &Engine, number: u64, last_seqno: SeqNo) {
        let stated = self.manifest.state.log_ends.of(number);
        let path = log_path(&engine.files.dir, number);
        let memtable = new_memtable(engine);
        self.logs.push(FollowedLog {
            tail: LogTail::new(path, FileKind::Log, number, stated),
            memtable: Arc::new(LoggedMemtable::new(memtable, number)),
            last_seqno,
        });
    }

    /// Checks that the log at this position belongs to the store, and follows the one before it.
    fn check_header(&self, at: usize) -> Result<()> {
        let tail = &self.logs[at].tail;
        let Some(header) = tail.header() else { return Ok(()) };
        let before = at.checked_sub(1).map(|before| &self.logs[before].tail);
        let follows = before.is_none_or(|before| {
            // The predecessor may be a log that the manifest has since declared to be ignored.
            before.number() < tail.number()
                && (header.previous == before.number() || before.has_stated_end())
        });
        let what = match (header.store_id == self.manifest.store_id, follows) {
            (true, true) => return Ok(()),
            (false, _) => "the log belongs to another store",
            (true, false) => "the log was not written after the one before it",
        };
        Err(Corruption::new(tail.path(), 0, what).into())
    }

    /// Makes everything that was read visible.
    fn install(&mut self, engine: &Engine) -> Result<SeqNo> {
        let last_seqno = self.last_seqno;
        if last_seqno < engine.snapshots.visible() {
            let what = "it was opened again without its last writes, by a salvage or a restore";
            return Err(replaced(&engine.files.dir, what));
        }
        if let Some(recorded) = self.version().merge_operator.clone() {
            adopt_operator(engine, &recorded)?;
        }
        let logs = self.logs.first().zip(self.logs.last());
        let logs = logs.map(|(first, last)| (first.tail.number(), last.tail.number()));
        let read = (self.manifest.position(), logs);
        let is_new = self.installed != Some(read);
        let salt = self.version().catalog_salt;
        let salt = salt.filter(|_| engine.options.keyspaces.default_now() == Space::Plain);
        if salt.is_some() {
            // Done before a reader sees the keys of other keyspaces.
            engine.snapshots.expiry.separate();
        }
        let before = engine.view.load_full();
        let view = if is_new { Arc::new(self.next_view(engine)) } else { Arc::clone(&before) };
        let begins_catalog =
            salt.map_or(Ok(false), |salt| self.has_catalog(engine, &view, salt))?;
        self.expect_operators(engine);
        let version = Arc::clone(&view.version);
        let publish = || {
            if !is_new {
                engine.snapshots.publish(last_seqno);
                engine.writes.publication.notify();
                return Ok(last_seqno);
            }
            engine.note_backlog(&version);
            engine.replace_view(|_| {
                // Published before the view: see the head of the module.
                engine.snapshots.publish(last_seqno);
                Arc::unwrap_or_clone(view)
            });
            engine.writes.publication.notify();
            Ok(last_seqno)
        };
        if begins_catalog {
            // The keys with the marker have other physical keys from this moment on.
            engine.options.keyspaces.map_default(publish)?;
        } else {
            publish()?;
        }
        if is_new {
            self.installed = Some(read);
            leave_missing(engine, &before.version, &version);
            engine.settle_filters(&version);
        }
        Ok(last_seqno)
    }

    /// A view of everything that was read.
    fn next_view(&self, engine: &Engine) -> View {
        let version = Arc::new(self.version_to_read(engine));
        let fences = Arc::new(Fences::of(&version));
        let mut memtables = self.logs.iter().rev().map(|log| Arc::clone(&log.memtable));
        let active = memtables
            .next()
            .unwrap_or_else(|| Arc::new(LoggedMemtable::new(new_memtable(engine), 0)));
        View::new(active, memtables.collect(), version, fences)
    }

    /// Whether the catalog is in `view`, which no reader uses yet.
    fn has_catalog(&self, engine: &Engine, view: &Arc<View>, salt: u64) -> Result<bool> {
        let at = ReadAt { seqno: self.last_seqno, view: Some(view) };
        let header = engine.catalog_header(salt, Some(at));
        if !matches!(header, Ok(Some(_))) {
            engine.snapshots.expiry.unite();
        }
        Ok(header?.is_some())
    }

    /// Called before a reader sees operands of keyspaces: if the catalog has new entries, it is
    /// unknown which keyspaces have merge operators of their own until the catalog is read again.
    fn expect_operators(&self, engine: &Engine) {
        if !self.version().has_keyspace_operators {
            return;
        }
        let visible = engine.snapshots.visible();
        let (first, next) = (header(CATALOG_ID), header(CATALOG_ID + 1));
        // New entries in logs were noted as the logs were read.
        let has_new = self.version().tables().any(|(_, table)| {
            table.max_seqno > visible && *table.smallest < next[..] && *table.largest >= first[..]
        });
        engine.options.keyspaces.expect_operators(has_new);
    }

    /// The version of the manifest, with the time marks of the logs.
    fn version_to_read(&self, engine: &Engine) -> Version {
        let mut version = self.manifest.state.version.clone();
        if engine.snapshots.expiry.is_on() {
            version.time_marks = Arc::new(engine.snapshots.expiry.marks(|| self.last_seqno));
        }
        version
    }
}

/// Adopts the built-in merge operator whose name the owner has recorded since the follower was
/// opened, unless the follower was opened with that operator.
fn adopt_operator(engine: &Engine, recorded: &str) -> Result<()> {
    let options = engine.options.load_full();
    let dir = &engine.files.dir;
    let operator = recorded_operator(options.writes.merge_operator.as_ref(), dir, recorded)?;
    if let Some(operator) = operator {
        let mut options = (*options).clone();
        options.writes.merge_operator = Some(operator);
        engine.options.store(options);
    }
    Ok(())
}

fn new_memtable(engine: &Engine) -> Arc<Memtable> {
    Arc::new(Memtable::new(engine.options.load().writes.memtable, &engine.memory.arenas))
}

/// The newest sequence number that the tables and the time marks of a manifest account for, before
/// any of its logs is read. The marks of lost writes may remain, and later writes have higher
/// numbers.
fn newest_of_tables(state: &ManifestState) -> SeqNo {
    let marks = &state.version.time_marks;
    let marked = marks.last().map_or(0, |mark| mark.from);
    state.last_seqno.max(marked).max(marks.horizons().newest().saturating_sub(1))
}

fn another_store(dir: &Path) -> Error {
    replaced(dir, "there is another store in its place")
}

/// The error of a store that is no longer the one that was followed.
fn replaced(dir: &Path, what: &str) -> Error {
    Error::Replaced { dir: dir.to_path_buf(), what: what.to_owned() }
}

/// Releases the filters and the cached blocks of tables that have left the version. Readers that
/// hold them can still read them; the files belong to the owner of the store.
fn leave_missing(engine: &Engine, before: &Version, after: &Version) {
    let kept: std::collections::HashSet<_> =
        after.tables().map(|(_, table)| Arc::as_ptr(table)).collect();
    for (_, table) in before.tables().filter(|(_, table)| !kept.contains(&Arc::as_ptr(table))) {
        engine.files.tables.forget_unusable(table.number);
        table.leave();
        engine.forget_filters(table);
    }
}
