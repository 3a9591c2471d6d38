//! The snapshots of a state machine: one file each, of which the newest is kept.
//!
//! A snapshot is a table file of the state's keyspace, as of one moment ([`TableWriter`]). Its
//! checksums cover every byte, and a node that receives it ingests it, so the state goes through
//! neither the log nor a memtable. A checkpoint of the store would hold the Raft log and all other
//! keyspaces as well, in many files that would have to be packed for the transfer, and its state
//! would have to be copied out of a second store.
//!
//! Order of a new snapshot: the file is durable, the record that names it is durable, the previous
//! file is removed. Files that no record names are removed when the node is opened.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use openraft::{RaftTypeConfig, Snapshot, SnapshotMeta};
use trommel::vfs::Vfs;
use trommel::{Db, Keyspace, KeyspaceSnapshot, TableWriter, WriteBatch, WriteOptions};

use crate::error::{Error, Result};
use crate::lease::Lease;
use crate::records::{self, Applied, CurrentSnapshot, SNAPSHOT};
use crate::snapshot_file::{ReceivedFile, SnapshotFile};

/// The directory of a node's snapshots.
#[derive(Debug)]
pub(crate) struct Snapshots<C: RaftTypeConfig> {
    dir: PathBuf,
    meta: Keyspace,
    current: Mutex<Option<CurrentSnapshot<C>>>,
    next_file: AtomicU64,
    lease: Lease,
    /// Last field: it may close the store.
    db: Db,
}

/// The number of a snapshot's file.
fn number_of(name: &OsStr) -> Option<u64> {
    name.to_str()?.strip_suffix(".table")?.strip_prefix("snapshot-")?.parse().ok()
}

impl<C: RaftTypeConfig<SnapshotData = SnapshotFile>> Snapshots<C> {
    pub(crate) fn open(db: &Db, name: &str, lease: Lease, dir: &Path) -> Result<Self> {
        let meta = records::meta_keyspace(db, name)?;
        let current: Option<CurrentSnapshot<C>> = records::read(&meta, SNAPSHOT)?;
        let next_file = current.as_ref().map_or(0, |current| current.file + 1);
        let found = files_in(&**db.vfs(), dir).map_err(Error::Snapshot)?;
        let is_there = |current: &CurrentSnapshot<C>| found.contains(&current.file);
        // A file that someone has removed is no reason to refuse the node: openraft builds another.
        let current = current.filter(is_there);
        let snapshots = Self {
            dir: dir.to_path_buf(),
            meta,
            current: Mutex::new(current.clone()),
            next_file: next_file.into(),
            lease,
            db: db.clone(),
        };
        let kept = current.map(|current| current.file);
        for number in found.into_iter().filter(|number| Some(*number) != kept) {
            snapshots.vfs().remove(&snapshots.path(number)).map_err(Error::Snapshot)?;
        }
        Ok(snapshots)
    }

    fn vfs(&self) -> &Arc<dyn Vfs> {
        self.db.vfs()
    }

    fn path(&self, number: u64) -> PathBuf {
        self.dir.join(format!("snapshot-{number}.table"))
    }

    fn current(&self) -> MutexGuard<'_, Option<CurrentSnapshot<C>>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a file to be received.
    pub(crate) fn receive(&self) -> io::Result<ReceivedFile> {
        let number = self.next_file.fetch_add(1, Relaxed);
        ReceivedFile::create(self.vfs(), self.path(number), number, Arc::clone(&self.lease))
    }

    /// The newest snapshot.
    pub(crate) fn newest(&self) -> Result<Option<Snapshot<C>>> {
        let current = self.current();
        let Some(CurrentSnapshot { meta, file }) = &*current else { return Ok(None) };
        let file = SnapshotFile::open(&**self.vfs(), &self.path(*file)).map_err(Error::Snapshot)?;
        Ok(Some(Snapshot { meta: meta.clone(), snapshot: Box::new(file) }))
    }

    /// Writes a snapshot of `state`, as of which `applied` holds.
    pub(crate) fn build(
        &self,
        state: &KeyspaceSnapshot,
        applied: &Applied<C>,
    ) -> Result<Snapshot<C>> {
        let number = self.next_file.fetch_add(1, Relaxed);
        let path = self.path(number);
        let mut writer = TableWriter::create(&path, &self.db.options())?;
        for entry in state.iter() {
            let (key, value) = entry?;
            writer.put(&key, &value)?;
        }
        writer.finish()?;
        let meta = SnapshotMeta {
            last_log_id: applied.log_id.clone(),
            last_membership: applied.membership.clone(),
            // No node has built another one of this name: a number that was used is durable.
            snapshot_id: format!("{:016x}-{number}", self.db.id()),
        };
        let file = SnapshotFile::open(&**self.vfs(), &path).map_err(Error::Snapshot)?;
        self.adopt(CurrentSnapshot { meta: meta.clone(), file: number })?;
        Ok(Snapshot { meta, snapshot: Box::new(file) })
    }

    /// Keeps the newer one of this snapshot and the current one.
    fn adopt(&self, built: CurrentSnapshot<C>) -> Result<()> {
        let mut current = self.current();
        let is_newer =
            |current: &CurrentSnapshot<C>| current.meta.last_log_id > built.meta.last_log_id;
        if current.as_ref().is_some_and(is_newer) {
            // One was received while this one was built.
            self.remove(built.file);
            return Ok(());
        }
        self.replace(&mut current, built, WriteBatch::new())
    }

    /// Makes `snapshot` the current one, in one synced write with what `batch` holds, and removes
    /// the previous one.
    fn replace(
        &self,
        current: &mut Option<CurrentSnapshot<C>>,
        snapshot: CurrentSnapshot<C>,
        mut batch: WriteBatch,
    ) -> Result<()> {
        batch.keyspace(&self.meta).put(SNAPSHOT, records::encode(SNAPSHOT, &snapshot)?);
        self.db.write_with(batch, WriteOptions::sync())?;
        let previous = current.replace(snapshot);
        previous.into_iter().for_each(|previous| self.remove(previous.file));
        Ok(())
    }

    /// Removes a file that no record names. The next open does it otherwise.
    fn remove(&self, number: u64) {
        let _ = self.vfs().remove(&self.path(number));
    }

    /// Makes a received snapshot the newest one, in one synced write with what `batch` holds.
    pub(crate) fn install(
        &self,
        meta: &SnapshotMeta<C::NodeId, C::Node>,
        file: ReceivedFile,
        batch: WriteBatch,
    ) -> Result<()> {
        let installed = CurrentSnapshot { meta: meta.clone(), file: file.number() };
        self.replace(&mut self.current(), installed, batch)?;
        file.keep();
        Ok(())
    }
}

/// The numbers of the files in the directory.
fn files_in(vfs: &dyn Vfs, dir: &Path) -> io::Result<Vec<u64>> {
    Ok(vfs.list(dir)?.iter().filter_map(|entry| number_of(&entry.name)).collect())
}
