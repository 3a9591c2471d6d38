//! Messages over TCP: a length of four bytes, and so many bytes of MessagePack.

use std::io;

use openraft::error::{ClientWriteError, RaftError};
use openraft::raft::{AppendEntriesRequest, InstallSnapshotRequest, VoteRequest};
use openraft::{BasicNode, RaftMetrics};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use trommel_raft::{KeyValueConfig, KeyValueRequest};

/// The longest message: entries for one append have 4 MiB, a chunk of a snapshot 3 MiB, and
/// MessagePack makes two bytes of some.
const LONGEST: u32 = 16 << 20;

/// A request of another node or of a client. Those of nodes are answered as openraft answers them.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Request {
    Append(AppendEntriesRequest<KeyValueConfig>),
    Vote(VoteRequest<u64>),
    Install(InstallSnapshotRequest<KeyValueConfig>),
    /// Begins the cluster, with these members.
    Begin(Vec<(u64, String)>),
    Write(KeyValueRequest),
    /// A read that sees every write that was acknowledged before.
    Read(Vec<u8>),
    /// The node's own state, and nothing that only others know.
    Metrics,
}

/// The answer to [`Request::Write`]: an error is the node that leads, if another one is known to.
pub(crate) type Written = Result<(), Option<u64>>;
/// The answer to [`Request::Read`], with the same error.
pub(crate) type Value = Result<Option<Vec<u8>>, Option<u64>>;
/// The answer to [`Request::Metrics`].
pub(crate) type Metrics = RaftMetrics<u64, BasicNode>;

/// The node that leads instead of the one that refused a write.
pub(crate) fn leader_of(error: &RaftError<u64, ClientWriteError<u64, BasicNode>>) -> Option<u64> {
    error.forward_to_leader().and_then(|forward| forward.leader_id)
}

fn invalid(what: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_string())
}

pub(crate) async fn send(stream: &mut TcpStream, message: &impl Serialize) -> io::Result<()> {
    let body = rmp_serde::to_vec_named(message).map_err(invalid)?;
    let length = u32::try_from(body.len()).ok().filter(|length| *length <= LONGEST);
    let length = length.ok_or_else(|| invalid(format!("a message of {} bytes", body.len())))?;
    stream.write_all(&length.to_le_bytes()).await?;
    stream.write_all(&body).await
}

pub(crate) async fn receive<T: DeserializeOwned>(stream: &mut TcpStream) -> io::Result<T> {
    let mut length = [0; 4];
    stream.read_exact(&mut length).await?;
    let length = u32::from_le_bytes(length);
    if length > LONGEST {
        return Err(invalid(format!("a message of {length} bytes")));
    }
    let mut body = vec![0; length as usize];
    stream.read_exact(&mut body).await?;
    rmp_serde::from_slice(&body).map_err(invalid)
}

/// A connection to a node, made when it is needed.
#[derive(Debug)]
pub(crate) struct Peer {
    address: String,
    stream: Option<TcpStream>,
}

impl Peer {
    pub(crate) fn new(address: &str) -> Self {
        Self { address: address.to_owned(), stream: None }
    }

    /// Sends a request and waits for the answer. The connection is not used again if this fails, or
    /// if the caller stops waiting.
    pub(crate) async fn call<T: DeserializeOwned>(&mut self, request: &Request) -> io::Result<T> {
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => {
                let stream = TcpStream::connect(&self.address).await?;
                stream.set_nodelay(true)?;
                stream
            }
        };
        send(&mut stream, request).await?;
        let answer = receive(&mut stream).await?;
        self.stream = Some(stream);
        Ok(answer)
    }
}
