//! The log and the vote: openraft's `RaftLogStorage`.
//!
//! * An append writes its entries, which can be read at once, and has them synced by another
//!   thread; openraft is notified after that.
//! * A vote is durable when the call returns.
//! * Truncations, purges and the committed log id are not synced. All of them are writes of one
//!   store, and after a power failure a store has a prefix of its writes: whatever is durable later
//!   comes with them, and without it they need not have been. A purge is written after the state
//!   that no longer needs the entries ([`Purges`]).

use std::fmt::Debug;
use std::io;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use openraft::storage::{LogFlushed, RaftLogStorage};
use openraft::{
    LogId, LogState, OptionalSend, RaftLogId, RaftLogReader, RaftTypeConfig, StorageError,
    StorageIOError, Vote,
};
use serde::Serialize;
use trommel::{Db, Keyspace, WriteBatch, WriteOptions};

use crate::blocking::{blocking, sync_then};
use crate::error::{Error, Result};
use crate::lease::Lease;
use crate::purges::Purges;
use crate::records::{self, COMMITTED, ENTRY, VOTE, key_of};

/// Bytes of encoded entries after which a read for replication ends.
const REPLICATED_BYTES: usize = 4 << 20;

/// The log and the vote of a Raft node. Clones share it.
#[derive(Debug, Clone)]
pub struct LogStore<C: RaftTypeConfig> {
    log: Keyspace,
    meta: Keyspace,
    purges: Arc<Purges<C>>,
    _lease: Lease,
    /// Last field: it may close the store.
    db: Db,
}

impl<C: RaftTypeConfig> LogStore<C> {
    pub(crate) fn open(db: &Db, name: &str, lease: Lease, purges: Arc<Purges<C>>) -> Result<Self> {
        let (log, meta) = (records::log_keyspace(db, name)?, records::meta_keyspace(db, name)?);
        Ok(Self { log, meta, purges, _lease: lease, db: db.clone() })
    }

    /// The entries of `range`, as many as are there; at least one of them, and after that none
    /// beyond `limit` encoded bytes.
    fn entries(&self, range: impl RangeBounds<u64>, limit: usize) -> Result<Vec<C::Entry>> {
        let first = match range.start_bound() {
            Bound::Included(index) => *index,
            Bound::Excluded(index) => index + 1,
            Bound::Unbounded => 0,
        };
        let first = Bound::Included(key_of(first.max(self.purges.first_kept())));
        let end = range.end_bound().map(|index| key_of(*index));
        let (mut entries, mut bytes) = (Vec::new(), 0);
        for found in self.log.range((first, end)) {
            let (_, value) = found?;
            bytes += value.len();
            if bytes > limit && !entries.is_empty() {
                break;
            }
            entries.push(records::decode(ENTRY, &value)?);
        }
        Ok(entries)
    }

    fn state(&self) -> Result<LogState<C>> {
        let last_purged_log_id = self.purges.last()?;
        let last: Option<C::Entry> = match self.log.iter().next_back() {
            Some(found) => Some(records::decode(ENTRY, &found?.1)?),
            None => None,
        };
        let last = last.map(|entry| entry.get_log_id().clone());
        let last_log_id = last.max(last_purged_log_id.clone());
        Ok(LogState { last_purged_log_id, last_log_id })
    }

    /// Writes entries, without a sync.
    fn write_entries(&self, entries: impl IntoIterator<Item = C::Entry>) -> Result<()> {
        let mut batch = WriteBatch::new();
        let mut log = batch.keyspace(&self.log);
        for entry in entries {
            log.put(key_of(entry.get_log_id().index), records::encode(ENTRY, &entry)?);
        }
        self.db.write_with(batch, WriteOptions::os())?;
        Ok(())
    }

    fn write_meta(&self, key: &'static str, value: &impl Serialize) -> Result<()> {
        self.meta.put_with(key, records::encode(key, value)?, WriteOptions::os())?;
        Ok(())
    }

    async fn write_vote(&self, vote: &Vote<C::NodeId>) -> Result<()> {
        self.write_meta(VOTE, vote)?;
        let db = self.db.clone();
        blocking(move || Ok(db.sync()?)).await
    }
}

fn reading_logs<C: RaftTypeConfig>(error: &Error) -> StorageError<C::NodeId> {
    StorageIOError::read_logs(error.any()).into()
}

fn writing_logs<C: RaftTypeConfig>(error: &Error) -> StorageError<C::NodeId> {
    StorageIOError::write_logs(error.any()).into()
}

impl<C: RaftTypeConfig> RaftLogReader<C> for LogStore<C> {
    async fn try_get_log_entries<R: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: R,
    ) -> Result<Vec<C::Entry>, StorageError<C::NodeId>> {
        self.entries(range, usize::MAX).map_err(|error| reading_logs::<C>(&error))
    }

    async fn limited_get_log_entries(
        &mut self,
        start: u64,
        end: u64,
    ) -> Result<Vec<C::Entry>, StorageError<C::NodeId>> {
        self.entries(start..end, REPLICATED_BYTES).map_err(|error| reading_logs::<C>(&error))
    }
}

impl<C: RaftTypeConfig> RaftLogStorage<C> for LogStore<C> {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> Result<LogState<C>, StorageError<C::NodeId>> {
        self.state().map_err(|error| reading_logs::<C>(&error))
    }

    async fn get_log_reader(&mut self) -> Self::LogReader {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote<C::NodeId>) -> Result<(), StorageError<C::NodeId>> {
        let saved = self.write_vote(vote).await;
        saved.map_err(|error| StorageIOError::write_vote(error.any()).into())
    }

    async fn read_vote(&mut self) -> Result<Option<Vote<C::NodeId>>, StorageError<C::NodeId>> {
        let vote = records::read(&self.meta, VOTE);
        vote.map_err(|error| StorageIOError::read_vote(error.any()).into())
    }

    async fn save_committed(
        &mut self,
        committed: Option<LogId<C::NodeId>>,
    ) -> Result<(), StorageError<C::NodeId>> {
        self.write_meta(COMMITTED, &committed).map_err(|error| writing_logs::<C>(&error))
    }

    async fn read_committed(
        &mut self,
    ) -> Result<Option<LogId<C::NodeId>>, StorageError<C::NodeId>> {
        let committed = records::read(&self.meta, COMMITTED).map(Option::flatten);
        committed.map_err(|error| reading_logs::<C>(&error))
    }

    async fn append<I>(
        &mut self,
        entries: I,
        callback: LogFlushed<C>,
    ) -> Result<(), StorageError<C::NodeId>>
    where
        I: IntoIterator<Item = C::Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        self.purges.closed().await.map_err(|error| writing_logs::<C>(&error))?;
        self.write_entries(entries).map_err(|error| writing_logs::<C>(&error))?;
        sync_then(&self.db, |synced| callback.log_io_completed(synced.map_err(io::Error::other)));
        Ok(())
    }

    async fn truncate(&mut self, log_id: LogId<C::NodeId>) -> Result<(), StorageError<C::NodeId>> {
        let from = key_of(log_id.index);
        let truncated = self.log.delete_range_with(from.., WriteOptions::os());
        truncated.map(|_| ()).map_err(|error| writing_logs::<C>(&error.into()))
    }

    async fn purge(&mut self, log_id: LogId<C::NodeId>) -> Result<(), StorageError<C::NodeId>> {
        self.purges.purge(log_id).map_err(|error| writing_logs::<C>(&error))
    }
}
