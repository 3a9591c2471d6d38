//! A node of a key-value cluster on a file system in memory, and entries for it.

use std::future::Future;
use std::sync::Arc;

use openraft::{CommittedLeaderId, Entry, EntryPayload, LogId, Membership};
use trommel::vfs::Vfs;
use trommel::{Db, Options};
use trommel_raft::{KeyValue, KeyValueConfig, KeyValueRequest, LogStore, Result, StateMachine};

/// The parts of a node.
pub(crate) struct Node {
    pub(crate) db: Db,
    pub(crate) log: LogStore<KeyValueConfig>,
    pub(crate) machine: StateMachine<KeyValueConfig, KeyValue>,
}

/// Opens the node, with small memtables and without threads of the store.
pub(crate) fn open(vfs: impl Vfs + 'static) -> Result<Node> {
    let options = Options::default()
        .vfs(Arc::new(vfs))
        .background_threads(0)
        .writes(|w| w.write_buffer_bytes(16 << 10));
    let db = Db::open("db", options)?;
    let (log, machine) = trommel_raft::open(&db, "node", "snapshots", KeyValue)?;
    Ok(Node { db, log, machine })
}

/// Runs a future that needs a runtime.
pub(crate) fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

pub(crate) fn log_id(term: u64, index: u64) -> LogId<u64> {
    LogId::new(CommittedLeaderId::new(term, 0), index)
}

/// An entry that sets `key` to `value`.
pub(crate) fn put(log_id: LogId<u64>, key: &str, value: &str) -> Entry<KeyValueConfig> {
    let (key, value) = (key.as_bytes().to_vec(), value.as_bytes().to_vec());
    Entry { log_id, payload: EntryPayload::Normal(KeyValueRequest::Put { key, value }) }
}

/// An entry that makes these the members.
pub(crate) fn members(log_id: LogId<u64>, members: &[u64]) -> Entry<KeyValueConfig> {
    let members = Membership::new(vec![members.iter().copied().collect()], None);
    Entry { log_id, payload: EntryPayload::Membership(members) }
}
