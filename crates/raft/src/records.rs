//! What the keyspaces of a node hold, as bytes.
//!
//! * `NAME.log`: entries by index, 8 bytes big-endian, so that they are in order.
//! * `NAME.meta`: one value for each key below.
//! * `NAME.state.N`: the state machine, with keys and values of the application.
//!
//! Values are MessagePack with the names of fields: a type of the application may get another field
//! with a default, and old entries can still be read.

use std::io;

use openraft::{LogId, RaftTypeConfig, SnapshotMeta, StoredMembership};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use trommel::{Keyspace, KeyspaceOptions};

use crate::error::{Error, Result};

/// The vote.
pub(crate) const VOTE: &str = "vote";
/// The log id up to which entries are known to be committed.
pub(crate) const COMMITTED: &str = "committed";
/// The log id up to which entries were purged.
pub(crate) const PURGED: &str = "purged";
/// [`Applied`].
pub(crate) const APPLIED: &str = "applied";
/// [`CurrentSnapshot`].
pub(crate) const SNAPSHOT: &str = "snapshot";

/// What an entry of the log is called in an error.
pub(crate) const ENTRY: &str = "a log entry";

/// What the state machine has applied. It is written together with what it describes.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(bound = "")]
pub(crate) struct Applied<C: RaftTypeConfig> {
    /// The last entry.
    pub(crate) log_id: Option<LogId<C::NodeId>>,
    /// The members as of the last entry that changed them.
    pub(crate) membership: StoredMembership<C::NodeId, C::Node>,
    /// The number of the state's keyspace.
    pub(crate) state: u64,
}

impl<C: RaftTypeConfig> Default for Applied<C> {
    fn default() -> Self {
        Self { log_id: None, membership: StoredMembership::default(), state: 0 }
    }
}

/// The newest snapshot.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(bound = "")]
pub(crate) struct CurrentSnapshot<C: RaftTypeConfig> {
    pub(crate) meta: SnapshotMeta<C::NodeId, C::Node>,
    /// The number of its file.
    pub(crate) file: u64,
}

/// The key of the entry with this index: keys are in the order of their bytes.
#[allow(clippy::big_endian_bytes, reason = "little-endian keys would be in another order")]
pub(crate) fn key_of(index: u64) -> [u8; 8] {
    index.to_be_bytes()
}

/// The keyspace of a node's log.
pub(crate) fn log_keyspace(db: &trommel::Db, name: &str) -> Result<Keyspace> {
    Ok(db.keyspace(format!("{name}.log"), KeyspaceOptions::new())?)
}

/// The keyspace of a node's metadata.
pub(crate) fn meta_keyspace(db: &trommel::Db, name: &str) -> Result<Keyspace> {
    Ok(db.keyspace(format!("{name}.meta"), KeyspaceOptions::new())?)
}

/// The value as it is stored.
pub(crate) fn encode<T: Serialize>(what: &'static str, value: &T) -> Result<Vec<u8>> {
    rmp_serde::to_vec_named(value).map_err(|source| Error::Encode { what, source })
}

/// The number of bytes that [`encode`] returns.
pub(crate) fn encoded_bytes<T: Serialize>(what: &'static str, value: &T) -> Result<usize> {
    let mut count = ByteCount(0);
    rmp_serde::encode::write_named(&mut count, value)
        .map_err(|source| Error::Encode { what, source })?;
    Ok(count.0)
}

/// Counts what is written to it.
struct ByteCount(usize);

impl io::Write for ByteCount {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The value that was stored as `bytes`.
pub(crate) fn decode<T: DeserializeOwned>(what: &'static str, bytes: &[u8]) -> Result<T> {
    rmp_serde::from_slice(bytes).map_err(|source| Error::Decode { what, source })
}

/// The value of one of the keys above.
pub(crate) fn read<T: DeserializeOwned>(meta: &Keyspace, key: &'static str) -> Result<Option<T>> {
    meta.get(key)?.map(|bytes| decode(key, &bytes)).transpose()
}
