//! A key-value store as an application: what many clusters replicate, and an example for others.

use serde::{Deserialize, Serialize};
use trommel::KeyspaceTransaction;

use crate::snapshot_file::SnapshotFile;
use crate::state_machine::Application;

openraft::declare_raft_types!(
    /// The types of a cluster that replicates a [`KeyValue`] store. Nodes have a number, and a
    /// string as their address.
    pub KeyValueConfig:
        D = KeyValueRequest,
        R = KeyValueResponse,
        SnapshotData = SnapshotFile,
);

/// A change of a replicated key-value store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum KeyValueRequest {
    /// Sets the value of a key.
    Put {
        /// The key.
        key: Vec<u8>,
        /// Its new value.
        value: Vec<u8>,
    },
    /// Removes a key.
    Delete {
        /// The key.
        key: Vec<u8>,
    },
    /// Sets or removes the value of a key, if it has the expected one.
    CompareAndSet {
        /// The key.
        key: Vec<u8>,
        /// The value that it must have; `None` if it must have none.
        expected: Option<Vec<u8>>,
        /// Its new value; `None` removes it.
        value: Option<Vec<u8>>,
    },
}

/// The response to a [`KeyValueRequest`].
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct KeyValueResponse {
    /// Whether the change was made: always, unless it was conditional.
    pub is_applied: bool,
}

/// A replicated key-value store.
#[derive(Debug, Clone, Copy, Default)]
pub struct KeyValue;

impl Application<KeyValueConfig> for KeyValue {
    fn apply(
        &self,
        state: &KeyspaceTransaction<'_>,
        request: KeyValueRequest,
    ) -> trommel::Result<KeyValueResponse> {
        match request {
            KeyValueRequest::Put { key, value } => state.put(key, value)?,
            KeyValueRequest::Delete { key } => state.delete(key)?,
            KeyValueRequest::CompareAndSet { key, expected, value } => {
                if state.get(&key)?.as_deref() != expected.as_deref() {
                    return Ok(KeyValueResponse { is_applied: false });
                }
                match value {
                    Some(value) => state.put(key, value)?,
                    None => state.delete(key)?,
                }
            }
        }
        Ok(KeyValueResponse { is_applied: true })
    }
}
