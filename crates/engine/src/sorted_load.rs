//! Loading sorted entries into tables, past the log, the memtable and the levels above.
//!
//! 1. A sequence number is reserved far beyond those that writes take meanwhile. All entries get
//!    it, and are written to tables at once, before anything refers to these.
//! 2. Compactions are paused, so that the shape of the tree stays, and the memtables flushed.
//! 3. With all writers waiting, what was written meanwhile is flushed too, and a new log begun, so
//!    that every record that a recovery may replay is newer than the tables.
//! 4. One edit adds all tables, to the deepest level above which nothing overlaps them. Readers get
//!    the new version together with a new memtable: one that still has the old view never sees a
//!    later write without the load.
//! 5. The reserved number is published. Snapshots have lower ones.
//!
//! A crash before the edit leaves tables that no manifest names, which the next open removes.

use std::sync::Arc;

use trommel_base::{EntryKind, EntryRef, MAX_KEY_BYTES, MAX_SEQNO, MAX_VALUE_BYTES, SeqNo};

use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::levels::LEVELS;
use crate::limiter::AwaitedWork;
use crate::manifest::edit::VersionEdit;
use crate::output::Outputs;
use crate::purpose::{MemtableShare, Purpose};
use crate::space::{Space, is_marked};
use crate::sync::lock;
use crate::user_filters::FilterReason;
use crate::version::{TableMeta, Version};
use crate::write_queue::Leader;

/// Sequence numbers that are left to the writes of the time that a load takes: four hours at a
/// million a second. 2^22 loads use up all numbers.
const LEFT_TO_WRITES: SeqNo = 1 << 34;

/// What [`Db::load_sorted`](crate::Db::load_sorted) has done.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct LoadReport {
    /// Entries loaded.
    pub entries: u64,
    /// Tables written.
    pub tables: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// The level of the tree that they were added to: below all tables that they do not overlap. 0
    /// if there was nothing to load.
    pub level: usize,
    /// The sequence number of all entries; the newest visible one if there were none.
    pub seqno: SeqNo,
}

impl Engine {
    /// Loads entries in ascending order of their keys, atomically and durably.
    pub(crate) fn load_sorted<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        entries: impl IntoIterator<Item = Result<(K, V)>>,
    ) -> Result<LoadReport> {
        self.access.check_writable()?;
        let _one_at_a_time = lock(&self.writes.loading);
        let space = self.options.keyspaces.default_now();
        let seqno = self.exclusively(|leader| Ok(leader.last_seqno + LEFT_TO_WRITES))?;
        if seqno > MAX_SEQNO {
            return Err(Error::internal("the store has used all of its 2^56 sequence numbers"));
        }
        let mut entries = entries.into_iter().peekable();
        let first = match entries.peek() {
            Some(Ok((key, _))) => space.key(key.as_ref()).into_owned(),
            Some(Err(error)) => return Err(error.clone()),
            None => {
                return Ok(LoadReport { seqno: self.snapshots.visible(), ..LoadReport::default() });
            }
        };
        let version = self.version();
        // The last key is not known yet. The level only decides about filters here.
        let level = level_for(&version, |table| *table.largest >= *first);
        let mut outputs = Outputs::new(self, level, version, purpose(entries.size_hint().0));
        let tables = self.write_sorted(entries, space, seqno, &mut outputs)?;
        let level = self.install_sorted(&tables, space, seqno)?;
        outputs.keep();
        Ok(LoadReport {
            entries: tables.iter().map(|table| table.entries).sum(),
            tables: tables.len() as u64,
            bytes: tables.iter().map(|table| table.file_bytes).sum(),
            level,
            seqno,
        })
    }

    /// Writes the entries to tables.
    fn write_sorted<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        entries: impl Iterator<Item = Result<(K, V)>>,
        space: Space,
        seqno: SeqNo,
        outputs: &mut Outputs<'_>,
    ) -> Result<Vec<TableMeta>> {
        let table_bytes = self.options.load().compaction.table_bytes;
        let mut last: Option<Vec<u8>> = None;
        for (position, entry) in entries.enumerate() {
            let (key, value) = entry?;
            let (key, value) = (space.key(key.as_ref()), value.as_ref());
            let key = &*key;
            if key.len() > MAX_KEY_BYTES {
                return Err(Error::KeyTooLong { bytes: key.len() });
            }
            if value.len() > MAX_VALUE_BYTES {
                return Err(Error::ValueTooLong { bytes: value.len() });
            }
            if last.as_ref().is_some_and(|last| **last >= *key) {
                return Err(Error::Unsorted { position: position as u64 });
            }
            if outputs.open_bytes() >= table_bytes {
                outputs.close_table()?;
            }
            // Once the store is closed, its directory may be another owner's.
            let creating = (!outputs.has_open_table()).then(|| lock(&self.writes.creating));
            if creating.is_some() {
                self.access.check_writable()?;
            }
            outputs.add(EntryRef { key, seqno, kind: EntryKind::Put, value })?;
            drop(creating);
            let last = last.get_or_insert_default();
            last.clear();
            last.extend_from_slice(key);
        }
        outputs.finish()
    }

    /// Adds the tables, which are durable, to the store. Returns their level.
    fn install_sorted(&self, tables: &[TableMeta], space: Space, seqno: SeqNo) -> Result<usize> {
        self.pause_compaction()?;
        let _resumed = ResumedOnDrop(self);
        // Most of what is to be flushed, while writers go on.
        self.flush()?;
        let awaited = self.background.limiter.awaits(AwaitedWork::All);
        let (_mapping, now) = self.options.keyspaces.default_for_write();
        if now != space && tables.last().is_some_and(|table| is_marked(&table.largest)) {
            let what = "load_sorted: the first named keyspace was created meanwhile, and keys that \
                        begin with FF FF FF FF are stored differently now; load again";
            return Err(Error::option(what));
        }
        self.exclusively(|leader| {
            self.rotate(leader)?;
            self.wait_until(&awaited, |view| view.frozen.is_empty())?;
            if leader.last_seqno >= seqno {
                let what = "load_sorted: too many writes were made meanwhile; load fewer entries \
                            at once";
                return Err(Error::option(what));
            }
            self.install_alone(leader, tables, seqno)
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
        let overlaps = |table: &TableMeta| {
            let at = tables.partition_point(|new| *new.largest < *table.smallest);
            tables.get(at).is_some_and(|new| new.overlaps(&table.smallest, &table.largest))
        };
        let level = level_for(&version, overlaps);
        let old_log = leader.active.log_number;
        let replaced = Arc::clone(&leader.active);
        let active = self.begin_empty(leader)?;
        if let Some(until) = self.snapshots.expiry.next_mark() {
            // Entries without a mark of their own would expire with those before them.
            self.snapshots.expiry.add(seqno, until);
        }
        let has_log = leader.log.is_some();
        let edit = VersionEdit {
            added: tables.iter().map(|table| (level as u8, table.clone())).collect(),
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
        Ok(level)
    }
}

/// The deepest level such that no table that `overlaps` is in it or above it; 0 if there is one in
/// level 0, where newer tables come first.
fn level_for(version: &Version, overlaps: impl Fn(&TableMeta) -> bool) -> usize {
    let is_free = |level: &usize| !version.levels[*level].iter().any(|table| overlaps(table));
    (0..LEVELS).take_while(is_free).last().unwrap_or(0)
}

/// The purpose of tables of at least this many keys.
fn purpose(keys: usize) -> Purpose {
    let keys = (keys as u64).max(1);
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
