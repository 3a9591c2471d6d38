//! Administrative operations: checkpoints, approximate sizes, changed options, and closing.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use trommel_vfs::DirEntry;

use crate::bounds::Bounds;
use crate::compaction::shape::debt;
use crate::compaction::upkeep::dead_from;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::expiry::{Expiry, HorizonSpan, Horizons};
use crate::files::{LOCK, sidecar_path, table_path};
use crate::limiter::AwaitedWork;
use crate::log::LogEnds;
use crate::manifest::active::ActiveManifest;
use crate::manifest::edit::VersionEdit;
use crate::manifest::state::ManifestState;
use crate::names::OPTIONS_TMP;
use crate::options::{CompactionSettings, FilterSettings, Options, ReadSettings, WriteSettings};
use crate::options_file;
use crate::sync::lock;
use crate::version::{Fences, TableFile};
use crate::view::View;

/// Most keyspaces in a table for which the expired bytes are estimated.
const SPANS_ESTIMATED: usize = 64;

impl Engine {
    /// Creates a store in `dir`, which must be missing or empty, with the current contents of this
    /// one. Tables are hard-linked, which costs next to nothing on the same file system.
    pub(crate) fn checkpoint(&self, dir: &Path) -> Result<()> {
        let here = self.files.vfs.working_dir().map(|here| here.join(dir));
        let dir = here.as_deref().unwrap_or(dir);
        self.flush()?;
        self.record_horizon()?;
        let state = {
            let manifest = lock(&self.files.manifest);
            let manifest = manifest.as_ref().ok_or_else(|| self.without_manifest())?;
            manifest.state().clone()
        };
        self.claim_empty_dir(dir)?;
        let outcome = self.fill_checkpoint(dir, &state);
        if outcome.is_err() {
            self.empty_checkpoint(dir);
        }
        outcome
    }

    /// Creates `dir`, or takes over an empty one.
    fn claim_empty_dir(&self, dir: &Path) -> Result<()> {
        match self.files.vfs.create_dir(dir) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                match self.files.vfs.list(dir) {
                    Ok(entries) if entries.is_empty() => Ok(()),
                    Ok(_) => Err(Error::not_empty(dir)),
                    Err(_) => Err(Error::io(dir, "creating", error)),
                }
            }
            outcome => outcome.map_err(|source| Error::creating(&*self.files.vfs, dir, source)),
        }
    }

    fn fill_checkpoint(&self, dir: &Path, state: &ManifestState) -> Result<()> {
        for (_, table) in state.version.tables() {
            let (from, to) =
                (table_path(&self.files.dir, table.number), table_path(dir, table.number));
            self.files.deletion_queue.will_link(table.number);
            self.link_or_copy(&from, &to)?;
        }
        let state = self.with_sidecars(dir, state)?;
        // Without a lock file, a read-only open of the checkpoint would not exclude writers.
        let lock = dir.join(LOCK);
        self.files.vfs.create(&lock).map_err(|source| Error::io(&lock, "creating", source))?;
        self.files.vfs.sync_dir(dir).map_err(|source| Error::io(dir, "making durable", source))?;
        let number = state.next_file_number;
        let (next_file_number, log_ends) = (number + 1, LogEnds::new());
        let state = ManifestState { next_file_number, log_number: 0, log_ends, ..state.clone() };
        let store_id = crate::env::random_u64();
        ActiveManifest::create(&*self.files.vfs, dir, number, store_id, state)?.finish()?;
        self.copy_options(dir)?;
        let parent = dir.parent().filter(|parent| !parent.as_os_str().is_empty());
        let parent = parent.unwrap_or(Path::new("."));
        self.files
            .vfs
            .sync_dir(parent)
            .map_err(|source| Error::io(parent, "making durable", source))
    }

    /// Puts the sidecars of `state` into `dir`. A missing one is left out: its table does without
    /// it, as in this store.
    fn with_sidecars(&self, dir: &Path, state: &ManifestState) -> Result<ManifestState> {
        let mut missing = Vec::new();
        for (level, table) in state.version.tables() {
            let Some(number) = table.filters.sidecar else { continue };
            let (from, to) = (sidecar_path(&self.files.dir, number), sidecar_path(dir, number));
            match self.link_or_copy(&from, &to) {
                Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                    missing.push((level as u8, table.meta().clone()));
                }
                outcome => outcome?,
            }
        }
        if missing.is_empty() {
            return Ok(state.clone());
        }
        let edit = VersionEdit {
            removed: missing.iter().map(|(level, meta)| (*level, meta.number)).collect(),
            added: missing
                .into_iter()
                .map(|(level, mut meta)| {
                    meta.filters.sidecar = None;
                    (level, meta)
                })
                .collect(),
            ..VersionEdit::default()
        };
        state.apply(&edit).map_err(|error| Error::internal(error.0))
    }

    /// Removes the files that a failed checkpoint has put into `dir`, which was empty.
    fn empty_checkpoint(&self, dir: &Path) {
        for entry in self.files.vfs.list(dir).unwrap_or_default() {
            let _ = self.files.vfs.remove(&dir.join(entry.name));
        }
    }

    fn link_or_copy(&self, from: &Path, to: &Path) -> Result<()> {
        match self.files.vfs.hard_link(from, to) {
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::CrossesDevices
                        | io::ErrorKind::PermissionDenied
                        | io::ErrorKind::Unsupported
                        | io::ErrorKind::TooManyLinks
                ) =>
            {
                self.copy(from, to)
            }
            outcome => outcome.map_err(|source| Error::io(to, "linking", source)),
        }
    }

    fn copy(&self, from: &Path, to: &Path) -> Result<()> {
        let source = self.files.vfs.open(from, trommel_vfs::Access::Buffered);
        let source = source.map_err(|error| Error::io(from, "opening", error))?;
        let mut target =
            self.files.vfs.create(to).map_err(|error| Error::io(to, "creating", error))?;
        let mut buffer = vec![0; 1 << 20];
        let mut offset = 0;
        while offset < source.bytes() {
            let bytes = (source.bytes() - offset).min(buffer.len() as u64) as usize;
            source
                .read_at(offset, &mut buffer[..bytes])
                .map_err(|error| Error::io(from, "reading", error))?;
            target.append(&buffer[..bytes]).map_err(|error| Error::io(to, "writing", error))?;
            offset += bytes as u64;
        }
        target.sync().map_err(|error| Error::io(to, "making durable", error))
    }

    /// Approximate bytes of table files for the keys within `bounds`.
    pub(crate) fn approximate_bytes(&self, bounds: &Bounds) -> Result<u64> {
        self.access.check_open()?;
        let version = self.version();
        let mut bytes = 0;
        for (_, file) in version.tables() {
            bytes += self.bytes_within(file, bounds)?;
        }
        Ok(bytes)
    }

    /// Estimates for each table the bytes that range tombstones delete, or that have expired.
    pub(crate) fn estimate_deleted(&self) {
        // By one thread at a time, for the current version, so that an older estimate never
        // replaces a newer one.
        let _one_at_a_time = self.backlog.begin_estimate();
        let version = self.version();
        if version.ranges.is_empty() {
            return;
        }
        let (newest, horizons) = (version.ranges.newest(), version.ranges.horizons());
        let is_due = |table: &TableFile| {
            let mut spans = horizons.spans(&table.smallest, &table.largest);
            !table.is_estimated_at(newest) || spans.any(|span| span.seqno > table.min_seqno)
        };
        for (_, table) in version.tables().filter(|(_, table)| is_due(table)) {
            let applied = table.min_seqno.max(table.ranges_applied);
            let (mut bytes, mut by) = (0, 0);
            if newest > applied {
                let spans = version.ranges.spans(&table.smallest, &table.largest);
                for span in spans.filter(|span| span.covering > applied) {
                    let to = span.to.map(<[u8]>::to_vec);
                    let bounds = Bounds { from: span.from.to_vec(), to };
                    // A table that cannot be estimated is compacted later.
                    bytes += self.bytes_within(table, &bounds).unwrap_or(0);
                    by = span.covering.max(by);
                }
            }
            let bytes = bytes.max(self.expired_bytes(table, horizons)).min(table.file_bytes);
            table.set_deleted(bytes, by, newest);
        }
        let _no_install = lock(&self.files.manifest);
        self.backlog.set_dead_from(dead_from(&self.version()));
    }

    /// Estimated bytes of a table that have expired. If it has many keyspaces, only some are
    /// estimated.
    fn expired_bytes(&self, table: &Arc<TableFile>, horizons: &Horizons) -> u64 {
        let expired: Vec<_> = horizons
            .spans(&table.smallest, &table.largest)
            .filter(|span| span.seqno > table.min_seqno)
            .collect();
        let step = expired.len().div_ceil(SPANS_ESTIMATED).max(1);
        let bytes_of = |span: &HorizonSpan<'_>| {
            let part = table.expired_bytes(span.seqno) as f64 / table.file_bytes.max(1) as f64;
            let bounds = Bounds { from: span.from.to_vec(), to: span.to.map(<[u8]>::to_vec) };
            (self.bytes_within(table, &bounds).unwrap_or(0) as f64 * part).ceil() as u64
        };
        let estimated: u64 = expired.iter().step_by(step).map(bytes_of).sum();
        estimated.saturating_mul(step as u64)
    }

    /// Estimates the bytes of a table within bounds.
    pub(crate) fn bytes_within(&self, file: &Arc<TableFile>, bounds: &Bounds) -> Result<u64> {
        let starts_inside = *bounds.from <= *file.smallest;
        let ends_inside = bounds.to.as_ref().is_none_or(|to| **to > *file.largest);
        let is_outside = *bounds.from > *file.largest
            || bounds.to.as_ref().is_some_and(|to| **to <= *file.smallest);
        if is_outside {
            return Ok(0);
        }
        if starts_inside && ends_inside {
            return Ok(file.file_bytes);
        }
        let table = self.files.tables.reader(file)?;
        let from = table.approximate_offset(&bounds.from);
        let to = match &bounds.to {
            Some(to) if !ends_inside => table.approximate_offset(to),
            _ => file.file_bytes,
        };
        Ok(to.saturating_sub(from))
    }

    /// Changes the options that can change on an open store.
    pub(crate) fn set_options(&self, change: impl FnOnce(Options) -> Options) -> Result<()> {
        self.access.opener().check()?;
        let one_at_a_time = self.options.hold();
        let old = self.options.load_full();
        let wanted = change((*old).clone());
        check_code(&old, &wanted)?;
        let options = Options {
            vfs: Arc::clone(&old.vfs),
            environment: old.environment.clone(),
            background_threads: old.background_threads,
            opening: old.opening.clone(),
            writes: WriteSettings {
                log: old.writes.log,
                merge_operator: old.writes.merge_operator.clone(),
                ..wanted.writes
            },
            filtering: FilterSettings {
                user_filters: old.filtering.user_filters.clone(),
                ..wanted.filtering
            },
            reads: ReadSettings {
                read_mode: old.reads.read_mode,
                max_open_files: old.reads.max_open_files,
                ..wanted.reads
            },
            compaction: CompactionSettings {
                compaction_filter: old.compaction.compaction_filter.clone(),
                ..wanted.compaction
            },
            ..wanted
        };
        options.check()?;
        self.record_options(&options)?;
        if options.writes.ttl != old.writes.ttl {
            self.set_ttl(options.writes.ttl)?;
        }
        self.memory.shares.set_limits(options.memory_limit, options.reads.cache_bytes.get());
        self.memory.shares.set_pinned_limits(options.pinned_limits());
        let version = self.version();
        self.backlog.set_debt(debt(&version, &options.planner()));
        self.memory.arenas.set_limit(options.arena_limit());
        self.files.deletion_queue.set_spare_limit(options.writes.spare_file_bytes);
        self.files.archive.keep_bytes(options.archive_bytes());
        if self.access.check_writable().is_ok() {
            self.files.archive.shrink();
        }
        self.background.limiter.set_limit(options.background_limit());
        self.options.store(options);
        drop(one_at_a_time);
        {
            let _no_install = lock(&self.files.manifest);
            self.settle_filters(&self.version());
        }
        self.wait_for_limit();
        self.account_memtables();
        self.freeze_full();
        self.background.wake();
        Ok(())
    }

    /// Sets the `ttl` of the default keyspace. The manifest has the first time mark, or no longer
    /// has any, before another write is made.
    fn set_ttl(&self, ttl: Option<Duration>) -> Result<()> {
        self.change_times(|expiry| expiry.set_ttl(ttl))
    }

    /// Changes the `ttl`s by `change`.
    pub(crate) fn change_times(&self, change: impl FnOnce(&Expiry)) -> Result<()> {
        self.exclusively(|leader| {
            let is_read_only = self.options.load().opening.read_only;
            if !is_read_only {
                self.access.check_writable()?;
            }
            // Entries that have expired by the old `ttl` stay expired.
            let _ = self.snapshots.horizons();
            change(&self.snapshots.expiry);
            if !is_read_only {
                if let Some(until) = self.snapshots.expiry.end_long_step() {
                    // Otherwise the next writes would count as written at the step's end.
                    self.log_mark(leader, until)?;
                }
                return self.install(VersionEdit::default(), None, None);
            }
            let marks = self.snapshots.expiry.marks(|| self.snapshots.visible());
            let edit = VersionEdit { time_marks: Some(Arc::new(marks)), ..VersionEdit::default() };
            let version = self.version().apply(&edit).map_err(|error| Error::internal(error.0))?;
            let (version, fences) = (Arc::new(version.clone()), Arc::new(Fences::of(&version)));
            self.replace_view(|view| {
                View::new(Arc::clone(&view.active), view.frozen.clone(), version, fences)
            });
            Ok(())
        })
    }

    /// Records the options that the store was opened with, and removes the leftover of a crash. A
    /// failure affects only the record, so it is remembered, and opening continues.
    pub(crate) fn record_first_options(&self, listing: &[DirEntry]) {
        if listing.iter().any(|entry| entry.name == OPTIONS_TMP && entry.is_file) {
            let _ = self.files.vfs.remove(&self.files.dir.join(OPTIONS_TMP));
        }
        if let Err(error) = self.record_options(&self.options.load_full()) {
            crate::events::options_not_recorded(&error);
        }
    }

    /// Records these options, if the store is open for writing.
    fn record_options(&self, options: &Options) -> Result<()> {
        let mut record = self.options.record();
        if self.access.check_writable().is_err() {
            return Ok(());
        }
        record.write(&*self.files.vfs, &self.files.dir, options)
    }

    /// Writes the current options to another directory, which has no options file.
    fn copy_options(&self, dir: &Path) -> Result<()> {
        let text = self.options.record().text_of(&self.options.load());
        options_file::install(&*self.files.vfs, dir, &text)
    }

    /// Why the options file does not match the store's options, if it does not.
    pub(crate) fn options_fault(&self) -> Option<Error> {
        self.options.record().fault()
    }

    /// Ends the log durably, and refuses all calls from then on. A failure here loses nothing that
    /// was acknowledged as durable.
    pub(crate) fn close(&self) -> Result<()> {
        self.access.opener().check()?;
        if self.access.refuses_reads() {
            return Ok(());
        }
        let options = self.options.load_full();
        if options.opening.read_only || self.access.is_poisoned() {
            self.refuse_all();
            return self.access.check_unpoisoned();
        }
        // Expired entries stay expired, whatever the clock shows at the next open. If this fails,
        // the store is poisoned.
        let _ = self.record_horizon();
        let awaited = self.background.limiter.awaits(AwaitedWork::All);
        self.background.begin_closing();
        let ended = self.exclusively(|leader| {
            // An earlier leader may have failed.
            if let Some(first) = self.access.poisoned() {
                return Err(Error::Poisoned { first });
            }
            if !options.writes.log {
                self.rotate(leader)?;
            }
            // Set while no other thread leads: no write finds the store open with its log ended.
            self.refuse_all();
            self.finish_log(leader)
        });
        // Done after any failure: the lock is about to be released.
        self.refuse_all();
        ended?;
        if options.writes.log {
            Ok(())
        } else {
            self.wait_until(&awaited, |view| view.frozen.is_empty())
        }
    }

    /// Refuses all calls from now on, including those of waiting change feeds.
    fn refuse_all(&self) {
        self.access.refuse_reads(Error::Closed);
        self.writes.publication.notify();
    }

    /// The last step of closing, when no background job is running any more. The manifest records a
    /// clean close only if everything `is_written`.
    pub(crate) fn finish_manifest(&self, is_written: bool) -> Result<()> {
        let locked = self.check_lock();
        self.files.deletion_queue.clear();
        self.files.tables.close();
        // Options are recorded, and tables of loads created, under these locks; the next caller
        // finds the store closed.
        drop(self.options.record());
        drop(lock(&self.writes.creating));
        if self.memory.shares.is_shared() {
            self.memory.blocks.forget_own();
        }
        let is_whole = is_written && !self.access.is_poisoned();
        let finished = match lock(&self.files.manifest).take() {
            Some(mut manifest) if is_whole => manifest.finish(),
            _ => Ok(()),
        };
        self.access.release_lock();
        locked.and(finished)
    }
}

/// An error if user code would change on an open store.
fn check_code(old: &Options, wanted: &Options) -> Result<()> {
    let same_policy = match (&old.filtering.user_filters, &wanted.filtering.user_filters) {
        (Some(old), Some(wanted)) => old.is(wanted),
        (None, None) => true,
        _ => false,
    };
    if !same_policy {
        return Err(Error::option(
            "user_filters: the policy stays while the store is open, as open tables hold its \
             filters: close the store, and open it with the other one",
        ));
    }
    let filters = (&old.compaction.compaction_filter, &wanted.compaction.compaction_filter);
    let same_filter = match filters {
        (Some(old), Some(wanted)) => old.is(wanted),
        (None, None) => true,
        _ => false,
    };
    if !same_filter {
        return Err(Error::option(
            "compaction_filter: the filter stays while the store is open, as snapshots rely on it: \
             close the store, and open it with the other one",
        ));
    }
    let same_operator = match (&old.writes.merge_operator, &wanted.writes.merge_operator) {
        (Some(old), Some(wanted)) => old.is(wanted),
        (None, None) => true,
        _ => false,
    };
    if !same_operator {
        return Err(Error::option(
            "merge_operator: the operator stays while the store is open, as values are made of its \
             operands: close the store, and open it with the other one",
        ));
    }
    Ok(())
}
