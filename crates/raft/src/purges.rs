//! Purges of the log, none of which is ahead of the state machine in the store.
//!
//! When openraft has received a snapshot, it queues the installation and purges the entries that
//! the snapshot covers at once. A crash between the two must find the entries that the old state
//! lacks.
//!
//! 1. A purge up to an applied entry is written at once.
//! 2. Any other one is *held*: openraft finds it done, the store has all entries. It is written
//!    when the state machine has got there.
//! 3. An append that would leave a hole in the store, because the held purge goes beyond the end of
//!    the log, waits for that as well: what is acknowledged must have no hole before it.
//!
//! After a crash, the log is as it was before a held purge. If the snapshot is installed, openraft
//! purges once more when it starts.

use openraft::{LogId, LogIdOptionExt, RaftTypeConfig};
use tokio::sync::watch;
use trommel::{Db, Keyspace, WriteBatch, WriteOptions};

use crate::error::{Error, Result};
use crate::records::{self, APPLIED, Applied, PURGED, key_of};

/// The purges of a log, which its store and the state machine share.
#[derive(Debug)]
pub(crate) struct Purges<C: RaftTypeConfig> {
    log: Keyspace,
    meta: Keyspace,
    progress: watch::Sender<Progress<C>>,
    /// Last field: it may close the store.
    db: Db,
}

#[derive(Debug)]
struct Progress<C: RaftTypeConfig> {
    /// The last entry that the state machine has applied.
    applied: Option<LogId<C::NodeId>>,
    /// The purge that is held.
    held: Option<LogId<C::NodeId>>,
    /// Nothing will be applied any more.
    is_over: bool,
}

impl<C: RaftTypeConfig> Purges<C> {
    pub(crate) fn open(db: &Db, name: &str) -> Result<Self> {
        let (log, meta) = (records::log_keyspace(db, name)?, records::meta_keyspace(db, name)?);
        let applied: Option<Applied<C>> = records::read(&meta, APPLIED)?;
        let applied = applied.and_then(|applied| applied.log_id);
        let progress = watch::Sender::new(Progress { applied, held: None, is_over: false });
        Ok(Self { log, meta, progress, db: db.clone() })
    }

    /// Purges up to this entry, or holds that.
    pub(crate) fn purge(&self, log_id: LogId<C::NodeId>) -> Result<()> {
        self.advance(|progress| progress.held = progress.held.take().max(Some(log_id)))
    }

    /// Notes what is applied in the store, and writes what was held for that.
    pub(crate) fn applied(&self, log_id: Option<LogId<C::NodeId>>) -> Result<()> {
        self.advance(|progress| progress.applied = log_id)
    }

    /// Ends all waits: nothing will be applied any more.
    pub(crate) fn end(&self) {
        self.progress.send_modify(|progress| progress.is_over = true);
    }

    fn advance(&self, change: impl FnOnce(&mut Progress<C>)) -> Result<()> {
        let mut written = Ok(());
        self.progress.send_modify(|progress| {
            change(progress);
            if progress.held <= progress.applied
                && let Some(log_id) = progress.held.take()
            {
                written = self.write(&log_id);
            }
        });
        written
    }

    fn write(&self, log_id: &LogId<C::NodeId>) -> Result<()> {
        let mut batch = WriteBatch::new();
        batch.keyspace(&self.log).delete_range(..=key_of(log_id.index));
        batch.keyspace(&self.meta).put(PURGED, records::encode(PURGED, log_id)?);
        self.db.write_with(batch, WriteOptions::os())?;
        Ok(())
    }

    /// The last entry that was purged, as openraft knows it.
    pub(crate) fn last(&self) -> Result<Option<LogId<C::NodeId>>> {
        let held = self.progress.borrow().held.clone();
        Ok(held.max(records::read(&self.meta, PURGED)?))
    }

    /// The index of the first entry that is not purged by a held purge.
    pub(crate) fn first_kept(&self) -> u64 {
        self.progress.borrow().held.next_index()
    }

    /// Waits until an append leaves no hole.
    pub(crate) async fn closed(&self) -> Result<()> {
        let Some(held) = self.progress.borrow().held.clone() else { return Ok(()) };
        if self.log.contains_key(key_of(held.index))? {
            return Ok(());
        }
        let mut progress = self.progress.subscribe();
        let settled = progress.wait_for(|progress| progress.held.is_none() || progress.is_over);
        match settled.await {
            Ok(progress) if progress.held.is_none() => Ok(()),
            _ => Err(Error::Interrupted),
        }
    }
}
