//! A log and a state machine in memory, as openraft's own `memstore` has them: what openraft itself
//! costs, without a disk.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::io::Cursor;
use std::ops::RangeBounds;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use openraft::storage::{LogFlushed, RaftLogStorage, RaftStateMachine};
use openraft::{
    Entry, EntryPayload, LogId, LogState, OptionalSend, RaftLogReader, RaftSnapshotBuilder,
    Snapshot, SnapshotMeta, StorageError, StoredMembership, Vote,
};
use trommel_raft::{KeyValueRequest, KeyValueResponse};

openraft::declare_raft_types!(
    pub(crate) MemoryConfig:
        D = KeyValueRequest,
        R = KeyValueResponse,
);

type Outcome<T> = Result<T, StorageError<u64>>;

#[derive(Debug, Default)]
struct Log {
    entries: BTreeMap<u64, Entry<MemoryConfig>>,
    vote: Option<Vote<u64>>,
    purged: Option<LogId<u64>>,
}

/// The log. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct MemoryLog(Arc<Mutex<Log>>);

impl MemoryLog {
    fn log(&self) -> MutexGuard<'_, Log> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RaftLogReader<MemoryConfig> for MemoryLog {
    async fn try_get_log_entries<R: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: R,
    ) -> Outcome<Vec<Entry<MemoryConfig>>> {
        Ok(self.log().entries.range(range).map(|(_, entry)| entry.clone()).collect())
    }
}

impl RaftLogStorage<MemoryConfig> for MemoryLog {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> Outcome<LogState<MemoryConfig>> {
        let log = self.log();
        let last = log.entries.last_key_value().map(|(_, entry)| entry.log_id);
        Ok(LogState { last_purged_log_id: log.purged, last_log_id: last.or(log.purged) })
    }

    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote<u64>) -> Outcome<()> {
        self.log().vote = Some(*vote);
        Ok(())
    }

    async fn read_vote(&mut self) -> Outcome<Option<Vote<u64>>> {
        Ok(self.log().vote)
    }

    async fn append<I>(&mut self, entries: I, callback: LogFlushed<MemoryConfig>) -> Outcome<()>
    where
        I: IntoIterator<Item = Entry<MemoryConfig>> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let entries = entries.into_iter().map(|entry| (entry.log_id.index, entry));
        self.log().entries.extend(entries);
        callback.log_io_completed(Ok(()));
        Ok(())
    }

    async fn truncate(&mut self, log_id: LogId<u64>) -> Outcome<()> {
        self.log().entries.split_off(&log_id.index);
        Ok(())
    }

    async fn purge(&mut self, log_id: LogId<u64>) -> Outcome<()> {
        let mut log = self.log();
        log.entries = log.entries.split_off(&(log_id.index + 1));
        log.purged = Some(log_id);
        Ok(())
    }
}

/// The state machine. Its snapshots are never sent, so they are empty.
#[derive(Debug, Clone, Default)]
pub(crate) struct MemoryMachine {
    state: BTreeMap<Vec<u8>, Vec<u8>>,
    applied: Option<LogId<u64>>,
    members: StoredMembership<u64, openraft::BasicNode>,
}

impl RaftStateMachine<MemoryConfig> for MemoryMachine {
    type SnapshotBuilder = Self;

    async fn applied_state(
        &mut self,
    ) -> Outcome<(Option<LogId<u64>>, StoredMembership<u64, openraft::BasicNode>)> {
        Ok((self.applied, self.members.clone()))
    }

    async fn apply<I>(&mut self, entries: I) -> Outcome<Vec<KeyValueResponse>>
    where
        I: IntoIterator<Item = Entry<MemoryConfig>> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let mut responses = Vec::new();
        for Entry { log_id, payload } in entries {
            self.applied = Some(log_id);
            match payload {
                EntryPayload::Normal(KeyValueRequest::Put { key, value }) => {
                    self.state.insert(key, value);
                }
                EntryPayload::Membership(members) => {
                    self.members = StoredMembership::new(Some(log_id), members);
                }
                _ => {}
            }
            responses.push(KeyValueResponse::default());
        }
        Ok(responses)
    }

    async fn get_snapshot_builder(&mut self) -> Self {
        self.clone()
    }

    async fn begin_receiving_snapshot(&mut self) -> Outcome<Box<Cursor<Vec<u8>>>> {
        Ok(Box::default())
    }

    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMeta<u64, openraft::BasicNode>,
        _snapshot: Box<Cursor<Vec<u8>>>,
    ) -> Outcome<()> {
        self.applied = meta.last_log_id;
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> Outcome<Option<Snapshot<MemoryConfig>>> {
        Ok(None)
    }
}

impl RaftSnapshotBuilder<MemoryConfig> for MemoryMachine {
    async fn build_snapshot(&mut self) -> Outcome<Snapshot<MemoryConfig>> {
        let meta = SnapshotMeta {
            last_log_id: self.applied,
            last_membership: self.members.clone(),
            snapshot_id: "memory".to_owned(),
        };
        Ok(Snapshot { meta, snapshot: Box::default() })
    }
}
