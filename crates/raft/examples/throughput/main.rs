//! Writes per second of a cluster of one node, whose log and state are in memory, or in a store
//! with synced appends; and synced puts of one thread, one after another, for comparison.
//!
//! `cargo run --release -p trommel-raft --example throughput -- DIR` runs them in turns, with one
//! client and with many, three rounds of three seconds each, and prints a table.

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

mod memory;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use openraft::error::{InstallSnapshotError, RPCError, RaftError, Unreachable};
use openraft::network::{RPCOption, RaftNetwork, RaftNetworkFactory};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, InstallSnapshotRequest, InstallSnapshotResponse,
    VoteRequest, VoteResponse,
};
use openraft::{BasicNode, Config, Raft, RaftTypeConfig};
use tokio::task::JoinSet;
use trommel::{Db, Options, WriteOptions};
use trommel_raft::{KeyValue, KeyValueConfig, KeyValueRequest, KeyValueResponse};

use memory::{MemoryConfig, MemoryLog, MemoryMachine};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

const ROUNDS: u32 = 3;
const SECONDS: u64 = 3;
const CLIENTS: [u64; 3] = [1, 16, 256];
const VALUE_BYTES: usize = 100;

#[tokio::main]
async fn main() -> Result<()> {
    let Some(dir) = std::env::args().nth(1).map(PathBuf::from) else {
        return Err("usage: throughput DIR, on the disk to be measured".into());
    };
    println!(
        "| clients | round | in memory | in a store | synced puts |\n|---:|---:|---:|---:|---:|"
    );
    for clients in CLIENTS {
        for round in 1..=ROUNDS {
            let memory = in_memory(clients).await?;
            let store = in_store(&dir, clients).await?;
            let puts = synced_puts(&dir)?;
            println!("| {clients} | {round} | {memory:.0} | {store:.0} | {puts:.0} |");
        }
    }
    Ok(())
}

async fn in_memory(clients: u64) -> Result<f64> {
    let (log, machine) = (MemoryLog::default(), MemoryMachine::default());
    let raft = Raft::<MemoryConfig>::new(0, config()?, Alone, log, machine).await?;
    rate(raft, clients).await
}

async fn in_store(dir: &Path, clients: u64) -> Result<f64> {
    let dir = tempfile::tempdir_in(dir)?;
    let db = Db::open(dir.path().join("store"), Options::default())?;
    let snapshots = dir.path().join("snapshots");
    let (log, machine) = trommel_raft::open::<KeyValueConfig, _>(&db, "node", snapshots, KeyValue)?;
    let raft = Raft::<KeyValueConfig>::new(0, config()?, Alone, log, machine).await?;
    let rate = rate(raft, clients).await?;
    db.close()?;
    Ok(rate)
}

/// Puts per second of one thread that waits for the sync of each.
fn synced_puts(dir: &Path) -> Result<f64> {
    let dir = tempfile::tempdir_in(dir)?;
    let db = Db::open(dir.path().join("store"), Options::default())?;
    let (began, mut puts) = (Instant::now(), 0_u32);
    while began.elapsed().as_secs() < SECONDS {
        db.put_with(format!("{puts:010}"), [b'v'; VALUE_BYTES], WriteOptions::sync())?;
        puts += 1;
    }
    Ok(f64::from(puts) / began.elapsed().as_secs_f64())
}

fn config() -> Result<Arc<Config>> {
    Ok(Arc::new(Config::default().validate()?))
}

/// Writes per second of a new cluster of one node.
async fn rate<C>(raft: Raft<C>, clients: u64) -> Result<f64>
where
    C: RaftTypeConfig<D = KeyValueRequest, R = KeyValueResponse, NodeId = u64, Node = BasicNode>,
    C: RaftTypeConfig<Responder = openraft::impls::OneshotResponder<C>>,
{
    raft.initialize(BTreeMap::from([(0, BasicNode::default())])).await?;
    raft.wait(Some(Duration::from_secs(10))).current_leader(0, "it elects itself").await?;
    let (writes, is_over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let mut running = JoinSet::new();
    let began = Instant::now();
    for client in 0..clients {
        let (raft, writes, is_over) = (raft.clone(), Arc::clone(&writes), Arc::clone(&is_over));
        running.spawn(async move {
            for number in 0_u64.. {
                if is_over.load(Relaxed) {
                    break;
                }
                let key = format!("{client:03}/{number:010}").into_bytes();
                let value = vec![b'v'; VALUE_BYTES];
                raft.client_write(KeyValueRequest::Put { key, value }).await?;
                writes.fetch_add(1, Relaxed);
            }
            Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
        });
    }
    tokio::time::sleep(Duration::from_secs(SECONDS)).await;
    let (written, passed) = (writes.load(Relaxed), began.elapsed());
    is_over.store(true, Relaxed);
    while let Some(client) = running.join_next().await {
        client??;
    }
    raft.shutdown().await.map_err(|_| "the node does not stop")?;
    Ok(written as f64 / passed.as_secs_f64())
}

/// The network of a node that has no peers.
struct Alone;

fn nobody<E: std::error::Error>() -> RPCError<u64, BasicNode, E> {
    RPCError::Unreachable(Unreachable::new(&std::io::Error::other("there is no other node")))
}

impl<C: RaftTypeConfig<NodeId = u64, Node = BasicNode>> RaftNetworkFactory<C> for Alone {
    type Network = Self;

    async fn new_client(&mut self, _: u64, _: &BasicNode) -> Self {
        Self
    }
}

type Call<T, E = RaftError<u64>> = std::result::Result<T, RPCError<u64, BasicNode, E>>;

impl<C: RaftTypeConfig<NodeId = u64, Node = BasicNode>> RaftNetwork<C> for Alone {
    async fn append_entries(
        &mut self,
        _: AppendEntriesRequest<C>,
        _: RPCOption,
    ) -> Call<AppendEntriesResponse<u64>> {
        Err(nobody())
    }

    async fn vote(&mut self, _: VoteRequest<u64>, _: RPCOption) -> Call<VoteResponse<u64>> {
        Err(nobody())
    }

    async fn install_snapshot(
        &mut self,
        _: InstallSnapshotRequest<C>,
        _: RPCOption,
    ) -> Call<InstallSnapshotResponse<u64>, RaftError<u64, InstallSnapshotError>> {
        Err(nobody())
    }
}
