//! What fails is an error for openraft, which says what it was doing and why it failed.

use openraft::storage::{RaftLogStorage, RaftLogStorageExt, RaftStateMachine};
use openraft::{RaftLogReader, RaftSnapshotBuilder, Vote};
use tokio::io::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt};
use trommel::KeyspaceOptions;
use trommel::vfs::Vfs;
use trommel_sim::{Failure, Fault, MemoryVfs, OpKind, SimDisk};

use crate::node::{log_id, open, put, run};

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
        assert!(disk.list("snapshots".as_ref()).unwrap().is_empty());
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

/// openraft may begin a transfer anew, but never writes into the middle of a file.
#[test]
fn a_snapshot_is_received_in_order() {
    run(async {
        let mut node = open(MemoryVfs::new()).unwrap();
        let mut file = node.machine.begin_receiving_snapshot().await.unwrap();
        file.write_all(b"abc").await.unwrap();
        file.seek(std::io::SeekFrom::Start(1)).await.unwrap();
        file.write_all(b"x").await.unwrap_err();
        file.seek(std::io::SeekFrom::Start(3)).await.unwrap();
        file.write_all(b"def").await.unwrap();
        file.read_to_end(&mut Vec::new()).await.unwrap_err();
    });
}
