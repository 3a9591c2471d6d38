//! Loading sorted entries into tables, past the log, the memtable and the levels above. The entries
//! come from an iterator, or from files ([`ingest`](crate::ingest)).
//!
//! 1. A sequence number is reserved far beyond those that writes take meanwhile. All entries get
//!    this number, and are written to tables at once, before anything refers to the tables.
//! 2. Compactions are paused, so that the shape of the tree stays, and the memtables flushed.
//! 3. While all writers wait, the writes made meanwhile are flushed, too, and a new log is begun,
//!    so that every record that a recovery may replay is newer than the tables.
//! 4. One edit adds all tables, each to the deepest level such that nothing in that level or above
//!    overlaps it, or else to level 0. Readers get the new version together with a new memtable: a
//!    reader that still has the old view never sees a later write without the load.
//! 5. The reserved number is published. Snapshots have lower ones.
//!
//! A crash before the edit leaves tables that no manifest names, which the next open removes.

use std::sync::Arc;

use trommel_base::{EntryKind, EntryRef, MAX_SEQNO, SeqNo};

use crate::ascending::AscendingKeys;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::keyspaces::KeyspaceState;
use crate::levels::LEVELS;
use crate::limiter::AwaitedWork;
use crate::manifest::edit::VersionEdit;
use crate::output::Outputs;
use crate::purpose::{MemtableShare, Purpose};
use crate::space::{Space, id_of, is_marked};
use crate::sync::{MutexGuard, lock};
use crate::user_filters::FilterReason;
use crate::version::{TableMeta, Version};
use crate::write_queue::Leader;

/// Sequence numbers reserved for writes made during a load: enough for four hours at a million a
/// second. 2^22 loads use up all numbers.
const LEFT_TO_WRITES: SeqNo = 1 << 34;

/// What [`Db::load_sorted`](crate::Db::load_sorted) or [`Db::ingest`](crate::Db::ingest) has done.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct LoadReport {
    /// Entries loaded.
    pub entries: u64,
    /// Tables written.
    pub tables: u64,
    /// Bytes of these tables.
    pub bytes: u64,
    /// The uppermost level of the tree that a table was added to. Each table joins the deepest
    /// level such that no table in that level or above overlaps it, or else level 0. 0 if there was
    /// nothing to load.
    pub level: usize,
    /// The sequence number of all entries; the newest visible one if there were none.
    pub seqno: SeqNo,
}

/// A load that has begun. No other load runs meanwhile.
#[derive(Debug)]
pub(crate) struct SortedLoad<'a> {
    engine: &'a Engine,
    /// The sequence number of all entries.
    seqno: SeqNo,
    /// How the keys of the default keyspace are stored in the tables.
    pub(crate) default_space: Space,
    _one_at_a_time: MutexGuard<'a, ()>,
}

/// The tables of a load while they are written. They are removed unless they are installed.
pub(crate) struct SortedTables<'a> {
    engine: &'a Engine,
    seqno: SeqNo,
    /// A table ends once it has this many bytes.
    table_bytes: u64,
    keys: AscendingKeys,
    outputs: Outputs<'a>,
}

impl Engine {
    /// Loads entries in ascending order of their keys, atomically and durably.
    pub(crate) fn load_sorted<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        entries: impl IntoIterator<Item = Result<(K, V)>>,
    ) -> Result<LoadReport> {
        let load = SortedLoad::begin(self)?;
        let space = load.default_space;
        let mut entries = entries.into_iter().peekable();
        if entries.peek().is_none() {
            return Ok(load.of_nothing());
        }
        let mut tables = load.begin_tables(entries.size_hint().0 as u64);
        for entry in entries {
            let (key, value) = entry?;
            tables.add(&space.key(key.as_ref()), value.as_ref())?;
        }
        load.install(tables, &[])
    }
}

impl<'a> SortedLoad<'a> {
    /// Begins a load, after any running one has ended.
    pub(crate) fn begin(engine: &'a Engine) -> Result<Self> {
        engine.access.check_writable()?;
        let one_at_a_time = lock(&engine.writes.loading);
        let default_space = engine.options.keyspaces.default_now();
        let seqno = engine.exclusively(|leader| Ok(leader.last_seqno + LEFT_TO_WRITES))?;
        if seqno > MAX_SEQNO {
            return Err(Error::internal("the store has used all of its 2^56 sequence numbers"));
        }
        Ok(Self { engine, seqno, default_space, _one_at_a_time: one_at_a_time })
    }

    /// The report if there is nothing to load.
    pub(crate) fn of_nothing(&self) -> LoadReport {
        LoadReport { seqno: self.engine.snapshots.visible(), ..LoadReport::default() }
    }

    /// The level that a table of these keys would be added to now.
    pub(crate) fn level_of(&self, smallest: &[u8], largest: &[u8]) -> usize {
        level_below(&self.engine.version(), (smallest, largest))
    }

    /// Begins the tables of at least this many keys.
    pub(crate) fn begin_tables(&self, keys: u64) -> SortedTables<'a> {
        let engine = self.engine;
        SortedTables {
            engine,
            seqno: self.seqno,
            table_bytes: engine.options.load().compaction.table_bytes,
            keys: AscendingKeys::default(),
            outputs: Outputs::new(engine, LEVELS - 1, engine.version(), purpose(keys)),
        }
    }

    /// Adds the tables to the store, durably. `keyspaces` are those of the entries except the
    /// default one, each once.
    pub(crate) fn install(
        self,
        tables: SortedTables<'a>,
        keyspaces: &[&KeyspaceState],
    ) -> Result<LoadReport> {
        let mut outputs = tables.outputs;
        let tables = outputs.finish()?;
        let level = self.engine.install_sorted(&tables, &self, keyspaces)?;
        outputs.keep();
        Ok(LoadReport {
            entries: tables.iter().map(|table| table.entries).sum(),
            tables: tables.len() as u64,
            bytes: tables.iter().map(|table| table.file_bytes).sum(),
            level,
            seqno: self.seqno,
        })
    }
}

impl SortedTables<'_> {
    /// Ends the open table: the next entry begins another one.
    pub(crate) fn end_table(&mut self) -> Result<()> {
        self.outputs.close_table()
    }

    /// Adds an entry, whose physical key is above those before it.
    pub(crate) fn add(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.keys.check(key, value)?;
        if self.outputs.open_bytes() >= self.table_bytes {
            self.outputs.close_table()?;
        }
        // Once the store is closed, its directory may be another owner's.
        let creating = self.may_begin_table(key).then(|| lock(&self.engine.writes.creating));
        if creating.is_some() {
            self.engine.access.check_writable()?;
        }
        if !self.outputs.has_open_table() {
            // The last key is not known yet. Here the level only decides about filters.
            let level = level_below(&self.engine.version(), (key, key));
            self.outputs.set_level(level);
        }
        self.outputs.add(EntryRef { key, seqno: self.seqno, kind: EntryKind::Put, value })?;
        drop(creating);
        self.keys.accept(key);
        Ok(())
    }

    /// Whether `key` may begin a table: the open one may have other options if it ends with a key
    /// of another keyspace.
    fn may_begin_table(&self, key: &[u8]) -> bool {
        !self.outputs.has_open_table() || self.outputs.last_key().and_then(id_of) != id_of(key)
    }
}

impl Engine {
    /// Adds the tables, which are durable, to the store. Returns their uppermost level.
    fn install_sorted(
        &self,
        tables: &[TableMeta],
        load: &SortedLoad<'_>,
        keyspaces: &[&KeyspaceState],
    ) -> Result<usize> {
        self.pause_compaction()?;
        let _resumed = ResumedOnDrop(self);
        // Flushes most of the memtables while writers continue.
        self.flush()?;
        let awaited = self.background.limiter.awaits(AwaitedWork::All);
        // No keyspace is dropped between this check and the end.
        let _entered = self.enter_all(keyspaces.iter().copied())?;
        let (_mapping, now) = self.options.keyspaces.default_for_write();
        let is_moved = || tables.last().is_some_and(|table| is_marked(&table.largest));
        if now != load.default_space && is_moved() {
            let what = "the first named keyspace was created during the load, and keys that begin \
                        with FF FF FF FF are stored differently now; load again";
            return Err(Error::option(what));
        }
        self.exclusively(|leader| {
            self.rotate(leader)?;
            self.wait_until(&awaited, |view| view.frozen.is_empty())?;
            if leader.last_seqno >= load.seqno {
                let what = "too many writes were made during the load; load fewer entries at once";
                return Err(Error::option(what));
            }
            self.install_alone(leader, tables, load.seqno)
        })
    }

    /// As `install_sorted`, while no writer is at work and all memtables are empty.
    fn install_alone(
        &self,
        leader: &mut Leader,
        tables: &[TableMeta],
        seqno: SeqNo,
    ) -> Result<usize> {
        let version = self.version();
        let added = tables.iter().map(|table| {
            let level = level_below(&version, (&table.smallest, &table.largest));
            (level as u8, table.clone())
        });
        let added: Vec<_> = added.collect();
        let uppermost = added.iter().map(|(level, _)| usize::from(*level)).min().unwrap_or(0);
        let old_log = leader.active.log_number;
        let replaced = Arc::clone(&leader.active);
        let active = self.begin_empty(leader)?;
        if let Some(until) = self.snapshots.expiry.next_mark() {
            // Without a mark of their own, the entries would expire with earlier ones.
            self.snapshots.expiry.add(seqno, until);
        }
        let has_log = leader.log.is_some();
        let edit = VersionEdit {
            added,
            last_seqno: Some(seqno),
            log_number: has_log.then_some(active.log_number),
            ..VersionEdit::default()
        };
        self.snapshots.announce_load(seqno);
        self.install_beside(edit, None, |view| (Arc::clone(&active), view.frozen.clone()))
            .map_err(|error| self.poison(error))?;
        leader.last_seqno = seqno;
        self.publish(seqno);
        if has_log {
            self.remove_rotated(old_log);
            self.remove_earlier_logs(&replaced);
        }
        Ok(uppermost)
    }
}

/// The deepest level that a table of these keys can be added to, so that it comes before all tables
/// that it overlaps.
fn level_below(version: &Version, (smallest, largest): (&[u8], &[u8])) -> usize {
    let is_free = |level: &usize| match &version.levels[*level][..] {
        runs if *level == 0 => !runs.iter().any(|table| table.overlaps(smallest, largest)),
        run => {
            let at = run.partition_point(|table| *table.largest < *smallest);
            run.get(at).is_none_or(|table| *table.smallest > *largest)
        }
    };
    (0..LEVELS).take_while(is_free).last().unwrap_or(0)
}

/// The purpose of tables of at least this many keys.
fn purpose(keys: u64) -> Purpose {
    let keys = keys.max(1);
    Purpose {
        reason: FilterReason::Load,
        keys,
        deletions: 0,
        own: MemtableShare::default(),
        expected_keys: keys,
        inputs: Vec::new(),
        span: None,
    }
}

/// Resumes compactions on drop.
struct ResumedOnDrop<'a>(&'a Engine);

impl Drop for ResumedOnDrop<'_> {
    fn drop(&mut self) {
        self.0.resume_compaction();
    }
}
