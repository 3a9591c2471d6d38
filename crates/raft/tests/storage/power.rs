//! A node, and a power failure at any boundary between two operations of its disk.

use std::collections::BTreeMap;

use fastrand::Rng;
use openraft::storage::{RaftLogStorage, RaftLogStorageExt, RaftStateMachine};
use openraft::{
    Entry, EntryPayload, LogId, LogIdOptionExt, RaftLogReader, RaftSnapshotBuilder, StorageHelper,
    Vote,
};
use trommel_raft::{KeyValue, KeyValueConfig, KeyValueRequest};
use trommel_sim::{Policy, SimDisk};

use crate::node::{Node, log_id, members, open, put, run};

#[test]
fn a_saved_vote_survives_a_power_failure() {
    let disk = SimDisk::new();
    let mut node = open(disk.clone()).unwrap();
    let vote = Vote::new(7, 2);
    run(node.log.save_vote(&vote)).unwrap();
    let mut node = open(disk.crash(Policy::SYNCED, 1).disk()).unwrap();
    assert_eq!(run(node.log.read_vote()).unwrap(), Some(vote));
}

#[test]
fn appended_entries_survive_a_power_failure() {
    let disk = SimDisk::new();
    let mut node = open(disk.clone()).unwrap();
    let entries: Vec<_> = (1..=9).map(|index| put(log_id(1, index), "key", "value")).collect();
    run(node.log.blocking_append(entries.clone())).unwrap();
    let mut node = open(disk.crash(Policy::SYNCED, 1).disk()).unwrap();
    assert_eq!(run(node.log.try_get_log_entries(..)).unwrap(), entries);
}

/// What a node reads when it is opened is durable, even if the store was open all the time.
#[test]
fn what_an_open_has_read_survives_a_power_failure() {
    run(async {
        let disk = SimDisk::new();
        let Node { db, log, mut machine } = open(disk.clone()).unwrap();
        machine.apply([put(log_id(1, 1), "key", "value")]).await.unwrap();
        drop((log, machine));
        let (_log, mut machine) =
            trommel_raft::open::<KeyValueConfig, _>(&db, "node", "snapshots", KeyValue).unwrap();
        let (read, _) = machine.applied_state().await.unwrap();
        let mut after = open(disk.crash(Policy::SYNCED, 1).disk()).unwrap();
        assert_eq!(after.machine.applied_state().await.unwrap().0, read);
    });
}

/// What a node has promised at a moment.
#[derive(Debug, Clone, Copy, Default)]
struct Promise {
    term: u64,
    /// Entries of the log that are durable, and stay: their indexes begin with 0.
    entries: u64,
    /// Of these, those of an installed snapshot.
    installed: u64,
}

/// The life of a node: what it has promised at each mark of the disk, and the entries that the
/// cluster has committed.
struct Life {
    disk: SimDisk,
    promises: Vec<Promise>,
    committed: Vec<Entry<KeyValueConfig>>,
}

/// The actions of a node, as openraft would have them.
struct Actor {
    node: Node,
    life: Life,
    promise: Promise,
    /// Entries of the log that are not committed.
    tail: Vec<Entry<KeyValueConfig>>,
    applied: u64,
    rng: Rng,
}

impl Actor {
    fn promise(&mut self, change: impl FnOnce(&mut Promise)) {
        change(&mut self.promise);
        self.life.disk.mark(self.life.promises.len() as u64);
        self.life.promises.push(self.promise);
    }

    fn committed(&self) -> u64 {
        self.life.committed.len() as u64
    }

    async fn vote(&mut self) {
        let term = self.promise.term + 1;
        self.node.log.save_vote(&Vote::new(term, 0)).await.unwrap();
        self.promise(|promise| promise.term = term);
    }

    /// An entry of the current term.
    fn entry(&mut self, index: u64) -> Entry<KeyValueConfig> {
        let id = log_id(self.promise.term, index);
        match self.rng.u8(..8) {
            0 => members(id, &[0, index]),
            _ => put(id, &format!("key {}", index % 5), &format!("{id} {}", "x".repeat(200))),
        }
    }

    async fn append(&mut self) {
        let next = self.committed() + self.tail.len() as u64;
        let more = self.rng.u64(1..6);
        let entries: Vec<_> = (next..next + more).map(|index| self.entry(index)).collect();
        self.tail.extend(entries.iter().cloned());
        self.node.log.blocking_append(entries).await.unwrap();
        self.promise(|promise| promise.entries = next + more);
    }

    /// A new leader has other entries.
    async fn truncate(&mut self) {
        if self.tail.is_empty() {
            return;
        }
        self.vote().await;
        self.tail.truncate(self.rng.usize(..self.tail.len()));
        let entries = self.committed() + self.tail.len() as u64;
        self.promise(|promise| promise.entries = entries);
        self.node.log.truncate(log_id(0, entries)).await.unwrap();
    }

    async fn commit(&mut self) {
        let count = self.rng.usize(..=self.tail.len());
        self.life.committed.extend(self.tail.drain(..count));
        let Some(last) = self.life.committed.last() else { return };
        self.node.log.save_committed(Some(last.log_id)).await.unwrap();
        let range = self.applied as usize..self.life.committed.len();
        let entries: Vec<_> = self.life.committed[range].to_vec();
        self.node.machine.apply(entries).await.unwrap();
        self.applied = self.committed();
    }

    async fn snapshot(&mut self) {
        let mut builder = self.node.machine.get_snapshot_builder().await;
        let snapshot = builder.build_snapshot().await.unwrap();
        let Some(last) = snapshot.meta.last_log_id else { return };
        if self.rng.bool() {
            self.node.log.purge(last).await.unwrap();
        }
    }

    /// The leader has purged what this node lacks, and sends a snapshot.
    async fn install(&mut self) {
        let mut leader = open(SimDisk::new()).unwrap();
        self.truncate().await;
        while self.tail.len() < 5 {
            let next = self.committed() + self.tail.len() as u64;
            let entry = self.entry(next);
            self.tail.push(entry);
        }
        self.life.committed.append(&mut self.tail);
        leader.machine.apply(self.life.committed.clone()).await.unwrap();
        let mut builder = leader.machine.get_snapshot_builder().await;
        let mut sent = builder.build_snapshot().await.unwrap();
        let mut received = self.node.machine.begin_receiving_snapshot().await.unwrap();
        tokio::io::copy(&mut sent.snapshot, &mut received).await.unwrap();
        let last = sent.meta.last_log_id.unwrap();
        // openraft has the log purged while the snapshot is still being installed, and may go on.
        let next = self.entry(last.index + 1);
        self.applied = self.committed();
        let applied = self.applied;
        if self.rng.bool() {
            let Node { log, machine, .. } = &mut self.node;
            log.purge(last).await.unwrap();
            let appended = log.blocking_append([next.clone()]);
            let installed = machine.install_snapshot(&sent.meta, received);
            let (appended, installed) = tokio::join!(appended, installed);
            appended.and(installed).unwrap();
        } else {
            self.node.machine.install_snapshot(&sent.meta, received).await.unwrap();
            self.promise(|promise| {
                promise.entries = applied;
                promise.installed = applied;
            });
            self.node.log.purge(last).await.unwrap();
            self.node.log.blocking_append([next.clone()]).await.unwrap();
        }
        self.tail.push(next);
        self.promise(|promise| {
            promise.entries = applied + 1;
            promise.installed = applied;
        });
    }
}

/// Lives for a number of steps.
async fn live(steps: u64, seed: u64) -> Life {
    let disk = SimDisk::new();
    let life = Life { disk: disk.clone(), promises: Vec::new(), committed: Vec::new() };
    let node = open(disk).unwrap();
    let (promise, tail) = (Promise::default(), Vec::new());
    let mut actor = Actor { node, life, promise, tail, applied: 0, rng: Rng::with_seed(seed) };
    for _ in 0..steps {
        match actor.rng.u8(..20) {
            0..8 => actor.append().await,
            8..14 => actor.commit().await,
            14 => actor.vote().await,
            15..17 => actor.truncate().await,
            17..19 => actor.snapshot().await,
            _ => actor.install().await,
        }
    }
    actor.life
}

type State = BTreeMap<Vec<u8>, Vec<u8>>;

/// The state, and the entry that made the members, after these entries.
fn state_after(entries: &[Entry<KeyValueConfig>]) -> (State, Option<LogId<u64>>) {
    let (mut state, mut members) = (BTreeMap::new(), None);
    for entry in entries {
        match &entry.payload {
            EntryPayload::Normal(KeyValueRequest::Put { key, value }) => {
                state.insert(key.clone(), value.clone());
            }
            EntryPayload::Membership(_) => members = Some(entry.log_id),
            other => panic!("{other:?}"),
        }
    }
    (state, members)
}

/// Opens the node after a power failure, as openraft does, and checks it.
async fn check(disk: SimDisk, life: &Life, promise: Promise) {
    let Node { mut log, mut machine, .. } = open(disk).unwrap();
    let vote = log.read_vote().await.unwrap().unwrap_or_default();
    assert!(vote.leader_id.term >= promise.term, "{vote} after {promise:?}");
    let (applied, _) = machine.applied_state().await.unwrap();
    assert!(applied.next_index() >= promise.installed, "{applied:?} after {promise:?}");

    // Committed entries are applied here.
    StorageHelper::new(&mut log, &mut machine).get_initial_state().await.unwrap();
    let state = log.get_log_state().await.unwrap();
    let (first, end) = (state.last_purged_log_id.next_index(), state.last_log_id.next_index());
    assert!(end >= promise.entries, "the log ends at {end} after {promise:?}");
    let entries = log.try_get_log_entries(..).await.unwrap();
    let found: Vec<u64> = entries.iter().map(|entry| entry.log_id.index).collect();
    assert_eq!(found, (first..end).collect::<Vec<_>>(), "the log has a hole");

    let (applied, membership) = machine.applied_state().await.unwrap();
    assert!(first <= applied.next_index(), "the log begins at {first} after {applied:?}");
    let (state, members) = state_after(&life.committed[..applied.next_index() as usize]);
    assert_eq!(membership.log_id(), &members);
    let entries = machine.reader().keyspace().iter().map(|entry| entry.unwrap());
    let found: BTreeMap<_, _> =
        entries.map(|(key, value)| (key.to_vec(), value.to_vec())).collect();
    assert_eq!(found, state, "as of {applied:?}");
    if let Some(snapshot) = machine.get_current_snapshot().await.unwrap() {
        let (_, members) =
            state_after(&life.committed[..snapshot.meta.last_log_id.next_index() as usize]);
        assert_eq!(snapshot.meta.last_membership.log_id(), &members);
    }
}

/// At every boundary between two operations of the disk: what was promised is there, the log has no
/// hole, and the state is that of the entries that it says it has applied.
#[test]
fn a_node_continues_after_a_power_failure_at_any_moment() {
    for seed in 1..=3 {
        run(async {
            let life = live(60, seed).await;
            let mut replay = life.disk.replay();
            while replay.step().is_some() {
                let promise = replay.marks().last().map(|mark| life.promises[*mark as usize]);
                let policies = [Policy::SYNCED, Policy::EVERYTHING, Policy::RANDOM];
                let policy = policies[replay.position() % policies.len()];
                let image = replay.image(policy, seed);
                check(image.disk(), &life, promise.unwrap_or_default()).await;
            }
        });
    }
}
