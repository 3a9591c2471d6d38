//! Clients: they find the leader, write, and remember what was acknowledged.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{sleep, timeout};
use trommel_raft::KeyValueRequest;

use crate::Result;
use crate::frames::{Metrics, Peer, Request, Value, Written};

/// After this long without an answer, a client tries another node.
const PATIENCE: Duration = Duration::from_secs(2);
/// Time between two attempts.
const PAUSE: Duration = Duration::from_millis(20);
/// Attempts until a client gives up: a minute at least.
const ATTEMPTS: u32 = 3000;

/// Connections to all nodes, and the one that led last.
pub(crate) struct Client {
    nodes: Vec<Peer>,
    leader: usize,
}

impl Client {
    pub(crate) fn new(addresses: &[String]) -> Self {
        Self { nodes: addresses.iter().map(|address| Peer::new(address)).collect(), leader: 0 }
    }

    /// Goes to the node that leads, or to the next one if none is known.
    async fn turn(&mut self, leader: Option<u64>) {
        let next = (self.leader + 1) % self.nodes.len();
        self.leader = leader.and_then(|id| usize::try_from(id).ok()).unwrap_or(next);
        sleep(PAUSE).await;
    }

    /// Writes until it is acknowledged. It may be applied more than once.
    async fn write(&mut self, request: KeyValueRequest) -> Result<()> {
        let request = Request::Write(request);
        for _ in 0..ATTEMPTS {
            let node = &mut self.nodes[self.leader];
            match timeout(PATIENCE, node.call::<Written>(&request)).await {
                Ok(Ok(Ok(()))) => return Ok(()),
                Ok(Ok(Err(leader))) => self.turn(leader).await,
                Ok(Err(_)) | Err(_) => self.turn(None).await,
            }
        }
        Err("no node accepts writes".into())
    }

    /// Reads what was written before.
    pub(crate) async fn read(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let request = Request::Read(key.to_vec());
        for _ in 0..ATTEMPTS {
            let node = &mut self.nodes[self.leader];
            match timeout(PATIENCE, node.call::<Value>(&request)).await {
                Ok(Ok(Ok(value))) => return Ok(value),
                Ok(Ok(Err(leader))) => self.turn(leader).await,
                Ok(Err(_)) | Err(_) => self.turn(None).await,
            }
        }
        Err("no node answers reads".into())
    }

    /// The metrics of a node.
    pub(crate) async fn metrics(&mut self, id: usize) -> io::Result<Metrics> {
        timeout(PATIENCE, self.nodes[id].call(&Request::Metrics)).await?
    }

    /// The node that leads, other than `not`.
    pub(crate) async fn leader(&mut self, not: Option<usize>) -> Result<usize> {
        for _ in 0..ATTEMPTS {
            for id in (0..self.nodes.len()).filter(|id| Some(*id) != not) {
                if self.metrics(id).await.is_ok_and(|metrics| metrics.state.is_leader()) {
                    return Ok(id);
                }
            }
            sleep(PAUSE).await;
        }
        Err("no node leads".into())
    }

    /// Waits until a node has applied what it must have.
    pub(crate) async fn applied(&mut self, id: usize, index: u64) -> Result<Metrics> {
        for _ in 0..ATTEMPTS {
            if let Ok(metrics) = self.metrics(id).await
                && metrics.last_applied.is_some_and(|last| last.index >= index)
            {
                return Ok(metrics);
            }
            sleep(PAUSE).await;
        }
        Err(format!("node {id} does not catch up").into())
    }

    pub(crate) async fn begin(&mut self, members: Vec<(u64, String)>) -> Result<()> {
        for _ in 0..ATTEMPTS {
            if let Ok(()) = self.nodes[0].call(&Request::Begin(members.clone())).await {
                return Ok(());
            }
            sleep(PAUSE).await;
        }
        Err("node 0 does not begin the cluster".into())
    }
}

/// What all writers share.
#[derive(Default)]
pub(crate) struct Load {
    pub(crate) is_over: AtomicBool,
    pub(crate) acknowledged: AtomicU64,
    keys: Mutex<Vec<String>>,
    /// Keys that a read during the load did not find, although they were acknowledged before.
    pub(crate) missed: Mutex<Vec<String>>,
}

impl Load {
    fn note(&self, key: String) {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner).push(key);
        self.acknowledged.fetch_add(1, Relaxed);
    }

    /// The keys of all writes that were acknowledged.
    pub(crate) fn keys(&self) -> Vec<String> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits for more acknowledged writes.
    pub(crate) async fn more(&self, count: u64) -> Result<()> {
        let goal = self.acknowledged.load(Relaxed) + count;
        for _ in 0..ATTEMPTS {
            if self.acknowledged.load(Relaxed) >= goal {
                return Ok(());
            }
            sleep(PAUSE).await;
        }
        Err("no write is acknowledged any more".into())
    }
}

/// The value of a key.
pub(crate) fn value_of(key: &str) -> Vec<u8> {
    format!("the value of {key}, {}", "with some bytes more".repeat(5)).into_bytes()
}

/// Writes one new key after another until the load is over, and now and then reads one back.
pub(crate) async fn write_keys(writer: u64, addresses: Vec<String>, load: Arc<Load>) -> Result<()> {
    let mut client = Client::new(&addresses);
    for number in 0_u64.. {
        if load.is_over.load(Relaxed) {
            break;
        }
        let key = format!("{writer}/{number:08}");
        let value = value_of(&key);
        client.write(KeyValueRequest::Put { key: key.clone().into_bytes(), value }).await?;
        load.note(key.clone());
        if number % 50 == 0 && client.read(key.as_bytes()).await? != Some(value_of(&key)) {
            load.missed.lock().unwrap_or_else(PoisonError::into_inner).push(key);
        }
    }
    Ok(())
}
