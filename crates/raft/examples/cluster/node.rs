//! A node of the cluster: a process with a store, which ends with the standard input.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use openraft::error::{
    InstallSnapshotError, NetworkError, RPCError, RaftError, RemoteError, Unreachable,
};
use openraft::network::{RPCOption, RaftNetwork, RaftNetworkFactory};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, InstallSnapshotRequest, InstallSnapshotResponse,
    VoteRequest, VoteResponse,
};
use openraft::{BasicNode, Config, Raft, SnapshotPolicy};
use serde::de::DeserializeOwned;
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use trommel::{Db, Options};
use trommel_raft::{KeyValue, KeyValueConfig, StateReader};

use crate::Result;
use crate::frames::{self, Peer, Request};

/// The name of the node in its store.
pub(crate) const NAME: &str = "cluster";

/// Opens the storage of the node in `dir`.
pub(crate) fn open_storage(dir: &Path) -> Result<(Db, Storage)> {
    let db = Db::open(dir.join("store"), Options::default())?;
    let storage = trommel_raft::open(&db, NAME, dir.join("snapshots"), KeyValue)?;
    Ok((db, storage))
}

type Storage =
    (trommel_raft::LogStore<KeyValueConfig>, trommel_raft::StateMachine<KeyValueConfig, KeyValue>);

/// Short timeouts, so that a leader that is killed is soon replaced; snapshots and purges after few
/// entries, so that a node that was away is often sent one.
fn config() -> Config {
    Config {
        cluster_name: NAME.to_owned(),
        heartbeat_interval: 100,
        election_timeout_min: 400,
        election_timeout_max: 800,
        snapshot_policy: SnapshotPolicy::LogsSinceLast(500),
        replication_lag_threshold: 200,
        max_in_snapshot_log_to_keep: 50,
        ..Config::default()
    }
}

/// Runs node `id` until the standard input ends.
pub(crate) async fn run(id: u64, dir: &Path, address: &str) -> Result<()> {
    let (db, (log, state_machine)) = open_storage(dir)?;
    let reader = state_machine.reader();
    let config = Arc::new(config().validate()?);
    let raft = Raft::new(id, config, Peers, log, state_machine).await?;
    let listener = TcpListener::bind(address).await?;
    let serving = tokio::spawn(serve(listener, raft.clone(), reader));
    let mut rest = Vec::new();
    tokio::io::stdin().read_to_end(&mut rest).await?;
    serving.abort();
    raft.shutdown().await?;
    db.close()?;
    Ok(())
}

async fn serve(listener: TcpListener, raft: Raft<KeyValueConfig>, reader: StateReader) {
    while let Ok((stream, _)) = listener.accept().await {
        tokio::spawn(answer_each(stream, raft.clone(), reader.clone()));
    }
}

/// Answers the requests of one connection. An error ends the connection.
async fn answer_each(mut stream: TcpStream, raft: Raft<KeyValueConfig>, reader: StateReader) {
    let _ = stream.set_nodelay(true);
    while let Ok(request) = frames::receive(&mut stream).await {
        if answer(&mut stream, &raft, &reader, request).await.is_err() {
            return;
        }
    }
}

async fn answer(
    stream: &mut TcpStream,
    raft: &Raft<KeyValueConfig>,
    reader: &StateReader,
    request: Request,
) -> Result<()> {
    match request {
        Request::Append(request) => {
            frames::send(stream, &raft.append_entries(request).await).await?;
        }
        Request::Vote(request) => frames::send(stream, &raft.vote(request).await).await?,
        Request::Install(request) => {
            frames::send(stream, &raft.install_snapshot(request).await).await?;
        }
        Request::Begin(members) => {
            let node = |(id, address): (u64, String)| (id, BasicNode::new(address));
            let members: std::collections::BTreeMap<_, _> = members.into_iter().map(node).collect();
            raft.initialize(members).await?;
            frames::send(stream, &()).await?;
        }
        Request::Write(request) => {
            let written = raft.client_write(request).await;
            let written = written.map(|_| ()).map_err(|error| frames::leader_of(&error));
            frames::send(stream, &written).await?;
        }
        Request::Read(key) => {
            let value = match raft.ensure_linearizable().await {
                Ok(_) => Ok(reader.keyspace().get(&key)?.map(|value| value.to_vec())),
                Err(_) => Err(raft.current_leader().await),
            };
            frames::send(stream, &value).await?;
        }
        Request::Metrics => {
            let metrics = raft.metrics().borrow().clone();
            frames::send(stream, &metrics).await?;
        }
    }
    Ok(())
}

/// Connects a node to the others.
struct Peers;

impl RaftNetworkFactory<KeyValueConfig> for Peers {
    type Network = Connection;

    async fn new_client(&mut self, target: u64, node: &BasicNode) -> Connection {
        Connection { target, peer: Peer::new(&node.addr) }
    }
}

/// Requests of a node to another.
struct Connection {
    target: u64,
    peer: Peer,
}

type Call<T, E> = std::result::Result<T, RPCError<u64, BasicNode, E>>;

impl Connection {
    async fn call<T: DeserializeOwned, E: std::error::Error + DeserializeOwned>(
        &mut self,
        request: Request,
        within: Duration,
    ) -> Call<T, E> {
        let called = self.peer.call::<std::result::Result<T, E>>(&request);
        match tokio::time::timeout(within, called).await {
            Ok(Ok(answer)) => {
                answer.map_err(|error| RPCError::RemoteError(RemoteError::new(self.target, error)))
            }
            Ok(Err(error)) => Err(RPCError::Unreachable(Unreachable::new(&error))),
            Err(error) => Err(RPCError::Network(NetworkError::new(&error))),
        }
    }
}

impl RaftNetwork<KeyValueConfig> for Connection {
    async fn append_entries(
        &mut self,
        request: AppendEntriesRequest<KeyValueConfig>,
        option: RPCOption,
    ) -> Call<AppendEntriesResponse<u64>, RaftError<u64>> {
        self.call(Request::Append(request), option.hard_ttl()).await
    }

    async fn vote(
        &mut self,
        request: VoteRequest<u64>,
        option: RPCOption,
    ) -> Call<VoteResponse<u64>, RaftError<u64>> {
        self.call(Request::Vote(request), option.hard_ttl()).await
    }

    async fn install_snapshot(
        &mut self,
        request: InstallSnapshotRequest<KeyValueConfig>,
        option: RPCOption,
    ) -> Call<InstallSnapshotResponse<u64>, RaftError<u64, InstallSnapshotError>> {
        self.call(Request::Install(request), option.hard_ttl()).await
    }
}
