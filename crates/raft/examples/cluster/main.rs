//! A cluster of three processes on this machine, whose leader is killed again and again.
//!
//! 1. Three processes run a node each, with a store each, and talk over TCP on the loopback.
//! 2. Clients write keys, and remember which writes were acknowledged.
//! 3. The process that leads is killed (SIGKILL) under this load. When the other two have elected a
//!    leader and acknowledge writes again, it is started on what it had written, and catches up.
//! 4. In the end every acknowledged write is read from the cluster, and from the store of each
//!    node.
//!
//! `cargo run -p trommel-raft --example cluster -- --kills 20` prints what was done, and whether
//! anything was lost; then it fails.

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

mod client;
mod frames;
mod node;

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, PoisonError};

use tokio::process::{Child, Command};
use tokio::task::JoinSet;

use client::{Client, Load, value_of, write_keys};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

const NODES: usize = 3;
const WRITERS: u64 = 8;
/// Writes that are acknowledged before a leader is killed, and again before it is started: more
/// than the log keeps after a snapshot, so that some nodes are sent one.
const WRITES_BETWEEN: u64 = 400;
/// Kills unless others are given.
const KILLS: u64 = 20;

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["node", id, dir, address] => {
            node::run(id.parse()?, Path::new(dir), address).await?;
            Ok(ExitCode::SUCCESS)
        }
        [] => kill_leaders(KILLS).await,
        ["--kills", kills] => kill_leaders(kills.parse()?).await,
        _ => Err("usage: cluster [--kills N]".into()),
    }
}

/// The processes of the nodes, each with its directory and address.
struct Cluster {
    dirs: Vec<PathBuf>,
    addresses: Vec<String>,
    processes: Vec<Child>,
}

/// Addresses of the loopback that nothing uses.
fn free_addresses() -> Result<Vec<String>> {
    let listeners: Vec<TcpListener> =
        (0..NODES).map(|_| TcpListener::bind("127.0.0.1:0")).collect::<std::io::Result<_>>()?;
    let address = |listener: &TcpListener| Ok(listener.local_addr()?.to_string());
    listeners.iter().map(address).collect()
}

impl Cluster {
    fn start(dir: &Path) -> Result<Self> {
        let dirs: Vec<PathBuf> = (0..NODES).map(|id| dir.join(format!("node-{id}"))).collect();
        dirs.iter().try_for_each(std::fs::create_dir)?;
        let mut cluster = Self { dirs, addresses: free_addresses()?, processes: Vec::new() };
        for id in 0..NODES {
            let process = cluster.spawn(id)?;
            cluster.processes.push(process);
        }
        Ok(cluster)
    }

    fn spawn(&self, id: usize) -> Result<Child> {
        let process = Command::new(std::env::current_exe()?)
            .args(["node", &id.to_string()])
            .arg(&self.dirs[id])
            .arg(&self.addresses[id])
            .stdin(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        Ok(process)
    }

    /// Ends all nodes in order.
    async fn stop(&mut self) -> Result<()> {
        for process in &mut self.processes {
            drop(process.stdin.take());
            let status = process.wait().await?;
            if !status.success() {
                return Err(format!("a node ended with {status}").into());
            }
        }
        Ok(())
    }
}

/// Kills a leader so often, and returns whether nothing was lost.
async fn kill_leaders(kills: u64) -> Result<ExitCode> {
    let dir = tempfile::tempdir()?;
    let mut cluster = Cluster::start(dir.path())?;
    let addresses = cluster.addresses.clone();
    let mut client = Client::new(&addresses);
    client.begin((0..).zip(addresses.iter().cloned()).collect()).await?;

    let load = Arc::new(Load::default());
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        writers.spawn(write_keys(writer, addresses.clone(), Arc::clone(&load)));
    }
    let mut snapshots_received = 0;
    for kill in 1..=kills {
        load.more(WRITES_BETWEEN).await?;
        let leader = client.leader(None).await?;
        cluster.processes[leader].kill().await?;
        let next = client.leader(Some(leader)).await?;
        load.more(WRITES_BETWEEN).await?;
        let index = client.applied(next, 0).await?.last_applied.map_or(0, |last| last.index);
        cluster.processes[leader] = cluster.spawn(leader)?;
        let caught_up = client.applied(leader, index).await?;
        // The log of the node begins after what it was sent as a snapshot.
        snapshots_received += u64::from(is_from_snapshot(&caught_up));
        let writes = load.acknowledged.load(Relaxed);
        println!("kill {kill}: node {leader}, then node {next} led; {writes} writes acknowledged");
    }
    load.is_over.store(true, Relaxed);
    while let Some(writer) = writers.join_next().await {
        writer??;
    }
    println!("{snapshots_received} nodes were sent a snapshot");
    let lost = lost(&mut cluster, &mut client, &load).await?;
    println!("{kills} kills, {} writes acknowledged, {lost} lost", load.keys().len());
    Ok(if lost == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Whether all that the node has of the log is younger than its snapshot.
fn is_from_snapshot(metrics: &frames::Metrics) -> bool {
    metrics.snapshot.is_some() && metrics.purged == metrics.snapshot
}

/// The number of acknowledged writes that were not found: in a read while they were made, in the
/// cluster, or in the store of a node.
async fn lost(cluster: &mut Cluster, client: &mut Client, load: &Load) -> Result<usize> {
    let mut missed = load.missed.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let keys = load.keys();
    for key in &keys {
        if client.read(key.as_bytes()).await? != Some(value_of(key)) {
            missed.push(key.clone());
        }
    }
    let leader = client.leader(None).await?;
    let index = client.applied(leader, 0).await?.last_applied.map_or(0, |last| last.index);
    for id in 0..NODES {
        client.applied(id, index).await?;
    }
    cluster.stop().await?;
    for dir in &cluster.dirs {
        let (_db, (_log, state_machine)) = node::open_storage(dir)?;
        let state = state_machine.reader().keyspace();
        for key in &keys {
            if state.get(key)?.as_deref() != Some(&value_of(key)[..]) {
                missed.push(key.clone());
            }
        }
    }
    missed.sort_unstable();
    missed.dedup();
    Ok(missed.len())
}
