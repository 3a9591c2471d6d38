//! Recovery: opening a store, from whatever a crash left to a state in which every acknowledged
//! write is in a table or in memory.
//!
//! 1. Take the lock. Read `CURRENT` and the manifest; every table it names must exist, with its
//!    exact length.
//! 2. Read and verify the logs that are still needed; decide which records are replayed.
//! 3. Replay them into memtables, flushing full ones to tables of level 0. The contents of short
//!    logs stay in the memtable. Without disk space for tables everything stays in the memtable,
//!    and the old logs stay needed (module [`kept`]).
//! 4. Create a new log with the [batches of short logs](carried), then a new manifest that names
//!    the new tables and the new log, and install it. This is the only commit point: after a crash
//!    before it, the old state is recovered again; after a crash later, the new one.
//! 5. Record the options that shape the store (module [`options_file`](crate::options_file)).
//! 6. Remove the files that the new manifest does not name. If bytes were dropped, nothing is
//!    removed, so that nothing is lost if the verdict was wrong.
//!
//! A read-only open stops after step 3, keeps everything replayed in memory, and writes nothing.

mod carried;
mod directory;
mod disk_space;
mod kept;
#[cfg(test)]
mod kept_tests;
mod leftovers;

use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use trommel_base::{MAX_SEQNO, SeqNo};
use trommel_filter::HashSeed;
use trommel_memtable::{ArenaPool, Memtable, MemtableKind};
use trommel_sstable::BlockCache;
use trommel_vfs::{DirEntry, FileLock, Vfs};

use self::carried::Carried;
use self::directory::{check_current_tmp, new_store, prepare_dir, sync_ancestors};
use self::leftovers::orphans;
use crate::access::Access;
use crate::background::Background;
use crate::backlog::BacklogCounts;
use crate::batch::BatchOperations;
use crate::current::CurrentOptions;
use crate::dir_sync::DirSync;
use crate::engine::Engine;
use crate::environment::Environment;
use crate::error::{Error, Result};
use crate::expiry::Expiry;
use crate::files::deletion_queue::DeletionQueue;
use crate::files::held::HeldLock;
use crate::files::room::Room;
use crate::files::{list, log_path};
use crate::log::reader::Record;
use crate::log::recover;
use crate::log_archive::LogArchive;
use crate::manifest::edit::VersionEdit;
use crate::manifest::reader::{self, Recovered};
use crate::manifest::state::ManifestState;
use crate::memory::MemoryShares;
use crate::merge_operator::UserMergeOperator;
use crate::names::Numbered;
use crate::options::Degraded;
use crate::options::Options;
use crate::options_record::OptionsRecord;
use crate::output::Outputs;
use crate::purpose::Purpose;
use crate::ranges::Gaps;
use crate::recovery_report::RecoveryReport;
use crate::rescue::degraded::{self, Tolerated};
use crate::snapshots::Snapshots;
use crate::space::{CATALOG_ID, id_of};
use crate::statistics::Statistics;
use crate::store_files::StoreFiles;
use crate::store_memory::StoreMemory;
use crate::sync::{AtomicU64, Mutex, lock};
use crate::user_filters::FilterReason;
use crate::version::{Fences, TableCache};
use crate::view::{CurrentView, LoggedMemtable, View};
use crate::write_queue::{Leader, WritePath};

/// The result of replaying the logs.
struct Replayed {
    /// The tables, and the highest sequence number in them.
    state: ManifestState,
    /// The highest sequence number of all.
    last_seqno: SeqNo,
    /// The batches that stayed in the memtable, to be appended to the new log.
    carried: Carried,
    /// Whether the logs are kept because all of their contents stayed in the memtable.
    keeps_logs: bool,
}

/// The destination of replayed records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReplayTarget {
    /// Tables of level 0, except for short logs.
    Tables,
    /// The memtable.
    Memory,
}

impl Engine {
    /// Opens the store in `dir`; with `unfinished`, even one that a repair has not finished.
    pub(crate) fn open(dir: &Path, options: Options, unfinished: bool) -> Result<Arc<Self>> {
        options.check()?;
        let room = Arc::new(Room::default());
        let vfs: Arc<dyn Vfs> = Arc::new(DirSync::new(options.vfs, dir, Arc::clone(&room)));
        let options = Options { vfs: Arc::clone(&vfs), ..options }.in_effect();
        let lock = prepare_dir(&*vfs, dir, &options, unfinished)?;
        let listing = list(&*vfs, dir)?;
        if !options.opening.read_only {
            check_current_tmp(dir, &listing)?;
            // The directory entry of a log whose creation failed may reappear after a crash:
            // together with the log of this open it would count as corruption.
            vfs.sync_dir(dir).map_err(Error::on(dir))?;
        }
        let mut tolerated = Tolerated::default();
        let recovered = match Self::recovered(dir, &listing, &options, &mut tolerated)? {
            Some(_) if options.opening.error_if_exists => {
                let dir = dir.display();
                let what = format!("{dir} holds a store already, and error_if_exists is set");
                return Err(Error::option(what));
            }
            Some(recovered) => recovered,
            None => {
                let recovered = new_store(&*vfs, dir, &listing, &options)?;
                sync_ancestors(&*vfs, dir)?;
                recovered
            }
        };
        let options = with_operator(options, dir, &recovered)?;
        let recovered = with_expiry(recovered, &options);
        let plan = match options.opening.degraded {
            None => plan_logs(&*vfs, dir, &listing, &recovered, &options)?,
            Some(_) => degraded::plan_logs(&*vfs, dir, &listing, &mut tolerated)?,
        };
        let record = OptionsRecord::read(&*vfs, dir, &listing, &mut tolerated.options);
        let report = report(dir, &listing, &recovered, &plan, tolerated);
        let doubt =
            report.doubt.clone().filter(|_| options.opening.degraded == Some(Degraded::Certain));
        let engine = Arc::new_cyclic(|own| {
            assemble(dir, options, &recovered, report, lock, Weak::clone(own))
        });
        *engine.options.record() = record;
        room.is_in(&engine.files.deletion_queue);
        engine.files.deletion_queue.set_spare_limit(engine.options.load().writes.spare_file_bytes);
        engine.files.archive.keep_bytes(engine.options.load().archive_bytes());
        if engine.options.load().opening.read_only {
            let replayed = engine.replay(&plan, recovered.state, ReplayTarget::Memory)?;
            engine.note_replayed(&plan);
            engine.settle_filters(&engine.version());
            engine.note_backlog(&replayed.state.version);
            if let Some(what) = doubt {
                engine.access.refuse_reads(Error::InDoubt { dir: dir.to_path_buf(), what });
            }
            return Ok(engine);
        }
        engine.take_over(&plan, &recovered, &listing)?;
        engine.settle_filters(&engine.version());
        engine.estimate_deleted();
        engine.record_first_options(&listing);
        engine.files.archive.find(&listing);
        if engine.recovery.dropped.is_empty() {
            engine.remove_leftovers(&list(&*vfs, dir)?);
            engine.files.archive.shrink();
        }
        crate::events::opened(engine.recovery.replayed_batches, engine.recovery.dropped.len());
        Ok(engine)
    }

    /// Recovers the state of the manifest. A degraded open adds to `tolerated` the corruption that
    /// does not prevent it.
    fn recovered(
        dir: &Path,
        listing: &[DirEntry],
        options: &Options,
        tolerated: &mut Tolerated,
    ) -> Result<Option<Recovered>> {
        if options.opening.degraded.is_none() {
            return reader::recover(&*options.vfs, dir, listing, options.opening.salvage);
        }
        let (recovered, found) = degraded::recover(&*options.vfs, dir, listing)?;
        *tolerated = found;
        Ok(Some(recovered))
    }

    /// Replays the logs. The returned state includes the tables flushed in the process.
    fn replay(
        &self,
        plan: &recover::ReplayPlan,
        mut state: ManifestState,
        target: ReplayTarget,
    ) -> Result<Replayed> {
        let vfs = Arc::clone(&self.files.vfs);
        let mut last_seqno = state.last_seqno;
        let to_tables = target == ReplayTarget::Tables;
        let mut carried = Carried::new(&self.options.load(), to_tables);
        plan.replay(&*vfs, |log_number, record| {
            let active = &self.view.load().active;
            last_seqno = self.replay_batch(active, log_number, &record, last_seqno)?;
            carried.take(&record);
            let options = self.options.load();
            let full = self.view.load().active.memory_bytes() >= options.memtable_limit();
            if full && to_tables {
                carried.give_up();
                self.save_replayed(&mut state)?;
            }
            Ok::<(), Error>(())
        })?;
        // Otherwise no table has them, and the next open finds them in the log.
        if carried.is_empty() && to_tables {
            self.save_replayed(&mut state)?;
            state.last_seqno = last_seqno;
        }
        // Lost writes may have had marks, and may have expired. Their sequence numbers must not be
        // used for other writes.
        let marks = self.snapshots.expiry.marks(|| last_seqno);
        let marked = marks.last().map_or(0, |mark| mark.from);
        last_seqno = last_seqno.max(marked).max(marks.horizons().newest().saturating_sub(1));
        lock(&self.writes.leader).last_seqno = last_seqno;
        self.snapshots.publish(last_seqno);
        Ok(Replayed { state, last_seqno, carried, keeps_logs: !to_tables })
    }

    /// Records the replayed logs of a read-only store, for change feeds.
    fn note_replayed(&self, plan: &recover::ReplayPlan) {
        let mut logs: Vec<u64> = plan.logs().collect();
        let Some(newest) = logs.pop() else { return };
        self.replace_view(|view| {
            let active = Arc::new(view.active.logged_in(newest, logs));
            let (version, fences) = (Arc::clone(&view.version), Arc::clone(&view.fences));
            View::new(active, view.frozen.clone(), version, fences)
        });
    }

    /// Applies the batch of `record` to `active`. Its sequence numbers must be above `last_seqno`,
    /// the last one of the previous batch. Returns its own last one.
    pub(crate) fn replay_batch(
        &self,
        active: &LoggedMemtable,
        log_number: u64,
        record: &Record<'_>,
        last_seqno: SeqNo,
    ) -> Result<SeqNo> {
        let damaged = |what| {
            let path = log_path(&self.files.dir, log_number);
            Error::Corruption(trommel_base::Corruption::new(&path, record.offset, what))
        };
        let no_batch = || damaged("a record of the log is intact but does not hold a batch");
        let operations = BatchOperations::decode(record.payload).ok_or_else(no_batch)?;
        // Decoded in full before the first operation is applied: a batch is atomic.
        let operations = operations.collect::<Option<Vec<_>>>().ok_or_else(no_batch)?;
        let first = record.first_seqno;
        let end = first.checked_add(operations.len() as u64).filter(|end| *end <= MAX_SEQNO + 1);
        let Some(end) = end.filter(|_| first > last_seqno) else {
            return Err(damaged("a batch has sequence numbers that are not its own"));
        };
        for (op, seqno) in operations.iter().zip(first..end) {
            match op.marked_time() {
                Some(until) => self.snapshots.expiry.add(seqno, until),
                None => _ = active.insert(*op, seqno, &self.snapshots),
            }
            if id_of(op.key) == Some(CATALOG_ID) {
                self.options.keyspaces.note_changing();
            }
        }
        Ok(end - 1)
    }

    /// Flushes the records replayed so far to a table of level 0, and adds the table to `state`.
    fn save_replayed(&self, state: &mut ManifestState) -> Result<()> {
        let view = self.view.load_full();
        if view.active.is_empty() {
            return Ok(());
        }
        let purpose = Purpose::of_memtable(FilterReason::Recovery, &view.active.memtable);
        let mut outputs = Outputs::new(self, 0, Arc::clone(&view.version), purpose);
        self.write_memtable(&view.active, &mut outputs)?;
        let tables = outputs.finish()?;
        let edit = VersionEdit {
            added: tables.into_iter().map(|table| (0, table)).collect(),
            ranges: self.ranges_of(&view.active),
            next_file_number: Some(self.files.next_file_number.load(Ordering::Relaxed)),
            ..VersionEdit::default()
        };
        *state = state.apply(&edit).map_err(|error| Error::internal(error.0))?;
        outputs.keep();
        let kind = self.options.load().writes.memtable;
        let memtable = Arc::new(Memtable::new(kind, &self.memory.arenas));
        let active = Arc::new(LoggedMemtable::new(memtable, view.active.log_number));
        lock(&self.writes.leader).write_to(Arc::clone(&active));
        let version = Arc::new(state.version.clone());
        let fences = Arc::new(Fences::of(&version));
        self.replace_view(|view| {
            let (version, fences) = (Arc::clone(&version), Arc::clone(&fences));
            View::new(Arc::clone(&active), view.frozen.clone(), version, fences)
        });
        Ok(())
    }

    /// Creates the log and the manifest of this open, and installs them.
    fn install_opened(&self, plan: &recover::ReplayPlan, replayed: Replayed) -> Result<()> {
        let Replayed { mut state, last_seqno, carried, keeps_logs } = replayed;
        let log_number = self.files.new_file_number();
        let manifest_number = self.files.new_file_number();
        let has_log = self.options.load().writes.log;
        // A log that repeats the contents of others names no predecessor: until the manifest names
        // it, it is ignored.
        let previous = if carried.is_empty() { plan.newest() } else { 0 };
        let mut log = if has_log { Some(self.try_log(log_number, previous)?) } else { None };
        if let Some(log) = log.as_mut().filter(|_| !carried.is_empty()) {
            carried.append_to(log)?;
        }
        let mut earlier_logs = Vec::new();
        if keeps_logs {
            plan.ends(log_number).for_each(|end| _ = state.log_ends.add(end));
            earlier_logs.extend(plan.logs());
        } else {
            state.log_number = if has_log { log_number } else { 0 };
        }
        state.log_ends.forget_before(state.log_number);
        if self.snapshots.expiry.is_on() {
            let time_marks = Some(Arc::new(self.snapshots.expiry.marks(|| last_seqno)));
            let edit = VersionEdit { time_marks, ..VersionEdit::default() };
            state.version = state.version.apply(&edit).map_err(|error| Error::internal(error.0))?;
        }
        state.next_file_number = self.files.next_file_number.load(Ordering::Relaxed);
        if !keeps_logs && carried.is_empty() && !self.options.load().opening.salvage {
            // After a salvage, feeds could not read the log to its end, so it is not archived.
            self.files.archive.add(plan.filled_logs(), &self.files.tables);
        }
        let manifest = self.create_manifest(manifest_number, state)?;
        let version = Arc::new(manifest.version().clone());
        self.note_backlog(&version);
        *lock(&self.files.manifest) = Some(manifest);
        // The memtable may hold entries that are in no table.
        let active = Arc::new(self.view.load().active.logged_in(log_number, earlier_logs));
        lock(&self.writes.leader).start(Arc::clone(&active), log, last_seqno);
        let fences = Arc::new(Fences::of(&version));
        self.replace_view(|_| {
            let (version, fences) = (Arc::clone(&version), Arc::clone(&fences));
            View::new(Arc::clone(&active), Vec::new(), version, fences)
        });
        Ok(())
    }
}

/// The recovered state, with a first time mark or without any, as `options` demand.
fn with_expiry(mut recovered: Recovered, options: &Options) -> Recovered {
    let marks = recovered.state.version.times();
    let expiry = Expiry::new(Arc::clone(&options.vfs), marks, options.writes.ttl);
    recovered.state.version.time_marks = Arc::new(expiry.marks(|| recovered.state.last_seqno));
    recovered
}

/// The options with the merge operator of the store, if that is a built-in one and none is given.
pub(crate) fn with_operator(
    mut options: Options,
    dir: &Path,
    recovered: &Recovered,
) -> Result<Options> {
    if let Some(recorded) = &recovered.state.version.merge_operator {
        let given = options.writes.merge_operator.as_ref();
        if let Some(operator) = recorded_operator(given, dir, recorded)? {
            options.writes.merge_operator = Some(operator);
        }
    }
    Ok(options)
}

/// The built-in operator of the recorded name, if none was given.
///
/// # Errors
/// [`Error::OtherMergeOperator`] if one with another name was given.
pub(crate) fn recorded_operator(
    given: Option<&UserMergeOperator>,
    dir: &Path,
    recorded: &str,
) -> Result<Option<UserMergeOperator>> {
    match given {
        None => Ok(UserMergeOperator::built_in(recorded)),
        Some(given) if **given.name() == *recorded => Ok(None),
        Some(given) => {
            let (recorded, given) = (recorded.to_owned(), given.name().to_string());
            Err(Error::OtherMergeOperator {
                dir: dir.to_path_buf(),
                keyspace: None,
                recorded,
                given,
            })
        }
    }
}

fn plan_logs(
    vfs: &dyn Vfs,
    dir: &Path,
    listing: &[DirEntry],
    recovered: &Recovered,
    options: &Options,
) -> Result<recover::ReplayPlan> {
    let log_number = |entry: &DirEntry| match Numbered::parse(&entry.name) {
        // Only a regular file is a log; if a log is needed in place of another entry, it is
        // missing.
        Some(Numbered::Log(number)) if entry.is_file => Some(number),
        _ => None,
    };
    let present: Vec<u64> = listing.iter().filter_map(log_number).collect();
    let needed = recover::Needed {
        dir,
        store_id: recovered.store_id,
        oldest: recovered.state.log_number,
        present: &present,
        ends: &recovered.state.log_ends,
        closed: recovered.closed,
        salvage: options.opening.salvage,
    };
    recover::plan(vfs, &needed)
}

fn report(
    dir: &Path,
    listing: &[DirEntry],
    recovered: &Recovered,
    plan: &recover::ReplayPlan,
    tolerated: Tolerated,
) -> RecoveryReport {
    RecoveryReport {
        created: recovered.number == 0,
        was_closed: recovered.closed,
        replayed_batches: plan.records(),
        dropped: recovered.tail_dropped.iter().chain(plan.dropped()).map(Into::into).collect(),
        orphans: orphans(dir, listing, recovered),
        damage: tolerated.damage,
        doubt: tolerated.doubt,
        options: tolerated.options,
    }
}

/// The view of a recovered state before any replay.
fn first_view(recovered: &Recovered, kind: MemtableKind, arenas: &Arc<ArenaPool>) -> View {
    let memtable = Arc::new(Memtable::new(kind, arenas));
    let active = Arc::new(LoggedMemtable::new(memtable, recovered.state.log_number));
    let version = Arc::new(recovered.state.version.clone());
    let fences = Arc::new(Fences::of(&version));
    View::new(active, Vec::new(), version, fences)
}

/// An empty block cache, its share of the store's memory, and the arenas of memtables.
fn first_memory(options: &Options) -> StoreMemory {
    let (blocks, shares) = match &options.environment {
        Some(environment) => {
            let blocks = environment.blocks().share();
            let ceiling = Arc::clone(environment.ceiling());
            (Arc::clone(&blocks), MemoryShares::shared(ceiling, blocks))
        }
        None => {
            let (limit, wanted) = (options.memory_limit, options.reads.cache_bytes.get());
            // The number of shards suits the largest capacity that the cache may ever get, as a
            // filter fills at most half of a shard.
            let blocks = BlockCache::new(wanted.min(limit.unwrap_or(u64::MAX)));
            (Arc::clone(&blocks), MemoryShares::new(blocks, limit, wanted))
        }
    };
    shares.set_pinned_limits(options.pinned_limits());
    StoreMemory {
        blocks,
        shares,
        arenas: ArenaPool::with_hash_seed(options.arena_limit(), options.vfs.random_u64()),
        gaps: Gaps::default(),
    }
}

/// An empty table cache.
fn first_tables(
    dir: &Path,
    options: &Options,
    blocks: &Arc<BlockCache>,
    memory: &Arc<MemoryShares>,
    hash_seed: HashSeed,
) -> Arc<TableCache> {
    let tables = TableCache::new(
        dir.to_path_buf(),
        Arc::clone(&options.vfs),
        Arc::clone(blocks),
        options.reads.read_mode,
        options.reads.max_open_files,
        Arc::clone(memory),
        options.filtering.user_filters.clone(),
    );
    let shared = options.environment.as_ref().map(Environment::files);
    let tables = Arc::new(tables.of_seed(hash_seed).sharing(shared.map(Arc::clone)));
    if options.filters.has_ranges() {
        tables.note_ranges();
    }
    if let Some(files) = shared {
        files.add(&tables);
    }
    tables
}

/// An engine for a recovered state before any replay.
pub(crate) fn assemble(
    dir: &Path,
    options: Options,
    recovered: &Recovered,
    recovery: RecoveryReport,
    held: Option<Box<dyn FileLock>>,
    own: Weak<Engine>,
) -> Engine {
    let lock = Arc::new(HeldLock::new(held));
    let access = Access::new(dir, Arc::clone(&lock), options.opening.read_only);
    let next_file_number = recovered.state.next_file_number;
    let archive = LogArchive::new(Arc::clone(&options.vfs), dir.to_path_buf(), Arc::clone(&lock));
    let queue = DeletionQueue::new(Arc::clone(&options.vfs), next_file_number, lock);
    let memory = first_memory(&options);
    let hash_seed = recovered.state.version.hash_seed.unwrap_or_default();
    let files = StoreFiles {
        dir: dir.to_path_buf(),
        vfs: Arc::clone(&options.vfs),
        store_id: recovered.store_id,
        hash_seed,
        next_file_number: AtomicU64::new(next_file_number),
        tables: first_tables(dir, &options, &memory.blocks, &memory.shares, hash_seed),
        deletion_queue: Arc::new(queue),
        archive,
        manifest: Mutex::default(),
        log_ends: recovered.state.log_ends.clone(),
    };
    let view = first_view(recovered, options.writes.memtable, &memory.arenas);
    let options = CurrentOptions::new(options);
    let statistics = Statistics::new();
    let (clock, ttl) = (Arc::clone(&options.load().vfs), options.load().writes.ttl);
    let marks = recovered.state.version.times();
    let last_seqno = recovered.state.last_seqno;
    let active = Arc::clone(&view.active);
    let leader = Leader::new(active, last_seqno, &options, &statistics.counters);
    let background = Background::default();
    background.limiter.set_limit(options.load().background_limit());
    Engine {
        recovery,
        own,
        options,
        view: CurrentView::new(view),
        access,
        files,
        memory,
        statistics,
        writes: WritePath::new(leader),
        snapshots: Snapshots::new(Expiry::new(clock, marks, ttl)),
        background,
        backlog: BacklogCounts::new(),
    }
}
