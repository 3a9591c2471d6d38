//! What fails is an error for openraft, which says what it was doing and why it failed.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use openraft::storage::{RaftLogStorage, RaftLogStorageExt, RaftStateMachine};
use openraft::{Entry, EntryPayload, RaftLogReader, RaftSnapshotBuilder, Vote};
use tokio::io::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt};
use trommel::vfs::Vfs;
use trommel::{Db, KeyspaceOptions, KeyspaceTransaction, Options};
use trommel_raft::{Application, KeyValue, KeyValueConfig, KeyValueRequest, KeyValueResponse};
use trommel_sim::{Failure, Fault, MemoryVfs, OpKind, SimDisk};

use crate::node::{Node, log_id, open, put, run};

#[test]
fn a_sync_that_fails_is_an_error_of_the_append() {
    run(async {
        let disk = SimDisk::new();
        let mut node = open(disk.clone()).unwrap();
        disk.inject(Fault::new(Failure::Io).on(OpKind::Sync).named(".log"));
        let entry = put(log_id(1, 1), "key", "value");
        let error = node.log.blocking_append([entry]).await.unwrap_err().to_string();
        assert!(error.contains("Write Logs") && error.contains(".log"), "{error}");
        // Nor is anything written later.
        let error = node.log.save_vote(&Vote::new(1, 0)).await.unwrap_err().to_string();
        assert!(error.contains("Write Vote") && error.contains(".log"), "{error}");
    });
}

#[test]
fn a_vote_that_cannot_be_synced_is_an_error() {
    run(async {
        let disk = SimDisk::new();
        let mut node = open(disk.clone()).unwrap();
        disk.inject(Fault::new(Failure::Io).on(OpKind::Sync).named(".log"));
        let error = node.log.save_vote(&Vote::new(1, 0)).await.unwrap_err().to_string();
        assert!(error.contains("Write Vote") && error.contains(".log"), "{error}");
    });
}

#[test]
fn a_request_that_cannot_be_applied_is_an_error_that_names_its_entry() {
    run(async {
        let disk = SimDisk::new();
        let mut node = open(disk.clone()).unwrap();
        disk.inject(Fault::new(Failure::NoSpace).on(OpKind::Append).lasting());
        let entry = put(log_id(3, 1), "key", "value");
        let error = node.machine.apply([entry]).await.unwrap_err().to_string();
        assert!(error.contains("Apply") && error.contains("index: 1"), "{error}");
        assert_eq!(node.machine.applied_state().await.unwrap().0, None);
    });
}

#[test]
fn a_snapshot_that_cannot_be_written_is_an_error_and_leaves_no_file() {
    run(async {
        let disk = SimDisk::new();
        let mut node = open(disk.clone()).unwrap();
        disk.inject(Fault::new(Failure::Io).on(OpKind::Sync).named("snapshot-0"));
        let mut builder = node.machine.get_snapshot_builder().await;
        let error = builder.build_snapshot().await.unwrap_err().to_string();
        assert!(error.contains("Write Snapshot") && error.contains("snapshot-0"), "{error}");
        let left = disk.list("snapshots".as_ref()).unwrap();
        assert!(left.iter().all(|entry| entry.name == "LOCK"), "{left:?}");
    });
}

/// openraft's main task waits in the append while its worker installs a snapshot, which may fail.
#[test]
fn an_append_does_not_wait_for_a_state_machine_that_is_gone() {
    run(async {
        let Node { mut log, machine, .. } = open(MemoryVfs::new()).unwrap();
        log.purge(log_id(1, 5)).await.unwrap();
        let append = log.blocking_append([put(log_id(1, 6), "key", "value")]);
        let (appended, ()) = tokio::join!(append, async { drop(machine) });
        let error = appended.unwrap_err().to_string();
        assert!(error.contains("Write Logs") && error.contains("state machine"), "{error}");
        assert_eq!(log.get_log_state().await.unwrap().last_log_id, Some(log_id(1, 5)));
    });
}

#[test]
fn what_other_types_have_written_is_an_error() {
    run(async {
        let mut node = open(MemoryVfs::new()).unwrap();
        let log = node.db.keyspace("node.log", KeyspaceOptions::new()).unwrap();
        log.put([0, 0, 0, 0, 0, 0, 0, 1], b"\xc1").unwrap();
        let error = node.log.try_get_log_entries(..).await.unwrap_err().to_string();
        assert!(error.contains("Read Logs") && error.contains("a log entry"), "{error}");
    });
}

/// A write at an offset that was received already is the repetition of a chunk whose reply was
/// lost; one at the start begins anew. A file never gets a hole.
#[test]
fn a_snapshot_is_received_without_a_hole() {
    run(async {
        let mut node = open(MemoryVfs::new()).unwrap();
        let mut file = node.machine.begin_receiving_snapshot().await.unwrap();
        file.write_all(b"abc").await.unwrap();
        for (at, chunk, bytes) in [(1, &b"bc"[..], 3), (1, b"bcde", 5), (5, b"f", 6), (0, b"ab", 2)]
        {
            file.seek(std::io::SeekFrom::Start(at)).await.unwrap();
            file.write_all(chunk).await.unwrap();
            assert_eq!(file.seek(std::io::SeekFrom::End(0)).await.unwrap(), bytes);
        }
        file.seek(std::io::SeekFrom::Start(3)).await.unwrap();
        file.write_all(b"x").await.unwrap_err();
        file.read_to_end(&mut Vec::new()).await.unwrap_err();
    });
}

/// A request that every node would fail to apply must not stop the cluster.
#[test]
fn a_key_that_is_too_long_is_refused_by_a_response() {
    let key = vec![b'k'; trommel::MAX_KEY_BYTES];
    let requests = [
        KeyValueRequest::Put { key: key.clone(), value: Vec::new() },
        KeyValueRequest::Delete { key: key.clone() },
        KeyValueRequest::CompareAndSet { key, expected: None, value: Some(Vec::new()) },
    ];
    run(async {
        let mut node = open(MemoryVfs::new()).unwrap();
        for (index, request) in (1..).zip(requests) {
            let id = log_id(1, index);
            let entry = Entry { log_id: id, payload: EntryPayload::Normal(request) };
            let responses = node.machine.apply([entry]).await.unwrap();
            assert!(!responses[0].is_applied);
            let refusal = responses[0].refusal.as_deref().unwrap_or_default();
            assert!(refusal.contains("too long"), "{refusal}");
            assert_eq!(node.machine.applied_state().await.unwrap().0, Some(id));
        }
    });
}

/// Applies requests, and notes the states of the store that they saw.
struct Noting {
    db: Db,
    seen: Arc<Mutex<BTreeSet<u64>>>,
}

impl Application<KeyValueConfig> for Noting {
    fn apply(
        &self,
        state: &KeyspaceTransaction<'_>,
        request: KeyValueRequest,
    ) -> trommel::Result<KeyValueResponse> {
        self.seen.lock().unwrap().insert(self.db.snapshot().seqno());
        KeyValue.apply(state, request)
    }
}

/// The writes of a transaction are in memory, and a batch has a limit.
#[test]
fn large_requests_are_not_applied_in_one_transaction() {
    run(async {
        let options = Options::default().vfs(Arc::new(MemoryVfs::new()));
        let db = Db::open("db", options).unwrap();
        let seen = Arc::<Mutex<BTreeSet<u64>>>::default();
        let application = Noting { db: db.clone(), seen: Arc::clone(&seen) };
        let (_log, mut machine) =
            trommel_raft::open::<KeyValueConfig, _>(&db, "node", "snapshots", application).unwrap();
        let value = "v".repeat(1 << 20);
        let entries: Vec<_> = (1..=20).map(|index| put(log_id(1, index), "key", &value)).collect();
        assert_eq!(machine.apply(entries).await.unwrap().len(), 20);
        let transactions = seen.lock().unwrap().len();
        assert!((2..20).contains(&transactions), "{transactions} transactions");
    });
}
