//! Snapshots: built, sent, installed, and what is left of those that are not.

use std::any::Any;
use std::io::SeekFrom;

use openraft::storage::RaftStateMachine;
use openraft::{RaftSnapshotBuilder, Snapshot};
use tokio::io::{AsyncSeekExt, AsyncWriteExt};
use trommel::vfs::{Access, Vfs};
use trommel::{Error, KeyspaceOptions};
use trommel_raft::{KeyValue, KeyValueConfig};
use trommel_sim::MemoryVfs;

use crate::node::{Node, log_id, members, open, put, run};

/// A node that has applied a change of members and these keys.
async fn applied(vfs: &MemoryVfs, keys: &[&str]) -> Node {
    let mut node = open(vfs.clone()).unwrap();
    node.machine.apply([members(log_id(1, 1), &[1, 2, 3])]).await.unwrap();
    for (nth, key) in keys.iter().enumerate() {
        node.machine.apply([put(log_id(2, 2 + nth as u64), key, "value")]).await.unwrap();
    }
    node
}

async fn built(node: &mut Node) -> Snapshot<KeyValueConfig> {
    node.machine.get_snapshot_builder().await.build_snapshot().await.unwrap()
}

/// Sends a snapshot to another node, with one byte changed if that is wanted.
async fn send(
    mut snapshot: Snapshot<KeyValueConfig>,
    to: &mut Node,
    flip: Option<usize>,
) -> Result<(), String> {
    let mut bytes = Vec::new();
    tokio::io::copy(&mut snapshot.snapshot, &mut bytes).await.unwrap();
    if let Some(at) = flip {
        bytes[at] ^= 1;
    }
    let mut received = to.machine.begin_receiving_snapshot().await.unwrap();
    received.write_all(&bytes).await.unwrap();
    let installed = to.machine.install_snapshot(&snapshot.meta, received).await;
    installed.map_err(|error| error.to_string())
}

fn keys(node: &Node) -> Vec<String> {
    let entries = node.machine.reader().keyspace().iter();
    entries.map(|entry| String::from_utf8(entry.unwrap().0.to_vec()).unwrap()).collect()
}

/// The number of files beside the lock.
fn files(vfs: &MemoryVfs) -> usize {
    let found = vfs.list("snapshots".as_ref()).unwrap();
    found.iter().filter(|entry| entry.name != "LOCK").count()
}

fn states(node: &Node) -> usize {
    let names = node.db.list_keyspaces().unwrap();
    names.iter().filter(|name| name.starts_with("node.state.")).count()
}

#[test]
fn a_snapshot_has_the_state_and_the_members() {
    run(async {
        let mut leader = applied(&MemoryVfs::new(), &["a", "b", "c"]).await;
        let snapshot = built(&mut leader).await;
        assert_eq!(snapshot.meta.last_log_id, Some(log_id(2, 4)));
        let vfs = MemoryVfs::new();
        let mut follower = applied(&vfs, &["b", "z"]).await;
        let before = follower.machine.reader().keyspace();
        let meta = snapshot.meta.clone();
        send(snapshot, &mut follower, None).await.unwrap();
        assert!(matches!(before.get("z"), Err(Error::KeyspaceDropped { .. })));
        drop(before);
        for reopened in [false, true] {
            if reopened {
                drop(follower);
                follower = open(vfs.clone()).unwrap();
            }
            assert_eq!(keys(&follower), ["a", "b", "c"]);
            assert_eq!((files(&vfs), states(&follower)), (1, 1));
            let (last, members) = follower.machine.applied_state().await.unwrap();
            assert_eq!(last, meta.last_log_id);
            assert_eq!(members, meta.last_membership);
            assert_eq!(members.log_id(), &Some(log_id(1, 1)));
            let current = follower.machine.get_current_snapshot().await.unwrap().unwrap();
            assert_eq!(current.meta, meta);
        }
        // It goes on from there.
        follower.machine.apply([put(log_id(3, 5), "d", "value")]).await.unwrap();
        assert_eq!(keys(&follower), ["a", "b", "c", "d"]);
    });
}

/// openraft sends a chunk again if it got no reply, and then the whole snapshot under the same id.
#[test]
fn a_snapshot_is_received_although_replies_were_lost() {
    run(async {
        let mut leader = applied(&MemoryVfs::new(), &["a", "b", "c"]).await;
        let mut snapshot = built(&mut leader).await;
        let mut bytes = Vec::new();
        tokio::io::copy(&mut snapshot.snapshot, &mut bytes).await.unwrap();
        let mut follower = open(MemoryVfs::new()).unwrap();
        let mut received = follower.machine.begin_receiving_snapshot().await.unwrap();
        let chunks: Vec<_> = (0..).step_by(100).zip(bytes.chunks(100)).collect();
        for (at, chunk) in chunks[..2].iter().chain(&chunks) {
            for _ in 0..2 {
                received.seek(SeekFrom::Start(*at)).await.unwrap();
                received.write_all(chunk).await.unwrap();
            }
        }
        follower.machine.install_snapshot(&snapshot.meta, received).await.unwrap();
        assert_eq!(keys(&follower), ["a", "b", "c"]);
    });
}

#[test]
fn keyspaces_of_others_are_left_alone() {
    let vfs = MemoryVfs::new();
    let names = ["node.state.backup", "node.state.7b", "node.state.+7", "node.stated"];
    let node = open(vfs.clone()).unwrap();
    for name in names.iter().chain(&["node.state.7"]) {
        node.db.keyspace(name, KeyspaceOptions::new()).unwrap();
    }
    drop(node);
    let node = open(vfs).unwrap();
    let found = node.db.list_keyspaces().unwrap();
    assert!(names.iter().all(|name| found.iter().any(|found| found == name)), "{found:?}");
    assert!(!found.iter().any(|name| name == "node.state.7"), "what no record names is dropped");
    // Its keyspaces could be those of the states of another node.
    for name in ["node.state", ""] {
        let opened = trommel_raft::open::<KeyValueConfig, _>(&node.db, name, "others", KeyValue);
        let error = opened.unwrap_err().to_string();
        assert!(error.contains(&format!("{name:?}")), "{error}");
    }
}

/// openraft's shutdown does not wait for its tasks, which may still write and remove files.
#[test]
fn a_node_is_opened_again_when_all_its_parts_are_gone() {
    run(async {
        let Node { db, log, mut machine } = applied(&MemoryVfs::new(), &["a"]).await;
        let builder = machine.get_snapshot_builder().await;
        let received = machine.begin_receiving_snapshot().await.unwrap();
        let open = || trommel_raft::open::<KeyValueConfig, _>(&db, "node", "snapshots", KeyValue);
        let parts: [Box<dyn Any>; 4] =
            [Box::new(machine), Box::new(log), Box::new(builder), received];
        for part in parts {
            let error = open().map(drop).unwrap_err().to_string();
            assert!(error.contains("snapshots") && error.contains("in use"), "{error}");
            drop(part);
        }
        open().map(drop).unwrap();
    });
}

#[test]
fn what_an_installation_has_left_is_not_in_the_next_state() {
    run(async {
        let mut leader = applied(&MemoryVfs::new(), &["a"]).await;
        let mut follower = open(MemoryVfs::new()).unwrap();
        let left = follower.db.keyspace("node.state.1", KeyspaceOptions::new()).unwrap();
        left.put("z", "value").unwrap();
        send(built(&mut leader).await, &mut follower, None).await.unwrap();
        assert_eq!(keys(&follower), ["a"]);
    });
}

#[test]
fn a_snapshot_is_of_the_moment_at_which_it_was_begun() {
    run(async {
        let mut node = applied(&MemoryVfs::new(), &["a"]).await;
        let mut builder = node.machine.get_snapshot_builder().await;
        node.machine.apply([put(log_id(2, 3), "b", "value")]).await.unwrap();
        let snapshot = builder.build_snapshot().await.unwrap();
        assert_eq!(snapshot.meta.last_log_id, Some(log_id(2, 2)));
        let mut other = open(MemoryVfs::new()).unwrap();
        send(snapshot, &mut other, None).await.unwrap();
        assert_eq!(keys(&other), ["a"]);
    });
}

/// While a snapshot is built, a newer one is installed, which stays the current one.
#[test]
fn an_older_snapshot_does_not_replace_a_newer_one() {
    run(async {
        let vfs = MemoryVfs::new();
        let mut node = applied(&vfs, &["a"]).await;
        let mut builder = node.machine.get_snapshot_builder().await;
        let mut leader = applied(&MemoryVfs::new(), &["a", "b"]).await;
        send(built(&mut leader).await, &mut node, None).await.unwrap();
        let older = builder.build_snapshot().await.unwrap();
        assert_eq!(older.meta.last_log_id, Some(log_id(2, 2)));
        let current = node.machine.get_current_snapshot().await.unwrap().unwrap();
        assert_eq!(current.meta.last_log_id, Some(log_id(2, 3)));
        assert_eq!(files(&vfs), 1);
    });
}

#[test]
fn a_snapshot_with_a_wrong_byte_is_refused_and_changes_nothing() {
    run(async {
        let mut leader = applied(&MemoryVfs::new(), &["a", "b", "c"]).await;
        let mut file = built(&mut leader).await.snapshot;
        let bytes = file.seek(SeekFrom::End(0)).await.unwrap() as usize;
        for at in 0..bytes {
            let vfs = MemoryVfs::new();
            let mut follower = applied(&vfs, &["z"]).await;
            let snapshot = leader.machine.get_current_snapshot().await.unwrap().unwrap();
            let error = send(snapshot, &mut follower, Some(at)).await.unwrap_err();
            assert!(error.contains("snapshot-0.table"), "{error}");
            assert_eq!(keys(&follower), ["z"]);
            assert_eq!(files(&vfs), 0, "the file is removed");
            drop(follower);
            let follower = open(vfs).unwrap();
            assert_eq!((keys(&follower), states(&follower)), (vec!["z".to_owned()], 1));
        }
    });
}

#[test]
fn files_that_no_record_names_are_removed_at_open() {
    run(async {
        let vfs = MemoryVfs::new();
        let mut node = applied(&vfs, &["a"]).await;
        let first = built(&mut node).await;
        drop(node);
        for name in ["snapshots/snapshot-7.table", "snapshots/notes.txt"] {
            vfs.create(name.as_ref()).unwrap().append(b"x").unwrap();
        }
        let mut node = open(vfs.clone()).unwrap();
        assert_eq!(files(&vfs), 2, "the current snapshot, and what is not ours");
        let second = built(&mut node).await;
        assert_ne!(second.meta.snapshot_id, first.meta.snapshot_id);
        assert_eq!(files(&vfs), 2, "the previous one is gone");
    });
}

#[test]
fn a_node_without_the_file_of_its_snapshot_has_none() {
    run(async {
        let vfs = MemoryVfs::new();
        let mut node = applied(&vfs, &["a"]).await;
        built(&mut node).await;
        drop(node);
        vfs.remove("snapshots/snapshot-0.table".as_ref()).unwrap();
        let mut node = open(vfs.clone()).unwrap();
        assert!(node.machine.get_current_snapshot().await.unwrap().is_none());
        built(&mut node).await;
        assert!(vfs.open("snapshots/snapshot-1.table".as_ref(), Access::Buffered).is_ok());
    });
}
